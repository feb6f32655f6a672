//! What the record in git says, read back after the database was lost (DL-12, SG-8): the blocks of the notes in the order
//! of their chain give every delivery with its transitions, what was accepted, what failed, the freeze, and the highest
//! numbers that were written down.
//!
//! It stands alone because it believes nothing but the record: a block that does not follow what stood before it is an
//! error, and what no block says is not made up. Whether the record is whole is proven before ([`note::verify`]).
//!
//! | file | what it is |
//! | --- | --- |
//! | [`fill`] | what each node shall run, composed again from the commits that the record calls accepted |
//! | [`heads`] | the heads of the fleet list that blocks hold whole |
//! | [`waiting`] | that nothing is signed before the machines were heard, and above which numbers then |

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{CommitId, DeliveryName, NodeName};
use meshplan_schemas::lifecycle::delivery::{Code, State};
use meshplan_schemas::timestamp::BlockMark;

use super::delivery::{Delivery, Transition};
use super::identities::{Left, Revoked};
use super::news::Commit;
use super::note::{Block, SignedBlock};
use super::parts::Parts;
use super::scope::Scope;
use super::snapshot::{ContentRef, Counters, Freeze};
use super::unpassed::{UNASKED, UNPASSED, Unpassed};
use heads::SignedHead;
use waiting::Begun;

pub mod fill;
pub mod heads;
pub mod waiting;

#[cfg(test)]
mod tests;

/// The record, read back.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record {
    /// The deliveries in their order; those that walk have no walk yet.
    pub deliveries: Vec<Delivery>,
    /// Their transitions, in the order of the chain.
    pub transitions: Vec<Transition>,
    /// The blocks, in the order of the chain, with their whole text.
    pub blocks: Vec<(BlockMark, CommitId, String)>,
    /// The content last accepted for each scope.
    pub accepted: BTreeMap<Scope, ContentRef>,
    /// The first commit that brought a scope's content: a later one may have accepted it again without having it.
    pub origins: BTreeMap<(Scope, Digest), CommitId>,
    /// What failed and was not delivered since.
    pub known_bad: BTreeMap<(Scope, Digest), Failed>,
    /// Every uuid and key that left the fleet.
    pub revoked: Revoked,
    /// The freeze as it was last set.
    pub freeze: Option<Freeze>,
    /// The highest numbers that were written down, and the newest block.
    pub numbers: Counters,
    /// The heads that the record holds whole, by revision.
    pub heads: BTreeMap<u64, SignedHead>,
    /// The walks that have begun and are not over.
    pub walks: BTreeMap<CommitId, Begun>,
}

/// Content that failed, as the record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The commit that brought it.
    pub commit: CommitId,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reason: String,
    /// On which machines, by short id.
    pub on: BTreeSet<String>,
}

/// A record that cannot be followed although it is whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// There is no block.
    #[error(
        "the repository has no record: refs/notes/mesh-plan has no block, so there is nothing to recover from"
    )]
    Empty,
    /// A block tells of a delivery that was never announced, or is elsewhere.
    #[error("block {number} on {} says that the delivery goes on from {from}, and the blocks before it leave it {at}", commit.short())]
    Order {
        /// Which.
        number: u64,
        /// On whose note.
        commit: CommitId,
        /// What it says.
        from: &'static str,
        /// What the blocks before it say.
        at: &'static str,
    },
    /// A block says for which checks another commit answers, and it cannot be read.
    #[error(
        "block {number} on {} says that a check is still owed, and `{said}` is no such: without it that check would be asked of \
         nobody, so nothing is rebuilt. If a newer build wrote the record, recover with that one",
        commit.short()
    )]
    Unpassed {
        /// Which.
        number: u64,
        /// On whose note.
        commit: CommitId,
        /// What it says.
        said: String,
    },
    /// A block holds a head of the fleet list that is none.
    #[error(
        "block {number} on {} holds a head of the fleet list that cannot be read: {why}. Hosts that slept follow such heads to \
         learn who signs, so nothing is rebuilt without one. The block is signed as it stands: if a newer build wrote it, recover \
         with that one; if not, `meshplan notes show {}` shows what it says, and a backup of the database is the way back",
        commit.short(), commit.short()
    )]
    Head {
        /// Which.
        number: u64,
        /// On whose note.
        commit: CommitId,
        /// What is wrong with it.
        why: String,
    },
}

