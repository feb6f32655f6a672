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
