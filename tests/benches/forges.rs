//! What a forge waits for: the answer to a webhook under load, the first status after one, and previews.
//!
//! `cargo bench --bench forges [-- --large]`. Webhooks come 200 a second, each measured from the moment when it was due, while
//! merges are delivered; the floor is a p99 of 50 ms (FG-2). Statuses and previews are seen at a double of a forge, from the
//! push or the merge there to the status there; whoever keeps pull requests looks every two seconds at the most, and that
//! wait is in the figures.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use meshplan_reconciler::pure::example::generate;
use scenarios::double::{Brand, Double, Way};
use scenarios::ground::{Ground, Poster};
use scenarios::measure::{Times, cpu, load};
use scenarios::tree::PAGE;
use scenarios::world::World;
use tokio::task::JoinSet;

/// Webhooks a second.
const A_SECOND: u32 = 200;
/// How often the double is looked at.
const EVERY: Duration = Duration::from_millis(2);
/// How long anything may take to come.
const PATIENCE: Duration = Duration::from_secs(120);
/// The fleet's name, as the generated tree has it.
const FLEET: &str = "generated";

fn main() -> Result<()> {
    let large = std::env::args().any(|arg| arg == "--large");
    println!("what a forge waits for; load {}", load());
    answers(if large { 60 } else { 15 })?;
    let rounds = if large { 30 } else { 8 };
    pending(rounds)?;
    previews(1_000, rounds)?;
    println!("load at the end {}", load());
    Ok(())
}

fn line(what: &str, times: &Times) {
    println!(
        "{what:<72} p50 {:>7.1} ms   p95 {:>7.1} ms   p99 {:>7.1} ms",
        times.ms(50),
        times.ms(95),
        times.ms(99)
    );
}

/// Webhooks at a steady pace, each with a delivery id of its own, while merges are delivered one after another.
fn answers(secs: u32) -> Result<()> {
    let mut ground = Ground::lay(1_000)?;
    let quiet = paced(&ground.poster().clone(), &ground.repo().tip()?, "quiet", secs)?;
    line(
        &format!("webhook answered, {A_SECOND} a second, nothing delivered"),
        &quiet,
    );
    let (poster, tip) = (ground.poster().clone(), ground.repo().tip()?);
    let load = std::thread::spawn(move || paced(&poster, &tip, "busy", secs));
    let mut merges = 0;
    while !load.is_finished() {
        let notes = ground.notes();
        let commit = ground.repo().merge(merges)?;
        ground.deliver(&commit)?;
        ground.settle(notes)?;
        merges += 1;
    }
    let Ok(busy) = load.join() else {
        anyhow::bail!("the thread that posts is gone");
    };
    let what = format!("the same while {merges} merges were delivered to a fleet of 1,000");
    line(&what, &busy?);
    println!("floor: p99 50 ms");
    Ok(())
}

/// Posts at the pace, whatever becomes of those before: each is measured from when it was due.
fn paced(poster: &Poster, after: &str, name: &str, secs: u32) -> Result<Times> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let poster = poster.apart()?;
        let begun = tokio::time::Instant::now();
        let mut posts = JoinSet::new();
        for at in 0..secs * A_SECOND {
            let due = begun + Duration::from_secs(1) / A_SECOND * at;
            tokio::time::sleep_until(due).await;
            let (poster, delivery, after) = (poster.clone(), format!("{name}-{at}"), after.to_owned());
            posts.spawn(async move {
                poster.post(&delivery, &after).await?;
                anyhow::Ok(due.elapsed())
            });
        }
        let mut times = Times::default();
        while let Some(post) = posts.join_next().await {
            times.add(post??);
        }
        Ok(times)
    })
}

/// Waits until something stands at the double; gives how long it took since then.
fn wait(world: &World, what: &str, since: Instant, mut stands: impl FnMut() -> bool) -> Result<Duration> {
    while !stands() {
        ensure!(since.elapsed() < PATIENCE, "in vain: {what}\n{}", world.logs());
        std::thread::sleep(EVERY);
    }
    Ok(since.elapsed())
}

