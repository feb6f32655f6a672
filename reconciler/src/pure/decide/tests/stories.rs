//! What a person would tell of a delivery, as tests.

use std::sync::Arc;

use meshplan_schemas::document::plan::Amount;
use meshplan_schemas::epoch::Targeting;
use meshplan_schemas::lifecycle::delivery::State;
use proptest::prelude::*;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::decide::Tree;
use crate::pure::snapshot::Verb;

// holds: DL-5, RO-1
#[test]
fn a_change_reaches_the_canary_first_and_the_rest_after_its_looks() {
    let mut world = World::at_rest(3);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    world.run(3);
    assert_eq!(world.runs(1, "web").as_deref(), Some("two"));
    assert_eq!(
        world.runs(2, "web").as_deref(),
        Some("one"),
        "the rest must wait for the canary's looks"
    );
    world.run(60);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(world.runs(3, "web").as_deref(), Some("two"));
    assert_eq!(
        world.codes(&commit),
        ["proposed (announced)", "delivering (checked)", "delivered (done)"]
    );
    let done = world.transitions.last().unwrap();
    let machine = done.facts.iter().find(|(key, _)| key == "Machine").unwrap();
    assert_eq!(machine.1, "web on n1: passed, healthy 3 times over 10s");
}

// What lets a pass of a fleet at rest read no node of it.
#[test]
fn without_an_open_delivery_a_question_or_a_commit_nothing_is_decided_whatever_is_heard() {
    let mut world = World::at_rest(3);
    set(&mut world, 1, Behaviour::Fails);
    world.switch_off(2);
    for _ in 0..5 {
        world.report_all();
        world.run(100);
        let act = world.decide(&[]);
        assert!(act.is_empty(), "{act:?}");
        assert!(act.looks.is_empty() && act.next_at.is_none(), "{act:?}");
    }
}

// holds: DL-7, DL-14
#[test]
fn a_change_that_fails_on_the_canary_is_taken_back_and_the_rest_never_saw_it() {
    let mut world = World::at_rest(3);
    set(&mut world, 1, Behaviour::Fails);
    let before = world.sequences_of(2);
    let commit = world.merge(tree(3, "one", &[("web", "bad")]));
    world.run(30);
    assert_eq!(world.state(&commit), State::RolledBack);
    assert_eq!(
        world.sequences_of(2),
        before,
        "a machine outside the canary was addressed"
    );
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
    assert_eq!(
        world.codes(&commit),
        [
            "proposed (announced)",
            "delivering (checked)",
            "rolling-back (stage-failed)",
            "rolled-back (taken)"
        ]
    );
    let cause = world.archive[&commit]
        .walk
        .as_ref()
        .unwrap()
        .abort_cause
        .clone()
        .unwrap();
    assert_eq!((cause.name.as_str(), cause.phase.as_str()), ("n1", "canary"));
}

// holds: DL-7
#[test]
fn a_revert_is_proposed_once_where_the_plan_says_so() {
    for asked in [true, false] {
        let mut world = World::at_rest(3);
        let with = |module: &str| {
            let mut tree = tree(3, "one", &[("web", module)]);
            for plan in tree.plans.values_mut() {
                plan.revert_pr = asked;
            }
            tree
        };
        let first = world.merge(with("two"));
        world.run(200);
        assert_eq!(world.state(&first), State::Delivered);
        assert!(world.reverts.is_empty());
        set(&mut world, 1, Behaviour::Fails);
        let commit = world.merge(with("bad"));
        world.run(60);
        assert_eq!(world.state(&commit), State::RolledBack);
        let reverted: Vec<_> = world.reverts.iter().map(|revert| &revert.commit).collect();
        assert_eq!(reverted, if asked { vec![&commit] } else { vec![] });
        let told = world.transitions.iter().flat_map(|t| &t.facts);
        assert_eq!(
            told.filter(|(key, _)| key == "Revert").count(),
            usize::from(asked)
        );
        // A person who takes it back himself needs no proposal.
        set(&mut world, 1, Behaviour::Off);
        let withdrawn = world.merge(with("three"));
        world.run(3);
        world.say(Verb::Withdraw, &withdrawn);
        world.run(60);
        assert_eq!(world.reverts.len(), usize::from(asked));
    }
}

