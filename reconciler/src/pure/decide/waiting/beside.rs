//! What may walk beside another delivery: scopes that share no machine with it (DL-3).
//!
//! A machine carries at most one unproven delivery, and within a scope deliveries are serial. A commit has all that the
//! one before it had, so what that one is carrying out is no leg of this one: its content is the same, or is that walk's
//! business first.

use std::collections::BTreeSet;

use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::lifecycle::delivery::State;

use crate::pure::decide::draft::Draft;
use crate::pure::decide::walk;
use crate::pure::delivery::{Delivery, Leg};
use crate::pure::guard::{Guard, stands};
use crate::pure::scope::Scope;

/// The deliveries that have begun and are not over.
fn walking<'d>(draft: &'d Draft<'_>, delivery: &Delivery) -> impl Iterator<Item = &'d Delivery> {
    let commit = delivery.commit.clone();
    draft.deliveries.values().filter(move |d| {
        d.commit != commit
            && (matches!(d.state, State::Delivering | State::RollingBack)
                || (d.state == State::Held && d.has_begun()))
    })
}

/// Takes out of a delivery's legs what a walk under way carries already, content for content, where it has nothing else
/// to do with that walk; whether it took any.
pub(super) fn leave_to_others(draft: &Draft<'_>, delivery: &mut Delivery) -> bool {
    let mut carried: BTreeSet<Scope> = BTreeSet::new();
    for other in walking(draft, delivery).filter(|other| other.state == State::Delivering) {
        let (theirs, own): (Vec<&Leg>, Vec<&Leg>) = delivery.legs.iter().partition(|leg| carries(other, leg));
        if own.into_iter().all(|leg| clear_of(leg, other)) {
            carried.extend(theirs.into_iter().map(|leg| leg.scope.clone()));
        }
    }
    delivery.legs.retain(|leg| !carried.contains(&leg.scope));
    !carried.is_empty()
}

/// The delivery that this one waits for.
pub(super) fn in_the_way(draft: &Draft<'_>, delivery: &Delivery) -> Option<CommitId> {
    walking(draft, delivery)
        .filter(|_| stands(Guard::OneAtATime))
        .find(|other| !delivery.legs.iter().all(|leg| clear_of(leg, other)))
        .map(|other| other.commit.clone())
}

/// Whether a leg can walk beside another delivery: it concerns a module that the other has nothing to do with, and none
/// of the machines on which the other does anything.
fn clear_of(leg: &Leg, other: &Delivery) -> bool {
    let serial = other.legs.iter().any(|theirs| theirs.scope == leg.scope);
    let others = walk::changed(other);
    let reached = |id: &NodeId| {
        other
            .walk
            .as_ref()
            .is_some_and(|walk| walk.reached.contains_key(id))
    };
    let touched = leg.nodes.keys().any(|id| others.contains(id) || reached(id));
    matches!(leg.scope, Scope::Module(_)) && !serial && !touched
}

/// Whether the other delivery is bringing just this content, to all these machines.
fn carries(other: &Delivery, leg: &Leg) -> bool {
    other.legs.iter().any(|theirs| {
        theirs.scope == leg.scope
            && theirs.digest == leg.digest
            && leg
                .nodes
                .iter()
                .all(|(id, change)| theirs.nodes.get(id) == Some(change))
    })
}
