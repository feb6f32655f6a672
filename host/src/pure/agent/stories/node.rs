//! A node for stories: the agent, a machine that does as it is told, and what was written to disk.

use super::*;

/// A node: the agent, a machine that does as it is told, and what was written to disk.
pub(super) struct Node {
    pub(super) agent: Agent,
    pub(super) now: i64,
    pub(super) jobs: Vec<Job>,
    pub(super) fetches: Vec<Digest>,
    pub(super) asked: Vec<Purpose>,
    pub(super) reports: Vec<Cause>,
    pub(super) said: Vec<FromHost>,
    pub(super) journal: Vec<Entry>,
    pub(super) renewed: usize,
    /// How the next applies end.
    pub(super) ends: Vec<Applied>,
    /// What is nobody's here, when that is asked.
    pub(super) strays: Vec<String>,
    /// What is still not back of a change, when that is asked.
    pub(super) walked: Option<Vec<ResourceLine>>,
    pub(super) disk_known_bad: KnownBad,
}

pub(super) fn applied(end: ApplyEnd) -> Applied {
    Applied {
        end,
        lines: vec![],
        held: vec![],
        failed: false,
    }
}

pub(super) fn line(name: &str, outcome: Outcome, reason: &str) -> ResourceLine {
    ResourceLine {
        name: name.parse().unwrap(),
        outcome,
        reason: reason.into(),
        digest: None,
    }
}

pub(super) fn given(orders: Orders, marks: Option<Marks>, standing: Standing, known_bad: KnownBad) -> Given {
    Given {
        fleet: "shop".parse().unwrap(),
        node: sample::NODE,
        version: Version::new(0, 1, 0),
        orders,
        marks: marks.map(|m| (m, None)),
        standing,
        known_bad,
        reconcile_secs: None,
        instance: "i".into(),
        boot_id: "b".into(),
    }
}

