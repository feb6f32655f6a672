//! Kinds of page 06 as they stand in a declaration: names resolved, defaults written out, what has no order as sets.

use meshplan_schemas::document::calendar::Calendar;
use meshplan_schemas::document::module::containers::{HealthcheckFile, MountFile, PortFile};
use meshplan_schemas::document::module::programs::LimitsFile;
use meshplan_schemas::document::module::{
    ActionResource, ContainerResource, Entry, FilterResource, PrivateNetworkResource, ProcessResource,
    UserResource,
};
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::reference::Reference;
use meshplan_schemas::document::scalar::{Int, SomeSecs};
use meshplan_schemas::document::texts::Argv;
use meshplan_schemas::document::var::Var;
use meshplan_schemas::ident::{ModuleName, ResourceId};
use meshplan_schemas::resource::Kind;
use meshplan_schemas::resource::accounts::{Group, Package, User};
use meshplan_schemas::resource::containers::{Container, Healthcheck, Mount, Network, Port, Volume};
use meshplan_schemas::resource::net::{Accept, Filter, Peer, PrivateNetwork};
use meshplan_schemas::resource::programs::{
    Action, KernelModule, Limits, Process, Reboot, Restart, Run, Schedule, Service, Sysctl, Upgrade, Witness,
};
use std::sync::Arc;

use super::artifacts::Artifacts;
use crate::pure::validate::{Module, Record, Validated};

/// Where a resource is composed.
#[derive(Clone, Copy)]
pub(super) struct Place<'v> {
    pub(super) validated: &'v Validated,
    pub(super) name: &'v ModuleName,
    pub(super) module: &'v Module,
    pub(super) record: &'v Record,
    pub(super) artifacts: &'v Arc<Artifacts>,
}

/// Whether the content of a module differs from node to node by more than its settings, and hangs on the other nodes.
pub(super) fn reads_the_nodes(module: &Module) -> bool {
    !module.file.private_networks.is_empty()
}

/// The resources that one entry makes: itself, and the step before it where it has one. None of the kinds that are
/// composed elsewhere, and of what validation has refused.
pub(super) fn kinds(place: Place<'_>, entry: Entry<'_>) -> Vec<(ResourceId, Kind)> {
    let id = &entry.common().id().value;
    let own = |kind: Kind| vec![(id.clone(), kind)];
    match entry {
        Entry::File(_) | Entry::Directory(_) | Entry::Link(_) | Entry::Probe(_) => Vec::new(),
        Entry::User(r) => own(Kind::User(user(r))),
        Entry::Group(r) => own(Kind::Group(Group {
            name: or_id(r.name.as_ref().map(|at| &at.value.0), id),
            gid: r.gid.as_ref().map(|at| at.value.0),
            system: r.system,
            absent: r.absent,
        })),
        Entry::Package(r) => own(Kind::Package(Package {
            name: or_id(r.name.as_ref().map(|at| &at.value.0), id),
            manager: r.manager.as_ref().map(|at| at.value),
            version: r.version.as_ref().map(|at| at.value.0.clone()),
            absent: r.absent,
            restarts: values(&r.restarts),
        })),
        Entry::Archive(r) => (place.artifacts.archive(r))
            .map(Kind::Archive)
            .map_or_else(Vec::new, own),
        Entry::Bundle(r) => (place.artifacts.bundle(r))
            .map(Kind::Bundle)
            .map_or_else(Vec::new, own),
        Entry::Service(r) => own(Kind::Service(Service {
            unit: r.unit.value.0.clone(),
            state: r.state.as_ref().map(|at| at.value),
            enabled: r.enabled.as_ref().map(|at| at.value),
        })),
        Entry::Process(r) => process(place, r),
        Entry::Container(r) => container(place, r),
        Entry::Network(r) => own(Kind::Network(Network {
            name: or_id(r.name.as_ref().map(|at| &at.value.0), id),
            subnet: r.subnet.as_ref().map(|at| at.value.0.clone()),
            internal: r.internal,
            labels: r.labels.clone(),
        })),
        Entry::Volume(r) => own(Kind::Volume(Volume {
            name: or_id(r.name.as_ref().map(|at| &at.value.0), id),
            labels: r.labels.clone(),
        })),
        Entry::Filter(r) => own(Kind::Filter(filter(r))),
        Entry::PrivateNetwork(r) => private_network(place, r)
            .map(Kind::PrivateNetwork)
            .map_or_else(Vec::new, own),
        Entry::Sysctl(r) => own(Kind::Sysctl(Sysctl {
            key: r.key.value.0.replace('/', "."),
            value: r.value.value.0.clone(),
        })),
        Entry::KernelModule(r) => own(Kind::KernelModule(KernelModule {
            name: or_id(r.name.as_ref().map(|at| &at.value.0), id),
            options: r.options.as_ref().map(|at| at.value.0.clone()),
        })),
        Entry::Action(r) => own(Kind::Action(action(r))),
        Entry::Upgrade(r) => own(Kind::Upgrade(Upgrade {
            updates: r.updates,
            timeout_secs: r.timeout_secs.0,
        })),
        Entry::Reboot(r) => own(Kind::Reboot(Reboot {
            within_secs: r.within_secs.0,
        })),
    }
}

