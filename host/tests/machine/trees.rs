//! Archives and bundles on a machine in memory: swapped in whole, kept until the confirm, put back whole.

use meshplan_host::edge::artifacts::Artifacts;
use meshplan_host::edge::disk::Disk as _;
use meshplan_host::edge::machine::{Applied, End, Machine};
use meshplan_schemas::artifact::{FileList, Listed};
use meshplan_schemas::digest::{Digest, canonical};
use meshplan_schemas::report::Outcome;
use meshplan_schemas::resource::Resource;
use serde_json::{Value, json};

use crate::things::{outcomes, reason, resource};
use crate::world::{Decl, World, because, file, path, settle};

/// Puts bytes into the artifacts of a machine.
pub(crate) fn artifact(world: &World, bytes: &[u8]) -> Digest {
    let digest = Digest::of(bytes);
    let artifacts = Artifacts(&world.state);
    if artifacts.begun(digest).unwrap().is_some() {
        artifacts.add(digest, bytes).unwrap();
        assert!(artifacts.finish(digest).unwrap());
    }
    digest
}

/// A bundle of these files, whose artifacts are there; a `!` before a path makes it a program.
pub(crate) fn bundle(world: &World, id: &str, at: &str, files: &[(&str, &str)]) -> Resource {
    let listed = |(path, text): &(&str, &str)| {
        let listed = Listed {
            sha256: artifact(world, text.as_bytes()),
            size_bytes: text.len() as u64,
            executable: path.starts_with('!'),
        };
        (path.trim_start_matches('!').to_owned(), listed)
    };
    let list = FileList {
        files: files.iter().map(listed).collect(),
    };
    let bytes = canonical(&list).unwrap();
    let tree = artifact(world, &bytes);
    resource(
        id,
        "bundle",
        json!({ "path": at, "tree": tree, "list_bytes": bytes.len() }),
    )
}

/// An archive whose artifact is there.
pub(crate) fn archive(world: &World, id: &str, at: &str, files: &[(&str, &str)]) -> Resource {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    let bytes = builder.into_inner().unwrap();
    let sha256 = artifact(world, &bytes);
    let spec = json!({ "path": at, "sha256": sha256, "size_bytes": bytes.len(), "packing": "tar" });
    resource(id, "archive", spec)
}

fn with(mut resource: Resource, key: &str, value: Value) -> Resource {
    resource.spec[key] = value;
    resource
}

fn apply(machine: &mut Machine, decl: &Decl) -> Applied {
    machine.apply(&decl.get(), decl.digest(), 10).unwrap()
}

fn one(resource: Resource, sequence: u64) -> Decl {
    Decl::new(sequence).with("web", vec![resource])
}

/// What stands below a folder, by path in it.
fn below(world: &World, folder: &str) -> Vec<(String, String)> {
    let all = world.targets().into_iter();
    all.filter_map(|(at, how)| Some((at.strip_prefix(folder)?.to_owned(), how)))
        .collect()
}

fn names(world: &World, folder: &str) -> Vec<String> {
    below(world, folder).into_iter().map(|(at, _)| at).collect()
}

// holds: HK-4, HR-2
#[test]
fn a_bundle_is_put_in_place_whole_and_ten_more_applies_write_nothing() {
    let world = World::new();
    let mut machine = world.machine();
    let site = bundle(
        &world,
        "site",
        "/srv/web",
        &[("index.html", "hello"), ("!bin/run", "#!/bin/sh\n")],
    );
    let first = settle(&mut machine, &one(site.clone(), 1));
    assert_eq!(outcomes(&first), [("web.site".to_owned(), Outcome::Created)]);
    assert_eq!(
        below(&world, "/srv/web/"),
        [
            ("bin".to_owned(), "folder 755 1000:1000".to_owned()),
            (
                "bin/run".to_owned(),
                "file 755 1000:1000 \"#!/bin/sh\\n\"".to_owned()
            ),
            ("index.html".to_owned(), "file 644 1000:1000 \"hello\"".to_owned()),
        ]
    );
    world.disk.begin();
    for sequence in 2..12 {
        let applied = settle(&mut machine, &one(site.clone(), sequence));
        assert_eq!((applied.end, applied.lines), (End::Converged, Vec::new()));
    }
    machine.repair(&one(site, 11).get(), 50).unwrap();
    let wrote: Vec<String> = names(&world, "/srv/");
    assert_eq!(wrote, ["web", "web/bin", "web/bin/run", "web/index.html"]);
}

