//! The timestamp: which head and which journal block are the newest (SG-9, TUF's timestamp role).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::envelope::Payload;
use crate::ident::FleetName;

/// What a timestamp carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Timestamp {
    /// Version of the formats.
    pub schema: u32,
    /// Whose.
    pub fleet: FleetName,
    /// The era that it speaks of.
    pub era: u64,
    /// Unix seconds; one below the highest verified is a replay (SG-5).
    pub issued_at: i64,
    /// Names of fields that a reader must know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_understand: Vec<String>,
    /// The newest fleet list.
    pub revision: u64,
    /// The digest of its head's payload.
    pub head: Digest,
    /// The newest journal block, none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<BlockMark>,
    /// Unix seconds after which what it says is stale.
    pub valid_to: i64,
}

impl Payload for Timestamp {
    const TYPE: &'static str = "application/vnd.meshplan.timestamp+json";
}

/// A journal block by number and digest (DL-9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlockMark {
    /// `Block:`.
    pub number: u64,
    /// The digest of the block's signed bytes.
    pub digest: Digest,
}
