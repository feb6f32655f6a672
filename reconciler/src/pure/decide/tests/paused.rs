//! Machines that a person paused count as absent (HR-17, DL-19).

use meshplan_schemas::document::plan::Absent;
use meshplan_schemas::lifecycle::delivery::State;
use meshplan_schemas::report::{Cause, Paused};

use super::world::{World, node, tree};
use crate::pure::compose::Composed;
use crate::pure::decide::why::why;
use crate::pure::snapshot::Verb;

fn pause(world: &mut World, n: u128) {
    let until = super::super::after_secs(world.now, 7200).as_second();
    world.hosts.get_mut(&node(n)).unwrap().paused = Some(Paused {
        until,
        why: "the disk is changed".into(),
    });
    let report = world.says(node(n), Cause::Change).unwrap();
    world.hear(report);
}

fn resume(world: &mut World, n: u128) {
    world.hosts.get_mut(&node(n)).unwrap().paused = None;
    let report = world.says(node(n), Cause::Change).unwrap();
    world.hear(report);
}

fn change(absent: Absent) -> Composed {
    let mut tree = tree(3, "one", &[("web", "two")]);
    tree.plans.values_mut().for_each(|plan| plan.absent = absent);
    tree
}

// holds: HR-17, DL-19
#[test]
fn a_paused_machine_holds_the_start_and_its_end_lets_it_begin() {
    let mut world = World::at_rest(3);
    pause(&mut world, 2);
    let commit = world.merge(change(Absent::Hold));
    assert_eq!(world.codes(&commit).last().unwrap(), "held (absent)");
    let reason = &world.archive[&commit].reason;
    assert!(
        reason.starts_with("paused on the machine: n2 (until 2026-11-29T14:0")
            && reason.ends_with(": the disk is changed)"),
        "{reason}"
    );
    assert!(
        why(&world.archive[&commit], &world.snapshot.deliveries, world.now)
            .waits_for
            .contains("n2")
    );
    world.run(300);
    assert_eq!(world.state(&commit), State::Held);
    resume(&mut world, 2);
    world.run(100);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(world.runs(2, "web").as_deref(), Some("two"));
}

// holds: HR-17, DL-19
#[test]
fn a_go_or_a_plan_that_skips_takes_a_paused_machine_out_of_the_gate_and_it_is_served_when_it_is_resumed() {
    for absent in [Absent::Skip, Absent::Hold] {
        let mut world = World::at_rest(3);
        pause(&mut world, 2);
        let commit = world.merge(change(absent));
        if absent == Absent::Hold {
            world.say(Verb::Go, &commit);
        }
        world.run(100);
        assert_eq!(
            world.state(&commit),
            State::Delivered,
            "{absent:?} {:?}",
            world.codes(&commit)
        );
        assert_eq!(world.runs(2, "web").as_deref(), Some("one"));
        resume(&mut world, 2);
        world.run(5);
        assert_eq!(world.runs(2, "web").as_deref(), Some("two"));
    }
}

// holds: HR-17, DL-19
#[test]
fn one_that_is_paused_in_the_midst_of_a_walk_is_silent_at_its_deadline_and_said_is_why() {
    let mut world = World::at_rest(3);
    let commit = world.merge(change(Absent::Hold));
    pause(&mut world, 2);
    world.run(30);
    assert_eq!(world.state(&commit), State::Delivering);
    let machine = world.archive[&commit].walk.as_ref().unwrap().stages[1].machines[&node(2)].clone();
    assert_eq!(machine.verdict, None);
    assert!(
        machine.last.starts_with("is paused on the machine until"),
        "{}",
        machine.last
    );
    world.run(100);
    // The way back waits for it as well: it holds an order that it has not begun.
    assert_eq!(world.state(&commit), State::RollingBack);
    let cause = world.archive[&commit]
        .walk
        .as_ref()
        .unwrap()
        .abort_cause
        .clone()
        .unwrap();
    assert!(cause.reason.contains("the disk is changed"), "{}", cause.reason);
    resume(&mut world, 2);
    world.run(100);
    assert_eq!(world.state(&commit), State::RolledBack);
    assert_eq!(world.runs(2, "web").as_deref(), Some("one"));
}