// holds: HK-4, HR-5
#[test]
fn a_file_that_the_new_one_lacks_is_gone_and_the_former_tree_is_kept_until_the_confirm() {
    let world = World::new();
    let mut machine = world.machine();
    let old = bundle(&world, "site", "/srv/web", &[("a", "1"), ("gone", "x")]);
    settle(&mut machine, &one(old, 1));
    let before = world.targets();
    let new = bundle(&world, "site", "/srv/web", &[("a", "2"), ("b/c", "3")]);
    for confirms in [false, true] {
        let decl = one(new.clone(), 2);
        assert_eq!(apply(&mut machine, &decl).end, End::WindowOpen);
        assert_eq!(names(&world, "/srv/web/"), ["a", "b", "b/c"]);
        let kept = names(&world, "/srv/.meshplan-");
        assert!(kept.iter().any(|at| at.ends_with("old/gone")), "{kept:?}");
        machine.arm(100).unwrap();
        if confirms {
            machine.confirm(20).unwrap();
            assert_eq!(names(&world, "/srv/"), ["web", "web/a", "web/b", "web/b/c"]);
        } else {
            machine.revert(&because("so"), 20).unwrap();
            assert_eq!(world.targets(), before);
        }
    }
    assert!(settle(&mut machine, &one(new, 3)).converged());
}

// holds: HK-4, HR-14
#[test]
fn what_goes_back_to_nothing_leaves_nothing_and_is_nobodys_afterwards() {
    let world = World::new();
    let mut machine = world.machine();
    let before = world.targets();
    let site = bundle(&world, "site", "/srv/web", &[("a", "1")]);
    apply(&mut machine, &one(site.clone(), 1));
    machine.arm(100).unwrap();
    machine.revert(&because("so"), 20).unwrap();
    assert_eq!(world.targets(), before);
    // What somebody puts there now is not the host's to replace.
    world.disk.plant(&path("/srv/web/theirs"), b"theirs", 0o644);
    let applied = apply(&mut machine, &one(site, 2));
    assert!(
        reason(&applied, "web.site").contains("did not put there"),
        "{applied:?}"
    );
    assert_eq!(names(&world, "/srv/web/"), ["theirs"]);
}

// holds: HK-4, HR-8
#[test]
fn an_empty_folder_is_filled_and_empty_again_when_nothing_declares_it() {
    let world = World::new();
    world.disk.plant(&path("/srv/web/x"), b"", 0o644);
    world.disk.unlink(&path("/srv/web/x")).unwrap();
    let mut machine = world.machine();
    let before = world.targets();
    settle(
        &mut machine,
        &one(bundle(&world, "site", "/srv/web", &[("a", "1")]), 1),
    );
    assert_eq!(names(&world, "/srv/web/"), ["a"]);
    let last = settle(&mut machine, &Decl::new(2));
    assert!(reason(&last, "web.site").contains("as it was found"), "{last:?}");
    assert_eq!(world.targets(), before);
}

// holds: HK-4, HK-6
#[test]
fn a_bundle_that_nothing_declares_is_removed_and_comes_back_when_that_goes_back() {
    let world = World::new();
    let mut machine = world.machine();
    settle(
        &mut machine,
        &one(bundle(&world, "site", "/srv/web", &[("a", "1")]), 1),
    );
    let there = world.targets();
    apply(&mut machine, &Decl::new(2));
    assert_eq!(names(&world, "/srv/web"), Vec::<String>::new());
    machine.arm(100).unwrap();
    machine.revert(&because("so"), 20).unwrap();
    assert_eq!(world.targets(), there);
    let removed = settle(&mut machine, &Decl::new(3));
    assert_eq!(outcomes(&removed), [("web.site".to_owned(), Outcome::Removed)]);
    assert_eq!(
        world.targets().keys().filter(|at| at.starts_with("/srv")).count(),
        0
    );
}

// holds: HR-6, HK-4
#[test]
fn an_archive_has_no_removal_and_hinders_nothing_else() {
    let world = World::new();
    let mut machine = world.machine();
    let tool = |at: &str| archive(&world, "tool", at, &[("bin/tool", "1"), ("doc", "x")]);
    let beside = || file("f", "/f", "x");
    settle(
        &mut machine,
        &Decl::new(1).with("web", vec![tool("/opt/tool-1"), beside()]),
    );
    let moved = settle(
        &mut machine,
        &Decl::new(2).with("web", vec![tool("/opt/tool-2"), beside()]),
    );
    assert!(
        moved
            .lines
            .iter()
            .any(|l| l.outcome == Outcome::Forgotten && l.reason.contains("/opt/tool-1"))
    );
    assert_eq!(names(&world, "/opt/tool-1/"), ["bin", "bin/tool", "doc"]);
    let dropped = settle(&mut machine, &Decl::new(3));
    assert!(!dropped.failed, "{dropped:?}");
    assert!(
        dropped
            .lines
            .iter()
            .any(|l| l.outcome == Outcome::Kept && l.reason.contains("/opt/tool-2"))
    );
    assert_eq!(names(&world, "/opt/tool-2/"), ["bin", "bin/tool", "doc"]);
    assert!(!world.targets().contains_key("/f"));
}

