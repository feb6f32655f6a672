//! The agent's decisions as one value: events with `now` in, effects out (HR-1, HR-2, EP-1).
//!
//! It stands alone so that every story can be told in a test without a socket or a disk. The shell
//! ([`crate::edge::agent`]) carries effects out in their order: what is kept is on disk before what follows it is
//! begun. Invariant: one thing at a time touches the machine, and nothing starts while a window is open.

mod declarations;
mod intake;
mod policy;
mod start;
#[cfg(test)]
mod stories;

use std::collections::BTreeSet;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::ProvenLeaf;
use meshplan_schemas::ident::{FleetName, NodeId, ResourceName};
use meshplan_schemas::report::{Cause, Health, Marks, ProbeLine, ResourceLine};
use meshplan_schemas::resource::{Kind, Probe};
use meshplan_schemas::wire::FromHost;
use semver::Version;
use serde::{Deserialize, Serialize};

use super::confirm::{self, Change, Probed, Window};
use super::known_bad::KnownBad;
use super::orders::{Anchor, Kept, Orders, Slot};
use super::standing::Standing;
use meshplan_schemas::declaration::Declaration;

pub use start::{Started, StartedWindow};

/// How often drift is looked for when neither policy nor command line says, in seconds.
pub const RECONCILE_SECS: u32 = 300;
/// How often a report is made when the reconciler has not said, in seconds (`heartbeat_secs`, FR-16).
pub const HEARTBEAT_SECS: u32 = 30;

/// What the agent is and holds when it starts.
#[derive(Debug)]
pub struct Given {
    /// The fleet.
    pub fleet: FleetName,
    /// This node.
    pub node: NodeId,
    /// This host's version.
    pub version: Version,
    /// The orders on its disk.
    pub orders: Orders,
    /// The highest numbers verified; none when both files are lost.
    pub marks: Option<(Marks, Option<Anchor>)>,
    /// How it stood.
    pub standing: Standing,
    /// What failed here.
    pub known_bad: KnownBad,
    /// From the command line; it stands above the policy's.
    pub reconcile_secs: Option<u32>,
    /// Random per start.
    pub instance: String,
    /// The kernel's boot id.
    pub boot_id: String,
}

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The machine was opened.
    Started(Box<Started>),
    /// A session stands.
    LinkUp,
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
    Reverted(String),
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
    /// Have the machine do this, after what it was told before.
    Machine(Job),
    /// Ask these probes.
    AskProbes(Purpose, Vec<(ResourceName, Probe)>),
    /// Make a report.
    Report(Cause),
}

/// What the machine is told to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    /// Make the ledger anew from the last verified declaration (HR-15).
    Rebuild(Box<Kept<Declaration>>),
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
    Revert(String),
    /// Put drift right.
    Repair(Box<Kept<Declaration>>),
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

/// What touches the machine now.
#[derive(Debug, Clone, PartialEq)]
enum Busy {
    /// Nothing; a window may be open.
    No,
    /// Its opening is awaited.
    Starting,
    /// A change is being applied.
    Applying(Change),
    /// The verdict over a change is being carried out; none is the confirm.
    Closing(Change, Option<confirm::Reason>),
    /// Drift is looked for.
    Repairing,
}

/// The agent.
#[derive(Debug)]
pub struct Agent {
    fleet: FleetName,
    node: NodeId,
    version: Version,
    instance: String,
    boot_id: String,
    orders: Orders,
    marks: Marks,
    marks_lost: bool,
    anchor: Option<Anchor>,
    standing: Standing,
    known_bad: KnownBad,
    busy: Busy,
    /// The window whose probes were asked and have not answered.
    asking: Option<u64>,
    /// Counts windows, so that an answer of probes is counted for the window that asked.
    serial: u64,
    ledger_lost: bool,
    link_up: bool,
    /// What was asked for in this session.
    wanted: BTreeSet<Digest>,
    reconcile_secs: Option<u32>,
    heartbeat_secs: u32,
    next_heartbeat: i64,
    next_reconcile: i64,
    /// Something changed that a report says.
    changed: bool,
    last_failure: String,
    effects: Vec<Effect>,
}

