//! The command line: one file a noun. Each `run` does the work, writes to `out`, and says how it ended.

use std::io::Write;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

mod change;
pub mod check;
pub mod client;
pub mod deliveries;
pub mod demo;
pub mod envelope;
pub mod events;
pub mod example;
pub mod exit;
pub mod fleet;
pub mod forge;
pub mod freeze;
mod in_place;
pub mod init;
pub mod invite;
pub mod lint;
pub mod module;
pub mod node;
pub mod notes;
pub mod policy;
pub mod preview;
pub mod recover;
pub mod rollout;
pub mod rotate;
pub mod schema;
pub mod secret;
pub mod serve;
pub mod simulate;
mod table;

use exit::Exit;

/// Where the configuration is when nobody says.
const CONFIG: &str = "/etc/meshplan/meshplan.toml";

/// Keeps a fleet of plain Linux machines in the state that a git repository declares.
#[derive(Debug, Parser)]
#[command(name = "meshplan", version, max_term_width = 100)]
pub struct Cli {
    /// The reconciler's configuration; /etc/meshplan/meshplan.toml when left out.
    #[arg(long, global = true, value_name = "FILE", env = "MESHPLAN_CONFIG")]
    pub config: Option<PathBuf>,
    /// Whoever reads it can be shown colours.
    #[arg(skip)]
    pub color: bool,
    /// Answer in JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The nouns and verbs.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show a whole fleet at work on this machine: a forge, a reconciler, three hosts.
    Demo(demo::Args),
    /// Make a fleet repository that works, and the keys and configuration of its reconciler.
    Init(init::Args),
    /// Run the reconciler.
    Serve,
    /// Rebuild a lost database from the repository, its record and the machines.
    Recover(recover::Args),
    /// Check a fleet repository as the reconciler would.
    Check(check::Args),
    /// Say what is legal in a fleet repository and still unwise.
    Lint(lint::Args),
    /// What a merge would do, before it is merged.
    Preview(preview::Args),
    /// What merged commits became.
    #[command(subcommand, alias = "plans")]
    Deliveries(deliveries::Args),
    /// Keep every new delivery of the fleet from beginning, or let them again.
    Freeze(freeze::Args),
    /// What a node, a delivery, a rollout or a rotation waits for, by which rule, until when, and what would change it.
    Why {
        /// A node's name, a commit, a rollout's id or the number of its first epoch, or the name of a rotation.
        which: String,
    },
    /// The fleet and its machines.
    #[command(subcommand)]
    Fleet(fleet::Args),
    /// The journal of events: rollouts, and clocks that jumped.
    Events(events::Args),
    /// Records of nodes in a fleet repository.
    Node(node::Args),
    /// Modules of a fleet repository.
    Module(module::Args),
    /// Secrets of a fleet repository: sealed files, by name.
    Secret(secret::Args),
    /// The effective policy of a node.
    Policy(policy::Args),
    /// The record that is kept in git.
    Notes(notes::Args),
    /// Explain signed orders.
    Envelope(envelope::Args),
    /// Rehearse: play a script against simulated machines and print what would happen.
    Simulate(simulate::Args),
    /// Make a made-up fleet of any size.
    Example(example::Args),
    /// Print the JSON Schema of a document.
    Schema(schema::Args),
    /// A small forge for trying things: real git over HTTP before bare repositories.
    #[command(subcommand)]
    Forge(forge::Args),
}

impl Cli {
    /// What is logged when nobody says: a rehearsal prints what happens, and logs no second time.
    #[must_use]
    pub fn log_level(&self) -> &'static str {
        match self.command {
            Command::Simulate(_) => "off",
            _ => "info",
        }
    }

    /// Carries out the command.
    ///
    /// # Errors
    /// What cannot be said in an exit code alone; the caller prints the chain.
    pub async fn run(self, out: &mut dyn Write) -> anyhow::Result<Exit> {
        let Self {
            config: given,
            json,
            color,
            command,
        } = self;
        let config = given.clone().unwrap_or_else(|| PathBuf::from(CONFIG));
        match command {
            Command::Demo(args) => demo::run(&args, json, out).await,
            Command::Init(args) => init::run(&args, json, out),
            Command::Serve => serve::run(&config).await,
            Command::Recover(args) => recover::run(&args, &config, json, out).await,
            Command::Check(mut args) => {
                args.json |= json;
                args.color |= color;
                check::run(&args, out)
            }
            Command::Preview(mut args) => {
                (args.json, args.color) = (json, color);
                preview::run(&args, out)
            }
            Command::Deliveries(args) => deliveries::run(&args, &config, json, out).await,
            Command::Freeze(args) => freeze::run(&args, &config, json, out).await,
            Command::Why { which } => deliveries::why(&which, &config, json, out).await,
            Command::Fleet(args) => fleet::run(&args, &config, rollout::Reader::of(json, color), out).await,
            Command::Events(args) => events::run(&args, &config, json, out).await,
            Command::Node(args) => node::run(&args, json, out),
            Command::Lint(args) => lint::run(&args, json, color, out),
            Command::Module(args) => module::run(&args, out),
            Command::Secret(args) => secret::run(&args, given.as_deref(), json, out),
            Command::Simulate(args) => simulate::run(&args, out).await,
            Command::Example(args) => example::run(&args, json, out),
            Command::Policy(args) => policy::run(&args, out),
            Command::Notes(args) => notes::run(&args, given.as_deref(), json, out),
            Command::Envelope(args) => envelope::run(&args, out),
            Command::Schema(args) => schema::run(&args, out),
            Command::Forge(args) => forge::run(&args, out).await,
        }
    }
}
