//! The record of one rollout, from walk, epochs, roster and reports (RO-3, RO-4).
//!
//! Only what a node says of an epoch that counts for it is heard (EP-1): the one that addressed it first, or a newer one
//! of the same rollout, which has the same bytes; on the way back the one that takes it back.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use meshplan_schemas::epoch::Phase as EpochPhase;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{NodeId, NodeName, RoleName};
use meshplan_schemas::lifecycle::delivery::State;
use meshplan_schemas::lifecycle::epoch::EpochState;

use super::gate::{Counted, GateNode, gate};
use super::push::{Facts, PushState, is_old, push_state, state_word};
use super::run::Run;
use super::{AbortCause, NodePush, Phase, Rollout, TimelineEvent};
use crate::pure::compose::Composed;
use crate::pure::decide::{after_secs, look, walk, why};
use crate::pure::delivery::{Delivery, MachineRun, StageRun, Step, Transition, Walk};
use crate::pure::scope::Scope;
use crate::pure::snapshot::NodeState;

/// The least time after which a node is called silent, in seconds (RO-3).
const SILENT_SECS: u32 = 120;

/// A node of the fleet, as its record has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its uuid.
    pub id: NodeId,
    /// Its name.
    pub name: NodeName,
    /// Its roles.
    pub roles: Vec<RoleName>,
    /// Its class.
    pub class: UpdateClass,
    /// It has keys: before, it is invited and in no count.
    pub enrolled: bool,
}

/// The nodes of a tree.
#[must_use]
pub fn roster(tree: &Composed) -> Vec<Member> {
    let member = |node: &std::sync::Arc<crate::pure::compose::ComposedNode>| Member {
        id: node.id,
        name: node.name.clone(),
        roles: node.roles.clone(),
        class: node.update_class,
        enrolled: node.enrolled,
    };
    tree.nodes.values().map(member).collect()
}

/// What a record is derived from.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The delivery.
    pub delivery: &'a Delivery,
    /// Its transitions, oldest first.
    pub transitions: &'a [Transition],
    /// The rollout's epochs.
    pub run: &'a Run,
    /// Who is in the fleet.
    pub roster: &'a [Member],
    /// What is heard of each node.
    pub nodes: &'a BTreeMap<NodeId, NodeState>,
    /// The timeline, oldest first.
    pub timeline: &'a [TimelineEvent],
    /// The time.
    pub now: Timestamp,
    /// Until then nobody is called silent (RO-8).
    pub calm_until: Timestamp,
}

/// The record.
#[must_use]
pub fn record(known: &Known<'_>) -> Rollout {
    let Known { delivery, run, .. } = *known;
    let walk = walk_of(known);
    let phase = phase(known, walk);
    let release = walk.and_then(|w| newest_stage(w, true));
    let deadline = walk.and_then(|w| match w.step {
        Step::Returning { deadline } => Some(deadline),
        _ => newest_stage(w, false).map(|(at, s)| deadline_of(w, at, s)),
    });
    let last: LastSaid<'_> = known
        .timeline
        .iter()
        .map(|e| (e.node_id_short.as_str(), e))
        .collect();
    let mut pushes = Vec::new();
    let mut counted = Vec::new();
    for member in known.roster.iter().filter(|m| m.enrolled) {
        let seen = seen(known, &last, walk, member);
        counted.extend(counts(known, walk, member, &seen));
        pushes.push(seen);
    }
    pushes.sort_by(|a, b| (rank(a), &a.name).cmp(&(rank(b), &b.name)));
    let over = phase.is_over();
    let canaries = walk.iter().flat_map(|w| canary_stages(w));
    let mut canaries: Vec<String> = canaries
        .flat_map(|s| s.machines.values())
        .filter(|m| m.epoch > 0)
        .map(|m| m.name.to_string())
        .collect();
    canaries.sort();
    Rollout {
        rollout_id: delivery.name.to_string(),
        commit: delivery.commit.to_string(),
        phase,
        started_at: instant(run.first().issued_at),
        finished_at: finished_at(known, phase),
        canary_epoch: run.canary_epoch(),
        final_epoch: run.final_epoch(),
        newest_epoch: run.newest().epoch,
        plan: walk.and_then(|w| w.plan.as_ref()).map(ToString::to_string),
        note: delivery.subject.clone(),
        reason: if run.former {
            "its delivery was tried once more".to_owned()
        } else {
            delivery.reason.clone()
        },
        waits_for: (!over).then(|| why::why(delivery, &why::Open::new(), known.now).waits_for),
        canaries,
        release_gate: gate(counted, deadline),
        release_deadline: walk
            .zip(release)
            .map(|(w, (at, stage))| deadline_of(w, at, stage)),
        // A person who went on past it has answered it.
        abort_cause: walk
            .filter(|_| matches!(phase, Phase::Held | Phase::Aborting | Phase::Aborted))
            .and_then(cause),
        nodes: pushes,
        timeline: known.timeline.to_vec(),
        as_of: known.now,
    }
}

