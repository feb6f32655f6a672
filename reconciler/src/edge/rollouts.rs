//! Rollouts gathered: what the store knows of one becomes its record, and one that is over is put away (RO-5).
//!
//! It stands alone because pass, pages and rehearsal ask the same question. What a record says and when it is put away is
//! decided in [`crate::pure::rollout`].

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::health::Health;
use super::store::rollouts::RolloutRow;
use super::store::{Store, StoreError};
use crate::pure::decide::after_secs;
use crate::pure::rollout::archive::{Archive, Due, due};
use crate::pure::rollout::live::{Known, record, roster};
use crate::pure::rollout::{Phase, Rollout};
use crate::pure::snapshot::Nodes;

/// How often a rollout that is over is looked at until it is put away, in seconds.
const EVERY_SECS: u32 = 30;
/// How many archives are kept where no tree says so (FR-16).
const ARCHIVES_KEPT: u32 = 50;

/// Who asks, and what the store does not know.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// The store.
    pub store: &'a Store,
    /// Who is in the fleet, and since when it is heard.
    pub health: &'a Health,
    /// The time.
    pub now: Timestamp,
}

impl Asking<'_> {
    /// The record of a rollout that is not put away; none where its delivery or the fleet is not known.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn live(&self, row: &RolloutRow, nodes: &Nodes) -> Result<Option<Rollout>, StoreError> {
        let Some(tree) = self.health.roster() else {
            return Ok(None);
        };
        let (Some(delivery), Some(run)) = (
            self.store.delivery(&row.commit).await?,
            self.store.run_of(row).await?,
        ) else {
            return Ok(None);
        };
        let transitions = self.store.transitions_of(&row.commit).await?;
        let timeline = self.store.timeline_of(row).await?;
        Ok(Some(record(&Known {
            delivery: &delivery,
            transitions: &transitions,
            run: &run,
            roster: &roster(&tree),
            nodes,
            timeline: &timeline,
            now: self.now,
            calm_until: self.health.calm_until(),
        })))
    }

    /// The newest rollout, live or put away; none before the first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn newest(&self) -> Result<Option<Rollout>, StoreError> {
        match self.store.newest_rollout().await? {
            Some(row) => self.of(&row).await.map(|found| found.map(|(r, _)| r)),
            None => Ok(None),
        }
    }

    /// A rollout, with its archive's own facts where it is put away.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn of(
        &self,
        row: &RolloutRow,
    ) -> Result<Option<(Rollout, Option<(Timestamp, bool)>)>, StoreError> {
        if row.archived {
            let archive = self.store.archive_of(row.first_epoch).await?;
            return Ok(archive.map(|a| (a.rollout, Some((a.archived_at, a.closed)))));
        }
        let nodes = self.store.nodes().await?;
        Ok(self.live(row, &nodes).await?.map(|rollout| (rollout, None)))
    }
}

/// What may have changed since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// Something was decided.
    Yes,
    /// Nothing was.
    No,
}

/// Puts rollouts away that are over. It keeps nothing that a restart may not lose.
#[derive(Debug, Default)]
pub struct PutAway {
    /// Until when the last look is good, and when it said that the next is due.
    looked: Option<(Timestamp, Option<Timestamp>)>,
}

impl PutAway {
    /// Looks whether one is to be put away, or something arrived late; when the next look is due, none while nothing is
    /// over that is not put away.
    ///
    /// # Errors
    /// [`StoreError`]; the next pass looks again.
    pub async fn pass(&mut self, asking: Asking<'_>, moved: Moved) -> Result<Option<Timestamp>, StoreError> {
        let Asking { store, health, now } = asking;
        if !store.anything_to_put_away().await? {
            self.looked = None;
            return Ok(None);
        }
        let again = after_secs(now, EVERY_SECS);
        // A clock that was set back since does not keep anything waiting.
        let fresh = self.looked.filter(|(until, _)| now < *until && *until <= again);
        if let Some((_, next)) = fresh.filter(|_| moved == Moved::No) {
            return Ok(next);
        }
        let kept = health
            .roster()
            .map_or(ARCHIVES_KEPT, |tree| tree.fleet.config_mgmt.archives_kept);
        let mut next = None;
        let live = store.live_rollouts().await?;
        let mut newest = BTreeSet::new();
        for row in live.iter().rev() {
            let former = !newest.insert(row.rollout_id.clone());
            let delivery = store.delivery(&row.commit).await?;
            if !former && delivery.is_some_and(|d| !d.state.is_final()) {
                continue;
            }
            let nodes = store.nodes().await?;
            let Some(rollout) = asking.live(row, &nodes).await? else {
                next = Some(again);
                continue;
            };
            match due(&rollout, now) {
                Due::Now => {
                    let (id, phase) = (rollout.rollout_id.clone(), rollout.phase);
                    store
                        .put_away(row.first_epoch, &Archive::of(rollout, now), kept)
                        .await?;
                    tell(&id, phase);
                }
                Due::At(at) => next = Some(next.map_or(again, |n: Timestamp| n.min(again)).min(at)),
                Due::Open => {}
            }
        }
        for (first, late) in store.late_arrivals().await? {
            store.append_late(first, late).await?;
        }
        store.forget_strays().await?;
        self.looked = Some((next.unwrap_or(again), next));
        Ok(next)
    }
}

fn tell(rollout_id: &str, phase: Phase) {
    tracing::info!(rollout_id, phase = phase.word(), "a rollout is put away");
}
