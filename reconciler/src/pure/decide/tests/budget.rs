//! Budgets: how many machines of a group may be unavailable at once, whoever took them away (DL-17).

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::document::plan::{Amount, Budget};
use meshplan_schemas::lifecycle::delivery::State;

use super::world::{World, node, tree};
use crate::pure::compose::Composed;
use crate::pure::snapshot::Verb;

/// Six machines, two at each of three sites; `rest` lets so many of a site be unavailable.
fn sites(text: &str, most: Amount) -> Composed {
    let mut tree = tree(6, "one", &[("web", text)]);
    for n in 1..=6 {
        let mut changed = (**tree.nodes.get(&node(n)).unwrap()).clone();
        let site = ["ams", "bru", "cdg"][usize::try_from((n - 1) / 2).unwrap()];
        changed.vars = BTreeMap::from([("site".to_owned(), site.to_owned())]);
        assert!(tree.nodes.replace(&node(n), Arc::new(changed)));
    }
    for plan in tree.plans.values_mut() {
        plan.stages[1].budget = vec![Budget {
            var: "site".into(),
            max_unavailable: most,
        }];
    }
    tree
}

fn waves(world: &World, commit: &meshplan_schemas::ident::CommitId) -> Vec<usize> {
    let walk = world.archive[commit].walk.clone().unwrap();
    walk.stages.iter().map(|stage| stage.machines.len()).collect()
}

// holds: DL-17
#[test]
fn a_stage_takes_no_more_of_a_group_at_once_than_its_budget_lets() {
    let mut world = World::at_rest(6);
    let commit = world.merge(sites("two", Amount::Number(1)));
    let mut most = 0;
    for _ in 0..300 {
        world.run(1);
        let walk = world.archive[&commit].walk.clone().unwrap();
        for site in 0..3_u128 {
            let open = [site * 2 + 1, site * 2 + 2].into_iter().filter(|n| {
                let of = walk.stages.iter().filter_map(|s| s.machines.get(&node(*n)));
                of.clone().any(|m| m.verdict.is_none())
            });
            most = most.max(open.count());
        }
    }
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(most, 1);
    assert_eq!(
        waves(&world, &commit),
        [1, 3, 2],
        "the canary, one of each site, and who is left"
    );
}

// holds: DL-17, B26
#[test]
fn a_share_rounds_down_and_lets_one_begin_and_a_machine_without_the_variable_is_counted_with_its_like() {
    for (share, expected) in [(10, vec![1, 3, 2]), (50, vec![1, 3, 2]), (100, vec![1, 5])] {
        let mut world = World::at_rest(6);
        let commit = world.merge(sites("two", Amount::Percent(share)));
        world.run(300);
        assert_eq!(world.state(&commit), State::Delivered);
        assert_eq!(waves(&world, &commit), expected, "{share} %");
    }
    let mut world = World::at_rest(6);
    let mut without = sites("two", Amount::Number(2));
    for n in 1..=6 {
        let mut changed = (**without.nodes.get(&node(n)).unwrap()).clone();
        changed.vars.clear();
        assert!(without.nodes.replace(&node(n), Arc::new(changed)));
    }
    let commit = world.merge(without);
    world.run(300);
    assert_eq!(waves(&world, &commit), [1, 2, 2, 1]);
}

// holds: DL-17, DL-16
#[test]
fn what_is_down_already_counts_and_a_go_goes_on_in_spite_of_it() {
    let mut world = World::at_rest(6);
    // n6 of the third site is down and not part of the change: its record has no such module.
    let mut change = sites("two", Amount::Number(1));
    let mut apart = (**change.nodes.get(&node(6)).unwrap()).clone();
    apart.modules = world_one(&apart);
    assert!(change.nodes.replace(&node(6), Arc::new(apart)));
    world.switch_off(6);
    world.run(1000);
    let commit = world.merge(change);
    world.run(60);
    assert_eq!(
        world.runs(5, "web").as_deref(),
        Some("one"),
        "its neighbour is down"
    );
    assert_eq!(world.runs(3, "web").as_deref(), Some("two"));
    let why = crate::pure::decide::why::why(&world.archive[&commit], &world.snapshot.deliveries, world.now);
    assert_eq!(
        why.waits_for,
        "the budget of the stage rest: of the machines with site = cdg 1 may be unavailable, and 1 are: n6 (not heard from)"
    );
    world.run(400);
    assert_eq!(world.codes(&commit).last().unwrap(), "held (no-machine)");
    world.say(Verb::Go, &commit);
    world.run(100);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(world.runs(5, "web").as_deref(), Some("two"));
}

/// What a machine runs that the change leaves alone.
fn world_one(
    of: &crate::pure::compose::ComposedNode,
) -> BTreeMap<meshplan_schemas::ident::ModuleName, crate::pure::compose::Made> {
    let before = tree(6, "one", &[("web", "one")]);
    before.nodes.get(&of.id).unwrap().modules.clone()
}

// holds: DL-17
#[test]
fn the_two_ends_of_a_link_are_not_disturbed_together() {
    let mut world = World::at_rest(4);
    let mut change = tree(4, "one", &[("web", "two")]);
    // n2 is everybody's relay: it goes alone.
    change.policy = "[base.traversal]\nrelays = [\"n2\"]\n".to_owned();
    change.policy_digest = meshplan_schemas::digest::Digest::of(change.policy.as_bytes());
    for plan in change.plans.values_mut() {
        plan.stages[1].spread_links = true;
    }
    let commit = world.merge(change);
    world.run(400);
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{:?}",
        world.codes(&commit)
    );
    let walk = world.archive[&commit].walk.clone().unwrap();
    let with_relay: Vec<usize> = (walk.stages.iter())
        .filter(|s| s.machines.contains_key(&node(2)))
        .map(|s| s.machines.len())
        .collect();
    assert_eq!(with_relay, [1]);
    assert_eq!(waves(&world, &commit).iter().sum::<usize>(), 4);
}
