//! The machine's engine, by its API over its socket: a connection for each question, so that a host at rest holds none.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bollard::errors::Error;
use bollard::models::{ContainerInspectResponse, NetworkConnectRequest, VolumeCreateRequest};
use bollard::query_parameters as query;
use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::{Container, Engine, Image, Listed, Network, New, State, Turn, Volume, request};
use crate::edge::command::cut;
use crate::edge::scrub;
use crate::edge::system::block;
use crate::pure::container_spec::MADE;

/// Where engines listen: Docker's first, Podman's where there is none.
const SOCKETS: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];
/// The unit behind the first of them.
const DOCKER: &str = "docker.service";
/// How long the engine may take to answer a question.
const ANSWER: Duration = Duration::from_secs(60);
/// How long one that did not answer is not asked again.
const SILENCE: Duration = Duration::from_secs(30);
/// How long an image may take to come.
const PULL: Duration = Duration::from_secs(900);

/// The client's own bound: each question has one of ours.
const NEVER_SECS: u64 = 86_400;

/// How long the version that an engine speaks is known: Podman takes seconds to tell it.
const KNOWN: Duration = Duration::from_secs(300);

/// The versions that engines speak, by their sockets.
static VERSIONS: Mutex<BTreeMap<PathBuf, (Instant, ClientVersion)>> = Mutex::new(BTreeMap::new());

fn versions() -> MutexGuard<'static, BTreeMap<PathBuf, (Instant, ClientVersion)>> {
    VERSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The engine behind a socket.
#[derive(Debug, Clone)]
pub struct RealEngine {
    /// Where it listens; none where nothing is said, so that it is looked for with each question.
    socket: Option<PathBuf>,
    /// The launcher, which walks the way back.
    launcher: Option<PathBuf>,
    /// When it last did not answer in time: for a while then it is not asked, or each thing on the machine would wait for it.
    silent_since: Arc<Mutex<Option<Instant>>>,
}

impl RealEngine {
    /// Whichever engine the machine has when it is asked.
    #[must_use]
    pub fn of_the_machine(launcher: Option<PathBuf>) -> Self {
        Self {
            socket: None,
            launcher,
            silent_since: Arc::default(),
        }
    }

    /// The engine behind this socket.
    #[must_use]
    pub fn at(socket: &Path, launcher: Option<PathBuf>) -> Self {
        Self {
            socket: Some(socket.to_owned()),
            launcher,
            silent_since: Arc::default(),
        }
    }

    fn socket(&self) -> Result<PathBuf, String> {
        let known = SOCKETS.map(PathBuf::from);
        // One that is there and does not answer is not passed over: what it has would be taken for gone.
        let found = self
            .socket
            .clone()
            .or_else(|| known.into_iter().find(|path| path.exists()));
        found.ok_or_else(|| {
            format!(
                "this machine has no container engine: neither {} nor {} is there",
                SOCKETS[0], SOCKETS[1]
            )
        })
    }

    async fn open(&self) -> Result<Docker, String> {
        let socket = self.socket()?;
        let path = socket
            .to_str()
            .ok_or("the engine's socket has a name that is no text")?;
        let known = versions().get(&socket).copied();
        let known = known.filter(|(since, _)| since.elapsed() < KNOWN);
        let version = known.map_or(*API_DEFAULT_VERSION, |(_, version)| version);
        let engine = Docker::connect_with_unix(path, NEVER_SECS, &version).map_err(|e| said(&e))?;
        if known.is_some() {
            return Ok(engine);
        }
        let engine = engine.negotiate_version().await.map_err(|e| said(&e))?;
        versions().insert(socket, (Instant::now(), engine.client_version()));
        Ok(engine)
    }

    /// Asks, within a bound.
    fn ask<T: Send, F: Future<Output = Result<T, Error>> + Send>(
        &self,
        bound: Duration,
        question: impl FnOnce(Docker) -> F + Send,
    ) -> Result<Result<T, Error>, String> {
        let silent = |secs: u64| Err(format!("the container engine did not answer within {secs} s"));
        let mut since = self.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_some_and(|since| since.elapsed() < SILENCE) {
            return silent(bound.as_secs());
        }
        *since = None;
        drop(since);
        let answered = block(async {
            let asked = async { Ok(question(self.open().await?).await) };
            tokio::time::timeout(bound, asked).await
        })?;
        answered.unwrap_or_else(|_| {
            *self.silent_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            silent(bound.as_secs())
        })
    }

    /// Asks for something that has to be there, or to be done.
    fn get<T: Send, F: Future<Output = Result<T, Error>> + Send>(
        &self,
        bound: Duration,
        question: impl FnOnce(Docker) -> F + Send,
    ) -> Result<T, String> {
        self.ask(bound, question)?.map_err(|e| said(&e))
    }

