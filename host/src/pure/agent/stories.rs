//! Stories of a node, told to the agent without a socket or a disk.

use meshplan_schemas::declaration::OnFailure;
use meshplan_schemas::epoch::{InForce, Targeting};
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::{DeclarationState, Outcome};
use meshplan_schemas::resource::{Ask, Resource};
use proptest::prelude::*;

use super::*;
use crate::pure::sample;

/// A node: the agent, a machine that does as it is told, and what was written to disk.
struct Node {
    agent: Agent,
    now: i64,
    jobs: Vec<Job>,
    asked: Vec<Purpose>,
    reports: Vec<Cause>,
    said: Vec<FromHost>,
    journal: Vec<Entry>,
    renewed: usize,
    /// How the next applies end.
    ends: Vec<Applied>,
    disk_known_bad: KnownBad,
}

fn applied(end: ApplyEnd) -> Applied {
    Applied {
        end,
        lines: vec![],
        held: vec![],
        failed: false,
    }
}

fn line(name: &str, outcome: Outcome, reason: &str) -> ResourceLine {
    ResourceLine {
        name: name.parse().unwrap(),
        outcome,
        reason: reason.into(),
        digest: None,
    }
}

fn given(orders: Orders, marks: Option<Marks>, standing: Standing, known_bad: KnownBad) -> Given {
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
    fn new() -> Self {
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
    fn with(given: Given) -> Self {
        let mut node = Self::asleep(given, 1000);
        node.start(StartedWindow::Clean, None);
        node
    }
    fn asleep(given: Given, now: i64) -> Self {
        Self {
            agent: Agent::new(given, now),
            now,
            jobs: vec![],
            asked: vec![],
            reports: vec![],
            said: vec![],
            journal: vec![],
            renewed: 0,
            ends: vec![],
            disk_known_bad: KnownBad::default(),
        }
    }
    fn start(&mut self, window: StartedWindow, confirmed: Option<Digest>) {
        self.on(Event::Started(Box::new(Started {
            window,
            confirmed,
            policy: None,
            ledger_lost: None,
            broken: vec![],
        })));
    }
    /// The same node after its host was stopped and started again.
    fn restarted(mut self, window: StartedWindow, confirmed: Option<Digest>) -> Self {
        let given = given(
            std::mem::take(&mut self.agent.orders),
            Some(self.agent.marks.clone()),
            self.agent.standing.clone(),
            self.disk_known_bad.clone(),
        );
        let mut node = Self::asleep(given, self.now);
        node.start(window, confirmed);
        node
    }
    fn on(&mut self, event: Event) -> Vec<Effect> {
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
                Effect::SaveMarks(_) | Effect::Keep(..) | Effect::Drop(_) | Effect::SaveStanding => {}
            }
        }
        effects
    }
    /// Lets the machine do what it was told, in order.
    fn work(&mut self) {
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
                Job::Rebuild(_) | Job::Arm(_) => continue,
            };
            self.on(Event::Done(Box::new(done)));
        }
    }
    fn order(&mut self, text: String) -> Vec<Effect> {
        let effects = self.on(Event::Order(text));
        self.work();
        effects
    }
    fn declare(&mut self, declaration: &Declaration) {
        self.order(sample::text(declaration));
    }
    /// The session that the window asked for comes up.
    fn link(&mut self) {
        self.on(Event::LinkDown);
        self.on(Event::LinkUp);
        self.work();
    }
    fn tick(&mut self, later: i64) {
        self.now += later;
        self.on(Event::Tick);
        self.work();
    }
    fn probes_say(&mut self, health: Health, reason: &str) {
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
    fn state(&self) -> (u64, DeclarationState) {
        let status = self.agent.standing.declaration.as_ref().unwrap();
        (status.sequence, status.state)
    }
    fn reason(&self) -> &str {
        &self.agent.standing.declaration.as_ref().unwrap().reason
    }
    fn epoch_state(&self) -> (u64, EpochState) {
        let status = self.agent.standing.epoch.as_ref().unwrap();
        (status.state_epoch, status.state)
    }
    fn events(&self) -> Vec<&str> {
        self.journal.iter().map(|e| e.event.as_str()).collect()
    }
}

