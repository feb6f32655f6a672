//! Modules whose newest content failed: who joins gets what is proven, who has it keeps it.

use std::sync::Arc;

use meshplan_schemas::lifecycle::delivery::State;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::{Composed, ComposedNode};

type Modules = [(&'static str, &'static str)];

fn change(tree: &mut Composed, n: u128, with: impl FnOnce(&mut ComposedNode)) {
    let mut changed = (**tree.nodes.get(&node(n)).unwrap()).clone();
    with(&mut changed);
    assert!(tree.nodes.replace(&node(n), Arc::new(changed)));
}

/// A tree with so many nodes, where the node `n` has only the modules of `own`.
fn with_own(nodes: u128, modules: &Modules, n: u128, own: &[&str]) -> Composed {
    let mut tree = tree(nodes, "one", modules);
    change(&mut tree, n, |node| {
        node.modules.retain(|name, _| own.contains(&name.as_str()));
    });
    tree
}

/// A fleet at rest whose newest commit brought a `web` that failed.
fn with_a_bad_web(nodes: u128) -> World {
    let mut world = World::at_rest(nodes);
    set(&mut world, 1, Behaviour::Fails);
    let bad = world.merge(tree(nodes, "one", &[("web", "bad")]));
    world.run(30);
    assert_eq!(world.state(&bad), State::RolledBack);
    world
}

fn left_out(world: &World, n: u128) -> Vec<String> {
    let newest = world
        .declarations
        .iter()
        .rev()
        .find(|d| d.node == node(n))
        .unwrap();
    newest
        .left_out
        .iter()
        .map(|l| format!("{}: {}", l.module, l.reason))
        .collect()
}

// holds: DL-3
#[test]
fn a_new_node_gets_what_was_accepted_of_a_module_that_failed_since() {
    let mut world = with_a_bad_web(3);
    let accepted = world.snapshot.accepted[&"module:web".parse().unwrap()]
        .commit
        .clone();
    world.join(4);
    let enrolment = world.merge(tree(4, "one", &[("web", "bad")]));
    world.run(90);
    assert_eq!(
        world.state(&enrolment),
        State::Delivered,
        "{:?}",
        world.codes(&enrolment)
    );
    for n in 1..=4 {
        assert_eq!(world.runs(n, "web").as_deref(), Some("one"), "n{n}");
    }
    let order = world
        .declarations
        .iter()
        .rev()
        .find(|d| d.node == node(4))
        .unwrap();
    assert_eq!(
        order.modules[0].commit, accepted,
        "it names the commit that brought the content"
    );
    assert_eq!(
        world.archive[&enrolment].skipped.len(),
        1,
        "and the commit's own is skipped"
    );
    // It stays known-bad, and the accepted commit stays the accepted one.
    let later = world.merge(tree(4, "two", &[("web", "bad")]));
    world.run(90);
    assert_eq!(world.state(&later), State::Delivered);
    assert_eq!(world.runs(4, "web").as_deref(), Some("one"));
    assert_eq!(
        world.snapshot.accepted[&"module:web".parse().unwrap()].commit,
        accepted
    );
}

// holds: DL-3
#[test]
fn a_node_that_was_never_heard_from_finds_what_was_accepted_when_it_comes() {
    let mut world = with_a_bad_web(2);
    let enrolment = world.merge(tree(3, "one", &[("web", "bad")]));
    world.run(90);
    assert_eq!(world.state(&enrolment), State::Delivered);
    world.join(3);
    world.run(5);
    assert_eq!(world.runs(3, "web").as_deref(), Some("one"));
}

// holds: DL-3
#[test]
fn a_role_that_brings_a_failed_module_brings_what_was_accepted_and_one_that_goes_takes_it_away() {
    let both = [("web", "one"), ("db", "one")];
    let mut world = World::empty(3);
    world.merge(with_own(3, &both, 2, &["db"]));
    world.run(200);
    set(&mut world, 1, Behaviour::Fails);
    let failed = [("web", "bad"), ("db", "one")];
    let bad = world.merge(with_own(3, &failed, 2, &["db"]));
    world.run(30);
    assert_eq!(world.state(&bad), State::RolledBack);

    let gains = world.merge(tree(3, "one", &failed));
    world.run(90);
    assert_eq!(world.state(&gains), State::Delivered, "{:?}", world.codes(&gains));
    assert_eq!(world.runs(2, "web").as_deref(), Some("one"));

    let loses = world.merge(with_own(3, &failed, 3, &["db"]));
    world.run(90);
    assert_eq!(world.state(&loses), State::Delivered, "{:?}", world.codes(&loses));
    assert_eq!(world.runs(3, "web"), None);
    assert_eq!(
        world.runs(1, "web").as_deref(),
        Some("one"),
        "who has it keeps it"
    );
}

