//! Pull requests at doubles of forges, from the first push to the last status, with the real programs: one story run at each.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use scenarios::double::{BOT, Brand, Double, Posting, Way};
use scenarios::tree::{FIRST, PAGE, SECOND};
use scenarios::world::World;

#[path = "forges/components.rs"]
mod components;
#[path = "forges/gates.rs"]
mod gates;
#[path = "forges/people.rs"]
mod people;
#[path = "forges/reverts.rs"]
mod reverts;

const PREVIEW: &str = "<!-- mesh-delivery:preview -->";
const VIEW: &str = "<!-- mesh-delivery:view -->";
const CHECK: &str = "meshplan/check";
const DELIVERY: &str = "meshplan/delivery";

/// A test a story, in a module a forge.
macro_rules! at_each_forge {
    ($($name:ident: $story:path;)*) => {
        at_each_forge!(@ forgejo, Brand::Forgejo, $($name: $story;)*);
        at_each_forge!(@ github, Brand::Github, $($name: $story;)*);
        at_each_forge!(@ gitlab, Brand::Gitlab, $($name: $story;)*);
    };
    (@ $forge:ident, $brand:expr, $($name:ident: $story:path;)*) => {
        mod $forge {
            use super::*;

            $(
                #[test]
                fn $name() -> Result<()> {
                    $story($brand)
                }
            )*
        }
    };
}

at_each_forge! {
    a_pull_request_is_previewed_mended_merged_and_followed_to_its_end: previewed_and_followed;
    each_way_of_merging_is_one_delivery_whatever_becomes_of_the_webhooks: each_way_of_merging;
    a_forge_that_is_down_delays_what_is_said_and_no_delivery: down_for_a_while;
    a_word_counts_from_whom_the_forge_confirms_and_from_nobody_else: people::words_of_people;
    a_pull_request_whose_comments_cannot_be_read_stops_no_word_on_another: people::comments_that_cannot_be_read;
    a_team_that_a_plan_names_has_a_say_as_the_forge_tells_and_nobody_while_it_does_not: people::a_team;
    a_fork_is_previewed_and_nothing_of_it_is_done: people::a_fork;
    reviews_and_checks_of_the_forge_let_a_delivery_begin_or_hold_it: gates::reviews_and_checks;
    what_a_canary_took_back_is_proposed_as_a_revert_whose_merge_changes_no_machine: reverts::reverted;
    a_machine_that_enrols_arrives_as_a_pull_request_and_its_merge_admits_it: gates::a_machine_enrols;
}

/// Pushes what the work clone has changed to a branch of its own; gives its head.
fn push(world: &World, branch: &str, subject: &str) -> Result<String> {
    let head = world.commit(subject)?;
    world.git(&[
        "push",
        "--quiet",
        "--force",
        "origin",
        &format!("HEAD:refs/heads/{branch}"),
    ])?;
    Ok(head)
}

/// The work clone at the tip of the fleet branch.
fn back_to_main(world: &World) -> Result<()> {
    world.git(&["fetch", "--quiet", "origin", "main"])?;
    world.git(&["checkout", "--quiet", "--force", "-B", "main", "FETCH_HEAD"])?;
    Ok(())
}

fn wait_status(
    world: &mut World,
    forge: &Double,
    commit: &str,
    context: &str,
    state: &str,
) -> Result<String> {
    let mut description = String::new();
    world.poll(&format!("{context} of {commit} is {state}"), |_| {
        let status = forge.status(commit, context);
        description = status.as_ref().map(|s| s.description.clone()).unwrap_or_default();
        Ok(status.is_some_and(|status| status.state == state))
    })?;
    Ok(description)
}

/// Our one comment of a marker.
fn ours(forge: &Double, number: u64, marker: &str) -> Result<(u64, String)> {
    let all = forge.comments_by(BOT, number);
    let mut of = all.into_iter().filter(|(_, body)| body.starts_with(marker));
    let one = of
        .next()
        .with_context(|| format!("#{number} has no comment with {marker}"))?;
    ensure!(of.next().is_none(), "#{number} has two comments with {marker}");
    Ok(one)
}

