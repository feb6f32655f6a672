//! What the record of a rollout says while the engine walks it: derived at every second, whatever happens.

use std::sync::Arc;

use jiff::Timestamp;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::EpochStatus;
use proptest::prelude::*;
use proptest::sample::select;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::decide::after_secs;
use crate::pure::events::EventName;
use crate::pure::rollout::archive::{Archive, Due, due, is_settled};
use crate::pure::rollout::live::{Known, Member, record};
use crate::pure::rollout::push::PushState;
use crate::pure::rollout::run::{Run, SignedEpoch};
use crate::pure::rollout::{NodePush, Phase, Rollout, TimelineEvent, words};
use crate::pure::snapshot::Verb;

fn members(classes: &[UpdateClass]) -> Vec<Member> {
    (1..)
        .zip(classes)
        .map(|(n, class)| Member {
            id: node(n),
            name: format!("n{n}").parse().unwrap(),
            roles: Vec::new(),
            class: *class,
            enrolled: true,
        })
        .collect()
}

fn run(world: &World, commit: &CommitId) -> Option<Run> {
    let of_it = world.epochs.values().filter(|e| e.commit == *commit);
    Run::of(commit.clone(), false, of_it.map(SignedEpoch::from).collect())
}

fn seen(world: &World, commit: &CommitId, classes: &[UpdateClass]) -> Option<Rollout> {
    let of_it = world.transitions.iter().filter(|t| t.commit == *commit);
    let transitions: Vec<_> = of_it.cloned().collect();
    Some(record(&Known {
        delivery: &world.archive[commit],
        transitions: &transitions,
        run: &run(world, commit)?,
        roster: &members(classes),
        nodes: &world.snapshot.nodes,
        timeline: &[],
        now: world.now,
        calm_until: after_secs(world.serving_since, 60),
    }))
}

fn of(rollout: &Rollout, n: u128) -> &NodePush {
    let name = format!("n{n}");
    rollout.nodes.iter().find(|node| node.name == name).unwrap()
}

const REQUIRED: [UpdateClass; 4] = [UpdateClass::Required; 4];

// holds: RO-3, RO-4
#[test]
fn a_rollout_is_a_canary_then_released_then_complete_and_its_gate_says_who_is_still_to_confirm() {
    let mut world = World::at_rest(4);
    let before = world.snapshot.epochs[0].epoch;
    let commit = world.merge(tree(4, "two", &[("web", "one")]));
    let rollout = seen(&world, &commit, &REQUIRED).unwrap();
    assert_eq!(rollout.phase, Phase::Canary);
    assert_eq!(rollout.rollout_id, world.archive[&commit].name.to_string());
    assert_eq!(
        (rollout.canary_epoch, rollout.final_epoch),
        (Some(before + 1), None)
    );
    assert_eq!(rollout.canaries, ["n1"]);
    assert_eq!(rollout.release_gate.holding, ["n1"]);
    assert_eq!((rollout.release_deadline, rollout.finished_at), (None, None));
    for n in 2..=4 {
        assert_eq!(of(&rollout, n).state, PushState::NotTargeted);
    }
    while seen(&world, &commit, &REQUIRED).unwrap().phase == Phase::Canary {
        world.run(1);
    }
    let rollout = seen(&world, &commit, &REQUIRED).unwrap();
    assert_eq!(rollout.phase, Phase::Released);
    assert_eq!(rollout.final_epoch, Some(before + 2));
    assert_eq!(rollout.release_gate.required_total, 4);
    assert!(rollout.release_deadline.is_some_and(|at| at > world.now));
    assert_eq!(rollout.release_deadline, rollout.release_gate.deadline);
    world.run(200);
    let rollout = seen(&world, &commit, &REQUIRED).unwrap();
    assert_eq!(rollout.phase, Phase::Complete);
    assert_eq!(rollout.release_gate.required_confirmed, 4);
    assert_eq!(rollout.finished_at, Some(world.archive[&commit].since));
    assert_eq!(rollout.waits_for, None);
}

