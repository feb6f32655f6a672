//! The seam between sessions and the store: what a session asks, and what it tells.

use futures_util::future::BoxFuture;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::Leaf;
use meshplan_schemas::ident::NodeId;
use meshplan_schemas::key::TransportKey;
use meshplan_schemas::report::Marks;
use meshplan_schemas::wire::{FromEnrolling, ToEnrolling, ToHost};

use crate::edge::artifacts::Piece;

/// Who answers for the sessions. The store's is the real one; tests of sessions have their own.
///
/// "Could not tell" ([`Unavailable`]) is never "no": a host whose record could not be looked up comes again, one that
/// has none is refused.
pub trait Desk: Send + Sync + 'static {
    /// The record whose current or next transport key this is, when its sessions are taken (not revoked, not retired).
    fn record_of(&self, key: TransportKey) -> BoxFuture<'_, Result<Option<Leaf>, Unavailable>>;

    /// What a host with these marks lacks, in the order in which it can take it: heads of the fleet list, its record,
    /// the timestamp, the newest epoch and the older ones in force that it needs, its declaration; then
    /// [`ToHost::Current`]. Nothing but `Current` when it lacks nothing.
    fn orders_for(&self, node: NodeId, marks: Marks) -> BoxFuture<'_, Result<Vec<ToHost>, Unavailable>>;

    /// The envelope's text of the epoch with this payload digest (EP-3).
    fn epoch_bytes(&self, digest: Digest) -> BoxFuture<'_, Result<Option<String>, Unavailable>>;

    /// A piece of an artifact; none where it is not kept (HK-15).
    fn artifact(
        &self,
        artifact: Digest,
        offset: u64,
        length: u32,
    ) -> BoxFuture<'_, Result<Option<Piece>, Unavailable>>;

    /// Judges and stores a report. Returns when it is stored, not before: the acknowledgement follows at once.
    fn take_report(&self, node: NodeId, counter: u64, envelope: String) -> BoxFuture<'_, Taken>;

    /// Answers a machine that enrols.
    fn enrol(&self, said: FromEnrolling) -> BoxFuture<'_, ToEnrolling>;

    /// How often a report is expected, in seconds.
    fn heartbeat_secs(&self) -> u32;

    /// A session of this node stands, a first one or one that replaces another. Ups and downs of a node come in their
    /// order; neither may wait or call back into the mesh.
    fn went_up(&self, node: NodeId);

    /// The node has no session any more.
    fn went_down(&self, node: NodeId);
}

/// What became of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// On disk; acknowledged.
    Stored,
    /// Never to be taken, and why (B49): the host sets it aside.
    Rejected(String),
    /// Too much at once; the same again after so many milliseconds (LK-7).
    Busy(u64),
}

/// The store could not be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the store cannot tell: {0}")]
pub struct Unavailable(pub String);
