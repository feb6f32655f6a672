//! `meshplan example`: a made-up fleet of any size, to see how one feels (FR-15).

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand};
use meshplan_schemas::document::published;
use serde_json::json;

use super::exit::Exit;
use crate::pure::example::generate;

/// Made-up fleets.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// What to make.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to make.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Writes a fleet repository with so many nodes: roles, modules, policy, a plan. The same for the same seed.
    Fleet {
        /// The folder; made when it is not there, and empty when it is.
        dir: PathBuf,
        /// How many nodes.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=100_000))]
        nodes: u32,
        /// Another seed, another fleet.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

/// Runs the command. [`Exit::Refused`] when the folder has something in it.
///
/// # Errors
/// A file cannot be written.
pub fn run(args: &Args, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Verb::Fleet { dir, nodes, seed } = &args.verb;
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        writeln!(
            out,
            "{} has something in it: nothing is written over",
            dir.display()
        )?;
        return Ok(Exit::Refused);
    }
    for name in published::NAMES {
        let schema = published::schema(name).unwrap_or_default();
        write(dir, &format!(".meshplan/schemas/{name}.json"), schema.as_bytes())?;
    }
    let files = generate(usize::try_from(*nodes)?, *seed);
    for (path, bytes) in &files {
        write(dir, path, bytes)?;
    }
    if json {
        let said = json!({ "dir": dir, "nodes": nodes, "seed": seed, "files": files.len() });
        writeln!(out, "{}", serde_json::to_string_pretty(&said)?)?;
    } else {
        writeln!(
            out,
            "{}: a fleet of {nodes} nodes, {} files",
            dir.display(),
            files.len()
        )?;
    }
    Ok(Exit::Done)
}

fn write(dir: &Path, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let path = dir.join(path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