// holds: EP-1, RO-3
#[test]
fn what_a_node_says_of_another_epoch_counts_neither_for_nor_against_this_one() {
    let mut world = World::at_rest(4);
    set(&mut world, 1, Behaviour::Off);
    let before = world.snapshot.epochs[0].epoch;
    let commit = world.merge(tree(4, "two", &[("web", "one")]));
    let say = |world: &mut World, number: u64, state| {
        let nodes = Arc::make_mut(&mut world.snapshot.nodes);
        let report = nodes.get_mut(&node(1)).unwrap().report.as_mut();
        report.unwrap().epoch = Some(EpochStatus {
            state_epoch: number,
            state,
            reason: String::new(),
            received_via: "reconciler".into(),
            received_at: 0,
            update_class: UpdateClass::Required,
            running: before,
        });
    };
    for state in EpochState::ALL {
        for other in [before - 1, before, before + 2, before + 7] {
            say(&mut world, other, state);
            let rollout = seen(&world, &commit, &REQUIRED).unwrap();
            assert_eq!(of(&rollout, 1).state, PushState::Pending, "{state:?} of {other}");
            let gate = &rollout.release_gate;
            assert_eq!((gate.required_confirmed, gate.required_failed), (0, 0));
        }
    }
    say(&mut world, before + 1, EpochState::Rejected);
    let rollout = seen(&world, &commit, &REQUIRED).unwrap();
    assert_eq!(of(&rollout, 1).state, PushState::Failed);
    assert_eq!(rollout.release_gate.required_failed, 1);
}

// holds: RO-3
#[test]
fn a_node_that_says_nothing_is_silent_past_the_canary_deadline_or_twice_the_confirm_window_and_never_while_we_are_deaf()
 {
    let mut world = World::at_rest(4);
    set(&mut world, 1, Behaviour::Off);
    set(&mut world, 3, Behaviour::Off);
    let commit = world.merge(tree(4, "two", &[("web", "one")]));
    let rollout = seen(&world, &commit, &REQUIRED).unwrap();
    let deadline = rollout.release_gate.deadline.unwrap();
    let at = |now: Timestamp, calm_until: Timestamp| {
        record(&Known {
            delivery: &world.archive[&commit],
            transitions: &[],
            run: &run(&world, &commit).unwrap(),
            roster: &members(&REQUIRED),
            nodes: &world.snapshot.nodes,
            timeline: &[],
            now,
            calm_until,
        })
    };
    let before = deadline.checked_sub(jiff::SignedDuration::from_secs(1)).unwrap();
    assert_eq!(of(&at(before, world.serving_since), 1).state, PushState::Pending);
    let late = at(deadline, world.serving_since);
    assert_eq!(of(&late, 1).state, PushState::Silent);
    assert_eq!(late.release_gate.required_silent, 1);
    assert_eq!(late.release_gate.holding, ["n1"]);
    assert_eq!(of(&late, 3).state, PushState::NotTargeted);
    let deaf = at(deadline, after_secs(deadline, 1));
    assert_eq!(of(&deaf, 1).state, PushState::Pending, "RO-8");

    let mut world = World::at_rest(4);
    set(&mut world, 3, Behaviour::Off);
    let commit = world.merge(tree(4, "two", &[("web", "one")]));
    while seen(&world, &commit, &REQUIRED).unwrap().phase == Phase::Canary {
        world.run(1);
    }
    let confirm = run(&world, &commit).unwrap().newest().confirm_secs;
    let ordered = world.now;
    let (mut silent, mut pending) = (None, 0);
    while silent.is_none() && seen(&world, &commit, &REQUIRED).unwrap().phase == Phase::Released {
        match of(&seen(&world, &commit, &REQUIRED).unwrap(), 3).state {
            PushState::Silent => silent = Some(world.now),
            state => {
                assert_eq!(state, PushState::Pending);
                pending += 1;
            }
        }
        world.run(1);
    }
    let expected = after_secs(ordered, confirm.saturating_mul(2).max(120));
    assert!(
        pending > 0 && silent.is_none_or(|at| at == expected),
        "{silent:?}"
    );
}

