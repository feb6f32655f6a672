//! Proving the journal (DL-9): signatures, chain, gaps, forks, places.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{CommitId, KeyId};
use meshplan_schemas::key::SigningKey;
use meshplan_schemas::timestamp::BlockMark;

use super::read::begins_block;
use super::{Piece, SignedBlock, parse};

/// Something about the journal that a person should know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteProblem {
    /// Nobody known has signed it.
    #[error("block {number} on {}: the signature is not one by `{key_id}`: the text was changed, or somebody else signed it", commit.short())]
    Signature {
        /// Where it stands.
        commit: CommitId,
        /// Which.
        number: u64,
        /// Whose signature it claims to carry.
        key_id: KeyId,
    },
    /// The key is not among those given.
    #[error("block {number} on {}: no author or given key is called `{key_id}`, so nothing can be said of it", commit.short())]
    UnknownKey {
        /// Where it stands.
        commit: CommitId,
        /// Which.
        number: u64,
        /// Whose signature it claims to carry.
        key_id: KeyId,
    },
    /// It was carried to another commit's note.
    #[error("block {number} stands on {}, and was signed for {}", commit.short(), signed_for.short())]
    Place {
        /// Where it stands.
        commit: CommitId,
        /// Which.
        number: u64,
        /// Where it belongs.
        signed_for: CommitId,
    },
    /// Text that reads like a block and is none, where the block that it was is not to be had.
    #[error("{} on {} was cut or changed, or was never ours: it begins `{line}`, and is no whole block", torn(.number), commit.short())]
    Torn {
        /// Where it stands.
        commit: CommitId,
        /// Which, where it still says so.
        number: Option<u64>,
        /// The line of its transition.
        line: String,
    },
    /// A block that another follows is not there.
    #[error("block {number} ({digest}) is missing: block {} follows it", number + 1)]
    Gap {
        /// Which.
        number: u64,
        /// Its digest.
        digest: Digest,
    },
    /// Its number is not one above that of the block before it.
    #[error("block {number} on {} follows a block that is not number {}", commit.short(), number.saturating_sub(1))]
    Number {
        /// Where it stands.
        commit: CommitId,
        /// Which.
        number: u64,
    },
    /// Two blocks follow one, in one term: somebody wrote with our key, or our store was set back.
    #[error(
        "fork: {count} different blocks {number} follow the same block in term {term}; one of them was not written by this reconciler as it is now: compare them with `meshplan notes show`"
    )]
    Fork {
        /// Which.
        number: u64,
        /// The term.
        term: u64,
        /// How many.
        count: usize,
    },
    /// Two blocks follow one, in two terms: the lease moved, and the lower one wrote on for a moment.
    #[error("block {number} on {} was written in term {term}, which had ended: term {newer} has another block {number}", commit.short())]
    OlderTerm {
        /// Where it stands.
        commit: CommitId,
        /// Which.
        number: u64,
        /// Its term.
        term: u64,
        /// The term that counts.
        newer: u64,
    },
    /// The signed timestamp names a block that is not there: the end was cut off.
    #[error("the signed timestamp names block {number} ({digest}), which is missing: the record was cut")]
    Cut {
        /// Which.
        number: u64,
        /// Its digest.
        digest: Digest,
    },
}

fn torn(number: &Option<u64>) -> String {
    number.map_or_else(|| "a block".to_owned(), |number| format!("block {number}"))
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it can come about by itself; shown.
    Remark,
    /// The record does not prove what it should.
    Alarm,
}

impl NoteProblem {
    /// How bad it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::OlderTerm { .. } => Severity::Remark,
            _ => Severity::Alarm,
        }
    }
}

/// Checks the notes of a fleet as one journal. `keys` are all that may have signed: an id may have several, as authors
/// rotate. `newest` is what the timestamp says (SG-9), none where nobody knows.
#[must_use]
pub fn verify(
    notes: &BTreeMap<CommitId, String>,
    keys: &[(KeyId, SigningKey)],
    newest: Option<&BlockMark>,
) -> Vec<NoteProblem> {
    let all: Vec<(&CommitId, &str)> = notes
        .iter()
        .map(|(commit, note)| (commit, note.as_str()))
        .collect();
    prove(&all, keys).problems(newest)
}

/// Blocks that were looked at one by one.
#[derive(Debug, Default)]
pub struct Proven {
    good: BTreeMap<Digest, (CommitId, SignedBlock)>,
    problems: Vec<NoteProblem>,
}

/// Checks the blocks of some notes, each by itself: signature and place. The costly part of [`verify`], which may be done in
/// parts, side by side.
#[must_use]
pub fn prove(notes: &[(&CommitId, &str)], keys: &[(KeyId, SigningKey)]) -> Proven {
    let mut out = Proven::default();
    for (commit, note) in notes {
        let pieces = parse(note);
        out.problems.extend(torn_in(commit, &pieces));
        let blocks = pieces.into_iter().filter_map(Piece::into_block);
        for block in blocks {
            match alone(commit, &block, keys) {
                Some(problem) => out.problems.push(problem),
                None => {
                    let place = out.good.entry(block.block.digest());
                    place.or_insert(((*commit).clone(), block));
                }
            }
        }
    }
    out
}

