//! Legs with fates of their own (`legs = "apart"`, DL-3): what failed is taken back, the others go on.
//!
//! Only what a machine's own word blames is taken back alone: a silent machine, or a failure that names nobody, speaks
//! against all. While the others walk the delivery is `delivering`; when they are through it goes the way back for what
//! was taken, so that it ends as the worst of its legs, and only when that is back.

use std::collections::BTreeSet;

use meshplan_schemas::document::fleet::ConfigMgmt;
use meshplan_schemas::ident::{NodeId, ResourceName};
use meshplan_schemas::lifecycle::delivery::{Code, State};
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::{Health, Outcome, Report};

use super::RECONCILER;
use super::story::{self, story};
use crate::pure::decide::draft::Draft;
use crate::pure::decide::{DecideError, after_secs, orders};
use crate::pure::delivery::{Delivery, Leg, MachineRun, Step, TakenLeg, Verdict, VerdictWord};
use crate::pure::recover::ACCEPTED;
use crate::pure::scope::Scope;

/// The scopes that a failed machine blames, where they are not all and the plan lets legs end apart.
pub(super) fn culprits(draft: &Draft<'_>, delivery: &Delivery, node: NodeId) -> Option<BTreeSet<Scope>> {
    let walk = delivery.walk.as_ref().filter(|walk| walk.apart)?;
    let machine = walk
        .stages
        .iter()
        .rev()
        .find_map(|stage| stage.machines.get(&node))?;
    let report = draft.known.snapshot.nodes.get(&node)?.report.as_ref()?;
    let own: Vec<&Leg> = delivery.legs.iter().filter(|leg| has_fate(leg)).collect();
    let blamed: BTreeSet<Scope> = own
        .iter()
        .filter(|leg| blames(report, machine, leg, node))
        .map(|leg| leg.scope.clone())
        .collect();
    (!blamed.is_empty() && blamed.len() < own.len()).then_some(blamed)
}

/// Lists only go forward, and what decides is no content of a machine (DL-3).
fn has_fate(leg: &Leg) -> bool {
    matches!(leg.scope, Scope::Policy | Scope::Module(_))
}

/// Whether a machine's word speaks against this leg.
fn blames(report: &Report, machine: &MachineRun, leg: &Leg, node: NodeId) -> bool {
    let Scope::Module(module) = &leg.scope else {
        return report.epoch.as_ref().is_some_and(|epoch| {
            machine.epoch > 0
                && epoch.state_epoch == machine.epoch
                && matches!(epoch.state, EpochState::Reverted | EpochState::Rejected)
        });
    };
    let Some(after) = leg.nodes.get(&node).and_then(|change| change.after) else {
        return false;
    };
    let of = |name: &ResourceName| name.module == *module;
    let failed = |outcome| matches!(outcome, Outcome::Failed | Outcome::Refused);
    report
        .rollbacks
        .iter()
        .any(|verdict| verdict.component == module.as_str() && verdict.from == after.to_string())
        || report
            .resources
            .iter()
            .any(|line| of(&line.name) && failed(line.outcome))
        || report
            .probes
            .iter()
            .any(|probe| of(&probe.name) && probe.health == Health::Unhealthy)
}

