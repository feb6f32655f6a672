//! The two stories that the demo tells, and that telling them twice changes nothing.

use anyhow::{Context, Result, ensure};
use scenarios::tree::{CONF, NODES, PAGE};
use scenarios::world::World;

const SOURCE: &str = "modules/web/files/index.html";

// holds: DL-5, DL-9, RO-1
#[test]
fn a_merged_change_proves_itself_on_the_canary_before_the_rest_hears_of_it() -> Result<()> {
    let mut world = World::with_three_hosts("walk")?;
    world.write("policy/base.toml", "[qos]\nartifact_kib_per_sec = 3000\n")?;
    world.write(
        "modules/web/files/web.conf.j2",
        "# two\nname = {{ node.name }}\nport = {{ settings.port }}\n",
    )?;
    let commit = world.merge(SOURCE, "<p>two</p>\n")?;
    world.poll("the canary has the change", |w| {
        Ok(w.on_node("ace", PAGE)? == "<p>two</p>\n")
    })?;
    for node in ["bob", "cas"] {
        ensure!(
            world.on_node(node, PAGE)? == "<p>one</p>\n",
            "{node} has the change before the canary proved it"
        );
    }
    let shown = world.wait_for(&commit, "delivered")?;
    ensure!(shown["code"] == "done", "{shown:#}");
    for node in NODES {
        ensure!(world.on_node(node, PAGE)? == "<p>two</p>\n");
        ensure!(world.on_node(node, CONF)? == format!("# two\nname = {node}\nport = 8080\n"));
    }
    world.poll("the note is on the forge, to its last word", |w| {
        Ok(w.note(&commit)
            .is_ok_and(|note| note.contains("-> delivered (done)")))
    })?;
    let note = world.note(&commit)?;
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

// holds: DL-7, DL-13
#[test]
fn a_change_that_breaks_a_probe_on_the_canary_is_taken_back_and_the_rest_never_sees_it() -> Result<()> {
    let mut world = World::with_three_hosts("back")?;
    let commit = world.merge(SOURCE, "<p>broken</p>\n")?;
    let mut seen_elsewhere = false;
    world.poll("the delivery is rolled back", |w| {
        for node in ["bob", "cas"] {
            seen_elsewhere |= w.on_node(node, PAGE)?.contains("broken");
        }
        let shown = w.meshplan_json(&["deliveries", "show", &commit]);
        Ok(shown.is_ok_and(|s| s["state"] == "rolled-back"))
    })?;
    ensure!(
        !seen_elsewhere,
        "the broken page reached a node beyond the canary"
    );
    for node in NODES {
        ensure!(
            world.on_node(node, PAGE)? == "<p>one</p>\n",
            "{node} does not have the former page"
        );
    }
    world.poll("the note has the cause", |w| {
        Ok(w.note(&commit)
            .is_ok_and(|note| note.contains("Abort-Cause:") && note.contains("-> rolled-back")))
    })?;
    let note = world.note(&commit)?;
    ensure!(
        note.contains("ace"),
        "the note does not name the machine:\n{note}"
    );
    let why = world.meshplan(&["deliveries", "why", &commit])?.ok()?;
    ensure!(why.contains("ace"), "`why` does not name the machine: {why}");
    Ok(())
}

// holds: DL-14
#[test]
fn what_failed_is_not_tried_again_by_polls_webhooks_or_restarts() -> Result<()> {
    let mut world = World::with_three_hosts("bad")?;
    let commit = world.merge(SOURCE, "<p>broken</p>\n")?;
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
    let mended = world.merge(SOURCE, "<p>one</p>\n")?;
    world.wait_for(&mended, "delivered")?;
    let again = world.merge(SOURCE, "<p>broken</p>\n")?;
    let held = world.wait_for(&again, "held")?;
    ensure!(held["code"] == "known-bad", "{held:#}");
    ensure!(world.on_node("ace", PAGE)? == "<p>one</p>\n");
    ensure!(sequences(&world)? >= before, "a sequence fell");
    Ok(())
}

// holds: FG-2, DL-1
#[test]
fn a_merge_that_is_heard_again_gives_no_order_and_no_block() -> Result<()> {
    let mut world = World::with_three_hosts("twice")?;
    let commit = world.merge(SOURCE, "<p>two</p>\n")?;
    world.wait_for(&commit, "delivered")?;
    world.poll("the note is written to its end", |w| {
        Ok(w.note(&commit)
            .is_ok_and(|note| note.contains("-> delivered (done)")))
    })?;
    let (orders, note) = (sequences(&world)?, world.note(&commit)?);
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
    world.poll("the later note is there", |w| Ok(w.note(&later).is_ok()))?;
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
