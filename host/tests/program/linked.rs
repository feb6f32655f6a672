//! The running host and a reconciler: orders in, reports out, and what a crash between leaves.

use meshplan_host::edge::identity::Identity;
use meshplan_schemas::key::SigningKey;
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::{Cause, DeclarationState, Report};
use meshplan_schemas::wire::ToHost;

use super::reconciler::Reconciler;
use super::world::{Host, World, declaration, epoch, poll, text};

pub(crate) struct Fleet {
    pub(crate) reconciler: Reconciler,
    pub(crate) world: World,
    key: SigningKey,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let reconciler = Reconciler::start();
        let world = World::enrolled(&reconciler.address());
        let key = Identity::load(&world.state()).unwrap().public().1;
        Self {
            reconciler,
            world,
            key,
        }
    }
    fn reports(&self) -> Vec<Report> {
        self.reconciler.reports(&[self.key])
    }
    /// Waits for a report of which this holds.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Report) -> bool) -> Report {
        let mut found = None;
        let began = std::time::Instant::now();
        while found.is_none() {
            assert!(
                began.elapsed() < super::world::PATIENCE,
                "{what} was not reported; the host said:\n{}",
                self.world.log()
            );
            std::thread::sleep(std::time::Duration::from_millis(10));
            found = self.reports().into_iter().rev().find(|r| holds(r));
        }
        found.unwrap()
    }
    pub(crate) fn until_state(&self, sequence: u64, state: DeclarationState) -> Report {
        self.until(&format!("declaration {sequence} as {state:?}"), |r| {
            r.declaration
                .as_ref()
                .is_some_and(|d| d.sequence == sequence && d.state == state)
        })
    }
    pub(crate) fn run(&self) -> Host {
        self.world.run(&[])
    }
}

// holds: HR-2, HR-5, HR-11, EP-1
#[test]
fn orders_are_applied_confirmed_over_a_fresh_session_and_reported() {
    let fleet = Fleet::new();
    let host = fleet.run();
    let first = fleet.until("the start", |r| r.cause == Cause::Start);
    assert_eq!(first.declaration, None);
    let before = fleet.reconciler.sessions();
    fleet
        .reconciler
        .order(text(&declaration(1, "hello\n", Some("hello"))));
    let report = fleet.until_state(1, DeclarationState::Confirmed);
    assert!(
        fleet.reconciler.sessions() > before,
        "confirmed without a fresh session"
    );
    assert_eq!(report.marks.sequence.map(|m| m.number), Some(1));
    assert_eq!(fleet.world.file("etc/web.conf").as_deref(), Some("hello\n"));

    fleet.reconciler.order(text(&epoch(7, 40)));
    let applied = fleet.until("epoch 7", |r| {
        r.epoch
            .as_ref()
            .is_some_and(|e| e.state_epoch == 7 && e.state == EpochState::Applied)
    });
    assert_eq!(applied.epoch.unwrap().running, 7);
    let policy = fleet.world.file("var/lib/meshplan/policy.toml");
    assert_eq!(policy.as_deref(), Some("[scheduler]\nreconcile_secs = 40\n"));

    fleet.reconciler.say(ToHost::Look { id: 42 });
    let look = fleet.until("the look", |r| r.cause == Cause::Look(42));
    assert_eq!(look.probes.len(), 1);
    fleet.reconciler.say(ToHost::Heartbeat { secs: 1 });
    fleet.until("a heartbeat", |r| r.cause == Cause::Heartbeat);
    let counters: Vec<u64> = fleet.reports().iter().map(|r| r.counter).collect();
    assert_in_order(&counters);
    assert_eq!(host.stop(), Some(0));
}

/// Each report comes for the first time in the order of the counters. It may come twice: one that no acknowledgement
/// was heard for before the session was renewed is sent again in the next.
fn assert_in_order(counters: &[u64]) {
    let mut known = std::collections::BTreeSet::new();
    let first: Vec<u64> = counters.iter().copied().filter(|c| known.insert(*c)).collect();
    assert!(first.is_sorted(), "{counters:?}");
}

