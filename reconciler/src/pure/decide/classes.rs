//! Update classes: whom a walk waits for, whose trouble counts, and how machines that are left behind follow (UC-1, DL-19).
//!
//! | class | in a stage | its trouble | afterwards |
//! | --- | --- | --- | --- |
//! | required | awaited, within the stage's time | as the stage says | |
//! | best effort | told, listed, never awaited | counts in the canaries alone | applies when it is next seen |
//! | left behind | in none | none | follows after its grace, pinned never |
//!
//! It stands alone because walking, waiting, forecast and pages must mean the same by a class. What a stage writes
//! (`failed`, `silent`, `tolerate`, `within_secs`) speaks of machines that are awaited.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::NodeId;
use meshplan_schemas::lifecycle::delivery::State;

use super::draft::Draft;
use super::walk::selection::resolve;
use super::{DecideError, after_secs, orders, waiting, walk};
use crate::pure::compose::{Composed, ComposedNode};
use crate::pure::delivery::{
    Delivery, Follows, LeftBehind, MachineRun, OnTrouble, StageRun, VerdictWord, Walk,
};

/// The class in a tree's record; a machine without one is nobody's exception.
pub(super) fn of_record(tree: &Composed, id: NodeId) -> UpdateClass {
    tree.nodes
        .get(&id)
        .map_or(UpdateClass::Required, |node| node.update_class)
}

/// The class of a machine as it counts in a walk.
#[must_use]
pub fn of(walk: &Walk, id: &NodeId) -> UpdateClass {
    walk.classes.get(id).copied().unwrap_or_default()
}

/// The word of a class, as records have it.
#[must_use]
pub fn word(class: UpdateClass) -> &'static str {
    match class {
        UpdateClass::Required => "required",
        UpdateClass::BestEffort => "best_effort",
        UpdateClass::LeftBehind => "left_behind",
    }
}

/// The classes at the start of a walk: those of its own tree.
pub(super) fn begin(delivery: &mut Delivery, tree: &Composed) {
    let changed = walk::changed(delivery);
    if let Some(walk) = delivery.walk.as_mut() {
        walk.classes = counted(&changed, |id| of_record(tree, id)).into();
    }
}

fn counted(machines: &BTreeSet<NodeId>, of: impl Fn(NodeId) -> UpdateClass) -> BTreeMap<NodeId, UpdateClass> {
    let all = machines.iter().map(|id| (*id, of(*id)));
    all.filter(|(_, class)| *class != UpdateClass::Required).collect()
}

/// The tree whose records count now: that of the newest commit which nothing holds and nobody refused. A class that a gate
/// still holds back is nobody's class yet.
pub(super) fn counting(draft: &Draft<'_>) -> Option<Arc<Composed>> {
    draft.tree(&counting_delivery(draft)?.commit)
}

/// The delivery of that commit.
pub(super) fn counting_delivery<'d>(draft: &'d Draft<'_>) -> Option<&'d Delivery> {
    let counts = |d: &&Delivery| match d.state {
        // One that was never judged may be held by the next pass, and one whose checks still run by what they say.
        State::Proposed => !d.legs.is_empty() && waiting::have_passed(draft, d),
        // What has begun has signed its list.
        State::Held => d.walk.is_some(),
        State::Failed | State::Superseded | State::Withdrawn => false,
        State::Delivering | State::Delivered | State::RollingBack | State::RolledBack => true,
    };
    draft.deliveries.values().filter(counts).max_by_key(|d| d.order)
}

/// A class that changes while a delivery walks counts from this tick on, and is written down (UC-1).
pub(super) fn count(draft: &Draft<'_>, delivery: &mut Delivery, tree: &Composed) {
    // In the first report intervals no commit is judged yet: nobody knows whether something holds the newest one.
    if !draft.may_judge(tree.fleet.heartbeat_secs) {
        return;
    }
    let Some(newest) = counting(draft) else {
        return;
    };
    let changed = walk::changed(delivery);
    let now = counted(&changed, |id| match newest.nodes.get(&id) {
        Some(node) => node.update_class,
        // One that leaves the fleet keeps the class that it has: leaving is a matter of its own.
        None => of_record(tree, id),
    });
    let Some(walk) = delivery.walk.as_mut() else {
        return;
    };
    if *walk.classes == now {
        return;
    }
    for id in &changed {
        let class = |classes: &BTreeMap<NodeId, UpdateClass>| classes.get(id).copied().unwrap_or_default();
        let (before, after) = (class(&walk.classes), class(&now));
        if let Some(node) = tree.nodes.get(id).filter(|_| before != after) {
            walk.lines.push(format!(
                "{} counts as {} from now on, and was {}: a merged commit changed its record",
                node.name,
                word(after),
                word(before)
            ));
        }
    }
    walk.classes = now.into();
}

