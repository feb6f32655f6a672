//! The leaves of the fleet list, and the digests of the scopes `list` and `gate` (DL-3).

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::fleet_list::{Leaf, ListSettings};
use meshplan_schemas::merkle;
use serde_json::json;

use super::{Listed, Retired};
use crate::pure::by_node::ByNode;
use crate::pure::in_parts::in_parts;
use crate::pure::secrets::Secrets;
use crate::pure::validate::{Record, Validated};

/// The records with keys, sorted by uuid.
pub(super) fn leaves(validated: &Validated) -> Result<ByNode<Arc<Listed>>, serde_json::Error> {
    let all = in_parts(validated.nodes(), |part| part.iter().map(listed).collect());
    (validated.nodes().iter().zip(all))
        .filter_map(|(record, listed)| Some((record.file.id.value, listed.transpose()?)))
        .map(|(id, listed)| Ok((id, Arc::new(listed?))))
        .collect()
}

/// The leaf of a record; none without keys.
pub(super) fn listed(record: &Record) -> Result<Option<Listed>, serde_json::Error> {
    let file = &record.file;
    let (Some(transport_key), Some(signing_key)) = (&file.transport_key, &file.signing_key) else {
        return Ok(None);
    };
    let leaf = Leaf {
        id: file.id.value,
        name: record.name.clone(),
        transport_key: transport_key.value,
        signing_key: signing_key.value,
        next_transport_key: file.next_transport_key.as_ref().map(|k| k.value),
        next_signing_key: file.next_signing_key.as_ref().map(|k| k.value),
        rotations: Vec::new(),
        address: file.address.as_ref().map(|a| a.value.clone()),
        lifeline: file.lifeline,
        valid_to: file.valid_to.0,
        update_class: file.update_class,
        pinned: file.pinned.value,
    };
    let hash = merkle::leaf_hash(&leaf.bytes()?);
    Ok(Some(Listed { leaf, hash }))
}

/// What of fleet.toml stands in the signed list.
pub(super) fn settings(validated: &Validated) -> ListSettings {
    let fleet = validated.fleet();
    ListSettings {
        left_behind_grace_secs: fleet.config_mgmt.left_behind_grace_secs,
        lifeline_secs: fleet.rotation.lifeline_secs,
        require_trusted_clock_for_scheduled_activation: fleet
            .rotation
            .require_trusted_clock_for_scheduled_activation,
    }
}

/// The digest of all that enters the signed list. Authors and threshold are in it and in the gate: hosts must learn
/// them, and the plans of before must let them.
pub(super) fn list_digest(
    validated: &Validated,
    leaves: &ByNode<Arc<Listed>>,
) -> Result<Digest, serde_json::Error> {
    let hashes: Vec<merkle::Hash> = leaves.values().map(|listed| listed.hash).collect();
    Digest::of_value(&json!({
        "records": hashes.len(),
        "records_root": Digest(merkle::root(&hashes)),
        "revoked": validated.revoked(),
        "settings": settings(validated),
        "authors": validated.fleet().authors,
        "threshold": validated.fleet().threshold,
    }))
}

/// The digest of plans, checks, trust, authors and all else of fleet.toml but what is the list's own or a module's.
pub(super) fn gate_digest(validated: &Validated) -> Result<Digest, serde_json::Error> {
    let mut fleet = serde_json::to_value(validated.fleet())?;
    let of_list = serde_json::to_value(settings(validated))?;
    for table in ["config_mgmt", "rotation"] {
        if let Some(table) = fleet.get_mut(table).and_then(|t| t.as_object_mut()) {
            table.retain(|key, _| of_list.get(key).is_none());
        }
    }
    let checks: Vec<_> = validated.checks().iter().map(|check| &check.says).collect();
    let mut gate = json!({ "fleet": fleet, "plans": validated.plans(), "checks": checks });
    // Who takes one out lets a spent value come back.
    if !validated.retired().is_empty()
        && let Some(gate) = gate.as_object_mut()
    {
        gate.insert("retired".to_owned(), serde_json::to_value(validated.retired())?);
    }
    Digest::of_value(&gate)
}

/// The secrets of which only the value of this tree may be used (DL-7).
pub(super) fn retired(validated: &Validated, secrets: &Secrets) -> BTreeMap<SecretName, Retired> {
    let retired = validated.retired().iter();
    retired
        .map(|(name, why)| {
            let value = secrets.digest_of(&name.0);
            let why = why.clone();
            (name.clone(), Retired { value, why })
        })
        .collect()
}
