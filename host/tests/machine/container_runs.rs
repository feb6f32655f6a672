//! Containers that run once or by a timer, and what is stopped around a run, on a machine in memory.

use meshplan_host::edge::disk::Disk as _;
use meshplan_host::edge::machine::End;
use meshplan_schemas::declaration::OnFailure;
use meshplan_schemas::report::Outcome;
use meshplan_schemas::resource::Resource;
use serde_json::{Value, json};

use crate::containers::{acts, apply, container, engine, web, world};
use crate::things::{outcomes, reason, resource};
use crate::world::{Decl, World, because, file, path, settle};

fn once(id: &str, image: &str, fields: Value) -> Resource {
    let mut spec = json!({ "image": image, "run": "once", "restart": "never" });
    spec.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    container(id, spec)
}

/// A machine whose image `step:N` ends by itself.
fn with_steps() -> World {
    let world = world();
    engine(&world, |sim| {
        for (image, code) in [("step:1", 0), ("step:2", 0), ("step:3", 7)] {
            sim.images.insert(image.to_owned(), format!("id-of-{image}"));
            sim.ending.insert(image.to_owned(), code);
        }
    });
    world
}

// holds: HK-8, HK-6
#[test]
fn what_runs_once_runs_once_a_build_and_while_it_fails_the_former_build_stays_up() {
    let world = with_steps();
    let mut machine = world.machine();
    let decl = |sequence, step: &str, image: &str| {
        let prepare = once("web-prepare", step, json!({ "prepares_for": "web" }));
        Decl::new(sequence).with("app", vec![prepare, web(image)])
    };
    let applied = settle(&mut machine, &decl(1, "step:1", "web:1"));
    assert!(
        reason(&applied, "app.web-prepare").contains("it cannot be undone"),
        "{:?}",
        applied.lines
    );
    assert_eq!(
        acts(&world),
        ["make web-prepare", "start web-prepare", "make web", "start web"]
    );
    assert_eq!(
        settle(&mut machine, &decl(2, "step:1", "web:1")).end,
        End::Converged
    );
    settle(&mut machine, &decl(3, "step:2", "web:1"));
    let runs = acts(&world)
        .into_iter()
        .filter(|act| act == "start web-prepare")
        .count();
    assert_eq!(runs, 1);
    // Somebody removes it: what ran stays done.
    engine(&world, |sim| drop(sim.containers.remove("web-prepare")));
    let repaired = machine.repair(&decl(3, "step:2", "web:1").get(), 30).unwrap();
    assert_eq!((repaired.end, acts(&world)), (End::Converged, Vec::new()));
    for on_failure in [OnFailure::Keep, OnFailure::Revert] {
        let mut bad = decl(4, "step:3", "web:2");
        bad.declaration.on_failure = on_failure;
        let applied = apply(&mut machine, &bad);
        assert!(reason(&applied, "app.web-prepare").contains("ran once and ended with 7"));
        assert!(outcomes(&applied).contains(&("app.web".to_owned(), Outcome::Skipped)));
        let image = engine(&world, |sim| {
            (sim.containers["web"].container.image.clone(), sim.up())
        });
        assert_eq!(image, ("web:1".to_owned(), vec!["web".to_owned()]));
        if applied.window_open() {
            machine.revert(&because("no"), 20).unwrap();
        }
    }
}

fn backup(every_secs: u32, while_stopped: &[&str]) -> Resource {
    let fields = json!({
        "image": "step:1", "run": "scheduled", "restart": "never", "schedule": { "every_secs": every_secs },
        "while_stopped": while_stopped,
    });
    container("backup", fields)
}

/// The text of a file; empty where there is none.
fn text_at(world: &World, at: &str) -> String {
    let bytes = world.disk.read(&path(at)).unwrap_or_default();
    String::from_utf8(bytes).unwrap()
}

const UNIT: &str = "/etc/systemd/system/container-backup.service";
const LAUNCHER: &str = "\"/usr/bin/meshplan-launcher\" \"container\" \"/run/sim.sock\"";