    /// Asks for something that may not be there.
    fn find<T: Send, F: Future<Output = Result<T, Error>> + Send>(
        &self,
        question: impl FnOnce(Docker) -> F + Send,
    ) -> Result<Option<T>, String> {
        match self.ask(ANSWER, question)? {
            Ok(found) => Ok(Some(found)),
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
            Err(e) => Err(said(&e)),
        }
    }

    /// A container, for whoever stands in a runtime of its own.
    ///
    /// # Errors
    /// In words: the engine did not answer.
    pub async fn look(&self, name: &str) -> Result<Option<Container>, String> {
        let engine = self.open().await?;
        match engine
            .inspect_container(name, None::<query::InspectContainerOptions>)
            .await
        {
            Ok(found) => Ok(named(found, name)),
            Err(Error::DockerResponseServerError { status_code: 404, .. }) => Ok(None),
            Err(e) => Err(said(&e)),
        }
    }
}

/// What the engine says when it refuses, without values of secrets.
fn said(error: &Error) -> String {
    let words = match error {
        Error::DockerResponseServerError { message, .. } => {
            format!("the container engine refused: {message}")
        }
        Error::DockerStreamError { error } => format!("the container engine refused: {error}"),
        other => format!("the container engine cannot be asked: {other}"),
    };
    cut(&scrub::scrubbed(words))
}

/// The container, if it is the one of this name: an engine takes the beginning of an id for a name as well.
fn named(found: ContainerInspectResponse, name: &str) -> Option<Container> {
    if found.name.as_deref().map(|own| own.trim_start_matches('/')) != Some(name) {
        return None;
    }
    let state = found.state.unwrap_or_default();
    let config = found.config.unwrap_or_default();
    let networks = found
        .network_settings
        .and_then(|settings| settings.networks)
        .unwrap_or_default();
    let mounts = found.mounts.unwrap_or_default().into_iter().map(|mount| {
        let source = mount.name.or(mount.source).unwrap_or_default();
        format!("{source}:{}", mount.destination.unwrap_or_default())
    });
    let bound = found
        .host_config
        .and_then(|machine| machine.port_bindings)
        .unwrap_or_default();
    let ports = bound.into_iter().flat_map(|(inside, outside)| {
        let outside = outside.unwrap_or_default().into_iter();
        outside.map(move |port| {
            let address = port.host_ip.filter(|address| !address.is_empty());
            let address = address.map_or_else(String::new, |address| format!("{address}:"));
            format!("{address}{}->{inside}", port.host_port.unwrap_or_default())
        })
    });
    let health = state
        .health
        .and_then(|health| health.status)
        .map(|status| status.to_string());
    Some(Container {
        id: found.id.unwrap_or_default(),
        image: config.image.unwrap_or_default(),
        image_id: found.image.unwrap_or_default(),
        labels: config.labels.unwrap_or_default().into_iter().collect(),
        networks: networks.into_keys().collect(),
        mounts: mounts.collect(),
        ports: ports.collect(),
        state: State {
            status: state.status.map(|status| status.to_string()).unwrap_or_default(),
            restarts: found.restart_count.unwrap_or_default(),
            started_at: state.started_at.unwrap_or_default(),
            health: health.filter(|health| !health.is_empty() && health != "none"),
            exit_code: state.exit_code.unwrap_or_default(),
        },
    })
}

/// With its tag, or an engine would fetch all of them.
fn with_tag(reference: &str) -> String {
    let last = reference.rsplit('/').next().unwrap_or(reference);
    if last.contains(':') || last.contains('@') {
        reference.to_owned()
    } else {
        format!("{reference}:latest")
    }
}

impl Engine for RealEngine {
    fn container(&self, name: &str) -> Result<Option<Container>, String> {
        let options = None::<query::InspectContainerOptions>;
        let found = self.find(|engine| async move { engine.inspect_container(name, options).await })?;
        Ok(found.and_then(|found| named(found, name)))
    }

    fn is_there(&self) -> bool {
        self.socket().is_ok()
    }

