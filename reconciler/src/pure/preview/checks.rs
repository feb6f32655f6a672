//! Checks that come, go or are another (FR-11): a merge that takes away the check which would refuse it is seen before it
//! is merged, with what the check says of it.

use meshplan_schemas::policy;
use serde::Serialize;

use super::modules::How;
use crate::pure::assertions::{Assertion, failures, missing_of};
use crate::pure::compose::Composed;

/// A check that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckChange {
    /// Its name.
    pub name: String,
    /// Where it stands, as `checks/ssh.toml:3`: after; before, where it is gone.
    pub place: String,
    /// Whether it is `new`, `gone` or `changed`.
    pub how: How,
    /// What the check as it was before says against the tree after: the delivery waits for a person's word then. None where
    /// it holds, or is new.
    pub fails: Option<String>,
}

/// The checks that change, by name.
pub(super) fn changes(before: Option<&Composed>, after: &Composed) -> Vec<CheckChange> {
    let was: &[Assertion] = before.map_or(&[], |tree| &tree.checks);
    let former: Vec<&Assertion> = missing_of(was, &after.checks).collect();
    let mut newer: Vec<&Assertion> = missing_of(&after.checks, was).collect();
    let policy = policy::parse(&after.policy).unwrap_or_default();
    let mut found: Vec<CheckChange> = Vec::new();
    for check in former {
        let same_name = newer.iter().position(|new| new.says.name == check.says.name);
        let becomes = same_name.map(|at| newer.remove(at));
        let nodes = after.nodes.values().map(AsRef::as_ref);
        let failed = failures(std::slice::from_ref(check), nodes, &policy);
        found.push(CheckChange {
            name: check.says.name.clone(),
            place: becomes.unwrap_or(check).place(),
            how: if becomes.is_some() {
                How::Changed
            } else {
                How::Gone
            },
            fails: failed.into_iter().next().map(|finding| finding.message),
        });
    }
    found.extend(newer.into_iter().map(|check| CheckChange {
        name: check.says.name.clone(),
        place: check.place(),
        how: How::New,
        fails: None,
    }));
    found.sort_by(|a, b| (&a.name, &a.place).cmp(&(&b.name, &b.place)));
    found
}
