//! The walk: stages in order, machines looked at, trouble answered, the former content taken back (DL-5 to DL-7).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use meshplan_schemas::document::plan::Amount;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::classes::{self, At};
use super::draft::Draft;
use super::look::{self, Seen};
use super::{DecideError, Tree, after_secs, orders};
use crate::pure::compose::Composed;
use crate::pure::delivery::{Delivery, MachineRun, Step, Verdict, VerdictWord, Walk};
use crate::pure::guard::{Guard, stands};
use crate::pure::snapshot::ContentRef;
pub(super) use back::roll_back;
use back::{come_back, serve_outstanding};
use budget::Bounded;
use looking::{ask_in_turn, look_at_open};
use opening::{Opening, opening};
use selection::{Selection, as_number, candidates, select};
pub(super) use story::but_for;
pub(super) use story::story;
pub use story::{follows, in_words, not_confirmed, standing, summary, word};
use trouble::answer;

mod apart;
mod back;
pub(super) mod broken;
mod budget;
mod leaving;
mod link;
mod looking;
mod opening;
pub(super) mod selection;
mod story;
mod trouble;

const RECONCILER: &str = "reconciler";

/// Moves every walk by as much as can be told now.
pub(super) fn walk_on(draft: &mut Draft<'_>) -> Result<(), DecideError> {
    let moving: Vec<CommitId> = draft
        .deliveries
        .values()
        .filter(|d| matches!(d.state, State::Delivering | State::RollingBack))
        .map(|d| d.commit.clone())
        .collect();
    for commit in moving {
        let Some(mut delivery) = draft.deliveries.get(&commit).cloned() else {
            continue;
        };
        let moved = match (draft.faults.of_delivery(&commit), delivery.state) {
            (Some(fault), _) => broken::end(draft, &mut delivery, fault),
            (None, State::Delivering) => deliver(draft, &mut delivery),
            (None, _) => come_back(draft, &mut delivery),
        };
        moved.map_err(|error| error.of_delivery(&commit))?;
        draft.put(delivery);
    }
    serve_outstanding(draft)?;
    classes::follow(draft)
}

/// The machines that a delivery changes.
pub(super) fn changed(delivery: &Delivery) -> BTreeSet<NodeId> {
    delivery
        .legs
        .iter()
        .flat_map(|leg| leg.nodes.keys().copied())
        .collect()
}

/// The machines of the stages that were ordered so far.
pub(super) fn ordered(delivery: &Delivery) -> BTreeSet<NodeId> {
    let stages = delivery.walk.iter().flat_map(|w| &w.stages);
    stages.flat_map(|s| s.machines.keys().copied()).collect()
}

fn deliver(draft: &mut Draft<'_>, delivery: &mut Delivery) -> Result<(), DecideError> {
    let tree = match draft.known.trees.get(&delivery.commit) {
        Some(Tree::Composed(tree)) => Arc::clone(tree),
        // The tree is read again after a restart; until then nothing moves.
        None => return Ok(()),
        Some(Tree::Invalid(why) | Tree::Gone(why)) => {
            let reason = format!("the tree that walks cannot be composed any more: {why}");
            let facts = story(delivery);
            return draft.transit(delivery, State::Held, Code::Lost, RECONCILER, reason, facts);
        }
    };
    classes::count(draft, delivery, &tree);
    leaving::leave(draft, delivery)?;
    if delivery.state != State::Delivering {
        return Ok(());
    }
    loop {
        let Some(walk) = delivery.walk.as_ref() else {
            return Ok(());
        };
        let more = match walk.step {
            Step::Open if walk.current >= walk.stages.len() => return complete(draft, delivery, &tree),
            Step::Open => open(draft, delivery, &tree)?,
            Step::Looking { deadline } => look_at_stage(draft, delivery, &tree, deadline)?,
            Step::Regard { deadline } => regard(draft, delivery, &tree, deadline)?,
            Step::Returning { .. } => false,
        };
        if !more || delivery.state != State::Delivering {
            return Ok(());
        }
    }
}

