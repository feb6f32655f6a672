//! Reverts for the link: when they speak against the content, and when they say nothing (DL-13).

use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::host::Behaviour::{self, Good, LosesLinkOnce};
use super::world::{World, set, tree};
use crate::pure::compose::Composed;

/// So many machines, of which the first three are canaries, or one is.
fn fleet(text: &str, canaries: u128) -> Composed {
    let mut tree = tree(5, "one", &[("web", text)]);
    for plan in tree.plans.values_mut() {
        plan.stages[0].select.nodes = (1..=canaries).map(|n| format!("n{n}").parse().unwrap()).collect();
    }
    tree
}

/// A fleet at rest whose first machines do as told here.
fn world(behaviours: &[Behaviour]) -> World {
    let mut world = World::at_rest(5);
    for (n, behaviour) in (1..).zip(behaviours) {
        set(&mut world, n, *behaviour);
    }
    world
}

fn last(world: &World, commit: &CommitId) -> String {
    world.codes(commit).last().unwrap().clone()
}

// holds: DL-13, DL-14
#[test]
fn content_that_cuts_the_link_of_the_one_canary_has_failed_and_is_remembered() {
    let mut world = world(&[LosesLinkOnce]);
    let commit = world.merge(fleet("two", 1));
    world.run(60);
    assert_eq!(world.state(&commit), State::RolledBack);
    let codes = world.codes(&commit);
    assert!(
        codes.contains(&"rolling-back (stage-failed)".to_owned()),
        "{codes:?}"
    );
    assert_eq!(world.snapshot.known_bad.len(), 1);
    let again = world.merge(fleet("two", 1));
    world.run(60);
    assert_ne!(world.state(&again), State::Delivering);
    assert_eq!(
        world.runs(2, "web").as_deref(),
        Some("one"),
        "{:?}",
        world.codes(&again)
    );
}

// holds: DL-13
#[test]
fn where_most_that_were_told_lost_it_they_are_ordered_again_once_and_nothing_is_remembered() {
    let mut world = world(&[LosesLinkOnce, LosesLinkOnce, Good]);
    let before = world.sequences_of(1).len();
    let commit = world.merge(fleet("two", 3));
    world.run(90);
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{:?}",
        world.codes(&commit)
    );
    assert_eq!(world.sequences_of(1).len(), before + 2);
    assert!(world.snapshot.known_bad.is_empty());
}

// holds: DL-13
#[test]
fn one_of_several_that_lost_it_speaks_against_the_content() {
    let mut world = world(&[LosesLinkOnce, Good, Good]);
    let commit = world.merge(fleet("two", 3));
    world.run(60);
    assert_eq!(last(&world, &commit), "rolled-back (taken)");
    let reason = world.transitions.iter().find(|t| t.to == State::RollingBack);
    assert_eq!(
        reason.unwrap().reason,
        "n1 failed in the stage canary: went back: no-link: not heard in the window; most others did not lose theirs"
    );
}

// holds: DL-13
#[test]
fn nobody_is_blamed_before_the_others_have_said_how_it_went_there() {
    let mut world = world(&[LosesLinkOnce]);
    world.switch_off(2);
    world.switch_off(3);
    let commit = world.merge(fleet("two", 3));
    world.run(20);
    assert_eq!(last(&world, &commit), "delivering (checked)");
    let before = world.sequences_of(1).len();
    set(&mut world, 2, LosesLinkOnce);
    set(&mut world, 3, Good);
    world.run(100);
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{:?}",
        world.codes(&commit)
    );
    assert_eq!(
        world.sequences_of(1).len(),
        before + 1,
        "ordered again when it was clear"
    );
}

// holds: DL-13, RO-8
#[test]
fn while_the_reconciler_was_away_every_link_to_it_was() {
    let mut world = world(&[LosesLinkOnce]);
    let commit = world.merge(fleet("two", 1));
    world.now = crate::pure::decide::after_secs(world.now, 5);
    world.serving_since = world.now;
    world.run(90);
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{:?}",
        world.codes(&commit)
    );
    assert!(world.snapshot.known_bad.is_empty());
}
