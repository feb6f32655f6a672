//! The agent's decisions as one value: events with `now` in, effects out (HR-1, HR-2, EP-1).
//!
//! It stands alone so that every story can be told in a test without a socket or a disk. The shell
//! ([`crate::edge::agent`]) carries effects out in their order: what is kept is on disk before what follows it is
//! begun. Invariant: one thing at a time touches the machine, and nothing starts while a window is open.

mod declarations;
mod events;
mod intake;
mod pausing;
mod policy;
mod start;
#[cfg(test)]
mod stories;
mod window;

use std::collections::BTreeSet;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::FleetHead;
use meshplan_schemas::ident::{FleetName, NodeId};
use meshplan_schemas::report::{Cause, Marks, Paused};
use meshplan_schemas::wire::FromHost;
use semver::Version;

use super::capability::clock_trusted;
use super::confirm::{self, Change, Way};
use super::duties::Duties;
use super::known_bad::KnownBad;
use super::orders::{Anchor, Orders, Slot};
use super::pause;
use super::standing::Standing;

pub use events::{Applied, ApplyEnd, Basis, Done, Effect, Entry, Event, Job, Purpose};
pub use start::{Started, StartedWindow};

/// How often a report is made when the reconciler has not said, in seconds (`heartbeat_secs`, FR-16).
pub const HEARTBEAT_SECS: u32 = 30;