fn with_probe(mut declaration: Declaration) -> Declaration {
    let probe = Probe {
        ask: Ask::Tcp("127.0.0.1:1".into()),
        timeout_secs: 1,
    };
    declaration.resources.push(Resource {
        name: "web.front".parse().unwrap(),
        kind: "probe".into(),
        spec: serde_json::to_value(probe).unwrap(),
    });
    declaration
}

// holds: SG-5, HR-2
#[test]
fn the_number_is_on_disk_before_the_order_is_kept_and_the_order_before_the_first_act() {
    let mut node = Node::new();
    let text = sample::text(&sample::declaration(1, &[("web", "web-1")]));
    let effects = node.on(Event::Order(text));
    let place = |wanted: fn(&Effect) -> bool| effects.iter().position(wanted).unwrap();
    let marks = place(|e| matches!(e, Effect::SaveMarks(_)));
    let kept = place(|e| matches!(e, Effect::Keep(Slot::Declaration, _)));
    let trying = place(|e| matches!(e, Effect::Keep(Slot::Trying, _)));
    let intent = place(|e| matches!(e, Effect::SaveStanding));
    let act = place(|e| matches!(e, Effect::Machine(Job::Apply(_))));
    assert!(marks < kept && kept < trying && trying < intent && intent < act);
}

// holds: HR-5, EP-2
#[test]
fn a_declaration_stays_once_a_session_that_came_up_after_it_stands() {
    let mut node = Node::new();
    node.on(Event::LinkUp);
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
    assert_eq!(node.renewed, 1);
    node.tick(1);
    assert_eq!(
        node.state().1,
        DeclarationState::AwaitingConfirm,
        "the session from before does not count"
    );
    node.link();
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
    let status = node.agent.standing.declaration.clone().unwrap();
    assert_eq!(status.confirmed_sequence, 1);
    assert_eq!(status.confirmed_digest, Some(status.digest));
}

// holds: HR-5, HR-13
#[test]
fn without_a_session_it_goes_back_at_the_deadline_and_the_content_is_not_blamed() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.tick(59);
    assert_eq!(node.state().1, DeclarationState::AwaitingConfirm);
    node.tick(1);
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
    assert_eq!(node.reason(), "no-link");
    assert!(node.agent.known_bad.is_empty());
    node.declare(&sample::declaration(2, &[("web", "web-1")]));
    assert_eq!(
        node.state().1,
        DeclarationState::AwaitingConfirm,
        "ordered again, it is tried again"
    );
}

// holds: DL-14, HR-11
#[test]
fn content_that_a_probe_refused_is_not_tried_again_by_itself_not_even_after_a_restart() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("base", "base-1"), ("web", "web-1")]));
    node.link();
    node.declare(&with_probe(sample::declaration(
        2,
        &[("base", "base-1"), ("web", "web-2")],
    )));
    node.link();
    node.now += 60;
    node.probes_say(Health::Unhealthy, "HTTP 500, expected 200");
    assert_eq!(node.state(), (2, DeclarationState::Reverted));
    assert_eq!(node.reason(), "web.front: HTTP 500, expected 200");
    let verdict = node.agent.standing.rollbacks[0].clone();
    assert_eq!(
        (verdict.component.as_str(), verdict.from, verdict.to),
        (
            "web",
            sample::digest("web-2").to_string(),
            sample::digest("web-1").to_string()
        )
    );

    // The reconciler has forgotten it and orders the same content under a newer number.
    let confirmed = node.agent.orders.confirmed.as_ref().map(|c| c.digest);
    let mut node = node.restarted(StartedWindow::Clean, confirmed);
    node.tick(100);
    assert_eq!(
        node.state(),
        (2, DeclarationState::Reverted),
        "nothing is tried again by a restart"
    );
    node.declare(&with_probe(sample::declaration(
        3,
        &[("base", "base-1"), ("web", "web-2")],
    )));
    assert_eq!(node.state(), (3, DeclarationState::KnownBad));
    assert!(node.reason().contains("HTTP 500"), "{}", node.reason());
    assert!(!node.events().contains(&"declaration.applying"));

    // The way back is never known bad, and a person may have it tried once more.
    node.declare(&sample::declaration(4, &[("base", "base-1"), ("web", "web-1")]));
    node.link();
    assert_eq!(node.state(), (4, DeclarationState::Confirmed));
    assert!(node.agent.standing.rollbacks.is_empty());
    let mut again = with_probe(sample::declaration(5, &[("base", "base-1"), ("web", "web-2")]));
    again.again = vec![sample::digest("web-2")];
    node.declare(&again);
    assert_eq!(node.state(), (5, DeclarationState::AwaitingConfirm));
}

