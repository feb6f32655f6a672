//! The machine in memory: what an apply, a confirm, a revert and a repair make of declarations.

use crate::world::{self, Decl, World, directory, file, file_with, link, path, probe};
use meshplan_host::edge::machine::{End, LedgerState, Machine, Recovered};
use meshplan_schemas::declaration::{Mode, OnFailure};
use meshplan_schemas::report::Outcome;

// holds: HR-2, HR-3
#[test]
fn an_unchanged_declaration_on_a_converged_machine_writes_nothing() {
    let world = World::new();
    let decl = Decl::new(1).with(
        "web",
        vec![
            directory("d", "/etc/web"),
            file("f", "/etc/web/conf", "one\n"),
            probe("p"),
        ],
    );
    let mut machine = world.machine();
    let first = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    assert_eq!(first.end, End::WindowOpen);
    let outcomes: Vec<Outcome> = first.lines.iter().map(|l| l.outcome).collect();
    assert_eq!(outcomes, [Outcome::Created; 3]);
    machine.arm(100).unwrap();
    machine.confirm(20).unwrap();
    world.disk.begin();
    for _ in 0..3 {
        let again = machine.apply(&decl.get(), decl.digest(), 30).unwrap();
        assert!(again.converged(), "{again:?}");
        assert!(again.lines.is_empty());
        assert!(machine.repair(&decl.get(), 30).unwrap().converged());
        assert!(machine.plan(&decl.get()).unwrap().is_empty());
    }
    assert_eq!(world.disk.acts(), 0, "an unchanged declaration wrote");
    let (_, recovery) = world.open();
    assert_eq!(recovery.window, Recovered::Clean);
    assert_eq!(world.disk.acts(), 0, "a start on a clean machine wrote");
}

// holds: HR-2
#[test]
fn a_new_number_for_the_same_content_only_changes_the_ledger() {
    let world = World::new();
    let mut machine = world.machine();
    let one = Decl::new(1).with("web", vec![file("f", "/f", "one\n")]);
    world::settle(&mut machine, &one);
    let two = Decl::new(2).with("web", vec![file("f", "/f", "one\n")]);
    let applied = machine.apply(&two.get(), two.digest(), 30).unwrap();
    assert!(applied.converged());
    let LedgerState::Known(ledger) = machine.ledger() else {
        panic!("lost")
    };
    assert_eq!(ledger.confirmed.unwrap().sequence, 2);
}

// holds: HR-6
#[test]
fn what_a_declaration_drops_goes_with_the_folders_that_the_host_made_for_it() {
    let world = World::new();
    let before = world.targets();
    let mut machine = world.machine();
    world::settle(
        &mut machine,
        &Decl::new(1).with(
            "web",
            vec![file("f", "/srv/a/b/f", "x"), link("l", "/srv/a/l", "b")],
        ),
    );
    let none = Decl::new(2);
    let applied = world::settle(&mut machine, &none);
    assert!(
        applied.lines.iter().all(|l| l.outcome == Outcome::Removed),
        "{:?}",
        applied.lines
    );
    assert_eq!(world.targets(), before);
}

// holds: HR-6
#[test]
fn a_directory_that_holds_what_is_not_the_hosts_is_kept_and_tried_again() {
    let world = World::new();
    let mut machine = world.machine();
    world::settle(
        &mut machine,
        &Decl::new(1).with("web", vec![directory("d", "/srv")]),
    );
    world.root.plant(&path("/srv/theirs"), b"", 0o644);
    let none = Decl::new(2);
    let applied = world::settle(&mut machine, &none);
    assert_eq!(applied.lines.first().unwrap().outcome, Outcome::Kept);
    world.disk.begin();
    let again = machine.apply(&none.get(), none.digest(), 50).unwrap();
    assert!(again.converged());
    assert_eq!(world.disk.acts(), 0, "a kept directory wrote");
    meshplan_host::edge::disk::atomic::remove_file(&world.root, &path("/srv/theirs")).unwrap();
    let gone = world::settle(&mut machine, &none);
    assert_eq!(gone.lines.first().unwrap().outcome, Outcome::Removed);
    assert!(!world.targets().contains_key("/srv"));
}

