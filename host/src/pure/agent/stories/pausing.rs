//! A pause on the machine (HR-17): what is under way goes on, nothing else is begun.

use meshplan_schemas::report::Paused;

use super::*;
use crate::pure::pause::Seen;
use crate::pure::report;

fn holds(until: i64) -> Seen {
    Seen::Holds {
        id: "p".into(),
        paused: Paused {
            until,
            why: "the disk is changed".into(),
        },
    }
}

fn tell(node: &mut Node, seen: Seen) {
    node.agent.tell_pause(seen);
    node.tick(0);
}

/// A node with a confirmed declaration and a session.
fn at_work() -> Node {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    node.link();
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
    node
}

// holds: HR-17
#[test]
fn while_paused_orders_are_kept_and_not_begun_and_at_its_end_the_newest_is() {
    let mut node = at_work();
    let until = node.now + 7200;
    tell(&mut node, holds(until));
    node.reports.clear();
    node.declare(&sample::declaration(2, &[("web", "web-2")]));
    let mut urgent = sample::declaration(3, &[("web", "web-3")]);
    urgent.urgent = true;
    node.declare(&urgent);
    assert_eq!(node.state(), (3, DeclarationState::Queued));
    assert!(
        node.reason()
            .starts_with("waits for the end of a pause on this machine")
            && node.reason().ends_with("the disk is changed"),
        "{}",
        node.reason()
    );
    node.order(sample::text(&policy(1, 40, Targeting::everyone(), vec![])));
    assert_eq!(node.epoch_state(), (1, EpochState::Received));
    assert!(
        node.agent
            .standing
            .epoch
            .as_ref()
            .unwrap()
            .reason
            .contains("the disk is changed")
    );
    // Why is said once, not with each event.
    let said = node.reports.len();
    for _ in 0..5 {
        node.tick(1);
    }
    assert_eq!(node.reports.len(), said);
    let began = node
        .events()
        .iter()
        .filter(|e| **e == "declaration.applying")
        .count();
    assert_eq!(began, 1, "only the one of before");

    tell(&mut node, Seen::Over);
    assert_eq!(node.state(), (3, DeclarationState::AwaitingConfirm));
    node.link();
    assert_eq!(node.state(), (3, DeclarationState::Confirmed));
    assert_eq!(node.epoch_state(), (1, EpochState::AwaitingConfirm));
}

// holds: HR-17, SG-3
#[test]
fn while_paused_lists_and_timestamps_are_in_force_at_once() {
    let mut node = at_work();
    let until = node.now + 7200;
    tell(&mut node, holds(until));
    let (head, _) = sample::head(2, &[1, 2]);
    node.order(sample::text(&head));
    assert_eq!(node.agent.marks.revision.unwrap().number, 2);
    assert_eq!(node.agent.trusted_head().unwrap().authors.len(), 2);
    node.order(sample::text(&sample::timestamp(2000, 9000)));
    assert_eq!(node.agent.marks.timestamp.unwrap().number, 2000);
}

// holds: HR-17, HR-5
#[test]
fn a_pause_breaks_no_open_window_off_and_what_comes_after_it_waits() {
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
    let until = node.now + 7200;
    tell(&mut node, holds(until));
    node.declare(&sample::declaration(2, &[("web", "web-2")]));
    node.link();
    let status = node.agent.standing.declaration.clone().unwrap();
    assert_eq!(
        (status.sequence, status.state, status.confirmed_sequence),
        (2, DeclarationState::Queued, 1)
    );

    // And one that nothing confirms goes back in time, in spite of it.
    let mut node = Node::new();
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    tell(&mut node, holds(until));
    node.tick(60);
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
}