// holds: DL-14, DL-3
#[test]
fn what_failed_is_not_tried_again_until_a_person_says_so() {
    let mut world = World::at_rest(3);
    set(&mut world, 1, Behaviour::Fails);
    let bad = world.merge(tree(3, "one", &[("web", "bad")]));
    world.run(30);
    assert_eq!(world.state(&bad), State::RolledBack);

    // A commit that does not touch the module leaves it alone and says so.
    let other = world.merge(tree(3, "two", &[("web", "bad")]));
    world.run(60);
    assert_eq!(world.state(&other), State::Delivered);
    assert!(
        world.archive[&other]
            .skipped
            .values()
            .any(|why| why.starts_with("known-bad since"))
    );
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
    assert!(world.policy(2).unwrap().contains("two"));

    // One that brings the same content back is held.
    world.merge(tree(3, "two", &[("web", "three")]));
    world.run(60);
    let again = world.merge(tree(3, "two", &[("web", "bad")]));
    world.run(5);
    assert_eq!(world.codes(&again).last().unwrap(), "held (known-bad)");
    assert!(world.say(Verb::Go, &again).contains("go --again"));
    set(&mut world, 1, Behaviour::Good);
    assert!(!world.say(Verb::GoAgain, &again).starts_with("refused"));
    world.run(60);
    assert_eq!(world.state(&again), State::Delivered);
    let order = world
        .declarations
        .iter()
        .rev()
        .find(|d| d.node == node(1))
        .unwrap();
    assert_eq!(order.again.len(), 1, "the order must lift the hosts' memory");
}

// holds: DL-1, DL-3
#[test]
fn of_commits_that_wait_only_the_newest_is_walked() {
    let mut world = World::at_rest(3);
    let first = world.merge(tree(3, "one", &[("web", "two")]));
    world.run(2);
    let second = world.merge(tree(3, "one", &[("web", "three")]));
    let third = world.merge(tree(3, "one", &[("web", "four")]));
    world.run(5);
    assert_eq!(
        world.state(&first),
        State::Delivering,
        "a walk under way is not disturbed"
    );
    world.run(120);
    assert_eq!(world.state(&first), State::Delivered);
    assert_eq!(world.state(&second), State::Superseded);
    assert_eq!(world.state(&third), State::Delivered);
    assert_eq!(world.runs(2, "web").as_deref(), Some("four"));
}

// holds: DL-13
#[test]
fn a_canary_that_falls_silent_is_taken_back_and_its_content_is_not_known_bad() {
    let mut world = World::at_rest(3);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    world.switch_off(1);
    world.run(59);
    assert_eq!(world.state(&commit), State::Delivering);
    world.run(3);
    assert_eq!(world.codes(&commit).last().unwrap(), "rolling-back (silent)");
    assert!(world.snapshot.known_bad.is_empty());
    world.run(3 * 10 + 120);
    assert_eq!(world.codes(&commit).last().unwrap(), "rolled-back (partly)");
    assert_eq!(world.archive[&commit].walk.as_ref().unwrap().outstanding.len(), 1);
    // It comes back, and runs what it is assigned: the former content.
    set(&mut world, 1, Behaviour::Good);
    world.run(5);
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
}

// holds: DL-7
#[test]
fn trouble_in_the_rest_takes_the_canary_back_too() {
    let mut world = World::at_rest(3);
    set(&mut world, 3, Behaviour::Fails);
    let commit = world.merge(tree(3, "bad", &[("web", "bad")]));
    world.run(90);
    assert_eq!(world.state(&commit), State::RolledBack);
    for n in 1..=3 {
        assert_eq!(world.runs(n, "web").as_deref(), Some("one"), "n{n}");
        assert!(
            world.policy(n).unwrap().contains("one"),
            "n{n} runs {:?}",
            world.policy(n)
        );
    }
}

