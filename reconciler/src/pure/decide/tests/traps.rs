//! Traps that a reading of the engine found, each as the story of what must happen instead.

use std::sync::Arc;

use meshplan_schemas::epoch::Targeting;
use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::lifecycle::delivery::State;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::Listed;
use crate::pure::decide::Tree;
use crate::pure::snapshot::Verb;

// holds: DL-4
#[test]
fn an_old_commit_is_not_tried_again_over_newer_ones() {
    let mut world = World::at_rest(3);
    set(&mut world, 1, Behaviour::Fails);
    let bad = world.merge(tree(3, "one", &[("web", "bad")]));
    world.run(30);
    set(&mut world, 1, Behaviour::Good);
    let newer = world.merge(tree(3, "one", &[("web", "three"), ("db", "one")]));
    world.run(90);
    assert_eq!(world.state(&newer), State::Delivered);
    let answer = world.say(Verb::GoAgain, &bad);
    assert!(
        answer.starts_with("refused") && answer.contains("newer commits"),
        "{answer}"
    );
    world.run(90);
    assert_eq!(world.runs(2, "db").as_deref(), Some("one"));
}

// holds: DL-2, EP-3
#[test]
fn a_commit_that_reverts_a_stopped_policy_canary_takes_the_canary_back() {
    let mut world = World::at_rest(3);
    let stopped = world.merge(tree(3, "two", &[("web", "one")]));
    world.run(2);
    world.say(Verb::Stop, &stopped);
    assert!(world.policy(1).unwrap().contains("two"));
    let revert = world.merge(tree(3, "one", &[("web", "one")]));
    world.run(200);
    assert!(world.state(&revert).is_final(), "{:?}", world.codes(&revert));
    for n in 1..=3 {
        assert!(
            world.policy(n).unwrap().contains("one"),
            "n{n} runs {:?}",
            world.policy(n)
        );
    }
    let newest = world.epochs.values().next_back().unwrap();
    assert_eq!(
        (newest.targeting.clone(), newest.in_force.len()),
        (Targeting::everyone(), 0)
    );
}

// holds: DL-7
#[test]
fn a_walk_that_took_anothers_place_takes_back_what_that_one_had_reached() {
    let mut world = World::at_rest(3);
    let stopped = world.merge(tree(3, "one", &[("web", "two")]));
    world.run(2);
    world.say(Verb::Stop, &stopped);
    assert_eq!(world.runs(1, "web").as_deref(), Some("two"));
    // The next one goes to another canary first, and fails there.
    let mut other = tree(3, "one", &[("web", "bad")]);
    for plan in other.plans.values_mut() {
        plan.stages[0].select.nodes = vec!["n2".parse().unwrap()];
    }
    set(&mut world, 2, Behaviour::Fails);
    let bad = world.merge(other);
    world.run(60);
    assert_eq!(world.state(&stopped), State::Superseded);
    assert_eq!(world.state(&bad), State::RolledBack);
    assert_eq!(
        world.runs(1, "web").as_deref(),
        Some("one"),
        "the first canary kept content that nothing proved"
    );
}

// holds: DL-13
#[test]
fn a_machine_that_goes_down_in_its_window_says_nothing_about_the_content() {
    for why in [
        "interrupted: the machine was started anew",
        "cannot tell: no answer",
        "not begun: no room",
    ] {
        let mut world = World::at_rest(3);
        let commit = world.merge(tree(3, "one", &[("web", "two")]));
        let sequence = *world.sequences_of(1).last().unwrap();
        let host = world.hosts.get_mut(&node(1)).unwrap();
        host.taken = Some((
            sequence,
            meshplan_schemas::report::DeclarationState::Reverted,
            why.into(),
        ));
        world.report_all();
        world.settle();
        assert!(
            world.sequences_of(1).len() > 1 && *world.sequences_of(1).last().unwrap() > sequence,
            "{why}"
        );
        world.run(90);
        assert_eq!(
            world.state(&commit),
            State::Delivered,
            "{why}: {:?}",
            world.codes(&commit)
        );
        assert!(world.snapshot.known_bad.is_empty(), "{why}");
    }
}

