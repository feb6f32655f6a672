//! The container engine of the machine: containers, their images, networks and volumes (HK-8, HK-10).
//!
//! Stands alone because it is a seam: [`RealEngine`] speaks Docker's API over a socket, which Podman speaks too;
//! [`NoEngine`] is a machine without one; [`SimEngine`] one in memory, for tests. A client's words are never read.
//! Invariant: an engine that does not answer is an error, and never "not there".

mod real;
mod request;
pub mod sim;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

pub use self::real::RealEngine;
pub use self::sim::SimEngine;
use crate::pure::container_spec::Spec;

/// The container engine of a machine.
pub trait Engine: Send + Sync + fmt::Debug {
    /// Whether the machine has one, which may answer or not.
    fn is_there(&self) -> bool;

    /// The unit that a question alone would start, though a person stopped it: its socket is the service manager's. None
    /// where a question starts nothing that anybody misses.
    fn woken_by_asking(&self) -> Option<&'static str>;

    /// The container of exactly this name; none where there is none.
    ///
    /// # Errors
    /// In words: the engine did not answer.
    fn container(&self, name: &str) -> Result<Option<Container>, String>;

    /// All containers, running or not.
    ///
    /// # Errors
    /// As [`Engine::container`].
    fn containers(&self) -> Result<Vec<Listed>, String>;

    /// The image that a reference leads to here; none where it is not here.
    ///
    /// # Errors
    /// As [`Engine::container`].
    fn image(&self, reference: &str) -> Result<Option<Image>, String>;

    /// Fetches an image from where its name says.
    ///
    /// # Errors
    /// In words.
    fn pull(&self, reference: &str) -> Result<(), String>;

    /// Takes an image away that no container has; one that something has stays.
    ///
    /// # Errors
    /// As [`Engine::container`].
    fn remove_image(&self, id: &str) -> Result<(), String>;

    /// Makes a container, which does not run yet.
    ///
    /// # Errors
    /// In words.
    fn make(&self, new: &New<'_>) -> Result<(), String>;

    /// Does something with a container, by its id.
    ///
    /// # Errors
    /// In words.
    fn turn(&self, id: &str, turn: Turn<'_>) -> Result<(), String>;

    /// Waits for the end of a container; its exit code, none where it does not end in time.
    ///
    /// # Errors
    /// As [`Engine::container`].
    fn wait(&self, id: &str, bound: Duration) -> Result<Option<i64>, String>;

    /// The network of exactly this name.
    ///
    /// # Errors
    /// As [`Engine::container`].
    fn network(&self, name: &str) -> Result<Option<Network>, String>;

    /// Makes a network.
    ///
    /// # Errors
    /// In words.
    fn make_network(&self, name: &str, network: &Network) -> Result<(), String>;

    /// Takes a network away; one that has anything in it stays, which is an error.
    ///
    /// # Errors
    /// In words.
    fn remove_network(&self, name: &str) -> Result<(), String>;

    /// All volumes.
    ///
    /// # Errors
    /// As [`Engine::container`].
    fn volumes(&self) -> Result<Vec<Volume>, String>;

    /// Makes a volume.
    ///
    /// # Errors
    /// In words.
    fn make_volume(&self, name: &str, labels: &BTreeMap<String, String>) -> Result<(), String>;

    /// The program of the way back that does something with a container or network: the launcher with the engine's socket,
    /// so that it can be walked without the host, and where no client is installed.
    ///
    /// # Errors
    /// In words: there is no launcher.
    fn undo(&self, words: &[&str]) -> Result<Vec<String>, String>;
}

/// A container, as the engine tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    /// Its id.
    pub id: String,
    /// The image that it was asked for with.
    pub image: String,
    /// The image that it has.
    pub image_id: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The networks that it is in.
    pub networks: BTreeSet<String>,
    /// What of the machine it sees, as `source:target`.
    pub mounts: BTreeSet<String>,
    /// Published ports, as `address:port->port/protocol`.
    pub ports: BTreeSet<String>,
    /// How it stands.
    pub state: State,
}

/// How a container stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// `created`, `running`, `restarting`, `paused`, `exited`, `dead`.
    pub status: String,
    /// How often the engine has started it again.
    pub restarts: i64,
    /// When it was started last, as the engine writes it.
    pub started_at: String,
    /// What its healthcheck says; none where it has none.
    pub health: Option<String>,
    /// With what its last run ended.
    pub exit_code: i64,
}

