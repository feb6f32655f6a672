//! A rollout in lines, as a terminal and a rehearsal show it: where it stands, what it waits for, the nodes worst first.

use std::collections::BTreeMap;

use jiff::Timestamp;
use meshplan_schemas::fleet_list::UpdateClass;

use super::archive::Summary;
use super::gate::ReleaseGate;
use super::push::PushState;
use super::{NodePush, Rollout, TimelineEvent};
use crate::pure::events::Numbered;

/// How times are written.
pub type Clock = fn(Timestamp) -> String;

/// The word of a class, as a record has it.
#[must_use]
pub fn class_word(class: UpdateClass) -> &'static str {
    match class {
        UpdateClass::Required => "required",
        UpdateClass::BestEffort => "best_effort",
        UpdateClass::LeftBehind => "left_behind",
    }
}

/// The whole status; of more than `shown` nodes the rest is counted.
#[must_use]
pub fn lines(rollout: &Rollout, shown: usize, clock: Clock) -> Vec<String> {
    let mut lines = head(rollout, clock);
    lines.extend(nodes(&rollout.nodes, shown));
    lines
}

/// What stands above the nodes.
#[must_use]
pub fn head(rollout: &Rollout, clock: Clock) -> Vec<String> {
    let mut lines = vec![
        format!("{}  {}", rollout.rollout_id, rollout.note),
        format!("{}: {}", rollout.phase.word(), rollout.reason),
        times(rollout, clock),
        epochs(rollout),
        counted(rollout),
    ];
    lines.extend(
        rollout
            .waits_for
            .as_ref()
            .map(|what| format!("waits for: {what}")),
    );
    let deadline = rollout.release_gate.deadline.filter(|_| !rollout.phase.is_over());
    lines.extend(deadline.map(|at| format!("watched until: {}", clock(at))));
    lines.extend(rollout.abort_cause.as_ref().map(|cause| {
        format!(
            "cause: {} ({}) {} in the {}: {}",
            cause.name, cause.node_id_short, cause.reason, cause.phase, cause.detail
        )
    }));
    lines
}

fn times(rollout: &Rollout, clock: Clock) -> String {
    let began = format!("began {}", clock(rollout.started_at));
    match rollout.finished_at {
        Some(at) => format!("{began}, ended {}", clock(at)),
        None => began,
    }
}

fn epochs(rollout: &Rollout) -> String {
    let mut parts = Vec::new();
    if let Some(epoch) = rollout.canary_epoch {
        let names = if rollout.canaries.is_empty() {
            String::new()
        } else {
            format!(" to {}", few(&rollout.canaries))
        };
        parts.push(format!("canary {epoch}{names}"));
    }
    match rollout.final_epoch {
        Some(epoch) => parts.push(format!("final {epoch}")),
        None if rollout.canary_epoch != Some(rollout.newest_epoch) => {
            parts.push(format!("newest {}", rollout.newest_epoch));
        }
        None => {}
    }
    format!("epochs: {}", parts.join(", "))
}

/// How much of the gate has confirmed, as a bar.
#[must_use]
pub fn bar(gate: &ReleaseGate) -> String {
    const WIDTH: u64 = 40;
    let (done, all) = (u64::from(gate.required_confirmed), u64::from(gate.required_total));
    let full = (done * WIDTH).checked_div(all).unwrap_or(WIDTH);
    let text: String = (0..WIDTH).map(|at| if at < full { '#' } else { '-' }).collect();
    format!("[{text}] {done}/{all}")
}

/// The gate in one line.
#[must_use]
pub fn counted(rollout: &Rollout) -> String {
    let gate = &rollout.release_gate;
    let mut text = format!(
        "required: {} of {} confirmed",
        gate.required_confirmed, gate.required_total
    );
    if gate.required_failed > 0 {
        text.push_str(&format!(", {} failed", gate.required_failed));
    }
    if gate.required_silent > 0 {
        text.push_str(&format!(", {} silent", gate.required_silent));
    }
    if !gate.holding.is_empty() {
        text.push_str(&format!("; still to confirm: {}", few(&gate.holding)));
    }
    if !gate.stragglers.is_empty() {
        text.push_str(&format!("; stragglers: {}", few(&gate.stragglers)));
    }
    text
}

/// A few names whole, of many the first few.
fn few(names: &[String]) -> String {
    const SHOWN: usize = 8;
    if names.len() <= SHOWN {
        return names.join(", ");
    }
    format!("{} and {} more", names[..SHOWN].join(", "), names.len() - SHOWN)
}

