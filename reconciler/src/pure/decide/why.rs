//! What is waited for, as a value beside the decisions: one sentence each for what, by which rule, until when, and what
//! would change it (DL-16).
//!
//! Of a delivery that has not begun the judging pass has put down what holds it ([`Awaits`]); of one that walks its stages say
//! it. Which other delivery is in the way is what the decider considered, and nothing that an asker finds.

use std::collections::BTreeMap;

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::{Code, State};
use serde::{Deserialize, Serialize};

use super::waiting::beside::in_common;
use super::{after_secs, classes, walk};
use crate::pure::delivery::{Awaits, Delivery, StageRun, Step, VerdictWord, Walk};
use crate::pure::recover::waiting::COMMAND;

mod nodes;
mod rollouts;
pub mod rotations;

pub use nodes::why_node;
pub use rollouts::why_rollout;

/// The deliveries that are not over, and those that are and still owe something, by commit.
pub type Open = BTreeMap<CommitId, Delivery>;

/// The answer to `why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// What it waits for.
    pub waits_for: String,
    /// By which rule, and where that stands.
    pub rule: String,
    /// What happens next.
    pub next: String,
    /// By when at the latest.
    pub deadline: Option<Timestamp>,
    /// The command that would change it.
    pub command: Option<String>,
    /// As of when this is true.
    pub as_of: Timestamp,
}

impl Why {
    /// The same while nothing may be signed after the database was lost; `words` say for whom it waits.
    #[must_use]
    pub fn recovering(self, words: String) -> Self {
        Self {
            waits_for: words,
            rule: "no number is used twice: the machines say which they have verified (SG-8)".to_owned(),
            next: "what stands is signed anew, and what walks goes on".to_owned(),
            deadline: None,
            command: Some(COMMAND.to_owned()),
            as_of: self.as_of,
        }
    }
}

/// Explains one delivery, beside all that are open.
#[must_use]
pub fn why(delivery: &Delivery, open: &Open, now: Timestamp) -> Why {
    let mut why = Why {
        waits_for: String::new(),
        rule: plan_of(delivery),
        next: String::new(),
        deadline: None,
        command: None,
        as_of: now,
    };
    match delivery.state {
        State::Proposed => waiting(delivery, open, &mut why),
        State::Held => match &delivery.walk {
            // A walk stands where it stands, whatever was in its way before it began.
            Some(walk) if stands_still(delivery.code) => standing_still(delivery, walk, &mut why),
            _ => waiting(delivery, open, &mut why),
        },
        State::Delivering => delivering(delivery, &mut why),
        State::RollingBack => rolling_back(delivery, &mut why),
        _ => over(delivery, &mut why),
    }
    why
}

fn command(verb: &str, delivery: &Delivery) -> Option<String> {
    Some(format!("meshplan deliveries {verb} {}", delivery.commit.short()))
}

/// The file of the plan that a delivery walks, or would.
fn plan_of(delivery: &Delivery) -> String {
    let walked = delivery.walk.as_ref().map(|walk| &walk.plan);
    match walked.unwrap_or(&delivery.plan) {
        Some(plan) => format!("plans/{plan}.toml"),
        None if delivery.code == Code::Invalid => "the documents of a tree fit each other (FR-1)".to_owned(),
        None => "the built-in plan: one machine, then the rest".to_owned(),
    }
}

/// A stage with its place. One of a former plan stands in another tree's file.
fn place_of(walk: &Walk, stage: &StageRun) -> String {
    match (&walk.plan, stage.line) {
        (None, _) => format!("the built-in plan, stage {}", stage.name),
        (Some(plan), 0) => format!("plans/{plan}.toml as it was before, stage {}", stage.name),
        (Some(plan), line) => format!("plans/{plan}.toml:{line}, stage {}", stage.name),
    }
}

/// It has not begun: what holds it is what the pass that judged it last said.
fn waiting(delivery: &Delivery, open: &Open, why: &mut Why) {
    let unjudged = || match delivery.state {
        State::Held => Awaits::held(delivery.code, &delivery.reason),
        _ => Awaits {
            on: "the pass that judges it".to_owned(),
            rule: why.rule.clone(),
            next: "it begins, or is held".to_owned(),
            ..Awaits::default()
        },
    };
    let awaits = delivery.awaits.clone().unwrap_or_else(unjudged);
    (why.waits_for, why.rule, why.next) = (awaits.on, awaits.rule, awaits.next);
    why.deadline = awaits.until;
    if let Some(other) = &awaits.behind {
        why.waits_for = match open.get(other).filter(|other| other.walks()) {
            Some(other) if delivery.legs.is_empty() => format!(
                "{} to be over: it is {}, and brings all that this one changes",
                other.name, other.state
            ),
            Some(other) => format!(
                "{} to be over: it is {}, and {}",
                other.name,
                other.state,
                in_common(delivery, other)
            ),
            None => format!("the next pass: {}, for which it waited, is over", other.short()),
        };
    }
    why.command = match (delivery.state, awaits.code.unwrap_or(delivery.code)) {
        (State::Proposed, _) => command("hold", delivery),
        _ if awaits.behind.is_some() => command("withdraw", delivery),
        // A tree that is no order is never compared, and has no legs: a go does not begin it.
        (_, Code::Freeze) => Some("meshplan freeze --lift".to_owned()),
        (_, Code::KnownBad) => command("go --again", delivery),
        _ if delivery.legs.is_empty() && delivery.plan.is_some() => command("withdraw", delivery),
        _ => command("go", delivery),
    };
}

