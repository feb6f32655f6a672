//! The command line with no reconciler (HR-12): what each command says, and how it ends.

use std::process::{Command, Stdio};
use std::sync::Arc;

use meshplan_host::edge::disk::RealDisk;
use meshplan_host::edge::machine::{Machine, Setup};
use meshplan_host::edge::orders;
use meshplan_host::pure::orders::Slot;

use super::world::{Host, World, declaration, poll, said, text};

/// Nobody answers there.
const NOBODY: &str = "ws://127.0.0.1:9/mesh";

/// A machine whose newest declaration is on its disk as if it had come while there was a link.
fn with_order(order: &meshplan_schemas::declaration::Declaration) -> World {
    let world = World::enrolled(NOBODY);
    // The first start takes over what enrolment left.
    assert_eq!(world.say(&["apply", "--once"]).0, 0);
    let disk = RealDisk::open(&world.state()).unwrap();
    let text = text(order);
    orders::keep(&disk, Slot::Declaration, &text).unwrap();
    let mut pair = meshplan_host::edge::marks::marks();
    let meshplan_host::edge::marks::Held::Value(mut file, _) = pair.read(&disk) else {
        panic!("no marks")
    };
    let digest = orders::load(&disk).0.declaration.unwrap().digest;
    file.marks.sequence = Some(meshplan_schemas::report::Mark {
        number: order.sequence,
        digest,
    });
    pair.write(&disk, &file).unwrap();
    world
}

#[test]
fn the_program_says_its_name_and_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_meshplan-host"))
        .arg("--version")
        .output()
        .unwrap();
    let expected = format!("meshplan-host {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(said(&output), (0, expected));
}

// holds: HR-12
#[test]
fn a_machine_that_is_in_no_fleet_is_told_what_to_do() {
    let world = World {
        folder: tempfile::tempdir().unwrap(),
    };
    for command in [
        &["run"][..],
        &["status"],
        &["plan"],
        &["held"],
        &["apply", "--once"],
    ] {
        let (code, words) = world.say(command);
        assert_eq!(code, 1, "{command:?}: {words}");
        assert!(words.contains("meshplan-host enrol TOKEN"), "{words}");
    }
    assert!(
        world.json(&["status"])["error"]
            .as_str()
            .unwrap()
            .contains("in no fleet")
    );
}

// holds: HR-12
#[test]
fn a_command_line_that_cannot_be_ends_with_2() {
    let world = World::enrolled(NOBODY);
    for bad in [
        &["apply"][..],
        &["fly"],
        &["take", "../x"],
        &["enrol", "not-a-token"],
        &["run", "--reconcile-secs", "0"],
    ] {
        assert_eq!(world.say(bad).0, 2, "{bad:?}");
    }
}

// holds: HR-12, HR-5
#[test]
fn without_a_reconciler_a_new_declaration_is_planned_and_applied_and_goes_back_unconfirmed() {
    let mut order = declaration(3, "hello\n", None);
    order.confirm_secs = 1;
    let world = with_order(&order);
    let (code, words) = world.say(&["plan"]);
    assert_eq!(code, 0);
    assert!(words.contains("web.conf (file) would be created"), "{words}");
    let (code, words) = world.say(&["diff"]);
    assert_eq!(code, 0);
    assert!(words.contains("+ hello"), "{words}");
    assert_eq!(world.file("etc/web.conf"), None, "both change nothing");

    let (code, words) = world.say(&["apply", "--once"]);
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("declaration 3: reverted: no-link"), "{words}");
    assert_eq!(world.file("etc/web.conf"), None);
    let (code, words) = world.say(&["journal"]);
    assert_eq!(code, 0);
    assert!(
        words.contains("declaration.applying 3") && words.contains("declaration.reverted 3: no-link"),
        "{words}"
    );
    let status = world.json(&["status"]);
    assert_eq!(status["declaration"]["state"], "reverted");
    assert_eq!(status["running"], false);
    assert!(
        !status["reports"]["queued"].as_array().unwrap().is_empty(),
        "reports wait on disk"
    );
}

// holds: HR-12
#[test]
fn status_tells_a_tired_person_how_the_machine_stands() {
    let world = World::enrolled(NOBODY);
    let (code, words) = world.say(&["status"]);
    assert_eq!(code, 0);
    for line in [
        "machine      ace (",
        "does not run; start it with",
        "declaration  none yet",
        "policy       none yet",
    ] {
        assert!(words.contains(line), "{words}");
    }
    let host = world.run(&[]);
    poll("the host", || world.json(&["status"])["host"].is_object());
    let (_, words) = world.say(&["status"]);
    assert!(
        words.contains("runs since") && words.contains("link         down since"),
        "{words}"
    );
    let (code, words) = world.say(&["apply", "--once"]);
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("another meshplan-host works on"), "{words}");
    assert_eq!(host.stop(), Some(0));
    assert_eq!(world.json(&["status"])["running"], false);
}

