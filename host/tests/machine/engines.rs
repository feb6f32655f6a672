//! Containers on the engines themselves.

use std::fs;
use std::process::Command;

use meshplan_host::edge::engine::Engine as _;
use meshplan_host::edge::machine::{Applied, End};
use meshplan_schemas::report::Outcome;
use meshplan_schemas::resource::Resource;
use serde_json::{Value, json};

use crate::containers::apply;
use crate::daemon::{Daemon, create, launcher};
use crate::things::{reason, resource};
use crate::world::{Decl, because, file, settle};

fn of(sequence: u64, resources: Vec<Resource>) -> Decl {
    Decl::new(sequence).with("app", resources)
}

fn outcome(applied: &Applied, name: &str) -> Option<Outcome> {
    applied
        .lines
        .iter()
        .find(|line| line.name.to_string() == name)
        .map(|line| line.outcome)
}

/// What holds on any engine.
fn journey(daemon: &Daemon, has_init: bool) {
    let mut machine = daemon.machine();
    let first = json!({
        "init": has_init, "env": { "A": "1", "B": "2" }, "env_files": ["/etc/web.env"], "capabilities": ["KILL"], "user": "0:0",
        "hosts": ["other:10.1.2.3"], "labels": { "team": "web" },
        "healthcheck": { "command": ["/bin/true"], "every_secs": 1, "timeout_secs": 5, "retries": 3, "start_secs": 0 },
    });
    let env = |text: &str| file("env", "/etc/web.env", text);
    let decl = |sequence, fields: Value| of(sequence, vec![env("SECRET=s3cret\n"), daemon.web(fields)]);
    let applied = settle(&mut machine, &decl(1, first.clone()));
    assert_eq!(
        outcome(&applied, "app.web"),
        Some(Outcome::Created),
        "{applied:?}\n{}",
        daemon.log()
    );
    let id = daemon.id("web").unwrap();
    let status = daemon.said("status", "CapEff");
    // capabilities(7): KILL is the sixth.
    assert!(status.contains("CapEff:\t0000000000000020"), "{status}");
    let env = daemon.said("env", "SECRET");
    assert!(env.contains("A=1\n") && env.contains("SECRET=s3cret\n"), "{env}");
    assert!(daemon.said("hosts", "other").contains("10.1.2.3"));
    // B38: five times, in whatever order.
    for sequence in 2..6 {
        let applied = settle(&mut machine, &decl(sequence, first.clone()));
        assert_eq!(
            (applied.end, daemon.id("web")),
            (End::Converged, Some(id.clone())),
            "{:?}",
            applied.lines
        );
    }
    // Another image, taken back: the same container as before runs again.
    let mut second = first.clone();
    second["image"] = json!("box:2");
    let applied = apply(&mut machine, &decl(6, second.clone()));
    assert_eq!(applied.end, End::WindowOpen, "{applied:?}\n{}", daemon.log());
    assert_ne!(daemon.id("web"), Some(id.clone()));
    assert_eq!(daemon.said("tag", "2"), "2");
    assert_eq!(daemon.names(), ["web", "web.meshplan-old"]);
    let lines = machine.revert(&because("no"), 20).unwrap();
    assert!(
        lines.iter().all(|line| line.outcome == Outcome::Reverted),
        "{lines:?}"
    );
    assert_eq!(
        (daemon.id("web"), daemon.names()),
        (Some(id.clone()), vec!["web".to_owned()])
    );
    assert!(daemon.engine().container("web").unwrap().unwrap().state.is_up());
    // Confirmed: the former one is gone.
    settle(&mut machine, &decl(7, second.clone()));
    let newer = daemon.id("web").unwrap();
    assert_eq!((newer == id, daemon.names()), (false, vec!["web".to_owned()]));
    // What ends as soon as it starts.
    let mut bad = second.clone();
    bad["command"] = json!(["false"]);
    let applied = apply(&mut machine, &decl(8, bad));
    assert!(matches!(applied.end, End::Reverted { .. }), "{applied:?}");
    assert_eq!(
        (daemon.id("web"), daemon.names()),
        (Some(newer.clone()), vec!["web".to_owned()])
    );
    assert!(
        daemon.engine().container("web").unwrap().unwrap().state.is_up(),
        "{}",
        daemon.log()
    );
    // Drift: stopped, then removed by hand.
    let stopped = daemon.ask("POST", "/containers/web/stop?t=1", b"").unwrap();
    assert!(stopped.contains(" 204 "), "{stopped}");
    let repaired = machine.repair(&decl(7, second.clone()).get(), 30).unwrap();
    assert_eq!(
        outcome(&repaired, "app.web"),
        Some(Outcome::DriftRepaired),
        "{repaired:?}"
    );
    assert_eq!(daemon.id("web"), Some(newer));
    daemon.ask("DELETE", "/containers/web?force=true", b"").unwrap();
    let repaired = machine.repair(&decl(7, second.clone()).get(), 40).unwrap();
    assert_eq!(
        outcome(&repaired, "app.web"),
        Some(Outcome::DriftRepaired),
        "{repaired:?}"
    );
    let again = machine.repair(&decl(7, second).get(), 50).unwrap();
    assert_eq!((again.end, again.lines), (End::Converged, Vec::new()));
    // Once, with its end.
    let once = |sequence, command: &str| {
        let fields =
            json!({ "name": "step", "run": "once", "restart": "never", "command": [command], "mounts": [] });
        let mut step = daemon.web(fields);
        step.name = "x.step".parse().unwrap();
        of(sequence, vec![step])
    };
    let applied = settle(&mut machine, &once(9, "true"));
    assert_eq!(
        outcome(&applied, "app.step"),
        Some(Outcome::Created),
        "{applied:?}"
    );
    assert_eq!(daemon.names(), ["step"], "what nothing declares is gone");
    let applied = apply(&mut machine, &once(10, "false"));
    assert!(
        reason(&applied, "app.step").contains("ended with 1"),
        "{applied:?}"
    );
    settle(&mut machine, &of(11, vec![file("f", "/f", "x")]));
    assert_eq!(daemon.names(), Vec::<String>::new());
}

