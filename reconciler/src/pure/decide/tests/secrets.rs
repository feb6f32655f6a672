//! Secrets in what is decided: values that are spent, and secrets that do not open.

use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::Leaf;
use meshplan_schemas::ident::ModuleName;
use meshplan_schemas::lifecycle::delivery::{Code, State};
use meshplan_schemas::merkle;
use meshplan_schemas::resource::Resource;
use meshplan_schemas::session::LinkSecret;
use serde_json::json;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::{Composed, Filled, Listed, Retired};
use crate::pure::decide::Tree;
use crate::pure::snapshot::Verb;

/// Three nodes whose module `web` says this text and was made with this value of the secret `db`.
fn web(text: &str, value: &str) -> Composed {
    let mut tree = tree(3, "one", &[("web", text), ("other", text)]);
    let module: ModuleName = "web".parse().unwrap();
    let nodes = tree.nodes.values().map(|of| {
        let mut of = (**of).clone();
        let mut content = of.modules[&module].1.content.clone();
        content
            .secrets
            .insert("db".to_owned(), Digest::of(value.as_bytes()));
        content.resources.push(Resource {
            name: "web.key".parse().unwrap(),
            spec: json!({ "path": "/key", "mode": "0600", "content": { "sealed": Digest::of(value.as_bytes()) } }),
            ..content.resources[0].clone()
        });
        let digest = Digest::of_value(&content).unwrap();
        of.modules
            .insert(module.clone(), (digest, Arc::new(Filled::from(content))));
        (of.id, Arc::new(of), digest)
    });
    let nodes: Vec<_> = nodes.collect();
    tree.sources.insert(module, nodes[0].2);
    tree.nodes = nodes.into_iter().map(|(id, of, _)| (id, of)).collect();
    tree
}

/// The same, and only this value of the secret may be used.
fn retired(text: &str, value: &str) -> Composed {
    let mut tree = web(text, value);
    let only = Retired {
        value: Some(Digest::of(value.as_bytes())),
        why: "it was in a chat".to_owned(),
    };
    tree.secrets.retired.insert("db".parse().unwrap(), only);
    tree
}

/// A world that has come to rest with this; what is bad fails on its first machine.
fn at_rest(tree: Composed) -> World {
    let mut world = World::empty(3);
    let commit = world.merge(tree);
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
    set(&mut world, 1, Behaviour::Fails);
    world
}

// holds: DL-7
#[test]
fn content_that_needs_a_retired_value_is_not_restored_and_the_delivery_is_held_with_the_name() {
    let mut world = at_rest(web("one", "old"));
    let commit = world.merge(retired("bad", "new"));
    world.run(200);
    assert_eq!(
        (world.state(&commit), world.archive[&commit].code),
        (State::Held, Code::RetiredValue),
        "{:?}",
        world.codes(&commit)
    );
    let ordered = world.declarations.iter().filter(|d| d.node == node(1));
    let ordered: Vec<_> = ordered.flat_map(|d| &d.resources).collect();
    let is_key = |r: &&&Resource| r.name.to_string() == "web.key";
    let marks: Vec<_> = ordered.iter().filter(is_key).map(|r| r.forward_only).collect();
    assert_eq!(
        marks,
        [None, Some(true)],
        "the host does not put the former one back either"
    );
    let reason = &world.archive[&commit].reason;
    assert!(
        reason.contains("the secret `db`") && reason.contains("it was in a chat") && reason.contains("web"),
        "{reason}"
    );
    assert_eq!(
        world.runs(1, "other").as_deref(),
        Some("one"),
        "what needs none goes back"
    );
    let last = world.declarations.iter().rfind(|d| d.node == node(1)).unwrap();
    let old = web("one", "old").nodes.values().next().unwrap().modules["web"].0;
    assert!(last.modules.iter().all(|entry| entry.digest != old));
    // Nobody forces it back; a commit that mends it goes on from there.
    world.say(Verb::Go, &commit);
    world.run(5);
    assert_eq!(world.state(&commit), State::Held);
    let next = world.merge(retired("three", "new"));
    world.run(200);
    assert_eq!(world.state(&next), State::Delivered);
    assert_eq!(world.runs(1, "web").as_deref(), Some("three"));
}

