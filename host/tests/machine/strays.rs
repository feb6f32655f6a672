//! What is nobody's here is listed and never touched (HR-9), on a machine in memory.

use meshplan_host::edge::disk::{Disk as _, Owner};
use meshplan_host::edge::engine::sim::Made;
use meshplan_host::edge::machine::Machine;
use serde_json::json;

use crate::containers::{acts, container, engine, web, world};
use crate::processes::process;
use crate::things::resource;
use crate::world::{Decl, World, file, path, settle};

const FOLDER: &str = "/etc/systemd/system";

/// Somebody's own things: two units, a link to a third, one of the manager's own links, a container.
fn plant(world: &World) {
    for name in ["backup.service", "backup.timer", "notes.txt"] {
        world
            .root
            .plant(&path(&format!("{FOLDER}/{name}")), b"[Service]\n", 0o644);
    }
    for (name, to) in [
        ("app.service", "/opt/app.service"),
        ("sshd.service", "/lib/systemd/system/ssh.service"),
    ] {
        let link = path(&format!("{FOLDER}/{name}"));
        world.root.symlink(&link, to, Owner::default()).unwrap();
    }
    engine(world, |sim| {
        let mut made = Made::default();
        made.container.image = "portainer:2".to_owned();
        made.container.state.status = "running".to_owned();
        sim.containers.insert("portainer".to_owned(), made);
    });
}

const STRAYS: [&str; 4] = [
    "container portainer (running), image portainer:2",
    "unit app.service (/etc/systemd/system/app.service)",
    "unit backup.service (/etc/systemd/system/backup.service)",
    "unit backup.timer (/etc/systemd/system/backup.timer)",
];

fn strays(machine: &Machine, decl: &Decl) -> Vec<String> {
    machine.strays(&decl.get())
}

// holds: HR-9
#[test]
fn what_is_nobodys_is_listed_with_each_apply_and_not_touched() {
    let world = world();
    plant(&world);
    let theirs = world.targets();
    let mut machine = world.machine();
    let service = resource(
        "found",
        "service",
        json!({ "unit": "found.service", "state": "running" }),
    );
    world
        .system
        .with(|sim| sim.unit("found.service", "active", "enabled"));
    world
        .root
        .plant(&path(&format!("{FOLDER}/found.service")), b"[Service]\n", 0o644);
    let backup = container(
        "night",
        json!({ "run": "scheduled", "restart": "never", "schedule": { "every_secs": 60 } }),
    );
    let unit = file(
        "unit",
        "/etc/systemd/system/own.service",
        "[Service]\nExecStart=/bin/true\n",
    );
    let decl = Decl::new(1).with(
        "app",
        vec![web("web:1"), process("taker", json!({})), unit, service, backup],
    );
    assert!(
        machine
            .apply(&decl.get(), decl.digest(), 10)
            .unwrap()
            .window_open()
    );
    assert_eq!(strays(&machine, &decl), STRAYS, "while the window is open");
    machine.arm(100).unwrap();
    machine.confirm(20).unwrap();
    assert_eq!(strays(&machine, &decl), STRAYS);
    // Another build: the former one waits under its other name for the confirm.
    let second = Decl::new(2).with("app", vec![web("web:2")]);
    machine.apply(&second.get(), second.digest(), 30).unwrap();
    let during: Vec<String> = strays(&machine, &second);
    assert_eq!(during, STRAYS, "{during:?}");
    machine.arm(100).unwrap();
    machine.confirm(40).unwrap();
    // What was given up is nobody's from now on; what was found and given back is as well.
    let listed = strays(&machine, &second);
    assert!(
        listed.contains(&"unit found.service (/etc/systemd/system/found.service)".to_owned()),
        "{listed:?}"
    );
    let now = world.targets();
    assert!(
        theirs.iter().all(|(at, what)| now.get(at) == Some(what)),
        "{now:?}"
    );
    assert!(!acts(&world).iter().any(|act| act.contains("portainer")));
}

// holds: HR-9, HR-8
#[test]
fn what_is_held_is_no_stray() {
    let world = world();
    plant(&world);
    let mut machine = world.machine();
    let mut decl = Decl::new(1).with(
        "app",
        vec![file(
            "unit",
            "/etc/systemd/system/backup.service",
            "[Service]\nExecStart=/bin/true\n",
        )],
    );
    decl.declaration.adopted = true;
    settle(&mut machine, &decl);
    assert_eq!(machine.held().len(), 1);
    let listed = strays(&machine, &decl);
    assert!(
        !listed.iter().any(|line| line.contains("backup.service")),
        "{listed:?}"
    );
    assert!(
        listed.iter().any(|line| line.contains("backup.timer")),
        "{listed:?}"
    );
}

// holds: HR-9
#[test]
fn an_engine_that_does_not_answer_is_told_and_is_not_nothing() {
    let world = world();
    plant(&world);
    let machine = world.machine();
    engine(&world, |sim| sim.is_deaf = true);
    let listed = strays(&machine, &Decl::new(1));
    assert!(
        listed[0].starts_with("containers cannot be listed: "),
        "{listed:?}"
    );
    assert_eq!(listed.len(), 4);
}

// holds: HR-9
#[test]
fn an_engine_that_a_person_stopped_is_not_started_to_be_asked() {
    let world = world();
    plant(&world);
    let machine = world.machine();
    // Asked all the same, it would say so.
    engine(&world, |sim| sim.is_deaf = true);
    for (state, asked) in [("inactive", false), ("failed", false), ("active", true)] {
        world
            .system
            .with(|sim| sim.unit("docker.service", state, "enabled"));
        let listed = strays(&machine, &Decl::new(1));
        let says = listed.iter().any(|line| line.starts_with("containers "));
        assert_eq!(says, asked, "{state}: {listed:?}");
        assert!(listed.iter().any(|line| line.contains("backup.service")));
    }
}
