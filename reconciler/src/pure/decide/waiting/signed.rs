//! Commits that must be signed (`[trust] signed_commits`): the newest commit that was let through says by whom.
//!
//! Trust rests on that commit, its base, and never on one that nobody has let through: a commit that adds a signer is signed
//! by one of before, and what takes its place answers for it too (DL-15).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::holds::Hold;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::{NewCommit, Tree};
use crate::pure::delivery::Delivery;
use crate::pure::signatures::judge;
use crate::pure::snapshot::Snapshot;

/// What is known of the signatures that a delivery needs.
pub(super) enum Signed {
    /// Nobody asks for any.
    NotAsked,
    /// Not read yet.
    Unread,
    /// By these.
    By(String),
    /// They are missing, or not of whom they should be; why.
    Not {
        /// Why.
        why: String,
        /// The place of the rule that asks for it.
        place: String,
    },
}

/// The base of a commit that comes after this delivery: the newest that was let through.
#[must_use]
pub fn base_after(before: &Delivery) -> Option<CommitId> {
    if before.has_begun() || before.state == State::Delivered {
        Some(before.commit.clone())
    } else {
        before.base.clone()
    }
}

/// The base of a delivery as it is now: what it came after may have been let through since.
pub(super) fn base_of(deliveries: &BTreeMap<CommitId, Delivery>, delivery: &Delivery) -> Option<CommitId> {
    let before = delivery
        .previous
        .as_ref()
        .and_then(|commit| deliveries.get(commit));
    before.map_or_else(|| delivery.base.clone(), base_after)
}

/// The bases of what waits, and of new commits: whose tree says what signatures are asked for.
#[must_use]
pub fn bases(snapshot: &Snapshot, news: &[NewCommit]) -> BTreeMap<CommitId, CommitId> {
    let waits = |d: &&Delivery| matches!(d.state, State::Proposed | State::Held) && !d.has_begun();
    let waiting = snapshot.deliveries.values().filter(waits);
    let waiting = waiting.filter_map(|d| Some((d.commit.clone(), base_of(&snapshot.deliveries, d)?)));
    let newest = snapshot.deliveries.values().max_by_key(|d| d.order);
    let base = newest.and_then(base_after);
    let new = news
        .iter()
        .filter_map(|new| Some((new.commit.clone(), base.clone()?)));
    waiting.chain(new).collect()
}

/// How it stands with the signatures of a delivery.
pub(super) fn signed(draft: &Draft<'_>, delivery: &Delivery) -> Signed {
    let Some(base) = base_of(&draft.deliveries, delivery) else {
        return Signed::NotAsked;
    };
    let tree = match draft.known.trees.get(&base) {
        Some(Tree::Composed(tree)) => tree,
        // It was let through and says nothing any more: only a person can.
        Some(Tree::Invalid(why) | Tree::Gone(why)) => {
            return Signed::Not {
                why: format!("what {} trusts cannot be read: {why}", base.short()),
                place: format!("fleet.toml of {}", base.short()),
            };
        }
        None => return Signed::Unread,
    };
    let Some(trusted) = &tree.fleet.commit_signers else {
        return Signed::NotAsked;
    };
    let Some(brought) = draft.known.signatures.get(&delivery.commit) else {
        return Signed::Unread;
    };
    let judged: Result<BTreeSet<String>, String> = (brought.iter().map(|brought| judge(trusted, brought)))
        .try_fold(BTreeSet::new(), |all, names| {
            Ok(all.into_iter().chain(names?).collect())
        });
    match judged {
        Ok(names) => Signed::By(names.into_iter().collect::<Vec<_>>().join(", ")),
        Err(why) => Signed::Not {
            why: format!(
                "{why}; the tree of {} says `signed_commits = \"{}\"`",
                base.short(),
                trusted.asks
            ),
            place: format!("fleet.toml:{} of {}", trusted.line, base.short()),
        },
    }
}

/// Why the delivery waits for a person's word; none where it is signed, or nobody asks.
pub(super) fn hold(signed: &Signed) -> Option<Hold> {
    match signed {
        Signed::Not { why, place } => {
            let hold = Hold::new(Code::Signatures, format!("{why}; a go walks it"));
            Some(hold.by(&format!("{place}, signed_commits")))
        }
        Signed::NotAsked | Signed::Unread | Signed::By(_) => None,
    }
}

/// For the note of a walk that begins: who signed it, or that a person let it through without.
pub(super) fn fact(draft: &Draft<'_>, delivery: &Delivery) -> Option<(String, String)> {
    match signed(draft, delivery) {
        Signed::By(names) => Some(("Signed-By".to_owned(), names)),
        Signed::Not { why, .. } => Some(("Not-Signed".to_owned(), why)),
        Signed::NotAsked | Signed::Unread => None,
    }
}