// holds: HK-8, HK-9
#[test]
fn what_is_scheduled_is_made_and_started_by_its_timer_and_starts_again_what_it_stopped() {
    let world = with_steps();
    let mut machine = world.machine();
    let unit = |world: &World| text_at(world, UNIT);
    let other = || {
        let spec = json!({
            "name": "other", "command": ["/usr/bin/other"], "run": "daemon", "restart": "always", "timeout_secs": 60,
            "stop_secs": 30, "witness": "none",
        });
        resource("other", "process", spec)
    };
    let decl = |sequence, every_secs| {
        let all = vec![web("web:1"), other(), backup(every_secs, &["web", "other"])];
        Decl::new(sequence).with("app", all)
    };
    settle(&mut machine, &decl(1, 60));
    assert_eq!(acts(&world), ["make web", "start web", "make backup"]);
    let id = engine(&world, |sim| sim.containers["backup"].container.id.clone());
    let text = unit(&world);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("Exec")).collect();
    assert_eq!(
        lines,
        [
            format!("ExecStart={LAUNCHER} \"run\" \"backup\""),
            format!("ExecStartPre=+{LAUNCHER} \"stop\" \"web\""),
            "ExecStartPre=+systemctl stop \"other.service\"".to_owned(),
            format!("ExecStopPost=-+{LAUNCHER} \"stop\" \"backup\""),
            "ExecStopPost=-+systemctl start \"other.service\"".to_owned(),
            format!("ExecStopPost=+{LAUNCHER} \"start\" \"web\""),
        ]
    );
    assert!(
        world
            .system
            .with(|sim| sim.units["container-backup.timer"].is_up())
    );
    assert_eq!(settle(&mut machine, &decl(2, 60)).end, End::Converged);
    // Another schedule makes no other container, and is taken back with its window.
    let before = world.targets();
    let applied = apply(&mut machine, &decl(3, 90));
    assert!(
        reason(&applied, "app.backup").contains("its timer"),
        "{applied:?}"
    );
    assert_ne!(world.targets(), before);
    machine.revert(&because("no"), 20).unwrap();
    assert_eq!(world.targets(), before);
    assert!(
        world
            .system
            .with(|sim| sim.units["container-backup.timer"].is_up())
    );
    assert_eq!(
        engine(&world, |sim| sim.containers["backup"].container.id.clone()),
        id
    );
    // While it runs, what it stopped is down, and that is no drift.
    acts(&world);
    world.system.with(|sim| {
        "activating".clone_into(&mut sim.units.get_mut("container-backup.service").unwrap().active);
    });
    engine(&world, |sim| {
        sim.containers.get_mut("web").unwrap().container.state.status = "exited".to_owned();
    });
    let during = machine.repair(&decl(2, 60).get(), 30).unwrap();
    assert_eq!(
        (during.end, acts(&world)),
        (End::Converged, Vec::new()),
        "{:?}",
        during.lines
    );
    world.system.with(|sim| {
        "inactive".clone_into(&mut sim.units.get_mut("container-backup.service").unwrap().active);
    });
    let after = machine.repair(&decl(2, 60).get(), 40).unwrap();
    assert_eq!(
        (after.end, acts(&world)),
        (End::Repaired, vec!["start web".to_owned()]),
        "{:?}",
        after.lines
    );
    // Undeclared, container and units go.
    settle(
        &mut machine,
        &Decl::new(4).with("app", vec![file("f", "/f", "x"), web("web:1")]),
    );
    assert_eq!(unit(&world), "");
    assert_eq!(
        engine(&world, |sim| sim.containers.keys().cloned().collect::<Vec<_>>()),
        ["web"]
    );
}

// holds: HK-9
#[test]
fn a_scheduled_process_stops_a_container_and_a_name_that_is_none_is_refused() {
    let world = with_steps();
    let mut machine = world.machine();
    let process = |id: &str| {
        let spec = json!({
            "name": "dump", "command": ["/usr/bin/dump"], "run": "scheduled", "restart": "never", "timeout_secs": 60,
            "stop_secs": 30, "witness": "none", "schedule": { "every_secs": 60 }, "while_stopped": [id],
        });
        resource("dump", "process", spec)
    };
    settle(
        &mut machine,
        &Decl::new(1).with("app", vec![web("web:1"), process("web")]),
    );
    let text = text_at(&world, "/etc/systemd/system/dump.service");
    assert!(
        text.contains(&format!("ExecStopPost=+{LAUNCHER} \"start\" \"web\"")),
        "{text}"
    );
    let applied = settle(
        &mut machine,
        &Decl::new(2).with("app", vec![web("web:1"), process("none")]),
    );
    assert!(
        reason(&applied, "app.dump").contains("names none, which is no process or container"),
        "{applied:?}"
    );
    let new = Decl::new(3).with("app", vec![backup(60, &[])]);
    assert!(apply(&mut machine, &new).window_open());
    machine.revert(&because("no"), 20).unwrap();
    assert!(!world.targets().contains_key(UNIT));
    assert!(!engine(&world, |sim| sim.containers.contains_key("backup")));
}