impl Node {
    /// A node with its list and record, started, without a session.
    pub(super) fn new() -> Self {
        let (head, proof) = sample::head(1, &[1]);
        let leaf = sample::leaf(sample::NODE, Default::default());
        let orders = Orders {
            head: Some(sample::kept(&head)),
            record: Some((proof, leaf)),
            ..Orders::default()
        };
        Self::with(given(
            orders,
            Some(Marks::default()),
            Standing::default(),
            KnownBad::default(),
        ))
    }
    pub(super) fn with(given: Given) -> Self {
        let mut node = Self::asleep(given, 1000);
        node.start(StartedWindow::Clean, None);
        node
    }
    pub(super) fn asleep(given: Given, now: i64) -> Self {
        Self {
            agent: Agent::new(given, now),
            now,
            jobs: vec![],
            fetches: vec![],
            asked: vec![],
            reports: vec![],
            said: vec![],
            journal: vec![],
            renewed: 0,
            ends: vec![],
            strays: vec![],
            walked: None,
            disk_known_bad: KnownBad::default(),
        }
    }
    pub(super) fn start(&mut self, window: StartedWindow, confirmed: Option<Digest>) {
        self.on(Event::Started(Box::new(Started {
            window,
            confirmed,
            policy: None,
            ledger_lost: None,
            taken_back: None,
            broken: vec![],
        })));
    }
    /// The same node after its host was stopped and started again.
    pub(super) fn restarted(self, window: StartedWindow, confirmed: Option<Digest>) -> Self {
        let mut node = self.stopped();
        node.start(window, confirmed);
        node
    }
    /// The same, with this seen of a pause at the start.
    pub(super) fn restarted_paused(self, seen: crate::pure::pause::Seen, confirmed: Option<Digest>) -> Self {
        let mut node = self.stopped();
        node.agent.tell_pause(seen);
        node.start(StartedWindow::Clean, confirmed);
        node
    }
    fn stopped(mut self) -> Self {
        let given = given(
            std::mem::take(&mut self.agent.orders),
            Some(self.agent.marks.clone()),
            self.agent.standing.clone(),
            self.disk_known_bad.clone(),
        );
        Self::asleep(given, self.now)
    }
    pub(super) fn on(&mut self, event: Event) -> Vec<Effect> {
        let effects = self.agent.on(event, self.now);
        for effect in &effects {
            match effect {
                Effect::Machine(job) => self.jobs.push(job.clone()),
                Effect::AskProbes(purpose, _) => self.asked.push(*purpose),
                Effect::Report(cause) => self.reports.push(cause.clone()),
                Effect::Say(message) => self.said.push((**message).clone()),
                Effect::Journal(entry) => self.journal.push(entry.clone()),
                Effect::Renew => self.renewed += 1,
                Effect::SaveKnownBad => self.disk_known_bad = self.agent.known_bad.clone(),
                Effect::Fetch(kept) => self.fetches.push(kept.digest),
                Effect::SaveMarks(_) | Effect::Keep(..) | Effect::Drop(_) | Effect::SaveStanding => {}
            }
        }
        effects
    }
    /// Lets the machine do what it was told, in order.
    pub(super) fn work(&mut self) {
        while !self.jobs.is_empty() {
            let done = match self.jobs.remove(0) {
                Job::Apply(_) | Job::ApplyPolicy { .. } => {
                    let end = if self.ends.is_empty() {
                        applied(ApplyEnd::WindowOpen)
                    } else {
                        self.ends.remove(0)
                    };
                    Done::Applied(end)
                }
                Job::Confirm => Done::Confirmed,
                Job::Revert(_) => Done::Reverted(vec![]),
                Job::Repair(_) => Done::Repaired(applied(ApplyEnd::Converged)),
                Job::Strays(_) => Done::Strays(self.strays.clone()),
                Job::Finish => Done::Finished(self.walked.clone()),
                Job::Rebuild(..) | Job::Arm(_) => continue,
            };
            self.on(Event::Done(Box::new(done)));
        }
    }
    pub(super) fn order(&mut self, text: String) -> Vec<Effect> {
        let effects = self.on(Event::Order(text));
        self.work();
        effects
    }
    pub(super) fn declare(&mut self, declaration: &Declaration) {
        self.order(sample::text(declaration));
    }
    /// The session that the window asked for comes up.
    pub(super) fn link(&mut self) {
        self.on(Event::LinkDown);
        self.on(Event::LinkUp(Way::Far));
        self.work();
    }
    pub(super) fn tick(&mut self, later: i64) {
        self.now += later;
        self.on(Event::Tick);
        self.work();
    }
    pub(super) fn probes_say(&mut self, health: Health, reason: &str) {
        let serial = self.agent.serial;
        self.on(Event::Probed {
            purpose: Purpose::Window(serial),
            lines: vec![ProbeLine {
                name: "web.front".parse().unwrap(),
                health,
                reason: reason.into(),
            }],
        });
        self.work();
    }
    pub(super) fn state(&self) -> (u64, DeclarationState) {
        let status = self.agent.standing.declaration.as_ref().unwrap();
        (status.sequence, status.state)
    }
    pub(super) fn reason(&self) -> &str {
        &self.agent.standing.declaration.as_ref().unwrap().reason
    }
    pub(super) fn epoch_state(&self) -> (u64, EpochState) {
        let status = self.agent.standing.epoch.as_ref().unwrap();
        (status.state_epoch, status.state)
    }
    pub(super) fn events(&self) -> Vec<&str> {
        self.journal.iter().map(|e| e.event.as_str()).collect()
    }
}

pub(super) fn with_probe(mut declaration: Declaration) -> Declaration {
    let probe = Probe {
        ask: Ask::Tcp("127.0.0.1:1".into()),
        timeout_secs: 1,
    };
    declaration.resources.push(Resource {
        name: "web.front".parse().unwrap(),
        kind: "probe".into(),
        spec: serde_json::to_value(probe).unwrap(),
        forward_only: None,
        not_reversible: None,
        hides: Vec::new(),
    });
    declaration
}

pub(super) fn policy(
    number: u64,
    value: u32,
    targeting: Targeting,
    in_force: Vec<InForce>,
) -> meshplan_schemas::epoch::Epoch {
    let text = format!("[base.scheduler]\nreconcile_secs = {value}\n");
    sample::epoch(number, &text, targeting, in_force)
}
