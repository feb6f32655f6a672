//! The machine in trouble: no room, files of its own lost or broken, a way back that is barred.

use crate::world::{self, Decl, World, file, link, path, reboot};
use meshplan_host::edge::machine::{End, LedgerState, Machine, MachineError, Recovered};
use meshplan_host::pure::agent::Basis;
use meshplan_schemas::declaration::OnFailure;
use meshplan_schemas::report::Outcome;

// holds: HR-14
#[test]
fn a_change_for_which_there_is_no_room_touches_nothing() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![file("f", "/f", &"x".repeat(100_000))]);
    world.disk.begin();
    for (bytes, files) in [(100_000, None), (0, None), (1 << 30, Some(3))] {
        world.disk.set_space(bytes, files);
        let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
        assert!(
            matches!(&applied.end, End::NotBegun { why } if why.starts_with("no room: ")),
            "{applied:?}"
        );
        assert!(
            applied
                .lines
                .first()
                .unwrap()
                .reason
                .starts_with("not attempted because no room")
        );
    }
    assert_eq!(world.disk.acts(), 0);
}

// holds: HR-15
#[test]
fn with_a_lost_ledger_nothing_is_removed_and_a_rebuilt_one_still_removes_nothing() {
    for broken in [
        b"".as_slice(),
        b"{\"version\":1,",
        &[0xff; 512],
        b"{\"version\":99}",
    ] {
        let world = World::new();
        let mut machine = world.machine();
        let decl = Decl::new(1).with("web", vec![file("f", "/f", "x"), file("g", "/g", "x")]);
        world::settle(&mut machine, &decl);
        world.state.plant(&path("/ledger.json"), broken, 0o600);
        let (mut machine, recovery) = world.open();
        assert!(matches!(recovery.ledger, LedgerState::Unknown { .. }));
        machine
            .rebuild(&decl.get(), decl.digest(), Basis::Confirmed)
            .unwrap();
        assert!(machine.repair(&decl.get(), 5).unwrap().converged());
        let fewer = Decl::new(2).with("web", vec![file("f", "/f", "x")]);
        let applied = world::settle(&mut machine, &fewer);
        assert_eq!(applied.lines.first().unwrap().outcome, Outcome::Forgotten);
        assert!(
            world.targets().contains_key("/g"),
            "something was removed on a lost ledger's word"
        );
    }
}

// holds: HR-15
#[test]
fn a_rebuilt_ledger_knows_drift_again() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![file("f", "/f", "x"), file("g", "/g", "x")]);
    world::settle(&mut machine, &decl);
    world.state.plant(&path("/ledger.json"), b"", 0o600);
    world.root.plant(&path("/f"), b"theirs", 0o644);
    let (mut machine, _) = world.open();
    machine
        .rebuild(&decl.get(), decl.digest(), Basis::Confirmed)
        .unwrap();
    let repaired = machine.repair(&decl.get(), 5).unwrap();
    assert_eq!(repaired.lines.first().unwrap().outcome, Outcome::DriftRepaired);
}

// holds: HR-15, B40
#[test]
fn broken_files_of_a_window_lead_back_or_are_set_aside_and_never_stop_a_start() {
    for (name, broken) in [
        ("/window/window.json", b"".as_slice()),
        ("/window/window.json", &[0xff; 64]),
        ("/window/verdict.json", b""),
        ("/window/journal.json", b"{"),
    ] {
        let world = World::new();
        let mut machine = world.machine();
        let decl = Decl::new(1).with("web", vec![file("f", "/f", "x")]);
        machine.apply(&decl.get(), decl.digest(), 10).unwrap();
        machine.arm(50).unwrap();
        world.state.plant(&path(name), broken, 0o600);
        let (machine, recovery) = world.open_under("another boot");
        assert!(machine.window().is_none(), "{name}");
        if name == "/window/journal.json" {
            assert!(matches!(machine.ledger(), LedgerState::Unknown { .. }));
            assert!(world.state.show().contains_key("/window.broken"));
        } else {
            assert!(!world.targets().contains_key("/f"), "{name}: {recovery:?}");
        }
        assert!(!world.state.show().contains_key("/window"));
    }
}