/// Blocks in the order of their chain, the first one first. What an older term wrote aside is left out.
#[must_use]
pub fn chain(mut all: BTreeMap<Digest, SignedBlock>) -> Vec<SignedBlock> {
    let newest = all.iter().max_by_key(|(_, b)| (b.block.number, b.block.term));
    let mut next = newest.map(|(digest, _)| *digest);
    let mut out = Vec::new();
    while let Some(block) = next.and_then(|digest| all.remove(&digest)) {
        next = block.block.prev;
        out.push(block);
    }
    out.reverse();
    out
}

/// Follows the blocks. `commits` is what git says of the commits, `repo` how deliveries are called after it.
///
/// # Errors
/// [`RecordError`].
pub fn read(
    chain: &[SignedBlock],
    commits: &BTreeMap<CommitId, Commit>,
    repo: &str,
) -> Result<Record, RecordError> {
    let mut reader = Reader {
        record: Record::default(),
        places: BTreeMap::new(),
        begun: BTreeMap::new(),
        let_through: BTreeSet::new(),
        commits,
        repo,
    };
    for signed in chain {
        reader.take(&signed.block)?;
        let mark = signed.block.mark();
        reader.record.numbers.block = Some(mark.clone());
        let row = (mark, signed.block.commit.clone(), signed.raw().to_owned());
        reader.record.blocks.push(row);
    }
    if reader.record.blocks.is_empty() {
        return Err(RecordError::Empty);
    }
    Ok(reader.finish())
}

/// A leg as the block says it with which its walk began.
#[derive(Debug, Clone)]
struct LegSaid {
    scope: Scope,
    digest: Digest,
    /// It brings what an earlier commit has.
    former: bool,
}

#[derive(Debug, Default)]
struct Walked {
    legs: Vec<LegSaid>,
    said: Begun,
}

struct Reader<'a> {
    record: Record,
    /// Where each delivery stands in the record.
    places: BTreeMap<CommitId, usize>,
    begun: BTreeMap<CommitId, Walked>,
    /// Deliveries that their gate let through: their trees say whom to trust.
    let_through: BTreeSet<CommitId>,
    commits: &'a BTreeMap<CommitId, Commit>,
    repo: &'a str,
}

