//! Arm, confirm, revert: the end of a window (HR-13).

use std::collections::BTreeMap;

use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::report::{Outcome, ResourceLine};

use super::{Due, LedgerState, Machine, MachineError, Order, WindowState, room};
use crate::edge::disk::{Disk, DiskError};
use crate::edge::failpoint::cut;
use crate::edge::ledger::{self, json};
use crate::edge::window;
use crate::pure::commit_confirm::{FoundVerdict, Verdict};
use crate::pure::confirm::Reason;
use crate::pure::outcome::line;

/// What happens with a window whose way back is barred somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Barred {
    /// It stays, decided, and is tried again.
    Stay,
    /// It is set aside for a person to look at: what could not be put back is drift from now on.
    GiveUp,
}

impl Machine {
    /// Sets the confirm deadline of the open window, once; the window awaits its confirm from here on.
    ///
    /// # Errors
    /// No window; the disk.
    pub fn arm(&mut self, confirm_deadline: i64) -> Result<(), MachineError> {
        let mut window = self.window.clone().ok_or(MachineError::NoWindow)?;
        if window.confirm_deadline.is_some() {
            return Ok(());
        }
        window.confirm_deadline = Some(confirm_deadline);
        window.state = WindowState::AwaitingConfirm;
        self.with_reserve(|state| window::update(state, &window))?;
        self.guard(&window, confirm_deadline);
        self.window = Some(window);
        Ok(())
    }

    /// Decides the open window: what was done stays.
    ///
    /// # Errors
    /// No window; it was decided otherwise; the disk.
    pub fn confirm(&mut self, now: i64) -> Result<Order, MachineError> {
        // Confirmed before, and the clean-up failed then: a confirm is a confirm.
        if let Due::Settle(order) = self.due.clone() {
            self.settle()?;
            return Ok(order);
        }
        let order = self.window.clone().ok_or(MachineError::NoWindow)?.order;
        match self.decide(&Verdict::confirmed(now)) {
            Err(MachineError::Decided(why)) => {
                (self.window, self.due) = (None, Due::WalkBack);
                self.walk_back(Barred::Stay)?;
                Err(MachineError::Decided(why))
            }
            Err(e) => Err(e),
            Ok(()) => {
                (self.window, self.due) = (None, Due::Settle(order.clone()));
                self.settle()?;
                Ok(order)
            }
        }
    }

    /// Decides the open window: everything goes back. A way back that is barred (a line is `failed`) is tried
    /// again by another call, by the next start, and by the next apply, which then gives up.
    ///
    /// # Errors
    /// No window; it was decided otherwise; the disk.
    pub fn revert(&mut self, reason: &Reason, now: i64) -> Result<Vec<ResourceLine>, MachineError> {
        if self.look_only {
            return Err(MachineError::LookOnly);
        }
        if let Due::Settle(order) = self.due.clone() {
            self.settle()?;
            return Err(MachineError::Decided(format!("{order} was confirmed")));
        }
        if let Some(window) = self.window.clone() {
            match self.decide(&Verdict::reverted(reason, now)) {
                Err(MachineError::Decided(why)) => {
                    (self.window, self.due) = (None, Due::Settle(window.order));
                    self.settle()?;
                    return Err(MachineError::Decided(why));
                }
                decided => decided?,
            }
            (self.window, self.due) = (None, Due::WalkBack);
        }
        if self.due != Due::WalkBack {
            return Err(MachineError::NoWindow);
        }
        self.walk_back(Barred::Stay)
    }

    /// Does what is still due about a window that was decided, and begins nothing: what is not back yet. None where nothing
    /// was due to go back.
    ///
    /// # Errors
    /// A window is open; the disk.
    pub fn finish(&mut self) -> Result<Option<Vec<ResourceLine>>, MachineError> {
        let is_owed = matches!(self.due, Due::Revert { .. } | Due::WalkBack);
        let lines = self.ready(Barred::Stay)?;
        let not_back = lines.into_iter().filter(|line| line.outcome == Outcome::Failed);
        Ok(is_owed.then(|| not_back.collect()))
    }

    /// Makes the verdict, or finds that the same one was made.
    fn decide(&self, verdict: &Verdict) -> Result<(), MachineError> {
        if self.look_only {
            return Err(MachineError::LookOnly);
        }
        match self.with_reserve(|state| window::decide(state, verdict)) {
            Ok(()) => {
                cut("host::verdict::given");
                Ok(())
            }
            Err(e) if e.is_exists() => match window::standing(self.state())?.map(|s| s.verdict) {
                Some(FoundVerdict::Given(first)) if first.decided == verdict.decided => Ok(()),
                Some(FoundVerdict::Given(first)) => Err(MachineError::Decided(first.why)),
                _ => Err(e.into()),
            },
            Err(e) => Err(e.into()),
        }
    }