// holds: HR-5
#[test]
fn a_way_back_that_is_barred_is_said_tried_again_and_given_up_by_the_next_apply() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![file("f", "/f", "x"), file("g", "/g", "x")]);
    machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    machine.arm(50).unwrap();
    world.root.forbid(&path("/f"));
    let lines = machine.revert(&world::because("no link"), 60).unwrap();
    assert_eq!(
        lines
            .iter()
            .find(|l| l.outcome == Outcome::Failed)
            .unwrap()
            .name
            .to_string(),
        "web.f"
    );
    assert!(
        !world.targets().contains_key("/g"),
        "what was not barred did not go back"
    );
    let (machine, recovery) = world.open();
    let Recovered::FinishedRevert { reason, .. } = recovery.window else {
        panic!("not finished")
    };
    assert_eq!(reason, world::because("no link"), "the reason of then is lost");
    drop(machine);
    let mut machine = world.machine();
    let two = Decl::new(2).with("web", vec![file("h", "/h", "x")]);
    assert!(machine.apply(&two.get(), two.digest(), 70).unwrap().window_open());
}

// holds: HR-17, HR-5
#[test]
fn a_way_back_that_was_barred_is_walked_to_its_end_and_no_drift_is_put_right_for_it() {
    let world = World::new();
    let mut machine = world.machine();
    assert_eq!(machine.finish().unwrap(), None);
    world::settle(
        &mut machine,
        &Decl::new(1).with("web", vec![file("d", "/d", "x")]),
    );
    let two = Decl::new(2).with("web", vec![file("d", "/d", "x"), file("f", "/f", "x")]);
    machine.apply(&two.get(), two.digest(), 10).unwrap();
    assert!(machine.finish().is_err(), "a window is open");
    machine.arm(50).unwrap();
    world.root.forbid(&path("/f"));
    machine.revert(&world::because("no link"), 60).unwrap();
    world.root.plant(&path("/d"), b"theirs", 0o644);
    let lines = machine.finish().unwrap().unwrap();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines.first().unwrap().name.to_string(), "web.f");
    world.root.permit();
    assert_eq!(machine.finish().unwrap(), Some(vec![]));
    assert!(!world.targets().contains_key("/f"), "it is not back");
    assert!(world.targets()["/d"].contains("theirs"), "drift was put right");
    assert_eq!(machine.finish().unwrap(), None);
    assert!(!world.state.show().contains_key("/window"));
}

// holds: HR-14, B40
#[test]
fn a_disk_that_fills_at_any_write_leaves_the_old_or_the_new_and_a_way_to_say_so() {
    let old = Decl::new(1).with("web", vec![file("f", "/f", "old"), file("gone", "/gone", "x")]);
    let new = Decl::new(2).with(
        "web",
        vec![
            file("f", "/f", "new"),
            file("g", "/a/b/g", "g"),
            link("l", "/l", "f"),
        ],
    );
    let mut ends = [0; 3];
    for blocks in 0..200 {
        let world = World::new();
        let mut machine = world.machine();
        world::settle(&mut machine, &old);
        let before = world.targets();
        // Asked for room it says there is plenty: somebody else fills the disk meanwhile.
        world.disk.full_after(blocks);
        match machine
            .apply(&new.get(), new.digest(), 10)
            .map(|applied| applied.end)
        {
            Ok(End::NotBegun { why }) => {
                assert!(why.starts_with("no room"), "{why}");
                ends[0] += 1;
            }
            Ok(End::Reverted { reason }) => {
                let why = reason.to_string();
                assert!(why.contains("no storage space"), "{why}");
                ends[1] += 1;
            }
            Ok(End::WindowOpen) => {
                machine.arm(100).unwrap();
                machine.confirm(20).unwrap();
                ends[2] += 1;
                continue;
            }
            other => panic!("{blocks} blocks: {other:?}"),
        }
        assert_eq!(world.targets(), before, "{blocks} blocks: not as before");
        machine.release_reserve();
        let (_, recovery) = world.open();
        assert_eq!(recovery.window, Recovered::Clean, "{blocks} blocks");
    }
    assert!(ends.iter().all(|n| *n > 0), "{ends:?}");
}

