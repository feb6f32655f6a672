//! Stories of a start: what a crash, a restart and a damaged disk leave.

use super::*;

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
        reason: confirm::Reason::Interrupted("the machine was started anew inside the window".into()),
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
    node.on(Event::LinkUp(Way::Far));
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
        taken_back: None,
        broken: vec!["orders/record: cut".into()],
    })));
    node.on(Event::Order(sample::text(&sample::declaration(1, &[]))));
    assert!(
        matches!(node.jobs[..], [Job::Rebuild(_, Basis::Untried), Job::Apply(_)]),
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
    node.on(Event::LinkUp(Way::Far));
    node.on(Event::Current);
    assert!(node.events().contains(&"epoch.staged"));
}

/// A node whose probe says no at the deadline, up to the job that takes the change back.
fn going_back() -> Node {
    let mut node = Node::new();
    node.declare(&with_probe(sample::declaration(1, &[("web", "web-1")])));
    node.probes_say(Health::Unhealthy, "HTTP 500");
    node.now += 60;
    let effects = node.on(Event::Tick);
    let place = |wanted: fn(&Effect) -> bool| effects.iter().position(wanted).unwrap();
    let bad = place(|e| matches!(e, Effect::SaveKnownBad));
    let standing = place(|e| matches!(e, Effect::SaveStanding));
    let back = place(|e| matches!(e, Effect::Machine(Job::Revert(_))));
    assert!(bad < standing && standing < back, "{effects:?}");
    node
}

// holds: B28, EP-2
#[test]
fn what_a_probe_refused_is_not_forgotten_when_the_host_dies_around_the_revert() {
    let interrupted = StartedWindow::Reverted {
        reason: confirm::Reason::Interrupted("the machine was started anew".into()),
        lines: vec![],
    };
    // The power goes after the machine was told and before its verdict; and after the window was closed.
    for found in [interrupted, StartedWindow::Clean] {
        let mut node = going_back().restarted(found, None);
        node.work();
        assert_eq!(node.state(), (1, DeclarationState::Reverted));
        assert!(node.reason().contains("HTTP 500"), "{}", node.reason());
        node.tick(1000);
        assert_eq!(node.state(), (1, DeclarationState::Reverted), "begun again");
        node.declare(&sample::declaration(2, &[("web", "web-1")]));
        assert_eq!(node.state(), (2, DeclarationState::KnownBad));
    }
}

// holds: B28, HR-13
#[test]
fn a_window_that_was_to_go_back_goes_back_after_a_restart_whatever_the_probes_say_now() {
    let node = going_back();
    let open = StartedWindow::StillOpen {
        declaration: node.agent.orders.trying.as_ref().map(|t| t.digest),
        opened_at: 1000,
        deadline: 1060,
    };
    let mut node = node.restarted(open, None);
    assert!(
        matches!(node.jobs[..], [Job::Revert(confirm::Reason::Probe(_))]),
        "{:?}",
        node.jobs
    );
    node.work();
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
}

// holds: B28
#[test]
fn a_failed_resource_is_remembered_though_the_host_died_before_it_could_tell() {
    use crate::pure::commit_confirm::{Order, TakenBack, WINDOW_VERSION};
    let mut node = Node::new();
    let order = sample::declaration(1, &[("db", "db-1"), ("web", "web-1")]);
    node.on(Event::Order(sample::text(&order)));
    let digest = sample::kept(&order).digest;
    let before = given(
        std::mem::take(&mut node.agent.orders),
        Some(node.agent.marks.clone()),
        node.agent.standing.clone(),
        KnownBad::default(),
    );
    let mut node = Node::asleep(before, 1000);
    node.on(Event::Started(Box::new(Started {
        window: StartedWindow::Clean,
        confirmed: None,
        policy: None,
        ledger_lost: None,
        taken_back: Some(TakenBack {
            version: WINDOW_VERSION,
            order: Order::Declaration { sequence: 1, digest },
            reason: confirm::Reason::Resource("web.conf: no such user".into()),
        }),
        broken: vec![],
    })));
    node.tick(1000);
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
    assert!(node.disk_known_bad.get(&sample::digest("web-1")).is_some());
    assert!(node.disk_known_bad.get(&sample::digest("db-1")).is_none());
}

// holds: SG-11
#[test]
fn an_author_cannot_raise_the_era_and_so_lock_everybody_out() {
    let mut node = Node::new();
    node.order(sample::text(&sample::head(2, &[1, 3]).0));
    let mut order = sample::declaration(1, &[("web", "web-1")]);
    order.era = u64::MAX;
    node.declare(&order);
    let mut head = sample::head(3, &[1, 3]).0;
    head.era = 1;
    node.order(sample::text(&head));
    let codes: Vec<_> = node
        .agent
        .standing
        .refused
        .iter()
        .map(|r| r.code.as_str())
        .collect();
    assert_eq!(codes, ["era", "era"]);
    assert_eq!(node.agent.marks.era, 0);
    node.declare(&sample::declaration(1, &[("web", "web-1")]));
    assert_eq!(node.state().1, DeclarationState::AwaitingConfirm);
}