impl Agent {
    /// The agent before its machine is opened.
    #[must_use]
    pub fn new(given: Given, now: i64) -> Self {
        let marks_lost = given.marks.is_none();
        let (marks, anchor) = given
            .marks
            .unwrap_or_else(|| (given.orders.rebuilt_marks(), None));
        Self {
            fleet: given.fleet,
            node: given.node,
            version: given.version,
            instance: given.instance,
            boot_id: given.boot_id,
            orders: given.orders,
            marks,
            marks_lost,
            anchor,
            standing: given.standing,
            known_bad: given.known_bad,
            busy: Busy::Starting,
            asking: None,
            serial: 0,
            ledger_lost: false,
            link_up: false,
            wanted: BTreeSet::new(),
            reconcile_secs: given.reconcile_secs,
            heartbeat_secs: HEARTBEAT_SECS,
            next_heartbeat: now,
            next_reconcile: now,
            changed: false,
            last_failure: String::new(),
            effects: Vec::new(),
        }
    }

    /// How the node stands.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }
    /// What failed here.
    #[must_use]
    pub fn known_bad(&self) -> &KnownBad {
        &self.known_bad
    }
    /// The orders that are held.
    #[must_use]
    pub fn orders(&self) -> &Orders {
        &self.orders
    }
    /// The highest numbers verified.
    #[must_use]
    pub fn marks(&self) -> &Marks {
        &self.marks
    }
    /// The fleet.
    #[must_use]
    pub fn fleet(&self) -> &FleetName {
        &self.fleet
    }
    /// This node.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Nothing is being done and nothing waits to be done: drift was looked for, no window is open.
    #[must_use]
    pub fn at_rest(&self, now: i64) -> bool {
        let waits = self.orders.declaration.as_ref().is_some_and(|d| {
            !self.standing.settled(&d.digest) && self.marks.sequence.map(|m| m.digest) == Some(d.digest)
        });
        self.busy == Busy::No && self.standing.window.is_none() && now < self.next_reconcile && !waits
    }

    /// When something is to be done by time alone, unix seconds.
    #[must_use]
    pub fn next_wake(&self, now: i64) -> i64 {
        if self.standing.window.is_some() {
            return now.saturating_add(1);
        }
        self.next_heartbeat
            .min(self.next_reconcile)
            .max(now.saturating_add(1))
    }

    /// The refused orders were said in a report; they are not said again.
    pub fn refusals_said(&mut self) {
        self.standing.refused.clear();
    }

    /// Takes an event.
    pub fn on(&mut self, event: Event, now: i64) -> Vec<Effect> {
        match event {
            Event::Started(started) => self.started(*started, now),
            Event::LinkUp => self.link_came(now),
            Event::LinkDown => {
                self.link_up = false;
                self.window_event(confirm::Event::LinkDown, now);
            }
            Event::Order(text) => self.order(&text, now),
            Event::Record(proof) => self.record(*proof, now),
            Event::Current => self.current(),
            Event::Look(id) => {
                let probes = self.probes();
                self.effects.push(Effect::AskProbes(Purpose::Look(id), probes));
            }
            Event::Restarting { secs } => self.window_event(confirm::Event::Restarting { secs }, now),
            Event::Heartbeat { secs } => {
                self.heartbeat_secs = secs.max(1);
                self.next_heartbeat = now.saturating_add(i64::from(self.heartbeat_secs));
            }
            Event::Done(done) => self.done(*done, now),
            Event::Probed { purpose, lines } => self.probed(purpose, lines, now),
            Event::Tick => self.window_event(confirm::Event::Tick, now),
        }
        self.next(now);
        if std::mem::take(&mut self.changed) {
            self.effects.push(Effect::SaveStanding);
            self.report(Cause::Change, now);
        }
        std::mem::take(&mut self.effects)
    }

