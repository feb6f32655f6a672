//! A world whose first node is a machine that is booted, with the host installed there from its Debian package.
//!
//! The reconciler runs outside, and the machine reaches it over its own link: a session proves what it proves in the
//! field, and the link can be taken away.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;

use crate::booted::{Booted, OUTSIDE};
use crate::house::workspace;
use crate::program::{Program, Said, path};
use crate::tree::{NODES, Place};
use crate::world::World;

/// The host's unit.
pub const UNIT: &str = "meshplan-host.service";

/// The node that the machine is.
const NODE: &str = NODES[0];

/// A fleet and a machine of it.
#[derive(Debug)]
pub struct Site {
    /// The machine.
    pub machine: Booted,
    /// The reconciler, its forge and the fleet's repository.
    pub world: World,
}

impl Site {
    /// A reconciler that runs, and a machine that could reach it; none where no machine can be booted.
    ///
    /// # Errors
    /// One of them does not come up.
    pub fn start(name: &str) -> Result<Option<Self>> {
        let Some(machine) = Booted::start(name)? else {
            return Ok(None);
        };
        let mut world = World::new(name)?;
        let port = world.address().port();
        world.configure(|config| {
            let address = format!("ws://{OUTSIDE}:{port}/mesh");
            config.insert("addresses".to_owned(), vec![toml::Value::String(address)].into());
            Ok(())
        })?;
        world.serve()?;
        machine.answers(port, world.address())?;
        Ok(Some(Self { machine, world }))
    }

    /// As [`Site::start`]; the machine is a member, its host runs, and it has the first commit's page, confirmed.
    ///
    /// # Errors
    /// Something on the way says no, or does not come.
    pub fn with_host(name: &str) -> Result<Option<Self>> {
        let Some(mut site) = Self::start(name)? else {
            return Ok(None);
        };
        site.install(None)?;
        site.enrol()?;
        site.machine.say(&["systemctl", "start", UNIT])?;
        site.confirmed("the first declaration")?;
        Ok(Some(site))
    }

    /// Makes the host's package, of another version than its own when one is given, and has dpkg install it.
    ///
    /// # Errors
    /// It cannot be made, or installed.
    pub fn install(&self, version: Option<&str>) -> Result<()> {
        let package = package(&self.world.folder().join("packages"), version)?;
        let bytes = std::fs::read(&package)?;
        self.machine.put("/root/meshplan-host.deb", &bytes, 0o644)?;
        self.machine
            .say(&["dpkg", "--install", "/root/meshplan-host.deb"])?;
        Ok(())
    }

    /// Enrols the machine: invite, `meshplan-host enrol` inside, admit.
    ///
    /// # Errors
    /// One of them says no, or does not come.
    pub fn enrol(&mut self) -> Result<()> {
        let token = self.world.invite(NODE)?;
        let log = self.world.folder().join("enrol.log");
        let enrol = self.machine.inside(&["meshplan-host", "enrol", &token])?;
        let mut enrolling = Program::start("meshplan-host enrol", enrol, log)?;
        self.poll("the machine is enrolled", |site| {
            // Asked again until it has come: the reconciler admits whom it has heard of.
            site.world.meshplan(&["fleet", "admit", NODE])?;
            match enrolling.ended()? {
                None => Ok(false),
                Some(status) if status.success() => Ok(true),
                Some(status) => Err(anyhow!("enrol ended with {status}: {}", enrolling.log())),
            }
        })?;
        self.world
            .git(&["pull", "--quiet", "--ff-only", "origin", "main"])?;
        Ok(())
    }

    /// What `meshplan-host ... --json` says inside.
    ///
    /// # Errors
    /// It prints no JSON.
    pub fn host(&self, arguments: &[&str]) -> Result<Value> {
        let said = self
            .machine
            .run(&[&["meshplan-host"], arguments, &["--json"]].concat())?;
        serde_json::from_str(&said.out).with_context(|| format!("no JSON: {said}"))
    }

    /// The number of the host's process inside.
    ///
    /// # Errors
    /// None runs.
    pub fn host_process(&self) -> Result<String> {
        let pids = self.machine.say(&["pgrep", "--exact", "meshplan-host"])?;
        Ok(pids.split_whitespace().next().context("a host runs")?.to_owned())
    }

    /// The text of what the fleet puts on the node.
    ///
    /// # Errors
    /// The machine is off.
    pub fn at(&self, place: Place) -> Result<Option<String>> {
        self.machine.file(&format!("/{}", place.node))
    }

    /// Waits until no window is open and the newest declaration that has come is the confirmed one; its sequence.
    ///
    /// # Errors
    /// It does not come.
    pub fn confirmed(&mut self, what: &str) -> Result<u64> {
        let mut sequence = None;
        self.poll(&format!("{what} is confirmed"), |site| {
            let declaration = &site.host(&["status"])?["declaration"];
            sequence = declaration["confirmed_sequence"].as_u64().filter(|n| *n > 0);
            Ok(sequence.is_some() && declaration["sequence"].as_u64() == sequence)
        })?;
        sequence.context("just seen")
    }

    /// Asks until `come` says yes; when it does not, the error has what machine and programs have said.
    ///
    /// # Errors
    /// It did not come.
    pub fn poll(&mut self, what: &str, mut come: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let deadline = std::time::Instant::now() + crate::booted::PATIENCE;
        loop {
            match come(self) {
                Ok(true) => return Ok(()),
                Ok(false) if std::time::Instant::now() < deadline => {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
                Ok(false) => return Err(anyhow!("still not: {what}\n{}", self.logs())),
                Err(e) => return Err(e.context(format!("while waiting: {what}\n{}", self.logs()))),
            }
        }
    }

    /// What machine and programs have said.
    #[must_use]
    pub fn logs(&self) -> String {
        format!("{}\n{}", self.world.logs(), self.machine.logs())
    }
}

/// Makes the host's package in a folder, which is made.
fn package(folder: &std::path::Path, version: Option<&str>) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let host = path("meshplan-host")?;
    let binaries = host.parent().context("a program is in a folder")?;
    ensure!(
        binaries.join("meshplan-launcher").is_file(),
        "meshplan-launcher is not built: cargo build --workspace --bins"
    );
    let mut build = Command::new(workspace().join("host/package/build"));
    build.arg(binaries).arg(folder).args(version);
    Ok(Said::of(build)?.ok()?.trim().into())
}
