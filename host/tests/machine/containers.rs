//! Containers, networks and volumes, on a machine in memory.

use meshplan_host::edge::engine::sim::Sim;
use meshplan_host::edge::machine::{Applied, End, Machine, Recovered};
use meshplan_host::pure::target_path::TargetPath;
use meshplan_schemas::declaration::OnFailure;
use meshplan_schemas::report::Outcome;
use meshplan_schemas::resource::Resource;
use serde_json::{Value, json};

use crate::things::{outcomes, reason, resource};
use crate::world::{Decl, World, because, file, settle};

/// A machine with an engine that has two images.
pub(crate) fn world() -> World {
    let world = World::new();
    let disk = world.disk.clone();
    world.system.with(|sim| sim.disk = Some(disk));
    engine(&world, |sim| {
        for image in ["web:1", "web:2"] {
            sim.images.insert(image.to_owned(), format!("id-of-{image}"));
        }
    });
    world
}

pub(crate) fn engine<T>(world: &World, act: impl FnOnce(&mut Sim) -> T) -> T {
    world.system.engine.with(act)
}

pub(crate) fn container(id: &str, fields: Value) -> Resource {
    let mut spec = json!({
        "name": id, "image": "web:1", "run": "daemon", "restart": "always", "timeout_secs": 60, "stop_secs": 10,
        "witness": "none",
    });
    spec.as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    resource(id, "container", spec)
}

pub(crate) fn web(image: &str) -> Resource {
    container("web", json!({ "image": image }))
}

pub(crate) fn apply(machine: &mut Machine, decl: &Decl) -> Applied {
    machine.apply(&decl.get(), decl.digest(), 10).unwrap()
}

pub(crate) fn acts(world: &World) -> Vec<String> {
    world.system.engine.acts()
}

/// What there is, each with its image and whether it runs.
pub(crate) fn shown(world: &World) -> Vec<String> {
    engine(world, |sim| {
        let all = sim.containers.iter();
        all.map(|(name, made)| {
            let container = &made.container;
            format!(
                "{name} {} {} {}",
                container.id, container.image, container.state.status
            )
        })
        .collect()
    })
}

pub(crate) fn names(world: &World) -> Vec<String> {
    engine(world, |sim| sim.containers.keys().cloned().collect())
}

// holds: HK-8, B38
#[test]
fn a_container_is_made_once_and_an_order_that_nobody_changed_makes_none_anew() {
    let world = world();
    engine(&world, |sim| {
        for network in ["a", "b"] {
            sim.networks.insert(network.to_owned(), Default::default());
        }
    });
    let mut machine = world.machine();
    let of = |sequence, networks: &[&str], env: &str| {
        let fields =
            json!({ "networks": networks, "hosts": ["x:1.1.1.1", "y:1.1.1.2"], "env": { "A": env } });
        Decl::new(sequence).with("app", vec![container("web", fields)])
    };
    let applied = settle(&mut machine, &of(1, &["a", "b"], "1"));
    assert_eq!(outcomes(&applied), [("app.web".to_owned(), Outcome::Created)]);
    assert_eq!(acts(&world), ["make web", "start web", "join web b"]);
    for sequence in 2..6 {
        let applied = settle(&mut machine, &of(sequence, &["b", "a"], "1"));
        assert_eq!((applied.end, acts(&world)), (End::Converged, Vec::new()));
    }
    // Another module's from now on: nothing is touched (HR-16).
    let mut moved = of(6, &["a", "b"], "1");
    moved.declaration.modules[0].module = "site".parse().unwrap();
    moved.declaration.resources[0].name = "site.web".parse().unwrap();
    assert_eq!(settle(&mut machine, &moved).end, End::Converged);
    assert_eq!(acts(&world), Vec::<String>::new());
    let mut changed = of(7, &["a", "b"], "2");
    changed.declaration.modules[0].module = "site".parse().unwrap();
    changed.declaration.resources[0].name = "site.web".parse().unwrap();
    settle(&mut machine, &changed);
    assert_eq!(
        acts(&world),
        [
            "stop web",
            "rename web web.meshplan-old",
            "make web",
            "start web",
            "join web b",
            "remove web.meshplan-old"
        ]
    );
    assert_eq!(names(&world), ["web"]);
}

