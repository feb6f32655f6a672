//! Deliveries side by side: scopes that share no machine do not wait for each other (DL-3).

use std::sync::Arc;

use meshplan_schemas::lifecycle::delivery::State;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::Composed;
use crate::pure::snapshot::Verb;

/// Four nodes: `web` is on the first two, `db` on the others.
fn fleet(web: &str, db: &str) -> Composed {
    let mut tree = tree(4, "one", &[("web", web), ("db", db)]);
    for n in 1..=4 {
        let keep = if n <= 2 { "web" } else { "db" };
        let mut changed = (**tree.nodes.get(&node(n)).unwrap()).clone();
        changed.modules.retain(|name, _| name.as_str() == keep);
        assert!(tree.nodes.replace(&node(n), Arc::new(changed)));
    }
    tree
}

fn at_rest() -> World {
    let mut world = World::empty(4);
    let first = world.merge(fleet("one", "one"));
    world.run(200);
    assert_eq!(world.state(&first), State::Delivered);
    world
}

// holds: DL-3, B27
#[test]
fn scopes_that_share_no_machine_walk_side_by_side() {
    let mut world = at_rest();
    let web = world.merge(fleet("two", "one"));
    world.run(3);
    let db = world.merge(fleet("two", "two"));
    world.run(1);
    assert_eq!(world.state(&web), State::Delivering);
    assert_eq!(world.state(&db), State::Delivering, "{:?}", world.codes(&db));
    let legs: Vec<String> = (world.archive[&db].legs.iter())
        .map(|leg| leg.scope.to_string())
        .collect();
    assert_eq!(legs, ["module:db"], "web is on its way already");
    world.run(100);
    assert_eq!(
        (world.state(&web), world.state(&db)),
        (State::Delivered, State::Delivered)
    );
    assert_eq!(world.runs(2, "web").as_deref(), Some("two"));
    assert_eq!(world.runs(4, "db").as_deref(), Some("two"));
    let rest = world.merge(fleet("two", "two"));
    assert_eq!(world.codes(&rest).last().unwrap(), "delivered (nothing-to-do)");
}

// holds: DL-3, DL-14
#[test]
fn one_that_fails_takes_nothing_of_the_other_back() {
    let mut world = at_rest();
    set(&mut world, 1, Behaviour::Fails);
    let web = world.merge(fleet("bad", "one"));
    let db = world.merge(fleet("bad", "two"));
    world.run(100);
    assert_eq!(
        (world.state(&web), world.state(&db)),
        (State::RolledBack, State::Delivered)
    );
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
    assert_eq!(world.runs(3, "db").as_deref(), Some("two"));
    let next = world.merge(fleet("bad", "three"));
    world.run(100);
    assert_eq!(world.state(&next), State::Delivered);
    assert_eq!(
        world.runs(2, "web").as_deref(),
        Some("one"),
        "what failed stays out"
    );
}

// holds: DL-3
#[test]
fn within_a_scope_and_on_a_machine_deliveries_are_serial() {
    let mut world = at_rest();
    let first = world.merge(fleet("two", "one"));
    world.run(3);
    let same_scope = world.merge(fleet("three", "two"));
    world.run(1);
    assert_eq!(world.state(&first), State::Delivering);
    assert_eq!(
        world.state(&same_scope),
        State::Proposed,
        "web waits, and db with it"
    );
    world.run(200);
    assert_eq!(world.state(&same_scope), State::Delivered);

    // Stopped is not over: what a walk has put on machines is its own until a word or a newer commit.
    let stopped = world.merge(fleet("four", "two"));
    world.run(3);
    world.say(Verb::Stop, &stopped);
    let covers = world.merge(fleet("four", "three"));
    world.run(100);
    assert_eq!(world.state(&stopped), State::Superseded);
    assert_eq!(world.state(&covers), State::Delivered);
    assert_eq!(world.runs(2, "web").as_deref(), Some("four"));
}

// holds: DL-3
#[test]
fn a_commit_of_which_all_is_on_its_way_waits_and_has_nothing_to_do() {
    let mut world = at_rest();
    let web = world.merge(fleet("two", "one"));
    world.run(3);
    let same = world.merge(fleet("two", "one"));
    world.run(1);
    assert_eq!(
        (world.state(&web), world.state(&same)),
        (State::Delivering, State::Proposed)
    );
    world.run(100);
    assert_eq!(world.codes(&same).last().unwrap(), "delivered (nothing-to-do)");
}
