//! Power cuts: after every act that a story remembers, with every loss of what was not synced, the next start
//! leaves the old or the new, whole, and a second run changes nothing (EP-2, HR-5, B40).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_host::edge::disk::SimDisk;
use meshplan_host::edge::machine::{LedgerState, Machine, Recovered};
use meshplan_schemas::declaration::OnFailure;
use meshplan_schemas::resource::Resource;

use crate::trees::{archive, bundle};
use crate::world::{self, Decl, World, directory, directory_with, file, file_with, link, path, probe};

type Shown = BTreeMap<String, String>;

/// A story: what was there, what was confirmed, and what happens while the power may go.
struct Story {
    name: &'static str,
    prepare: fn(&World),
    former: Decl,
    act: fn(&mut Machine),
    /// What a start under the same boot goes on waiting for may be there too.
    latter: Option<Decl>,
}

fn former() -> Decl {
    Decl::new(1)
        .with(
            "base",
            vec![
                directory("d", "/etc/app"),
                file("f", "/etc/app/conf", "old\nlines\n"),
                link("l", "/etc/l", "old"),
            ],
        )
        .with(
            "gone",
            vec![
                file("f", "/srv/gone/deep/f", "gone\n"),
                directory("d", "/srv/dir"),
                probe("p"),
            ],
        )
}

fn latter() -> Decl {
    Decl::new(2)
        .with(
            "base",
            vec![
                directory_with("d", "/etc/app", "0700"),
                file_with("f", "/etc/app/conf", "new\nlines\nmore\n", "0600"),
                link("l", "/etc/l", "new"),
                file("fresh", "/opt/a/b/fresh", "fresh\n"),
            ],
        )
        .with(
            "web",
            vec![
                file("found", "/etc/found", "ours\n"),
                file("moved", "/srv/gone/deep/f", "gone\n"),
            ],
        )
}

fn apply_and(machine: &mut Machine, decl: &Decl, confirm: bool) {
    let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    if applied.window_open() {
        machine.arm(100).unwrap();
        if confirm {
            machine.confirm(20).unwrap();
        } else {
            machine.revert(&world::because("a probe failed"), 20).unwrap();
        }
    }
}

fn failing() -> Decl {
    let mut decl = latter();
    decl.declaration.resources.last_mut().unwrap().spec["path"] = "/barred/f".into();
    decl
}

fn stories() -> Vec<Story> {
    let prepare: fn(&World) = |world| world.root.plant(&path("/etc/found"), b"theirs\n", 0o640);
    vec![
        Story {
            name: "confirmed",
            prepare,
            former: former(),
            act: |machine| apply_and(machine, &latter(), true),
            latter: Some(latter()),
        },
        Story {
            name: "reverted",
            prepare,
            former: former(),
            act: |machine| apply_and(machine, &latter(), false),
            latter: None,
        },
        Story {
            name: "a resource fails and all goes back",
            prepare: |world| {
                world.root.plant(&path("/etc/found"), b"theirs\n", 0o640);
                world.root.forbid(&path("/barred"));
            },
            former: former(),
            act: |machine| apply_and(machine, &failing(), true),
            latter: None,
        },
        Story {
            name: "a resource fails and what was done stays",
            prepare: |world| {
                world.root.plant(&path("/etc/found"), b"theirs\n", 0o640);
                world.root.forbid(&path("/barred"));
            },
            former: former(),
            act: |machine| {
                let mut decl = failing();
                decl.declaration.on_failure = OnFailure::Keep;
                apply_and(machine, &decl, true);
            },
            latter: None,
        },
        Story {
            name: "everything is dropped",
            prepare,
            former: former(),
            act: |machine| apply_and(machine, &Decl::new(2), true),
            latter: Some(Decl::new(2)),
        },
        Story {
            name: "the first declaration",
            prepare,
            former: Decl::new(1),
            act: |machine| apply_and(machine, &latter(), true),
            latter: Some(latter()),
        },
        Story {
            name: "a policy",
            prepare,
            former: former(),
            act: |machine| {
                assert!(machine.apply_policy("b = 2\n", 2, 60, 10).unwrap().window_open());
                machine.arm(100).unwrap();
                machine.confirm(20).unwrap();
            },
            latter: None,
        },
    ]
}

