//! The node's files as the agent sees them: what a declaration would change, changing it behind a window, going
//! back (HR-1 to HR-6, HR-13 to HR-15).
//!
//! Blocking: call it from a thread that may wait. It reads no clock and opens no socket; `now` is unix seconds.
//! Invariant: one window at a time, and no target is touched outside of one but to put drift right.

use std::sync::Arc;

use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::report::{Outcome, ResourceLine};

use super::disk::{Disk, DiskError};
use super::window::{Order, Window};
use crate::pure::record::Ledger;
use crate::pure::target_path::TargetPath;

/// What a machine is opened with.
#[derive(Clone)]
pub struct Setup {
    /// The tree that declarations speak of: `/`, or what `--root` says.
    pub root: Arc<dyn Disk>,
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
        /// Why, in a sentence.
        why: String,
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
        why: String,
        /// A line per resource.
        lines: Vec<ResourceLine>,
    },
}

/// Whether the ledger can be believed (HR-15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerState {
    /// Read, whole.
    Known(Box<Ledger>),
    /// There was none, nor a sign that there ever was.
    Fresh,
    /// Empty, cut, noise, of another version, or gone: call [`Machine::rebuild`] with the last verified declaration.
    Unknown {
        /// Why.
        why: String,
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
        why: String,
    },
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

/// The node's files.
pub struct Machine {
    setup: Setup,
}

impl Machine {
    /// Opens it for work and finishes what a crash left: must be called before anything else touches the state
    /// folder, with the lock held.
    ///
    /// # Errors
    /// The disk.
    pub fn open(setup: Setup, now: i64) -> Result<(Self, Recovery), MachineError> {
        unimplemented!()
    }
    /// Opens it to look only ([`Machine::plan`], [`Machine::held`], [`Machine::ledger`], [`Machine::window`]):
    /// recovers nothing, writes nothing, needs no lock.
    ///
    /// # Errors
    /// The disk.
    pub fn look(setup: Setup) -> Result<Self, MachineError> {
        unimplemented!()
    }
    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> &LedgerState {
        unimplemented!()
    }
    /// The open window.
    #[must_use]
    pub fn window(&self) -> Option<&Window> {
        unimplemented!()
    }
    /// Makes the ledger anew from the last verified declaration and the machine (HR-15).
    ///
    /// # Errors
    /// The disk; a window is open.
    pub fn rebuild(&mut self, declaration: &Declaration, digest: Digest) -> Result<(), MachineError> {
        unimplemented!()
    }
    /// What a declaration would change; changes nothing.
    ///
    /// # Errors
    /// The disk could not tell.
    pub fn plan(&self, declaration: &Declaration) -> Result<Vec<Change>, MachineError> {
        unimplemented!()
    }
    /// What is held, as the ledger has it (HR-8).
    #[must_use]
    pub fn held(&self) -> Vec<ResourceLine> {
        unimplemented!()
    }
    /// Applies a declaration whose payload has this digest.
    ///
    /// # Errors
    /// A window is open; the disk failed in a way that is no resource's.
    pub fn apply(&mut self, declaration: &Declaration, digest: Digest, now: i64) -> Result<Applied, MachineError> {
        unimplemented!()
    }
    /// Writes the effective policy of an epoch to `policy.toml` of the state folder and to `policy_out`. `End` is
    /// `Converged` when the bytes stand there already (nothing is written then).
    ///
    /// # Errors
    /// As [`Machine::apply`].
    pub fn apply_policy(&mut self, text: &str, epoch: u64, apply_secs: u32, now: i64) -> Result<Applied, MachineError> {
        unimplemented!()
    }
    /// Sets the confirm deadline of the open window, once; the window awaits its confirm from here on.
    ///
    /// # Errors
    /// No window; the disk.
    pub fn arm(&mut self, confirm_deadline: i64) -> Result<(), MachineError> {
        unimplemented!()
    }
    /// Decides the open window: what was done stays.
    ///
    /// # Errors
    /// No window; it was decided otherwise; the disk.
    pub fn confirm(&mut self, now: i64) -> Result<Order, MachineError> {
        unimplemented!()
    }
    /// Decides the open window: everything goes back.
    ///
    /// # Errors
    /// No window; it was decided otherwise; the disk.
    pub fn revert(&mut self, why: &str, now: i64) -> Result<Vec<ResourceLine>, MachineError> {
        unimplemented!()
    }
    /// Puts right what somebody changed since the confirmed declaration was applied; no window, nothing swept.
    /// The same thing put right three times in an hour is left and said (HR-17).
    ///
    /// # Errors
    /// A window is open; the disk.
    pub fn repair(&mut self, declaration: &Declaration, now: i64) -> Result<Applied, MachineError> {
        unimplemented!()
    }
    /// Gives the reserved room back, so that a failure can still be recorded on a full disk; the next apply takes
    /// it again.
    pub fn release_reserve(&self) {
        unimplemented!()
    }
}
