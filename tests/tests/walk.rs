//! The two stories that the demo tells, and that telling them twice changes nothing.

use anyhow::{Context, Result, ensure};
use scenarios::story;
use scenarios::tree::{BROKEN, CONF, FIRST, NODES, PAGE, REST, SECOND};
use scenarios::world::World;

// holds: DL-5, DL-9, RO-1
#[test]
fn a_merged_change_proves_itself_on_the_canary_before_the_rest_hears_of_it() -> Result<()> {
    let mut world = World::with_three_hosts("walk")?;
    world.write(
        "policy/base.toml",
        "[scheduler]\nreconcile_secs = 5\n[qos]\nartifact_kib_per_sec = 3000\n",
    )?;
    world.write(
        CONF.source,
        "name = {{ node.name }}\nport = {{ settings.port }}\n",
    )?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.poll("the canary has the change", |w| Ok(w.at("ace", PAGE)? == SECOND))?;
    for node in REST {
        ensure!(
            world.at(node, PAGE)? == FIRST,
            "{node} has the change before the canary proved it"
        );
    }
    let shown = world.wait_for(&commit, "delivered")?;
    ensure!(shown["code"] == "done", "{shown:#}");
    for (node, port) in NODES.into_iter().zip([8081, 8080, 8080]) {
        ensure!(world.at(node, PAGE)? == SECOND);
        ensure!(world.at(node, CONF)? == format!("name = {node}\nport = {port}\n"));
    }
    let note = whole_note(&mut world, &commit, "-> delivered (done)")?;
    for word in [
        "proposed -> delivering (checked)",
        "Epoch:",
        "Sequence:",
        "Machine:",
        "Sig:",
    ] {
        ensure!(note.contains(word), "the note lacks `{word}`:\n{note}");
    }
    let log = world.git(&["log", "--notes=mesh-plan", "-1", "--format=%N", &commit])?;
    ensure!(log.contains("delivered (done)"), "{log}");
    world.meshplan(&["notes", "verify"])?.ok()?;
    Ok(())
}

// holds: DL-1, DL-16
#[test]
fn who_announces_a_commit_hears_what_it_became_and_what_is_on_no_branch_is_none() -> Result<()> {
    let mut world = World::with_three_hosts("announced")?;
    world.kill_reconciler()?;
    // Nobody tells it of a push, and it looks by itself tomorrow.
    world.configure_forge("poll_secs", 86_400)?;
    world.serve()?;
    world.poll("the look of the start is over", |w| {
        let said = w.meshplan_json(&["deliveries", "announce"])?;
        Ok(said["answer"]
            .as_str()
            .is_some_and(|a| a.starts_with("nothing new: main of ")))
    })?;
    let count = |w: &World| -> Result<usize> {
        let all = w.meshplan_json(&["deliveries", "list"])?;
        Ok(all.as_array().map_or(0, Vec::len))
    };
    let before = count(&world)?;

    world.git(&["switch", "--quiet", "--create", "side"])?;
    world.write("README.md", "beside\n")?;
    let side = world.commit("beside")?;
    world.git(&["push", "--quiet", "origin", "side"])?;
    let said = world.meshplan(&["deliveries", "announce", &side])?;
    ensure!(
        said.code == Some(1) && said.err.contains("is on no branch whose merges are orders"),
        "{said:?}"
    );
    ensure!(
        count(&world)? == before,
        "a commit of a side branch became a delivery"
    );

    world.git(&["switch", "--quiet", "main"])?;
    world.git(&["merge", "--quiet", "--no-ff", "--message", "merge side", "side"])?;
    let merged = world.merge(PAGE.source, SECOND)?;
    ensure!(count(&world)? == before, "somebody told it of the push");
    let said = world.meshplan_json(&["deliveries", "announce", &merged])?;
    let named = &said["deliveries"][0];
    ensure!(
        named["commit"] == *merged && said["deliveries"][1].is_null(),
        "{said:#}"
    );
    ensure!(
        said["answer"]
            .as_str()
            .is_some_and(|a| a.contains(merged.get(..12).unwrap_or_default()) && !a.contains("known already")),
        "{said:#}"
    );
    // The merge and the commit after it came together: two orders, and never more.
    let after = count(&world)?;
    ensure!(after == before + 2, "{after} deliveries, and {before} before");
    let again = world.meshplan(&["deliveries", "announce", merged.get(..12).unwrap_or_default()])?;
    ensure!(again.out.starts_with("known already: "), "{again:?}");
    let within = world.meshplan(&["deliveries", "announce", &side])?;
    ensure!(
        within.code == Some(1) && within.err.contains("is in the history of main"),
        "{within:?}"
    );
    let nonsense = world.meshplan(&["deliveries", "announce", "the newest"])?;
    ensure!(nonsense.code == Some(2), "{nonsense:?}");
    ensure!(
        count(&world)? == after,
        "an announced commit became another delivery"
    );
    world.wait_for(&merged, "delivered")?;

    // A rollout answers by the number of its first epoch, a rotation by its name.
    let rollout = world.meshplan_json(&["why", "1"])?;
    let waits = rollout["waits_for"].as_str().unwrap_or_default();
    ensure!(
        waits.starts_with("nothing: the rollout ") && waits.contains("began with epoch 1 is complete"),
        "{rollout:#}"
    );
    let rotation = "[[rotations]]\nid = \"rot-1\"\nkind = \"reconciler_transport\"\npublish_at = 1996000000\n\
                    activate_at = 1996003600\nretire_at = 0\n";
    let commit = world.merge("rotations.toml", rotation)?;
    let said = world.meshplan_json(&["deliveries", "announce", &commit])?;
    ensure!(said["deliveries"][0]["state"] == "failed", "{said:#}");
    let why = world.meshplan_json(&["why", "rot-1"])?;
    ensure!(
        why["waits_for"]
            .as_str()
            .is_some_and(|w| w.contains("`rot-1` is checked, and not walked")),
        "{why:#}"
    );
    let unknown = world.meshplan(&["why", "rot-2"])?;
    ensure!(unknown.code == Some(1), "{unknown:?}");
    Ok(())
}