// holds: HR-6
#[test]
fn a_moved_target_leaves_nothing_behind() {
    let world = World::new();
    let mut machine = world.machine();
    world::settle(
        &mut machine,
        &Decl::new(1).with("web", vec![file("f", "/one", "x")]),
    );
    let applied = world::settle(
        &mut machine,
        &Decl::new(2).with("web", vec![file("f", "/two", "x")]),
    );
    assert_eq!(applied.lines.len(), 2, "{:?}", applied.lines);
    let targets = world.targets();
    assert!(
        targets.contains_key("/two") && !targets.contains_key("/one"),
        "{targets:?}"
    );
    // Below its own former file.
    world::settle(
        &mut machine,
        &Decl::new(3).with("web", vec![file("f", "/two/deep/f", "x")]),
    );
    assert!(world.targets().contains_key("/two/deep/f"));
}

// holds: HR-16
#[test]
fn a_module_that_is_renamed_hands_its_targets_over() {
    let world = World::new();
    let mut machine = world.machine();
    world::settle(
        &mut machine,
        &Decl::new(1).with("old", vec![file("f", "/f", "x")]),
    );
    let renamed = Decl::new(2).with("new", vec![file("f", "/f", "x")]);
    let applied = machine.apply(&renamed.get(), renamed.digest(), 30).unwrap();
    assert!(applied.converged() && applied.lines.is_empty(), "{applied:?}");
    let gone = world::settle(&mut machine, &Decl::new(3));
    assert_eq!(gone.lines.first().unwrap().name.to_string(), "new.f");
}

// holds: HR-4, HR-5
#[test]
fn a_failure_stops_its_own_module_and_with_revert_everything_goes_back() {
    let world = World::new();
    let mut machine = world.machine();
    world::settle(
        &mut machine,
        &Decl::new(1).with("web", vec![file("f", "/f", "old")]),
    );
    let before = world.targets();
    world.root.forbid(&path("/barred"));
    let modules = |sequence| {
        Decl::new(sequence)
            .with(
                "db",
                vec![
                    file("a", "/a", "x"),
                    file("bad", "/barred", "x"),
                    file("c", "/c", "x"),
                ],
            )
            .with("web", vec![file("f", "/f", "new")])
    };
    let bad = modules(2);
    let applied = machine.apply(&bad.get(), bad.digest(), 30).unwrap();
    let End::Reverted { reason } = &applied.end else {
        panic!("{applied:?}")
    };
    assert!(reason.blames_content());
    let why = reason.to_string();
    let noted = world.open().1.taken_back.unwrap();
    assert_eq!(noted.reason, *reason, "a start cannot tell that it did not stay");
    assert!(why.starts_with("db.bad: cannot"), "{why}");
    let line = |name: &str| applied.lines.iter().find(|l| l.name.to_string() == name).unwrap();
    assert_eq!(line("db.a").outcome, Outcome::Reverted);
    assert_eq!(line("db.bad").outcome, Outcome::Failed);
    assert_eq!(line("db.c").outcome, Outcome::Skipped);
    assert_eq!(line("db.c").reason, "not attempted because db.bad failed");
    assert_eq!(
        line("web.f").outcome,
        Outcome::Reverted,
        "another module was not attempted"
    );
    assert_eq!(world.targets(), before);
    assert!(machine.window().is_none());
    let mut keep = modules(3);
    keep.declaration.on_failure = OnFailure::Keep;
    let applied = machine.apply(&keep.get(), keep.digest(), 40).unwrap();
    assert!(applied.failed && applied.window_open());
    assert!(world.targets().contains_key("/a"));
    assert!(world.targets().get("/f").unwrap().contains("new"));
}

