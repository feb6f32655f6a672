//! What a report says of one machine (DL-5, DL-13).

use jiff::Timestamp;
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::{
    Cause, DeclarationState, Health, NO_BLAME, Outcome, Paused, Report, is_without_blame,
};

use crate::pure::delivery::MachineRun;
use crate::pure::guard::{Guard, stands};

/// The first of the words: the one that may be the content's doing all the same.
const NO_LINK: &str = NO_BLAME[0];

/// What a report says. "Cannot tell" is not "no".
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// It has the content, and its probes pass.
    Healthy,
    /// Not healthy now; a later look may see another thing.
    Unhealthy(String),
    /// The content did not stay: decided.
    Broken(String),
    /// Says nothing about the content.
    Unknown(String),
    /// It went back for a reason of its own (link, power, room): says nothing about the content.
    Aside(String),
}

/// Judges a report beside what the machine was sent.
#[must_use]
pub fn judge(report: &Report, machine: &MachineRun) -> Seen {
    match judged(report, machine) {
        Seen::Healthy => Seen::Healthy,
        Seen::Unhealthy(why) => Seen::Unhealthy(cut(&why)),
        Seen::Broken(why) => Seen::Broken(cut(&why)),
        Seen::Unknown(why) => Seen::Unknown(cut(&why)),
        Seen::Aside(why) => Seen::Aside(cut(&why)),
    }
}

/// A host's words as they go into transitions and notes: one line, and no longer than a person reads.
#[must_use]
pub fn cut(words: &str) -> String {
    const LONGEST: usize = 400;
    let line: String = words
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(LONGEST)
        .collect();
    if words.chars().nth(LONGEST).is_some() {
        format!("{line} ...")
    } else {
        line
    }
}

/// A pause on a machine, in words (HR-17).
#[must_use]
pub fn pause(paused: &Paused) -> String {
    let until =
        Timestamp::from_second(paused.until).map_or_else(|_| paused.until.to_string(), |at| at.to_string());
    cut(&format!("until {until}: {}", paused.why))
}

fn judged(report: &Report, machine: &MachineRun) -> Seen {
    match (order(report, machine), &report.paused) {
        // What it does not begin says nothing about the content; said is why.
        (Seen::Unknown(_), Some(paused)) if !has_begun(report, machine) => {
            Seen::Unknown(format!("is paused on the machine {}", pause(paused)))
        }
        (Seen::Healthy, _) => health(report, machine),
        (other, _) => other,
    }
}

/// How it stands with what it was sent.
fn order(report: &Report, machine: &MachineRun) -> Seen {
    for part in [
        declaration(report, machine.sequence),
        epoch(report, machine.epoch),
    ] {
        if part != Seen::Healthy {
            return part;
        }
    }
    Seen::Healthy
}

/// How the machine is that has what it was sent.
fn health(report: &Report, machine: &MachineRun) -> Seen {
    let bad = |outcome| matches!(outcome, Outcome::Failed | Outcome::Refused);
    if let Some(line) = report.resources.iter().find(|line| bad(line.outcome)) {
        return Seen::Broken(format!("{} failed: {}", line.name, line.reason));
    }
    if let Some(before) = machine.restarts.filter(|before| *before != report.restarts) {
        return Seen::Unhealthy(format!("restarts went from {before} to {}", report.restarts));
    }
    if let Some(probe) = report.probes.iter().find(|p| p.health == Health::Unhealthy) {
        return Seen::Unhealthy(format!("the probe {} says no: {}", probe.name, probe.reason));
    }
    if let Some(probe) = report.probes.iter().find(|p| p.health == Health::Unknown) {
        return Seen::Unknown(format!("the probe {} cannot tell: {}", probe.name, probe.reason));
    }
    Seen::Healthy
}

/// Whether the machine has begun what it was sent: it has it, and does not keep it for a window that is shut.
#[must_use]
pub fn has_begun(report: &Report, machine: &MachineRun) -> bool {
    let declaration = machine.sequence == 0
        || report
            .declaration
            .as_ref()
            .is_some_and(|s| s.sequence >= machine.sequence && s.state != DeclarationState::Queued);
    let epoch = machine.epoch == 0
        || report
            .epoch
            .as_ref()
            .is_some_and(|s| s.state_epoch >= machine.epoch && s.state != EpochState::Received);
    declaration && epoch
}

/// Whether a machine lost its link over what it was sent, and went back for that; none while it has not said how it went.
#[must_use]
pub fn lost_link(report: &Report, machine: &MachineRun) -> Option<bool> {
    let of_link = |reason: &str| reason.starts_with(NO_LINK);
    let declaration = declaration(report, machine.sequence);
    let epoch = epoch(report, machine.epoch);
    let reason = |seen: &Seen, reason: Option<&String>| {
        matches!(seen, Seen::Aside(_)) && reason.is_some_and(|reason| of_link(reason))
    };
    let lost = reason(&declaration, report.declaration.as_ref().map(|s| &s.reason))
        || reason(&epoch, report.epoch.as_ref().map(|s| &s.reason));
    match (declaration, epoch) {
        _ if lost => Some(true),
        (Seen::Healthy, Seen::Healthy) | (Seen::Broken(_), _) | (_, Seen::Broken(_)) => Some(false),
        _ => None,
    }
}

