//! Scoreboard metric 13 in its simulated form: a change from merge to delivered, by a canary and three waves, over the
//! daemon's own pass and the real store (SQLite, `synchronous = FULL`), with simulated forge, links and hosts in the same
//! process.
//!
//! `./bench rollout`. Sizes 100, 1,000 and 10,000, the median of [`ROUNDS`]; a look each simulated second, so that no time
//! is spent waiting. The costs of making the fleet are those of a rehearsal that ends before the merge, taken off. No git,
//! no session and no network takes part: what is measured is deciding, signing, storing, and the simulated hosts.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use meshplan_reconciler::simulation;
use scenarios::measure::{exponent, load};

const ROUNDS: usize = 3;
const SIZES: [usize; 3] = [100, 1_000, 10_000];

/// A plan of a canary and three waves; the fleet is at rest under it.
fn at_rest(nodes: usize) -> String {
    let looks = "healthy = { times = 1, every_secs = 1, within_secs = 600 }";
    format!(
        "fleet of {nodes} machines\n\
         merge plan: three waves\n  write plans/default.toml covers = [\"*\"]\\n\\n[[stage]]\\nname = \"canary\"\\ncount = 1\\n{looks}\
         \\n\\n[[stage]]\\nname = \"rest\"\\nrest = true\\nbatch = \"34%\"\\n{looks}\n\
         advance 5m\n"
    )
}

/// Seconds of the wall and of the processor that a script takes, and what it said.
fn played(runtime: &tokio::runtime::Runtime, script: &str) -> Result<(f64, f64, String)> {
    let (since, spent) = (Instant::now(), processor());
    let mut out = Vec::new();
    runtime.block_on(simulation::run(script, Path::new("."), &mut out))?;
    Ok((
        since.elapsed().as_secs_f64(),
        processor() - spent,
        String::from_utf8(out)?,
    ))
}

/// Seconds of the processor that this process has had.
fn processor() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "seconds of a bench")]
    let secs = spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9;
    secs
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    println!(
        "a change by a canary and three waves, simulated; {ROUNDS} rounds; load {}",
        load()
    );
    println!(
        "{:>8} {:>10} {:>12} {:>16}",
        "nodes", "wall, s", "CPU, s", "CPU us a node"
    );
    let mut points = Vec::new();
    for nodes in SIZES {
        let before = at_rest(nodes);
        let whole = format!("{before}merge web: two\n  write modules/web/files/page two\nadvance 10m\n");
        let (mut walls, mut spents) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let (wall, spent, _) = played(&runtime, &before)?;
            let (all, all_spent, said) = played(&runtime, &whole)?;
            ensure!(
                said.contains(&format!(
                    "delivered (done) by reconciler: every machine of the plan passed: {nodes}"
                )),
                "{said}"
            );
            walls.push(all - wall);
            spents.push(all_spent - spent);
        }
        let (wall, spent) = (median(walls), median(spents));
        let count = f64::from(u32::try_from(nodes)?);
        points.push((count, spent));
        println!(
            "{nodes:>8} {wall:>10.2} {spent:>12.2} {:>16.0}",
            spent * 1e6 / count
        );
    }
    println!(
        "exponent of the CPU {:.3}; floor 60 s and 2,000 us a node at 10,000, goal 4 s and 200 us",
        exponent(&points)
    );
    Ok(())
}