/// Whether a code is of a walk that was stopped on its way.
fn stands_still(code: Code) -> bool {
    matches!(
        code,
        Code::StageFailed
            | Code::Silent
            | Code::NoMachine
            | Code::Stopped
            | Code::Lost
            | Code::RollBackFailed
            | Code::RetiredValue
    )
}

/// A walk that is held: a person decides, or the commit that takes its place.
fn standing_still(delivery: &Delivery, walk: &Walk, why: &mut Why) {
    why.waits_for = format!("a person: {}", delivery.reason);
    let troubled = |stage: &&StageRun| {
        let words = stage.machines.values().filter(|machine| !machine.forced);
        let words = words.filter_map(|machine| machine.verdict.as_ref());
        words
            .into_iter()
            .any(|verdict| matches!(verdict.word, VerdictWord::Failed | VerdictWord::Silent))
    };
    let stage = walk
        .stages
        .iter()
        .find(troubled)
        .or_else(|| walk.stages.get(walk.current));
    let place = stage.map_or_else(|| plan_of(delivery), |stage| place_of(walk, stage));
    let newer = "or a newer commit takes its place";
    let (rule, next) = match delivery.code {
        Code::StageFailed => (
            format!("{place}: failed = \"hold\""),
            format!(
                "a go goes on without the machines that did not pass, a retry orders them the stage once more, a withdraw \
                 takes all of it back, {newer}"
            ),
        ),
        Code::Silent => (
            format!("{place}: silent = \"hold\""),
            format!(
                "a go goes on without the machines that are silent, a retry orders them the stage once more, a withdraw \
                 takes all of it back, {newer}"
            ),
        ),
        Code::NoMachine => (
            format!("{place}: a stage in which nobody can begin is held, DL-6"),
            format!("a go goes on all the same, a withdraw takes back what it has reached, {newer}"),
        ),
        Code::Stopped => (
            format!("{place}: what a person stops waits for a person, DL-4"),
            format!("a go goes on where it stands, a withdraw takes all of it back, {newer}"),
        ),
        Code::Lost => (
            format!("{place}: a walk of which nobody can tell how far it is waits for a person, DL-12"),
            format!("a go goes on where it stands, a withdraw takes all of it back, {newer}"),
        ),
        Code::RetiredValue => (
            "secrets/retired.toml: a value that is retired never goes back, DL-7".to_owned(),
            "nothing more is switched: a commit after it takes its place".to_owned(),
        ),
        _ => (
            format!("{place}: one roll-back per failure, DL-14"),
            "nothing more is switched: a commit that mends it takes its place, or a withdraw orders the former content \
             once more"
                .to_owned(),
        ),
    };
    why.rule = format!("{rule} ({})", delivery.code);
    why.next = next;
    why.command = match delivery.code {
        Code::RollBackFailed | Code::RetiredValue => command("withdraw", delivery),
        _ => command("go", delivery),
    };
}

fn rolling_back(delivery: &Delivery, why: &mut Why) {
    let Some(walk) = &delivery.walk else { return };
    let out: Vec<&str> = walk
        .reached
        .values()
        .filter(|reached| !reached.returned)
        .map(|reached| reached.name.as_str())
        .collect();
    let but_for = walk::but_for(walk);
    why.waits_for = match out.len() {
        0 => format!("the next pass: every machine that it had reached has the former content{but_for}"),
        _ => format!("the former content on: {}{but_for}", out.join(", ")),
    };
    let by = match delivery.code {
        Code::StageFailed | Code::Silent => {
            let cause = walk.abort_cause.as_ref().map(|cause| cause.phase.as_str());
            let stage = walk
                .stages
                .iter()
                .find(|stage| Some(stage.name.as_str()) == cause);
            let stage = stage.or_else(|| walk.stages.get(walk.current));
            let key = if delivery.code == Code::Silent {
                "silent"
            } else {
                "failed"
            };
            stage.map(|stage| format!("{}: {key} = \"roll-back\"", place_of(walk, stage)))
        }
        Code::Newer => {
            Some("a newer commit took its place and does not cover all that it had reached, DL-2".to_owned())
        }
        _ => Some("a person took it back, DL-7".to_owned()),
    };
    why.rule = format!("{} ({})", by.unwrap_or_else(|| plan_of(delivery)), delivery.code);
    why.next = match walk.spent.is_empty() {
        true => {
            "it is rolled back then; who is not heard by the deadline gets the former content on its return"
        }
        false => "it is held then, for what is not restored (retired-value)",
    }
    .to_owned();
    why.deadline = match walk.step {
        Step::Returning { deadline } => Some(deadline),
        _ => None,
    };
}