/// The declaration that a node took back for a reason which says nothing about its content (DL-13).
#[must_use]
pub fn went_aside(report: &Report) -> Option<u64> {
    let status = report.declaration.as_ref()?;
    let aside = status.state == DeclarationState::Reverted && is_without_blame(&status.reason);
    aside.then_some(status.sequence)
}

/// The epoch that a node took back for a reason which says nothing about its policy (DL-13).
#[must_use]
pub fn epoch_went_aside(report: &Report) -> Option<u64> {
    let status = report.epoch.as_ref()?;
    let aside = status.state == EpochState::Reverted && is_without_blame(&status.reason);
    aside.then_some(status.state_epoch)
}

/// How the node stands with an order of this sequence; healthy where it was sent none.
#[must_use]
pub fn declaration(report: &Report, sequence: u64) -> Seen {
    if sequence == 0 {
        return Seen::Healthy;
    }
    let refused = report
        .refused
        .iter()
        .find(|r| r.order == "declaration" && r.number == Some(sequence));
    if let Some(refused) = refused {
        return Seen::Broken(format!("refused the declaration: {}", refused.reason));
    }
    let Some(status) = &report.declaration else {
        return Seen::Unknown("has no declaration yet".to_owned());
    };
    if status.sequence < sequence && stands(Guard::OwnOrder) {
        return Seen::Unknown(format!("is still at sequence {}", status.sequence));
    }
    match status.state {
        DeclarationState::Confirmed if status.confirmed_sequence >= sequence || !stands(Guard::OwnOrder) => {
            Seen::Healthy
        }
        DeclarationState::Confirmed => {
            Seen::Unknown(format!("confirmed sequence {}", status.confirmed_sequence))
        }
        DeclarationState::Queued => Seen::Unknown("has queued the declaration".to_owned()),
        DeclarationState::Applying => Seen::Unknown("is applying".to_owned()),
        DeclarationState::AwaitingConfirm => Seen::Unknown("awaits its confirm".to_owned()),
        DeclarationState::Reverted if is_without_blame(&status.reason) => {
            Seen::Aside(format!("went back: {}", status.reason))
        }
        DeclarationState::Reverted => Seen::Broken(format!("reverted: {}", status.reason)),
        DeclarationState::Failed => Seen::Broken(format!("failed: {}", status.reason)),
        DeclarationState::KnownBad => Seen::Broken(format!("known-bad there: {}", status.reason)),
    }
}

/// How the node stands with this epoch; healthy where it was sent none.
#[must_use]
pub fn epoch(report: &Report, number: u64) -> Seen {
    if number == 0 {
        return Seen::Healthy;
    }
    let Some(status) = &report.epoch else {
        return Seen::Unknown("has no epoch yet".to_owned());
    };
    if status.state_epoch < number {
        return Seen::Unknown(format!("is still at epoch {}", status.state_epoch));
    }
    // A status about another epoch never counts for or against this one (EP-1), but that a newer one runs.
    match status.state {
        EpochState::Applied => Seen::Healthy,
        EpochState::Received | EpochState::Staged => Seen::Unknown("has received the epoch".to_owned()),
        EpochState::AwaitingConfirm => Seen::Unknown("awaits the epoch's confirm".to_owned()),
        EpochState::LeftBehind => Seen::Unknown("is left behind".to_owned()),
        EpochState::Reverted if is_without_blame(&status.reason) => {
            Seen::Aside(format!("went back: {}", status.reason))
        }
        EpochState::Reverted if status.state_epoch == number => {
            Seen::Broken(format!("reverted the epoch: {}", status.reason))
        }
        EpochState::Rejected if status.state_epoch == number => {
            Seen::Broken(format!("rejected the epoch: {}", status.reason))
        }
        EpochState::Reverted | EpochState::Rejected => {
            Seen::Unknown(format!("speaks of epoch {}", status.state_epoch))
        }
    }
}

/// Takes an answered look into the machine's count; what was seen, when the look was not judged before.
///
/// Only the answer to a look that was asked counts (DL-5): it was made after the order, and each counts once.
pub fn take(machine: &mut MachineRun, report: &Report, now: Timestamp) -> Option<Seen> {
    let Cause::Look(id) = report.cause else {
        return None;
    };
    let asked = machine.asked.is_some_and(|(asked, _)| id <= asked);
    if !asked || id <= machine.judged {
        return None;
    }
    machine.judged = id;
    let seen = judge(report, machine);
    machine.unhealthy = matches!(seen, Seen::Unhealthy(_) | Seen::Broken(_));
    match &seen {
        Seen::Healthy => {
            machine.healthy += 1;
            machine.restarts.get_or_insert(report.restarts);
            machine.healthy_since.get_or_insert(now);
            "healthy".clone_into(&mut machine.last);
        }
        Seen::Unhealthy(why) | Seen::Broken(why) | Seen::Unknown(why) | Seen::Aside(why) => {
            machine.healthy = 0;
            machine.healthy_since = None;
            machine.restarts = Some(report.restarts);
            machine.last.clone_from(why);
        }
    }
    Some(seen)
}
