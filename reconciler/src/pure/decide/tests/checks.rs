//! Checks that a plan names, as a forge tells of them (DL-2).

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::document::plan::Check;
use meshplan_schemas::envelope::{Signer as _, SoftSigner};
use meshplan_schemas::lifecycle::delivery::State;
use meshplan_schemas::timestamp::BlockMark;

use super::world::{World, tree};
use crate::pure::compose::Composed;
use crate::pure::decide::Tree;
use crate::pure::journal::HEAD;
use crate::pure::note::{self, Block};
use crate::pure::recover::{self, Record};
use crate::pure::snapshot::{Checked, Verb, Verdict};
use crate::pure::unpassed::UNPASSED;

fn checked(web: &str) -> Composed {
    let mut tree = tree(3, "one", &[("web", web)]);
    for plan in tree.plans.values_mut() {
        plan.check = Check::Named(vec!["ci/a".into(), "ci/b".into()]);
    }
    tree
}

fn at_a_forge() -> World {
    let mut world = World::at_rest(3);
    world.settings.asks_forge = true;
    world
}

fn says(verdicts: &[(&str, Verdict)]) -> Vec<Checked> {
    let said = verdicts.iter().map(|(name, verdict)| Checked {
        name: (*name).to_owned(),
        verdict: *verdict,
    });
    said.collect()
}

// holds: DL-2
#[test]
fn it_stays_proposed_until_the_forge_has_said_and_while_a_check_runs() {
    let mut world = at_a_forge();
    let commit = world.merge(checked("two"));
    world.run(100);
    assert_eq!(world.state(&commit), State::Proposed, "nobody has asked yet");
    let running = [("ci/a", Verdict::Passed), ("ci/b", Verdict::Running)];
    world.snapshot.checks.insert(commit.clone(), says(&running));
    world.run(100);
    assert_eq!(world.state(&commit), State::Proposed);
    assert_eq!(world.archive[&commit].reason, "ci/b still runs");
    let passed = [
        ("ci/a", Verdict::Passed),
        ("ci/b", Verdict::Passed),
        ("x", Verdict::Failed),
    ];
    world.snapshot.checks.insert(commit.clone(), says(&passed));
    world.run(100);
    assert_eq!(
        world.codes(&commit),
        ["proposed (announced)", "delivering (checked)", "delivered (done)"]
    );
}

// holds: DL-2
#[test]
fn what_had_neither_passed_nor_run_at_the_merge_is_lifted_by_nothing_that_passes_later() {
    for (verdicts, code) in [
        (vec![("ci/a", Verdict::Passed)], "held (merged-unchecked)"),
        (
            vec![("ci/a", Verdict::Running), ("ci/b", Verdict::Failed)],
            "held (check-failed)",
        ),
    ] {
        let mut world = at_a_forge();
        let commit = world.merge(checked("two"));
        world.snapshot.checks.insert(commit.clone(), says(&verdicts));
        world.run(10);
        assert_eq!(world.codes(&commit).last().unwrap(), code);
        let passed = [("ci/a", Verdict::Passed), ("ci/b", Verdict::Passed)];
        world.snapshot.checks.insert(commit.clone(), says(&passed));
        world.run(100);
        assert_eq!(world.codes(&commit).last().unwrap(), code);
    }
}

// holds: DL-2
#[test]
fn without_a_forge_to_ask_a_named_check_holds_at_once() {
    let mut world = World::at_rest(3);
    let commit = world.merge(checked("two"));
    world.run(10);
    assert_eq!(world.codes(&commit).last().unwrap(), "held (merged-unchecked)");
}