/// Opens the stage in hand: selects its machines and orders on them. Whether there is more to do now.
fn open(draft: &mut Draft<'_>, delivery: &mut Delivery, tree: &Arc<Composed>) -> Result<bool, DecideError> {
    let calm = draft.calm_until(tree.fleet.heartbeat_secs);
    let Some(walk) = delivery.walk.as_ref() else {
        return Ok(false);
    };
    // No gate opens in the first two report intervals (RO-8), the first one neither where machines were heard before.
    let alone = candidates(draft, delivery, walk).is_empty();
    if !alone && !draft.may_judge(tree.fleet.heartbeat_secs) {
        draft.due(calm);
        return Ok(false);
    }
    let current = walk.current;
    let candidates = candidates(draft, delivery, walk);
    let mut shares = walk
        .stages
        .iter()
        .filter_map(|stage| stage.group.as_ref()?.share.as_ref());
    let salt = shares.next().map(|share| share.salt.as_str());
    let Selection {
        machines,
        group,
        line,
    } = select(&delivery.commit, tree, &walk.stages[current], salt, &candidates);
    if line.is_some() && walk.stages[current].named_only {
        let stage = &walk.stages[current].name;
        let reason = format!(
            "no machine that the stage {stage} names is changed by this, and the plan takes no other"
        );
        draft.transit(
            delivery,
            State::Held,
            Code::NoMachine,
            RECONCILER,
            reason,
            Vec::new(),
        )?;
        return Ok(false);
    }
    match opening(draft, delivery, tree, &machines) {
        Opening::Now => {}
        Opening::Waits => return Ok(false),
        Opening::Afresh => return Ok(true),
    }
    let Some(walk) = delivery.walk.as_ref() else {
        return Ok(false);
    };
    let selected = machines.len();
    let Bounded { machines, why } = budget::bound(draft, delivery, tree, &walk.stages[current], machines);
    if let Some(why) = why {
        return wait_for_budget(draft, delivery, why).map(|()| false);
    }
    let Some(walk) = delivery.walk.as_ref() else {
        return Ok(false);
    };
    // What the budgets do not let begin now follows, like a wave, in a stage of the same name.
    let cut = machines.len() < selected;
    let group = group.filter(|_| !cut);
    let left: BTreeSet<NodeId> = candidates.difference(&machines).copied().collect();
    let batched =
        walk.stages[current].batch.is_some() && walk.stages[current].select.rest && !left.is_empty();
    let followed = batched || cut;
    let last = current + 1 == walk.stages.len() && !followed;

    if let Some(walk) = delivery.walk.as_mut() {
        walk.lines.extend(line);
        walk.stages[current].group = group;
        walk.stages[current].waits = None;
        if machines.is_empty() {
            walk.lines.push(format!(
                "the stage {} selects no machine that this changes",
                walk.stages[current].name
            ));
            walk.current += 1;
            return Ok(true);
        }
        if followed {
            let mut rest = walk.stages[current].clone();
            if let Some(count) = &mut rest.select.count {
                *count = as_number(Amount::Percent(100), selected - machines.len());
            }
            // A share is one of all that the stage began with, not of what each wave leaves.
            rest.batch = rest.batch.map(|batch| as_number(batch, candidates.len()));
            rest.group = None;
            // It waits for windows and budgets of its own.
            (rest.shut, rest.waits) = (None, None);
            walk.stages.insert(current + 1, rest);
        }
    }
    let sent = orders::stage(draft, delivery, tree, &machines, last)?;
    let now = draft.now();
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(false);
    };
    let stage = &mut walk.stages[current];
    stage.ordered_at = Some(now);
    for (id, sent) in sent {
        let Some(node) = tree.nodes.get(&id) else { continue };
        let told = (stage.times == 0).then(|| Verdict {
            word: VerdictWord::Sent,
            reason: "told, not awaited".to_owned(),
        });
        let run = MachineRun {
            name: node.name.clone(),
            sequence: sent.sequence,
            epoch: sent.epoch,
            ordered_again: false,
            healthy: 0,
            healthy_since: None,
            asked: None,
            judged: 0,
            restarts: None,
            last: String::new(),
            unhealthy: false,
            opens: None,
            forced: false,
            verdict: told,
        };
        stage.machines.insert(id, run);
    }
    walk.step = Step::Looking {
        deadline: after_secs(now, stage.within_secs),
    };
    Ok(true)
}

