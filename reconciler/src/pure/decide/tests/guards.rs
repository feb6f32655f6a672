//! What a commit may not do without somebody's word: let things vanish (FR-12), take the check away that would refuse it
//! (FR-11, DL-15).

use meshplan_schemas::document::plan::{Amount, MaxRemovals};
use meshplan_schemas::lifecycle::delivery::State;

use super::world::{World, tree};
use crate::pure::assertions::{Assertion, of_document};
use crate::pure::compose::Composed;
use crate::pure::snapshot::Verb;

const MANY: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

/// A fleet in which every node has so many modules of one file each.
fn modules(nodes: u128, many: usize) -> Composed {
    let modules: Vec<(&str, &str)> = MANY.iter().take(many).map(|name| (*name, "one")).collect();
    tree(nodes, "one", &modules)
}

fn world(nodes: u128, many: usize) -> World {
    let mut world = World::empty(nodes);
    let first = world.merge(modules(nodes, many));
    world.run(300);
    assert_eq!(world.state(&first), State::Delivered);
    world
}

// holds: FR-12
#[test]
fn what_takes_more_away_than_the_plan_lets_go_waits_for_a_word_and_goes_with_one() {
    let mut world = world(3, 12);
    let ten = world.merge(modules(3, 2));
    world.run(300);
    assert_eq!(world.state(&ten), State::Delivered, "ten may go");

    let mut world = self::world(3, 12);
    let eleven = world.merge(modules(3, 1));
    world.run(30);
    assert_eq!(world.state(&eleven), State::Held);
    let reason = world.archive[&eleven].reason.clone();
    assert_eq!(
        reason,
        "it takes 11 resources from n1 (b.conf, c.conf, d.conf and 8 more), and 10 may go without a word; an \
         `Allow-Removals: why` line in the commit, or a go, lets them go"
    );
    assert!(world.runs(1, "b").is_some(), "nothing has gone yet");
    world.say(Verb::Go, &eleven);
    world.run(300);
    assert_eq!(world.state(&eleven), State::Delivered);
    assert_eq!(world.runs(3, "b"), None);
    let facts: Vec<&str> = (world.transitions.iter().filter(|t| t.commit == eleven))
        .flat_map(|t| &t.facts)
        .filter(|(key, _)| key == "Removals")
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(facts, ["33 resources on 3 machines"]);
}

// holds: FR-12
#[test]
fn a_line_in_the_commit_lets_things_go_unless_the_plan_names_who_may_say_so() {
    let mut world = world(3, 12);
    let allowed = world.merge_allowing(modules(3, 1), "the old stack is gone");
    world.run(300);
    assert_eq!(world.state(&allowed), State::Delivered);

    let mut named = self::world(3, 12);
    let mut with_actors = modules(3, 12);
    with_actors.gate_digest = meshplan_schemas::digest::Digest::of(b"actors");
    for plan in with_actors.plans.values_mut() {
        plan.actors = vec!["alice".parse().unwrap()];
    }
    let gate = named.merge(with_actors);
    named.run(300);
    assert_eq!(named.state(&gate), State::Delivered);
    // The commit itself names nobody any more: what stood before decides.
    let commit = named.merge_allowing(modules(3, 1), "trust me");
    named.run(30);
    assert_eq!(named.state(&commit), State::Held, "{:?}", named.codes(&commit));
    assert!(named.archive[&commit].reason.ends_with("; a go lets them go"));
}

// holds: FR-12, DL-15
#[test]
fn a_commit_cannot_raise_the_bound_that_holds_it() {
    let mut world = world(3, 12);
    let mut loose = modules(3, 1);
    loose.gate_digest = meshplan_schemas::digest::Digest::of(b"loose");
    for plan in loose.plans.values_mut() {
        plan.max_removals = MaxRemovals {
            resources: 1_000,
            nodes: Amount::Percent(100),
        };
    }
    let commit = world.merge(loose);
    world.run(30);
    assert_eq!(world.state(&commit), State::Held);
}

