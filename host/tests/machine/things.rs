//! What is no path: units, users, groups, settings and steps, on a machine in memory.

use meshplan_host::edge::machine::{Applied, End};
use meshplan_schemas::declaration::OnFailure;
use meshplan_schemas::report::Outcome;
use meshplan_schemas::resource::Resource;
use serde_json::json;

use crate::world::{Decl, World, because, file, path, settle};

/// A resource of any kind.
pub(crate) fn resource(id: &str, kind: &str, spec: serde_json::Value) -> Resource {
    Resource {
        name: format!("x.{id}").parse().unwrap(),
        kind: kind.to_owned(),
        spec,
        forward_only: None,
        not_reversible: None,
        hides: Vec::new(),
    }
}

fn service(unit: &str, fields: serde_json::Value) -> Resource {
    let mut spec = json!({ "unit": unit });
    spec.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    resource("unit", "service", spec)
}

/// A file that restarts the module's unit.
fn conf(text: &str) -> Resource {
    let mut conf = file("conf", "/etc/web.conf", text);
    conf.spec["restarts"] = json!(["unit"]);
    conf
}

fn running() -> Resource {
    service("web.service", json!({ "state": "running", "enabled": true }))
}

fn world(active: &str, boot: &str) -> World {
    let world = World::new();
    world.system.with(|sim| sim.unit("web.service", active, boot));
    world
}

pub(crate) fn outcomes(applied: &Applied) -> Vec<(String, Outcome)> {
    let lines = applied.lines.iter();
    lines.map(|line| (line.name.to_string(), line.outcome)).collect()
}

pub(crate) fn reason(applied: &Applied, name: &str) -> String {
    let mut lines = applied.lines.iter();
    let line = lines.find(|line| line.name.to_string() == name);
    line.unwrap_or_else(|| panic!("no line of {name}: {:?}", applied.lines))
        .reason
        .clone()
}

// holds: HR-2, HR-3, HK-2, HK-5
#[test]
fn a_module_of_all_sorts_is_applied_once_and_ten_more_times_touch_nothing() {
    let world = world("inactive", "disabled");
    let mut conf = conf("a\n");
    conf.spec["owner"] = json!("web");
    conf.spec["group"] = json!("web");
    world.system.with(|sim| {
        sim.kernel
            .insert("/proc/sys/net/core/somaxconn".to_owned(), "128".to_owned());
        sim.programs.insert("make-it".to_owned(), 0);
    });
    let resources = vec![
        resource("group", "group", json!({ "name": "web" })),
        resource(
            "user",
            "user",
            json!({ "name": "web", "group": "web", "system": true }),
        ),
        conf,
        running(),
        resource(
            "many",
            "sysctl",
            json!({ "key": "net.core.somaxconn", "value": "1024" }),
        ),
        resource(
            "step",
            "action",
            json!({ "command": ["make-it"], "timeout_secs": 5 }),
        ),
    ];
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", resources);
    // In memory no tool writes the files of the user database.
    world.disk.plant(&path("/etc/passwd"), b"", 0o644);
    let first = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    assert_eq!(reason(&first, "web.conf"), "this machine has no user `web`");
    world.disk.plant(
        &path("/etc/passwd"),
        b"web:x:1000:1000::/home/web:/bin/sh\n",
        0o644,
    );
    world.disk.plant(&path("/etc/group"), b"web:x:1000:\n", 0o644);
    world.system.with(|sim| sim.log.clear());
    let second = settle(&mut machine, &decl);
    assert_eq!(second.end, End::WindowOpen, "{:?}", second.lines);
    assert!(
        second
            .lines
            .iter()
            .all(|line| line.outcome == Outcome::Created || line.outcome == Outcome::Updated)
    );
    assert_eq!(
        world.system.acts(),
        [
            "groupadd web",
            "useradd --no-create-home --system --gid 900 web",
            "enable web.service",
            "start web.service",
            "/proc/sys/net/core/somaxconn = 1024",
            "make-it",
        ],
        "a unit that is started after its file is not restarted as well"
    );
    for sequence in 2..12 {
        let again = Decl {
            declaration: meshplan_schemas::declaration::Declaration {
                sequence,
                ..decl.get()
            },
        };
        let applied = settle(&mut machine, &again);
        assert_eq!((applied.end, applied.lines), (End::Converged, Vec::new()));
    }
    assert_eq!(world.system.acts(), Vec::<String>::new());
}

