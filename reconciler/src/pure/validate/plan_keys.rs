//! Keys of plans about when and how much at once: window, budgets, removals, what proves the way back (DL-17, FR-12).

use meshplan_schemas::document::plan::{Amount, ConfirmBy, PlanFile};
use meshplan_schemas::document::policy::MaintenanceWindow;
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::scalar::TimeOfDay;
use meshplan_schemas::finding::{Finding, Source, did_you_mean};

use crate::pure::parse::Documents;

/// The most teams among the actors of a plan.
const MOST_TEAMS: usize = 8;

pub(super) fn check(documents: &Documents, source: &Source, file: &PlanFile, findings: &mut Vec<Finding>) {
    if let Some(at) = &file.window {
        window(source, at, findings);
    }
    for At { value: stage, .. } in &file.stages {
        let mut seen: Vec<&str> = Vec::new();
        for At { value: budget, .. } in &stage.budget {
            let name = budget.per.value.0.0.as_str();
            if seen.contains(&name) {
                findings.push(source.error(
                    budget.per.span.clone(),
                    format!("there are two budgets by `var:{name}`"),
                ));
            }
            seen.push(name);
            if matches!(
                budget.max_unavailable.value,
                Amount::Number(0) | Amount::Percent(0)
            ) {
                let message = "a budget of nothing: no machine could ever be changed";
                findings.push(source.error(budget.max_unavailable.span.clone(), message));
            }
            known_var(documents, source, &budget.per.span, name, findings);
        }
    }
    confirm(documents, source, file, findings);
    teams(source, file, findings);
}

/// More teams than are asked about.
fn teams(source: &Source, file: &PlanFile, findings: &mut Vec<Finding>) {
    let mut teams = file.actors.iter().filter(|actor| actor.value.team().is_some());
    if let Some(actor) = teams.nth(MOST_TEAMS) {
        let message =
            format!("a plan names at most {MOST_TEAMS} teams: the forge is asked who is in each of them");
        let help = "make one team of those who may say something";
        findings.push(source.error(actor.span.clone(), message).help(help));
    }
}

/// A window that is never open, or is not written as people read it.
pub(super) fn window(source: &Source, at: &At<MaintenanceWindow>, findings: &mut Vec<Finding>) {
    let At { value: window, span } = at;
    if window.from == window.to {
        let message = format!(
            "the window opens and shuts at {}: it would never be open",
            window.from
        );
        findings.push(
            source
                .error(span.clone(), message)
                .help("a whole day is from \"00:00\" to \"24:00\""),
        );
    }
    if window.from == TimeOfDay("24:00".to_owned()) {
        findings.push(source.error(
            span.clone(),
            "a window opens at 00:00 of the next day, not at 24:00",
        ));
    }
}

/// A var that no record and not fleet.toml gives counts nothing together.
fn known_var(
    documents: &Documents,
    source: &Source,
    span: &std::ops::Range<usize>,
    name: &str,
    findings: &mut Vec<Finding>,
) {
    let fleet = documents
        .fleet
        .iter()
        .filter_map(|d| d.read.as_ref())
        .map(|f| &f.vars);
    let nodes = documents
        .nodes
        .iter()
        .filter_map(|node| node.document.read.as_ref())
        .map(|f| &f.vars);
    let known: Vec<&str> = fleet
        .chain(nodes)
        .flat_map(|vars| vars.0.keys())
        .map(String::as_str)
        .collect();
    if !documents.broken && !known.contains(&name) {
        let message = format!("no record has `{name}` under `[vars]`");
        findings.push(
            source
                .error(span.clone(), message)
                .maybe_help(did_you_mean(name, known)),
        );
    }
}

fn confirm(documents: &Documents, source: &Source, file: &PlanFile, findings: &mut Vec<Finding>) {
    let by_probe = file.confirm.value == ConfirmBy::Probe;
    match &file.confirm_probe {
        None if by_probe => {
            let message = "`confirm = \"probe\"` needs `confirm_probe`, a probe as `<module>.<id>`";
            findings.push(source.error(file.confirm.span.clone(), message));
        }
        Some(at) if !by_probe => {
            findings.push(source.error(
                at.span.clone(),
                "`confirm_probe` belongs to `confirm = \"probe\"`",
            ));
        }
        Some(at) => {
            let folder = documents.modules.get(&at.value.module);
            let known = folder.is_some_and(|f| {
                let file = f.document.as_ref().and_then(|d| d.read.as_ref());
                file.is_none_or(|file| file.probes.iter().any(|probe| probe.id.value == at.value.id))
            });
            if !known {
                findings.push(source.error(at.span.clone(), format!("there is no probe `{}`", at.value)));
            }
        }
        None => {}
    }
}