// holds: DL-15
#[test]
fn a_commit_that_takes_the_place_of_one_whose_check_failed_answers_for_that_check_where_it_changes_the_same()
{
    let mut world = at_a_forge();
    let failed = world.merge(checked("two"));
    let says_no = [("ci/a", Verdict::Passed), ("ci/b", Verdict::Failed)];
    world.snapshot.checks.insert(failed.clone(), says(&says_no));
    world.run(10);
    assert_eq!(world.codes(&failed).last().unwrap(), "held (check-failed)");
    // Another change on top of it, which passes its own.
    let mut another = checked("two");
    another.policy = tree(3, "two", &[]).policy;
    another.policy_digest = tree(3, "two", &[]).policy_digest;
    let passed = [("ci/a", Verdict::Passed), ("ci/b", Verdict::Passed)];
    let newer = world.merge(another);
    world.snapshot.checks.insert(newer.clone(), says(&passed));
    world.run(100);
    assert_eq!(world.state(&failed), State::Superseded);
    assert_eq!(world.codes(&newer).last().unwrap(), "held (check-failed)");
    let reason = &world.archive[&newer].reason;
    assert!(
        reason.ends_with("whose place it took: the forge says that ci/b failed"),
        "{reason}"
    );
    // One that takes the change back owes nothing for it.
    let back = world.merge(checked("one"));
    world.snapshot.checks.insert(back.clone(), says(&passed));
    world.run(100);
    assert!(world.state(&back).is_final(), "{}", world.archive[&back].reason);
}

/// The record of all that happened, read back without these trailers.
fn read_back(world: &World, without: &[&str]) -> Record {
    let signer = SoftSigner::new(None, &[7; 32]).unwrap();
    let mut newest: Option<BlockMark> = None;
    let mut chain = Vec::new();
    for transition in &world.transitions {
        let number = newest.as_ref().map_or(1, |mark| mark.number + 1);
        let mut block = Block::of_transition(transition, number, newest.map(|mark| mark.digest), 1);
        block.trailers.retain(|(key, _)| !without.contains(&key.as_str()));
        let text = block.text();
        let signature = signer.sign(&note::signed_bytes(&text)).unwrap();
        chain.extend(note::blocks(&note::seal(&text, &signer.key_id(), &signature)));
        newest = Some(block.mark());
    }
    recover::read(&chain, &BTreeMap::new(), "fleet").unwrap()
}

// holds: DL-12, DL-15
#[test]
fn what_a_commit_answers_for_is_read_back_from_the_record() {
    let mut world = at_a_forge();
    let mut merge = |content: &str, policy: &str, verdicts: &[(&str, Verdict)]| {
        let mut change = checked(content);
        let other = tree(3, policy, &[]);
        (change.policy, change.policy_digest) = (other.policy, other.policy_digest);
        let commit = world.merge(change);
        world.snapshot.checks.insert(commit.clone(), says(verdicts));
        world.run(10);
        commit
    };
    let passed = [("ci/a", Verdict::Passed), ("ci/b", Verdict::Passed)];
    let failed = merge(
        "two",
        "one",
        &[("ci/a", Verdict::Passed), ("ci/b", Verdict::Failed)],
    );
    let silent = merge("two", "two", &[("ci/a", Verdict::Passed)]);
    let newest = merge("three", "two", &passed);
    assert_eq!(world.codes(&newest).last().unwrap(), "held (check-failed)");
    let owed: Vec<_> = world.archive[&newest]
        .unpassed
        .iter()
        .map(|u| &u.commit)
        .collect();
    assert_eq!(owed, [&failed, &silent]);
    // Whoever signs puts the head in.
    let record = read_back(&world, &[HEAD]);
    for read in &record.deliveries {
        assert_eq!(
            read.unpassed, world.archive[&read.commit].unpassed,
            "{}",
            read.commit
        );
    }
    assert_eq!(record.deliveries.last().unwrap().commit, newest);
    let silent = read_back(&world, &[HEAD, UNPASSED]).deliveries;
    assert!(
        silent.iter().all(|read| read.unpassed.is_empty()),
        "nothing else says it"
    );
}

// holds: DL-15
#[test]
fn each_leg_is_bounded_by_its_own_plan_where_the_default_one_walks_them_together() {
    let mut world = at_a_forge();
    let mut both = tree(3, "two", &[("web", "two")]);
    let mut of_web = both.plans.values().next().unwrap().clone();
    of_web.name = "web".parse().unwrap();
    of_web.covers = vec![meshplan_schemas::document::plan::Covers::Module(
        "web".parse().unwrap(),
    )];
    of_web.check = Check::Named(vec!["ci/a".into()]);
    both.plans.insert(of_web.name.clone(), of_web);
    let commit = world.merge(both);
    world
        .snapshot
        .checks
        .insert(commit.clone(), says(&[("ci/a", Verdict::Failed)]));
    world.run(10);
    assert_eq!(world.codes(&commit).last().unwrap(), "held (check-failed)");
}