// holds: HR-13
#[test]
fn only_the_first_verdict_counts() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![file("f", "/f", "x")]);
    machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    machine.arm(50).unwrap();
    assert!(
        machine.apply(&decl.get(), decl.digest(), 11).is_err(),
        "a second window was opened"
    );
    machine
        .revert(&world::because("the link cannot be had"), 60)
        .unwrap();
    assert!(machine.confirm(61).is_err(), "a late confirm was taken");
    assert!(!world.targets().contains_key("/f"));
    machine.apply(&decl.get(), decl.digest(), 70).unwrap();
    machine.arm(100).unwrap();
    machine.confirm(80).unwrap();
    assert!(
        machine.revert(&world::because("late"), 81).is_err(),
        "what was confirmed was undone"
    );
    assert!(world.targets().contains_key("/f"));
}

// holds: EP-2, HR-13
#[test]
fn an_open_window_is_waited_for_under_its_own_boot_and_reverted_under_another() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![file("f", "/f", "x")]);
    machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    machine.arm(50).unwrap();
    let (again, recovery) = world.open();
    assert!(matches!(recovery.window, Recovered::StillOpen(ref w) if w.confirm_deadline == Some(50)));
    assert!(again.window().is_some());
    let (other, recovery) = world.open_under("another boot");
    let Recovered::Reverted { reason, lines, .. } = recovery.window else {
        panic!("not reverted")
    };
    assert_eq!(
        reason.to_string(),
        "interrupted: the machine was started anew while declaration 1 awaited its confirm"
    );
    assert_eq!(lines.first().unwrap().outcome, Outcome::Reverted);
    assert!(other.window().is_none());
    assert!(!world.targets().contains_key("/f"));
}

// holds: HR-8
#[test]
fn what_was_there_on_an_adopted_machine_is_held_until_taken_and_comes_back_in_the_end() {
    let world = World::new();
    world.root.plant(&path("/etc/motd"), b"theirs\n", 0o600);
    let theirs = world.targets();
    let mut machine = world.machine();
    let decl = |sequence, take: &[&str]| {
        let mut decl = Decl::new(sequence).with("web", vec![file("m", "/etc/motd", "ours\n")]);
        decl.declaration.adopted = true;
        decl.declaration.take = take.iter().map(|m| m.parse().unwrap()).collect();
        decl
    };
    let first = decl(1, &[]);
    let applied = machine.apply(&first.get(), first.digest(), 10).unwrap();
    assert!(
        applied.converged(),
        "a first declaration on an adopted machine changes nothing"
    );
    let held = applied.held.first().unwrap();
    assert_eq!(held.outcome, Outcome::Held);
    assert!(
        held.reason
            .starts_with("web is assigned and not taken: /etc/motd: 1 line lost, 1 new"),
        "{}",
        held.reason
    );
    assert_eq!(machine.held().len(), 1);
    world.disk.begin();
    assert!(
        machine
            .apply(&first.get(), first.digest(), 11)
            .unwrap()
            .converged()
    );
    assert_eq!(world.disk.acts(), 0, "a held thing wrote a second time");
    // Changed by hand meanwhile: the first original stays the original.
    world.root.plant(&path("/etc/motd"), b"by hand\n", 0o600);
    let taken = world::settle(&mut machine, &decl(2, &["web"]));
    assert_eq!(taken.lines.first().unwrap().outcome, Outcome::Updated);
    assert!(machine.held().is_empty());
    let mut none = Decl::new(3);
    none.declaration.adopted = true;
    world::settle(&mut machine, &none);
    assert_eq!(world.targets(), theirs);
}

