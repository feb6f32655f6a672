//! A simulated host: one order at a time, applied, awaited, confirmed over its link or taken back, and reported.
//!
//! What it does with an order is told by the script, never decided here by chance; what the reconciler makes of that is
//! what a rehearsal shows. Its windows are those of the policy that it runs (FR-7).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::{Epoch, epoch_to_run};
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{FleetName, ModuleName, NodeId, NodeName, ResourceName, RoleName};
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::maintenance::{Openness, Window, windows_of};
use meshplan_schemas::policy;
use meshplan_schemas::report::{
    Cause, DeclarationState, DeclarationStatus, EpochStatus, Health, Mark, Marks, ProbeLine, Report,
    RollbackVerdict,
};
use meshplan_schemas::resource::{Content, File, Kind};

use semver::Version;

use crate::pure::decide::after_secs;
use crate::pure::decide::classes::word;

/// How long applying takes, in seconds.
const APPLY_SECS: u32 = 3;
/// How long a fresh session takes that confirms, in seconds.
const CONFIRM_SECS: u32 = 1;

/// What its probes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Probes {
    Yes,
    No,
    /// Yes and no in turns.
    InTurns,
}

/// What it works at.
#[derive(Debug, Clone)]
enum Work {
    Apply(Box<Declaration>),
    Await(Box<Declaration>, Timestamp),
    ApplyPolicy(Box<Epoch>),
    AwaitPolicy(Box<Epoch>, Timestamp),
}

/// What the signed list says to a host of itself (UC-1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) class: UpdateClass,
    pub(super) pinned: bool,
    pub(super) grace_secs: u32,
}

/// How long a host that is left behind has waited for an epoch, by its own running.
#[derive(Debug, Clone, Copy)]
struct Waited {
    epoch: u64,
    waited: Duration,
}

/// A host.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) id: NodeId,
    pub(super) name: NodeName,
    pub(super) fleet: FleetName,
    pub(super) powered: bool,
    pub(super) linked: bool,
    pub(super) probes: Probes,
    /// It fails what contains one of these.
    pub(super) breaks: Vec<String>,
    /// Its program's.
    pub(super) version: Version,
    work: Option<(Timestamp, Work)>,
    /// An order waits for a window that opens then.
    opens: Option<Timestamp>,
    confirmed: Option<Declaration>,
    status: Option<DeclarationStatus>,
    running: Option<Epoch>,
    epoch: Option<EpochStatus>,
    /// The epoch that did not stay last, 0 before.
    settled_epoch: u64,
    rollbacks: Vec<RollbackVerdict>,
    record: Record,
    left_behind: Option<Waited>,
    /// It follows then.
    follows: Option<Timestamp>,
    /// Up to when its waiting is counted, on the clock that nobody sets; none after a start.
    counted: Option<Duration>,
    counter: u64,
    boot: u32,
    heartbeat: Timestamp,
    turns: u32,
}

impl Host {
    pub(super) fn new(id: NodeId, name: NodeName, fleet: FleetName, now: Timestamp) -> Self {
        Self {
            id,
            name,
            fleet,
            powered: true,
            linked: true,
            probes: Probes::Yes,
            breaks: Vec::new(),
            version: env!("CARGO_PKG_VERSION").parse().unwrap_or(Version::new(0, 0, 0)),
            work: None,
            opens: None,
            confirmed: None,
            status: None,
            running: None,
            epoch: None,
            settled_epoch: 0,
            rollbacks: Vec::new(),
            record: Record::default(),
            left_behind: None,
            follows: None,
            counted: None,
            counter: 0,
            boot: 1,
            heartbeat: now,
            turns: 0,
        }
    }

    /// Whether it can hear and be heard.
    pub(super) fn reachable(&self) -> bool {
        self.powered && self.linked
    }