/// The stage whose machines are the canaries: the first that has machines, unless it is the rest of the fleet.
fn is_canary(walk: &Walk, at: usize) -> bool {
    // One whose machines have left the fleet since was the first all the same.
    let first = walk.stages.iter().position(|stage| stage.ordered_at.is_some());
    first == Some(at) && walk.stages.get(at).is_some_and(|stage| !stage.select.rest)
}

/// Whether a stage of canaries has no required machine: then one of the others must pass (RO-1).
fn has_only_volunteers(walk: &Walk, at: usize) -> bool {
    let Some(stage) = walk.stages.get(at) else {
        return false;
    };
    let mut classes = stage.machines.keys().map(|id| of(walk, id));
    is_canary(walk, at) && classes.all(|class| class != UpdateClass::Required)
}

fn has_passed(machine: &MachineRun) -> bool {
    machine
        .verdict
        .as_ref()
        .is_some_and(|v| matches!(v.word, VerdictWord::Passed | VerdictWord::Sent))
}

/// Whether nobody of a stage has passed, by itself or on a person's word.
fn nobody_passed(stage: &StageRun) -> bool {
    !stage.machines.values().any(|m| has_passed(m) || m.forced)
}

/// Whether a machine without a verdict is waited for, within the time of the stage in hand.
pub(super) fn is_awaited(walk: &Walk, at: usize, id: &NodeId) -> bool {
    match of(walk, id) {
        UpdateClass::Required => true,
        UpdateClass::LeftBehind => false,
        UpdateClass::BestEffort => {
            at == walk.current
                && has_only_volunteers(walk, at)
                && walk.stages.get(at).is_some_and(nobody_passed)
        }
    }
}

/// The machines without a verdict in the stages up to the one in hand, with their stage: those of earlier stages are
/// machines that were never awaited, or are only since their class is another.
pub(super) fn open_machines(walk: &Walk) -> Vec<(usize, NodeId)> {
    let stages = walk.stages.iter().enumerate().take(walk.current + 1);
    stages
        .flat_map(|(at, stage)| stage.machines.iter().map(move |(id, m)| (at, *id, m)))
        .filter(|(_, _, machine)| machine.verdict.is_none())
        .map(|(at, id, _)| (at, id))
        .collect()
}

/// Whether the walk waits for a machine of the stages up to the one in hand.
pub(super) fn waits(walk: &Walk) -> bool {
    let open = open_machines(walk);
    open.iter().any(|(at, id)| is_awaited(walk, *at, id))
}

/// At which gate trouble is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum At {
    /// While the stage in hand is looked at.
    Stage,
    /// Before the next one opens, when all that passed so far counts once more (DL-13).
    NextGate,
}

/// A machine that did not pass, and what its stage says to that.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) node: NodeId,
    pub(super) machine: MachineRun,
    pub(super) word: VerdictWord,
    pub(super) act: OnTrouble,
    pub(super) stage: String,
}

/// The first trouble that the stages up to the one in hand may not leave.
pub(super) fn trouble(walk: &Walk, gate: At) -> Option<Trouble> {
    (0..=walk.current).find_map(|at| trouble_of(walk, at, gate))
}

