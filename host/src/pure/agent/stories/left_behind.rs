//! Stories of a node that is left behind (UC-1): what it reports, when it follows, what it never runs.

use meshplan_schemas::fleet_list::UpdateClass;

use super::*;

/// A node that runs epoch 1 and is left behind from now on, with a grace of ten minutes.
fn behind() -> Node {
    let mut node = Node::new();
    node.order(sample::text(&policy(1, 40, Targeting::everyone(), vec![])));
    node.link();
    assert_eq!(node.epoch_state(), (1, EpochState::Applied));
    node.agent
        .orders
        .head
        .as_mut()
        .unwrap()
        .payload
        .settings
        .left_behind_grace_secs = 600;
    class(&mut node, UpdateClass::LeftBehind, false);
    node
}

fn class(node: &mut Node, class: UpdateClass, pinned: bool) {
    let leaf = &mut node.agent.orders.record.as_mut().unwrap().1;
    leaf.update_class = class;
    leaf.pinned = pinned;
}

fn runs(node: &Node) -> u64 {
    node.agent.standing.running.unwrap().number
}

/// The node at its next waking, which is the end of its wait.
fn wait_is_over(node: &mut Node) {
    node.tick(0);
    let wake = node.agent.follows.expect("it waits");
    assert!(node.agent.next_wake(node.now) <= wake, "it must wake by itself");
    node.tick(wake - node.now);
}

fn second() -> String {
    sample::text(&policy(2, 50, Targeting::everyone(), vec![]))
}

// holds: UC-1, EP-1
#[test]
fn it_keeps_the_epoch_says_that_it_is_left_behind_and_follows_when_its_grace_is_over() {
    let mut node = behind();
    let held = node.agent.orders.epochs.len();
    node.order(second());
    assert_eq!(node.epoch_state(), (2, EpochState::LeftBehind));
    assert_eq!(
        node.agent.orders.epochs.len(),
        held + 1,
        "kept for its neighbours"
    );
    let status = node.agent.standing.epoch.clone().unwrap();
    assert_eq!(
        (status.update_class, status.running),
        (UpdateClass::LeftBehind, 1)
    );
    assert_eq!(
        status.reason,
        "follows 600 s after its first sight, where it still stands then"
    );
    let reports = node.reports.len();
    node.tick(599);
    assert_eq!(
        (node.epoch_state(), runs(&node)),
        ((2, EpochState::LeftBehind), 1)
    );
    let changes = node.reports.iter().skip(reports).filter(|c| **c == Cause::Change);
    assert_eq!(changes.count(), 0, "it is said once");
    wait_is_over(&mut node);
    assert_eq!(node.epoch_state(), (2, EpochState::AwaitingConfirm));
    node.link();
    assert_eq!(node.epoch_state(), (2, EpochState::Applied));
    let events = node.events();
    assert_eq!(
        events.iter().filter(|e| **e == "epoch.left-behind").count(),
        1,
        "{events:?}"
    );
}

// holds: UC-1
#[test]
fn the_watch_of_a_release_is_waited_for_where_it_is_longer() {
    let mut node = behind();
    let mut release = policy(2, 50, Targeting::everyone(), vec![]);
    release.watch_until = Some(release.issued_at + 4000);
    node.order(sample::text(&release));
    node.tick(3999);
    assert_eq!(runs(&node), 1);
    assert_eq!(node.epoch_state(), (2, EpochState::LeftBehind));
    wait_is_over(&mut node);
    assert_eq!(node.epoch_state(), (2, EpochState::AwaitingConfirm));
}

// holds: UC-1
#[test]
fn a_start_neither_ends_the_wait_nor_begins_it_anew() {
    let mut node = behind();
    node.order(second());
    node.tick(400);
    // What the heartbeat wrote is what a start finds; the time while it was stopped is not counted.
    let mut stopped = node.restarted(StartedWindow::Clean, None);
    stopped.now += 100_000;
    let mut node = stopped.restarted(StartedWindow::Clean, None);
    assert_eq!(node.epoch_state(), (2, EpochState::LeftBehind));
    node.tick(199);
    assert_eq!(node.epoch_state(), (2, EpochState::LeftBehind));
    wait_is_over(&mut node);
    assert_eq!(node.epoch_state(), (2, EpochState::AwaitingConfirm));
}