fn or_id(name: Option<&String>, id: &ResourceId) -> String {
    name.cloned().unwrap_or_else(|| id.to_string())
}

pub(super) fn values<T: Clone>(list: &[At<T>]) -> Vec<T> {
    list.iter().map(|at| at.value.clone()).collect()
}

fn user(r: &UserResource) -> User {
    User {
        name: or_id(r.name.as_ref().map(|at| &at.value.0), &r.id.value),
        uid: r.uid.as_ref().map(|at| at.value.0),
        group: r.group.as_ref().map(|at| at.value.0.clone()),
        groups: r.groups.iter().map(|at| at.value.0.clone()).collect(),
        home: r.home.as_ref().map(|at| at.value.0.clone()),
        shell: r.shell.as_ref().map(|at| at.value.0.clone()),
        comment: r.comment.as_ref().map(|at| at.value.0.clone()),
        system: r.system,
        authorized_keys: (r.authorized_keys.as_ref())
            .map(|at| at.value.iter().map(|line| line.0.clone()).collect()),
        absent: r.absent,
    }
}

fn limits(file: Option<&LimitsFile>) -> Limits {
    file.map_or_else(Limits::default, |file| Limits {
        memory_mib: file.memory_mib.map(|n| n.0),
        cpu_percent: file.cpu_percent.map(|n| n.0),
        tasks: file.tasks.map(|n| n.0),
        open_files: file.open_files.map(|n| n.0),
    })
}

fn schedule(calendar: Option<&At<Calendar>>, every_secs: Option<&At<SomeSecs>>) -> Schedule {
    Schedule {
        calendar: calendar.map(|at| at.value.0.clone()),
        every_secs: every_secs.map(|at| at.value.0),
    }
}

fn restart(given: Option<&At<Restart>>, run: Run) -> Restart {
    match given {
        Some(at) => at.value,
        None if run == Run::Daemon => Restart::Always,
        None => Restart::Never,
    }
}

/// SU-6: by the name of the program where nobody says.
fn witness(given: Option<&At<Witness>>, name: &str, run: Run) -> Witness {
    match (given, name, run) {
        (Some(at), ..) => at.value,
        (None, "reconciler", Run::Daemon) => Witness::Lease,
        (None, "node-tools", Run::Daemon) => Witness::Ping,
        _ => Witness::None,
    }
}

/// The id of the step before a daemon (HK-6).
fn step_id(id: &ResourceId, prepares: Option<&At<Argv>>) -> Option<(ResourceId, Vec<String>)> {
    let argv = prepares?.value.0.clone();
    Some((format!("{id}-prepare").parse().ok()?, argv))
}

