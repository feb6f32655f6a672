//! `[[container]]`, `[[network]]`, `[[volume]]` (HK-8, HK-10).

use super::programs::LimitsFile;
use super::resource_table::resource;
use crate::document::calendar::Calendar;
use crate::document::read::{At, RefusedKey, table};
use crate::document::reference::Reference;
use crate::document::scalar::{Int, Secs, SomeSecs, TargetPath};
use crate::document::texts::{
    Argv, Capability, Cidr, Env, ImageRef, Labels, Line, ProgramName, SecretName, Sysctls,
};
use crate::document::words::words;
use crate::ident::ResourceId;
use crate::resource::containers::Protocol;
use crate::resource::programs::{Restart, Run, Witness};

const CONTAINER_REFUSED: &[RefusedKey] = &[
    (
        "privileged",
        "`{}` does not exist: name the capabilities and devices that it needs",
    ),
    (
        "replaces",
        "`{}` is for a process: a container that takes another's name is made in its place",
    ),
];

words! {
    /// Where a container's output goes: one place only.
    pub enum Logging {
        /// The machine's journal.
        Journald = "journald",
    }
}

resource! {
    /// A container of the machine's container runtime.
    pub struct ContainerResource refuses CONTAINER_REFUSED;
    /// The container's name; the id where it is left out.
    "name" name: Option<At<ProgramName>>,
    /// The image: `name@sha256:...`, or `name:tag`, whose digest is looked up and recorded.
    "image" image: At<ImageRef>,
    /// Instead of the image's command.
    "command" command: Option<At<Argv>>,
    /// Instead of the image's entry point.
    "entrypoint" entrypoint: Option<At<Argv>>,
    /// How it runs: for ever, once for each build of it, or by a timer.
    "run" run: At<Run> = At { value: Run::Daemon, span: 0..0 },
    /// When a scheduled one runs, as systemd writes it: `Mon *-*-* 02:30 Europe/Brussels`.
    "calendar" calendar: Option<At<Calendar>>,
    /// Instead of `calendar`: so many seconds after the last run began.
    "every_secs" every_secs: Option<At<SomeSecs>>,
    /// When a daemon is started again.
    "restart" restart: Option<At<Restart>>,
    /// After how long a run that is no daemon is ended.
    "timeout_secs" timeout_secs: SomeSecs = Int(3600),
    /// How long it has to stop.
    "stop_secs" stop_secs: Secs = Int(10),
    /// Its environment.
    "env" env: Env,
    /// Files of the machine that hold its environment.
    "env_files" env_files: Vec<At<TargetPath>>,
    /// Secrets that hold its environment.
    "env_secrets" env_secrets: Vec<At<SecretName>>,
    /// Folders and volumes in it.
    "mounts" mounts: Vec<At<MountFile>>,
    /// Ports of the machine that lead into it.
    "ports" ports: Vec<At<PortFile>>,
    /// Networks that it joins: ids of this module's, or `<module>.<id>`.
    "networks" networks: Vec<At<Reference>>,
    /// It has the machine's network.
    "host_network" host_network: At<bool> = At { value: false, span: 0..0 },
    /// Further names in its hosts file.
    "hosts" hosts: Vec<HostFile>,
    /// Where its output goes.
    "logging" logging: Logging = Logging::Journald,
    /// Capabilities, exactly these, without `CAP_`.
    "capabilities" capabilities: Vec<At<Capability>>,
    /// Who it runs as, as `user`, `uid` or `uid:gid`.
    "user" user: Option<At<Line>>,
    /// What it may take.
    "limits" limits: Option<LimitsFile>,
    /// Whether it works.
    "healthcheck" healthcheck: Option<At<HealthcheckFile>>,
    /// Labels.
    "labels" labels: Labels,
    /// Devices of the machine.
    "devices" devices: Vec<At<TargetPath>>,
    /// Folders in memory.
    "tmpfs" tmpfs: Vec<At<TargetPath>>,
    /// Shared memory, in MiB.
    "shm_mib" shm_mib: Option<Int<1, 1_048_576>>,
    /// A small init reaps what it leaves.
    "init" init: bool = false,
    /// Kernel settings of its own.
    "sysctls" sysctls: Sysctls,
    /// Ids of daemons of the module that are stopped around a scheduled run.
    "while_stopped" while_stopped: Vec<At<ResourceId>>,
    /// A command of the same image that must complete before a daemon of a new build starts.
    "prepares" prepares: Option<At<Argv>>,
    /// Who says that a new build works; by its name where it is left out.
    "witness" witness: Option<At<Witness>>,
    /// The probe of the module that is its witness.
    "probe" probe: Option<At<ResourceId>>,
}

table! {
    /// A folder or volume in a container: exactly one of `source`, `volume`.
    pub struct MountFile;
    /// A path of the machine.
    "source" source: Option<At<TargetPath>>,
    /// A volume: an id of this module, or `<module>.<id>`.
    "volume" volume: Option<At<Reference>>,
    /// Where, in the container.
    "target" target: At<TargetPath>,
    /// It cannot be written to.
    "read_only" read_only: bool = false,
}

table! {
    /// A port of the machine that leads into a container.
    pub struct PortFile;
    /// The machine's port.
    "host" host: At<Int<1, 65_535>>,
    /// The container's port; the machine's where it is left out.
    "container" container: Option<Int<1, 65_535>>,
    /// What it speaks.
    "protocol" protocol: Protocol = Protocol::Tcp,
    /// The machine's address that it listens on; all where it is left out.
    "address" address: Option<At<Cidr>>,
}

table! {
    /// A further name in a container's hosts file.
    pub struct HostFile;
    /// The name.
    "name" name: Line,
    /// Its address.
    "address" address: Line,
}

table! {
    /// Whether a container works.
    pub struct HealthcheckFile;
    /// The command, in the container; exit code 0 is healthy.
    "command" command: At<Argv>,
    /// Seconds between checks.
    "every_secs" every_secs: SomeSecs = Int(30),
    /// After how long no answer is "no".
    "timeout_secs" timeout_secs: SomeSecs = Int(10),
    /// How many "no" in a row make it unhealthy.
    "retries" retries: Int<1, 1000> = Int(3),
    /// Seconds after the start in which a "no" does not count.
    "start_secs" start_secs: Secs = Int(0),
}

resource! {
    /// A network of containers.
    pub struct NetworkResource;
    /// The network's name; the id where it is left out.
    "name" name: Option<At<ProgramName>>,
    /// Its addresses, as `10.9.0.0/24`.
    "subnet" subnet: Option<At<Cidr>>,
    /// It has no way out.
    "internal" internal: bool = false,
    /// Labels.
    "labels" labels: Labels,
}

resource! {
    /// A volume of containers; never removed with its resource.
    pub struct VolumeResource;
    /// The volume's name; the id where it is left out.
    "name" name: Option<At<ProgramName>>,
    /// Labels.
    "labels" labels: Labels,
}
