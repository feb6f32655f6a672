//! Windows: the plan's, in which stages open, and the machines' own (DL-17, FR-7). The world's first commit is delivered on
//! a Sunday at 12:03:20 UTC.

use std::sync::Arc;

use meshplan_schemas::document::plan::{Absent, Amount};
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;
use meshplan_schemas::maintenance::{FleetWindows, Window};
use meshplan_schemas::policy;

use super::host::Behaviour;
use super::world::{World, node, set, tree};
use crate::pure::compose::{Composed, ComposedNode};
use crate::pure::decide::why::{Why, why};
use crate::pure::snapshot::Verb;

fn window(from: &str, to: &str) -> Window {
    Window {
        days: serde_json::from_str(r#"["sun", "mon"]"#).unwrap(),
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        zone: "UTC".parse().unwrap(),
    }
}

fn change(act: impl FnOnce(&mut Composed)) -> Composed {
    let mut tree = tree(3, "one", &[("web", "two")]);
    act(&mut tree);
    tree
}

fn in_window(from: &str, to: &str) -> Composed {
    change(|tree| {
        tree.plans
            .values_mut()
            .for_each(|plan| plan.window = Some(window(from, to)));
    })
}

/// A fleet whose machines begin nothing outside of this window, with a commit on its way that changes them.
fn with_hosts_window(from: &str, to: &str, absent: Absent) -> (World, Composed) {
    with_windows_of_two(((from, to), (from, to)), absent)
}

/// The same with another window for the last machine.
fn with_windows_of_two((most, last): ((&str, &str), (&str, &str)), absent: Absent) -> (World, Composed) {
    let mut world = World::at_rest(3);
    for (id, host) in &mut world.hosts {
        let (from, to) = if *id == node(3) { last } else { most };
        host.windows = vec![window(from, to)];
    }
    let of = |at: &str, (from, to): (&str, &str)| {
        format!(
            "[[{at}.scheduler.windows]]\ndays = [\"sun\", \"mon\"]\nfrom = \"{from}\"\nto = \"{to}\"\nzone = \"UTC\"\n"
        )
    };
    let text = of("base", most) + &of("roles.last", last);
    let windows = FleetWindows::of(&policy::parse(&text).unwrap());
    // The commit that was accepted has the policy that runs.
    for commit in world.trees.clone().into_keys() {
        let mut accepted = tree(3, "one", &[("web", "one")]);
        accepted.windows = windows.clone();
        give_role(&mut accepted);
        world.trees.insert(
            commit,
            crate::pure::decide::Tree::Composed(std::sync::Arc::new(accepted)),
        );
    }
    let tree = change(|tree| {
        tree.windows = windows;
        give_role(tree);
        tree.plans.values_mut().for_each(|plan| plan.absent = absent);
    });
    (world, tree)
}

/// The role that has the last machine's window.
fn give_role(tree: &mut Composed) {
    let nodes = tree.nodes.iter().map(|(id, node)| {
        let mut with = ComposedNode::clone(node);
        if *id == self::node(3) {
            with.roles = vec!["last".parse().unwrap()];
        }
        (*id, Arc::new(with))
    });
    tree.nodes = nodes.collect();
}

/// The same commit as one of the policy.
fn of_policy(tree: Composed) -> Composed {
    let mut policy = super::world::tree(3, "two", &[("web", "one")]);
    give_role(&mut policy);
    Composed {
        windows: tree.windows,
        plans: tree.plans,
        ..policy
    }
}

fn asked(world: &World, commit: &CommitId) -> Why {
    why(&world.archive[commit], &world.snapshot.deliveries, world.now)
}

// holds: DL-17, DL-2
#[test]
fn outside_the_plans_window_a_delivery_is_held_and_opens_by_itself() {
    let mut world = World::at_rest(3);
    let commit = world.merge(in_window("12:10", "13:00"));
    assert_eq!(world.codes(&commit), ["proposed (announced)", "held (window)"]);
    let reason = &world.archive[&commit].reason;
    assert_eq!(
        reason,
        "the window of the plan is shut, or too short by now, for the stage canary; next at 2026-11-29T12:10:00Z"
    );
    let said = why(&world.archive[&commit], &world.snapshot.deliveries, world.now).waits_for;
    assert_eq!(said, *reason);
    world.run(390);
    assert_eq!(
        world.runs(1, "web").as_deref(),
        Some("one"),
        "it began before its window"
    );
    world.run(100);
    assert_eq!(
        world.codes(&commit),
        [
            "proposed (announced)",
            "held (window)",
            "delivering (opened)",
            "delivered (done)"
        ]
    );
}

// holds: DL-17
#[test]
fn a_stage_opens_only_when_what_is_left_of_the_window_is_longer_than_its_deadline() {
    let mut world = World::at_rest(3);
    // 40 s are left: enough for the canary's 20, too little for the rest's 60.
    let mut tree = in_window("12:00", "12:04");
    for plan in tree.plans.values_mut() {
        plan.stages[0].healthy.as_mut().unwrap().within_secs = 20;
    }
    let commit = world.merge(tree);
    world.run(300);
    assert_eq!(world.state(&commit), State::Delivering);
    assert_eq!(world.runs(1, "web").as_deref(), Some("two"));
    assert_eq!(world.runs(2, "web").as_deref(), Some("one"));
    let said = why(&world.archive[&commit], &world.snapshot.deliveries, world.now);
    assert_eq!(said.waits_for, "the window of the plan, then rest opens");
    let monday = "2026-11-30T12:00:00Z".parse().unwrap();
    assert_eq!(
        (said.deadline, world.decide(&[]).next_at),
        (Some(monday), Some(monday))
    );
    world.now = monday;
    world.report_all();
    world.run(100);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(world.runs(2, "web").as_deref(), Some("two"));
}

// holds: DL-13, DL-17
#[test]
fn what_passed_before_a_night_is_looked_at_before_the_next_gate_opens_in_the_morning() {
    let mut world = World::at_rest(3);
    let mut tree = in_window("12:00", "12:04");
    for plan in tree.plans.values_mut() {
        plan.stages[0].healthy.as_mut().unwrap().within_secs = 20;
    }
    let commit = world.merge(tree);
    world.run(300);
    let said = asked(&world, &commit).waits_for;
    assert_eq!(said, "the window of the plan, then rest opens");
    world.switch_off(1);
    world.now = "2026-11-30T12:00:00Z".parse().unwrap();
    world.report_all();
    world.run(100);
    assert_eq!(
        world.runs(2, "web").as_deref(),
        Some("one"),
        "the canary died in the night"
    );
    assert_eq!(
        world.state(&commit),
        State::RollingBack,
        "{:?}",
        world.codes(&commit)
    );
    let reason = &world.archive[&commit].reason;
    assert!(
        reason.contains("did not answer when the next gate was to open"),
        "{reason}"
    );
}

// holds: RO-2
#[test]
fn a_wave_of_a_rollout_begins_when_the_windows_of_its_required_machines_are_open_and_says_so() {
    let (mut world, tree) = with_hosts_window("12:00", "12:04", Absent::Hold);
    world.now = "2026-11-29T12:03:45Z".parse().unwrap();
    world.report_all();
    let commit = world.merge(of_policy(tree));
    world.run(300);
    assert!(
        world.policy(1).unwrap().contains("two"),
        "{:?}",
        world.codes(&commit)
    );
    let monday = "2026-11-30T12:00:00Z".parse().unwrap();
    let said = asked(&world, &commit);
    assert_eq!(
        (
            said.waits_for.as_str(),
            said.rule.as_str(),
            said.deadline,
            world.decide(&[]).next_at
        ),
        (
            "the own maintenance windows of n2, n3, then rest opens",
            "policy: scheduler.windows of the machines, RO-2",
            Some(monday),
            Some(monday)
        )
    );
    let epochs = world.epochs.len();
    world.now = monday;
    world.report_all();
    assert_eq!(
        world.epochs.len(),
        epochs,
        "released before the canary was looked at again"
    );
    world.run(100);
    assert_eq!(world.state(&commit), State::Delivered);
    assert!(world.policy(3).unwrap().contains("two"));
}

// holds: DL-13, DL-17
#[test]
fn a_stage_that_needs_all_of_a_window_opens_in_it_after_its_fresh_looks() {
    let mut world = World::at_rest(3);
    // Hardly longer than the rest's time: what the looks take must not be missing each day anew.
    let mut tree = in_window("12:10", "12:12");
    for plan in tree.plans.values_mut() {
        plan.stages[0].healthy.as_mut().unwrap().within_secs = 20;
        plan.stages[1].healthy.as_mut().unwrap().within_secs = 119;
    }
    let commit = world.merge(tree);
    world.run(700);
    let said = asked(&world, &commit).waits_for;
    assert_eq!(said, "the window of the plan, then rest opens");
    world.now = "2026-11-30T12:10:00Z".parse().unwrap();
    world.report_all();
    world.run(100);
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{:?}",
        world.codes(&commit)
    );
}

