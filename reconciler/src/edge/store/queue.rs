//! Rows of the outbox (FG-4): what is to be done outside, written in the transaction that decided it.
//!
//! One open row for each kind and key: what is queued again while it waits takes the newer body.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::cell::{cell, int};
use super::db::{Tx, args};
use super::{Store, StoreError};

/// A row that is not done yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboxRow {
    /// Its id.
    pub id: String,
    /// What kind of act.
    pub kind: String,
    /// Upon what; unique among the open rows of the kind.
    pub key: String,
    /// What it says; of `notes` rows the commit, their key is the block's number.
    pub body: String,
    /// How often it was tried.
    pub attempts: u64,
    /// Since when it waits.
    pub queued_at: Timestamp,
    /// When it is tried next.
    pub due_at: Timestamp,
    /// What went wrong the last time.
    pub error: Option<String>,
}

type Columns = (String, String, String, String, i64, i64, i64, Option<String>);

fn open_row(row: Columns) -> Result<OutboxRow, StoreError> {
    let (id, kind, key, body, attempts, queued_at, due_at, error) = row;
    Ok(OutboxRow {
        attempts: cell("outbox", "attempts", &id).number(attempts)?,
        queued_at: cell("outbox", "queued_at", &id).time(queued_at)?,
        due_at: cell("outbox", "due_at", &id).time(due_at)?,
        id,
        kind,
        key,
        body,
        error,
    })
}

/// Queues an act.
pub(super) async fn put(tx: &mut Tx, kind: &str, key: &str, body: &str, now: i64) -> Result<(), StoreError> {
    const SQL: &str = "INSERT INTO outbox (id, kind, key, body, attempts, queued_at, due_at) \
        VALUES ($1, $2, $3, $4, 0, $5, $5) \
        ON CONFLICT (kind, key) WHERE done_at IS NULL DO UPDATE SET body = excluded.body";
    let id = Uuid::now_v7().to_string();
    tx.run(SQL, args![id, kind, key, body, now]).await?;
    Ok(())
}

impl Store {
    /// Queues an act that no decision of a pass carries.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn queue_outward(&self, kind: &str, key: &str, body: &str) -> Result<(), StoreError> {
        let now = self.now().as_microsecond();
        let mut tx = self.db().begin_write().await?;
        put(&mut tx, kind, key, body, now).await?;
        tx.commit().await
    }

    /// The rows that are due, in the order in which they were queued, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn outbox_due(&self, now: Timestamp, limit: u32) -> Result<Vec<OutboxRow>, StoreError> {
        const SQL: &str = "SELECT id, kind, key, body, attempts, queued_at, due_at, error FROM outbox \
            WHERE done_at IS NULL AND due_at <= $1 ORDER BY queued_at, id LIMIT $2";
        let args = args![now.as_microsecond(), i64::from(limit)];
        let rows = self.db().rows(SQL, args).await?;
        rows.into_iter().map(open_row).collect()
    }

    /// Every row that is not done, in the order in which they were queued: the outbox as people see it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn outbox_open(&self) -> Result<Vec<OutboxRow>, StoreError> {
        const SQL: &str = "SELECT id, kind, key, body, attempts, queued_at, due_at, error FROM outbox \
            WHERE done_at IS NULL ORDER BY queued_at, id";
        let rows = self.db().rows(SQL, args![]).await?;
        rows.into_iter().map(open_row).collect()
    }

    /// When the next row is due, none when all are done.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn outbox_next_due(&self) -> Result<Option<Timestamp>, StoreError> {
        const SQL: &str = "SELECT MIN(due_at) FROM outbox WHERE done_at IS NULL";
        let row: Option<(Option<i64>,)> = self.db().row(SQL, args![]).await?;
        row.and_then(|(due,)| due)
            .map(|due| cell("outbox", "due_at", &"the next").time(due))
            .transpose()
    }

    /// These rows are done; said twice it changes nothing. One whose body has changed meanwhile stays open.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn outbox_done(&self, rows: &[OutboxRow]) -> Result<(), StoreError> {
        const SQL: &str = "UPDATE outbox SET done_at = $3, error = NULL \
            WHERE id = $1 AND body = $2 AND done_at IS NULL";
        const TRIM: &str = "DELETE FROM outbox WHERE done_at < $1";
        let now = self.now();
        let mut tx = self.db().begin_write().await?;
        for row in rows {
            let args = args![row.id.as_str(), row.body.as_str(), now.as_microsecond()];
            tx.run(SQL, args).await?;
        }
        let old = now.as_microsecond() - KEPT_MICROS;
        tx.run(TRIM, args![old]).await?;
        tx.commit().await
    }

    /// These rows were not tried: they are due at `until`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn outbox_rests(&self, rows: &[OutboxRow], until: Timestamp) -> Result<(), StoreError> {
        const SQL: &str = "UPDATE outbox SET due_at = $2 WHERE id = $1 AND done_at IS NULL";
        let mut tx = self.db().begin_write().await?;
        for row in rows {
            tx.run(SQL, args![row.id.as_str(), until.as_microsecond()])
                .await?;
        }
        tx.commit().await
    }

    /// These rows did not work; each is due again at the time beside it. Said twice of one attempt it counts once.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn outbox_failed(&self, rows: &[(OutboxRow, Timestamp)], why: &str) -> Result<(), StoreError> {
        const SQL: &str = "UPDATE outbox SET attempts = attempts + 1, error = $3, due_at = $4 \
            WHERE id = $1 AND attempts = $2 AND done_at IS NULL";
        let mut tx = self.db().begin_write().await?;
        for (row, due_at) in rows {
            let attempts = int(row.attempts)?;
            let args = args![row.id.as_str(), attempts, why, due_at.as_microsecond()];
            tx.run(SQL, args).await?;
        }
        tx.commit().await
    }
}

/// Done rows are kept for a week, to be looked at.
const KEPT_MICROS: i64 = 7 * 24 * 3600 * 1_000_000;
