//! What may walk beside another delivery: scopes that share no machine with it (DL-3).
//!
//! A machine carries at most one unproven delivery, and within a scope deliveries are serial. A commit has all that the
//! one before it had, so what that one is carrying out is no leg of this one: its content is the same, or is that walk's
//! business first.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::lifecycle::delivery::State;

use crate::pure::decide::draft::Draft;
use crate::pure::decide::walk;
use crate::pure::delivery::{Delivery, Leg};
use crate::pure::guard::{Guard, stands};
use crate::pure::scope::Scope;

/// So many machines are named in a sentence; the rest is counted.
const NAMED: usize = 5;

/// The deliveries that have begun and are not over.
fn walking<'d>(draft: &'d Draft<'_>, delivery: &Delivery) -> impl Iterator<Item = &'d Delivery> {
    let commit = delivery.commit.clone();
    let others = draft.deliveries.values().filter(move |d| d.commit != commit);
    others.filter(|d| d.walks())
}

/// Takes out of a delivery's legs what a walk under way carries already, content for content, where it has nothing else
/// to do with that walk; the walk, where it took any.
pub(super) fn leave_to_others(draft: &Draft<'_>, delivery: &mut Delivery) -> Option<CommitId> {
    let mut carried: BTreeSet<Scope> = BTreeSet::new();
    let mut by = None;
    for other in walking(draft, delivery).filter(|other| other.state == State::Delivering) {
        let (theirs, own): (Vec<&Leg>, Vec<&Leg>) = delivery.legs.iter().partition(|leg| carries(other, leg));
        if own.into_iter().all(|leg| clear_of(leg, other)) {
            by = by.or_else(|| (!theirs.is_empty()).then(|| other.commit.clone()));
            carried.extend(theirs.into_iter().map(|leg| leg.scope.clone()));
        }
    }
    delivery.legs.retain(|leg| !carried.contains(&leg.scope));
    by
}

/// The delivery that this one waits for.
pub(super) fn in_the_way(draft: &Draft<'_>, delivery: &Delivery) -> Option<CommitId> {
    walking(draft, delivery)
        .filter(|_| stands(Guard::OneAtATime))
        .find(|other| !delivery.legs.iter().all(|leg| clear_of(leg, other)))
        .map(|other| other.commit.clone())
}

/// What a delivery that waits for another and that one have in common, in words.
pub(in crate::pure::decide) fn in_common(delivery: &Delivery, other: &Delivery) -> String {
    let both: BTreeSet<String> = (delivery.legs.iter())
        .filter(|leg| other.legs.iter().any(|theirs| theirs.scope == leg.scope))
        .map(|leg| leg.scope.to_string())
        .collect();
    if !both.is_empty() {
        return format!("both change {}", both.into_iter().collect::<Vec<_>>().join(", "));
    }
    let alone = |legs: &[Leg]| {
        let leg = legs.iter().find(|leg| !matches!(leg.scope, Scope::Module(_)))?;
        Some(leg.scope.to_string())
    };
    if let Some(scope) = alone(&delivery.legs) {
        return format!("{scope} walks alone");
    }
    let theirs = walk::changed(other);
    let reached = other.walk.iter().flat_map(|walk| walk.reached.iter());
    let reached: BTreeMap<NodeId, String> = reached.map(|(id, r)| (*id, r.name.to_string())).collect();
    let shared = walk::changed(delivery).into_iter();
    let shared = shared.filter(|id| theirs.contains(id) || reached.contains_key(id));
    let named = shared.map(|id| {
        reached
            .get(&id)
            .cloned()
            .unwrap_or_else(|| id.short().to_string())
    });
    let named: Vec<String> = named.collect();
    match named.len() {
        0 => "what it had reached is this one's too".to_owned(),
        1..=NAMED => format!("both concern {}", named.join(", ")),
        n => format!(
            "both concern {} and {} more machines",
            named.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", "),
            n - NAMED
        ),
    }
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
