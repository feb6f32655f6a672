//! Update classes: who is awaited, whose trouble counts, and how machines that are left behind follow (UC-1, DL-19).

use std::collections::BTreeMap;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::UpdateClass::{self, BestEffort, LeftBehind, Required};
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use proptest::prelude::*;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::Composed;
use crate::pure::decide::after_secs;
use crate::pure::decide::classes::{At, trouble};
use crate::pure::delivery::{Verdict, VerdictWord, Walk};
use crate::pure::page;

/// Three machines with this text of the module, and the classes of some.
pub(super) fn fleet(text: &str, classes: &[(u128, UpdateClass)]) -> Composed {
    classed(tree(3, "one", &[("web", text)]), classes)
}

fn classed(mut tree: Composed, classes: &[(u128, UpdateClass)]) -> Composed {
    for (n, class) in classes {
        change(&mut tree, *n, |node| node.update_class = *class);
    }
    tree
}

fn pinned(mut tree: Composed, n: u128) -> Composed {
    change(&mut tree, n, |node| node.pinned = true);
    tree
}

fn change(tree: &mut Composed, n: u128, act: impl FnOnce(&mut crate::pure::compose::ComposedNode)) {
    let nodes: BTreeMap<_, _> = tree.nodes.iter().map(|(id, of)| (*id, of.clone())).collect();
    let mut nodes = nodes;
    let mut changed = (*nodes[&node(n)]).clone();
    act(&mut changed);
    nodes.insert(node(n), changed.into());
    tree.nodes = nodes.into_iter().collect();
    // The class is in the signed list.
    let classes: Vec<_> = tree.nodes.values().map(|n| (n.update_class, n.pinned)).collect();
    tree.list_digest = Digest::of(format!("{classes:?}").as_bytes());
}

/// A fleet at rest in which these classes are accepted.
pub(super) fn at_rest(classes: &[(u128, UpdateClass)]) -> World {
    let mut world = World::at_rest(3);
    let commit = world.merge(fleet("one", classes));
    world.run(10);
    assert_eq!(world.state(&commit), State::Delivered);
    world
}

fn line(world: &World, commit: &CommitId, n: &str) -> String {
    let view = page::delivery(&world.archive[commit], &[], &world.snapshot.nodes);
    let machines = view
        .stages
        .iter()
        .flat_map(|s| &s.machines)
        .chain(&view.left_behind);
    let mut of = machines.filter(|m| m.name == n).map(page::MachineView::line);
    of.next_back().unwrap_or_default()
}

fn reason(world: &World, commit: &CommitId) -> String {
    world.archive[commit].reason.clone()
}

// holds: UC-1, DL-19
#[test]
fn a_best_effort_machine_is_told_with_its_stage_and_nobody_waits_for_it() {
    let mut world = at_rest(&[(3, BestEffort)]);
    world.switch_off(3);
    // Long enough that a required one would hold the delivery before it begins.
    world.now = after_secs(world.now, 2000);
    let commit = world.merge(fleet("two", &[(3, BestEffort)]));
    world.run(60);
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{}",
        reason(&world, &commit)
    );
    assert!(
        reason(&world, &commit).ends_with("passed: 2; told and not confirmed: n3"),
        "{}",
        reason(&world, &commit)
    );
    assert_eq!(
        line(&world, &commit, "n3"),
        "n3 (best_effort) told: not confirmed yet"
    );
    let told = world.transitions.last().unwrap().facts.clone();
    let told = told.iter().map(|(_, value)| value.as_str());
    assert!(
        told.clone()
            .any(|v| v == "web on n3 (best_effort): told, not confirmed yet")
    );

    // A week later it comes back, and nothing is in its way.
    world.now = after_secs(world.now, 7 * 86_400);
    set(&mut world, 3, Behaviour::Good);
    world.run(1);
    assert_eq!(world.runs(3, "web").as_deref(), Some("two"));
    assert!(line(&world, &commit, "n3").starts_with("n3 (best_effort) applied:"));
    assert!(world.decide(&[]).is_empty());
}

// holds: UC-1
#[test]
fn a_best_effort_machine_that_is_there_passes_like_any() {
    let mut world = at_rest(&[(1, BestEffort)]);
    let commit = world.merge(fleet("two", &[(1, BestEffort)]));
    world.run(60);
    assert_eq!(world.state(&commit), State::Delivered);
    assert!(line(&world, &commit, "n1").starts_with("n1 (best_effort) passed: healthy 3 times"));
}