impl Proven {
    /// Several parts as one.
    #[must_use]
    pub fn join(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut out = Self::default();
        for part in parts {
            out.problems.extend(part.problems);
            for (digest, found) in part.good {
                out.good.entry(digest).or_insert(found);
            }
        }
        out
    }

    /// The rest of [`verify`]: how the blocks follow each other.
    #[must_use]
    pub fn problems(&self, newest: Option<&BlockMark>) -> Vec<NoteProblem> {
        let mut problems = self.problems.clone();
        problems.extend(chain(&self.good));
        if let Some(mark) = newest.filter(|mark| !self.good.contains_key(&mark.digest)) {
            problems.push(NoteProblem::Cut {
                number: mark.number,
                digest: mark.digest,
            });
        }
        problems
    }

    /// The blocks that are good by themselves, by the digest that the next one names.
    #[must_use]
    pub fn into_blocks(self) -> BTreeMap<Digest, SignedBlock> {
        let good = self.good.into_iter();
        good.map(|(digest, (_, block))| (digest, block)).collect()
    }
}

/// What reads like a block between the blocks of a note. Who quotes a block that stands in the same note says nothing new.
fn torn_in(commit: &CommitId, pieces: &[Piece]) -> Vec<NoteProblem> {
    let whole: BTreeSet<String> = pieces
        .iter()
        .filter_map(Piece::block)
        .map(|signed| signed.block.transition_line())
        .collect();
    let foreign = pieces.iter().filter(|piece| piece.block().is_none());
    let paragraphs = foreign.flat_map(|piece| piece.raw().split("\n\n"));
    let mut torn = Vec::new();
    for paragraph in paragraphs {
        let mut lines = paragraph.lines();
        let Some(line) = lines.find(|line| begins_block(line) && !whole.contains(*line)) else {
            continue;
        };
        let number = lines.find_map(|line| line.strip_prefix("Block: "));
        torn.push(NoteProblem::Torn {
            commit: commit.clone(),
            number: number.and_then(|number| number.parse().ok()),
            line: line.to_owned(),
        });
    }
    torn
}

/// What is wrong with a block by itself.
fn alone(commit: &CommitId, block: &SignedBlock, keys: &[(KeyId, SigningKey)]) -> Option<NoteProblem> {
    let (commit, number) = (commit.clone(), block.block.number);
    let key_id = block.key_id.clone();
    let mut named = keys.iter().filter(|(id, _)| *id == key_id).peekable();
    if named.peek().is_none() {
        return Some(NoteProblem::UnknownKey {
            commit,
            number,
            key_id,
        });
    }
    if !named.any(|(_, key)| block.signed_by(key)) {
        return Some(NoteProblem::Signature {
            commit,
            number,
            key_id,
        });
    }
    (block.block.commit != commit).then(|| NoteProblem::Place {
        commit,
        number,
        signed_for: block.block.commit.clone(),
    })
}

/// What is wrong with how the good ones follow each other.
fn chain(good: &BTreeMap<Digest, (CommitId, SignedBlock)>) -> Vec<NoteProblem> {
    let mut problems = Vec::new();
    let mut missing = BTreeSet::new();
    let mut after: BTreeMap<Option<Digest>, Vec<&(CommitId, SignedBlock)>> = BTreeMap::new();
    for found in good.values() {
        let (commit, block) = (&found.0, &found.1.block);
        after.entry(block.prev).or_default().push(found);
        let before = match block.prev {
            None => Some(0),
            Some(digest) => good.get(&digest).map(|(_, before)| before.block.number),
        };
        match before {
            Some(before) if before.checked_add(1) != Some(block.number) => {
                problems.push(NoteProblem::Number {
                    commit: commit.clone(),
                    number: block.number,
                });
            }
            Some(_) => {}
            None => {
                missing.extend(block.prev.map(|digest| (block.number.saturating_sub(1), digest)));
            }
        }
    }
    problems.extend(
        missing
            .into_iter()
            .map(|(number, digest)| NoteProblem::Gap { number, digest }),
    );
    for found in after.values().filter(|found| found.len() > 1) {
        problems.extend(fork(found));
    }
    problems
}

fn fork(found: &[&(CommitId, SignedBlock)]) -> Vec<NoteProblem> {
    let mut problems = Vec::new();
    let mut terms: BTreeMap<u64, usize> = BTreeMap::new();
    let newer = found.iter().map(|(_, b)| b.block.term).max().unwrap_or(0);
    for (commit, SignedBlock { block, .. }) in found {
        *terms.entry(block.term).or_default() += 1;
        if block.term < newer {
            problems.push(NoteProblem::OlderTerm {
                commit: commit.clone(),
                number: block.number,
                term: block.term,
                newer,
            });
        }
    }
    let number = found.first().map_or(0, |(_, b)| b.block.number);
    for (term, count) in terms.into_iter().filter(|(_, count)| *count > 1) {
        problems.push(NoteProblem::Fork { number, term, count });
    }
    problems
}
