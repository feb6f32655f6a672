//! The reconciler's disk is lost: the real programs, and every point of a rehearsed story (DL-12, SG-8).

use std::path::Path;

use anyhow::{Context, Result, ensure};
use meshplan_reconciler::simulation;
use scenarios::story::{blocks, told};
use scenarios::tree::{FIRST, NODES, PAGE, REST, SECOND};
use scenarios::world::World;

/// Database and mirror are gone; keys and configuration are left.
fn lose_the_disk(world: &mut World) -> Result<()> {
    world.kill_reconciler()?;
    for name in ["meshplan.db", "meshplan.db-wal", "meshplan.db-shm"] {
        let path = world.state().join(name);
        if path.exists() {
            std::fs::remove_file(path)?;
        }
    }
    std::fs::remove_dir_all(world.state().join("mirror"))?;
    Ok(())
}

/// What is said of a lost database, none where nothing is.
fn recovering(world: &World) -> Result<Option<String>> {
    let status = world.meshplan_json(&["fleet", "status"])?;
    Ok(status["recovering"].as_str().map(str::to_owned))
}

// holds: DL-12, SG-8
#[test]
fn a_walk_goes_on_after_database_and_mirror_were_lost() -> Result<()> {
    let mut world = World::with_three_hosts("lost")?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.poll("the canary has the change", |w| Ok(w.at("ace", PAGE)? == SECOND))?;
    world.poll("the note says that it walks", |w| {
        Ok(w.note(&commit)
            .is_ok_and(|note| note.contains("-> delivering (checked)")))
    })?;
    lose_the_disk(&mut world)?;
    for node in REST {
        ensure!(world.at(node, PAGE)? == FIRST, "{node} was not to have it yet");
    }
    let before = world.note(&commit)?;

    let said = world.meshplan_json(&["recover"])?;
    ensure!(said["rebuilt"] == true, "{said:#}");
    ensure!(said["awaited"].as_array().map(Vec::len) == Some(3), "{said:#}");
    ensure!(
        said["go_on"][0]
            .as_str()
            .is_some_and(|w| w.contains("delivering")),
        "{said:#}"
    );
    // Said twice it is the same, and changes nothing.
    let again = world.meshplan_json(&["recover"])?;
    ensure!(again["rebuilt"] == false, "{again:#}");

    world.serve()?;
    let shown = world.wait_for(&commit, "delivered")?;
    for node in NODES {
        ensure!(world.at(node, PAGE)? == SECOND, "{node} does not have the change");
        let said = world.host(node, &["status", "--json"])?.ok()?;
        let status: serde_json::Value = serde_json::from_str(&said)?;
        let sequence = status["declaration"]["confirmed_sequence"].as_u64();
        ensure!(
            sequence.is_some_and(|n| n > 1_000),
            "{node} is at sequence {sequence:?}"
        );
    }
    world.poll("the note is written to its end", |w| {
        Ok(w.note(&commit)
            .is_ok_and(|note| note.contains("-> delivered (done)")))
    })?;
    let note = world.note(&commit)?;
    ensure!(
        note.starts_with(before.trim_end()),
        "what stood in the note is no longer there:\n{note}"
    );
    let story = told(&shown);
    ensure!(
        blocks(&note) == story,
        "git tells\n{note}\nand the database\n{story:#?}"
    );
    world.meshplan(&["notes", "verify"])?.ok()?;
    Ok(())
}

