//! What cannot be decided of one delivery hinders no other (DL-2, `failed (internal)`).

use std::sync::Arc;

use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::world::{World, node, tree};
use crate::pure::compose::Composed;
use crate::pure::decide::Tree;
use crate::pure::snapshot::Verb;

/// Four nodes: `web` is on the first two, `db` on the others, `log` on all.
fn fleet(web: &str, db: &str) -> Composed {
    let mut tree = tree(4, "one", &[("web", web), ("db", db), ("log", "one")]);
    for n in 1..=4 {
        let drop = if n <= 2 { "db" } else { "web" };
        let mut changed = (**tree.nodes.get(&node(n)).unwrap()).clone();
        changed.modules.retain(|name, _| name.as_str() != drop);
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

/// The store loses a content: the one of this module that this commit brought.
fn lose(world: &mut World, commit: &CommitId, module: &str) {
    let Tree::Composed(tree) = &world.trees[commit] else {
        panic!("it composes")
    };
    let mut all = tree.nodes.values().flat_map(|node| &node.modules);
    let (_, (digest, _)) = all.find(|(name, _)| name.as_str() == module).unwrap();
    assert!(world.contents.modules.remove(digest).is_some());
}

fn first(world: &World) -> CommitId {
    let oldest = world.archive.values().min_by_key(|d| d.order);
    oldest.unwrap().commit.clone()
}

fn last(world: &World, commit: &CommitId) -> String {
    world.codes(commit).last().unwrap().clone()
}

// holds: DL-2
#[test]
fn what_cannot_be_ordered_has_failed_before_it_reached_anybody_and_the_others_go_on() {
    let mut world = at_rest();
    let commit = first(&world);
    let web = world.merge(fleet("two", "one"));
    world.run(3);
    assert_eq!(world.state(&web), State::Delivering);
    lose(&mut world, &commit, "log");
    let counters = world.snapshot.counters.clone();
    let (db, news) = world.new_commit(Tree::Composed(Arc::new(fleet("two", "two"))), None);
    let act = world.decide(&[news]);
    assert_eq!(act.orders.len(), 0, "nothing of it is in the act");
    assert_eq!(
        act.counters.sequence, counters.sequence,
        "no number of it is drawn"
    );
    assert_eq!(act.faults.len(), 1, "{:?}", act.faults);
    world.apply(act);
    assert_eq!(last(&world, &db), "failed (internal)");
    assert!(
        world.archive[&db]
            .reason
            .contains("is assigned and not in the store")
    );
    world.run(5);
    assert_ne!(world.state(&web), State::Failed);
}

// holds: DL-2, DL-7
#[test]
fn a_walk_that_cannot_go_on_is_taken_back_or_held_with_its_machines_named() {
    // The content of another module on the machines of the stage that follows is gone: neither can these be ordered back.
    let mut world = at_rest();
    let commit = first(&world);
    let web = world.merge(fleet("two", "one"));
    world.run(3);
    lose(&mut world, &commit, "log");
    world.run(100);
    assert_eq!(last(&world, &web), "held (lost)", "{:?}", world.codes(&web));
    let reason = &world.archive[&web].reason;
    assert!(
        reason.contains("nor can it be taken back: what has reached n1 stays as it is there"),
        "{reason}"
    );
    assert!(world.decide(&[]).is_empty(), "and it stays so");

    let answer = world.say(Verb::Withdraw, &web);
    assert!(
        answer.starts_with("refused: that cannot be decided, by our own fault"),
        "{answer}"
    );

    // A newer commit that can be decided goes on, and nothing of the other is forgotten: it covers that, or that has failed.
    for (covers, code) in [(true, "superseded (newer)"), (false, "failed (internal)")] {
        let mut world = world.clone();
        let next = world.merge_allowing(without_log(covers), "it is gone");
        world.run(300);
        assert_eq!(last(&world, &web), code, "{:?}", world.codes(&web));
        assert_eq!(world.state(&next), State::Delivered, "{:?}", world.codes(&next));
        if covers {
            assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
        } else {
            let reason = &world.archive[&web].reason;
            assert!(
                reason.ends_with("what has reached n1 stays as it is there"),
                "{reason}"
            );
        }
    }
}

/// A tree that nothing of what was lost is in, with the first machine or without it.
fn without_log(first: bool) -> Composed {
    let mut tree = fleet("one", "two");
    let nodes = tree.nodes.iter().filter(|(id, _)| first || **id != node(1));
    let nodes = nodes.map(|(id, of)| {
        let mut changed = (**of).clone();
        changed.modules.retain(|name, _| name.as_str() != "log");
        (*id, Arc::new(changed))
    });
    tree.nodes = nodes.collect();
    tree.list_digest = meshplan_schemas::digest::Digest::of(format!("{first}").as_bytes());
    tree
}