    /// When it does something by time alone.
    pub(super) fn wakes(&self) -> Option<Timestamp> {
        if !self.powered {
            return None;
        }
        let work = self.work.as_ref().map(|(at, _)| *at);
        let heartbeat = self.linked.then_some(self.heartbeat);
        let waits = self.opens.into_iter().chain(self.follows);
        work.into_iter().chain(waits).chain(heartbeat).min()
    }

    /// Power fails: what was not confirmed goes back when it starts again (HR-13).
    pub(super) fn cut_power(&mut self) {
        self.powered = false;
    }

    pub(super) fn start(&mut self, now: Timestamp) {
        self.powered = true;
        self.counted = None;
        self.boot += 1;
        match self.work.take() {
            Some((_, Work::Apply(d) | Work::Await(d, _))) => {
                self.declared(
                    &d,
                    DeclarationState::Reverted,
                    "interrupted: the machine restarted",
                    now,
                );
            }
            Some((_, Work::ApplyPolicy(epoch) | Work::AwaitPolicy(epoch, _))) => {
                self.epoch_is(
                    epoch.epoch,
                    EpochState::Reverted,
                    "interrupted: the machine restarted",
                    now,
                );
            }
            None => {}
        }
        self.came_back(now);
    }

    /// The link is there again: what waits for its confirm has it soon.
    pub(super) fn came_back(&mut self, now: Timestamp) {
        self.heartbeat = now;
        if let Some((at, Work::Await(..) | Work::AwaitPolicy(..))) = &mut self.work {
            *at = after_secs(now, CONFIRM_SECS);
        }
    }

    fn is_broken_by(&self, text: &str) -> bool {
        self.breaks.iter().any(|bad| text.contains(bad.as_str()))
    }

    /// Says which modules went back, as a host that knows them does.
    fn blame(&mut self, declaration: &Declaration, why: &str, now: Timestamp) {
        let to_blame = |module: &ModuleName| {
            let of = declaration.resources.iter().filter(|r| r.name.module == *module);
            of.map(serde_json::to_string)
                .any(|text| text.is_ok_and(|text| self.is_broken_by(&text)))
        };
        let blamed = declaration.modules.iter().filter(|m| to_blame(&m.module));
        self.rollbacks = blamed
            .map(|m| RollbackVerdict {
                component: m.module.to_string(),
                from: m.digest.to_string(),
                to: "the former content".to_owned(),
                outcome: "rolled-back".to_owned(),
                why: why.to_owned(),
                at: now.as_second(),
            })
            .collect();
    }

    fn windows(&self) -> Vec<Window> {
        let of_policy = || {
            let policy = policy::parse(&self.running.as_ref()?.policy).ok()?;
            let file = policy::sections("policy", &policy.effective_text(self.roles())).ok()?;
            Some(windows_of(&file))
        };
        of_policy().unwrap_or_default()
    }

    fn roles(&self) -> &[RoleName] {
        self.confirmed
            .as_ref()
            .map(|d| d.roles.as_slice())
            .unwrap_or_default()
    }

    /// Time goes by while it runs, and it hears what its own record says now.
    pub(super) fn live(&mut self, steady: Duration, record: Option<Record>) {
        let went_by = self
            .counted
            .map_or(Duration::ZERO, |at| steady.saturating_sub(at));
        self.counted = Some(steady);
        if let Some(waited) = &mut self.left_behind {
            waited.waited += went_by;
        }
        self.record = record.unwrap_or(self.record);
    }

    /// Does what is due; whether it has something to report. The newest orders are what the reconciler has for it, none
    /// where it cannot hear.
    pub(super) fn act(
        &mut self,
        now: Timestamp,
        newest: Option<&Declaration>,
        epochs: Option<(&Epoch, &BTreeMap<Digest, Epoch>)>,
    ) -> bool {
        let mut news = self.go_on(now);
        self.opens = None;
        self.follows = None;
        if self.work.is_none() {
            news |= newest.is_some_and(|newest| self.begin(newest, now));
        }
        if self.work.is_none() {
            news |= epochs.is_some_and(|(newest, all)| self.begin_policy(newest, all, now));
        }
        news
    }

