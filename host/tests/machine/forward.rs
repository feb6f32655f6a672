//! What goes only forward is not undone with its window, and is no drift afterwards (DL-7, HR-5).

use meshplan_host::edge::machine::{End, Machine};
use meshplan_schemas::report::{Outcome, ResourceLine};
use meshplan_schemas::resource::Resource;

use crate::world::{self, Decl, World, directory, file, path};

fn forward(mut resource: Resource) -> Resource {
    resource.forward_only = Some(true);
    resource
}

fn schema(text: &str) -> Resource {
    forward(file("schema", "/srv/app/schema", text))
}

fn outcome_of(lines: &[ResourceLine], name: &str) -> Outcome {
    let line = lines.iter().find(|line| line.name.to_string() == name);
    line.unwrap_or_else(|| panic!("{name} is not in {lines:?}"))
        .outcome
}

fn revert(machine: &mut Machine, decl: &Decl) -> Vec<ResourceLine> {
    let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
    assert!(applied.window_open(), "{applied:?}");
    machine.arm(100).unwrap();
    machine.revert(&world::because("a probe failed"), 20).unwrap()
}

fn has(world: &World, at: &str) -> Option<String> {
    world.targets().get(at).cloned()
}

// holds: DL-7, HR-5
#[test]
fn a_revert_leaves_what_goes_only_forward_and_it_is_no_drift() {
    let world = World::new();
    let mut machine = world.machine();
    let former = Decl::new(1).with("web", vec![schema("one\n"), file("conf", "/etc/conf", "one\n")]);
    world::settle(&mut machine, &former);
    let latter = Decl::new(2).with("web", vec![schema("two\n"), file("conf", "/etc/conf", "two\n")]);
    let lines = revert(&mut machine, &latter);
    assert_eq!(outcome_of(&lines, "web.schema"), Outcome::Kept);
    assert_eq!(outcome_of(&lines, "web.conf"), Outcome::Reverted);
    assert!(has(&world, "/srv/app/schema").unwrap().contains("two"));
    assert!(has(&world, "/etc/conf").unwrap().contains("one"));

    // The confirmed declaration has it otherwise; that is said, and nothing is put right.
    for machine in [&mut machine, &mut world.machine()] {
        let looked = machine.repair(&former.get(), 30).unwrap();
        assert_eq!(
            (looked.end.clone(), looked.failed),
            (End::Converged, false),
            "{looked:?}"
        );
        assert_eq!(outcome_of(&looked.lines, "web.schema"), Outcome::Kept);
        assert!(has(&world, "/srv/app/schema").unwrap().contains("two"));
    }

    // What the reconciler then orders is there already; from then on whoever changes it is put right again.
    let mut machine = world.machine();
    let restored = Decl::new(3).with("web", vec![schema("two\n"), file("conf", "/etc/conf", "one\n")]);
    assert!(world::settle(&mut machine, &restored).converged());
    world.root.plant(&path("/srv/app/schema"), b"theirs\n", 0o644);
    let repaired = machine.repair(&restored.get(), 40).unwrap();
    assert_eq!(outcome_of(&repaired.lines, "web.schema"), Outcome::DriftRepaired);
    // And an order may have it as it was: that is no roll-back.
    world::settle(&mut machine, &former);
    assert!(has(&world, "/srv/app/schema").unwrap().contains("one"));
}

// holds: DL-7, HR-5
#[test]
fn what_was_added_or_taken_away_forward_only_stays_so_with_the_folders_on_the_way() {
    let world = World::new();
    let mut machine = world.machine();
    let plain = || file("conf", "/etc/conf", "one\n");
    let latter = Decl::new(2).with(
        "web",
        vec![
            directory("d", "/srv/app"),
            schema("two\n"),
            file("other", "/opt/other/f", "x\n"),
        ],
    );
    let former = Decl::new(1).with("web", vec![plain()]);
    world::settle(&mut machine, &former);
    revert(&mut machine, &latter);
    assert!(has(&world, "/srv/app/schema").is_some());
    assert!(has(&world, "/opt/other/f").is_none() && has(&world, "/opt/other").is_none());
    assert!(machine.repair(&former.get(), 30).unwrap().converged());

    // Taken away in a window that goes back: it stays away, and the folders that were made for it with it.
    let restored = Decl::new(3).with("web", vec![plain(), schema("two\n")]);
    world::settle(&mut machine, &restored);
    let lines = revert(
        &mut machine,
        &Decl::new(4).with("web", vec![file("conf", "/etc/conf", "two\n")]),
    );
    assert_eq!(outcome_of(&lines, "web.schema"), Outcome::Kept);
    assert!(has(&world, "/srv/app/schema").is_none());
    let looked = machine.repair(&restored.get(), 50).unwrap();
    assert!(!looked.failed, "{looked:?}");
    assert_eq!(outcome_of(&looked.lines, "web.schema"), Outcome::Kept);
    assert!(has(&world, "/srv/app/schema").is_none());
}

