//! Opening, and what a start does with what it finds: before anything else (EP-2, HR-13).

use std::collections::BTreeMap;

use super::guard::Guard;
use super::verdict::Barred;
use super::{Due, LedgerState, Machine, MachineError, Order, Recovered, Recovery, Setup};
use crate::edge::disk::atomic;
use crate::edge::ledger::{self, json};
use crate::edge::window;
use crate::pure::commit_confirm::{AtStart, Verdict, at_start};
use crate::pure::confirm::Reason;
use crate::pure::target::Target;

impl Machine {
    /// Opens it for work and finishes what a crash left: must be called before anything else touches the state
    /// folder, with the lock held.
    ///
    /// # Errors
    /// The disk.
    pub fn open(setup: Setup, now: i64) -> Result<(Self, Recovery), MachineError> {
        let mut machine = Self {
            setup,
            ledger: LedgerState::Fresh,
            window: None,
            due: Due::Nothing,
            look_only: false,
            time: None,
            abilities: Vec::new(),
            keys: Vec::new(),
            repairs: BTreeMap::new(),
            guard: Guard::default(),
        };
        window::clear_beside(machine.state())?;
        machine.ledger = ledger::read(machine.state())?;
        let window = machine.recover(now)?;
        let found = machine.ledger.clone();
        if machine.ledger == LedgerState::Fresh {
            // So that a later loss is told apart from a beginning.
            let empty = machine.book();
            ledger::write(machine.state(), &json(&empty))?;
            machine.ledger = LedgerState::Known(Box::new(empty));
        }
        machine.clear_targets();
        let taken_back = window::taken_back(machine.state())?;
        Ok((
            machine,
            Recovery {
                window,
                ledger: found,
                taken_back,
            },
        ))
    }

    /// Opens it to look only ([`Machine::plan`], [`Machine::held`], [`Machine::ledger`], [`Machine::window`]):
    /// recovers nothing, writes nothing, needs no lock.
    ///
    /// # Errors
    /// The disk.
    pub fn look(setup: Setup) -> Result<Self, MachineError> {
        let ledger = ledger::read(&*setup.state)?;
        let standing = window::standing(&*setup.state)?;
        let window = standing
            .filter(|s| s.verdict == crate::pure::commit_confirm::FoundVerdict::None)
            .and_then(|s| s.window);
        Ok(Self {
            setup,
            ledger,
            window,
            due: Due::Nothing,
            look_only: true,
            time: None,
            abilities: Vec::new(),
            keys: Vec::new(),
            repairs: BTreeMap::new(),
            guard: Guard::default(),
        })
    }

    fn recover(&mut self, now: i64) -> Result<Recovered, MachineError> {
        let Some(standing) = window::standing(self.state())? else {
            return Ok(Recovered::Clean);
        };
        let order = standing.window.as_ref().map(|w| w.order.clone());
        match (at_start(&standing, &self.setup.boot_id), standing.window) {
            (AtStart::Wait, Some(window)) => {
                self.window = Some(window.clone());
                Ok(Recovered::StillOpen(window))
            }
            (AtStart::FinishConfirm, _) => {
                self.settle()?;
                Ok(match order {
                    Some(order) => Recovered::FinishedConfirm(order),
                    None => Recovered::Clean,
                })
            }
            (AtStart::FinishRevert { reason }, _) => {
                let lines = self.walk_back(Barred::Stay)?;
                Ok(match order {
                    Some(order) => Recovered::FinishedRevert { order, reason, lines },
                    None => Recovered::Reverted {
                        order: None,
                        reason,
                        lines,
                    },
                })
            }
            (AtStart::Revert { reason }, _) => self.revert_at_start(order, reason, now),
            (AtStart::Wait, None) => {
                let reason = Reason::Interrupted("the window's file is gone".to_owned());
                self.revert_at_start(None, reason, now)
            }
        }
    }

    fn revert_at_start(
        &mut self,
        order: Option<Order>,
        reason: Reason,
        now: i64,
    ) -> Result<Recovered, MachineError> {
        let verdict = Verdict::reverted(&reason, now);
        self.with_reserve(|state| window::decide(state, &verdict))?;
        let lines = self.walk_back(Barred::Stay)?;
        Ok(Recovered::Reverted { order, reason, lines })
    }

    /// Removes what a cut left beside targets: drift is put right without a window.
    fn clear_targets(&self) {
        let book = self.book();
        let targets = book.records.values().filter_map(|record| record.target.as_ref());
        for target in targets.filter_map(Target::path) {
            if let Err(e) = atomic::clear_beside(self.root(), target) {
                tracing::warn!(%target, error = %e, "cannot look for what a crash left beside a target");
            }
        }
    }
}
