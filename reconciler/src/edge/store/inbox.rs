//! Accepted webhooks (FG-2) and how far each branch is read (DL-1).
//!
//! A row stays open until a pass has looked; what is delivered again finds its row and changes nothing, but the
//! caller wakes the pass all the same, so that pressing "redeliver" always leads to a look (B03).

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::CommitId;
use uuid::Uuid;

use super::cell::{cell, json};
use super::db::{Tx, args};
use super::{Store, StoreError};
use crate::pure::trigger::{Event, Trigger};

/// Whether a webhook was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// Stored now.
    Fresh,
    /// Stored before, and not looked at yet.
    Waiting,
    /// Stored and looked at before.
    Handled,
}

/// A webhook that no pass has looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxRow {
    /// Its id.
    pub id: String,
    /// What it says.
    pub event: Event,
}

/// Marks webhooks as looked at, and forgets those of long ago.
pub(super) async fn handled(tx: &mut Tx, ids: &[String], now: i64) -> Result<(), StoreError> {
    const SQL: &str = "UPDATE inbox SET handled_at = $2 WHERE id = $1 AND handled_at IS NULL";
    const TRIM: &str = "DELETE FROM inbox WHERE handled_at < $1";
    for id in ids {
        tx.run(SQL, args![id.as_str(), now]).await?;
    }
    if !ids.is_empty() {
        tx.run(TRIM, args![now - KEPT_MICROS]).await?;
    }
    Ok(())
}

/// Moves the cursor of a branch.
pub(super) async fn move_cursor(
    tx: &mut Tx,
    repo: &str,
    branch: &str,
    commit: &CommitId,
) -> Result<(), StoreError> {
    const SQL: &str = "INSERT INTO cursors (repo, branch, commit_id) VALUES ($1, $2, $3) \
        ON CONFLICT (repo, branch) DO UPDATE SET commit_id = excluded.commit_id";
    tx.run(SQL, args![repo, branch, commit.as_str()]).await?;
    Ok(())
}

impl Store {
    /// Stores a webhook; on the disk when this returns.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put_inbox(&self, trigger: &Trigger) -> Result<Arrival, StoreError> {
        const INSERT: &str = "INSERT INTO inbox (id, delivery_id, body_digest, event, received_at) \
            VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
        const FORMER: &str = "SELECT handled_at FROM inbox WHERE delivery_id = $1 AND body_digest = $2";
        let (delivery, digest) = (trigger.delivery_id.as_str(), trigger.body_digest.to_string());
        let row = args![
            Uuid::now_v7().to_string(),
            delivery,
            digest.clone(),
            json(&trigger.event)?,
            self.now().as_microsecond(),
        ];
        let mut tx = self.db().begin_write().await?;
        let arrival = if tx.run(INSERT, row).await? == 1 {
            Arrival::Fresh
        } else {
            let former: Option<(Option<i64>,)> = tx.row(FORMER, args![delivery, digest]).await?;
            match former {
                Some((Some(_),)) => Arrival::Handled,
                _ => Arrival::Waiting,
            }
        };
        tx.commit().await?;
        Ok(arrival)
    }

    /// Whether this very webhook was stored before, asked without writing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn in_inbox(&self, delivery_id: &str, body_digest: Digest) -> Result<bool, StoreError> {
        const SQL: &str = "SELECT received_at FROM inbox WHERE delivery_id = $1 AND body_digest = $2";
        let row: Option<(i64,)> = self
            .db()
            .row(SQL, args![delivery_id, body_digest.to_string()])
            .await?;
        Ok(row.is_some())
    }

    /// The webhooks that no pass has looked at, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn inbox_open(&self) -> Result<Vec<InboxRow>, StoreError> {
        const SQL: &str = "SELECT id, event FROM inbox WHERE handled_at IS NULL ORDER BY received_at, id";
        let rows: Vec<(String, String)> = self.db().rows(SQL, args![]).await?;
        rows.into_iter()
            .map(|(id, event)| {
                let event = cell("inbox", "event", &id).json(&event)?;
                Ok(InboxRow { id, event })
            })
            .collect()
    }

    /// A pass has looked, and found nothing to store with it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn inbox_handled(&self, ids: &[String]) -> Result<(), StoreError> {
        let mut tx = self.db().begin_write().await?;
        handled(&mut tx, ids, self.now().as_microsecond()).await?;
        tx.commit().await
    }

    /// The newest commit of a branch that deliveries were made up to.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn cursor(&self, repo: &str, branch: &str) -> Result<Option<CommitId>, StoreError> {
        const SQL: &str = "SELECT commit_id FROM cursors WHERE repo = $1 AND branch = $2";
        let row: Option<(String,)> = self.db().row(SQL, args![repo, branch]).await?;
        row.map(|(commit,)| cell("cursors", "commit_id", &branch).parse(&commit))
            .transpose()
    }
}

/// Webhooks are remembered for a week after they were looked at.
const KEPT_MICROS: i64 = 7 * 24 * 3600 * 1_000_000;
