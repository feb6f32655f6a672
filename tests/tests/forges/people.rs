//! Who may say what: people of the repository, strangers, and whoever comes from a fork.

use anyhow::{Result, ensure};
use scenarios::double::{BOT, Brand, Spoilt, Way};
use scenarios::tree::{CONF, PAGE, SECOND};
use scenarios::world::World;

use super::{CHECK, PREVIEW, VIEW, back_to_main, push, wait_comment};

// holds: DL-4, B57
pub(super) fn words_of_people(brand: Brand) -> Result<()> {
    let (mut world, forge) = World::at_forge(brand, "words")?;
    world.start_three_hosts()?;
    world.meshplan(&["freeze", "--why", "the fair"])?.ok()?;
    back_to_main(&world)?;
    world.git(&["checkout", "--quiet", "-b", "edge"])?;
    world.write(PAGE.source, SECOND)?;
    push(&world, "edge", "a page")?;
    let number = forge.open_pull("dana", "edge", "A new page")?;
    // Of before the merge: about nothing that could be let go.
    forge.comment("dana", number, "/plans go")?;
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let commit = forge.merge("ravi", number, Way::Merge)?;
    world.wait_for(&commit, "held")?;
    forge.comment("mallory", number, "/plans go")?;
    forge.comment("dana", number, "> /plans go\n\nwho said that?")?;
    forge.comment("dana", number, "```\n/plans go\n```")?;
    let old = forge.comment("dana", number, "let me see")?;
    forge.edit_comment("dana", old, "/plans go")?;
    // One that is answered: what stands before it was read by then.
    forge.comment("dana", number, "/plans retry")?;
    let (_, text) = wait_comment(&mut world, &forge, number, VIEW, "has a stage to retry")?;
    ensure!(!text.contains("mallory"), "{text}");
    ensure!(text.contains("**held**"), "{text}");
    let shown = world.wait_for(&commit, "held")?;
    ensure!(shown["code"] == "freeze", "{shown:#}");
    forge.comment("dana", number, "/plans go the fair is over")?;
    world.wait_for(&commit, "delivered")?;
    let (_, text) = wait_comment(&mut world, &forge, number, VIEW, "**delivered**")?;
    ensure!(text.contains("by dana: the fair is over"), "{text}");
    Ok(())
}

// holds: DL-8, B57
pub(super) fn a_fork(brand: Brand) -> Result<()> {
    let (mut world, forge) = World::at_forge(brand, "fork")?;
    world.start_three_hosts()?;
    let head = world.head()?;
    let before = world.meshplan_json(&["deliveries", "list"])?;
    world.git(&["checkout", "--quiet", "-b", "main-of-mallory"])?;
    world.write(CONF.source, "port = 1\n")?;
    world.write(
        "plans/quick.toml",
        "covers = [\"*\"]\n\n[[stage]]\nname = \"all\"\nrest = true\n",
    )?;
    std::fs::remove_file(world.work().join("plans/default.toml"))?;
    let evil = world.commit("all at once")?;
    let number = forge.open_pull_from_fork("mallory", &world.work(), "main-of-mallory", "Harmless")?;
    ensure!(forge.head(number)? == evil);
    if brand != Brand::Gitlab {
        // There the commits of a fork are in the fork's project: the comment says it all.
        world.poll("it is previewed", |_| Ok(forge.status(&evil, CHECK).is_some()))?;
    }
    wait_comment(
        &mut world,
        &forge,
        number,
        PREVIEW,
        evil.get(..12).unwrap_or_default(),
    )?;
    forge.comment("mallory", number, "/plans go")?;
    // A commit of ours walks by the plan that stands, not by the fork's.
    back_to_main(&world)?;
    ensure!(world.head()? == head);
    let ours = world.merge(PAGE.source, SECOND)?;
    world.wait_for(&ours, "delivered")?;
    let after = world.meshplan_json(&["deliveries", "list"])?;
    let count = |list: &serde_json::Value| list.as_array().map_or(0, Vec::len);
    ensure!(count(&after) == count(&before) + 1, "{after:#}");
    let in_mirror = std::process::Command::new("git")
        .arg("--git-dir")
        .arg(world.state().join("mirror"))
        .args(["cat-file", "-e", &evil])
        .output()?;
    ensure!(
        !in_mirror.status.success(),
        "a stranger's commit is where orders are read from"
    );
    Ok(())
}

