//! The command line: one file a noun. Every command works with no reconciler, from what is on this machine (HR-12).
//!
//! A command gives an [`Answer`]: the same facts as words for a tired person and as JSON for a program.

pub mod exit;

mod enrol;
mod held;
mod journal;
mod look;
mod pause;
mod plan;
mod run;
mod status;
mod verify;
mod volumes;
mod words;

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand};

use crate::edge::clock::Clock;
use exit::Exit;

/// The host of a fleet: checks what it is told, applies it, takes back what fails, reports.
#[derive(Debug, Parser)]
#[command(name = "meshplan-host", version, about, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    place: Place,
    /// Print JSON instead of words
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// Where the host works.
#[derive(Debug, Clone, Args)]
struct Place {
    /// The tree that declarations speak of
    // Made absolute: commands of probes run inside it and read it as MESHPLAN_ROOT.
    #[arg(long, global = true, default_value = "/", value_name = "DIR",
        value_parser = PathBufValueParser::new().try_map(std::path::absolute::<PathBuf>))]
    root: PathBuf,
    /// The host's own folder [default: var/lib/meshplan under the root]
    #[arg(long, global = true, value_name = "DIR", env = "MESHPLAN_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// Write the effective policy here too: a path inside the root
    #[arg(long, global = true, value_name = "PATH")]
    policy_out: Option<PathBuf>,
}

impl Place {
    fn state_dir(&self) -> PathBuf {
        self.state_dir
            .clone()
            .unwrap_or_else(|| self.root.join("var/lib/meshplan"))
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Join a fleet with a token from `meshplan fleet invite`
    Enrol {
        /// As it was printed, on one line
        token: String,
        /// Give up after so many seconds; without it the machine waits until it is admitted
        #[arg(long, value_name = "SECS")]
        wait_secs: Option<u64>,
    },
    /// Run the host: hold the link, take orders, apply, confirm or take back, report
    Run {
        /// How often drift is looked for, in seconds; stands above the policy's
        #[arg(long, value_name = "SECS", value_parser = clap::value_parser!(u32).range(1..))]
        reconcile_secs: Option<u32>,
    },
    /// Tell how this machine stands
    Status,
    /// Bring the machine to what is declared, once, and end
    Apply {
        /// Without it nothing is done: a host that applies again and again is `run`
        #[arg(long, required = true)]
        once: bool,
    },
    /// Tell what the newest declaration would change; changes nothing
    Plan,
    /// Show, line by line, how declared files differ from those on the machine
    Diff,
    /// List what stands at a declared place and is not the host's
    Held,
    /// Ask that the host may take over the found things of a module
    Take {
        /// The module's name
        module: String,
    },
    /// Begin nothing new on this machine for a while: no declaration, no policy, no repair of drift
    Pause {
        /// For how long, as `2h`, `45m`, `1h30m`; a day at most
        #[arg(long = "for", value_name = "LENGTH")]
        length: String,
        /// Why; whoever waits for this machine reads it
        #[arg(long, value_name = "TEXT")]
        why: String,
    },
    /// End a pause
    Resume,
    /// List the volumes that the host made, and which of them nothing declares any more
    Volumes,
    /// Print the last events on this machine
    Journal {
        /// How many
        #[arg(long, short = 'n', default_value_t = 50)]
        lines: usize,
    },
    /// Judge an envelope as this host would; without FILE check the state folder and the machine
    Verify {
        /// An envelope, `-` for standard input
        file: Option<PathBuf>,
    },
}

/// What a command has to say.
#[derive(Debug)]
pub struct Answer {
    /// How the program ends.
    pub exit: Exit,
    /// For people.
    pub words: String,
    /// For programs.
    pub json: serde_json::Value,
}

/// A command that could not answer.
#[derive(Debug)]
pub struct Failure {
    /// How the program ends.
    pub exit: Exit,
    /// What, where, why, what next.
    pub error: anyhow::Error,
}

impl Failure {
    fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self {
            exit,
            error: error.into(),
        }
    }
    /// As JSON, for a caller that asked for it.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({ "error": format!("{:#}", self.error) })
    }
}

impl Cli {
    /// Whether JSON is asked for.
    #[must_use]
    pub fn wants_json(&self) -> bool {
        self.json
    }

    /// Whether the program goes on working, and tells of it, until it is stopped.
    #[must_use]
    pub fn is_service(&self) -> bool {
        matches!(self.command, Command::Run { .. })
    }

    /// Does what is asked.
    ///
    /// # Errors
    /// [`Failure`].
    pub async fn run(self, clock: Clock) -> Result<Answer, Failure> {
        let place = self.place;
        match self.command {
            Command::Enrol { token, wait_secs } => enrol::enrol(&place, &token, wait_secs).await,
            Command::Run { reconcile_secs } => run::run(&place, reconcile_secs, clock).await,
            Command::Apply { once: _ } => run::once(&place, clock).await,
            Command::Status => status::status(&place, clock),
            Command::Plan => plan::plan(&place),
            Command::Diff => plan::diff(&place),
            Command::Held => held::held(&place),
            Command::Take { module } => held::take(&place, &module),
            Command::Pause { length, why } => pause::pause(&place, &length, &why, clock),
            Command::Resume => pause::resume(&place, clock),
            Command::Volumes => volumes::volumes(&place),
            Command::Journal { lines } => journal::journal(&place, lines),
            Command::Verify { file: None } => verify::state(&place),
            Command::Verify { file: Some(file) } => verify::envelope(&place, &file, clock),
        }
    }
}
