//! What the reconciler knows of itself and of the fleet right now, for people and for desks: troubles by their
//! place, and the roster of nodes. Nothing decides by it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;

use crate::pure::compose::Composed;
use crate::pure::decide::after_secs;

/// The place at which it is said that the database was lost and for whom it waits (SG-8).
pub const RECOVERING: &str = "recovering";

/// Shared by pass, desk, outbox and pages.
#[derive(Debug, Default)]
pub struct Health {
    troubles: RwLock<BTreeMap<Cow<'static, str>, String>>,
    roster: RwLock<Option<Arc<Composed>>>,
    list: RwLock<Option<Arc<Composed>>>,
    hearing: RwLock<Option<Timestamp>>,
}

impl Health {
    /// Says what is wrong at a place, until it is cleared.
    pub fn set(&self, place: impl Into<Cow<'static, str>>, sentence: String) {
        self.troubles
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(place.into(), sentence);
    }

    /// The place is well.
    pub fn clear(&self, place: &str) {
        self.troubles
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(place);
    }

    /// What is wrong at a place, none where it is well.
    #[must_use]
    pub fn trouble(&self, place: &str) -> Option<String> {
        let troubles = self.troubles.read().unwrap_or_else(PoisonError::into_inner);
        troubles.get(place).cloned()
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

    /// After the database was lost: the tree of the newest list that was signed, whose machines are waited for (SG-8).
    pub fn set_list(&self, tree: Arc<Composed>) {
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = Some(tree);
    }

    /// See [`Health::set_list`].
    #[must_use]
    pub fn list(&self) -> Option<Arc<Composed>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Since when hosts are judged by what is heard of them (RO-8).
    pub fn set_hearing(&self, since: Timestamp) {
        *self.hearing.write().unwrap_or_else(PoisonError::into_inner) = Some(since);
    }

    /// Until when nobody is called silent: the first two report intervals (RO-8). Far off before the first pass.
    #[must_use]
    pub fn calm_until(&self) -> Timestamp {
        let since = *self.hearing.read().unwrap_or_else(PoisonError::into_inner);
        let heartbeat = self.roster().map_or(0, |tree| tree.fleet.heartbeat_secs);
        since.map_or(Timestamp::MAX, |since| {
            after_secs(since, heartbeat.saturating_mul(2))
        })
    }

    /// See [`Health::set_roster`].
    #[must_use]
    pub fn roster(&self) -> Option<Arc<Composed>> {
        self.roster.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
