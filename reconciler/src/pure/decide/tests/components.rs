//! Commits of components beside those of the fleet repo: neither carries the other past the plan that it goes by (DL-1, DL-15).

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::fleet::ComponentDoc;
use meshplan_schemas::document::plan::{Check, Covers, PlanDoc};
use meshplan_schemas::lifecycle::delivery::State;

use super::world::{World, tree};
use crate::pure::compose::Composed;
use crate::pure::parts::Left;
use crate::pure::snapshot::{Checked, Verdict};

/// A fleet whose module `web` is fed by the component `acme/site`. It has a plan of its own with so many approvals, and the
/// component has one with others.
fn fed(policy: &str, web: &str, (of_web, of_site): (u32, u32)) -> Composed {
    let mut tree = tree(3, policy, &[("web", web), ("db", "one")]);
    tree.gate_digest = Digest::of(b"with components");
    tree.fleet.components = vec![ComponentDoc {
        repo: "acme/site".into(),
        branch: "main".into(),
        module: "web".parse().unwrap(),
    }];
    let default = tree.plans.values().next().unwrap().clone();
    let plan = |name: &str, covers: Covers, approvals| PlanDoc {
        name: name.parse().unwrap(),
        covers: vec![covers],
        approvals,
        ..default.clone()
    };
    for plan in [
        plan("web", Covers::Module("web".parse().unwrap()), of_web),
        plan("site", Covers::Component("acme/site".into()), of_site),
    ] {
        tree.plans.insert(plan.name.clone(), plan);
    }
    tree
}

fn at_rest(approvals: (u32, u32)) -> World {
    let mut world = World::at_rest(3);
    let first = world.merge(fed("one", "one", approvals));
    world.run(300);
    // Its own gate may have wanted somebody's word.
    if world.state(&first) == State::Held {
        world.say(crate::pure::snapshot::Verb::Go, &first);
        world.run(300);
    }
    assert_eq!(world.state(&first), State::Delivered, "{:?}", world.codes(&first));
    world
}

// holds: DL-1, DL-3
#[test]
fn a_commit_of_a_component_goes_by_its_own_plan_and_one_of_the_fleet_by_the_modules() {
    let mut world = at_rest((0, 0));
    let site = world.merge_of("acme/site", fed("one", "two", (0, 0)));
    world.run(300);
    assert_eq!(world.state(&site), State::Delivered);
    assert_eq!(world.archive[&site].plan.as_ref().unwrap().as_str(), "site");
    assert_eq!(
        world.archive[&site].name.to_string(),
        format!("acme/site@{}", site.short())
    );
    let fleet = world.merge(fed("one", "three", (0, 0)));
    world.run(300);
    assert_eq!(world.archive[&fleet].plan.as_ref().unwrap().as_str(), "web");
}

// holds: DL-15
#[test]
fn a_components_commit_carries_no_change_of_the_fleet_past_the_plan_that_it_waits_for() {
    let mut world = at_rest((2, 0));
    let fleet = world.merge(fed("one", "two", (2, 0)));
    world.run(10);
    assert_eq!(world.codes(&fleet).last().unwrap(), "held (approvals)");
    let site = world.merge_of("acme/site", fed("one", "two and the site", (2, 0)));
    world.run(100);
    assert_eq!(world.state(&fleet), State::Superseded);
    assert_eq!(world.codes(&site).last().unwrap(), "held (approvals)");
    assert!(
        world.archive[&site]
            .reason
            .starts_with("the plan web wants 2 approvals")
    );
    // The site alone is what its plan lets through.
    let mut world = at_rest((2, 0));
    let site = world.merge_of("acme/site", fed("one", "the site", (2, 0)));
    world.run(300);
    assert_eq!(world.state(&site), State::Delivered);
}

// holds: DL-15
#[test]
fn a_commit_of_the_fleet_carries_no_components_change_past_the_components_plan() {
    let mut world = at_rest((0, 1));
    let site = world.merge_of("acme/site", fed("one", "the site", (0, 1)));
    world.run(10);
    assert_eq!(world.codes(&site).last().unwrap(), "held (approvals)");
    let fleet = world.merge(fed("two", "the site", (0, 1)));
    world.run(100);
    assert_eq!(world.state(&site), State::Superseded);
    assert_eq!(world.codes(&fleet).last().unwrap(), "held (approvals)");
    assert!(
        world.archive[&fleet]
            .reason
            .starts_with("the plan site wants 1 approvals")
    );
}

