//! Stages of a commit that changes its plan: those of before, without machines that are gone (DL-15).

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::plan::Canary;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::world::{World, tree};
use crate::pure::compose::Composed;
use crate::pure::snapshot::Verb;

/// The plan as a commit has it: its first stage names these, or there is none but the last.
fn planned(nodes: u128, web: &str, canaries: &[&str]) -> Composed {
    let mut tree = tree(nodes, "one", &[("web", web)]);
    for plan in tree.plans.values_mut() {
        if canaries.is_empty() {
            plan.stages.drain(..plan.stages.len() - 1);
            plan.canary = Canary::None;
        } else {
            plan.stages[0].select.nodes = canaries.iter().map(|name| name.parse().unwrap()).collect();
        }
    }
    tree.gate_digest = Digest::of(format!("{canaries:?}").as_bytes());
    tree
}

/// A fleet that has delivered a commit with this plan.
fn world(nodes: u128, canaries: &[&str]) -> World {
    let mut world = World::at_rest(nodes);
    let first = world.merge(planned(nodes, "one", canaries));
    world.run(200);
    assert_eq!(world.state(&first), State::Delivered);
    world
}

fn running(world: &World, nodes: u128, web: &str) -> Vec<u128> {
    let runs = |n: &u128| world.runs(*n, "web").as_deref() == Some(web);
    (1..=nodes).filter(runs).collect()
}

fn lines(world: &World, commit: &CommitId) -> String {
    let delivery = &world.archive[commit];
    delivery.walk.as_ref().unwrap().lines.join("; ")
}

// holds: DL-15
#[test]
fn a_commit_cannot_take_away_the_canary_that_would_meet_it() {
    let mut world = world(3, &["n2"]);
    let commit = world.merge(planned(3, "two", &[]));
    world.run(2);
    assert_eq!(running(&world, 3, "two"), [2], "the canary of before goes first");
    let said = lines(&world, &commit);
    assert!(
        said.contains("those of the plan default as it was before"),
        "{said}"
    );
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(running(&world, 3, "two"), [1, 2, 3]);

    let commit = world.merge(planned(3, "three", &[]));
    world.run(2);
    assert_eq!(
        running(&world, 3, "three"),
        [1, 2, 3],
        "the next walks as was accepted"
    );
    assert_eq!(lines(&world, &commit), "");
}

// holds: DL-15
#[test]
fn a_stage_goes_on_without_machines_that_are_gone() {
    let mut world = world(4, &["n2", "n4"]);
    let commit = world.merge_allowing(planned(3, "two", &["n1"]), "n4 is scrap");
    world.run(2);
    assert_eq!(running(&world, 3, "two"), [2]);
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
}

// holds: DL-15, DL-2
#[test]
fn a_stage_whose_machines_are_all_gone_is_the_commits_own_and_waits_for_a_go() {
    let mut world = world(4, &["n4"]);
    let commit = world.merge_allowing(planned(3, "two", &["n3"]), "n4 is scrap");
    world.run(100);
    assert_eq!(world.codes(&commit).last().unwrap(), "held (plan-hold)");
    let reason = &world.archive[&commit].reason;
    assert!(reason.contains("its stage canary names none is left"), "{reason}");
    assert_eq!(running(&world, 3, "two"), [0; 0]);
    world.say(Verb::Go, &commit);
    world.run(2);
    assert_eq!(running(&world, 3, "two"), [3]);
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
}

// holds: DL-15
#[test]
fn what_reaches_no_machine_waits_for_nobody_over_its_stages() {
    let mut world = world(4, &["n4"]);
    let commit = world.merge_allowing(planned(3, "one", &["n3"]), "n4 is scrap");
    world.run(100);
    assert_eq!(world.state(&commit), State::Delivered);
}