// holds: DL-7, DL-13
#[test]
fn a_way_back_that_the_link_undid_is_ordered_again() {
    let mut world = World::at_rest(3);
    set(&mut world, 2, Behaviour::Fails);
    let commit = world.merge(tree(3, "one", &[("web", "bad")]));
    while world.state(&commit) != State::RollingBack {
        world.run(1);
        // The canary took the content; its way back shall be undone once by the link.
        if world.runs(1, "web").as_deref() == Some("bad") {
            set(&mut world, 1, Behaviour::LosesLinkOnce);
        }
    }
    world.run(30);
    assert_eq!(world.codes(&commit).last().unwrap(), "rolled-back (taken)");
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
}

/// A fleet whose canary took `two`, was switched off, and is listed as outstanding: it does not have `one` back.
fn with_a_canary_outstanding() -> (World, CommitId) {
    let mut world = World::at_rest(3);
    let commit = world.merge(tree(3, "two", &[("web", "two")]));
    world.run(2);
    assert_eq!(world.runs(1, "web").as_deref(), Some("two"));
    world.switch_off(1);
    world.run(60 + 3 * 10 + 120);
    assert_eq!(world.codes(&commit).last().unwrap(), "rolled-back (partly)");
    assert_eq!(world.archive[&commit].walk.as_ref().unwrap().outstanding.len(), 1);
    (world, commit)
}

// holds: DL-2, DL-7, DL-13
#[test]
fn a_machine_that_returns_after_the_deadline_gets_the_former_content_although_the_link_undoes_it() {
    let (mut world, commit) = with_a_canary_outstanding();
    set(&mut world, 1, Behaviour::LosesLinkOnce);
    world.run(5);
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
    assert!(world.policy(1).unwrap().contains("one"));
    let walk = world.archive[&commit].walk.clone().unwrap();
    assert!(walk.outstanding.is_empty() && walk.reached.values().all(|r| r.returned));
    assert_eq!(world.state(&commit), State::RolledBack, "it stays what it is");
    let orders = world.orders.len();
    world.report_all();
    world.run(100);
    assert_eq!(world.orders.len(), orders, "and nothing more is ordered");
}

// holds: DL-2, DL-3
#[test]
fn a_machine_that_returns_under_a_newer_delivery_gets_what_that_one_assigned() {
    for behaviour in [Behaviour::Good, Behaviour::LosesLinkOnce] {
        let (mut world, commit) = with_a_canary_outstanding();
        let mut newer = tree(3, "three", &[("web", "three")]);
        for plan in newer.plans.values_mut() {
            plan.absent = meshplan_schemas::document::plan::Absent::Skip;
        }
        world.run(900);
        let newer = world.merge(newer);
        world.run(120);
        assert_eq!(world.state(&newer), State::Delivered, "{:?}", world.codes(&newer));
        set(&mut world, 1, behaviour);
        world.run(5);
        let walk = world.archive[&commit].walk.clone().unwrap();
        assert!(walk.outstanding.is_empty(), "{behaviour:?}");
        assert!(world.policy(1).unwrap().contains("three"), "{behaviour:?}");
        if behaviour == Behaviour::Good {
            assert_eq!(world.runs(1, "web").as_deref(), Some("three"));
        }
    }
}