// holds: DL-12, SG-8
#[test]
fn nothing_is_signed_before_every_required_machine_was_heard_or_a_person_says_so() -> Result<()> {
    let mut world = World::with_three_hosts("heard")?;
    let first = world.head()?;
    world.poll("the note is written to its end", |w| {
        Ok(w.note(&first)
            .is_ok_and(|note| note.contains("-> delivered (done)")))
    })?;
    let refused = world.meshplan(&["recover", "--over"])?;
    ensure!(
        refused.code != Some(0),
        "it was rebuilt under a reconciler that runs"
    );
    world.kill_host("cid")?;
    lose_the_disk(&mut world)?;

    // Who starts it as it is, is told what to do, and nothing is signed.
    world.serve()?;
    world.poll("the reconciler says that it lost its numbers", |w| {
        let status = w.meshplan_json(&["fleet", "status"])?;
        Ok(status["troubles"].to_string().contains("meshplan recover"))
    })?;
    world.kill_reconciler()?;
    world.meshplan(&["recover"])?.ok()?;
    world.serve()?;
    let change = world.merge(PAGE.source, SECOND)?;
    world.poll("it waits for cid alone", |w| {
        Ok(recovering(w)?.is_some_and(|said| said.contains(": cid. ") && said.contains("recover --force")))
    })?;
    let list = world.meshplan(&["deliveries", "list"])?.ok()?;
    ensure!(list.contains("cid"), "{list}");
    let why = world.meshplan(&["why", "ace"])?.ok()?;
    ensure!(why.contains("cid"), "{why}");
    ensure!(
        world.meshplan(&["deliveries", "show", &change])?.code != Some(0),
        "a commit became an order before the machines were heard"
    );
    let verified = world.host("ace", &["status", "--json"])?.ok()?;
    let verified: serde_json::Value = serde_json::from_str(&verified)?;
    let sequence = verified["declaration"]["confirmed_sequence"]
        .as_u64()
        .context("ace has a declaration")?;
    ensure!(
        sequence < 1_000,
        "an order was signed: ace is at sequence {sequence}"
    );

    world.meshplan(&["recover", "--force"])?.ok()?;
    world.poll("it goes on", |w| Ok(recovering(w)?.is_none()))?;
    world.run_host("cid")?;
    world.wait_for(&change, "delivered")?;
    for node in NODES {
        ensure!(world.at(node, PAGE)? == SECOND, "{node} does not have the change");
    }

    // A database that is whole is not rebuilt unasked.
    world.kill_reconciler()?;
    let whole = world.meshplan(&["recover"])?;
    ensure!(
        whole.code == Some(1) && whole.out.contains("nothing to recover"),
        "{whole:?}"
    );
    world.meshplan(&["recover", "--over"])?.ok()?;
    let kept = std::fs::read_dir(world.state())?
        .filter_map(Result::ok)
        .any(|file| {
            file.file_name()
                .to_string_lossy()
                .starts_with("meshplan.db.before-")
        });
    ensure!(kept, "no copy of the former database was kept");
    world.serve()?;
    world.poll("it goes on once more", |w| Ok(recovering(w)?.is_none()))?;
    ensure!(world.meshplan_json(&["deliveries", "show", &change])?["state"] == "delivered");
    Ok(())
}

/// A story, a step a line: a good change, a bad one, a policy, and one that a person stops and lets go on.
const STORY: &[&str] = &[
    "advance 5m",
    "merge web: two\n  write modules/web/files/page two",
    "advance 3s",
    "advance 30s",
    "advance 40s",
    "advance 10m",
    "break n1 on bad",
    "merge web: bad\n  write modules/web/files/page bad",
    "advance 2s",
    "advance 2s",
    "advance 10m",
    "mend n1",
    "merge policy and web\n  replace policy/base.toml reconcile_secs = 300 => reconcile_secs = 600\n  write modules/web/files/page three",
    "advance 20s",
    "advance 50s",
    "advance 20m",
    "merge web: four\n  write modules/web/files/page four",
    "advance 10s",
    "advance 20m",
];

/// Plays the story with the database lost after so many steps, none: never; the machines and deliveries at its end.
fn played(runtime: &tokio::runtime::Runtime, lost: Option<usize>) -> Result<(Vec<String>, String)> {
    let mut script = "fleet of 4 machines\n".to_owned();
    for (at, step) in STORY.iter().enumerate() {
        script.push_str(step);
        script.push('\n');
        if lost == Some(at) {
            script.push_str("lose-database\nrecover\nreconciler restart\n");
        }
    }
    script.push_str("show machines\nshow deliveries\n");
    let mut out = Vec::new();
    runtime
        .block_on(simulation::run(&script, Path::new("."), &mut out))
        .with_context(|| script.clone())?;
    let said = String::from_utf8(out)?;
    let (_, end) = said
        .split_once("> show machines\n")
        .context("the machines are shown")?;
    let last = end.lines().last().unwrap_or_default().to_owned();
    let words = |line: &str| -> Option<String> {
        let runs = line.split_once(", runs ").map(|(_, runs)| runs.to_owned());
        runs.or_else(|| Some(line.split_once(" since ")?.0.to_owned()))
    };
    ensure!(
        last == "at the end another pass gives no order and no transition",
        "{last}\n{said}"
    );
    Ok((end.lines().filter_map(words).collect(), said))
}

// holds: DL-12, SG-8
#[test]
fn lost_at_any_point_the_story_ends_as_it_would_have_and_no_number_is_used_twice() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let (end, _) = played(&runtime, None)?;
    ensure!(
        end.iter().filter(|line| line.contains("four")).count() >= 4,
        "{end:#?}"
    );
    for (lost, step) in STORY.iter().enumerate() {
        let (recovered, said) = played(&runtime, Some(lost))?;
        ensure!(
            recovered == end,
            "lost after `{step}` it ends {recovered:#?}\n{said}"
        );
    }
    Ok(())
}