// holds: HR-17, HR-2
#[test]
fn while_paused_drift_is_left_and_what_goes_back_is_walked_with_each_look() {
    let mut node = at_work();
    let until = node.now + 7200;
    tell(&mut node, holds(until));
    node.now += i64::from(RECONCILE_SECS) + 1;
    node.agent.heartbeat_secs = 3600;
    node.agent.next_heartbeat = node.now + 3600;
    node.on(Event::Tick);
    assert_eq!(node.jobs, [Job::Finish]);
    assert!(!node.agent.at_rest(node.now));
    node.reports.clear();
    node.walked = Some(vec![line(
        "web.conf",
        Outcome::Failed,
        "cannot be put back: locked",
    )]);
    node.work();
    assert_eq!(node.reports, [Cause::Change]);
    assert_eq!(node.agent.standing.lines.len(), 1);
    assert!(node.agent.at_rest(node.now), "`apply --once` waits for no pause");
    // It is tried again with the next look, and that nothing is left is told as well.
    let wake = node.agent.next_wake(node.now);
    assert!(wake > node.now && wake < node.now + 3600, "{wake}");
    node.now = wake;
    node.on(Event::Tick);
    assert_eq!(node.jobs, [Job::Finish]);
    node.walked = Some(vec![]);
    node.work();
    assert!(node.agent.standing.lines.is_empty());
    assert_eq!(node.reports, [Cause::Change, Cause::Change]);
    // Nothing was due: nothing is said.
    node.now = node.agent.next_wake(node.now);
    node.walked = None;
    node.on(Event::Tick);
    assert_eq!(node.jobs, [Job::Finish]);
    node.work();
    assert_eq!(node.reports.len(), 2);
    node.now += i64::from(RECONCILE_SECS) + 1;
    node.agent.tell_pause(Seen::Over);
    node.on(Event::Tick);
    assert!(
        matches!(node.jobs.as_slice(), [Job::Repair(_)]),
        "{:?}",
        node.jobs
    );
}

// holds: HR-17, HR-11
#[test]
fn each_report_says_until_when_and_why_and_both_its_beginning_and_its_end_are_reported() {
    let mut node = at_work();
    node.reports.clear();
    let until = node.now + 7200;
    tell(&mut node, holds(until));
    assert_eq!(node.reports, [Cause::Change]);
    let report = |node: &Node| report::compose(&node.agent, Cause::Heartbeat, sample::facts(1), node.now);
    let paused = report(&node).paused.unwrap();
    assert_eq!(
        (paused.until, paused.why.as_str()),
        (until, "the disk is changed")
    );
    // Two clocks that are read in whole seconds.
    tell(&mut node, holds(until - 1));
    assert_eq!(report(&node).paused.unwrap().until, until);
    // A clock that was set back.
    tell(&mut node, holds(until - 100));
    assert_eq!(report(&node).paused.unwrap().until, until - 100);
    assert_eq!(node.reports, [Cause::Change]);
    tell(&mut node, Seen::None);
    assert_eq!(report(&node).paused, None);
    assert_eq!(node.reports, [Cause::Change, Cause::Change]);
    let words: Vec<&str> = node.journal.iter().map(|e| e.words.as_str()).collect();
    assert!(words.contains(&"resumed on this machine"), "{words:?}");
}

// holds: HR-17
#[test]
fn a_pause_outlives_a_restart_and_one_that_is_over_is_begun_by_no_clock() {
    let mut node = at_work();
    let until = node.now + 7200;
    tell(&mut node, holds(until));
    let confirmed = node.agent.orders.confirmed.as_ref().map(|c| c.digest);
    let mut node = node.restarted_paused(holds(until), confirmed);
    node.declare(&sample::declaration(2, &[("web", "web-2")]));
    assert_eq!(node.state(), (2, DeclarationState::Queued));
    assert!(
        !node.events().contains(&"pause.begun"),
        "it began before the restart"
    );
    tell(&mut node, Seen::Over);
    assert_eq!(node.state(), (2, DeclarationState::AwaitingConfirm));
    node.link();
    // The same file, after the clock was set back: it stays over, also for a host that starts anew.
    let confirmed = node.agent.orders.confirmed.as_ref().map(|c| c.digest);
    let mut node = node.restarted_paused(holds(until), confirmed);
    node.declare(&sample::declaration(3, &[("web", "web-3")]));
    assert_eq!(node.state(), (3, DeclarationState::AwaitingConfirm));
}