/// Looks at each machine of the stage in hand; passes the stage, or answers its trouble.
fn look_at_stage(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Arc<Composed>,
    deadline: Timestamp,
) -> Result<bool, DecideError> {
    let calm = draft.calm_until(tree.fleet.heartbeat_secs);
    let Some(walk) = delivery.walk.as_ref() else {
        return Ok(false);
    };
    let current = walk.current;
    let within = walk.stages.get(current).map_or(0, |stage| stage.within_secs);
    // Nobody is judged silent in the first two report intervals of a reconciler (RO-8).
    let deadline = draft.anchored(deadline, within).max(calm);
    look_at_open(draft, delivery, tree, deadline)?;
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(false);
    };
    if let Some(trouble) = classes::trouble(walk, At::Stage) {
        return answer(draft, delivery, &trouble).map(|()| false);
    }
    // When each of them is due next, `look_at` has said.
    if classes::waits(walk) && stands(Guard::Verdicts) {
        return Ok(false);
    }
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(false);
    };
    if walk.current + 1 >= walk.stages.len() {
        walk.current += 1;
        walk.step = Step::Open;
        return Ok(true);
    }
    begin_regard(walk, draft.now());
    Ok(true)
}

/// The next gate opens only on a fresh look at all that passed so far (DL-13).
fn begin_regard(walk: &mut Walk, now: Timestamp) {
    let within = walk.stages.get(walk.current).map_or(0, |stage| stage.within_secs);
    walk.step = Step::Regard {
        deadline: after_secs(now, within),
    };
    for stage in walk.stages.iter_mut().take(walk.current + 1) {
        for machine in stage.machines.values_mut() {
            machine.asked = None;
        }
    }
}

/// The budgets of the stage in hand let nobody begin: it waits as long as a machine of it might, then a person decides.
fn wait_for_budget(draft: &mut Draft<'_>, delivery: &mut Delivery, why: String) -> Result<(), DecideError> {
    let now = draft.now();
    let Some(stage) = delivery
        .walk
        .as_mut()
        .and_then(|walk| walk.stages.get_mut(walk.current))
    else {
        return Ok(());
    };
    let since = stage.waits.as_ref().map_or(now, |(since, _)| *since);
    let (name, within) = (stage.name.clone(), stage.within_secs);
    stage.waits = Some((since, why.clone()));
    let deadline = draft.anchored(after_secs(since, within), within);
    if now < deadline {
        draft.due(deadline);
        return Ok(());
    }
    let reason = format!("the budget of the stage {name} lets nobody begin: {why}");
    let facts = story(delivery);
    draft.transit(delivery, State::Held, Code::NoMachine, RECONCILER, reason, facts)
}

