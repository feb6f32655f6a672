//! Which machines a stage takes (DL-6).

use std::collections::BTreeSet;

use meshplan_schemas::document::plan::Amount;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{CommitId, NodeId};
use sha2::{Digest as _, Sha256};

use super::{changed, ordered};
use crate::pure::compose::Composed;
use crate::pure::decide::classes;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::{Delivery, StageRun, Walk};

/// The machines that a stage may select: changed, heard from once, in no stage before, awaited at all.
pub(super) fn candidates(draft: &Draft<'_>, delivery: &Delivery, walk: &Walk) -> BTreeSet<NodeId> {
    let before = ordered(delivery);
    let heard = |id: &NodeId| {
        draft
            .known
            .snapshot
            .nodes
            .get(id)
            .is_some_and(|n| n.heard_at.is_some())
    };
    changed(delivery)
        .into_iter()
        .filter(|id| heard(id) && !before.contains(id) && !walk.excused.contains(id))
        .filter(|id| classes::of(walk, id) != UpdateClass::LeftBehind)
        .collect()
}

/// The machines of a stage, and what is worth saying about the choice (DL-6).
pub(in crate::pure::decide) fn select(
    commit: &CommitId,
    tree: &Composed,
    stage: &StageRun,
    candidates: &BTreeSet<NodeId>,
) -> (BTreeSet<NodeId>, Option<String>) {
    let wanted = &stage.select;
    if wanted.rest {
        return (
            first_by_hash(commit, tree, candidates, stage.batch, Last::Lifelines),
            None,
        );
    }
    let named = !wanted.nodes.is_empty() || !wanted.roles.is_empty();
    let fits = |id: &&NodeId| {
        tree.nodes.get(id).is_some_and(|node| {
            (wanted.nodes.is_empty() || wanted.nodes.contains(&node.name))
                && (wanted.roles.is_empty() || wanted.roles.iter().any(|r| node.roles.contains(r)))
        })
    };
    let fitting: BTreeSet<NodeId> = candidates.iter().filter(fits).copied().collect();
    if !fitting.is_empty() || !named {
        return (
            first_by_hash(commit, tree, &fitting, wanted.count, Last::Volunteers),
            None,
        );
    }
    // No named canary is among the machines that this changes: one that is takes its place (DL-6).
    let instead = first_by_hash(
        commit,
        tree,
        candidates,
        Some(Amount::Number(1)),
        Last::Volunteers,
    );
    let line = instead.first().and_then(|id| tree.nodes.get(id)).map(|node| {
        format!(
            "no machine that the stage {} names is changed by this; {} goes first instead",
            stage.name, node.name
        )
    });
    (instead, line)
}

/// Whom a choice by hash takes last, beside lifelines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Nobody else: waves are of all alike.
    Lifelines,
    /// Machines that are not awaited: as the only canaries they would say little, or nothing in time (UC-1).
    Volunteers,
}

/// So many of them in the order of their hash with the commit, at least one, lifelines last; all where no amount is
/// given.
fn first_by_hash(
    commit: &CommitId,
    tree: &Composed,
    from: &BTreeSet<NodeId>,
    amount: Option<Amount>,
    last: Last,
) -> BTreeSet<NodeId> {
    let Some(amount) = amount else { return from.clone() };
    let many = resolve(amount, from.len()).max(1);
    let lifelines = tree.leaves.values().filter(|listed| listed.leaf.lifeline);
    let lifelines: BTreeSet<NodeId> = lifelines.map(|listed| listed.leaf.id).collect();
    let volunteer =
        |id: &NodeId| last == Last::Volunteers && classes::of_record(tree, *id) != UpdateClass::Required;
    let mut hashed: Vec<(bool, bool, [u8; 32], NodeId)> = from
        .iter()
        .map(|id| {
            let hash = Sha256::new()
                .chain_update(commit.as_str().as_bytes())
                .chain_update(id.0.as_bytes())
                .finalize();
            (lifelines.contains(id), volunteer(id), hash.into(), *id)
        })
        .collect();
    hashed.sort_unstable();
    hashed.into_iter().take(many).map(|(.., id)| id).collect()
}

/// An amount of so many machines: a share is rounded down.
pub(in crate::pure::decide) fn resolve(amount: Amount, of: usize) -> usize {
    match amount {
        Amount::Number(n) => usize::try_from(n).unwrap_or(usize::MAX),
        Amount::Percent(p) => of * usize::try_from(p.min(100)).unwrap_or(100) / 100,
    }
}

/// The amount as a number of machines, at least one.
pub(super) fn as_number(amount: Amount, of: usize) -> Amount {
    Amount::Number(u32::try_from(resolve(amount, of).max(1)).unwrap_or(u32::MAX))
}
