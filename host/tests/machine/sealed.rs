//! Sealed content on a machine: written, sealed anew, taken back, and what does not open (FR-9, HK-1).

use meshplan_host::edge::machine::{Applied, Machine};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{NodeId, ResourceName};
use meshplan_schemas::report::Outcome;
use meshplan_schemas::sealed::Place;
use meshplan_schemas::session::LinkSecret;
use serde_json::json;

use crate::containers::{self, container};
use crate::world::{self, Decl, World, file};

fn key(n: u8) -> LinkSecret {
    LinkSecret::from_bytes(&[n; 32]).unwrap()
}

fn token() -> ResourceName {
    "web.token".parse().unwrap()
}

/// A declaration with a sealed file in `web` and a plain one in `base`; sealed to a key as if it were this node's.
fn sealed(sequence: u64, value: &str, to: &LinkSecret, node: Option<NodeId>) -> Decl {
    let mut resource = file("token", "/token", "");
    resource.spec["content"] = json!({ "sealed": named(value) });
    resource.spec["mode"] = json!("0600");
    let mut decl = Decl::new(sequence)
        .with("web", vec![resource])
        .with("base", vec![file("f", "/f", &format!("{sequence}\n"))]);
    let declared = decl.get();
    let place = Place {
        node: node.unwrap_or(declared.node),
        ..Place::of(&declared)
    };
    let made = place.seal(&to.public(), &token(), named(value), value.as_bytes());
    decl.declaration.sealed = vec![made.unwrap()];
    decl
}

/// By what a resource names a value.
fn named(value: &str) -> Digest {
    Digest::of(format!("keyed {value}").as_bytes())
}

fn machine(world: &World) -> Machine {
    let mut machine = world.machine();
    machine.tell_keys(vec![key(1)]);
    machine
}

fn line(applied: &Applied) -> Option<(Outcome, &str)> {
    let line = applied.lines.iter().find(|line| line.name == token())?;
    Some((line.outcome, line.reason.as_str()))
}

// holds: FR-9, HK-1, HR-11
#[test]
fn a_sealed_file_is_written_and_one_that_is_only_sealed_anew_is_left_alone() {
    let world = World::new();
    let mut machine = machine(&world);
    let applied = world::settle(&mut machine, &sealed(1, "hunter2", &key(1), None));
    assert_eq!(
        line(&applied),
        Some((Outcome::Created, "/token is new: its content is a secret"))
    );
    let stands = world.targets()["/token"].clone();
    assert!(stands.contains("hunter2") && stands.contains("600"), "{stands}");

    let anew = sealed(2, "hunter2", &key(1), None);
    assert_ne!(
        anew.get().sealed,
        sealed(2, "hunter2", &key(1), None).get().sealed
    );
    let applied = world::settle(&mut machine, &anew);
    assert_eq!(line(&applied), None, "{applied:?}");
    assert!(machine.repair(&anew.get(), 30).unwrap().converged());

    let changed = sealed(3, "hunter3", &key(1), None);
    let applied = machine.apply(&changed.get(), changed.digest(), 40).unwrap();
    assert_eq!(
        line(&applied),
        Some((Outcome::Updated, "/token: its content, a secret, is another"))
    );
    assert!(!format!("{applied:?}").contains("hunter"));
    // What it takes to go back is kept, for nobody else to read.
    let blobs = world.state.show();
    let blob = blobs
        .iter()
        .find(|(at, _)| at.contains("/blobs/") && blobs[*at].contains("hunter2"));
    assert!(blob.is_some_and(|(_, blob)| blob.contains("600")), "{blobs:?}");
    let others = blobs.iter().filter(|(at, _)| !at.contains("/blobs/"));
    assert!(
        others.into_iter().all(|(_, text)| !text.contains("hunter")),
        "{blobs:?}"
    );
    machine.revert(&world::because("a test"), 50).unwrap();
    assert_eq!(world.targets()["/token"], stands);
}

