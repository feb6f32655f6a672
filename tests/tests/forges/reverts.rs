//! A canary fails, the revert of its commit is proposed, and merging that changes no machine.

use anyhow::{Context, Result, ensure};
use scenarios::double::{Brand, Double, Way};
use scenarios::tree::{BROKEN, CONF, FIRST, PAGE, SECOND};
use scenarios::world::World;

use super::{CHECK, DELIVERY, PREVIEW, VIEW, back_to_main, push, wait_comment, wait_status};

/// The revert of a commit, once the reconciler has proposed it.
fn wait_revert(world: &mut World, forge: &Double, title: &str) -> Result<u64> {
    let mut found = Vec::new();
    world.poll(&format!("the pull request `{title}` is there"), |_| {
        found = forge.pulls_called(title);
        Ok(!found.is_empty())
    })?;
    ensure!(found.len() == 1, "{title}: {found:?}");
    found.first().copied().context("one")
}

// holds: DL-7, FG-4
pub(super) fn reverted(brand: Brand) -> Result<()> {
    let (mut world, forge) = World::at_forge(brand, "revert")?;
    world.start_three_hosts()?;
    let plan = std::fs::read_to_string(world.work().join("plans/default.toml"))?;
    let asks = plan.replacen("[[stage]]", "revert_pr = true\n\n[[stage]]", 1);
    let commit = world.merge("plans/default.toml", &asks)?;
    world.wait_for(&commit, "delivered")?;

    // A pull request whose canary fails.
    back_to_main(&world)?;
    world.git(&["checkout", "--quiet", "-b", "edge"])?;
    world.write(CONF.source, BROKEN)?;
    world.write(PAGE.source, SECOND)?;
    let head = push(&world, "edge", "no port")?;
    let number = forge.open_pull("dana", "edge", "No port")?;
    wait_status(&mut world, &forge, &head, CHECK, "success")?;
    let commit = forge.merge("ravi", number, Way::Squash)?;
    world.wait_for(&commit, "rolled-back")?;
    wait_status(&mut world, &forge, &commit, DELIVERY, "failure")?;
    let (_, text) = wait_comment(&mut world, &forge, number, VIEW, "**rolled-back**")?;
    let branch = format!("meshplan/revert/{}", commit.get(..12).unwrap_or_default());
    ensure!(
        text.contains("Cause:") && text.contains(&format!("Revert: {branch}")),
        "{text}"
    );
    for node in ["ace", "bea", "cid"] {
        ensure!(world.at(node, PAGE)? == FIRST, "{node} has what failed");
    }

    // While it is proposed, the reconciler dies; it is proposed once.
    let revert = wait_revert(&mut world, &forge, "Revert \"")?;
    world.kill_reconciler()?;
    world.serve()?;
    wait_comment(&mut world, &forge, revert, PREVIEW, "module web changes on")?;
    ensure!(forge.pulls_called("Revert \"").len() == 1);
    let body = forge.body(revert)?;
    ensure!(
        body.contains("ace failed") && body.contains("go --again"),
        "{body}"
    );
    world.git(&["fetch", "--quiet", "origin", &branch])?;
    let diff = world.git(&["diff", "--stat", &format!("{commit}^"), "FETCH_HEAD"])?;
    ensure!(diff.is_empty(), "not the former tree:\n{diff}");

    // Merged, it is the content that is proven: nobody gets an order.
    let before = world
        .meshplan_json(&["deliveries", "list"])?
        .as_array()
        .map_or(0, Vec::len);
    let commit = forge.merge("ravi", revert, Way::Merge)?;
    let shown = world.wait_for(&commit, "delivered")?;
    ensure!(shown["code"] == "nothing-to-do", "{shown:#}");
    wait_status(&mut world, &forge, &commit, DELIVERY, "success")?;
    let after = world
        .meshplan_json(&["deliveries", "list"])?
        .as_array()
        .map_or(0, Vec::len);
    ensure!(after == before + 1, "{before} deliveries before, {after} after");
    ensure!(forge.pulls_called("Revert \"").len() == 1);
    Ok(())
}