/// The longest time between reports that a reconciler may ask for, in seconds.
const HEARTBEAT_MOST_SECS: u32 = 3600;

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
    /// A way back that was barred is tried again.
    Finishing,
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
    /// The declaration whose artifacts are being fetched; and the one whose are all here.
    fetching: Option<Digest>,
    stocked: Option<Digest>,
    /// Why the artifacts of a declaration cannot be had: its end, once nothing else is being done.
    unfetched: Option<(Digest, String)>,
    /// The window whose probes were asked and have not answered.
    asking: Option<u64>,
    /// The look whose probes were asked, and the newest one that came meanwhile.
    looking: Option<(u64, Option<u64>)>,
    /// Counts windows, so that an answer of probes is counted for the window that asked.
    serial: u64,
    ledger_lost: bool,
    link_up: bool,
    /// What was asked for in this session.
    wanted: BTreeSet<Digest>,
    reconcile_secs: Option<u32>,
    /// What the policy that runs asks of the host.
    duties: Duties,
    /// Looks for drift in a row that left something failed.
    failures: u32,
    /// An order waits for the maintenance window that opens then.
    opens: Option<i64>,
    /// It is left behind, and follows then.
    follows: Option<i64>,
    /// Up to when the time that it waits is counted.
    counted_at: i64,
    heartbeat_secs: u32,
    next_heartbeat: i64,
    next_reconcile: i64,
    /// Something changed that a report says.
    changed: bool,
    last_failure: String,
    /// Whether somebody keeps this machine's time; none when nobody could say.
    synchronised: Option<bool>,
    /// Why the next order cannot be kept.
    lacking: Option<String>,
    /// What was last seen of a pause on this machine, and the one that holds (HR-17).
    pause: pause::Seen,
    paused: Option<Paused>,
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
            fetching: None,
            stocked: None,
            unfetched: None,
            asking: None,
            looking: None,
            serial: 0,
            ledger_lost: false,
            link_up: false,
            wanted: BTreeSet::new(),
            reconcile_secs: given.reconcile_secs,
            duties: Duties::default(),
            failures: 0,
            opens: None,
            follows: None,
            counted_at: now,
            heartbeat_secs: HEARTBEAT_SECS,
            next_heartbeat: now,
            next_reconcile: now,
            changed: false,
            last_failure: String::new(),
            synchronised: None,
            lacking: None,
            pause: pause::Seen::None,
            paused: None,
            effects: Vec::new(),
        }
    }

    /// How the node stands.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.standing
    }
    /// The head that is trusted; none before the first.
    #[must_use]
    pub fn trusted_head(&self) -> Option<&FleetHead> {
        self.orders.head.as_ref().map(|kept| &kept.payload)
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

    /// What was found out about the machine's clock; none: nobody could say.
    pub fn trust_clock(&mut self, synchronised: Option<bool>) {
        self.synchronised = synchronised;
    }
    /// The machine's clock was set, and it is so late now: what was asked about it before says nothing of this one, and no
    /// time went by with it.
    pub fn clock_was_set(&mut self, now: i64) {
        self.synchronised = None;
        self.counted_at = now;
    }
    /// Whether the clock is known to be right (HR-11).
    #[must_use]
    pub fn clock_trusted(&self, now: i64) -> Option<bool> {
        let newest = self.marks.timestamp.and_then(|m| i64::try_from(m.number).ok());
        clock_trusted(self.synchronised, now, newest)
    }

    /// What the policy that runs asks of the host (FR-7).
    #[must_use]
    pub fn duties(&self) -> &Duties {
        &self.duties
    }

    /// Nothing is being done and nothing waits to be done but for a maintenance window: drift was looked for, no confirm
    /// window is open.
    #[must_use]
    pub fn at_rest(&self, now: i64) -> bool {
        let waits = self.orders.declaration.as_ref().is_some_and(|d| {
            !self.standing.settled(&d.digest) && self.marks.sequence.map(|m| m.digest) == Some(d.digest)
        });
        // Without a session nothing is fetched.
        let waits = waits && self.opens.is_none() && (self.fetching.is_none() || self.link_up);
        let idle = self.busy == Busy::No && self.standing.window.is_none();
        idle && (self.paused.is_some() || (now < self.next_reconcile && !waits))
    }

    /// When something is to be done by time alone, unix seconds.
    #[must_use]
    pub fn next_wake(&self, now: i64) -> i64 {
        if self.standing.window.is_some() {
            return now.saturating_add(1);
        }
        // At the end of a pause what waited for it is begun; a look is due meanwhile as well.
        let resumes = self.paused.as_ref().map_or(i64::MAX, |p| p.until);
        self.next_heartbeat
            .min(self.next_reconcile)
            .min(resumes)
            .min(self.opens.unwrap_or(i64::MAX))
            .min(self.follows.unwrap_or(i64::MAX))
            .max(now.saturating_add(1))
    }

    /// The refused orders were said in a report; they are not said again.
    pub fn refusals_said(&mut self) {
        self.standing.refused.clear();
    }

    /// Says why the next order cannot be kept: one that would be taken is refused then (B40).
    pub fn lacks_room(&mut self, why: Option<String>) {
        self.lacking = why;
    }

    /// Takes an event.
    pub fn on(&mut self, event: Event, now: i64) -> Vec<Effect> {
        self.count_wait(now);
        self.take_pause();
        match event {
            Event::Started(started) => self.started(*started, now),
            Event::LinkUp(way) => self.link_came(way, now),
            Event::LinkDown => {
                self.link_up = false;
                self.window_event(confirm::Event::LinkDown, now);
            }
            Event::Order(text) => self.order(&text, now),
            Event::Record(proof) => self.record(*proof, now),
            Event::Current => self.current(),
            Event::Look(id) => self.look(id),
            Event::Restarting { secs } => self.window_event(confirm::Event::Restarting { secs }, now),
            Event::Heartbeat { secs } => {
                self.heartbeat_secs = secs.clamp(1, HEARTBEAT_MOST_SECS);
                self.next_heartbeat = now.saturating_add(i64::from(self.heartbeat_secs));
            }
            Event::Done(done) => self.done(*done, now),
            Event::Fetched { order, fault } => self.fetched(order, fault),
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
        self.opens = None;
        self.follows = None;
        if self.busy == Busy::No && self.standing.window.is_none() {
            self.next_declaration(now);
        }
        if self.busy == Busy::No && self.standing.window.is_none() {
            self.next_policy(now);
        }
        if self.busy == Busy::No && self.standing.window.is_none() && now >= self.next_reconcile {
            self.next_reconcile = self.next_look(now);
            if self.paused.is_some() {
                // Drift is left; a way back that was begun is not.
                self.busy = Busy::Finishing;
                self.effects.push(Effect::Machine(Job::Finish));
            } else if let Some(confirmed) = self.orders.confirmed.clone() {
                self.busy = Busy::Repairing;
                self.effects
                    .push(Effect::Machine(Job::Repair(Box::new(confirmed))));
            }
        }
        if self.busy != Busy::Starting && now >= self.next_heartbeat {
            self.heartbeat(now);
        }
    }

    /// A heartbeat says how the node is now, not how it was when somebody last looked: its probes are asked first.
    fn heartbeat(&mut self, now: i64) {
        if self.follows.is_some() {
            // How long it has waited outlives the host, to a heartbeat.
            self.effects.push(Effect::SaveStanding);
        }
        let probes = self.probes();
        if probes.is_empty() || self.standing.window.is_some() {
            return self.report(Cause::Heartbeat, now);
        }
        self.next_heartbeat = now.saturating_add(i64::from(self.heartbeat_secs));
        self.effects.push(Effect::AskProbes(Purpose::Heartbeat, probes));
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

    fn link_came(&mut self, way: Way, now: i64) {
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
        self.window_event(confirm::Event::LinkUp(way), now);
    }

    fn done(&mut self, done: Done, now: i64) {
        let of_declaration = matches!(
            self.busy,
            Busy::Applying(Change::Declaration { .. })
                | Busy::Closing(Change::Declaration { .. }, _)
                | Busy::Repairing
        );
        match (std::mem::replace(&mut self.busy, Busy::No), done) {
            (Busy::Applying(change), Done::Applied(applied)) => match change {
                Change::Declaration { .. } => self.declaration_applied(change, applied, now),
                Change::Policy { .. } => self.policy_applied(change, applied, now),
            },
            (Busy::Closing(change, reason), Done::Confirmed) => {
                // A confirm that was asked for and given, whatever else was thought of meanwhile.
                if reason.is_some() {
                    self.absolve();
                }
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
            (Busy::Finishing, Done::Finished(lines)) => self.finished(lines),
            (Busy::Applying(change), Done::Failed(why)) => {
                self.machine_failed(why.clone());
                self.blamed_and_closed(change, confirm::Reason::Interrupted(why), now);
            }
            // The window is still open: the verdict is tried again with the next event.
            (Busy::Closing(..) | Busy::Repairing | Busy::Finishing, Done::Failed(why)) => {
                self.machine_failed(why);
            }
            (busy, Done::Failed(why) | Done::Noted(why)) => {
                self.machine_failed(why);
                self.busy = busy;
            }
            (busy, Done::Strays(strays)) => {
                self.busy = busy;
                self.strays_listed(strays);
            }
            (busy, other) => {
                // An answer that nothing waits for: said, and nothing follows from it.
                self.journal("machine.failed", None, format!("unexpected answer {other:?}"));
                self.busy = busy;
            }
        }
        // Nothing waits for it: neither the deadline of a window, nor its verdict.
        if of_declaration && self.busy == Busy::No && self.standing.window.is_none() {
            self.list_strays();
        }
    }

    /// Said once, however often it is tried again.
    fn machine_failed(&mut self, why: String) {
        if self.last_failure != why {
            self.journal("machine.failed", None, why.clone());
            self.last_failure = why;
        }
    }

    /// The end of a change that went back and of which nothing was told yet.
    fn blamed_and_closed(&mut self, change: Change, reason: confirm::Reason, now: i64) {
        self.blame(change, &reason, now);
        self.closed(change, Some(reason), now);
    }

    /// The end of a change: it stays (no reason) or it went back.
    fn closed(&mut self, change: Change, reason: Option<confirm::Reason>, now: i64) {
        self.standing.window = None;
        match change {
            Change::Declaration { .. } => self.declaration_closed(reason, now),
            Change::Policy { epoch, digest } => self.policy_closed(epoch, digest, reason, now),
        }
    }
}