// holds: HR-5
#[test]
fn a_failed_resource_takes_all_back_and_its_module_alone_is_remembered() {
    let mut node = Node::new();
    node.ends = vec![Applied {
        lines: vec![line("web.conf", Outcome::Failed, "no such user")],
        failed: true,
        ..applied(ApplyEnd::Reverted("web.conf: no such user".into()))
    }];
    node.declare(&sample::declaration(1, &[("db", "db-1"), ("web", "web-1")]));
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
    assert_eq!(node.reason(), "web.conf: no such user");
    assert!(node.agent.known_bad.get(&sample::digest("web-1")).is_some());
    assert!(node.agent.known_bad.get(&sample::digest("db-1")).is_none());
}

// holds: HR-5
#[test]
fn with_keep_what_was_done_stays_and_the_failure_is_said_until_a_repair_mends_it() {
    let mut node = Node::new();
    let mut keep = sample::declaration(1, &[("web", "web-1")]);
    keep.on_failure = OnFailure::Keep;
    node.ends = vec![Applied {
        lines: vec![line("web.conf", Outcome::Failed, "no such user")],
        failed: true,
        ..applied(ApplyEnd::WindowOpen)
    }];
    node.declare(&keep);
    node.link();
    assert_eq!(node.state(), (1, DeclarationState::Failed));
    assert_eq!(node.reason(), "web.conf: no such user");
    assert_eq!(
        node.agent
            .standing
            .declaration
            .as_ref()
            .unwrap()
            .confirmed_sequence,
        1
    );
    node.tick(i64::from(RECONCILE_SECS));
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
}

// holds: HR-1
#[test]
fn while_a_window_is_open_orders_wait_and_the_highest_sequence_is_taken_next() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.declare(&sample::declaration(2, &[("web", "web-2")]));
    node.declare(&sample::declaration(4, &[("web", "web-4")]));
    node.declare(&sample::declaration(3, &[("web", "web-3")]));
    assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
    let refused = &node.agent.standing.refused;
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (refused[0].code.as_str(), refused[0].number),
        ("replayed", Some(3))
    );
    node.link();
    assert_eq!(node.state(), (4, DeclarationState::AwaitingConfirm));
    assert_eq!(
        node.journal
            .iter()
            .filter(|e| e.event == "declaration.set-aside")
            .count(),
        1
    );
    node.link();
    assert_eq!(node.state(), (4, DeclarationState::Confirmed));
}

// holds: HR-2
#[test]
fn a_declaration_that_changes_nothing_is_confirmed_at_once_and_says_converged() {
    let mut node = Node::new();
    node.ends = vec![applied(ApplyEnd::Converged)];
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
    assert!(node.agent.standing.declaration.as_ref().unwrap().converged);
    assert_eq!(node.renewed, 0);
}

// holds: HR-1
#[test]
fn the_same_order_again_does_nothing() {
    let mut node = Node::new();
    let order = sample::declaration(1, &[("web", "web-1")]);
    node.declare(&order);
    node.link();
    let reports = node.reports.len();
    let effects = node.order(sample::text(&order));
    assert_eq!(effects, []);
    assert_eq!(node.reports.len(), reports);
}

