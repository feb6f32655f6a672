//! What a delivery waits for, as a value beside the decisions: one sentence each for what, by which rule, until
//! when, and what would change it (DL-16).

use jiff::Timestamp;
use meshplan_schemas::lifecycle::delivery::{Code, State};
use serde::Serialize;

use super::{classes, walk};
use crate::pure::delivery::{Delivery, Step};
use crate::pure::page::NodeView;
use crate::pure::recover::waiting::COMMAND;

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

/// Explains one delivery. `in_the_way` is another one that walks, where there is one.
#[must_use]
pub fn why(delivery: &Delivery, in_the_way: Option<&Delivery>, now: Timestamp) -> Why {
    let name = &delivery.name;
    let command = |verb: &str| Some(format!("meshplan deliveries {verb} {}", delivery.commit.short()));
    let walked = delivery.walk.as_ref().map(|walk| &walk.plan);
    let rule = match walked.unwrap_or(&delivery.plan) {
        Some(plan) => format!("plans/{plan}.toml"),
        None if delivery.code == Code::Invalid => "the documents of a tree fit each other (FR-1)".to_owned(),
        None => "the built-in plan: one machine, then the rest".to_owned(),
    };
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
            // A tree that is no order is never compared, and has no legs: lifting the freeze does not begin it.
            let frozen = delivery.code == Code::Freeze && !delivery.legs.is_empty();
            why.waits_for = match delivery.code {
                Code::Freeze if !frozen => format!("a person: {}", delivery.reason),
                Code::Absent => format!("machines that are away: {}", delivery.reason),
                Code::Window | Code::Freeze | Code::Approvals => delivery.reason.clone(),
                _ => format!("a person: {}", delivery.reason),
            };
            why.rule = format!("{} ({})", why.rule, delivery.code);
            why.next = match delivery.code {
                Code::Absent | Code::Window => "it begins by itself then, or with a go now".to_owned(),
                Code::Freeze if frozen => {
                    "it begins by itself then; with a go it begins in spite of that".to_owned()
                }
                Code::Approvals => "it begins with the approvals that are missing, or with a go".to_owned(),
                Code::Freeze => "a commit that mends it, once the freeze is lifted".to_owned(),
                _ => "go, retry, withdraw, or a newer commit".to_owned(),
            };
            why.command = match delivery.code {
                Code::Freeze => Some("meshplan freeze --lift".to_owned()),
                Code::KnownBad => command("go --again"),
                _ => command("go"),
            };
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
            let but_for = walk.map(walk::but_for).unwrap_or_default();
            why.waits_for = format!("the former content on: {}{but_for}", out.join(", "));
            why.next = "rolled-back".to_owned();
            why.deadline = walk.and_then(|w| match w.step {
                Step::Returning { deadline } => Some(deadline),
                _ => None,
            });
        }
        final_state => {
            let cause = delivery.walk.as_ref().and_then(|w| w.abort_cause.as_ref());
            let because = cause.map_or_else(String::new, |c| {
                format!(", because of {} in {}: {}", c.name, c.phase, c.reason)
            });
            why.waits_for = format!(
                "nothing: {final_state} since {} ({}{because})",
                delivery.since, delivery.reason
            );
            let mends = delivery.code == Code::Invalid;
            why.next = if mends {
                "a commit that mends it"
            } else {
                "nothing"
            }
            .to_owned();
            why.command = (matches!(final_state, State::RolledBack | State::Failed) && !mends)
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
    why.rule = match stage.line {
        0 => format!("{}, stage {}", why.rule, stage.name),
        line => format!("{}:{line}, stage {}", why.rule, stage.name),
    };
    let next = walk
        .stages
        .get(walk.current + 1)
        .map_or("delivered".to_owned(), |s| format!("the stage {}", s.name));
    why.next = next;
    match walk.step {
        Step::Looking { deadline } => {
            let open: Vec<String> = stage
                .machines
                .iter()
                .filter(|(id, m)| m.verdict.is_none() && classes::is_awaited(walk, walk.current, id))
                .map(|(_, m)| {
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
            why.waits_for = format!("looks at {}: {}", open.join(", "), walk::summary(walk, stage));
            why.deadline = Some(deadline);
        }
        Step::Regard { deadline } => {
            why.waits_for = format!("a fresh look at all that passed before {} opens", why.next);
            why.deadline = Some(deadline);
        }
        Step::Open if let Some((_, budget)) = &stage.waits => {
            why.waits_for = format!("the budget of the stage {}: {budget}", stage.name);
            why.next =
                "it begins as they come back; at the end of its time it is held for a person".to_owned();
        }
        Step::Open if let Some(shut) = stage.shut.as_ref().filter(|shut| shut.waits) => {
            why.waits_for = format!("{}, then {} opens", shut.whose, stage.name);
            why.deadline = Some(shut.own_until.unwrap_or(shut.opens));
        }
        Step::Open | Step::Returning { .. } => {
            why.waits_for = format!(
                "the first report intervals after the reconciler's start, then {} opens",
                stage.name
            );
        }
    }
}

/// Explains one node: what it waits for, or what is waited for on it. `walking` is the delivery that moves, `owing` the one
/// that it follows to where it is left behind ([`Delivery::is_followed_by`]).
#[must_use]
pub fn why_node(
    node: &NodeView,
    walking: Option<&Delivery>,
    owing: Option<&Delivery>,
    now: Timestamp,
) -> Why {
    let mut why = Why {
        waits_for: String::new(),
        rule: "what is proven there stays; a declaration is the sum of what is assigned (DL-3)".to_owned(),
        next: "the next merged commit that changes it".to_owned(),
        deadline: None,
        command: None,
        as_of: now,
    };
    let walk = walking.and_then(|d| Some((d, d.walk.as_ref()?)));
    let mine = walk.and_then(|(d, w)| {
        let stage = w
            .stages
            .iter()
            .find(|s| s.machines.values().any(|m| m.name.as_str() == node.name))?;
        let machine = stage.machines.values().find(|m| m.name.as_str() == node.name)?;
        Some((d, stage, machine))
    });
    if let Some((delivery, stage, machine)) = mine {
        let stands = match &machine.verdict {
            Some(verdict) => format!("{}, {}", walk::word(verdict.word), verdict.reason),
            None if node.class != "required" => format!(
                "told and not awaited ({}), {}",
                node.class,
                walk::not_confirmed(machine)
            ),
            None if machine.last.is_empty() => "no look answered yet".to_owned(),
            None => format!(
                "{} of {} looks healthy; {}",
                machine.healthy, stage.times, machine.last
            ),
        };
        why.waits_for = format!(
            "{} in the stage {} of {}: {stands}",
            node.name, stage.name, delivery.name
        );
        why.rule = self::why(delivery, None, now).rule;
        why.next = self::why(delivery, None, now).next;
        why.command = Some(format!("meshplan deliveries why {}", delivery.commit.short()));
        return why;
    }
    match node.presence.as_str() {
        "invited" => {
            why.waits_for = format!("a machine to enrol as {}", node.name);
            why.next = "its admission is proposed, and merged by a person".to_owned();
            why.command = Some(format!("meshplan fleet invite {}", node.name));
        }
        "expected" => {
            why.waits_for = format!("{} to connect for the first time", node.name);
            why.next = "it gets the list, the epoch in force and its declaration".to_owned();
        }
        "away" => {
            let since = node
                .heard_at
                .map_or_else(|| "ever".to_owned(), |at| at.to_string());
            why.waits_for = format!("{} to come back; not heard from since {since}", node.name);
            why.next = "it gets what it has missed".to_owned();
        }
        _ => match walk.filter(|(d, _)| {
            d.legs
                .iter()
                .any(|l| l.nodes.keys().any(|id| id.to_string() == node.id))
        }) {
            Some((delivery, _)) => {
                why.waits_for = format!("its stage of {}: {}", delivery.name, delivery.reason);
                why.rule = self::why(delivery, None, now).rule;
                why.command = Some(format!("meshplan deliveries why {}", delivery.commit.short()));
            }
            None if node.declaration.starts_with("queued") => {
                why.waits_for = format!("{} to begin what it was given: {}", node.name, node.declaration);
                why.next = "it begins when its maintenance window opens".to_owned();
            }
            None if node.troubles.is_empty() && node.class.starts_with("left_behind") => {
                left_behind(node, owing, &mut why);
            }
            None if node.troubles.is_empty() => {
                why.waits_for = format!(
                    "nothing: {} runs sequence {} and epoch {}",
                    node.name, node.confirmed_sequence, node.running_epoch
                );
            }
            None => {
                why.waits_for = format!("somebody to look: {}", node.troubles.join("; "));
                why.next = "a commit that mends it".to_owned();
            }
        },
    }
    why
}

/// A node that is left behind waits for nobody, and nobody for it (UC-1).
fn left_behind(node: &NodeView, owing: Option<&Delivery>, why: &mut Why) {
    let runs = format!(
        "{} is left behind and runs sequence {} and epoch {}",
        node.name, node.confirmed_sequence, node.running_epoch
    );
    let entry = owing.and_then(|d| d.left_behind.values().find(|l| l.name.as_str() == node.name));
    let follows = entry.and_then(|entry| entry.follows);
    "its record says `update_class = \"left_behind\"`: in no stage, no gate and no deadline (UC-1)"
        .clone_into(&mut why.rule);
    match (owing, follows) {
        _ if node.class.ends_with("pinned") => {
            why.waits_for = format!("nothing: {runs}; it is pinned there");
            "a commit that takes `pinned` out of its record".clone_into(&mut why.next);
        }
        (Some(owing), Some(follows)) => {
            why.waits_for = format!("the end of its grace: {runs}");
            why.next = format!("it follows to {}", owing.name);
            why.deadline = Some(follows.at);
            why.command = Some(format!("meshplan deliveries show {}", owing.commit.short()));
        }
        _ => {
            why.waits_for = format!("nothing: {runs}");
            "it follows when a delivery that changes it is over, and its grace".clone_into(&mut why.next);
        }
    }
}