fn process(place: Place<'_>, r: &ProcessResource) -> Vec<(ResourceId, Kind)> {
    let id = &r.id.value;
    let name = or_id(r.name.as_ref().map(|at| &at.value.0), id);
    let itself = Process {
        witness: witness(r.witness.as_ref(), &name, r.run.value),
        name: name.clone(),
        command: r.command.value.0.clone(),
        run: r.run.value,
        restart: restart(r.restart.as_ref(), r.run.value),
        timeout_secs: r.timeout_secs.0,
        stop_secs: r.stop_secs.0,
        bundle: r.bundle.as_ref().map(|at| at.value.clone()),
        build: (r.bundle.as_ref()).and_then(|at| place.artifacts.build(&at.value)),
        user: r.user.as_ref().map(|at| at.value.0.clone()),
        group: r.group.as_ref().map(|at| at.value.0.clone()),
        working_directory: r.working_directory.as_ref().map(|at| at.value.0.clone()),
        env: r.env.clone(),
        env_files: r.env_files.iter().map(|at| at.value.0.clone()).collect(),
        limits: limits(r.limits.as_ref()),
        open: r.open.clone(),
        schedule: schedule(r.calendar.as_ref(), r.every_secs.as_ref()),
        while_stopped: values(&r.while_stopped),
        replaces: r.replaces.iter().map(|at| at.value.within(place.name)).collect(),
        probe: r.probe.as_ref().map(|at| at.value.clone()),
        prepares_for: None,
    };
    let step = step_id(id, r.prepares.as_ref()).map(|(step, command)| {
        let prepare = Process {
            name: format!("{name}-prepare"),
            command,
            run: Run::Once,
            restart: Restart::Never,
            witness: Witness::None,
            schedule: Schedule::default(),
            while_stopped: Vec::new(),
            replaces: Vec::new(),
            probe: None,
            prepares_for: Some(id.clone()),
            ..itself.clone()
        };
        (step, Kind::Process(prepare))
    });
    step.into_iter()
        .chain([(id.clone(), Kind::Process(itself))])
        .collect()
}

fn container(place: Place<'_>, r: &ContainerResource) -> Vec<(ResourceId, Kind)> {
    let id = &r.id.value;
    let name = or_id(r.name.as_ref().map(|at| &at.value.0), id);
    let itself = Container {
        witness: witness(r.witness.as_ref(), &name, r.run.value),
        name: name.clone(),
        image: r.image.value.0.clone(),
        run: r.run.value,
        restart: restart(r.restart.as_ref(), r.run.value),
        stop_secs: r.stop_secs.0,
        timeout_secs: r.timeout_secs.0,
        command: r.command.as_ref().map(|at| at.value.0.clone()),
        entrypoint: r.entrypoint.as_ref().map(|at| at.value.0.clone()),
        env: r.env.clone(),
        env_files: r.env_files.iter().map(|at| at.value.0.clone()).collect(),
        // Filled in where secrets are at hand.
        env_sealed: None,
        mounts: r.mounts.iter().map(|at| mount(place, &at.value)).collect(),
        ports: r.ports.iter().filter_map(|at| port(&at.value)).collect(),
        networks: r.networks.iter().map(|at| name_of(place, &at.value)).collect(),
        host_network: r.host_network.value,
        hosts: r
            .hosts
            .iter()
            .map(|host| format!("{}:{}", host.name.0, host.address.0))
            .collect(),
        capabilities: r.capabilities.iter().map(|at| at.value.0.clone()).collect(),
        user: r.user.as_ref().map(|at| at.value.0.clone()),
        limits: limits(r.limits.as_ref()),
        healthcheck: (r.healthcheck.as_ref()).map(|at| Box::new(healthcheck(&at.value))),
        labels: r.labels.clone(),
        devices: r.devices.iter().map(|at| at.value.0.clone()).collect(),
        tmpfs: r.tmpfs.iter().map(|at| at.value.0.clone()).collect(),
        shm_mib: r.shm_mib.map(|n| n.0),
        init: r.init,
        sysctls: r.sysctls.clone(),
        schedule: schedule(r.calendar.as_ref(), r.every_secs.as_ref()),
        while_stopped: values(&r.while_stopped),
        probe: r.probe.as_ref().map(|at| at.value.clone()),
        prepares_for: None,
    };
    let step = step_id(id, r.prepares.as_ref()).map(|(step, command)| {
        let prepare = Container {
            name: format!("{name}-prepare"),
            command: Some(command),
            run: Run::Once,
            restart: Restart::Never,
            witness: Witness::None,
            // The daemon of the former build still has them.
            ports: Default::default(),
            healthcheck: None,
            schedule: Schedule::default(),
            while_stopped: Vec::new(),
            probe: None,
            prepares_for: Some(id.clone()),
            ..itself.clone()
        };
        (step, Kind::Container(prepare))
    });
    step.into_iter()
        .chain([(id.clone(), Kind::Container(itself))])
        .collect()
}

