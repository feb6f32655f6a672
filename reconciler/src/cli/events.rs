//! `meshplan events`: the journal of events (RO-7), once or as it goes on.

use std::io::Write;
use std::path::Path;

use super::client::Client;
use super::exit::Exit;
use super::rollout::time;
use crate::pure::api::EventsAnswer;
use crate::pure::events::Numbered;
use crate::pure::rollout::status;

/// Shows the journal of events, oldest first.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only events with higher numbers.
    #[arg(long, default_value_t = 0)]
    pub after: u64,
    /// Go on with those that follow, until it is stopped.
    #[arg(long)]
    pub follow: bool,
}

/// Runs the command.
///
/// # Errors
/// The reconciler cannot be reached, or says no.
pub async fn run(args: &Args, config: &Path, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let client = Client::of(config)?;
    if args.follow {
        return follow(&client, args.after, json, out).await;
    }
    let mut after = args.after;
    loop {
        let answer: EventsAnswer = client
            .get(&format!("/api/events?after={after}&limit=1000"))
            .await?;
        if answer.events.is_empty() {
            return Ok(Exit::Done);
        }
        for event in &answer.events {
            write(event, json, out)?;
        }
        after = answer.next;
    }
}

fn write(event: &Numbered, json: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        writeln!(out, "{}", serde_json::to_string(event)?)?;
    } else {
        writeln!(out, "{}", status::event(event, time))?;
    }
    Ok(())
}

/// Server-Sent Events: each `data:` line of ours is one event whole.
async fn follow(client: &Client, after: u64, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut answer = client
        .follow(&format!("/api/events/stream?after={after}"))
        .await?;
    let mut waiting = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        waiting.extend_from_slice(&chunk);
        while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = waiting.drain(..=end).collect();
            if let Some(data) = line.strip_prefix(b"data: ") {
                write(&serde_json::from_slice(data)?, json, out)?;
                out.flush()?;
            }
        }
    }
    Ok(Exit::Unreachable)
}
