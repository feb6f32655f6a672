//! Two writers of one note: the union of their blocks, and every word of anybody else.

use std::collections::BTreeMap;

use super::{Piece, SignedBlock, parse};

/// A note with one signed block more; none when the block is there already, or an elided one that stands for it.
#[must_use]
pub fn append(note: &str, signed: &str) -> Option<String> {
    let known = super::blocks(note);
    let new = super::blocks(signed);
    if !new.is_empty() && new.iter().all(|new| known.iter().any(|k| covers(k, new))) {
        return None;
    }
    Some(joined(note, signed))
}

/// The union of two versions of a note: blocks by number, each once, an elided one in place of the one that it stands
/// for; text that is no block is kept, ours before theirs, once.
#[must_use]
pub fn merge(ours: &str, theirs: &str) -> String {
    if holds(ours, theirs) {
        return ours.to_owned();
    }
    if holds(theirs, ours) {
        return theirs.to_owned();
    }
    let mut blocks: BTreeMap<u64, Vec<SignedBlock>> = BTreeMap::new();
    let mut foreign: Vec<String> = Vec::new();
    for piece in parse(ours).into_iter().chain(parse(theirs)) {
        match piece {
            Piece::Block(block) => insert(blocks.entry(block.block.number).or_default(), *block),
            Piece::Foreign(text) => {
                let text = text.trim_matches('\n');
                if !text.is_empty() && !foreign.iter().any(|known| known == text) {
                    foreign.push(text.to_owned());
                }
            }
        }
    }
    let mut out = String::new();
    for text in &foreign {
        out = joined(&out, &format!("{text}\n"));
    }
    for block in blocks.values().flatten() {
        out = joined(&out, block.raw());
    }
    out
}

/// Whether both are the same block: of one digest, whether elided or not.
fn same(known: &SignedBlock, new: &SignedBlock) -> bool {
    known.block.number == new.block.number && known.block.digest() == new.block.digest()
}

/// Whether `new` adds nothing to `known`: elided is later than whole.
fn covers(known: &SignedBlock, new: &SignedBlock) -> bool {
    same(known, new) && (known.block.elided.is_some() || new.block.elided.is_none())
}

/// Whether a note has all that another has: then it stays as it is, to the byte.
fn holds(whole: &str, part: &str) -> bool {
    let known = super::blocks(whole);
    parse(part).iter().all(|piece| match piece {
        Piece::Block(block) => known.iter().any(|k| covers(k, block)),
        Piece::Foreign(text) => whole.contains(text.trim_matches('\n')),
    })
}

fn insert(at: &mut Vec<SignedBlock>, block: SignedBlock) {
    match at.iter_mut().find(|known| same(known, &block)) {
        // Of two signatures over the same text the first stays.
        Some(known) if covers(known, &block) => {}
        Some(known) => *known = block,
        None => {
            at.push(block);
            // A fork: both stay, in an order that does not depend on whose side this is.
            at.sort_by(|a, b| a.block.term.cmp(&b.block.term).then_with(|| a.raw().cmp(b.raw())));
        }
    }
}

/// Two texts with an empty line between them.
fn joined(before: &str, after: &str) -> String {
    if before.is_empty() {
        return after.to_owned();
    }
    let end = if before.ends_with("\n\n") {
        ""
    } else if before.ends_with('\n') {
        "\n"
    } else {
        "\n\n"
    };
    format!("{before}{end}{after}")
}
