//! How a merge would be walked: its legs, the plan that covers them, the stages with their numbers (DL-8).
//!
//! The legs are those that [`crate::pure::diff`] finds where everything before is accepted and proven, and the stages
//! those of [`crate::pure::decide::forecast`]: a preview has no rules of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::document::plan::{Absent, Check};
use meshplan_schemas::ident::{CommitId, NodeId, NodeName, PlanName};
use semver::Version;
use serde::Serialize;

use crate::pure::compose::Composed;
use crate::pure::compose::former::Former;
use crate::pure::decide::forecast::{StageForecast, forecast};
use crate::pure::delivery::{Leg, OnTrouble};
use crate::pure::diff::{Beside, Diff, diff, policy_on_nodes};
use crate::pure::scope::Scope;
use crate::pure::snapshot::{Assignment, ContentRef, Snapshot};

/// The walk of a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WalkPreview {
    /// What changes, scope by scope.
    pub legs: Vec<LegPreview>,
    /// The plan that covers them; none: the built-in one.
    pub plan: Option<PlanName>,
    /// What it waits for before it starts, in words.
    pub gate: Vec<String>,
    /// What is worth saying of the stages: that they are those of before, where the change is of how it would be walked.
    pub lines: Vec<String>,
    /// The stages.
    pub stages: Vec<StagePreview>,
    /// Enrolled machines that it reaches.
    pub machines: usize,
    /// The oldest version of a host that takes its epochs, where there is one: a required machine below counts as failed
    /// (RO-4).
    pub min_daemon_version: Option<Version>,
    /// Machines that are left behind it: they follow later, or never where they are pinned (UC-1).
    pub left_behind: Vec<NodeName>,
    /// The shortest that all looks together can take, in seconds.
    pub at_least_secs: u64,
    /// After how long the last stage has passed or has failed, in seconds.
    pub at_most_secs: u64,
}

/// What changes in one scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LegPreview {
    /// The scope, as plans name it.
    pub scope: Scope,
    /// On how many enrolled machines.
    pub machines: usize,
}

/// One stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StagePreview {
    /// Its name.
    pub name: String,
    /// How many machines it takes.
    pub machines: usize,
    /// How many of them are told and not awaited (UC-1).
    pub best_effort: usize,
    /// Which; none where the hash of the merge's commit chooses.
    pub nodes: Option<Vec<NodeName>>,
    /// In how many waves.
    pub waves: usize,
    /// Healthy looks in a row that pass a machine; 0: told only.
    pub times: u32,
    /// Seconds between looks.
    pub every_secs: u32,
    /// Seconds within which a machine must pass.
    pub within_secs: u32,
    /// What a failed machine does.
    pub failed: OnTrouble,
    /// What a silent machine does.
    pub silent: OnTrouble,
    /// How many of a wave may fail.
    pub tolerate: usize,
    /// What is worth saying of the choice.
    pub line: Option<String>,
}

pub(super) fn walk(
    before: Option<&Composed>,
    after: &Composed,
) -> Result<Option<WalkPreview>, serde_json::Error> {
    let snapshot = before.map(as_accepted).transpose()?.unwrap_or_default();
    let beside = Beside {
        snapshot: &snapshot,
        previous: before,
        accepted_text: before.map(|tree| tree.policy.as_str()),
        formers: &Former::new(),
        again: false,
    };
    let Diff {
        legs, left_behind, ..
    } = diff(after, &beside)?;
    if legs.is_empty() {
        return Ok(None);
    }
    let forecast = forecast(before, after, &legs);
    let stages: Vec<StagePreview> = forecast
        .stages
        .into_iter()
        .map(|stage| of(after, stage))
        .collect();
    let waves = |stage: &StagePreview| u64::try_from(stage.waves).unwrap_or(u64::MAX);
    let looks = |stage: &StagePreview| u64::from(stage.times.saturating_sub(1)) * u64::from(stage.every_secs);
    Ok(Some(WalkPreview {
        machines: stages.iter().map(|stage| stage.machines).sum(),
        min_daemon_version: (legs.iter())
            .find(|leg| leg.scope == Scope::Policy && leg.before != Some(leg.digest))
            .and_then(|_| after.fleet.config_mgmt.min_daemon_version.clone()),
        left_behind: names(after, &left_behind),
        at_least_secs: stages.iter().map(|s| waves(s).saturating_mul(looks(s))).sum(),
        at_most_secs: stages
            .iter()
            .map(|s| waves(s).saturating_mul(u64::from(s.within_secs)))
            .sum(),
        legs: (legs.iter())
            .map(|leg| LegPreview {
                scope: leg.scope.clone(),
                machines: leg.nodes.len(),
            })
            .collect(),
        plan: forecast.plan.map(|plan| plan.name.clone()),
        gate: (gate(forecast.plan, forecast.former).into_iter())
            .chain(own_windows(after, &legs))
            .collect(),
        lines: forecast.lines,
        stages,
    }))
}