// holds: RO-1
#[test]
fn a_best_effort_canary_that_fails_blocks_like_any() {
    for canaries in [&["n1"][..], &["n1", "n2"]] {
        let mut world = at_rest(&[(1, BestEffort)]);
        set(&mut world, 1, Behaviour::Fails);
        let mut tree = fleet("bad", &[(1, BestEffort)]);
        for plan in tree.plans.values_mut() {
            plan.stages[0].select.nodes = canaries.iter().map(|n| n.parse().unwrap()).collect();
        }
        let commit = world.merge(tree);
        world.run(60);
        assert_eq!(world.state(&commit), State::RolledBack, "{canaries:?}");
        assert_eq!(world.runs(3, "web").as_deref(), Some("one"));
    }
}

// holds: UC-1
#[test]
fn after_the_canaries_a_best_effort_machine_that_fails_is_listed_and_left() {
    let mut world = at_rest(&[(3, BestEffort)]);
    set(&mut world, 3, Behaviour::Fails);
    let commit = world.merge(fleet("bad", &[(3, BestEffort)]));
    world.run(60);
    assert_eq!(world.state(&commit), State::Delivered);
    assert!(line(&world, &commit, "n3").starts_with("n3 (best_effort) failed:"));
    assert_eq!(world.runs(2, "web").as_deref(), Some("bad"));
    assert_eq!(world.runs(3, "web").as_deref(), Some("one"));
    assert!(
        world.snapshot.known_bad.is_empty(),
        "{:?}",
        world.snapshot.known_bad
    );
}

// holds: RO-1
#[test]
fn canaries_that_are_all_best_effort_and_silent_abort_at_their_deadline() {
    let mut world = at_rest(&[(1, BestEffort)]);
    world.switch_off(1);
    let commit = world.merge(fleet("two", &[(1, BestEffort)]));
    world.run(55);
    assert_eq!(world.state(&commit), State::Delivering);
    world.run(10);
    let codes = world.codes(&commit);
    assert!(codes.contains(&"rolling-back (silent)".to_owned()), "{codes:?}");
    assert_eq!(world.sequences_of(2).len(), 1, "the rest was never told");
}

// holds: RO-1
#[test]
fn of_canaries_that_are_all_best_effort_one_that_passes_is_enough() {
    let both = [(1, BestEffort), (2, BestEffort)];
    let mut world = at_rest(&both);
    world.switch_off(1);
    let mut tree = fleet("two", &both);
    for plan in tree.plans.values_mut() {
        plan.stages[0].select.nodes = ["n1", "n2"].iter().map(|n| n.parse().unwrap()).collect();
    }
    let commit = world.merge(tree);
    world.run(60);
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{}",
        reason(&world, &commit)
    );
    assert!(line(&world, &commit, "n1").starts_with("n1 (best_effort) told: "));

    // And where the others are told silent at the very moment at which it passes.
    let mut walk = world.archive[&commit].walk.clone().unwrap();
    walk.current = 0;
    let silent = |walk: &mut Walk, n| {
        walk.stages[0].machines.get_mut(&node(n)).unwrap().verdict = Some(Verdict {
            word: VerdictWord::Silent,
            reason: String::new(),
        });
    };
    silent(&mut walk, 1);
    assert!(trouble(&walk, At::Stage).is_none());
    silent(&mut walk, 2);
    assert!(trouble(&walk, At::Stage).is_some());
}

// holds: UC-1
#[test]
fn a_machine_that_is_left_behind_is_in_no_stage_and_follows_when_its_grace_is_over() {
    let mut world = at_rest(&[(3, LeftBehind)]);
    let before = world.sequences_of(3);
    let commit = world.merge(fleet("two", &[(3, LeftBehind)]));
    world.run(60);
    assert_eq!(world.state(&commit), State::Delivered);
    assert!(
        reason(&world, &commit).ends_with("passed: 2; left behind: n3"),
        "{}",
        reason(&world, &commit)
    );
    assert!(line(&world, &commit, "n3").starts_with("n3 (left_behind) left-behind: it follows at"));
    let at = world.archive[&commit].left_behind[&node(3)].follows.unwrap().at;
    assert!(at >= after_secs(world.archive[&commit].since, 600));
    // A commit that has nothing for it does not become a delivery of it.
    let other = world.merge(fleet("two", &[(3, LeftBehind)]));
    assert_eq!(world.codes(&other).last().unwrap(), "delivered (nothing-to-do)");
    world.run(500);
    assert_eq!(
        world.sequences_of(3),
        before,
        "it was told before its grace was over"
    );
    world.run(110);
    assert_eq!(world.runs(3, "web").as_deref(), Some("two"));
    assert!(line(&world, &commit, "n3").starts_with("n3 (left_behind) applied: followed with sequence"));
    let held = world.snapshot.assignments.values().any(|a| a.held_back.is_some());
    assert!(!held && world.decide(&[]).is_empty() && world.decide(&[]).next_at.is_none());
}

