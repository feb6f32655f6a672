//! The windows that a walk meets: its plan's, outside of which no stage opens, and the machines' own, in which they begin
//! what is not urgent (DL-17).
//!
//! It stands alone because waiting and walking must see the same: who waits for a machine that may not begin would call it
//! silent. Roll-backs never ask here, as their orders are urgent.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::ident::{NodeId, RoleName};
use meshplan_schemas::maintenance::{Openness, Window, first_fit};

use super::draft::Draft;
use crate::pure::compose::Composed;
use crate::pure::delivery::{StageRun, Walk};
use crate::pure::scope::Scope;

/// The windows of the plans that bound a delivery: each must be open (DL-15).
pub(super) fn of_plans(bounds: &[Option<PlanDoc>]) -> Vec<Window> {
    let mut windows: Vec<Window> = Vec::new();
    for window in bounds.iter().flatten().filter_map(|plan| plan.window.as_ref()) {
        if !windows.contains(window) {
            windows.push(window.clone());
        }
    }
    windows
}

/// When the stage in hand may open; none when now.
pub(in crate::pure) fn stage_waits(walk: &Walk, now: Timestamp) -> Option<Timestamp> {
    opening(&walk.windows, walk.stages.get(walk.current)?, now)
}

/// The same for a stage that might have opened at `since`, and has looked afresh at others since then: it opens as long as the
/// window has not shut meanwhile. What the looks took would else be missing each day anew where a stage needs all of it.
pub(super) fn stage_waits_since(walk: &Walk, since: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let might = since.is_some_and(|since| stage_waits(walk, since).is_none());
    let is_open = || first_fit(&walk.windows, now, 1).is_some_and(|at| at <= now);
    if might && is_open() {
        return None;
    }
    stage_waits(walk, now)
}

/// When a stage may open outside of which windows it may not; none when now. What is left of each must be longer than the
/// stage's deadline. A stage that fits into none is looked at again in an hour: clocks and documents change.
pub(super) fn opening(windows: &[Window], stage: &StageRun, now: Timestamp) -> Option<Timestamp> {
    let needed = if stage.times == 0 { 1 } else { stage.within_secs };
    let fits = first_fit(windows, now, needed).unwrap_or(now + SignedDuration::from_hours(1));
    Some(fits).filter(|at| *at > now)
}

/// Of these machines those whose own maintenance window is shut now, with when it opens: by the policy that was last
/// accepted, which is what runs there before this one.
pub(super) fn shut(
    draft: &Draft<'_>,
    tree: &Composed,
    machines: impl IntoIterator<Item = NodeId>,
) -> BTreeMap<NodeId, Timestamp> {
    let accepted = draft.known.snapshot.accepted.get(&Scope::Policy);
    let accepted = accepted.and_then(|content| draft.tree(&content.commit));
    let windows = accepted
        .as_deref()
        .map_or(&tree.windows, |before| &before.windows);
    if windows.is_empty() {
        return BTreeMap::new();
    }
    let mut by_roles: BTreeMap<&[RoleName], Option<Timestamp>> = BTreeMap::new();
    let of_machine = |id: NodeId| {
        let roles = tree.nodes.get(&id)?.roles.as_slice();
        let opens = by_roles
            .entry(roles)
            .or_insert_with(|| Openness::at(windows.of_node(roles), draft.now()).opens());
        Some((id, (*opens)?))
    };
    machines.into_iter().filter_map(of_machine).collect()
}