/// A world in which this tree is what everybody runs and has proven.
fn as_accepted(tree: &Composed) -> Result<Snapshot, serde_json::Error> {
    let content = |digest| ContentRef {
        digest,
        commit: CommitId::null(),
    };
    let proven = |digest| Assignment {
        assigned: Some(content(digest)),
        proven: Some(content(digest)),
        held_back: None,
    };
    let mut assignments = BTreeMap::new();
    for (id, (digest, _)) in policy_on_nodes(tree, &tree.policy)? {
        assignments.insert((id, Scope::Policy), proven(digest));
    }
    for node in tree.nodes.values() {
        for (module, (digest, _)) in &node.modules {
            assignments.insert((node.id, Scope::Module(module.clone())), proven(*digest));
        }
    }
    // What is invited runs nothing yet.
    assignments.retain(|(id, _), _| tree.nodes.get(id).is_some_and(|node| node.enrolled));
    Ok(Snapshot {
        accepted: BTreeMap::from([
            (Scope::List, content(tree.list_digest)),
            (Scope::Policy, content(tree.policy_digest)),
            (Scope::Gate, content(tree.gate_digest)),
        ]),
        assignments: Arc::new(assignments),
        ..Snapshot::default()
    })
}

fn names(tree: &Composed, ids: &BTreeSet<NodeId>) -> Vec<NodeName> {
    let mut names: Vec<NodeName> = ids
        .iter()
        .filter_map(|id| Some(tree.nodes.get(id)?.name.clone()))
        .collect();
    names.sort();
    names
}

fn of(tree: &Composed, stage: StageForecast) -> StagePreview {
    StagePreview {
        name: stage.run.name,
        machines: stage.machines,
        best_effort: stage.best_effort,
        nodes: stage.named.map(|ids| names(tree, &ids)),
        waves: stage.waves,
        times: stage.run.times,
        every_secs: stage.run.every_secs,
        within_secs: stage.run.within_secs,
        failed: stage.run.failed,
        silent: stage.run.silent,
        tolerate: stage.tolerate,
        line: stage.line,
    }
}

/// What it waits for before it starts: the stricter of the plans before and after (DL-15).
fn gate(plan: Option<&PlanDoc>, former: Option<&PlanDoc>) -> Vec<String> {
    let Some(plan) = plan else { return Vec::new() };
    let both: Vec<&PlanDoc> = former.into_iter().chain([plan]).collect();
    let mut gate = Vec::new();
    if both.iter().any(|plan| plan.check == Check::Own) {
        gate.push("the check of the merged tree".to_owned());
    }
    let mut named: Vec<&str> = Vec::new();
    for plan in &both {
        let Check::Named(names) = &plan.check else {
            continue;
        };
        let new = names
            .iter()
            .map(String::as_str)
            .filter(|name| !named.contains(name));
        let new: Vec<&str> = new.collect();
        named.extend(new);
    }
    if !named.is_empty() {
        gate.push(format!("the statuses {}", named.join(", ")));
    }
    match both.iter().map(|plan| plan.approvals).max() {
        None | Some(0) => {}
        Some(1) => gate.push("1 approval".to_owned()),
        Some(count) => gate.push(format!("{count} approvals")),
    }
    match plan.absent {
        Absent::Hold => gate.push("every required machine, held while one is absent".to_owned()),
        Absent::Skip => gate.push("the machines that are there, absent ones follow".to_owned()),
        Absent::Wait => gate.push("nobody: absent machines abort it at the deadline".to_owned()),
    }
    let windows: BTreeSet<String> = (both.iter().filter_map(|plan| plan.window.as_ref()))
        .map(|window| format!("its window, {window}, for each stage"))
        .collect();
    gate.extend(windows);
    gate
}

/// The maintenance windows that the machines of these legs have of their own (DL-17).
fn own_windows(after: &Composed, legs: &[Leg]) -> Option<String> {
    let machines: BTreeSet<NodeId> = legs.iter().flat_map(|leg| leg.nodes.keys().copied()).collect();
    let bound = machines.iter().filter(|id| {
        let node = after.nodes.get(id);
        node.is_some_and(|node| !after.windows.of_node(&node.roles).is_empty())
    });
    match bound.count() {
        0 => None,
        1 => Some("1 machine's own maintenance window, outside of which it counts as absent".to_owned()),
        n => Some(format!(
            "the own maintenance windows of {n} machines, outside of which they count as absent"
        )),
    }
}