/// What becomes of trees: one is replaced, one is new, one goes; what they are made of is on the disk before.
fn tree_stories() -> Vec<Story> {
    let prepare: fn(&World) = |world| drop((trees(world, 1), trees(world, 2)));
    let former = trees(&World::new(), 1);
    let latter = || Decl::new(2).with("web", trees(&World::new(), 2));
    vec![
        Story {
            name: "trees, confirmed",
            prepare,
            former: Decl::new(1).with("web", former.clone()),
            act: |machine| apply_and(machine, &Decl::new(2).with("web", trees(&World::new(), 2)), true),
            latter: Some(latter()),
        },
        Story {
            name: "trees, reverted",
            prepare,
            former: Decl::new(1).with("web", former),
            act: |machine| apply_and(machine, &Decl::new(2).with("web", trees(&World::new(), 2)), false),
            latter: None,
        },
    ]
}

fn trees(world: &World, number: u64) -> Vec<Resource> {
    match number {
        1 => vec![
            bundle(world, "site", "/srv/site", &[("a", "1"), ("b", "2")]),
            bundle(world, "app", "/srv/app", &[("!run", "app")]),
        ],
        _ => vec![
            bundle(world, "site", "/srv/site", &[("a", "one"), ("c", "3")]),
            archive(world, "tool", "/opt/tool", &[("tool", "t")]),
        ],
    }
}

fn begun(story: &Story) -> World {
    let world = World::new();
    (story.prepare)(&world);
    let mut machine = world.machine();
    world::settle(&mut machine, &story.former);
    if story.name == "a policy" {
        machine.apply_policy("a = 1\n", 1, 60, 10).unwrap();
        machine.arm(100).unwrap();
        machine.confirm(20).unwrap();
    }
    world.disk.begin();
    world
}

/// The targets and the policy: what a cut may not leave half.
fn whole(world: &World) -> Shown {
    let mut shown = world.disk.show();
    shown.retain(|at, _| !at.starts_with(world::STATE) || at.ends_with("policy.toml"));
    shown
}

fn number(machine: &Machine) -> u64 {
    match machine.ledger() {
        LedgerState::Known(ledger) => ledger.confirmed.map_or(0, |c| c.sequence),
        other => panic!("the ledger is not known after a cut: {other:?}"),
    }
}

// holds: EP-2, HR-5, B40
#[test]
fn a_power_cut_at_any_act_with_any_loss_leaves_the_old_or_the_new_whole() {
    cut_everywhere(stories());
}

// holds: EP-2, HR-5, HK-4
#[test]
fn a_power_cut_while_trees_change_leaves_the_old_or_the_new_whole() {
    cut_everywhere(tree_stories());
}

fn cut_everywhere(stories: Vec<Story>) {
    for story in stories {
        let world = begun(&story);
        let old = whole(&world);
        let mut machine = world.machine();
        (story.act)(&mut machine);
        let new = whole(&world);
        let acts = world.disk.acts();
        assert!(acts > 20, "{}: only {acts} acts", story.name);
        let mut cuts = 0;
        let (mut to_old, mut to_new) = (0, 0);
        for after in 0..=acts {
            for disk in world.disk.cuts_after(after) {
                cuts += 1;
                let context = format!("{} cut after {after} of {acts} acts", story.name);
                let world = World::on(disk);
                let (mut machine, _) = world.open_under("the next boot");
                assert!(
                    machine.window().is_none(),
                    "{context}: a window is open under another boot"
                );
                let now = whole(&world);
                let is_new = now == new && (old != new || number(&machine) == 2);
                if is_new {
                    to_new += 1;
                } else {
                    to_old += 1;
                    assert_eq!(now, old, "{context}: neither old nor new");
                }
                if let Some(latter) = &story.latter {
                    let decl = if is_new { latter } else { &story.former };
                    assert_eq!(
                        number(&machine),
                        decl.declaration.sequence,
                        "{context}: the ledger says otherwise"
                    );
                    world.disk.begin();
                    let again = machine.apply(&decl.get(), decl.digest(), 50).unwrap();
                    assert!(again.converged(), "{context}: {again:?}");
                    assert_eq!(world.disk.acts(), 0, "{context}: a second run wrote");
                }
                nothing_left_over(&world, &context);
            }
        }
        assert!(
            cuts > acts && to_old > 0,
            "{}: {cuts} cuts of {acts} acts",
            story.name
        );
        assert_eq!(to_new > 0, old != new, "{}", story.name);
    }
}