// holds: DL-14
#[test]
fn a_policy_that_failed_keeps_no_new_node_from_its_roles() {
    let mut world = World::at_rest(2);
    set(&mut world, 1, Behaviour::Fails);
    let bad = world.merge(tree(2, "bad", &[("web", "one")]));
    world.run(30);
    assert_eq!(world.state(&bad), State::RolledBack);
    let mut grown = tree(3, "bad", &[("web", "one")]);
    let mut third = (**grown.nodes.get(&node(3)).unwrap()).clone();
    third.roles = vec!["edge".parse().unwrap()];
    assert!(grown.nodes.replace(&node(3), Arc::new(third)));
    let enrolment = world.merge(grown);
    world.run(30);
    assert_eq!(world.state(&enrolment), State::Delivered);
    let declaration = world
        .declarations
        .iter()
        .rev()
        .find(|d| d.node == node(3))
        .unwrap();
    assert_eq!(declaration.roles.len(), 1);
    assert!(
        world.policy(2).unwrap().contains("one"),
        "the text that failed stays out"
    );
}

// holds: RO-1, DL-6
#[test]
fn a_plan_may_leave_the_canary_out_or_take_no_other() {
    use meshplan_schemas::document::plan::Canary;
    let with = |canary: Canary, name: &str| {
        let mut t = tree(3, "one", &[("web", "two")]);
        for plan in t.plans.values_mut() {
            plan.canary = canary;
            plan.stages[0].select.nodes = vec![name.parse().unwrap()];
        }
        t
    };
    let mut world = World::at_rest(3);
    let all = world.merge(with(Canary::None, "n1"));
    world.run(2);
    assert_eq!(
        world.runs(3, "web").as_deref(),
        Some("two"),
        "without a canary all are first"
    );
    world.run(60);
    assert_eq!(world.state(&all), State::Delivered);

    let mut world = World::at_rest(3);
    let held = world.merge(with(Canary::NamedOnly, "n9"));
    assert_eq!(world.codes(&held).last().unwrap(), "held (no-machine)");
    world.say(Verb::Go, &held);
    world.run(90);
    assert_eq!(world.state(&held), State::Delivered);

    let mut world = World::at_rest(3);
    let replaced = world.merge(with(Canary::Replaced, "n9"));
    world.run(90);
    assert_eq!(world.state(&replaced), State::Delivered);
    let said = &world.transitions.last().unwrap().facts;
    assert!(
        said.iter()
            .any(|(key, line)| key == "Remark" && line.contains("goes first instead")),
        "{said:?}"
    );
}

// holds: DL-19
#[test]
fn after_a_long_stop_of_the_reconciler_nobody_is_absent_and_nothing_is_sent_to_all_at_once() {
    let mut world = World::at_rest(3);
    world.snapshot.connected.clear();
    world.now = super::super::after_secs(world.now, 5000);
    world.serving_since = world.now;
    let mut skip = tree(3, "one", &[("web", "two")]);
    for plan in skip.plans.values_mut() {
        plan.absent = meshplan_schemas::document::plan::Absent::Skip;
    }
    let commit = world.merge(skip);
    assert_eq!(
        world.state(&commit),
        State::Proposed,
        "the hosts are on their way back"
    );
    world.report_all();
    world.run(12);
    assert_eq!(world.runs(1, "web").as_deref(), Some("two"));
    assert_eq!(
        world.runs(2, "web").as_deref(),
        Some("one"),
        "the canary goes first all the same"
    );
}

// holds: DL-4
#[test]
fn a_retry_orders_policy_again_too() {
    let mut world = World::at_rest(3);
    let mut held = tree(3, "bad", &[("web", "one")]);
    for stage in held.plans.values_mut().flat_map(|p| &mut p.stages) {
        stage.failed = Some(meshplan_schemas::document::plan::Trouble::Hold);
    }
    set(&mut world, 1, Behaviour::Fails);
    let commit = world.merge(held);
    world.run(20);
    assert_eq!(world.codes(&commit).last().unwrap(), "held (stage-failed)");
    set(&mut world, 1, Behaviour::Good);
    world.say(Verb::Retry, &commit);
    world.run(120);
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{:?}",
        world.codes(&commit)
    );
    assert!(world.policy(3).unwrap().contains("bad"));
}