// holds: RO-2
#[test]
fn each_wave_waits_for_the_windows_of_its_own_machines() {
    let (mut world, mut tree) = with_hosts_window("12:00", "12:04", Absent::Hold);
    for plan in tree.plans.values_mut() {
        plan.stages[1].batch = Some(Amount::Number(1));
        plan.stages[1].healthy.as_mut().unwrap().within_secs = 600;
    }
    world.now = "2026-11-29T12:03:45Z".parse().unwrap();
    world.report_all();
    let commit = world.merge(of_policy(tree));
    world.run(300);
    world.now = "2026-11-30T12:00:00Z".parse().unwrap();
    world.report_all();
    world.run(8);
    let ordered = |world: &World| world.archive[&commit].walk.as_ref().unwrap().reached.len();
    assert_eq!(ordered(&world), 2, "{:?}", asked(&world, &commit));
    // The first wave passes when the night is over: the second has another one to wait for.
    world.now = "2026-11-30T12:03:58Z".parse().unwrap();
    world.report_all();
    world.run(200);
    assert_eq!(ordered(&world), 2, "{:?}", world.codes(&commit));
    let said = asked(&world, &commit).waits_for;
    assert!(said.starts_with("the own maintenance windows of n"), "{said}");
    assert_eq!(world.state(&commit), State::Delivering);
}

