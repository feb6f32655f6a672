//! Signed orders, leaves and timestamps, as sessions read them: always the exact text that was signed.

use std::fmt;

use jiff::Timestamp;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::Leaf;
use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::key::TransportKey;

use super::cell::{cell, int};
use super::db::{OverRows, Tx, args};
use super::{Store, StoreError};

/// What is ordered; the word is the one of the payload's type (SG-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OrderKind {
    /// A policy order.
    Epoch,
    /// A revision of the fleet list.
    Head,
    /// A node's declaration.
    Declaration,
    /// A timestamp; its number is `issued_at`.
    Timestamp,
}

impl OrderKind {
    /// The word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Epoch => "epoch",
            Self::Head => "fleet-list",
            Self::Declaration => "declaration",
            Self::Timestamp => "timestamp",
        }
    }
}
impl fmt::Display for OrderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// An order after it is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedOrder {
    /// What is ordered.
    pub kind: OrderKind,
    /// Its number.
    pub number: u64,
    /// The node, for declarations.
    pub node: Option<NodeId>,
    /// The digest of the payload.
    pub digest: Digest,
    /// The envelope's exact text.
    pub envelope: String,
    /// The commit that asked for it; none for timestamps.
    pub commit: Option<CommitId>,
    /// When it was issued.
    pub issued_at: Timestamp,
}

/// A signed order as it is read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOrder {
    /// Its number.
    pub number: u64,
    /// The digest of the payload.
    pub digest: Digest,
    /// The envelope's exact text.
    pub envelope: String,
}

/// A record of the fleet list with its place in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLeaf {
    /// The revision.
    pub revision: u64,
    /// Its place in the tree, from 0.
    pub index: u64,
    /// The exact text that was hashed.
    pub text: String,
    /// The same, read.
    pub leaf: Leaf,
}

/// How many timestamps are kept.
const TIMESTAMPS: i64 = 16;

type OrderRow = (i64, String, String);
type LeafRow = (i64, i64, String, String);

fn order(row: OrderRow) -> Result<StoredOrder, StoreError> {
    let (number, digest, envelope) = row;
    Ok(StoredOrder {
        number: cell("orders", "number", &digest).number(number)?,
        digest: cell("orders", "digest", &number).parse(&digest)?,
        envelope,
    })
}

fn leaf(row: LeafRow) -> Result<StoredLeaf, StoreError> {
    let (revision, place, node, text) = row;
    Ok(StoredLeaf {
        revision: cell("leaves", "revision", &node).number(revision)?,
        index: cell("leaves", "place", &node).number(place)?,
        leaf: cell("leaves", "leaf", &node).json(&text)?,
        text,
    })
}

/// Stores orders, unless the number of one was used with other bytes (SG-8).
pub(super) async fn put(tx: &mut Tx, orders: &[SignedOrder]) -> Result<(), StoreError> {
    const INSERT: OverRows = OverRows {
        before: "INSERT INTO orders (kind, number, node, digest, envelope, commit_id, issued_at)",
        after: "ON CONFLICT DO NOTHING",
    };
    const FORMER: &str = "SELECT envelope FROM orders WHERE kind = $1 AND number = $2 AND node = $3";
    let node = |order: &SignedOrder| order.node.map(|n| n.to_string()).unwrap_or_default();
    let row = |order: &SignedOrder| {
        Ok::<_, StoreError>(args![
            order.kind.word(),
            int(order.number)?,
            node(order),
            order.digest.to_string(),
            order.envelope.clone(),
            order.commit.as_ref().map(|c| c.to_string()),
            order.issued_at.as_microsecond(),
        ])
    };
    let rows = orders.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    if tx.run_over(INSERT, rows).await? == orders.len() as u64 {
        return Ok(());
    }
    for order in orders {
        let key = args![order.kind.word(), int(order.number)?, node(order)];
        let stored: Option<(String,)> = tx.row(FORMER, key).await?;
        if stored.is_none_or(|(envelope,)| envelope != order.envelope) {
            return Err(StoreError::NumberReused {
                kind: order.kind.word(),
                number: order.number,
            });
        }
    }
    Ok(())
}