// holds: SG-5
#[test]
fn a_refused_order_causes_a_line_of_the_journal_and_a_report_and_nothing_else() {
    let mut node = Node::new();
    let forged = sample::text_by(&sample::declaration(9, &[("web", "evil")]), 2);
    let effects = node.order(forged);
    let others: Vec<_> = effects
        .iter()
        .filter(|e| !matches!(e, Effect::Journal(_) | Effect::SaveStanding | Effect::Report(_)))
        .collect();
    assert!(others.is_empty(), "{others:?}");
    assert_eq!(node.agent.standing.refused[0].code, "unknown_author");
    assert_eq!(node.agent.marks.sequence, None);
}

// holds: HR-13
#[test]
fn a_window_goes_on_over_a_restart_with_the_deadline_that_it_had() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.now += 50;
    let open = StartedWindow::StillOpen {
        declaration: node.agent.orders.trying.as_ref().map(|t| t.digest),
        opened_at: 1000,
        deadline: 1060,
    };
    let mut node = node.restarted(open, None);
    assert_eq!(node.renewed, 1);
    assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
    node.tick(10);
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
}

// holds: HR-13
#[test]
fn a_window_that_the_machine_took_back_at_start_is_told_and_not_begun_again() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    let back = StartedWindow::Reverted {
        why: "the machine was started anew inside the window".into(),
        lines: vec![],
    };
    let mut node = node.restarted(back, None);
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
    assert!(
        node.reason()
            .starts_with("interrupted: the machine was started anew")
    );
    node.tick(1000);
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
    assert!(node.agent.known_bad.is_empty());
}

// holds: HR-13
#[test]
fn a_confirm_whose_end_was_not_written_is_found_in_the_ledger() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    let digest = node.agent.orders.trying.as_ref().map(|t| t.digest);
    let node = node.restarted(StartedWindow::Clean, digest);
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
    assert_eq!(node.agent.orders.confirmed.as_ref().map(|c| c.digest), digest);
}

// holds: HR-5
#[test]
fn an_end_that_was_written_before_a_crash_is_not_begun_again() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    let tried = node.agent.orders.trying.clone();
    node.tick(60);
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
    // The power went between the standing and the place of what was tried.
    node.agent.orders.trying = tried;
    let mut node = node.restarted(StartedWindow::Clean, None);
    node.tick(100);
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
    assert_eq!(node.agent.orders.trying, None);
}

// holds: HK-13
#[test]
fn slow_probes_are_not_asked_again_while_they_have_not_answered() {
    let mut node = Node::new();
    node.declare(&with_probe(sample::declaration(1, &[("web", "web-1")])));
    let windows = |node: &Node| {
        node.asked
            .iter()
            .filter(|p| matches!(p, Purpose::Window(_)))
            .count()
    };
    for _ in 0..10 {
        node.tick(2);
    }
    assert_eq!(windows(&node), 1);
    node.probes_say(Health::Unhealthy, "no");
    node.tick(2);
    assert_eq!(windows(&node), 2);
}

// holds: HR-5
#[test]
fn an_order_that_never_came_to_its_first_act_is_begun_at_the_next_start() {
    let mut node = Node::new();
    let text = sample::text(&sample::declaration(1, &[("web", "web-1")]));
    node.on(Event::Order(text));
    let mut node = node.restarted(StartedWindow::Clean, None);
    node.work();
    assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
}

// holds: HR-15
#[test]
fn what_the_disk_lost_is_asked_for_again_and_nothing_older_is_begun_meanwhile() {
    let mut node = Node::new();
    let order = sample::declaration(1, &[("web", "web-1")]);
    node.declare(&order);
    node.link();
    let digest = node.agent.orders.confirmed.as_ref().map(|c| c.digest);
    node.agent.orders.declaration = None;
    node.agent.orders.confirmed = None;
    let mut node = node.restarted(StartedWindow::Clean, digest);
    node.on(Event::LinkUp);
    let Some(FromHost::Hello { marks, .. }) = node.said.last() else {
        panic!("no Hello")
    };
    assert_eq!(marks.sequence, None);
    assert!(node.agent.marks.sequence.is_some(), "the mark itself stands");
    node.declare(&order);
    assert_eq!(node.agent.orders.confirmed.as_ref().map(|c| c.digest), digest);
    assert!(!node.events().contains(&"declaration.applying"));
}

