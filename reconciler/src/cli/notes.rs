//! `meshplan notes`: the record as git has it (DL-12), and its proof (DL-9).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand};
use meshplan_schemas::ident::{CommitId, KeyId};
use meshplan_schemas::key::SigningKey;
use serde_json::json;

use super::exit::Exit;
use crate::config::Config;
use crate::edge::notes::{authors_in, commit_in, record_in};
use crate::pure::note::{self, Severity};

/// Shows and proves the record.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// A clone that has fetched the notes. Left out: the mirror of the reconciler that --config names, else the
    /// folder here.
    #[arg(long, value_name = "DIR", global = true)]
    pub repo: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub order: Order,
}

/// What to do with the record.
#[derive(Debug, Clone, Subcommand)]
pub enum Order {
    /// Prints the story of a commit as its note tells it.
    Show {
        /// The commit: an id, its beginning, or any name that git knows.
        commit: String,
    },
    /// Proves all notes: signatures, the chain, gaps and forks.
    Verify {
        /// A key that may have signed, besides the authors of fleet.toml: `ID=ed25519:BASE64`. May be given again.
        #[arg(long = "key", value_name = "ID=KEY", value_parser = named_key)]
        keys: Vec<(KeyId, SigningKey)>,
    },
}

pub(super) fn named_key(text: &str) -> Result<(KeyId, SigningKey), String> {
    let (id, key) = text
        .split_once('=')
        .ok_or("expected `ID=ed25519:BASE64`, as fleet.toml's authors have id and key")?;
    let key = key.parse::<SigningKey>().map_err(|e| e.to_string())?;
    Ok((KeyId(id.to_owned()), key))
}

/// Runs the command. [`Exit::No`] when there is no note, or the record does not prove what it should.
///
/// # Errors
/// The repository cannot be read, or nothing can be written to `out`.
pub fn run(args: &Args, config: Option<&Path>, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let repo = match (&args.repo, config) {
        (Some(repo), _) => repo.clone(),
        (None, Some(file)) => Config::read(file)?.state_dir.join("mirror"),
        (None, None) => PathBuf::from("."),
    };
    let notes = record_in(&repo)?;
    if notes.is_empty() {
        writeln!(
            out,
            "{} has no notes under refs/notes/mesh-plan. In a clone they are fetched with\n    \
             git fetch origin '+refs/notes/mesh-plan:refs/notes/mesh-plan'",
            repo.display()
        )?;
        return Ok(Exit::No);
    }
    match &args.order {
        Order::Show { commit } => show(&repo, &notes, commit, json, out),
        Order::Verify { keys } => verify(&repo, &notes, keys, json, out),
    }
}

fn show(
    repo: &Path,
    notes: &BTreeMap<CommitId, String>,
    name: &str,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let begins: Vec<_> = notes.keys().filter(|id| id.as_str().starts_with(name)).collect();
    let commit = match (commit_in(repo, name), begins.as_slice()) {
        (Some(commit), _) => commit,
        (None, [one]) => (*one).clone(),
        (None, []) => {
            writeln!(out, "{} knows no commit `{name}`", repo.display())?;
            return Ok(Exit::Usage);
        }
        (None, many) => {
            writeln!(
                out,
                "`{name}` is the beginning of {} commits: give more digits",
                many.len()
            )?;
            return Ok(Exit::Usage);
        }
    };
    let Some(text) = notes.get(&commit) else {
        writeln!(
            out,
            "commit {} has no note: no delivery of it has been recorded here",
            commit.short()
        )?;
        return Ok(Exit::No);
    };
    if json {
        let blocks: Vec<_> = note::blocks(text).iter().map(block_json).collect();
        writeln!(
            out,
            "{}",
            serde_json::to_string_pretty(&json!({ "commit": commit, "blocks": blocks }))?
        )?;
    } else {
        // A note may hold what anybody wrote: nothing of it may steer the terminal.
        let plain: String = text
            .chars()
            .map(|c| {
                if c.is_control() && c != '\n' {
                    '\u{fffd}'
                } else {
                    c
                }
            })
            .collect();
        writeln!(out, "{}", plain.trim_end())?;
    }
    Ok(Exit::Done)
}

fn block_json(signed: &note::SignedBlock) -> serde_json::Value {
    let block = &signed.block;
    json!({
        "number": block.number, "prev": block.prev, "term": block.term, "digest": block.digest(),
        "at": block.at, "from": block.from, "to": block.to, "code": block.code, "actor": block.actor,
        "reason": block.reason, "trailers": block.trailers, "key_id": signed.key_id,
    })
}

fn verify(
    repo: &Path,
    notes: &BTreeMap<CommitId, String>,
    given: &[(KeyId, SigningKey)],
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut keys = authors_in(repo).context("cannot read the authors of fleet.toml")?;
    keys.extend(given.iter().cloned());
    let problems = note::verify(notes, &keys, None);
    let blocks: Vec<_> = notes.values().flat_map(|text| note::blocks(text)).collect();
    let signers: BTreeSet<&str> = blocks.iter().map(|b| b.key_id.0.as_str()).collect();
    let alarms = problems
        .iter()
        .filter(|p| p.severity() == Severity::Alarm)
        .count();
    let newest = blocks
        .iter()
        .max_by_key(|b| (b.block.number, b.block.term))
        .map(|b| b.block.mark());
    if json {
        let list: Vec<_> = problems
            .iter()
            .map(|p| json!({ "alarm": p.severity() == Severity::Alarm, "text": p.to_string() }))
            .collect();
        let summary = json!({
            "ok": alarms == 0, "blocks": blocks.len(), "commits": notes.len(), "signers": signers,
            "newest": newest, "problems": list,
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&summary)?)?;
    } else {
        for problem in &problems {
            let word = if problem.severity() == Severity::Alarm {
                "alarm"
            } else {
                "remark"
            };
            writeln!(out, "{word}: {problem}")?;
        }
        let signers = signers.into_iter().collect::<Vec<_>>().join(", ");
        let whole = if alarms == 0 { "whole" } else { "NOT whole" };
        let newest = newest.map_or_else(
            || "none".to_owned(),
            |mark| format!("{} {}", mark.number, mark.digest),
        );
        writeln!(
            out,
            "{whole}: {} blocks on {} commits, signed by {signers}; newest block {newest}",
            blocks.len(),
            notes.len()
        )?;
    }
    Ok(if alarms == 0 { Exit::Done } else { Exit::No })
}
