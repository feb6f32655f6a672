//! Stories of epochs on one node.

use super::*;

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
    node.on(Event::LinkUp(Way::Far));
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
    node.on(Event::LinkUp(Way::Far));
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
    let text = "[base.qos.extra]\nx = 1\n[roles.edge.qos.extra]\nx = 2\n";
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

// holds: EP-3
#[test]
fn a_newer_epoch_that_comes_inside_the_window_does_not_drop_the_one_that_is_judged() {
    let mut node = Node::new();
    let judged = policy(7, 40, Targeting::everyone(), vec![]);
    let digest = sample::kept(&judged).digest;
    node.on(Event::Order(sample::text(&judged)));
    let newer = |number| sample::text(&policy(number, 50, Targeting::everyone(), vec![]));
    node.on(Event::Order(newer(8)));
    assert!(
        node.agent.orders.epochs.contains_key(&digest),
        "dropped while it is applied"
    );
    node.work();
    assert_eq!(node.epoch_state(), (7, EpochState::AwaitingConfirm));
    node.on(Event::Order(newer(9)));
    assert!(
        node.agent.orders.epochs.contains_key(&digest),
        "dropped in its window"
    );
    node.on(Event::LinkDown);
    node.on(Event::LinkUp(Way::Far));
    node.on(Event::Order(newer(10)));
    node.ends = vec![applied(ApplyEnd::WindowOpen)];
    node.on(Event::Done(Box::new(Done::Confirmed)));
    assert!(
        node.agent.standing.policy.is_some(),
        "what was confirmed cannot be told any more"
    );
    assert_eq!(node.epoch_state(), (10, EpochState::Staged));
}

// holds: EP-2
#[test]
fn an_authentic_epoch_that_is_refused_does_not_have_a_reverted_one_tried_again() {
    let mut node = Node::new();
    node.order(sample::text(&policy(7, 40, Targeting::everyone(), vec![])));
    node.tick(60);
    assert_eq!(node.epoch_state(), (7, EpochState::Reverted));
    let mut newer = policy(8, 50, Targeting::everyone(), vec![]);
    newer.min_daemon_version = Some(Version::new(99, 0, 0));
    node.order(sample::text(&newer));
    assert_eq!(node.epoch_state(), (8, EpochState::Rejected));
    node.tick(1);
    assert!(
        node.jobs.is_empty() && node.agent.standing.window.is_none(),
        "tried again"
    );
    assert_eq!(node.epoch_state(), (8, EpochState::Rejected));
}

// holds: HR-11
#[test]
fn a_heartbeat_says_how_the_probes_answer_now() {
    let mut node = Node::new();
    node.declare(&with_probe(sample::declaration(1, &[("web", "one")])));
    node.link();
    node.probes_say(Health::Healthy, "");
    let (reports, asked) = (node.reports.len(), node.asked.len());
    node.tick(i64::from(HEARTBEAT_SECS));
    assert_eq!(
        (node.reports.len(), node.asked.len()),
        (reports, asked + 1),
        "told before it was asked"
    );
    node.on(Event::Probed {
        purpose: Purpose::Heartbeat,
        lines: Vec::new(),
    });
    assert_eq!(node.reports.last(), Some(&Cause::Heartbeat));
}
