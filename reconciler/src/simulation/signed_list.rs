//! The signed list as simulated hosts have it: what it says to each of itself.
//!
//! It stands alone because a host goes by its own record as it was signed, and not by what the newest commit asks for.

use std::collections::BTreeMap;

use meshplan_schemas::envelope::Envelope;
use meshplan_schemas::fleet_list::{FleetHead, Leaf};
use meshplan_schemas::ident::NodeId;

use super::host::Record;
use crate::edge::store::{Store, StoreError};

/// The newest signed list.
#[derive(Debug, Default)]
pub(super) struct SignedList {
    records: BTreeMap<NodeId, Record>,
    revision: u64,
}

impl SignedList {
    /// Reads it, where it is a new one.
    pub(super) async fn read(&mut self, store: &Store) -> Result<(), StoreError> {
        let Some(stored) = store.newest_head().await?.filter(|h| h.number > self.revision) else {
            return Ok(());
        };
        let head = Envelope::read(stored.envelope.as_bytes()).ok();
        let head: Option<FleetHead> = head.and_then(|e| serde_json::from_slice(&e.payload).ok());
        let grace_secs = head.map_or(0, |head| head.settings.left_behind_grace_secs);
        let leaves = store.leaf_texts(stored.number).await?;
        let leaves = leaves
            .iter()
            .filter_map(|text| serde_json::from_str::<Leaf>(text).ok());
        let record = |leaf: &Leaf| Record {
            class: leaf.update_class,
            pinned: leaf.pinned,
            grace_secs,
        };
        self.records = leaves.map(|leaf| (leaf.id, record(&leaf))).collect();
        self.revision = stored.number;
        Ok(())
    }

    /// What it says to a host of itself.
    pub(super) fn record(&self, id: NodeId) -> Option<Record> {
        self.records.get(&id).copied()
    }
}
