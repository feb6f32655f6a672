//! `meshplan simulate SCENARIO`: a rehearsal of what would happen (OP-11).

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args as ClapArgs;

use super::exit::Exit;
use crate::simulation;

/// Plays a script against the real engine, simulated hosts and a simulated clock, and prints what would happen.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// The script; folders that it names are found beside it.
    pub scenario: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// The script cannot be read or means nothing, with its line.
pub async fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let path = &args.scenario;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let base = path.parent().unwrap_or(Path::new("."));
    let mut said = Vec::new();
    let played = simulation::run(&text, base, &mut said).await;
    // What happened before a line that means nothing is shown as well.
    out.write_all(&said)?;
    played.with_context(|| path.display().to_string())?;
    Ok(Exit::Done)
}
