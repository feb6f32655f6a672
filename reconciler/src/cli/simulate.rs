//! `meshplan simulate SCENARIO`: a rehearsal of what would happen (OP-11).

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args as ClapArgs;

use super::exit::Exit;
use crate::simulation::{self, SimulationError};

/// Plays a script against the real engine, simulated hosts and a simulated clock, and prints what would happen.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// The script; folders that it names are found beside it.
    pub scenario: PathBuf,
}

/// Runs the command. [`Exit::Usage`] for a script that cannot be read, or has a line that means nothing or fits nothing.
///
/// # Errors
/// The store of the simulation, or nothing can be written to `out`.
pub async fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let path = &args.scenario;
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            writeln!(out, "error: cannot read the script {}: {error}", path.display())?;
            return Ok(Exit::Usage);
        }
    };
    let base = path.parent().unwrap_or(Path::new("."));
    let mut said = Vec::new();
    let played = simulation::run(&text, base, &mut said).await;
    // What happened before a line that means nothing is shown as well.
    out.write_all(&said)?;
    match played {
        Ok(_) => Ok(Exit::Done),
        Err(error @ (SimulationError::Script(_) | SimulationError::Step { .. })) => {
            writeln!(out, "error: {}: {error}", path.display())?;
            Ok(Exit::Usage)
        }
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}