fn wait_comment(
    world: &mut World,
    forge: &Double,
    number: u64,
    marker: &str,
    words: &str,
) -> Result<(u64, String)> {
    let mut found = (0, String::new());
    let waited = world.poll(&format!("the comment of #{number} says `{words}`"), |_| {
        let Ok(one) = ours(forge, number, marker) else {
            return Ok(false);
        };
        found = one;
        Ok(found.1.contains(words))
    });
    waited.with_context(|| format!("it says:\n{}", found.1))?;
    Ok(found)
}

/// Every file below a folder that has these bytes in it.
fn files_with(folder: &Path, needle: &str, found: &mut Vec<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files_with(&path, needle, found)?;
        } else if let Ok(bytes) = std::fs::read(&path)
            && bytes
                .windows(needle.len())
                .any(|window| window == needle.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    Ok(())
}

// holds: FG-1, FG-2, FG-4, DL-8, DL-11, B51, B53
fn previewed_and_followed(brand: Brand) -> Result<()> {
    let (mut world, forge) = World::at_forge(brand, "pulls")?;
    // Everything comes by webhook here; what is asked of the forge is counted.
    world.configure_forge("poll_secs", 3600)?;
    world.start_three_hosts()?;
    drop(forge.take_calls());

    // An error, at its line.
    world.git(&["checkout", "--quiet", "-b", "edge"])?;
    world.write(PAGE.source, SECOND)?;
    world.write(
        "plans/odd.toml",
        "covers = [\"module:web\"]\n\n[[stage]]\nname = \"all\"\nrest = true\nfaild = \"hold\"\n",
    )?;
    let broken = push(&world, "edge", "a page, and a plan with a fault")?;
    let number = forge.open_pull("dana", "edge", "A new page")?;
    let said = wait_status(&mut world, &forge, &broken, CHECK, "failure")?;
    ensure!(said.contains("plans/odd.toml:"), "{said}");
    let (id, text) = wait_comment(&mut world, &forge, number, PREVIEW, "plans/odd.toml")?;
    ensure!(
        text.contains("plans/odd.toml:6") && text.contains("faild"),
        "{text}"
    );

    // Mended: the same comment says what would happen.
    std::fs::remove_file(world.work().join("plans/odd.toml"))?;
    let head = push(&world, "edge", "without the plan")?;
    let said = wait_status(&mut world, &forge, &head, CHECK, "success")?;
    ensure!(said.contains("3 nodes"), "{said}");
    let (again, text) = wait_comment(&mut world, &forge, number, PREVIEW, "module web changes on")?;
    ensure!(again == id, "a second comment instead of an edit");
    for word in [
        "- This file is the same",
        "+ This file has been changed",
        "canary",
    ] {
        ensure!(text.contains(word), "the preview lacks `{word}`:\n{text}");
    }
    let local = world.meshplan(&[
        "preview",
        "--dir",
        &world.work().display().to_string(),
        "origin/main",
        "edge",
    ])?;
    for line in local.ok()?.lines().filter(|line| !line.contains("merged into")) {
        ensure!(
            text.contains(line),
            "the comment lacks what the command prints: `{line}`\n{text}"
        );
    }

    // The base moves: computed again, on the new one.
    back_to_main(&world)?;
    let base = world.merge("README.md", "# a fleet\n")?;
    let shown = world.wait_for(&base, "delivered")?;
    ensure!(
        shown["story"].to_string().contains("made from the forge's word"),
        "{shown:#}"
    );
    wait_comment(
        &mut world,
        &forge,
        number,
        PREVIEW,
        base.get(..12).unwrap_or_default(),
    )?;

    // Merged, and told to the end.
    let calls_before = forge.take_calls();
    let commit = forge.merge("ravi", number, Way::Squash)?;
    let shown = world.wait_for(&commit, "delivered")?;
    ensure!(shown["code"] == "done", "{shown:#}");
    ensure!(world.at("cid", PAGE)? == SECOND);
    wait_status(&mut world, &forge, &commit, DELIVERY, "success")?;
    let (_, text) = wait_comment(&mut world, &forge, number, VIEW, "**delivered**")?;
    for word in [
        "ace passed",
        "proposed -> delivering (checked)",
        "delivered (done)",
        "acme/fleet@",
    ] {
        ensure!(text.contains(word), "the view lacks `{word}`:\n{text}");
    }
    ensure!(forge.comments_by(BOT, number).len() == 2);
    let states: Vec<String> = forge.statuses(&commit).into_iter().map(|s| s.state).collect();
    ensure!(
        states.first().is_some_and(|first| first == "pending"),
        "{states:?}"
    );
    ensure!(
        forge
            .status(&base, DELIVERY)
            .is_some_and(|s| s.state == "success")
    );

    // What it cost: a preview that was mended and once made again, a delivery to three hosts.
    let calls = forge.take_calls();
    ensure!(
        calls_before.len() <= 16,
        "{} calls before the merge:\n{}",
        calls_before.len(),
        calls_before.join("\n")
    );
    ensure!(
        calls.len() <= 16,
        "{} calls for a delivery:\n{}",
        calls.len(),
        calls.join("\n")
    );
    for call in calls_before.iter().chain(&calls) {
        let last = call.rsplit(' ').next().unwrap_or_default();
        // A status of GitLab does not become what it is: that is how it says so.
        let is_there = brand == Brand::Gitlab && last == "400" && call.contains("/statuses/");
        ensure!(
            is_there || matches!(last, "200" | "201" | "404"),
            "the forge refused: {call}"
        );
    }

    // The secrets stand in their own files and nowhere else.
    let token = std::fs::read_to_string(world.state().join("forge-token"))?;
    let secret = std::fs::read_to_string(world.state().join("webhook-secret"))?;
    for (needle, own) in [(token.trim(), "forge-token"), (secret.trim(), "webhook-secret")] {
        let mut found = Vec::new();
        files_with(&world.state(), needle, &mut found)?;
        ensure!(
            found.len() == 1 && found[0].ends_with(own),
            "{own} stands in {found:?}"
        );
        ensure!(
            !world.reconciler_log().contains(needle),
            "{own} stands in the log"
        );
    }
    Ok(())
}