// holds: HK-8, HR-14, HR-5
#[test]
fn the_former_container_waits_for_the_confirm_and_comes_back_as_it_was() {
    for confirms in [true, false] {
        let world = world();
        let mut machine = world.machine();
        settle(&mut machine, &Decl::new(1).with("app", vec![web("web:1")]));
        let before = shown(&world);
        let applied = apply(&mut machine, &Decl::new(2).with("app", vec![web("web:2")]));
        assert_eq!(applied.end, End::WindowOpen, "{:?}", applied.lines);
        assert_eq!(names(&world), ["web", "web.meshplan-old"]);
        assert_eq!(engine(&world, |sim| sim.up()), ["web"]);
        machine.arm(100).unwrap();
        if confirms {
            machine.confirm(20).unwrap();
            assert_eq!(names(&world), ["web"]);
            assert!(shown(&world)[0].contains("web:2 running"));
        } else {
            machine.revert(&because("no"), 20).unwrap();
            assert_eq!(shown(&world), before);
        }
        let end = acts(&world);
        drop(machine);
        let _again = world.machine();
        assert_eq!(acts(&world), Vec::<String>::new(), "after {end:?}");
    }
}

// holds: HK-8, HR-14
#[test]
fn one_that_is_new_goes_with_its_window_and_one_that_is_swept_comes_back() {
    let world = world();
    let mut machine = world.machine();
    assert!(apply(&mut machine, &Decl::new(1).with("app", vec![web("web:1")])).window_open());
    machine.revert(&because("no"), 20).unwrap();
    assert_eq!(names(&world), Vec::<String>::new());
    settle(
        &mut machine,
        &Decl::new(2).with("app", vec![web("web:1"), file("f", "/f", "x")]),
    );
    let before = shown(&world);
    let without = Decl::new(3).with("app", vec![file("f", "/f", "x")]);
    let applied = apply(&mut machine, &without);
    assert!(applied.window_open(), "{applied:?}");
    assert!(reason(&applied, "app.web").contains("goes with the confirm"));
    assert_eq!(engine(&world, |sim| sim.up()), Vec::<String>::new());
    machine.revert(&because("no"), 20).unwrap();
    assert_eq!(shown(&world), before);
    settle(&mut machine, &without);
    assert_eq!(names(&world), Vec::<String>::new());
}

// holds: HK-8, HR-5
#[test]
fn a_build_that_ends_or_dies_or_is_unhealthy_goes_back_and_the_former_runs_again() {
    type Breaks = fn(&mut Sim);
    let breaks: [(&str, Breaks); 5] = [
        ("it is exited with 3", |sim| {
            sim.ending.insert("web:2".to_owned(), 3);
        }),
        ("started again by the engine", |sim| {
            sim.weak.insert("web:2".to_owned());
        }),
        ("does not run well: it is running, unhealthy", |sim| {
            sim.unhealthy.insert("web:2".to_owned());
        }),
        ("make web", |sim| {
            sim.failing.insert("make web".to_owned());
        }),
        ("cannot join b", |sim| {
            sim.full.insert("b".to_owned());
        }),
    ];
    for (words, break_it) in breaks {
        for on_failure in [OnFailure::Revert, OnFailure::Keep] {
            let world = world();
            let mut machine = world.machine();
            settle(&mut machine, &Decl::new(1).with("app", vec![web("web:1")]));
            let before = shown(&world);
            engine(&world, |sim| {
                sim.networks.insert("a".to_owned(), Default::default());
                sim.networks.insert("b".to_owned(), Default::default());
                break_it(sim);
            });
            let fields = json!({ "image": "web:2", "networks": ["a", "b"] });
            let mut bad = Decl::new(2).with("app", vec![container("web", fields)]);
            bad.declaration.on_failure = on_failure;
            let applied = apply(&mut machine, &bad);
            assert!(
                reason(&applied, "app.web").contains(words),
                "{words}: {:?}",
                applied.lines
            );
            // What dies only between the looks is noticed when it stands already.
            let is_late = words.starts_with("started again") || words.starts_with("does not run");
            if on_failure == OnFailure::Revert {
                assert!(matches!(applied.end, End::Reverted { .. }), "{:?}", applied.end);
                assert_eq!(shown(&world), before, "{words}");
            } else if !is_late && words != "it is exited with 3" {
                // The rest of the window stays; the former one runs on.
                assert_eq!(shown(&world), before, "{words}");
            }
        }
    }
}