// holds: DL-7
#[test]
fn a_former_value_that_is_not_retired_goes_back_and_so_does_a_retired_ones_own_value() {
    for (before, after) in [
        (web("one", "old"), web("bad", "new")),
        (web("one", "new"), retired("bad", "new")),
    ] {
        let mut world = at_rest(before);
        let commit = world.merge(after);
        world.run(200);
        assert_eq!(world.state(&commit), State::RolledBack);
        assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
    }
}

// holds: FR-8
#[test]
fn a_commit_that_brings_a_secret_which_does_not_open_is_refused_and_one_that_found_it_so_is_not() {
    let closed = |text: &str, file: &str| {
        let mut tree = web(text, "old");
        let why = (
            Digest::of(file.as_bytes()),
            "it is encrypted to somebody else".to_owned(),
        );
        tree.secrets.closed.insert("secrets/db.age".to_owned(), why);
        tree
    };
    let mut world = at_rest(web("one", "old"));
    let bad = world.merge(closed("two", "lost"));
    world.run(20);
    assert_eq!(
        (world.state(&bad), world.archive[&bad].code),
        (State::Failed, Code::Invalid)
    );
    assert!(world.archive[&bad].reason.contains("secrets/db.age"));
    // The next commit does not launder it.
    let next = world.merge(closed("three", "lost"));
    world.run(20);
    assert_eq!(world.state(&next), State::Failed);
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));

    // The identity was lost: what opened before opens no more, and that is no commit's doing.
    let mut world = World::empty(3);
    let first = world.merge(web("one", "old"));
    world.run(200);
    let same = Tree::Composed(Arc::new(closed("one", "same")));
    world.trees.insert(first, same);
    let commit = world.merge(closed("two", "same"));
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
}

/// The same tree, in which the first node has this transport key.
fn keyed(mut tree: Composed, key: u8) -> Composed {
    let leaves = tree.nodes.values().map(|of| {
        let n = if of.id == node(1) { key } else { 9 };
        let secret = LinkSecret::from_bytes(&[n; 32]).unwrap();
        // Keys change by rotation only: the first one tells of the second.
        let next = (n == 1).then(|| LinkSecret::from_bytes(&[2; 32]).unwrap().public());
        let leaf: Leaf = serde_json::from_value(json!({
            "id": of.id, "name": of.name, "transport_key": secret.public(), "next_transport_key": next,
            "signing_key": "ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=",
            "lifeline": false, "valid_to": 0, "update_class": "required", "pinned": false,
        }))
        .unwrap();
        let hash = merkle::leaf_hash(&leaf.bytes().unwrap());
        (of.id, Arc::new(Listed { leaf, hash }))
    });
    tree.leaves = leaves.collect();
    tree.list_digest = Digest::of(&[key]);
    tree
}

// holds: FR-9
#[test]
fn a_node_whose_transport_key_changes_gets_what_it_has_under_the_next_sequence() {
    let mut world = at_rest(keyed(web("one", "old"), 1));
    let before = [1, 2].map(|n| world.sequences_of(n));
    let commit = world.merge(keyed(web("one", "old"), 2));
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
    let after = [1, 2].map(|n| world.sequences_of(n));
    assert_eq!(after[0].len(), before[0].len() + 1, "sealed anew");
    assert!(after[0].last() > before[0].last());
    assert_eq!(after[1], before[1], "nobody else");
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));

    let mut world = at_rest(keyed(tree(3, "one", &[("web", "one")]), 1));
    let before = world.sequences_of(1);
    let commit = world.merge(keyed(tree(3, "one", &[("web", "one")]), 2));
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(world.sequences_of(1), before, "nothing is sealed to it");
}