// holds: HR-5, DL-14
#[test]
fn a_probe_that_says_no_takes_the_change_back_and_the_content_is_remembered_over_a_restart() {
    let fleet = Fleet::new();
    let host = fleet.run();
    fleet
        .reconciler
        .order(text(&declaration(1, "hello\n", Some("hello"))));
    fleet.until_state(1, DeclarationState::Confirmed);
    let mut bad = declaration(2, "goodbye\n", Some("hello"));
    bad.confirm_secs = 2;
    fleet.reconciler.order(text(&bad));
    let report = fleet.until_state(2, DeclarationState::Reverted);
    let status = report.declaration.unwrap();
    assert_eq!(status.reason, "web.says: exit code 1: hello is not there");
    assert_eq!(status.confirmed_sequence, 1);
    assert_eq!(report.rollbacks[0].component, "web");
    assert_eq!(fleet.world.file("etc/web.conf").as_deref(), Some("hello\n"));
    assert_eq!(host.stop(), Some(0));

    let host = fleet.run();
    bad.sequence = 3;
    fleet.reconciler.order(text(&bad));
    fleet.until_state(3, DeclarationState::KnownBad);
    let (_, words) = fleet.world.say(&["status"]);
    assert!(words.contains("web is known bad"), "{words}");
    assert_eq!(host.stop(), Some(0));
}

// holds: HR-13
#[test]
fn a_host_that_is_killed_inside_a_window_goes_on_waiting_and_confirms() {
    let fleet = Fleet::new();
    let host = fleet.run();
    // The probe says no until the test makes it say yes: the window stays open.
    fleet
        .reconciler
        .order(text(&declaration(1, "wait\n", Some("ready"))));
    fleet.until_state(1, DeclarationState::AwaitingConfirm);
    host.kill();
    assert_eq!(fleet.world.file("etc/web.conf").as_deref(), Some("wait\n"));
    let host = fleet.run();
    poll("the window", || {
        fleet.world.json(&["status"])["window"].is_object()
    });
    std::fs::write(fleet.world.root().join("etc/web.conf"), "ready\n").unwrap();
    fleet.until_state(1, DeclarationState::Confirmed);
    assert_eq!(host.stop(), Some(0));
}

// holds: HR-11
#[test]
fn reports_wait_on_disk_while_nobody_answers_and_arrive_in_order_with_their_counters() {
    let mut fleet = Fleet::new();
    fleet.reconciler.deaf(true);
    let host = fleet.run();
    let unheard = fleet.until("the start", |r| r.cause == Cause::Start);
    host.kill();
    let queued = fleet.world.json(&["status"])["reports"]["queued"].clone();
    assert_eq!(
        queued[0], unheard.counter,
        "an acknowledgement was lost, the report is kept"
    );
    fleet.reconciler.go_away();
    let host = fleet.run();
    poll("the second start", || {
        fleet.world.json(&["status"])["reports"]["queued"]
            .as_array()
            .unwrap()
            .len()
            >= 2
    });
    let heard = fleet.reports().len();
    fleet.reconciler.deaf(false);
    fleet.reconciler.come_back();
    poll("an empty spool", || {
        fleet.world.json(&["status"])["reports"]["queued"]
            .as_array()
            .unwrap()
            .is_empty()
    });
    let counters: Vec<u64> = fleet.reports().iter().skip(heard).map(|r| r.counter).collect();
    assert_eq!(counters[0], unheard.counter);
    assert_in_order(&counters);
    assert_eq!(host.stop(), Some(0));
}

// holds: HR-11
#[test]
fn a_rejected_report_is_set_aside_and_seen() {
    let fleet = Fleet::new();
    fleet.reconciler.rejects(true);
    let host = fleet.run();
    fleet.until("the start", |r| r.cause == Cause::Start);
    poll("the report aside", || {
        fleet.world.json(&["status"])["reports"]["set_aside"]
            .as_array()
            .unwrap()
            .len()
            == 1
    });
    fleet.reconciler.rejects(false);
    fleet.reconciler.say(ToHost::Look { id: 1 });
    fleet.until("the next one", |r| r.cause == Cause::Look(1));
    let (_, words) = fleet.world.say(&["status"]);
    assert!(words.contains("1 were rejected and set aside"), "{words}");
    assert_eq!(host.stop(), Some(0));
}