impl Reader<'_> {
    fn take(&mut self, block: &Block) -> Result<(), RecordError> {
        self.numbers(block);
        self.record.heads.extend(SignedHead::in_block(block)?);
        let place = match block.from {
            None => self.announced(block)?,
            Some(from) => self.stands(block, from)?,
        };
        let Some(delivery) = self.record.deliveries.get_mut(place) else {
            return Ok(());
        };
        self.record.transitions.push(Transition {
            commit: block.commit.clone(),
            seq: delivery.transitions,
            at: block.at,
            from: block.from,
            to: block.to,
            code: block.code,
            actor: block.actor.clone(),
            reason: block.reason.clone(),
            facts: block.trailers.clone(),
        });
        delivery.transitions += 1;
        let moved = block.from != Some(block.to);
        if !moved && block.code == Code::PersonHold {
            // Of one that was held for another reason.
            delivery.person_hold = true;
            delivery.code = block.code;
            delivery.reason.clone_from(&block.reason);
        }
        if moved && block.from.is_some() {
            // A go on what is known to be bad is a go --again: no other is taken there.
            delivery.again |=
                block.code == Code::Again || (block.code == Code::Go && delivery.code == Code::KnownBad);
            delivery.person_hold |= block.code == Code::PersonHold;
            delivery.person_hold &= block.to != State::Delivering;
            delivery.rewritten |= block.code == Code::HistoryRewritten;
            // Whoever let it walk let that through.
            delivery.rewritten &= block.to != State::Delivering;
            if block.code == Code::Withdrawn {
                delivery.parts_after = Parts::read(&block.trailers);
            }
            delivery.state = block.to;
            delivery.code = block.code;
            delivery.since = block.at;
            delivery.reason.clone_from(&block.reason);
        }
        if matches!(block.to, State::Delivering | State::Delivered) {
            self.let_through.insert(block.commit.clone());
        }
        let held = delivery.person_hold;
        self.hands_over(block, held)?;
        self.freeze(block);
        self.failed(block);
        self.walk(block, moved);
        Ok(())
    }

    fn numbers(&mut self, block: &Block) {
        let numbers = &mut self.record.numbers;
        for (key, value) in &block.trailers {
            let slot = match key.as_str() {
                "Epoch" | "Return-Epoch" => &mut numbers.epoch,
                "List-Revision" => &mut numbers.revision,
                "Sequence" | "Return-Sequence" => &mut numbers.sequence,
                _ => continue,
            };
            *slot = (*slot).max(value.parse().unwrap_or(0));
        }
    }

    fn announced(&mut self, block: &Block) -> Result<usize, RecordError> {
        if let Some(place) = self.places.get(&block.commit) {
            return Err(self.out_of_order(block, *place));
        }
        let place = self.record.deliveries.len();
        let found = self.commits.get(&block.commit);
        let subject = said(block, "Subject").next().unwrap_or_default().to_owned();
        self.record.numbers.order = place as u64 + 1;
        let made_of = Parts::read(&block.trailers);
        let component = made_of.as_ref().and_then(|parts| {
            let part = parts.components.iter().find(|part| part.commit == block.commit)?;
            Some(part.of.repo.as_str())
        });
        self.record.deliveries.push(Delivery {
            previous: self.record.deliveries.last().map(|d| d.commit.clone()),
            subject: found.map_or(subject, |c| c.subject.clone()),
            author: found.map(|c| c.author.clone()).unwrap_or_default(),
            state: block.to,
            code: block.code,
            reason: block.reason.clone(),
            // What goes from machines is the fleet repo's to say (FR-12).
            allows_removals: found
                .and_then(|c| c.allows_removals.clone())
                .filter(|_| component.is_none()),
            unpassed: self.owed(block)?,
            base: self.base(),
            rewritten: said(block, REWRITTEN).next().is_some(),
            person_hold: said(block, HELD).next().is_some(),
            ..Delivery::announced(
                component.unwrap_or(self.repo),
                block.commit.clone(),
                place as u64 + 1,
                block.at,
            )
        });
        if let Some(delivery) = self.record.deliveries.last_mut() {
            delivery.made_of = made_of;
        }
        self.places.insert(block.commit.clone(), place);
        Ok(place)
    }

    /// The newest commit so far that was let through: by its tree the next one is signed, or is not.
    fn base(&self) -> Option<CommitId> {
        let before = self.record.deliveries.last()?;
        if self.let_through.contains(&before.commit) {
            Some(before.commit.clone())
        } else {
            before.base.clone()
        }
    }

    /// Where the delivery of a block stands, which must be where the block says.
    fn stands(&self, block: &Block, from: State) -> Result<usize, RecordError> {
        let place = self.places.get(&block.commit).copied();
        let place = place.ok_or_else(|| self.out_of_order(block, usize::MAX))?;
        let at = self.record.deliveries.get(place).map(|d| d.state);
        if at == Some(from) {
            Ok(place)
        } else {
            Err(self.out_of_order(block, place))
        }
    }

    fn out_of_order(&self, block: &Block, place: usize) -> RecordError {
        RecordError::Order {
            number: block.number,
            commit: block.commit.clone(),
            from: block.from.map_or("(new)", State::word),
            at: self
                .record
                .deliveries
                .get(place)
                .map_or("unannounced", |d| d.state.word()),
        }
    }

    /// What takes the place of another answers for its checks, and for a person's hold (DL-15).
    fn hands_over(&mut self, block: &Block, held_by_person: bool) -> Result<(), RecordError> {
        let by = said(block, SUPERSEDED_BY).next();
        if by.is_none() && block.to != State::Withdrawn {
            return Ok(());
        }
        let owed = self.owed(block)?;
        let mut newest_first = self.record.deliveries.iter_mut().rev();
        // One that was withdrawn leaves its gate to the newest.
        if let Some(newer) = newest_first.find(|newer| by.is_none_or(|by| newer.name.0 == by)) {
            let repo = newer.repo.clone();
            Unpassed::gather(&mut newer.unpassed, owed, &repo);
            newer.person_hold |= by.is_some() && held_by_person;
        }
        Ok(())
    }

    /// The gates that a block says are not passed (DL-15).
    fn owed(&self, block: &Block) -> Result<Vec<Unpassed>, RecordError> {
        let mut owed = Vec::new();
        let of_gates = |(key, _): &&(String, String)| key == UNPASSED || key == UNASKED;
        for (key, line) in block.trailers.iter().filter(of_gates) {
            let name = |commit: &CommitId| self.name_of(commit);
            Unpassed::read((key, line), name, &mut owed).ok_or_else(|| RecordError::Unpassed {
                number: block.number,
                commit: block.commit.clone(),
                said: line.clone(),
            })?;
        }
        Ok(owed)
    }

    /// How the delivery of a commit is called.
    fn name_of(&self, commit: &CommitId) -> DeliveryName {
        let place = self.places.get(commit);
        let delivery = place.and_then(|place| self.record.deliveries.get(*place));
        delivery.map_or_else(
            || DeliveryName::new(self.repo, commit),
            |delivery| delivery.name.clone(),
        )
    }

    fn freeze(&mut self, block: &Block) {
        let Some(fact) = said(block, super::decide::freeze::TRAILER).next() else {
            return;
        };
        if fact == "lifted" {
            self.record.freeze = None;
            return;
        }
        // The sentences are those of `Freeze::words`, and of a tree that is no order.
        let by = format!(", by {}: ", block.actor);
        let why = match block.reason.split_once(&by) {
            Some((_, why)) => why.to_owned(),
            None if block.from == Some(block.to) => String::new(),
            None => {
                let name = self.name_of(&block.commit);
                let why = block
                    .reason
                    .split("; nothing is removed")
                    .next()
                    .unwrap_or_default();
                format!("{name}: {why}")
            }
        };
        self.record.freeze = Some(Freeze {
            since: block.at,
            until: fact.strip_prefix("until ").and_then(|at| at.parse().ok()),
            actor: block.actor.clone(),
            why,
        });
    }

    fn failed(&mut self, block: &Block) {
        let short = said(block, "Abort-Cause").next().and_then(short_id);
        for (scope, digest) in said(block, "Known-Bad").filter_map(scope_and_digest) {
            let key = (scope, digest);
            let mut on = self
                .record
                .known_bad
                .remove(&key)
                .map(|bad| bad.on)
                .unwrap_or_default();
            on.extend(short.clone());
            let bad = Failed {
                commit: block.commit.clone(),
                since: block.at,
                reason: block.reason.clone(),
                on,
            };
            self.record.known_bad.insert(key, bad);
        }
    }

    fn revoked(&mut self, block: &Block) {
        for text in said(block, REVOKED) {
            let mut words = text.split_whitespace();
            // `-` where nobody knows whose it was.
            let node: Option<NodeName> = words.next().and_then(|name| name.parse().ok());
            for digest in words.filter_map(|word| word.parse().ok()) {
                let (node, commit) = (node.clone(), block.commit.clone());
                self.record.revoked.entry(digest).or_insert(Left { node, commit });
            }
        }
    }

    fn walk(&mut self, block: &Block, moved: bool) {
        self.revoked(block);
        let begins = moved && block.to == State::Delivering && said(block, "Gate").next().is_some();
        if begins {
            self.begins(block);
        }
        let Some(walked) = self.begun.get_mut(&block.commit) else {
            return;
        };
        walked
            .said
            .machines
            .extend(said(block, "Machine").filter_map(machine));
        for (scope, _) in said(block, "Taken-Back").filter_map(scope_and_digest) {
            walked.legs.retain(|leg| leg.scope != scope);
            walked.said.taken_back.insert(scope);
        }
        let accepted = match block.to {
            State::Delivered => true,
            // The other legs of a commit whose legs go apart are through.
            State::RollingBack => moved && said(block, ACCEPTED).next().is_some(),
            _ => false,
        };
        if accepted {
            for leg in std::mem::take(&mut walked.legs) {
                self.record.known_bad.remove(&(leg.scope.clone(), leg.digest));
                if !leg.former {
                    accept(&mut self.record.accepted, leg, &block.commit);
                }
            }
        }
        if block.to.is_final() || block.to == State::Proposed {
            self.begun.remove(&block.commit);
        }
    }

    fn begins(&mut self, block: &Block) {
        let legs: Vec<LegSaid> = said(block, "Leg").filter_map(leg).collect();
        for leg in &legs {
            let key = (leg.scope.clone(), leg.digest);
            if !leg.former {
                self.record
                    .origins
                    .entry(key)
                    .or_insert_with(|| block.commit.clone());
            }
            // The list goes first, and only forward.
            if leg.scope == Scope::List {
                accept(&mut self.record.accepted, leg.clone(), &block.commit);
            }
        }
        let said = Begun {
            overridden: said(block, OVERRIDDEN).next().is_some(),
            ..Begun::default()
        };
        self.begun.insert(block.commit.clone(), Walked { legs, said });
    }

    fn finish(self) -> Record {
        let mut record = self.record;
        record.walks = self
            .begun
            .into_iter()
            .map(|(commit, walked)| (commit, walked.said))
            .collect();
        record
    }
}

