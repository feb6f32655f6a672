//! What a revert leaves as it is: resources that go only forward (DL-7, HR-5).
//!
//! Stands alone because the undo journal knows nothing of it, and its vocabulary is frozen: the paths of these resources
//! are not in the journal. They are kept beside it, each with what stood there before, by which a revert tells whether the
//! thing has gone forward, and with what the ledger says of it then.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::ident::ResourceName;
use serde::{Deserialize, Serialize};

use super::apply_plan::{Plan, Step};
use super::inverse::{Before, UndoAct};
use super::record::{Ledger, Record};
use super::target_path::TargetPath;

/// What of an apply does not go back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Forward {
    /// In the order of the apply.
    pub steps: Vec<ForwardStep>,
    /// Folders that the apply makes on the way to them, deepest first: each stays while something is in it.
    pub folders: Vec<TargetPath>,
}

/// A path that does not go back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardStep {
    /// Whose it is.
    pub name: ResourceName,
    /// Where.
    pub path: TargetPath,
    /// What would lead to what stood there before; it is never done.
    pub before: UndoAct,
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

/// Takes out of the way back what does not go back. A mark counts on either side: of the declaration, or of what the
/// ledger says was confirmed before, by name or at the same path.
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
    let places: BTreeSet<&TargetPath> = former.filter_map(|record| record.target.as_ref()).collect();
    let is_forward = |name: &ResourceName, target: &TargetPath| {
        marked.contains(name) || ledger.forward_only.contains(name) || places.contains(target)
    };
    let mut acts: BTreeMap<TargetPath, Before> = BTreeMap::new();
    let mut others = Vec::new();
    for before in befores {
        match &before.name {
            Some(name) if is_forward(name, &before.path) => {
                acts.insert(before.path.clone(), before);
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
        let Some(before) = target.as_ref().and_then(|target| acts.remove(target)) else {
            continue;
        };
        forward.steps.push(ForwardStep {
            name: name.clone(),
            path: before.path,
            before: before.act,
            record: record.cloned(),
        });
    }
    let made: Vec<&TargetPath> = (forward.steps.iter())
        .filter(|step| step.record.is_some())
        .map(|step| &step.path)
        .collect();
    let (mut folders, others): (Vec<Before>, Vec<Before>) = others.into_iter().partition(|before| {
        before.act == UndoAct::Remove && made.iter().any(|path| path.is_below(&before.path))
    });
    folders.sort_by_key(|before| std::cmp::Reverse(before.path.components().count()));
    forward.folders = folders.into_iter().map(|before| before.path).collect();
    (others, forward)
}
