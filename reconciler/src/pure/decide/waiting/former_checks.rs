//! A commit cannot take away the check that would refuse it (FR-11, DL-15): the checks of the tree whose gate was last
//! accepted are asked too, and what fails one waits for a person's word.

use meshplan_schemas::lifecycle::delivery::Code;
use meshplan_schemas::policy;

use super::holds::Hold;
use crate::pure::assertions::{Assertion, failures, missing_of};
use crate::pure::compose::Composed;
use crate::pure::decide::Tree;
use crate::pure::decide::draft::Draft;
use crate::pure::scope::Scope;

/// No review answers a check.
const NEXT: &str = "a go begins it, a withdraw ends it, or a newer commit takes its place";

/// Why the delivery waits for a person's word; none where no former check fails on its tree.
pub(super) fn hold(draft: &Draft<'_>, tree: &Composed) -> Option<Hold> {
    let accepted = draft.known.snapshot.accepted.get(&Scope::Gate)?;
    // The gate's digest covers the checks: they are the same then, and the tree has been asked its own.
    if accepted.digest == tree.gate_digest {
        return None;
    }
    let before = match draft.known.trees.get(&accepted.commit) {
        Some(Tree::Composed(before)) => before,
        // What this build cannot read has no checks that it could ask.
        Some(Tree::Invalid(_) | Tree::Gone(_)) => return None,
        None => {
            let commit = accepted.commit.short();
            let reason =
                format!("the tree of {commit}, whose checks decide, cannot be read; a go lets this go on");
            let rule = format!("checks/ of {commit}, which decide too, DL-15");
            return Some(Hold::new(Code::Approvals, reason).by(&rule).next(NEXT));
        }
    };
    let gone: Vec<Assertion> = missing_of(&before.checks, &tree.checks).cloned().collect();
    let policy = policy::parse(&tree.policy).unwrap_or_default();
    let failed = failures(&gone, tree.nodes.values().map(AsRef::as_ref), &policy);
    let first = failed.first()?;
    let reason = format!(
        "{} ({}:{} of {}), and this commit takes the check away or changes it; a go lets it go on",
        first.message,
        first.file,
        first.line,
        accepted.commit.short()
    );
    let rule = format!(
        "{}:{} of {}, what a commit takes away decides about it too, DL-15",
        first.file,
        first.line,
        accepted.commit.short()
    );
    Some(Hold::new(Code::Approvals, reason).by(&rule).next(NEXT))
}

/// The former checks that the tree does not have any more as they were, for the note of a delivery that begins.
pub(super) fn facts(draft: &Draft<'_>, tree: &Composed) -> Vec<(String, String)> {
    let accepted = draft.known.snapshot.accepted.get(&Scope::Gate);
    let before = accepted.and_then(|accepted| draft.tree(&accepted.commit));
    let gone = before
        .iter()
        .flat_map(|before| missing_of(&before.checks, &tree.checks));
    gone.map(|check| {
        let text = format!("{} ({}) is gone or changed", check.says.name, check.place());
        ("Check".to_owned(), text)
    })
    .collect()
}