// holds: DL-2
#[test]
fn what_waits_and_is_not_on_the_branch_any_more_is_withdrawn() -> Result<()> {
    let mut world = World::with_three_hosts("left")?;
    world.meshplan(&["freeze", "--why", "nobody is here"])?.ok()?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&commit, "held")?;
    world.git(&["reset", "--quiet", "--hard", "HEAD~1"])?;
    world.git(&["push", "--quiet", "--force", "origin", "HEAD:main"])?;
    let shown = world.wait_for(&commit, "withdrawn")?;
    ensure!(shown["code"] == "withdrawn", "{shown:#}");
    world.meshplan(&["freeze", "--lift"])?.ok()?;
    let next = world.merge(
        CONF.source,
        "name = {{ node.name }}\nport = {{ settings.port }}\nnext = true\n",
    )?;
    world.wait_for(&next, "delivered")?;
    ensure!(
        world.at(NODES[0], PAGE)? == FIRST,
        "what left the branch was walked"
    );
    Ok(())
}

// holds: DL-7, DL-13
#[test]
fn a_change_that_breaks_a_probe_on_the_canary_is_taken_back_and_the_rest_never_sees_it() -> Result<()> {
    let mut world = World::with_three_hosts("back")?;
    let former = on_all(&world)?;
    let commit = world.merge(CONF.source, BROKEN)?;
    let mut seen_elsewhere = false;
    world.poll("the delivery is rolled back", |w| {
        for node in REST {
            seen_elsewhere |= w.at(node, CONF)? == BROKEN;
        }
        let shown = w.meshplan_json(&["deliveries", "show", &commit]);
        Ok(shown.is_ok_and(|s| s["state"] == "rolled-back"))
    })?;
    ensure!(!seen_elsewhere, "what breaks reached a node beyond the canary");
    ensure!(on_all(&world)? == former, "a node does not have what it had");
    let shown = world.meshplan_json(&["deliveries", "show", &commit])?;
    ensure!(
        shown["abort_cause"].as_str().is_some_and(|c| c.contains("ace")),
        "the cause is not told: {shown:#}"
    );
    let note = whole_note(&mut world, &commit, "-> rolled-back")?;
    let cause = note
        .lines()
        .find(|l| l.starts_with("Abort-Cause:"))
        .context("the note has the cause")?;
    ensure!(
        cause.contains("ace"),
        "the note does not name the machine: {cause}"
    );
    Ok(())
}

// holds: DL-14
#[test]
fn what_failed_is_not_tried_again_by_polls_webhooks_or_restarts() -> Result<()> {
    let mut world = World::with_three_hosts("bad")?;
    let template = std::fs::read_to_string(world.work().join(CONF.source))?;
    let former = on_all(&world)?;
    let commit = world.merge(CONF.source, BROKEN)?;
    world.wait_for(&commit, "rolled-back")?;
    let before = sequences(&world)?;
    world.webhook(&world.push_event(&commit), "once-more", None)?;
    world.kill_host("ace")?;
    world.run_host("ace")?;
    world.kill_reconciler()?;
    world.serve()?;
    // A commit that does not touch it leaves it alone; one that brings it again is held for a person.
    let untouched = world.merge("README.md", "# another commit\n")?;
    let shown = world.wait_for(&untouched, "delivered")?;
    ensure!(shown["code"] == "nothing-to-do", "{shown:#}");
    ensure!(
        sequences(&world)? == before,
        "an order was given although nothing was asked"
    );
    let mended = world.merge(CONF.source, &template)?;
    world.wait_for(&mended, "delivered")?;
    let again = world.merge(CONF.source, BROKEN)?;
    let held = world.wait_for(&again, "held")?;
    ensure!(held["code"] == "known-bad", "{held:#}");
    ensure!(on_all(&world)? == former);
    Ok(())
}

