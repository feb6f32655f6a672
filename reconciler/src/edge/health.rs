//! What the reconciler knows of itself and of the fleet right now, for people and for desks: troubles by their
//! place, and the roster of nodes. Nothing decides by it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::pure::compose::Composed;

/// Shared by pass, desk, outbox and pages.
#[derive(Debug, Default)]
pub struct Health {
    troubles: RwLock<BTreeMap<&'static str, String>>,
    roster: RwLock<Option<Arc<Composed>>>,
}

impl Health {
    /// Says what is wrong at a place, until it is cleared.
    pub fn set(&self, place: &'static str, sentence: String) {
        self.troubles
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(place, sentence);
    }

    /// The place is well.
    pub fn clear(&self, place: &'static str) {
        self.troubles
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(place);
    }

    /// All troubles, a sentence each.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        self.troubles
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect()
    }

    /// The newest tree that composes: who is in the fleet.
    pub fn set_roster(&self, tree: Arc<Composed>) {
        *self.roster.write().unwrap_or_else(PoisonError::into_inner) = Some(tree);
    }

    /// See [`Health::set_roster`].
    #[must_use]
    pub fn roster(&self) -> Option<Arc<Composed>> {
        self.roster.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
