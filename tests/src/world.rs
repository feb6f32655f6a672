//! A world: the real programs in a folder of their own, a forge beside them, a free port, no home.
//!
//! Nothing here sleeps to wait: [`World::poll`] asks for a condition until a deadline, and when it does not come the
//! error has what every program has printed.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::double::{BOT, Brand, Double};
use crate::forge::Forge;
use crate::program::{Program, Said, clean, path};
use crate::tree::{self, Place};

mod http;

/// How long a world waits for what should come.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The fleet's repository on the forge.
pub const REPO: &str = "fleet.git";

/// A world. Dropped, its programs end and its folder goes.
#[derive(Debug)]
pub struct World {
    // Before the folder: programs end before their files go.
    reconciler: Option<Program>,
    hosts: BTreeMap<String, Program>,
    /// The forge.
    pub forge: Forge,
    /// Where the fleet's repository is, as the reconciler is told.
    remote: String,
    /// The same for git, with whoever pushes.
    origin: String,
    address: SocketAddr,
    fleet: String,
    /// What the hosts' programs see in their environment beside what is [`clean`].
    host_environment: BTreeMap<String, PathBuf>,
    folder: TempDir,
}

impl World {
    /// A forge, a fleet called `fleet` of three invited nodes pushed to it; no program runs yet.
    ///
    /// # Errors
    /// git or `meshplan init` says no.
    pub fn new(fleet: &str) -> Result<Self> {
        let world = Self::empty(fleet)?;
        world.init()?;
        Ok(world)
    }

    /// The same with the fleet's repository on a double of a forge, whose token and webhook the reconciler has.
    ///
    /// # Errors
    /// As [`World::new`].
    pub fn at_forge(brand: Brand, fleet: &str) -> Result<(Self, Double)> {
        let mut world = Self::empty(fleet)?;
        let double = Double::start(brand, &world.folder().join("double"))?;
        world.remote = double.url();
        world.origin = double.url_of("dana");
        world.init()?;
        let token = double.token(BOT, brand.scopes());
        fs::write(world.state().join("forge-token"), format!("{token}\n"))?;
        world.configure_forge("kind", brand.kind())?;
        world.configure_forge("repo", "acme/fleet")?;
        world.configure_forge("token_file", "forge-token")?;
        world.configure_forge("credentials_file", "forge-token")?;
        if brand == Brand::Gitlab {
            // A signing token.
            let key = data_encoding::BASE64.encode(world.webhook_secret()?.as_bytes());
            fs::write(world.state().join("webhook-secret"), format!("whsec_{key}\n"))?;
        }
        let url = format!("http://{}/hooks/{}", world.address, brand.kind());
        double.hook(&url, &world.webhook_secret()?, brand.events());
        Ok((world, double))
    }