// holds: DL-13
#[test]
fn a_revert_for_the_link_is_ordered_again_once_and_says_nothing_about_the_content() {
    let mut world = World::at_rest(3);
    set(&mut world, 1, Behaviour::LosesLinkOnce);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    // The reconciler was not there in its window.
    world.now = super::super::after_secs(world.now, 1);
    world.serving_since = world.now;
    let before = world.sequences_of(1).len();
    world.run(90);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(world.sequences_of(1).len(), before + 1);
    assert!(world.snapshot.known_bad.is_empty());
}

// holds: EP-3, SG-2
#[test]
fn an_aborted_epoch_never_stands_again_and_a_release_ends_all_before_it() {
    let mut world = World::at_rest(3);
    set(&mut world, 1, Behaviour::Fails);
    let base = world.epochs.keys().copied().max().unwrap();
    world.merge(tree(3, "bad", &[("web", "one")]));
    world.run(30);
    let (canary, abort) = (base + 1, base + 2);
    assert_eq!(world.epochs[&canary].targeting, Targeting::nodes(vec![node(1)]));
    assert_eq!(world.epochs[&abort].policy, world.epochs[&base].policy);
    assert_eq!(world.epochs[&abort].targeting, world.epochs[&canary].targeting);
    let standing: Vec<u64> = world.epochs[&abort].in_force.iter().map(|e| e.epoch).collect();
    assert_eq!(standing, [base]);

    world.merge(tree(3, "good", &[("web", "one")]));
    world.run(2);
    let next = world.epochs.keys().copied().max().unwrap();
    let standing: Vec<u64> = world.epochs[&next].in_force.iter().map(|e| e.epoch).collect();
    assert_eq!(
        standing,
        [base],
        "it addresses the canary itself: no need of what addressed it before"
    );
    assert!(!standing.contains(&next), "an epoch never names itself");
    world.run(90);
    let release = world.epochs.values().next_back().unwrap();
    assert_eq!(
        (release.targeting.clone(), release.in_force.len()),
        (Targeting::everyone(), 0)
    );
    assert_eq!(release.policy, world.epochs[&next].policy);
}

// holds: FR-12
#[test]
fn an_empty_or_missing_tree_is_never_an_order() {
    let mut world = World::at_rest(3);
    let orders = world.orders.len();
    let gone = world.merge_tree(Tree::Gone("there is no fleet.toml".into()));
    assert_eq!(world.codes(&gone).last().unwrap(), "held (freeze)");
    let empty = world.merge(tree(0, "one", &[]));
    world.run(10);
    assert_eq!(world.codes(&empty).last().unwrap(), "held (freeze)");
    assert_eq!(world.orders.len(), orders);
}

// holds: DL-2
#[test]
fn a_tree_that_does_not_validate_fails_and_the_next_commit_goes_its_way() {
    let mut world = World::at_rest(2);
    let bad = world.merge_tree(Tree::Invalid("fleet.toml:3:1: unknown key `flet`".into()));
    assert_eq!(world.codes(&bad).last().unwrap(), "failed (invalid)");
    let good = world.merge(tree(2, "one", &[("web", "two")]));
    world.run(90);
    assert_eq!(world.state(&good), State::Delivered);
}

// holds: DL-2
#[test]
fn of_a_tree_with_rotations_nothing_is_signed_and_the_delivery_says_why() {
    let mut world = World::at_rest(2);
    let (orders, declarations) = (world.orders.len(), world.declarations.len());
    // Everything else that the commit changes would be an order.
    let mut rotating = tree(2, "two", &[("web", "two")]);
    let source = meshplan_schemas::finding::Source::new("rotations.toml", b"id = \"a\"".as_slice().into());
    rotating.unsigned = Some(source.unwrap().error(5..8, "rotations are not walked").warning());
    let commit = world.merge_tree(Tree::of(Ok(Arc::new(rotating))));
    world.run(90);
    assert_eq!(world.codes(&commit), ["proposed (announced)", "failed (invalid)"]);
    let said = world.transitions.iter().rfind(|t| t.commit == commit).unwrap();
    assert_eq!(said.reason, "rotations.toml:1:6: rotations are not walked");
    assert_eq!(
        (world.orders.len(), world.declarations.len()),
        (orders, declarations)
    );
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
    // Taken out again it is an order like any other.
    let next = world.merge_tree(Tree::of(Ok(Arc::new(tree(2, "one", &[("web", "two")])))));
    world.run(90);
    assert_eq!(world.state(&next), State::Delivered);
    assert_eq!(world.runs(1, "web").as_deref(), Some("two"));
}

