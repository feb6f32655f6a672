//! Waves: a release that widens by shares of the fleet, and one roll-back for all of them (DL-6, RO-2).

use std::collections::BTreeSet;

use meshplan_schemas::document::plan::Amount;
use meshplan_schemas::epoch::{Phase, Targeting, share_place};
use meshplan_schemas::lifecycle::delivery::State;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::Composed;

/// A policy of this word, released in four waves.
fn in_waves(nodes: u128, policy: &str) -> Composed {
    let mut tree = tree(nodes, policy, &[("web", "one")]);
    for plan in tree.plans.values_mut() {
        plan.stages[1].batch = Some(Amount::Percent(25));
    }
    tree
}

/// The nodes that run this text.
fn runs(world: &World, nodes: u128, word: &str) -> BTreeSet<u128> {
    let text = format!("\"{word}\"");
    (1..=nodes)
        .filter(|n| world.policy(*n).is_some_and(|policy| policy.contains(&text)))
        .collect()
}

// holds: RO-2, DL-6, EP-3
#[test]
fn waves_widen_a_share_of_the_fleet_and_name_nobody_but_the_canary() {
    let mut world = World::at_rest(9);
    let base = *world.epochs.keys().next_back().unwrap();
    let commit = world.merge(in_waves(9, "two"));
    let mut reached = Vec::new();
    while world.state(&commit) != State::Delivered {
        world.run(1);
        let now = runs(&world, 9, "two").len();
        if reached.last() != Some(&now) {
            reached.push(now);
        }
    }
    assert_eq!(reached, [1, 3, 5, 7, 9]);

    let epochs: Vec<_> = world.epochs.range(base + 1..).map(|(_, e)| e).collect();
    let standing = |at: usize| -> Vec<u64> { epochs[at].in_force.iter().map(|e| e.epoch).collect() };
    assert_eq!(epochs.len(), 5);
    assert_eq!(epochs[0].targeting, Targeting::nodes(vec![node(1)]));
    assert_eq!(standing(0), [base]);
    let mut upto = 0;
    for (at, wave) in epochs[1..4].iter().enumerate() {
        let share = wave.targeting.share.as_ref().unwrap();
        assert!(share.upto > upto && wave.targeting.nodes.is_none());
        assert_eq!(share.salt, commit.to_string());
        assert_eq!(wave.phase, Phase::Release);
        assert!(wave.watch_until.is_some(), "each wave is watched");
        assert_eq!(
            standing(at + 1),
            [base + 1, base],
            "the canary's stands beside it"
        );
        upto = share.upto;
    }
    assert_eq!(epochs[4].targeting, Targeting::everyone());
    assert_eq!(standing(4), [0; 0]);
    assert!(epochs.iter().all(|e| e.policy == epochs[0].policy));
}

// holds: RO-1, DL-7
#[test]
fn an_abort_in_a_wave_takes_back_all_waves_and_the_canary_whether_they_reported_or_not() {
    let mut world = World::at_rest(9);
    let first = world.merge(in_waves(9, "two"));
    world.run(400);
    let walk = world.archive[&first].walk.clone().unwrap();
    assert_eq!(walk.stages.len(), 5);

    // The canary is the one that no wave but the last would take.
    let salt = format!("{:040x}", 3);
    let canary = (1..=9).max_by_key(|n| share_place(&salt, node(*n))).unwrap();
    let mut commit = in_waves(9, "bad");
    for plan in commit.plans.values_mut() {
        plan.stages[0].select.nodes = vec![format!("n{canary}").parse().unwrap()];
    }
    let bad = world.merge(commit);
    assert_eq!(bad.to_string(), salt);
    // One of whichever wave comes second cannot take it; one of the first falls asleep before it is taken back.
    let mut asleep = None;
    for _ in 0..400 {
        world.run(1);
        let walk = world.archive[&bad].walk.clone().unwrap();
        if let Some(stage) = walk.stages.get(1).filter(|s| !s.machines.is_empty())
            && asleep.is_none()
            && stage.machines.values().all(|m| m.verdict.is_some())
        {
            let id = *stage.machines.keys().next().unwrap();
            asleep = Some(id);
            for n in 1..=9 {
                set(&mut world, n, Behaviour::Fails);
            }
        }
        if world.state(&bad) == State::RollingBack
            && let Some(id) = asleep
            && world.hosts[&id].behaviour != Behaviour::Off
        {
            world.switch_off((1..=9).find(|n| node(*n) == id).unwrap());
        }
    }
    assert_eq!(world.state(&bad), State::RolledBack);
    let aborts: Vec<_> = world
        .epochs
        .values()
        .filter(|e| e.phase == Phase::Abort)
        .collect();
    let addressed: Vec<(bool, bool)> = (aborts.iter())
        .map(|e| (e.targeting.nodes.is_some(), e.targeting.share.is_some()))
        .collect();
    assert_eq!(
        addressed,
        [(true, false), (false, true)],
        "by name, then all waves as one share"
    );
    assert!(aborts.iter().all(|e| e.urgent));
    let awake = runs(&world, 9, "two").len();
    assert_eq!(awake, 8, "all but the one that sleeps");
    assert_eq!(runs(&world, 9, "bad").len(), 1);
    let asleep = asleep.unwrap();
    assert_eq!(world.archive[&bad].walk.as_ref().unwrap().outstanding.len(), 1);

    world.hosts.get_mut(&asleep).unwrap().behaviour = Behaviour::Good;
    world.run(5);
    assert_eq!(
        runs(&world, 9, "two").len(),
        9,
        "it came back to what everyone has"
    );
    world.report_all();
    world.settle();
    assert!(world.archive[&bad].walk.as_ref().unwrap().outstanding.is_empty());
}

// holds: DL-6
#[test]
fn no_order_lists_thousands_of_names() {
    let nodes = 1_200;
    let mut world = World::at_rest(nodes);
    let mut wide = in_waves(nodes, "two");
    for plan in wide.plans.values_mut() {
        plan.stages[0].select.nodes.clear();
        plan.stages[0].select.count = Some(Amount::Percent(30));
    }
    let commit = world.merge(wide);
    world.run(30);
    for n in 1..=nodes {
        set(&mut world, n, Behaviour::Fails);
    }
    let walk = world.archive[&commit].walk.clone().unwrap();
    assert_eq!(walk.stages[0].machines.len(), 360);
    assert_eq!(walk.stages[1].machines.len(), 210);
    world.say(crate::pure::snapshot::Verb::Withdraw, &commit);
    world.run(60);
    assert_eq!(world.state(&commit), State::RolledBack);
    assert_eq!(runs(&world, nodes, "one").len(), 1_200);
    let most = world
        .epochs
        .values()
        .filter_map(|e| Some(e.targeting.nodes.as_ref()?.len()))
        .max();
    assert!(most.unwrap_or(0) <= 200, "{most:?}");
}