// holds: RO-2, RO-9
#[test]
fn machines_whose_windows_are_never_open_together_keep_a_wave_until_each_was_open_once() {
    let (mut world, tree) = with_windows_of_two((("12:00", "12:05"), ("18:00", "18:05")), Absent::Wait);
    let commit = world.merge(of_policy(tree));
    world.run(200);
    let evening = "2026-11-29T18:00:00Z".parse().unwrap();
    let said = asked(&world, &commit);
    assert_eq!(
        (said.waits_for.as_str(), said.deadline),
        (
            "the own maintenance windows of n2, n3, then rest opens",
            Some(evening)
        ),
        "{:?}",
        world.codes(&commit)
    );
    world.now = evening;
    world.report_all();
    world.run(100);
    // n2, which is shut again by now, is ordered all the same: its host would keep the epoch until it opens.
    assert_eq!(
        world.state(&commit),
        State::Delivered,
        "{:?}",
        world.codes(&commit)
    );
    assert!(world.policy(3).unwrap().contains("two"), "its window is open");
}

// holds: DL-17, DL-4
#[test]
fn who_says_go_while_the_window_is_shut_means_now() {
    let mut world = World::at_rest(3);
    let commit = world.merge(in_window("18:00", "19:00"));
    assert_eq!(world.state(&commit), State::Held);
    world.say(Verb::Go, &commit);
    world.run(100);
    assert_eq!(world.state(&commit), State::Delivered);
}

// holds: DL-17, DL-7
#[test]
fn no_window_holds_a_roll_back() {
    let mut world = World::at_rest(3);
    set(&mut world, 1, Behaviour::Fails);
    let mut tree = change(|tree| {
        *tree = super::world::tree(3, "one", &[("web", "bad")]);
        tree.plans
            .values_mut()
            .for_each(|plan| plan.window = Some(window("12:00", "12:04")));
    });
    for plan in tree.plans.values_mut() {
        plan.stages[0].healthy.as_mut().unwrap().within_secs = 20;
    }
    let commit = world.merge(tree);
    world.run(1);
    // Its own window shuts in between: the order that takes back is urgent.
    world.hosts.get_mut(&node(1)).unwrap().windows = vec![window("18:00", "19:00")];
    world.run(120);
    assert_eq!(world.state(&commit), State::RolledBack);
    let last = world.declarations.iter().rfind(|d| d.node == node(1)).unwrap();
    assert!(last.urgent);
    assert_eq!(world.runs(1, "web").as_deref(), Some("one"));
}

