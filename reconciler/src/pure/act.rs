//! What one pass decided: a value that the edge signs, stores in one transaction and carries out.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::Epoch;
use meshplan_schemas::fleet_list::{FleetHead, Leaf};
use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::timestamp::BlockMark;

use super::delivery::{Delivery, Transition};
use super::events::Event;
use super::forge::revert::Revert;
use super::identities::Revoked;
use super::scope::Scope;
use super::secrets::Secret;
use super::snapshot::{Assignment, ContentRef, Counters, Freeze, KnownBad, StandingEpoch};

/// What one pass decided.
#[derive(Debug, Clone, Default)]
pub struct Act {
    /// Deliveries that are new or have changed, whole.
    pub deliveries: Vec<Delivery>,
    /// Transitions, in order.
    pub transitions: Vec<Transition>,
    /// Orders to sign. Their numbers are above [`Act::counters_before`].
    pub orders: Vec<Order>,
    /// Content that orders and roll-backs go back to: policy texts and module contents, by digest.
    pub contents: BTreeMap<Digest, Vec<u8>>,
    /// The values of secrets that these contents name; stored encrypted, sent sealed.
    pub values: BTreeMap<Digest, Secret>,
    /// What the archives and bundles of these contents are made of; kept before an order names it.
    pub artifacts: BTreeMap<Digest, Arc<[u8]>>,
    /// What nodes shall run and have proven, where it changed; none deletes the row.
    pub assignments: BTreeMap<(NodeId, Scope), Option<Assignment>>,
    /// What is accepted now, where it changed.
    pub accepted: BTreeMap<Scope, ContentRef>,
    /// The epochs that stand now, newest first, where that changed.
    pub standing: Option<Vec<StandingEpoch>>,
    /// The freeze of the fleet, where it changed; none inside lifts it.
    pub freeze: Option<Option<Freeze>>,
    /// The declarations under which nodes were given their order once more (DL-13).
    pub repeated: BTreeMap<NodeId, u64>,
    /// The epochs under which nodes were given their policy once more (DL-13).
    pub repeated_epochs: BTreeMap<NodeId, u64>,
    /// New known-bad content; none lifts it.
    pub known_bad: BTreeMap<(Scope, Digest), Option<KnownBad>>,
    /// Uuids and keys that left the fleet, for good (FR-5).
    pub revoked: Revoked,
    /// Journal blocks to sign, in order (DL-9).
    pub blocks: Vec<UnsignedBlock>,
    /// Commits whose revert is proposed, as their plans say (DL-7).
    pub reverts: Vec<Revert>,
    /// Requests that are answered: id and the answer, in a sentence; an error is an answer that begins with `refused: `.
    pub answers: Vec<(String, String)>,
    /// What the journal of events says of it, in order (RO-7).
    pub events: Vec<Event>,
    /// After the database was lost: what was waited for is over (SG-8).
    pub recovered: bool,
    /// The counters as the decision found them: the transaction fails if they have moved.
    pub counters_before: Counters,
    /// The counters afterwards.
    pub counters: Counters,
    /// What could not be decided, in words; nothing else of it is in here.
    pub faults: Vec<String>,
    /// Looks to ask for, not stored: a lost one is asked again.
    pub looks: Vec<Look>,
    /// When the next pass is due although nothing wakes it.
    pub next_at: Option<Timestamp>,
}

impl Act {
    /// Whether there is nothing to store.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
            && self.transitions.is_empty()
            && self.orders.is_empty()
            && self.assignments.is_empty()
            && self.accepted.is_empty()
            && self.repeated.is_empty()
            && self.repeated_epochs.is_empty()
            && self.known_bad.is_empty()
            && self.revoked.is_empty()
            && self.blocks.is_empty()
            && self.answers.is_empty()
            && !self.recovered
    }
}

impl Act {
    /// The nodes that it declares something on.
    pub fn declared(&self) -> impl Iterator<Item = NodeId> {
        self.orders.iter().filter_map(|order| match order {
            Order::Declaration { declaration } => Some(declaration.node),
            Order::Epoch { .. } | Order::Head { .. } => None,
        })
    }
}

/// An order before it is signed.
#[derive(Debug, Clone)]
pub enum Order {
    /// A policy order.
    Epoch {
        /// What it says.
        epoch: Epoch,
    },
    /// A revision of the fleet list.
    Head {
        /// What it says.
        head: FleetHead,
        /// The records under it, in the order of the tree.
        leaves: Vec<Leaf>,
    },
    /// A node's declaration.
    Declaration {
        /// What it says.
        declaration: Declaration,
    },
}

/// A look to ask for (DL-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Its id.
    pub id: u64,
    /// Whom.
    pub node: NodeId,
}

/// A journal block before it is signed (DL-9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsignedBlock {
    /// Its number and the digest of `text`.
    pub mark: BlockMark,
    /// The commit on whose note it stands.
    pub commit: CommitId,
    /// The bytes that are signed: everything before the `Sig:` line.
    pub text: String,
}
