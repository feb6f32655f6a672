//! Which plan a delivery walks, and the walk at its beginning: stages with their defaults filled in (DL-3, DL-6).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::LeftOut;
use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::document::plan::{Amount, Canary, Covers, Legs, Select, StageDoc, Trouble, Wait};
use meshplan_schemas::ident::NodeId;
use meshplan_schemas::maintenance::Window;

use crate::pure::compose::Composed;
use crate::pure::delivery::{Delivery, Inherited, Leg, OnTrouble, Reached, StageRun, Step, Walk};
use crate::pure::scope::Scope;

/// The plan that covers the legs: the one that names a scope of it, else the default plan. What is walked decides, where there
/// is any: policy and modules. `by` is the component whose commit it is, none for one of the fleet repo.
///
/// Legs under several plans share the default one, so that they share their fate (DL-3, `legs = "together"`).
pub(in crate::pure::decide) fn plan_for<'a>(
    tree: &'a Composed,
    by: Option<&str>,
    legs: &[Leg],
) -> Option<&'a PlanDoc> {
    let is_walked = |leg: &&Leg| matches!(leg.scope, Scope::Policy | Scope::Module(_));
    let mut named: Vec<Option<&PlanDoc>> = legs
        .iter()
        .filter(is_walked)
        .map(|leg| own_plan(tree, by, &leg.scope))
        .collect();
    if named.is_empty() {
        named.extend(legs.iter().map(|leg| own_plan(tree, by, &leg.scope)));
    }
    let default = tree
        .plans
        .values()
        .find(|plan| plan.covers.contains(&Covers::Everything));
    match named.first() {
        Some(first) if named.iter().all(|p| p == first) => first.or(default),
        _ => default,
    }
}

/// The plan that names a scope. A module that a component feeds has two that may: a commit of the component goes by the
/// component's first, any other by the module's first.
fn own_plan<'a>(tree: &'a Composed, by: Option<&str>, scope: &Scope) -> Option<&'a PlanDoc> {
    let covering = |wanted: Covers| tree.plans.values().find(|plan| plan.covers.contains(&wanted));
    let module = match scope {
        Scope::Policy => return covering(Covers::Policy),
        Scope::List => return covering(Covers::List),
        Scope::Gate => return covering(Covers::Gate),
        Scope::Module(module) => module,
    };
    let feeds = tree.fleet.components.iter().find(|of| of.module == *module);
    let components = feeds.and_then(|of| covering(Covers::Component(of.repo.clone())));
    let modules = covering(Covers::Module(module.clone()));
    if feeds.is_some_and(|of| Some(of.repo.as_str()) == by) {
        components.or(modules)
    } else {
        modules.or(components)
    }
}

/// The walk at its beginning: the plan's stages, with defaults filled in. No stage opens outside of `windows`.
pub(in crate::pure::decide) fn new_walk(
    tree: &Composed,
    plan: Option<&PlanDoc>,
    windows: Vec<Window>,
    excused: BTreeSet<NodeId>,
    inherited: Option<&Inherited>,
) -> Walk {
    let fleet = &tree.fleet;
    let mut stages = plan.map_or_else(built_in_stages, |plan| plan.stages.clone());
    let canary = plan.map_or(Canary::Replaced, |plan| plan.canary);
    // No first stages where the plan says so, and none in a fleet of one machine (RO-1, DL-6).
    if canary == Canary::None || tree.nodes.len() == 1 {
        stages.drain(..stages.len().saturating_sub(1));
    }
    let release_watch = fleet.config_mgmt.watch_secs();
    let stages = stages
        .into_iter()
        .enumerate()
        .map(|(i, stage)| {
            let within = if i == 0 {
                fleet.config_mgmt.canary_deadline_secs
            } else {
                release_watch
            };
            let (times, every_secs, within_secs) = match (stage.wait, stage.healthy) {
                (Wait::Sent, _) => (0, 1, within),
                (Wait::Passed, Some(h)) => (h.times.max(1), h.every_secs.max(1), h.within_secs),
                (Wait::Passed, None) => (1, (within / 10).clamp(1, 50), within),
            };
            StageRun {
                name: stage.name,
                line: stage.line,
                named_only: canary == Canary::NamedOnly,
                select: stage.select,
                batch: stage.batch,
                times,
                every_secs,
                within_secs,
                failed: trouble(stage.failed),
                silent: trouble(stage.silent),
                tolerate: stage.tolerate,
                budget: stage.budget,
                spread_links: stage.spread_links,
                over_budget: false,
                waits: None,
                shut: None,
                group: None,
                machines: BTreeMap::new().into(),
                ordered_at: None,
            }
        })
        .collect();
    Walk {
        plan: plan.map(|p| p.name.clone()),
        stages,
        current: 0,
        step: Step::Open,
        sequence: 0,
        epoch: 0,
        first_epoch: inherited.map_or(0, |i| i.first_epoch),
        revision: 0,
        reached: inherited.map(|i| anew(&i.reached)).unwrap_or_default().into(),
        released: false,
        windows_at: match (windows.is_empty(), plan) {
            (true, _) => String::new(),
            (false, None) => "[window] as it was before".to_owned(),
            (false, Some(plan)) => match plan.places.line("window") {
                Some(line) => format!("plans/{}.toml:{line}, [window]", plan.name),
                None => format!("plans/{}.toml, [window] as it was before", plan.name),
            },
        },
        windows,
        excused,
        classes: BTreeMap::new().into(),
        lines: Vec::new(),
        apart: plan.is_some_and(|plan| plan.legs == Legs::Apart),
        reverts: plan.is_some_and(|plan| plan.revert_pr),
        taken: Vec::new(),
        abort_cause: None,
        spent: BTreeMap::new(),
        stays: BTreeMap::new(),
        outstanding: Vec::new(),
    }
}

