//! Who a record is, over commits: what breaks it is no order, and who left the fleet stays away (FR-5).

use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::lifecycle::delivery::{Code, State};
use meshplan_schemas::limits::REVOKED;

use super::world::{World, node, tree};
use crate::pure::compose::Composed;

fn fleet(nodes: u128, text: &str) -> Composed {
    tree(nodes, "one", &[("web", text)])
}

/// The record of one node has another id.
fn another_id(mut tree: Composed, from: u128, to: u128) -> Composed {
    let nodes = tree.nodes.values().map(|of| {
        let mut of = (**of).clone();
        if of.id == node(from) {
            of.id = node(to);
        }
        (of.id, Arc::new(of))
    });
    tree.nodes = nodes.collect::<Vec<_>>().into_iter().collect();
    tree
}

fn digest_of(n: u128) -> Digest {
    Digest::of(node(n).to_string().as_bytes())
}

// holds: FR-5, DL-2
#[test]
fn a_commit_that_gives_a_record_another_id_is_no_order_and_no_excuse_for_the_next() {
    let mut world = World::empty(3);
    let first = world.merge(fleet(3, "one"));
    world.run(300);
    assert_eq!(world.state(&first), State::Delivered);
    for text in ["two", "three"] {
        let commit = world.merge(another_id(fleet(3, text), 2, 9));
        world.run(30);
        assert_eq!(
            (world.state(&commit), world.archive[&commit].code),
            (State::Failed, Code::Invalid)
        );
        let reason = &world.archive[&commit].reason;
        assert!(
            reason.contains("nodes/n2.toml") && reason.contains("the id of `n2` is another"),
            "{reason}"
        );
    }
    let mended = world.merge(fleet(3, "four"));
    world.run(300);
    assert_eq!(world.state(&mended), State::Delivered);
    assert!(world.snapshot.revoked.is_empty());
}

// holds: FR-5, SG-3
#[test]
fn a_deleted_record_is_revoked_in_the_list_and_does_not_come_back() {
    let mut world = World::empty(3);
    world.merge(fleet(3, "one"));
    world.run(300);
    let gone = world.merge(fleet(2, "one"));
    world.run(300);
    assert_eq!(world.state(&gone), State::Delivered);
    let left = &world.snapshot.revoked[&digest_of(3)];
    assert_eq!(left.node.as_ref().map(|name| name.as_str()), Some("n3"));
    assert_eq!(left.commit, gone);
    assert_eq!(world.snapshot.head.as_ref().unwrap().revoked, [digest_of(3)]);
    let facts = world.transitions.iter().flat_map(|t| &t.facts);
    let told: Vec<_> = facts
        .filter(|(key, _)| key == "Revoked")
        .map(|(_, text)| text.clone())
        .collect();
    assert_eq!(told, [format!("n3 {}", digest_of(3))]);

    let back = world.merge(fleet(3, "one"));
    world.run(30);
    assert_eq!(
        (world.state(&back), world.archive[&back].code),
        (State::Failed, Code::Invalid)
    );
    let reason = &world.archive[&back].reason;
    let expected = format!(
        "was `n3`'s, which left the fleet with {}, and may not come back",
        gone.short()
    );
    assert!(reason.contains(&expected), "{reason}");
    // Another machine of that name is another record.
    let other = world.merge(another_id(fleet(3, "one"), 3, 9));
    world.run(30);
    assert_ne!(
        world.state(&other),
        State::Failed,
        "{}",
        world.archive[&other].reason
    );
}

// holds: SG-3
#[test]
fn more_than_a_head_may_name_raise_the_oldest_revision_that_it_accepts() {
    let mut world = World::empty(3);
    world.merge(fleet(3, "one"));
    world.run(300);
    let before = world.snapshot.head.clone().unwrap();
    let mut some = fleet(3, "one");
    some.revoked = vec![Digest::of(b"a key")];
    some.list_digest = Digest::of(b"one is revoked");
    world.merge(some.clone());
    world.run(300);
    let head = world.snapshot.head.clone().unwrap();
    assert_eq!(
        (head.revoked.len(), head.oldest_accepted),
        (1, before.oldest_accepted)
    );
    let mut many = some;
    many.revoked
        .extend((0..REVOKED).map(|n| Digest::of(format!("key {n}").as_bytes())));
    many.revoked.sort();
    many.list_digest = Digest::of(b"many are revoked");
    world.merge(many.clone());
    world.run(300);
    let head = world.snapshot.head.clone().unwrap();
    assert_eq!((head.revoked.len(), head.oldest_accepted), (0, head.revision));
    assert_eq!(
        world.snapshot.revoked.len(),
        REVOKED + 1,
        "they are known for good"
    );
    // The next head names what left since, and that alone.
    many.revoked.push(Digest::of(b"one more"));
    many.revoked.sort();
    many.list_digest = Digest::of(b"one more is revoked");
    world.merge(many);
    world.run(300);
    let next = world.snapshot.head.clone().unwrap();
    assert_eq!(next.revoked, [Digest::of(b"one more")]);
    assert_eq!(next.oldest_accepted, head.oldest_accepted);
}
