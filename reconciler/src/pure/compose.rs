//! Composes a validated tree: policy, fleet list, the content of each module on each node.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use meshplan_schemas::declaration::{LeftOut, ModuleContent};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::document::{FleetDoc, PlanDoc};
use meshplan_schemas::finding::{Finding, Source};
use meshplan_schemas::fleet_list::{Leaf, UpdateClass};
use meshplan_schemas::ident::{FleetName, ModuleName, NodeId, NodeName, PlanName, RoleName};
use meshplan_schemas::maintenance::FleetWindows;
use meshplan_schemas::merkle;

use super::assertions::Assertion;
use super::by_node::ByNode;
use super::parse::ReadRecords;
use super::secrets::Secret;
use super::source_tree::SourceTree;
use super::validate::Record;

pub mod artifacts;
mod composer;
mod content;
mod contents;
mod expected;
pub mod former;
mod kinds;
mod left_out;
mod lists;

use artifacts::Artifacts;
pub use composer::Composer;
use composer::Good;
pub use expected::Expected;

/// Everything that a commit asks for, composed and with digests, unsigned.
#[derive(Debug, Clone, PartialEq)]
pub struct Composed {
    /// fleet.toml.
    pub fleet: FleetDoc,
    /// The text that an epoch carries (SG-2).
    pub policy: String,
    /// The digest of that text.
    pub policy_digest: Digest,
    /// The maintenance windows that it gives its nodes (FR-7).
    pub windows: FleetWindows,
    /// Every record that is not revoked, by its uuid.
    pub nodes: ByNode<Arc<ComposedNode>>,
    /// The leaves of the fleet list, sorted by uuid: the records with keys, not revoked.
    pub leaves: ByNode<Arc<Listed>>,
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
    /// What must hold of it, and does (FR-11).
    pub checks: Vec<Assertion>,
    /// What is worth saying and stops no check; what is in `unsigned` is among it.
    pub warnings: Vec<Finding>,
    /// What is to be known of its secrets.
    pub secrets: OfSecrets,
    /// Why nothing of it may be signed by this version; [`super::decide::Tree::of`] makes no order of it then.
    pub unsigned: Option<Finding>,
}

/// A leaf of the fleet list with its hash (SG-3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The leaf.
    pub leaf: Leaf,
    /// Its hash in the list's tree.
    pub hash: merkle::Hash,
}

/// The content of a module on a node, with its digest; nodes with the same settings share it.
pub type Made = (Digest, Arc<Filled>);

/// The content of a module on a node, and the values that it names by their digests: they go to the node sealed, and
/// nowhere else.
#[derive(Debug, Clone, PartialEq)]
pub struct Filled {
    /// The content.
    pub content: ModuleContent,
    /// The values.
    pub values: Vec<Secret>,
    /// What its archives and bundles are made of.
    pub artifacts: Arc<Artifacts>,
}

impl From<ModuleContent> for Filled {
    /// Content that names no value and no artifact.
    fn from(content: ModuleContent) -> Self {
        Self {
            content,
            values: Vec::new(),
            artifacts: Arc::default(),
        }
    }
}

impl Deref for Filled {
    type Target = ModuleContent;
    fn deref(&self) -> &ModuleContent {
        &self.content
    }
}

/// What is to be known of a tree's secrets: no value is in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OfSecrets {
    /// Those that do not open, by path: the digest of the file, and why (FR-8).
    pub closed: BTreeMap<String, (Digest, String)>,
    /// Those of which only the value of this tree may be used: its digest, and why (DL-7).
    pub retired: BTreeMap<SecretName, Retired>,
    /// How many there are that nobody has opened, so that stand-ins take the place of their values.
    pub not_opened: usize,
}

/// A secret of which only one value may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retired {
    /// The digest of that value; none where it does not open.
    pub value: Option<Digest>,
    /// Why the others are spent, in the words of the tree.
    pub why: String,
}

/// One node, composed.
#[derive(Debug, Clone, PartialEq)]
pub struct ComposedNode {
    /// Its uuid.
    pub id: NodeId,
    /// Its name.
    pub name: NodeName,
    /// Its roles in the record's order.
    pub roles: Vec<RoleName>,
    /// Its modules with the digest of the content.
    pub modules: BTreeMap<ModuleName, Made>,
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
    /// Its own `[vars]`, as text.
    pub vars: BTreeMap<String, String>,
    /// Whether the record carries keys; without them the node is invited (DL-6).
    pub enrolled: bool,
    /// Its record, so that a place in it can be shown.
    pub source: Source,
}

/// Why a tree gives nothing that could be ordered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// Something in it is wrong; warnings are among it. Sorted by file and line.
    #[error("{} in the tree; the first: {}", errors(.0), first(.0))]
    Findings(Vec<Finding>),
    /// It is no fleet at all: never an order, the fleet is frozen (FR-12).
    #[error("{0}")]
    NoFleet(String),
}

fn errors(findings: &[Finding]) -> String {
    match findings.iter().filter(|f| f.is_error()).count() {
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    }
}

fn first(findings: &[Finding]) -> String {
    findings
        .iter()
        .find(|f| f.is_error())
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// The first secret of which a content has a value that is retired, with why it is (DL-7). One whose value of today
/// nobody can open is taken for spent.
#[must_use]
pub fn spent<'r>(
    content: &ModuleContent,
    retired: &'r BTreeMap<SecretName, Retired>,
) -> Option<(&'r SecretName, &'r Retired)> {
    retired.iter().find(|(name, retired)| {
        let has = content.secrets.get(&name.0);
        has.is_some_and(|has| retired.value != Some(*has))
    })
}

/// The whole way from a tree to what it asks for. `expected_*` is what the reconciler's own configuration says; a
/// tree that says otherwise is refused (DL-1). Who composes one tree after another has a [`Composer`].
///
/// A tree with fleet.toml and no nodes composes, with a warning: whether that empties a fleet that had nodes before
/// is for the caller to see (FR-12).
///
/// # Errors
/// [`TreeError`].
pub fn compose_tree(
    tree: &SourceTree,
    expected_fleet: Option<&FleetName>,
    expected_branch: Option<&str>,
) -> Result<Composed, TreeError> {
    let expected = Expected {
        fleet: expected_fleet.cloned(),
        branch: expected_branch.map(str::to_owned),
        ..Expected::default()
    };
    compose_as(tree, &expected)
}

/// As [`compose_tree`], with all that is expected; what opens secrets is among it.
///
/// # Errors
/// [`TreeError`].
pub fn compose_as(tree: &SourceTree, expected: &Expected) -> Result<Composed, TreeError> {
    let (_, composed) = Good::of(tree, expected, &mut ReadRecords::default(), None)?;
    Ok(Arc::unwrap_or_clone(composed))
}

fn node(record: &Record, modules: BTreeMap<ModuleName, Made>, left_out: Vec<LeftOut>) -> ComposedNode {
    let file = &record.file;
    ComposedNode {
        id: file.id.value,
        name: record.name.clone(),
        roles: file.roles.iter().map(|r| r.value.clone()).collect(),
        modules,
        left_out,
        adopted: file.adopted,
        take: file.take.iter().map(|m| m.value.clone()).collect(),
        update_class: file.update_class,
        pinned: file.pinned.value,
        vars: (file.vars.0.iter())
            .map(|(name, at)| (name.clone(), at.value.to_string()))
            .collect(),
        enrolled: file.transport_key.is_some() && file.signing_key.is_some(),
        source: record.source.clone(),
    }
}