/// What another walk left on machines, none of it taken back yet.
fn anew(reached: &BTreeMap<NodeId, Reached>) -> BTreeMap<NodeId, Reached> {
    let anew = |of: &Reached| Reached {
        name: of.name.clone(),
        return_sequence: 0,
        return_epoch: 0,
        returned: false,
    };
    reached.iter().map(|(id, of)| (*id, anew(of))).collect()
}

/// What a stage leaves out is roll-back; which machines it speaks of, [`super::super::classes`] says (DL-19).
fn trouble(written: Option<Trouble>) -> OnTrouble {
    match written {
        Some(Trouble::Hold) => OnTrouble::Hold,
        Some(Trouble::Leave) => OnTrouble::Leave,
        Some(Trouble::RollBack) | None => OnTrouble::RollBack,
    }
}

/// One machine, then the rest: what a fleet without a plan walks.
pub(super) fn built_in_stages() -> Vec<StageDoc> {
    let stage = |name: &str, count, rest| StageDoc {
        name: name.to_owned(),
        line: 0,
        select: Select {
            nodes: Vec::new(),
            roles: Vec::new(),
            count,
            rest,
        },
        healthy: None,
        failed: None,
        silent: None,
        tolerate: Amount::Number(0),
        batch: None,
        wait: Wait::Passed,
        budget: Vec::new(),
        spread_links: false,
    };
    vec![
        stage("canary", Some(Amount::Number(1)), false),
        stage("rest", None, true),
    ]
}

/// What was decided at the gate, with the digests that it was decided on (DL-9).
pub(super) fn gate_facts(
    tree: &Composed,
    delivery: &Delivery,
    plan: Option<&PlanDoc>,
) -> Vec<(String, String)> {
    let by = plan.map_or("built-in", |p| p.name.as_str());
    let mut facts = vec![("Gate".to_owned(), format!("{by} {}", tree.gate_digest))];
    facts.extend(delivery.legs.iter().map(|leg| {
        let machines = match leg.nodes.len() {
            0 => String::new(),
            n => format!(" on {n}"),
        };
        let from = leg.from.as_ref();
        let from = from.map_or_else(String::new, |c| format!(" as accepted in {}", c.short()));
        (
            "Leg".to_owned(),
            format!("{} {}{machines}{from}", leg.scope, leg.digest),
        )
    }));
    let skipped = delivery.skipped.iter();
    facts.extend(skipped.map(|(s, why)| ("Skipped".to_owned(), format!("{s} ({why})"))));
    for (node, left_out) in &delivery.left_out {
        let Some(node) = tree.nodes.get(node) else {
            continue;
        };
        let said = |l: &LeftOut| format!("{} on {}: {}", l.module, node.name, l.reason);
        facts.extend(left_out.iter().map(|l| ("Left-Out".to_owned(), said(l))));
    }
    facts
}
