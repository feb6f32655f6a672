//! From a note's text to its blocks and to what stands between them.

use jiff::Timestamp;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::KeyId;
use meshplan_schemas::key::SigningKey;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::{Block, Elided, RESERVED, escape, seal, signed_bytes};

/// A part of a note. The pieces of a note, one after the other, are the note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// A block.
    Block(Box<SignedBlock>),
    /// Anything else: empty lines, what people wrote, what is no block.
    Foreign(String),
}

impl Piece {
    /// The text as it stood.
    #[must_use]
    pub fn raw(&self) -> &str {
        match self {
            Self::Block(block) => &block.raw,
            Self::Foreign(text) => text,
        }
    }

    /// The block, none where it is something else.
    #[must_use]
    pub fn block(&self) -> Option<&SignedBlock> {
        match self {
            Self::Block(block) => Some(block),
            Self::Foreign(_) => None,
        }
    }

    /// The same, for keeps.
    #[must_use]
    pub fn into_block(self) -> Option<SignedBlock> {
        match self {
            Self::Block(block) => Some(*block),
            Self::Foreign(_) => None,
        }
    }
}

/// A block with its signature, as it was read. That the signature is good is not said: see [`SignedBlock::signed_by`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedBlock {
    /// What it says.
    pub block: Block,
    /// Whose signature it claims to carry.
    pub key_id: KeyId,
    /// The signature's bytes.
    pub signature: Vec<u8>,
    raw: String,
}

impl SignedBlock {
    /// The text as it stood, with the `Sig:` line.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// Whether `key` made the signature, strictly (RFC 8032, no malleable ones).
    #[must_use]
    pub fn signed_by(&self, key: &SigningKey) -> bool {
        let Ok(key) = ed25519_dalek::VerifyingKey::from_bytes(key.as_bytes()) else {
            return false;
        };
        let Ok(signature) = ed25519_dalek::Signature::from_slice(&self.signature) else {
            return false;
        };
        key.verify_strict(&signed_bytes(&self.block.text()), &signature)
            .is_ok()
    }
}

/// Parts a note into its pieces; joined, their texts are the note again.
#[must_use]
pub fn parse(note: &str) -> Vec<Piece> {
    let lines: Vec<&str> = note.split_inclusive('\n').collect();
    let mut pieces = Vec::new();
    let mut foreign = String::new();
    let mut rest = lines.as_slice();
    while let Some((line, after)) = rest.split_first() {
        if let Some((block, used)) = block(rest) {
            if !foreign.is_empty() {
                pieces.push(Piece::Foreign(std::mem::take(&mut foreign)));
            }
            pieces.push(Piece::Block(Box::new(block)));
            rest = rest.get(used..).unwrap_or_default();
        } else {
            foreign.push_str(line);
            rest = after;
        }
    }
    if !foreign.is_empty() {
        pieces.push(Piece::Foreign(foreign));
    }
    pieces
}

/// The blocks of a note, in the order in which they stand.
#[must_use]
pub fn blocks(note: &str) -> Vec<SignedBlock> {
    parse(note).into_iter().filter_map(Piece::into_block).collect()
}

/// The block that begins with the first of these lines, and how many lines it has.
fn block(lines: &[&str]) -> Option<(SignedBlock, usize)> {
    let mut used = 0;
    let mut next = || {
        let line = lines.get(used)?;
        used += 1;
        // Writing ends every line but for a note whose last line end was cut off, which is then no block.
        line.strip_suffix('\n')
    };
    let mut block = transition(next()?)?;
    let mut line = next()?;
    loop {
        let (key, value) = line.split_once(": ")?;
        match key {
            "Elided" => {
                let (lines, value) = value.split_once(" lines, ")?;
                let (bytes, digest) = value.split_once(" bytes, ")?;
                block.elided = Some(Elided {
                    lines: lines.parse().ok()?,
                    bytes: bytes.parse().ok()?,
                    digest: digest.parse().ok()?,
                    stands_for: keyed(next()?, "Stands-For")?.parse().ok()?,
                });
            }
            "Block" => break,
            key if RESERVED.contains(&key) => return None,
            key => block.trailers.push((key.to_owned(), escape::back(value)?)),
        }
        line = next()?;
    }
    block.number = keyed(line, "Block")?.parse().ok()?;
    block.prev = match keyed(next()?, "Prev")? {
        "none" => None,
        digest => Some(digest.parse::<Digest>().ok()?),
    };
    block.term = keyed(next()?, "Term")?.parse().ok()?;
    block.commit = keyed(next()?, "Commit")?.parse().ok()?;
    let (key_id, signature) = keyed(next()?, "Sig")?.rsplit_once(' ')?;
    let key_id = KeyId(key_id.to_owned());
    let signature = data_encoding::BASE64.decode(signature.as_bytes()).ok()?;
    let raw: String = lines.get(..used)?.concat();
    // What would be written differently is not ours, whatever it looks like.
    (seal(&block.text(), &key_id, &signature) == raw).then_some((
        SignedBlock {
            block,
            key_id,
            signature,
            raw,
        },
        used,
    ))
}

fn keyed<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.strip_prefix(": ")
}

/// Whether a line says a transition, as the first line of a block does.
pub(super) fn begins_block(line: &str) -> bool {
    transition(line).is_some()
}

/// A block with what its first line says, the rest still empty.
fn transition(line: &str) -> Option<Block> {
    let (at, rest) = line.split_once(' ')?;
    let (from, rest) = rest.split_once(" -> ")?;
    let (to, rest) = rest.split_once(" (")?;
    let (code, rest) = rest.split_once(") by ")?;
    let (actor, reason) = rest.split_once(": ").unwrap_or((rest, ""));
    Some(Block {
        number: 0,
        prev: None,
        term: 0,
        // Stands in for the one that is read below.
        commit: "0".repeat(40).parse().ok()?,
        at: at.parse::<Timestamp>().ok()?,
        from: match from {
            "(new)" => None,
            word => Some(word.parse::<State>().ok()?),
        },
        to: to.parse().ok()?,
        code: code.parse::<Code>().ok()?,
        actor: escape::back(actor)?,
        reason: escape::back(reason)?,
        trailers: Vec::new(),
        elided: None,
    })
}
