//! Packages, on a machine in memory whose apt and dpkg do what the host goes by.

use meshplan_host::edge::machine::{End, Recovered};
use meshplan_host::edge::system::sim::Packages;
use meshplan_schemas::report::Outcome;
use meshplan_schemas::resource::Resource;
use serde_json::json;

use crate::things::{outcomes, reason, resource};
use crate::world::{Decl, World, because, file, settle};

fn package(fields: &serde_json::Value) -> Resource {
    let mut spec = json!({ "name": "web", "restarts": ["unit"] });
    let given = fields.as_object().unwrap().clone();
    spec.as_object_mut().unwrap().extend(given);
    resource("web", "package", spec)
}

fn service() -> Resource {
    resource(
        "unit",
        "service",
        json!({ "unit": "web.service", "state": "running", "enabled": true }),
    )
}

/// A Debian machine whose repositories have `web`, which needs `libweb`.
fn world() -> World {
    let world = World::new();
    world.system.with(|sim| {
        sim.unit("web.service", "inactive", "disabled");
        sim.packages = Packages::debian(&[("web", &["1.0", "2.0"], &["libweb"]), ("libweb", &["1.0"], &[])]);
    });
    world
}

fn installed(world: &World) -> Vec<String> {
    let words = |(name, version): (&String, &String)| format!("{name} {version}");
    world
        .system
        .with(|sim| sim.packages.installed.iter().map(words).collect())
}

fn change(sequence: u64, fields: &serde_json::Value) -> Decl {
    let conf = file("conf", "/etc/web.conf", "a\n");
    Decl::new(sequence).with("web", vec![conf, package(fields), service()])
}

// holds: HK-3, HR-2, HR-3
#[test]
fn file_package_and_service_come_in_their_order_and_ten_more_times_run_nothing() {
    let world = world();
    let mut machine = world.machine();
    settle(&mut machine, &change(1, &json!({ "version": "1.0" })));
    assert_eq!(
        world.system.acts(),
        [
            "fetch web=1.0",
            "fetch web=1.0",
            "install web=1.0",
            "enable web.service",
            "start web.service"
        ],
        "fetched before the window, and once more what is here; nothing is restarted on top of its start"
    );
    for sequence in 2..12 {
        let applied = settle(&mut machine, &change(sequence, &json!({ "version": "1.0" })));
        assert_eq!((applied.end, applied.lines), (End::Converged, Vec::new()));
    }
    assert_eq!(world.system.acts(), Vec::<String>::new());
    let applied = settle(&mut machine, &change(12, &json!({ "version": "2.0" })));
    assert_eq!(
        outcomes(&applied),
        [
            ("web.web".to_owned(), Outcome::Updated),
            ("web.unit".to_owned(), Outcome::Restarted)
        ]
    );
}

// holds: HK-3, HR-14
#[test]
fn what_an_apply_installed_goes_when_it_goes_back_and_a_version_is_set_back() {
    let world = world();
    let mut machine = world.machine();
    let first = change(1, &json!({ "version": "1.0" }));
    machine.apply(&first.get(), first.digest(), 10).unwrap();
    assert_eq!(installed(&world), ["libweb 1.0", "web 1.0"]);
    let lines = machine.revert(&because("no"), 20).unwrap();
    assert!(
        lines.iter().all(|line| line.outcome == Outcome::Reverted),
        "{lines:?}"
    );
    assert_eq!(installed(&world), Vec::<String>::new());
    settle(&mut machine, &change(2, &json!({ "version": "1.0" })));
    let away = change(3, &json!({ "absent": true }));
    let other = change(4, &json!({ "version": "2.0" }));
    for decl in [away, other] {
        machine.apply(&decl.get(), decl.digest(), 10).unwrap();
        assert_ne!(installed(&world), ["libweb 1.0", "web 1.0"]);
        machine.revert(&because("no"), 20).unwrap();
        assert_eq!(installed(&world), ["libweb 1.0", "web 1.0"]);
    }
}

// holds: HK-3, HR-13
#[test]
fn after_a_power_cut_the_manager_is_brought_to_rest_before_packages_go() {
    let world = world();
    let mut machine = world.machine();
    let decl = change(1, &json!({}));
    machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    drop(machine);
    world.system.with(|sim| {
        sim.packages.is_interrupted = true;
        sim.log.clear();
    });
    let (_machine, recovery) = world.open_under("another");
    assert!(
        matches!(recovery.window, Recovered::Reverted { .. }),
        "{recovery:?}"
    );
    let acts = world.system.acts();
    let of_packages: Vec<&String> = acts.iter().filter(|act| act.starts_with("dpkg")).collect();
    assert_eq!(of_packages, ["dpkg --configure -a", "dpkg --remove web libweb"]);
    assert_eq!(installed(&world), Vec::<String>::new());
}

