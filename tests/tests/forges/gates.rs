//! What a delivery waits for the forge to tell: reviews, checks, and the merge that admits a machine.

use anyhow::{Result, ensure};
use scenarios::double::{Brand, Says, Way};
use scenarios::tree::{FIRST, PAGE, SECOND};
use scenarios::world::{PATIENCE, World};

use super::{VIEW, back_to_main, push, wait_comment};

// holds: DL-2, DL-15
pub(super) fn reviews_and_checks(brand: Brand) -> Result<()> {
    let (mut world, forge) = World::at_forge(brand, "gates")?;
    world.start_three_hosts()?;
    let open = |world: &mut World, branch: &str, path: &str, text: &str| -> Result<(u64, String)> {
        back_to_main(world)?;
        world.git(&["checkout", "--quiet", "-b", branch])?;
        world.write(path, text)?;
        let head = push(world, branch, branch)?;
        Ok((forge.open_pull("dana", branch, branch)?, head))
    };
    let plan = std::fs::read_to_string(world.work().join("plans/default.toml"))?;
    let gated = plan.replacen(
        "[[stage]]",
        "approvals = 1\ncheck = [\"ci/test\"]\n\n[[stage]]",
        1,
    );
    let (number, _) = open(&mut world, "gate", "plans/default.toml", &gated)?;
    let commit = forge.merge("ravi", number, Way::Merge)?;
    // The stricter of before and after: the plan is asked of the commit that brings it.
    let held = world.wait_for(&commit, "held")?;
    ensure!(held["code"] == "merged-unchecked", "{held:#}");
    world.meshplan(&["deliveries", "go", &commit])?.ok()?;
    world.wait_for(&commit, "delivered")?;

    // Approved, and its check still runs at the merge.
    let (number, head) = open(&mut world, "good", PAGE.source, SECOND)?;
    forge.set_status(&head, "ci/other", "failure");
    forge.run_check(&head, "ci/test", "pending");
    forge.review("mallory", number, Says::Approve)?;
    forge.review("ravi", number, Says::Approve)?;
    let commit = forge.merge("ravi", number, Way::Squash)?;
    wait_comment(&mut world, &forge, number, VIEW, "ci/test still runs")?;
    ensure!(world.at("ace", PAGE)? == FIRST);
    forge.run_check(&head, "ci/test", "success");
    world.wait_for(&commit, "delivered")?;
    let mut note = String::new();
    world.poll("the note says who approved", |w| {
        note = w.note(&commit).unwrap_or_default();
        Ok(note.contains("Approved-By: ravi"))
    })?;
    ensure!(!note.contains("mallory"), "{note}");

    // Its check has failed.
    let (number, head) = open(&mut world, "bad", PAGE.source, "third\n")?;
    forge.run_check(&head, "ci/test", "error");
    let commit = forge.merge("ravi", number, Way::Merge)?;
    let held = world.wait_for(&commit, "held")?;
    ensure!(held["code"] == "check-failed", "{held:#}");
    world.meshplan(&["deliveries", "go", &commit])?.ok()?;
    world.wait_for(&commit, "delivered")?;

    // Pushed to after it was approved: nobody has seen what is merged.
    let (number, _) = open(&mut world, "moved", PAGE.source, "fourth\n")?;
    forge.review("ravi", number, Says::Approve)?;
    world.write(PAGE.source, "fifth\n")?;
    let head = push(&world, "moved", "more")?;
    forge.run_check(&head, "ci/test", "success");
    // At GitLab a rebase makes another head, of which nobody has said anything.
    let way = match brand {
        Brand::Gitlab => Way::Squash,
        _ => Way::Rebase,
    };
    let commit = forge.merge("ravi", number, way)?;
    let held = world.wait_for(&commit, "held")?;
    ensure!(held["code"] == "approvals", "{held:#}");
    // What is let go at last was approved by the reviewer who looked again.
    forge.review("ravi", number, Says::Approve)?;
    world.wait_for(&commit, "delivered")?;
    ensure!(world.at("cid", PAGE)? == "fifth\n");

    // What nobody approved is not let through by an approved one that takes its place.
    let (number, head) = open(&mut world, "unseen", PAGE.source, "sixth\n")?;
    forge.run_check(&head, "ci/test", "success");
    let commit = forge.merge("ravi", number, Way::Merge)?;
    world.wait_for(&commit, "held")?;
    let (number, head) = open(&mut world, "seen", "README.md", "# seen\n")?;
    forge.run_check(&head, "ci/test", "success");
    forge.review("ravi", number, Says::Approve)?;
    let commit = forge.merge("ravi", number, Way::Merge)?;
    let held = world.wait_for(&commit, "held")?;
    ensure!(held["code"] == "approvals", "{held:#}");
    let mut asked = 0;
    world.poll("the reviews were judged", |_| {
        let reviews = |call: &&String| {
            let of = ["reviews", "approvals"].map(|list| format!("/{number}/{list} 200"));
            of.iter().any(|of| call.ends_with(of))
        };
        asked += forge.take_calls().iter().filter(reviews).count();
        Ok(asked > 1)
    })?;
    let held = world.wait_for(&commit, "held")?;
    ensure!(held["code"] == "approvals", "{held:#}");
    ensure!(world.at("cid", PAGE)? == "fifth\n");
    Ok(())
}

// holds: FG-5, FG-1
pub(super) fn a_machine_enrols(brand: Brand) -> Result<()> {
    let (mut world, forge) = World::at_forge(brand, "admit")?;
    world.serve()?;
    let token = world.invite("ace")?;
    let enrolled = std::thread::scope(|scope| {
        let enrol = scope.spawn(|| world.host("ace", &["enrol", &token]));
        let deadline = std::time::Instant::now() + PATIENCE;
        let number = loop {
            if let Some(number) = forge.pulls_called("Admit ace").first() {
                break *number;
            }
            ensure!(
                std::time::Instant::now() < deadline,
                "no pull request came\n{}",
                world.logs()
            );
            std::thread::sleep(std::time::Duration::from_millis(100));
        };
        ensure!(forge.pulls_called("Admit").len() == 1);
        forge.merge("ravi", number, Way::Squash)?;
        match enrol.join() {
            Ok(said) => said?.ok(),
            Err(_) => anyhow::bail!("the thread that enrols is gone"),
        }
    })?;
    ensure!(!enrolled.is_empty());
    back_to_main(&world)?;
    let record = std::fs::read_to_string(world.work().join("nodes/ace.toml"))?;
    ensure!(record.contains("transport_key"), "{record}");
    Ok(())
}