/// The trailer that the branch was rewritten before a commit (FG-3): where it is announced, and where that is let through.
pub const REWRITTEN: &str = "History-Rewritten";
/// The trailer of an announcement that a person had said hold, of a commit whose content this one has.
pub const HELD: &str = "Held";
/// The trailer that names the delivery which takes the place of another.
pub const SUPERSEDED_BY: &str = "Superseded-By";
/// The trailer that a delivery's legs were accepted although another of its legs goes back (DL-3).
pub const ACCEPTED: &str = "Accepted";
/// The trailer of the uuids and keys that left the fleet with a commit: the node, then their digests (FR-5).
pub const REVOKED: &str = "Revoked";
/// The trailer that a person said what is other for this walk alone (RO-6).
pub const OVERRIDDEN: &str = "Overridden";

fn accept(accepted: &mut BTreeMap<Scope, ContentRef>, leg: LegSaid, commit: &CommitId) {
    let content = ContentRef {
        digest: leg.digest,
        commit: commit.clone(),
    };
    accepted.insert(leg.scope, content);
}

/// What a block says under a key.
fn said<'b>(block: &'b Block, key: &'b str) -> impl Iterator<Item = &'b str> {
    let of_key = block.trailers.iter().filter(move |(k, _)| k == key);
    of_key.map(|(_, value)| value.as_str())
}

/// `module:web sha256:...`, and what follows.
fn scope_and_digest(text: &str) -> Option<(Scope, Digest)> {
    let mut words = text.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// `module:web sha256:... on 3 as accepted in 0123456789ab`.
fn leg(text: &str) -> Option<LegSaid> {
    let (scope, digest) = scope_and_digest(text)?;
    Some(LegSaid {
        scope,
        digest,
        former: text.contains(" as accepted in "),
    })
}

/// `web on ace (best_effort): passed, healthy 3 times`.
fn machine(text: &str) -> Option<NodeName> {
    let (_, rest) = text.split_once(" on ")?;
    let (name, _) = rest.split_once(':')?;
    name.split(' ').next()?.parse().ok()
}

/// `ace (0123abcd) in canary: failed: ...`.
fn short_id(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(" (")?;
    Some(rest.split_once(')')?.0.to_owned())
}