    /// Finishes what was confirmed: the ledger, then the window goes.
    pub(super) fn settle(&mut self) -> Result<(), MachineError> {
        let journal = window::journal(self.state())?;
        let acts = || {
            journal
                .iter()
                .flat_map(|j| &j.acts)
                .map(|entry| (&entry.target, &entry.act))
        };
        // What is confirmed stays confirmed, though something of the former trees stays as well.
        if let Err(error) = self.forget_former_trees(acts()) {
            tracing::warn!(%error, "a former tree stays beside the new one");
        }
        if let Some(bytes) = window::kept_ledger(self.state())? {
            if let LedgerState::Known(mut next) = ledger::parse(&bytes) {
                if let Err(error) = self.tidy_around_trees(acts(), &mut next.made) {
                    tracing::info!(%error, "a folder that the host made stays");
                }
                self.with_reserve(|state| ledger::write(state, &json(&next)))?;
                self.ledger = LedgerState::Known(next);
            } else {
                tracing::error!("the window's ledger cannot be read; the former one stands");
            }
        }
        window::close(self.state())?;
        self.stand_down();
        self.due = Due::Nothing;
        self.clear_leavings();
        Ok(())
    }

    /// Walks the way back and closes the window.
    pub(super) fn walk_back(&mut self, barred: Barred) -> Result<Vec<ResourceLine>, MachineError> {
        room::release(self.state());
        let Some(journal) = window::journal(self.state())? else {
            // Without a way back the machine is neither old nor new as far as anybody knows.
            tracing::error!("the undo journal cannot be read; the window is set aside as window.broken");
            self.note_taken_back();
            window::set_aside(self.state())?;
            self.stand_down();
            self.due = Due::Nothing;
            self.ledger = LedgerState::Unknown {
                why: "the undo journal cannot be read".to_owned(),
            };
            return Ok(Vec::new());
        };
        let undone = window::undo::walk(self.reach(), self.state(), &journal);
        let mut lines: BTreeMap<ResourceName, ResourceLine> = BTreeMap::new();
        let mut faults = false;
        for undone in undone {
            if let Some(fault) = &undone.fault {
                faults = true;
                tracing::error!(target = %undone.target, error = %fault, "cannot be put back");
            }
            let Some(name) = undone.name else { continue };
            let new = match undone.fault {
                Some(fault) => line(
                    &name,
                    Outcome::Failed,
                    format!("cannot be put back: {fault}"),
                    None,
                ),
                None => line(
                    &name,
                    Outcome::Reverted,
                    format!("{} is as it was before", undone.target),
                    None,
                ),
            };
            let worse = new.outcome == Outcome::Failed;
            let entry = lines.entry(name).or_insert_with(|| new.clone());
            if worse {
                *entry = new;
            }
        }
        for stays in self.leave_forward()? {
            faults |= stays.outcome == Outcome::Failed;
            lines.entry(stays.name.clone()).or_insert(stays);
        }
        self.due = Due::WalkBack;
        self.note_taken_back();
        // What is barred for a host that lives is barred for the launcher as well.
        self.stand_down();
        match barred {
            _ if !faults => {
                let acts = journal.acts.iter();
                let acts = acts.map(|entry| (&entry.target, &entry.act));
                if let Err(error) = self.forget_former_trees(acts) {
                    tracing::warn!(%error, "what was made of a tree stays beside it");
                }
                window::close(self.state())?;
            }
            Barred::Stay => return Ok(lines.into_values().collect()),
            Barred::GiveUp => window::set_aside(self.state())?,
        }
        self.due = Due::Nothing;
        Ok(lines.into_values().collect())
    }

    /// So that a start that finds the window closed, and nothing written by the agent, does not begin it again.
    fn note_taken_back(&self) {
        if let Err(error) = self.with_reserve(window::note_taken_back) {
            tracing::warn!(%error, "what was taken back cannot be noted");
        }
    }

    /// Does it; once more with the reserve given back when there is no room.
    pub(super) fn with_reserve<T>(
        &self,
        act: impl Fn(&dyn Disk) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        match act(self.state()) {
            Err(e) if e.is_no_room() => {
                room::release(self.state());
                act(self.state())
            }
            other => other,
        }
    }
}
