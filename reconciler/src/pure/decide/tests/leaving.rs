//! Machines that leave the fleet while a delivery walks: they leave its stages, and nobody waits for them (DL-6).

use meshplan_schemas::document::plan::Check;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::Composed;
use crate::pure::snapshot::Verb;

fn fleet(nodes: u128, text: &str) -> Composed {
    tree(nodes, "one", &[("web", text)])
}

/// A fleet of three without the first of its machines.
fn without_the_canary(text: &str) -> Composed {
    let mut tree = fleet(3, text);
    tree.nodes = tree
        .nodes
        .iter()
        .filter(|(id, _)| **id != node(1))
        .map(|(id, of)| (*id, of.clone()))
        .collect();
    tree.list_digest = meshplan_schemas::digest::Digest::of(b"n2 and n3");
    tree
}

fn remarks(world: &World, commit: &CommitId) -> Vec<String> {
    world.archive[commit].walk.as_ref().unwrap().lines.clone()
}

/// A walk whose canary has passed and whose last machine is dead in the stage of the rest.
fn with_a_dead_machine() -> (World, CommitId) {
    let mut world = World::at_rest(4);
    let commit = world.merge(fleet(4, "two"));
    world.switch_off(4);
    world.run(20);
    assert_eq!(world.state(&commit), State::Delivering);
    assert_eq!(world.archive[&commit].walk.as_ref().unwrap().current, 1);
    (world, commit)
}

// holds: DL-6
#[test]
fn a_dead_machine_that_a_commit_takes_out_of_the_fleet_troubles_no_walk_any_more() {
    let (mut world, commit) = with_a_dead_machine();
    let without = world.merge(fleet(3, "two"));
    world.run(100);
    assert_eq!(world.codes(&commit).last().unwrap(), "delivered (done)");
    assert_eq!(
        world.archive[&commit].reason,
        "every machine of the plan passed: 3"
    );
    assert_eq!(
        remarks(&world, &commit),
        ["left the fleet, and so the stage rest: n4 (open)"]
    );
    assert_eq!(world.state(&without), State::Delivered);
    assert!(world.snapshot.known_bad.is_empty());
    assert_eq!(world.runs(2, "web").as_deref(), Some("two"));
}

// holds: DL-6
#[test]
fn one_that_a_held_commit_would_take_out_is_in_the_fleet_still() {
    let (mut world, commit) = with_a_dead_machine();
    world.ask(Verb::Freeze, None, None);
    let without = world.merge(fleet(3, "two"));
    assert_eq!(world.state(&without), State::Held);
    world.run(100);
    let codes = world.codes(&commit);
    assert!(codes.contains(&"rolling-back (silent)".to_owned()), "{codes:?}");
}

// holds: DL-6
#[test]
fn neither_does_a_commit_whose_check_still_runs_take_one_out() {
    let (mut world, commit) = with_a_dead_machine();
    world.settings.asks_forge = true;
    let mut without = fleet(3, "two");
    for plan in without.plans.values_mut() {
        plan.check = Check::Named(vec!["ci/a".into()]);
    }
    let without = world.merge(without);
    assert_eq!(world.state(&without), State::Proposed);
    world.run(100);
    let codes = world.codes(&commit);
    assert!(codes.contains(&"rolling-back (silent)".to_owned()), "{codes:?}");
}

// holds: DL-6
#[test]
fn one_that_a_later_commit_brings_back_gets_it_with_the_others() {
    let (mut world, commit) = with_a_dead_machine();
    world.merge(fleet(3, "two"));
    assert_eq!(world.state(&commit), State::Delivering);
    let back = world.merge(fleet(4, "two"));
    world.run(30);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(
        world.archive[&commit].reason,
        "every machine of the plan passed: 3; 1 more get it when heard from"
    );
    set(&mut world, 4, Behaviour::Good);
    world.run(100);
    assert_eq!(world.state(&back), State::Delivered);
    assert_eq!(world.runs(4, "web").as_deref(), Some("two"));
}

// holds: DL-6, DL-2
#[test]
fn a_stage_that_everybody_left_is_held_and_gives_way_to_the_commit_that_took_them_out() {
    let mut world = World::at_rest(3);
    world.switch_off(1);
    let commit = world.merge(fleet(3, "two"));
    world.run(5);
    let without = world.merge(without_the_canary("two"));
    let codes = world.codes(&commit);
    assert_eq!(
        codes[2..],
        ["held (no-machine)", "rolling-back (newer)", "rolled-back (taken)"]
    );
    let held = world.transitions.iter().find(|t| t.to == State::Held).unwrap();
    assert_eq!(held.reason, "every machine of the stage canary left the fleet");
    world.run(5);
    let told = [2, 3].map(|n| world.sequences_of(n).len() - 1);
    assert_eq!(told.iter().sum::<usize>(), 1, "another canary goes first");
    world.run(100);
    assert_eq!(world.state(&without), State::Delivered);
    assert!(world.snapshot.known_bad.is_empty());
}

// holds: DL-6, DL-7
#[test]
fn a_way_back_waits_for_nobody_who_is_gone() {
    let (mut world, commit) = with_a_dead_machine();
    world.merge(fleet(3, "two"));
    world.say(Verb::Withdraw, &commit);
    world.run(5);
    assert_eq!(world.codes(&commit).last().unwrap(), "rolled-back (taken)");
    assert_eq!(world.sequences_of(4).len(), 3, "it was ordered back all the same");
}

// holds: DL-6
#[test]
fn a_canary_that_passed_and_left_is_not_asked_again_and_stays_the_canary() {
    let mut world = World::at_rest(3);
    let commit = world.merge(fleet(3, "two"));
    world.run(18);
    assert_eq!(world.archive[&commit].walk.as_ref().unwrap().current, 1);
    world.switch_off(1);
    world.merge(without_the_canary("two"));
    world.run(100);
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{:?}",
        world.codes(&commit)
    );
    assert_eq!(
        remarks(&world, &commit),
        ["left the fleet, and so the stage canary: n1 (passed)"]
    );
}
