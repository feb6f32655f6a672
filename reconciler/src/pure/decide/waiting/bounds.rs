//! The plans that a delivery answers to (DL-15): nothing that takes another's place gets round a plan by that.

use std::collections::BTreeSet;

use meshplan_schemas::document::PlanDoc;

use super::plan::plan_for;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::Delivery;
use crate::pure::scope::Scope;
use crate::pure::unpassed::Unpassed;

/// The plans that bound what a delivery may do: its own, and of commits whose place it took those that they go by, where it
/// changes the same; the strictest each time (DL-15).
pub(in crate::pure::decide) fn bounds(
    draft: &Draft<'_>,
    delivery: &Delivery,
    plan: Option<&PlanDoc>,
) -> Vec<Option<PlanDoc>> {
    let mut bounds = own_bounds(draft, delivery, plan);
    let accepted = draft.known.snapshot.accepted.get(&Scope::Gate);
    let before = accepted.and_then(|accepted| draft.tree(&accepted.commit));
    let fleet = draft.known.settings.repo.as_str();
    for tree in before.into_iter().chain(draft.tree(&delivery.commit)) {
        for leg in delivery.legs.chunks(1) {
            let of_leg = |older: &&Unpassed| leg.iter().any(|leg| older.scopes.contains(&leg.scope));
            for older in delivery.unpassed.iter().filter(of_leg) {
                let by = Some(older.repo()).filter(|repo| *repo != fleet);
                add(&mut bounds, plan_for(&tree, by, leg));
            }
        }
    }
    bounds
}

/// The plans of a delivery's legs in its tree, and in the tree whose gate was last accepted. Their checks are asked of its
/// commit: those of other plans are asked of other commits, which may be another repository's.
pub(super) fn own_bounds(
    draft: &Draft<'_>,
    delivery: &Delivery,
    plan: Option<&PlanDoc>,
) -> Vec<Option<PlanDoc>> {
    let accepted = draft.known.snapshot.accepted.get(&Scope::Gate);
    let before = accepted.and_then(|accepted| draft.tree(&accepted.commit));
    let after = draft.tree(&delivery.commit);
    let together = before
        .iter()
        .map(|before| plan_for(before, delivery.component(), &delivery.legs).cloned());
    let mut bounds: Vec<Option<PlanDoc>> = together.chain([plan.cloned()]).collect();
    // Legs under several plans walk the default one; each is bounded by its own all the same.
    for tree in before.iter().chain(&after) {
        for leg in delivery.legs.chunks(1) {
            add(&mut bounds, plan_for(tree, delivery.component(), leg));
        }
    }
    // A gate is decided by the plans that it changes, as they were and as they are to be.
    if let (Some(before), Some(after)) = (before, after)
        && delivery.legs.iter().any(|leg| leg.scope == Scope::Gate)
    {
        let names: BTreeSet<_> = before.plans.keys().chain(after.plans.keys()).collect();
        for name in names {
            let (old, new) = (before.plans.get(name), after.plans.get(name));
            if old != new {
                old.into_iter()
                    .chain(new)
                    .for_each(|plan| add(&mut bounds, Some(plan)));
            }
        }
    }
    bounds
}

fn add(bounds: &mut Vec<Option<PlanDoc>>, plan: Option<&PlanDoc>) {
    if !bounds.iter().any(|known| known.as_ref() == plan) {
        bounds.push(plan.cloned());
    }
}
