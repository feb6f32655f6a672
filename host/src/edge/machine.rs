//! The node's files as the agent sees them: what a declaration would change, changing it behind a window, going
//! back (HR-1 to HR-6, HR-13 to HR-15).
//!
//! | file | what |
//! | --- | --- |
//! | `machine/start.rs` | opening, and what a start does with what it finds |
//! | `machine/survey.rs` | looks at everything that a declaration and the ledger name, and has it planned |
//! | `machine/apply.rs` | a declaration behind a window |
//! | `machine/way_back.rs` | what is kept of everything that will be touched |
//! | `machine/sweep.rs` | what nothing declares any more |
//! | `machine/hand_over.rs` | what a process takes over from, once it is up |
//! | `machine/room.rs` | room for the whole change, before anything is touched |
//! | `machine/policy.rs` | the effective policy behind a window |
//! | `machine/verdict.rs` | arm, confirm, revert |
//! | `machine/guard.rs` | the dead man of the open window |
//! | `machine/leavings.rs` | what is fetched before, and what goes only after the confirm |
//! | `machine/strays.rs` | what runs beside the fleet and is nobody's here |
//! | `machine/repair.rs` | drift, and a ledger made anew |
//!
//! Blocking: call it from a thread that may wait. It reads no clock and opens no socket; `now` is unix seconds.
//! Invariant: one window at a time, and no target is touched outside of one but to put drift right.

mod apply;
mod forward;
mod guard;
mod hand_over;
mod leavings;
mod policy;
mod repair;
mod room;
mod start;
mod strays;
mod survey;
mod sweep;
mod verdict;
mod way_back;

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::report::{Outcome, ResourceLine};
use meshplan_schemas::session::LinkSecret;

use super::disk::{Disk, DiskError};
use super::engine::Engine;
pub use super::ledger::LedgerState;
use super::ledger::path_of;
use super::system::System;
pub use super::window::{Order, Window, WindowState};
use crate::kinds::Reach;
use crate::pure::commit_confirm::TakenBack;
use crate::pure::confirm::Reason;
use crate::pure::record::Ledger;
use crate::pure::target::{Sort, Target};
use crate::pure::target_path::TargetPath;

/// What a machine is opened with.
#[derive(Clone)]
pub struct Setup {
    /// The tree that declarations speak of: `/`, or what `--root` says.
    pub root: Arc<dyn Disk>,
    /// The machine beside its files.
    pub system: Arc<dyn System>,
    /// The state folder; its file `lock` is the agent's to hold ([`super::disk::StateLock`]).
    pub state: Arc<dyn Disk>,
    /// Where the state folder stands inside the root, when it does: no declaration may have a target there.
    pub state_inside: Option<TargetPath>,
    /// The kernel's boot id.
    pub boot_id: String,
    /// A second place for the effective policy, inside the root.
    pub policy_out: Option<TargetPath>,
}

/// What start-up found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// How it stood with a window.
    pub window: Recovered,
    /// How it stands with the ledger.
    pub ledger: LedgerState,
    /// The last window that went back, however long ago.
    pub taken_back: Option<TakenBack>,
}

/// How start-up found the window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// None was open.
    Clean,
    /// One was open under another boot id, or the host died while it applied: everything is back.
    Reverted {
        /// What the window was about; none when its file could not be read.
        order: Option<Order>,
        /// Why.
        reason: Reason,
        /// A line per resource (`reverted`, or `failed` where the way back is barred).
        lines: Vec<ResourceLine>,
    },
    /// One awaits its confirm under this boot id: go on waiting.
    StillOpen(Window),
    /// It was confirmed; only the clean-up was missing.
    FinishedConfirm(Order),
    /// It was reverted; the way back was finished.
    FinishedRevert {
        /// What the window was about.
        order: Order,
        /// Why it was reverted, as it was written then.
        reason: Reason,
        /// A line per resource.
        lines: Vec<ResourceLine>,
    },
}

/// One thing that a declaration would change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Whose.
    pub name: ResourceName,
    /// The kind's word.
    pub kind: String,
    /// What would come of it.
    pub outcome: Outcome,
    /// In words, with the count of lines lost and new.
    pub what: String,
    /// What would be restarted, reloaded or run.
    pub restarts: Vec<String>,
}

