//! The fleet list: the signed head, and the records that are the leaves of its tree (SG-3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::{Digest, canonical};
use crate::envelope::Payload;
use crate::ident::{CommitId, FleetName, KeyId, NodeId, NodeName};
use crate::key::{SigningKey, TransportKey};
use crate::merkle;

/// The signed head of the fleet list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetHead {
    /// Version of the formats.
    pub schema: u32,
    /// Whose.
    pub fleet: FleetName,
    /// Raised only by the offline roots (SG-11).
    pub era: u64,
    /// Unix seconds.
    pub issued_at: i64,
    /// Names of fields that a reader must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_understand: Vec<String>,
    /// The number.
    pub revision: u64,
    /// The digest of the payload of the head before; none on the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Digest>,
    /// The commit that asked for it.
    pub commit: CommitId,
    /// Who may sign from here on.
    pub authors: Vec<Author>,
    /// Offline keys (SG-11).
    #[serde(default)]
    pub roots: Vec<Author>,
    /// How many authors must sign (SG-6).
    pub threshold: u32,
    /// How many roots must sign (SG-11).
    #[serde(default)]
    pub root_threshold: u32,
    /// Where hosts find the reconcilers.
    pub reconcilers: Vec<Reconciler>,
    /// Rotations of fleet-wide material (page 05).
    #[serde(default)]
    pub rotations: Vec<serde_json::Value>,
    /// The root of the tree of records.
    pub records_root: Digest,
    /// How many records it has.
    pub records_count: u64,
    /// The root of the tree of wrapped secrets, when a rotation has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrapped_root: Option<Digest>,
    /// Keys whose timestamps count (SG-9).
    pub timestamp_keys: Vec<Author>,
    /// Digests of uuids and keys revoked or retired since `oldest_accepted`.
    #[serde(default)]
    pub revoked: Vec<Digest>,
    /// The oldest revision against which a proof is still taken.
    pub oldest_accepted: u64,
    /// What hosts need to know of fleet.toml.
    pub settings: ListSettings,
}

impl Payload for FleetHead {
    const TYPE: &'static str = "application/vnd.meshplan.fleet-list+json";
}

/// A named key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Author {
    /// The name that signatures carry.
    pub id: KeyId,
    /// The key.
    pub key: SigningKey,
}

/// A reconciler as hosts find it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reconciler {
    /// Its name.
    pub id: String,
    /// Addresses, `ws://` or `wss://`, tried in turn.
    pub addresses: Vec<String>,
    /// Its link key.
    pub key: TransportKey,
    /// The next one, while it rotates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_key: Option<TransportKey>,
    /// Unix seconds; 0 is no end.
    #[serde(default)]
    pub valid_to: i64,
}

/// The part of fleet.toml that stands in the signed list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListSettings {
    /// UC-1.
    pub left_behind_grace_secs: u32,
    /// RT-6.
    pub lifeline_secs: u32,
    /// RT-3.
    pub require_trusted_clock_for_scheduled_activation: bool,
}

/// A leaf of the tree: one node's record as members see it (SG-3). A record without keys is no leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leaf {
    /// The record's uuid.
    pub id: NodeId,
    /// The node's name.
    pub name: NodeName,
    /// Opens sessions.
    pub transport_key: TransportKey,
    /// Signs reports.
    pub signing_key: SigningKey,
    /// During a rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_transport_key: Option<TransportKey>,
    /// During a rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_signing_key: Option<SigningKey>,
    /// Instants and states of the rotation that moves the next keys (page 05).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rotations: Vec<serde_json::Value>,
    /// Where neighbours reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Keeps accepting old material longer (RT-6).
    #[serde(default)]
    pub lifeline: bool,
    /// Unix seconds; 0 is no end.
    #[serde(default)]
    pub valid_to: i64,
    /// What gates wait for.
    pub update_class: UpdateClass,
    /// `left_behind` only.
    #[serde(default)]
    pub pinned: bool,
}

/// Which nodes a release waits for (UC-1).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum UpdateClass {
    /// Gates.
    #[default]
    Required,
    /// Told, listed, never awaited.
    BestEffort,
    /// Outside targeting and gates.
    LeftBehind,
}

impl Leaf {
    /// The bytes that are hashed into the tree.
    ///
    /// # Errors
    /// As [`canonical`]; a leaf has only text keys, so this does not happen.
    pub fn bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        canonical(self)
    }
}

/// A record with the proof that the head has it: its certificate (SG-3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProvenLeaf {
    /// The leaf's canonical bytes as text; exactly what was hashed.
    pub leaf: String,
    /// The revision that the proof is of.
    pub revision: u64,
    /// Its place in the tree, from 0.
    pub index: u64,
    /// The hashes from the leaf's sibling up (RFC 9162, section 2.1.3).
    pub path: Vec<Digest>,
}

impl ProvenLeaf {
    /// The record, when the head has it.
    ///
    /// # Errors
    /// The proof is of another revision, or does not lead to the head's root, or the leaf is no record.
    pub fn open(&self, head: &FleetHead) -> Result<Leaf, ProofError> {
        if self.revision != head.revision {
            return Err(ProofError::Revision {
                proof: self.revision,
                head: head.revision,
            });
        }
        let path: Vec<[u8; 32]> = self.path.iter().map(|d| d.0).collect();
        let hash = merkle::leaf_hash(self.leaf.as_bytes());
        if !merkle::verify(self.index, head.records_count, hash, &path, head.records_root.0) {
            return Err(ProofError::Root);
        }
        serde_json::from_str(&self.leaf).map_err(|e| ProofError::Leaf(e.to_string()))
    }
}

/// Why a record's proof is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// Of another revision.
    #[error("the proof is of revision {proof}, the head is revision {head}")]
    Revision {
        /// The proof's.
        proof: u64,
        /// The head's.
        head: u64,
    },
    /// Does not lead to the head's root.
    #[error("the record is not in the tree that the head signs")]
    Root,
    /// Not a record.
    #[error("the leaf is not a record: {0}")]
    Leaf(String),
}
