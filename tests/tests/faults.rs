//! What dies, comes back; what is lost, is found: kill -9 in the midst of a walk, a webhook that never came.

use anyhow::{Result, ensure};
use scenarios::tree::{FIRST, NODES, PAGE, REST, SECOND};
use scenarios::world::World;

// holds: SG-8
#[test]
fn a_reconciler_killed_in_the_midst_of_a_walk_ends_it_when_it_is_back() -> Result<()> {
    let mut world = World::with_three_hosts("killed")?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.poll("the walk has begun", |w| Ok(w.at("ace", PAGE)? == SECOND))?;
    world.kill_reconciler()?;
    ensure!(
        world.at(REST[0], PAGE)? == FIRST,
        "the walk was over before the kill"
    );
    world.serve()?;
    world.wait_for(&commit, "delivered")?;
    for node in NODES {
        ensure!(world.at(node, PAGE)? == SECOND);
    }
    world.poll("the note is written to its end", |w| {
        Ok(w.note(&commit)
            .is_ok_and(|note| note.contains("-> delivered (done)")))
    })?;
    world.meshplan(&["notes", "verify"])?.ok()?;
    Ok(())
}

// holds: FG-2
#[test]
fn a_webhook_that_never_came_is_made_up_for_by_the_poll() -> Result<()> {
    let mut world = World::with_three_hosts("polled")?;
    // Every merge of these tests is heard by the poll; this one says so.
    let commit = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&commit, "delivered")?;
    Ok(())
}

// holds: FG-2
#[test]
fn a_webhook_is_enough_where_no_poll_comes() -> Result<()> {
    let mut world = without_poll("hooked")?;
    let commit = world.merge(PAGE.source, SECOND)?;
    let status = world.webhook(&world.push_event(&commit), "one", None)?;
    ensure!(
        (200..300).contains(&status),
        "a good webhook was answered {status}"
    );
    world.wait_for(&commit, "delivered")?;
    Ok(())
}

// holds: DL-1
#[test]
fn a_merge_while_the_reconciler_was_down_is_found_when_it_starts() -> Result<()> {
    let mut world = without_poll("down")?;
    world.kill_reconciler()?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.serve()?;
    world.wait_for(&commit, "delivered")?;
    Ok(())
}

// holds: EP-2, HR-5
#[test]
fn a_host_killed_in_its_confirm_window_comes_back_with_one_of_the_two_whole() -> Result<()> {
    let mut world = World::with_three_hosts("window")?;
    // The probe of this content takes its time, so that the window is open when the page is there.
    let slow = "command = [\"sh\", \"-c\", \"sleep 3\"]";
    let module = std::fs::read_to_string(world.work().join("modules/web/module.toml"))?;
    let commands = module
        .lines()
        .map(|l| if l.starts_with("command = ") { slow } else { l });
    world.write(
        "modules/web/module.toml",
        &commands.collect::<Vec<_>>().join("\n"),
    )?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.poll(
        "the change is on the canary",
        |w| Ok(w.at("ace", PAGE)? == SECOND),
    )?;
    world.kill_host("ace")?;
    world.run_host("ace")?;
    let mut state = String::new();
    world.poll("the delivery ends", |w| {
        let shown = w.meshplan_json(&["deliveries", "show", &commit])?;
        state = shown["state"].as_str().unwrap_or_default().to_owned();
        Ok(state == "delivered" || state == "rolled-back")
    })?;
    let expected = if state == "delivered" { SECOND } else { FIRST };
    for node in NODES {
        let page = world.at(node, PAGE)?;
        ensure!(page == expected, "{state}, and {node} has {page:?}");
    }
    Ok(())
}

fn without_poll(fleet: &str) -> Result<World> {
    let mut world = World::with_three_hosts(fleet)?;
    world.configure_forge("poll_secs", 3600)?;
    world.kill_reconciler()?;
    world.serve()?;
    Ok(world)
}

// holds: SG-8
#[test]
fn a_reconciler_that_lost_its_database_signs_nothing_and_says_what_to_do() -> Result<()> {
    let mut world = World::with_three_hosts("lost")?;
    let commit = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&commit, "delivered")?;
    world.poll("the note is written to its end", |w| {
        Ok(w.note(&commit)
            .is_ok_and(|note| note.contains("-> delivered (done)")))
    })?;
    world.kill_reconciler()?;
    for file in ["meshplan.db", "meshplan.db-wal", "meshplan.db-shm"] {
        let path = world.state().join(file);
        if path.exists() {
            std::fs::remove_file(path)?;
        }
    }
    world.serve()?;
    world.merge(PAGE.source, FIRST)?;
    world.poll("it says that numbers would be used twice", |w| {
        let said = w.meshplan(&["fleet", "status"])?;
        Ok(said.out.contains("use its numbers a second time") && said.out.contains("backup"))
    })?;
    let listed = world.meshplan_json(&["deliveries", "list"])?;
    ensure!(
        listed.as_array().is_some_and(Vec::is_empty),
        "something was ordered: {listed}"
    );
    ensure!(world.at("ace", PAGE)? == SECOND);
    Ok(())
}