// holds: RO-4
#[test]
fn best_effort_nodes_are_listed_and_left_behind_ones_are_in_no_gate_and_say_what_they_run() {
    use UpdateClass::{BestEffort, LeftBehind, Required};
    let mut world = World::at_rest(4);
    let before = world.snapshot.epochs[0].epoch;
    set(&mut world, 4, Behaviour::Off);
    set(&mut world, 3, Behaviour::Off);
    let classes = [Required, Required, BestEffort, LeftBehind];
    let commit = world.merge(tree(4, "two", &[("web", "one")]));
    while seen(&world, &commit, &classes).unwrap().phase == Phase::Canary {
        world.run(1);
    }
    let rollout = seen(&world, &commit, &classes).unwrap();
    assert_eq!(rollout.release_gate.required_total, 2);
    assert_eq!(rollout.release_gate.stragglers, ["n3"]);
    assert!(rollout.release_gate.nodes.iter().all(|n| n.name != "n4"));
    let left = of(&rollout, 4);
    assert_eq!(left.state, PushState::LeftBehind);
    assert_eq!(left.detail, format!("running epoch {before}"));
    assert_eq!(left.epochs_behind, Some(2));
    assert!(left.settled);
}

// holds: RO-4
#[test]
fn an_automatic_abort_names_the_machine_the_reason_and_the_phase() {
    for (failing, phase) in [(1, "canary"), (3, "release")] {
        let mut world = World::at_rest(4);
        set(&mut world, failing, Behaviour::Fails);
        let commit = world.merge(tree(4, "bad", &[("web", "one")]));
        let mut last = None;
        while world.state(&commit) == State::Delivering {
            last = seen(&world, &commit, &REQUIRED);
            world.run(1);
        }
        assert_eq!(last.unwrap().abort_cause, None);
        let rollout = seen(&world, &commit, &REQUIRED).unwrap();
        let cause = rollout.abort_cause.clone().unwrap();
        assert_eq!(
            (cause.name.as_str(), cause.reason.as_str()),
            (&*format!("n{failing}"), "failed")
        );
        assert_eq!(cause.phase, phase);
        assert_eq!(cause.node_id_short, node(failing).short().to_string());
        world.run(200);
        let rollout = seen(&world, &commit, &REQUIRED).unwrap();
        assert_eq!(rollout.phase, Phase::Aborted);
        assert_eq!(rollout.final_epoch, Some(rollout.newest_epoch));
        assert_eq!(
            rollout.release_gate.required_failed, 0,
            "on the way back it counts anew"
        );
    }
}

// holds: RO-5
#[test]
fn a_rollout_is_put_away_once_all_have_settled_or_fifteen_minutes_after_its_end() {
    let mut world = World::at_rest(3);
    let commit = world.merge(tree(3, "two", &[("web", "one")]));
    let classes = [UpdateClass::Required; 3];
    assert_eq!(
        due(&seen(&world, &commit, &classes).unwrap(), world.now),
        Due::Open
    );
    world.run(200);
    world.report_all();
    let rollout = seen(&world, &commit, &classes).unwrap();
    assert!(is_settled(&rollout), "{:?}", rollout.nodes);
    assert_eq!(due(&rollout, world.now), Due::Now);

    let mut out = rollout.clone();
    out.nodes[0].settled = false;
    let ended = out.finished_at.unwrap();
    let late = after_secs(ended, 900);
    assert_eq!(due(&out, after_secs(ended, 899)), Due::At(late));
    assert_eq!(due(&out, late), Due::Now);

    // What arrives after it is appended once, and closes it.
    out.nodes[0].state = PushState::Received;
    let mut archive = Archive::of(out, late);
    assert!(!archive.closed);
    let arrival = TimelineEvent {
        at: after_secs(late, 60),
        node_id_short: archive.rollout.nodes[0].node_id_short.clone(),
        state: "applied".into(),
        via: "reconciler".into(),
        epoch: archive.rollout.final_epoch.unwrap(),
    };
    archive.append(vec![arrival.clone()]);
    archive.append(vec![arrival]);
    assert_eq!(archive.summary().events, 1);
    assert!(archive.closed && archive.summary().closed);
    assert_eq!(archive.rollout.nodes[0].state, PushState::Applied);
}

#[test]
fn a_second_rollout_is_refused_while_one_is_in_hand() {
    let mut world = World::at_rest(3);
    let first = world.merge(tree(3, "two", &[("web", "one")]));
    let second = world.merge(tree(3, "three", &[("web", "one")]));
    let (walking, waiting) = (world.archive[&first].clone(), world.archive[&second].clone());
    assert!(words::is_in_hand(&walking) && !words::is_in_hand(&waiting));
    let why = words::start_refused(&waiting, Some(&walking)).unwrap();
    assert!(
        why.contains(&walking.name.to_string()) && why.contains("one at a time"),
        "{why}"
    );
    assert_eq!(world.state(&second), State::Proposed, "a delivery waits");
    world.run(300);
    assert_eq!(
        (world.state(&first), world.state(&second)),
        (State::Delivered, State::Delivered)
    );
}

