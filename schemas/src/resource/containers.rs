//! Containers, their networks and volumes on the wire (HK-8, HK-10).

use std::collections::BTreeSet;

use super::programs::{Limits, Restart, Run, Schedule, Witness};
use super::wire_table::wire;
use crate::digest::Digest;
use crate::document::texts::{Env, Labels, Sysctls};
use crate::document::words::words;
use crate::ident::ResourceId;

words! {
    /// What a port speaks.
    pub enum Protocol {
        /// TCP.
        Tcp = "tcp",
        /// UDP.
        Udp = "udp",
    }
}

wire! {
    /// A port of the machine that leads into a container.
    pub struct Port;
    /// The machine's port.
    host: u16,
    /// The container's port.
    container: u16,
    /// What it speaks.
    protocol: Protocol;
    maybe
    /// The machine's address that it listens on; all where it is left out.
    address: Option<String>,
}

wire! {
    /// A folder or volume in a container.
    pub struct Mount;
    /// Where, in the container.
    target: String;
    maybe
    /// A path of the machine.
    source: Option<String>,
    /// The name of a volume.
    volume: Option<String>,
    /// It cannot be written to.
    read_only: bool,
}

wire! {
    /// Whether a container works.
    pub struct Healthcheck;
    /// The command, in the container.
    command: Vec<String>,
    /// Seconds between checks.
    every_secs: u32,
    /// After how long no answer is "no", in seconds.
    timeout_secs: u32,
    /// How many "no" in a row make it unhealthy.
    retries: u32,
    /// Seconds after the start in which a "no" does not count.
    start_secs: u32,
}

wire! {
    /// A container (HK-8). What has no order is a set.
    pub struct Container;
    /// Its name.
    name: String,
    /// The image with digest or tag.
    image: String,
    /// How it runs.
    run: Run,
    /// When it is started again.
    restart: Restart,
    /// How long it has to stop, in seconds.
    stop_secs: u32,
    /// After how long a run that is no daemon is ended, in seconds.
    timeout_secs: u32,
    /// Who says that a new build works.
    witness: Witness;
    maybe
    /// Instead of the image's command.
    command: Option<Vec<String>>,
    /// Instead of the image's entry point.
    entrypoint: Option<Vec<String>>,
    /// Its environment.
    env: Env,
    /// Files of the machine that hold its environment.
    env_files: Vec<String>,
    /// Its environment out of secrets: lines as such a file has, under the content digest with which the declaration
    /// carries them sealed (FR-9).
    env_sealed: Option<Box<Digest>>,
    /// Folders and volumes.
    mounts: BTreeSet<Mount>,
    /// Published ports.
    ports: BTreeSet<Port>,
    /// Names of the networks that it joins.
    networks: BTreeSet<String>,
    /// It has the machine's network.
    host_network: bool,
    /// Further names in its hosts file, as `name:address`.
    hosts: BTreeSet<String>,
    /// Capabilities, without `CAP_`.
    capabilities: BTreeSet<String>,
    /// Who it runs as.
    user: Option<String>,
    /// What it may take.
    limits: Limits,
    /// Whether it works.
    healthcheck: Option<Box<Healthcheck>>,
    /// Labels.
    labels: Labels,
    /// Devices of the machine.
    devices: BTreeSet<String>,
    /// Folders in memory.
    tmpfs: BTreeSet<String>,
    /// Shared memory, in MiB.
    shm_mib: Option<u32>,
    /// A small init reaps what it leaves.
    init: bool,
    /// Kernel settings of its own.
    sysctls: Sysctls,
    /// When it runs, where it is scheduled.
    schedule: Schedule,
    /// Daemons of the module that are stopped around a run (HK-9).
    while_stopped: Vec<ResourceId>,
    /// The probe that is its witness.
    probe: Option<ResourceId>,
    /// The container that this step prepares.
    prepares_for: Option<ResourceId>,
}

wire! {
    /// A network of containers (HK-10).
    pub struct Network;
    /// Its name.
    name: String;
    maybe
    /// Its addresses.
    subnet: Option<String>,
    /// It has no way out.
    internal: bool,
    /// Labels.
    labels: Labels,
}

wire! {
    /// A volume of containers (HK-10).
    pub struct Volume;
    /// Its name.
    name: String;
    maybe
    /// Labels.
    labels: Labels,
}