/// A person writes on a commit's note, as often as it takes until nobody was faster.
fn annotate(world: &mut World, commit: &str) -> Result<()> {
    let notes = "+refs/notes/mesh-plan:refs/notes/mesh-plan";
    world.poll("a person's note is pushed", |w| {
        // There may be none yet.
        let _ = w.git(&["fetch", "--quiet", "origin", notes]);
        w.git(&[
            "notes",
            "--ref=mesh-plan",
            "append",
            "--message",
            "seen by dana",
            commit,
        ])?;
        Ok(w.git(&["push", "--quiet", "origin", "refs/notes/mesh-plan"])
            .is_ok())
    })
}

/// How many deliveries of the module were walked to their end.
fn walked(world: &World) -> Result<usize> {
    let all = world.meshplan_json(&["deliveries", "list"])?;
    let of_web = |delivery: &&serde_json::Value| {
        delivery["code"] == "done" && delivery["scopes"].to_string().contains("module:web")
    };
    Ok(all.as_array().context("a list")?.iter().filter(of_web).count())
}

// holds: FG-2, FG-4, DL-1, DL-10, B05, B06
fn each_way_of_merging(brand: Brand) -> Result<()> {
    let (mut world, forge) = World::at_forge(brand, "ways")?;
    forge.page(1);
    world.start_three_hosts()?;
    let ways = [
        (Way::Merge, Posting::Twice),
        (Way::Rebase, Posting::Lost),
        (Way::FastForward, Posting::Late),
    ];
    // Open while the others come and go, so that a list of pull requests has more than a page.
    back_to_main(&world)?;
    world.git(&["checkout", "--quiet", "-b", "idle"])?;
    world.write("README.md", "# idle\n")?;
    push(&world, "idle", "nothing that matters")?;
    forge.open_pull("dana", "idle", "idle")?;
    let before = walked(&world)?;
    for (at, (way, posting)) in ways.into_iter().enumerate() {
        forge.posts(posting);
        back_to_main(&world)?;
        let branch = format!("way-{at}");
        world.git(&["checkout", "--quiet", "-b", &branch])?;
        for part in 0..2 {
            world.write(PAGE.source, &format!("way {at}, part {part}\n"))?;
            world.commit(&format!("part {part}"))?;
        }
        world.write("README.md", &format!("# way {at}\n"))?;
        let head = push(&world, &branch, "the rest")?;
        let number = forge.open_pull("dana", &branch, &format!("way {at}"))?;
        wait_status(&mut world, &forge, &head, CHECK, "success")?;
        let commit = match (brand, way) {
            // It has no such button: somebody pushes.
            (Brand::Github, Way::FastForward) => {
                world.git(&["push", "--quiet", "origin", "HEAD:refs/heads/main"])?;
                head
            }
            _ => forge.merge("ravi", number, way)?,
        };
        annotate(&mut world, &commit)?;
        world.wait_for(&commit, "delivered")?;
        ensure!(world.at("cid", PAGE)? == format!("way {at}, part 1\n"));
        wait_status(&mut world, &forge, &commit, DELIVERY, "success")?;
        wait_comment(&mut world, &forge, number, VIEW, "**delivered**")?;
        ours(&forge, number, PREVIEW)?;
        world.poll("its note has what a person wrote and how it went", |w| {
            let note = w.note(&commit).unwrap_or_default();
            Ok(note.contains("seen by dana") && note.contains("delivered (done)"))
        })?;
        if way != Way::Rebase {
            // Of a commit that the forge itself made anew only the forge's word says what it merges.
            let note = world.note(&commit)?;
            ensure!(
                note.contains("its head was heard of before the merge"),
                "{way:?}: {note}"
            );
        }
        let walked = walked(&world)?;
        ensure!(
            walked == before + at + 1,
            "{walked} deliveries after {way:?}, {before} before all"
        );
    }
    Ok(())
}