fn instant(secs: i64) -> Timestamp {
    Timestamp::from_second(secs).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// The walk, where the delivery's is this rollout's.
fn walk_of<'a>(known: &Known<'a>) -> Option<&'a Walk> {
    known.delivery.walk.as_ref().filter(|_| !known.run.former)
}

fn phase(known: &Known<'_>, walk: Option<&Walk>) -> Phase {
    let Some(walk) = walk else {
        return if known.run.is_taken_back() {
            Phase::Aborted
        } else {
            Phase::Superseded
        };
    };
    match known.delivery.state {
        State::Delivered => Phase::Complete,
        State::RollingBack => Phase::Aborting,
        State::RolledBack | State::Withdrawn | State::Failed => Phase::Aborted,
        State::Superseded => Phase::Superseded,
        State::Held => Phase::Held,
        State::Proposed | State::Delivering => {
            if newest_stage(walk, true).is_some() {
                Phase::Released
            } else {
                Phase::Canary
            }
        }
    }
}

fn finished_at(known: &Known<'_>, phase: Phase) -> Option<Timestamp> {
    if !phase.is_over() {
        return None;
    }
    if !known.run.former {
        return Some(known.delivery.since);
    }
    let mut ends = known.transitions.iter().rev();
    ends.find(|t| matches!(t.to, State::RolledBack | State::Failed | State::Superseded))
        .map(|t| t.at)
}

/// Whether a stage is a wave of the release, not a canary's: it takes the rest, or it is the last there is.
fn releases(walk: &Walk, at: usize) -> bool {
    walk.stages.get(at).is_some_and(|s| s.select.rest) || at + 1 == walk.stages.len()
}

fn canary_stages(walk: &Walk) -> impl Iterator<Item = &StageRun> {
    let stages = walk.stages.iter().enumerate();
    stages.filter(|(at, _)| !releases(walk, *at)).map(|(_, s)| s)
}

/// The newest stage that was ordered, with its place; of the release's waves alone where that is asked.
fn newest_stage(walk: &Walk, of_release: bool) -> Option<(usize, &StageRun)> {
    let stages = walk.stages.iter().enumerate().rev();
    let mut ordered = stages.filter(|(_, s)| s.ordered_at.is_some());
    ordered.find(|(at, _)| !of_release || releases(walk, *at))
}

/// The cause as the walk took it down, in the words of RO-4.
fn cause(walk: &Walk) -> Option<AbortCause> {
    let cause = walk.abort_cause.as_ref()?;
    let stages = walk.stages.iter().enumerate();
    let mut named = stages.filter(|(_, s)| s.name == cause.phase);
    let of_release = named.next_back().is_some_and(|(at, _)| releases(walk, at));
    let (reason, detail) = cause.reason.split_once(": ").unwrap_or((&cause.reason, ""));
    Some(AbortCause {
        node_id_short: cause.node_id_short.clone(),
        name: cause.name.clone(),
        reason: reason.to_owned(),
        phase: if of_release { "release" } else { "canary" }.to_owned(),
        stage: cause.phase.clone(),
        detail: detail.to_owned(),
    })
}

fn deadline_of(walk: &Walk, at: usize, stage: &StageRun) -> Timestamp {
    match walk.step {
        Step::Looking { deadline } | Step::Regard { deadline } if walk.current == at => deadline,
        _ => stage.ordered_at.map_or(Timestamp::UNIX_EPOCH, |since| {
            after_secs(since, stage.within_secs)
        }),
    }
}

