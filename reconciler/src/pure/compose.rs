//! Composes a validated tree: policy, fleet list, the content of each module on each node.

use std::collections::BTreeMap;

use meshplan_schemas::declaration::{LeftOut, ModuleContent};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::{FleetDoc, PlanDoc};
use meshplan_schemas::finding::Finding;
use meshplan_schemas::fleet_list::{Leaf, UpdateClass};
use meshplan_schemas::ident::{FleetName, ModuleName, NodeId, NodeName, PlanName, RoleName};

use super::parse::parse;
use super::source_tree::SourceTree;
use super::template::Shared;
use super::validate::{Record, Validated, validate};

mod content;
mod kinds;
mod left_out;
mod lists;

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

/// The whole way from a tree to what it asks for. `expected_*` is what the reconciler's own configuration says; a
/// tree that says otherwise is refused (DL-1).
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
    if tree.get("fleet.toml").is_none() {
        return Err(TreeError::NoFleet(
            "the tree has no fleet.toml: this is no fleet's repository".to_owned(),
        ));
    }
    let (documents, mut findings) = parse(tree);
    if let Some(document) = &documents.fleet
        && let Some(file) = &document.read
    {
        let (fleet, branch) = (&file.fleet, &file.branch);
        if let Some(expected) = expected_fleet.filter(|expected| **expected != fleet.value) {
            let message = format!(
                "this tree is the fleet `{}`, this reconciler serves `{expected}`",
                fleet.value
            );
            findings.push(document.source.error(fleet.span.clone(), message));
        }
        if let Some(expected) = expected_branch.filter(|expected| **expected != *branch.value) {
            let message = format!(
                "this tree names the branch `{}`, this reconciler follows `{expected}`",
                branch.value
            );
            findings.push(document.source.error(branch.span.clone(), message));
        }
    }
    let refused = findings.iter().any(Finding::is_error);
    let composed = validate(documents).and_then(|validated| {
        if refused {
            Err(validated.warnings().to_vec())
        } else {
            compose(&validated)
        }
    });
    match composed {
        Ok(mut composed) => {
            composed.warnings.append(&mut findings);
            composed.warnings.sort();
            Ok(composed)
        }
        Err(more) => {
            findings.extend(more);
            findings.sort();
            findings.dedup();
            Err(TreeError::Findings(findings))
        }
    }
}

/// Composes a validated tree.
///
/// # Errors
/// What only rendering can find, sorted by file and line.
pub fn compose(validated: &Validated) -> Result<Composed, Vec<Finding>> {
    let mut contents = content::Contents::of(validated)?;
    let shared = Shared::of(validated);
    let mut nodes = BTreeMap::new();
    for record in validated.nodes() {
        nodes.insert(
            record.file.id.value,
            node(record, contents.of_node(record, &shared)),
        );
    }
    let mut warnings = validated.warnings().to_vec();
    contents.finish(&mut warnings)?;
    warnings.sort();
    let leaves = lists::leaves(validated);
    let policy = validated.policy().text();
    let told = |e: serde_json::Error| {
        vec![Finding::of_file(
            "",
            format!("the tree cannot be written as JSON: {e}"),
        )]
    };
    Ok(Composed {
        fleet: validated.fleet().clone(),
        policy_digest: Digest::of(policy.as_bytes()),
        policy,
        nodes,
        list_digest: lists::list_digest(validated, &leaves).map_err(told)?,
        leaves,
        revoked: validated.revoked().to_vec(),
        gate_digest: lists::gate_digest(validated).map_err(told)?,
        sources: contents.sources().map_err(told)?,
        plans: validated.plans().clone(),
        warnings,
    })
}

fn node(
    record: &Record,
    (modules, left_out): (BTreeMap<ModuleName, (Digest, ModuleContent)>, Vec<LeftOut>),
) -> ComposedNode {
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
        enrolled: file.transport_key.is_some() && file.signing_key.is_some(),
    }
}
