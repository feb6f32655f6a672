//! Commits that must be signed by whom the newest commit that was let through trusts.

use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::fleet::{CommitSigners, SignedCommits};
use meshplan_schemas::document::signers::{Limits, Signer};
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::world::{World, tree};
use crate::pure::compose::Composed;
use crate::pure::decide::Tree;
use crate::pure::signatures::{Brought, BroughtCommit, Proof};
use crate::pure::snapshot::Verb;

fn signer(name: &str) -> Signer {
    Signer {
        principals: name.to_owned(),
        limits: Limits::default(),
        kind: "ssh-ed25519".to_owned(),
        key: name.as_bytes().to_vec(),
    }
}

/// A tree of three nodes that trusts these.
fn trusting(text: &str, asks: SignedCommits, names: &[&str]) -> Composed {
    let mut tree = tree(3, "one", &[("web", text)]);
    let signers = names.iter().map(|name| signer(name)).collect();
    tree.fleet.commit_signers = (asks != SignedCommits::Off).then_some(CommitSigners {
        asks,
        signers,
        line: 7,
    });
    tree.gate_digest = Digest::of(format!("{asks} {names:?}").as_bytes());
    tree
}

/// A commit that is signed by this key, or by none; `also` are what it brings beside itself.
fn push(world: &mut World, tree: Tree, by: Option<&str>, also: &[CommitId]) -> CommitId {
    let (commit, news) = world.new_commit(tree, None);
    let signed = |id: &CommitId, by: Option<&str>| BroughtCommit {
        id: id.clone(),
        at: 0,
        proof: by.map_or(Proof::Unsigned, |key| Proof::Key {
            kind: "ssh-ed25519".to_owned(),
            key: key.as_bytes().to_vec(),
        }),
        clean_merge: false,
    };
    let before = also.iter().map(|id| signed(id, None));
    let commits = before.chain([signed(&commit, by)]).collect();
    let brought = Brought { commits, more: false };
    world.signatures.insert(commit.clone(), vec![brought]);
    world.pass(&[news]);
    commit
}

fn composed(tree: Composed) -> Tree {
    Tree::Composed(Arc::new(tree))
}

/// A fleet that has delivered a commit which asks for signatures of Alice.
fn asking(asks: SignedCommits) -> World {
    let mut world = World::at_rest(3);
    let first = push(&mut world, composed(trusting("one", asks, &["alice"])), None, &[]);
    world.run(200);
    assert_eq!(world.state(&first), State::Delivered, "nobody asked before it");
    world
}

fn facts(world: &World, commit: &CommitId, word: &str) -> Vec<String> {
    let of = world.transitions.iter().filter(|t| t.commit == *commit);
    let facts = of.flat_map(|t| &t.facts).filter(|(key, _)| key == word);
    facts.map(|(_, value)| value.clone()).collect()
}

#[test]
fn an_unsigned_commit_is_held_and_a_go_lets_it_through_in_the_record() {
    let mut world = asking(SignedCommits::Tip);
    let signed = push(
        &mut world,
        composed(trusting("two", SignedCommits::Tip, &["alice"])),
        Some("alice"),
        &[],
    );
    world.run(200);
    assert_eq!(world.state(&signed), State::Delivered);
    assert_eq!(facts(&world, &signed, "Signed-By"), ["alice"]);
    let not = push(
        &mut world,
        composed(trusting("three", SignedCommits::Tip, &["alice"])),
        None,
        &[],
    );
    world.run(200);
    assert_eq!(world.codes(&not).last().unwrap(), "held (signatures)");
    world.say(Verb::Go, &not);
    world.run(200);
    assert_eq!(world.state(&not), State::Delivered);
    assert!(facts(&world, &not, "Not-Signed")[0].contains("is not signed"));
}

#[test]
fn who_adds_a_signer_is_judged_by_the_tree_before_and_so_is_what_takes_its_place() {
    let mut world = asking(SignedCommits::Tip);
    let both = &["alice", "mallory"];
    let adds = push(
        &mut world,
        composed(trusting("two", SignedCommits::Tip, both)),
        Some("mallory"),
        &[],
    );
    assert_eq!(world.codes(&adds).last().unwrap(), "held (signatures)");
    let uses = push(
        &mut world,
        composed(trusting("three", SignedCommits::Tip, both)),
        Some("mallory"),
        &[],
    );
    assert_eq!(world.codes(&uses).last().unwrap(), "held (signatures)");
    assert_eq!(world.state(&adds), State::Superseded);
    let broken = push(&mut world, Tree::Invalid("broken".to_owned()), None, &[]);
    assert_eq!(world.state(&broken), State::Failed);
    let again = push(
        &mut world,
        composed(trusting("four", SignedCommits::Tip, both)),
        Some("mallory"),
        &[],
    );
    assert_eq!(world.codes(&again).last().unwrap(), "held (signatures)");
    let alice = push(
        &mut world,
        composed(trusting("five", SignedCommits::Tip, both)),
        Some("alice"),
        &[],
    );
    world.run(200);
    assert_eq!(
        world.state(&alice),
        State::Delivered,
        "whom the tree before trusts"
    );
    let now = push(
        &mut world,
        composed(trusting("six", SignedCommits::Tip, both)),
        Some("mallory"),
        &[],
    );
    world.run(200);
    assert_eq!(world.state(&now), State::Delivered, "let in by Alice");
}

#[test]
fn an_unsigned_commit_cannot_turn_the_question_off() {
    let mut world = asking(SignedCommits::Every);
    let off = push(
        &mut world,
        composed(trusting("two", SignedCommits::Off, &[])),
        None,
        &[],
    );
    assert_eq!(world.codes(&off).last().unwrap(), "held (signatures)");
    let next = push(
        &mut world,
        composed(trusting("three", SignedCommits::Off, &[])),
        Some("alice"),
        std::slice::from_ref(&off),
    );
    assert_eq!(
        world.codes(&next).last().unwrap(),
        "held (signatures)",
        "it brings the one that is not signed"
    );
}