// holds: FG-2, DL-1
#[test]
fn a_merge_that_is_heard_again_gives_no_order_and_no_block() -> Result<()> {
    let mut world = World::with_three_hosts("twice")?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&commit, "delivered")?;
    let note = whole_note(&mut world, &commit, "-> delivered (done)")?;
    let orders = sequences(&world)?;
    for delivery in ["same-id", "same-id", "other-id"] {
        let status = world.webhook(&world.push_event(&commit), delivery, None)?;
        ensure!(
            (200..300).contains(&status),
            "a good webhook was answered {status}"
        );
    }
    // A later commit that changes no order: once it is through, the repeated webhooks are through.
    let later = world.merge("README.md", "# nothing to do\n")?;
    let shown = world.wait_for(&later, "delivered")?;
    ensure!(shown["code"] == "nothing-to-do", "{shown:#}");
    whole_note(&mut world, &later, "-> delivered (nothing-to-do)")?;
    ensure!(world.note(&commit)? == note, "the note of {commit} grew");
    ensure!(sequences(&world)? == orders, "a host got another order");
    let list = world.meshplan_json(&["deliveries", "list"])?;
    let times = list
        .as_array()
        .context("a list")?
        .iter()
        .filter(|d| d["commit"] == commit.as_str())
        .count();
    ensure!(times == 1, "the commit became {times} deliveries");
    Ok(())
}

/// The note of a commit, once it has its last word.
fn whole_note(world: &mut World, commit: &str, last: &str) -> Result<String> {
    world.poll(&format!("the note of {commit} says `{last}`"), |w| {
        Ok(w.note(commit).is_ok_and(|note| note.contains(last)))
    })?;
    world.note(commit)
}

/// What each node has at both places.
fn on_all(world: &World) -> Result<Vec<String>> {
    let both = NODES
        .into_iter()
        .flat_map(|node| [PAGE, CONF].map(|place| world.at(node, place)));
    both.collect()
}

/// The sequence that each host has confirmed, by its own word.
fn sequences(world: &World) -> Result<Vec<u64>> {
    let sequence = |node: &&str| {
        let said = world.host(node, &["status", "--json"])?.ok()?;
        let status: serde_json::Value = serde_json::from_str(&said)?;
        status["declaration"]["confirmed_sequence"]
            .as_u64()
            .with_context(|| format!("{node} says {status:#}"))
    };
    NODES.iter().map(sequence).collect()
}

// holds: DL-12
#[test]
fn the_story_is_the_same_from_the_database_and_from_git() -> Result<()> {
    let mut world = World::with_three_hosts("told")?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&commit, "delivered")?;
    world.poll("the note is written to its end", |w| {
        Ok(w.note(&commit)
            .is_ok_and(|note| note.contains("-> delivered (done)")))
    })?;
    let shown = world.meshplan_json(&["deliveries", "show", &commit])?;
    let story = story::told(&shown);
    let note = world.note(&commit)?;
    // A block of the note is what the database tells, and then the chain.
    let told = story::blocks(&note);
    ensure!(
        told == story,
        "git tells\n{told:#?}\nand the database\n{story:#?}"
    );

    // The same from a database that was rebuilt from git: nothing of it is other, and only what happens since comes behind.
    let told: Vec<String> = told.into_iter().map(str::to_owned).collect();
    world.kill_reconciler()?;
    std::fs::remove_file(world.state().join("meshplan.db"))?;
    world.meshplan(&["recover"])?.ok()?;
    world.serve()?;
    world.poll("the recovery is in the note", |w| {
        Ok(w.note(&commit)
            .is_ok_and(|note| note.contains("-> delivered (lost)")))
    })?;
    let recovered = world.meshplan_json(&["deliveries", "show", &commit])?;
    for what in ["name", "subject", "author", "state", "code", "reason"] {
        ensure!(recovered[what] == shown[what], "{what}: {recovered:#}");
    }
    let after = story::told(&recovered);
    ensure!(after.len() == told.len() + 1, "{after:#?}");
    ensure!(after.iter().zip(&told).all(|(a, b)| a == b), "{after:#?}");
    let note = world.note(&commit)?;
    let note = story::blocks(&note);
    ensure!(
        note == after,
        "git tells\n{note:#?}\nand the database\n{after:#?}"
    );
    Ok(())
}
