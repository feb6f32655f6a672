//! A rehearsal: a fleet in memory, driven by a script that a person can read and write (OP-11).
//!
//! The engine is the daemon's, [`crate::pass::Engine`], over the real store in a temporary folder; the clock, the forge,
//! the links and the hosts are simulated. It stands alone because it carries out nothing: no socket is opened, no
//! repository read but the folder that a script names. Invariant: the same script gives the same words, always.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`script`] | the script's words, with the line of each |
//! | [`forge`] | a repository whose commits are files in memory, behind a forge that can be down |
//! | [`fleet`] | the made-up fleet of `fleet of N machines` |
//! | [`host`] | a host that takes its orders, waits, confirms, breaks as it is told, and reports |
//! | [`links`] | sessions that are there or not |
//! | [`recover`] | a database that is lost, and rebuilt from the record |
//! | [`rollout`] | what a person says of rollouts |
//! | [`word`] | a person's word |
//! | [`world`] | time, and everything that happens in it |
//! | [`show`] | what the script wants to see |
//! | [`spent`] | whose the processor's time is |

use std::io::Write;
use std::path::Path;

pub mod script;

mod fleet;
mod forge;
mod host;
mod links;
mod recover;
mod reverts;
mod rollout;
mod show;
mod signed_list;
pub mod spent;
mod word;
mod world;

use script::{Script, ScriptError};
use spent::Spent;
use world::World;

/// Below this line a script has what it printed when somebody last looked at it.
pub const EXPECTED: &str = "---- what happens";

/// Why a rehearsal ended before its script.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The script.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// A step asked for what is not there.
    #[error("line {line}: {why}")]
    Step {
        /// The script's line, from 1.
        line: usize,
        /// What is wrong, and what is there.
        why: String,
    },
    /// The store did not take it: our own fault, or a full disk.
    #[error("the store of the simulation")]
    Store(#[from] crate::edge::store::StoreError),
    /// Nothing could be written.
    #[error("cannot write what happens")]
    Write(#[from] std::io::Error),
}

/// How a script was played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Played {
    /// How often a pass died in the middle and the reconciler was started anew: only where a test's failpoint says so.
    pub died: u32,
    /// The reconciler's share of the processor's time.
    pub spent: Spent,
}

/// Plays a script; folders that it names are below `base`. What happens goes to `out`, line by line.
///
/// # Errors
/// [`SimulationError`]; everything before it was written.
pub async fn run(text: &str, base: &Path, out: &mut (dyn Write + Send)) -> Result<Played, SimulationError> {
    let failed = |line, trouble| match trouble {
        world::Trouble::Step(why) => SimulationError::Step { line, why },
        world::Trouble::Store(error) => SimulationError::Store(error),
    };
    let script = Script::read(text)?;
    let mut world = World::new().await?;
    for step in &script.steps {
        writeln!(out, "> {}", step.text)?;
        let played = world.play(step, base).await;
        let said = played.map_err(|trouble| failed(step.line, trouble))?;
        for line in said {
            writeln!(out, "{line}")?;
        }
    }
    let rest = world.rest().await.map_err(|trouble| failed(0, trouble))?;
    writeln!(out, "{rest}")?;
    Ok(Played {
        died: world.died,
        spent: world.costs,
    })
}
