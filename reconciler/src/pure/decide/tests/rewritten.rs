//! A branch that was rewritten under what was delivered (FG-3).

use std::sync::Arc;

use meshplan_schemas::document::plan::Rewritten;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::world::{World, tree};
use crate::pure::compose::Composed;
use crate::pure::decide::Tree;
use crate::pure::snapshot::Verb;

/// A tree of three nodes whose plan says what becomes of a rewritten branch, and whose gate that text is in.
fn fleet(text: &str, says: Rewritten) -> Composed {
    let mut tree = tree(3, "one", &[("web", text)]);
    for plan in tree.plans.values_mut() {
        plan.history_rewritten = says;
    }
    tree.gate_digest = meshplan_schemas::digest::Digest::of(says.word().as_bytes());
    tree
}

/// A head that drops what was delivered before.
fn force_push(world: &mut World, tree: Tree) -> CommitId {
    let (commit, mut news) = world.new_commit(tree, None);
    news.rewritten = true;
    world.pass(&[news]);
    commit
}

fn composed(tree: Composed) -> Tree {
    Tree::Composed(Arc::new(tree))
}

// holds: FG-3
#[test]
fn the_head_of_a_rewritten_branch_is_held_and_so_is_what_takes_its_place() {
    let mut world = World::at_rest(3);
    let head = force_push(&mut world, composed(fleet("two", Rewritten::Hold)));
    world.run(5000);
    assert_eq!(
        world.codes(&head),
        ["proposed (announced)", "held (history-rewritten)"]
    );
    let newer = world.merge(fleet("three", Rewritten::Hold));
    world.run(5000);
    assert_eq!(world.state(&head), State::Superseded);
    assert_eq!(world.codes(&newer).last().unwrap(), "held (history-rewritten)");
    assert!(world.say(Verb::Go, &newer).ends_with("is delivering"));
    world.run(200);
    assert_eq!(world.state(&newer), State::Delivered);
    let begun = world
        .transitions
        .iter()
        .find(|t| t.to == State::Delivering && t.commit == newer);
    let marked = begun
        .unwrap()
        .facts
        .iter()
        .any(|(key, _)| key == "History-Rewritten");
    assert!(marked, "the record says so");
    let later = world.merge(fleet("four", Rewritten::Hold));
    world.run(200);
    assert_eq!(
        world.state(&later),
        State::Delivered,
        "the word was given once for all"
    );
}

// holds: FG-3
#[test]
fn a_head_that_does_not_validate_hands_the_mark_on() {
    let mut world = World::at_rest(3);
    let head = force_push(&mut world, Tree::Invalid("it is broken".to_owned()));
    assert_eq!(world.state(&head), State::Failed);
    let mended = world.merge(fleet("two", Rewritten::Hold));
    world.run(200);
    assert_eq!(world.codes(&mended).last().unwrap(), "held (history-rewritten)");
}

// holds: FG-3, DL-15
#[test]
fn it_walks_where_the_plan_before_and_the_plan_after_say_so() {
    let mut world = World::at_rest(3);
    let head = force_push(&mut world, composed(fleet("two", Rewritten::Walk)));
    world.run(200);
    assert_eq!(
        world.codes(&head).last().unwrap(),
        "held (history-rewritten)",
        "the plan that the same push loosens does not count alone"
    );
    world.say(Verb::Go, &head);
    world.run(200);
    assert_eq!(world.state(&head), State::Delivered);
    let again = force_push(&mut world, composed(fleet("three", Rewritten::Walk)));
    world.run(200);
    assert_eq!(world.state(&again), State::Delivered);
    let stricter = force_push(&mut world, composed(fleet("four", Rewritten::Hold)));
    world.run(200);
    assert_eq!(world.codes(&stricter).last().unwrap(), "held (history-rewritten)");
}

// holds: FG-3
#[test]
fn a_head_that_changes_no_order_is_no_cause_to_ask_anybody() {
    let mut world = World::at_rest(3);
    world.merge(fleet("two", Rewritten::Hold));
    world.run(200);
    let head = force_push(&mut world, composed(fleet("two", Rewritten::Hold)));
    assert_eq!(world.codes(&head).last().unwrap(), "delivered (nothing-to-do)");
    let next = world.merge(fleet("three", Rewritten::Hold));
    world.run(200);
    assert_eq!(world.state(&next), State::Delivered);
}