    fn go_on(&mut self, now: Timestamp) -> bool {
        let Some((_, work)) = self.work.take_if(|(at, _)| *at <= now) else {
            return false;
        };
        match work {
            Work::Apply(d) => {
                if self.is_broken_by(&serde_json::to_string(&d.resources).unwrap_or_default()) {
                    let why = "the probe web.answers says no";
                    self.declared(&d, DeclarationState::Reverted, why, now);
                    self.blame(&d, why, now);
                } else {
                    self.declared(&d, DeclarationState::AwaitingConfirm, "", now);
                    let deadline = after_secs(now, d.confirm_secs);
                    let at = if self.linked {
                        after_secs(now, CONFIRM_SECS)
                    } else {
                        deadline
                    };
                    self.work = Some((at, Work::Await(d, deadline)));
                }
            }
            Work::Await(d, _) if self.linked => {
                self.confirmed = Some(*d.clone());
                self.rollbacks.clear();
                self.declared(&d, DeclarationState::Confirmed, "", now);
            }
            Work::Await(d, deadline) if now < deadline => {
                self.work = Some((deadline, Work::Await(d, deadline)));
            }
            Work::Await(d, _) => {
                self.declared(
                    &d,
                    DeclarationState::Reverted,
                    "no-link: nobody was reached in the window",
                    now,
                );
            }
            Work::ApplyPolicy(epoch) if self.is_broken_by(&epoch.policy) => {
                self.epoch_is(
                    epoch.epoch,
                    EpochState::Reverted,
                    "the probe web.answers says no",
                    now,
                );
            }
            Work::ApplyPolicy(epoch) => {
                self.epoch_is(epoch.epoch, EpochState::AwaitingConfirm, "", now);
                let deadline = after_secs(now, epoch.confirm_secs);
                let at = if self.linked {
                    after_secs(now, CONFIRM_SECS)
                } else {
                    deadline
                };
                self.work = Some((at, Work::AwaitPolicy(epoch, deadline)));
            }
            Work::AwaitPolicy(epoch, _) if self.linked => {
                let number = epoch.epoch;
                self.running = Some(*epoch);
                self.epoch_is(number, EpochState::Applied, "", now);
            }
            Work::AwaitPolicy(epoch, deadline) if now < deadline => {
                self.work = Some((deadline, Work::AwaitPolicy(epoch, deadline)));
            }
            Work::AwaitPolicy(epoch, _) => {
                let why = "no-link: nobody was reached in the window";
                self.epoch_is(epoch.epoch, EpochState::Reverted, why, now);
            }
        }
        true
    }

    fn begin(&mut self, newest: &Declaration, now: Timestamp) -> bool {
        let settled = self.status.as_ref().is_some_and(|status| {
            status.sequence >= newest.sequence && status.state != DeclarationState::Queued
        });
        if settled {
            return false;
        }
        if let Some(opens) = self.shut(newest.urgent, now) {
            let waits = format!("waits for the maintenance window that opens at {opens}");
            let said = self
                .status
                .as_ref()
                .is_some_and(|status| status.sequence == newest.sequence && status.reason == waits);
            self.declared(newest, DeclarationState::Queued, &waits, now);
            return !said;
        }
        self.declared(newest, DeclarationState::Applying, "", now);
        self.work = Some((after_secs(now, APPLY_SECS), Work::Apply(Box::new(newest.clone()))));
        true
    }

    fn shut(&mut self, urgent: bool, now: Timestamp) -> Option<Timestamp> {
        let opens = Openness::at(&self.windows(), now).opens().filter(|_| !urgent)?;
        self.opens = Some(opens);
        Some(opens)
    }

