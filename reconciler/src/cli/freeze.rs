//! `meshplan freeze`: no new delivery of the fleet begins until then (DL-4).

use std::io::Write;
use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::client::Client;
use super::deliveries::{actor, answered};
use super::exit::Exit;

/// Keep every new delivery of the fleet from beginning. What walks goes on, and what fails is taken back.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Until when, as `2026-12-27T08:00:00+01:00`; until it is lifted when left out.
    #[arg(long, value_name = "TIME", value_parser = instant)]
    until: Option<Timestamp>,
    /// Let deliveries begin again.
    #[arg(long, conflicts_with = "until")]
    lift: bool,
    /// Why, for the record.
    #[arg(long, default_value = "")]
    why: String,
}

fn instant(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| {
        "an instant is date, time and offset: 2026-12-27T08:00:00+01:00, or ...Z for UTC (FR-13)".to_owned()
    })
}

/// Runs the command.
///
/// # Errors
/// The reconciler cannot be reached, or says no.
pub async fn run(args: &Args, config: &Path, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let client = Client::of(config)?;
    let said = json!({ "lift": args.lift, "until": args.until, "actor": actor(), "why": args.why });
    let answer: Value = client.post("/api/freeze", &said).await?;
    answered(&answer, json, out)
}
