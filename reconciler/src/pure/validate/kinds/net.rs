//! The filter and private networks (HK-11, HK-12).

use meshplan_schemas::document::module::{FilterResource, PrivateNetworkResource};
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::scalar::HostPort;
use meshplan_schemas::document::texts::Cidr;
use meshplan_schemas::document::var::Var;
use meshplan_schemas::finding::Finding;

use super::Bench;

pub(super) fn filter(bench: &Bench<'_>, filter: &FilterResource, findings: &mut Vec<Finding>) {
    if filter.accept.is_empty() {
        let message = format!(
            "the filter `{}` lets nothing in: nobody could reach the machine",
            filter.id.value
        );
        findings.push(bench.error(&filter.id.span, message));
    }
    for At { value: accept, span } in &filter.accept {
        if !accept.ports.is_empty() && accept.protocol.is_none() {
            findings.push(bench.error(span, "ports belong to a `protocol`: tcp or udp"));
        }
    }
}

/// Each node that has the module must have an address in the network, and no two the same.
pub(super) fn private_network(
    bench: &Bench<'_>,
    network: &PrivateNetworkResource,
    findings: &mut Vec<Finding>,
) {
    let mut taken: Vec<(&str, &str)> = Vec::new();
    for node in bench.documents.nodes.iter().filter(|node| !node.in_revoked) {
        let Some(file) = node.document.read.as_ref().filter(|file| !file.revoked) else {
            continue;
        };
        let brought = file
            .roles
            .iter()
            .any(|role| bench.file.roles.iter().any(|of| of.value == role.value));
        if !brought && !file.modules.iter().any(|module| module.value == *bench.name) {
            continue;
        }
        let var = &network.address_var.value.0;
        let source = &node.document.source;
        match file.vars.0.get(var) {
            None => {
                let message = format!(
                    "{} has no `{var}` under `[vars]`: its address in the network",
                    node.name
                );
                findings.push(bench.error(&network.address_var.span, message));
            }
            Some(At {
                value: Var::Text(text),
                span,
            }) if text.parse::<Cidr>().is_ok() => {
                if let Some((_, other)) = taken.iter().find(|(address, _)| address == text) {
                    let message = format!("{other} has the address `{text}` in the private network already");
                    findings.push(source.error(span.clone(), message));
                }
                taken.push((text, node.name.as_str()));
            }
            Some(at) => {
                let message = format!("`{var}` is an address in the private network, as \"10.8.0.2/24\"");
                findings.push(source.error(at.span.clone(), message));
            }
        }
        let endpoint = network
            .endpoint_var
            .as_ref()
            .and_then(|var| file.vars.0.get(&var.value.0));
        if let Some(at) =
            endpoint.filter(|at| !matches!(&at.value, Var::Text(text) if text.parse::<HostPort>().is_ok()))
        {
            findings.push(source.error(
                at.span.clone(),
                "an endpoint is `host:port`, the port from 1 to 65535",
            ));
        }
    }
}