fn over(delivery: &Delivery, why: &mut Why) {
    let walk = delivery.walk.as_ref();
    let cause = walk.and_then(|walk| walk.abort_cause.as_ref());
    let because = cause.map_or_else(String::new, |c| {
        format!(", because of {} in {}: {}", c.name, c.phase, c.reason)
    });
    if walk.is_none() && delivery.plan.is_none() && delivery.code != Code::Invalid {
        // Nothing of it was walked, or what was is not kept after the database was lost.
        why.rule = format!("what is {} stays so, DL-2 ({})", delivery.state, delivery.code);
    }
    why.waits_for = format!(
        "nothing: {} since {} ({}{because})",
        delivery.state, delivery.since, delivery.reason
    );
    let mends = delivery.code == Code::Invalid;
    why.next = if mends {
        "a commit that mends it"
    } else {
        "nothing"
    }
    .to_owned();
    if matches!(delivery.state, State::RolledBack | State::Failed) && !mends {
        why.command = command("go --again", delivery);
    }
}

fn delivering(delivery: &Delivery, why: &mut Why) {
    why.command = command("stop", delivery);
    let Some(walk) = &delivery.walk else { return };
    let Some(stage) = walk.stages.get(walk.current) else {
        "the next pass: every stage has passed".clone_into(&mut why.waits_for);
        "delivered".clone_into(&mut why.next);
        return;
    };
    why.rule = place_of(walk, stage);
    why.next = match walk.stages.get(walk.current + 1) {
        None => "delivered".to_owned(),
        Some(next) if next.name == stage.name => format!("the next wave of the stage {}", next.name),
        Some(next) => format!("the stage {}", next.name),
    };
    match walk.step {
        Step::Looking { deadline } => {
            why.deadline = Some(deadline);
            let mut open = Vec::new();
            for (id, machine) in &stage.machines {
                if machine.verdict.is_some() || !classes::is_awaited(walk, walk.current, id) {
                    continue;
                }
                let last = match machine.last.as_str() {
                    "" => "no look answered yet",
                    last => last,
                };
                open.push(format!(
                    "{} ({} of {} looks healthy; {last})",
                    machine.name, machine.healthy, stage.times
                ));
                // Its time counts from when its own window opens (DL-17).
                let own = machine.opens.map(|opens| after_secs(opens, stage.within_secs));
                why.deadline = why.deadline.max(own);
            }
            why.waits_for = match open.len() {
                0 => format!(
                    "nobody more in the stage {}: {}",
                    stage.name,
                    walk::summary(walk, stage)
                ),
                _ => format!("looks at {}: {}", open.join(", "), walk::summary(walk, stage)),
            };
        }
        Step::Regard { deadline } => {
            why.waits_for = format!("a fresh look at all that passed before {} opens", why.next);
            why.deadline = Some(deadline);
        }
        Step::Open if let Some((since, budget)) = &stage.waits => {
            why.waits_for = format!("the budget of the stage {}: {budget}", stage.name);
            why.rule = format!("{}: budget", why.rule);
            why.next =
                "it begins as they come back; at the end of its time it is held for a person".to_owned();
            why.deadline = Some(after_secs(*since, stage.within_secs));
        }
        Step::Open if let Some(shut) = stage.shut.as_ref().filter(|shut| shut.waits) => {
            why.waits_for = format!("{}, then {} opens", shut.whose, stage.name);
            if !shut.of_plan {
                why.rule = "policy: scheduler.windows of the machines, RO-2".to_owned();
            } else if !walk.windows_at.is_empty() {
                why.rule.clone_from(&walk.windows_at);
            }
            why.deadline = Some(if shut.of_plan {
                shut.opens
            } else {
                shut.own_until.unwrap_or(shut.opens)
            });
        }
        Step::Open | Step::Returning { .. } => {
            why.waits_for = format!(
                "the first report intervals after the reconciler's start, then {} opens",
                stage.name
            );
        }
    }
}
