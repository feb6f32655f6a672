//! Checks that a plan names: what the forge says of them, and what follows (DL-2, DL-15).

use std::collections::BTreeSet;

use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::document::plan::Check;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::Code;

use super::holds::place;
use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::Delivery;
use crate::pure::snapshot::Verdict;
use crate::pure::unpassed::Unpassed;

/// What follows of the checks.
pub(super) enum Asked {
    /// All have passed, or none is named.
    Passed,
    /// It is not known yet: for what it waits.
    Waits(String),
    /// They do not let it begin.
    Holds(Code, String),
}

/// The checks that the plans before and after name.
pub(super) fn named(bounds: &[Option<PlanDoc>]) -> Vec<String> {
    let mut names = BTreeSet::new();
    for plan in bounds.iter().flatten() {
        if let Check::Named(of_plan) = &plan.check {
            names.extend(of_plan.iter().cloned());
        }
    }
    names.into_iter().collect()
}

/// The plan that names checks of these, and where: the first one that a delivery answers to.
pub(super) fn rule(
    draft: &Draft<'_>,
    tree: &Composed,
    delivery: &Delivery,
    bounds: &[Option<PlanDoc>],
) -> String {
    let before = delivery.unpassed.iter().flat_map(|older| &older.checks);
    let asked: BTreeSet<&String> = delivery.checks.iter().chain(before).collect();
    let names = |plan: &&PlanDoc| match &plan.check {
        Check::Named(named) => named.iter().any(|name| asked.contains(name)),
        Check::Own | Check::None => false,
    };
    match bounds.iter().flatten().find(names) {
        Some(plan) => {
            let Check::Named(named) = &plan.check else {
                return String::new();
            };
            let says = format!(
                "check = [{}]",
                named
                    .iter()
                    .map(|n| format!("{n:?}"))
                    .collect::<Vec<_>>()
                    .join(", ")
            );
            place(draft, tree, Some(plan), ("check", &says))
        }
        None => "a plan of what it took the place of names checks, DL-15".to_owned(),
    }
}

/// What a delivery leaves to whatever takes its place: its gate, with the checks that have not passed. `unasked`: nobody
/// judged it before.
pub(super) fn unpassed(draft: &Draft<'_>, older: &Delivery, unasked: bool) -> Vec<Unpassed> {
    let passed = matches!(ask_of(draft, &older.commit, &older.checks), Asked::Passed);
    // What changes nothing is asked of nobody, nor what is on no branch any more.
    let own = (!older.legs.is_empty() && older.stays()).then(|| Unpassed {
        commit: older.commit.clone(),
        name: older.name.clone(),
        scopes: older.legs.iter().map(|leg| leg.scope.clone()).collect(),
        checks: if passed { Vec::new() } else { older.checks.clone() },
        unasked,
    });
    older.unpassed.iter().cloned().chain(own).collect()
}

/// What follows of what the forge says: of the commit, and of those whose place it took, where it changes what they change.
pub(super) fn ask(draft: &Draft<'_>, delivery: &Delivery) -> Asked {
    let mut waits = None;
    let of_legs = |older: &&Unpassed| delivery.legs.iter().any(|leg| older.scopes.contains(&leg.scope));
    let before = delivery.unpassed.iter().filter(of_legs);
    let before = before.map(|older| {
        let words = |reason| format!("{}, whose place it took: {reason}", older.name);
        match ask_of(draft, &older.commit, &older.checks) {
            Asked::Passed => Asked::Passed,
            Asked::Holds(Code::MergedUnchecked, _) if older.unasked => Asked::Passed,
            Asked::Waits(reason) => Asked::Waits(words(reason)),
            Asked::Holds(code, reason) => Asked::Holds(code, words(reason)),
        }
    });
    for asked in [ask_of(draft, &delivery.commit, &delivery.checks)]
        .into_iter()
        .chain(before)
    {
        match asked {
            Asked::Passed => {}
            Asked::Waits(reason) => waits = waits.or(Some(reason)),
            Asked::Holds(..) => return asked,
        }
    }
    waits.map_or(Asked::Passed, Asked::Waits)
}

fn ask_of(draft: &Draft<'_>, commit: &CommitId, names: &[String]) -> Asked {
    if names.is_empty() {
        return Asked::Passed;
    }
    let all = names.join(", ");
    if !draft.known.settings.asks_forge {
        let reason = format!("merged without a passing check: its plan names {all} and nobody reports it");
        return Asked::Holds(Code::MergedUnchecked, reason);
    }
    let Some(said) = draft.known.snapshot.checks.get(commit) else {
        return Asked::Waits(format!("the forge has not said yet what became of {all}"));
    };
    let with = |wanted: Verdict| -> Vec<&str> {
        let of = |name: &&String| {
            said.iter()
                .any(|check| check.name == **name && check.verdict == wanted)
        };
        names.iter().filter(of).map(String::as_str).collect()
    };
    let (passed, failed, running) = (
        with(Verdict::Passed),
        with(Verdict::Failed),
        with(Verdict::Running),
    );
    if !failed.is_empty() {
        return Asked::Holds(
            Code::CheckFailed,
            format!("the forge says that {} failed", failed.join(", ")),
        );
    }
    if passed.len() == names.len() {
        return Asked::Passed;
    }
    let silent = |name: &&String| !passed.contains(&name.as_str()) && !running.contains(&name.as_str());
    let silent: Vec<&str> = names.iter().filter(silent).map(String::as_str).collect();
    if silent.is_empty() {
        return Asked::Waits(format!("{} still runs", running.join(", ")));
    }
    Asked::Holds(
        Code::MergedUnchecked,
        format!(
            "merged without a passing check: its plan names {all}, and at the merge {} had not passed and did not run",
            silent.join(", ")
        ),
    )
}

/// Whether all that [`ask`] asks for has passed.
pub(in crate::pure::decide) fn have_passed(draft: &Draft<'_>, delivery: &Delivery) -> bool {
    matches!(ask(draft, delivery), Asked::Passed)
}