// holds: FR-12
#[test]
fn a_target_that_another_module_takes_over_is_no_removal() {
    let mut world = world(3, 12);
    let mut renamed = modules(3, 12);
    let nodes: Vec<_> = renamed
        .nodes
        .iter()
        .map(|(id, node)| (*id, (**node).clone()))
        .collect();
    for (id, mut node) in nodes {
        node.modules = (node.modules.into_iter())
            .map(|(name, (_, content))| {
                let mut content = content.content.clone();
                content.module = format!("{name}-two").parse().unwrap();
                for resource in &mut content.resources {
                    resource.name.module = content.module.clone();
                }
                let digest = meshplan_schemas::digest::Digest::of_value(&content).unwrap();
                (
                    content.module.clone(),
                    (digest, std::sync::Arc::new(content.into())),
                )
            })
            .collect();
        assert!(renamed.nodes.replace(&id, node.into()));
    }
    renamed.sources = renamed
        .sources
        .into_iter()
        .map(|(n, d)| (format!("{n}-two").parse().unwrap(), d))
        .collect();
    let commit = world.merge(renamed);
    world.run(300);
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{:?}",
        world.codes(&commit)
    );
}

// holds: FR-12
#[test]
fn nodes_that_vanish_are_counted_against_the_fleet() {
    let mut world = world(12, 1);
    let one = world.merge(modules(11, 1));
    world.run(300);
    assert_eq!(world.state(&one), State::Delivered, "one may always go");
    let mut world = self::world(12, 1);
    let two = world.merge(modules(10, 1));
    world.run(30);
    assert_eq!(world.state(&two), State::Held);
    assert!(
        world.archive[&two]
            .reason
            .starts_with("it takes 2 of 12 nodes out of the fleet, and 1 may go"),
        "{}",
        world.archive[&two].reason
    );
}

fn check(text: &str) -> Vec<Assertion> {
    let text = format!("[[check]]\n{text}");
    let source = meshplan_schemas::finding::Source::new("checks/a.toml", text.as_bytes().into()).unwrap();
    let mut findings = Vec::new();
    let read = meshplan_schemas::document::read::document(&source, &mut findings);
    assert_eq!(findings, []);
    of_document(&source, &read.unwrap())
}

// holds: FR-11, DL-15
#[test]
fn a_check_that_a_commit_takes_away_still_holds_it_when_it_fails() {
    let has_b = || check("name = \"b is there\"\nhas = [\"b.conf\"]");
    let mut world = World::empty(3);
    let mut first = modules(3, 2);
    first.checks = has_b();
    assert_eq!(first.checks.len(), 1);
    let first = world.merge(first);
    world.run(300);
    assert_eq!(world.state(&first), State::Delivered);
    // The check goes, and so does what it is about.
    let mut without = modules(3, 1);
    without.gate_digest = meshplan_schemas::digest::Digest::of(b"without");
    let commit = world.merge(without.clone());
    world.run(30);
    assert_eq!(world.state(&commit), State::Held);
    let reason = world.archive[&commit].reason.clone();
    assert!(
        reason.starts_with(
            "the check `b is there` fails: n1 has no `b.conf`, and so on 2 more (checks/a.toml:2 of"
        ),
        "{reason}"
    );
    // Taking its place with a commit that no longer touches the check launders nothing.
    let mut next = modules(3, 1);
    next.gate_digest = without.gate_digest;
    next.policy_digest = meshplan_schemas::digest::Digest::of(b"next");
    let commit = world.merge(next);
    world.run(30);
    assert_eq!(world.state(&commit), State::Held);
    world.say(Verb::Go, &commit);
    world.run(300);
    assert_eq!(world.state(&commit), State::Delivered);
    let gone = (world.transitions.iter().flat_map(|t| &t.facts)).find(|(key, _)| key == "Check");
    assert_eq!(gone.unwrap().1, "b is there (checks/a.toml:2) is gone or changed");

    // A check that goes and holds is shown, and holds nothing up.
    let mut world = World::empty(3);
    let mut first = modules(3, 2);
    first.checks = has_b();
    world.merge(first);
    world.run(300);
    let mut without = modules(3, 2);
    without.gate_digest = meshplan_schemas::digest::Digest::of(b"without");
    let commit = world.merge(without);
    world.run(300);
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{:?}",
        world.codes(&commit)
    );
}
