//! The messages inside a session (LK-1): what a host and a reconciler say to each other.
//!
//! A message is one JSON object with its `type`; a type that is not known is skipped, so that builds of two ages
//! talk. Signed things travel as the exact text of their envelope.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::fleet_list::ProvenLeaf;
use crate::ident::NodeName;
use crate::key::{SigningKey, TransportKey};
use crate::report::Marks;

/// What a host says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromHost {
    /// First word of a session: what the host has, so that the reconciler sends what is missing.
    Hello {
        /// The host's version.
        host_version: String,
        /// The highest numbers verified.
        marks: Box<Marks>,
        /// Random per start.
        instance: String,
        /// The kernel's boot id.
        boot_id: String,
    },
    /// A signed report; acknowledged by its counter once stored.
    Report {
        /// The counter, outside the envelope for the acknowledgement only.
        counter: u64,
        /// The envelope's exact text.
        envelope: String,
    },
    /// The bytes of an epoch that is named in `in_force` (EP-3).
    Want {
        /// The payload's digest.
        digest: Digest,
    },
    /// A piece of an artifact (HK-15).
    Fetch {
        /// Which.
        artifact: Digest,
        /// From where on, in bytes.
        offset: u64,
        /// How much at most, in bytes; a reconciler gives no more than [`crate::limits::PIECE_BYTES`].
        length: u32,
    },
    /// A word of a newer build.
    #[serde(other)]
    Unknown,
}

/// What a reconciler says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToHost {
    /// A signed order of any kind: its payload type says which.
    Order {
        /// The envelope's exact text.
        envelope: String,
    },
    /// The node's own record with its proof against the newest head; sent after that head.
    Record {
        /// The record.
        record: ProvenLeaf,
    },
    /// Everything that is missing was sent.
    Current,
    /// A look: report now, with this id as the cause (DL-5).
    Look {
        /// The look's id.
        id: u64,
    },
    /// The report with this counter is stored; older never come again.
    Ack {
        /// The counter.
        counter: u64,
    },
    /// The report with this counter will never be taken: set it aside (B49).
    Reject {
        /// The counter.
        counter: u64,
        /// Why.
        reason: String,
    },
    /// Too much at once: the same again after so long (LK-7).
    Busy {
        /// Milliseconds.
        retry_after_ms: u64,
    },
    /// The reconciler restarts by plan: the confirm clock stands still once, at most 120 s (EP-2).
    Restarting {
        /// Seconds.
        secs: u32,
    },
    /// A piece of an artifact, as it was asked for (HK-15).
    Piece {
        /// Of which.
        artifact: Digest,
        /// From where on, in bytes.
        offset: u64,
        /// How long the whole is.
        size_bytes: u64,
        /// Base64; nothing at the end of the whole.
        bytes: String,
    },
    /// The artifact that was asked for is not here (HK-15).
    NoArtifact {
        /// Which.
        artifact: Digest,
    },
    /// How often a report is expected, in seconds (`heartbeat_secs`, FR-16).
    Heartbeat {
        /// Seconds.
        secs: u32,
    },
    /// A word of a newer build.
    #[serde(other)]
    Unknown,
}

/// What a machine says in an enrolment session (LK-3); the first of these stands in the first transport message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromEnrolling {
    /// Asks for admission, and again with the same id after a lost answer.
    Enrol {
        /// The same over all retries of one attempt.
        message_id: String,
        /// The token's secret half.
        secret: String,
        /// The machine's new session key.
        transport_key: TransportKey,
        /// The machine's new signing key.
        signing_key: SigningKey,
        /// What the machine can do (HR-10).
        capabilities: Vec<String>,
        /// The host's version.
        host_version: String,
    },
    /// Asks whether the admission was merged.
    Poll {
        /// As in `Enrol`.
        message_id: String,
    },
    /// A word of a newer build.
    #[serde(other)]
    Unknown,
}

/// What a reconciler answers in an enrolment session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToEnrolling {
    /// Taken down; waits for the admission to be merged.
    Waiting {
        /// The node's name, as the token fixes it.
        name: NodeName,
        /// What machine and pull request both show.
        fingerprint: String,
    },
    /// Admitted: a first session will be taken.
    Admitted {
        /// The node's name.
        name: NodeName,
        /// The record's uuid.
        node: crate::ident::NodeId,
        /// The head that admits it, exact text.
        head: String,
        /// The record with its proof.
        record: ProvenLeaf,
    },
    /// No; the caller is not told why (LK-3).
    Refused,
    /// Too many attempts from this address.
    Busy {
        /// Milliseconds.
        retry_after_ms: u64,
    },
    /// A word of a newer build.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: LK-1
    #[test]
    fn a_message_of_a_newer_build_is_skipped_not_refused() {
        let message: ToHost = serde_json::from_str(r#"{"type":"sing","verse":1}"#).unwrap();
        assert_eq!(message, ToHost::Unknown);
        let message: ToHost = serde_json::from_str(r#"{"type":"look","id":7,"new":true}"#).unwrap();
        assert_eq!(message, ToHost::Look { id: 7 });
    }
}