#[test]
fn a_commit_that_changes_no_order_is_delivered_at_once() {
    let mut world = World::at_rest(2);
    let orders = world.orders.len();
    let commit = world.merge(tree(2, "one", &[("web", "one")]));
    assert_eq!(
        world.codes(&commit),
        ["proposed (announced)", "delivered (nothing-to-do)"]
    );
    assert_eq!(world.orders.len(), orders);
}

// holds: DL-4
#[test]
fn a_person_stops_a_walk_lets_it_go_on_and_takes_it_back() {
    let mut world = World::at_rest(3);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    world.run(2);
    world.say(Verb::Stop, &commit);
    world.run(100);
    assert_eq!(world.codes(&commit).last().unwrap(), "held (stopped)");
    assert_eq!(world.runs(2, "web").as_deref(), Some("one"));
    world.say(Verb::Go, &commit);
    world.run(4);
    assert_eq!(world.state(&commit), State::Delivering);
    world.say(Verb::Withdraw, &commit);
    world.run(20);
    assert_eq!(world.state(&commit), State::RolledBack);
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
    assert!(world.say(Verb::Withdraw, &commit).starts_with("refused"));
}

// holds: DL-4, DL-2
#[test]
fn a_held_stage_is_retried_on_a_persons_word() {
    let mut world = World::at_rest(3);
    let mut held = tree(3, "one", &[("web", "bad")]);
    for plan in held.plans.values_mut() {
        for stage in &mut plan.stages {
            stage.failed = Some(meshplan_schemas::document::plan::Trouble::Hold);
        }
    }
    set(&mut world, 1, Behaviour::Fails);
    let commit = world.merge(held);
    world.run(20);
    assert_eq!(world.codes(&commit).last().unwrap(), "held (stage-failed)");
    set(&mut world, 1, Behaviour::Good);
    world.say(Verb::Retry, &commit);
    world.run(90);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(world.runs(3, "web").as_deref(), Some("bad"));
}

// holds: DL-2
#[test]
fn a_walk_that_is_held_is_taken_back_first_when_a_newer_commit_does_not_cover_it() {
    let mut world = World::at_rest(3);
    let commit = world.merge(tree(3, "one", &[("web", "two"), ("db", "one")]));
    world.run(2);
    world.say(Verb::Stop, &commit);
    // The newer commit mends web and says nothing of db, which is gone from the tree.
    let newer = world.merge(tree(3, "one", &[("web", "three")]));
    world.run(120);
    assert!(
        matches!(world.state(&commit), State::Superseded | State::RolledBack),
        "{:?}",
        world.codes(&commit)
    );
    assert_eq!(world.state(&newer), State::Delivered);
    for n in 1..=3 {
        assert_eq!(world.runs(n, "web").as_deref(), Some("three"));
        assert_eq!(world.runs(n, "db"), None);
    }
}

// holds: DL-19, B26
#[test]
fn a_machine_that_is_away_holds_the_start_and_a_go_takes_it_out_of_the_gate() {
    let mut world = World::at_rest(3);
    world.switch_off(2);
    world.run(901);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    assert_eq!(world.codes(&commit).last().unwrap(), "held (absent)");
    assert!(world.archive[&commit].reason.contains("n2"));
    world.say(Verb::Go, &commit);
    world.run(90);
    assert_eq!(world.state(&commit), State::Delivered);
    set(&mut world, 2, Behaviour::Good);
    world.run(5);
    assert_eq!(
        world.runs(2, "web").as_deref(),
        Some("two"),
        "it is served on its return"
    );
}

