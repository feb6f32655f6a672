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
use crate::pure::roll_call::{LARGEST_PAGE, Page, Standing};

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
    Status(Status),
    /// Rollouts of the policy: where one stands, and start, release, abort.
    #[command(subcommand)]
    Rollout(rollout::Args),
    /// Keys and secrets that move on a schedule, in the files of a fleet's repository.
    Rotate(rotate::Args),
}

/// Which nodes to show.
#[derive(Debug, clap::Args)]
pub struct Status {
    /// All of them, not only the first hundred.
    #[arg(long)]
    all: bool,
    /// Only nodes that stand so: troubled, away, paused, connected or awaited.
    #[arg(long)]
    standing: Option<Standing>,
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
        Args::Status(which) => return status(which, &Client::of(config)?, json, out).await,
    }
    Ok(Exit::Done)
}

async fn status(which: &Status, client: &Client, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut status: StatusView = client.get("/api/status").await?;
    if which.all || which.standing.is_some() {
        status.page = nodes(which, client).await?;
    }
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
    let page = &status.page;
    let rows = page.nodes.iter().map(|n| {
        vec![
            n.name.clone(),
            n.presence.clone(),
            n.declaration.clone(),
            n.epoch.clone(),
            (n.paused.iter().chain(&n.troubles).map(String::as_str))
                .collect::<Vec<_>>()
                .join("; "),
        ]
    });
    let columns = ["node", "presence", "declaration", "epoch", "trouble"];
    writeln!(out, "{}", table::of(&columns, rows))?;
    if page.next.is_some() {
        let more = page.counts.of(which.standing).saturating_sub(page.nodes.len());
        writeln!(out, "{}; {more} more: --all shows them", page.counts)?;
    }
    Ok(Exit::Done)
}

/// The first page of those that are wanted, or all of them, worst first.
async fn nodes(which: &Status, client: &Client) -> anyhow::Result<Page> {
    let only = which.standing.map(|standing| format!("&standing={standing}"));
    let only = only.unwrap_or_default();
    if !which.all {
        return client.get(&format!("/api/nodes?by=standing{only}")).await;
    }
    // By name, and put in order here: a node whose standing changes meanwhile is in it all the same.
    let mut whole = Page::default();
    loop {
        let after = whole.next.take().map(|next| format!("&after={next}"));
        let asked = format!(
            "/api/nodes?by=name&limit={LARGEST_PAGE}{only}{}",
            after.unwrap_or_default()
        );
        let mut page: Page = client.get(&asked).await?;
        whole.nodes.append(&mut page.nodes);
        (whole.counts, whole.next) = (page.counts, page.next);
        if whole.next.is_none() {
            whole
                .nodes
                .sort_by(|a, b| (a.standing, &a.name).cmp(&(b.standing, &b.name)));
            return Ok(whole);
        }
    }
}