// holds: DL-17, DL-19
#[test]
fn machines_whose_own_window_is_shut_are_waited_for_where_the_plan_holds() {
    let (mut world, tree) = with_hosts_window("12:10", "13:00", Absent::Hold);
    let commit = world.merge(tree);
    assert_eq!(world.codes(&commit), ["proposed (announced)", "held (window)"]);
    assert_eq!(
        world.archive[&commit].reason,
        "their own maintenance window is shut until 2026-11-29T12:10:00Z: n1, n2, n3"
    );
    world.run(390);
    assert_eq!(world.state(&commit), State::Held);
    world.run(110);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(world.runs(3, "web").as_deref(), Some("two"));
}

// holds: DL-17, DL-19
#[test]
fn where_the_plan_waits_the_time_of_a_machine_counts_from_when_its_window_opens() {
    let (mut world, tree) = with_hosts_window("12:10", "13:00", Absent::Wait);
    let commit = world.merge(tree);
    world.run(300);
    assert_eq!(
        world.state(&commit),
        State::Delivering,
        "{:?}",
        world.codes(&commit)
    );
    let canary = world.archive[&commit].walk.as_ref().unwrap().stages[0].machines[&node(1)].clone();
    assert_eq!(canary.verdict, None, "called silent while it may not begin");
    assert_eq!(
        canary.last,
        "its own maintenance window is shut until 2026-11-29T12:10:00Z"
    );
    let next = world.decide(&[]).next_at;
    assert_eq!(
        next,
        Some("2026-11-29T12:10:00Z".parse().unwrap()),
        "nobody is asked meanwhile"
    );
    world.run(200);
    assert_eq!(world.state(&commit), State::Delivered);
    assert_eq!(world.runs(3, "web").as_deref(), Some("two"));
}

// holds: DL-17, DL-19
#[test]
fn where_the_plan_skips_and_nobody_would_be_left_to_look_at_it_waits_for_the_first_window() {
    let (mut world, tree) = with_hosts_window("12:10", "13:00", Absent::Skip);
    let commit = world.merge(tree);
    assert_eq!(world.codes(&commit), ["proposed (announced)", "held (window)"]);
    world.run(405);
    // The canary first, as ever: nobody begins unwatched because all windows were shut.
    assert_eq!(world.state(&commit), State::Delivering);
    assert_eq!(world.runs(1, "web").as_deref(), Some("two"));
    assert_eq!(world.runs(2, "web").as_deref(), Some("one"));
    world.run(100);
    assert_eq!(world.state(&commit), State::Delivered);
}

// holds: DL-17, DL-4
#[test]
fn a_go_while_machines_wait_for_their_windows_begins_the_walk_and_takes_nobody_out_of_it() {
    let (mut world, tree) = with_hosts_window("12:10", "13:00", Absent::Hold);
    let commit = world.merge(tree);
    world.say(Verb::Go, &commit);
    assert_eq!(world.state(&commit), State::Delivering);
    world.run(395);
    assert_eq!(
        world.runs(1, "web").as_deref(),
        Some("one"),
        "a go opens no machine's window"
    );
    world.run(10);
    assert_eq!(world.runs(1, "web").as_deref(), Some("two"));
    assert_eq!(
        world.runs(2, "web").as_deref(),
        Some("one"),
        "the canary is looked at all the same"
    );
    world.run(100);
    assert_eq!(world.state(&commit), State::Delivered);
}

// holds: DL-17
#[test]
fn a_machine_that_has_begun_is_looked_at_though_its_window_has_shut() {
    let (mut world, tree) = with_hosts_window("12:00", "12:04", Absent::Hold);
    world.now = "2026-11-29T12:03:50Z".parse().unwrap();
    world.report_all();
    let commit = world.merge(tree);
    world.run(40);
    let canary = world.archive[&commit].walk.as_ref().unwrap().stages[0].machines[&node(1)].clone();
    assert_eq!(canary.opens, None);
    assert!(canary.verdict.is_some(), "{canary:?}");
}

// holds: DL-17
#[test]
fn a_hold_names_some_of_many_machines() {
    let (mut world, tree) = with_hosts_window("12:10", "13:00", Absent::Hold);
    let many = super::world::tree(300, "one", &[("web", "two")]);
    let tree = Composed {
        nodes: many.nodes,
        ..tree
    };
    for n in 4..=300 {
        world.join(n);
    }
    let commit = world.merge(tree);
    let reason = &world.archive[&commit].reason;
    assert!(reason.ends_with("n9, n10 and 290 more"), "{reason}");
}
