//! Stories of orders whose archives and bundles have to be fetched first (HK-15, HR-14).

use meshplan_schemas::artifact::Artifact;

use super::*;

fn needing(sequence: u64) -> Declaration {
    let mut declaration = sample::declaration(sequence, &[("web", "web-1")]);
    declaration.artifacts = vec![Artifact {
        name: "web.site".parse().unwrap(),
        sha256: Digest::of(b"x"),
        size_bytes: 1,
    }];
    declaration
}

fn fetched(node: &mut Node, fault: Option<&str>) {
    let order = *node.fetches.last().unwrap();
    node.on(Event::Fetched {
        order,
        fault: fault.map(str::to_owned),
    });
    node.work();
}

// holds: HR-14, HK-15
#[test]
fn an_order_waits_for_what_it_is_made_of_and_is_begun_when_all_of_it_is_here() {
    let mut node = Node::new();
    node.on(Event::LinkUp(Way::Far));
    node.declare(&needing(1));
    assert_eq!(
        (node.state(), node.fetches.len()),
        ((1, DeclarationState::Queued), 1)
    );
    assert!(node.reason().contains("fetched first"));
    assert!(!node.agent.at_rest(node.now), "`apply --once` waits for it");
    node.tick(10);
    assert_eq!((node.fetches.len(), node.jobs.len()), (1, 0), "asked for once");
    fetched(&mut node, None);
    assert_eq!(node.state(), (1, DeclarationState::AwaitingConfirm));
    // The link is gone, and nothing more can come: not waited for.
    node.on(Event::LinkDown);
    node.link();
    node.declare(&needing(2));
    node.on(Event::LinkDown);
    assert!(node.agent.at_rest(node.now));
}

// holds: HR-1, HK-15
#[test]
fn a_newer_order_takes_the_place_of_one_that_is_being_fetched_and_late_words_of_that_say_nothing() {
    let mut node = Node::new();
    node.declare(&needing(1));
    let first = node.fetches[0];
    node.declare(&needing(2));
    node.on(Event::Fetched {
        order: first,
        fault: Some("gone".to_owned()),
    });
    assert_eq!(node.state(), (2, DeclarationState::Queued));
    fetched(&mut node, None);
    assert_eq!(node.state(), (2, DeclarationState::AwaitingConfirm));
}

// holds: HR-14
#[test]
fn an_order_whose_artifacts_cannot_be_had_ends_untouched_and_its_content_is_not_blamed() {
    let mut node = Node::new();
    node.declare(&needing(1));
    fetched(&mut node, Some("web.site: the reconciler does not have it"));
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
    assert!(node.reason().contains("does not have it"), "{}", node.reason());
    node.tick(1000);
    assert_eq!(
        node.state(),
        (1, DeclarationState::Reverted),
        "it is not begun again by itself"
    );
    node.declare(&needing(2));
    fetched(&mut node, None);
    assert_eq!(node.state(), (2, DeclarationState::AwaitingConfirm));
}

// holds: HR-13, HK-15
#[test]
fn a_fetch_that_fails_while_a_policy_awaits_its_confirm_ends_its_own_order_and_not_that_window() {
    let mut node = Node::new();
    node.declare(&needing(1));
    node.order(sample::text(&sample::epoch(
        1,
        "[base.scheduler]\nreconcile_secs = 40\n",
        Targeting::everyone(),
        vec![],
    )));
    assert!(node.agent.standing.window.is_some(), "the policy's");
    fetched(&mut node, Some("gone"));
    assert!(node.agent.standing.window.is_some(), "it stands");
    assert_eq!(node.state(), (1, DeclarationState::Queued));
    node.link();
    assert_eq!(node.epoch_state(), (1, EpochState::Applied));
    assert_eq!(node.state(), (1, DeclarationState::Reverted));
}
