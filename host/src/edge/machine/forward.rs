//! The end of a window for what goes only forward: it stays, the ledger knows it, the report says so (DL-7, HR-5).

use meshplan_schemas::report::{Outcome, ResourceLine};

use super::{LedgerState, Machine, MachineError};
use crate::edge::disk::atomic;
use crate::edge::ledger::{self, json};
use crate::edge::observe::observe;
use crate::edge::window;
use crate::kinds;
use crate::pure::forward::ForwardStep;
use crate::pure::observed::Observed;
use crate::pure::outcome::line;
use crate::pure::record::Ledger;

impl Machine {
    /// Leaves what has gone forward in the open window, and has the ledger know it. What was not begun is as before. May
    /// be done again after any cut.
    pub(super) fn leave_forward(&mut self) -> Result<Vec<ResourceLine>, MachineError> {
        let Some(forward) = window::kept_forward(self.state())? else {
            return Ok(Vec::new());
        };
        let mut book = self.book();
        let mut lines = Vec::new();
        for step in &forward.steps {
            lines.push(self.leave(step, &mut book));
        }
        for folder in &forward.folders {
            match observe(self.root(), folder) {
                Observed::Directory { names, .. } if names.is_empty() => {
                    atomic::remove_folder(self.root(), folder)?;
                }
                Observed::Directory { .. } => {
                    book.made.insert(folder.clone());
                }
                _ => {}
            }
        }
        // A ledger that is lost is made anew from a declaration, and not from this.
        if matches!(&self.ledger, LedgerState::Known(former) if **former != book) {
            self.with_reserve(|state| ledger::write(state, &json(&book)))?;
            self.ledger = LedgerState::Known(Box::new(book));
        }
        Ok(lines)
    }

    fn leave(&self, step: &ForwardStep, book: &mut Ledger) -> ResourceLine {
        let ForwardStep { name, target, .. } = step;
        if let Some(path) = target.path()
            && let Err(error) = atomic::clear_beside(self.root(), path)
        {
            tracing::warn!(%path, %error, "cannot look for what a crash left beside a target");
        }
        let asked = step.record.as_ref().map(|record| record.asked);
        let there = kinds::state(target, self.reach());
        if let Observed::Unknown(why) | Observed::Other(why) = &there {
            // Neither forward nor back is known: the window stays, and this is asked again.
            return line(
                name,
                Outcome::Failed,
                format!("{target} cannot be looked at: {why}"),
                asked,
            );
        }
        let is_as_before = match &there {
            Observed::Absent => step.before.is_none(),
            there => there
                .thing()
                .is_some_and(|thing| step.before.as_ref() == Some(&thing)),
        };
        if is_as_before {
            return line(
                name,
                Outcome::Reverted,
                format!("{target} is as it was before"),
                asked,
            );
        }
        let what = match &step.record {
            Some(record) => {
                book.take_over(record.clone());
                book.leavings.extend(kinds::leaving(target));
                "stays as it is"
            }
            None => {
                book.forget(name, Some(target));
                book.leavings.extend(kinds::leaving_of_swept(target));
                "stays away"
            }
        };
        book.ahead.insert(name.clone());
        line(
            name,
            Outcome::Kept,
            format!("{target} {what}: it goes only forward"),
            asked,
        )
    }
}
