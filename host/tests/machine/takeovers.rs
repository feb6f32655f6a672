//! A process that takes over from what nothing declares any more (HK-7), on a machine in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use meshplan_host::edge::machine::{Applied, End, Machine};
use meshplan_schemas::declaration::{Mode, OnFailure};
use meshplan_schemas::report::Outcome;
use meshplan_schemas::resource::Resource;
use serde_json::json;

use crate::containers::{acts, apply, container, names, shown, world};
use crate::processes::process;
use crate::things::{outcomes, reason};
use crate::world::{Decl, World, because, file, path, settle};

fn old() -> Resource {
    container("old", json!({ "image": "web:1" }))
}

fn taker(replaces: &[&str]) -> Resource {
    process("web", json!({ "replaces": replaces }))
}

/// A machine on which the container `old` of the module `legacy` runs.
fn with_old() -> (World, Machine) {
    let world = world();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("legacy", vec![old(), file("f", "/srv/f", "x")]);
    settle(&mut machine, &decl);
    acts(&world);
    (world, machine)
}

/// The container is gone and the process is there.
fn handing(sequence: u64) -> Decl {
    Decl::new(sequence)
        .with("legacy", vec![file("f", "/srv/f", "x")])
        .with("app", vec![taker(&["legacy.old"])])
}

fn keeping(sequence: u64) -> Decl {
    let mut decl = handing(sequence);
    decl.declaration.on_failure = OnFailure::Keep;
    decl
}

fn kept(applied: &Applied) -> &str {
    let line = applied
        .lines
        .iter()
        .find(|line| line.name.to_string() == "legacy.old");
    let line = line.unwrap_or_else(|| panic!("nothing is said of it: {:?}", applied.lines));
    assert_eq!(line.outcome, Outcome::Kept, "{line:?}");
    &line.reason
}

fn runs(world: &World) -> bool {
    shown(world)
        .iter()
        .any(|line| line.starts_with("old ") && line.ends_with(" running"))
}

// holds: HK-7
#[test]
fn it_goes_once_the_process_is_up_and_comes_back_with_the_window() {
    for confirms in [true, false] {
        let (world, mut machine) = with_old();
        let before = shown(&world);
        let applied = apply(&mut machine, &handing(2));
        assert_eq!(applied.end, End::WindowOpen, "{applied:?}");
        let mut said = outcomes(&applied);
        said.sort();
        assert_eq!(
            said,
            [
                ("app.web".to_owned(), Outcome::Created),
                ("legacy.old".to_owned(), Outcome::Removed)
            ]
        );
        assert!(
            reason(&applied, "legacy.old").ends_with("app.web has taken over from it"),
            "{applied:?}"
        );
        assert_eq!(acts(&world), ["stop old", "rename old old.meshplan-old"]);
        machine.arm(100).unwrap();
        if confirms {
            machine.confirm(20).unwrap();
            assert_eq!(names(&world), Vec::<String>::new());
            assert_eq!(settle(&mut machine, &handing(3)).end, End::Converged);
        } else {
            machine.revert(&because("no"), 20).unwrap();
            assert_eq!(shown(&world), before);
            assert!(world.system.with(|sim| sim.units.is_empty()));
            let first = Decl::new(3).with("legacy", vec![old(), file("f", "/srv/f", "x")]);
            assert_eq!(
                settle(&mut machine, &first).end,
                End::Converged,
                "it is on record as before"
            );
        }
    }
}

// holds: HK-7
#[test]
fn while_the_process_dies_the_former_thing_runs_on_and_the_next_order_hands_it_over() {
    let (world, mut machine) = with_old();
    world.system.with(|sim| sim.weak.insert("web.service".to_owned()));
    let applied = settle(&mut machine, &keeping(2));
    assert!(kept(&applied).contains("app.web failed"), "{applied:?}");
    assert!(runs(&world) && acts(&world).is_empty());
    // It stays said, and between orders nothing is handed over.
    world.system.with(|sim| sim.weak.clear());
    let repaired = machine.repair(&keeping(2).get(), 30).unwrap();
    assert!(
        kept(&repaired).contains("the next order hands it over"),
        "{repaired:?}"
    );
    assert!(runs(&world) && acts(&world).is_empty());
    // A restart forgets nothing of it.
    drop(machine);
    let mut machine = world.machine();
    let applied = settle(&mut machine, &keeping(3));
    assert_eq!(
        outcomes(&applied),
        [("legacy.old".to_owned(), Outcome::Removed)],
        "{applied:?}"
    );
    assert_eq!(
        acts(&world),
        [
            "stop old",
            "rename old old.meshplan-old",
            "remove old.meshplan-old"
        ]
    );
}

// holds: HK-7
#[test]
fn one_that_was_skipped_or_cannot_be_started_takes_nothing_over() {
    let (world, mut machine) = with_old();
    let first = file("first", "/locked/first", "x");
    world.root.forbid(&path("/locked"));
    let mut decl = Decl::new(2)
        .with("legacy", vec![file("f", "/srv/f", "x")])
        .with("app", vec![first, taker(&["legacy.old"])]);
    decl.declaration.on_failure = OnFailure::Keep;
    let applied = settle(&mut machine, &decl);
    assert!(
        kept(&applied).contains("not attempted because app.first failed"),
        "{applied:?}"
    );
    assert!(runs(&world));

    let (world, mut machine) = with_old();
    world
        .system
        .with(|sim| sim.dying.insert("web.service".to_owned()));
    let applied = settle(&mut machine, &keeping(2));
    assert!(kept(&applied).contains("app.web: "), "{applied:?}");
    assert!(runs(&world));
}

