//! What a pass may know, read at one moment: the snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::envelope::Envelope;
use meshplan_schemas::fleet_list::FleetHead;
use meshplan_schemas::ident::NodeId;

use super::cell::cell;
use super::db::{Tx, args};
use super::deliveries::Row;
use super::{Store, StoreError, act, recovery};
use crate::pure::identities::Revoked;
use crate::pure::snapshot::{Freeze, HeadRef, Snapshot};

/// The lease's term until there is a lease (LK-6).
const TERM: u64 = 1;
/// The deliveries that are over and still have something to order ([`Delivery::owes`]); `;` is the character after `:`.
const OUTSTANDING: &str = "SELECT commit_id, changes FROM deliveries WHERE commit_id IN \
    (SELECT substr(key, 13) FROM meta WHERE key >= 'outstanding:' AND key < 'outstanding;')";

/// The nodes of [`Snapshot::aside`].
const ASIDE: &str = "SELECT node, aside FROM nodes WHERE aside IS NOT NULL AND (repeated IS NULL OR repeated < aside) \
    AND aside = (SELECT MAX(number) FROM orders WHERE kind = 'declaration' AND orders.node = nodes.node)";

/// The nodes of [`Snapshot::aside_epochs`].
const EPOCH_ASIDE: &str = "SELECT node, epoch_aside FROM nodes WHERE epoch_aside IS NOT NULL \
    AND (epoch_repeated IS NULL OR epoch_repeated < epoch_aside) \
    AND epoch_aside IN (SELECT epoch FROM standing_epochs)";

impl Store {
    /// Everything that a pass may know, as of one moment; nobody is `connected`: the caller knows sessions.
    ///
    /// Beside the deliveries that are not final and the newest final one it holds those that open requests speak of,
    /// and those that are over and still have something to order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let mut tx = self.db().begin_read().await?;
        let mut snapshot = Snapshot {
            counters: act::counters(&mut tx).await?,
            term: TERM,
            head: head(&mut tx).await?,
            nodes: self.inner.heard.read(&mut tx).await?,
            ..Snapshot::default()
        };
        self.deliveries_of(&mut tx, &mut snapshot).await?;
        state(&mut tx, &mut snapshot).await?;
        snapshot.recovering = recovery::recovering(&mut tx).await?;
        (snapshot.assignments, snapshot.changes) = self.inner.kept.read(&mut tx).await?;
        tx.commit().await?;
        Ok(snapshot)
    }

    async fn deliveries_of(&self, tx: &mut Tx, snapshot: &mut Snapshot) -> Result<(), StoreError> {
        const OPEN: &str = "SELECT commit_id, changes FROM deliveries \
            WHERE state IN ('proposed', 'held', 'delivering', 'rolling-back')";
        const NEWEST_FINAL: &str = "SELECT commit_id, changes FROM deliveries \
            WHERE state NOT IN ('proposed', 'held', 'delivering', 'rolling-back') ORDER BY order_no DESC LIMIT 1";
        const ONE: &str = "SELECT commit_id, changes FROM deliveries WHERE commit_id = $1";
        const REQUESTS: &str = "SELECT id, doc FROM requests WHERE answer IS NULL ORDER BY asked_at, id";

        let asked: Vec<(String, String)> = tx.rows(REQUESTS, args![]).await?;
        for (id, doc) in &asked {
            snapshot.requests.push(cell("requests", "doc", id).json(doc)?);
        }
        let mut rows: Vec<Row> = tx.rows(OPEN, args![]).await?;
        rows.extend(tx.row::<Row>(NEWEST_FINAL, args![]).await?);
        rows.extend(tx.rows::<Row>(OUTSTANDING, args![]).await?);
        for commit in snapshot
            .requests
            .iter()
            .filter_map(|request| request.commit.as_ref())
        {
            rows.extend(tx.row::<Row>(ONE, args![commit.as_str()]).await?);
        }
        rows.sort();
        rows.dedup();
        let all = self.inner.walking.read_and_keep(tx, rows).await?;
        snapshot.deliveries = all.into_iter().map(|d| (d.commit.clone(), d)).collect();
        Ok(())
    }

    /// Whether a delivery is not final or still has something to order, a request has no answer, a node is to be given its
    /// order once more, or the database is being rebuilt.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn anything_open(&self) -> Result<bool, StoreError> {
        const DELIVERY: &str = "SELECT commit_id FROM deliveries \
            WHERE state IN ('proposed', 'held', 'delivering', 'rolling-back') LIMIT 1";
        const LISTED: &str =
            "SELECT key FROM meta WHERE key >= 'outstanding:' AND key < 'outstanding;' LIMIT 1";
        const REQUEST: &str = "SELECT id FROM requests WHERE answer IS NULL LIMIT 1";
        let delivery: Option<(String,)> = self.db().row(DELIVERY, args![]).await?;
        if delivery.is_some() {
            return Ok(true);
        }
        let outstanding: Option<(String,)> = self.db().row(LISTED, args![]).await?;
        if outstanding.is_some() {
            return Ok(true);
        }
        let request: Option<(String,)> = self.db().row(REQUEST, args![]).await?;
        if request.is_some() {
            return Ok(true);
        }
        for aside in [ASIDE, EPOCH_ASIDE] {
            let node: Option<(String, i64)> = self.db().row(aside, args![]).await?;
            if node.is_some() {
                return Ok(true);
            }
        }
        Ok(self.recovering().await?.is_some())
    }

    /// The freeze of the fleet as it was last set, whether its time is over or not.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn freeze(&self) -> Result<Option<Freeze>, StoreError> {
        freeze(&mut self.db().begin_read().await?).await
    }

    /// Every uuid and key that was ever revoked, deleted or retired (FR-5).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn revoked(&self) -> Result<Revoked, StoreError> {
        revoked(&mut self.db().begin_read().await?).await
    }

    /// A content by its digest.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn content(
        &self,
        digest: meshplan_schemas::digest::Digest,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        const SQL: &str = "SELECT body FROM contents WHERE digest = $1";
        let row: Option<(Vec<u8>,)> = self.db().row(SQL, args![digest.to_string()]).await?;
        Ok(row.map(|(body,)| body))
    }

    /// The value of a secret by its content digest, encrypted to the reconciler itself (FR-9).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn secret_value(
        &self,
        digest: meshplan_schemas::digest::Digest,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        const SQL: &str = "SELECT file FROM secret_values WHERE digest = $1";
        let row: Option<(Vec<u8>,)> = self.db().row(SQL, args![digest.to_string()]).await?;
        Ok(row.map(|(file,)| file))
    }
}