// holds: HK-8, HR-10
#[test]
fn an_engine_that_does_not_answer_is_never_one_that_has_nothing() {
    let world = world();
    let mut machine = world.machine();
    let decl = Decl::new(1).with("app", vec![web("web:1"), file("f", "/f", "x")]);
    settle(&mut machine, &decl);
    let before = shown(&world);
    engine(&world, |sim| {
        sim.is_deaf = true;
        sim.log.clear();
    });
    let repaired = machine.repair(&decl.get(), 30).unwrap();
    assert!(repaired.failed && repaired.end == End::Converged, "{repaired:?}");
    assert!(reason(&repaired, "app.web").contains("did not answer"));
    // Asked for otherwise, and not asked for at all.
    let applied = apply(&mut machine, &Decl::new(2).with("app", vec![web("web:2")]));
    assert!(matches!(applied.end, End::NotBegun { .. }), "{applied:?}");
    let applied = settle(
        &mut machine,
        &Decl::new(3).with("app", vec![file("f", "/f", "y")]),
    );
    assert!(
        reason(&applied, "app.web").contains("is not removed"),
        "{applied:?}"
    );
    engine(&world, |sim| sim.is_deaf = false);
    assert_eq!((shown(&world), acts(&world)), (before, Vec::new()));
    // It is tried again.
    settle(
        &mut machine,
        &Decl::new(4).with("app", vec![file("f", "/f", "y")]),
    );
    assert_eq!(names(&world), Vec::<String>::new());
}

// holds: HK-8, HR-14
#[test]
fn a_way_back_that_the_engine_bars_is_walked_again() {
    let world = world();
    let mut machine = world.machine();
    settle(&mut machine, &Decl::new(1).with("app", vec![web("web:1")]));
    let before = shown(&world);
    apply(&mut machine, &Decl::new(2).with("app", vec![web("web:2")]));
    engine(&world, |sim| sim.is_deaf = true);
    let lines = machine.revert(&because("no"), 20).unwrap();
    assert!(
        lines.iter().any(|line| line.outcome == Outcome::Failed),
        "{lines:?}"
    );
    engine(&world, |sim| sim.is_deaf = false);
    drop(machine);
    let (_machine, recovery) = world.open();
    assert!(
        matches!(recovery.window, Recovered::FinishedRevert { .. }),
        "{recovery:?}"
    );
    assert_eq!(shown(&world), before);
}

// holds: HK-8, HR-14
#[test]
fn an_image_is_fetched_before_anything_is_touched_and_goes_with_the_last_container_that_the_host_had_of_it() {
    let world = world();
    let mut machine = world.machine();
    settle(&mut machine, &Decl::new(1).with("app", vec![web("web:1")]));
    acts(&world);
    let third = Decl::new(2).with("app", vec![file("f", "/f", "x"), web("web:3")]);
    let applied = apply(&mut machine, &third);
    let End::NotBegun { why } = &applied.end else {
        panic!("{applied:?}");
    };
    assert!(why.contains("web:3 is not here and cannot be fetched"), "{why}");
    assert_eq!(
        (acts(&world), world.targets().contains_key("/f")),
        (Vec::new(), false)
    );
    engine(&world, |sim| {
        for image in ["web:3", "web:4"] {
            sim.registry.insert(image.to_owned(), format!("id-of-{image}"));
        }
    });
    settle(&mut machine, &third);
    assert_eq!(acts(&world)[0], "pull web:3");
    // The first image was there before the host; only what the host fetched goes.
    settle(&mut machine, &Decl::new(3).with("app", vec![web("web:4")]));
    assert!(acts(&world).contains(&"remove image id-of-web:3".to_owned()));
    assert!(engine(&world, |sim| sim.images.contains_key("web:1")));
    // A tag is resolved when the container is made: one that moves changes nothing.
    engine(&world, |sim| {
        sim.images.insert("web:4".to_owned(), "id-of-another".to_owned())
    });
    let same = Decl::new(4).with("app", vec![web("web:4")]);
    assert_eq!(
        (settle(&mut machine, &same).end, acts(&world)),
        (End::Converged, Vec::new())
    );
}

