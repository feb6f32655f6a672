//! The journal's grammar (DL-9, DL-10): what one block of `refs/notes/mesh-plan` says, and how it is read back.
//!
//! A block is text that a person reads in `git log --notes=mesh-plan` and that a program reads back losslessly:
//!
//! ```text
//! block      = transition *trailer [elided] counters sig
//! transition = time SP from " -> " to " (" code ") by " actor [": " reason] LF     time: RFC 3339, UTC, whole seconds
//! trailer    = key ": " value LF                                                  key: ALPHA *(ALPHA / DIGIT / "-")
//! elided     = "Elided: " lines " lines, " bytes " bytes, " digest LF "Stands-For: " digest LF
//! counters   = "Block: " n LF "Prev: " (digest / "none") LF "Term: " n LF "Commit: " id LF
//! sig        = "Sig: " key-id SP base64 LF
//! ```
//!
//! `from` of a new delivery is `(new)`. In actor, reason and value, `\\`, `\n`, `\r`, `\t` and `\u{HEX}` stand for a
//! backslash and for characters that would end the line or hide it; nothing else is changed. What is signed is
//! [`signed_bytes`] of everything before `Sig:`; a block's digest is that of the same text. Blocks are parted by an
//! empty line; whatever else stands in a note is nobody's, and is kept.
//!
//! It stands alone because programs that are not ours read it. Invariant: a piece of text is a [`Piece::Block`] only
//! if writing the block again gives the very same bytes.

mod elide;
mod escape;
mod merge;
mod read;
mod verify;

use jiff::Timestamp;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::pae;
use meshplan_schemas::ident::{CommitId, KeyId};
use meshplan_schemas::lifecycle::delivery::{Code, State};
use meshplan_schemas::timestamp::BlockMark;

use super::act::UnsignedBlock;
use super::delivery::Transition;

pub use elide::{Elision, elide};
pub use merge::{append, merge};
pub use read::{Piece, SignedBlock, blocks, parse};
pub use verify::{NoteProblem, Proven, Severity, prove, verify};

/// The type under which a block is signed, so that its signature can stand for nothing else.
pub const BLOCK_TYPE: &str = "application/vnd.meshplan.block";

/// The words of a block that no trailer may have.
const RESERVED: [&str; 7] = ["Block", "Prev", "Term", "Commit", "Sig", "Elided", "Stands-For"];

/// One transition as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// `Block:`, from 1, one numbering for the whole fleet.
    pub number: u64,
    /// `Prev:`, the digest of block `number - 1`; none for the first.
    pub prev: Option<Digest>,
    /// `Term:` of the lease.
    pub term: u64,
    /// The commit on whose note it stands.
    pub commit: CommitId,
    /// When; whole seconds.
    pub at: Timestamp,
    /// From; none for "(new)".
    pub from: Option<State>,
    /// To.
    pub to: State,
    /// Why, as a word.
    pub code: Code,
    /// Who.
    pub actor: String,
    /// Why, in a sentence.
    pub reason: String,
    /// Facts, in order.
    pub trailers: Vec<(String, String)>,
    /// What was taken out of it at the cap (DL-10).
    pub elided: Option<Elided>,
}

/// What a block says of detail that was taken out of it. The bytes stay in the history of the notes ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elided {
    /// How many lines.
    pub lines: usize,
    /// How many bytes.
    pub bytes: usize,
    /// The digest of those lines as they stood.
    pub digest: Digest,
    /// The digest of the whole block before: the one that the next block's `Prev:` names.
    pub stands_for: Digest,
}

impl Block {
    /// The block of a transition. The time loses its fraction, and keys that are none are made into some.
    #[must_use]
    pub fn of_transition(transition: &Transition, number: u64, prev: Option<Digest>, term: u64) -> Self {
        Self {
            number,
            prev,
            term,
            commit: transition.commit.clone(),
            at: whole_seconds(transition.at),
            from: transition.from,
            to: transition.to,
            code: transition.code,
            actor: transition.actor.clone(),
            reason: transition.reason.clone(),
            trailers: transition
                .facts
                .iter()
                .map(|(key, value)| (trailer_key(key), value.clone()))
                .collect(),
            elided: None,
        }
    }

    /// The line that says what happened; also what the view prints (DL-11, DL-12).
    #[must_use]
    pub fn transition_line(&self) -> String {
        transition_line(self.at, self.from, self.to, self.code, &self.actor, &self.reason)
    }

    /// The text that is signed: everything before `Sig:`, with its last line end.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.transition_line();
        text.push('\n');
        for (key, value) in &self.trailers {
            text.push_str(&trailer_line(key, value));
        }
        if let Some(elided) = &self.elided {
            let Elided {
                lines,
                bytes,
                digest,
                stands_for,
            } = elided;
            text.push_str(&format!(
                "Elided: {lines} lines, {bytes} bytes, {digest}\nStands-For: {stands_for}\n"
            ));
        }
        let prev = self
            .prev
            .map_or_else(|| "none".to_owned(), |digest| digest.to_string());
        text.push_str(&format!(
            "Block: {}\nPrev: {prev}\nTerm: {}\nCommit: {}\n",
            self.number, self.term, self.commit
        ));
        text
    }

    /// The digest that the next block's `Prev:` names: that of the text, or of the text that it stands for.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.elided
            .as_ref()
            .map_or_else(|| Digest::of(self.text().as_bytes()), |elided| elided.stands_for)
    }

    /// Number and digest, as the timestamp carries them (SG-9).
    #[must_use]
    pub fn mark(&self) -> BlockMark {
        BlockMark {
            number: self.number,
            digest: self.digest(),
        }
    }

    /// The block as an act carries it to the signer.
    #[must_use]
    pub fn unsigned(&self) -> UnsignedBlock {
        UnsignedBlock {
            mark: self.mark(),
            commit: self.commit.clone(),
            text: self.text(),
        }
    }
}

/// The line of a transition, with what could end or hide it escaped.
#[must_use]
pub fn transition_line(
    at: Timestamp,
    from: Option<State>,
    to: State,
    code: Code,
    actor: &str,
    reason: &str,
) -> String {
    let at = whole_seconds(at);
    let from = from.map_or("(new)", State::word);
    let actor = escape::actor(actor);
    let line = format!("{at} {from} -> {to} ({code}) by {actor}");
    if reason.is_empty() {
        line
    } else {
        format!("{line}: {}", escape::text(reason))
    }
}

/// What a block's signature covers: the DSSE encoding of [`BLOCK_TYPE`] and the unsigned text.
#[must_use]
pub fn signed_bytes(text: &str) -> Vec<u8> {
    pae(BLOCK_TYPE, text.as_bytes())
}

/// The signed block: the text and its `Sig:` line. `signature` is over [`signed_bytes`].
#[must_use]
pub fn seal(text: &str, key_id: &KeyId, signature: &[u8]) -> String {
    format!(
        "{text}Sig: {key_id} {}\n",
        data_encoding::BASE64.encode(signature)
    )
}

pub(crate) fn trailer_line(key: &str, value: &str) -> String {
    format!("{}: {}\n", trailer_key(key), escape::text(value))
}

/// A key as a trailer may have it.
fn trailer_key(key: &str) -> String {
    let mut out: String = key
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    if !out.starts_with(|c: char| c.is_ascii_alphabetic()) || RESERVED.contains(&out.as_str()) {
        out.insert_str(0, "X-");
    }
    out
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

#[cfg(test)]
mod tests;
