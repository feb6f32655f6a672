//! The command line: one file a noun. Each `run` does the work, writes to `out`, and says how it ended.

use std::io::Write;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

pub mod check;
pub mod client;
pub mod deliveries;
//X pub mod demo;
//X pub mod envelope;
pub mod exit;
pub mod fleet;
//X pub mod init;
pub mod invite;
//X pub mod node;
//X pub mod notes;
//X pub mod policy;
//X pub mod schema;
pub mod serve;
mod table;

use exit::Exit;

/// Keeps a fleet of plain Linux machines in the state that a git repository declares.
#[derive(Debug, Parser)]
#[command(name = "meshplan", version, max_term_width = 100)]
pub struct Cli {
    /// The reconciler's configuration; needed by what talks to a running reconciler.
    #[arg(long, global = true, env = "MESHPLAN_CONFIG", default_value = "/etc/meshplan/meshplan.toml")]
    pub config: PathBuf,
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
    //X Demo(demo::Args),
    /// Make a fleet repository that works, and the keys and configuration of its reconciler.
    //X Init(init::Args),
    /// Run the reconciler.
    Serve,
    /// Check a fleet repository as the reconciler would.
    Check(check::Args),
    /// What merged commits became.
    #[command(subcommand, alias = "plans")]
    Deliveries(deliveries::Args),
    /// The fleet and its machines.
    #[command(subcommand)]
    Fleet(fleet::Args),
    /// Records of nodes in a fleet repository.
    #[command(subcommand)]
    //X Node(node::Args),
    /// The effective policy of a node.
    #[command(subcommand)]
    //X Policy(policy::Args),
    /// The record that is kept in git.
    #[command(subcommand)]
    //X Notes(notes::Args),
    /// Explain signed orders.
    #[command(subcommand)]
    //X Envelope(envelope::Args),
    //X /// Print the JSON Schema of a document.
    //X Schema(schema::Args),
}

impl Cli {
    /// Carries out the command.
    ///
    /// # Errors
    /// What cannot be said in an exit code alone; the caller prints the chain.
    pub async fn run(&self, out: &mut dyn Write) -> anyhow::Result<Exit> {
        match &self.command {
            //X Command::Demo(args) => demo::run(args, self.json, out).await,
            //X Command::Init(args) => init::run(args, self.json, out),
            Command::Serve => serve::run(&self.config).await,
            Command::Check(args) => check::run(args, out),
            Command::Deliveries(args) => deliveries::run(args, &self.config, self.json, out).await,
            Command::Fleet(args) => fleet::run(args, &self.config, self.json, out).await,
            //X Command::Node(args) => node::run(args, self.json, out),
            //X Command::Policy(args) => policy::run(args, self.json, out),
            //X Command::Notes(args) => notes::run(args, &self.config, self.json, out),
            //X Command::Envelope(args) => envelope::run(args, self.json, out),
            //X Command::Schema(args) => schema::run(args, out),
        }
    }
}
