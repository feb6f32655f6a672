//! What the agent hears and what follows: the words between decision and shell.

use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::ProvenLeaf;
use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::report::{Cause, Marks, ProbeLine, ResourceLine};
use meshplan_schemas::resource::Probe;
use meshplan_schemas::wire::FromHost;
use serde::{Deserialize, Serialize};

use super::Started;
use crate::pure::capability;
use crate::pure::confirm::{Reason, Way};
use crate::pure::orders::{Anchor, Kept, Slot};

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The machine was opened.
    Started(Box<Started>),
    /// A session stands.
    LinkUp(Way),
    /// No session.
    LinkDown,
    /// A signed order, from a session with a reconciler.
    Order(String),
    /// The own record.
    Record(Box<ProvenLeaf>),
    /// Everything that was missing was sent.
    Current,
    /// A look.
    Look(u64),
    /// The reconciler restarts by plan.
    Restarting {
        /// As announced.
        secs: u32,
    },
    /// How often a report is expected.
    Heartbeat {
        /// Seconds.
        secs: u32,
    },
    /// The machine is done with a job.
    Done(Box<Done>),
    /// What an order's archives and bundles are made of is on this machine, or cannot be had.
    Fetched {
        /// The order's digest.
        order: Digest,
        /// Why it cannot be had, in a sentence.
        fault: Option<String>,
    },
    /// Probes answered.
    Probed {
        /// For what they were asked.
        purpose: Purpose,
        /// Their answers.
        lines: Vec<ProbeLine>,
    },
    /// Time went by.
    Tick,
}

/// What the machine says when a job is done.
#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    /// A declaration or a policy was applied.
    Applied(Applied),
    /// A window was closed by a confirm.
    Confirmed,
    /// A window was closed by going back.
    Reverted(Vec<ResourceLine>),
    /// Drift was looked for.
    Repaired(Applied),
    /// What was due about a change that went back was done: what is still not back; none where nothing was due.
    Finished(Option<Vec<ResourceLine>>),
    /// What is nobody's here (HR-9).
    Strays(Vec<String>),
    /// The job could not be done; in words.
    Failed(String),
    /// A job that nothing waits for could not be done; in words.
    Noted(String),
}

/// What came of an apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// How it ended.
    pub end: ApplyEnd,
    /// A line per resource that is not `unchanged`.
    pub lines: Vec<ResourceLine>,
    /// What is held.
    pub held: Vec<ResourceLine>,
    /// A resource failed.
    pub failed: bool,
}

/// How an apply ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyEnd {
    /// Nothing had to change, and it is confirmed.
    Converged,
    /// Nothing may change (`mode = "observe"`).
    Observed,
    /// Done; the window waits for its confirm.
    WindowOpen,
    /// A resource failed and everything is back.
    Reverted(Reason),
    /// Refused before anything was touched.
    NotBegun(String),
}

/// For what probes are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// For the window with this serial number; an answer for a former one says nothing.
    Window(u64),
    /// For the report of this look.
    Look(u64),
    /// For the first report of this start.
    Start,
    /// For the next heartbeat.
    Heartbeat,
}

/// What follows. To be carried out in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Write the highest numbers, synced, before anything that follows.
    SaveMarks(Box<(Marks, Option<Anchor>)>),
    /// Keep a text in its place.
    Keep(Slot, String),
    /// Nothing is in this place any more.
    Drop(Slot),
    /// Write how the node stands.
    SaveStanding,
    /// Write what failed here.
    SaveKnownBad,
    /// Write a line of the journal.
    Journal(Entry),
    /// Say this in the session.
    Say(Box<FromHost>),
    /// Have a fresh session made.
    Renew,
    /// Fetch what the archives and bundles of this declaration are made of; what was fetched for another is let be.
    Fetch(Box<Kept<Declaration>>),
    /// Have the machine do this, after what it was told before.
    Machine(Job),
    /// Ask these probes.
    AskProbes(Purpose, Vec<(ResourceName, Probe)>),
    /// Make a report.
    Report(Cause),
}

/// What a ledger is made anew from (HR-15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// The confirmed declaration: it was applied here once.
    Confirmed,
    /// One that was never confirmed here: only what stands on the machine as it asks is the host's.
    Untried,
}

/// What the machine is told to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    /// Make the ledger anew from the last verified declaration (HR-15).
    Rebuild(Box<Kept<Declaration>>, Basis),
    /// Apply a declaration.
    Apply(Box<Kept<Declaration>>),
    /// Write the effective policy of an epoch.
    ApplyPolicy {
        /// The epoch's number.
        epoch: u64,
        /// The effective policy.
        text: String,
        /// How long it may take, in seconds.
        apply_secs: u32,
    },
    /// Set the deadline of the open window.
    Arm(i64),
    /// What was done stays.
    Confirm,
    /// Everything goes back.
    Revert(Reason),
    /// Put drift right.
    Repair(Box<Kept<Declaration>>),
    /// List what is nobody's here (HR-9): after an apply has come to its end, as an engine that does not answer takes its time.
    Strays(Box<Kept<Declaration>>),
    /// Do what is still due about a change that went back, and nothing else: what was begun goes on to its end (HR-17).
    Finish,
}

impl Job {
    /// Whether a module of it asks for what not every machine can do (HR-10).
    #[must_use]
    pub fn requires_something(&self) -> bool {
        match self {
            Self::Rebuild(kept, _) | Self::Apply(kept) | Self::Repair(kept) => {
                kept.payload
                    .modules
                    .iter()
                    .any(|module| !module.requires.is_empty())
                    || (kept.payload.resources.iter())
                        .any(|resource| capability::of_kind(&resource.kind).is_some())
            }
            Self::ApplyPolicy { .. }
            | Self::Arm(_)
            | Self::Confirm
            | Self::Revert(_)
            | Self::Strays(_)
            | Self::Finish => false,
        }
    }
}

/// A line of the journal (RO-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// `epoch.received`, `declaration.reverted`, ...
    pub event: String,
    /// Its number, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// In words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
}
