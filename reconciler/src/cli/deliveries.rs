//! `meshplan deliveries list|show|why|announce|go|hold|stop|withdraw|retry` (DL-1, DL-4, DL-12, DL-16).

use std::io::Write;
use std::path::Path;

use clap::Subcommand;
use serde_json::{Value, json};

use super::client::Client;
use super::exit::Exit;
use super::table;
use crate::pure::page::{DeliveryView, StatusView};

/// What to do with deliveries. COMMIT is a commit id, its beginning, or a delivery's name.
#[derive(Debug, Subcommand)]
pub enum Args {
    /// The newest deliveries.
    List,
    /// One delivery's story: every transition as its note keeps it.
    Show {
        /// Which.
        commit: String,
    },
    /// What a delivery waits for, by which rule, until when, and what would change it.
    Why {
        /// Which.
        commit: String,
    },
    /// Look at the repository now, and say what became known of it. With COMMIT: what became of that one; an error where it
    /// is on no branch whose merges are orders.
    Announce {
        /// Which.
        commit: Option<String>,
    },
    /// Let a held delivery go on.
    Go {
        /// Which.
        commit: String,
        /// Try content that failed before once more.
        #[arg(long)]
        again: bool,
        /// Why, for the record.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Keep a delivery from beginning.
    Hold(Word),
    /// Stop a walk where it is.
    Stop(Word),
    /// Take a delivery back.
    Withdraw(Word),
    /// Try the failed stage once more.
    Retry(Word),
}

/// A word about one delivery.
#[derive(Debug, clap::Args)]
pub struct Word {
    /// Which.
    commit: String,
    /// Why, for the record.
    #[arg(long, default_value = "")]
    why: String,
}

/// Runs the command.
///
/// # Errors
/// The reconciler cannot be reached, or says no.
pub async fn run(args: &Args, config: &Path, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let client = Client::of(config)?;
    match args {
        Args::List => list(&client, json, out).await,
        Args::Show { commit } => {
            let view: DeliveryView = client
                .get(&format!("/api/deliveries/{}", encoded(commit)))
                .await?;
            if json {
                writeln!(out, "{}", serde_json::to_string_pretty(&view)?)?;
            } else {
                show(&view, out)?;
            }
            Ok(Exit::Done)
        }
        Args::Why { commit } => {
            let why = client
                .get(&format!("/api/deliveries/{}/why", encoded(commit)))
                .await?;
            explain(&why, json, out)
        }
        Args::Announce { commit } => {
            let answer: Value = client.post("/api/announce", &json!({ "commit": commit })).await?;
            answered(&answer, json, out)
        }
        Args::Go { commit, again, why } => {
            say(
                &client,
                commit,
                if *again { "go-again" } else { "go" },
                why,
                json,
                out,
            )
            .await
        }
        Args::Hold(word) => say(&client, &word.commit, "hold", &word.why, json, out).await,
        Args::Stop(word) => say(&client, &word.commit, "stop", &word.why, json, out).await,
        Args::Withdraw(word) => say(&client, &word.commit, "withdraw", &word.why, json, out).await,
        Args::Retry(word) => say(&client, &word.commit, "retry", &word.why, json, out).await,
    }
}

/// `meshplan why NODE|COMMIT|ROLLOUT|ROTATION`.
///
/// # Errors
/// The reconciler cannot be reached, or knows neither node nor delivery of that name.
pub async fn why(which: &str, config: &Path, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let client = Client::of(config)?;
    let why = client.get(&format!("/api/why/{}", encoded(which))).await?;
    explain(&why, json, out)
}

fn explain(why: &Value, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(why)?)?;
        return Ok(Exit::Done);
    }
    for (label, key) in [
        ("waits for", "waits_for"),
        ("rule", "rule"),
        ("next", "next"),
        ("deadline", "deadline"),
        ("command", "command"),
        ("as of", "as_of"),
    ] {
        if let Some(text) = why.get(key).and_then(Value::as_str) {
            writeln!(out, "{label:>9}: {text}")?;
        }
    }
    Ok(Exit::Done)
}

async fn list(client: &Client, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if json {
        let views: Vec<DeliveryView> = client.get("/api/deliveries").await?;
        writeln!(out, "{}", serde_json::to_string_pretty(&views)?)?;
        return Ok(Exit::Done);
    }
    let status: StatusView = client.get("/api/status").await?;
    if let Some(recovering) = &status.recovering {
        writeln!(out, "{recovering}\n")?;
    }
    let views = status.deliveries;
    if views.is_empty() {
        writeln!(out, "no delivery yet: merge a commit")?;
        return Ok(Exit::Done);
    }
    let rows = views.iter().map(|v| {
        vec![
            v.name.clone(),
            format!("{} ({})", v.state, v.code),
            v.since.strftime("%F %TZ").to_string(),
            v.subject.clone(),
        ]
    });
    writeln!(
        out,
        "{}",
        table::of(&["delivery", "state", "since", "subject"], rows)
    )?;
    Ok(Exit::Done)
}

fn show(view: &DeliveryView, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "{}  {}", view.name, view.subject)?;
    writeln!(out, "{} ({}): {}", view.state, view.code, view.reason)?;
    if let Some(cause) = &view.abort_cause {
        writeln!(out, "cause: {cause}")?;
    }
    for stage in &view.stages {
        let mark = if stage.current { ">" } else { " " };
        writeln!(out, "{mark} {}: {}", stage.name, stage.summary)?;
        for machine in &stage.machines {
            writeln!(out, "    {}", machine.line())?;
        }
    }
    for machine in &view.left_behind {
        writeln!(out, "  {}", machine.line())?;
    }
    for skipped in &view.skipped {
        writeln!(out, "  {skipped}")?;
    }
    for remark in &view.remarks {
        writeln!(out, "  remark: {remark}")?;
    }
    for block in &view.story {
        writeln!(out, "\n{block}")?;
    }
    Ok(())
}

async fn say(
    client: &Client,
    commit: &str,
    verb: &str,
    why: &str,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let said = json!({ "actor": actor(), "why": why });
    let answer: Value = client
        .post(&format!("/api/deliveries/{}/{verb}", encoded(commit)), &said)
        .await?;
    answered(&answer, json, out)
}

/// Prints what the reconciler answers to a word.
pub(super) fn answered(answer: &Value, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if json {
        writeln!(out, "{}", serde_json::to_string_pretty(answer)?)?;
    } else {
        writeln!(
            out,
            "{}",
            answer.get("answer").and_then(Value::as_str).unwrap_or("done")
        )?;
    }
    Ok(Exit::Done)
}

/// Who speaks, for the record: the login name of this machine's user.
pub(super) fn actor() -> String {
    std::env::var("SUDO_USER")
        .or_else(|_| std::env::var("USER"))
        .unwrap_or_else(|_| "operator".to_owned())
}

/// A word of a person as one path segment.
pub(super) fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}