// holds: HR-15
#[test]
fn a_lost_ledger_is_made_anew_before_the_next_apply() {
    let (head, _) = sample::head(1, &[1]);
    let orders = Orders {
        head: Some(sample::kept(&head)),
        ..Orders::default()
    };
    let given = given(
        orders,
        Some(Marks::default()),
        Standing::default(),
        KnownBad::default(),
    );
    let mut node = Node::asleep(given, 1000);
    node.on(Event::Started(Box::new(Started {
        window: StartedWindow::Clean,
        confirmed: None,
        policy: None,
        ledger_lost: Some("it is empty".into()),
        broken: vec!["orders/record: cut".into()],
    })));
    node.on(Event::Order(sample::text(&sample::declaration(1, &[]))));
    assert!(
        matches!(node.jobs[..], [Job::Rebuild(_), Job::Apply(_)]),
        "{:?}",
        node.jobs
    );
    assert!(node.events().contains(&"ledger.lost") && node.events().contains(&"state.broken"));
}

// holds: SG-5
#[test]
fn with_both_marks_lost_the_policy_stays_as_it_is_until_a_reconciler_has_spoken() {
    let mut node = Node::new();
    node.order(sample::text(&policy(1, 1, Targeting::everyone(), vec![])));
    let orders = std::mem::take(&mut node.agent.orders);
    let given = given(orders, None, Standing::default(), KnownBad::default());
    let mut node = Node::with(given);
    node.tick(1);
    assert!(node.jobs.is_empty() && !node.events().contains(&"epoch.staged"));
    node.on(Event::LinkUp);
    node.on(Event::Current);
    assert!(node.events().contains(&"epoch.staged"));
}

fn policy(
    number: u64,
    value: u32,
    targeting: Targeting,
    in_force: Vec<InForce>,
) -> meshplan_schemas::epoch::Epoch {
    let text = format!("[base.scheduler]\nreconcile_secs = {value}\n");
    sample::epoch(number, &text, targeting, in_force)
}

// holds: EP-1
#[test]
fn an_epoch_is_received_staged_awaited_and_applied_and_each_step_is_in_the_journal() {
    let mut node = Node::new();
    let text = sample::text(&policy(7, 40, Targeting::everyone(), vec![]));
    node.on(Event::Order(text));
    assert_eq!(node.epoch_state(), (7, EpochState::Staged));
    node.work();
    assert_eq!(node.epoch_state(), (7, EpochState::AwaitingConfirm));
    node.link();
    assert_eq!(node.epoch_state(), (7, EpochState::Applied));
    let status = node.agent.standing.epoch.clone().unwrap();
    assert_eq!(
        (status.running, status.received_via.as_str(), status.received_at),
        (7, "reconciler", 1000)
    );
    assert_eq!(node.events(), ["epoch.received", "epoch.staged", "epoch.applied"]);
    assert_eq!(node.agent.reconcile_secs(), 40);
}

// holds: EP-2, EP-3
#[test]
fn an_epoch_that_did_not_stay_is_not_tried_again_until_a_newer_one_comes() {
    let mut node = Node::new();
    node.order(sample::text(&policy(7, 40, Targeting::everyone(), vec![])));
    node.tick(60);
    assert_eq!(node.epoch_state(), (7, EpochState::Reverted));
    node.tick(100);
    assert_eq!(node.epoch_state(), (7, EpochState::Reverted));
    node.order(sample::text(&policy(8, 40, Targeting::everyone(), vec![])));
    assert_eq!(node.epoch_state(), (8, EpochState::AwaitingConfirm));
}