fn nothing_left_over(world: &World, context: &str) {
    let over: Vec<String> = world
        .disk
        .show()
        .into_keys()
        .filter(|at| at.contains(".meshplan-") && !at.starts_with(world::STATE) || at.contains("/window"))
        .collect();
    assert!(over.is_empty(), "{context}: left over: {over:?}");
}

// holds: EP-2, HR-13
#[test]
fn a_host_that_is_killed_at_any_act_goes_on_waiting_or_comes_to_old_or_new_under_the_same_boot() {
    for story in stories().into_iter().chain(tree_stories()) {
        let world = begun(&story);
        let old = whole(&world);
        let mut machine = world.machine();
        (story.act)(&mut machine);
        let new = whole(&world);
        // A kill loses nothing that was written: of the ways of a cut only the one that keeps all.
        let mut waited = 0;
        for after in 0..=world.disk.acts() {
            let world = World::on(all_kept(&world.disk, after));
            let (mut machine, recovery) = world.open();
            if let Recovered::StillOpen(window) = &recovery.window {
                waited += 1;
                assert_eq!(window.confirm_deadline, Some(100));
                machine
                    .revert(&world::because("the deadline passed"), 200)
                    .unwrap();
                assert_eq!(whole(&world), old, "{} killed after {after}", story.name);
                continue;
            }
            let now = whole(&world);
            assert!(
                now == old || now == new,
                "{} killed after {after}: {recovery:?}",
                story.name
            );
            nothing_left_over(&world, story.name);
        }
        assert!(
            waited > 0 || old == new,
            "{}: no kill hit the open window",
            story.name
        );
    }
}

fn all_kept(disk: &SimDisk, after: usize) -> SimDisk {
    disk.cut_keeping_all(after)
}

// holds: EP-2, B40
#[test]
fn a_second_power_cut_while_the_first_is_recovered_from_changes_nothing_of_the_argument() {
    for story in stories() {
        let world = begun(&story);
        let old = whole(&world);
        let mut machine = world.machine();
        (story.act)(&mut machine);
        let new = whole(&world);
        let mut seen: BTreeSet<Vec<(String, String)>> = BTreeSet::new();
        for after in 0..=world.disk.acts() {
            for disk in world.disk.cuts_after(after) {
                if !seen.insert(disk.show().into_iter().collect()) {
                    continue;
                }
                let first = World::on(disk);
                first.disk.begin();
                let _recovered = first.open_under("the next boot");
                for second_after in (0..=first.disk.acts()).step_by(3) {
                    for disk in [
                        first.disk.cut_keeping_all(second_after),
                        first.disk.cut_losing_all(second_after),
                    ] {
                        let second = World::on(disk);
                        let (machine, _) = second.open_under("a third boot");
                        assert!(machine.window().is_none());
                        let now = whole(&second);
                        assert!(
                            now == old || now == new,
                            "{} cut after {after}, again after {second_after}: neither old nor new",
                            story.name
                        );
                    }
                }
            }
        }
    }
}

// holds: HR-2, B40
#[test]
fn a_power_cut_while_drift_is_put_right_leaves_the_drift_or_what_was_asked() {
    let world = World::new();
    let decl = Decl::new(1).with(
        "web",
        vec![
            file("f", "/f", "ours\n"),
            directory("d", "/d"),
            link("l", "/l", "ours"),
        ],
    );
    let mut machine = world.machine();
    world::settle(&mut machine, &decl);
    let ours = whole(&world);
    world.root.plant(&path("/f"), b"theirs\n", 0o600);
    world.disk.begin();
    machine.repair(&decl.get(), 10).unwrap();
    for after in 0..=world.disk.acts() {
        for disk in world.disk.cuts_after(after) {
            let world = World::on(disk);
            let mut machine = world.machine();
            let now = whole(&world);
            let there = now.get("/f").unwrap();
            assert!(there.contains("theirs") || there.contains("ours"), "{there}");
            nothing_left_over(&world, "repair");
            machine.repair(&decl.get(), 20).unwrap();
            assert_eq!(whole(&world), ours);
        }
    }
}