// holds: DL-4
pub(super) fn comments_that_cannot_be_read(brand: Brand) -> Result<()> {
    let (mut world, forge) = World::at_forge(brand, "unread")?;
    world.start_three_hosts()?;
    world.meshplan(&["freeze", "--why", "the fair"])?.ok()?;
    let merge = |world: &mut World, branch: &str, page: &str| -> Result<(u64, String)> {
        back_to_main(world)?;
        world.git(&["checkout", "--quiet", "-b", branch])?;
        world.write(PAGE.source, page)?;
        push(world, branch, branch)?;
        let number = forge.open_pull("dana", branch, branch)?;
        let commit = forge.merge("ravi", number, Way::Merge)?;
        world.wait_for(&commit, "held")?;
        Ok((number, commit))
    };
    let (first, _) = merge(&mut world, "loud", "loud\n")?;
    let (second, commit) = merge(&mut world, "calm", SECOND)?;
    ensure!(first < second);
    let comments = match brand {
        Brand::Forgejo | Brand::Github => format!("issues/{first}/comments"),
        Brand::Gitlab => format!("merge_requests/{first}/notes"),
    };
    let spoilt = [
        (Spoilt::TooLong, "bytes"),
        (Spoilt::Nonsense, "cannot be read"),
        (Spoilt::Gone, ""),
    ];
    for (at, (how, why)) in spoilt.into_iter().enumerate() {
        forge.spoil(&comments, how);
        forge.comment("mallory", first, "la la la")?;
        forge.comment("dana", second, "/plans retry")?;
        let mut answered = 0;
        world.poll("the word on the other pull request is answered", |_| {
            let said = forge.comments_by(BOT, second);
            let words = said
                .iter()
                .map(|(_, text)| text.matches("has a stage to retry").count());
            answered = words.sum();
            Ok(answered == at + 1)
        })?;
        if how == Spoilt::Gone {
            // What is not there has nothing to say.
            continue;
        }
        world.poll("it is said which one is passed over", |w| {
            let status = w.meshplan_json(&["fleet", "status"])?;
            let troubles = status["troubles"].to_string();
            Ok(troubles.contains(&format!("pull request {first} is passed over")) && troubles.contains(why))
        })?;
    }
    forge.mend();
    forge.comment("dana", second, "/plans go the fair is over")?;
    world.wait_for(&commit, "delivered")?;
    world.poll("what can be read again is no trouble", |w| {
        let status = w.meshplan_json(&["fleet", "status"])?;
        Ok(!status["troubles"].to_string().contains("passed over"))
    })
}

// holds: DL-4, B57
pub(super) fn a_team(brand: Brand) -> Result<()> {
    let (mut world, forge) = World::at_forge(brand, "teams")?;
    world.start_three_hosts()?;
    let team = match brand {
        Brand::Forgejo | Brand::Github => "ops",
        Brand::Gitlab => "acme/ops",
    };
    let plan = std::fs::read_to_string(world.work().join("plans/default.toml"))?;
    let actors = format!("actors = [\"team:{team}\"]\n\n[[stage]]");
    back_to_main(&world)?;
    let commit = world.merge("plans/default.toml", &plan.replacen("[[stage]]", &actors, 1))?;
    world.wait_for(&commit, "delivered")?;
    world.meshplan(&["freeze", "--why", "the fair"])?.ok()?;
    back_to_main(&world)?;
    world.git(&["checkout", "--quiet", "-b", "edge"])?;
    world.write(PAGE.source, SECOND)?;
    push(&world, "edge", "a page")?;
    let number = forge.open_pull("dana", "edge", "A new page")?;
    let commit = forge.merge("ravi", number, Way::Merge)?;
    world.wait_for(&commit, "held")?;

    // There is no such team, or the bot is not shown it.
    forge.team("dev", &["dana", BOT]);
    forge.comment("ravi", number, "/plans go")?;
    wait_comment(&mut world, &forge, number, VIEW, &format!("has no team `{team}`"))?;
    // One that others are in.
    forge.team(team, &["ravi", BOT]);
    forge.comment("dana", number, "/plans go")?;
    wait_comment(&mut world, &forge, number, VIEW, "dana is none of them")?;
    ensure!(world.wait_for(&commit, "held")?["code"] == "freeze");
    // While nobody tells, the word waits.
    let members = match brand {
        Brand::Forgejo | Brand::Github => "teams/",
        Brand::Gitlab => "groups/",
    };
    forge.spoil(members, Spoilt::Down);
    // Whoever was in the team when it was asked about last is known for a while.
    std::thread::sleep(std::time::Duration::from_secs(31));
    forge.comment("ravi", number, "/plans go the fair is over")?;
    let mut asked = 0;
    world.poll("the team is asked about twice", |_| {
        let calls = forge.take_calls();
        asked += calls
            .iter()
            .filter(|call| call.contains(members) && call.ends_with("502"))
            .count();
        Ok(asked > 1)
    })?;
    ensure!(world.wait_for(&commit, "held")?["code"] == "freeze");
    forge.mend();
    world.wait_for(&commit, "delivered")?;
    let (_, text) = wait_comment(&mut world, &forge, number, VIEW, "**delivered**")?;
    ensure!(text.contains("by ravi: the fair is over"), "{text}");
    Ok(())
}
