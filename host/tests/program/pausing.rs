//! `pause` and `resume` beside a host that runs, with a reconciler that orders meanwhile (HR-17).

use meshplan_schemas::report::DeclarationState;
use meshplan_schemas::wire::ToHost;

use super::linked::Fleet;
use super::world::{declaration, epoch, text};

// holds: HR-17, HR-12
#[test]
fn a_machine_that_a_person_paused_begins_nothing_until_it_is_resumed_or_the_time_is_over() {
    let fleet = Fleet::new();
    let world = &fleet.world;
    let host = fleet.run();
    fleet.reconciler.order(text(&declaration(1, "hello\n", None)));
    fleet.until_state(1, DeclarationState::Confirmed);
    // A host at rest notices a pause with its next heartbeat.
    fleet.reconciler.say(ToHost::Heartbeat { secs: 1 });

    let (code, words) = world.say(&["pause", "--for", "25h", "--why", "the disk is changed"]);
    assert_eq!(code, 2, "{words}");
    assert!(words.contains("a pause is 24 hours at most"), "{words}");
    let (code, words) = world.say(&["pause", "--for", "2h", "--why", " "]);
    assert_eq!(code, 2, "{words}");
    assert!(world.json(&["status"])["paused"].is_null());

    let (code, words) = world.say(&["pause", "--for", "2h", "--why", "the disk is changed"]);
    assert_eq!(code, 0, "{words}");
    assert!(
        words.contains("(in 2h): the disk is changed") && words.contains("meshplan-host resume"),
        "{words}"
    );
    fleet.until("the pause", |r| {
        r.paused.as_ref().is_some_and(|p| p.why == "the disk is changed")
    });
    let motd = world.file("run/motd.d/meshplan-pause").unwrap();
    assert!(motd.contains("the disk is changed"), "{motd}");
    let (_, words) = world.say(&["status"]);
    assert!(
        words.contains("paused       until ") && words.contains("the disk is changed"),
        "{words}"
    );

    // Orders are kept, and the pause outlives the host.
    fleet.reconciler.order(text(&declaration(2, "two\n", None)));
    fleet.reconciler.order(text(&epoch(7, 40)));
    let queued = fleet.until_state(2, DeclarationState::Queued);
    assert!(queued.declaration.unwrap().reason.contains("the disk is changed"));
    host.kill();
    let host = fleet.run();
    fleet.reconciler.order(text(&declaration(3, "three\n", None)));
    let queued = fleet.until_state(3, DeclarationState::Queued);
    assert!(queued.paused.is_some());
    fleet.reconciler.say(ToHost::Heartbeat { secs: 1 });
    assert_eq!(world.file("etc/web.conf").as_deref(), Some("hello\n"));
    assert_eq!(world.file("var/lib/meshplan/policy.toml"), None);

    let (code, words) = world.say(&["resume"]);
    assert_eq!(code, 0, "{words}");
    let confirmed = fleet.until_state(3, DeclarationState::Confirmed);
    assert_eq!(confirmed.paused, None);
    assert_eq!(world.file("etc/web.conf").as_deref(), Some("three\n"));
    assert_eq!(world.file("run/motd.d/meshplan-pause"), None);
    assert_eq!(
        world.say(&["resume"]),
        (0, "this machine is not paused\n".to_owned())
    );

    // One ends by itself, and nobody has to come back for it.
    let (code, words) = world.say(&["pause", "--for", "1m", "--why", "a short one"]);
    assert_eq!(code, 0, "{words}");
    fleet.until("the short pause", |r| {
        r.paused.is_some() && r.declaration.as_ref().is_some_and(|d| d.sequence == 3)
    });
    shorten(world);
    fleet.reconciler.order(text(&declaration(4, "four\n", None)));
    fleet.until_state(4, DeclarationState::Confirmed);
    assert!(world.json(&["status"])["paused"].is_null());
    assert_eq!(world.file("run/motd.d/meshplan-pause"), None);
    let (_, words) = world.say(&["journal"]);
    assert!(words.contains("pause.over: its time is over"), "{words}");
    assert_eq!(host.stop(), Some(0));
}

/// Lets the pause on disk have begun a minute ago: no test sets a clock, and none waits for a minute.
fn shorten(world: &super::world::World) {
    let disk = meshplan_host::edge::disk::RealDisk::open(&world.state()).unwrap();
    let meshplan_host::edge::pause::OnDisk::Pause(mut pause) = meshplan_host::edge::pause::read(&disk) else {
        panic!("no pause")
    };
    pause.from -= 58;
    pause.until -= 58;
    pause.from_boot_secs -= 58;
    meshplan_host::edge::pause::write(&disk, &pause).unwrap();
}

// holds: HR-17, HR-12
#[test]
fn apply_once_begins_nothing_on_a_paused_machine_and_says_why() {
    let fleet = Fleet::new();
    let world = &fleet.world;
    let host = fleet.run();
    fleet.reconciler.order(text(&declaration(1, "hello\n", None)));
    fleet.until_state(1, DeclarationState::Confirmed);
    assert_eq!(host.stop(), Some(0));
    std::fs::write(world.root().join("etc/web.conf"), "by hand\n").unwrap();
    assert_eq!(
        world.say(&["pause", "--for", "1h", "--why", "by hand today"]).0,
        0
    );
    let (code, words) = world.say(&["apply", "--once"]);
    assert_eq!(code, 1, "{words}");
    assert!(
        words.contains("paused on this machine") && words.contains("by hand today"),
        "{words}"
    );
    assert_eq!(world.file("etc/web.conf").as_deref(), Some("by hand\n"));
    assert_eq!(world.say(&["resume"]).0, 0);
    assert_eq!(world.say(&["apply", "--once"]).0, 0);
    assert_eq!(world.file("etc/web.conf").as_deref(), Some("hello\n"));
}