impl Store {
    /// The newest order of a kind that is fleet-wide: epoch, head or timestamp.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn newest_order(&self, kind: OrderKind) -> Result<Option<StoredOrder>, StoreError> {
        const SQL: &str = "SELECT number, digest, envelope FROM orders WHERE kind = $1 AND node = '' \
            ORDER BY number DESC LIMIT 1";
        self.db()
            .row(SQL, args![kind.word()])
            .await?
            .map(order)
            .transpose()
    }

    /// The newest head.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn newest_head(&self) -> Result<Option<StoredOrder>, StoreError> {
        self.newest_order(OrderKind::Head).await
    }

    /// The heads above a revision, oldest first: the chain that a host walks (SG-12).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn heads_above(&self, revision: u64) -> Result<Vec<StoredOrder>, StoreError> {
        const SQL: &str = "SELECT number, digest, envelope FROM orders \
            WHERE kind = 'fleet-list' AND node = '' AND number > $1 ORDER BY number";
        let rows = self.db().rows(SQL, args![int(revision)?]).await?;
        rows.into_iter().map(order).collect()
    }

    /// The newest epoch.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn newest_epoch(&self) -> Result<Option<StoredOrder>, StoreError> {
        self.newest_order(OrderKind::Epoch).await
    }

    /// The newest timestamp.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn newest_timestamp(&self) -> Result<Option<StoredOrder>, StoreError> {
        self.newest_order(OrderKind::Timestamp).await
    }

    /// The order whose payload has this digest.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn order_by_digest(&self, digest: Digest) -> Result<Option<StoredOrder>, StoreError> {
        const SQL: &str = "SELECT number, digest, envelope FROM orders WHERE digest = $1 LIMIT 1";
        let row = self.db().row(SQL, args![digest.to_string()]).await?;
        row.map(order).transpose()
    }

    /// The newest declaration of a node.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn newest_declaration(&self, node: NodeId) -> Result<Option<StoredOrder>, StoreError> {
        const SQL: &str = "SELECT number, digest, envelope FROM orders \
            WHERE kind = 'declaration' AND node = $1 ORDER BY number DESC LIMIT 1";
        let row = self.db().row(SQL, args![node.to_string()]).await?;
        row.map(order).transpose()
    }

    /// Stores a timestamp (SG-9).
    ///
    /// # Errors
    /// [`StoreError::Older`] when a newer one is stored, [`StoreError::NumberReused`] when one of the same second
    /// with other bytes is: sign one of the next second.
    pub async fn put_timestamp(&self, timestamp: &SignedOrder) -> Result<(), StoreError> {
        const NEWEST: &str = "SELECT MAX(number) FROM orders WHERE kind = 'timestamp'";
        const TRIM: &str = "DELETE FROM orders WHERE kind = 'timestamp' AND number < \
            (SELECT MIN(number) FROM (SELECT number FROM orders WHERE kind = 'timestamp' \
             ORDER BY number DESC LIMIT $1) AS kept)";
        let mut tx = self.db().begin_write().await?;
        let newest: Option<(Option<i64>,)> = tx.row(NEWEST, args![]).await?;
        if let Some((Some(newest),)) = newest {
            let newest = cell("orders", "number", &"timestamp").number(newest)?;
            if newest > timestamp.number {
                return Err(StoreError::Older {
                    kind: OrderKind::Timestamp.word(),
                    number: timestamp.number,
                    newest,
                });
            }
        }
        put(&mut tx, std::slice::from_ref(timestamp)).await?;
        tx.run(TRIM, args![TIMESTAMPS]).await?;
        tx.commit().await
    }

    /// The record of a node under a revision.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn leaf_of(&self, revision: u64, node: NodeId) -> Result<Option<StoredLeaf>, StoreError> {
        const SQL: &str = "SELECT revision, place, node, leaf FROM leaves WHERE revision = $1 AND node = $2";
        let row = self
            .db()
            .row(SQL, args![int(revision)?, node.to_string()])
            .await?;
        row.map(leaf).transpose()
    }

    /// The exact texts of all records under a revision, in the order of the tree; empty when that revision's records
    /// are not kept any more.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn leaf_texts(&self, revision: u64) -> Result<Vec<String>, StoreError> {
        const SQL: &str = "SELECT leaf FROM leaves WHERE revision = $1 ORDER BY place";
        let rows: Vec<(String,)> = self.db().rows(SQL, args![int(revision)?]).await?;
        Ok(rows.into_iter().map(|(text,)| text).collect())
    }

    /// The record of a node under the newest revision.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn newest_leaf_of(&self, node: NodeId) -> Result<Option<StoredLeaf>, StoreError> {
        const SQL: &str = "SELECT revision, place, node, leaf FROM leaves WHERE node = $1 AND revision = \
            (SELECT MAX(n) FROM (SELECT MAX(number) AS n FROM orders WHERE kind = 'fleet-list' \
             UNION ALL SELECT MAX(revision) FROM leaves) AS newest)";
        let row = self.db().row(SQL, args![node.to_string()]).await?;
        row.map(leaf).transpose()
    }

    /// The record that a session's key opens, current or next, under the newest revision. After the database was lost that
    /// is one whose head nobody has any more: its records are known from the repository.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn leaf_by_key(&self, key: &TransportKey) -> Result<Option<StoredLeaf>, StoreError> {
        const SQL: &str = "SELECT revision, place, node, leaf FROM leaves \
            WHERE revision = (SELECT MAX(n) FROM (SELECT MAX(number) AS n FROM orders WHERE kind = 'fleet-list' \
             UNION ALL SELECT MAX(revision) FROM leaves) AS newest) \
            AND (transport_key = $1 OR next_transport_key = $1)";
        let row = self.db().row(SQL, args![key.to_string()]).await?;
        row.map(leaf).transpose()
    }
}
