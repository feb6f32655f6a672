//! A frozen fleet: nothing new begins, what walks goes on (DL-4, FR-12).

use meshplan_schemas::lifecycle::delivery::State;

use super::host::Behaviour;
use super::world::{World, set, tree};
use crate::pure::decide::{Tree, after_secs};
use crate::pure::snapshot::Verb;

// holds: DL-4, DL-9
#[test]
fn a_freeze_holds_what_is_new_until_its_time_is_over_and_stands_in_the_record() {
    let mut world = World::at_rest(3);
    let walking = world.merge(tree(3, "one", &[("web", "two")]));
    let until = after_secs(world.now, 500);
    let said = world.ask(Verb::Freeze, None, Some(until));
    assert_eq!(said, format!("the fleet is frozen until {until}, by dana"));
    let held = world.merge(tree(3, "one", &[("web", "three")]));
    world.run(100);
    assert_eq!(world.state(&walking), State::Delivered, "what walks goes on");
    assert_eq!(world.codes(&held).last().unwrap(), "held (freeze)");
    let newer = world.merge(tree(3, "one", &[("web", "four")]));
    assert_eq!(world.state(&held), State::Superseded);
    world.run(300);
    assert_eq!(world.codes(&newer).last().unwrap(), "held (freeze)");
    world.run(200);
    assert_eq!(
        world.codes(&newer),
        [
            "proposed (announced)",
            "held (freeze)",
            "delivering (opened)",
            "delivered (done)"
        ]
    );
    let recorded: Vec<_> = (world.transitions.iter())
        .filter(|t| t.facts.iter().any(|(key, _)| key == "Freeze"))
        .collect();
    assert_eq!(recorded.len(), 1);
    assert_eq!(
        (recorded[0].from, recorded[0].to),
        (Some(State::Delivering), State::Delivering)
    );
    assert_eq!(recorded[0].commit, walking, "on the newest commit's note");
}

// holds: DL-4
#[test]
fn a_freeze_is_lifted_by_a_word_and_a_go_begins_in_spite_of_it() {
    let mut world = World::at_rest(3);
    assert_eq!(
        world.ask(Verb::Lift, None, None),
        "refused: the fleet is not frozen"
    );
    let past = world.now;
    assert!(world.ask(Verb::Freeze, None, Some(past)).starts_with("refused: "));
    world.ask(Verb::Freeze, None, None);
    let first = world.merge(tree(3, "one", &[("web", "two")]));
    world.run(5000);
    assert_eq!(world.codes(&first).last().unwrap(), "held (freeze)");
    world.say(Verb::Go, &first);
    world.run(100);
    assert_eq!(world.state(&first), State::Delivered);
    let second = world.merge(tree(3, "one", &[("web", "three")]));
    assert_eq!(
        world.codes(&second).last().unwrap(),
        "held (freeze)",
        "a go is for one delivery"
    );
    assert_eq!(world.ask(Verb::Lift, None, None), "the freeze is lifted");
    world.run(100);
    assert_eq!(world.state(&second), State::Delivered);
    assert!(
        World::empty(3)
            .ask(Verb::Freeze, None, None)
            .starts_with("refused: ")
    );
}

// holds: DL-7
#[test]
fn a_frozen_fleet_takes_back_what_fails() {
    let mut world = World::at_rest(3);
    set(&mut world, 1, Behaviour::Fails);
    let bad = world.merge(tree(3, "one", &[("web", "bad")]));
    world.ask(Verb::Freeze, None, None);
    world.run(60);
    assert_eq!(world.state(&bad), State::RolledBack);
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
}

// holds: FR-12
#[test]
fn a_tree_that_is_gone_freezes_the_fleet_until_a_person_lifts_it() {
    let mut world = World::at_rest(3);
    world.merge_tree(Tree::Gone("there is no fleet.toml".into()));
    let back = world.merge(tree(3, "one", &[("web", "two")]));
    world.run(300);
    assert_eq!(world.codes(&back).last().unwrap(), "held (freeze)");
    world.ask(Verb::Lift, None, None);
    world.run(100);
    assert_eq!(world.state(&back), State::Delivered);
}
