//! Scoreboard metric 4: what a look without news costs, in turns with `git fetch` without news.
//!
//! `cargo bench --bench no_change [-- --large]`. One webhook is sent again and again, as "redeliver" does: each wakes a
//! pass that asks the forge, reads the store, decides nothing and stores nothing. Then webhooks that are new each time
//! and bring nothing: each is stored before it is answered, and marked as looked at. CPU time is the service's own
//! (`/proc/PID/stat`), that of `git fetch` without the forge's share. The floor is R <= 0.5, no note and no order.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use scenarios::ground::{Ground, git, repeated};
use scenarios::measure::{Disk, Times, cpu, load, proc_number, ticks};
use scenarios::program::Said;

/// Looks of one round, and fetches of the peer's.
const LOOKS: usize = 50;

fn main() -> Result<()> {
    let large = std::env::args().any(|arg| arg == "--large");
    let rounds = if large { 20 } else { 7 };
    println!(
        "a look without news: {rounds} rounds of {LOOKS}, in turns with as many `git fetch`; load {}",
        load()
    );
    println!(
        " nodes  what               CPU a look   wall   git CPU   git wall   R of CPU              bytes written a look   new: deliveries, notes   fdatasync"
    );
    for nodes in [10, 1_000, 10_000] {
        measure(nodes, rounds)?;
    }
    println!("floor: R 0.5, 0 notes, 0 orders");
    Ok(())
}

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Webhook {
    Again,
    New,
}

fn measure(nodes: usize, rounds: usize) -> Result<()> {
    let mut ground = Ground::lay(nodes)?;
    let mut disk = Disk::of(ground.folder())?;
    let clone = ground.folder().join("peer.git");
    let target = clone.to_str().context("a path in UTF-8")?;
    git(
        ground.folder(),
        &["clone", "--quiet", "--bare", &ground.forge_url(), target],
    )?;
    let tip = ground.repo().tip()?;
    for (name, webhook) in [("redelivered", Webhook::Again), ("new, no news", Webhook::New)] {
        let deliveries = ground.api("/api/deliveries")?;
        let notes = ground.notes();
        let (mut ours, mut theirs) = (Times::default(), Times::default());
        let (mut wall, mut their_wall) = (Times::default(), Times::default());
        let mut written = 0;
        for round in 0..=rounds {
            let before = (cpu(ground.pid())?, bytes_written(&ground)?);
            let since = Instant::now();
            for look in 0..LOOKS {
                let looked = ground.looks();
                let delivery = match webhook {
                    Webhook::Again => "redelivered".to_owned(),
                    Webhook::New => format!("{round}-{look}"),
                };
                ground.webhook(&delivery, &tip)?;
                ground.looked_since(looked)?;
            }
            rest(&ground)?;
            let took = since.elapsed();
            let used = cpu(ground.pid())?.saturating_sub(before.0);
            let bytes = bytes_written(&ground)?.saturating_sub(before.1);
            let since = Instant::now();
            let fetch = "git fetch --quiet origin +refs/heads/main:refs/heads/main";
            let said = Said::of(repeated(&clone, LOOKS, fetch))?.ok()?;
            let their_took = since.elapsed();
            disk.measure()?;
            // The first round warms both, and makes the row of the webhook that comes again.
            if round > 0 {
                ours.add(used);
                wall.add(took);
                theirs.add(ticks(&said, &[15, 16])?);
                their_wall.add(their_took);
                written += bytes;
            }
        }
        ensure!(
            ground.api("/api/deliveries")? == deliveries,
            "looks without news changed deliveries"
        );
        ensure!(ground.notes() == notes, "looks without news wrote notes");
        let looks = f64::from(u32::try_from(LOOKS)?);
        println!(
            "{nodes:>6}  {name:<16} {:>8.2} ms {:>6.1} ms {:>6.2} ms {:>6.1} ms   {:<20} {:>8}               0, 0                     {:.2} ms",
            ours.ms(50) / looks,
            wall.ms(50) / looks,
            theirs.ms(50) / looks,
            their_wall.ms(50) / looks,
            ours.over(&theirs).to_string(),
            written / u64::try_from(rounds * LOOKS)?,
            disk.p50(),
        );
    }
    Ok(())
}

fn bytes_written(ground: &Ground) -> Result<u64> {
    proc_number(ground.pid(), "io", "write_bytes")
}

/// Waits until the service uses no CPU: the pass of the last look has ended.
fn rest(ground: &Ground) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut before = cpu(ground.pid())?;
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let now = cpu(ground.pid())?;
        if now == before {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the service does not come to rest");
        before = now;
    }
}
