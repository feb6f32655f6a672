//! Deploy plans: stages that can be walked, machines and modules that exist, defaults resolved (DL-5, DL-6, DL-19).

use std::collections::BTreeMap;

use meshplan_schemas::document::plan::{
    Amount, Budget, Covers, Healthy, MaxRemovals, Places, PlanDoc, PlanFile, Select, StageDoc, StageFile,
    Trouble, Wait,
};
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::scalar::Int;
use meshplan_schemas::document::{FleetDoc, NodeFile};
use meshplan_schemas::finding::{Finding, Source, did_you_mean};
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::PlanName;
use meshplan_schemas::maintenance::Window;

use super::{Names, plan_keys};
use crate::pure::parse::{Documents, NodeDocument};

pub(super) fn check(
    documents: &Documents,
    names: &Names,
    fleet: Option<&FleetDoc>,
    findings: &mut Vec<Finding>,
) -> BTreeMap<PlanName, PlanDoc> {
    let required: Vec<(&NodeDocument, &NodeFile)> = (documents.nodes.iter())
        .filter(|node| !node.in_revoked)
        .filter_map(|node| Some((&**node, &**node.document.read.as_ref()?)))
        .filter(|(_, file)| file.update_class == UpdateClass::Required && !file.revoked)
        .collect();
    let mut covered: BTreeMap<String, &Source> = BTreeMap::new();
    let mut plans = BTreeMap::new();
    for (name, document) in &documents.plans {
        let Some(file) = &document.read else {
            continue;
        };
        let source = &document.source;
        check_covers((documents, names), source, file, &mut covered, findings);
        plan_keys::check(documents, source, file, findings);
        check_stages(source, file, names, findings);
        if file
            .covers
            .iter()
            .any(|c| matches!(c.value, Covers::Policy | Covers::Everything))
        {
            check_policy_stages(source, file, &required, findings);
        }
        if let Some(fleet) = fleet {
            plans.insert(name.clone(), resolved(name, source, file, fleet));
        }
    }
    plans
}

fn check_covers<'d>(
    (documents, names): (&Documents, &Names),
    source: &'d Source,
    file: &PlanFile,
    covered: &mut BTreeMap<String, &'d Source>,
    findings: &mut Vec<Finding>,
) {
    if file.covers.is_empty() {
        findings.push(
            Finding::of_file(
                source.file(),
                "this plan covers nothing: `covers` is missing or empty",
            )
            .help("`covers = [\"*\"]` is the default plan"),
        );
    }
    for covers in &file.covers {
        match &covers.value {
            Covers::Module(module) => findings.extend(names.module(source, module, &covers.span)),
            Covers::Component(repo) => {
                let known = || {
                    documents
                        .fleet
                        .iter()
                        .filter_map(|d| d.read.as_ref())
                        .flat_map(|f| &f.components)
                };
                if documents.fleet.is_some() && !known().any(|c| c.value.repo.value.0 == *repo) {
                    let repos = known().map(|c| c.value.repo.value.0.as_str());
                    let message = format!("fleet.toml has no component `{repo}`");
                    findings.push(
                        source
                            .error(covers.span.clone(), message)
                            .maybe_help(did_you_mean(repo, repos)),
                    );
                }
            }
            Covers::Policy | Covers::List | Covers::Gate | Covers::Everything => {}
        }
        if let Some(other) = covered.insert(format!("{:?}", covers.value), source) {
            let message = format!("this is covered by {} already", other.file());
            findings.push(
                source
                    .error(covers.span.clone(), message)
                    .help("one plan a scope"),
            );
        }
    }
}