impl State {
    /// Whether it runs: not one that waits for its restart, nor one that is paused.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.status == "running"
    }

    /// Whether nothing of it runs, nor will by itself.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        matches!(
            self.status.as_str(),
            "created" | "configured" | "initialized" | "exited" | "stopped" | "dead"
        )
    }

    /// Whether its healthcheck says no; one that still starts has not said it.
    #[must_use]
    pub fn is_unhealthy(&self) -> bool {
        self.health.as_deref() == Some("unhealthy")
    }

    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        let health = match &self.health {
            Some(health) => format!(", {health}"),
            None => String::new(),
        };
        match self.status.as_str() {
            "exited" | "dead" => format!("{} with {}{health}", self.status, self.exit_code),
            status => format!("{status}{health}"),
        }
    }
}

/// A container in the list of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The image that it was asked for with.
    pub image: String,
    /// Its state: `created`, `running`, `restarting`, `paused`, `exited`, `dead`.
    pub status: String,
    /// The networks that it is in, running or not.
    pub networks: BTreeSet<String>,
    /// The volumes that it has.
    pub volumes: BTreeSet<String>,
}

/// An image that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its id, the digest of its configuration.
    pub id: String,
    /// When it was made, as it says itself; none where it does not.
    pub made_at: Option<String>,
}

/// A container to be made.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    /// Its name.
    pub name: &'a str,
    /// What it is made from.
    pub spec: &'a Spec,
    /// The id of its image.
    pub image: &'a str,
    /// The host's own labels.
    pub labels: &'a BTreeMap<String, String>,
}

/// What can be done with a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn<'a> {
    /// It runs.
    Start,
    /// It stops, in its own time of so many seconds.
    Stop(u32),
    /// It stops and runs again.
    Restart(u32),
    /// It has another name.
    Rename(&'a str),
    /// It is in this network too.
    Join(&'a str),
    /// It goes, running or not, with what only it had.
    Remove,
}

/// A network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Network {
    /// Its addresses, where they are known.
    pub subnet: Option<String>,
    /// It has no way out.
    pub is_internal: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Where it is on the machine.
    pub path: String,
    /// The host made it.
    pub is_own: bool,
}

/// A machine that has no container engine, with the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoEngine(pub &'static str);

impl Engine for NoEngine {
    fn is_there(&self) -> bool {
        false
    }
    fn woken_by_asking(&self) -> Option<&'static str> {
        None
    }
    fn container(&self, _name: &str) -> Result<Option<Container>, String> {
        Err(self.0.to_owned())
    }
    fn containers(&self) -> Result<Vec<Listed>, String> {
        Err(self.0.to_owned())
    }
    fn image(&self, _reference: &str) -> Result<Option<Image>, String> {
        Err(self.0.to_owned())
    }
    fn pull(&self, _reference: &str) -> Result<(), String> {
        Err(self.0.to_owned())
    }
    fn remove_image(&self, _id: &str) -> Result<(), String> {
        Err(self.0.to_owned())
    }
    fn make(&self, _new: &New<'_>) -> Result<(), String> {
        Err(self.0.to_owned())
    }
    fn turn(&self, _id: &str, _turn: Turn<'_>) -> Result<(), String> {
        Err(self.0.to_owned())
    }
    fn wait(&self, _id: &str, _bound: Duration) -> Result<Option<i64>, String> {
        Err(self.0.to_owned())
    }
    fn network(&self, _name: &str) -> Result<Option<Network>, String> {
        Err(self.0.to_owned())
    }
    fn make_network(&self, _name: &str, _network: &Network) -> Result<(), String> {
        Err(self.0.to_owned())
    }
    fn remove_network(&self, _name: &str) -> Result<(), String> {
        Err(self.0.to_owned())
    }
    fn volumes(&self) -> Result<Vec<Volume>, String> {
        Err(self.0.to_owned())
    }
    fn make_volume(&self, _name: &str, _labels: &BTreeMap<String, String>) -> Result<(), String> {
        Err(self.0.to_owned())
    }
    fn undo(&self, _words: &[&str]) -> Result<Vec<String>, String> {
        Err(self.0.to_owned())
    }
}
