//! What a person's word does (DL-4): each is a transition with its actor, or a refusal that says why.

use std::collections::BTreeSet;

use jiff::Timestamp;
use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::document::plan::Actor;
use meshplan_schemas::ident::NodeId;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::DecideError;
use super::draft::Draft;
use super::faults::About;
use super::{classes, freeze, orders, waiting, walk};
use crate::pure::delivery::{Delivery, StageRun, Step, VerdictWord};
use crate::pure::snapshot::{InTeam, Person, Request, Verb};

/// Answers every request, oldest first.
pub(super) fn answer(draft: &mut Draft<'_>) -> Result<(), DecideError> {
    let requests = draft.known.snapshot.requests.clone();
    for request in &requests {
        let delivery = request
            .commit
            .as_ref()
            .and_then(|commit| draft.deliveries.get(commit));
        let answer = match (request.verb, delivery.cloned()) {
            (Verb::Freeze, _) => freeze::freeze(draft, request),
            (Verb::Lift, _) => freeze::lift(draft, request),
            (Verb::Recover, _) => "refused: nothing is being recovered, so nobody is waited for".to_owned(),
            (_, None) => "refused: there is no such delivery, or it was archived".to_owned(),
            (_, Some(mut delivery)) => match draft.faults.of(&About::Request(request.id.clone())) {
                Some(fault) => format!("refused: that cannot be decided, by our own fault: {}", fault.why),
                None => {
                    let answer = obey(draft, &mut delivery, request);
                    let answer = answer.map_err(|error| error.of(About::Request(request.id.clone())))?;
                    draft.put(delivery);
                    answer
                }
            },
        };
        draft.act.answers.push((request.id.clone(), answer));
    }
    Ok(())
}

