//! The program `meshplan-host`.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use meshplan_host::cli::Cli;
use meshplan_host::cli::exit::Exit;
use meshplan_host::edge::clock::Clock;

fn main() -> ExitCode {
    // Test builds are stopped at named lines (`FAILPOINTS` in the environment); in others this does nothing.
    let _stops = fail::FailScenario::setup();
    let cli = Cli::parse();
    let (json, quiet) = (cli.wants_json(), !cli.is_service());
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(log_filter(quiet))
        .init();
    // One thread: the host is at rest most of the time; the machine works on a thread of its own.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "the runtime cannot be started");
            return Exit::Internal.into();
        }
    };
    let (exit, written) = match runtime.block_on(cli.run(Clock::system())) {
        Ok(answer) if json => (answer.exit, print(&format!("{:#}\n", answer.json))),
        Ok(answer) => (answer.exit, print(&answer.words)),
        Err(failure) if json => (failure.exit, print(&format!("{:#}\n", failure.json()))),
        Err(failure) => {
            let said = writeln!(anstream::stderr(), "error: {:#}", failure.error);
            (failure.exit, said)
        }
    };
    // What a job of the machine has begun is ended before the process is.
    drop(runtime);
    match written {
        Ok(()) => exit.into(),
        Err(_) => Exit::Internal.into(),
    }
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = anstream::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// What is logged. Never what the client of container engines sends: the environment of a container has secrets in it
/// (HR-11).
fn log_filter(quiet: bool) -> tracing_subscriber::EnvFilter {
    let filter = tracing_subscriber::EnvFilter::try_from_env("MESHPLAN_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(if quiet { "error" } else { "info" }));
    let without = "bollard=warn"
        .parse()
        .map(|without| filter.add_directive(without));
    without.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"))
}