/// A machine of the walk that got an epoch, with its stage.
fn machine(walk: Option<&Walk>, id: NodeId) -> Option<(usize, &StageRun, &MachineRun)> {
    let stages = walk?.stages.iter().enumerate();
    stages.rev().find_map(|(at, stage)| {
        let run = stage.machines.get(&id).filter(|m| m.epoch > 0)?;
        Some((at, stage, run))
    })
}

/// The first epoch that counts for a node, none where none addresses it.
fn counts_from(known: &Known<'_>, walk: Option<&Walk>, member: &Member) -> Option<u64> {
    let run = known.run;
    let addressed = run.addressing(member.id, &member.roles)?.epoch;
    if run.is_taken_back() {
        let back = walk.and_then(|w| w.reached.get(&member.id));
        return Some(back.map_or(addressed, |r| addressed.max(r.return_epoch)));
    }
    Some(machine(walk, member.id).map_or(addressed, |(_, _, m)| m.epoch))
}

/// From when on a node's silence is called one.
fn silent_from(known: &Known<'_>, walk: Option<&Walk>, member: &Member, epoch: u64) -> Option<Timestamp> {
    let signed = known.run.epochs().find(|e| e.epoch == epoch)?;
    let heard = known.nodes.get(&member.id).is_some_and(|n| n.heard_at.is_some());
    if !heard {
        return None;
    }
    let wait = signed.confirm_secs.saturating_mul(2).max(SILENT_SECS);
    let late = match (machine(walk, member.id), walk) {
        (Some((at, stage, _)), Some(walk)) if signed.phase != EpochPhase::Abort => {
            let since = stage.ordered_at.unwrap_or_else(|| instant(signed.issued_at));
            if releases(walk, at) {
                after_secs(since, wait)
            } else {
                deadline_of(walk, at, stage)
            }
        }
        _ => after_secs(instant(signed.issued_at), wait),
    };
    Some(late.max(known.calm_until))
}

/// What a node said last of an epoch that counts for it.
#[derive(Debug, Clone, Copy)]
struct Said<'a> {
    epoch: u64,
    state: EpochState,
    reason: &'a str,
}

/// By its newest report, else, where that speaks of another epoch by now, by the timeline.
fn said<'a>(known: &Known<'a>, last: &LastSaid<'a>, from: Option<u64>, id: NodeId) -> Option<Said<'a>> {
    let from = from?;
    let counts = |epoch: u64| epoch >= from && known.run.counting().any(|e| e.epoch == epoch);
    let status = known.nodes.get(&id).and_then(|n| n.report.as_ref());
    if let Some(status) = status
        .and_then(|r| r.epoch.as_ref())
        .filter(|s| counts(s.state_epoch))
    {
        return Some(Said {
            epoch: status.state_epoch,
            state: status.state,
            reason: &status.reason,
        });
    }
    let event = last.get(id.short().as_str()).filter(|e| counts(e.epoch))?;
    Some(Said {
        epoch: event.epoch,
        state: EpochState::ALL
            .into_iter()
            .find(|s| event.state == state_word(*s))?,
        reason: "",
    })
}

/// The newest event of each node in the timeline, by short id.
type LastSaid<'a> = HashMap<&'a str, &'a TimelineEvent>;

