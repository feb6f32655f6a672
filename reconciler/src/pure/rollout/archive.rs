//! Putting rollouts away (RO-5): when one is, what is kept of it, and what a late arrival adds.
//!
//! It stands alone because nothing about a rollout is lost between its end and its archive: what is kept is the record as
//! it stood then and the timeline, and a status that arrives later is appended.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::push::PushState;
use super::{Phase, Rollout, TimelineEvent};

/// So long after its end a rollout is put away, whoever is still out, in minutes.
const LATE_MINS: i64 = 15;

/// A rollout that was put away.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Archive {
    /// The record as it stood then, its timeline with what came later.
    pub rollout: Rollout,
    /// When it was put away.
    #[schemars(with = "String")]
    pub archived_at: Timestamp,
    /// Every node had settled on the final epoch.
    pub closed: bool,
}

/// What a list says of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// The name of its delivery.
    pub rollout_id: String,
    /// How it ended.
    pub phase: Phase,
    /// When its first epoch was issued.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// When it ended.
    #[schemars(with = "Option<String>")]
    pub finished_at: Option<Timestamp>,
    /// The first epoch to its canaries; null without them.
    pub canary_epoch: Option<u64>,
    /// The epoch that nodes were to settle on.
    pub final_epoch: Option<u64>,
    /// The first line of the commit.
    pub note: String,
    /// How many nodes the fleet had.
    pub nodes: u64,
    /// How many changes of status its timeline has.
    pub events: u64,
    /// Every node had settled on the final epoch.
    pub closed: bool,
}

/// What to do with a rollout now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It has not ended.
    Open,
    /// It is put away then, or once every node has settled.
    At(Timestamp),
    /// It is put away now.
    Now,
}

/// Whether every node has come to rest on the final epoch.
#[must_use]
pub fn is_settled(rollout: &Rollout) -> bool {
    rollout.nodes.iter().all(|n| n.settled)
}

/// Whether a rollout is put away now.
#[must_use]
pub fn due(rollout: &Rollout, now: Timestamp) -> Due {
    let Some(ended) = rollout.finished_at.filter(|_| rollout.phase.is_over()) else {
        return Due::Open;
    };
    let late = ended
        .checked_add(SignedDuration::from_mins(LATE_MINS))
        .unwrap_or(Timestamp::MAX);
    if now >= late || is_settled(rollout) {
        Due::Now
    } else {
        Due::At(late)
    }
}

impl Archive {
    /// Puts a record away.
    #[must_use]
    pub fn of(rollout: Rollout, now: Timestamp) -> Self {
        Self {
            closed: is_settled(&rollout),
            rollout,
            archived_at: now,
        }
    }

    /// Takes in what arrived late: the timeline has it, and the node stands where it says. What it has already is not
    /// taken twice.
    pub fn append(&mut self, late: Vec<TimelineEvent>) {
        let known: BTreeSet<TimelineEvent> = self.rollout.timeline.drain(..).collect();
        let late: Vec<TimelineEvent> = late.into_iter().filter(|e| !known.contains(e)).collect();
        let (last, newest) = (self.rollout.final_epoch, self.rollout.newest_epoch);
        for event in &late {
            let nodes = self.rollout.nodes.iter_mut();
            let node = nodes.into_iter().find(|n| n.node_id_short == event.node_id_short);
            let Some(node) = node.filter(|n| n.epoch.is_some_and(|epoch| event.epoch >= epoch)) else {
                continue;
            };
            if let Some(state) = PushState::of(&event.state).filter(|_| node.state != PushState::LeftBehind) {
                node.state = state;
                node.detail.clear();
                if state == PushState::Applied {
                    node.running = Some(event.epoch);
                    node.epochs_behind = Some(newest.saturating_sub(event.epoch));
                }
                node.settled = match state {
                    PushState::Applied => last.is_some_and(|last| event.epoch >= last),
                    state => state == PushState::Failed,
                };
            }
        }
        self.rollout.timeline = known.into_iter().chain(late).collect();
        self.rollout.timeline.sort();
        self.closed = is_settled(&self.rollout);
    }

    /// What a list says of it.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let rollout = &self.rollout;
        Summary {
            rollout_id: rollout.rollout_id.clone(),
            phase: rollout.phase,
            started_at: rollout.started_at,
            finished_at: rollout.finished_at,
            canary_epoch: rollout.canary_epoch,
            final_epoch: rollout.final_epoch,
            note: rollout.note.clone(),
            nodes: rollout.nodes.len() as u64,
            events: rollout.timeline.len() as u64,
            closed: self.closed,
        }
    }
}
