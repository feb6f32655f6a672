//! The simulated links: sessions that are there or not, and what goes over them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meshplan_schemas::envelope::Envelope;
use meshplan_schemas::ident::NodeId;
use serde::de::DeserializeOwned;

use crate::edge::mesh::Links;

/// Who is there, and what was said to whom.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) connected: BTreeSet<NodeId>,
    pub(super) looks: Vec<(NodeId, u64)>,
    pub(super) published: bool,
}

/// All clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct SimLinks {
    said: Arc<Mutex<Said>>,
}

impl SimLinks {
    pub(super) fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Links for SimLinks {
    fn connected(&self) -> Vec<NodeId> {
        self.said().connected.iter().copied().collect()
    }

    fn look(&self, node: NodeId, id: u64) -> bool {
        let mut said = self.said();
        let there = said.connected.contains(&node);
        if there {
            said.looks.push((node, id));
        }
        there
    }

    fn publish(&self) {
        self.said().published = true;
    }
}

/// What a signed order carries.
pub(super) fn payload<T: DeserializeOwned>(envelope: &str) -> Option<T> {
    let envelope = Envelope::read(envelope.as_bytes()).ok()?;
    serde_json::from_slice(&envelope.payload).ok()
}
