//! The reasons for which an order is refused, each with its word and its sentence (SG-5, SG-11).

use semver::Version;

use crate::digest::Digest;
use crate::envelope::EnvelopeError;
use crate::ident::NodeId;
use crate::limits::{NUMBER_JUMP, SCHEMA};

/// One reason for which an order is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No envelope.
    #[error("{0}")]
    Envelope(#[from] EnvelopeError),
    /// Of another type than was expected here.
    #[error("the payload is of type `{found}`, expected `{expected}`")]
    Type {
        /// What it says.
        found: String,
        /// What was wanted.
        expected: &'static str,
    },
    /// No signature of anybody who may sign.
    #[error("signed by `{0}`, who is no author of this fleet")]
    UnknownAuthor(String),
    /// An author's name, but the signature does not verify.
    #[error("the signature of `{0}` does not verify: the bytes or the signature were changed")]
    BadSignature(String),
    /// Signed, but not readable.
    #[error("the payload cannot be read: {0}")]
    Malformed(String),
    /// A newer schema.
    #[error("the payload is of schema {found}; this build reads up to {SCHEMA}")]
    Schema {
        /// The payload's.
        found: u32,
    },
    /// Fields that must be understood and are not.
    #[error("the payload must be understood whole, and this build does not know its field `{0}`")]
    NotUnderstood(String),
    /// For another fleet.
    #[error("an order of the fleet `{found}`, this is `{own}`")]
    OtherFleet {
        /// The payload's.
        found: String,
        /// The judge's.
        own: String,
    },
    /// For another node.
    #[error("a declaration for the node {found}, this is {own}")]
    OtherNode {
        /// The payload's.
        found: NodeId,
        /// The judge's.
        own: NodeId,
    },
    /// Of a former era.
    #[error("of era {found}, the highest verified is {mark}")]
    LowerEra {
        /// The payload's.
        found: u64,
        /// The mark.
        mark: u64,
    },
    /// Of an era that no list has begun.
    #[error(
        "of era {found}, the era is {mark}: only roots of trust begin another, and this build knows none"
    )]
    HigherEra {
        /// The payload's.
        found: u64,
        /// The mark.
        mark: u64,
    },
    /// Below the mark.
    #[error("{order} {found} is older than {mark}, the highest verified")]
    Replayed {
        /// Which numbers.
        order: &'static str,
        /// The payload's.
        found: u64,
        /// The mark.
        mark: u64,
    },
    /// The mark's number, other bytes: a security event.
    #[error(
        "{order} {found} was verified before with other bytes ({known}): somebody signed two orders under one number"
    )]
    Conflict {
        /// Which numbers.
        order: &'static str,
        /// The number.
        found: u64,
        /// What the host has.
        known: Digest,
    },
    /// Far above the mark.
    #[error("{order} {found} is more than {NUMBER_JUMP} above {mark}: a fast-forward is not believed")]
    FastForward {
        /// Which numbers.
        order: &'static str,
        /// The payload's.
        found: u64,
        /// The mark.
        mark: u64,
    },
    /// Issued in the future.
    #[error("issued {0} seconds ahead of this clock; a day is believed")]
    Ahead(i64),
    /// No order claimed, and orders are kept already (HR-1).
    #[error("sequence 0 claims no order and is taken only by a host that has kept none; this one keeps {0}")]
    NoOrder(u64),
    /// Sections that are no policy, or a text that does not parse.
    #[error("the policy is refused: {0}")]
    Policy(String),
    /// The judge is too old.
    #[error("needs version {needed}, this is {own}; kept until this host is newer")]
    OldVersion {
        /// The least.
        needed: Version,
        /// The judge's.
        own: Version,
    },
    /// A list without authors.
    #[error("the list names no author; nobody could ever sign again")]
    DropsAllAuthors,
    /// Fewer signatures than the head before asks for.
    #[error("signed by {found} of the authors of the head before, {needed} must have")]
    Threshold {
        /// Distinct ones.
        found: u32,
        /// Wanted.
        needed: u32,
    },
}

impl Refusal {
    /// The word that stands in journals and reports.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Envelope(_) | Self::Malformed(_) | Self::Type { .. } => "malformed",
            Self::UnknownAuthor(_) => "unknown_author",
            Self::BadSignature(_) => "signature",
            Self::Schema { .. } | Self::NotUnderstood(_) => "not_understood",
            Self::OtherFleet { .. } => "other_fleet",
            Self::OtherNode { .. } => "other_node",
            Self::LowerEra { .. } | Self::HigherEra { .. } => "era",
            Self::Replayed { .. } => "replayed",
            Self::Conflict { .. } => "conflict",
            Self::FastForward { .. } | Self::Ahead(_) => "fast_forward",
            Self::NoOrder(_) => "no_order",
            Self::Policy(_) => "policy",
            Self::OldVersion { .. } => "old_version",
            Self::DropsAllAuthors => "drops_all_authors",
            Self::Threshold { .. } => "threshold",
        }
    }
}