// holds: HK-7, HR-5
#[test]
fn a_change_that_fails_and_goes_back_has_never_touched_the_former_thing() {
    let (world, mut machine) = with_old();
    let before = (shown(&world), world.targets());
    world.system.with(|sim| sim.weak.insert("web.service".to_owned()));
    let applied = apply(&mut machine, &handing(2));
    assert!(matches!(applied.end, End::Reverted { .. }), "{applied:?}");
    assert!(kept(&applied).contains("this change goes back"), "{applied:?}");
    assert_eq!((shown(&world), world.targets()), before);
    let stopped = acts(&world).into_iter().any(|act| act.starts_with("stop old"));
    assert!(!stopped, "it was stopped in between");
}

// holds: HK-7, HR-5
#[test]
fn one_that_took_longer_than_it_may_until_the_hand_over_goes_back_and_takes_nothing_away() {
    let asked = || Arc::new(AtomicUsize::new(0));
    // How often the time is asked for, the last time before the hand-over.
    let (_world, mut machine) = with_old();
    let all = asked();
    let count = Arc::clone(&all);
    machine.tell_time(move || {
        count.fetch_add(1, Ordering::Relaxed);
        0
    });
    assert_eq!(apply(&mut machine, &handing(2)).end, End::WindowOpen);
    let last = all.load(Ordering::Relaxed);

    let (world, mut machine) = with_old();
    let before = (shown(&world), world.targets());
    let count = asked();
    machine.tell_time(move || {
        if count.fetch_add(1, Ordering::Relaxed) + 1 < last {
            0
        } else {
            100_000
        }
    });
    let applied = apply(&mut machine, &handing(2));
    assert!(matches!(applied.end, End::Reverted { .. }), "{applied:?}");
    assert!(kept(&applied).contains("was not applied within"), "{applied:?}");
    assert_eq!((shown(&world), world.targets()), before);
    assert!(!acts(&world).iter().any(|act| act.starts_with("stop old")));
}

// holds: HK-7
#[test]
fn a_process_that_is_only_looked_at_or_refused_takes_nothing_over() {
    let (world, mut machine) = with_old();
    let mut decl = handing(2);
    decl.declaration.modules[1].mode = Mode::Observe;
    let applied = settle(&mut machine, &decl);
    assert!(kept(&applied).contains("not applied now"), "{applied:?}");
    // It stays said.
    for now in [30, 40] {
        let repaired = machine.repair(&decl.get(), now).unwrap();
        assert!(kept(&repaired).contains("not applied now"), "{repaired:?}");
    }
    let mut decl = handing(3);
    decl.declaration.modules[1].requires = vec!["no-such-thing".to_owned()];
    let applied = settle(&mut machine, &decl);
    assert!(kept(&applied).contains("not applied now"), "{applied:?}");
    assert!(runs(&world) && acts(&world).is_empty());
    settle(&mut machine, &handing(4));
    assert!(!runs(&world));
}

// holds: HK-7
#[test]
fn what_cannot_be_taken_over_refuses_the_module_and_touches_nothing() {
    let (world, mut machine) = with_old();
    let both = Decl::new(2)
        .with("legacy", vec![old(), file("f", "/srv/f", "x")])
        .with("app", vec![taker(&["legacy.old"])]);
    let applied = settle(&mut machine, &both);
    assert!(
        reason(&applied, "app.web").contains("legacy.old is still declared"),
        "{applied:?}"
    );
    let twice = Decl::new(3)
        .with("legacy", vec![file("f", "/srv/f", "x")])
        .with("app", vec![taker(&["legacy.old"])])
        .with(
            "beside",
            vec![process("other", json!({ "replaces": ["legacy.old"] }))],
        );
    let applied = apply(&mut machine, &twice);
    assert!(
        reason(&applied, "beside.other").contains("app.web takes over from legacy.old already"),
        "{applied:?}"
    );
    assert!(world.system.with(|sim| !sim.units.contains_key("other.service")));
}

// holds: HK-7
#[test]
fn a_process_takes_over_from_a_process_and_what_it_read() {
    let (world, mut machine) = with_old();
    let first = Decl::new(2).with(
        "legacy",
        vec![process("first", json!({})), file("conf", "/etc/first.conf", "x")],
    );
    settle(&mut machine, &first);
    let decl = Decl::new(3)
        .with("legacy", vec![file("f", "/srv/f", "x")])
        .with("app", vec![taker(&["legacy.first", "legacy.conf"])]);
    let before = world.targets();
    let applied = apply(&mut machine, &decl);
    assert_eq!(applied.end, End::WindowOpen, "{applied:?}");
    let acts = world.system.acts();
    let at = |word: &str| {
        acts.iter()
            .position(|act| act == word)
            .unwrap_or_else(|| panic!("{word}: {acts:?}"))
    };
    assert!(at("start web.service") < at("stop first.service"));
    assert!(!world.targets().contains_key("/etc/first.conf"));
    machine.revert(&because("no"), 20).unwrap();
    assert_eq!(world.targets(), before);
    assert!(world.system.with(|sim| sim.units["first.service"].is_up()));
}