// holds: EP-3
#[test]
fn missing_bytes_are_asked_for_once_a_session_and_then_run() {
    let mut node = Node::new();
    let release = policy(2, 20, Targeting::everyone(), vec![]);
    let named = InForce {
        epoch: 2,
        digest: sample::kept(&release).digest,
        targeting: Targeting::everyone(),
    };
    let canary = policy(
        3,
        30,
        Targeting::nodes(vec![sample::OTHER_NODE]),
        vec![named.clone()],
    );
    node.on(Event::LinkUp);
    node.order(sample::text(&canary));
    node.tick(1);
    let wants = |node: &Node| {
        node.said
            .iter()
            .filter(|m| matches!(m, FromHost::Want { .. }))
            .count()
    };
    assert_eq!(node.said.last(), Some(&FromHost::Want { digest: named.digest }));
    assert_eq!(wants(&node), 1);
    node.on(Event::LinkUp);
    assert_eq!(wants(&node), 2);
    node.order(sample::text(&release));
    node.link();
    assert_eq!(node.epoch_state(), (2, EpochState::Applied));
    assert_eq!(node.agent.marks.epoch.map(|m| m.number), Some(3));
}

// holds: EP-3
#[test]
fn a_number_over_the_same_bytes_is_noted_with_the_next_heartbeat() {
    let mut node = Node::new();
    node.order(sample::text(&policy(1, 40, Targeting::everyone(), vec![])));
    node.link();
    let before = node.reports.len();
    node.order(sample::text(&policy(2, 40, Targeting::everyone(), vec![])));
    assert_eq!(node.epoch_state(), (2, EpochState::Applied));
    assert_eq!(node.reports.len(), before);
    node.tick(i64::from(HEARTBEAT_SECS));
    assert_eq!(node.reports.last(), Some(&Cause::Heartbeat));
}

// holds: EP-1
#[test]
fn an_epoch_that_only_this_host_is_too_old_for_is_told_as_rejected_under_its_number() {
    let mut node = Node::new();
    let mut newer = policy(7, 40, Targeting::everyone(), vec![]);
    newer.min_daemon_version = Some(Version::new(9, 0, 0));
    node.order(sample::text(&newer));
    assert_eq!(node.epoch_state(), (7, EpochState::Rejected));
    assert_eq!(node.agent.standing.refused[0].code, "old_version");
    assert_eq!(node.agent.marks.epoch, None, "a newer host judges it again");
}

// holds: SG-2
#[test]
fn a_confirmed_change_of_roles_changes_the_effective_policy() {
    let mut node = Node::new();
    let text = "[base.qos]\nx = 1\n[roles.edge.qos]\nx = 2\n";
    node.order(sample::text(&sample::epoch(
        1,
        text,
        Targeting::everyone(),
        vec![],
    )));
    node.link();
    let before = node.agent.standing.policy;
    let mut edge = sample::declaration(1, &[]);
    edge.roles = vec!["edge".parse().unwrap()];
    node.declare(&edge);
    assert_eq!(
        node.agent.standing.policy, before,
        "not before the declaration is confirmed"
    );
    node.link();
    assert_eq!(node.epoch_state(), (1, EpochState::AwaitingConfirm));
    node.link();
    assert_eq!(node.epoch_state(), (1, EpochState::Applied));
    assert_ne!(node.agent.standing.policy, before);
}

// holds: DL-5
#[test]
fn a_look_asks_the_probes_afresh_and_then_reports_under_its_id() {
    let mut node = Node::new();
    node.declare(&with_probe(sample::declaration(1, &[("web", "web-1")])));
    node.on(Event::Look(42));
    assert_eq!(node.asked.last(), Some(&Purpose::Look(42)));
    assert!(!node.reports.contains(&Cause::Look(42)));
    node.on(Event::Probed {
        purpose: Purpose::Look(42),
        lines: vec![],
    });
    assert_eq!(node.reports.last(), Some(&Cause::Look(42)));
}

// holds: HR-13
#[test]
fn an_answer_of_probes_that_were_asked_for_a_former_window_is_not_counted() {
    let mut node = Node::new();
    node.declare(&with_probe(sample::declaration(1, &[("web", "web-1")])));
    node.link();
    node.on(Event::Probed {
        purpose: Purpose::Window(node.agent.serial - 1),
        lines: vec![],
    });
    node.work();
    assert_eq!(node.state().1, DeclarationState::AwaitingConfirm);
    node.probes_say(Health::Healthy, "");
    assert_eq!(node.state().1, DeclarationState::Confirmed);
}