// holds: DL-3, DL-14
#[test]
fn what_was_accepted_and_fails_on_a_new_machine_is_kept_from_that_machine_alone() {
    let mut world = with_a_bad_web(2);
    // The fourth cannot take what everybody else runs.
    let three = || {
        let mut tree = tree(3, "one", &[("web", "bad"), ("db", "one")]);
        for plan in tree.plans.values_mut() {
            plan.stages[0].select.nodes = vec!["n3".parse().unwrap()];
        }
        tree
    };
    world.join(3);
    set(&mut world, 3, Behaviour::TakesNothing);
    let enrolment = world.merge(three());
    world.run(60);
    assert_eq!(
        world.state(&enrolment),
        State::RolledBack,
        "{:?}",
        world.codes(&enrolment)
    );
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));

    set(&mut world, 3, Behaviour::Good);
    world.join(4);
    let mut four = tree(4, "one", &[("web", "bad"), ("db", "two")]);
    four.list_digest = meshplan_schemas::digest::Digest::of(b"4");
    let next = world.merge(four);
    world.run(120);
    assert_eq!(world.state(&next), State::Delivered, "{:?}", world.codes(&next));
    assert_eq!(world.runs(4, "web").as_deref(), Some("one"), "proven elsewhere");
    assert_eq!(world.runs(3, "web"), None);
    assert_eq!(
        world.runs(3, "db").as_deref(),
        Some("two"),
        "its other modules go on"
    );
    let said = left_out(&world, 3);
    assert!(
        said.len() == 1 && said[0].contains("failed on this machine"),
        "{said:?}"
    );
}

// holds: DL-3, FR-8
#[test]
fn a_new_node_is_told_which_module_it_lacks_where_nothing_of_it_was_ever_accepted() {
    let mut world = World::at_rest(2);
    set(&mut world, 1, Behaviour::Fails);
    let both = [("web", "one"), ("db", "bad")];
    world.merge(tree(2, "one", &both));
    world.run(30);
    world.join(3);
    let enrolment = world.merge(tree(3, "one", &both));
    world.run(90);
    assert_eq!(
        world.state(&enrolment),
        State::Delivered,
        "{:?}",
        world.codes(&enrolment)
    );
    assert_eq!(world.runs(3, "web").as_deref(), Some("one"));
    assert_eq!(world.runs(3, "db"), None);
    let said = left_out(&world, 3);
    assert!(
        said.len() == 1 && said[0].starts_with("db: ") && said[0].contains("nothing of it"),
        "{said:?}"
    );
}

// holds: DL-3, HR-6
#[test]
fn what_was_accepted_stays_out_where_another_module_owns_its_target_now() {
    let mut world = with_a_bad_web(2);
    world.join(3);
    let mut grown = tree(3, "one", &[("web", "bad"), ("new", "one")]);
    let other = tree(1, "one", &[("web", "x")]);
    let mut file = other.nodes.get(&node(1)).unwrap().modules["web"].1.resources[0].clone();
    file.name = "new.conf".parse().unwrap();
    change(&mut grown, 3, |third| {
        let (_, new) = third.modules.get_mut("new").unwrap();
        Arc::make_mut(new).content.resources = vec![file];
    });
    let enrolment = world.merge(grown);
    world.run(90);
    assert_eq!(
        world.state(&enrolment),
        State::Delivered,
        "{:?}",
        world.codes(&enrolment)
    );
    let said = left_out(&world, 3);
    assert!(
        said.len() == 1 && said[0].contains("`/etc/web` belongs to the module new now"),
        "{said:?}"
    );
}
