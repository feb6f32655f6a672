//! Machines that no walk waits for, and whose newest declaration went back for a reason that says nothing about its content:
//! it is ordered once more (DL-13).
//!
//! A walk gives its own machines their order again. Those here are all others: best effort and long away, left behind and
//! following, new in the fleet. Invariant: once for an order, and never beside a walk that speaks to the machine.

use std::collections::BTreeSet;

use meshplan_schemas::ident::NodeId;

use super::draft::Draft;
use super::{DecideError, classes, orders};
use crate::pure::delivery::Delivery;

/// Orders on them once more what is assigned to them.
pub(super) fn order_again(draft: &mut Draft<'_>) -> Result<(), DecideError> {
    if draft.known.snapshot.aside.is_empty() {
        return Ok(());
    }
    let Some(newest) = classes::counting_delivery(draft).cloned() else {
        return Ok(());
    };
    let Some(tree) = draft.tree(&newest.commit) else {
        return Ok(());
    };
    let spoken_to = spoken_to(draft);
    let mut again = BTreeSet::new();
    for (id, sequence) in &draft.known.snapshot.aside {
        if !tree.nodes.contains_key(id) {
            // It left the fleet: nobody speaks to it any more.
            draft.act.repeated.insert(*id, *sequence);
        } else if !spoken_to.contains(id) {
            again.insert(*id);
        }
    }
    orders::once_more(draft, &newest, &again)
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
