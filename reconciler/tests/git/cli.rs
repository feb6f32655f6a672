//! The commands that show and prove the record, over a real clone.

use clap::Parser;
use meshplan_reconciler::cli::exit::Exit;
use meshplan_reconciler::cli::notes::{Args, run};
use meshplan_schemas::envelope::Signer as _;
use meshplan_schemas::ident::CommitId;

use super::world::{Journal, World, at, signer};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn notes(world: &World, args: &[&str]) -> (Exit, String) {
    let work = world.work();
    let first = ["notes", "--repo", work.to_str().unwrap()];
    let line = first.iter().chain(args);
    let json = args.contains(&"--json");
    let cli = Cli::try_parse_from(line.filter(|a| **a != "--json")).unwrap();
    let mut out = Vec::new();
    let exit = run(&cli.args, None, json, &mut out).unwrap();
    (exit, String::from_utf8(out).unwrap())
}

/// A fleet whose record has three blocks, fetched into the clone.
fn recorded() -> (World, CommitId) {
    let world = World::new();
    let fleet = format!(
        "[[authors]]\nid = \"reconciler-2026\"\nkey = \"{}\"\n",
        signer().public()
    );
    let head = world.merge("fleet.toml", &fleet);
    let mut mirror = world.mirror();
    mirror.fetch().unwrap();
    let mut notes = mirror.notes().unwrap();
    let mut journal = Journal::default();
    notes
        .append(
            &[journal.block(&head), journal.block(&head), journal.block(&head)],
            at(),
        )
        .unwrap();
    notes.push(at());
    world.git(
        &world.work(),
        &["fetch", "--quiet", "origin", "+refs/notes/*:refs/notes/*"],
    );
    (world, head)
}

// holds: DL-9, DL-12
#[test]
fn the_story_of_a_commit_is_shown_from_a_clone() {
    let (world, head) = recorded();
    for name in ["HEAD", head.as_str(), head.short(), "main"] {
        let (exit, text) = notes(&world, &["show", name]);
        assert_eq!(exit, Exit::Done);
        assert!(
            text.starts_with("2026-10-06T23:05:28Z (new) -> proposed (announced) by forge: "),
            "{text}"
        );
    }
    let (_, text) = notes(&world, &["show", "HEAD", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (
            value["blocks"].as_array().unwrap().len(),
            &value["blocks"][2]["number"]
        ),
        (3, &3.into())
    );
    assert_eq!(notes(&world, &["show", "nothing"]).0, Exit::Usage);
    world.commit("other", "1");
    let (exit, text) = notes(&world, &["show", "HEAD"]);
    assert_eq!(exit, Exit::No);
    assert!(text.contains("has no note"), "{text}");
}

// holds: DL-9
#[test]
fn a_record_is_proven_with_the_authors_of_the_branch_past_ones_too() {
    let (world, _) = recorded();
    world.merge("fleet.toml", "schema = 1\n");
    let (exit, text) = notes(&world, &["verify"]);
    assert_eq!(exit, Exit::Done, "{text}");
    assert!(
        text.starts_with("whole: 3 blocks on 1 commits, signed by reconciler-2026; newest block 3 sha256:"),
        "{text}"
    );
}

// holds: DL-9
#[test]
fn a_changed_record_is_an_alarm_and_a_clone_without_one_says_how_to_fetch_it() {
    let (world, head) = recorded();
    let text = world.git(
        &world.work(),
        &["notes", "--ref=mesh-plan", "show", head.as_str()],
    );
    let file = world.dir.path().join("note");
    std::fs::write(&file, text.replacen("is known", "was known", 1) + "\n").unwrap();
    let file = file.to_str().unwrap();
    world.git(
        &world.work(),
        &["notes", "--ref=mesh-plan", "add", "-f", "-F", file, head.as_str()],
    );
    let (exit, text) = notes(&world, &["verify"]);
    assert_eq!(exit, Exit::No);
    assert!(
        text.contains("alarm: block 1 on") && text.contains("NOT whole"),
        "{text}"
    );
    let (_, text) = notes(&world, &["verify", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["ok"], false);
    world.git(&world.work(), &["update-ref", "-d", "refs/notes/mesh-plan"]);
    let (exit, text) = notes(&world, &["verify"]);
    assert_eq!(exit, Exit::No);
    assert!(text.contains("git fetch origin '+refs/notes/mesh-plan"), "{text}");
}
