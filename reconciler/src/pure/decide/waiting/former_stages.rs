//! A commit cannot take away the stages that would meet it (DL-15): it walks those of the plan as it was before, without
//! machines that are gone.
//!
//! Invariant: what a stage names never grows by what is dropped of it. One whose machines are all gone is the commit's own,
//! and waits for a person's word.

use std::collections::BTreeSet;

use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::document::plan::{Canary, StageDoc};
use meshplan_schemas::ident::NodeName;
use meshplan_schemas::lifecycle::delivery::Code;

use super::holds::{Hold, of_before};
use super::plan::{built_in_stages, plan_for};
use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::{Delivery, Leg};
use crate::pure::scope::Scope;

/// What is walked, and whose stages these are.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::pure::decide) struct Walked {
    /// The plan with the stages that are walked; none: the built-in one.
    pub(in crate::pure::decide) plan: Option<PlanDoc>,
    /// The former plan whose stages these are, as people call it; none where they are the commit's own.
    former: Option<String>,
    /// The file of that plan; none of the built-in one.
    file: Option<String>,
    /// Stages of it whose machines are all gone.
    emptied: Vec<String>,
}

impl Walked {
    /// What is worth saying of the stages.
    pub(in crate::pure::decide) fn lines(&self) -> Vec<String> {
        let former = self.former.as_ref().map(|former| {
            format!("this changes how it would be walked: the stages are those of {former} as it was before")
        });
        let emptied = self
            .emptied
            .iter()
            .map(|stage| format!("of the machines that its stage {stage} names none is left"));
        former.into_iter().chain(emptied).collect()
    }
}

/// What a delivery of these legs walks that makes `tree` of `before`.
pub(in crate::pure::decide) fn walked(
    before: Option<&Composed>,
    tree: &Composed,
    component: Option<&str>,
    legs: &[Leg],
) -> Walked {
    let own = plan_for(tree, component, legs);
    let as_written = Walked {
        plan: own.cloned(),
        former: None,
        file: None,
        emptied: Vec::new(),
    };
    // What reaches no machine walks no stage. The gate's digest covers the plans.
    let reaches = legs.iter().any(|leg| !leg.nodes.is_empty());
    let Some(before) = before.filter(|before| reaches && before.gate_digest != tree.gate_digest) else {
        return as_written;
    };
    let former = plan_for(before, component, legs);
    let Some(whole) = own.or(former).filter(|_| !are_alike(own, former)) else {
        return as_written;
    };
    let names: BTreeSet<&NodeName> = tree.nodes.values().map(|node| &node.name).collect();
    let own_stages = stages(own);
    let mut emptied = Vec::new();
    let mut walked = Vec::new();
    for stage in stages(former) {
        match without_gone(&stage, &names) {
            Some(stage) => walked.push(stage),
            None => {
                walked.extend(own_stages.iter().find(|own| own.name == stage.name).cloned());
                emptied.push(stage.name);
            }
        }
    }
    Walked {
        plan: Some(PlanDoc {
            stages: if walked.is_empty() { own_stages } else { walked },
            canary: canary(former),
            ..whole.clone()
        }),
        former: Some(former.map_or_else(
            || "the built-in plan".to_owned(),
            |former| format!("the plan {}", former.name),
        )),
        file: former.map(|former| format!("plans/{}.toml", former.name)),
        emptied,
    }
}

/// What a delivery walks, beside the tree whose gate was accepted last.
pub(in crate::pure::decide) fn of(draft: &Draft<'_>, delivery: &Delivery, tree: &Composed) -> Walked {
    let accepted = draft.known.snapshot.accepted.get(&Scope::Gate);
    let before = accepted.and_then(|accepted| draft.tree(&accepted.commit));
    walked(before.as_deref(), tree, delivery.component(), &delivery.legs)
}

/// Why it waits for a person's word; none where every stage has somebody left that it names.
pub(super) fn hold(draft: &Draft<'_>, walked: &Walked) -> Option<Hold> {
    if walked.emptied.is_empty() {
        return None;
    }
    let lines = walked.lines().join("; ");
    let rule = match &walked.file {
        Some(file) => format!(
            "{file}{}, a stage that is left empty waits for a go, DL-15",
            of_before(draft)
        ),
        None => "a stage that is left empty waits for a go, DL-15".to_owned(),
    };
    let reason = format!("{lines}; a go lets it walk that stage as this commit has it");
    Some(Hold::new(Code::PlanHold, reason).by(&rule))
}

fn stages(plan: Option<&PlanDoc>) -> Vec<StageDoc> {
    plan.map_or_else(built_in_stages, |plan| plan.stages.clone())
}

fn canary(plan: Option<&PlanDoc>) -> Canary {
    plan.map_or(Canary::Replaced, |plan| plan.canary)
}

/// Whether two plans walk alike, wherever in their files that stands.
fn are_alike(one: Option<&PlanDoc>, other: Option<&PlanDoc>) -> bool {
    let placeless = |plan| {
        let stages = stages(plan).into_iter();
        stages
            .map(|stage| StageDoc { line: 0, ..stage })
            .collect::<Vec<_>>()
    };
    canary(one) == canary(other) && placeless(one) == placeless(other)
}

/// A stage without machines that are gone; none where all that it names are. Its place was another file's.
fn without_gone(stage: &StageDoc, names: &BTreeSet<&NodeName>) -> Option<StageDoc> {
    let mut left = StageDoc {
        line: 0,
        ..stage.clone()
    };
    left.select.nodes.retain(|name| names.contains(name));
    (left.select.nodes.is_empty() == stage.select.nodes.is_empty()).then_some(left)
}