// holds: HR-13
#[test]
fn a_confirm_whose_clean_up_fails_stays_a_confirm_and_is_cleaned_up_later() {
    for barred in ["/ledger.json", "/window.done"] {
        let world = World::new();
        let mut machine = world.machine();
        let decl = Decl::new(1).with("web", vec![file("f", "/f", "x")]);
        machine.apply(&decl.get(), decl.digest(), 10).unwrap();
        machine.arm(50).unwrap();
        world.state.forbid(&path(barred));
        assert!(machine.confirm(20).is_err(), "{barred}");
        let late = machine.revert(&world::because("late"), 60);
        assert!(!matches!(late, Ok(_) | Err(MachineError::NoWindow)), "{late:?}");
        assert!(
            machine.repair(&decl.get(), 61).is_err(),
            "worked by the old ledger"
        );
        world.state.permit();
        assert_eq!(
            machine.confirm(62).unwrap().to_string(),
            "declaration 1",
            "{barred}"
        );
        let two = Decl::new(2).with("web", vec![file("f", "/f", "y")]);
        assert!(world::settle(&mut machine, &two).window_open(), "{barred}");
    }
}

// holds: HR-13
#[test]
fn a_revert_after_a_confirm_that_was_not_cleaned_up_cleans_up_and_says_that_it_is_too_late() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![file("f", "/f", "x")]);
    machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    machine.arm(50).unwrap();
    world.state.forbid(&path("/ledger.json"));
    assert!(machine.confirm(20).is_err());
    world.state.permit();
    assert!(matches!(
        machine.revert(&world::because("late"), 60),
        Err(MachineError::Decided(_))
    ));
    assert!(world.targets().contains_key("/f"));
    assert!(!world.state.show().contains_key("/window"));
    let LedgerState::Known(ledger) = machine.ledger() else {
        panic!("lost")
    };
    assert_eq!(ledger.confirmed.unwrap().sequence, 1);
}

// holds: HR-13
#[test]
fn an_apply_that_breaks_off_inside_its_window_is_taken_back_before_the_next() {
    for (barred, targets) in [
        ("/window/verdict.json", true),
        ("/window.new/journal.json", false),
    ] {
        let world = World::new();
        let mut machine = world.machine();
        let before = world.targets();
        world.state.forbid(&path(barred));
        world.root.forbid(&path("/barred"));
        let bad = Decl::new(1).with("web", vec![file("f", "/f", "x"), file("g", "/barred", "x")]);
        machine.apply(&bad.get(), bad.digest(), 10).unwrap_err();
        assert_eq!(machine.window().is_some(), targets, "{barred}");
        assert_eq!(world.targets() != before, targets, "{barred}");
        world.state.permit();
        let good = Decl::new(2).with("web", vec![file("h", "/h", "x")]);
        assert!(
            machine
                .apply(&good.get(), good.digest(), 20)
                .unwrap()
                .window_open()
        );
        assert!(!world.targets().contains_key("/f"));
    }
}

// holds: HR-5
#[test]
fn a_repair_tries_a_barred_way_back_again_and_does_nothing_else_until_it_is_free() {
    let world = World::new();
    let mut machine = world.machine();
    let one = Decl::new(1).with("web", vec![file("f", "/f", "one"), file("g", "/g", "one")]);
    world::settle(&mut machine, &one);
    let two = Decl::new(2).with("web", vec![file("f", "/f", "two"), file("g", "/g", "one")]);
    machine.apply(&two.get(), two.digest(), 10).unwrap();
    machine.arm(50).unwrap();
    world.root.forbid(&path("/f"));
    machine.revert(&world::because("no link"), 60).unwrap();
    world.root.plant(&path("/g"), b"theirs", 0o644);
    for now in 61..63 {
        let repaired = machine.repair(&one.get(), now).unwrap();
        assert!(repaired.failed && matches!(repaired.end, End::NotBegun { .. }));
        assert_eq!(repaired.lines.first().unwrap().outcome, Outcome::Failed);
        assert!(world.state.show().contains_key("/window"), "given up by a repair");
        assert!(world.targets().get("/g").unwrap().contains("theirs"));
    }
    let three = Decl::new(3).with("web", vec![file("g", "/g", "three")]);
    let _end = machine.apply(&three.get(), three.digest(), 70).unwrap();
    let kept = world.state.show();
    assert!(
        kept.contains_key("/window.broken/journal.json"),
        "the way back is lost"
    );
}