fn obey(draft: &mut Draft<'_>, delivery: &mut Delivery, request: &Request) -> Result<String, DecideError> {
    let why = if request.why.is_empty() {
        "said so".to_owned()
    } else {
        request.why.clone()
    };
    let actor = request.actor.as_str();
    let state = delivery.state;
    let (name, code) = (delivery.name.clone(), delivery.code);
    let refused = |what: &str| Ok(format!("refused: {name} is {state} ({code}), {what}"));
    if let Some(person) = &request.by {
        // Of what nobody has judged it is not known yet what it changes, and so whose word it takes.
        let mut weighed = delivery.clone();
        waiting::weigh(draft, &mut weighed)?;
        if let Some(why_not) = no_actor(draft, &weighed, person) {
            return Ok(format!("refused: {why_not}"));
        }
    }
    let stuck = matches!(code, Code::RollBackFailed | Code::RetiredValue);
    match (request.verb, state) {
        (Verb::Go, State::Held) if delivery.code == Code::KnownBad => {
            refused("its content failed before: `go --again` tries it once more")
        }
        (Verb::Go, State::Held) if stuck => refused("nothing more is switched; merge a commit that mends it"),
        (Verb::Go | Verb::GoAgain, State::Held)
            if delivery.has_begun() || delivery.code == Code::NoMachine =>
        {
            force(delivery, draft.now());
            draft.transit(delivery, State::Delivering, Code::Go, actor, why, Vec::new())?;
            Ok(format!("{} goes on", delivery.name))
        }
        (Verb::Go | Verb::GoAgain, State::Held) => {
            delivery.again |= request.verb == Verb::GoAgain;
            let held_by_person = std::mem::take(&mut delivery.person_hold);
            delivery.overrides.clone_from(&request.start);
            match waiting::begin_on_word(draft, delivery, actor, &why)? {
                None => Ok(format!("{} is delivering", delivery.name)),
                Some(why_not) => {
                    delivery.person_hold = held_by_person;
                    delivery.overrides = None;
                    refused(&why_not)
                }
            }
        }
        (Verb::Go, _) => refused("only a held delivery waits for a go"),
        // An old tree as a whole is not what anybody means: it would take back every commit since.
        (Verb::GoAgain, State::RolledBack | State::Failed) if delivery.order != draft.counters.order => {
            refused("and newer commits have come since; merge a commit that brings its change back")
        }
        (Verb::GoAgain, State::RolledBack | State::Failed) => {
            delivery.again = true;
            delivery.walk = None;
            delivery.overrides = None;
            draft.transit(delivery, State::Proposed, Code::Again, actor, why, Vec::new())?;
            Ok(format!("{} is tried once more", delivery.name))
        }
        (Verb::GoAgain, _) => {
            refused("`--again` is for what was rolled back, has failed, or is held as known-bad")
        }
        (Verb::Hold, State::Proposed) => {
            delivery.person_hold = true;
            draft.transit(delivery, State::Held, Code::PersonHold, actor, why, Vec::new())?;
            Ok(format!("{} is held", delivery.name))
        }
        (Verb::Hold, State::Held) if delivery.person_hold => refused("and a person said so already"),
        // Whatever it waits for: from now on it does not open by that.
        (Verb::Hold, State::Held) if delivery.walk.is_none() => {
            delivery.person_hold = true;
            (delivery.code, delivery.reason) = (Code::PersonHold, why.clone());
            delivery.awaits = None;
            draft.remark(delivery, Code::PersonHold, actor, why, Vec::new());
            Ok(format!("{} stays held until a person says go", delivery.name))
        }
        (Verb::Hold | Verb::Stop, State::Delivering) => {
            let facts = walk::story(delivery);
            draft.transit(delivery, State::Held, Code::Stopped, actor, why, facts)?;
            Ok(format!("{} stands where it is", delivery.name))
        }
        (Verb::Hold | Verb::Stop, _) => refused("there is nothing to stop"),
        (Verb::Withdraw | Verb::Abort, State::Delivering | State::Held) if delivery.has_begun() => {
            let code = match request.verb {
                Verb::Abort => Code::Aborted,
                _ => Code::Withdrawn,
            };
            walk::roll_back(draft, delivery, code, actor, why, Vec::new())?;
            Ok(format!("{} is taken back", delivery.name))
        }
        (Verb::Withdraw, State::Proposed | State::Held) => {
            let owed = waiting::leave_debts(draft, delivery);
            draft.transit(delivery, State::Withdrawn, Code::Withdrawn, actor, why, owed)?;
            Ok(format!("{} is withdrawn", delivery.name))
        }
        (Verb::Withdraw, _) => refused("it cannot be withdrawn any more"),
        (Verb::Abort, State::Proposed | State::Held) => {
            refused("no machine has it yet: `meshplan deliveries withdraw` ends it")
        }
        (Verb::Abort, _) => refused("it cannot be aborted any more"),
        (Verb::Retry, State::Held) if delivery.has_begun() && !stuck => {
            retry(draft, delivery)?;
            draft.transit(delivery, State::Delivering, Code::Retry, actor, why, Vec::new())?;
            Ok(format!("{} tries the stage once more", delivery.name))
        }
        (Verb::Retry, _) => refused("only a walk that is held has a stage to retry"),
        (Verb::Freeze | Verb::Lift | Verb::Recover, _) => refused("that is a word about the whole fleet"),
    }
}

/// Why somebody of the forge has no say in a delivery; none where he has: the plans before and after name whom they mean,
/// or anybody who may write there (DL-4, DL-15).
fn no_actor(draft: &Draft<'_>, delivery: &Delivery, person: &Person) -> Option<String> {
    let Some(tree) = draft.tree(&delivery.commit) else {
        return Some("its tree cannot be read now, so nobody can tell whom its plan names".to_owned());
    };
    let plan = waiting::plan::plan_for(&tree, delivery.component(), &delivery.legs).cloned();
    let bounds = waiting::bounds(draft, delivery, plan.as_ref());
    let closed = bounds.iter().flatten().find(|plan| !lets_in(plan, person))?;
    let names: Vec<&str> = closed.actors.iter().map(|actor| actor.0.as_str()).collect();
    let untold = closed
        .actors
        .iter()
        .filter_map(|actor| untold(actor.team()?, person));
    Some(format!(
        "the plan {} names who may say something: {}; {} is none of them{}",
        closed.name,
        names.join(", "),
        person.login,
        untold.collect::<String>(),
    ))
}