    /// What is to be done when nothing is being done: the newest order first, then the policy, then drift.
    fn next(&mut self, now: i64) {
        if self.busy == Busy::No && self.standing.window.is_none() {
            self.next_declaration(now);
        }
        if self.busy == Busy::No && self.standing.window.is_none() {
            self.next_policy(now);
        }
        if self.busy == Busy::No && self.standing.window.is_none() && now >= self.next_reconcile {
            self.next_reconcile = now.saturating_add(i64::from(self.reconcile_secs()));
            if let Some(confirmed) = self.orders.confirmed.clone() {
                self.busy = Busy::Repairing;
                self.effects
                    .push(Effect::Machine(Job::Repair(Box::new(confirmed))));
            }
        }
        if self.busy != Busy::Starting && now >= self.next_heartbeat {
            self.report(Cause::Heartbeat, now);
        }
    }

    /// Any report is a sign of life: the next heartbeat counts from it.
    fn report(&mut self, cause: Cause, now: i64) {
        self.next_heartbeat = now.saturating_add(i64::from(self.heartbeat_secs));
        self.effects.push(Effect::Report(cause));
    }

    fn journal(&mut self, event: &str, number: Option<u64>, words: impl Into<String>) {
        self.effects.push(Effect::Journal(Entry {
            event: event.to_owned(),
            number,
            words: words.into(),
        }));
    }

    fn link_came(&mut self, now: i64) {
        self.link_up = true;
        self.wanted.clear();
        // A session under the new head has worked: the former one has done its duty (SG-3).
        if self.orders.former_head.take().is_some() {
            self.effects.push(Effect::Drop(Slot::FormerHead));
        }
        self.effects.push(Effect::Say(Box::new(FromHost::Hello {
            host_version: self.version.to_string(),
            marks: Box::new(self.orders.held_marks(self.marks.era)),
            instance: self.instance.clone(),
            boot_id: self.boot_id.clone(),
        })));
        self.window_event(confirm::Event::LinkUp, now);
    }

    fn done(&mut self, done: Done, now: i64) {
        match (std::mem::replace(&mut self.busy, Busy::No), done) {
            (Busy::Applying(change), Done::Applied(applied)) => match change {
                Change::Declaration { .. } => self.declaration_applied(change, applied, now),
                Change::Policy { .. } => self.policy_applied(change, applied, now),
            },
            (Busy::Closing(change, reason), Done::Confirmed) => {
                // A confirm that was asked for and given, whatever else was thought of meanwhile.
                drop(reason);
                self.closed(change, None, now);
            }
            (Busy::Closing(change, reason), Done::Reverted(lines)) => {
                self.standing.lines = lines;
                let reason =
                    reason.unwrap_or_else(|| confirm::Reason::Interrupted("decided elsewhere".to_owned()));
                self.closed(change, Some(reason), now);
            }
            (Busy::Repairing, Done::Repaired(applied)) => {
                self.repaired(applied, now);
            }
            (Busy::Applying(change), Done::Failed(why)) => {
                self.machine_failed(why.clone());
                self.closed(change, Some(confirm::Reason::Interrupted(why)), now);
            }
            // The window is still open: the verdict is tried again with the next event.
            (Busy::Closing(..) | Busy::Repairing, Done::Failed(why)) => self.machine_failed(why),
            (busy, Done::Failed(why) | Done::Noted(why)) => {
                self.machine_failed(why);
                self.busy = busy;
            }
            (busy, other) => {
                // An answer that nothing waits for: said, and nothing follows from it.
                self.journal("machine.failed", None, format!("unexpected answer {other:?}"));
                self.busy = busy;
            }
        }
    }

    /// Said once, however often it is tried again.
    fn machine_failed(&mut self, why: String) {
        if self.last_failure != why {
            self.journal("machine.failed", None, why.clone());
            self.last_failure = why;
        }
    }