/// How an apply ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Nothing had to change; the declaration is the confirmed one now, without a window.
    Converged,
    /// `mode = "observe"`: nothing was changed.
    Observed,
    /// Done; call [`Machine::arm`], then [`Machine::confirm`] or [`Machine::revert`].
    WindowOpen,
    /// A resource failed and `on_failure` is `revert`: everything is back.
    Reverted {
        /// Why.
        reason: Reason,
    },
    /// [`Machine::repair`] put drift right.
    Repaired,
    /// Refused before anything was touched: no room, no order of the modules.
    NotBegun {
        /// Why.
        why: String,
    },
}

/// What came of an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// How it ended.
    pub end: End,
    /// A line per resource that is not `unchanged`.
    pub lines: Vec<ResourceLine>,
    /// What is held, by module and name (HR-8).
    pub held: Vec<ResourceLine>,
    /// A resource failed (with `on_failure = "keep"` the window is open all the same).
    pub failed: bool,
}

impl Applied {
    /// Nothing had to be written.
    #[must_use]
    pub fn converged(&self) -> bool {
        self.end == End::Converged
    }
    /// A window is open and must be armed.
    #[must_use]
    pub fn window_open(&self) -> bool {
        self.end == End::WindowOpen
    }
}

/// Why the machine could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A window is open: confirm or revert first.
    #[error("{0} is in its confirm window; it must be confirmed or reverted first")]
    WindowOpen(String),
    /// No window is open.
    #[error("no confirm window is open")]
    NoWindow,
    /// The other verdict stands.
    #[error("too late: the window was already decided: {0}")]
    Decided(String),
    /// Opened with [`Machine::look`].
    #[error("the machine was opened to look only")]
    LookOnly,
}

/// What is still to be done about a window before anything else may be.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Due {
    /// Nothing.
    Nothing,
    /// Its apply broke off: it is to be decided for the way back.
    Revert {
        /// Why.
        reason: Reason,
        /// Unix seconds.
        at: i64,
    },
    /// Decided for the way back, which is barred somewhere.
    WalkBack,
    /// Confirmed, and not yet cleaned up.
    Settle(Order),
}

/// Tells unix seconds.
type Time = Box<dyn Fn() -> i64 + Send>;

/// The node's files.
pub struct Machine {
    setup: Setup,
    ledger: LedgerState,
    window: Option<Window>,
    due: Due,
    look_only: bool,
    /// Tells unix seconds while a job runs; without it no deadline of an apply is judged.
    time: Option<Time>,
    /// What the machine can do (HR-10).
    abilities: Vec<String>,
    /// This machine's transport keys, the newest first: they open what is sealed to it (FR-9).
    keys: Vec<LinkSecret>,
    /// When drift of a resource was put right, unix seconds (HR-17).
    repairs: BTreeMap<ResourceName, Vec<i64>>,
    guard: guard::Guard,
}

impl Machine {
    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> &LedgerState {
        &self.ledger
    }

    /// By what the deadline of an apply is judged between its steps.
    pub fn tell_time(&mut self, time: impl Fn() -> i64 + Send + 'static) {
        self.time = Some(Box::new(time));
    }

    /// By what a module that requires something is taken or refused (HR-10).
    pub fn tell_abilities(&mut self, abilities: Vec<String>) {
        self.abilities = abilities;
    }

    /// With what sealed values are opened (FR-9): the newest key first.
    pub fn tell_keys(&mut self, keys: Vec<LinkSecret>) {
        self.keys = keys;
    }

    /// Why an apply goes on no longer, once its deadline has passed.
    fn too_late(&self) -> Option<String> {
        let (time, window) = (self.time.as_ref()?, self.window.as_ref()?);
        let over = time().saturating_sub(window.apply_deadline);
        let secs = window.apply_deadline.saturating_sub(window.opened_at);
        (over >= 0).then(|| format!("{} was not applied within {secs} s (`apply_secs`)", window.order))
    }