fn seen(known: &Known<'_>, last: &LastSaid<'_>, walk: Option<&Walk>, member: &Member) -> NodePush {
    let run = known.run;
    let from = counts_from(known, walk, member);
    let report = known.nodes.get(&member.id).and_then(|n| n.report.as_ref());
    let status = said(known, last, from, member.id);
    let signed = from.and_then(|number| run.epochs().find(|e| e.epoch == number));
    let facts = Facts {
        class: member.class,
        targeted: from.is_some(),
        old_version: is_old(report, signed.and_then(|e| e.min_daemon_version.as_ref())),
        said: status.map(|s| s.state),
        silent_from: from.and_then(|epoch| silent_from(known, walk, member, epoch)),
    };
    let state = push_state(&facts, known.now);
    let running = report.and_then(|r| r.epoch.as_ref()).map(|e| e.running);
    let newest = run.newest().epoch;
    let sent = |s: &StageRun| s.machines.get(&member.id).is_some_and(|m| m.epoch > 0);
    let canary = walk.is_some_and(|w| canary_stages(w).any(sent));
    let expected = !known.nodes.contains_key(&member.id);
    let detail = match state {
        PushState::LeftBehind => running.map_or_else(
            || "nothing heard yet".to_owned(),
            |epoch| format!("running epoch {epoch}"),
        ),
        PushState::OldVersion => {
            report.map_or_else(String::new, |r| format!("host {}", look::cut(&r.host_version)))
        }
        _ if expected => "expected: never connected".to_owned(),
        _ => match status {
            Some(status) => look::cut(status.reason),
            None => excused(walk, member),
        },
    };
    let rest = match state {
        PushState::LeftBehind | PushState::NotTargeted | PushState::OldVersion | PushState::Failed => true,
        PushState::Applied => {
            let on_final = |s: Said<'_>| run.final_epoch().is_some_and(|last| s.epoch >= last);
            status.is_some_and(on_final)
        }
        _ => expected,
    };
    // One that speaks of a later rollout by now says nothing more of this one.
    let gone_on = report
        .and_then(|r| r.epoch.as_ref())
        .is_some_and(|e| e.state_epoch > newest);
    NodePush {
        node_id_short: member.id.short().to_string(),
        name: member.name.to_string(),
        class: member.class,
        state,
        detail,
        epoch: from,
        running,
        epochs_behind: running.map(|epoch| newest.saturating_sub(epoch)),
        canary,
        settled: rest || gone_on,
    }
}

fn excused(walk: Option<&Walk>, member: &Member) -> String {
    if walk.is_some_and(|w| w.excused.contains(&member.id)) {
        "was away at the start, and is not awaited".to_owned()
    } else {
        String::new()
    }
}

/// A node as the gate counts it; none where it is in no gate: not addressed, not changed by the policy, left behind,
/// expected, or absent as the plan allows.
fn counts(known: &Known<'_>, walk: Option<&Walk>, member: &Member, seen: &NodePush) -> Option<Counted> {
    let heard = known.nodes.get(&member.id).is_some_and(|n| n.heard_at.is_some());
    let apart = matches!(seen.state, PushState::LeftBehind | PushState::NotTargeted);
    let excused = walk.is_some_and(|w| w.excused.contains(&member.id));
    let mut policy = known.delivery.legs.iter().filter(|l| l.scope == Scope::Policy);
    let changed: bool = policy.any(|leg| leg.nodes.contains_key(&member.id));
    let run = machine(walk, member.id).map(|(_, _, run)| run);
    let back = known.run.is_taken_back();
    // Who was not there when its stage was ordered is served when it comes, and in no count.
    let awaited = walk.is_none_or(|w| {
        run.is_some()
            || member.class == UpdateClass::BestEffort
            || (back && w.reached.contains_key(&member.id))
    });
    if apart || excused || !heard || !awaited || (walk.is_some() && !changed) {
        return None;
    }
    // What was found on the way out says nothing of the way back.
    let run = run.filter(|_| !back);
    let verdict = run.and_then(|m| m.verdict.as_ref());
    let reason = verdict.map(|v| v.reason.clone());
    let reason = reason
        .or_else(|| run.map(|m| m.last.clone()))
        .filter(|r| !r.is_empty());
    Some(Counted {
        node: GateNode {
            node_id_short: seen.node_id_short.clone(),
            name: seen.name.clone(),
            class: seen.class,
            state: seen.state,
            epochs_behind: seen.epochs_behind,
            verdict: verdict.map(|v| walk::word(v.word).to_owned()),
            reason: reason.unwrap_or_else(|| seen.detail.clone()),
        },
        verdict: run
            .filter(|m| !m.forced)
            .and_then(|m| m.verdict.as_ref())
            .map(|v| v.word),
    })
}

/// Worst first.
fn rank(node: &NodePush) -> u8 {
    match node.state {
        PushState::Failed => 0,
        PushState::OldVersion => 1,
        PushState::Silent => 2,
        PushState::AwaitingConfirm => 3,
        PushState::Staged => 4,
        PushState::Received => 5,
        PushState::Pending => 6,
        PushState::Applied => 7,
        PushState::LeftBehind => 8,
        PushState::NotTargeted => 9,
    }
}
