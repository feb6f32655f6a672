//! What a delivery waits for, as a value beside the decisions: one sentence each for what, by which rule, until
//! when, and what would change it (DL-16).

use jiff::Timestamp;
use meshplan_schemas::lifecycle::delivery::{Code, State};
use serde::Serialize;

use super::walk;
use crate::pure::delivery::{Delivery, Step};

/// The answer to `why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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

/// Explains one delivery. `in_the_way` is another one that walks, where there is one.
#[must_use]
pub fn why(delivery: &Delivery, in_the_way: Option<&Delivery>, now: Timestamp) -> Why {
    let name = &delivery.name;
    let command = |verb: &str| Some(format!("meshplan deliveries {verb} {}", delivery.commit.short()));
    let plan = delivery.walk.as_ref().and_then(|w| w.plan.as_ref());
    let rule = plan.map_or_else(
        || "the built-in plan: one machine, then the rest".to_owned(),
        |p| format!("plans/{p}.toml"),
    );
    let mut why = Why {
        waits_for: String::new(),
        rule,
        next: String::new(),
        deadline: None,
        command: None,
        as_of: now,
    };
    match delivery.state {
        State::Proposed => {
            why.waits_for = match in_the_way {
                Some(other) => format!("{} to be over: it is {}", other.name, other.state),
                None => "the next look at the repository".to_owned(),
            };
            why.next = format!("{name} begins, or is held");
            why.command = command("hold");
        }
        State::Held => {
            why.waits_for = match delivery.code {
                Code::Absent => format!("machines that are away: {}", delivery.reason),
                _ => format!("a person: {}", delivery.reason),
            };
            why.rule = format!("{} ({})", why.rule, delivery.code);
            why.next = "go, retry, withdraw, or a newer commit".to_owned();
            why.command = command(if delivery.code == Code::KnownBad {
                "go --again"
            } else {
                "go"
            });
        }
        State::Delivering => delivering(delivery, &mut why, command("stop")),
        State::RollingBack => {
            let walk = delivery.walk.as_ref();
            let out: Vec<&str> = walk
                .iter()
                .flat_map(|w| w.reached.values())
                .filter(|r| !r.returned)
                .map(|r| r.name.as_str())
                .collect();
            why.waits_for = format!("the former content on: {}", out.join(", "));
            why.next = "rolled-back".to_owned();
            why.deadline = walk.and_then(|w| match w.step {
                Step::Returning { deadline } => Some(deadline),
                _ => None,
            });
        }
        final_state => {
            why.waits_for = format!(
                "nothing: {final_state} since {} ({})",
                delivery.since, delivery.reason
            );
            why.next = "nothing".to_owned();
            why.command = matches!(final_state, State::RolledBack | State::Failed)
                .then(|| command("go --again"))
                .flatten();
        }
    }
    why
}

fn delivering(delivery: &Delivery, why: &mut Why, stop: Option<String>) {
    why.command = stop;
    let Some(walk) = &delivery.walk else { return };
    let Some(stage) = walk.stages.get(walk.current) else {
        return;
    };
    why.rule = format!("{}, stage {}", why.rule, stage.name);
    let next = walk
        .stages
        .get(walk.current + 1)
        .map_or("delivered".to_owned(), |s| format!("the stage {}", s.name));
    why.next = next;
    match walk.step {
        Step::Looking { deadline } => {
            let open: Vec<String> = stage
                .machines
                .values()
                .filter(|m| m.verdict.is_none())
                .map(|m| {
                    let last = if m.last.is_empty() {
                        "no look answered yet"
                    } else {
                        &m.last
                    };
                    format!(
                        "{} ({} of {} looks healthy; {last})",
                        m.name, m.healthy, stage.times
                    )
                })
                .collect();
            why.waits_for = format!("looks at {}: {}", open.join(", "), walk::summary(stage));
            why.deadline = Some(deadline);
        }
        Step::Regard { deadline } => {
            why.waits_for = format!("a fresh look at all that passed before {} opens", why.next);
            why.deadline = Some(deadline);
        }
        Step::Open | Step::Returning { .. } => {
            why.waits_for = format!(
                "the first report intervals after the reconciler's start, then {} opens",
                stage.name
            );
        }
    }
}
