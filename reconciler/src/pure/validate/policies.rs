//! Policy: the documents as one [`FleetPolicy`], with the nodes that they name.

use meshplan_schemas::document::PolicyFile;
use meshplan_schemas::finding::Finding;
use meshplan_schemas::policy::FleetPolicy;

use super::{Names, plan_keys};
use crate::pure::parse::{Document, Documents};

pub(super) fn check(documents: &Documents, names: &Names, findings: &mut Vec<Finding>) -> FleetPolicy {
    let mut table = |document: &Document<PolicyFile>| -> toml::Table {
        check_document(document, names, findings);
        // What the strict reader took, TOML takes; what it did not take is refused anyway.
        toml::from_str(document.source.text()).unwrap_or_default()
    };
    FleetPolicy {
        base: documents.base.as_ref().map(&mut table).unwrap_or_default(),
        roles: (documents.overlays.iter())
            .map(|(role, document)| (role.clone(), table(document)))
            .collect(),
    }
}

fn check_document(document: &Document<PolicyFile>, names: &Names, findings: &mut Vec<Finding>) {
    let Some(file) = &document.read else {
        return;
    };
    for at in file.scheduler.iter().flat_map(|s| s.windows.iter().flatten()) {
        plan_keys::window(&document.source, at, findings);
    }
    let relays = file.traversal.iter().filter_map(|t| t.relays.as_ref()).flatten();
    findings.extend(relays.filter_map(|node| names.node(&document.source, &node.value, &node.span)));
}
