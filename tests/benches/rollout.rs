//! Scoreboard metric 13 in its simulated form: a change from merge to delivered, by a canary and three waves, over the
//! daemon's own pass and the real store (SQLite, `synchronous = FULL`), with simulated forge, links and hosts in the same
//! process.
//!
//! `./bench rollout`. Sizes 100, 1,000 and 10,000, the median of [`ROUNDS`]; a look each simulated second, so that no time
//! is spent waiting. The costs of making the fleet are those of a rehearsal that ends before the merge, taken off. No git,
//! no session and no network takes part: what is measured is deciding, signing, storing, reading the orders for the machines,
//! and beside it the simulated machines. All of it happens one after the other, so that the processor's time of the whole
//! process over a part is that part's.
//!
//! Then metric 14's "gate evaluation per report": in the middle of a walk whose stage looks at every machine, one machine comes back
//! and reports, [`REPORTS`] times, each time alone. The passes that follow of it are all that is counted.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use meshplan_reconciler::simulation;
use scenarios::measure::{exponent, load};

const ROUNDS: usize = 3;
const SIZES: [usize; 3] = [100, 1_000, 10_000];
/// So often a machine comes back with a report that is alone.
const REPORTS: usize = 20;

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

/// What a script costs, in seconds.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    /// Of the processor, everything in the process.
    all: f64,
    /// Of it the reconciler's passes, its taking of reports, its reading of orders for machines.
    parts: [f64; 3],
}

impl Cost {
    fn less(self, before: Self) -> Self {
        let parts = std::array::from_fn(|part| self.parts[part] - before.parts[part]);
        Self {
            wall: self.wall - before.wall,
            all: self.all - before.all,
            parts,
        }
    }

    fn reconciler(&self) -> f64 {
        self.parts.iter().sum()
    }
}

/// What a script costs, and what it said.
fn played(runtime: &tokio::runtime::Runtime, script: &str) -> Result<(Cost, String)> {
    let (since, spent) = (Instant::now(), processor());
    let mut out = Vec::new();
    let played = runtime.block_on(simulation::run(script, Path::new("."), &mut out))?;
    let parts = [played.spent.passes, played.spent.reports, played.spent.orders];
    let cost = Cost {
        wall: since.elapsed().as_secs_f64(),
        all: processor() - spent,
        parts: parts.map(|part| part.as_secs_f64()),
    };
    Ok((cost, String::from_utf8(out)?))
}

/// What the passes after one report cost in the middle of a walk, in seconds.
fn one_report(runtime: &tokio::runtime::Runtime, nodes: usize) -> Result<f64> {
    let looks = "healthy = { times = 1000, every_secs = 3600, within_secs = 86400 }";
    let walking = format!(
        "fleet of {nodes} machines\n\
         merge plan: one stage\n  write plans/default.toml covers = [\"*\"]\n\n[[stage]]\nname = \"all\"\nrest = true\n{looks}\n\
         advance 5m\nmerge web: two\n  write modules/web/files/page two\nadvance 5m\n"
    );
    let back = "cut-link n7\nlink n7\n".repeat(REPORTS);
    let (before, _) = played(runtime, &walking)?;
    let (after, said) = played(runtime, &format!("{walking}{back}show delivery 3\n"))?;
    ensure!(said.contains(&format!("all: {nodes} open")), "{said}");
    let spent = after.less(before).parts[0];
    Ok(spent / f64::from(u32::try_from(REPORTS)?))
}

/// Seconds of the processor that this process has had.
fn processor() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "seconds of a bench")]
    let secs = spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9;
    secs
}

/// The median of the costs by the reconciler's share.
fn median(mut of: Vec<Cost>) -> Cost {
    of.sort_by(|a, b| a.reconciler().total_cmp(&b.reconciler()));
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
        "{:>8} {:>8} {:>18} {:>18} {:>10} {:>10} {:>10}",
        "nodes", "wall, s", "CPU us a node, all", "of the reconciler", "passes", "reports", "orders"
    );
    let mut points = Vec::new();
    for nodes in SIZES {
        let before = at_rest(nodes);
        let whole = format!("{before}merge web: two\n  write modules/web/files/page two\nadvance 10m\n");
        let mut costs = Vec::new();
        for _ in 0..ROUNDS {
            let (rest, _) = played(&runtime, &before)?;
            let (all, said) = played(&runtime, &whole)?;
            ensure!(
                said.contains(&format!(
                    "delivered (done) by reconciler: every machine of the plan passed: {nodes}"
                )),
                "{said}"
            );
            costs.push(all.less(rest));
        }
        let cost = median(costs);
        let count = f64::from(u32::try_from(nodes)?);
        points.push((count, cost.reconciler()));
        let each = |secs: f64| secs * 1e6 / count;
        let [passes, reports, orders] = cost.parts.map(each);
        println!(
            "{nodes:>8} {:>8.2} {:>18.0} {:>18.0} {passes:>10.0} {reports:>10.0} {orders:>10.0}",
            cost.wall,
            each(cost.all),
            each(cost.reconciler())
        );
    }
    println!(
        "exponent of the reconciler's {:.3}; floor 60 s and 2,000 us a node at 10,000, goal 4 s and 200 us",
        exponent(&points)
    );
    println!("gate evaluation: the passes after one report that comes alone in mid-walk, CPU");
    let mut points = Vec::new();
    for nodes in SIZES {
        let mut costs = (0..ROUNDS)
            .map(|_| one_report(&runtime, nodes))
            .collect::<Result<Vec<f64>>>()?;
        costs.sort_by(f64::total_cmp);
        let cost = costs[costs.len() / 2];
        points.push((f64::from(u32::try_from(nodes)?), cost));
        println!("{nodes:>8} {:>10.0} us", cost * 1e6);
    }
    println!("exponent {:.3}; floor 0.3, goal 0.1", exponent(&points));
    Ok(())
}