// holds: RO-7
#[test]
fn each_step_of_a_rollout_is_one_event_derived_from_its_act() {
    let walked = |behaviour: Behaviour, said: Option<Verb>| {
        let mut world = World::at_rest(3);
        set(&mut world, 3, behaviour);
        let before = world.events.len();
        let commit = world.merge(tree(3, "bad", &[("web", "one")]));
        world.run(2);
        if let Some(verb) = said {
            world.say(verb, &commit);
        }
        world.run(200);
        let name = Some(world.archive[&commit].name.to_string());
        let events = world.events.split_off(before);
        assert!(events.iter().all(|e| e.rollout_id == name));
        events.into_iter().map(|e| (e.event, e.node)).collect::<Vec<_>>()
    };
    let good = walked(Behaviour::Good, None);
    let words: Vec<EventName> = good.into_iter().map(|(word, _)| word).collect();
    use EventName::{Abort, AutoAbort, Complete, Release, ReleaseWatch, Start};
    assert_eq!(words, [Start, Release, ReleaseWatch, Complete]);
    let bad = walked(Behaviour::Fails, None);
    let words: Vec<EventName> = bad.iter().map(|(word, _)| *word).collect();
    assert_eq!(words, [Start, Release, ReleaseWatch, AutoAbort]);
    assert_eq!(bad[3].1, Some(node(3).short().to_string()));
    let aborted = walked(Behaviour::Good, Some(Verb::Abort));
    let words: Vec<EventName> = aborted.into_iter().map(|(word, _)| word).collect();
    assert_eq!(words, [Start, Abort]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    // holds: RO-3, RO-4
    #[test]
    fn whatever_happens_the_record_adds_up_at_every_second(
        behaviours in proptest::collection::vec(
            select(vec![Behaviour::Good, Behaviour::Good, Behaviour::Fails, Behaviour::LosesLinkOnce, Behaviour::Off]),
            5,
        ),
        classes in proptest::collection::vec(
            select(vec![
                UpdateClass::Required,
                UpdateClass::Required,
                UpdateClass::BestEffort,
                UpdateClass::LeftBehind,
            ]),
            5,
        ),
        bad in any::<bool>(),
    ) {
        let mut world = World::at_rest(5);
        for (n, behaviour) in (1..).zip(&behaviours) {
            set(&mut world, n, *behaviour);
        }
        let text = if bad { "bad" } else { "good" };
        let commit = world.merge(tree(5, text, &[("web", "one")]));
        let mut was_over = false;
        for _ in 0..400 {
            world.run(1);
            let Some(rollout) = seen(&world, &commit, &classes) else { continue };
            let gate = &rollout.release_gate;
            let required = gate.nodes.iter().filter(|n| n.class == UpdateClass::Required).count();
            prop_assert_eq!(gate.required_total as usize, required);
            prop_assert_eq!(
                gate.required_total as usize,
                gate.required_confirmed as usize + gate.required_failed as usize + gate.holding.len()
            );
            prop_assert!(gate.required_silent as usize <= gate.holding.len());
            prop_assert_eq!(rollout.nodes.len(), 5);
            prop_assert!(gate.nodes.iter().all(|n| n.class != UpdateClass::LeftBehind));
            prop_assert_eq!(rollout.phase.is_over(), rollout.finished_at.is_some());
            prop_assert!(!was_over || rollout.phase.is_over(), "what is over stays so");
            was_over = rollout.phase.is_over();
            if rollout.phase == Phase::Canary {
                prop_assert_eq!(rollout.final_epoch, None);
                let others = rollout.nodes.iter().filter(|n| !n.canary && n.class != UpdateClass::LeftBehind);
                prop_assert!(others.clone().all(|n| n.state == PushState::NotTargeted));
            }
            if rollout.phase == Phase::Complete {
                prop_assert_eq!(gate.required_confirmed, gate.required_total);
            }
        }
    }
}