// holds: DL-15
#[test]
fn of_commits_that_come_together_one_whose_check_failed_is_not_carried_by_the_next_and_one_that_never_ran_is()
{
    let passed = [("ci/a", Verdict::Passed), ("ci/b", Verdict::Passed)];
    let together = |of_older: &[(&str, Verdict)]| {
        let mut world = at_a_forge();
        let (older, first) = world.new_commit(Tree::Composed(Arc::new(checked("two"))), None);
        let mut both = checked("two");
        let other = tree(3, "two", &[]);
        (both.policy, both.policy_digest) = (other.policy, other.policy_digest);
        let (newer, second) = world.new_commit(Tree::Composed(Arc::new(both)), None);
        world.snapshot.checks.insert(newer.clone(), says(&passed));
        world.pass(&[first, second]);
        world.run(10);
        assert_eq!(world.state(&older), State::Superseded);
        assert_eq!(
            world.state(&newer),
            State::Proposed,
            "nobody has asked about the older one"
        );
        world.snapshot.checks.insert(older, says(of_older));
        world.run(100);
        (
            world.codes(&newer).last().unwrap().clone(),
            read_back(&world, &[HEAD]),
            world,
        )
    };
    let (code, record, world) = together(&[("ci/a", Verdict::Failed)]);
    assert_eq!(code, "held (check-failed)");
    let read = record.deliveries.last().unwrap();
    assert_eq!(read.unpassed, world.archive[&read.commit].unpassed);
    assert_eq!(together(&[]).0, "delivered (done)");
}

// holds: DL-15
#[test]
fn no_commit_takes_the_place_of_one_whose_tree_nobody_could_read_yet() {
    let mut world = at_a_forge();
    let (older, first) = world.new_commit(Tree::Composed(Arc::new(checked("two"))), None);
    let mut both = checked("two");
    let other = tree(3, "two", &[]);
    (both.policy, both.policy_digest) = (other.policy, other.policy_digest);
    let (newer, second) = world.new_commit(Tree::Composed(Arc::new(both)), None);
    let passed = [("ci/a", Verdict::Passed), ("ci/b", Verdict::Passed)];
    world.snapshot.checks.insert(newer.clone(), says(&passed));
    world
        .snapshot
        .checks
        .insert(older.clone(), says(&[("ci/a", Verdict::Failed)]));
    let unread = world.trees.remove(&older).unwrap();
    world.pass(&[first, second]);
    world.run(100);
    assert_eq!(world.state(&older), State::Proposed);
    assert_eq!(world.state(&newer), State::Proposed);
    let reason = &world.archive[&newer].reason;
    assert!(reason.contains("can be read, whose place it takes"), "{reason}");
    world.trees.insert(older.clone(), unread);
    world.run(100);
    assert_eq!(world.state(&older), State::Superseded);
    assert_eq!(world.codes(&newer).last().unwrap(), "held (check-failed)");
}

// holds: DL-15, DL-12
#[test]
fn what_was_asked_of_a_commit_that_a_person_withdrew_is_asked_of_the_next_one_that_has_its_content() {
    // Whether it was the newest, or one came after it that was no order.
    for another_failed in [false, true] {
        let mut world = at_a_forge();
        let failed = world.merge(checked("two"));
        let says_no = [("ci/a", Verdict::Passed), ("ci/b", Verdict::Failed)];
        world.snapshot.checks.insert(failed.clone(), says(&says_no));
        world.run(10);
        if another_failed {
            let invalid = world.merge_tree(Tree::Invalid("fleet.toml:1:1: no".into()));
            assert_eq!(world.state(&invalid), State::Failed);
        }
        world.say(Verb::Withdraw, &failed);
        assert_eq!(world.state(&failed), State::Withdrawn);
        let mut another = checked("two");
        let other = tree(3, "two", &[]);
        (another.policy, another.policy_digest) = (other.policy, other.policy_digest);
        let passed = [("ci/a", Verdict::Passed), ("ci/b", Verdict::Passed)];
        let newer = world.merge(another);
        world.snapshot.checks.insert(newer.clone(), says(&passed));
        world.snapshot.checks.insert(failed.clone(), says(&says_no));
        world.run(100);
        assert_eq!(world.codes(&newer).last().unwrap(), "held (check-failed)");
        for read in read_back(&world, &[HEAD]).deliveries {
            assert_eq!(read.unpassed, world.archive[&read.commit].unpassed);
        }
    }
}
