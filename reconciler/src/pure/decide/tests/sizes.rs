//! Fleets of every size against shares of every size (DL-6): one rounding rule, down and at least one machine; no size
//! makes the waves collapse, and no budget rounds to "all may fail".

use std::collections::BTreeMap;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::plan::{Amount, Canary, Healthy};
use meshplan_schemas::lifecycle::delivery::State;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::Composed;
use crate::pure::decide::forecast::forecast;
use crate::pure::decide::walk::selection::resolve;
use crate::pure::delivery::{Leg, NodeChange};
use crate::pure::scope::Scope;
use crate::pure::snapshot::Verb;

/// How many machines go first: fleet, then the canary's share of it in percent.
const CANARIES: [(u128, [usize; 5]); 9] = [
    //       0  1  10  50  100
    (0, [0, 0, 0, 0, 0]),
    (1, [1, 1, 1, 1, 1]),
    (2, [1, 1, 1, 1, 2]),
    (3, [1, 1, 1, 1, 3]),
    (9, [1, 1, 1, 4, 9]),
    (10, [1, 1, 1, 5, 10]),
    (199, [1, 1, 19, 99, 199]),
    (200, [1, 2, 20, 100, 200]),
    (201, [1, 2, 20, 100, 201]),
];
const SHARES: [u32; 5] = [0, 1, 10, 50, 100];

/// A changed tree whose canary is so many of the machines that it changes.
fn with_canary(nodes: u128, count: Option<Amount>) -> Composed {
    let mut tree = tree(nodes, "one", &[("web", "two")]);
    for plan in tree.plans.values_mut() {
        plan.stages[0].select.nodes.clear();
        plan.stages[0].select.count = count;
    }
    tree
}

/// The change of a module on every node.
fn leg(nodes: u128) -> Leg {
    let change = NodeChange {
        before: None,
        after: Some(Digest::of(b"two")),
    };
    Leg {
        scope: Scope::Module("web".parse().unwrap()),
        digest: Digest::of(b"two"),
        before: None,
        from: None,
        nodes: (1..=nodes)
            .map(|n| (node(n), change.clone()))
            .collect::<BTreeMap<_, _>>()
            .into(),
        behind: BTreeMap::new().into(),
    }
}

/// How many machines each stage takes.
fn sizes(tree: &Composed, nodes: u128) -> Vec<usize> {
    let stages = forecast(None, tree, &[leg(nodes)]).stages;
    stages.iter().map(|stage| stage.machines).collect()
}

// holds: DL-6, B26
#[test]
fn a_canary_is_one_machine_at_least_and_never_the_fleet_unless_the_plan_says_so() {
    for (nodes, expected) in CANARIES {
        for (percent, canary) in SHARES.into_iter().zip(expected) {
            let fleet = usize::try_from(nodes).unwrap();
            let tree = with_canary(nodes, Some(Amount::Percent(percent)));
            // Where the fleet has one machine there is no canary; that one is in the last stage.
            let stages = if nodes == 1 {
                vec![1]
            } else {
                vec![canary, fleet - canary]
            };
            assert_eq!(sizes(&tree, nodes), stages, "{percent} % of {nodes}");
            assert!(
                canary < fleet || nodes < 2 || percent == 100,
                "{percent} % of {nodes}"
            );
        }
    }
}

// holds: DL-6, B26
#[test]
fn the_walk_takes_as_many_as_were_told_and_the_rest_only_after_them() {
    for (nodes, expected) in CANARIES.into_iter().filter(|(nodes, _)| (1..=10).contains(nodes)) {
        for (percent, canary) in SHARES.into_iter().zip(expected) {
            let mut world = World::at_rest(nodes);
            let commit = world.merge(with_canary(nodes, Some(Amount::Percent(percent))));
            world.run(2);
            let new = |world: &World| {
                let there = (1..=nodes).filter(|n| world.runs(*n, "web").as_deref() == Some("two"));
                there.count()
            };
            assert_eq!(new(&world), canary, "{percent} % of {nodes}");
            world.run(90);
            assert_eq!(world.state(&commit), State::Delivered, "{percent} % of {nodes}");
            assert_eq!(new(&world), usize::try_from(nodes).unwrap());
        }
    }
}

