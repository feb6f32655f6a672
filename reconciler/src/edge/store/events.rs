//! The journal of events (RO-7): stored with the act that they tell of, numbered, the newest kept.

use super::cell::{cell, int, json};
use super::db::{Tx, args};
use super::{Store, StoreError};
use crate::pure::events::{Event, Numbered};

/// So many of the newest are kept.
const KEPT: i64 = 10_000;

/// Appends events.
pub(super) async fn put(tx: &mut Tx, events: &[Event]) -> Result<(), StoreError> {
    const SQL: &str = "INSERT INTO events (doc) VALUES ($1)";
    const TRIM: &str = "DELETE FROM events WHERE number <= (SELECT max(number) FROM events) - $1";
    for event in events {
        tx.run(SQL, args![json(event)?]).await?;
    }
    if !events.is_empty() {
        tx.run(TRIM, args![KEPT]).await?;
    }
    Ok(())
}

impl Store {
    /// Appends an event of its own.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn add_event(&self, event: &Event) -> Result<(), StoreError> {
        let mut tx = self.db().begin_write().await?;
        put(&mut tx, std::slice::from_ref(event)).await?;
        tx.commit().await?;
        self.inner.happened.send_modify(|n| *n += 1);
        Ok(())
    }

    /// Events with numbers above `after`, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn events(&self, after: u64, limit: u32) -> Result<Vec<Numbered>, StoreError> {
        const SQL: &str = "SELECT number, doc FROM events WHERE number > $1 ORDER BY number LIMIT $2";
        let after = int(after).unwrap_or(i64::MAX);
        let rows: Vec<(i64, String)> = self.db().rows(SQL, args![after, i64::from(limit)]).await?;
        rows.into_iter()
            .map(|(number, doc)| {
                Ok(Numbered {
                    number: cell("events", "number", &number).number(number)?,
                    event: cell("events", "doc", &number).json(&doc)?,
                })
            })
            .collect()
    }

    /// Wakes whoever follows the events, each time when there are new ones.
    #[must_use]
    pub fn happenings(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.happened.subscribe()
    }
}