/// From a merge at the forge to the first status of its commit.
fn pending(rounds: usize) -> Result<()> {
    let (mut world, forge) = World::at_forge(Brand::Forgejo, "pending")?;
    world.configure_forge("poll_secs", 3600)?;
    world.start_three_hosts()?;
    let mut times = Times::default();
    for round in 0..rounds {
        let (number, _) = propose(&world, &forge, round, PAGE.source)?;
        let since = Instant::now();
        let commit = forge.merge("ravi", number, Way::Squash)?;
        let took = wait(&world, "its first status", since, || {
            let first = forge.statuses(&commit).into_iter().next();
            first.is_some_and(|status| status.state == "pending")
        })?;
        times.add(took);
        world.wait_for(&commit, "delivered")?;
    }
    line(
        &format!("merge at the forge to the status `pending`, {rounds} rounds"),
        &times,
    );
    Ok(())
}

/// A pull request that changes a file of a module.
fn propose(world: &World, forge: &Double, round: usize, path: &str) -> Result<(u64, String)> {
    let branch = format!("round-{round}");
    world.git(&["fetch", "--quiet", "origin", "main"])?;
    world.git(&["checkout", "--quiet", "--force", "-B", &branch, "FETCH_HEAD"])?;
    world.write(path, &format!("round {round}\n"))?;
    let head = world.commit(&branch)?;
    world.git(&["push", "--quiet", "origin", &format!("HEAD:refs/heads/{branch}")])?;
    Ok((forge.open_pull("dana", &branch, &branch)?, head))
}

/// From a pull request that is opened, and from a push to it, to the status of its preview, in a fleet of so many nodes.
fn previews(nodes: usize, rounds: usize) -> Result<()> {
    let (mut world, forge) = World::at_forge(Brand::Forgejo, FLEET)?;
    world.configure_forge("poll_secs", 3600)?;
    fill(&world, nodes)?;
    world.serve()?;
    let head = world.head()?;
    world.wait_for(&head, "delivered")?;
    let path = "modules/base/files/motd";
    let (mut opened, mut pushed) = (Times::default(), Times::default());
    let before = cpu(world.reconciler_pid()?)?;
    for round in 0..rounds {
        let (_, head) = propose(&world, &forge, round, path)?;
        let since = Instant::now();
        opened.add(wait(&world, "its preview", since, || {
            forge.status(&head, "meshplan/check").is_some()
        })?);
        world.write(path, &format!("round {round}, again\n"))?;
        let head = world.commit("again")?;
        let since = Instant::now();
        world.git(&[
            "push",
            "--quiet",
            "origin",
            &format!("HEAD:refs/heads/round-{round}"),
        ])?;
        pushed.add(wait(&world, "its preview once more", since, || {
            forge.status(&head, "meshplan/check").is_some()
        })?);
    }
    let used = cpu(world.reconciler_pid()?)?.saturating_sub(before);
    let used = used.as_secs_f64() * 1000.0 / f64::from(u32::try_from(2 * rounds)?);
    line(
        &format!("preview of a change on each of {nodes} nodes: opened to status, {rounds} rounds"),
        &opened,
    );
    line(
        &format!("the same after a push to it; CPU of a preview {used:.0} ms, {rounds} rounds"),
        &pushed,
    );
    Ok(())
}

/// Lays a generated fleet in the place of the world's own, with the world's author, and pushes it.
fn fill(world: &World, nodes: usize) -> Result<()> {
    let work = world.work();
    let own = fs::read_to_string(work.join("fleet.toml"))?;
    let of_own = |start: &str| -> Result<String> {
        let line = own.lines().find(|line| line.starts_with(start));
        Ok(line
            .with_context(|| format!("fleet.toml has a line {start}"))?
            .to_owned())
    };
    let (key, id) = (of_own("key = ")?, of_own("id = ")?);
    for folder in ["modules", "nodes", "plans", "policy"] {
        let _ = fs::remove_dir_all(work.join(folder));
    }
    for (path, bytes) in generate(nodes, 7) {
        let mut text = String::from_utf8(bytes)?;
        if path == "fleet.toml" {
            let lines = text.lines().map(|line| match line {
                line if line.starts_with("key = ") => key.as_str(),
                line if line.starts_with("id = ") => id.as_str(),
                line => line,
            });
            text = lines.collect::<Vec<_>>().join("\n") + "\n";
        }
        world.write(&path, &text)?;
    }
    world.commit("a generated fleet")?;
    world.git(&["push", "--quiet", "origin", "HEAD:refs/heads/main"])?;
    Ok(())
}