// holds: UC-1
#[test]
fn a_pinned_machine_never_follows_until_a_commit_unpins_it() {
    let mut world = at_rest(&[(3, LeftBehind)]);
    let commit = world.merge(pinned(fleet("two", &[(3, LeftBehind)]), 3));
    world.run(2000);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(world.runs(3, "web").as_deref(), Some("one"));
    assert!(line(&world, &commit, "n3").contains("pinned, it does not follow"));
    assert!(!world.archive[&commit].owes());

    let unpinned = world.merge(fleet("two", &[(3, LeftBehind)]));
    world.run(300);
    assert_eq!(world.runs(3, "web").as_deref(), Some("one"));
    world.run(400);
    assert_eq!(world.runs(3, "web").as_deref(), Some("two"));
    assert_eq!(world.state(&unpinned), State::Delivered);
}

// holds: UC-1
#[test]
fn what_is_aborted_while_a_machine_is_in_its_grace_never_reaches_it() {
    let mut world = at_rest(&[(3, LeftBehind)]);
    world.merge(fleet("two", &[(3, LeftBehind)]));
    world.run(590);
    // At the end of the grace something walks that may be what takes it back: nobody follows meanwhile.
    set(&mut world, 1, Behaviour::Off);
    let bad = world.merge(fleet("bad", &[(3, LeftBehind)]));
    world.run(50);
    assert_eq!(world.state(&bad), State::Delivering);
    assert_eq!(world.runs(3, "web").as_deref(), Some("one"));
    set(&mut world, 1, Behaviour::Fails);
    world.run(60);
    assert_eq!(world.state(&bad), State::RolledBack);
    world.run(60);
    assert_eq!(
        world.runs(3, "web").as_deref(),
        Some("two"),
        "what stands is what it follows to"
    );
    world.run(2000);
    assert_eq!(world.runs(3, "web").as_deref(), Some("two"));
}

// holds: UC-1, RO-8
#[test]
fn a_clock_that_jumps_and_a_restart_make_nobody_follow_early() {
    let mut world = at_rest(&[(3, LeftBehind)]);
    world.merge(fleet("two", &[(3, LeftBehind)]));
    world.run(60);
    world.now = after_secs(world.now, 86_400);
    // As after a start: the reconciler sees that its clock has jumped.
    world.serving_since = world.now;
    world.run(590);
    assert_eq!(world.runs(3, "web").as_deref(), Some("one"));
    world.run(20);
    assert_eq!(world.runs(3, "web").as_deref(), Some("two"));
}

// holds: UC-1
#[test]
fn a_newer_delivery_answers_for_a_machine_that_has_not_followed_yet() {
    let mut world = at_rest(&[(3, LeftBehind)]);
    let two = world.merge(fleet("two", &[(3, LeftBehind)]));
    world.run(300);
    let three = world.merge(fleet("three", &[(3, LeftBehind)]));
    world.run(60);
    assert_eq!(world.state(&three), State::Delivered);
    assert!(!world.archive[&two].owes() && world.archive[&three].owes());
    world.run(400);
    assert_eq!(
        world.runs(3, "web").as_deref(),
        Some("one"),
        "the grace is that of the newer one"
    );
    world.run(300);
    assert_eq!(world.runs(3, "web").as_deref(), Some("three"));
    assert!(!world.archive[&three].owes());
}

// holds: UC-1
#[test]
fn what_a_newer_commit_takes_away_again_is_not_brought_by_following() {
    let mut world = at_rest(&[(3, LeftBehind)]);
    world.merge(fleet("two", &[(3, LeftBehind)]));
    world.run(60);
    let back = world.merge(fleet("one", &[(3, LeftBehind)]));
    world.run(60);
    assert_eq!(world.state(&back), State::Delivered);
    world.run(2000);
    assert_eq!(world.sequences_of(3).len(), 1, "it had what stands all the time");
    assert_eq!(world.runs(3, "web").as_deref(), Some("one"));
}