    fn begin_policy(&mut self, newest: &Epoch, all: &BTreeMap<Digest, Epoch>, now: Timestamp) -> bool {
        let Ok(digest) = Digest::of_value(newest) else {
            return false;
        };
        // It is refused as it comes: what runs goes on running (SG-5).
        if let Some(needed) = newest.min_daemon_version.as_ref().filter(|v| **v > self.version) {
            let why = format!("this order needs version {needed}, this is {}", self.version);
            let stands = |s: &EpochStatus| s.state_epoch == newest.epoch && s.reason == why;
            let said = self.epoch.as_ref().is_some_and(stands);
            self.epoch_is(newest.epoch, EpochState::Rejected, &why, now);
            return !said;
        }
        let Some((number, digest)) = epoch_to_run(newest, digest, self.id, self.roles()) else {
            return false;
        };
        let done = self
            .running
            .as_ref()
            .is_some_and(|running| running.epoch == number);
        let Some(epoch) = all.get(&digest).filter(|_| !done && self.settled_epoch != number) else {
            return false;
        };
        let same = self
            .running
            .as_ref()
            .is_some_and(|running| running.policy == epoch.policy);
        if same {
            self.running = Some(epoch.clone());
            self.epoch_is(number, EpochState::Applied, "", now);
            return false;
        }
        if let Some(why) = self.stays_behind(epoch, now) {
            let stands = |status: &EpochStatus| status.state_epoch == number && status.reason == why;
            let said = self.epoch.as_ref().is_some_and(stands);
            self.epoch_is(number, EpochState::LeftBehind, &why, now);
            return !said;
        }
        if let Some(opens) = self.shut(epoch.urgent, now) {
            let waits = format!("waits for the maintenance window that opens at {opens}");
            let said = self.epoch.as_ref().is_some_and(|status| status.reason == waits);
            self.epoch_is(number, EpochState::Received, &waits, now);
            return !said;
        }
        let epoch = Box::new(epoch.clone());
        self.epoch_is(number, EpochState::Staged, "", now);
        self.work = Some((after_secs(now, APPLY_SECS), Work::ApplyPolicy(epoch)));
        true
    }

    /// Why it does not run an epoch that addresses it: its class, until its grace is over (UC-1).
    fn stays_behind(&mut self, epoch: &Epoch, now: Timestamp) -> Option<String> {
        if self.record.class != UpdateClass::LeftBehind {
            return None;
        }
        let waited = self.left_behind.filter(|waited| waited.epoch == epoch.epoch);
        let waited = waited.unwrap_or(Waited {
            epoch: epoch.epoch,
            waited: Duration::ZERO,
        });
        self.left_behind = Some(waited);
        if self.record.pinned {
            return Some("pinned: it does not follow".to_owned());
        }
        let wait = u64::try_from(epoch.follow_secs(self.record.grace_secs)).unwrap_or(0);
        let left = Duration::from_secs(wait).saturating_sub(waited.waited);
        if left.is_zero() {
            return None;
        }
        let left = u32::try_from(left.as_secs())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        self.follows = Some(after_secs(now, left));
        Some(format!(
            "follows {wait} s after its first sight, where it still stands then"
        ))
    }

    fn declared(&mut self, of: &Declaration, state: DeclarationState, reason: &str, now: Timestamp) {
        self.status = Some(DeclarationStatus {
            sequence: of.sequence,
            digest: Digest::of_value(of).unwrap_or(Digest([0; 32])),
            state,
            since: now.as_second(),
            reason: reason.to_owned(),
            confirmed_sequence: self.confirmed.as_ref().map_or(0, |d| d.sequence),
            confirmed_digest: self.confirmed.as_ref().and_then(|d| Digest::of_value(d).ok()),
            converged: false,
        });
    }

    fn epoch_is(&mut self, number: u64, state: EpochState, reason: &str, now: Timestamp) {
        if state == EpochState::Reverted {
            self.settled_epoch = number;
        }
        self.epoch = Some(EpochStatus {
            state_epoch: number,
            state,
            reason: reason.to_owned(),
            received_via: "reconciler".to_owned(),
            received_at: now.as_second(),
            update_class: self.record.class,
            running: self.running.as_ref().map_or(0, |epoch| epoch.epoch),
        });
    }

