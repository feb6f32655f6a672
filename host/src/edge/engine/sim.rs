//! A container engine in memory, for tests. It is strict: names are had once, images must be here, ports of what runs are
//! had once, a network must be there, and what the way back asks for must be a word that the launcher knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Container, Engine, Image, Listed, Network, New, State, Turn, Volume};
use crate::pure::container_spec::{MADE, SPEC};
use crate::pure::inverse::SILENT;

/// The program that the way back runs, in memory.
pub const LAUNCHER: [&str; 3] = ["/usr/bin/meshplan-launcher", "container", "/run/sim.sock"];

/// An engine in memory; clones share it.
#[derive(Debug, Clone, Default)]
pub struct SimEngine {
    sim: Arc<Mutex<Sim>>,
}

/// What is in it. A test reads and sets it by [`SimEngine::with`].
#[derive(Debug, Default)]
pub struct Sim {
    /// The containers, by name.
    pub containers: BTreeMap<String, Made>,
    /// The images that are here: reference to id.
    pub images: BTreeMap<String, String>,
    /// The images that can be pulled: reference to id.
    pub registry: BTreeMap<String, String>,
    /// When images were made, by id.
    pub dates: BTreeMap<String, String>,
    /// The networks.
    pub networks: BTreeMap<String, Network>,
    /// The volumes, each with whether the host made it.
    pub volumes: BTreeMap<String, bool>,
    /// Images whose containers end as soon as they start, each with the exit code.
    pub ending: BTreeMap<String, i64>,
    /// Images whose containers end, or are started again by the engine, between two looks.
    pub weak: BTreeSet<String>,
    /// Images whose containers say that they are unhealthy.
    pub unhealthy: BTreeSet<String>,
    /// Networks that nothing can join.
    pub full: BTreeSet<String>,
    /// Acts that fail, by the words that the log would have.
    pub failing: BTreeSet<String>,
    /// Everything that changed something, in order.
    pub log: Vec<String>,
    /// Whether it answers nothing.
    pub is_deaf: bool,
    /// After so many acts it answers nothing any more; none where it always does.
    pub silent_after: Option<usize>,
    made: u32,
}

/// A container in memory.
#[derive(Debug, Clone, Default)]
pub struct Made {
    /// As it is told of.
    pub container: Container,
    /// Its environment.
    pub env: Vec<String>,
    host_ports: BTreeSet<String>,
    volumes: BTreeSet<String>,
}

impl SimEngine {
    fn lock(&self) -> MutexGuard<'_, Sim> {
        self.sim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or sets what is in it.
    pub fn with<T>(&self, act: impl FnOnce(&mut Sim) -> T) -> T {
        act(&mut self.lock())
    }

    /// What changed something since the last call.
    #[must_use]
    pub fn acts(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().log)
    }

    fn answering(&self) -> Result<MutexGuard<'_, Sim>, String> {
        let sim = self.lock();
        if sim.is_deaf {
            return Err("the container engine did not answer within 60 s".to_owned());
        }
        Ok(sim)
    }

    /// Lets time pass between two looks.
    pub fn rest(&self) {
        let mut sim = self.lock();
        let weak = sim.weak.clone();
        for made in sim.containers.values_mut() {
            if made.container.state.is_up() && weak.contains(&made.container.image) {
                made.container.state.restarts += 1;
            }
        }
    }

    /// What the launcher would do with these words after the socket; none where it does not know them.
    pub(crate) fn undo_now(&self, words: &[&str]) -> Option<(i32, String)> {
        let mut sim = match self.answering() {
            Ok(sim) => sim,
            Err(why) => return Some((SILENT, why)),
        };
        Some(match sim.walk(words)? {
            Ok(()) => (0, String::new()),
            Err(why) => (1, why),
        })
    }
}

