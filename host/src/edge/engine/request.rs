//! What an engine is asked to make, in the words of its API.

use std::collections::{BTreeMap, HashMap};

use bollard::models::{
    ContainerCreateBody, DeviceMapping, HealthConfig, HostConfig, HostConfigLogConfig, Ipam, IpamConfig,
    Mount, MountType, NetworkCreateRequest, PortBinding, PortMap, ResourcesUlimits, RestartPolicy,
    RestartPolicyNameEnum,
};
use meshplan_schemas::resource::programs::Restart;

use super::{Network, New};
use crate::pure::container_spec::Spec;

/// Where the output of a container goes: the journal, and nowhere else.
const LOGGING: &str = "journald";
const MIB: i64 = 1024 * 1024;
const SECOND: i64 = 1_000_000_000;

/// A container. `is_podman`: of Podman's, which answers Docker's API and is another where it starts what stood.
pub(super) fn container(new: &New<'_>, is_podman: bool) -> ContainerCreateBody {
    let spec = new.spec;
    let some = |texts: Vec<String>| (!texts.is_empty()).then_some(texts);
    let mut labels: HashMap<String, String> = spec.labels.clone().into_iter().collect();
    labels.extend(new.labels.clone());
    ContainerCreateBody {
        image: Some(new.image.to_owned()),
        cmd: spec.command.clone(),
        entrypoint: spec.entrypoint.clone(),
        env: some(spec.env.lines()),
        user: spec.user.clone(),
        labels: Some(labels),
        exposed_ports: some(spec.ports.iter().map(inside).collect()),
        stop_timeout: Some(i64::from(spec.stop_secs)),
        healthcheck: spec.healthcheck.as_ref().map(|check| HealthConfig {
            test: Some(
                std::iter::once("CMD".to_owned())
                    .chain(check.command.clone())
                    .collect(),
            ),
            interval: Some(i64::from(check.every_secs) * SECOND),
            timeout: Some(i64::from(check.timeout_secs) * SECOND),
            retries: Some(i64::from(check.retries)),
            start_period: Some(i64::from(check.start_secs) * SECOND),
            ..HealthConfig::default()
        }),
        host_config: Some(machine(spec, is_podman)),
        ..ContainerCreateBody::default()
    }
}

fn inside(port: &meshplan_schemas::resource::containers::Port) -> String {
    format!("{}/{}", port.container, port.protocol.word())
}

/// What a container has of its machine.
fn machine(spec: &Spec, is_podman: bool) -> HostConfig {
    let limits = &spec.limits;
    let set =
        |set: &std::collections::BTreeSet<String>| (!set.is_empty()).then(|| set.iter().cloned().collect());
    let mut ports = PortMap::new();
    for port in &spec.ports {
        let binding = PortBinding {
            host_ip: port.address.clone(),
            host_port: Some(port.host.to_string()),
        };
        ports
            .entry(inside(port))
            .or_default()
            .get_or_insert_default()
            .push(binding);
    }
    let network = match spec.networks.first() {
        _ if spec.host_network => Some("host".to_owned()),
        first => first.cloned(),
    };
    HostConfig {
        memory: limits.memory_mib.map(|mib| i64::from(mib) * MIB),
        nano_cpus: limits
            .cpu_percent
            .map(|percent| i64::from(percent) * (SECOND / 100)),
        pids_limit: limits.tasks.map(i64::from),
        ulimits: limits.open_files.map(|files| {
            vec![ResourcesUlimits {
                name: Some("nofile".to_owned()),
                soft: Some(i64::from(files)),
                hard: Some(i64::from(files)),
            }]
        }),
        init: spec.init.then_some(true),
        mounts: (!spec.mounts.is_empty()).then(|| spec.mounts.iter().map(mount).collect()),
        port_bindings: (!ports.is_empty()).then_some(ports),
        network_mode: network,
        extra_hosts: set(&spec.hosts),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: set(&spec.capabilities),
        devices: (!spec.devices.is_empty()).then(|| {
            let device = |path: &String| DeviceMapping {
                path_on_host: Some(path.clone()),
                path_in_container: Some(path.clone()),
                cgroup_permissions: Some("rwm".to_owned()),
            };
            spec.devices.iter().map(device).collect()
        }),
        tmpfs: (!spec.tmpfs.is_empty()).then(|| {
            spec.tmpfs
                .iter()
                .map(|path| (path.clone(), String::new()))
                .collect()
        }),
        shm_size: spec.shm_mib.map(|mib| i64::from(mib) * MIB),
        sysctls: (!spec.sysctls.is_empty()).then(|| spec.sysctls.clone().into_iter().collect()),
        restart_policy: Some(RestartPolicy {
            name: Some(match spec.restart {
                // What was stopped for a change stays down when Docker starts anew. Podman has nothing that starts anew,
                // and starts at boot only what is `always`.
                Restart::Always if is_podman => RestartPolicyNameEnum::ALWAYS,
                Restart::Always => RestartPolicyNameEnum::UNLESS_STOPPED,
                Restart::OnFailure => RestartPolicyNameEnum::ON_FAILURE,
                Restart::Never => RestartPolicyNameEnum::NO,
            }),
            maximum_retry_count: None,
        }),
        log_config: Some(HostConfigLogConfig {
            typ: Some(LOGGING.to_owned()),
            config: Some(HashMap::new()),
        }),
        ..HostConfig::default()
    }
}

fn mount(mount: &meshplan_schemas::resource::containers::Mount) -> Mount {
    let (typ, source) = match &mount.volume {
        Some(volume) => (MountType::VOLUME, Some(volume.clone())),
        None => (MountType::BIND, mount.source.clone()),
    };
    Mount {
        target: Some(mount.target.clone()),
        source,
        typ: Some(typ),
        read_only: Some(mount.read_only),
        ..Mount::default()
    }
}

/// A network.
pub(super) fn network(name: &str, network: &Network) -> NetworkCreateRequest {
    NetworkCreateRequest {
        name: name.to_owned(),
        driver: Some("bridge".to_owned()),
        internal: Some(network.is_internal),
        ipam: network.subnet.as_ref().map(|subnet| Ipam {
            config: Some(vec![IpamConfig {
                subnet: Some(subnet.clone()),
                ..IpamConfig::default()
            }]),
            ..Ipam::default()
        }),
        labels: Some(labels(&network.labels)),
        ..NetworkCreateRequest::default()
    }
}

/// Labels.
pub(super) fn labels(labels: &BTreeMap<String, String>) -> HashMap<String, String> {
    labels.clone().into_iter().collect()
}
