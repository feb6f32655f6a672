//! Containers and networks where the engine falls silent in the midst of a change, and what goes only with its end, on a
//! machine in memory.

use meshplan_host::edge::machine::End;
use meshplan_schemas::report::Outcome;
use serde_json::json;

use crate::containers::{apply, container, engine, names, shown, web, world};
use crate::things::{outcomes, reason, resource};
use crate::world::{Decl, because, file, settle};

fn before_and_after() -> (Decl, Decl) {
    let net = |id: &str| resource(id, "network", json!({ "name": id }));
    let conf = |text: &str| {
        let mut conf = file("conf", "/etc/web.conf", text);
        conf.spec["restarts"] = json!(["other"]);
        conf
    };
    let web =
        |image: &str, networks: &[&str]| container("web", json!({ "image": image, "networks": networks }));
    let former = Decl::new(1).with(
        "app",
        vec![
            net("a"),
            conf("one\n"),
            web("web:1", &["a"]),
            container("other", json!({})),
            container("gone", json!({})),
        ],
    );
    let latter = Decl::new(2).with(
        "app",
        vec![
            net("a"),
            net("b"),
            conf("two\n"),
            web("web:2", &["a", "b"]),
            container("other", json!({})),
            container("fresh", json!({ "networks": ["b"] })),
        ],
    );
    (former, latter)
}

// holds: HK-8, HK-10, HR-5, HR-14
#[test]
fn a_host_that_ends_at_any_act_of_the_engine_finds_its_way_back_or_on() {
    let (former, latter) = before_and_after();
    let (mut cut, mut done) = (0, false);
    while !done {
        let world = world();
        let mut machine = world.machine();
        settle(&mut machine, &former);
        let (before, files) = (shown(&world), world.targets());
        engine(&world, |sim| sim.silent_after = Some(cut));
        let applied = apply(&mut machine, &latter);
        done = applied.window_open();
        // What it could not do any more it has not done: as if it had been ended there.
        drop(machine);
        engine(&world, |sim| (sim.silent_after, sim.is_deaf) = (None, false));
        let (mut machine, _) = world.open_under("another boot");
        assert_eq!(shown(&world), before, "after {cut} acts");
        let networks: Vec<String> = engine(&world, |sim| sim.networks.keys().cloned().collect());
        assert_eq!(networks, ["a"], "after {cut} acts");
        assert_eq!(world.targets(), files, "after {cut} acts");
        // And from there the same order goes through.
        settle(&mut machine, &latter);
        assert_eq!(names(&world), ["fresh", "other", "web"], "after {cut} acts");
        cut += 1;
    }
    assert!(cut > 10, "{cut} acts");
}

// holds: HK-8, HK-10
#[test]
fn what_waits_for_the_confirm_goes_though_the_engine_is_silent_when_it_comes() {
    let (former, latter) = before_and_after();
    for cut in 0..5 {
        let world = world();
        let mut machine = world.machine();
        settle(&mut machine, &former);
        let mut latter = latter.clone();
        latter
            .declaration
            .resources
            .retain(|resource| resource.name.to_string() != "app.a");
        for resource in &mut latter.declaration.resources {
            if resource.kind == "container" {
                resource.spec["networks"] = json!(["b"]);
            }
        }
        assert!(apply(&mut machine, &latter).window_open());
        machine.arm(100).unwrap();
        engine(&world, |sim| sim.silent_after = Some(cut));
        machine.confirm(20).unwrap();
        drop(machine);
        engine(&world, |sim| (sim.silent_after, sim.is_deaf) = (None, false));
        let mut machine = world.machine();
        let repaired = machine.repair(&latter.get(), 30).unwrap();
        assert_eq!((repaired.end, repaired.lines), (End::Converged, Vec::new()));
        assert_eq!(names(&world), ["fresh", "other", "web"]);
        let networks: Vec<String> = engine(&world, |sim| sim.networks.keys().cloned().collect());
        assert_eq!(networks, ["b"]);
    }
}

// holds: HK-8, HR-2
#[test]
fn a_repair_that_the_engine_cuts_off_is_finished_when_it_answers_whoever_made_what_has_the_name_meanwhile() {
    let decl = Decl::new(1).with("app", vec![web("web:1")]);
    let (mut cut, mut done) = (0, false);
    while !done {
        let world = world();
        let mut machine = world.machine();
        settle(&mut machine, &decl);
        // Somebody made it otherwise.
        engine(&world, |sim| {
            let web = sim.containers.get_mut("web").unwrap();
            web.container
                .labels
                .insert("meshplan.spec".to_owned(), "other".to_owned());
            sim.silent_after = Some(cut);
        });
        let repaired = machine.repair(&decl.get(), 30).unwrap();
        done = !repaired.failed;
        engine(&world, |sim| (sim.silent_after, sim.is_deaf) = (None, false));
        // The image does not run any more: what stood comes back up.
        engine(&world, |sim| sim.failing.insert("make web".to_owned()));
        machine.repair(&decl.get(), 40).unwrap();
        assert_eq!(engine(&world, |sim| sim.up()), ["web"], "after {cut} acts");
        engine(&world, |sim| sim.failing.clear());
        machine.repair(&decl.get(), 50).unwrap();
        assert_eq!(names(&world), ["web"], "after {cut} acts");
        assert_eq!(engine(&world, |sim| sim.up()), ["web"], "after {cut} acts");
        cut += 1;
    }
    assert!(cut > 2, "{cut} acts");
}

