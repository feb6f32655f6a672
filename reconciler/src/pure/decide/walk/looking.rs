//! The looks at the machines of a walk's stages, and what each says of its machine (DL-5, DL-13).

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::ident::NodeId;

use super::{in_words, link};
use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::look::{self, Seen};
use crate::pure::decide::{DecideError, after_secs, classes, orders, windows};
use crate::pure::delivery::{Delivery, MachineRun, StageRun, Verdict, VerdictWord};
use crate::pure::guard::{Guard, stands};

/// Looks at every machine of the stages so far that has no verdict.
pub(super) fn look_at_open(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Composed,
    deadline: Timestamp,
) -> Result<(), DecideError> {
    let open = delivery.walk.as_ref().map(classes::open_machines);
    let open = open.unwrap_or_default();
    let shut = windows::shut(draft, tree, open.iter().map(|(_, id)| *id));
    let links = link::said(draft, delivery, &open);
    for place in open {
        let opens = shut.get(&place.1).copied();
        let link = links.get(&place.0).copied();
        look_at(draft, delivery, tree, place, (deadline, opens, link))?;
    }
    Ok(())
}

fn look_at(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Composed,
    (stage, id): (usize, NodeId),
    (deadline, shut_until, link): (Timestamp, Option<Timestamp>, Option<link::Says>),
) -> Result<(), DecideError> {
    let now = draft.now();
    let heard = draft.known.snapshot.nodes.get(&id);
    let report = heard.and_then(|state| state.report.as_ref());
    let answer = heard.and_then(|state| state.look.as_ref());
    let walk = delivery.walk.as_ref();
    let awaited = walk.is_some_and(|walk| classes::is_awaited(walk, stage, &id));
    let Some(run) = stage_mut(delivery, stage) else {
        return Ok(());
    };
    let (times, every, within) = (run.times, run.every_secs, run.within_secs);
    let Some(machine) = run.machines.get_mut(&id) else {
        return Ok(());
    };

    let mut seen = answer.and_then(|report| look::take(machine, report, now));
    // A hard failure decides at once, in whatever report it stands.
    if let Some(report) = report
        && let hard @ (Seen::Broken(_) | Seen::Aside(_)) = look::judge(report, machine)
    {
        seen = Some(hard);
    }
    if let Some(Seen::Aside(why)) = &seen
        && report.and_then(|report| look::lost_link(report, machine)) == Some(true)
    {
        match link {
            Some(link::Says::Blames) => {
                seen = Some(Seen::Broken(format!("{why}; most others did not lose theirs")));
            }
            Some(link::Says::NotYet) => {
                machine.last.clone_from(why);
                seen = None;
            }
            Some(link::Says::Nothing) | None => {}
        }
    }
    match seen {
        Some(Seen::Broken(why)) => {
            machine.verdict = Some(Verdict {
                word: VerdictWord::Failed,
                reason: why,
            });
        }
        Some(Seen::Aside(why)) if !machine.ordered_again => {
            // Says nothing about the content: ordered again once, and the deadline decides (DL-13).
            machine.ordered_again = true;
            machine.last = why;
            let sent = orders::again(draft, delivery, tree, id)?;
            if let Some(machine) = stage_mut(delivery, stage).and_then(|s| s.machines.get_mut(&id)) {
                machine.sequence = machine.sequence.max(sent.sequence);
                machine.epoch = machine.epoch.max(sent.epoch);
            }
        }
        Some(Seen::Aside(why)) => machine.last = why,
        Some(Seen::Healthy) if machine.healthy >= times => {
            let over = machine
                .healthy_since
                .map_or(SignedDuration::ZERO, |since| now.duration_since(since))
                .max(SignedDuration::ZERO);
            let reason = match machine.healthy {
                1 => "healthy once".to_owned(),
                n => format!("healthy {n} times over {}", in_words(over)),
            };
            machine.verdict = Some(Verdict {
                word: VerdictWord::Passed,
                reason,
            });
        }
        _ => {}
    }
    let Some(machine) = stage_mut(delivery, stage).and_then(|s| s.machines.get_mut(&id)) else {
        return Ok(());
    };
    // Its own window is shut and it has not begun: it is not asked, and its time counts from when it opens (DL-17).
    let begun = report.is_some_and(|report| look::has_begun(report, machine));
    let waits = shut_until.filter(|_| !begun);
    if let Some(opens) = waits {
        machine.opens = Some(opens);
        machine.last = format!("its own maintenance window is shut until {opens}");
    }
    let deadline = machine
        .opens
        .map_or(deadline, |opens| deadline.max(after_secs(opens, within)));
    if awaited && machine.verdict.is_none() && now >= deadline && stands(Guard::Deadline) {
        machine.verdict = Some(at_deadline(machine));
    }
    // Who is not awaited and away is not asked: its return says the same.
    if machine.verdict.is_none() && (awaited || draft.known.snapshot.connected.contains(&id)) {
        let next = match waits {
            Some(opens) => opens,
            None => ask_in_turn(draft, machine, id, every),
        };
        draft.due(if awaited { next.min(deadline) } else { next });
    }
    Ok(())
}

fn stage_mut(delivery: &mut Delivery, stage: usize) -> Option<&mut StageRun> {
    delivery.walk.as_mut()?.stages.get_mut(stage)
}

/// At the deadline: failed when the last look saw "no", else silent, for "cannot tell" is not "no" (DL-13).
fn at_deadline(machine: &MachineRun) -> Verdict {
    let last = if machine.last.is_empty() {
        "no look was answered"
    } else {
        &machine.last
    };
    if machine.unhealthy {
        return Verdict {
            word: VerdictWord::Failed,
            reason: format!("did not become healthy: {last}"),
        };
    }
    let reason = match machine.healthy {
        0 => last.to_owned(),
        n => format!("healthy {n} times, then not heard from until the time was over"),
    };
    Verdict {
        word: VerdictWord::Silent,
        reason,
    }
}

/// Asks for a look when the last one is long enough ago; when the next is due.
pub(super) fn ask_in_turn(
    draft: &mut Draft<'_>,
    machine: &mut MachineRun,
    id: NodeId,
    every_secs: u32,
) -> Timestamp {
    let now = draft.now();
    // One that was asked in the future was asked by a clock that was set back since.
    let asked = machine.asked.filter(|(_, at)| *at <= now);
    let due = asked.map_or(now, |(_, at)| after_secs(at, every_secs));
    if due > now {
        return due;
    }
    machine.asked = Some((draft.ask(id), now));
    after_secs(now, every_secs)
}
