//! Machines that no walk waits for, and whose newest order went back for a reason that says nothing about its content: it is
//! ordered once more (DL-13), a declaration under the next sequence, a policy under an epoch that addresses them alone.
//!
//! A walk gives its own machines their order again. Those here are all others: best effort and long away, left behind and
//! following, new in the fleet. Invariant: once for an order, never beside a walk that speaks to the machine, and no epoch
//! beside a walk that has epochs of its own.

use std::collections::BTreeSet;

use meshplan_schemas::ident::NodeId;

use super::draft::Draft;
use super::{DecideError, classes, orders};
use crate::pure::compose::Composed;
use crate::pure::delivery::Delivery;
use crate::pure::guard::{Guard, stands};
use crate::pure::scope::Scope;
use crate::pure::snapshot::StandingEpoch;

/// Orders on them once more what is assigned to them.
pub(super) fn order_again(draft: &mut Draft<'_>) -> Result<(), DecideError> {
    let snapshot = draft.known.snapshot;
    let nobody = snapshot.aside.is_empty() && snapshot.aside_epochs.is_empty();
    if nobody || !stands(Guard::OnceMore) {
        return Ok(());
    }
    let Some(newest) = classes::counting_delivery(draft).cloned() else {
        return Ok(());
    };
    let Some(tree) = draft.tree(&newest.commit) else {
        return Ok(());
    };
    let spoken_to = spoken_to(draft);
    policy_again(draft, &tree, &spoken_to)?;
    let mut again = BTreeSet::new();
    for (id, sequence) in &snapshot.aside {
        if !tree.nodes.contains_key(id) {
            // It left the fleet: nobody speaks to it any more.
            draft.act.repeated.insert(*id, *sequence);
        } else if !spoken_to.contains(id) {
            again.insert(*id);
        }
    }
    orders::once_more(draft, &newest, &again)
}

/// The same for the policy of those whose epoch went back.
fn policy_again(
    draft: &mut Draft<'_>,
    tree: &Composed,
    spoken_to: &BTreeSet<NodeId>,
) -> Result<(), DecideError> {
    let walks = |d: &Delivery| {
        let of_policy = d.legs.iter().any(|leg| leg.scope == Scope::Policy);
        of_policy && d.has_begun() && !d.state.is_final()
    };
    // One that ends in this very act has accepted what the next pass knows.
    if draft.deliveries.values().any(walks) || draft.act.accepted.contains_key(&Scope::Policy) {
        return Ok(());
    }
    let accepted = draft.known.snapshot.accepted.get(&Scope::Policy);
    let mut again = BTreeSet::new();
    for (id, number) in &draft.known.snapshot.aside_epochs {
        let roles = tree.nodes.get(id).map(|node| node.roles.as_slice());
        let its = roles.and_then(|roles| draft.epochs.iter().find(|e| e.targeting.addresses(*id, roles)));
        let is_its_own =
            |e: &StandingEpoch| e.epoch == *number && accepted.is_some_and(|c| c.digest == e.policy);
        if !its.is_some_and(is_its_own) {
            // It left the fleet, or another epoch speaks to it now.
            draft.act.repeated_epochs.insert(*id, *number);
        } else if !spoken_to.contains(id) {
            again.insert(*id);
        }
    }
    if !again.is_empty()
        && let Some(number) = orders::policy_once_more(draft, tree, &again)?
    {
        let given = again.into_iter().map(|id| (id, number));
        draft.act.repeated_epochs.extend(given);
    }
    Ok(())
}

/// The machines that something under way, or this very act, speaks to.
fn spoken_to(draft: &Draft<'_>) -> BTreeSet<NodeId> {
    let speaks = |d: &&Delivery| (d.has_begun() && !d.state.is_final()) || d.is_outstanding();
    let walks = draft
        .deliveries
        .values()
        .filter(speaks)
        .filter_map(|d| d.walk.as_ref());
    let of_walks = walks.flat_map(|walk| {
        let told = walk.stages.iter().flat_map(|stage| stage.machines.keys());
        let returning = walk.reached.iter().filter(|(_, reached)| !reached.returned);
        told.chain(returning.map(|(id, _)| id)).copied()
    });
    of_walks.chain(draft.act.declared()).collect()
}
