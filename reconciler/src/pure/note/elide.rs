//! The cap of a note (DL-10): the oldest detail goes first, a transition never.

use meshplan_schemas::digest::Digest;

use super::{Block, Elided, SignedBlock, blocks, trailer_line};

/// Trailers that are detail: the machines that differ from their stage's summary. What a gate, a head, known-bad or a
/// freeze says is held whole (DL-9).
const DETAIL: [&str; 1] = ["Machine"];

/// What a signature line adds to a text, generously: key id, base64, words.
const SIG_BYTES: usize = 200;

/// A block that is to be signed and put in the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elision {
    /// The signed block that it replaces, as it stands in the note.
    pub old: String,
    /// The block without its detail, to be signed.
    pub new: Block,
}

/// What to put in the place of what so that the note has at most `limit` bytes; the oldest blocks first, and no more
/// than needed. May not reach the limit when a note has little detail: transitions stay.
#[must_use]
pub fn elide(note: &str, limit: usize) -> Vec<Elision> {
    let mut blocks = blocks(note);
    blocks.sort_by_key(|b| b.block.number);
    let mut length = note.len();
    let mut out = Vec::new();
    for block in blocks {
        if length <= limit {
            break;
        }
        if let Some(elision) = without_detail(&block) {
            let after = elision.new.text().len() + SIG_BYTES;
            if after < elision.old.len() {
                length -= elision.old.len() - after;
                out.push(elision);
            }
        }
    }
    out
}

impl Elision {
    /// The note with the signed new block in the old one's place; none when the old one is not there (any more).
    #[must_use]
    pub fn apply(&self, note: &str, signed: &str) -> Option<String> {
        let (before, after) = note.split_once(&self.old)?;
        Some(format!("{before}{signed}{after}"))
    }
}

fn without_detail(block: &SignedBlock) -> Option<Elision> {
    if block.block.elided.is_some() {
        return None;
    }
    let is_detail = |(key, _): &(String, String)| DETAIL.contains(&key.as_str());
    let (detail, kept): (Vec<_>, Vec<_>) = block.block.trailers.iter().cloned().partition(is_detail);
    if detail.is_empty() {
        return None;
    }
    let gone: String = detail
        .iter()
        .map(|(key, value)| trailer_line(key, value))
        .collect();
    let new = Block {
        trailers: kept,
        elided: Some(Elided {
            lines: detail.len(),
            bytes: gone.len(),
            digest: Digest::of(gone.as_bytes()),
            stands_for: block.block.digest(),
        }),
        ..block.block.clone()
    };
    Some(Elision {
        old: block.raw().to_owned(),
        new,
    })
}
