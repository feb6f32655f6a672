//! Rules of deploy plans and of the windows in fleet.toml.

use std::collections::BTreeSet;

use meshplan_schemas::document::plan::{Amount, Canary, Covers, PlanFile, StageFile, Trouble};
use meshplan_schemas::document::read::At;
use meshplan_schemas::finding::{Finding, Source};
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::NodeName;

use super::Subject;

/// The plans that could be read, with their text.
fn plans<'a>(subject: &Subject<'a>) -> impl Iterator<Item = (&'a Source, &'a PlanFile)> {
    subject
        .documents
        .plans
        .values()
        .filter_map(|plan| Some((&plan.source, plan.read.as_ref()?)))
}

/// The stages of all plans.
fn stages<'a>(subject: &Subject<'a>) -> impl Iterator<Item = (&'a Source, &'a StageFile)> {
    plans(subject).flat_map(|(source, plan)| plan.stages.iter().map(move |at| (source, &at.value)))
}

/// The place in a plan that says what it covers.
fn covers_everything(plan: &PlanFile) -> Option<&At<Covers>> {
    plan.covers
        .iter()
        .find(|covers| covers.value == Covers::Everything)
}

pub(super) fn no_canary(subject: &Subject<'_>) -> Vec<Finding> {
    // One machine is its own canary (DL-6).
    if subject.validated.nodes().len() < 2 {
        return Vec::new();
    }
    let of = |(source, plan): (&Source, &PlanFile)| {
        let covers = covers_everything(plan)?;
        let at_once = plan
            .stages
            .first()
            .is_none_or(|stage| stage.value.rest && stage.value.batch.is_none());
        let why = match plan.canary {
            Canary::None => {
                "`canary = \"none\"` walks every machine at once: a bad change reaches all of them"
            }
            _ if at_once => "this plan has one stage for every machine: a bad change reaches all of them",
            _ => return None,
        };
        let help = "put a stage with `count = 1` before it, so that one machine goes first";
        Some(source.error(covers.span.clone(), why).help(help))
    };
    plans(subject).filter_map(of).collect()
}

pub(super) fn never_rolls_back(subject: &Subject<'_>) -> Vec<Finding> {
    let leaves = |stage: &At<StageFile>| {
        stage
            .value
            .failed
            .as_ref()
            .is_some_and(|failed| failed.value == Trouble::Leave)
    };
    plans(subject)
        .filter(|(_, plan)| !plan.stages.is_empty() && plan.stages.iter().all(leaves))
        .filter_map(|(source, plan)| {
            let failed = plan.stages.first()?.value.failed.as_ref()?;
            let why = "every stage has `failed = \"leave\"`: a change that breaks machines stays on them";
            let help =
                "`failed = \"roll-back\"` in the first stage takes it back while it is on few machines";
            Some(source.error(failed.span.clone(), why).help(help))
        })
        .collect()
}

pub(super) fn tolerates_all(subject: &Subject<'_>) -> Vec<Finding> {
    stages(subject)
        .filter(|(_, stage)| match (stage.tolerate, &stage.count) {
            (Amount::Percent(share), _) => share >= 100,
            (Amount::Number(tolerated), Some(count)) => tolerated >= count.value.0,
            (Amount::Number(_), None) => false,
        })
        .map(|(source, stage)| {
            let why = format!(
                "the stage `{}` tolerates as many failures as it has machines: it always passes",
                stage.name.value
            );
            let help = "lower `tolerate`, or say `wait = \"sent\"` where nobody is to be waited for";
            source.error(stage.name.span.clone(), why).help(help)
        })
        .collect()
}

pub(super) fn no_spare_look(subject: &Subject<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, document) in &subject.documents.plans {
        let resolved = subject.validated.plans().get(name);
        let (Some(file), Some(resolved)) = (&document.read, resolved) else {
            continue;
        };
        for (written, stage) in file.stages.iter().zip(&resolved.stages) {
            let (Some(at), Some(healthy)) = (&written.value.healthy, stage.healthy) else {
                continue;
            };
            let looks = u64::from(healthy.times) * u64::from(healthy.every_secs);
            if healthy.times > 0 && looks > u64::from(healthy.within_secs) {
                let why = format!(
                    "{} looks {} seconds apart leave no room in {} seconds: one unhealthy look fails a machine",
                    healthy.times, healthy.every_secs, healthy.within_secs
                );
                let help =
                    format!("raise `within_secs` above {looks}, and above the time that applying takes");
                found.push(document.source.error(at.span.clone(), why).help(help));
            }
        }
    }
    found
}

pub(super) fn canary_not_enrolled(subject: &Subject<'_>) -> Vec<Finding> {
    let invited: BTreeSet<&NodeName> = (subject.validated.nodes().iter())
        .filter(|record| record.file.transport_key.is_none())
        .map(|record| &record.name)
        .collect();
    // Before the first machine has enrolled there is nobody to say this to.
    if invited.len() == subject.validated.nodes().len() {
        return Vec::new();
    }
    stages(subject)
        .flat_map(|(source, stage)| stage.nodes.iter().map(move |node| (source, node)))
        .filter(|(_, node)| invited.contains(&node.value))
        .map(|(source, node)| {
            let why = format!(
                "{} is invited and not enrolled: it takes no orders, another goes first",
                node.value
            );
            let help = format!("`meshplan fleet invite {}` makes its invitation", node.value);
            source.error(node.span.clone(), why).help(help)
        })
        .collect()
}

pub(super) fn stage_left_behind(subject: &Subject<'_>) -> Vec<Finding> {
    let left: BTreeSet<&NodeName> = (subject.validated.nodes().iter())
        .filter(|record| record.file.update_class == UpdateClass::LeftBehind)
        .map(|record| &record.name)
        .collect();
    stages(subject)
        .flat_map(|(source, stage)| stage.nodes.iter().map(move |node| (source, node)))
        .filter(|(_, node)| left.contains(&node.value))
        .map(|(source, node)| {
            let why = format!(
                "{} is left behind: no stage takes it, another goes first",
                node.value
            );
            let help = format!(
                "name another machine, or let {} be `required` or `best_effort`",
                node.value
            );
            source.error(node.span.clone(), why).help(help)
        })
        .collect()
}

pub(super) fn confirm_before_heartbeat(subject: &Subject<'_>) -> Vec<Finding> {
    let fleet = subject.validated.fleet();
    let (confirm, heartbeat) = (fleet.config_mgmt.confirm_secs, fleet.heartbeat_secs);
    let Some(document) = subject.documents.fleet.as_ref().filter(|_| confirm < heartbeat) else {
        return Vec::new();
    };
    let why = format!(
        "a node has {confirm} seconds to confirm and is heard from every {heartbeat}: one lost message reverts it"
    );
    let help = format!("raise `confirm_secs` to {heartbeat} or more, or lower `heartbeat_secs`");
    let source = &document.source;
    let line = source
        .text()
        .lines()
        .position(|line| line.trim_start().starts_with("confirm_secs"));
    let finding = match line {
        Some(line) => source.error_at_line(line + 1, why),
        None => Finding::of_file(source.file(), why),
    };
    vec![finding.help(help)]
}