// holds: FG-4
fn down_for_a_while(brand: Brand) -> Result<()> {
    let (mut world, forge) = World::at_forge(brand, "down")?;
    world.start_three_hosts()?;
    back_to_main(&world)?;
    world.git(&["checkout", "--quiet", "-b", "edge"])?;
    world.write(PAGE.source, SECOND)?;
    push(&world, "edge", "a page")?;
    let number = forge.open_pull("dana", "edge", "A new page")?;
    ensure!(world.at("ace", PAGE)? == FIRST);
    let commit = forge.merge("ravi", number, Way::Merge)?;
    world.poll("the merge is known", |w| {
        Ok(w.meshplan_json(&["deliveries", "show", &commit]).is_ok())
    })?;
    forge.set_down(true);
    let shown = world.wait_for(&commit, "delivered")?;
    ensure!(shown["code"] == "done", "{shown:#}");
    ensure!(world.at("cid", PAGE)? == SECOND);
    let said = forge.status(&commit, DELIVERY);
    ensure!(
        said.is_none_or(|said| said.state != "success"),
        "it was told while the forge was down"
    );
    let status = world.meshplan_json(&["fleet", "status"])?;
    let troubles = status["troubles"].to_string();
    ensure!(
        troubles.contains("does not answer") || troubles.contains("cannot reach") || troubles.contains("502"),
        "{status:#}"
    );
    forge.set_down(false);
    wait_status(&mut world, &forge, &commit, DELIVERY, "success")?;
    wait_comment(&mut world, &forge, number, VIEW, "**delivered**")?;
    world.poll("its note is pushed", |w| {
        Ok(w.note(&commit)
            .is_ok_and(|note| note.contains("delivered (done)")))
    })?;
    Ok(())
}
