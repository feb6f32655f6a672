//! Stories of maintenance windows and of the pace that policy sets (FR-7). The node's clock begins on a Thursday, 1,000 s
//! after midnight UTC.

use super::*;

/// 01:00 of that Thursday.
const OPENS: i64 = 3600;
const HOUR: &str =
    "[[base.scheduler.windows]]\ndays = [\"thu\"]\nfrom = \"01:00\"\nto = \"02:00\"\nzone = \"UTC\"\n";

/// A node that runs a policy.
fn under(policy: &str) -> Node {
    let mut node = Node::new();
    node.order(sample::text(&sample::epoch(
        1,
        policy,
        Targeting::everyone(),
        vec![],
    )));
    node.link();
    assert_eq!(node.epoch_state(), (1, EpochState::Applied));
    node
}

// holds: FR-7
#[test]
fn outside_a_window_a_declaration_is_kept_and_said_to_wait_and_is_begun_when_it_opens() {
    let mut node = under(HOUR);
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    assert_eq!(node.state(), (1, DeclarationState::Queued));
    assert_eq!(
        node.reason(),
        "waits for the maintenance window that opens at 1970-01-01T01:00:00Z"
    );
    assert_eq!(
        node.agent.next_wake(node.now).min(OPENS),
        node.agent.next_wake(node.now)
    );
    assert!(
        node.agent.at_rest(node.now),
        "`apply --once` does not wait for days"
    );
    let reports = node.reports.iter().filter(|c| **c == Cause::Change).count();
    node.tick(10);
    node.tick(10);
    let again = node.reports.iter().filter(|c| **c == Cause::Change).count();
    assert_eq!(again, reports, "said once");
    node.tick(OPENS - 1 - node.now);
    assert_eq!(node.state(), (1, DeclarationState::Queued));
    assert!(node.agent.next_wake(node.now) <= OPENS);
    node.tick(1);
    assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
    node.link();
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
}

// holds: FR-7
#[test]
fn what_was_begun_in_a_window_is_confirmed_or_goes_back_after_it_has_shut() {
    for confirmed in [true, false] {
        let mut node = under(HOUR);
        node.now = OPENS + 3595;
        node.declare(&sample::declaration(1, &[("web", "web-1")]));
        assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
        node.tick(10);
        if confirmed {
            node.link();
            assert_eq!(node.state(), (1, DeclarationState::Confirmed));
        } else {
            node.on(Event::LinkDown);
            node.tick(100);
            assert_eq!(node.state(), (1, DeclarationState::Reverted));
        }
    }
}

// holds: FR-7, DL-17
#[test]
fn an_urgent_order_is_begun_outside_of_every_window() {
    let mut node = under(HOUR);
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    let mut back = sample::declaration(2, &[("web", "web-0")]);
    back.urgent = true;
    node.declare(&back);
    assert_eq!(node.state(), (2, DeclarationState::AwaitingConfirm));
    node.link();
    let mut abort = sample::epoch(2, "[base.qos]\n", Targeting::everyone(), vec![]);
    abort.urgent = true;
    node.order(sample::text(&abort));
    assert_eq!(node.epoch_state(), (2, EpochState::AwaitingConfirm));
}

// holds: FR-7
#[test]
fn a_policy_waits_for_the_window_of_the_one_that_runs_and_lifts_it_then_without_a_restart() {
    let mut node = under(HOUR);
    let open = sample::epoch(
        2,
        "[base.scheduler]\nreconcile_secs = 77\n",
        Targeting::everyone(),
        vec![],
    );
    node.order(sample::text(&open));
    assert_eq!(node.epoch_state(), (2, EpochState::Received));
    assert!(
        node.agent
            .standing
            .epoch
            .as_ref()
            .unwrap()
            .reason
            .contains("1970-01-01T01:00:00Z")
    );
    node.tick(OPENS - node.now);
    node.link();
    assert_eq!(node.epoch_state(), (2, EpochState::Applied));
    assert_eq!(node.agent.reconcile_secs(), 77);
    node.now = OPENS + 7200;
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
}

// holds: FR-7, SG-2
#[test]
fn the_windows_are_those_of_the_roles_that_were_confirmed_and_outlive_a_restart() {
    let text = HOUR.replace("base.", "roles.edge.");
    let mut node = under(&text);
    let mut first = sample::declaration(1, &[("web", "web-1")]);
    first.roles = vec!["edge".parse().unwrap()];
    node.declare(&first);
    node.link();
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
    let mut second = first.clone();
    second.sequence = 2;
    node.declare(&second);
    // The overlay is put in place first, with the policy of the same epoch.
    node.link();
    let mut node = node.restarted(StartedWindow::Clean, None);
    let mut third = sample::declaration(3, &[("web", "web-3")]);
    third.roles.clone_from(&first.roles);
    node.declare(&third);
    assert_eq!(node.state(), (3, DeclarationState::Queued));
}

// holds: FR-7
#[test]
fn drift_is_looked_for_at_the_pace_of_the_policy_and_what_failed_at_its_own() {
    let mut node =
        under("[base.scheduler]\nreconcile_secs = 500\nretry_min_secs = 10\nretry_max_secs = 25\n");
    let mut keep = sample::declaration(1, &[("web", "web-1")]);
    keep.on_failure = OnFailure::Keep;
    let mut end = applied(ApplyEnd::WindowOpen);
    end.lines = vec![line("web.conf", Outcome::Failed, "no such owner")];
    end.failed = true;
    node.ends.push(end);
    node.declare(&keep);
    node.link();
    assert_eq!(node.state(), (1, DeclarationState::Failed));
    let begun = node.now;
    let mut repairs = Vec::new();
    for _ in 0..100 {
        node.now += 1;
        node.on(Event::Tick);
        if matches!(node.jobs.first(), Some(Job::Repair(_))) {
            repairs.push(node.now - begun);
            node.jobs.clear();
            let mut still = applied(ApplyEnd::Converged);
            still.lines = vec![line("web.conf", Outcome::Failed, "no such owner")];
            still.failed = true;
            node.on(Event::Done(Box::new(Done::Repaired(still))));
            // What is nobody's here is listed after each look.
            node.work();
        }
    }
    assert_eq!(repairs[..4], [10, 30, 55, 80]);
    let mended = node.now;
    while node.jobs.is_empty() {
        node.now += 1;
        node.on(Event::Tick);
    }
    node.work();
    assert!(node.now - mended <= 25);
    assert_eq!(node.state(), (1, DeclarationState::Confirmed));
    assert_eq!(node.agent.next_reconcile, node.now + 500);
}

// holds: FR-7, FR-1
#[test]
fn a_policy_that_this_build_cannot_obey_is_refused_with_the_key() {
    let mut node = under(HOUR);
    node.now = OPENS;
    let unknown = "[base.scheduler]\nmoon_phase = \"full\"\n";
    node.order(sample::text(&sample::epoch(
        2,
        unknown,
        Targeting::everyone(),
        vec![],
    )));
    assert_eq!(node.epoch_state(), (2, EpochState::Rejected));
    assert!(
        node.agent
            .standing
            .epoch
            .as_ref()
            .unwrap()
            .reason
            .contains("moon_phase")
    );
    assert!(
        node.agent.duties().opens(1000).is_some(),
        "what ran before runs on"
    );
}
