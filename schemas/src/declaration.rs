//! The declaration: the signed, sequenced list of resources that one node shall have (SG-4).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use semver::Version;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::digest::Digest;
use crate::envelope::Payload;
use crate::ident::{CommitId, FleetName, ModuleName, NodeId, ResourceId, ResourceName, RoleName};
use crate::resource::Resource;
use crate::sealed::SealedValue;

/// What a declaration carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Declaration {
    /// Version of the formats.
    pub schema: u32,
    /// Whose order this is.
    pub fleet: FleetName,
    /// Raised only by the offline roots (SG-11).
    pub era: u64,
    /// Unix seconds.
    pub issued_at: i64,
    /// Names of fields that a reader must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_understand: Vec<String>,
    /// The one node that it is for.
    pub node: NodeId,
    /// The number of the order; strictly increasing for each node; 0 claims no order (HR-1).
    pub sequence: u64,
    /// The modules, in the order of their names; `after` says in which they are applied.
    pub modules: Vec<ModuleEntry>,
    /// The node's roles; the host merges policy by those of its last confirmed declaration (SG-2).
    #[serde(default)]
    pub roles: Vec<RoleName>,
    /// The machine was there before (HR-8).
    #[serde(default)]
    pub adopted: bool,
    /// Modules whose found things the host may take over (HR-8).
    #[serde(default)]
    pub take: Vec<ModuleName>,
    /// All resources of all modules; in a module their order is the order of applying.
    pub resources: Vec<Resource>,
    /// Modules that could not be composed (HR-7).
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// What its archives and bundles are made of: each archive, and the list of files of each bundle (HK-15).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// Values of secrets, sealed to the node (FR-9); resources name them by their digests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sealed: Vec<SealedValue>,
    /// How long applying may take, in seconds (HR-13).
    pub apply_secs: u32,
    /// The commit-confirm window, in seconds.
    pub confirm_secs: u32,
    /// The probe that proves that the machine of the reconciler can still be reached, as the plan says: a session over
    /// loopback proves nothing there (EP-2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_probe: Option<ResourceName>,
    /// What follows when a resource fails.
    pub on_failure: OnFailure,
    /// Whether the node changes at all.
    #[serde(default)]
    pub mode: Mode,
    /// Hosts older than this do not take it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub min_host_version: Option<Version>,
    /// No window holds it back.
    #[serde(default)]
    pub urgent: bool,
    /// Known-bad digests that this order tries again (DL-14).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub again: Vec<Digest>,
    /// Moves the link (LK-4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub membership: Option<serde_json::Value>,
    /// Whom to talk to beside the reconciler (LK-2).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<NodeId>,
    /// Proof in the approved manifest (SG-6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<serde_json::Value>,
}

impl Payload for Declaration {
    const TYPE: &'static str = "application/vnd.meshplan.declaration+json";
}

/// One module of a declaration: what it is and where it came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleEntry {
    /// Its name.
    pub module: ModuleName,
    /// The digest of its [`ModuleContent`]: what looks, approvals and known-bad go by.
    pub digest: Digest,
    /// The commit that asked for this content.
    pub commit: CommitId,
    /// The delivery that brought it.
    pub delivery: String,
    /// Whether it changes the machine.
    #[serde(default)]
    pub mode: Mode,
    /// Modules of this node that come before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ModuleName>,
    /// Its resources that are restarted, reloaded or run when the effective policy changes (FR-7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_policy_change: Vec<ResourceId>,
    /// Capabilities that the machine must have, else the module is refused there (HR-10).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
}

/// The content of one module on one node: what assigned and proven speak of (DL-3). Its digest covers all of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleContent {
    /// The module.
    pub module: ModuleName,
    /// Whether it changes the machine.
    #[serde(default)]
    pub mode: Mode,
    /// Modules that come before it.
    #[serde(default)]
    pub after: Vec<ModuleName>,
    /// See [`ModuleEntry::on_policy_change`].
    #[serde(default)]
    pub on_policy_change: Vec<ResourceId>,
    /// See [`ModuleEntry::requires`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// The secrets that it was made of: `<name>` of the fleet's, `<module>/<name>` of its own, with the content digest of
    /// the value (FR-9).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, Digest>,
    /// Its resources in order.
    pub resources: Vec<Resource>,
}

/// A module that is left out, and why (FR-8, HR-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The module.
    pub module: ModuleName,
    /// Why, in a sentence.
    pub reason: String,
}

/// What follows when a resource fails (SG-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Back to the last confirmed declaration.
    #[default]
    Revert,
    /// What was done stays.
    Keep,
}

/// Whether a node or a module changes anything (HR-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Yes.
    #[default]
    Apply,
    /// No: what would change is reported.
    Observe,
}