// holds: UC-1, DL-15
#[test]
fn what_only_left_behind_machines_have_is_asked_of_its_plan_all_the_same() {
    let all = [(1, LeftBehind), (2, LeftBehind), (3, LeftBehind)];
    let mut world = at_rest(&all);
    let mut tree = fleet("two", &all);
    for plan in tree.plans.values_mut() {
        plan.approvals = 1;
    }
    let commit = world.merge(tree);
    assert_eq!(world.codes(&commit).last().unwrap(), "held (approvals)");
    world.run(2000);
    assert_eq!(world.runs(3, "web").as_deref(), Some("one"));
}

// holds: UC-1
#[test]
fn a_machine_that_becomes_required_is_walked_with_what_it_has_missed() {
    let mut world = at_rest(&[(3, LeftBehind)]);
    world.merge(fleet("two", &[(3, LeftBehind)]));
    world.run(60);
    let joins = world.merge(fleet("two", &[]));
    world.run(60);
    assert_eq!(world.state(&joins), State::Delivered);
    assert_eq!(world.runs(3, "web").as_deref(), Some("two"));
    assert!(line(&world, &joins, "n3").starts_with("n3 passed"));
    world.run(1000);
    assert_eq!(world.sequences_of(3).len(), 2, "and nobody has it follow later");
}

// holds: UC-1
#[test]
fn a_class_that_changes_in_mid_walk_counts_from_the_next_tick_and_is_written_down() {
    let remark =
        |world: &World, commit: &CommitId| world.archive[commit].walk.as_ref().unwrap().lines.join("; ");
    // Nobody waits any more for a machine that is away.
    for class in [BestEffort, LeftBehind] {
        let mut world = World::at_rest(3);
        world.switch_off(3);
        let commit = world.merge(fleet("two", &[]));
        world.run(50);
        assert_eq!(world.state(&commit), State::Delivering);
        world.merge(fleet("two", &[(3, class)]));
        assert_eq!(world.state(&commit), State::Delivered);
        assert!(
            remark(&world, &commit).starts_with("n3 counts as"),
            "{}",
            remark(&world, &commit)
        );
        let told = &world
            .transitions
            .iter()
            .find(|t| t.commit == commit && t.to == State::Delivered);
        let told = &told.unwrap().facts;
        assert!(
            told.iter()
                .any(|(key, value)| key == "Remark" && value.contains("and was required"))
        );
    }

    // And one that nobody waited for is awaited, though its stage was told before.
    let mut world = at_rest(&[(3, BestEffort)]);
    world.switch_off(2);
    world.switch_off(3);
    let commit = world.merge(fleet("two", &[(3, BestEffort)]));
    world.run(40);
    world.merge(fleet("two", &[]));
    set(&mut world, 2, Behaviour::Good);
    world.run(30);
    assert_eq!(world.state(&commit), State::Delivering, "n3 is awaited now");
    world.run(40);
    let codes = world.codes(&commit);
    assert!(codes.contains(&"rolling-back (silent)".to_owned()), "{codes:?}");
}

// holds: UC-1
#[test]
fn a_machine_that_is_left_behind_in_mid_walk_before_its_stage_is_not_told_and_follows() {
    let mut world = World::at_rest(3);
    let commit = world.merge(fleet("two", &[]));
    world.run(3);
    world.merge(fleet("two", &[(3, LeftBehind)]));
    world.run(60);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(world.runs(3, "web").as_deref(), Some("one"));
    assert_eq!(world.runs(2, "web").as_deref(), Some("two"));
    world.run(700);
    assert_eq!(world.runs(3, "web").as_deref(), Some("two"));
}

// holds: UC-1
#[test]
fn a_class_that_a_gate_holds_back_is_nobodys_class_yet() {
    let mut world = World::at_rest(3);
    world.switch_off(3);
    let commit = world.merge(fleet("two", &[]));
    world.run(50);
    let mut loosened = fleet("two", &[(3, BestEffort)]);
    for plan in loosened.plans.values_mut() {
        plan.approvals = 1;
    }
    let held = world.merge(loosened);
    assert_eq!(world.state(&held), State::Held);
    world.run(60);
    let codes = world.codes(&commit);
    assert!(codes.contains(&"rolling-back (silent)".to_owned()), "{codes:?}");
}