// holds: HK-8, HR-14, B38
#[test]
fn docker_makes_a_container_once_takes_it_back_whole_and_lets_it_go() {
    let Some(daemon) = Daemon::docker() else { return };
    journey(&daemon, true);
    let journal = daemon.journal.lock().unwrap().clone();
    assert!(
        journal.contains("said-by-web"),
        "its output is in the journal: {journal}"
    );
}

// holds: HK-8, HR-14, B38
#[test]
fn podman_makes_a_container_once_takes_it_back_whole_and_lets_it_go() {
    let Some(daemon) = Daemon::podman() else { return };
    journey(&daemon, false);
}

// holds: HK-10, HR-16
#[test]
fn docker_keeps_volumes_and_lets_networks_go_when_nothing_is_in_them() {
    let Some(daemon) = Daemon::docker() else { return };
    let mut machine = daemon.machine();
    let net = |id: &str| resource(id, "network", json!({ "name": id }));
    let data = || resource("data", "volume", json!({ "name": "data" }));
    let web = |networks: &[&str]| {
        daemon.web(json!({
            "host_network": false, "networks": networks, "mounts": [{ "volume": "data", "target": "/out" }],
        }))
    };
    let both = of(
        1,
        vec![net("front"), net("back"), data(), web(&["front", "back"])],
    );
    let applied = settle(&mut machine, &both);
    assert_eq!(
        outcome(&applied, "app.web"),
        Some(Outcome::Created),
        "{applied:?}\n{}",
        daemon.log()
    );
    let found = daemon.engine().container("web").unwrap().unwrap();
    assert_eq!(found.networks.into_iter().collect::<Vec<_>>(), ["back", "front"]);
    // Taken back: the network that came is gone, and what was there stays.
    let more = of(
        2,
        vec![
            net("front"),
            net("back"),
            net("third"),
            data(),
            web(&["front", "back", "third"]),
        ],
    );
    assert!(apply(&mut machine, &more).window_open());
    machine.revert(&because("no"), 20).unwrap();
    assert!(daemon.engine().network("third").unwrap().is_none());
    assert_eq!(daemon.id("web"), Some(found.id));
    // Somebody else's container is in it: it stays until that is gone.
    let theirs =
        json!({ "Image": "box:1", "Cmd": ["sleep", "1000"], "HostConfig": { "NetworkMode": "back" } });
    let made = create(&daemon, "theirs", &theirs);
    assert!(made.contains(" 201 "), "{made}");
    let applied = settle(&mut machine, &of(3, vec![net("front"), web(&["front"])]));
    assert!(
        reason(&applied, "app.back").contains("theirs is in it"),
        "{applied:?}"
    );
    assert!(
        reason(&applied, "app.data").contains("never removed"),
        "{applied:?}"
    );
    assert!(daemon.engine().network("back").unwrap().is_some());
    daemon
        .ask("DELETE", "/containers/theirs?force=true", b"")
        .unwrap();
    settle(&mut machine, &of(4, vec![file("f", "/f", "x")]));
    for name in ["front", "back"] {
        assert!(daemon.engine().network(name).unwrap().is_none(), "{name}");
    }
    let volumes = daemon.engine().volumes().unwrap();
    assert!(
        volumes
            .iter()
            .any(|volume| volume.name == "data" && volume.is_own),
        "{volumes:?}"
    );
}

// holds: HR-14, HK-8
#[test]
fn the_way_back_of_a_container_is_walked_without_the_host_and_may_be_walked_twice() {
    let Some(daemon) = Daemon::docker() else { return };
    let mut machine = daemon.machine();
    settle(&mut machine, &of(1, vec![daemon.web(json!({}))]));
    let id = daemon.id("web").unwrap();
    let other = daemon.web(json!({ "image": "box:2" }));
    assert!(apply(&mut machine, &of(2, vec![other])).window_open());
    drop(machine);
    let journal = fs::read_to_string(daemon.at("state/window/journal.json")).unwrap();
    let journal: Value = serde_json::from_str(&journal).unwrap();
    for _ in 0..2 {
        for act in journal["acts"].as_array().unwrap() {
            let argv = act["act"]["run"]["argv"].as_array().unwrap();
            let argv: Vec<&str> = argv.iter().map(|word| word.as_str().unwrap()).collect();
            let ran = Command::new(argv[0]).args(&argv[1..]).output().unwrap();
            assert!(
                ran.status.success(),
                "{argv:?}: {}",
                String::from_utf8_lossy(&ran.stderr)
            );
        }
        assert_eq!(
            (daemon.id("web"), daemon.names()),
            (Some(id.clone()), vec!["web".to_owned()])
        );
        assert!(daemon.engine().container("web").unwrap().unwrap().state.is_up());
    }
    // What the beginning of an id leads to is not the container of that name.
    let begin: String = id.chars().take(6).collect();
    assert_eq!(daemon.id(&begin), None);
    let socket = daemon.at("engine.sock");
    let removed = Command::new(launcher())
        .arg("container")
        .arg(&socket)
        .args(["remove", &begin])
        .status()
        .unwrap();
    assert!(removed.success());
    assert_eq!(daemon.id("web"), Some(id));
    let ended = Command::new(launcher())
        .arg("container")
        .arg(&socket)
        .args(["start", "nobody"])
        .status()
        .unwrap();
    assert_eq!(ended.code(), Some(1));
}
