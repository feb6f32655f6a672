//! The demo's folder and processes: set, asked, cleared away.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::process::{Child, Command};

use crate::cli::client::Client;
use crate::edge::foundation::{self, Foundation};
use crate::edge::git_server;

/// How long a program that is asked to end may take.
const GRACE: Duration = Duration::from_secs(5);
/// The name of the fleet.
pub(super) const FLEET: &str = "quickstart";

/// The stage.
pub(super) struct Stage {
    folder: PathBuf,
    forge: std::net::SocketAddr,
    address: std::net::SocketAddr,
    foundation: Foundation,
    client: Client,
    forge_task: tokio::task::JoinHandle<std::io::Result<()>>,
    children: Vec<Child>,
}

impl Stage {
    /// Makes the folder, the forge and what the reconciler stands on; starts no program yet.
    pub(super) async fn set(dir: Option<&Path>) -> anyhow::Result<Self> {
        let folder = match dir {
            Some(dir) => own(dir)?,
            None => tempfile::Builder::new()
                .prefix("meshplan-demo-")
                .tempdir()?
                .keep(),
        };
        match Self::furnish(folder.clone()).await {
            Ok(stage) => Ok(stage),
            Err(error) => {
                // Nothing is left behind of a stage that could not be set.
                let _ = std::fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    async fn furnish(folder: PathBuf) -> anyhow::Result<Self> {
        let bare = folder.join("forge").join("fleet.git");
        std::fs::create_dir_all(&bare)?;
        let git = ["init", "--quiet", "--bare", "--initial-branch=main", "."];
        let made = clean_git(&bare)
            .args(git)
            .output()
            .await
            .context("the demo needs git: install it and start again")?;
        if !made.status.success() {
            bail!("git init: {}", String::from_utf8_lossy(&made.stderr));
        }
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let forge = listener.local_addr()?;
        let options = git_server::Options::default();
        let forge_task = tokio::spawn(git_server::serve(folder.join("forge"), listener, options));
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let foundation = foundation::lay(&foundation::Spec {
            state: folder.join("state"),
            fleet: FLEET.parse()?,
            branch: "main".to_owned(),
            address,
            forge_url: format!("http://{forge}/fleet.git"),
            repo: "fleet".to_owned(),
            poll_secs: 30,
        })?;
        let client = Client::of(&foundation.config)?;
        Ok(Self {
            folder,
            forge,
            address,
            foundation,
            client,
            forge_task,
            children: Vec::new(),
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
    pub(super) fn work(&self) -> PathBuf {
        self.folder.join("work")
    }
    pub(super) fn config(&self) -> &Path {
        &self.foundation.config
    }
    pub(super) fn foundation(&self) -> &Foundation {
        &self.foundation
    }
    pub(super) fn client(&self) -> &Client {
        &self.client
    }
    pub(super) fn forge_url(&self) -> String {
        format!("http://{}/fleet.git", self.forge)
    }
    pub(super) fn page(&self) -> String {
        format!("http://{}/", self.address)
    }
    pub(super) fn root_of(&self, node: &str) -> PathBuf {
        self.folder.join("nodes").join(node)
    }
    pub(super) fn read_on(&self, node: &str, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root_of(node).join(path)).ok()
    }

    /// Starts `meshplan serve` and waits until it answers.
    pub(super) async fn start_reconciler(&mut self) -> anyhow::Result<()> {
        let mut serve = Command::new(std::env::current_exe()?);
        serve.arg("--config").arg(&self.foundation.config).arg("serve");
        let child = self.spawn(serve, "reconciler")?;
        self.children.push(child);
        let begun = Instant::now();
        while self.client.get::<serde_json::Value>("/api/status").await.is_err() {
            let ended = self
                .children
                .last_mut()
                .map(Child::try_wait)
                .transpose()?
                .flatten();
            if let Some(status) = ended {
                bail!("the reconciler ended with {status}");
            }
            if begun.elapsed() > super::PATIENCE {
                bail!("the reconciler does not answer");
            }
            tokio::time::sleep(super::EVERY).await;
        }
        Ok(())
    }

    fn host(&self, node: &str) -> anyhow::Result<Command> {
        let program = std::env::current_exe()?.with_file_name("meshplan-host");
        if !program.exists() {
            bail!(
                "{} is not there: meshplan-host is installed beside meshplan",
                program.display()
            );
        }
        let root = self.root_of(node);
        std::fs::create_dir_all(&root)?;
        let mut command = Command::new(program);
        command.arg("--root").arg(root);
        Ok(command)
    }

    /// Starts `meshplan-host enrol`.
    pub(super) fn enrol_host(&self, node: &str, token: &str) -> anyhow::Result<Child> {
        let mut enrol = self.host(node)?;
        enrol.args(["enrol", token]);
        self.spawn(enrol, &format!("{node}-enrol"))
    }

    /// Starts `meshplan-host run`.
    pub(super) fn run_host(&mut self, node: &str) -> anyhow::Result<()> {
        let mut run = self.host(node)?;
        run.arg("run");
        let child = self.spawn(run, node)?;
        self.children.push(child);
        Ok(())
    }

    fn spawn(&self, mut command: Command, name: &str) -> anyhow::Result<Child> {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("{name}.log")))?;
        // A group of its own: Ctrl-C comes to us, and we end the others in order.
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true);
        command.spawn().with_context(|| format!("cannot start {name}"))
    }

    /// Says to the reconciler what a forge would after a push: a signed webhook.
    pub(super) async fn webhook(&self, before: &str, after: &str) -> anyhow::Result<()> {
        let secret = std::fs::read_to_string(self.foundation.config.with_file_name("webhook-secret"))?;
        let body = serde_json::json!({
            "repo": "fleet", "ref": "refs/heads/main", "before": before, "after": after, "pusher": "demo",
        })
        .to_string();
        let mut mac = Hmac::<Sha256>::new_from_slice(secret.trim().as_bytes())?;
        mac.update(body.as_bytes());
        let signature = data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes());
        let http = reqwest::Client::builder().tls_certs_only([]).build()?;
        let answer = http
            .post(format!("http://{}/hooks/bare", self.address))
            .header("content-type", "application/json")
            .header("x-meshplan-delivery", uuid::Uuid::now_v7().to_string())
            .header("x-meshplan-signature", signature)
            .body(body)
            .send()
            .await?;
        if !answer.status().is_success() {
            bail!("the webhook was answered with {}", answer.status());
        }
        Ok(())
    }

    /// The end of each program's log, for an error.
    pub(super) fn logs(&self) -> String {
        let mut text = String::new();
        let names = std::fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path());
        let mut logs: Vec<PathBuf> = names
            .filter(|p| p.extension().is_some_and(|e| e == "log"))
            .collect();
        logs.sort();
        for path in logs {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(15)..].join("\n  ");
            text.push_str(&format!("\n{}:\n  {end}", path.display()));
        }
        text
    }

    /// Ends every program and removes the folder.
    pub(super) async fn clear(mut self) {
        self.forge_task.abort();
        // Hosts first, so that none reports a loss that is ours.
        for child in self.children.iter_mut().rev() {
            end(child).await;
        }
        // What is left behind is only a folder, and its name was shown.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn end(child: &mut Child) {
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // Gone already is as good.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Takes a folder that is empty or not there: what is removed at the end must be ours.
fn own(dir: &Path) -> anyhow::Result<PathBuf> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    if std::fs::read_dir(dir)?.next().is_some() {
        bail!(
            "{} is not empty: the demo works in a folder of its own and removes it at the end",
            dir.display()
        );
    }
    Ok(dir.canonicalize()?)
}

/// git without anybody's configuration.
pub(super) fn clean_git(folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("LC_ALL", "C.UTF-8")
        .env_remove("GIT_DIR")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    for role in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{role}_NAME"), "Demo")
            .env(format!("GIT_{role}_EMAIL"), "demo@localhost");
    }
    git
}