// holds: DL-6
#[test]
fn a_node_that_was_never_heard_from_is_in_no_gate_and_gets_what_is_proven() {
    let mut world = World::at_rest(2);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    world.run(90);
    assert_eq!(world.state(&commit), State::Delivered);
    assert!(
        world.declarations.iter().any(|d| d.node == node(3)),
        "its declaration waits for it"
    );
}

// holds: RO-8
#[test]
fn the_time_of_a_stage_counts_from_when_its_reconciler_could_hear() {
    let mut world = World::at_rest(3);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    world.switch_off(1);
    world.run(50);
    // It starts again: nobody listened before, so nobody was silent.
    world.serving_since = world.now;
    world.run(58);
    assert_eq!(world.state(&commit), State::Delivering);
    world.run(4);
    assert_eq!(world.state(&commit), State::RollingBack);
}

// holds: RO-8
#[test]
fn a_clock_that_is_set_back_or_forward_calls_nobody_silent_and_stops_no_look() {
    for jump in [3600, -3600] {
        let mut world = World::at_rest(3);
        let commit = world.merge(tree(3, "one", &[("web", "two")]));
        world.run(3);
        world.now += jiff::SignedDuration::from_secs(jump);
        world.serving_since = world.now;
        world.report_all();
        world.run(100);
        assert_eq!(world.state(&commit), State::Delivered, "after {jump} s");
    }
}

// holds: DL-13
#[test]
fn a_canary_that_falls_ill_before_the_next_gate_opens_keeps_it_shut() {
    let mut world = World::at_rest(3);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    world.run(2);
    // Its next reports say that the content did not stay.
    let passed = |world: &World| {
        let walk = world.archive[&commit].walk.clone().unwrap();
        walk.stages[0].machines[&node(1)].verdict.is_some()
    };
    while !passed(&world) {
        world.now = super::super::after_secs(world.now, 1);
        let host = world.hosts.get_mut(&node(1)).unwrap();
        if world.archive[&commit].walk.as_ref().unwrap().stages[0].machines[&node(1)].healthy == 3 - 1 {
            host.taken.as_mut().unwrap().1 = meshplan_schemas::report::DeclarationState::Reverted;
            host.taken.as_mut().unwrap().2 = "died later".into();
        }
        world.settle();
    }
    world.run(5);
    assert_eq!(world.runs(2, "web").as_deref(), Some("one"));
    assert!(matches!(
        world.state(&commit),
        State::RollingBack | State::RolledBack
    ));
}

fn behaviour() -> impl Strategy<Value = Behaviour> {
    prop_oneof![
        6 => Just(Behaviour::Good),
        2 => Just(Behaviour::Fails),
        1 => Just(Behaviour::LosesLinkOnce),
        1 => Just(Behaviour::Off),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever hosts do and commits bring: numbers are used once (the world asserts it), every walk ends or is held
    /// with a person named, and rest is rest.
    // holds: RO-9, SG-8
    #[test]
    fn every_walk_ends_or_is_held(
        steps in proptest::collection::vec((0u128..4, behaviour(), 0usize..5, 0u32..40, proptest::bool::ANY), 1..8)
    ) {
        let mut world = World::at_rest(3);
        let texts = ["one", "two", "bad", "three", "bad"];
        let mut commits = Vec::new();
        for (who, behaviour, text, secs, waves) in steps {
            if who > 0 {
                set(&mut world, who, behaviour);
            }
            let policy = texts[(text + 1) % 5];
            let mut tree = tree(3, policy, &[("web", texts[text])]);
            if waves {
                tree.plans.values_mut().for_each(|plan| plan.stages[1].batch = Some(Amount::Number(1)));
            }
            commits.push(world.merge(tree));
            world.run(secs);
        }
        world.run(600);
        for commit in &commits {
            let state = world.state(commit);
            prop_assert!(state.is_final() || state == State::Held, "{} is {state}: {:?}", commit.short(), world.codes(commit));
        }
        let rest = world.decide(&[]);
        prop_assert!(rest.is_empty(), "a second pass decided {:?}", rest.transitions);
    }
}