// holds: DL-6, B26
#[test]
fn waves_are_one_machine_at_least_and_end() {
    for (nodes, batches) in CANARIES {
        for (percent, batch) in SHARES.into_iter().zip(batches) {
            let mut tree = with_canary(nodes, None);
            for plan in tree.plans.values_mut() {
                plan.canary = Canary::None;
                plan.stages[1].batch = Some(Amount::Percent(percent));
            }
            let fleet = usize::try_from(nodes).unwrap();
            let waves = forecast(None, &tree, &[leg(nodes)]).stages[0].waves;
            let expected = if fleet == 0 { 0 } else { fleet.div_ceil(batch) };
            assert_eq!(waves, expected, "waves of {percent} % of {nodes}");
        }
    }
}

// holds: DL-6, B26
#[test]
fn a_choice_that_nobody_fits_is_one_machine_said_aloud_or_a_hold_and_never_all() {
    for (nodes, _) in CANARIES.into_iter().filter(|(nodes, _)| *nodes > 1) {
        let mut tree = with_canary(nodes, Some(Amount::Percent(50)));
        for plan in tree.plans.values_mut() {
            plan.stages[0].select.roles = vec!["nobody".parse().unwrap()];
        }
        let told = forecast(None, &tree, &[leg(nodes)]);
        assert_eq!(told.stages[0].machines, 1, "{nodes}");
        let line = told.stages[0].line.as_deref().unwrap_or_default();
        assert!(line.contains("goes first instead"), "{line:?}");
    }
    for canary in [Canary::Replaced, Canary::NamedOnly] {
        let mut world = World::at_rest(3);
        let mut tree = with_canary(3, None);
        for plan in tree.plans.values_mut() {
            plan.canary = canary;
            plan.stages[0].select.roles = vec!["nobody".parse().unwrap()];
        }
        let commit = world.merge(tree);
        world.run(2);
        let there = (1..=3).filter(|n| world.runs(*n, "web").as_deref() == Some("two"));
        let (there, state) = (there.count(), world.state(&commit));
        match canary {
            Canary::Replaced => assert_eq!((there, state), (1, State::Delivering)),
            _ => assert_eq!((there, state), (0, State::Held)),
        }
    }
    // A change that reaches no machine passes every stage; a fleet without machines is never an order.
    assert_eq!(sizes(&with_canary(9, None), 0), [0, 0]);
}

// holds: DL-6, B26
#[test]
fn a_budget_rounds_down_and_never_lets_all_fail() {
    for (nodes, _) in CANARIES {
        let fleet = usize::try_from(nodes).unwrap();
        for percent in 0..100 {
            let allowed = resolve(Amount::Percent(percent), fleet);
            assert!(allowed < fleet.max(1), "{percent} % of {nodes} lets all fail");
        }
    }
    // (fleet, how many of the rest fail, what becomes of it): a tenth of three is nobody, of ten is one.
    for (nodes, failing, expected) in [
        (3, 0, State::Delivered),
        (3, 1, State::RolledBack),
        (12, 1, State::Delivered),
        (12, 2, State::RolledBack),
    ] {
        let mut world = World::at_rest(nodes);
        let mut tree = tree(nodes, "one", &[("web", "bad")]);
        for plan in tree.plans.values_mut() {
            plan.stages[1].tolerate = Amount::Percent(10);
        }
        for n in 0..failing {
            set(&mut world, nodes - n, Behaviour::Fails);
        }
        let commit = world.merge(tree);
        world.run(200);
        assert_eq!(world.state(&commit), expected, "{failing} of {nodes} fail");
    }
}

// holds: FR-13, B20
#[test]
fn the_largest_numbers_stop_nothing() {
    let mut world = World::at_rest(3);
    let mut largest = with_canary(3, Some(Amount::Number(u32::MAX)));
    largest.fleet.present_secs = u32::MAX;
    for stage in largest.plans.values_mut().flat_map(|plan| &mut plan.stages) {
        stage.tolerate = Amount::Number(u32::MAX);
        stage.healthy = Some(Healthy {
            times: 1,
            every_secs: 1,
            within_secs: u32::MAX,
        });
    }
    let commit = world.merge(largest);
    world.run(30);
    assert_eq!(world.state(&commit), State::Delivered);
    // A walk that waits to the end of time is stopped by a person, and the next commit goes its way.
    let mut endless = tree(3, "one", &[("web", "three")]);
    for stage in endless.plans.values_mut().flat_map(|plan| &mut plan.stages) {
        stage.healthy = Some(Healthy {
            times: u32::MAX,
            every_secs: u32::MAX,
            within_secs: u32::MAX,
        });
    }
    let endless = world.merge(endless);
    world.run(30);
    assert_eq!(world.state(&endless), State::Delivering);
    world.say(Verb::Withdraw, &endless);
    world.run(30);
    assert!(world.state(&endless).is_final(), "{:?}", world.state(&endless));
}
