//! The reconciler's disk is lost: the real programs, and every point of a rehearsed story (DL-12, SG-8).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use meshplan_reconciler::edge::key_file::{KeyBundle, Passphrase};
use meshplan_reconciler::pure::note::{self, SignedBlock};
use meshplan_reconciler::simulation;
use meshplan_schemas::envelope::Signer as _;
use scenarios::story::{blocks, told};
use scenarios::tree::{FIRST, NODES, PAGE, REST, SECOND};
use scenarios::world::World;

/// Database and mirror are gone; keys and configuration are left.
fn lose_the_disk(world: &mut World) -> Result<()> {
    world.kill_reconciler()?;
    lose_the_database(world)?;
    lose_the_mirror(world)
}

fn lose_the_database(world: &World) -> Result<()> {
    for name in ["meshplan.db", "meshplan.db-wal", "meshplan.db-shm"] {
        let path = world.state().join(name);
        if path.exists() {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn lose_the_mirror(world: &World) -> Result<()> {
    let mirror = world.state().join("mirror");
    if mirror.exists() {
        std::fs::remove_dir_all(mirror)?;
    }
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

/// The note of the first commit is written to its end.
fn with_a_whole_record(fleet: &str) -> Result<World> {
    let mut world = World::with_three_hosts(fleet)?;
    let first = world.head()?;
    world.poll("the note is written to its end", |w| {
        Ok(w.note(&first)
            .is_ok_and(|note| note.contains("-> delivered (done)")))
    })?;
    Ok(world)
}

/// The copies of former databases, whole and half ones.
fn copies(world: &World) -> Result<Vec<String>> {
    let names = std::fs::read_dir(world.state())?
        .map(|file| Ok(file?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    Ok(names
        .into_iter()
        .filter(|name| name.starts_with("meshplan.db.before-"))
        .collect())
}

// holds: DL-12
#[test]
fn a_recovery_that_was_cut_off_has_happened_whole_or_not_at_all() -> Result<()> {
    let mut world = with_a_whole_record("cut")?;
    let first = world.head()?;
    lose_the_disk(&mut world)?;
    let at_once = world.meshplan_json(&["recover"])?;
    lose_the_database(&world)?;
    for line in ["recover-emptied", "recover-deliveries", "recover-before-commit"] {
        world.meshplan_cut_off_at(line, &["recover"])?;
    }
    let said = world.meshplan_json(&["recover"])?;
    ensure!(
        said["rebuilt"] == true && said == at_once,
        "at once it says {at_once:#}\nand after it was cut off {said:#}"
    );
    let done = world.meshplan_json(&["recover"])?;
    ensure!(done["rebuilt"] == false, "{done:#}");

    // Over a database that is there: it is as it was, until it is another.
    for (line, copied) in [
        ("recover-half-copied", 0),
        ("recover-emptied", 1),
        ("recover-before-commit", 2),
    ] {
        world.meshplan_cut_off_at(line, &["recover", "--over"])?;
        let copies = copies(&world)?;
        let whole = copies.iter().filter(|name| !name.ends_with(".part"));
        ensure!(whole.count() == copied, "cut off at {line}: {copies:?}");
        let kept = world.meshplan_json(&["recover"])?;
        ensure!(kept["rebuilt"] == false, "cut off at {line}: {kept:#}");
    }
    world.meshplan_cut_off_at("recover-after-commit", &["recover", "--over"])?;
    let kept = world.meshplan_json(&["recover"])?;
    ensure!(kept["rebuilt"] == false, "{kept:#}");

    world.serve()?;
    world.poll("it goes on", |w| Ok(recovering(w)?.is_none()))?;
    ensure!(world.meshplan_json(&["deliveries", "show", &first])?["state"] == "delivered");
    let change = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&change, "delivered")?;
    world.meshplan(&["notes", "verify"])?.ok()?;
    Ok(())
}

/// The notes as git has them, by commit.
type Notes = BTreeMap<String, String>;

fn notes(world: &World) -> Result<Notes> {
    let list = world.git(&["notes", "--ref=mesh-plan", "list"])?;
    let commits = list.lines().filter_map(|line| line.split(' ').nth(1));
    commits
        .map(|commit| {
            let text = world.git(&["notes", "--ref=mesh-plan", "show", commit])?;
            Ok((commit.to_owned(), text))
        })
        .collect()
}

/// Puts a note's text in the place of what the forge has.
fn overwrite(world: &World, commit: &str, text: &str) -> Result<()> {
    world.write(".git/note", text)?;
    let blob = world.git(&["hash-object", "-w", "--no-filters", ".git/note"])?;
    world.git(&["notes", "--ref=mesh-plan", "add", "-f", "-C", blob.trim(), commit])?;
    world.git(&["push", "--quiet", "--force", "origin", "refs/notes/mesh-plan"])?;
    Ok(())
}

/// A block and the note that it stands in.
fn block(notes: &Notes, number: u64) -> Result<(String, String, SignedBlock)> {
    let mut found = notes.iter().flat_map(|(commit, text)| {
        let blocks = note::blocks(text).into_iter();
        blocks.map(move |block| (commit.clone(), text.clone(), block))
    });
    found
        .find(|(_, _, signed)| signed.block.number == number)
        .with_context(|| format!("the record has block {number}"))
}

/// The same block as somebody else tells it, signed with the reconciler's own key.
fn told_otherwise(world: &World, signed: &SignedBlock) -> Result<String> {
    let passphrase = std::fs::read(world.state().join("passphrase"))?;
    let passphrase = Passphrase::new(passphrase, "the state folder")?;
    let signer = KeyBundle::open(&world.state().join("keys.json"), &passphrase)?.author();
    let mut block = signed.block.clone();
    block.reason = "it was otherwise".to_owned();
    let text = block.text();
    Ok(note::seal(
        &text,
        &signer.key_id(),
        &signer.sign(&note::signed_bytes(&text))?,
    ))
}

// holds: DL-9, DL-12, SG-8
#[test]
fn a_record_that_is_not_whole_is_refused_with_the_block_and_nothing_is_signed() -> Result<()> {
    let mut world = with_a_whole_record("broken")?;
    lose_the_disk(&mut world)?;
    let whole = notes(&world)?;
    let tip = world.git(&["rev-parse", "refs/notes/mesh-plan"])?;
    let blocks = whole.values().flat_map(|text| note::blocks(text));
    let newest = blocks
        .map(|b| b.block.number)
        .max()
        .context("there is a record")?;
    ensure!(newest > 3, "the record has only {newest} blocks");

    let (commit, text, last) = block(&whole, newest)?;
    let (unsigned, _) = text
        .rsplit_once("Sig: ")
        .context("a block ends with its signature")?;
    let cut = (commit, unsigned.to_owned());
    let (commit, text, second) = block(&whole, 2)?;
    let forged = second.raw().replacen(" by ", " by somebody-", 1);
    let forged = (commit.clone(), text.replace(second.raw(), &forged));
    let missing = (commit, text.replace(second.raw(), ""));
    let (commit, text, _) = block(&whole, newest)?;
    let fork = (commit, format!("{text}\n{}", told_otherwise(&world, &last)?));

    for ((commit, text), said) in [
        (cut, format!("block {newest} on ")),
        (forged, "block 2 on ".to_owned()),
        (missing, "block 2 (sha256:".to_owned()),
        (fork, format!("fork: 2 different blocks {newest} follow")),
    ] {
        lose_the_mirror(&world)?;
        overwrite(&world, &commit, &text)?;
        let broken = world.git(&["rev-parse", "refs/notes/mesh-plan"])?;
        let refused = world.meshplan(&["recover", "--force"])?;
        ensure!(
            refused.code.is_some_and(|code| code != 0)
                && refused.err.contains(&said)
                && refused.err.contains("nothing is rebuilt")
                && refused.err.contains("meshplan notes verify"),
            "`{said}` was to be said: {refused}"
        );
        // The program that would sign says that it knows nothing, and the record is as it was.
        world.serve()?;
        world.poll("the reconciler says that it lost its numbers", |w| {
            let status = w.meshplan_json(&["fleet", "status"])?;
            Ok(status["troubles"].to_string().contains("meshplan recover"))
        })?;
        world.kill_reconciler()?;
        let after = world.git(&["ls-remote", "origin", "refs/notes/mesh-plan"])?;
        ensure!(
            after.starts_with(broken.trim()),
            "the record was written to: {after}"
        );
        world.git(&["update-ref", "refs/notes/mesh-plan", tip.trim()])?;
    }

    lose_the_mirror(&world)?;
    world.git(&["push", "--quiet", "--force", "origin", "refs/notes/mesh-plan"])?;
    let said = world.meshplan_json(&["recover"])?;
    ensure!(said["rebuilt"] == true, "{said:#}");
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
