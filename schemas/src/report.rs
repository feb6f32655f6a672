//! The report: what a node says of itself, signed by its own key (HR-11).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::envelope::Payload;
use crate::fleet_list::UpdateClass;
use crate::ident::{FleetName, ModuleName, NodeId, ResourceName};
use crate::lifecycle::epoch::EpochState;

/// What a report carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Version of the formats.
    pub schema: u32,
    /// The fleet that the node belongs to.
    pub fleet: FleetName,
    /// The highest era that the node has verified.
    pub era: u64,
    /// When it was made, unix seconds by the node's clock.
    pub issued_at: i64,
    /// Names of fields that a reader must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_understand: Vec<String>,
    /// Who speaks.
    pub node: NodeId,
    /// Strictly increasing, fsynced before it is used: older never replaces newer.
    pub counter: u64,
    /// The kernel's boot id.
    pub boot_id: String,
    /// Random per start of the host.
    pub instance: String,
    /// When this instance of the host started, unix seconds.
    pub started_at: i64,
    /// The host's version.
    pub host_version: String,
    /// The launcher's version, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher_version: Option<String>,
    /// Why it was made.
    pub cause: Cause,
    /// How the node stands with its declaration; none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declaration: Option<DeclarationStatus>,
    /// A line per resource that is not `unchanged`.
    #[serde(default)]
    pub resources: Vec<ResourceLine>,
    /// What stands at a target and is not ours (HR-8).
    #[serde(default)]
    pub held: Vec<ResourceLine>,
    /// Containers and units that are nobody's (HR-9).
    #[serde(default)]
    pub strays: Vec<String>,
    /// Modules that the declaration leaves out.
    #[serde(default)]
    pub left_out: Vec<ModuleName>,
    /// What the machine can do (HR-10).
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// How the probes answered when it was made.
    #[serde(default)]
    pub probes: Vec<ProbeLine>,
    /// Restarts of supervised things since they were first started; a look compares it.
    #[serde(default)]
    pub restarts: u64,
    /// Links to reconciler and neighbours (later pages).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<serde_json::Value>,
    /// What of the machine refuses traffic, and whose each is (HK-11).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<FilterLine>,
    /// Firewalls that the machine had before the fleet's filter, and how each stands (HK-11).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub firewalls: Vec<FirewallLine>,
    /// Every standing verdict of a roll-back.
    #[serde(default)]
    pub rollbacks: Vec<RollbackVerdict>,
    /// The version of the witness that this host speaks (page 07).
    pub witness: u32,
    /// The highest numbers verified.
    pub marks: Marks,
    /// The timestamp has run out (SG-9).
    #[serde(default)]
    pub stale: bool,
    /// Paused on the node (HR-17).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    /// How the node stands with its epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<EpochStatus>,
    /// Rotations (RT-4).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rotations: Vec<serde_json::Value>,
    /// The digest of the effective policy file, none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_digest: Option<Digest>,
    /// Whether the node's clock is synchronized; none is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_trusted: Option<bool>,
    /// Free bytes of the state folder's file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_free_bytes: Option<u64>,
    /// Load over a minute, in hundredths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_hundredths: Option<u64>,
    /// Orders that were refused since the last report, and why (SG-5).
    #[serde(default)]
    pub refused: Vec<RefusedOrder>,
    /// Modules whose found things somebody on the machine asked to take (HR-12).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub take_requests: Vec<ModuleName>,
}

impl Payload for Report {
    const TYPE: &'static str = "application/vnd.meshplan.report+json";
}

/// Why a report was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Something changed.
    Change,
    /// The host started.
    Start,
    /// A look asked for it (DL-5); the look's id.
    Look(u64),
    /// The status interval.
    Heartbeat,
}

/// How the node stands with its declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeclarationStatus {
    /// The newest that it has taken.
    pub sequence: u64,
    /// The digest of its payload.
    pub digest: Digest,
    /// Where it stands.
    pub state: DeclarationState,
    /// Since when, unix seconds by the node's clock.
    pub since: i64,
    /// Why, in a sentence, where it did not simply work.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The last confirmed one; 0 before the first.
    pub confirmed_sequence: u64,
    /// Its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirmed_digest: Option<Digest>,
    /// Nothing had to be written.
    #[serde(default)]
    pub converged: bool,
}

/// The words with which the reason of a revert begins when it says nothing about the content: the link was lost, the
/// machine went down in the window, a probe could not be asked, or nothing was begun (DL-13).
pub const NO_BLAME: [&str; 4] = ["no-link", "interrupted", "cannot tell", "not begun"];

/// The word with which the reason of a resource's line begins when somebody else changes it again and again, so that the
/// host has left it (HR-17).
pub const CONTESTED: &str = "contested";

/// Whether a revert for this reason says nothing about the content.
#[must_use]
pub fn is_without_blame(reason: &str) -> bool {
    NO_BLAME.iter().any(|word| reason.starts_with(word))
}