    /// The open, undecided window.
    #[must_use]
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    /// What is held, as the ledger has it, by module and name (HR-8).
    #[must_use]
    pub fn held(&self) -> Vec<ResourceLine> {
        let held = self.book().held;
        held.iter()
            .map(|(name, held)| {
                let reason = format!("{} is assigned and not taken: {}", name.module, held.target);
                crate::pure::outcome::line(name, Outcome::Held, reason, None)
            })
            .collect()
    }

    /// The machine's container engine.
    #[must_use]
    pub fn engine(&self) -> &dyn Engine {
        self.setup.system.engine()
    }

    /// Whether a resource has the volume of this name.
    #[must_use]
    pub fn declares_volume(&self, name: &str) -> bool {
        let target = Target::Thing(Sort::Volume, name.to_owned());
        self.book()
            .records
            .values()
            .any(|record| record.target.as_ref() == Some(&target))
    }

    /// As [`release_reserve`], of this machine's state folder.
    pub fn release_reserve(&self) {
        if !self.look_only {
            release_reserve(self.state());
        }
    }

    /// The ledger to work from; a lost one knows nothing, so nothing is removed on its word.
    fn book(&self) -> Ledger {
        match &self.ledger {
            LedgerState::Known(ledger) => (**ledger).clone(),
            LedgerState::Fresh | LedgerState::Unknown { .. } => Ledger::default(),
        }
    }

    fn root(&self) -> &dyn Disk {
        &*self.setup.root
    }

    fn state(&self) -> &dyn Disk {
        &*self.setup.state
    }

    /// What the kinds reach.
    fn reach(&self) -> Reach<'_> {
        Reach {
            root: &*self.setup.root,
            system: &*self.setup.system,
            state: &*self.setup.state,
        }
    }

    /// Nothing may be changed while a window is open; what is still due about one is done first. The lines are of
    /// a way back that is still barred.
    fn ready(&mut self, barred: verdict::Barred) -> Result<Vec<ResourceLine>, MachineError> {
        if self.look_only {
            return Err(MachineError::LookOnly);
        }
        if let Due::Revert { reason, at } = self.due.clone() {
            self.revert(&reason, at)?;
        }
        let lines = match &self.due {
            Due::WalkBack => self.walk_back(barred)?,
            Due::Settle(_) => {
                self.settle()?;
                Vec::new()
            }
            Due::Revert { .. } | Due::Nothing => Vec::new(),
        };
        match &self.window {
            Some(window) => Err(MachineError::WindowOpen(window.order.to_string())),
            None if self.due == Due::WalkBack => Ok(lines),
            None => {
                self.clear_leavings();
                Ok(Vec::new())
            }
        }
    }

    /// An apply that broke off inside its window is taken back before anything else.
    fn broke_off<T>(&mut self, result: Result<T, MachineError>, at: i64) -> Result<T, MachineError> {
        if let (Err(e), Some(window)) = (&result, &self.window) {
            let reason = Reason::Interrupted(format!("{} broke off: {e}", window.order));
            self.due = Due::Revert { reason, at };
        }
        result
    }

    /// Opens a window; says why not. From here on it must be decided, however far its opening came.
    fn open_window(
        &mut self,
        window: &Window,
        opened: Result<(), DiskError>,
    ) -> Result<Option<String>, MachineError> {
        let stands = opened.is_ok() || self.state().stat(&path_of("/window"))?.is_some();
        if stands {
            self.window = Some(window.clone());
        }
        match opened {
            Ok(()) => {
                self.guard(window, window.apply_deadline);
                crate::edge::failpoint::cut("host::apply::opened");
                Ok(None)
            }
            Err(e) if e.is_no_room() && !stands => Ok(Some(format!("no room: {e}; nothing was touched"))),
            Err(e) => Err(e.into()),
        }
    }
}

/// Gives the reserved room of a state folder back, so that a failure can still be recorded on a full disk; the next
/// apply takes it again.
pub fn release_reserve(state: &dyn Disk) {
    room::release(state);
}

/// Where the first originals of found files are kept (HR-8).
const ORIGINALS: &str = "/originals";
