//! The program `meshplan`.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use meshplan_reconciler::cli::Cli;
use meshplan_reconciler::cli::client::No;
use meshplan_reconciler::cli::exit::Exit;

fn main() -> ExitCode {
    // Test builds are stopped at named lines (`FAILPOINTS` in the environment); in others this does nothing.
    let _stops = fail::FailScenario::setup();
    let mut cli = Cli::parse();
    // NO_COLOR, and a terminal that has none, are told by the stream below, which takes them out again.
    cli.color = std::io::stdout().is_terminal();
    // One TLS provider for the whole process, before anything could want one.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        return Exit::Internal.into();
    }
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("MESHPLAN_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(cli.log_level())),
        )
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let mut out = anstream::stdout();
    let result = runtime.block_on(cli.run(&mut out));
    let flushed = out.flush();
    match result {
        Ok(exit) if flushed.is_ok() => exit.into(),
        Ok(_) => Exit::Internal.into(),
        Err(error) => failed(&error),
    }
}

/// Prints the chain once, and ends as the error says.
fn failed(error: &anyhow::Error) -> ExitCode {
    let mut err = anstream::stderr();
    // Where not even this can be written there is nobody to tell.
    let _ = writeln!(err, "error: {error:#}");
    error
        .downcast_ref::<No>()
        .map_or(Exit::Internal, |no| no.exit)
        .into()
}