// holds: HK-8, HR-2, B38
#[test]
fn what_somebody_stopped_removed_or_took_from_its_network_is_put_right_and_said() {
    let world = world();
    engine(&world, |sim| {
        sim.networks.insert("a".to_owned(), Default::default())
    });
    let mut machine = world.machine();
    let decl = Decl::new(1).with("app", vec![container("web", json!({ "networks": ["a"] }))]);
    settle(&mut machine, &decl);
    acts(&world);
    type Drifts = fn(&mut Sim);
    let drifts: [(Drifts, &[&str]); 4] = [
        (
            |sim| sim.containers.get_mut("web").unwrap().container.state.status = "exited".to_owned(),
            &["start web"],
        ),
        (
            |sim| drop(sim.containers.remove("web")),
            &["make web", "start web"],
        ),
        (
            |sim| sim.containers.get_mut("web").unwrap().container.networks.clear(),
            &["join web a"],
        ),
        (
            |sim| {
                sim.containers.remove("web");
                sim.found("web", "theirs");
            },
            &[
                "stop web",
                "rename web web.meshplan-old",
                "make web",
                "start web",
                "remove web.meshplan-old",
            ],
        ),
    ];
    for (at, (drift, expected)) in drifts.into_iter().enumerate() {
        engine(&world, drift);
        let repaired = machine
            .repair(&decl.get(), 10_000 * i64::try_from(at).unwrap())
            .unwrap();
        assert_eq!(
            outcomes(&repaired),
            [("app.web".to_owned(), Outcome::DriftRepaired)]
        );
        assert_eq!(acts(&world), expected);
        let again = machine
            .repair(&decl.get(), 10_000 * i64::try_from(at).unwrap())
            .unwrap();
        assert_eq!((again.end, acts(&world)), (End::Converged, Vec::new()));
    }
}

// holds: HK-8, HK-1, FR-9
#[test]
fn a_changed_file_restarts_a_container_and_one_of_its_environment_makes_it_anew() {
    let world = world();
    let mut machine = world.machine();
    let of = |sequence, conf: &str, env: &str| {
        let mut conf = file("conf", "/etc/web.conf", conf);
        conf.spec["restarts"] = json!(["web"]);
        let env = file("env", "/etc/web.env", env);
        let web = container("web", json!({ "env_files": ["/etc/web.env"] }));
        Decl::new(sequence).with("app", vec![conf, env, web])
    };
    settle(&mut machine, &of(1, "a\n", "SECRET=one\n"));
    assert_eq!(acts(&world), ["make web", "start web"]);
    assert_eq!(
        engine(&world, |sim| sim.containers["web"].env.clone()),
        ["SECRET=one"]
    );
    let before = shown(&world);
    apply(&mut machine, &of(2, "b\n", "SECRET=one\n"));
    machine.revert(&because("no"), 20).unwrap();
    assert_eq!(
        acts(&world),
        ["restart web", "restart web"],
        "with the change, and with the way back"
    );
    assert_eq!(shown(&world), before);
    let applied = settle(&mut machine, &of(3, "a\n", "SECRET=two\n"));
    assert_eq!(
        engine(&world, |sim| sim.containers["web"].env.clone()),
        ["SECRET=two"]
    );
    assert!(reason(&applied, "app.web").contains("made anew"), "{applied:?}");
    assert!(!format!("{applied:?}").contains("two"));
    // Neither ledger nor journal has a value.
    let kept: String = world
        .disk
        .show()
        .into_iter()
        .filter(|(at, _)| at.contains("ledger"))
        .map(|(_, text)| text)
        .collect();
    assert!(!kept.contains("SECRET"), "{kept}");
    let repaired = machine.repair(&of(3, "a\n", "SECRET=two\n").get(), 30).unwrap();
    assert_eq!((repaired.end, repaired.lines), (End::Converged, Vec::new()));
    let missing = Decl::new(4).with(
        "app",
        vec![container("web", json!({ "env_files": ["/etc/none"] }))],
    );
    let applied = apply(&mut machine, &missing);
    assert!(reason(&applied, "app.web").contains("/etc/none, of its environment, is nothing, no file"));
}

