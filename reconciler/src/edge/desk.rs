//! The store-backed desk: what sessions ask, answered from what is stored (LK-1, SG-3, EP-3).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::Envelope;
use meshplan_schemas::epoch::Epoch;
use meshplan_schemas::fleet_list::{Leaf, ProvenLeaf};
use meshplan_schemas::ident::{FleetName, NodeId};
use meshplan_schemas::judge;
use meshplan_schemas::key::TransportKey;
use meshplan_schemas::merkle;
use meshplan_schemas::report::{Mark, Marks};
use meshplan_schemas::wire::{FromEnrolling, ToEnrolling, ToHost};

use super::activation::Waker;
use super::admission::Admissions;
use super::artifacts::{ArtifactStore, Piece};
use super::health::Health;
use super::mesh::{Desk, Taken, Unavailable};
use super::store::orders::StoredOrder;
use super::store::reports::{ReportWriter, Taken as Stored};
use super::store::{Store, StoreError};

/// How soon a host tries again what was too much at once, in milliseconds.
const BUSY_MS: u64 = 500;

/// The desk.
#[derive(Debug)]
pub struct StoreDesk {
    /// The store.
    pub store: Store,
    /// Stores reports, many in one transaction.
    pub reports: ReportWriter,
    /// What travels beside declarations.
    pub artifacts: ArtifactStore,
    /// The fleet.
    pub fleet: FleetName,
    /// The newest tree, for the status interval.
    pub health: Arc<Health>,
    /// Wakes the pass.
    pub waker: Waker,
    /// Machines that enrol.
    pub admissions: Admissions,
    /// The status interval that was last told, in seconds.
    pub heartbeat: AtomicU32,
}

fn unavailable(error: StoreError) -> Unavailable {
    Unavailable(error.to_string())
}

fn order(envelope: String) -> ToHost {
    ToHost::Order { envelope }
}

/// Whether a host with this mark lacks that order.
fn lacks(mark: Option<Mark>, newest: &StoredOrder) -> bool {
    mark.is_none_or(|m| m.number < newest.number || (m.number == newest.number && m.digest != newest.digest))
}

impl StoreDesk {
    async fn leaf(&self, node: NodeId) -> Result<Option<Leaf>, StoreError> {
        Ok(self.store.newest_leaf_of(node).await?.map(|leaf| leaf.leaf))
    }

    /// The node's record with its proof against the newest head.
    pub async fn record(&self, node: NodeId) -> Result<Option<ProvenLeaf>, StoreError> {
        let Some(head) = self.store.newest_head().await? else {
            return Ok(None);
        };
        let texts = self.store.leaf_texts(head.number).await?;
        let Some(leaf) = self.store.leaf_of(head.number, node).await? else {
            return Ok(None);
        };
        let tree = merkle::Tree::new(texts.iter().map(|t| merkle::leaf_hash(t.as_bytes())).collect());
        let index = usize::try_from(leaf.index).unwrap_or(usize::MAX);
        let Some(path) = tree.path(index) else {
            return Ok(None);
        };
        Ok(Some(ProvenLeaf {
            leaf: leaf.text,
            revision: head.number,
            index: leaf.index,
            path: path.into_iter().map(Digest).collect(),
        }))
    }

    async fn missing(&self, node: NodeId, marks: &Marks) -> Result<Vec<ToHost>, StoreError> {
        let mut out = Vec::new();
        let list_known = marks.revision.map_or(0, |m| m.number);
        if let Some(head) = self
            .store
            .newest_head()
            .await?
            .filter(|head| lacks(marks.revision, head))
        {
            // Every head in between: each must satisfy the authors of the one before (SG-12).
            let heads = self.store.heads_above(list_known).await?;
            if heads.is_empty() {
                out.push(order(head.envelope));
            }
            out.extend(heads.into_iter().map(|h| order(h.envelope)));
            if let Some(record) = self.record(node).await? {
                out.push(ToHost::Record { record });
            }
        }
        if let Some(timestamp) = self
            .store
            .newest_timestamp()
            .await?
            .filter(|t| lacks(marks.timestamp, t))
        {
            out.push(order(timestamp.envelope));
        }
        if let Some(epoch) = self.store.newest_epoch().await?.filter(|e| lacks(marks.epoch, e)) {
            // A host that this epoch does not address runs an older one in force: it gets those bytes too (EP-3).
            for digest in in_force(&epoch).into_iter().rev() {
                if let Some(older) = self.store.order_by_digest(digest).await?
                    && marks.epoch.is_none_or(|m| m.number < older.number)
                {
                    out.push(order(older.envelope));
                }
            }
            out.push(order(epoch.envelope));
        }
        if let Some(declaration) = self.store.newest_declaration(node).await?
            && lacks(marks.sequence, &declaration)
        {
            out.push(order(declaration.envelope));
        }
        out.push(ToHost::Current);
        Ok(out)
    }
}

