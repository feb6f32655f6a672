//! Orders that went back on machines that no walk waits for (DL-13).

use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::{Phase, Targeting};
use meshplan_schemas::fleet_list::UpdateClass::BestEffort;
use meshplan_schemas::lifecycle::delivery::State;

use super::classes::{at_rest, fleet};
use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::Composed;
use crate::pure::rollout::run::{Run, SignedEpoch};
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

/// A fleet whose third machine is best effort, under this policy.
fn under(policy: &str) -> Composed {
    let mut with = fleet("one", &[(3, BestEffort)]);
    let of_policy = tree(3, policy, &[]);
    with.policy = of_policy.policy;
    with.policy_digest = of_policy.policy_digest;
    with
}

/// A fleet whose third machine was off when a policy was released; the newest epoch by then.
fn away_from_a_release() -> (World, u64) {
    let mut world = at_rest(&[(3, BestEffort)]);
    world.switch_off(3);
    let commit = world.merge(under("two"));
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
    let newest = newest(&world);
    assert!(world.epochs[&newest].targeting == Targeting::everyone());
    (world, newest)
}

fn newest(world: &World) -> u64 {
    *world.epochs.keys().next_back().unwrap()
}

// holds: DL-13, EP-3
#[test]
fn a_policy_that_went_back_by_the_link_is_ordered_once_more_for_that_machine_alone() {
    let (mut world, released) = away_from_a_release();
    set(&mut world, 3, Behaviour::LosesLinkOnce);
    world.run(20);
    assert!(world.hosts[&node(3)].lost_link);
    let given = world.epochs[&newest(&world)].clone();
    assert_eq!(given.epoch, released + 1);
    assert_eq!(given.targeting, Targeting::nodes(vec![node(3)]));
    assert_eq!(given.policy, world.epochs[&released].policy);
    assert_eq!(
        given.in_force.iter().map(|e| e.epoch).collect::<Vec<_>>(),
        [released]
    );
    let running = |n| world.hosts[&node(n)].running;
    assert_eq!(
        (running(1), running(2), running(3)),
        (Some(released), Some(released), Some(given.epoch))
    );

    // It is of the rollout that released it, whose end it does not move.
    let epochs = [released, given.epoch].map(|number| SignedEpoch::from(&world.epochs[&number]));
    assert_eq!(given.rollout_id, world.epochs[&released].rollout_id);
    let run = Run::of(given.commit.clone(), false, epochs.to_vec()).unwrap();
    assert_eq!(
        (run.final_epoch(), run.newest().phase),
        (Some(released), Phase::Release)
    );

    // What comes next speaks to all of them, and takes the exception in.
    let next = world.merge(under("three"));
    world.run(200);
    assert_eq!(world.state(&next), State::Delivered);
    assert!((1..=3).all(|n| world.policy(n).unwrap().contains("three")));
    assert_eq!(world.snapshot.epochs.len(), 1);
}

// holds: DL-13
#[test]
fn a_policy_once_more_is_once() {
    let (mut world, released) = away_from_a_release();
    set(&mut world, 3, Behaviour::LosesLinkOnce);
    for _ in 0..50 {
        world.hosts.get_mut(&node(3)).unwrap().lost_link = false;
        world.run(1);
    }
    assert_eq!(newest(&world), released + 1);
    assert!(world.policy(3).unwrap().contains("one"));
    assert!(
        world.snapshot.known_bad.is_empty(),
        "its link is not its policy's"
    );
}

// holds: DL-13
#[test]
fn a_policy_that_failed_by_itself_is_not_ordered_once_more() {
    let mut world = at_rest(&[(3, BestEffort)]);
    world.switch_off(3);
    let commit = world.merge(under("bad"));
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
    let released = newest(&world);
    set(&mut world, 3, Behaviour::Fails);
    world.run(50);
    assert_eq!(newest(&world), released);
}

// holds: DL-13, RO-2
#[test]
fn no_policy_is_ordered_once_more_beside_a_rollout() {
    let (mut world, _) = away_from_a_release();
    let commit = world.merge(under("three"));
    let mut given = false;
    set(&mut world, 3, Behaviour::LosesLinkOnce);
    for _ in 0..200 {
        let before = newest(&world);
        world.run(1);
        let walks = !world.state(&commit).is_final();
        let alone = |n: &u64| world.epochs[n].targeting == Targeting::nodes(vec![node(3)]);
        let news: Vec<u64> = (before + 1..=newest(&world)).filter(alone).collect();
        assert!(!walks || news.is_empty(), "{news:?} while it walks");
        given |= !news.is_empty();
    }
    assert_eq!(world.state(&commit), State::Delivered);
    assert!(given || world.policy(3).unwrap().contains("three"));
    assert!(world.policy(3).unwrap().contains("three"));
}

// holds: DL-13
#[test]
fn a_machine_that_left_the_fleet_gets_no_policy_once_more() {
    let (mut world, _) = away_from_a_release();
    let mut without = under("two");
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
    let before = newest(&world);
    set(&mut world, 3, Behaviour::LosesLinkOnce);
    world.run(20);
    assert_eq!(newest(&world), before);
}

// holds: DL-2, DL-13
#[test]
fn a_policy_once_more_for_one_does_not_take_over_what_another_is_still_to_go_back_to() {
    let mut world = at_rest(&[(3, BestEffort)]);
    world.switch_off(3);
    let two = world.merge(under("two"));
    world.run(200);
    assert_eq!(world.state(&two), State::Delivered);
    // The canary takes a policy that the next machine does not bear, and is off when it is taken back.
    let bad = world.merge(under("bad"));
    world.run(2);
    assert!(
        world.policy(1).unwrap().contains("bad"),
        "{:?}",
        world.codes(&bad)
    );
    world.say(Verb::Withdraw, &bad);
    world.switch_off(1);
    world.run(300);
    assert_eq!(world.state(&bad), State::RolledBack, "{:?}", world.codes(&bad));
    assert!(world.policy(1).unwrap().contains("bad"));
    // Another machine comes back and is given the accepted policy once more.
    set(&mut world, 3, Behaviour::LosesLinkOnce);
    world.run(20);
    assert!(world.policy(3).unwrap().contains("two"));
    assert_eq!(
        world.epochs[&newest(&world)].targeting,
        Targeting::nodes(vec![node(3)])
    );
    // The first still goes back as often as its link undoes it.
    set(&mut world, 1, Behaviour::LosesLinkOnce);
    for _ in 0..3 {
        world.hosts.get_mut(&node(1)).unwrap().lost_link = false;
        world.run(1);
        assert!(world.hosts[&node(1)].lost_link, "it was ordered again");
    }
    world.run(20);
    assert!(world.policy(1).unwrap().contains("two"));
}