// holds: HR-2
#[test]
fn drift_is_put_right_at_the_reconcile_and_reported() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.link();
    node.now += i64::from(RECONCILE_SECS);
    node.on(Event::Tick);
    assert!(matches!(node.jobs[..], [Job::Repair(_)]));
    node.jobs.clear();
    let reports = node.reports.len();
    node.on(Event::Done(Box::new(Done::Repaired(Applied {
        lines: vec![line("web.conf", Outcome::DriftRepaired, "somebody edited it")],
        ..applied(ApplyEnd::Converged)
    }))));
    assert_eq!(node.reports.get(reports..), Some(&[Cause::Change][..]));
    node.tick(i64::from(RECONCILE_SECS));
    assert!(
        node.agent.standing.lines.is_empty(),
        "nothing was left to put right"
    );
}

// holds: SG-3
#[test]
fn the_former_head_is_kept_until_a_session_under_the_new_one_has_worked() {
    let mut node = Node::new();
    node.on(Event::LinkUp);
    node.order(sample::text(&sample::head(2, &[1, 3]).0));
    assert_eq!(
        node.agent.orders.former_head.as_ref().map(|h| h.payload.revision),
        Some(1)
    );
    node.order(sample::text(&sample::head(3, &[1, 3]).0));
    assert_eq!(
        node.agent.orders.former_head.as_ref().map(|h| h.payload.revision),
        Some(1)
    );
    node.on(Event::LinkDown);
    let effects = node.on(Event::LinkUp);
    assert!(effects.contains(&Effect::Drop(Slot::FormerHead)));
    assert_eq!(node.agent.orders.former_head, None);
}

// holds: EP-2
#[test]
fn a_verdict_that_the_machine_could_not_carry_out_is_tried_again() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.now += 60;
    node.on(Event::Tick);
    assert!(matches!(node.jobs.pop(), Some(Job::Revert(_))));
    node.on(Event::Done(Box::new(Done::Failed(
        "revert: the disk is full".into(),
    ))));
    assert_eq!(node.state().1, DeclarationState::AwaitingConfirm);
    node.tick(1);
    assert_eq!(node.state().1, DeclarationState::Reverted);
}

fn any_event() -> impl Strategy<Value = u8> {
    0u8..9
}

proptest! {
    // holds: HR-5, EP-2
    #[test]
    fn whatever_happens_one_thing_at_a_time_touches_the_machine_and_every_window_ends(
        events in proptest::collection::vec((any_event(), 0i64..40), 1..60)
    ) {
        let mut node = Node::new();
        let (mut sequence, mut epoch) = (0, 0);
        for (event, later) in events {
            node.now += later;
            match event {
                0 => { node.on(Event::LinkUp); }
                1 => { node.on(Event::LinkDown); }
                2 => {
                    sequence += 1;
                    let order = sample::declaration(sequence, &[("web", &format!("web-{sequence}"))]);
                    node.on(Event::Order(sample::text(&order)));
                }
                3 => {
                    epoch += 1;
                    let value = u32::try_from(epoch).unwrap();
                    node.on(Event::Order(sample::text(&policy(epoch, value, Targeting::everyone(), vec![]))));
                }
                4 => { node.on(Event::Restarting { secs: 60 }); }
                5 => { node.on(Event::Look(1)); }
                6 => { node.on(Event::Tick); }
                7 => {
                    node.ends = vec![applied(ApplyEnd::Reverted("no".into()))];
                    node.work();
                }
                _ => node.work(),
            }
            // Arming and rebuilding ride along; of what the agent waits for there is at most one.
            let waited = node.jobs.iter().filter(|j| !matches!(j, Job::Arm(_) | Job::Rebuild(_))).count();
            prop_assert!(waited <= 1, "{:?}", node.jobs);
        }
        for _ in 0..20 {
            node.work();
            node.tick(200);
        }
        prop_assert!(node.agent.standing.window.is_none());
        if sequence > 0 {
            let (number, state) = node.state();
            prop_assert_eq!(number, sequence);
            prop_assert!(matches!(state, DeclarationState::Confirmed | DeclarationState::Reverted));
        }
    }
}
