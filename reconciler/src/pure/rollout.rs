//! The rollout: the walk of a delivery that has a policy leg, seen with its epochs (page 04).
//!
//! It stands alone because it decides nothing: the engine walks ([`super::decide`]), and everything here is derived from
//! what the walk, the signed epochs and the reports say at one moment. Invariant: the same world gives the same record,
//! and the counts of a gate always add up.
//!
//! | file | what it says |
//! | --- | --- |
//! | [`run`] | which epochs are one rollout |
//! | [`push`] | how a node stands with them (RO-3) |
//! | [`gate`] | what is confirmed, silent, failed, still to come (RO-4) |
//! | [`live`] | the record of one rollout, whole |
//! | [`archive`] | when it is put away, and what its summary says (RO-5) |
//! | [`status`] | the same in lines for a terminal |
//! | [`words`] | what start, release and abort come to (RO-1, RO-2) |

use jiff::Timestamp;
use meshplan_schemas::fleet_list::UpdateClass;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use gate::ReleaseGate;
use push::PushState;

pub mod archive;
pub mod gate;
pub mod live;
pub mod push;
pub mod run;
pub mod status;
pub mod words;

/// Where a rollout stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The new policy is with the canaries alone.
    Canary,
    /// It is released: each wave has its watch.
    Released,
    /// A person decides.
    Held,
    /// The former policy is signed forward, and not everywhere yet.
    Aborting,
    /// The former policy is back, or the rest is listed.
    Aborted,
    /// A newer rollout took its place before its end.
    Superseded,
    /// Every required node has confirmed, or was left as the plan says.
    Complete,
}

impl Phase {
    /// The word, as JSON has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Released => "released",
            Self::Held => "held",
            Self::Aborting => "aborting",
            Self::Aborted => "aborted",
            Self::Superseded => "superseded",
            Self::Complete => "complete",
        }
    }

    /// Whether nothing follows.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Aborted | Self::Superseded | Self::Complete)
    }
}

/// The record of one rollout as of one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rollout {
    /// The name of its delivery, which its epochs carry too.
    pub rollout_id: String,
    /// The commit whose policy it brings.
    pub commit: String,
    /// Where it stands.
    pub phase: Phase,
    /// When its first epoch was issued.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// When it ended; null before.
    #[schemars(with = "Option<String>")]
    pub finished_at: Option<Timestamp>,
    /// The first epoch to its canaries; null without them.
    pub canary_epoch: Option<u64>,
    /// The epoch that nodes are to settle on: the release, or what took it back; null before either.
    pub final_epoch: Option<u64>,
    /// The newest of its epochs.
    pub newest_epoch: u64,
    /// The plan that walks it; null is the built-in one.
    pub plan: Option<String>,
    /// The first line of the commit.
    pub note: String,
    /// Why it stands where it stands, in a sentence.
    pub reason: String,
    /// What it waits for, in a sentence; null once it is over.
    pub waits_for: Option<String>,
    /// The machines that went first, by name.
    pub canaries: Vec<String>,
    /// What is confirmed and what is not.
    pub release_gate: ReleaseGate,
    /// Until when the newest wave is watched; null before the release.
    #[schemars(with = "Option<String>")]
    pub release_deadline: Option<Timestamp>,
    /// What caused the automatic abort.
    pub abort_cause: Option<AbortCause>,
    /// Every node of the fleet, worst first.
    pub nodes: Vec<NodePush>,
    /// Every change of status, oldest first (RO-5).
    pub timeline: Vec<TimelineEvent>,
    /// As of when all this is true.
    #[schemars(with = "String")]
    pub as_of: Timestamp,
}

/// What caused an automatic abort (RO-4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbortCause {
    /// Which machine, by short id.
    pub node_id_short: String,
    /// And by name.
    pub name: String,
    /// `failed` or `silent`.
    pub reason: String,
    /// `canary`, or `release` for what failed in one of its waves.
    pub phase: String,
    /// The plan's stage.
    pub stage: String,
    /// What was seen, in words.
    pub detail: String,
}

/// One node in a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodePush {
    /// Its short id.
    pub node_id_short: String,
    /// Its name.
    pub name: String,
    /// Its class, of its record.
    pub class: UpdateClass,
    /// How it stands (RO-3).
    pub state: PushState,
    /// In words, where the state alone does not say it: `running epoch 7`, why it failed.
    pub detail: String,
    /// The epoch that counts for it; null where none addresses it.
    pub epoch: Option<u64>,
    /// The epoch that it runs; null before its first report of one.
    pub running: Option<u64>,
    /// How far that is behind the newest epoch of the rollout.
    pub epochs_behind: Option<u64>,
    /// It went first.
    pub canary: bool,
    /// It has come to rest: nothing more is expected of it for this rollout.
    pub settled: bool,
}

/// A change of a node's status (RO-5).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct TimelineEvent {
    /// When: for arrivals by the node's own clock, else when the report was stored.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Which node.
    pub node_id_short: String,
    /// What it became: a state of EP-1.
    pub state: String,
    /// From whom it had the epoch: `reconciler`, `self`, or a neighbour's short id.
    pub via: String,
    /// Which epoch.
    pub epoch: u64,
}