impl Sim {
    /// A container that the host did not make.
    pub fn found(&mut self, name: &str, image: &str) -> String {
        let id = self.next_id();
        let container = Container {
            id: id.clone(),
            image: image.to_owned(),
            image_id: format!("id-of-{image}"),
            state: running(),
            ..Container::default()
        };
        let made = Made {
            container,
            ..Made::default()
        };
        self.containers.insert(name.to_owned(), made);
        id
    }

    /// The names of what runs.
    #[must_use]
    pub fn up(&self) -> Vec<String> {
        let up = self
            .containers
            .iter()
            .filter(|(_, made)| made.container.state.is_up());
        up.map(|(name, _)| name.clone()).collect()
    }

    fn next_id(&mut self) -> String {
        self.made += 1;
        format!("{:064x}", self.made)
    }

    fn act(&mut self, words: String) -> Result<(), String> {
        self.silent_after = match self.silent_after {
            Some(0) => {
                self.is_deaf = true;
                return Err("the container engine did not answer within 60 s".to_owned());
            }
            left => left.map(|left| left - 1),
        };
        if self.failing.contains(&words) {
            return Err(format!("the container engine refused: {words}"));
        }
        self.log.push(words);
        Ok(())
    }

    fn name_of(&self, id: &str) -> Result<String, String> {
        let mut all = self.containers.iter();
        let found = all.find(|(_, made)| made.container.id == id);
        found
            .map(|(name, _)| name.clone())
            .ok_or_else(|| format!("No such container: {id}"))
    }

    fn turn(&mut self, id: &str, turn: Turn<'_>) -> Result<(), String> {
        let name = self.name_of(id)?;
        match turn {
            Turn::Start => self.start(&name, "start"),
            Turn::Restart(_) => {
                self.stop(&name);
                self.start(&name, "restart")
            }
            Turn::Stop(_) => {
                self.act(format!("stop {name}"))?;
                self.stop(&name);
                Ok(())
            }
            Turn::Rename(to) => {
                if self.containers.contains_key(to) {
                    return Err(format!("the container engine refused: the name {to} is in use"));
                }
                self.act(format!("rename {name} {to}"))?;
                if let Some(made) = self.containers.remove(&name) {
                    self.containers.insert(to.to_owned(), made);
                }
                Ok(())
            }
            Turn::Join(network) => {
                if !self.networks.contains_key(network) || self.full.contains(network) {
                    return Err(format!(
                        "the container engine refused: {name} cannot join {network}"
                    ));
                }
                self.act(format!("join {name} {network}"))?;
                if let Some(made) = self.containers.get_mut(&name) {
                    made.container.networks.insert(network.to_owned());
                }
                Ok(())
            }
            Turn::Remove => {
                self.act(format!("remove {name}"))?;
                self.containers.remove(&name);
                Ok(())
            }
        }
    }

    fn stop(&mut self, name: &str) {
        if let Some(made) = self.containers.get_mut(name) {
            "exited".clone_into(&mut made.container.state.status);
        }
    }

    fn start(&mut self, name: &str, word: &str) -> Result<(), String> {
        let Some(made) = self.containers.get(name).cloned() else {
            return Err(format!("No such container: {name}"));
        };
        if made.container.state.is_up() {
            return Ok(());
        }
        let mut others = self.containers.iter().filter(|(other, _)| *other != name);
        if others.any(|(_, other)| {
            other.container.state.is_up() && !other.host_ports.is_disjoint(&made.host_ports)
        }) {
            return Err("the container engine refused: port is already allocated".to_owned());
        }
        if let Some(lost) = made
            .container
            .networks
            .iter()
            .find(|network| !self.networks.contains_key(*network))
        {
            return Err(format!("the container engine refused: network {lost} not found"));
        }
        self.act(format!("{word} {name}"))?;
        let image = made.container.image.clone();
        let state = match self.ending.get(&image) {
            Some(code) => State {
                status: "exited".to_owned(),
                exit_code: *code,
                ..State::default()
            },
            None => State {
                health: self.unhealthy.contains(&image).then(|| "unhealthy".to_owned()),
                ..running()
            },
        };
        if let Some(made) = self.containers.get_mut(name) {
            made.container.state = state;
        }
        Ok(())
    }