// holds: DL-1
#[test]
fn a_commit_that_is_no_order_takes_nobodys_place() {
    let mut world = World::at_rest(3);
    let walking = world.merge(tree(3, "one", &[("web", "two")]));
    world.run(2);
    let waiting = world.merge(tree(3, "one", &[("web", "three")]));
    let invalid = world.merge_tree(Tree::Invalid("fleet.toml:1:1: unknown key".into()));
    assert_eq!(world.state(&invalid), State::Failed);
    world.run(200);
    assert_eq!(world.state(&walking), State::Delivered);
    assert_eq!(world.state(&waiting), State::Delivered);
}

// holds: DL-6
#[test]
fn a_choice_by_hash_never_takes_a_lifeline_first() {
    use meshplan_schemas::document::plan::Amount;
    for lifeline in 1..=3 {
        let mut world = World::at_rest(3);
        let mut chosen = tree(3, "one", &[("web", "two")]);
        chosen.leaves = (1..=3).map(|n| listed(leaf(n, n != lifeline))).collect();
        for plan in chosen.plans.values_mut() {
            plan.stages[0].select.nodes.clear();
            plan.stages[0].select.count = Some(Amount::Number(1));
        }
        world.merge(chosen);
        world.run(2);
        assert_eq!(
            world.runs(lifeline, "web").as_deref(),
            Some("two"),
            "the only one that is no lifeline"
        );
    }
}

fn listed(leaf: meshplan_schemas::fleet_list::Leaf) -> (NodeId, Arc<Listed>) {
    let hash = meshplan_schemas::merkle::leaf_hash(&leaf.bytes().unwrap());
    (leaf.id, Arc::new(Listed { leaf, hash }))
}

fn leaf(n: u128, lifeline: bool) -> meshplan_schemas::fleet_list::Leaf {
    let seed = [u8::try_from(n).unwrap(); 32];
    let signing = ed25519_dalek::SigningKey::from_bytes(&seed)
        .verifying_key()
        .to_bytes();
    meshplan_schemas::fleet_list::Leaf {
        id: node(n),
        name: format!("n{n}").parse().unwrap(),
        transport_key: meshplan_schemas::key::TransportKey::from_bytes([9; 32]).unwrap(),
        signing_key: meshplan_schemas::key::SigningKey::from_bytes(signing).unwrap(),
        next_transport_key: None,
        next_signing_key: None,
        rotations: vec![],
        address: None,
        lifeline,
        valid_to: 0,
        update_class: meshplan_schemas::fleet_list::UpdateClass::Required,
        pinned: false,
    }
}

// holds: DL-6
#[test]
fn waves_are_a_share_of_all_that_the_stage_began_with() {
    use meshplan_schemas::document::plan::Amount;
    let mut world = World::at_rest(9);
    let mut waves = tree(9, "one", &[("web", "two")]);
    for plan in waves.plans.values_mut() {
        plan.stages[1].batch = Some(Amount::Percent(25));
    }
    let commit = world.merge(waves);
    world.run(300);
    assert_eq!(world.state(&commit), State::Delivered);
    let walk = world.archive[&commit].walk.clone().unwrap();
    let sizes: Vec<usize> = walk.stages.iter().map(|s| s.machines.len()).collect();
    assert_eq!(sizes, [1, 2, 2, 2, 2]);
}

// holds: B22
#[test]
fn a_very_first_commit_that_fails_is_mended_by_the_next() {
    let mut world = World::empty(3);
    set(&mut world, 1, Behaviour::Fails);
    let first = world.merge(tree(3, "bad", &[("web", "bad")]));
    world.run(100);
    assert_eq!(
        world.state(&first),
        State::RolledBack,
        "{:?}",
        world.codes(&first)
    );
    let second = world.merge(tree(3, "one", &[("web", "one")]));
    world.run(200);
    assert_eq!(
        world.state(&second),
        State::Delivered,
        "{:?}",
        world.codes(&second)
    );
    for n in 1..=3 {
        assert_eq!(world.runs(n, "web").as_deref(), Some("one"));
    }
}

