//! What is legal in a fleet's tree and still unwise: each with its place, why, and what to do.
//!
//! Checking says what cannot be; this says what will be regretted. Each rule is a function of its own over what was
//! parsed and validated, so that one can be read, tested and left out without the others. Invariant: a rule that
//! cannot tell says nothing.
//!
//! | rule | says |
//! | --- | --- |
//! | `check` | what checking warns of |
//! | `no-canary` | a plan for everything walks all machines at once |
//! | `never-rolls-back` | no stage of a plan takes a bad change back |
//! | `tolerates-all` | a stage passes although every machine fails |
//! | `no-spare-look` | a single unhealthy look fails a machine |
//! | `canary-not-enrolled` | a named first machine takes no orders yet |
//! | `stage-left-behind` | a stage names a machine that no stage takes |
//! | `confirm-before-heartbeat` | a node must confirm sooner than it is heard from |
//! | `world-writable` | every user of a machine can write a file |
//! | `private-readable` | every user of a machine can read what looks private |
//! | `module-unused` | no node has a module |
//! | `setting-unread` | no template reads a setting |
//! | `var-unread` | nothing reads a value of `[vars]` |
//! | `file-unused` | nothing of a module uses a file of its folder |
//! | `ignored` | git does not store a file of the fleet |

use std::collections::BTreeSet;

use meshplan_schemas::finding::Finding;
use serde::Serialize;

use super::parse::Documents;
use super::validate::Validated;

mod files;
mod plans;
mod unused;

/// One thing that is unwise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Lint {
    /// Place, why, what to do; always a warning.
    #[serde(flatten)]
    pub finding: Finding,
    /// The rule's name.
    pub rule: &'static str,
}

/// A tree to be looked at.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its documents, with their places.
    pub documents: &'a Documents,
    /// What they mean together.
    pub validated: &'a Validated,
    /// Paths of the folder that git ignores.
    pub ignored: &'a BTreeSet<String>,
}

type Rule = (&'static str, fn(&Subject<'_>) -> Vec<Finding>);

/// The rules.
const RULES: &[Rule] = &[
    ("check", |subject| subject.validated.warnings().to_vec()),
    ("no-canary", plans::no_canary),
    ("never-rolls-back", plans::never_rolls_back),
    ("tolerates-all", plans::tolerates_all),
    ("no-spare-look", plans::no_spare_look),
    ("canary-not-enrolled", plans::canary_not_enrolled),
    ("stage-left-behind", plans::stage_left_behind),
    ("confirm-before-heartbeat", plans::confirm_before_heartbeat),
    ("world-writable", files::world_writable),
    ("private-readable", files::private_readable),
    ("module-unused", unused::modules),
    ("setting-unread", unused::settings),
    ("var-unread", unused::vars),
    ("file-unused", unused::files),
    ("ignored", files::ignored),
];

/// The names of all rules.
pub fn rules() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|(name, _)| *name)
}

/// Everything that the rules find, sorted by file and line.
#[must_use]
pub fn lint(subject: &Subject<'_>) -> Vec<Lint> {
    let mut found: Vec<Lint> = RULES
        .iter()
        .flat_map(|(rule, of)| {
            of(subject).into_iter().map(|finding| Lint {
                finding: finding.warning(),
                rule,
            })
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests;
