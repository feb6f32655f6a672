//! What a node waits for, or what is waited for on it: of the delivery that holds it, among all that are open.

use jiff::Timestamp;
use meshplan_schemas::lifecycle::delivery::State;

use super::{Open, Why, why};
use crate::pure::decide::walk;
use crate::pure::delivery::{Delivery, MachineRun, StageRun};
use crate::pure::page::NodeView;

/// What the open deliveries have to do with one node.
struct Of<'a> {
    /// The walk in a stage of which it is.
    stage: Option<(&'a Delivery, &'a StageRun, &'a MachineRun)>,
    /// The one that takes its content back there; whether the node has the former content again.
    back: Option<(&'a Delivery, bool)>,
    /// The one that changes it and has not come to it.
    later: Option<&'a Delivery>,
    /// The one that changes it and has not begun.
    waiting: Option<&'a Delivery>,
    /// The one that it follows to where it is left behind ([`Delivery::is_followed_by`]).
    owing: Option<&'a Delivery>,
    /// The one that was taken back while it was away.
    outstanding: Option<&'a Delivery>,
}

impl<'a> Of<'a> {
    fn node(node: &NodeView, open: &'a Open) -> Self {
        let changes = |d: &Delivery| {
            let nodes = d.legs.iter().flat_map(|leg| leg.nodes.keys());
            nodes.into_iter().any(|id| id.to_string() == node.id)
        };
        let in_order = || {
            let mut all: Vec<&Delivery> = open.values().collect();
            all.sort_by_key(|d| d.order);
            all.into_iter()
        };
        let walks = || in_order().filter(|d| d.walks() || (d.state == State::Held && d.walk.is_some()));
        let staged = walks().filter_map(|d| {
            let stages = d.walk.as_ref()?.stages.iter().rev();
            stages.into_iter().find_map(|stage| {
                let machine = stage.machines.iter().find(|(id, _)| id.to_string() == node.id)?;
                Some((d, stage, machine.1))
            })
        });
        let back = walks().filter(|d| d.state == State::RollingBack).find_map(|d| {
            let reached = &d.walk.as_ref()?.reached;
            let reached = reached.iter().find(|(id, _)| id.to_string() == node.id)?;
            Some((d, reached.1.returned))
        });
        Self {
            // One that is not decided yet is where the node is now.
            stage: {
                let all: Vec<_> = staged.collect();
                let open = all.iter().find(|(.., machine)| machine.verdict.is_none());
                open.or_else(|| all.last()).copied()
            },
            back,
            later: walks().find(|d| d.state != State::RollingBack && changes(d)),
            waiting: in_order().find(|d| d.waits() && d.walk.is_none() && changes(d)),
            owing: in_order().find(|d| d.is_followed_by(&node.name)),
            outstanding: in_order().find(|d| {
                let mut names = d.walk.iter().flat_map(|walk| &walk.outstanding);
                d.is_outstanding() && names.any(|name| name.as_str() == node.name)
            }),
        }
    }
}

/// Explains one node: what it waits for, or what is waited for on it.
#[must_use]
pub fn why_node(node: &NodeView, open: &Open, now: Timestamp) -> Why {
    let mut answer = Why {
        waits_for: String::new(),
        rule: "what is proven there stays; a declaration is the sum of what is assigned (DL-3)".to_owned(),
        next: "the next merged commit that changes it".to_owned(),
        deadline: None,
        command: None,
        as_of: now,
    };
    let of = Of::node(node, open);
    if let Some((delivery, returned)) = of.back {
        let its = why(delivery, open, now);
        answer.waits_for = if returned {
            format!(
                "{} has the former content again; {} waits for {}",
                node.name, delivery.name, its.waits_for
            )
        } else {
            format!(
                "{} to take the former content again: {} is taken back",
                node.name, delivery.name
            )
        };
        (answer.rule, answer.next, answer.deadline) = (its.rule, its.next, its.deadline);
        answer.command = why_of(delivery);
        then(&mut answer, &of);
        return answer;
    }
    if let Some((delivery, stage, machine)) = of.stage {
        let its = why(delivery, open, now);
        let held = if delivery.state == State::Held || machine.verdict.is_some() {
            format!("; the delivery waits for {}", its.waits_for)
        } else {
            String::new()
        };
        answer.waits_for = format!(
            "{} in the stage {} of {}: {}{held}",
            node.name,
            stage.name,
            delivery.name,
            stands(node, stage, machine)
        );
        (answer.rule, answer.next, answer.deadline) = (its.rule, its.next, its.deadline);
        answer.command = why_of(delivery);
        then(&mut answer, &of);
        return answer;
    }
    match node.presence.as_str() {
        "invited" => {
            answer.waits_for = format!("a machine to enrol as {}", node.name);
            answer.next = "its admission is proposed, and merged by a person".to_owned();
            answer.command = Some(format!("meshplan fleet invite {}", node.name));
        }
        "expected" => {
            answer.waits_for = format!(
                "{} to connect: it was never heard, by what the database has",
                node.name
            );
            answer.next = "it gets the list, the epoch in force and its declaration".to_owned();
        }
        "away" => away(node, &of, &mut answer),
        _ if node.paused.is_some() => paused(node, &mut answer),
        _ => there(node, &of, open, &mut answer),
    }
    answer
}

fn why_of(delivery: &Delivery) -> Option<String> {
    Some(format!("meshplan deliveries why {}", delivery.commit.short()))
}

/// What comes to the node after the walk that it is in.
fn then(answer: &mut Why, of: &Of<'_>) {
    if let Some(waiting) = of.waiting {
        answer.next = format!(
            "{}; then {}, which changes it too and waits",
            answer.next, waiting.name
        );
    }
}

fn stands(node: &NodeView, stage: &StageRun, machine: &MachineRun) -> String {
    match &machine.verdict {
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
    }
}

fn away(node: &NodeView, of: &Of<'_>, answer: &mut Why) {
    let since = node
        .heard_at
        .map_or_else(|| "ever".to_owned(), |at| at.to_string());
    answer.waits_for = format!("{} to come back; not heard from since {since}", node.name);
    answer.next = match (of.outstanding, of.waiting.or(of.later)) {
        (Some(back), _) => format!(
            "it gets the former content of {}, and what it has missed",
            back.name
        ),
        (None, Some(delivery)) => format!(
            "it gets what it has missed; {}, which changes it, is {} ({})",
            delivery.name, delivery.state, delivery.code
        ),
        (None, None) => "it gets what it has missed".to_owned(),
    };
    answer.command = of.waiting.or(of.later).or(of.outstanding).and_then(why_of);
}

/// A node on which a person has paused everything.
fn paused(node: &NodeView, answer: &mut Why) {
    let words = node.paused.as_deref().unwrap_or_default();
    answer.waits_for = format!(
        "the end of the pause that a person made on {}: {words}",
        node.name
    );
    "a paused machine begins no order, and counts as absent; a day at most (HR-17)"
        .clone_into(&mut answer.rule);
    answer.next = "it begins the newest that it was given".to_owned();
    answer.command = Some(format!("meshplan-host resume, on {}", node.name));
}

/// A node that is connected, and in no stage.
fn there(node: &NodeView, of: &Of<'_>, open: &Open, answer: &mut Why) {
    let now = answer.as_of;
    if let Some(delivery) = of.later {
        let its = why(delivery, open, now);
        answer.waits_for = format!(
            "its stage of {}, which waits for {}",
            delivery.name, its.waits_for
        );
        (answer.rule, answer.next, answer.deadline) = (its.rule, its.next, its.deadline);
        then(answer, of);
        answer.command = why_of(delivery);
    } else if node.declaration.starts_with("queued") {
        answer.waits_for = format!("{} to begin what it was given: {}", node.name, node.declaration);
        answer.next = "it begins when its maintenance window opens".to_owned();
    } else if !node.troubles.is_empty() {
        answer.waits_for = format!("somebody to look: {}", node.troubles.join("; "));
        answer.next = "a commit that mends it".to_owned();
        answer.command = of.waiting.and_then(why_of);
    } else if let Some(delivery) = of.waiting {
        let its = why(delivery, open, now);
        answer.waits_for = format!(
            "{}, which changes it and is {}: {}",
            delivery.name, delivery.state, its.waits_for
        );
        (answer.rule, answer.next, answer.deadline) = (its.rule, its.next, its.deadline);
        answer.command = why_of(delivery);
    } else if node.class.starts_with("left_behind") {
        left_behind(node, of.owing, answer);
    } else {
        answer.waits_for = format!(
            "nothing: {} runs sequence {} and epoch {}",
            node.name, node.confirmed_sequence, node.running_epoch
        );
    }
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
