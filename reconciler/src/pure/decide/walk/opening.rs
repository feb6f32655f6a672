//! For which windows a stage waits before it opens: its plan's, and those of the machines that it would release (DL-17, RO-2).
//!
//! A wave of a rollout begins when each required machine of it may begin. Machines whose windows are never open together
//! would keep it for ever, so it waits for each of them once: from then on who is shut is ordered with the others, begins
//! when it opens, and has its time from there.

use std::collections::BTreeSet;

use jiff::Timestamp;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::NodeId;

use super::begin_regard;
use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::{classes, some, windows};
use crate::pure::delivery::{Delivery, Shut, Walk};
use crate::pure::scope::Scope;

/// What becomes of a stage that is to open.
pub(super) enum Opening {
    /// Nothing hinders it.
    Now,
    /// A window is shut; when it opens is due.
    Waits,
    /// It has waited: what passed before it is looked at afresh first (DL-13).
    Afresh,
}

/// Whether the stage in hand may open on these machines.
pub(super) fn opening(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Composed,
    machines: &BTreeSet<NodeId>,
) -> Opening {
    let now = draft.now();
    let rolls_out = delivery.legs.iter().any(|leg| leg.scope == Scope::Policy);
    let Some(walk) = delivery.walk.as_ref().filter(|_| !machines.is_empty()) else {
        return Opening::Now;
    };
    let Some(before) = walk.stages.get(walk.current).map(|stage| stage.shut.clone()) else {
        return Opening::Now;
    };
    let own_until = before.as_ref().and_then(|shut| shut.own_until);
    let afresh = before.as_ref().and_then(|shut| shut.afresh);
    let shut = match windows::stage_waits_since(walk, afresh, now) {
        Some(opens) => Some(Shut {
            whose: "the window of the plan".to_owned(),
            of_plan: true,
            opens,
            own_until,
            waits: true,
            afresh: None,
        }),
        // What the first stage waits for, its plan has said when it began (DL-19).
        None if rolls_out && walk.current > 0 => own(draft, walk, tree, machines, own_until),
        None => None,
    };
    let waited = before.as_ref().is_some_and(|shut| shut.waits);
    let Some(walk) = delivery.walk.as_mut() else {
        return Opening::Now;
    };
    let is_first = walk.current == 0;
    let Some(stage) = walk.stages.get_mut(walk.current) else {
        return Opening::Now;
    };
    if let Some(shut) = shut {
        draft.due(shut.opens);
        stage.shut = Some(shut);
        return Opening::Waits;
    }
    if let Some(shut) = &mut stage.shut {
        shut.waits = false;
        shut.afresh = Some(now).filter(|_| waited);
    }
    if !waited || is_first {
        return Opening::Now;
    }
    walk.current -= 1;
    begin_regard(walk, now);
    Opening::Afresh
}

/// The windows of required machines that are shut, while it waits for these.
fn own(
    draft: &Draft<'_>,
    walk: &Walk,
    tree: &Composed,
    machines: &BTreeSet<NodeId>,
    until: Option<Timestamp>,
) -> Option<Shut> {
    if until.is_some_and(|until| until <= draft.now()) {
        return None;
    }
    let required = machines
        .iter()
        .filter(|id| classes::of(walk, id) == UpdateClass::Required);
    let shut = windows::shut(draft, tree, required.copied());
    let names: Vec<&str> = shut
        .keys()
        .filter_map(|id| Some(tree.nodes.get(id)?.name.as_str()))
        .collect();
    let last = *shut.values().max()?;
    Some(Shut {
        whose: format!("the own maintenance windows of {}", some(&names)),
        of_plan: false,
        opens: *shut.values().min()?,
        own_until: Some(until.unwrap_or(last)),
        waits: true,
        afresh: None,
    })
}
