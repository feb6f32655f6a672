//! Legs apart: what failed is taken back, the others go on (DL-3).

use meshplan_schemas::document::plan::Legs;
use meshplan_schemas::lifecycle::delivery::State;

use super::host::Behaviour;
use super::world::{World, set, tree};
use crate::pure::compose::Composed;
use crate::pure::decide::Tree;
use crate::pure::snapshot::Verb;

fn apart(policy: &str, web: &str, db: &str) -> Composed {
    let mut tree = tree(3, policy, &[("web", web), ("db", db)]);
    tree.plans.values_mut().for_each(|plan| plan.legs = Legs::Apart);
    tree
}

fn at_rest() -> World {
    let mut world = World::empty(3);
    let first = world.merge(apart("one", "one", "one"));
    world.run(200);
    assert_eq!(world.state(&first), State::Delivered);
    world
}

fn on_all(world: &World, web: &str, db: &str) {
    for n in 1..=3 {
        assert_eq!(world.runs(n, "web").as_deref(), Some(web), "web on n{n}");
        assert_eq!(world.runs(n, "db").as_deref(), Some(db), "db on n{n}");
    }
}

// holds: DL-3
#[test]
fn a_leg_that_fails_is_taken_back_and_the_other_is_delivered() {
    let mut world = at_rest();
    set(&mut world, 1, Behaviour::Fails);
    let commit = world.merge(apart("one", "bad", "two"));
    world.run(8);
    assert_eq!(
        world.state(&commit),
        State::Delivering,
        "{:?}",
        world.codes(&commit)
    );
    assert_eq!(
        world.runs(2, "db").as_deref(),
        Some("one"),
        "the canary is looked at anew first"
    );
    world.run(100);
    assert_eq!(
        world.codes(&commit),
        [
            "proposed (announced)",
            "delivering (checked)",
            "delivering (stage-failed)",
            "rolling-back (stage-failed)",
            "rolled-back (taken)"
        ]
    );
    on_all(&world, "one", "two");
    let bad: Vec<String> = world
        .snapshot
        .known_bad
        .keys()
        .map(|(scope, _)| scope.to_string())
        .collect();
    assert_eq!(bad, ["module:web"]);
    let accepted = &world.snapshot.accepted[&"module:db".parse().unwrap()];
    assert_eq!(accepted.commit, commit);

    // The next commit has both still: nothing is left to do of them.
    let next = world.merge(apart("one", "bad", "two"));
    world.run(50);
    assert_eq!(world.codes(&next).last().unwrap(), "delivered (nothing-to-do)");
    on_all(&world, "one", "two");
}

// holds: DL-3, RO-1
#[test]
fn a_policy_that_fails_is_taken_back_alone_and_a_module_beside_a_policy_too() {
    for (policy, web, runs) in [("bad", "two", ("one", "two")), ("two", "bad", ("two", "one"))] {
        let mut world = at_rest();
        set(&mut world, 1, Behaviour::Fails);
        let commit = world.merge(apart(policy, web, "one"));
        world.run(200);
        assert_eq!(
            world.state(&commit),
            State::RolledBack,
            "{:?}",
            world.codes(&commit)
        );
        on_all(&world, runs.1, "one");
        for n in 1..=3 {
            assert!(world.policy(n).unwrap().contains(&format!("\"{}\"", runs.0)));
        }
    }
}

// holds: DL-3, DL-13
#[test]
fn who_is_silent_or_blames_all_takes_all_back() {
    let mut world = at_rest();
    let silent = world.merge(apart("one", "two", "two"));
    world.switch_off(1);
    world.run(300);
    assert_eq!(world.state(&silent), State::RolledBack);
    assert!(world.archive[&silent].walk.as_ref().unwrap().taken.is_empty());

    let mut world = at_rest();
    set(&mut world, 1, Behaviour::Fails);
    let both = world.merge(apart("one", "bad", "also bad"));
    world.run(100);
    assert_eq!(world.state(&both), State::RolledBack);
    assert!(
        !world
            .codes(&both)
            .contains(&"delivering (stage-failed)".to_owned())
    );
    on_all(&world, "one", "one");
}

// holds: DL-3, DL-7
#[test]
fn what_is_left_of_it_can_be_withdrawn_and_fail_too() {
    let mut world = at_rest();
    set(&mut world, 1, Behaviour::Fails);
    let commit = world.merge(apart("one", "bad", "two"));
    world.run(20);
    world.say(Verb::Withdraw, &commit);
    world.run(60);
    assert_eq!(world.state(&commit), State::RolledBack);
    on_all(&world, "one", "one");

    let mut world = at_rest();
    set(&mut world, 1, Behaviour::Fails);
    set(&mut world, 2, Behaviour::TakesNothing);
    let commit = world.merge(apart("one", "bad", "two"));
    world.run(200);
    let ends = world.state(&commit);
    assert!(
        ends == State::Held || ends == State::RolledBack,
        "{:?}",
        world.codes(&commit)
    );
    assert_eq!(world.runs(3, "db").as_deref(), Some("one"));
    assert!(matches!(world.trees[&commit], Tree::Composed(_)));
}
