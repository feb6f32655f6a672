//! `meshplan fleet rollout status|watch|list|show|start|release|abort` (RO-6): the API in a terminal.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use meshplan_schemas::ident::{NodeName, RoleName};
use serde_json::Value;

use super::client::{Client, No};
use super::deliveries::{actor, encoded};
use super::exit::Exit;
use crate::pure::api::{
    AbortAsk, ArchiveAnswer, ReleaseAsk, RolloutAnswer, RolloutsAnswer, StartAsk, WordAnswer,
};
use crate::pure::rollout::{NodePush, Phase, Rollout, status};

/// How often a rollout that is watched is asked for.
const EVERY: Duration = Duration::from_secs(1);
/// So many nodes a watch shows, worst first: what fits a terminal.
const WATCHED: usize = 15;

/// Who reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A program: JSON.
    Program,
    /// A person before a terminal, that can be drawn upon.
    Terminal,
    /// A file or a pipe: plain lines.
    Pipe,
}

impl Reader {
    /// By what was asked, and what stdout is.
    #[must_use]
    pub fn of(json: bool, terminal: bool) -> Self {
        match (json, terminal) {
            (true, _) => Self::Program,
            (false, true) => Self::Terminal,
            (false, false) => Self::Pipe,
        }
    }
}

/// What to do with rollouts.
#[derive(Debug, Subcommand)]
pub enum Args {
    /// The rollout in hand, or the last one: the gate, and the nodes worst first.
    Status,
    /// Follow the rollout in hand until it is over; ends with 1 where it was taken back.
    Watch,
    /// Former rollouts, newest first.
    List {
        /// Which page.
        #[arg(long, default_value_t = 1)]
        page: u64,
    },
    /// One rollout with its timeline.
    Show {
        /// Its id, or the number of its first epoch.
        rollout: String,
    },
    /// Start the rollout of a delivery that is held.
    Start(Start),
    /// Let the rollout in hand go on when it is held.
    Release {
        /// Past a machine that did not pass; the record keeps who said so.
        #[arg(long)]
        force: bool,
        /// Why, for the record.
        #[arg(long, default_value = "")]
        why: String,
    },
    /// Take the rollout in hand back: the former policy is signed forward.
    Abort {
        /// Why, for the record.
        #[arg(long, default_value = "")]
        why: String,
    },
}

/// What is started, and what is other for it alone.
#[derive(Debug, clap::Args)]
pub struct Start {
    /// A commit id, its beginning, or a delivery's name.
    pub commit: String,
    /// Go first on this node; may be given more than once.
    #[arg(long, value_name = "NODE")]
    pub canary: Vec<NodeName>,
    /// Go first on the nodes that carry this role; with --canary: on those of them that do.
    #[arg(long, value_name = "ROLE")]
    pub canary_role: Vec<RoleName>,
    /// The commit-confirm window, in seconds.
    #[arg(long)]
    pub confirm_secs: Option<u32>,
    /// For how long each wave of the release is watched, in seconds.
    #[arg(long)]
    pub release_watch_secs: Option<u32>,
    /// Why, for the record.
    #[arg(long, default_value = "")]
    pub why: String,
}

/// Runs the command.
///
/// # Errors
/// The reconciler cannot be reached, or says no.
pub async fn run(args: &Args, config: &Path, to: Reader, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let client = Client::of(config)?;
    match args {
        Args::Status => {
            let answer = newest(&client).await?;
            if to == Reader::Program {
                writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
                return Ok(Exit::Done);
            }
            match &answer.rollout {
                Some(rollout) => print(out, &status::lines(rollout, usize::MAX, time))?,
                None => writeln!(out, "there was no rollout yet: merge a change of the policy")?,
            }
        }
        Args::Watch => return watch(&client, to, out).await,
        Args::List { page } => {
            let path = format!("/api/config/rollouts?interface={}&page={page}", fleet(&client));
            let answer: RolloutsAnswer = client.get(&path).await?;
            if to == Reader::Program {
                writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
                return Ok(Exit::Done);
            }
            for summary in &answer.rollouts {
                writeln!(out, "{}", status::summary(summary, time))?;
            }
            match (answer.total, answer.pages) {
                (0, _) => writeln!(out, "no rollout was put away yet")?,
                (_, 1) => {}
                (total, pages) => writeln!(out, "page {} of {pages}, {total} rollouts", answer.page)?,
            }
        }
        Args::Show { rollout } => show(&client, rollout, to, out).await?,
        Args::Start(start) => {
            let ask = StartAsk {
                commit: start.commit.clone(),
                canary_nodes: start.canary.clone(),
                canary_roles: start.canary_role.clone(),
                confirm_secs: start.confirm_secs,
                release_watch_secs: start.release_watch_secs,
                why: start.why.clone(),
                actor: Some(actor()),
            };
            say(&client, "start", &serde_json::to_value(ask)?, to, out).await?;
        }
        Args::Release { force, why } => {
            let ask = ReleaseAsk {
                force: *force,
                why: why.clone(),
                actor: Some(actor()),
            };
            say(&client, "release", &serde_json::to_value(ask)?, to, out).await?;
        }
        Args::Abort { why } => {
            let ask = AbortAsk {
                why: why.clone(),
                actor: Some(actor()),
            };
            say(&client, "abort", &serde_json::to_value(ask)?, to, out).await?;
        }
    }
    Ok(Exit::Done)
}