    /// The words of `meshplan-launcher container SOCKET`.
    fn walk(&mut self, words: &[&str]) -> Option<Result<(), String>> {
        let id = |sim: &Self, name: &str| sim.containers.get(name).map(|made| made.container.id.clone());
        Some(match words {
            ["remove", name] => match self.containers.get(*name) {
                Some(made) if made.container.labels.contains_key(SPEC) => {
                    let id = made.container.id.clone();
                    self.turn(&id, Turn::Remove)
                }
                _ => Ok(()),
            },
            ["restore", name, former] => {
                if self.name_of(former).is_err() {
                    return Some(Err(format!("the former container {former} is gone")));
                }
                if let Some(other) = id(self, name).filter(|other| other != former)
                    && let Err(why) = self.turn(&other, Turn::Remove)
                {
                    return Some(Err(why));
                }
                match self.name_of(former) {
                    Ok(own) if own == *name => Ok(()),
                    _ => self.turn(former, Turn::Rename(name)),
                }
            }
            ["start", name] => match id(self, name) {
                Some(id) => self.turn(&id, Turn::Start),
                None => Err(format!("there is no container {name}")),
            },
            ["restart", name] => match id(self, name) {
                Some(id) => self.turn(&id, Turn::Restart(10)),
                None => Err(format!("there is no container {name}")),
            },
            ["stop", name] => match id(self, name) {
                Some(id) => self.turn(&id, Turn::Stop(10)),
                None => Ok(()),
            },
            ["unmake-network", name] => {
                let is_own = (self.networks.get(*name)).is_some_and(|found| found.labels.contains_key(MADE));
                match is_own && !self.is_used(name) {
                    true => self.remove_network(name),
                    false => Ok(()),
                }
            }
            _ => return None,
        })
    }

    fn is_used(&self, network: &str) -> bool {
        let mut all = self.containers.values();
        all.any(|made| made.container.state.is_up() && made.container.networks.contains(network))
    }

    fn remove_network(&mut self, name: &str) -> Result<(), String> {
        if self.is_used(name) {
            return Err(format!(
                "the container engine refused: network {name} has active endpoints"
            ));
        }
        self.act(format!("remove network {name}"))?;
        self.networks.remove(name);
        Ok(())
    }
}

fn running() -> State {
    State {
        status: "running".to_owned(),
        ..State::default()
    }
}

impl Engine for SimEngine {
    fn container(&self, name: &str) -> Result<Option<Container>, String> {
        Ok(self
            .answering()?
            .containers
            .get(name)
            .map(|made| made.container.clone()))
    }

    fn is_there(&self) -> bool {
        true
    }