// holds: HK-3, HR-14
#[test]
fn what_cannot_be_fetched_touches_nothing() {
    let world = world();
    world.system.with(|sim| sim.packages.offers.clear());
    let decl = change(1, &json!({}));
    let applied = world.machine().apply(&decl.get(), decl.digest(), 10).unwrap();
    let End::NotBegun { why } = &applied.end else {
        panic!("{:?}", applied.end);
    };
    assert!(
        why.contains("do not have it") && why.contains("nothing was touched"),
        "{why}"
    );
    assert_eq!(world.targets().get("/etc/web.conf"), None);
    assert_eq!(world.system.acts(), ["apt-get update"]);
}

// holds: HK-3
#[test]
fn undeclaring_removes_nothing_and_what_was_asked_to_be_away_is_left_alone() {
    let world = world();
    let mut machine = world.machine();
    settle(&mut machine, &change(1, &json!({})));
    world.system.with(|sim| sim.log.clear());
    let applied = settle(
        &mut machine,
        &Decl::new(2).with("web", vec![file("f", "/f", "x"), service()]),
    );
    assert!(
        reason(&applied, "web.web").contains("undeclaring removes no package"),
        "{:?}",
        applied.lines
    );
    assert_eq!(installed(&world), ["libweb 1.0", "web 2.0"]);
    let never = resource("never", "package", json!({ "name": "never", "absent": true }));
    let applied = settle(&mut machine, &Decl::new(3).with("web", vec![never, service()]));
    assert_eq!(world.system.acts(), Vec::<String>::new(), "{:?}", applied.lines);
}

// holds: HK-3, HR-2, HR-8
#[test]
fn one_that_somebody_removed_comes_again_and_a_found_one_is_held_until_it_is_taken() {
    let world = world();
    let mut machine = world.machine();
    let decl = change(1, &json!({}));
    settle(&mut machine, &decl);
    world.system.with(|sim| sim.packages.installed.clear());
    let repaired = machine.repair(&decl.get(), 30).unwrap();
    assert_eq!(
        outcomes(&repaired),
        [
            ("web.web".to_owned(), Outcome::DriftRepaired),
            ("web.unit".to_owned(), Outcome::Restarted)
        ]
    );
    assert_eq!(installed(&world), ["libweb 1.0", "web 2.0"]);

    let world = self::world();
    world
        .system
        .with(|sim| sim.packages.installed.insert("web".to_owned(), "1.0".to_owned()));
    let mut machine = world.machine();
    let mut decl = Decl::new(1).with("web", vec![package(&json!({ "absent": true, "restarts": [] }))]);
    decl.declaration.adopted = true;
    let applied = settle(&mut machine, &decl);
    let held = &applied.held[0].reason;
    assert!(held.contains("web is assigned and not taken"), "{held}");
    assert_eq!(installed(&world), ["web 1.0"]);
    decl.declaration.sequence = 2;
    decl.declaration.take = vec!["web".parse().unwrap()];
    settle(&mut machine, &decl);
    assert_eq!(installed(&world), Vec::<String>::new());
}

// holds: HK-3, HR-6
#[test]
fn packages_of_one_name_for_different_managers_stand_in_one_declaration_and_one_package_has_one_resource() {
    let world = world();
    let mut machine = world.machine();
    let named = |id: &str, fields: serde_json::Value| resource(id, "package", fields);
    let both = vec![
        named("apt", json!({ "name": "web", "manager": "apt" })),
        named("dnf", json!({ "name": "web", "manager": "dnf", "absent": true })),
    ];
    settle(&mut machine, &Decl::new(1).with("web", both));
    assert_eq!(installed(&world), ["libweb 1.0", "web 2.0"]);
    let twice = vec![
        named("one", json!({ "name": "web" })),
        named("two", json!({ "name": "web:amd64" })),
    ];
    let twice = Decl::new(2).with("web", twice);
    let applied = machine.apply(&twice.get(), twice.digest(), 10).unwrap();
    let End::NotBegun { why } = &applied.end else {
        panic!("{applied:?}")
    };
    assert!(why.contains("web.one and web.two both name package:web"), "{why}");
}