// holds: FR-9, SG-4
#[test]
fn what_does_not_open_refuses_its_module_with_what_to_do_and_the_others_go_on() {
    let elsewhere: NodeId = "0192f0c1-0000-7000-8000-000000000002".parse().unwrap();
    let world = World::new();
    let mut machine = machine(&world);
    world::settle(&mut machine, &sealed(1, "hunter2", &key(1), None));
    let mut replayed = sealed(5, "hunter3", &key(1), None);
    replayed.declaration.sealed = sealed(1, "hunter3", &key(1), None).get().sealed;
    let mut missing = sealed(6, "hunter3", &key(1), None);
    missing.declaration.sealed.clear();
    let mut exchanged = sealed(7, "hunter3", &key(1), None);
    exchanged.declaration.sealed = sealed(7, "hunter4", &key(1), None).get().sealed;
    for (what, decl) in [
        ("another key", sealed(3, "hunter3", &key(2), None)),
        ("another node", sealed(4, "hunter3", &key(1), Some(elsewhere))),
        ("another order", replayed),
        ("nothing", missing),
        ("another value", exchanged),
    ] {
        let applied = world::settle(&mut machine, &decl);
        let (outcome, reason) = line(&applied).unwrap();
        assert_eq!(outcome, Outcome::Refused, "{what}");
        assert!(
            reason.starts_with("module web is refused: ") && reason.contains("order"),
            "{what}: {reason}"
        );
        let targets = world.targets();
        assert!(
            targets["/token"].contains("hunter2"),
            "{what}: what stands there stays"
        );
        let sequence = decl.get().sequence;
        assert!(
            targets["/f"].contains(&format!("{sequence}")),
            "{what}: the others go on"
        );
    }
    // A former key opens what was sealed before the newer one was known.
    machine.tell_keys(vec![key(2), key(1)]);
    world::settle(&mut machine, &sealed(8, "hunter5", &key(1), None));
    assert!(world.targets()["/token"].contains("hunter5"));
}

/// A container whose environment is a secret.
fn sealed_environment(sequence: u64, value: &str, to: &LinkSecret) -> Decl {
    let fields = json!({ "env_sealed": named(value), "env": { "PLAIN": "1" } });
    let mut decl = Decl::new(sequence).with("web", vec![container("web", fields)]);
    let name = "web.web".parse().unwrap();
    let declared = decl.get();
    let place = Place::of(&declared);
    let made = place.seal(&to.public(), &name, named(value), value.as_bytes());
    decl.declaration.sealed = vec![made.unwrap()];
    decl
}

// holds: FR-9, HK-8, HR-11
#[test]
fn a_sealed_environment_is_the_containers_and_nobody_elses_and_one_that_is_only_sealed_anew_changes_nothing()
{
    let world = containers::world();
    let mut machine = machine(&world);
    let env = |world: &World| containers::engine(world, |sim| sim.containers["web"].env.clone());
    let applied = world::settle(&mut machine, &sealed_environment(1, "TOKEN=hunter2\n", &key(1)));
    assert_eq!(env(&world), ["PLAIN=1", "TOKEN=hunter2"], "{applied:?}");
    containers::acts(&world);
    let applied = world::settle(&mut machine, &sealed_environment(2, "TOKEN=hunter2\n", &key(1)));
    assert_eq!(
        (applied.converged(), containers::acts(&world)),
        (true, Vec::new()),
        "{applied:?}"
    );
    let changed = sealed_environment(3, "TOKEN=hunter3\n", &key(1));
    let applied = machine.apply(&changed.get(), changed.digest(), 40).unwrap();
    assert!(applied.window_open(), "{applied:?}");
    let kept = format!("{applied:?} {:?}", world.disk.show());
    assert!(
        !kept.contains("hunter"),
        "neither in words nor on the disk: {kept}"
    );
    machine.arm(100).unwrap();
    machine.confirm(50).unwrap();
    assert_eq!(env(&world), ["PLAIN=1", "TOKEN=hunter3"]);
    // One that does not open refuses its module, and the container stays.
    let other = sealed_environment(4, "TOKEN=hunter4\n", &key(2));
    let applied = world::settle(&mut machine, &other);
    assert!(
        applied.lines.iter().any(|line| line.outcome == Outcome::Refused),
        "{applied:?}"
    );
    assert_eq!(env(&world), ["PLAIN=1", "TOKEN=hunter3"]);
    // Lines that are none are said without what is in them.
    let broken = sealed_environment(5, "hunter5\n", &key(1));
    let applied = machine.apply(&broken.get(), broken.digest(), 60).unwrap();
    let words = format!("{applied:?}");
    assert!(
        words.contains("line 1 of the secret is not `NAME=value`") && !words.contains("hunter5"),
        "{words}"
    );
}