// holds: HK-10, HR-14
#[test]
fn a_network_that_others_are_in_or_made_stays_and_bars_no_way_back() {
    for is_own in [true, false] {
        let world = world();
        let mut machine = world.machine();
        let before = Decl::new(1).with("app", vec![web("web:1")]);
        settle(&mut machine, &before);
        let net = resource("net", "network", json!({ "name": "net" }));
        let with_net = Decl::new(2).with("app", vec![web("web:2"), net]);
        assert!(apply(&mut machine, &with_net).window_open());
        engine(&world, |sim| {
            if is_own {
                sim.found("guest", "web:1");
                let guest = sim.containers.get_mut("guest").unwrap();
                guest.container.networks.insert("net".to_owned());
            } else {
                sim.networks.get_mut("net").unwrap().labels.clear();
            }
        });
        let lines = machine.revert(&because("no"), 20).unwrap();
        assert!(
            lines.iter().all(|line| line.outcome != Outcome::Failed),
            "{lines:?}"
        );
        assert!(engine(&world, |sim| sim.networks.contains_key("net")));
    }
}

// holds: HK-10, HR-16, HR-6
#[test]
fn networks_go_when_nothing_of_others_is_in_them_and_volumes_stay() {
    let world = world();
    let mut machine = world.machine();
    let data = resource("data", "volume", json!({ "name": "data" }));
    let net = resource(
        "net",
        "network",
        json!({ "name": "net", "subnet": "10.9.0.0/24" }),
    );
    let web = container(
        "web",
        json!({ "networks": ["net"], "mounts": [{ "volume": "data", "target": "/d" }] }),
    );
    settle(
        &mut machine,
        &Decl::new(1).with("app", vec![data, net.clone(), web.clone()]),
    );
    let mut other = net.clone();
    other.spec["internal"] = json!(true);
    let refused = apply(&mut machine, &Decl::new(2).with("app", vec![other]));
    let words = "network net has 10.9.0.0/24 and a way out instead of 10.9.0.0/24 and no way out";
    assert!(reason(&refused, "app.net").contains(words), "{refused:?}");
    engine(&world, |sim| {
        sim.found("theirs", "x");
        sim.containers
            .get_mut("theirs")
            .unwrap()
            .container
            .networks
            .insert("net".to_owned());
        sim.log.clear();
    });
    let applied = settle(
        &mut machine,
        &Decl::new(3).with("app", vec![file("f", "/f", "x")]),
    );
    assert_eq!(
        outcomes(&applied),
        [
            ("app.web".to_owned(), Outcome::Removed),
            ("app.data".to_owned(), Outcome::Forgotten),
            ("app.net".to_owned(), Outcome::Kept),
            ("app.f".to_owned(), Outcome::Created)
        ],
        "{:?}",
        applied.lines
    );
    engine(&world, |sim| drop(sim.containers.remove("theirs")));
    let applied = settle(
        &mut machine,
        &Decl::new(4).with("app", vec![file("f", "/f", "x")]),
    );
    assert!(reason(&applied, "app.net").contains("goes with the confirm"));
    let left = engine(&world, |sim| {
        (sim.networks.len(), sim.volumes.len(), sim.containers.len())
    });
    assert_eq!(left, (0, 1, 0));
    // One that was there before the host is used, and stays.
    engine(&world, |sim| {
        sim.networks.insert(
            "net".to_owned(),
            meshplan_host::edge::engine::Network {
                subnet: Some("10.9.0.0/24".to_owned()),
                ..Default::default()
            },
        )
    });
    settle(&mut machine, &Decl::new(5).with("app", vec![net, web]));
    let applied = settle(
        &mut machine,
        &Decl::new(6).with("app", vec![file("f", "/f", "x")]),
    );
    assert!(
        reason(&applied, "app.net").contains("there before the host"),
        "{applied:?}"
    );
    assert_eq!(engine(&world, |sim| sim.networks.len()), 1);
}

// holds: HR-6
#[test]
fn two_resources_cannot_have_one_container() {
    let world = world();
    let mut machine = world.machine();
    let mut again = web("web:2");
    again.name = "x.again".parse().unwrap();
    let applied = apply(&mut machine, &Decl::new(1).with("app", vec![web("web:1"), again]));
    let End::NotBegun { why } = &applied.end else {
        panic!("{applied:?}")
    };
    assert!(
        why.contains("app.web and app.again both name container:web"),
        "{why}"
    );
}