// holds: HR-14, HK-5, HK-2
#[test]
fn what_goes_back_is_as_it_was_found_whatever_it_is() {
    let world = world("active", "enabled");
    world.system.with(|sim| {
        sim.kernel
            .insert("/proc/sys/net/core/somaxconn".to_owned(), "128".to_owned());
        sim.groups.insert("old".to_owned(), 77);
    });
    let settled = Decl::new(1).with("web", vec![file("conf", "/etc/web.conf", "a\n")]);
    let mut machine = world.machine();
    settle(&mut machine, &settled);
    let before = world
        .system
        .with(|sim| (sim.units.clone(), sim.groups.clone(), sim.kernel.clone()));
    let files = world.targets();
    let change = Decl::new(2).with(
        "web",
        vec![
            resource("group", "group", json!({ "name": "web" })),
            resource("old", "group", json!({ "name": "old", "absent": true })),
            resource("user", "user", json!({ "name": "web" })),
            conf("b\n"),
            service("web.service", json!({ "state": "masked", "enabled": false })),
            resource(
                "many",
                "sysctl",
                json!({ "key": "net.core.somaxconn", "value": "1024" }),
            ),
        ],
    );
    let applied = machine.apply(&change.get(), change.digest(), 10).unwrap();
    assert_eq!(applied.end, End::WindowOpen, "{:?}", applied.lines);
    assert!(
        world
            .system
            .with(|sim| sim.units["web.service"].is_masked() && sim.users.contains_key("web"))
    );
    let lines = machine.revert(&because("no"), 20).unwrap();
    assert!(
        lines.iter().all(|line| line.outcome == Outcome::Reverted),
        "{lines:?}"
    );
    let after = world
        .system
        .with(|sim| (sim.units.clone(), sim.groups.clone(), sim.kernel.clone()));
    let plain = |units: &std::collections::BTreeMap<String, meshplan_host::pure::unit::Unit>| {
        let unit = &units["web.service"];
        (unit.active.clone(), unit.boot.clone())
    };
    assert_eq!(
        (plain(&after.0), after.1, after.2),
        (plain(&before.0), before.1, before.2)
    );
    assert_eq!(world.targets(), files);
    assert!(world.system.with(|sim| sim.users.is_empty()));
    // And a start that finds nothing to do does nothing.
    drop(machine);
    world.system.with(|sim| sim.log.clear());
    let _again = world.machine();
    assert_eq!(world.system.acts(), Vec::<String>::new());
}

// holds: HK-1, HK-5
#[test]
fn a_changed_file_restarts_what_names_it_once_and_going_back_restarts_it_again() {
    let world = world("active", "enabled");
    let mut machine = world.machine();
    settle(
        &mut machine,
        &Decl::new(1).with("web", vec![conf("a\n"), running()]),
    );
    world.system.with(|sim| sim.log.clear());
    let mut other = file("other", "/etc/other.conf", "b\n");
    other.spec["reloads"] = json!(["unit"]);
    let change = Decl::new(2).with("web", vec![conf("b\n"), running(), other]);
    let applied = machine.apply(&change.get(), change.digest(), 10).unwrap();
    assert_eq!(
        outcomes(&applied),
        [
            ("web.conf".to_owned(), Outcome::Updated),
            ("web.other".to_owned(), Outcome::Created),
            ("web.unit".to_owned(), Outcome::Restarted)
        ]
    );
    assert_eq!(
        reason(&applied, "web.unit"),
        "restarted after web.conf, web.other"
    );
    assert_eq!(world.system.acts(), ["restart web.service"]);
    machine.revert(&because("no"), 20).unwrap();
    assert_eq!(
        world.system.acts(),
        ["systemctl daemon-reload", "restart web.service"]
    );
}

// holds: HR-2
#[test]
fn drift_of_a_unit_and_of_its_file_is_put_right_and_the_unit_restarted_for_the_file_alone() {
    let world = world("active", "enabled");
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![conf("a\n"), running()]);
    settle(&mut machine, &decl);
    world.system.with(|sim| {
        sim.unit("web.service", "inactive", "enabled");
        sim.log.clear();
    });
    let repaired = machine.repair(&decl.get(), 30).unwrap();
    assert_eq!(
        outcomes(&repaired),
        [("web.unit".to_owned(), Outcome::DriftRepaired)]
    );
    assert_eq!(world.system.acts(), ["start web.service"]);
    world.disk.plant(&path("/etc/web.conf"), b"somebody's\n", 0o644);
    let repaired = machine.repair(&decl.get(), 40).unwrap();
    assert_eq!(
        outcomes(&repaired),
        [
            ("web.conf".to_owned(), Outcome::DriftRepaired),
            ("web.unit".to_owned(), Outcome::Restarted)
        ]
    );
    assert_eq!(world.system.acts(), ["restart web.service"]);
}