/// The digests of the epochs that a stored epoch names as in force, newest first.
fn in_force(stored: &StoredOrder) -> Vec<Digest> {
    let epoch = Envelope::read(stored.envelope.as_bytes()).ok();
    let epoch: Option<Epoch> = epoch.and_then(|e| serde_json::from_slice(&e.payload).ok());
    epoch
        .map(|e| e.in_force.iter().map(|f| f.digest).collect())
        .unwrap_or_default()
}

impl Desk for StoreDesk {
    fn record_of(&self, key: TransportKey) -> BoxFuture<'_, Result<Option<Leaf>, Unavailable>> {
        async move {
            let leaf = self.store.leaf_by_key(&key).await.map_err(unavailable)?;
            Ok(leaf.map(|l| l.leaf))
        }
        .boxed()
    }

    fn orders_for(&self, node: NodeId, marks: Marks) -> BoxFuture<'_, Result<Vec<ToHost>, Unavailable>> {
        async move { self.missing(node, &marks).await.map_err(unavailable) }.boxed()
    }

    fn epoch_bytes(&self, digest: Digest) -> BoxFuture<'_, Result<Option<String>, Unavailable>> {
        async move {
            let found = self.store.order_by_digest(digest).await.map_err(unavailable)?;
            Ok(found.map(|order| order.envelope))
        }
        .boxed()
    }

    fn artifact(
        &self,
        artifact: Digest,
        offset: u64,
        length: u32,
    ) -> BoxFuture<'_, Result<Option<Piece>, Unavailable>> {
        let artifacts = self.artifacts.clone();
        async move {
            let piece = tokio::task::spawn_blocking(move || artifacts.piece(artifact, offset, length));
            let piece = piece.await.map_err(|e| Unavailable(e.to_string()))?;
            piece.map_err(|e| Unavailable(format!("{artifact}: {e}")))
        }
        .boxed()
    }

    fn take_report(&self, node: NodeId, counter: u64, envelope: String) -> BoxFuture<'_, Taken> {
        async move {
            let leaf = match self.leaf(node).await {
                Ok(Some(leaf)) => leaf,
                // Not "no": the store could not say, or the list has moved on under the session.
                Ok(None) | Err(_) => return Taken::Busy(BUSY_MS),
            };
            let keys: Vec<_> = std::iter::once(leaf.signing_key)
                .chain(leaf.next_signing_key)
                .collect();
            let report = match judge::report(envelope.as_bytes(), &self.fleet, node, &keys) {
                Ok(judged) => judged.payload,
                Err(reasons) => {
                    let why: Vec<String> = reasons.iter().map(ToString::to_string).collect();
                    return Taken::Rejected(why.join("; "));
                }
            };
            if report.counter != counter {
                return Taken::Rejected(format!(
                    "it says counter {} inside and {counter} outside",
                    report.counter
                ));
            }
            match self.reports.take(node, counter, envelope, report).await {
                Ok(Stored::Stored | Stored::Duplicate) => Taken::Stored,
                Ok(Stored::Conflict) => {
                    Taken::Rejected(format!("counter {counter} was used before with other bytes"))
                }
                Ok(Stored::Busy) | Err(_) => Taken::Busy(BUSY_MS),
            }
        }
        .boxed()
    }

    fn enrol(&self, said: FromEnrolling) -> BoxFuture<'_, ToEnrolling> {
        async move { self.admissions.answer(self, said).await }.boxed()
    }

    fn heartbeat_secs(&self) -> u32 {
        if let Some(tree) = self.health.roster() {
            self.heartbeat.store(tree.fleet.heartbeat_secs, Ordering::Relaxed);
        }
        self.heartbeat.load(Ordering::Relaxed)
    }

    fn went_up(&self, node: NodeId) {
        tracing::info!(node = %node.short(), "a host is connected");
        self.waker.wake();
    }

    fn went_down(&self, node: NodeId) {
        tracing::info!(node = %node.short(), "a host is gone");
        self.waker.wake();
    }
}