/// The nodes, a line each, class beside state.
#[must_use]
pub fn nodes(nodes: &[NodePush], shown: usize) -> Vec<String> {
    let width = nodes.iter().take(shown).map(|n| n.name.len()).max().unwrap_or(0);
    let mut lines: Vec<String> = nodes.iter().take(shown).map(|n| line(n, width)).collect();
    let mut rest: BTreeMap<PushState, usize> = BTreeMap::new();
    for node in nodes.iter().skip(shown) {
        *rest.entry(node.state).or_default() += 1;
    }
    if !rest.is_empty() {
        let rest: Vec<String> = rest.iter().map(|(s, n)| format!("{n} {}", s.word())).collect();
        lines.push(format!("  and {} more: {}", nodes.len() - shown, rest.join(", ")));
    }
    lines
}

fn line(node: &NodePush, width: usize) -> String {
    let behind = match node.epochs_behind {
        Some(behind @ 1..) => format!("{behind} behind"),
        _ => String::new(),
    };
    let canary = if node.canary { "canary" } else { "" };
    let parts = [behind.as_str(), canary, node.detail.as_str()];
    let said: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
    let text = format!(
        "  {:<16} {:<11} {:<width$}  {}",
        node.state.word(),
        class_word(node.class),
        node.name,
        said.join(", ")
    );
    text.trim_end().to_owned()
}

/// A timeline, a line each.
#[must_use]
pub fn timeline(events: &[TimelineEvent], clock: Clock) -> Vec<String> {
    let line = |e: &TimelineEvent| {
        format!(
            "  {}  {}  epoch {} {} via {}",
            clock(e.at),
            e.node_id_short,
            e.epoch,
            e.state,
            e.via
        )
    };
    events.iter().map(line).collect()
}

/// An archive in one line.
#[must_use]
pub fn summary(summary: &Summary, clock: Clock) -> String {
    let epochs = match (summary.canary_epoch, summary.final_epoch) {
        (Some(canary), Some(last)) => format!("epochs {canary} to {last}"),
        (None, Some(last)) => format!("epoch {last}"),
        (Some(canary), None) => format!("epoch {canary}"),
        (None, None) => "no epoch".to_owned(),
    };
    let closed = if summary.closed {
        ""
    } else {
        ", not everywhere yet"
    };
    format!(
        "{}  {}  {}  {epochs}, {} nodes, {} events{closed}  {}",
        summary.rollout_id,
        summary.phase.word(),
        clock(summary.started_at),
        summary.nodes,
        summary.events,
        summary.note
    )
}

/// An event of the journal in one line.
#[must_use]
pub fn event(numbered: &Numbered, clock: Clock) -> String {
    let e = &numbered.event;
    let mut text = format!("{}  {}  {}", numbered.number, clock(e.at), e.event.word());
    for part in [&e.rollout_id, &e.node].into_iter().flatten() {
        text.push_str(&format!("  {part}"));
    }
    if let Some(epoch) = e.epoch {
        text.push_str(&format!("  epoch {epoch}"));
    }
    if let Some(deadline) = e.deadline {
        text.push_str(&format!("  until {}", clock(deadline)));
    }
    if let Some(actor) = &e.actor {
        text.push_str(&format!("  by {actor}"));
    }
    if !e.reason.is_empty() {
        text.push_str(&format!(": {}", e.reason));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(confirmed: u32, total: u32) -> ReleaseGate {
        ReleaseGate {
            required_total: total,
            required_confirmed: confirmed,
            ..ReleaseGate::default()
        }
    }

    #[test]
    fn the_bar_is_full_only_when_all_have_confirmed() {
        let full = |bar: &str| bar.matches('#').count();
        assert_eq!(full(&bar(&gate(0, 3))), 0);
        assert_eq!(
            bar(&gate(1, 2)),
            format!("[{}{}] 1/2", "#".repeat(20), "-".repeat(20))
        );
        assert_eq!(full(&bar(&gate(9_999, 10_000))), 39);
        assert_eq!(full(&bar(&gate(10_000, 10_000))), 40);
        assert_eq!(full(&bar(&gate(0, 0))), 40, "nobody is left to confirm");
    }

    // holds: RO-6
    #[test]
    fn a_line_has_the_class_beside_the_state_and_many_nodes_are_counted() {
        let node = |n: u32, state, class| NodePush {
            node_id_short: format!("{n:08x}"),
            name: format!("n{n}"),
            class,
            state,
            detail: "running epoch 7".to_owned(),
            epoch: Some(9),
            running: Some(7),
            epochs_behind: Some(2),
            canary: false,
            settled: true,
        };
        let all = [
            node(1, PushState::Failed, UpdateClass::Required),
            node(2, PushState::LeftBehind, UpdateClass::LeftBehind),
            node(3, PushState::Applied, UpdateClass::BestEffort),
            node(4, PushState::Applied, UpdateClass::Required),
        ];
        let lines = nodes(&all, 2);
        assert_eq!(
            lines[1],
            "  left_behind      left_behind n2  2 behind, running epoch 7"
        );
        assert_eq!(lines[2], "  and 2 more: 2 applied");
        assert_eq!(nodes(&all, usize::MAX).len(), 4);
    }
}