// holds: DL-7
#[test]
fn a_mark_that_the_failed_declaration_takes_away_counts_still() {
    let world = World::new();
    let mut machine = world.machine();
    world::settle(&mut machine, &Decl::new(1).with("web", vec![schema("one\n")]));
    let unmarked = Decl::new(2).with("web", vec![file("schema", "/srv/app/schema", "two\n")]);
    revert(&mut machine, &unmarked);
    assert!(has(&world, "/srv/app/schema").unwrap().contains("two"));
}

// holds: DL-7, HR-5
#[test]
fn what_was_not_begun_when_another_failed_is_as_before_and_said() {
    let world = World::new();
    let mut machine = world.machine();
    world.root.forbid(&path("/barred"));
    let former = Decl::new(1).with("web", vec![schema("one\n")]);
    world::settle(&mut machine, &former);
    for (barred_first, outcome, text) in [(true, Outcome::Skipped, "one"), (false, Outcome::Kept, "two")] {
        let mut resources = vec![schema("two\n"), file("bad", "/barred/f", "x\n")];
        if barred_first {
            resources.reverse();
        }
        let latter = Decl::new(2).with("web", resources);
        let applied = machine.apply(&latter.get(), latter.digest(), 10).unwrap();
        assert!(matches!(applied.end, End::Reverted { .. }), "{applied:?}");
        assert_eq!(outcome_of(&applied.lines, "web.schema"), outcome);
        assert!(has(&world, "/srv/app/schema").unwrap().contains(text));
    }
}

// holds: DL-7, EP-2, HR-5
#[test]
fn a_power_cut_at_any_act_leaves_what_goes_only_forward_old_or_new_and_the_ledger_knows_which() {
    let fresh = || forward(file("fresh", "/opt/a/b/fresh", "fresh\n"));
    let decl = |number, text: &str, schema_text, more: Vec<Resource>| {
        let conf = file("conf", "/etc/conf", text);
        Decl::new(number).with("web", [vec![conf, schema(schema_text)], more].concat())
    };
    let former = decl(1, "one\n", "one\n", Vec::new());
    let world = World::new();
    let mut machine = world.machine();
    let bare = world.targets();
    world::settle(&mut machine, &former);
    world.disk.begin();
    revert(&mut machine, &decl(2, "two\n", "two\n", vec![fresh()]));
    let acts = world.disk.acts();
    let mut seen = std::collections::BTreeSet::new();
    for after in 0..=acts {
        for disk in world.disk.cuts_after(after) {
            let context = format!("cut after {after} of {acts}");
            let world = World::on(disk);
            let (mut machine, _) = world.open_under("the next boot");
            assert!(machine.window().is_none(), "{context}");
            let targets = world.targets();
            assert!(has(&world, "/etc/conf").unwrap().contains("one"), "{context}");
            let new = has(&world, "/srv/app/schema").unwrap().contains("two");
            let is_fresh = targets.contains_key("/opt/a/b/fresh");
            assert!(
                is_fresh || !targets.contains_key("/opt"),
                "{context}: a folder was left: {targets:?}"
            );
            seen.insert((new, is_fresh));
            assert!(
                !targets.keys().any(|at| at.contains(".meshplan-")),
                "{context}: {targets:?}"
            );

            let looked = machine.repair(&former.get(), 30).unwrap();
            let said: Vec<_> = looked.lines.iter().map(|line| line.outcome).collect();
            let expected = if new { vec![Outcome::Kept] } else { Vec::new() };
            assert_eq!((said, looked.failed), (expected, false), "{context}");
            assert_eq!(world.targets(), targets, "{context}: what is ahead was put right");

            let text = if new { "two\n" } else { "one\n" };
            let more = if is_fresh { vec![fresh()] } else { Vec::new() };
            let restored = world::settle(&mut machine, &decl(3, "one\n", text, more));
            assert!(restored.converged(), "{context}: {restored:?}");
            assert_eq!(world.targets(), targets, "{context}");
            let none = world::settle(&mut machine, &Decl::new(4));
            assert!(!none.failed, "{context}");
            assert_eq!(world.targets(), bare, "{context}: the ledger forgot something");
        }
    }
    assert_eq!(seen.len(), 3, "neither, the first, both: {seen:?}");
}