// holds: HK-4, HR-2
#[test]
fn drift_of_a_tree_is_put_right_and_what_programs_leave_in_it_is_none() {
    let world = World::new();
    let mut machine = world.machine();
    let decl = one(bundle(&world, "site", "/srv/web", &[("a", "1"), ("b", "2")]), 1);
    settle(&mut machine, &decl);
    world.disk.plant(&path("/srv/web/cache/x"), b"", 0o644);
    assert_eq!(machine.repair(&decl.get(), 30).unwrap().end, End::Converged);
    world.disk.plant(&path("/srv/web/a"), b"9", 0o644);
    world.disk.unlink(&path("/srv/web/b")).unwrap();
    let repaired = machine.repair(&decl.get(), 40).unwrap();
    assert_eq!(
        outcomes(&repaired),
        [("web.site".to_owned(), Outcome::DriftRepaired)]
    );
    let why = reason(&repaired, "web.site");
    assert!(why.contains("a is changed") && why.contains("b is gone"), "{why}");
    assert_eq!(names(&world, "/srv/"), ["web", "web/a", "web/b"]);
    assert!(machine.repair(&decl.get(), 50).unwrap().converged());
}

// holds: HK-4
#[test]
fn an_archive_that_is_refused_leaves_the_old_tree_whole() {
    let world = World::new();
    let mut machine = world.machine();
    settle(
        &mut machine,
        &one(archive(&world, "tool", "/opt/tool", &[("a", "1")]), 1),
    );
    let before = world.targets();
    let bad = [
        archive(&world, "tool", "/opt/tool", &[("b", "1"), ("b", "2")]),
        with(
            archive(&world, "tool", "/opt/tool", &[("c", "1")]),
            "packing",
            json!("tar.gz"),
        ),
        with(
            archive(&world, "tool", "/opt/tool", &[("d", "1")]),
            "sha256",
            json!(Digest::of(b"elsewhere")),
        ),
    ];
    for (number, resource) in (2..).zip(bad) {
        let applied = apply(&mut machine, &one(resource, number));
        assert!(matches!(applied.end, End::Reverted { .. }), "{applied:?}");
        assert_eq!(world.targets(), before);
    }
}

// holds: HK-4, HR-14
#[test]
fn no_room_for_a_bundle_is_said_before_anything_is_touched() {
    let world = World::new();
    let mut machine = world.machine();
    let big = "x".repeat(3_000_000);
    let decl = one(bundle(&world, "site", "/srv/web", &[("big", &big)]), 1);
    world.disk.set_space(2_500_000, Some(1000));
    let before = world.targets();
    let applied = apply(&mut machine, &decl);
    assert!(
        matches!(&applied.end, End::NotBegun { why } if why.contains("no room")),
        "{applied:?}"
    );
    assert_eq!(world.targets(), before);
}

// holds: HR-16, HR-6
#[test]
fn nothing_else_may_stand_in_a_tree_and_a_renamed_module_hands_it_over() {
    let world = World::new();
    let mut machine = world.machine();
    let site = || bundle(&world, "site", "/srv/web", &[("a", "1")]);
    let inside = Decl::new(1).with("web", vec![site(), file("f", "/srv/web/f", "x")]);
    let refused = apply(&mut machine, &inside);
    assert!(
        matches!(&refused.end, End::NotBegun { why } if why.contains("below the target")),
        "{refused:?}"
    );
    let around = Decl::new(2).with("web", vec![bundle(&world, "site", "/var/lib", &[("a", "1")])]);
    let refused = apply(&mut machine, &around);
    assert!(
        matches!(&refused.end, End::NotBegun { why } if why.contains("state folder")),
        "{refused:?}"
    );
    settle(&mut machine, &Decl::new(3).with("web", vec![site()]));
    world.disk.begin();
    let renamed = settle(&mut machine, &Decl::new(4).with("shop", vec![site()]));
    assert_eq!((renamed.end, renamed.lines), (End::Converged, Vec::new()));
}