async fn head(tx: &mut Tx) -> Result<Option<HeadRef>, StoreError> {
    const SQL: &str = "SELECT number, digest, envelope FROM orders WHERE kind = 'fleet-list' AND node = '' \
        ORDER BY number DESC LIMIT 1";
    let row: Option<(i64, String, String)> = tx.row(SQL, args![]).await?;
    let Some((number, digest, envelope)) = row else {
        return Ok(None);
    };
    let place = cell("orders", "envelope", &number);
    let envelope = Envelope::read(envelope.as_bytes()).map_err(|e| place.corrupt(e))?;
    let head: FleetHead = serde_json::from_slice(&envelope.payload).map_err(|e| place.corrupt(e))?;
    Ok(Some(HeadRef {
        revision: head.revision,
        digest: cell("orders", "digest", &number).parse(&digest)?,
        oldest_accepted: head.oldest_accepted,
        revoked: head.revoked,
        authors: head.authors,
        reconcilers: head.reconcilers,
    }))
}

async fn freeze(tx: &mut Tx) -> Result<Option<Freeze>, StoreError> {
    const SQL: &str = "SELECT value FROM meta WHERE key = 'freeze'";
    let row: Option<(String,)> = tx.row(SQL, args![]).await?;
    row.map_or(Ok(None), |(freeze,)| {
        cell("meta", "value", &"freeze").json(&freeze)
    })
}

