//! Who or what cannot begin now: machines that were not heard from or are paused, machines whose own window is shut, a plan whose window is
//! (DL-17, DL-19).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::document::plan::Absent;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{NodeId, NodeName};
use meshplan_schemas::lifecycle::delivery::Code;

use super::holds::{Hold, place};
use super::plan::new_walk;
use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::{after_secs, classes, look, some, walk, windows};
use crate::pure::delivery::Delivery;

/// A stage opens in its plan's window only: until the first may, the delivery is held, and opens by itself (DL-17).
pub(super) fn shut_window(
    draft: &mut Draft<'_>,
    tree: &Composed,
    plan: Option<&PlanDoc>,
    bounds: &[Option<PlanDoc>],
) -> Option<Hold> {
    let windows = windows::of_plans(bounds);
    let walk = new_walk(tree, plan, windows, BTreeSet::new(), None);
    let opens = windows::stage_waits(&walk, draft.now())?;
    draft.due(opens);
    let stage = walk.stages.first().map_or("", |stage| stage.name.as_str());
    let reason = format!(
        "the window of the plan is shut, or too short by now, for the stage {stage}; next at {opens}"
    );
    // The window that is shut, of those that must all be open.
    let now = draft.now();
    let is_shut = |plan: &&PlanDoc| {
        let window = plan.window.as_ref().map(std::slice::from_ref);
        (walk.stages.first().zip(window)).is_some_and(|(stage, w)| windows::opening(w, stage, now).is_some())
    };
    let with_one = || bounds.iter().flatten().find(|plan| plan.window.is_some());
    let by = bounds.iter().flatten().find(is_shut).or_else(with_one);
    let rule = place(draft, tree, by, ("window", "[window]"));
    Some(Hold::new(Code::Window, reason).by(&rule).until(Some(opens)))
}

/// What holds it for machines that cannot begin: where its plan waits for them; and where it skips them and nobody would
/// be left to look at, so that no machine of it begins in its window unwatched.
pub(super) fn hold(
    draft: &mut Draft<'_>,
    delivery: &Delivery,
    tree: &Composed,
    plan: Option<&PlanDoc>,
) -> Option<Hold> {
    let absent = plan.map_or(Absent::Hold, |plan| plan.absent);
    if absent == Absent::Wait {
        return None;
    }
    let away = away(draft, delivery, tree);
    let later = (away.values()).any(|(_, why)| matches!(why, Away::Shut { .. } | Away::Paused { .. }));
    if absent == Absent::Skip && !(later && away.len() == heard(draft, delivery, tree)) {
        return None;
    }
    let mut unheard: Vec<&str> = Vec::new();
    let mut paused: Vec<String> = Vec::new();
    let mut shut: BTreeMap<Timestamp, Vec<&str>> = BTreeMap::new();
    for (name, why) in away.values() {
        match why {
            Away::Unheard => unheard.push(name.as_str()),
            Away::Paused { words } => paused.push(format!("{name} ({words})")),
            Away::Shut { opens } => shut.entry(*opens).or_default().push(name.as_str()),
        }
    }
    let opens = shut.keys().next().copied();
    if let Some(opens) = opens {
        draft.due(opens);
    }
    let code = match (unheard.is_empty() && paused.is_empty(), shut.is_empty()) {
        (true, true) => return None,
        (true, false) => Code::Window,
        (false, _) => Code::Absent,
    };
    let unheard = (!unheard.is_empty()).then(|| {
        format!(
            "not heard from in {} s: {}",
            tree.fleet.present_secs,
            some(&unheard)
        )
    });
    let paused: Vec<&str> = paused.iter().map(String::as_str).collect();
    let paused = (!paused.is_empty()).then(|| format!("paused on the machine: {}", some(&paused)));
    let shut = shut.iter().map(|(opens, names)| {
        format!(
            "their own maintenance window is shut until {opens}: {}",
            some(names)
        )
    });
    let reason = unheard.into_iter().chain(paused).chain(shut);
    let reason = reason.collect::<Vec<_>>().join("; ");
    let says = match absent {
        Absent::Skip => "absent = \"skip\", and nobody would be left to look at",
        Absent::Hold | Absent::Wait => "absent = \"hold\"",
    };
    let mut rule = place(draft, tree, plan, ("absent", says));
    if opens.is_some() {
        rule.push_str("; a machine whose own maintenance window is shut counts as absent");
    }
    // Whoever was not heard from has no clock.
    let until = opens.filter(|_| code == Code::Window);
    Some(Hold::new(code, reason).by(&rule).until(until))
}

/// How many of the required machines that the delivery changes were ever heard from.
fn heard(draft: &Draft<'_>, delivery: &Delivery, tree: &Composed) -> usize {
    let nodes = &draft.known.snapshot.nodes;
    let heard = |id: &NodeId| nodes.get(id).is_some_and(|state| state.heard_at.is_some());
    required(delivery, tree).iter().filter(|id| heard(id)).count()
}

/// The machines that a go takes out of the gate: those that were not heard from, or are paused (DL-19, HR-17). Who only waits for its window is
/// ordered, begins when it opens, and is looked at.
pub(super) fn excused_by_go(draft: &mut Draft<'_>, delivery: &Delivery, tree: &Composed) -> BTreeSet<NodeId> {
    let away = away(draft, delivery, tree).into_iter();
    away.filter(|(_, (_, why))| matches!(why, Away::Unheard | Away::Paused { .. }))
        .map(|(id, _)| id)
        .collect()
}

/// Why a machine cannot begin now.
pub(super) enum Away {
    /// It was heard from once, and not lately (DL-19).
    Unheard,
    /// A person paused it on the machine: it counts as absent until that is over (HR-17).
    Paused {
        /// Until when, and why.
        words: String,
    },
    /// Its own maintenance window is shut: it counts as absent until it opens (DL-17).
    Shut {
        /// When it opens.
        opens: Timestamp,
    },
}

/// The machines that the delivery changes and waits for: who is told only is never missed (UC-1).
fn required(delivery: &Delivery, tree: &Composed) -> BTreeSet<NodeId> {
    let mut changed = walk::changed(delivery);
    changed.retain(|id| classes::of_record(tree, *id) == UpdateClass::Required);
    changed
}

/// The required machines that the delivery changes and that cannot begin now.
pub(super) fn away(
    draft: &mut Draft<'_>,
    delivery: &Delivery,
    tree: &Composed,
) -> BTreeMap<NodeId, (NodeName, Away)> {
    let snapshot = draft.known.snapshot;
    let changed = required(delivery, tree);
    let shut = windows::shut(draft, tree, changed.iter().copied());
    let mut out = BTreeMap::new();
    for id in changed {
        let Some(state) = snapshot.nodes.get(&id) else {
            continue;
        };
        let Some(node) = tree.nodes.get(&id) else { continue };
        let Some(heard) = state.heard_at else { continue };
        if !snapshot.connected.contains(&id) && after_secs(heard, tree.fleet.present_secs) <= draft.now() {
            out.insert(id, (node.name.clone(), Away::Unheard));
        } else if let Some(paused) = state.paused() {
            let words = look::pause(paused);
            out.insert(id, (node.name.clone(), Away::Paused { words }));
        } else if let Some(opens) = shut.get(&id) {
            out.insert(id, (node.name.clone(), Away::Shut { opens: *opens }));
        }
    }
    out
}