/// An instant as people read it.
pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%F %TZ").to_string()
}

fn print(out: &mut dyn Write, lines: &[String]) -> std::io::Result<()> {
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))
}

fn fleet(client: &Client) -> String {
    encoded(client.fleet())
}

async fn newest(client: &Client) -> anyhow::Result<RolloutAnswer> {
    client
        .get(&format!("/api/config/rollout?interface={}", fleet(client)))
        .await
}

async fn show(client: &Client, id: &str, to: Reader, out: &mut dyn Write) -> anyhow::Result<()> {
    let path = format!("/api/config/rollouts/{}?interface={}", encoded(id), fleet(client));
    let answer: ArchiveAnswer = client.get(&path).await?;
    if to == Reader::Program {
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
        return Ok(());
    }
    print(out, &status::lines(&answer.rollout, usize::MAX, time))?;
    writeln!(out, "timeline:")?;
    print(out, &status::timeline(&answer.rollout.timeline, time))?;
    if let Some(at) = answer.archived_at {
        let closed = if answer.closed {
            ", every node had settled"
        } else {
            ""
        };
        writeln!(out, "put away {}{closed}", time(at))?;
    }
    Ok(())
}

async fn say(
    client: &Client,
    word: &str,
    ask: &Value,
    to: Reader,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let path = format!("/api/config/rollout/{word}?interface={}", fleet(client));
    let answer: WordAnswer = client.post(&path, ask).await?;
    if to == Reader::Program {
        writeln!(out, "{}", serde_json::to_string_pretty(&answer)?)?;
    } else {
        writeln!(out, "{}", answer.answer)?;
    }
    Ok(())
}

/// Follows the rollout in hand until it is over: a bar and the worst nodes on a terminal, else a line for each change.
async fn watch(client: &Client, to: Reader, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let bar = match to {
        Reader::Terminal => Some(bar()?),
        Reader::Program | Reader::Pipe => None,
    };
    let mut said: Vec<String> = Vec::new();
    loop {
        let answer = newest(client).await?;
        let Some(rollout) = answer.rollout.filter(|_| answer.in_hand || !said.is_empty()) else {
            return Err(No {
                sentence: "no rollout is in hand; `meshplan fleet rollout status` shows the last one"
                    .to_owned(),
                exit: Exit::No,
            }
            .into());
        };
        let lines = match (to, &bar) {
            (Reader::Program, _) => vec![serde_json::to_string(&rollout)?],
            (_, Some(bar)) => {
                draw(bar, &rollout);
                vec![String::new()]
            }
            (_, None) => changes(&rollout),
        };
        for line in lines
            .iter()
            .filter(|line| !said.contains(line) && !line.is_empty())
        {
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        said = lines;
        if rollout.phase.is_over() {
            if let Some(bar) = bar {
                bar.finish_and_clear();
                print(out, &status::lines(&rollout, WATCHED, time))?;
            }
            return Ok(match rollout.phase {
                Phase::Complete => Exit::Done,
                _ => Exit::No,
            });
        }
        tokio::time::sleep(EVERY).await;
    }
}

fn bar() -> anyhow::Result<ProgressBar> {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stdout());
    bar.set_style(ProgressStyle::with_template("{msg}")?);
    Ok(bar)
}

/// One frame, drawn at once: each part that is set by itself would be a frame of its own.
fn draw(bar: &ProgressBar, rollout: &Rollout) {
    let mut frame = status::head(rollout, time);
    frame.push(status::bar(&rollout.release_gate));
    frame.extend(status::nodes(&rollout.nodes, WATCHED));
    bar.set_message(frame.join("\n"));
}

/// What a reader of lines is told: where it stands, and each node in its state. Said once as long as it is so.
fn changes(rollout: &Rollout) -> Vec<String> {
    let told = |node: &&NodePush| node.epoch.is_some();
    let nodes: Vec<NodePush> = rollout.nodes.iter().filter(told).cloned().collect();
    let head = format!(
        "{}: {}; {}",
        rollout.rollout_id,
        rollout.phase.word(),
        status::counted(rollout)
    );
    std::iter::once(head)
        .chain(status::nodes(&nodes, usize::MAX))
        .collect()
}
