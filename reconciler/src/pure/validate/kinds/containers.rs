//! Containers and their networks (HK-8, HK-10).

use core::net::IpAddr;
use std::collections::BTreeMap;

use meshplan_schemas::document::module::containers::PortFile;
use meshplan_schemas::document::module::{ContainerResource, Entry, NetworkResource};
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::reference::Reference;
use meshplan_schemas::finding::{Finding, did_you_mean};

use super::Bench;
use super::programs::Ways;

pub(super) fn container(bench: &Bench<'_>, container: &ContainerResource, findings: &mut Vec<Finding>) {
    let ways = Ways {
        id: &container.id,
        run: &container.run,
        calendar: container.calendar.as_ref(),
        every_secs: container.every_secs.as_ref(),
        restart: container.restart.as_ref(),
        while_stopped: &container.while_stopped,
        prepares: container.prepares.as_ref(),
        witness: container.witness.as_ref(),
        probe: container.probe.as_ref(),
    };
    ways.check(bench, findings);
    findings.extend(
        container
            .env_secrets
            .iter()
            .filter_map(|secret| bench.secret(secret)),
    );
    network_of(bench, container, findings);
    ports(bench, &container.ports, findings);
    mounts(bench, container, findings);
    for host in &container.hosts {
        // `host-gateway` is the runtime's word for the machine itself.
        if host.address.0 != "host-gateway" && host.address.0.parse::<IpAddr>().is_err() {
            let message = format!(
                "the host `{}` has the address `{}`, which is none",
                host.name.0, host.address.0
            );
            findings.push(
                bench
                    .error(&container.id.span, message)
                    .help("an address, or `host-gateway`"),
            );
        }
    }
    for (at, capability) in container.capabilities.iter().enumerate() {
        if container.capabilities[..at]
            .iter()
            .any(|other| other.value == capability.value)
        {
            findings.push(bench.error(
                &capability.span,
                format!("`{}` is named twice", capability.value.0),
            ));
        }
    }
    if let Some(device) = container
        .devices
        .iter()
        .find(|device| !device.value.0.starts_with("/dev/"))
    {
        findings.push(bench.error(&device.span, "a device is a path below /dev"));
    }
}

fn network_of(bench: &Bench<'_>, container: &ContainerResource, findings: &mut Vec<Finding>) {
    if container.host_network.value {
        if let Some(first) = container.networks.first() {
            let message = "a container with the machine's network joins no other";
            findings.push(bench.error(&first.span, message));
        }
        if let Some(first) = container.ports.first() {
            let message = "a container with the machine's network has all its ports: none is published";
            findings.push(bench.error(&first.span, message));
        }
    }
    for network in &container.networks {
        findings.extend(bench.refers(network, "network"));
    }
}

/// One port of the machine leads to one place.
fn ports(bench: &Bench<'_>, ports: &[At<PortFile>], findings: &mut Vec<Finding>) {
    let mut seen = BTreeMap::new();
    for At { value: port, span } in ports {
        let address = port.address.as_ref().map(|at| at.value.0.as_str());
        if let Some(at) = port.address.as_ref().filter(|at| at.value.0.contains('/')) {
            findings.push(bench.error(&at.span, "a port listens on one address, not on a network"));
        }
        if seen
            .insert((port.protocol, port.host.value.0, address), ())
            .is_some()
        {
            let message = format!(
                "the port {}/{} is published twice",
                port.host.value.0, port.protocol
            );
            findings.push(bench.error(span, message));
        }
    }
}

fn mounts(bench: &Bench<'_>, container: &ContainerResource, findings: &mut Vec<Finding>) {
    let mut targets = BTreeMap::new();
    for At { value: mount, span } in &container.mounts {
        match (&mount.source, &mount.volume) {
            (Some(_), Some(volume)) => {
                findings.push(bench.error(
                    &volume.span,
                    "a mount has `source` or `volume`, this one has both",
                ));
            }
            (None, None) => {
                findings.push(bench.error(span, "a mount has `source` or `volume`, this one has neither"));
            }
            (None, Some(volume)) => findings.extend(bench.refers(volume, "volume")),
            (Some(_), None) => {}
        }
        if targets.insert(&mount.target.value, ()).is_some() {
            let message = format!("two mounts have the target `{}`", mount.target.value);
            findings.push(bench.error(&mount.target.span, message));
        }
    }
    for tmpfs in container
        .tmpfs
        .iter()
        .filter(|at| targets.contains_key(&at.value))
    {
        findings.push(bench.error(&tmpfs.span, format!("`{}` is a mount already", tmpfs.value)));
    }
}

pub(super) fn network(bench: &Bench<'_>, network: &NetworkResource, findings: &mut Vec<Finding>) {
    if let Some(subnet) = network.subnet.as_ref().filter(|at| !at.value.0.contains('/')) {
        findings.push(bench.error(&subnet.span, "a subnet has a length, as `10.9.0.0/24`"));
    }
}

impl Bench<'_> {
    /// What is wrong where a reference must lead to a resource of this kind, here or in another module.
    fn refers(&self, at: &At<Reference>, kind: &str) -> Option<Finding> {
        let name = at.value.within(self.name);
        let theirs = if name.module == *self.name {
            self.entries.clone()
        } else {
            let Some(folder) = self.documents.modules.get(&name.module) else {
                let known = self.documents.modules.keys().map(|m| m.as_str());
                let message = format!("there is no module `{}`", name.module);
                return Some(
                    self.error(&at.span, message)
                        .maybe_help(did_you_mean(name.module.as_str(), known)),
                );
            };
            let file = folder.document.as_ref()?.read.as_ref()?;
            file.entries()
        };
        let found = theirs.iter().find(|entry| entry.common().id().value == name.id);
        if found.is_some_and(|entry| entry.kind() == kind) {
            return None;
        }
        let fitting = |entry: &&Entry<'_>| entry.kind() == kind;
        let ids = (theirs.iter().filter(fitting)).map(|entry| entry.common().id().value.as_str());
        let message = match found {
            Some(entry) => format!("`{}` is a {}, here a {kind} is meant", at.value, entry.kind()),
            None => format!("the module `{}` has no {kind} `{}`", name.module, name.id),
        };
        Some(
            self.error(&at.span, message)
                .maybe_help(did_you_mean(name.id.as_str(), ids)),
        )
    }
}
