//! What a merge would do, told before it is merged (DL-8).
//!
//! A function of two composed trees, before and after. The value says everything; how it is shown is another matter:
//! [`text`] makes lines for a terminal, and whoever posts it elsewhere renders the same value.
//!
//! Invariant: what is not named here is the same before and after, down to its digest; and a secret is never in it.
//!
//! | file | what it tells |
//! | --- | --- |
//! | [`modules`] | resources that change, equal changes once, with the nodes that they reach |
//! | [`fleet`] | nodes, keys, classes; fleet.toml; plans; policy with old and new value |
//! | [`checks`] | checks that come, go or are another, and whether a former one fails |
//! | [`walk`] | the legs, the plan that covers them, its stages with their numbers |
//! | [`text`] | all of it as lines, bounded |
//! | [`outcome`] | a preview, or why there is none: what comments and the command line say alike |

use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::{FleetName, ModuleName, NodeName, ResourceName};
use serde::Serialize;

use super::compose::Composed;

pub mod checks;
pub mod fleet;
pub mod modules;
pub mod outcome;
pub mod text;
pub mod walk;

pub use checks::CheckChange;
pub use fleet::{KeyChange, MemberChange, PlanChange, PolicyChange};
pub use modules::{Group, ResourceChange};
pub use walk::{LegPreview, StagePreview, WalkPreview};

/// What a merge would do.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Preview {
    /// The fleet after it.
    pub fleet: FleetName,
    /// How many nodes there are before.
    pub nodes_before: usize,
    /// How many nodes there are after.
    pub nodes_after: usize,
    /// The nodes on which a module or the policy changes, or that come or go, by name.
    pub nodes_changed: Vec<NodeName>,
    /// Changes of modules: equal ones once, those of the fewest nodes first.
    pub modules: Vec<Group>,
    /// What goes from machines, and nothing takes over (FR-12).
    pub removals: Vec<Removal>,
    /// What no roll-back brings back.
    pub not_reversible: Vec<NotReversible>,
    /// Modules that could not be composed on nodes, after (FR-8).
    pub left_out: Vec<LeftOutModule>,
    /// How many secrets of the tree after nobody has opened: one that is encrypted anew counts as changed then (FR-9).
    pub secrets_not_opened: usize,
    /// Keys of policy, with old and new value.
    pub policy: Vec<PolicyChange>,
    /// How many nodes have another effective policy, or other roles, after.
    pub policy_nodes: usize,
    /// Nodes that come, go, or are someone else after.
    pub members: Vec<MemberChange>,
    /// Keys of fleet.toml.
    pub fleet_file: Vec<KeyChange>,
    /// Deploy plans.
    pub plans: Vec<PlanChange>,
    /// Checks of `checks/` that come, go or are another (FR-11).
    pub checks: Vec<CheckChange>,
    /// How it would be walked; none where there is nothing to walk.
    pub walk: Option<WalkPreview>,
    /// What checking the tree after has to say, and stops nothing.
    pub warnings: Vec<Finding>,
}

/// A resource that goes, and from which nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removal {
    /// The resource.
    pub resource: ResourceName,
    /// Its kind.
    pub kind: String,
    /// What of the machine it is.
    pub target: Option<String>,
    /// The nodes, by name.
    pub nodes: Vec<NodeName>,
}

/// A change that stays, whatever becomes of the delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotReversible {
    /// The resource.
    pub resource: ResourceName,
    /// The field that says so, with its value.
    pub why: String,
    /// On how many nodes.
    pub nodes: usize,
}

/// A module that is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOutModule {
    /// The module.
    pub module: ModuleName,
    /// Why.
    pub reason: String,
    /// The nodes, by name.
    pub nodes: Vec<NodeName>,
}

impl Preview {
    /// The former checks that it takes away or changes, and that fail after it: it waits for a person's word then (FR-11).
    pub fn failing_checks(&self) -> impl Iterator<Item = &CheckChange> {
        self.checks.iter().filter(|check| check.fails.is_some())
    }

    /// Whether a merge would change nothing at all.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.modules.is_empty()
            && self.policy.is_empty()
            && self.policy_nodes == 0
            && self.members.is_empty()
            && self.fleet_file.is_empty()
            && self.plans.is_empty()
            && self.checks.is_empty()
            && self.walk.is_none()
    }
}

/// What a merge would do that makes `after` of `before`; without `before` everything is new.
///
/// # Errors
/// Content that cannot be digested, which does not happen for what a tree composes to.
pub fn preview(before: Option<&Composed>, after: &Composed) -> Result<Preview, serde_json::Error> {
    let changes = modules::changes(before, after);
    let (policy, policy_nodes) = fleet::policy(before, after)?;
    let mut nodes_changed: Vec<NodeName> = changes
        .groups
        .iter()
        .flat_map(|group| group.nodes.iter().cloned())
        .chain(policy_nodes.iter().cloned())
        .chain(fleet::come_and_gone(before, after))
        .collect();
    nodes_changed.sort();
    nodes_changed.dedup();
    Ok(Preview {
        fleet: after.fleet.fleet.clone(),
        nodes_before: before.map_or(0, |tree| tree.nodes.len()),
        nodes_after: after.nodes.len(),
        nodes_changed,
        not_reversible: modules::not_reversible(&changes.groups),
        modules: changes.groups,
        removals: changes.removals,
        left_out: modules::left_out(after),
        secrets_not_opened: after.secrets.not_opened,
        policy,
        policy_nodes: policy_nodes.len(),
        members: fleet::members(before, after),
        fleet_file: fleet::fleet_file(before, after)?,
        plans: fleet::plans(before, after)?,
        checks: checks::changes(before, after),
        walk: walk::walk(before, after)?,
        warnings: after.warnings.clone(),
    })
}

#[cfg(test)]
mod tests;