    /// A forge, and nothing else.
    fn empty(fleet: &str) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("meshplan-world-").tempdir()?;
        let forge = Forge::start(&folder.path().join("forge"))?;
        forge.create(REPO)?;
        let remote = forge.url(REPO);
        Ok(Self {
            reconciler: None,
            hosts: BTreeMap::new(),
            forge,
            origin: remote.clone(),
            remote,
            address: free_port()?,
            fleet: fleet.to_owned(),
            host_environment: BTreeMap::new(),
            folder,
        })
    }

    /// A world whose reconciler runs and whose three hosts are enrolled, run, and have the first commit's content.
    ///
    /// # Errors
    /// Something on the way says no, or does not come.
    pub fn with_three_hosts(fleet: &str) -> Result<Self> {
        let mut world = Self::new(fleet)?;
        world.start_three_hosts()?;
        Ok(world)
    }

    /// Starts the reconciler, enrols three hosts and runs them, until they have the first commit's content.
    ///
    /// # Errors
    /// Something on the way says no, or does not come.
    pub fn start_three_hosts(&mut self) -> Result<()> {
        let world = self;
        world.serve()?;
        for node in tree::NODES {
            world.enrol(node)?;
            world.run_host(node)?;
        }
        let head = world.head()?;
        world.wait_for(&head, "delivered")?;
        for node in tree::NODES {
            // Both: on a slow disk a while lies between the one and the other.
            world.poll(&format!("{node} has page and configuration"), |w| {
                Ok(w.at(node, tree::PAGE).is_ok() && w.at(node, tree::CONF).is_ok())
            })?;
        }
        Ok(())
    }

    fn init(&self) -> Result<()> {
        let work = self.work();
        let mut init = self.program("meshplan")?;
        init.arg("init")
            .arg(&work)
            .args(["--fleet", &self.fleet])
            .arg("--state")
            .arg(self.state());
        init.args(["--addr", &self.address.to_string(), "--forge-url", &self.remote]);
        Said::of(init)?.ok()?;
        tree::lay(&work)?;
        self.configure_forge("poll_secs", 1)?;
        if !work.join(".git").exists() {
            self.git(&["init", "--quiet", "--initial-branch=main"])?;
        }
        if self.git(&["remote"])?.trim().is_empty() {
            self.git(&["remote", "add", "origin", &self.origin])?;
        }
        self.git(&["remote", "set-url", "origin", &self.origin])?;
        self.commit("the fleet")?;
        self.git(&["push", "--quiet", "origin", "HEAD:refs/heads/main"])?;
        Ok(())
    }

    // --- places ----------------------------------------------------------------------------------------------------

    /// The folder of the world.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The work clone of the fleet repo.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.folder().join("work")
    }

    /// The reconciler's state folder.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder().join("state")
    }

    /// The reconciler's configuration.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.state().join("meshplan.toml")
    }

    /// The folder that a node's host takes for its root.
    #[must_use]
    pub fn root_of(&self, node: &str) -> PathBuf {
        self.folder().join("nodes").join(node)
    }

    /// Where the reconciler listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the reconciler has printed, over all its starts.
    #[must_use]
    pub fn reconciler_log(&self) -> String {
        fs::read_to_string(self.folder().join("reconciler.log")).unwrap_or_default()
    }

    /// What a node's host has printed, over all its starts.
    #[must_use]
    pub fn host_log(&self, node: &str) -> String {
        fs::read_to_string(self.folder().join(format!("{node}.log"))).unwrap_or_default()
    }

    /// The text of a file on a node, by its path from the node's root.
    ///
    /// # Errors
    /// It is not there.
    pub fn on_node(&self, node: &str, path: &str) -> Result<String> {
        let path = self.root_of(node).join(path);
        fs::read_to_string(&path).with_context(|| format!("{} can be read", path.display()))
    }

    /// What a node has at a place of the tree.
    ///
    /// # Errors
    /// It is not there.
    pub fn at(&self, node: &str, place: Place) -> Result<String> {
        self.on_node(node, place.node)
    }

    /// Changes the reconciler's configuration; it counts from the next [`World::serve`] on.
    ///
    /// # Errors
    /// What `change` says, or the file cannot be read or written.
    pub fn configure(&self, change: impl FnOnce(&mut toml::Table) -> Result<()>) -> Result<()> {
        let text = fs::read_to_string(self.config()).context("init makes the configuration")?;
        let mut config: toml::Table = toml::from_str(&text).context("the configuration is TOML")?;
        change(&mut config)?;
        fs::write(self.config(), toml::to_string(&config)?)?;
        Ok(())
    }

    /// Sets a key of the configuration's `[forge]`.
    ///
    /// # Errors
    /// As [`World::configure`].
    pub fn configure_forge(&self, key: &str, value: impl Into<toml::Value>) -> Result<()> {
        self.configure(|config| {
            let forge = config.get_mut("forge").and_then(toml::Value::as_table_mut);
            forge
                .context("the configuration has [forge]")?
                .insert(key.to_owned(), value.into());
            Ok(())
        })
    }

    // --- programs --------------------------------------------------------------------------------------------------

    fn program(&self, name: &str) -> Result<Command> {
        let mut command = clean(path(name)?, self.folder());
        command.current_dir(self.folder());
        Ok(command)
    }

    /// Starts the reconciler and waits until it answers.
    ///
    /// # Errors
    /// It ends, or does not answer.
    pub fn serve(&mut self) -> Result<()> {
        let mut serve = self.program("meshplan")?;
        serve.arg("serve").arg("--config").arg(self.config());
        self.reconciler = Some(Program::start(
            "meshplan serve",
            serve,
            self.folder().join("reconciler.log"),
        )?);
        self.poll("the reconciler answers", |w| {
            if let Some(status) = w.reconciler.as_mut().context("just started")?.ended()? {
                bail!("the reconciler ended with {status}");
            }
            Ok(w.http("GET", "/", &[], b"").is_ok())
        })
    }

    /// Starts `meshplan serve` and waits for its end; for those that cannot start.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn serve_to_its_end(&self) -> Result<Said> {
        let mut serve = self.program("meshplan")?;
        serve.arg("serve").arg("--config").arg(self.config());
        Said::of(serve)
    }

    /// kill -9 for the reconciler.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill_reconciler(&mut self) -> Result<()> {
        self.reconciler.take().context("the reconciler runs")?.kill()
    }

    /// Enrols a node: invite, `meshplan-host enrol` in the background, admit, and the host's word that it is in.
    ///
    /// # Errors
    /// One of them says no, or does not come.
    pub fn enrol(&mut self, node: &str) -> Result<()> {
        let token = self.invite(node)?;
        let mut enrol = self.host_command(node)?;
        enrol.args(["enrol", &token]);
        let log = self.folder().join(format!("enrol-{node}.log"));
        let mut enrolling = Program::start("meshplan-host enrol", enrol, log)?;
        self.poll(&format!("{node} can be admitted"), |w| {
            Ok(w.meshplan(&["fleet", "admit", node])?.code == Some(0))
        })?;
        self.poll(&format!("{node} is enrolled"), |_| match enrolling.ended()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => Err(anyhow!("enrol ended with {status}: {}", enrolling.log())),
        })?;
        self.git(&["pull", "--quiet", "--ff-only", "origin", "main"])?;
        Ok(())
    }

    /// Invites a node and makes its folder; gives the token.
    ///
    /// # Errors
    /// The reconciler says no, or does not come to know the node.
    pub fn invite(&mut self, node: &str) -> Result<String> {
        // The record that invites it stands in the repository, which must have been read.
        self.poll(&format!("the reconciler knows {node}"), |w| {
            let status = w.meshplan_json(&["fleet", "status"])?;
            let nodes = status["nodes"].as_array().context("a status has nodes")?;
            Ok(nodes.iter().any(|n| n["name"] == node))
        })?;
        let invitations = self.meshplan_json(&["fleet", "invite", node])?;
        let token = invitations[0]["token"]
            .as_str()
            .context("an invitation has a token")?
            .to_owned();
        fs::create_dir_all(self.root_of(node))?;
        Ok(token)
    }

    /// Hosts that start from now on have this in their environment.
    pub fn hosts_see(&mut self, variable: &str, path: &Path) {
        self.host_environment.insert(variable.to_owned(), path.to_owned());
    }

    fn host_command(&self, node: &str) -> Result<Command> {
        let mut command = self.program("meshplan-host")?;
        command.envs(&self.host_environment);
        command.arg("--root").arg(self.root_of(node));
        Ok(command)
    }

    /// Starts a node's host.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run_host(&mut self, node: &str) -> Result<()> {
        let mut run = self.host_command(node)?;
        run.arg("run");
        let program = Program::start(
            &format!("host of {node}"),
            run,
            self.folder().join(format!("{node}.log")),
        )?;
        self.hosts.insert(node.to_owned(), program);
        Ok(())
    }

    /// kill -9 for a node's host.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill_host(&mut self, node: &str) -> Result<()> {
        self.hosts
            .remove(node)
            .with_context(|| format!("the host of {node} runs"))?
            .kill()
    }

    /// Runs `meshplan --config FILE ...` to its end.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn meshplan(&self, arguments: &[&str]) -> Result<Said> {
        let mut command = self.program("meshplan")?;
        command.arg("--config").arg(self.config()).args(arguments);
        Said::of(command)
    }

    /// The same, stopped as by a power cut at a named line of the program.
    ///
    /// # Errors
    /// It cannot be started, or comes to its end.
    pub fn meshplan_cut_off_at(&self, line: &str, arguments: &[&str]) -> Result<()> {
        let mut command = self.program("meshplan")?;
        command.env("FAILPOINTS", format!("{line}=return"));
        command.arg("--config").arg(self.config()).args(arguments);
        let said = Said::of(command)?;
        ensure!(said.code.is_none(), "it was not cut off at {line}: {said}");
        Ok(())
    }

    /// What `meshplan ... --json` prints.
    ///
    /// # Errors
    /// It does not end with 0, or prints no JSON.
    pub fn meshplan_json(&self, arguments: &[&str]) -> Result<Value> {
        let said = self.meshplan(&[arguments, &["--json"]].concat())?;
        let command = said.command.clone();
        serde_json::from_str(&said.ok()?).with_context(|| format!("`{command}` prints JSON"))
    }

    /// Runs `meshplan-host --root DIR ...` of a node to its end.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn host(&self, node: &str, arguments: &[&str]) -> Result<Said> {
        let mut command = self.host_command(node)?;
        command.args(arguments);
        Said::of(command)
    }

    // --- git -------------------------------------------------------------------------------------------------------

    /// Runs git in the work clone; gives what it prints.
    ///
    /// # Errors
    /// It does not end with 0.
    pub fn git(&self, arguments: &[&str]) -> Result<String> {
        let mut git = clean("git", self.folder());
        git.current_dir(self.work());
        git.args(["-c", "user.name=Dana", "-c", "user.email=dana@example.org"]);
        git.args(arguments);
        Said::of(git)?.ok()
    }

    /// The newest commit of the work clone.
    ///
    /// # Errors
    /// git says no.
    pub fn head(&self) -> Result<String> {
        Ok(self.git(&["rev-parse", "HEAD"])?.trim().to_owned())
    }

    /// Writes a file of the work clone.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let path = self.work().join(path);
        fs::create_dir_all(path.parent().unwrap_or(&path))?;
        fs::write(&path, text).with_context(|| format!("{} can be written", path.display()))
    }

    /// Commits all that the work clone has.
    ///
    /// # Errors
    /// git says no.
    pub fn commit(&self, subject: &str) -> Result<String> {
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--message", subject])?;
        self.head()
    }

    /// Writes one file, commits all that has changed and pushes it: a merge. Gives the commit.
    ///
    /// # Errors
    /// git says no.
    pub fn merge(&self, path: &str, text: &str) -> Result<String> {
        self.write(path, text)?;
        let commit = self.commit(&format!("change {path}"))?;
        self.git(&["push", "--quiet", "origin", "HEAD:refs/heads/main"])?;
        Ok(commit)
    }

    /// The note of a commit as git shows it, fetched from the forge.
    ///
    /// # Errors
    /// There is none.
    pub fn note(&self, commit: &str) -> Result<String> {
        self.git(&[
            "fetch",
            "--quiet",
            "origin",
            "+refs/notes/mesh-plan:refs/notes/mesh-plan",
        ])?;
        self.git(&["notes", "--ref=mesh-plan", "show", commit])
    }

    // --- waiting ---------------------------------------------------------------------------------------------------

    /// Asks until `come` says yes; at the deadline, or when it fails, the error has what every program has printed.
    ///
    /// # Errors
    /// It did not come.
    pub fn poll(&mut self, what: &str, mut come: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match come(self) {
                Ok(true) => return Ok(()),
                Ok(false) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(100)),
                Ok(false) => bail!("after {PATIENCE:?} still not: {what}\n{}", self.logs()),
                Err(e) => return Err(e.context(format!("while waiting: {what}\n{}", self.logs()))),
            }
        }
    }

    /// Waits until a delivery is in `state`; gives what `deliveries show --json` says then.
    ///
    /// # Errors
    /// It ends in another state, or does not come.
    pub fn wait_for(&mut self, commit: &str, state: &str) -> Result<Value> {
        let finals = ["delivered", "rolled-back", "superseded", "withdrawn", "failed"];
        let mut shown = Value::Null;
        self.poll(&format!("{commit} is {state}"), |w| {
            // Until the commit is known there is nothing to show.
            let Ok(now) = w.meshplan_json(&["deliveries", "show", commit]) else {
                return Ok(false);
            };
            shown = now;
            let current = shown["state"].as_str().unwrap_or_default();
            ensure!(
                current == state || !finals.contains(&current),
                "it ended {current}: {shown:#}"
            );
            Ok(current == state)
        })?;
        Ok(shown)
    }

    /// The process of the reconciler.
    ///
    /// # Errors
    /// It does not run.
    pub fn reconciler_pid(&self) -> Result<u32> {
        let reconciler = self.reconciler.as_ref();
        Ok(reconciler.context("the reconciler was started")?.id())
    }

    /// What the programs have printed.
    #[must_use]
    pub fn logs(&self) -> String {
        let programs = self.reconciler.iter().chain(self.hosts.values());
        let mut text = String::new();
        for log in programs.map(Program::log) {
            let lines: Vec<&str> = log.lines().collect();
            let last = lines.get(lines.len().saturating_sub(60)..).unwrap_or_default();
            text.push_str(&format!("--- its last lines\n{}\n", last.join("\n")));
        }
        text
    }
}

/// An address of loopback that nobody listens on.
///
/// # Errors
/// There is none.
pub fn free_port() -> Result<SocketAddr> {
    // Free again when the listener is dropped; the kernel hands out others before it comes round.
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
