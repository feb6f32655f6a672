//! Programs as units of the host's own, on a machine in memory.

use meshplan_host::edge::machine::{End, Machine};
use meshplan_schemas::report::Outcome;
use meshplan_schemas::resource::Resource;
use serde_json::{Value, json};

use crate::things::{outcomes, reason, resource};
use crate::world::{Decl, World, because, file, path, settle};

/// A machine whose service manager reads the fleet's units.
fn world() -> World {
    let world = World::new();
    let disk = world.disk.clone();
    world.system.with(|sim| sim.disk = Some(disk));
    world
}

pub(crate) fn process(id: &str, fields: Value) -> Resource {
    let mut spec = json!({
        "name": id, "command": ["/usr/bin/web"], "run": "daemon", "restart": "always",
        "timeout_secs": 60, "stop_secs": 30, "witness": "none",
    });
    spec.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    resource(id, "process", spec)
}

fn daemon(command: &str) -> Resource {
    process("web", json!({ "command": [command] }))
}

/// The units that are up, and those that start at boot.
fn up(world: &World) -> (Vec<String>, Vec<String>) {
    world.system.with(|sim| {
        let name = |(name, _): (&String, _)| name.clone();
        let up = sim
            .units
            .iter()
            .filter(|(_, unit)| unit.is_up())
            .map(name)
            .collect();
        let boot = sim
            .units
            .iter()
            .filter(|(_, unit)| unit.is_enabled() == Some(true));
        (up, boot.map(|(name, _)| name.clone()).collect())
    })
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

fn apply(machine: &mut Machine, decl: &Decl) -> meshplan_host::edge::machine::Applied {
    machine.apply(&decl.get(), decl.digest(), 10).unwrap()
}

// holds: HK-6
#[test]
fn a_daemon_is_started_kept_restarted_for_another_build_and_taken_away_with_its_unit() {
    let world = world();
    let mut machine = world.machine();
    let applied = settle(
        &mut machine,
        &Decl::new(1).with("app", vec![daemon("/usr/bin/web")]),
    );
    assert_eq!(outcomes(&applied), [("app.web".to_owned(), Outcome::Created)]);
    assert_eq!(up(&world), (names(&["web.service"]), names(&["web.service"])));
    world.system.with(|sim| sim.log.clear());
    let applied = settle(
        &mut machine,
        &Decl::new(2).with("app", vec![daemon("/usr/bin/web")]),
    );
    assert_eq!((applied.end, world.system.acts()), (End::Converged, Vec::new()));
    settle(
        &mut machine,
        &Decl::new(3).with("app", vec![daemon("/usr/bin/web2")]),
    );
    assert_eq!(world.system.acts(), ["read units", "restart web.service"]);
    // Another module's from now on: nothing is touched.
    settle(
        &mut machine,
        &Decl::new(4).with("site", vec![daemon("/usr/bin/web2")]),
    );
    assert_eq!(world.system.acts(), Vec::<String>::new());
    let applied = settle(
        &mut machine,
        &Decl::new(5).with("site", vec![file("f", "/f", "x")]),
    );
    assert!(
        reason(&applied, "site.web").contains("its units are gone"),
        "{:?}",
        applied.lines
    );
    assert_eq!(up(&world), (Vec::new(), Vec::new()));
    assert_eq!(world.targets().get("/etc/systemd/system/web.service"), None);
}

// holds: HK-6, HR-14, HR-5
#[test]
fn a_build_that_dies_goes_back_and_the_former_runs_again() {
    let world = world();
    let mut machine = world.machine();
    settle(
        &mut machine,
        &Decl::new(1).with("app", vec![daemon("/usr/bin/web")]),
    );
    let before = world.targets();
    world.system.with(|sim| {
        sim.weak.insert("web.service".to_owned());
        sim.log.clear();
    });
    let applied = apply(
        &mut machine,
        &Decl::new(2).with("app", vec![daemon("/usr/bin/bad")]),
    );
    assert!(matches!(applied.end, End::Reverted { .. }), "{:?}", applied.end);
    assert_eq!(world.targets(), before);
    assert_eq!(up(&world), (names(&["web.service"]), names(&["web.service"])));
    assert_eq!(
        world.system.acts(),
        [
            "read units",
            "restart web.service",
            "systemctl daemon-reload",
            "enable web.service",
            "reset-failed web.service",
            "restart web.service"
        ]
    );
}

// holds: HK-6, HR-14
#[test]
fn a_new_daemon_that_is_taken_back_leaves_neither_unit_nor_file() {
    let world = world();
    let mut machine = world.machine();
    let before = world.targets();
    assert!(
        apply(
            &mut machine,
            &Decl::new(1).with("app", vec![daemon("/usr/bin/web")])
        )
        .window_open()
    );
    machine.revert(&because("no"), 20).unwrap();
    assert_eq!(world.targets(), before);
    assert!(world.system.with(|sim| sim.units.is_empty()));
}

// holds: HK-6
#[test]
fn what_runs_once_runs_once_a_build_and_its_failure_stops_its_module() {
    let world = world();
    let mut machine = world.machine();
    let step = |command: &str| {
        process(
            "migrate",
            json!({ "run": "once", "restart": "never", "command": [command] }),
        )
    };
    let decl =
        |sequence, command| Decl::new(sequence).with("app", vec![step(command), daemon("/usr/bin/web")]);
    let applied = settle(&mut machine, &decl(1, "/usr/bin/one"));
    assert!(
        reason(&applied, "app.migrate").contains("it cannot be undone"),
        "{:?}",
        applied.lines
    );
    let runs = |world: &World| {
        let acts = world.system.acts();
        acts.into_iter()
            .filter(|act| act == "start migrate.service")
            .count()
    };
    assert_eq!(runs(&world), 1);
    settle(&mut machine, &decl(2, "/usr/bin/one"));
    assert_eq!(runs(&world), 0);
    settle(&mut machine, &decl(3, "/usr/bin/two"));
    assert_eq!(runs(&world), 1);
    assert_eq!(
        up(&world).1,
        names(&["web.service"]),
        "what runs once starts at no boot"
    );
    world
        .system
        .with(|sim| sim.dying.insert("migrate.service".to_owned()));
    let mut broken = decl(4, "/usr/bin/three");
    broken.declaration.on_failure = meshplan_schemas::declaration::OnFailure::Keep;
    broken.declaration.resources[1] = {
        let mut other = daemon("/usr/bin/web2");
        other.name = "app.web".parse().unwrap();
        other
    };
    world.system.with(|sim| sim.log.clear());
    let applied = apply(&mut machine, &broken);
    assert_eq!(
        outcomes(&applied),
        [
            ("app.migrate".to_owned(), Outcome::Failed),
            ("app.web".to_owned(), Outcome::Skipped)
        ]
    );
    assert!(
        !world.system.acts().contains(&"restart web.service".to_owned()),
        "the former build stays up"
    );
}

// holds: HK-6, HK-9
#[test]
fn what_is_scheduled_is_kept_up_by_its_timer_and_a_changed_schedule_is_set_anew() {
    let world = world();
    let mut machine = world.machine();
    let backup = |calendar: &str| {
        process(
            "backup",
            json!({
                "run": "scheduled", "restart": "never", "schedule": { "calendar": calendar },
                "while_stopped": ["web"],
            }),
        )
    };
    let decl =
        |sequence, calendar| Decl::new(sequence).with("app", vec![daemon("/usr/bin/web"), backup(calendar)]);
    settle(&mut machine, &decl(1, "daily"));
    let both = names(&["backup.timer", "web.service"]);
    assert_eq!(up(&world), (both.clone(), both));
    let unit = world.targets()["/etc/systemd/system/backup.service"].clone();
    assert!(unit.contains("ExecStopPost=+systemctl start"), "{unit}");
    world.system.with(|sim| sim.log.clear());
    assert_eq!(settle(&mut machine, &decl(2, "daily")).end, End::Converged);
    let applied = settle(&mut machine, &decl(3, "weekly"));
    assert_eq!(outcomes(&applied), [("app.backup".to_owned(), Outcome::Updated)]);
    assert_eq!(world.system.acts(), ["read units", "restart backup.timer"]);
    // It becomes a daemon: no timer is left.
    let other = process("backup", json!({}));
    settle(
        &mut machine,
        &Decl::new(4).with("app", vec![daemon("/usr/bin/web"), other]),
    );
    assert_eq!(up(&world).0, names(&["backup.service", "web.service"]));
    assert_eq!(world.targets().get("/etc/systemd/system/backup.timer"), None);
}

// holds: HR-6
#[test]
fn no_other_resource_may_have_the_unit_or_the_file_of_a_process() {
    for other in [
        file("f", "/etc/systemd/system/web.service", "x"),
        resource(
            "s",
            "service",
            json!({ "unit": "web.service", "state": "running" }),
        ),
    ] {
        let world = world();
        let decl = Decl::new(1).with("app", vec![daemon("/usr/bin/web"), other]);
        let applied = apply(&mut world.machine(), &decl);
        assert!(matches!(applied.end, End::NotBegun { .. }), "{applied:?}");
    }
    let world = world();
    world
        .disk
        .plant(&path("/etc/systemd/system/web.service"), b"[Service]\n", 0o644);
    let mut decl = Decl::new(1).with("app", vec![daemon("/usr/bin/web")]);
    decl.declaration.adopted = true;
    let applied = settle(&mut world.machine(), &decl);
    assert_eq!(applied.end, End::Converged, "what was there is held: {applied:?}");
    assert_eq!(applied.held.len(), 1);
}

// holds: HR-14, HK-6
#[test]
fn a_daemon_follows_its_file_there_and_back() {
    let world = world();
    let mut machine = world.machine();
    let conf = |text: &str, key: &str| {
        let mut conf = file("conf", "/etc/web.conf", text);
        conf.spec[key] = json!(["web"]);
        conf
    };
    let decl =
        |sequence, text, key| Decl::new(sequence).with("app", vec![conf(text, key), daemon("/usr/bin/web")]);
    settle(&mut machine, &decl(1, "a\n", "restarts"));
    for (sequence, key, word) in [
        (2, "restarts", "restart"),
        (3, "reloads", "reload-or-try-restart"),
    ] {
        world.system.with(|sim| sim.log.clear());
        assert!(apply(&mut machine, &decl(sequence, "b\n", key)).window_open());
        assert_eq!(world.system.acts(), [format!("{word} web.service")]);
        machine.revert(&because("no"), 20).unwrap();
        let acts = world.system.acts();
        assert_eq!(acts.last(), Some(&format!("{word} web.service")), "{acts:?}");
    }
}

// holds: HK-6
#[test]
fn what_ran_once_does_not_run_again_for_a_unit_file_that_somebody_changed_or_another_module() {
    let world = world();
    let mut machine = world.machine();
    let once = || process("migrate", json!({ "run": "once", "restart": "never" }));
    let decl = Decl::new(1).with("app", vec![once()]);
    settle(&mut machine, &decl);
    world.system.with(|sim| sim.log.clear());
    world.disk.plant(
        &path("/etc/systemd/system/migrate.service"),
        b"[Service]\n",
        0o644,
    );
    machine.repair(&decl.get(), 30).unwrap();
    settle(&mut machine, &Decl::new(2).with("site", vec![once()]));
    assert_eq!(world.system.acts(), ["read units"]);
}

// holds: HK-6, HR-16
#[test]
fn a_daemon_that_becomes_scheduled_stops_and_a_unit_that_is_still_a_process_is_no_other_resource() {
    let world = world();
    let mut machine = world.machine();
    settle(
        &mut machine,
        &Decl::new(1).with("app", vec![daemon("/usr/bin/web")]),
    );
    let other = resource(
        "s",
        "service",
        json!({ "unit": "web.service", "state": "running" }),
    );
    let applied = apply(&mut machine, &Decl::new(2).with("app", vec![other]));
    let End::NotBegun { why } = &applied.end else {
        panic!("{applied:?}");
    };
    assert!(why.contains("still the process web of app.web"), "{why}");
    let nightly = json!({ "run": "scheduled", "restart": "never", "schedule": { "calendar": "daily" } });
    settle(
        &mut machine,
        &Decl::new(3).with("app", vec![process("web", nightly)]),
    );
    assert_eq!(up(&world), (names(&["web.timer"]), names(&["web.timer"])));
}