    fn woken_by_asking(&self) -> Option<&'static str> {
        Some("docker.service")
    }

    fn containers(&self) -> Result<Vec<Listed>, String> {
        let sim = self.answering()?;
        let listed = sim.containers.iter().map(|(name, made)| Listed {
            id: made.container.id.clone(),
            name: name.clone(),
            image: made.container.image.clone(),
            status: made.container.state.status.clone(),
            networks: made.container.networks.clone(),
            volumes: made.volumes.clone(),
        });
        Ok(listed.collect())
    }

    fn image(&self, reference: &str) -> Result<Option<Image>, String> {
        let sim = self.answering()?;
        let known = sim.images.get(reference).cloned();
        let id = known.or_else(|| sim.images.values().find(|id| *id == reference).cloned());
        Ok(id.map(|id| Image {
            made_at: sim.dates.get(&id).cloned(),
            id,
        }))
    }

    fn pull(&self, reference: &str) -> Result<(), String> {
        let mut sim = self.answering()?;
        let Some(id) = sim.registry.get(reference).cloned() else {
            return Err(format!("the container engine refused: no such image {reference}"));
        };
        sim.act(format!("pull {reference}"))?;
        sim.images.insert(reference.to_owned(), id);
        Ok(())
    }

    fn remove_image(&self, id: &str) -> Result<(), String> {
        let mut sim = self.answering()?;
        if sim.containers.values().any(|made| made.container.image_id == id) {
            return Ok(());
        }
        sim.act(format!("remove image {id}"))?;
        sim.images.retain(|_, own| own != id);
        Ok(())
    }

    fn make(&self, new: &New<'_>) -> Result<(), String> {
        let mut sim = self.answering()?;
        if sim.containers.contains_key(new.name) {
            return Err(format!(
                "the container engine refused: the name {} is in use",
                new.name
            ));
        }
        if !sim.images.values().any(|id| id == new.image) {
            return Err(format!(
                "the container engine refused: no such image {}",
                new.image
            ));
        }
        sim.act(format!("make {}", new.name))?;
        let id = sim.next_id();
        let spec = new.spec;
        let volumes: BTreeSet<String> = spec
            .mounts
            .iter()
            .filter_map(|mount| mount.volume.clone())
            .collect();
        for volume in &volumes {
            // As engines do: a volume that is not there comes with the container.
            sim.volumes.entry(volume.clone()).or_insert(false);
        }
        let mut labels = spec.labels.clone();
        labels.extend(new.labels.clone());
        let container = Container {
            id,
            image: spec.image.clone(),
            image_id: new.image.to_owned(),
            labels,
            networks: spec.networks.first().cloned().into_iter().collect(),
            state: State {
                status: "created".to_owned(),
                ..State::default()
            },
            ..Container::default()
        };
        let made = Made {
            container,
            env: spec.env.lines(),
            host_ports: spec
                .ports
                .iter()
                .map(|port| format!("{}/{}", port.host, port.protocol.word()))
                .collect(),
            volumes,
        };
        sim.containers.insert(new.name.to_owned(), made);
        Ok(())
    }

    fn turn(&self, id: &str, turn: Turn<'_>) -> Result<(), String> {
        self.answering()?.turn(id, turn)
    }

    fn wait(&self, id: &str, _bound: Duration) -> Result<Option<i64>, String> {
        let sim = self.answering()?;
        let name = sim.name_of(id)?;
        let state = sim.containers.get(&name).map(|made| made.container.state.clone());
        Ok(state.filter(|state| !state.is_up()).map(|state| state.exit_code))
    }

    fn network(&self, name: &str) -> Result<Option<Network>, String> {
        Ok(self.answering()?.networks.get(name).cloned())
    }

    fn make_network(&self, name: &str, network: &Network) -> Result<(), String> {
        let mut sim = self.answering()?;
        sim.act(format!("make network {name}"))?;
        sim.networks.insert(name.to_owned(), network.clone());
        Ok(())
    }

    fn remove_network(&self, name: &str) -> Result<(), String> {
        self.answering()?.remove_network(name)
    }

    fn volumes(&self) -> Result<Vec<Volume>, String> {
        let sim = self.answering()?;
        let volumes = sim.volumes.iter().map(|(name, is_own)| Volume {
            name: name.clone(),
            path: format!("/var/lib/volumes/{name}"),
            is_own: *is_own,
        });
        Ok(volumes.collect())
    }

    fn make_volume(&self, name: &str, labels: &BTreeMap<String, String>) -> Result<(), String> {
        let mut sim = self.answering()?;
        sim.act(format!("make volume {name}"))?;
        sim.volumes.insert(name.to_owned(), labels.contains_key(MADE));
        Ok(())
    }

    fn undo(&self, words: &[&str]) -> Result<Vec<String>, String> {
        let argv = LAUNCHER.into_iter().chain(words.iter().copied());
        Ok(argv.map(str::to_owned).collect())
    }
}
