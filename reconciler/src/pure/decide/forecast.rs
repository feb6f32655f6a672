//! What a delivery of these legs would walk, told before there is one: for previews (DL-8).
//!
//! It asks the same functions that the walk asks, so that a preview and the delivery after it cannot disagree about
//! anything but chance and absence: which machine a hash chooses, and who is there at that hour.

use std::collections::BTreeSet;

use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{CommitId, NodeId};

use super::classes;
use super::waiting::former_stages::walked;
use super::waiting::plan::{new_walk, plan_for};
use super::walk::selection::{Selection, resolve, select};
use crate::pure::compose::Composed;
use crate::pure::delivery::{Leg, StageRun};

/// A walk as it would be.
#[derive(Debug, Clone)]
pub struct Forecast<'a> {
    /// The plan that covers the legs; none: the built-in one.
    pub plan: Option<&'a PlanDoc>,
    /// The plan that covered them before; none: the built-in one, or there was nothing.
    pub former: Option<&'a PlanDoc>,
    /// The stages with their numbers.
    pub stages: Vec<StageForecast>,
    /// What is worth saying of the stages.
    pub lines: Vec<String>,
}

/// One stage as it would be.
#[derive(Debug, Clone)]
pub struct StageForecast {
    /// The stage with its defaults filled in.
    pub run: StageRun,
    /// How many machines it takes.
    pub machines: usize,
    /// How many of them are told and not awaited (UC-1).
    pub best_effort: usize,
    /// The machines, where it names them; none where the hash of a commit that does not exist yet chooses.
    pub named: Option<BTreeSet<NodeId>>,
    /// In how many waves.
    pub waves: usize,
    /// How many may fail.
    pub tolerate: usize,
    /// What is worth saying of the choice.
    pub line: Option<String>,
}

/// The walk of these legs over the machines that they change, which make `tree` of `before`. Machines that the reconciler has not heard from are
/// taken as if they were there.
#[must_use]
pub fn forecast<'a>(before: Option<&'a Composed>, tree: &'a Composed, legs: &[Leg]) -> Forecast<'a> {
    let walked = walked(before, tree, None, legs);
    // The commit of a merge that is not made yet: what depends on it is not told.
    let commit = CommitId::null();
    let mut left: BTreeSet<NodeId> = legs.iter().flat_map(|leg| leg.nodes.keys().copied()).collect();
    let mut chance = false;
    let mut stages = Vec::new();
    for run in new_walk(tree, walked.plan.as_ref(), Vec::new(), BTreeSet::new(), None).stages {
        let whole = StageRun {
            batch: None,
            ..run.clone()
        };
        let Selection {
            machines: taken,
            line,
            ..
        } = select(&commit, tree, &whole, None, &left);
        let waves = match run.batch {
            Some(batch) if run.select.rest => taken.len().div_ceil(resolve(batch, taken.len()).max(1)),
            _ => usize::from(!taken.is_empty()),
        };
        // Whom a hash took, nobody knows; nor, from there on, who is left.
        chance |= taken.len() < left.len() && (line.is_some() || run.select.count.is_some());
        // A share is of each wave, as the walk counts it.
        let at_once = match run.batch {
            Some(batch) if run.select.rest => resolve(batch, taken.len()).clamp(1, taken.len().max(1)),
            _ => taken.len(),
        };
        left.retain(|id| !taken.contains(id));
        let told = |id: &&NodeId| classes::of_record(tree, **id) == UpdateClass::BestEffort;
        let best_effort = taken.iter().filter(told).count();
        // The first stage's count whatever their class (RO-1).
        let gating = if stages.is_empty() && !run.select.rest {
            at_once
        } else {
            at_once.min(taken.len() - best_effort)
        };
        stages.push(StageForecast {
            tolerate: resolve(run.tolerate, gating),
            best_effort,
            machines: taken.len(),
            named: (!chance).then_some(taken),
            waves,
            line,
            run,
        });
    }
    Forecast {
        plan: plan_for(tree, None, legs),
        former: before.and_then(|before| plan_for(before, None, legs)),
        stages,
        lines: walked.lines(),
    }
}