/// The trouble that a stage may not leave: its first machine, the word, and what is to follow.
fn trouble_of(walk: &Walk, at: usize, gate: At) -> Option<Trouble> {
    let stage = walk.stages.get(at)?;
    // A best-effort canary that failed blocks like any; later, and elsewhere, it is listed and left (RO-1, RO-4).
    let canary = is_canary(walk, at) && (at == walk.current || gate == At::NextGate);
    let alone = has_only_volunteers(walk, at) && nobody_passed(stage);
    let counts = |id: &NodeId, word: VerdictWord| match of(walk, id) {
        UpdateClass::Required => true,
        UpdateClass::LeftBehind => false,
        UpdateClass::BestEffort => canary && (word == VerdictWord::Failed || alone),
    };
    let bad: Vec<(&NodeId, &MachineRun, VerdictWord)> = stage
        .machines
        .iter()
        .filter(|(_, m)| !m.forced)
        .filter_map(|(id, m)| Some((id, m, m.verdict.as_ref()?.word)))
        .filter(|(id, _, word)| {
            matches!(word, VerdictWord::Failed | VerdictWord::Silent) && counts(id, *word)
        })
        .collect();
    let gating = |id: &&NodeId| canary || of(walk, id) == UpdateClass::Required;
    if bad.len() <= resolve(stage.tolerate, stage.machines.keys().filter(gating).count()) {
        return None;
    }
    // A failure says more than a silence; one that the plan leaves hides no other.
    [
        (VerdictWord::Failed, stage.failed),
        (VerdictWord::Silent, stage.silent),
    ]
    .into_iter()
    .filter(|(_, act)| *act != OnTrouble::Leave)
    .find_map(|(word, act)| {
        let (id, machine, _) = bad.iter().find(|(_, _, w)| *w == word)?;
        Some(Trouble {
            node: **id,
            machine: (*machine).clone(),
            word,
            act,
            stage: stage.name.clone(),
        })
    })
}

/// Whether a stage is walked again for this machine: it did not pass, and that was not left.
pub(super) fn is_retried(walk: &Walk, at: usize, id: &NodeId, machine: &MachineRun) -> bool {
    let passed = machine
        .verdict
        .as_ref()
        .is_some_and(|v| v.word == VerdictWord::Passed);
    match of(walk, id) {
        _ if passed => false,
        UpdateClass::Required => true,
        UpdateClass::BestEffort => machine.verdict.is_some() && is_canary(walk, at),
        UpdateClass::LeftBehind => false,
    }
}

/// Best-effort machines that were told and are not known to have it.
#[must_use]
pub fn stragglers(walk: &Walk) -> Vec<&MachineRun> {
    let told = walk.stages.iter().flat_map(|stage| &stage.machines);
    told.filter(|(id, m)| of(walk, id) != UpdateClass::Required && !has_passed(m))
        .map(|(_, m)| m)
        .collect()
}

/// Awaited machines that did not pass, and which the plan or a person left.
#[must_use]
pub fn fell_short(walk: &Walk) -> Vec<&MachineRun> {
    let told = walk.stages.iter().flat_map(|stage| &stage.machines);
    told.filter(|(id, m)| of(walk, id) == UpdateClass::Required && m.verdict.is_some() && !has_passed(m))
        .map(|(_, m)| m)
        .collect()
}

/// The machines of a delivery that are left behind, as it begins: those that its tree's records say so of.
pub(super) fn left_behind(tree: &Composed, lagging: &BTreeSet<NodeId>) -> BTreeMap<NodeId, LeftBehind> {
    let nodes = lagging.iter().filter_map(|id| tree.nodes.get(id));
    let left = |node: &Arc<ComposedNode>| LeftBehind {
        name: node.name.clone(),
        pinned: node.pinned,
        follows: None,
        sequence: 0,
    };
    nodes.map(|node| (node.id, left(node))).collect()
}