// holds: B22
#[test]
fn what_was_taken_back_leaves_no_mark_on_what_comes_next() {
    let mut world = World::at_rest(3);
    set(&mut world, 1, Behaviour::Fails);
    let bad = world.merge(tree(3, "bad", &[("web", "one")]));
    world.run(100);
    assert_eq!(world.state(&bad), State::RolledBack);
    let good = world.merge(tree(3, "two", &[("web", "two")]));
    world.run(200);
    assert_eq!(world.state(&good), State::Delivered);
    assert_eq!(world.archive[&good].walk.as_ref().unwrap().abort_cause, None);
}

// holds: B22
#[test]
fn a_former_content_that_has_gone_bad_by_itself_keeps_nobody_from_moving_off_it() {
    let mut world = World::at_rest(3);
    // Whatever n1 is given goes back: the canary fails, and so does the way back.
    set(&mut world, 1, Behaviour::TakesNothing);
    let bad = world.merge(tree(3, "one", &[("web", "bad")]));
    world.run(100);
    assert_eq!(world.codes(&bad).last().unwrap(), "held (roll-back-failed)");
    set(&mut world, 1, Behaviour::Good);
    let next = world.merge(tree(3, "one", &[("web", "three")]));
    world.run(200);
    assert_eq!(world.state(&next), State::Delivered, "{:?}", world.codes(&next));
    assert_eq!(world.state(&bad), State::Superseded);
}

// holds: B27
#[test]
fn two_commits_on_the_same_machines_end_once_each_and_every_machine_on_the_newest() {
    for overlap in [2, 12, 40] {
        let mut world = World::at_rest(3);
        let first = world.merge(tree(3, "two", &[("web", "two")]));
        world.run(overlap);
        let second = world.merge(tree(3, "three", &[("web", "three")]));
        world.run(400);
        for commit in [&first, &second] {
            let of = world.transitions.iter().filter(|t| t.commit == *commit);
            assert_eq!(
                of.filter(|t| t.to.is_final()).count(),
                1,
                "{:?}",
                world.codes(commit)
            );
        }
        for n in 1..=3 {
            assert_eq!(world.runs(n, "web").as_deref(), Some("three"));
            assert!(world.policy(n).unwrap().contains("\"three\""));
        }
    }
}

// holds: B24
#[test]
fn a_canary_of_which_nothing_is_known_since_the_order_does_not_pass() {
    // It takes the order and says nothing more; or what it said was said before the order; or nothing is heard at all.
    for silent_after in [1, 3] {
        let mut world = World::at_rest(3);
        let commit = world.merge(tree(3, "one", &[("web", "two")]));
        world.run(silent_after);
        world.switch_off(1);
        world.run(200);
        assert_eq!(world.codes(&commit)[2], "rolling-back (silent)");
        assert_eq!(world.runs(2, "web").as_deref(), Some("one"));
    }
    let mut world = World::at_rest(3);
    let stale = world.snapshot.nodes[&node(1)].report.clone().unwrap();
    world.switch_off(1);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    for _ in 0..200 {
        // An old report that is heard again and again is no news.
        world.hear(stale.clone());
        world.run(1);
    }
    assert_eq!(world.codes(&commit)[2], "rolling-back (silent)");
}

// holds: B24
#[test]
fn a_unit_that_dies_and_is_started_again_does_not_pass_however_well_it_looks_between() {
    let mut world = World::at_rest(3);
    let commit = world.merge(tree(3, "one", &[("web", "two")]));
    for second in 0..200 {
        world.hosts.get_mut(&node(1)).unwrap().restarts = second / 2;
        world.run(1);
    }
    assert_eq!(
        world.state(&commit),
        State::RolledBack,
        "{:?}",
        world.codes(&commit)
    );
    assert_eq!(world.runs(2, "web").as_deref(), Some("one"));
}
