//! What a container is made from (HK-8), in one form: the form that is compared, and the one that the engine is asked
//! with.
//!
//! Stands alone because "is it the same container" must have one answer. An engine's own description adds variables,
//! networks and spellings, so a container carries the digest of this form as a label, and that is compared. Invariant: sets
//! are sets here, so an order that nobody changed changes no digest; everything that a running container cannot read anew
//! is in it, and nothing else (not when it runs, nor who watches it).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::texts::CAPABILITIES;
use meshplan_schemas::resource::containers::{Container, Healthcheck, Mount, Port};
use meshplan_schemas::resource::programs::{Limits, Restart, Run};
use serde::Serialize;
use zeroize::Zeroizing;

/// The label with the digest of what a container was made from.
pub const SPEC: &str = "meshplan.spec";
/// The label with the image as it was asked for: a tag is resolved when the container is made.
pub const IMAGE: &str = "meshplan.image";
/// The label of networks and volumes that the host made.
pub const MADE: &str = "meshplan.made";
/// What the host's own labels begin with.
const OWN: &str = "meshplan.";
/// The end of the name of a container that waits, stopped, for the confirm of its successor.
pub const FORMER: &str = ".meshplan-old";
/// The form of [`Spec`]; another one makes every container anew.
const VERSION: u32 = 1;
/// The longest name of a scheduled container: its units have it with a word before.
const SCHEDULED_NAME: usize = 53;

/// What a container is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Spec {
    version: u32,
    /// The image as it was asked for.
    pub image: String,
    /// Instead of the image's command.
    pub command: Option<Vec<String>>,
    /// Instead of the image's entry point.
    pub entrypoint: Option<Vec<String>>,
    /// Its whole environment, files included.
    pub env: Environment,
    /// Folders and volumes.
    pub mounts: BTreeSet<Mount>,
    /// Published ports.
    pub ports: BTreeSet<Port>,
    /// Networks that it is in.
    pub networks: BTreeSet<String>,
    /// It has the machine's network.
    pub host_network: bool,
    /// `name:address`.
    pub hosts: BTreeSet<String>,
    /// Capabilities: these and no others.
    pub capabilities: BTreeSet<String>,
    /// Who it runs as.
    pub user: Option<String>,
    /// What it may take.
    pub limits: Limits,
    /// Whether it works.
    pub healthcheck: Option<Box<Healthcheck>>,
    /// Labels of the fleet's.
    pub labels: BTreeMap<String, String>,
    /// Devices.
    pub devices: BTreeSet<String>,
    /// Folders in memory.
    pub tmpfs: BTreeSet<String>,
    /// Shared memory.
    pub shm_mib: Option<u32>,
    /// A small init.
    pub init: bool,
    /// Kernel settings of its own.
    pub sysctls: BTreeMap<String, String>,
    /// When the engine starts it again.
    pub restart: Restart,
    /// How long it has to stop.
    pub stop_secs: u32,
}

/// An environment, whose values are in no words: some are secrets.
#[derive(Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// `NAME=value`, in the order of the names.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let pairs = self.0.iter();
        pairs.map(|(name, value)| format!("{name}={value}")).collect()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

impl Spec {
    /// Brings what is asked into the one form. `files` are the environment files with their bytes, in their order; a later
    /// one stands above a former, and what is written out above all.
    ///
    /// # Errors
    /// In words, without a value: a file is no environment.
    pub fn of(container: &Container, files: &[(String, Zeroizing<Vec<u8>>)]) -> Result<Self, String> {
        let mut env = BTreeMap::new();
        for (path, bytes) in files {
            env.extend(environment(path, bytes)?);
        }
        env.extend(container.env.0.clone());
        let plain = container.clone();
        Ok(Self {
            version: VERSION,
            image: plain.image,
            command: plain.command,
            entrypoint: plain.entrypoint,
            env: Environment(env),
            mounts: plain.mounts,
            ports: plain.ports,
            networks: plain.networks,
            host_network: plain.host_network,
            hosts: plain.hosts,
            capabilities: plain.capabilities,
            user: plain.user,
            limits: plain.limits,
            healthcheck: plain.healthcheck,
            labels: plain.labels.0,
            devices: plain.devices,
            tmpfs: plain.tmpfs,
            shm_mib: plain.shm_mib,
            init: plain.init,
            sysctls: plain.sysctls.0,
            restart: match plain.run {
                Run::Daemon => plain.restart,
                Run::Once | Run::Scheduled => Restart::Never,
            },
            stop_secs: plain.stop_secs,
        })
    }