/// Whether a plan lets somebody say something: anybody, them by name, or one of their teams as the forge said.
fn lets_in(plan: &PlanDoc, person: &Person) -> bool {
    let means = |actor: &Actor| match actor.team() {
        Some(team) => person.teams.get(team) == Some(&InTeam::Yes),
        None => actor.0 == person.login,
    };
    plan.actors.is_empty() || plan.actors.iter().any(means)
}

/// Why nobody knows whether somebody is in a team; none where it is known.
fn untold(team: &str, person: &Person) -> Option<String> {
    match person.teams.get(team) {
        Some(InTeam::Yes | InTeam::No) => None,
        Some(InTeam::Untold(why)) => Some(format!(", and who is in team:{team} is not known: {why}")),
        None => Some(format!(
            ", and the forge was not asked yet who is in team:{team}: say it again"
        )),
    }
}

/// The teams that the plans before and after name.
pub(super) fn teams(bounds: &[Option<PlanDoc>]) -> Vec<String> {
    let actors = bounds.iter().flatten().flat_map(|plan| &plan.actors);
    let teams: BTreeSet<&str> = actors.filter_map(Actor::team).collect();
    teams.into_iter().map(str::to_owned).collect()
}

/// A go over machines that did not pass: nothing more is asked of them. The time of the stage begins anew: it stood
/// still while a person thought.
fn force(delivery: &mut Delivery, now: Timestamp) {
    let Some(walk) = delivery.walk.as_mut() else {
        return;
    };
    let current = walk.current;
    for machine in walk.stages.iter_mut().flat_map(|s| s.machines.values_mut()) {
        let troubled = |word: VerdictWord| matches!(word, VerdictWord::Failed | VerdictWord::Silent);
        machine.forced |= machine.verdict.as_ref().is_some_and(|v| troubled(v.word));
    }
    let Some(stage) = walk.stages.get_mut(current) else {
        return;
    };
    stage.named_only = false;
    stage.over_budget |= stage.waits.take().is_some();
    let renewed = super::after_secs(now, stage.within_secs);
    match &mut walk.step {
        Step::Looking { deadline } | Step::Regard { deadline } => *deadline = renewed,
        Step::Open | Step::Returning { .. } => {}
    }
}

/// The failed stage once more: machines that did not pass get the order again under new numbers (DL-2).
fn retry(draft: &mut Draft<'_>, delivery: &mut Delivery) -> Result<(), DecideError> {
    let now = draft.now();
    let Some(tree) = draft.tree(&delivery.commit) else {
        return Ok(());
    };
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(());
    };
    walk.abort_cause = None;
    // The first stage with such a machine is walked again; a stage that was not ordered yet simply opens.
    let retried = |(at, stage): (usize, &StageRun)| {
        let machines = stage.machines.iter();
        let again = machines.filter(|(id, machine)| classes::is_retried(walk, at, id, machine));
        again.map(|(id, _)| *id).collect::<Vec<NodeId>>()
    };
    let stages = walk.stages.iter().enumerate();
    let again = stages.map(|stage| (stage.0, retried(stage)));
    let Some((first, again)) = again.into_iter().find(|(_, again)| !again.is_empty()) else {
        return Ok(());
    };
    walk.current = first;
    let stage = &walk.stages[first];
    walk.step = Step::Looking {
        deadline: super::after_secs(now, stage.within_secs),
    };
    delivery.again = true;
    for id in again {
        let sent = orders::again(draft, delivery, &tree, id)?;
        let stage = delivery.walk.as_mut().and_then(|w| w.stages.get_mut(first));
        let Some(machine) = stage.and_then(|s| s.machines.get_mut(&id)) else {
            continue;
        };
        machine.sequence = machine.sequence.max(sent.sequence);
        machine.epoch = machine.epoch.max(sent.epoch);
        machine.verdict = None;
        machine.healthy = 0;
        machine.healthy_since = None;
        machine.asked = None;
        machine.unhealthy = false;
        machine.ordered_again = false;
    }
    Ok(())
}