fn check_stages(source: &Source, file: &PlanFile, names: &Names, findings: &mut Vec<Finding>) {
    if file.stages.is_empty() {
        findings.push(Finding::of_file(source.file(), "this plan has no `[[stage]]`"));
    }
    if let Some(At { value: last, .. }) = file.stages.last().filter(|s| !s.value.rest) {
        let message = "the last stage has no `rest = true`: machines that no stage names would get the change unwatched";
        findings.push(
            source
                .error(last.name.span.clone(), message)
                .help("add a last `[[stage]]` with `rest = true`"),
        );
    }
    for At { value: stage, .. } in file.stages.iter().filter(|s| !s.value.rest) {
        if let Some(batch) = &stage.batch {
            let message = "`batch` is for the stage with `rest = true`";
            findings.push(source.error(batch.span.clone(), message));
        }
    }
    let window = file.window.as_ref().filter(|at| at.value.from != at.value.to);
    let open_secs = window.and_then(|at| Window::from(&at.value).secs());
    let mut seen: Vec<&PlanName> = Vec::new();
    let mut rest = false;
    for At { value: stage, .. } in &file.stages {
        let at = &stage.name.span;
        if seen.contains(&&stage.name.value) {
            findings.push(source.error(at.clone(), format!("there are two stages `{}`", stage.name.value)));
        }
        seen.push(&stage.name.value);
        if rest {
            findings.push(source.error(
                at.clone(),
                "no machine is left for a stage after one with `rest = true`",
            ));
        }
        rest |= stage.rest;
        check_select(source, stage, names, findings);
        if let Some(Healthy {
            times,
            every_secs,
            within_secs,
        }) = stage.healthy.as_ref().and_then(|h| {
            Some(Healthy {
                times: h.value.times.0,
                every_secs: h.value.every_secs.0,
                within_secs: h.value.within_secs?.0,
            })
        }) && u64::from(within_secs) <= u64::from(times - 1) * u64::from(every_secs)
        {
            let message = format!(
                "nothing can pass: {times} looks, {every_secs} seconds apart, do not fit into {within_secs} seconds"
            );
            findings.push(source.error(at.clone(), message).help("raise `within_secs`"));
        }
        let within = stage.healthy.as_ref().and_then(|h| Some(h.value.within_secs?.0));
        if let (Some(open), Some(within)) = (open_secs, within)
            && within > open
        {
            let message = format!(
                "this stage can never open: it needs {within} s of the plan's window, which is open for {open} s"
            );
            findings.push(
                source
                    .error(at.clone(), message)
                    .help("lower `within_secs`, or widen the window"),
            );
        }
        for amount in [&stage.batch, &stage.share].into_iter().flatten() {
            if matches!(amount.value, Amount::Number(0) | Amount::Percent(0)) {
                findings.push(source.error(amount.span.clone(), "this would select nobody"));
            }
        }
    }
}

fn check_select(source: &Source, stage: &StageFile, names: &Names, findings: &mut Vec<Finding>) {
    findings.extend(
        stage
            .nodes
            .iter()
            .filter_map(|n| names.node(source, &n.value, &n.span)),
    );
    findings.extend(
        stage
            .roles
            .iter()
            .filter_map(|r| names.role(source, &r.value, &r.span)),
    );
    let at = &stage.name.span;
    let name = &stage.name.value;
    let chosen =
        !stage.nodes.is_empty() || !stage.roles.is_empty() || stage.count.is_some() || stage.share.is_some();
    if stage.rest && chosen {
        findings.push(source.error(
            at.clone(),
            format!("the stage `{name}` has `rest` and a choice beside it"),
        ));
    }
    if !stage.rest && !chosen {
        let help = "give it `nodes`, `roles`, `count`, `share`, or `rest = true`";
        findings.push(
            source
                .error(at.clone(), format!("the stage `{name}` selects nobody"))
                .help(help),
        );
    }
    if let (Some(_), Some(share)) = (&stage.count, &stage.share) {
        findings.push(source.error(
            share.span.clone(),
            "a stage has `count` or `share`, this one has both",
        ));
    }
    if let Some(At {
        value: Amount::Number(_),
        span,
    }) = &stage.share
    {
        let message = "`share` is a share, as \"5%\"; a number is `count`";
        findings.push(source.error(span.clone(), message));
    }
}

