//! What a revert leaves as it is: resources that go only forward (DL-7, HR-5).
//!
//! Stands alone because the undo journal knows nothing of it, and its vocabulary is frozen: what these resources have
//! is not in the journal. They are kept beside it, each with what stood there before, by which a revert tells whether the
//! thing has gone forward, and with what the ledger says of it then.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::ident::ResourceName;
use serde::{Deserialize, Serialize};

use super::apply_plan::{Plan, Step, SweepHow};
use super::inverse::Before;
use super::record::{Ledger, Record, Thing};
use super::target::{Sort, Target};
use super::target_path::TargetPath;

/// What of an apply does not go back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Forward {
    /// In the order of the apply.
    pub steps: Vec<ForwardStep>,
    /// Folders that the apply makes on the way to them, deepest first: each stays while something is in it.
    pub folders: Vec<TargetPath>,
}

/// A thing that does not go back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardStep {
    /// Whose it is.
    pub name: ResourceName,
    /// What it is.
    pub target: Target,
    /// How it stood before; none where it was not there. It is never brought back.
    pub before: Option<Thing>,
    /// The ledger's record once it is done; none where the thing was taken away.
    pub record: Option<Record>,
}

impl Forward {
    /// Whether all goes back.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// The resources that go only forward once a declaration is confirmed: those that it marks, and those of modules that
/// are left out, of which what was said before counts.
#[must_use]
pub fn marked(declaration: &Declaration, ledger: &Ledger) -> BTreeSet<ResourceName> {
    let marked = (declaration.resources.iter())
        .filter(|resource| resource.forward_only == Some(true))
        .map(|resource| resource.name.clone());
    let is_left_out = |name: &&ResourceName| {
        let mut left_out = declaration.left_out.iter();
        left_out.any(|left| left.module == name.module)
    };
    let former = ledger.forward_only.iter().filter(is_left_out).cloned();
    marked.chain(former).collect()
}

/// What is taken away and stays so where nothing is said: users (DL-7).
fn removals(plan: &Plan) -> BTreeSet<&Target> {
    let steps = plan.steps.iter();
    let removed = steps.filter_map(|step| match step {
        Step::Write(write) if write.nature.is_for_good => write.record.target.as_ref(),
        Step::Sweep(sweep) if sweep.how == SweepHow::Remove => sweep.target.as_ref(),
        _ => None,
    });
    let is_user = |target: &&Target| matches!(target, Target::Thing(Sort::User, _));
    removed.filter(is_user).collect()
}

/// Takes out of the way back what does not go back. A mark counts on either side: of the declaration, or of what the
/// ledger says was confirmed before, by name or by what it has.
#[must_use]
pub fn take_out(
    befores: Vec<Before>,
    plan: &Plan,
    ledger: &Ledger,
    marked: &BTreeSet<ResourceName>,
) -> (Vec<Before>, Forward) {
    let former = ledger
        .forward_only
        .iter()
        .filter_map(|name| ledger.records.get(name));
    let places: BTreeSet<&Target> = former.filter_map(|record| record.target.as_ref()).collect();
    let gone = removals(plan);
    let is_forward = |name: &ResourceName, target: &Target| {
        gone.contains(target)
            || marked.contains(name)
            || ledger.forward_only.contains(name)
            || places.contains(target)
    };
    let mut taken: BTreeMap<Target, Before> = BTreeMap::new();
    let mut others = Vec::new();
    for before in befores {
        match &before.name {
            Some(name) if is_forward(name, &before.target) => {
                taken.insert(before.target.clone(), before);
            }
            _ => others.push(before),
        }
    }
    let mut forward = Forward::default();
    for step in &plan.steps {
        let (name, target, record) = match step {
            Step::Write(write) => (&write.record.name, &write.record.target, Some(&write.record)),
            Step::Sweep(sweep) if sweep.acts() => (&sweep.name, &sweep.target, None),
            _ => continue,
        };
        let Some(before) = target.as_ref().and_then(|target| taken.remove(target)) else {
            continue;
        };
        forward.steps.push(ForwardStep {
            name: name.clone(),
            target: before.target,
            before: before.thing,
            record: record.cloned(),
        });
    }
    let made: Vec<&Target> = (forward.steps.iter())
        .filter(|step| step.record.is_some())
        .map(|step| &step.target)
        .collect();
    let is_on_the_way = |path: &TargetPath| made.iter().any(|target| target.is_below(path));
    let mut folders = Vec::new();
    others.retain(|before| match before.target.path() {
        Some(path) if before.is_new_path() && is_on_the_way(path) => {
            folders.push(path.clone());
            false
        }
        _ => true,
    });
    folders.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    forward.folders = folders;
    (others, forward)
}