// holds: HR-12, HR-13
#[test]
fn a_host_waits_for_apply_once_and_takes_over_the_window_in_which_that_was_stopped() {
    let world = with_order(&declaration(3, "hello\n", None));
    let mut once = world.command(&["apply", "--once"]);
    let once = Host(once.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    poll("the window", || world.json(&["status"])["window"].is_object());
    let host = world.run(&[]);
    poll("its word", || {
        world.log().contains("ends by itself; waiting for it")
    });
    assert_eq!(world.json(&["status"])["host"]["once"], true);
    assert_eq!(once.stop(), Some(1));
    poll("the host that stays", || {
        world.json(&["status"])["host"]["once"] == false
    });
    let status = world.json(&["status"]);
    assert!(
        status["window"].is_object(),
        "it goes on waiting for its confirm: {status}"
    );
    assert_eq!(status["declaration"]["state"], "awaiting_confirm");
    assert_eq!(world.file("etc/web.conf").as_deref(), Some("hello\n"));
    // Another that stays would wait for ever.
    let (code, words) = world.say(&["run"]);
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("another meshplan-host works on"), "{words}");
    assert_eq!(host.stop(), Some(0));
}

// holds: HR-12, SG-5
#[test]
fn verify_judges_an_envelope_and_takes_nothing_in() {
    let world = with_order(&declaration(3, "hello\n", None));
    let file = world.root().join("order.json");
    let judge = |text: &str| {
        std::fs::write(&file, text).unwrap();
        world.say(&["verify", file.to_str().unwrap()])
    };
    let newer = text(&declaration(4, "hello\n", None));
    let (code, words) = judge(&newer);
    assert_eq!(
        (code, words.as_str()),
        (
            0,
            "declaration 4 with 1 resources, signed by dana\nthis host would take it\n"
        )
    );
    let (code, words) = judge(&text(&declaration(2, "hello\n", None)));
    assert_eq!(code, 4);
    assert!(
        words.contains("refused: sequence 2 is older than 3, the highest verified"),
        "{words}"
    );
    let (code, words) = judge(&newer.replace("\"sig\":\"", "\"sig\":\"A"));
    assert_eq!(code, 4, "{words}");
    let (code, words) = world.say(&[
        "verify",
        world.state().join("orders/declaration").to_str().unwrap(),
    ]);
    assert_eq!(code, 0);
    assert!(
        words.starts_with("an order that this host has already, signed by dana"),
        "{words}"
    );
    assert_eq!(world.say(&["verify", "/nonexistent"]).0, 2);
}

// holds: HR-15, HR-12
#[test]
fn a_damaged_state_file_is_told_and_stops_nothing() {
    let world = with_order(&declaration(3, "hello\n", None));
    assert_eq!(world.say(&["verify"]).0, 0);
    let file = world.state().join("orders/head");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let (code, words) = world.say(&["verify"]);
    assert_eq!(code, 1);
    assert!(
        words.contains("damaged: /orders/head is cut or damaged"),
        "{words}"
    );
    let (code, words) = world.say(&["status"]);
    assert_eq!(code, 0);
    assert!(words.contains("asked for again at the next session"), "{words}");
    let host = world.run(&[]);
    poll("the journal", || {
        world.say(&["journal"]).1.contains("state.broken")
    });
    assert_eq!(host.stop(), Some(0));
}

// holds: HR-12
#[test]
fn nothing_held_is_said_and_cannot_be_taken() {
    let world = with_order(&declaration(3, "hello\n", None));
    assert_eq!(world.say(&["held"]), (0, "nothing is held\n".to_owned()));
    let (code, words) = world.say(&["take", "web"]);
    assert_eq!(code, 1);
    assert!(words.contains("nothing of `web` is held"), "{words}");
}

// holds: EP-2
#[test]
fn a_window_of_another_boot_goes_back_though_the_membership_cannot_be_read() {
    let world = World::enrolled(NOBODY);
    let setup = Setup {
        system: Arc::new(meshplan_host::edge::system::NoSystem),
        root: Arc::new(RealDisk::open(world.root()).unwrap()),
        state: Arc::new(RealDisk::open(&world.state()).unwrap()),
        state_inside: None,
        boot_id: "another boot".into(),
        policy_out: None,
    };
    let order = declaration(1, "new\n", None);
    let digest = meshplan_schemas::digest::Digest::of_value(&order).unwrap();
    let (mut machine, _) = Machine::open(setup, 1).unwrap();
    assert!(machine.apply(&order, digest, 1).unwrap().window_open());
    machine.arm(i64::MAX).unwrap();
    drop(machine);
    assert!(world.file("etc/web.conf").is_some());
    world.put("membership.json", "{");
    assert_ne!(world.say(&["apply", "--once"]).0, 0);
    assert_eq!(world.file("etc/web.conf"), None, "it waits for a membership");
}

// holds: SG-5
#[test]
fn numbers_that_are_gone_are_a_loss_and_not_a_first_start() {
    let world = World::enrolled(NOBODY);
    assert_eq!(world.say(&["apply", "--once"]).0, 0);
    for file in ["marks.a", "marks.b"] {
        std::fs::remove_file(world.state().join(file)).unwrap();
    }
    world.say(&["apply", "--once"]);
    let (_, words) = world.say(&["journal"]);
    assert!(
        words.contains("both files with the highest numbers are gone"),
        "{words}"
    );
}

// holds: EP-2, RO-7
#[test]
fn a_window_that_nobody_judges_is_told_as_one_that_waits_for_the_host() {
    let world = with_order(&declaration(1, "new\n", None));
    let host = world.run(&[]);
    poll("the window", || {
        world.say(&["status"]).1.contains("is taken back at")
    });
    host.kill();
    let (_, words) = world.say(&["status"]);
    assert!(words.contains("is judged when the host runs again"), "{words}");
}
