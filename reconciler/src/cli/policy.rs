//! `meshplan policy show`: a node's effective policy, with the file that each value came from (FR-6).

use std::io::Write;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use meshplan_schemas::finding::did_you_mean;
use meshplan_schemas::ident::NodeName;
use serde_json::json;

use super::check;
use super::exit::Exit;
use crate::pure::compose::TreeError;
use crate::pure::node_view;

/// Shows policy.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do with policy.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Prints the effective policy of a node with the file that each value came from.
    Show {
        /// The node's name.
        node: NodeName,
        /// The fleet's repository.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// Of a commit, by any name that git knows, instead of the files of the folder.
        #[arg(long, value_name = "COMMIT")]
        commit: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command. [`Exit::No`] when the tree does not check or has no such node.
///
/// # Errors
/// The tree cannot be read, or nothing can be written to `out`.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Verb::Show {
        node,
        dir,
        commit,
        json,
    } = &args.verb;
    let (tree, of_paths) = check::read(dir, commit.as_deref())?;
    let composed = match check::compose_with(&tree, of_paths) {
        Ok(composed) => composed,
        Err(error) => {
            if let TreeError::Findings(findings) = &error {
                for finding in findings.iter().filter(|f| f.is_error()) {
                    writeln!(out, "{}\n", finding.render(false))?;
                }
            }
            writeln!(out, "refused: {error}")?;
            return Ok(Exit::No);
        }
    };
    let Some(found) = composed.nodes.values().find(|n| n.name == *node) else {
        let names = composed.nodes.values().map(|n| n.name.as_str());
        let hint = did_you_mean(node.as_str(), names).unwrap_or_default();
        writeln!(out, "there is no node `{node}` {hint}")?;
        return Ok(Exit::No);
    };
    let policy = meshplan_schemas::policy::parse(&composed.policy)?;
    let origins = node_view::policy(&policy, &found.roles);
    if *json {
        let values: Vec<_> = origins
            .iter()
            .map(|o| json!({ "key": o.key, "value": o.value, "file": o.file }))
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&values)?)?;
        return Ok(Exit::Done);
    }
    let lines: Vec<String> = origins
        .iter()
        .map(|o| format!("{} = {}", o.key, o.value))
        .collect();
    let width = lines.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    for (line, origin) in lines.iter().zip(&origins) {
        writeln!(out, "{line:width$}  # {}", origin.file)?;
    }
    if origins.is_empty() {
        writeln!(out, "no policy applies to {node}")?;
    }
    Ok(Exit::Done)
}