/// Looks once more at all that passed, before the next stage opens (DL-13).
fn regard(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Arc<Composed>,
    deadline: Timestamp,
) -> Result<bool, DecideError> {
    let calm = draft.calm_until(tree.fleet.heartbeat_secs);
    let now = draft.now();
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(false);
    };
    let within = walk.stages.get(walk.current).map_or(0, |stage| stage.within_secs);
    let deadline = draft.anchored(deadline, within).max(calm);
    // Machines that are awaited only since their class is another.
    look_at_open(draft, delivery, tree, deadline)?;
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(false);
    };
    let mut waiting = None;
    for stage in &mut walk.stages[..=walk.current] {
        let every = stage.every_secs;
        for (id, machine) in &mut stage.machines {
            let required = !walk.classes.contains_key(id);
            let passed = machine
                .verdict
                .as_ref()
                .is_some_and(|v| v.word == VerdictWord::Passed);
            if !passed {
                continue;
            }
            let node = draft.known.snapshot.nodes.get(id);
            // Who is not awaited is judged by what it said last.
            let seen = if required {
                let look = node.and_then(|n| n.look.as_ref());
                look.and_then(|report| look::take(machine, report, now))
            } else {
                let report = node.and_then(|n| n.report.as_ref());
                report.map(|report| look::judge(report, machine))
            };
            match seen {
                Some(Seen::Healthy) => continue,
                Some(Seen::Broken(why) | Seen::Unhealthy(why)) => {
                    let reason = format!("passed, and was not healthy when the next gate was to open: {why}");
                    machine.verdict = Some(Verdict {
                        word: VerdictWord::Failed,
                        reason,
                    });
                    continue;
                }
                _ => {}
            }
            let answered =
                machine.asked.is_some_and(|(asked, _)| machine.judged >= asked) && machine.healthy > 0;
            if answered || !required {
                continue;
            }
            if now >= deadline {
                let reason = "passed, and did not answer when the next gate was to open".to_owned();
                machine.verdict = Some(Verdict {
                    word: VerdictWord::Silent,
                    reason,
                });
                continue;
            }
            let next = ask_in_turn(draft, machine, *id, every);
            waiting = Some(waiting.map_or(next, |w: Timestamp| w.min(next)));
        }
    }
    if let Some(trouble) = classes::trouble(walk, At::NextGate) {
        return answer(draft, delivery, &trouble).map(|()| false);
    }
    if let Some(next) = waiting {
        draft.due(next);
    }
    if waiting.is_some() || classes::waits(walk) {
        return Ok(false);
    }
    if let Some(walk) = delivery.walk.as_mut() {
        walk.current += 1;
        walk.step = Step::Open;
    }
    Ok(true)
}

/// Every stage has passed: new and excused machines get the content, and it is proven.
fn complete(draft: &mut Draft<'_>, delivery: &mut Delivery, tree: &Arc<Composed>) -> Result<(), DecideError> {
    let before = ordered(delivery);
    let mut left: BTreeSet<NodeId> = changed(delivery).difference(&before).copied().collect();
    let fleet = leaving::fleet(draft);
    let is_gone = |id: &NodeId| fleet.as_ref().is_some_and(|fleet| !fleet.nodes.contains_key(id));
    left.retain(|id| !is_left_behind(delivery, id) && !is_gone(id));
    orders::rest(draft, delivery, tree, &left)?;
    for leg in delivery.legs.clone() {
        for id in leg
            .nodes
            .keys()
            .filter(|id| before.contains(id) || left.contains(id))
        {
            draft.prove(*id, &leg.scope);
        }
        // What was accepted before is accepted still, and in the commit that has it.
        if leg.from.is_some() {
            continue;
        }
        // Content that works is no longer known-bad, whatever was said of it before.
        if draft
            .known
            .snapshot
            .known_bad
            .contains_key(&(leg.scope.clone(), leg.digest))
        {
            draft.act.known_bad.insert((leg.scope.clone(), leg.digest), None);
        }
        let content = ContentRef {
            digest: leg.digest,
            commit: delivery.commit.clone(),
        };
        draft.act.accepted.insert(leg.scope, content);
    }
    classes::hold_back(draft, delivery, tree)?;
    let reason = story::over(delivery, before.len(), left.len());
    if delivery.walk.as_ref().is_some_and(|walk| !walk.taken.is_empty()) {
        return apart::end(draft, delivery, &reason);
    }
    let mut facts = story(delivery);
    facts.extend(story::left_behind(delivery));
    draft.transit(delivery, State::Delivered, Code::Done, RECONCILER, reason, facts)
}

fn is_left_behind(delivery: &Delivery, id: &NodeId) -> bool {
    let walk = delivery.walk.as_ref();
    walk.is_some_and(|walk| classes::of(walk, id) == UpdateClass::LeftBehind)
}