// holds: HR-15
#[test]
fn a_ledger_made_from_a_declaration_that_was_never_tried_says_that_nothing_is_confirmed() {
    let world = World::new();
    let mut machine = world.machine();
    world::settle(
        &mut machine,
        &Decl::new(1).with("web", vec![file("f", "/f", "x")]),
    );
    world.state.plant(&path("/ledger.json"), b"", 0o600);
    let two = Decl::new(2).with("web", vec![file("f", "/f", "x"), file("g", "/g", "new")]);
    let (mut machine, _) = world.open();
    machine.rebuild(&two.get(), two.digest(), Basis::Untried).unwrap();
    // The power goes before the apply.
    let (mut machine, recovery) = world.open();
    let LedgerState::Known(ledger) = recovery.ledger else {
        panic!("lost")
    };
    assert_eq!(ledger.confirmed, None);
    let applied = machine.apply(&two.get(), two.digest(), 10).unwrap();
    assert_eq!(
        applied.lines.first().unwrap().outcome,
        Outcome::Created,
        "{applied:?}"
    );
    machine.arm(50).unwrap();
    machine.revert(&world::because("no link"), 60).unwrap();
    let LedgerState::Known(ledger) = machine.ledger() else {
        panic!("lost")
    };
    assert_eq!(ledger.confirmed, None);
}

// holds: HR-4, HR-5
#[test]
fn what_failed_or_is_refused_is_said_by_every_repair_until_it_is_done() {
    let world = World::new();
    let mut machine = world.machine();
    let mut newer = file("x", "/x", "x");
    newer.kind = "hologram".to_owned();
    let mut decl = Decl::new(1)
        .with("new", vec![newer])
        .with("web", vec![file("bad", "/barred", "x"), file("f", "/f", "x")]);
    decl.declaration.on_failure = OnFailure::Keep;
    world.root.forbid(&path("/barred"));
    world::settle(&mut machine, &decl);
    world.root.permit();
    let outcome = |machine: &mut Machine, name: &str| {
        let repaired = machine.repair(&decl.get(), 100).unwrap();
        let line = repaired.lines.iter().find(|l| l.name.to_string() == name);
        line.map(|l| l.outcome)
    };
    for _ in 0..2 {
        assert_eq!(outcome(&mut machine, "new.x"), Some(Outcome::Refused));
        assert_eq!(outcome(&mut machine, "web.bad"), Some(Outcome::Failed));
    }
    // What cannot be done any more is said as well.
    world.root.plant(&path("/barred/x"), b"", 0o644);
    assert_eq!(outcome(&mut machine, "web.bad"), Some(Outcome::Refused));
}

// holds: HR-5
#[test]
fn an_apply_that_takes_longer_than_it_may_is_taken_back_between_two_steps() {
    let world = World::new();
    let mut machine = world.machine();
    let before = world.targets();
    let mut decl = Decl::new(1).with(
        "web",
        vec![file("f", "/f", "x"), file("g", "/g", "x"), file("h", "/h", "x")],
    );
    decl.declaration.on_failure = OnFailure::Keep;
    decl.declaration.apply_secs = 60;
    let asked = std::sync::atomic::AtomicI64::new(0);
    // A minute goes by with each step.
    machine.tell_time(move || 10 + 59 * asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    let End::Reverted { reason } = &applied.end else {
        panic!("{applied:?}")
    };
    assert!(!reason.blames_content());
    assert!(reason.to_string().contains("within 60 s"), "{reason}");
    assert_eq!(world.targets(), before);
}

// holds: SG-4
#[test]
fn a_module_with_a_kind_that_this_host_does_not_have_is_refused_whole_and_the_others_go_on() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = Decl::new(1)
        .with("base", vec![file("f", "/f", "x")])
        .with("web", vec![file("g", "/g", "x"), reboot("s")]);
    let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    assert!(world.targets().contains_key("/f") && !world.targets().contains_key("/g"));
    let of_web: Vec<_> = (applied.lines.iter())
        .filter(|line| line.name.module.as_str() == "web")
        .collect();
    assert_eq!(of_web.len(), 2, "{applied:?}");
    for line in of_web {
        assert_eq!(line.outcome, Outcome::Refused);
        assert!(
            line.reason.contains("this host does not have the kind `reboot`"),
            "{line:?}"
        );
    }
}
