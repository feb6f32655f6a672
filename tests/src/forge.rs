//! The forge of a world: a folder of bare repositories, served by real git over real HTTP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use meshplan_reconciler::edge::git_server::{Options, serve};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::program::{Said, clean};

/// A served folder of bare repositories; whoever can connect may fetch and push. Dropped, it is served no more.
#[derive(Debug)]
pub struct Forge {
    root: PathBuf,
    address: SocketAddr,
    // Held for what runs on it.
    _runtime: Runtime,
}

impl Forge {
    /// Serves `root`, which is made, on a free port of loopback.
    ///
    /// # Errors
    /// No port, no folder.
    pub fn start(root: &Path) -> Result<Self> {
        std::fs::create_dir_all(root).context("the forge's folder can be made")?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .context("the forge finds a port")?;
        let address = listener.local_addr()?;
        runtime.spawn(serve(root.to_owned(), listener, Options::default()));
        Ok(Self {
            root: root.to_owned(),
            address,
            _runtime: runtime,
        })
    }

    /// Makes an empty bare repository that takes pushes; gives its folder.
    ///
    /// # Errors
    /// git says no.
    pub fn create(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder(name);
        let mut init = clean("git", &self.root);
        init.args(["init", "--quiet", "--bare", "--initial-branch=main"])
            .arg(&folder);
        Said::of(init)?.ok()?;
        let mut config = clean("git", &self.root);
        config
            .arg("-C")
            .arg(&folder)
            .args(["config", "http.receivepack", "true"]);
        Said::of(config)?.ok()?;
        Ok(folder)
    }

    /// The address of a repository.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// The folder of a repository.
    #[must_use]
    pub fn folder(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}
