//! `meshplan forge serve`: a small forge for trying things, the one that the demo and the tests use.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Subcommand;

use super::exit::Exit;
use crate::edge::git_server;

/// What the forge does.
#[derive(Debug, Subcommand)]
pub enum Args {
    /// Serve the bare repositories of a folder over HTTP. Whoever connects may push: for this machine only.
    Serve {
        /// The folder.
        root: PathBuf,
        /// Where to listen.
        #[arg(long, default_value = "127.0.0.1:7980")]
        addr: SocketAddr,
    },
}

/// Serves until the process ends. [`Exit::Usage`] for an address that others could reach.
///
/// # Errors
/// The address cannot be listened on.
pub async fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Args::Serve { root, addr } = args;
    if !addr.ip().is_loopback() {
        writeln!(
            out,
            "{addr} is no loopback address: whoever connects to this forge may push"
        )?;
        return Ok(Exit::Usage);
    }
    let root = root
        .canonicalize()
        .with_context(|| format!("cannot serve {}", root.display()))?;
    let listener = tokio::net::TcpListener::bind(addr)
        .await
        .with_context(|| format!("cannot listen on {addr}"))?;
    writeln!(
        out,
        "serving {} at http://{}/",
        root.display(),
        listener.local_addr()?
    )?;
    out.flush()?;
    git_server::serve(root, listener, git_server::Options::default()).await?;
    Ok(Exit::Done)
}