// holds: HK-5, HR-13
#[test]
fn a_unit_that_dies_between_the_two_looks_has_failed_and_all_goes_back() {
    let world = world("inactive", "disabled");
    world.system.with(|sim| sim.weak.insert("web.service".to_owned()));
    let mut machine = world.machine();
    let decl = Decl::new(1).with("web", vec![conf("a\n"), running()]);
    let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    assert!(matches!(applied.end, End::Reverted { .. }), "{:?}", applied.end);
    assert!(
        reason(&applied, "web.unit").contains("died a moment later"),
        "{:?}",
        applied.lines
    );
    assert_eq!(world.targets().get("/etc/web.conf"), None);
    let unit = world.system.with(|sim| sim.units["web.service"].clone());
    assert_eq!(
        (unit.active.as_str(), unit.boot.as_str()),
        ("inactive", "disabled")
    );
}

// holds: HK-5
#[test]
fn a_unit_that_is_declared_no_more_is_given_back_as_it_was_found() {
    for (active, boot, acts, words) in [
        ("active", "enabled", vec![], "was there before the host"),
        (
            "inactive",
            "disabled",
            vec!["disable web.service", "stop web.service"],
            "is stopped",
        ),
    ] {
        let world = world(active, boot);
        let mut machine = world.machine();
        settle(&mut machine, &Decl::new(1).with("web", vec![running()]));
        world.system.with(|sim| sim.log.clear());
        let applied = settle(
            &mut machine,
            &Decl::new(2).with("web", vec![file("f", "/f", "x")]),
        );
        assert_eq!(world.system.acts(), acts, "{active}");
        assert!(
            reason(&applied, "web.unit").contains(words),
            "{:?}",
            applied.lines
        );
    }
}

// holds: HR-16, HK-5
#[test]
fn a_unit_is_handed_over_to_another_module_without_a_touch_and_a_moved_one_is_given_back() {
    let world = world("inactive", "disabled");
    world
        .system
        .with(|sim| sim.unit("new.service", "inactive", "disabled"));
    let mut machine = world.machine();
    settle(&mut machine, &Decl::new(1).with("web", vec![running()]));
    world.system.with(|sim| sim.log.clear());
    settle(&mut machine, &Decl::new(2).with("site", vec![running()]));
    assert_eq!(world.system.acts(), Vec::<String>::new());
    let moved = service("new.service", json!({ "state": "running" }));
    settle(&mut machine, &Decl::new(3).with("site", vec![moved]));
    assert_eq!(
        world.system.acts(),
        ["start new.service", "disable web.service", "stop web.service"]
    );
}

// holds: HR-6
#[test]
fn two_resources_with_one_unit_are_refused_and_nothing_is_touched() {
    let world = world("inactive", "disabled");
    let mut other = running();
    other.name = "x.other".parse().unwrap();
    let decl = Decl::new(1).with("web", vec![running(), other]);
    let applied = world.machine().apply(&decl.get(), decl.digest(), 10).unwrap();
    let End::NotBegun { why } = &applied.end else {
        panic!("{:?}", applied.end);
    };
    assert!(why.contains("unit:web.service"), "{why}");
    assert_eq!(world.system.acts(), Vec::<String>::new());
}

// holds: HR-4, HK-16
#[test]
fn a_step_that_fails_holds_back_every_module_after_it() {
    let world = world("inactive", "disabled");
    world
        .system
        .with(|sim| sim.programs.insert("make-it".to_owned(), 1));
    let step = resource(
        "step",
        "action",
        json!({ "command": ["make-it"], "timeout_secs": 5 }),
    );
    let mut decl = Decl::new(1).with("base", vec![step]).with("web", vec![running()]);
    decl.declaration.on_failure = OnFailure::Keep;
    decl.declaration.modules[1].after = vec!["base".parse().unwrap()];
    let applied = world.machine().apply(&decl.get(), decl.digest(), 10).unwrap();
    assert_eq!(
        outcomes(&applied),
        [
            ("base.step".to_owned(), Outcome::Failed),
            ("web.unit".to_owned(), Outcome::Skipped)
        ]
    );
    assert_eq!(world.system.acts(), ["make-it"]);
}