/// Every uuid and key that ever left the fleet; `;` is the character after `:`.
async fn revoked(tx: &mut Tx) -> Result<Revoked, StoreError> {
    const SQL: &str = "SELECT substr(key, 9), value FROM meta WHERE key >= 'revoked:' AND key < 'revoked;'";
    let rows: Vec<(String, String)> = tx.rows(SQL, args![]).await?;
    let read = |(digest, doc): (String, String)| {
        let place = cell("meta", "value", &digest);
        Ok((place.parse(&digest)?, place.json(&doc)?))
    };
    rows.into_iter().map(read).collect()
}

/// The orders that went back, by node.
async fn aside(
    tx: &mut Tx,
    statement: &'static str,
    column: &'static str,
) -> Result<BTreeMap<NodeId, u64>, StoreError> {
    let rows: Vec<(String, i64)> = tx.rows(statement, args![]).await?;
    let read = |(node, number): (String, i64)| {
        let number = cell("nodes", column, &node).number(number)?;
        Ok((cell("nodes", "node", &node).parse(&node)?, number))
    };
    rows.into_iter().map(read).collect()
}

async fn state(tx: &mut Tx, snapshot: &mut Snapshot) -> Result<(), StoreError> {
    snapshot.freeze = freeze(tx).await?;
    snapshot.revoked = Arc::new(revoked(tx).await?);

    snapshot.aside = aside(tx, ASIDE, "aside").await?;
    snapshot.aside_epochs = aside(tx, EPOCH_ASIDE, "epoch_aside").await?;

    const REVIEWS: &str = "SELECT commit_id, doc FROM reviews WHERE commit_id IN (SELECT commit_id FROM deliveries \
        WHERE state IN ('proposed', 'held', 'delivering', 'rolling-back')) ORDER BY commit_id, by_whom";
    let rows: Vec<(String, String)> = tx.rows(REVIEWS, args![]).await?;
    for (commit, doc) in rows {
        let place = cell("reviews", "doc", &commit);
        let of = snapshot.reviews.entry(place.parse(&commit)?).or_default();
        of.push(place.json(&doc)?);
    }

    const CHECKS: &str = "SELECT commit_id, doc FROM checks WHERE commit_id IN (SELECT commit_id FROM deliveries \
        WHERE state IN ('proposed', 'held'))";
    let rows: Vec<(String, String)> = tx.rows(CHECKS, args![]).await?;
    for (commit, doc) in rows {
        let place = cell("checks", "doc", &commit);
        snapshot.checks.insert(place.parse(&commit)?, place.json(&doc)?);
    }

    // Of commits whose place an open delivery took, too (DL-15).
    const CHECKS_OF: &str = "SELECT doc FROM checks WHERE commit_id = $1";
    for unpassed in snapshot.deliveries.values().flat_map(|d| &d.unpassed) {
        let commit = &unpassed.commit;
        if let Some((doc,)) = tx.row::<(String,)>(CHECKS_OF, args![commit.as_str()]).await? {
            let said = cell("checks", "doc", commit).json(&doc)?;
            snapshot.checks.insert(commit.clone(), said);
        }
    }

    let rows: Vec<(String, String)> = tx.rows("SELECT scope, doc FROM accepted", args![]).await?;
    for (scope, doc) in rows {
        let content = cell("accepted", "doc", &scope).json(&doc)?;
        snapshot
            .accepted
            .insert(cell("accepted", "scope", &scope).parse(&scope)?, content);
    }

    let rows: Vec<(i64, String)> = tx
        .rows(
            "SELECT epoch, doc FROM standing_epochs ORDER BY epoch DESC",
            args![],
        )
        .await?;
    for (epoch, doc) in rows {
        snapshot
            .epochs
            .push(cell("standing_epochs", "doc", &epoch).json(&doc)?);
    }

    let rows: Vec<(String, String, String)> = tx
        .rows("SELECT scope, digest, doc FROM known_bad", args![])
        .await?;
    for (scope, digest, doc) in rows {
        let bad = cell("known_bad", "doc", &digest).json(&doc)?;
        let key = (
            cell("known_bad", "scope", &digest).parse(&scope)?,
            cell("known_bad", "digest", &digest).parse(&digest)?,
        );
        snapshot.known_bad.insert(key, bad);
    }
    Ok(())
}