// holds: DL-1
#[test]
fn a_commit_of_a_component_that_the_tree_does_not_name_takes_nobodys_place() {
    let mut world = at_rest((2, 0));
    let fleet = world.merge(fed("one", "two", (2, 0)));
    world.run(10);
    let other = world.merge_of("acme/other", fed("one", "two", (2, 0)));
    world.run(10);
    assert_eq!(world.codes(&other).last().unwrap(), "withdrawn (withdrawn)");
    assert_eq!(world.codes(&fleet).last().unwrap(), "held (approvals)");
}

// holds: FR-12
#[test]
fn what_goes_from_machines_is_not_a_components_to_say() {
    let mut world = at_rest((0, 0));
    let (commit, mut news) = world.new_commit(
        crate::pure::decide::Tree::Composed(std::sync::Arc::new(fed("one", "two", (0, 0)))),
        Some("all of it".to_owned()),
    );
    news.component = Some(World::branch_of("acme/site"));
    world.pass(&[news]);
    assert_eq!(world.archive[&commit].allows_removals, None);
}

// holds: DL-15
#[test]
fn a_gate_is_decided_by_its_own_plan_and_by_the_plans_that_it_changes() {
    // By its own.
    let gated = |approvals| {
        let mut tree = fed("one", "one", (0, 0));
        let default = tree.plans["default"].clone();
        let gate = PlanDoc {
            name: "gate".parse().unwrap(),
            covers: vec![Covers::Gate],
            approvals,
            ..default
        };
        tree.gate_digest = Digest::of_value(&gate).unwrap();
        tree.plans.insert(gate.name.clone(), gate);
        tree
    };
    let mut world = at_rest((0, 0));
    let first = world.merge(gated(1));
    world.run(10);
    world.say(crate::pure::snapshot::Verb::Go, &first);
    world.run(300);
    assert_eq!(world.state(&first), State::Delivered, "{:?}", world.codes(&first));
    let loose = world.merge(gated(0));
    world.run(10);
    assert_eq!(world.codes(&loose).last().unwrap(), "held (approvals)");
    // By the one that it changes, though nothing that this one covers changes with it.
    let mut world = at_rest((2, 0));
    let mut looser = fed("one", "one", (0, 0));
    looser.gate_digest = Digest::of(b"looser");
    let looser = world.merge(looser);
    world.run(10);
    assert_eq!(world.codes(&looser).last().unwrap(), "held (approvals)");
    assert!(
        world.archive[&looser]
            .reason
            .starts_with("the plan web wants 2 approvals")
    );
}

// holds: DL-15, DL-2
#[test]
fn a_component_that_is_set_back_takes_no_gate_of_the_fleet_with_it() {
    let mut world = at_rest((2, 0));
    let first = world.merge_of("acme/site", fed("one", "first", (2, 0)));
    world.run(300);
    assert_eq!(world.state(&first), State::Delivered);
    let fleet = world.merge(fed("one", "two", (2, 0)));
    let site = world.merge_of("acme/site", fed("one", "two and the site", (2, 0)));
    world.run(10);
    assert_eq!(world.codes(&site).last().unwrap(), "held (approvals)");
    world.left = vec![Left {
        of: Some(World::branch_of("acme/site")),
        head: first,
        commits: [site.clone()].into(),
    }];
    world.pass(&[]);
    world.left.clear();
    assert_eq!(world.state(&site), State::Withdrawn);
    let next = world.merge_of("acme/site", fed("one", "two and another", (2, 0)));
    world.run(300);
    assert_eq!(world.archive[&next].parts().fleet, fleet);
    assert_eq!(world.codes(&next).last().unwrap(), "held (approvals)");
}

// holds: DL-15
#[test]
fn a_components_checks_are_asked_of_its_own_commit_alone() {
    let mut world = at_rest((0, 1));
    world.settings.asks_forge = true;
    let checked = |policy: &str| {
        let mut tree = fed(policy, "the site", (0, 1));
        let site = tree.plans.get_mut("site").unwrap();
        site.check = Check::Named(vec!["site/ci".into()]);
        tree
    };
    let site = world.merge_of("acme/site", checked("one"));
    let passed = vec![Checked {
        name: "site/ci".into(),
        verdict: Verdict::Passed,
    }];
    world.snapshot.checks.insert(site.clone(), passed);
    world.run(10);
    assert_eq!(world.codes(&site).last().unwrap(), "held (approvals)");
    let fleet = world.merge(checked("two"));
    world.run(10);
    assert_eq!(world.state(&site), State::Superseded);
    assert_eq!(world.archive[&fleet].checks, Vec::<String>::new());
    assert_eq!(world.codes(&fleet).last().unwrap(), "held (approvals)");
}
