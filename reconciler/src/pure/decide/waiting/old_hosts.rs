//! Hosts that are older than an epoch takes: named when the delivery begins, so that nobody wonders why it failed (RO-4).
//!
//! It stands alone because it decides nothing: such a host refuses the epoch by itself, says so, and counts as failed.

use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::NodeId;
use semver::Version;

use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::{classes, orders};
use crate::pure::delivery::Delivery;

/// So many are named; the rest is counted.
const NAMED: usize = 10;

/// A sentence for each machine whose host takes no epoch of this delivery.
pub(super) fn named(draft: &Draft<'_>, delivery: &Delivery, tree: &Composed) -> Vec<String> {
    let Some(needed) = &tree.fleet.config_mgmt.min_daemon_version else {
        return Vec::new();
    };
    let Some(leg) = orders::changed_policy(delivery, &draft.epochs) else {
        return Vec::new();
    };
    let old: Vec<(NodeId, Version)> = leg
        .nodes
        .keys()
        .filter_map(|id| Some((*id, version(draft, *id)?)))
        .filter(|(_, version)| version < needed)
        .collect();
    let said = |(id, version): &(NodeId, Version)| {
        let node = tree.nodes.get(id)?;
        let counts = match node.update_class {
            UpdateClass::Required => "it counts as failed".to_owned(),
            class => format!("it does not take the policy ({})", classes::word(class)),
        };
        Some(format!(
            "{} runs version {version} of the host and this epoch needs {needed}: {counts}",
            node.name
        ))
    };
    let more = old.len().saturating_sub(NAMED);
    let more = (more > 0).then(|| format!("{more} more machines have a host older than {needed}"));
    old.iter().take(NAMED).filter_map(said).chain(more).collect()
}

fn version(draft: &Draft<'_>, id: NodeId) -> Option<Version> {
    let report = draft.known.snapshot.nodes.get(&id)?.report.as_ref()?;
    report.host_version.parse().ok()
}
