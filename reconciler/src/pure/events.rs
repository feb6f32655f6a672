//! The reconciler's journal of events (RO-7): what an act does to rollouts, as lines that people and programs follow.
//!
//! It stands alone because nothing is decided by it: events are derived from an act and what stood before it, and stored
//! in the act's own transaction, so that none is lost and none is said twice. (The signed blocks of a commit's note are
//! the record, [`super::journal`]; these are the news.)

use jiff::Timestamp;
use meshplan_schemas::epoch::Phase;
use meshplan_schemas::lifecycle::delivery::{Code, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::act::{Act, Order};
use super::delivery::{Delivery, Transition};
use super::hearing::Jump;
use super::snapshot::Snapshot;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum EventName {
    /// The first epoch of a rollout is signed.
    #[serde(rename = "rollout.start")]
    Start,
    /// The release has begun.
    #[serde(rename = "rollout.release")]
    Release,
    /// A wave is ordered, and watched until its deadline.
    #[serde(rename = "rollout.release_watch")]
    ReleaseWatch,
    /// Every required node has confirmed.
    #[serde(rename = "rollout.complete")]
    Complete,
    /// Taken back on a word, or for a newer one.
    #[serde(rename = "rollout.abort")]
    Abort,
    /// Taken back because of a machine.
    #[serde(rename = "rollout.auto_abort")]
    AutoAbort,
    /// Wall and monotonic clock have parted.
    #[serde(rename = "clock.jumped")]
    ClockJumped,
}

impl EventName {
    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "rollout.start",
            Self::Release => "rollout.release",
            Self::ReleaseWatch => "rollout.release_watch",
            Self::Complete => "rollout.complete",
            Self::Abort => "rollout.abort",
            Self::AutoAbort => "rollout.auto_abort",
            Self::ClockJumped => "clock.jumped",
        }
    }
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// When.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// What.
    pub event: EventName,
    /// Of which rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout_id: Option<String>,
    /// Because of which node, by short id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// By which epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Who, where it was a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Until when a watch lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub deadline: Option<Timestamp>,
    /// In a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// An event in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Numbered {
    /// Its number: rises by one, never used twice.
    pub number: u64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

fn event(at: Timestamp, event: EventName) -> Event {
    Event {
        at,
        event,
        rollout_id: None,
        node: None,
        epoch: None,
        actor: None,
        deadline: None,
        reason: String::new(),
    }
}

/// The events of an act over what stood before it, in the order in which they follow.
#[must_use]
pub fn of(before: &Snapshot, act: &Act, now: Timestamp) -> Vec<Event> {
    let mut events = Vec::new();
    for delivery in &act.deliveries {
        let former = before.deliveries.get(&delivery.commit);
        out(&mut events, former, delivery, act, now);
        let transitions = act.transitions.iter().filter(|t| t.commit == delivery.commit);
        events.extend(transitions.filter_map(|t| ended(delivery, t, now)));
    }
    events
}

/// What the epochs of an act say: it starts, it is released, a wave is watched.
fn out(events: &mut Vec<Event>, former: Option<&Delivery>, delivery: &Delivery, act: &Act, now: Timestamp) {
    let Some(walk) = &delivery.walk else { return };
    let walked = former.and_then(|d| d.walk.as_ref());
    let of_it = |word| Event {
        rollout_id: Some(delivery.name.to_string()),
        epoch: Some(walk.epoch),
        ..event(now, word)
    };
    let epochs = act.orders.iter().filter_map(|order| match order {
        Order::Epoch { epoch } if epoch.commit == delivery.commit => Some(epoch),
        _ => None,
    });
    let first = epochs.into_iter().find(|e| e.phase != Phase::Abort);
    if let Some(epoch) = first.filter(|_| walked.is_none_or(|w| w.epoch == 0)) {
        events.push(Event {
            epoch: Some(epoch.epoch),
            reason: delivery.subject.clone(),
            ..of_it(EventName::Start)
        });
    }
    if walk.epoch == 0 {
        return;
    }
    let ordered = |walk: &super::delivery::Walk| {
        let last = walk.stages.len().saturating_sub(1);
        let stages = walk.stages.iter().enumerate();
        let waves = stages.filter(|(at, s)| s.ordered_at.is_some() && (s.select.rest || *at == last));
        waves.count()
    };
    let (had, has) = (walked.map_or(0, ordered), ordered(walk));
    let was_released = had > 0 || walked.is_some_and(|w| w.released);
    if !was_released && (has > 0 || walk.released) {
        events.push(of_it(EventName::Release));
    }
    if has > had
        && let Some(stage) = walk.stages.iter().rev().find(|s| s.ordered_at.is_some())
    {
        let deadline = stage
            .ordered_at
            .map(|at| super::decide::after_secs(at, stage.within_secs));
        events.push(Event {
            deadline,
            reason: format!("{}: {} machines", stage.name, stage.machines.len()),
            ..of_it(EventName::ReleaseWatch)
        });
    }
}

/// What a transition says: complete, or on its way back.
fn ended(delivery: &Delivery, transition: &Transition, now: Timestamp) -> Option<Event> {
    let walk = delivery.walk.as_ref().filter(|w| w.epoch > 0)?;
    let automatic = matches!(transition.code, Code::StageFailed | Code::Silent);
    let word = match transition.to {
        State::Delivered => EventName::Complete,
        State::RollingBack if automatic => EventName::AutoAbort,
        State::RollingBack => EventName::Abort,
        _ => return None,
    };
    let person = !automatic && word == EventName::Abort && transition.actor != "reconciler";
    Some(Event {
        rollout_id: Some(delivery.name.to_string()),
        epoch: Some(walk.epoch),
        node: walk
            .abort_cause
            .as_ref()
            .filter(|_| word == EventName::AutoAbort)
            .map(|cause| cause.node_id_short.clone()),
        actor: person.then(|| transition.actor.clone()),
        reason: transition.reason.clone(),
        ..event(now, word)
    })
}

/// The clocks have parted.
#[must_use]
pub fn jumped(jump: Jump, now: Timestamp) -> Event {
    Event {
        reason: format!(
            "the clock went on by {} s while {} s passed",
            jump.wall_secs, jump.steady_secs
        ),
        ..event(now, EventName::ClockJumped)
    }
}
