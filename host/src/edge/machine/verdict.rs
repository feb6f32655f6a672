//! Arm, confirm, revert: the end of a window (HR-13).

use std::collections::BTreeMap;

use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::report::{Outcome, ResourceLine};

use super::{LedgerState, Machine, MachineError, Order, WindowState, room};
use crate::edge::disk::{Disk, DiskError};
use crate::edge::failpoint::cut;
use crate::edge::ledger;
use crate::edge::window;
use crate::pure::commit_confirm::{Decided, FoundVerdict, Verdict, WINDOW_VERSION};
use crate::pure::outcome::line;

/// What happens with a window whose way back is barred somewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Barred {
    /// It stays, decided, and is tried again.
    Stay,
    /// It is closed: what could not be put back is drift from now on.
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
        self.window = Some(window);
        Ok(())
    }

    /// Decides the open window: what was done stays.
    ///
    /// # Errors
    /// No window; it was decided otherwise; the disk.
    pub fn confirm(&mut self, now: i64) -> Result<Order, MachineError> {
        let window = self.window.clone().ok_or(MachineError::NoWindow)?;
        self.decide(Decided::Confirmed, "", now)?;
        self.window = None;
        self.settle()?;
        Ok(window.order)
    }

    /// Decides the open window: everything goes back. A way back that is barred (a line is `failed`) is tried
    /// again by another call, by the next start, and by the next apply, which then gives up.
    ///
    /// # Errors
    /// No window; it was decided otherwise; the disk.
    pub fn revert(&mut self, why: &str, now: i64) -> Result<Vec<ResourceLine>, MachineError> {
        if self.look_only {
            return Err(MachineError::LookOnly);
        }
        if self.window.is_none() && !self.unfinished {
            return Err(MachineError::NoWindow);
        }
        if self.window.is_some() {
            self.decide(Decided::Reverted, why, now)?;
            self.window = None;
            self.unfinished = true;
        }
        self.walk_back(Barred::Stay)
    }

    /// Makes the verdict, or finds that the same one was made.
    fn decide(&self, decided: Decided, why: &str, now: i64) -> Result<(), MachineError> {
        if self.look_only {
            return Err(MachineError::LookOnly);
        }
        let verdict = Verdict {
            version: WINDOW_VERSION,
            decided,
            why: why.to_owned(),
            at: now,
        };
        match self.with_reserve(|state| window::decide(state, &verdict)) {
            Ok(()) => {
                cut("host::verdict::given");
                Ok(())
            }
            Err(e) if e.is_exists() => match window::standing(self.state())?.map(|s| s.verdict) {
                Some(FoundVerdict::Given(first)) if first.decided == decided => Ok(()),
                Some(FoundVerdict::Given(first)) => Err(MachineError::Decided(first.why)),
                _ => Err(e.into()),
            },
            Err(e) => Err(e.into()),
        }
    }

    /// Finishes what was confirmed: the ledger, then the window goes.
    pub(super) fn settle(&mut self) -> Result<(), MachineError> {
        if let Some(bytes) = window::kept_ledger(self.state())? {
            if let LedgerState::Known(_) = ledger::parse(&bytes) {
                self.with_reserve(|state| ledger::write(state, &bytes))?;
                self.ledger = ledger::parse(&bytes);
            } else {
                tracing::error!("the window's ledger cannot be read; the former one stands");
            }
        }
        window::close(self.state())?;
        Ok(())
    }

    /// Walks the way back and closes the window.
    pub(super) fn walk_back(&mut self, barred: Barred) -> Result<Vec<ResourceLine>, MachineError> {
        room::release(self.state());
        let Some(journal) = window::journal(self.state())? else {
            // Without a way back the machine is neither old nor new as far as anybody knows.
            tracing::error!("the undo journal cannot be read; the window is set aside as window.broken");
            window::set_aside(self.state())?;
            self.unfinished = false;
            self.ledger = LedgerState::Unknown {
                why: "the undo journal cannot be read".to_owned(),
            };
            return Ok(Vec::new());
        };
        let undone = window::undo::walk(self.root(), self.state(), &journal);
        let mut lines: BTreeMap<ResourceName, ResourceLine> = BTreeMap::new();
        let mut faults = false;
        for undone in undone {
            if let Some(fault) = &undone.fault {
                faults = true;
                tracing::error!(path = %undone.path, error = %fault, "cannot be put back");
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
                    format!("{} is as it was before", undone.path),
                    None,
                ),
            };
            let worse = new.outcome == Outcome::Failed;
            let entry = lines.entry(name).or_insert_with(|| new.clone());
            if worse {
                *entry = new;
            }
        }
        self.unfinished = faults;
        if !faults || barred == Barred::GiveUp {
            window::close(self.state())?;
            self.unfinished = false;
        }
        Ok(lines.into_values().collect())
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