    /// By what two are the same.
    ///
    /// # Errors
    /// It has no canonical bytes, which does not happen for this type.
    pub fn digest(&self) -> Result<Digest, String> {
        Digest::of_value(self).map_err(|e| e.to_string())
    }
}

/// The lines of an environment file, as container engines read them: `NAME=value`, the value as it stands; empty lines and
/// those that begin with `#` say nothing.
fn environment(path: &str, bytes: &[u8]) -> Result<Vec<(String, String)>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| format!("{path} is no text in UTF-8"))?;
    let mut pairs = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = at + 1;
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| format!("line {number} of {path} is not `NAME=value`"))?;
        let is_name = !name.is_empty() && !name.chars().any(|c| c.is_whitespace() || c.is_control());
        if !is_name || value.contains('\0') {
            return Err(format!("line {number} of {path} is not `NAME=value`"));
        }
        pairs.push((name.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

/// Whether a name can be one of a container, network or volume: one path component.
#[must_use]
pub fn is_name(name: &str) -> bool {
    name.len() <= 63
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
        && !name.ends_with(FORMER)
}

/// The name under which a container waits for the confirm of its successor.
#[must_use]
pub fn former_of(name: &str) -> String {
    format!("{name}{FORMER}")
}

/// What keeps a container from being made; none where nothing does.
#[must_use]
pub fn unmakeable(container: &Container) -> Option<String> {
    let Container { name, image, .. } = container;
    if !is_name(name) {
        return Some(format!(
            "{:?} is no name: letters, digits, `_`, `.` and `-`, 63 at most, and not `{FORMER}` at the end",
            name.chars().take(100).collect::<String>()
        ));
    }
    if image.is_empty()
        || image.starts_with('-')
        || image.chars().any(|c| c.is_whitespace() || c.is_control())
    {
        return Some("its image is none".to_owned());
    }
    if let Some(none) = (container.capabilities.iter()).find(|name| !CAPABILITIES.contains(&name.as_str())) {
        return Some(format!(
            "{none:?} is no capability; they are named without `CAP_`"
        ));
    }
    let own = container.labels.0.keys().find(|label| label.starts_with(OWN));
    if let Some(own) = own {
        return Some(format!(
            "the label {own:?} is the host's own: `{OWN}` begins none of a fleet's"
        ));
    }
    for mount in &container.mounts {
        if mount.source.is_some() == mount.volume.is_some() || !mount.target.starts_with('/') {
            return Some(format!(
                "the mount at {:?} has not exactly one of `source` and `volume`, or its place is no absolute path",
                mount.target
            ));
        }
    }
    if container.host_network && !(container.networks.is_empty() && container.ports.is_empty()) {
        return Some("with the machine's network it joins no other and publishes no port".to_owned());
    }
    if !container.while_stopped.is_empty() && container.run != Run::Scheduled {
        return Some("`while_stopped` is for what is scheduled".to_owned());
    }
    let schedule = &container.schedule;
    let is_scheduled = container.run == Run::Scheduled;
    if is_scheduled != (schedule.calendar.is_some() != schedule.every_secs.is_some()) {
        return Some("a scheduled one has a calendar or an interval, and no other has either".to_owned());
    }
    if is_scheduled && name.len() > SCHEDULED_NAME {
        return Some(format!(
            "the name of a scheduled one has {SCHEDULED_NAME} letters at most"
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(change: serde_json::Value) -> Container {
        let mut spec = json!({
            "name": "web", "image": "web:1", "run": "daemon", "restart": "always", "stop_secs": 10,
            "timeout_secs": 60, "witness": "none",
        });
        let fields = change.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(spec).unwrap()
    }

    fn digest(change: serde_json::Value) -> Digest {
        Spec::of(&container(change), &[]).unwrap().digest().unwrap()
    }

    // holds: HK-8, B38
    #[test]
    fn an_order_that_nobody_changed_is_the_same_container_and_any_change_is_another() {
        let mount = |target: &str| json!({ "source": "/srv", "target": target });
        let one = json!({
            "networks": ["a", "b"], "hosts": ["x:1.2.3.4", "y:1.2.3.5"], "capabilities": ["CHOWN", "KILL"],
            "mounts": [mount("/a"), mount("/b")], "tmpfs": ["/t", "/u"], "devices": ["/dev/a", "/dev/b"],
            "ports": [{ "host": 1, "container": 1, "protocol": "tcp" }, { "host": 2, "container": 2, "protocol": "tcp" }],
            "env": { "A": "1", "B": "2" },
        });
        let other = json!({
            "networks": ["b", "a"], "hosts": ["y:1.2.3.5", "x:1.2.3.4"], "capabilities": ["KILL", "CHOWN"],
            "mounts": [mount("/b"), mount("/a")], "tmpfs": ["/u", "/t"], "devices": ["/dev/b", "/dev/a"],
            "ports": [{ "host": 2, "container": 2, "protocol": "tcp" }, { "host": 1, "container": 1, "protocol": "tcp" }],
            "env": { "B": "2", "A": "1" },
        });
        assert_eq!(digest(one), digest(other));
        let plain = digest(json!({}));
        // Who watches it and how long it may run are not in the container.
        assert_eq!(digest(json!({ "witness": "lease", "timeout_secs": 5 })), plain);
        for change in [
            json!({ "image": "web:2" }),
            json!({ "command": ["x"] }),
            json!({ "entrypoint": ["x"] }),
            json!({ "env": { "A": "1" } }),
            json!({ "mounts": [mount("/a")] }),
            json!({ "ports": [{ "host": 1, "container": 1, "protocol": "tcp" }] }),
            json!({ "networks": ["a"] }),
            json!({ "host_network": true }),
            json!({ "hosts": ["x:1.2.3.4"] }),
            json!({ "capabilities": ["KILL"] }),
            json!({ "user": "7" }),
            json!({ "limits": { "memory_mib": 5 } }),
            json!({ "healthcheck": { "command": ["x"], "every_secs": 1, "timeout_secs": 1, "retries": 1, "start_secs": 1 } }),
            json!({ "labels": { "a": "b" } }),
            json!({ "devices": ["/dev/a"] }),
            json!({ "tmpfs": ["/t"] }),
            json!({ "shm_mib": 5 }),
            json!({ "init": true }),
            json!({ "sysctls": { "net.core.somaxconn": "5" } }),
            json!({ "restart": "never" }),
            json!({ "stop_secs": 11 }),
        ] {
            assert_ne!(digest(change.clone()), plain, "{change}");
        }
    }

    // holds: HK-8, FR-9
    #[test]
    fn files_of_the_environment_count_in_their_order_and_no_value_is_in_any_word() {
        let container = container(json!({ "env": { "C": "written" }, "env_files": ["/a", "/b"] }));
        let files = |text: &str| {
            vec![
                ("/a".to_owned(), Zeroizing::new(b"A=1\nB=1\nC=1\n".to_vec())),
                ("/b".to_owned(), Zeroizing::new(text.as_bytes().to_vec())),
            ]
        };
        let spec = Spec::of(&container, &files("# said\n\nB=s3cret = \"x\" \n")).unwrap();
        assert_eq!(spec.env.lines(), ["A=1", "B=s3cret = \"x\" ", "C=written"]);
        assert!(!format!("{spec:?}").contains("s3cret"));
        let other = Spec::of(&container, &files("B=2\n")).unwrap();
        assert_ne!(spec.digest(), other.digest());
        for bad in ["s3cret", "=s3cret", "A B=s3cret"] {
            let why = Spec::of(&container, &files(&format!("B=2\n{bad}\n"))).unwrap_err();
            assert_eq!(why, "line 2 of /b is not `NAME=value`");
        }
    }

    // holds: HK-8
    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        assert_eq!(unmakeable(&container(json!({}))), None);
        for (bad, words) in [
            (json!({ "name": "../x" }), "is no name"),
            (json!({ "name": "web.meshplan-old" }), "is no name"),
            (json!({ "image": "" }), "image"),
            (json!({ "capabilities": ["ALL"] }), "\"ALL\" is no capability"),
            (json!({ "capabilities": ["CAP_KILL"] }), "no capability"),
            (json!({ "labels": { "meshplan.spec": "x" } }), "the host's own"),
            (json!({ "mounts": [{ "target": "/a" }] }), "exactly one"),
            (
                json!({ "mounts": [{ "target": "/a", "source": "/a", "volume": "a" }] }),
                "exactly one",
            ),
            (
                json!({ "host_network": true, "networks": ["a"] }),
                "machine's network",
            ),
            (json!({ "while_stopped": ["a"] }), "while_stopped"),
            (json!({ "run": "scheduled" }), "calendar"),
            (json!({ "schedule": { "every_secs": 5 } }), "calendar"),
        ] {
            let why = unmakeable(&container(bad.clone())).unwrap_or_default();
            assert!(why.contains(words), "{bad}: {why}");
        }
        let privileged = json!({ "name": "a", "image": "a", "run": "daemon", "restart": "always", "stop_secs": 1,
            "timeout_secs": 1, "witness": "none", "privileged": true });
        assert!(serde_json::from_value::<Container>(privileged).is_err());
    }
}