// holds: HR-2, HR-17
#[test]
fn drift_is_put_right_and_a_contest_is_left() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![file("f", "/srv/f", "ours\n")]);
    world::settle(&mut machine, &decl);
    let ours = world.targets();
    for now in 0..3 {
        world.root.plant(&path("/srv/f"), b"theirs\n", 0o777);
        let repaired = machine.repair(&decl.get(), now).unwrap();
        assert_eq!(repaired.end, End::Repaired);
        assert_eq!(repaired.lines.first().unwrap().outcome, Outcome::DriftRepaired);
        assert_eq!(world.targets(), ours);
    }
    world.root.plant(&path("/srv/f"), b"theirs\n", 0o777);
    let left = machine.repair(&decl.get(), 4).unwrap();
    assert!(left.lines.first().unwrap().reason.starts_with("contested"));
    assert_ne!(world.targets(), ours);
    machine.repair(&decl.get(), 3601).unwrap();
    assert_eq!(world.targets(), ours);
}

// holds: HR-17
#[test]
fn a_clock_that_was_set_back_keeps_no_contest_alive() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![file("f", "/srv/f", "ours\n")]);
    world::settle(&mut machine, &decl);
    let ours = world.targets();
    for now in [100_000, 100_001, 100_002, 1000] {
        world.root.plant(&path("/srv/f"), b"theirs\n", 0o777);
        machine.repair(&decl.get(), now).unwrap();
        assert_eq!(world.targets(), ours, "at {now}");
    }
}

// holds: HR-17, HR-2
#[test]
fn what_could_not_be_put_right_is_no_contest_and_is_tried_again() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![file("f", "/srv/f", "ours\n")]);
    world::settle(&mut machine, &decl);
    let ours = world.targets();
    world.root.plant(&path("/srv/f"), b"theirs\n", 0o777);
    world.root.forbid(&path("/srv"));
    for now in 0..4 {
        let tried = machine.repair(&decl.get(), now).unwrap();
        assert_eq!(tried.lines.first().unwrap().outcome, Outcome::Failed, "{tried:?}");
    }
    world.root.permit();
    let repaired = machine.repair(&decl.get(), 5).unwrap();
    assert_eq!(repaired.lines.first().unwrap().outcome, Outcome::DriftRepaired);
    assert_eq!(world.targets(), ours);
}

// holds: HR-2
#[test]
fn observing_says_what_would_change_and_changes_nothing() {
    let world = World::new();
    let mut machine = world.machine();
    let mut decl = Decl::new(1).with("web", vec![file("f", "/f", "x")]);
    decl.declaration.mode = Mode::Observe;
    world.disk.begin();
    let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    assert_eq!(applied.end, End::Observed);
    assert!(
        applied
            .lines
            .first()
            .unwrap()
            .reason
            .contains("would change: /f is new")
    );
    assert_eq!(world.disk.acts(), 0);
}

// holds: SG-4
#[test]
fn a_kind_of_a_newer_build_refuses_its_module_and_no_other() {
    let world = World::new();
    let mut machine = world.machine();
    let mut newer = file("x", "/x", "x");
    newer.kind = "hologram".to_owned();
    let decl = Decl::new(1)
        .with("new", vec![file("f", "/f", "x"), newer])
        .with("web", vec![file("g", "/g", "x")]);
    let applied = world::settle(&mut machine, &decl);
    let refused: Vec<_> = applied
        .lines
        .iter()
        .filter(|l| l.outcome == Outcome::Refused)
        .collect();
    assert_eq!(refused.len(), 2);
    assert!(
        refused
            .iter()
            .all(|l| l.reason.contains("this build does not know the kind `hologram`"))
    );
    assert!(!applied.failed);
    let targets = world.targets();
    assert!(targets.contains_key("/g") && !targets.contains_key("/f"));
}