fn mount(place: Place<'_>, file: &MountFile) -> Mount {
    Mount {
        target: file.target.value.0.clone(),
        source: file.source.as_ref().map(|at| at.value.0.clone()),
        volume: file.volume.as_ref().map(|at| name_of(place, &at.value)),
        read_only: file.read_only,
    }
}

fn port(file: &PortFile) -> Option<Port> {
    let host = u16::try_from(file.host.value.0).ok()?;
    Some(Port {
        host,
        container: match file.container {
            Some(Int(container)) => u16::try_from(container).ok()?,
            None => host,
        },
        protocol: file.protocol,
        address: file.address.as_ref().map(|at| at.value.0.clone()),
    })
}

fn healthcheck(file: &HealthcheckFile) -> Healthcheck {
    Healthcheck {
        command: file.command.value.0.clone(),
        every_secs: file.every_secs.0,
        timeout_secs: file.timeout_secs.0,
        retries: file.retries.0,
        start_secs: file.start_secs.0,
    }
}

/// The name on the machine of a network or volume that a reference leads to.
fn name_of(place: Place<'_>, reference: &Reference) -> String {
    let whole = reference.within(place.name);
    let file = place
        .validated
        .modules()
        .get(&whole.module)
        .map_or(&place.module.file, |module| &module.file);
    let network = (file.networks.iter())
        .find(|r| r.id.value == whole.id)
        .and_then(|r| r.name.as_ref());
    let volume = (file.volumes.iter())
        .find(|r| r.id.value == whole.id)
        .and_then(|r| r.name.as_ref());
    or_id(network.or(volume).map(|at| &at.value.0), &whole.id)
}

fn filter(r: &FilterResource) -> Filter {
    let accept = r.accept.iter().map(|At { value: file, .. }| Accept {
        protocol: file.protocol.as_ref().map(|at| at.value),
        ports: file.ports.iter().map(ToString::to_string).collect(),
        from: file.from.iter().map(|from| from.0.clone()).collect(),
        interface: file.interface.as_ref().map(|interface| interface.0.clone()),
    });
    Filter {
        accept: accept.collect(),
    }
}

fn private_network(place: Place<'_>, r: &PrivateNetworkResource) -> Option<PrivateNetwork> {
    let text = |record: &Record, var: &str| match record.file.vars.0.get(var).map(|at| &at.value) {
        Some(Var::Text(text)) => Some(text.clone()),
        _ => None,
    };
    let address = |record: &Record| text(record, &r.address_var.value.0);
    let among = |record: &&Record| {
        let by_role = |role: &At<meshplan_schemas::ident::RoleName>| {
            record.file.roles.iter().any(|of| of.value == role.value)
        };
        record.name != place.record.name
            && record.modules.contains(place.name)
            && (r.roles.is_empty() || r.roles.iter().any(by_role))
    };
    let peers = (place.validated.nodes().iter().filter(among)).filter_map(|record| {
        Some(Peer {
            node: record.name.to_string(),
            address: address(record)?,
            endpoint: r.endpoint_var.as_ref().and_then(|var| text(record, &var.value.0)),
        })
    });
    Some(PrivateNetwork {
        interface: r.interface.value.0.clone(),
        listen_port: u16::try_from(r.listen_port.0).ok()?,
        dir: r.dir.0.clone(),
        address: address(place.record)?,
        peers: peers.collect(),
        keepalive_secs: r.keepalive_secs.map(|n| n.0),
        mtu: r.mtu.map(|n| n.0),
    })
}

fn action(r: &ActionResource) -> Action {
    Action {
        command: r.command.value.0.clone(),
        timeout_secs: r.timeout_secs.0,
        creates: r.creates.as_ref().map(|at| at.value.0.clone()),
        unless: r.unless.as_ref().map(|at| at.value.0.clone()),
    }
}
