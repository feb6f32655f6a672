//! Composes a validated tree: policy, fleet list, the content of each module on each node.

use std::collections::BTreeMap;

use meshplan_schemas::declaration::{LeftOut, ModuleContent};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::{FleetDoc, PlanDoc};
use meshplan_schemas::finding::Finding;
use meshplan_schemas::fleet_list::{Leaf, UpdateClass};
use meshplan_schemas::ident::{ModuleName, NodeId, NodeName, PlanName, RoleName};

/// Everything that a commit asks for, composed and with digests, unsigned.
#[derive(Debug, Clone)]
pub struct Composed {
    /// fleet.toml.
    pub fleet: FleetDoc,
    /// The text that an epoch carries (SG-2).
    pub policy: String,
    /// The digest of that text.
    pub policy_digest: Digest,
    /// Every record that is not revoked, by its uuid.
    pub nodes: BTreeMap<NodeId, ComposedNode>,
    /// The leaves of the fleet list, sorted by uuid: the records with keys, not revoked.
    pub leaves: Vec<Leaf>,
    /// Digests of the uuids and keys of revoked records, sorted (SG-3).
    pub revoked: Vec<Digest>,
    /// The digest of all that enters the signed list.
    pub list_digest: Digest,
    /// The digest of plans, checks, trust, authors and all else of fleet.toml.
    pub gate_digest: Digest,
    /// For each module the digest of its folder and of the settings that feed it: what known-bad goes by (DL-14).
    pub sources: BTreeMap<ModuleName, Digest>,
    /// The deploy plans by name.
    pub plans: BTreeMap<PlanName, PlanDoc>,
    /// What is worth saying and stops nothing.
    pub warnings: Vec<Finding>,
}

/// One node, composed.
#[derive(Debug, Clone)]
pub struct ComposedNode {
    /// Its uuid.
    pub id: NodeId,
    /// Its name.
    pub name: NodeName,
    /// Its roles in the record's order.
    pub roles: Vec<RoleName>,
    /// Its modules with the digest of the content.
    pub modules: BTreeMap<ModuleName, (Digest, ModuleContent)>,
    /// What could not be composed (FR-8).
    pub left_out: Vec<LeftOut>,
    /// HR-8.
    pub adopted: bool,
    /// HR-8.
    pub take: Vec<ModuleName>,
    /// UC-1.
    pub update_class: UpdateClass,
    /// UC-1.
    pub pinned: bool,
    /// Whether the record carries keys; without them the node is invited (DL-6).
    pub enrolled: bool,
}