// holds: HR-6
#[test]
fn two_resources_with_one_target_or_a_target_among_the_hosts_own_files_are_refused_whole() {
    let world = World::new();
    let mut machine = world.machine();
    world.disk.begin();
    for decl in [
        Decl::new(1)
            .with("a", vec![file("f", "/f", "x")])
            .with("b", vec![file("f", "/f", "y")]),
        Decl::new(1).with("a", vec![file("f", "/var/lib/meshplan/ledger.json", "x")]),
        Decl::new(1).with("a", vec![file("f", "/f", "x"), file("f", "/g", "x")]),
        Decl::new(1).with("a", vec![link("l", "/l", "/srv"), file("f", "/l/f", "x")]),
    ] {
        let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
        assert!(matches!(applied.end, End::NotBegun { .. }), "{applied:?}");
    }
    assert_eq!(world.disk.acts(), 0);
}

// holds: HK-1
#[test]
fn a_directory_in_a_files_place_and_the_reverse_are_refused_before_anything_is_touched() {
    let world = World::new();
    world.root.plant(&path("/is-a-directory/x"), b"", 0o644);
    world.root.plant(&path("/is-a-file"), b"", 0o644);
    let mut machine = world.machine();
    world.disk.begin();
    for bad in [
        file("bad", "/is-a-directory", "x"),
        directory("bad", "/is-a-file"),
        link("bad", "/is-a-directory", "x"),
    ] {
        let decl = Decl::new(1).with("web", vec![file("f", "/f", "x"), bad]);
        let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
        assert!(
            matches!(&applied.end, End::NotBegun { why } if why.contains("it is not removed")),
            "{applied:?}"
        );
        assert!(applied.failed);
    }
    assert_eq!(world.disk.acts(), 0);
}

// holds: EP-2
#[test]
fn a_policy_is_written_in_both_places_confirmed_or_taken_back() {
    let world = World::new();
    let mut machine = world.machine();
    let first = machine.apply_policy("a = 1\n", 1, 60, 10).unwrap();
    assert!(first.window_open());
    machine.arm(50).unwrap();
    machine.confirm(20).unwrap();
    let before = world.disk.show();
    world.disk.begin();
    assert!(machine.apply_policy("a = 1\n", 2, 60, 30).unwrap().converged());
    assert_eq!(world.disk.acts(), 0, "the same policy wrote");
    assert!(machine.apply_policy("a = 2\n", 3, 60, 30).unwrap().window_open());
    assert_eq!(machine.policy().unwrap().unwrap(), b"a = 2\n");
    assert!(world.targets().get("/run/policy.toml").unwrap().contains("a = 2"));
    machine.arm(50).unwrap();
    machine.revert(&world::because("no link"), 60).unwrap();
    let mut after = world.disk.show();
    let mut before = before;
    // The reserve is taken again by the next apply.
    before.remove("/var/lib/meshplan/reserve");
    after.remove("/var/lib/meshplan/reserve");
    after.remove("/var/lib/meshplan/taken-back.json").unwrap();
    assert_eq!(after, before);
}

// holds: HK-1
#[test]
fn modes_and_parents_are_as_asked() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![file_with("f", "/srv/bin/run", "#!/bin/sh\n", "4755")]);
    world::settle(&mut machine, &decl);
    let targets = world.targets();
    assert!(
        targets.get("/srv/bin/run").unwrap().starts_with("file 4755 "),
        "{targets:?}"
    );
    assert!(targets.get("/srv/bin").unwrap().starts_with("folder 755 "));
}

#[test]
fn a_machine_opened_to_look_writes_nothing_and_refuses_to_work() {
    let world = World::new();
    let decl = Decl::new(1).with("web", vec![file("f", "/f", "x")]);
    world.disk.begin();
    let mut machine = Machine::look(world.setup("boot")).unwrap();
    assert_eq!(machine.plan(&decl.get()).unwrap().len(), 1);
    assert!(machine.apply(&decl.get(), decl.digest(), 1).is_err());
    assert!(machine.confirm(1).is_err());
    machine.release_reserve();
    assert_eq!(world.disk.acts(), 0);
}