    /// The highest numbers that it has verified.
    fn marks(&self) -> Marks {
        let mark = |number, digest| Mark { number, digest };
        let none = Digest::of(b"");
        Marks {
            era: 0,
            epoch: self.epoch.as_ref().map(|e| mark(e.state_epoch, none)),
            revision: None,
            sequence: self.status.as_ref().map(|s| mark(s.sequence, s.digest)),
            timestamp: None,
        }
    }

    /// Whether a heartbeat is due; the next is counted from now.
    pub(super) fn heartbeat_due(&mut self, now: Timestamp, every_secs: u32) -> bool {
        let due = self.reachable() && self.heartbeat <= now;
        if due {
            self.heartbeat = after_secs(now, every_secs);
        }
        due
    }

    /// Says how it is.
    pub(super) fn report(&mut self, cause: Cause, now: Timestamp) -> Report {
        self.counter += 1;
        self.turns += 1;
        let no = match self.probes {
            Probes::Yes => false,
            Probes::No => true,
            Probes::InTurns => self.turns.is_multiple_of(2),
        };
        let probe = "web.answers".parse::<ResourceName>().ok().filter(|_| no);
        let probes = probe.map(|name| ProbeLine {
            name,
            health: Health::Unhealthy,
            reason: "no answer".to_owned(),
        });
        Report {
            schema: 1,
            fleet: self.fleet.clone(),
            era: 0,
            issued_at: now.as_second(),
            must_understand: Vec::new(),
            node: self.id,
            counter: self.counter,
            boot_id: format!("boot {}", self.boot),
            instance: "simulated".to_owned(),
            started_at: 0,
            host_version: self.version.to_string(),
            launcher_version: None,
            cause,
            declaration: self.status.clone(),
            resources: Vec::new(),
            held: Vec::new(),
            strays: Vec::new(),
            left_out: Vec::new(),
            capabilities: Vec::new(),
            probes: probes.into_iter().collect(),
            restarts: 0,
            links: Vec::new(),
            filters: Vec::new(),
            firewalls: Vec::new(),
            rollbacks: self.rollbacks.clone(),
            witness: 1,
            marks: self.marks(),
            stale: false,
            paused: None,
            epoch: self.epoch.clone(),
            rotations: Vec::new(),
            policy_digest: None,
            clock_trusted: None,
            disk_free_bytes: None,
            load_hundredths: None,
            refused: Vec::new(),
            take_requests: Vec::new(),
        }
    }

    /// One line for a person: how it is, and what it runs.
    pub(super) fn line(&self) -> String {
        let there = match (self.powered, self.linked) {
            (false, _) => "off",
            (true, false) => "no link",
            (true, true) => "there",
        };
        let runs = self.confirmed.as_ref().and_then(|d| {
            d.resources.iter().find_map(|resource| match resource.read() {
                Ok(Kind::File(File {
                    content: Content::Text(text),
                    ..
                })) => Some(text.trim().replace('\n', " / ")),
                _ => None,
            })
        });
        let state = self.status.as_ref().map_or_else(
            || "no declaration".to_owned(),
            |s| {
                let reason = if s.reason.is_empty() {
                    String::new()
                } else {
                    format!(": {}", s.reason)
                };
                let state = crate::pure::page::declaration_word(s.state);
                format!("sequence {} {state}{reason}", s.sequence)
            },
        );
        let epoch = self.running.as_ref().map_or(0, |epoch| epoch.epoch);
        let runs = runs.map_or_else(String::new, |text| format!(", runs `{text}`"));
        let class = match self.record.class {
            UpdateClass::Required => String::new(),
            class => format!(" ({})", word(class)),
        };
        format!("{}{class}: {there}; {state}; epoch {epoch}{runs}", self.name)
    }
}