    fn woken_by_asking(&self) -> Option<&'static str> {
        // Podman's service ends by itself when nobody asks, and starts nothing when it is asked.
        let is_dockers = self.socket.is_none() && Path::new(SOCKETS[0]).exists();
        is_dockers.then_some(DOCKER)
    }

    fn containers(&self) -> Result<Vec<Listed>, String> {
        let all = query::ListContainersOptionsBuilder::new().all(true).build();
        let found = self.get(
            ANSWER,
            |engine| async move { engine.list_containers(Some(all)).await },
        )?;
        let listed = found.into_iter().map(|one| {
            let name = one
                .names
                .unwrap_or_default()
                .into_iter()
                .next()
                .unwrap_or_default();
            let networks = one.network_settings.and_then(|settings| settings.networks);
            let mounts = one.mounts.unwrap_or_default().into_iter();
            Listed {
                id: one.id.unwrap_or_default(),
                image: one.image.unwrap_or_default(),
                status: one.state.map(|state| state.to_string()).unwrap_or_default(),
                name: name.trim_start_matches('/').to_owned(),
                networks: networks.unwrap_or_default().into_keys().collect(),
                volumes: mounts.filter_map(|mount| mount.name).collect(),
            }
        });
        Ok(listed.collect())
    }

    fn image(&self, reference: &str) -> Result<Option<Image>, String> {
        let tagged = with_tag(reference);
        // One that was loaded and not pulled has no digest of a registry: it is known by its own.
        let own = reference.split_once('@').map(|(_, digest)| digest.to_owned());
        for name in std::iter::once(tagged).chain(own) {
            let name = &name;
            if let Some(found) = self.find(|engine| async move { engine.inspect_image(name).await })? {
                let id = found
                    .id
                    .ok_or_else(|| format!("the image {reference} has no id"))?;
                return Ok(Some(Image {
                    id,
                    made_at: found.created.filter(|made| !made.is_empty()),
                }));
            }
        }
        Ok(None)
    }

    fn pull(&self, reference: &str) -> Result<(), String> {
        let options = query::CreateImageOptionsBuilder::new()
            .from_image(&with_tag(reference))
            .build();
        self.get(PULL, |engine| async move {
            engine
                .create_image(Some(options), None, None)
                .try_for_each(async |_| Ok(()))
                .await
        })
    }

    fn remove_image(&self, id: &str) -> Result<(), String> {
        let options = query::RemoveImageOptionsBuilder::new().build();
        let gone = self.ask(ANSWER, |engine| async move {
            engine.remove_image(id, Some(options), None).await
        })?;
        match gone {
            Ok(_) => Ok(()),
            // Something has it, or it is gone.
            Err(Error::DockerResponseServerError {
                status_code: 404 | 409,
                ..
            }) => Ok(()),
            Err(e) => Err(said(&e)),
        }
    }

    fn make(&self, new: &New<'_>) -> Result<(), String> {
        let options = query::CreateContainerOptionsBuilder::new().name(new.name).build();
        let made = self.get(ANSWER, |engine| async move {
            let parts = engine.version().await?.components.unwrap_or_default();
            let is_podman = parts.iter().any(|part| part.name.starts_with("Podman"));
            let body = request::container(new, is_podman);
            engine.create_container(Some(options), body).await
        })?;
        for warning in made.warnings {
            tracing::warn!(name = new.name, warning = %scrub::scrubbed(warning), "the container engine warns");
        }
        Ok(())
    }

    fn turn(&self, id: &str, turn: Turn<'_>) -> Result<(), String> {
        let secs = |secs: u32| i32::try_from(secs).unwrap_or(i32::MAX);
        match turn {
            Turn::Start => self.get(ANSWER, |engine| async move {
                engine
                    .start_container(id, None::<query::StartContainerOptions>)
                    .await
            }),
            Turn::Stop(grace) => {
                let options = query::StopContainerOptionsBuilder::new().t(secs(grace)).build();
                let bound = ANSWER.saturating_add(Duration::from_secs(grace.into()));
                self.get(bound, |engine| async move {
                    engine.stop_container(id, Some(options)).await
                })
            }
            Turn::Restart(grace) => {
                let options = query::RestartContainerOptionsBuilder::new()
                    .t(secs(grace))
                    .build();
                let bound = ANSWER.saturating_add(Duration::from_secs(grace.into()));
                self.get(bound, |engine| async move {
                    engine.restart_container(id, Some(options)).await
                })
            }
            Turn::Rename(name) => {
                let options = query::RenameContainerOptionsBuilder::new().name(name).build();
                self.get(ANSWER, |engine| async move {
                    engine.rename_container(id, options).await
                })
            }
            Turn::Join(network) => {
                let body = NetworkConnectRequest {
                    container: id.to_owned(),
                    endpoint_config: None,
                };
                self.get(ANSWER, |engine| async move {
                    engine.connect_network(network, body).await
                })
            }
            Turn::Remove => {
                // Its volumes stay, those without a name too: they may be the only copy (HR-16).
                let options = query::RemoveContainerOptionsBuilder::new().force(true).build();
                self.get(ANSWER, |engine| async move {
                    engine.remove_container(id, Some(options)).await
                })
            }
        }
    }

    fn wait(&self, id: &str, bound: Duration) -> Result<Option<i64>, String> {
        let waited = block(async {
            let engine = self.open().await?;
            let wait = async {
                let mut ends = std::pin::pin!(engine.wait_container(id, None::<query::WaitContainerOptions>));
                match ends.next().await {
                    Some(Ok(end)) => Ok(end.status_code),
                    Some(Err(Error::DockerContainerWaitError { code, .. })) => Ok(code),
                    Some(Err(e)) => Err(said(&e)),
                    None => Err("the container engine ended the wait without an answer".to_owned()),
                }
            };
            match tokio::time::timeout(bound, wait).await {
                Ok(ended) => ended.map(Some),
                Err(_) => Ok(None),
            }
        });
        waited?
    }

    fn network(&self, name: &str) -> Result<Option<Network>, String> {
        let options = None::<query::InspectNetworkOptions>;
        let found = self.find(|engine| async move { engine.inspect_network(name, options).await })?;
        let found = found.filter(|found| found.name.as_deref() == Some(name));
        Ok(found.map(|found| Network {
            subnet: found
                .ipam
                .and_then(|ipam| ipam.config?.into_iter().next()?.subnet),
            is_internal: found.internal.unwrap_or_default(),
            labels: found.labels.unwrap_or_default().into_iter().collect(),
        }))
    }

    fn make_network(&self, name: &str, network: &Network) -> Result<(), String> {
        let body = request::network(name, network);
        self.get(ANSWER, |engine| async move {
            engine.create_network(body).await.map(drop)
        })
    }

    fn remove_network(&self, name: &str) -> Result<(), String> {
        self.get(ANSWER, |engine| async move { engine.remove_network(name).await })
    }

    fn volumes(&self) -> Result<Vec<Volume>, String> {
        let options = None::<query::ListVolumesOptions>;
        let found = self.get(ANSWER, |engine| async move { engine.list_volumes(options).await })?;
        let volumes = found
            .volumes
            .unwrap_or_default()
            .into_iter()
            .map(|volume| Volume {
                name: volume.name,
                path: volume.mountpoint,
                is_own: volume.labels.contains_key(MADE),
            });
        Ok(volumes.collect())
    }

    fn make_volume(&self, name: &str, labels: &BTreeMap<String, String>) -> Result<(), String> {
        let body = VolumeCreateRequest {
            name: Some(name.to_owned()),
            labels: Some(request::labels(labels)),
            ..VolumeCreateRequest::default()
        };
        self.get(ANSWER, |engine| async move {
            engine.create_volume(body).await.map(drop)
        })
    }

    fn undo(&self, words: &[&str]) -> Result<Vec<String>, String> {
        let launcher = self.launcher.as_ref().and_then(|path| path.to_str()).ok_or(
            "there is no meshplan-launcher beside the host, which takes containers back where the host cannot; install \
             both",
        )?;
        let socket = self.socket()?.to_string_lossy().into_owned();
        let argv = [launcher, "container", &socket]
            .into_iter()
            .chain(words.iter().copied());
        Ok(argv.map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    // holds: HK-8
    #[test]
    fn an_engine_that_is_silent_is_given_up_in_time_and_not_asked_about_each_thing() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("engine.sock");
        // The kernel takes the connection; nobody answers.
        let _silent = UnixListener::bind(&socket).unwrap();
        let engine = RealEngine::at(&socket, None);
        let asked = engine.ask(Duration::from_millis(300), |engine| async move {
            engine.version().await
        });
        assert_eq!(
            asked.unwrap_err(),
            "the container engine did not answer within 0 s"
        );
        let begun = Instant::now();
        assert!(engine.container("web").unwrap_err().contains("did not answer"));
        assert!(engine.volumes().unwrap_err().contains("did not answer"));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    // holds: HK-8
    #[test]
    fn no_engine_is_an_error_and_never_no_container() {
        let folder = tempfile::tempdir().unwrap();
        let engine = RealEngine::at(&folder.path().join("none.sock"), None);
        assert!(engine.container("web").unwrap_err().contains("cannot be asked"));
        assert!(
            engine
                .undo(&["remove", "web"])
                .unwrap_err()
                .contains("no meshplan-launcher")
        );
    }

    #[test]
    fn a_name_without_a_tag_does_not_fetch_all_of_them() {
        for (reference, tagged) in [
            ("web", "web:latest"),
            ("host:5000/web", "host:5000/web:latest"),
            ("host:5000/web:1", "host:5000/web:1"),
            ("web@sha256:ab", "web@sha256:ab"),
        ] {
            assert_eq!(with_tag(reference), tagged);
        }
    }
}