// holds: UC-1, DL-7
#[test]
fn a_best_effort_machine_that_was_told_is_taken_back_with_the_others() {
    let mut world = at_rest(&[(2, BestEffort)]);
    world.switch_off(2);
    set(&mut world, 3, Behaviour::Fails);
    let commit = world.merge(fleet("bad", &[(2, BestEffort)]));
    world.run(300);
    assert_eq!(world.codes(&commit).last().unwrap(), "rolled-back (partly)");
    set(&mut world, 2, Behaviour::Good);
    world.run(5);
    assert_eq!(world.runs(2, "web").as_deref(), Some("one"));
    assert_eq!(world.sequences_of(2).len(), 3);
}

#[test]
fn a_canary_that_a_hash_chooses_is_a_required_machine_where_there_is_one() {
    let volunteers = [(1, BestEffort), (2, BestEffort)];
    for text in ["two", "three", "four", "five"] {
        let mut world = at_rest(&volunteers);
        let mut tree = fleet(text, &volunteers);
        tree.plans.clear();
        let commit = world.merge(tree);
        let walk = world.archive[&commit].walk.clone().unwrap();
        let canaries: Vec<_> = walk.stages[0]
            .machines
            .values()
            .map(|m| m.name.to_string())
            .collect();
        assert_eq!(canaries, ["n3"], "{text}");
    }
    assert_eq!(UpdateClass::default(), Required);
}

// RO-4's last sentence.
#[test]
fn a_required_machine_whose_host_is_too_old_is_named_at_the_start_and_counts_as_failed() {
    let mut world = at_rest(&[(2, BestEffort)]);
    let old = |world: &mut World, n: u128| {
        world.hosts.get_mut(&node(n)).unwrap().version = semver::Version::new(0, 0, 1);
    };
    old(&mut world, 2);
    let newer = |text: &str| {
        let mut tree = classed(tree(3, text, &[("web", "one")]), &[(2, BestEffort)]);
        tree.fleet.config_mgmt.min_daemon_version = Some(semver::Version::new(0, 1, 0));
        tree
    };
    world.report_all();
    let listed = world.merge(newer("two"));
    let lines = |world: &World, commit: &CommitId| world.archive[commit].walk.as_ref().unwrap().lines.clone();
    let said = "n2 runs version 0.0.1 of the host and this epoch needs 0.1.0: it does not take the policy (best_effort)";
    assert_eq!(lines(&world, &listed), [said]);
    world.run(60);
    assert_eq!(world.state(&listed), State::Delivered);
    assert!(
        line(&world, &listed, "n2").contains("failed: rejected the epoch"),
        "{}",
        line(&world, &listed, "n2")
    );

    old(&mut world, 3);
    world.report_all();
    let failed = world.merge(newer("three"));
    assert!(lines(&world, &failed)[1].ends_with("needs 0.1.0: it counts as failed"));
    world.run(60);
    let codes = world.codes(&failed);
    assert!(
        codes.contains(&"rolling-back (stage-failed)".to_owned()),
        "{codes:?}"
    );
    assert!(world.policy(1).unwrap().contains("two"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    // holds: RO-9, UC-1
    #[test]
    fn who_is_not_required_never_blocks_but_as_a_canary(classes in prop::array::uniform3(0..3_u8), away in prop::array::uniform3(any::<bool>())) {
        let class = |n: usize| [Required, BestEffort, LeftBehind][usize::from(classes[n])];
        let all: Vec<(u128, UpdateClass)> = (0..3).map(|n| (n as u128 + 1, class(n))).collect();
        let mut world = at_rest(&all);
        for n in (0..3).filter(|n| away[*n] && class(*n) != Required) {
            world.switch_off(n as u128 + 1);
        }
        let commit = world.merge(fleet("two", &all));
        world.run(400);
        // The only canary that anybody can be is one that sleeps.
        let required = all.iter().any(|(_, class)| *class == Required);
        let silent = match class(0) {
            BestEffort => away[0],
            LeftBehind if !required => {
                let walk = world.archive[&commit].walk.as_ref().unwrap();
                let canary = walk.stages[0].machines.keys().next();
                canary.is_some_and(|id| world.hosts[id].behaviour == Behaviour::Off)
            }
            Required | LeftBehind => false,
        };
        let expected = if silent { State::RolledBack } else { State::Delivered };
        prop_assert_eq!(world.state(&commit), expected, "{:?} {:?}: {}", classes, away, reason(&world, &commit));
        for n in (0..3).filter(|n| class(*n) == LeftBehind) {
            prop_assert_eq!(world.sequences_of(n as u128 + 1).len(), 1, "it was told before its grace was over");
        }
    }
}