/// Takes these legs back on all that they had reached, and lets the others go on: machines that have any of them get
/// their order anew and are looked at anew. `why` is code, reason and facts.
pub(super) fn take_back(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    scopes: &BTreeSet<Scope>,
    why: (Code, String, Vec<(String, String)>),
) -> Result<(), DecideError> {
    let (code, reason, mut facts) = why;
    facts.extend(story(delivery));
    let returns = orders::back(draft, delivery, Some(scopes))?;
    facts.extend(delivery.walk.iter().flat_map(story::stays));
    let (taken, kept): (Vec<Leg>, Vec<Leg>) = std::mem::take(&mut delivery.legs)
        .into_iter()
        .partition(|leg| scopes.contains(&leg.scope));
    delivery.legs = kept;
    let others: BTreeSet<NodeId> = delivery
        .legs
        .iter()
        .flat_map(|leg| leg.nodes.keys().copied())
        .collect();
    let gone: BTreeSet<NodeId> = taken.iter().flat_map(|leg| leg.nodes.keys().copied()).collect();
    let policy = scopes.contains(&Scope::Policy);
    let now = draft.now();
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(());
    };
    for (at, stage) in walk.stages.iter_mut().enumerate() {
        for (id, machine) in stage.machines.iter_mut().filter(|(id, _)| gone.contains(id)) {
            let ended = machine.verdict.is_some();
            anew(machine, returns.contains(id).then_some(walk.sequence), policy);
            if !others.contains(id) {
                machine.forced = true;
                machine.verdict.get_or_insert_with(|| Verdict {
                    word: VerdictWord::Failed,
                    reason: format!("went back: {reason}"),
                });
            } else if at == walk.current || !ended {
                machine.verdict = None;
            }
        }
    }
    if let Some(stage) = walk.stages.get(walk.current)
        && !matches!(walk.step, Step::Open)
    {
        walk.step = Step::Looking {
            deadline: after_secs(now, stage.within_secs),
        };
    }
    let names: Vec<String> = taken.iter().map(|leg| leg.scope.to_string()).collect();
    facts.extend(
        taken
            .iter()
            .map(|leg| ("Taken-Back".to_owned(), format!("{} {}", leg.scope, leg.digest))),
    );
    walk.taken.extend(taken.into_iter().map(|leg| TakenLeg {
        leg,
        code,
        reason: reason.clone(),
    }));
    let others: Vec<String> = delivery
        .legs
        .iter()
        .filter(|leg| has_fate(leg))
        .map(|leg| leg.scope.to_string())
        .collect();
    let reason = format!(
        "{reason}; {} is taken back, {} goes on",
        names.join(", "),
        others.join(", ")
    );
    draft.remark(delivery, code, RECONCILER, reason, facts);
    Ok(())
}

/// A machine that was ordered anew is looked at anew.
fn anew(machine: &mut MachineRun, sequence: Option<u64>, policy: bool) {
    if let Some(sequence) = sequence {
        machine.sequence = sequence;
    }
    if policy {
        machine.epoch = 0;
    }
    machine.healthy = 0;
    machine.healthy_since = None;
    machine.asked = None;
    machine.restarts = None;
    machine.unhealthy = false;
    machine.ordered_again = false;
    machine.last.clear();
}

/// The other legs are through: the delivery goes the way back for those that were taken, and is over when they are.
pub(super) fn end(draft: &mut Draft<'_>, delivery: &mut Delivery, done: &str) -> Result<(), DecideError> {
    let confirm = draft
        .tree(&delivery.commit)
        .map_or(60, |tree| tree.fleet.config_mgmt.confirm_secs);
    let deadline = after_secs(draft.now(), ConfigMgmt::return_secs(confirm));
    let mut facts = story(delivery);
    let through = delivery.legs.iter();
    facts.extend(through.map(|leg| (ACCEPTED.to_owned(), format!("{} {}", leg.scope, leg.digest))));
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(());
    };
    let gone: BTreeSet<NodeId> = walk
        .taken
        .iter()
        .flat_map(|taken| taken.leg.nodes.keys().copied())
        .collect();
    // What the others brought is proven: it is no longer this walk's to take back.
    walk.reached
        .retain(|id, reached| gone.contains(id) && (reached.return_sequence > 0 || reached.return_epoch > 0));
    walk.step = Step::Returning { deadline };
    let code = walk.taken.first().map_or(Code::StageFailed, |taken| taken.code);
    let names: Vec<String> = walk
        .taken
        .iter()
        .map(|taken| format!("{} ({})", taken.leg.scope, taken.reason))
        .collect();
    let reason = format!("{done}; taken back: {}", names.join("; "));
    draft.transit(delivery, State::RollingBack, code, RECONCILER, reason, facts)
}
