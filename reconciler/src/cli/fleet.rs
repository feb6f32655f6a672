//! `meshplan fleet invite|admit|status|rollout|rotate`: the fleet and its machines.

use std::io::Write;
use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};

use super::client::Client;
use super::exit::Exit;
use super::rollout::Reader;
use super::{invite, rollout, rotate, table};
use crate::edge::admission::{Made, NewInvite};
use crate::pure::page::StatusView;

/// What to do with the fleet.
#[derive(Debug, Subcommand)]
pub enum Args {
    /// Make one-time tokens with which machines enrol.
    Invite(invite::Args),
    /// Merge the branch that proposes a machine's record.
    Admit {
        /// The node's name.
        name: String,
    },
    /// The nodes, worst first.
    Status,
    /// Rollouts of the policy: where one stands, and start, release, abort.
    #[command(subcommand)]
    Rollout(rollout::Args),
    /// Keys and secrets that move on a schedule, in the files of a fleet's repository.
    Rotate(rotate::Args),
}

/// Runs the command.
///
/// # Errors
/// The reconciler cannot be reached, or says no.
pub async fn run(args: &Args, config: &Path, to: Reader, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let json = to == Reader::Program;
    match args {
        Args::Rollout(args) => return rollout::run(args, config, to, out).await,
        Args::Rotate(args) => return rotate::run(args, json, out),
        Args::Invite(args) => {
            let client = Client::of(config)?;
            let spec = args.spec();
            let new = NewInvite {
                name: spec.name,
                count: spec.count,
                roles: spec.roles,
                modules: spec.modules,
                expires_secs: spec.expires_secs,
                admit: spec.admit,
            };
            let made: Made = client.post("/api/invites", &serde_json::to_value(&new)?).await?;
            invite::print(&made, json, out)?;
        }
        Args::Admit { name } => {
            let answer: Value = Client::of(config)?
                .post(&format!("/api/admissions/{name}"), &json!({}))
                .await?;
            if json {
                writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
            } else {
                let commit = answer.get("commit").and_then(Value::as_str).unwrap_or_default();
                writeln!(out, "{name} is merged in {commit}; its first session follows")?;
            }
        }
        Args::Status => {
            let status: StatusView = Client::of(config)?.get("/api/status").await?;
            if json {
                writeln!(out, "{}", serde_json::to_string_pretty(&status)?)?;
                return Ok(Exit::Done);
            }
            if let Some(frozen) = &status.frozen {
                writeln!(out, "{frozen}")?;
            }
            for trouble in &status.troubles {
                writeln!(out, "! {trouble}")?;
            }
            let rows = status.nodes.iter().map(|n| {
                vec![
                    n.name.clone(),
                    n.presence.clone(),
                    n.declaration.clone(),
                    n.epoch.clone(),
                    n.troubles.join("; "),
                ]
            });
            writeln!(
                out,
                "{}",
                table::of(&["node", "presence", "declaration", "epoch", "trouble"], rows)
            )?;
        }
    }
    Ok(Exit::Done)
}