// holds: HK-6
#[test]
fn a_program_runs_out_of_its_bundle_and_another_build_is_another_unit() {
    let world = World::new();
    let disk = world.disk.clone();
    world.system.with(|sim| sim.disk = Some(disk));
    let mut machine = world.machine();
    let decl = |sequence, text: &str| {
        let app = bundle(&world, "app", "/opt/web", &[("!bin/web", text)]);
        let build = app.spec["tree"].clone();
        let web = resource(
            "web",
            "process",
            json!({
                "name": "web", "command": ["./bin/web", "--here"], "run": "daemon", "restart": "always",
                "timeout_secs": 60, "stop_secs": 30, "witness": "none", "bundle": "app", "build": build,
            }),
        );
        Decl::new(sequence).with("web", vec![app, web])
    };
    let first = settle(&mut machine, &decl(1, "one"));
    assert_eq!(first.end, End::WindowOpen, "{first:?}");
    let unit = world.targets()["/etc/systemd/system/web.service"].clone();
    assert!(
        unit.contains("ExecStart=\\\"/opt/web/bin/web\\\"") || unit.contains("ExecStart=/opt/web/bin/web"),
        "{unit}"
    );
    world.system.with(|sim| sim.log.clear());
    let second = settle(&mut machine, &decl(2, "two"));
    assert_eq!(
        outcomes(&second),
        [
            ("web.app".to_owned(), Outcome::Updated),
            ("web.web".to_owned(), Outcome::Updated)
        ]
    );
    assert!(
        world.system.acts().contains(&"restart web.service".to_owned()),
        "{:?}",
        world.system.acts()
    );
    settle(&mut machine, &Decl::new(3));
    assert!(
        !world
            .targets()
            .keys()
            .any(|at| at.starts_with("/opt") || at.ends_with("web.service"))
    );
}

// holds: HR-6, HK-4
#[test]
fn a_tree_that_moves_below_where_it_stood_and_what_takes_its_place_are_not_swept_with_it() {
    let world = World::new();
    let mut machine = world.machine();
    let app = |at: &str| bundle(&world, "app", at, &[("a", "1")]);
    settle(&mut machine, &one(app("/opt/app"), 1));
    let moved = settle(&mut machine, &one(app("/opt/app/current"), 2));
    assert!(!moved.failed, "{moved:?}");
    assert_eq!(names(&world, "/opt/"), ["app", "app/current", "app/current/a"]);
    settle(&mut machine, &Decl::new(3));
    settle(&mut machine, &one(app("/opt/app"), 4));
    assert_eq!(names(&world, "/opt/"), ["app", "app/a"]);
    let folder = crate::world::directory("app", "/opt/app");
    let decl = Decl::new(5).with("web", vec![folder, file("f", "/opt/app/f", "x")]);
    let taken = settle(&mut machine, &decl);
    assert!(!taken.failed, "{taken:?}");
    assert_eq!(names(&world, "/opt/"), ["app", "app/f"]);
    assert!(machine.repair(&decl.get(), 50).unwrap().converged());
}

// holds: HK-4, HR-8
#[test]
fn what_somebody_has_where_a_tree_of_the_hosts_once_stood_is_not_replaced() {
    let world = World::new();
    let mut machine = world.machine();
    settle(
        &mut machine,
        &one(archive(&world, "tool", "/opt/tool", &[("a", "1")]), 1),
    );
    settle(&mut machine, &Decl::new(2));
    // As the report says: by hand.
    world.disk.remove_all(&path("/opt/tool")).unwrap();
    settle(&mut machine, &Decl::new(3));
    world.disk.plant(&path("/opt/tool/theirs"), b"theirs", 0o644);
    let refused = apply(
        &mut machine,
        &one(bundle(&world, "tool", "/opt/tool", &[("b", "2")]), 4),
    );
    assert!(
        reason(&refused, "web.tool").contains("did not put there"),
        "{refused:?}"
    );
    assert_eq!(names(&world, "/opt/tool/"), ["theirs"]);
}

// holds: HR-14, HK-4
#[test]
fn what_programs_left_in_a_tree_comes_back_with_it_and_is_no_drift() {
    let world = World::new();
    let mut machine = world.machine();
    let old = one(bundle(&world, "site", "/srv/web", &[("a", "1")]), 1);
    settle(&mut machine, &old);
    world.disk.plant(&path("/srv/web/pid"), b"7", 0o644);
    apply(
        &mut machine,
        &one(bundle(&world, "site", "/srv/web", &[("a", "2")]), 2),
    );
    machine.arm(100).unwrap();
    machine.revert(&because("so"), 20).unwrap();
    assert_eq!(names(&world, "/srv/web/"), ["a", "pid"]);
    let looked = machine.repair(&old.get(), 50).unwrap();
    assert_eq!((looked.end, looked.lines), (End::Converged, Vec::new()));
    assert_eq!(names(&world, "/srv/web/"), ["a", "pid"]);
}