// holds: HR-8, HK-8
#[test]
fn an_environment_that_is_held_is_the_one_that_stands_there_and_makes_nothing_anew() {
    let world = world();
    let at = TargetPath::parse("/etc/web.env").unwrap();
    world.root.plant(&at, b"SECRET=theirs\n", 0o600);
    let mut machine = world.machine();
    let mut declared = Decl::new(1).with(
        "app",
        vec![
            file("env", "/etc/web.env", "SECRET=ours\n"),
            container("web", json!({ "env_files": ["/etc/web.env"] })),
        ],
    );
    declared.declaration.adopted = true;
    settle(&mut machine, &declared);
    assert_eq!(acts(&world), ["make web", "start web"]);
    assert_eq!(
        engine(&world, |sim| sim.containers["web"].env.clone()),
        ["SECRET=theirs"]
    );
    declared.declaration.sequence += 1;
    settle(&mut machine, &declared);
    assert_eq!(acts(&world), Vec::<String>::new());
}

// holds: HR-8, HK-8
#[test]
fn a_found_container_is_held_with_all_that_a_take_compares_and_comes_back_from_a_take_that_fails() {
    let world = world();
    let theirs = engine(&world, |sim| {
        let id = sim.found("web", "web:2");
        sim.found("proxy", "web:1");
        for name in ["web", "proxy"] {
            let made = sim.containers.get_mut(name).unwrap();
            made.container.networks.insert("front".to_owned());
        }
        let made = sim.containers.get_mut("web").unwrap();
        made.container.mounts.insert("/srv/web:/data".to_owned());
        made.container.ports.insert("80->8080/tcp".to_owned());
        sim.dates
            .insert("id-of-web:2".to_owned(), "2026-05-01T00:00:00Z".to_owned());
        sim.dates
            .insert("id-of-web:1".to_owned(), "2026-04-01T00:00:00Z".to_owned());
        sim.networks.insert("front".to_owned(), Default::default());
        id
    });
    let mut machine = world.machine();
    let of = |sequence, take: &[&str]| {
        let fields = json!({
            "ports": [{ "host": 80, "container": 80, "protocol": "tcp" }], "networks": ["front"],
        });
        let mut decl = Decl::new(sequence).with("app", vec![container("web", fields)]);
        decl.declaration.adopted = true;
        decl.declaration.take = take.iter().map(|module| module.parse().unwrap()).collect();
        decl
    };
    let before = shown(&world);
    let applied = settle(&mut machine, &of(1, &[]));
    assert_eq!(
        (applied.end, applied.held.len(), acts(&world)),
        (End::Converged, 1, Vec::new())
    );
    let held = &applied.held[0].reason;
    for words in [
        "app is assigned and not taken",
        "image web:2 of 2026-05-01T00:00:00Z, declared web:1 of 2026-04-01T00:00:00Z, which is older: a downgrade",
        "networks front (with proxy), declared front",
        "mounts /srv/web:/data, declared none",
        "ports 80->8080/tcp, declared 80->80/tcp",
    ] {
        assert!(held.contains(words), "{words} is not in {held}");
    }
    let applied = apply(&mut machine, &of(2, &["app"]));
    assert!(applied.window_open(), "{applied:?}");
    machine.revert(&because("no"), 20).unwrap();
    assert_eq!(shown(&world), before);
    assert!(before.iter().any(|one| one.contains(&theirs)));
    settle(&mut machine, &of(3, &["app"]));
    assert_eq!(names(&world), ["proxy", "web"]);
    // With only one date nobody can say what is older.
    engine(&world, |sim| {
        sim.containers.remove("web");
        sim.found("web", "gone:1");
    });
    let mut fresh = world_of(&world);
    let applied = settle(&mut fresh, &of(4, &[]));
    assert!(
        applied.held[0]
            .reason
            .contains("image gone:1, declared web:1 of 2026-04-01T00:00:00Z;"),
        "{applied:?}"
    );
}

/// Another machine with the same engine, that has done nothing yet.
fn world_of(world: &World) -> Machine {
    let mut other = World::new();
    other.system = world.system.clone();
    other.machine()
}
