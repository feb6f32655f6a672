//! Orders that went back on machines that no walk waits for (DL-13).

use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::UpdateClass::BestEffort;
use meshplan_schemas::lifecycle::delivery::State;

use super::classes::{at_rest, fleet};
use super::host::Behaviour;
use super::world::{World, node, set};
use crate::pure::snapshot::Verb;

/// A fleet whose third machine, best effort, was off when a commit was delivered; how often it was ordered by then.
fn away() -> (World, usize) {
    let mut world = at_rest(&[(3, BestEffort)]);
    world.switch_off(3);
    let commit = world.merge(fleet("two", &[(3, BestEffort)]));
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
    let ordered = ordered(&world);
    (world, ordered)
}

fn ordered(world: &World) -> usize {
    world.declarations.iter().filter(|d| d.node == node(3)).count()
}

// holds: DL-13
#[test]
fn a_machine_that_no_walk_waits_for_gets_its_order_once_more_when_its_link_took_it_back() {
    let (mut world, before) = away();
    set(&mut world, 3, Behaviour::LosesLinkOnce);
    world.run(20);
    assert_eq!(ordered(&world), before + 1);
    let host = &world.hosts[&node(3)];
    assert!(host.lost_link);
    let newest = world.declarations.iter().rfind(|d| d.node == node(3)).unwrap();
    assert_eq!(host.confirmed.as_ref().map(|d| d.sequence), Some(newest.sequence));
}

// holds: DL-13
#[test]
fn once_more_is_once() {
    let (mut world, before) = away();
    set(&mut world, 3, Behaviour::LosesLinkOnce);
    for _ in 0..50 {
        world.hosts.get_mut(&node(3)).unwrap().lost_link = false;
        world.run(1);
    }
    assert_eq!(ordered(&world), before + 1);
    set(&mut world, 3, Behaviour::Good);
    let next = world.merge(fleet("three", &[(3, BestEffort)]));
    world.run(100);
    assert_eq!(world.state(&next), State::Delivered);
    assert_eq!(ordered(&world), before + 2, "a newer order speaks to it as ever");
}

// holds: DL-13
#[test]
fn a_machine_that_left_the_fleet_is_told_nothing_more() {
    let (mut world, before) = away();
    let mut without = fleet("two", &[(3, BestEffort)]);
    without.nodes = without
        .nodes
        .iter()
        .filter(|(id, _)| **id != node(3))
        .map(|(id, of)| (*id, of.clone()))
        .collect();
    without.list_digest = Digest::of(b"two nodes");
    let commit = world.merge(without);
    world.say(Verb::Go, &commit);
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
    let before = before.max(ordered(&world));
    set(&mut world, 3, Behaviour::LosesLinkOnce);
    world.run(20);
    assert_eq!(ordered(&world), before);
}