// holds: UC-1
#[test]
fn how_long_it_has_waited_is_written_with_every_heartbeat() {
    let mut node = behind();
    node.order(second());
    node.now += i64::from(HEARTBEAT_SECS);
    assert!(node.on(Event::Tick).contains(&Effect::SaveStanding));
    assert_eq!(
        node.agent.standing.left_behind.unwrap().secs,
        i64::from(HEARTBEAT_SECS)
    );
    // One that waits for nothing does not write every half minute.
    class(&mut node, UpdateClass::LeftBehind, true);
    node.tick(1);
    node.now += i64::from(HEARTBEAT_SECS);
    assert!(!node.on(Event::Tick).contains(&Effect::SaveStanding));
}

// holds: UC-1, RO-8
#[test]
fn a_clock_that_is_set_makes_it_follow_neither_at_once_nor_never() {
    for jump in [86_400 * 365, -86_400 * 365] {
        let mut node = behind();
        node.order(second());
        node.tick(300);
        node.now += jump;
        node.agent.clock_was_set(node.now);
        node.tick(299);
        assert_eq!(node.epoch_state(), (2, EpochState::LeftBehind), "by {jump} s");
        wait_is_over(&mut node);
        assert_eq!(
            node.epoch_state(),
            (2, EpochState::AwaitingConfirm),
            "by {jump} s"
        );
    }
}

// holds: UC-1
#[test]
fn pinned_it_never_follows_until_its_record_says_otherwise() {
    let mut node = behind();
    class(&mut node, UpdateClass::LeftBehind, true);
    node.order(second());
    assert_eq!(
        node.agent.standing.epoch.as_ref().unwrap().reason,
        "pinned: it does not follow"
    );
    for _ in 0..10 {
        node.tick(86_400);
    }
    assert_eq!(
        (node.epoch_state(), runs(&node)),
        ((2, EpochState::LeftBehind), 1)
    );
    assert_eq!(node.agent.follows, None);
    class(&mut node, UpdateClass::Required, false);
    node.tick(1);
    assert_eq!(node.epoch_state(), (2, EpochState::AwaitingConfirm));
}

// holds: UC-1, EP-3
#[test]
fn a_release_that_is_aborted_in_its_grace_is_never_run() {
    let mut node = behind();
    node.order(second());
    node.tick(500);
    let mut abort = policy(3, 40, Targeting::everyone(), vec![]);
    abort.urgent = true;
    node.order(sample::text(&abort));
    assert_eq!(
        node.epoch_state(),
        (3, EpochState::Applied),
        "the bytes that it runs: noted"
    );
    node.tick(86_400);
    assert_eq!(runs(&node), 3);
    assert!(node.jobs.is_empty() && node.agent.standing.window.is_none());
    assert!(
        !node.events().contains(&"epoch.staged")
            || node.events().iter().filter(|e| **e == "epoch.staged").count() == 1
    );
}

// holds: UC-1, EP-3
#[test]
fn a_newer_release_begins_the_wait_anew_and_a_canary_for_others_does_not() {
    let mut node = behind();
    let release = policy(2, 50, Targeting::everyone(), vec![]);
    let stands = InForce {
        epoch: 2,
        digest: sample::kept(&release).digest,
        targeting: Targeting::everyone(),
    };
    node.order(sample::text(&release));
    node.tick(300);
    let others = Targeting::nodes(vec![sample::OTHER_NODE]);
    node.order(sample::text(&policy(3, 60, others, vec![stands])));
    assert_eq!(node.epoch_state(), (2, EpochState::LeftBehind));
    node.tick(200);
    assert_eq!(node.agent.standing.left_behind.unwrap().secs, 500);
    node.order(sample::text(&policy(4, 60, Targeting::everyone(), vec![])));
    assert_eq!(node.epoch_state(), (4, EpochState::LeftBehind));
    node.tick(599);
    assert_eq!(node.epoch_state(), (4, EpochState::LeftBehind));
    wait_is_over(&mut node);
    assert_eq!(node.epoch_state(), (4, EpochState::AwaitingConfirm));
}

// holds: UC-1
#[test]
fn a_declaration_is_applied_as_it_comes_whatever_the_class_is() {
    let mut node = behind();
    class(&mut node, UpdateClass::LeftBehind, true);
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.link();
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
}
