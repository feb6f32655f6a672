//! What the machine is told to do, done on its own thread, and what it says, in the agent's words.

use crate::edge::machine::{self, End, Machine, MachineError};
use crate::pure::agent::{Applied, ApplyEnd, Done, Job};
use crate::pure::confirm::Reason;

/// Does a job; nothing is said of one that nothing waits for, unless it failed.
pub(super) fn work(machine: &mut Machine, job: Job, now: i64) -> Option<Done> {
    match job {
        Job::Apply(kept) => {
            let applied = machine.apply(&kept.payload, kept.digest, now);
            Some(ended(machine, "apply", applied.map(words), now))
        }
        Job::ApplyPolicy {
            epoch,
            text,
            apply_secs,
        } => {
            let applied = machine.apply_policy(&text, epoch, apply_secs, now);
            Some(ended(machine, "apply the policy", applied.map(words), now))
        }
        Job::Repair(kept) => Some(match machine.repair(&kept.payload, now) {
            Ok(applied) => Done::Repaired(words(applied)),
            Err(e) => Done::Failed(format!("repair: {}", chain(&e))),
        }),
        Job::Strays(kept) => Some(Done::Strays(machine.strays(&kept.payload))),
        Job::Finish => Some(match machine.finish() {
            Ok(lines) => Done::Finished(lines),
            Err(e) => Done::Failed(format!("finish the way back: {}", chain(&e))),
        }),
        Job::Rebuild(kept, basis) => machine
            .rebuild(&kept.payload, kept.digest, basis)
            .err()
            .map(|e| Done::Noted(format!("rebuild the ledger: {}", chain(&e)))),
        Job::Arm(deadline) => machine
            .arm(deadline)
            .err()
            .map(|e| Done::Noted(format!("set the deadline: {}", chain(&e)))),
        Job::Confirm => Some(match machine.confirm(now) {
            Ok(_) => Done::Confirmed,
            // Somebody else was first, and there are two verdicts; no window is one that went back.
            Err(MachineError::Decided(_) | MachineError::NoWindow) => Done::Reverted(Vec::new()),
            Err(e) => Done::Failed(format!("confirm: {}", chain(&e))),
        }),
        Job::Revert(reason) => Some(match machine.revert(&reason, now) {
            Ok(lines) => Done::Reverted(lines),
            Err(MachineError::Decided(_)) => Done::Confirmed,
            Err(MachineError::NoWindow) => Done::Reverted(Vec::new()),
            Err(e) => Done::Failed(format!("revert: {}", chain(&e))),
        }),
    }
}

fn ended(machine: &mut Machine, what: &str, applied: Result<Applied, MachineError>, now: i64) -> Done {
    let done = match applied {
        Ok(applied) => Done::Applied(applied),
        Err(e) => {
            let why = format!("{what}: {}", chain(&e));
            // What was begun is not left half done; a start would take it back the same way.
            if machine.window().is_some()
                && let Err(e) = machine.revert(&Reason::Interrupted(why.clone()), now)
            {
                tracing::error!(error = %chain(&e), "what was begun could not be taken back yet");
            }
            Done::Failed(why)
        }
    };
    if !matches!(
        done,
        Done::Applied(Applied {
            end: ApplyEnd::Converged | ApplyEnd::Observed | ApplyEnd::WindowOpen,
            ..
        })
    ) {
        // So that the failure can be told though the disk is full (B40).
        machine.release_reserve();
    }
    done
}

fn words(applied: machine::Applied) -> Applied {
    Applied {
        end: match applied.end {
            End::Converged | End::Repaired => ApplyEnd::Converged,
            End::Observed => ApplyEnd::Observed,
            End::WindowOpen => ApplyEnd::WindowOpen,
            End::Reverted { reason } => ApplyEnd::Reverted(reason),
            End::NotBegun { why } => ApplyEnd::NotBegun(why),
        },
        lines: applied.lines,
        held: applied.held,
        failed: applied.failed,
    }
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.ends_with(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}