// holds: HR-8
#[test]
fn on_an_adopted_node_a_unit_that_was_there_is_held_until_it_is_taken() {
    let world = world("inactive", "disabled");
    let mut machine = world.machine();
    let mut decl = Decl::new(1).with("web", vec![running()]);
    decl.declaration.adopted = true;
    let applied = settle(&mut machine, &decl);
    assert_eq!(applied.end, End::Converged);
    let held = &applied.held[0].reason;
    assert!(
        held.contains("web is assigned and not taken") && held.contains("is started"),
        "{held}"
    );
    assert_eq!(world.system.acts(), Vec::<String>::new());
    decl.declaration.sequence = 2;
    decl.declaration.take = vec!["web".parse().unwrap()];
    settle(&mut machine, &decl);
    assert_eq!(world.system.acts(), ["enable web.service", "start web.service"]);
    settle(
        &mut machine,
        &Decl::new(3).with("other", vec![file("f", "/f", "x")]),
    );
    assert_eq!(world.system.acts(), ["disable web.service", "stop web.service"]);
}

// holds: DL-7, HK-2
#[test]
fn a_user_that_was_removed_stays_away_when_everything_else_goes_back() {
    let world = World::new();
    let mut machine = world.machine();
    let user = |absent| resource("user", "user", json!({ "name": "eve", "absent": absent }));
    settle(
        &mut machine,
        &Decl::new(1).with("web", vec![user(false), file("f", "/f", "a")]),
    );
    let change = Decl::new(2).with("web", vec![user(true), file("f", "/f", "b")]);
    let applied = machine.apply(&change.get(), change.digest(), 10).unwrap();
    assert_eq!(applied.end, End::WindowOpen, "{:?}", applied.lines);
    let lines = machine.revert(&because("no"), 20).unwrap();
    let of = |name: &str| lines.iter().find(|line| line.name.to_string() == name).unwrap();
    assert_eq!(of("web.user").outcome, Outcome::Kept);
    assert_eq!(of("web.f").outcome, Outcome::Reverted);
    assert!(world.system.with(|sim| sim.users.is_empty()));
    // Somebody else's user of that name is nobody's business once nothing is asked of it.
    settle(&mut machine, &Decl::new(3).with("web", vec![user(true)]));
    world.system.with(|sim| {
        let eve = serde_json::from_value(json!({
            "uid": 1, "gid": 1, "groups": [], "comment": "", "home": "/", "shell": "/bin/sh"
        }));
        sim.users.insert("eve".to_owned(), eve.unwrap());
    });
    settle(
        &mut machine,
        &Decl::new(4).with("web", vec![file("f", "/f", "c")]),
    );
    assert!(world.system.with(|sim| sim.users.contains_key("eve")));
}

// holds: HR-8
#[test]
fn a_held_unit_is_not_restarted_for_a_file_that_is_new() {
    let world = world("active", "disabled");
    let mut decl = Decl::new(1).with("web", vec![conf("a\n"), running()]);
    decl.declaration.adopted = true;
    let applied = settle(&mut world.machine(), &decl);
    assert_eq!(outcomes(&applied), [("web.conf".to_owned(), Outcome::Created)]);
    assert_eq!(world.system.acts(), Vec::<String>::new());
}

// holds: HK-1, HR-4
#[test]
fn what_was_not_restarted_as_something_failed_is_restarted_with_the_next_apply() {
    let world = world("active", "enabled");
    let mut machine = world.machine();
    settle(
        &mut machine,
        &Decl::new(1).with("web", vec![conf("a\n"), running()]),
    );
    world.system.with(|sim| sim.log.clear());
    let broken = resource(
        "gone",
        "service",
        json!({ "unit": "no.service", "state": "running" }),
    );
    let mut change = Decl::new(2).with("web", vec![conf("b\n"), running(), broken]);
    change.declaration.on_failure = OnFailure::Keep;
    let applied = settle(&mut machine, &change);
    assert!(applied.failed, "{:?}", applied.lines);
    assert!(!world.system.acts().contains(&"restart web.service".to_owned()));
    let applied = settle(
        &mut machine,
        &Decl::new(3).with("web", vec![conf("b\n"), running()]),
    );
    assert_eq!(
        reason(&applied, "web.unit"),
        "restarted, as a former change still asks for"
    );
    assert_eq!(world.system.acts(), ["restart web.service"]);
    assert_eq!(
        settle(
            &mut machine,
            &Decl::new(4).with("web", vec![conf("b\n"), running()])
        )
        .end,
        End::Converged
    );
}

// holds: HR-13
#[test]
fn the_hosts_own_units_are_no_resources() {
    let world = World::new();
    let own = resource(
        "own",
        "service",
        json!({ "unit": "meshplan-host.service", "state": "stopped" }),
    );
    let decl = Decl::new(1).with("web", vec![own]);
    let applied = world.machine().apply(&decl.get(), decl.digest(), 10).unwrap();
    assert!(
        reason(&applied, "web.own").contains("the host's own unit"),
        "{:?}",
        applied.lines
    );
}