/// What was accepted is kept for the machines that are left behind it, and it is said when those that are not pinned get
/// it: after the grace from now, and not before the last stage would have been over (UC-1).
pub(super) fn hold_back(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Arc<Composed>,
) -> Result<(), DecideError> {
    let ordered = walk::ordered(delivery);
    let Some(walk) = delivery.walk.as_ref() else {
        return Ok(());
    };
    let mid_walk: BTreeSet<NodeId> = walk
        .classes
        .iter()
        .filter(|(id, class)| **class == UpdateClass::LeftBehind && !ordered.contains(id))
        .map(|(id, _)| *id)
        .collect();
    let mut news: BTreeSet<NodeId> = BTreeSet::new();
    for leg in delivery.legs.clone() {
        let turned = leg.nodes.iter().filter(|(id, _)| mid_walk.contains(id));
        let behind = leg.behind.iter().chain(turned);
        for (id, content) in orders::after(draft, delivery, &leg, tree, behind)? {
            if draft.hold_back(id, &leg.scope, content) {
                news.insert(id);
            }
        }
    }
    delivery.left_behind.append(&mut left_behind(tree, &mid_walk));
    let newest = counting(draft).unwrap_or_else(|| Arc::clone(tree));
    let grace = after_secs(draft.now(), tree.fleet.config_mgmt.left_behind_grace_secs);
    let at = grace.max(watched_until(delivery, draft.now()));
    let follows = Follows {
        at,
        after_secs: u32::try_from(at.duration_since(draft.now()).as_secs()).unwrap_or(u32::MAX),
    };
    let mut left = std::mem::take(&mut delivery.left_behind);
    // Who has it already is not behind.
    left.retain(|id, _| !draft.held_back(*id).is_empty());
    let mut older: Vec<Delivery> = draft.deliveries.values().filter(|d| d.owes()).cloned().collect();
    for (id, entry) in &mut left {
        entry.pinned = newest.nodes.get(id).map_or(entry.pinned, |node| node.pinned);
        let mut owed = older.iter_mut().filter_map(|d| d.left_behind.get_mut(id));
        let owed = owed.find(|left| left.follows.is_some());
        let brings = news.contains(id);
        if !entry.pinned && (brings || owed.is_none()) {
            entry.follows = Some(follows);
        }
        // The newest that brings it something answers for it alone.
        if let Some(owed) = owed.filter(|_| brings) {
            owed.follows = None;
        }
    }
    for older in older {
        draft.put(older);
    }
    // Who follows to an older delivery that brought it more is that one's.
    left.retain(|_, entry| entry.pinned || entry.follows.is_some());
    delivery.left_behind = left;
    Ok(())
}

/// Until when the last stage that was ordered is watched.
fn watched_until(delivery: &Delivery, now: Timestamp) -> Timestamp {
    let stages = delivery.walk.iter().flat_map(|walk| &walk.stages);
    let until = stages.filter_map(|stage| Some(after_secs(stage.ordered_at?, stage.within_secs)));
    until.max().unwrap_or(now)
}

/// Machines that were left behind get what was accepted, once their time has come and nothing walks: what is under way may
/// be what takes it back (UC-1).
pub(super) fn follow(draft: &mut Draft<'_>) -> Result<(), DecideError> {
    let owing: Vec<Delivery> = draft.deliveries.values().filter(|d| d.owes()).cloned().collect();
    if owing.is_empty()
        || draft
            .deliveries
            .values()
            .any(|d| d.has_begun() && !d.state.is_final())
    {
        return Ok(());
    }
    let Some(newest) = counting(draft) else {
        return Ok(());
    };
    let calm = draft.calm_until(newest.fleet.heartbeat_secs);
    let broken = |d: &Delivery| draft.faults.of_delivery(&d.commit).is_some();
    for mut delivery in owing.into_iter().filter(|d| !broken(d)).collect::<Vec<_>>() {
        let mut ready = BTreeSet::new();
        // Gone, or walked with the others: the commit that says so answers for it.
        let is_behind = |id: &NodeId| of_record(&newest, *id) == UpdateClass::LeftBehind;
        (delivery.left_behind).retain(|id, entry| entry.follows.is_none() || is_behind(id));
        for (id, entry) in &mut delivery.left_behind {
            let Some(follows) = entry.follows else { continue };
            if newest.nodes.get(id).is_some_and(|node| node.pinned) {
                entry.pinned = true;
                entry.follows = None;
                continue;
            }
            let at = draft.anchored(follows.at, follows.after_secs).max(calm);
            if draft.now() < at {
                draft.due(at);
            } else {
                entry.follows = None;
                ready.insert(*id);
            }
        }
        let sequence = orders::follow(draft, &mut delivery, &ready);
        let sequence = sequence.map_err(|error| error.of_delivery(&delivery.commit))?;
        for (id, entry) in &mut delivery.left_behind {
            if let Some(sequence) = sequence.get(id) {
                entry.sequence = *sequence;
            }
        }
        draft.put(delivery);
    }
    Ok(())
}