    /// The end of a change: it stays (no reason) or it went back.
    fn closed(&mut self, change: Change, reason: Option<confirm::Reason>, now: i64) {
        self.standing.window = None;
        match change {
            Change::Declaration { .. } => self.declaration_closed(reason, now),
            Change::Policy { epoch, digest } => self.policy_closed(epoch, digest, reason, now),
        }
    }

    /// Opens the window of a change that is done.
    fn open_window(&mut self, change: Change, confirm_secs: u32, now: i64) {
        let (window, effects) = Window::open(change, confirm_secs, now);
        self.serial += 1;
        self.standing.window = Some(window);
        self.window_effects(effects, now);
    }

    fn window_event(&mut self, event: confirm::Event, now: i64) {
        if self.busy != Busy::No {
            return;
        }
        let Some(window) = &mut self.standing.window else {
            return;
        };
        let effects = window.on(event, now);
        self.window_effects(effects, now);
    }

    fn window_effects(&mut self, effects: Vec<confirm::Effect>, now: i64) {
        let Some(window) = self.standing.window.clone() else {
            return;
        };
        for effect in effects {
            match effect {
                confirm::Effect::Renew => self.effects.push(Effect::Renew),
                confirm::Effect::AskProbes => self.ask_window_probes(now),
                confirm::Effect::Deadline(at) => {
                    self.effects.push(Effect::SaveStanding);
                    // On the machine it is set once; a clock that was stopped is remembered by the standing alone.
                    if !window.stopped_once {
                        self.effects.push(Effect::Machine(Job::Arm(at)));
                    }
                }
                confirm::Effect::Confirm => {
                    self.busy = Busy::Closing(window.change, None);
                    self.effects.push(Effect::Machine(Job::Confirm));
                }
                confirm::Effect::Revert(reason) => {
                    self.effects
                        .push(Effect::Machine(Job::Revert(reason.to_string())));
                    self.busy = Busy::Closing(window.change, Some(reason));
                }
            }
        }
    }

    fn ask_window_probes(&mut self, now: i64) {
        let probes = self.probes();
        if probes.is_empty() {
            self.window_event(confirm::Event::Probes(Probed::Passed), now);
        } else if self.asking != Some(self.serial) {
            self.asking = Some(self.serial);
            self.effects
                .push(Effect::AskProbes(Purpose::Window(self.serial), probes));
        }
    }

    fn probed(&mut self, purpose: Purpose, lines: Vec<ProbeLine>, now: i64) {
        self.standing.probes.clone_from(&lines);
        match purpose {
            Purpose::Window(serial) => {
                if serial == self.serial {
                    self.asking = None;
                    self.window_event(confirm::Event::Probes(together(&lines)), now);
                }
            }
            Purpose::Look(id) => self.report(Cause::Look(id), now),
            Purpose::Start => {
                self.effects.push(Effect::SaveStanding);
                self.report(Cause::Start, now);
            }
        }
    }

    /// The probes of what stands on the machine now: of the declaration that is tried, else of the confirmed one.
    fn probes(&self) -> Vec<(ResourceName, Probe)> {
        let Some(kept) = self.orders.trying.as_ref().or(self.orders.confirmed.as_ref()) else {
            return Vec::new();
        };
        kept.payload
            .resources
            .iter()
            .filter_map(|resource| match resource.read() {
                Ok(Kind::Probe(probe)) => Some((resource.name.clone(), probe)),
                _ => None,
            })
            .collect()
    }
}

/// What probes say together: a no is graver than "cannot tell", which is graver than yes.
fn together(lines: &[ProbeLine]) -> Probed {
    let words = |health: Health| {
        let said: Vec<String> = lines
            .iter()
            .filter(|l| l.health == health)
            .map(|l| format!("{}: {}", l.name, l.reason))
            .collect();
        (!said.is_empty()).then(|| said.join("; "))
    };
    match (words(Health::Unhealthy), words(Health::Unknown)) {
        (Some(no), _) => Probed::Failed(no),
        (None, Some(unknown)) => Probed::CannotTell(unknown),
        (None, None) => Probed::Passed,
    }
}