/// Where a declaration stands on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeclarationState {
    /// Kept, waits (another is in its confirm window, or a window is shut).
    Queued,
    /// Being applied.
    Applying,
    /// Done, the confirm is awaited.
    AwaitingConfirm,
    /// Stays.
    Confirmed,
    /// Taken back; the last confirmed one stands.
    Reverted,
    /// Resources failed and `on_failure` is `keep`; what was done stays.
    Failed,
    /// Not taken: it holds content that failed here before (DL-14).
    KnownBad,
}

/// One resource in a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceLine {
    /// Which.
    pub name: ResourceName,
    /// What came of it (HR-3).
    pub outcome: Outcome,
    /// In words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The digest of what was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// A chain of the machine's packet filter that refuses traffic (HK-11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FilterLine {
    /// Family, table and chain, as `inet meshplan input`; `legacy` before those of the legacy tables.
    pub place: String,
    /// Whose it is.
    pub whose: FilterOwner,
    /// Which of several: `ufw`, `firewalld`, `docker`, `podman`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it refuses, or why that cannot be told, in words.
    pub refuses: String,
}

/// Whose a chain is that refuses traffic (HK-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FilterOwner {
    /// The host's own.
    Host,
    /// A firewall's that the machine had before.
    FoundFirewall,
    /// One that the container runtime itself writes.
    ContainerRuntime,
    /// Every refusal in it names its sources, and it accepts nothing.
    Ban,
    /// Anybody else's.
    Other,
    /// It could not be read.
    Unknown,
}

/// A firewall that the machine had before the fleet's filter (HK-11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FirewallLine {
    /// `ufw` or `firewalld`.
    pub name: String,
    /// How it stands.
    pub state: FirewallState,
}

/// How a found firewall stands (HK-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FirewallState {
    /// It is on, or comes on with the next start of the machine.
    Active,
    /// It is off, and not by the host.
    Inactive,
    /// The host turned it off.
    Retired,
    /// Its command is gone.
    Removed,
}

/// What came of a resource (HR-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// As asked already.
    Unchanged,
    /// Was not there.
    Created,
    /// Was other.
    Updated,
    /// Was restarted.
    Restarted,
    /// Is gone, as nothing asks for it.
    Removed,
    /// Somebody had changed it; put right.
    DriftRepaired,
    /// Found and left (HR-8).
    Held,
    /// An orphan that stays for now (HK-7).
    Kept,
    /// Not attempted, because another failed.
    Skipped,
    /// Cannot be done, and nothing was.
    Refused,
    /// Was tried and did not work.
    Failed,
    /// No longer recorded; still there.
    Forgotten,
    /// Its module is left out.
    LeftOut,
    /// Put back.
    Reverted,
}

/// One probe in a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeLine {
    /// Which.
    pub name: ResourceName,
    /// What it said.
    pub health: Health,
    /// In words, cut to [`crate::limits::COMMAND_OUTPUT_BYTES`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Three answers, not two (DL-13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Yes.
    Healthy,
    /// No.
    Unhealthy,
    /// Cannot tell.
    Unknown,
}

/// A standing verdict of a roll-back (HR-11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RollbackVerdict {
    /// What went back: a module, `policy`, `host`.
    pub component: String,
    /// From what (a digest or a version).
    pub from: String,
    /// To what.
    pub to: String,
    /// How it ended.
    pub outcome: String,
    /// Why.
    pub why: String,
    /// When, unix seconds by the node's clock.
    pub at: i64,
}

/// The highest numbers that a host has verified (SG-5), each with the digest of the payload that bore it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Marks {
    /// The highest era.
    pub era: u64,
    /// The highest epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Mark>,
    /// The highest revision of the fleet list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<Mark>,
    /// The highest sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Mark>,
    /// The newest timestamp; its `number` is `issued_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Mark>,
}

/// A number and what bore it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Mark {
    /// The number.
    pub number: u64,
    /// The digest of the payload.
    pub digest: Digest,
}

/// How the node stands with its epoch (EP-1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EpochStatus {
    /// The epoch that the state speaks for.
    pub state_epoch: u64,
    /// Where it stands.
    pub state: EpochState,
    /// Why, where it did not simply work.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// `reconciler`, `self`, or a neighbour's short id.
    pub received_via: String,
    /// Unix seconds by the node's clock.
    pub received_at: i64,
    /// The class that the node reads in its own record.
    pub update_class: UpdateClass,
    /// The epoch that it runs; 0 before the first.
    pub running: u64,
}

/// Paused on the node (HR-17).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Paused {
    /// Until when, unix seconds.
    pub until: i64,
    /// Why.
    pub why: String,
}

/// An order that was refused (SG-5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedOrder {
    /// `epoch`, `fleet-list`, `timestamp`, `declaration`.
    pub order: String,
    /// Its number, when it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// The refusal's code word.
    pub code: String,
    /// In words.
    pub reason: String,
}