// holds: SG-5
#[test]
fn a_forged_order_is_reported_and_has_no_other_effect() {
    let fleet = Fleet::new();
    let host = fleet.run();
    fleet.until("the start", |r| r.cause == Cause::Start);
    let forged = text(&declaration(1, "hello\n", None)).replace("\"keyid\":\"dana\"", "\"keyid\":\"eve\"");
    let forged = forged.replacen("\"payload\":\"e", "\"payload\":\"f", 1);
    fleet.reconciler.say(ToHost::Order { envelope: forged });
    let report = fleet.until("the refusal", |r| !r.refused.is_empty());
    assert_eq!(report.refused.len(), 1);
    assert_eq!(report.marks.sequence, None);
    assert_eq!(fleet.world.file("etc/web.conf"), None);
    assert_eq!(host.stop(), Some(0));
}

// holds: HR-15
#[test]
fn a_declaration_that_the_disk_lost_is_asked_for_by_the_first_word_and_not_applied_again() {
    let fleet = Fleet::new();
    let host = fleet.run();
    fleet.reconciler.order(text(&declaration(1, "hello\n", None)));
    let confirmed = fleet.until_state(1, DeclarationState::Confirmed);
    assert_eq!(host.stop(), Some(0));
    for name in ["orders/declaration", "orders/declaration.confirmed"] {
        std::fs::write(fleet.world.state().join(name), "").unwrap();
    }
    let hellos = fleet.reconciler.hellos().len();
    let host = fleet.run();
    poll("the next Hello", || fleet.reconciler.hellos().len() > hellos);
    assert_eq!(fleet.reconciler.hellos()[hellos].sequence, None);
    poll("the declaration's return", || {
        fleet.world.json(&["verify"])["whole"] == true
    });
    let report = fleet.until("the second start", |r| {
        r.cause == Cause::Start && r.counter > confirmed.counter
    });
    assert_eq!(report.declaration.unwrap().state, DeclarationState::Confirmed);
    let applying = fleet
        .world
        .say(&["journal"])
        .1
        .matches("declaration.applying")
        .count();
    assert_eq!(applying, 1);
    assert_eq!(host.stop(), Some(0));
}

// holds: HR-2
#[test]
fn drift_is_put_right_by_the_running_host_and_reported() {
    let fleet = Fleet::new();
    let host = fleet.world.run(&["--reconcile-secs", "1"]);
    fleet.reconciler.order(text(&declaration(1, "hello\n", None)));
    fleet.until_state(1, DeclarationState::Confirmed);
    std::fs::write(fleet.world.root().join("etc/web.conf"), "edited\n").unwrap();
    let report = fleet.until("the repair", |r| {
        r.resources
            .iter()
            .any(|l| l.outcome == meshplan_schemas::report::Outcome::DriftRepaired)
    });
    assert_eq!(report.resources[0].name.to_string(), "web.conf");
    assert_eq!(fleet.world.file("etc/web.conf").as_deref(), Some("hello\n"));
    assert_eq!(host.stop(), Some(0));
}

// holds: EP-2
#[test]
fn words_without_end_do_not_put_the_deadline_off() {
    let fleet = Fleet::new();
    let host = fleet.run();
    let mut bad = declaration(1, "hello\n", Some("goodbye"));
    bad.confirm_secs = 2;
    fleet.reconciler.order(text(&bad));
    poll("the way back", || {
        fleet.reconciler.say(ToHost::Look { id: 1 });
        fleet.reports().iter().any(|r| {
            r.declaration
                .as_ref()
                .is_some_and(|d| d.state == DeclarationState::Reverted)
        })
    });
    assert_eq!(fleet.world.file("etc/web.conf"), None);
    assert_eq!(host.stop(), Some(0));
}