/// Policy is never left behind on a machine that gates (DL-19).
fn check_policy_stages(
    source: &Source,
    file: &PlanFile,
    required: &[(&NodeDocument, &NodeFile)],
    findings: &mut Vec<Finding>,
) {
    for At { value: stage, .. } in &file.stages {
        let leaves = [&stage.failed, &stage.silent].into_iter().flatten();
        let mut bad: Vec<(&std::ops::Range<usize>, &str)> = leaves
            .filter(|t| t.value == Trouble::Leave)
            .map(|t| (&t.span, "leave"))
            .collect();
        if stage.wait.value == Wait::Sent {
            bad.push((&stage.wait.span, "sent"));
        }
        if bad.is_empty() {
            continue;
        }
        let by_choice = stage.nodes.is_empty() && stage.roles.is_empty();
        let selected = required.iter().find(|(node, file)| {
            by_choice
                || stage.nodes.iter().any(|n| n.value == node.name)
                || stage
                    .roles
                    .iter()
                    .any(|r| file.roles.iter().any(|of| of.value == r.value))
        });
        if let Some((node, _)) = selected {
            for (span, word) in bad {
                let message = format!(
                    "\"{word}\" in a plan that covers policy: the stage `{}` can select {}, which is required",
                    stage.name.value, node.name
                );
                let help = "policy is awaited on every required machine";
                findings.push(source.error(span.clone(), message).help(help));
            }
        }
    }
}

/// The plan with what `[config_mgmt]` fills in.
fn resolved(name: &PlanName, source: &Source, file: &PlanFile, fleet: &FleetDoc) -> PlanDoc {
    let later = fleet.config_mgmt.watch_secs();
    let stage = |(at, At { value: stage, .. }): (usize, &At<StageFile>)| StageDoc {
        name: stage.name.value.to_string(),
        line: source.error(stage.name.span.clone(), "").line,
        select: Select {
            nodes: stage.nodes.iter().map(|n| n.value.clone()).collect(),
            roles: stage.roles.iter().map(|r| r.value.clone()).collect(),
            count: match (&stage.count, &stage.share) {
                (
                    Some(At {
                        value: Int(count), ..
                    }),
                    _,
                ) => Some(Amount::Number(*count)),
                (None, share) => share.as_ref().map(|s| s.value),
            },
            rest: stage.rest,
        },
        healthy: stage.healthy.as_ref().map(|At { value: looks, .. }| Healthy {
            times: looks.times.0,
            every_secs: looks.every_secs.0,
            within_secs: looks.within_secs.map_or(
                if at == 0 {
                    fleet.config_mgmt.canary_deadline_secs
                } else {
                    later
                },
                |within| within.0,
            ),
        }),
        failed: stage.failed.as_ref().map(|t| t.value),
        silent: stage.silent.as_ref().map(|t| t.value),
        tolerate: stage.tolerate,
        batch: stage.batch.as_ref().map(|b| b.value),
        wait: stage.wait.value,
        budget: (stage.budget.iter())
            .map(|At { value: budget, .. }| Budget {
                var: budget.per.value.0.0.clone(),
                max_unavailable: budget.max_unavailable.value,
            })
            .collect(),
        spread_links: stage.spread_links.value,
    };
    PlanDoc {
        name: name.clone(),
        covers: file.covers.iter().map(|c| c.value.clone()).collect(),
        check: file.check.value.clone(),
        approvals: file.approvals.value.0,
        actors: file.actors.iter().map(|actor| actor.value.clone()).collect(),
        absent: file.absent.value,
        legs: file.legs,
        canary: file.canary,
        max_removals: (file.max_removals.as_ref()).map_or_else(MaxRemovals::default, |at| MaxRemovals {
            resources: at.value.resources.0,
            nodes: at.value.nodes.value,
        }),
        revert_pr: file.revert_pr,
        history_rewritten: file.history_rewritten.value,
        confirm_probe: file.confirm_probe.as_ref().map(|at| at.value.clone()),
        window: file.window.as_ref().map(|at| Window::from(&at.value)),
        stages: file.stages.iter().enumerate().map(stage).collect(),
        places: places(source, file),
    }
}

/// The lines of the keys that hold deliveries, of those that are written.
fn places(source: &Source, file: &PlanFile) -> Places {
    let spans = [
        ("check", Some(&file.check.span)),
        ("approvals", Some(&file.approvals.span)),
        ("absent", Some(&file.absent.span)),
        ("history_rewritten", Some(&file.history_rewritten.span)),
        ("max_removals", file.max_removals.as_ref().map(|at| &at.span)),
        ("window", file.window.as_ref().map(|at| &at.span)),
    ];
    // What is left out stands nowhere.
    let written = spans
        .into_iter()
        .filter_map(|(key, span)| Some((key, span.filter(|s| !s.is_empty())?)));
    Places(
        written
            .map(|(key, span)| (key, source.error(span.clone(), "").line))
            .collect(),
    )
}
