//! The orders that a host holds: what was verified at intake and stays verified on its disk (SG-12).
//!
//! It stands alone because everything is decided on it: what an order is judged by, what is run, what the first word
//! of a session asks for. Its invariant: what is in it was verified when it came, and its text is the exact text.

use std::collections::BTreeMap;

use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Envelope, Payload};
use meshplan_schemas::epoch::{Epoch, InForce};
use meshplan_schemas::fleet_list::{Author, FleetHead, Leaf, ProvenLeaf, UpdateClass};
use meshplan_schemas::ident::RoleName;
use meshplan_schemas::report::{Mark, Marks};
use meshplan_schemas::timestamp::Timestamp;
use serde::{Deserialize, Serialize};

/// An order that was verified, with its exact text.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept<P> {
    /// What it says.
    pub payload: P,
    /// The digest of the payload's bytes.
    pub digest: Digest,
    /// The envelope's exact text.
    pub text: String,
}

impl<P: Payload> Kept<P> {
    /// Reads a text that this host verified before and kept: the form is looked at, the signature is not.
    ///
    /// # Errors
    /// In words: it is not the envelope of such an order.
    pub fn read(text: String) -> Result<Self, String> {
        let envelope = Envelope::read(text.as_bytes()).map_err(|e| e.to_string())?;
        if envelope.payload_type != P::TYPE {
            return Err(format!("the payload is of type `{}`", envelope.payload_type));
        }
        let payload = serde_json::from_slice(&envelope.payload).map_err(|e| e.to_string())?;
        Ok(Self {
            payload,
            digest: envelope.payload_digest(),
            text,
        })
    }
}

/// Where an order stands in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Slot {
    /// The head that is trusted.
    Head,
    /// The head before, until a session under the new one has worked (SG-3).
    FormerHead,
    /// The own record with its proof.
    Record,
    /// The newest timestamp.
    Timestamp,
    /// An epoch, by the digest of its payload.
    Epoch(Digest),
    /// The newest declaration.
    Declaration,
    /// The one that is being applied or waits for its confirm.
    Trying,
    /// The last confirmed one.
    Confirmed,
}

/// Whom this host believes: taken from the head, and kept a second time beside the marks, so that a head that is lost
/// can be taken again from somebody who may sign it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Anchor {
    /// Who may sign epochs, lists and declarations.
    pub authors: Vec<Author>,
    /// How many of them must have signed a head.
    pub threshold: u32,
    /// Whose timestamps count.
    pub timestamp_keys: Vec<Author>,
}

impl Anchor {
    /// What a head says of it.
    #[must_use]
    pub fn of(head: &FleetHead) -> Self {
        Self {
            authors: head.authors.clone(),
            threshold: head.threshold,
            timestamp_keys: head.timestamp_keys.clone(),
        }
    }
}

/// Everything that is held.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Orders {
    /// See [`Slot::Head`].
    pub head: Option<Kept<FleetHead>>,
    /// See [`Slot::FormerHead`].
    pub former_head: Option<Kept<FleetHead>>,
    /// See [`Slot::Record`]; opened against the head that it came with.
    pub record: Option<(ProvenLeaf, Leaf)>,
    /// See [`Slot::Timestamp`].
    pub timestamp: Option<Kept<Timestamp>>,
    /// See [`Slot::Epoch`].
    pub epochs: BTreeMap<Digest, Kept<Epoch>>,
    /// See [`Slot::Declaration`].
    pub declaration: Option<Kept<Declaration>>,
    /// See [`Slot::Trying`].
    pub trying: Option<Kept<Declaration>>,
    /// See [`Slot::Confirmed`].
    pub confirmed: Option<Kept<Declaration>>,
}

impl Orders {
    /// The newest epoch that is held: the highest number of the highest era.
    #[must_use]
    pub fn newest_epoch(&self) -> Option<&Kept<Epoch>> {
        self.epochs
            .values()
            .max_by_key(|e| (e.payload.era, e.payload.epoch))
    }

    /// What the newest seen epoch names as in force; nothing before the first.
    #[must_use]
    pub fn in_force(&self) -> &[InForce] {
        self.newest_epoch().map_or(&[], |e| &e.payload.in_force)
    }

    /// The roles by which policy is merged: those of the last confirmed declaration (SG-2).
    #[must_use]
    pub fn roles(&self) -> &[RoleName] {
        self.confirmed.as_ref().map_or(&[], |d| &d.payload.roles)
    }

    /// The class in the own record; `required` while there is none.
    #[must_use]
    pub fn class(&self) -> UpdateClass {
        self.record
            .as_ref()
            .map_or(UpdateClass::Required, |(_, leaf)| leaf.update_class)
    }

    /// Whether the own record says that this node never follows (UC-1).
    #[must_use]
    pub fn pinned(&self) -> bool {
        self.record.as_ref().is_some_and(|(_, leaf)| leaf.pinned)
    }

    /// How long a node that is left behind waits at least, in seconds; none while no list is held.
    #[must_use]
    pub fn grace_secs(&self) -> Option<u32> {
        let head = self.head.as_ref()?;
        Some(head.payload.settings.left_behind_grace_secs)
    }

    /// Whom this host believes: the head's, else what stands beside the marks, else the former head's.
    #[must_use]
    pub fn anchor(&self, beside_marks: Option<&Anchor>) -> Option<Anchor> {
        let of = |kept: &Option<Kept<FleetHead>>| kept.as_ref().map(|h| Anchor::of(&h.payload));
        of(&self.head)
            .or_else(|| beside_marks.cloned())
            .or_else(|| of(&self.former_head))
    }

    /// The marks of what is truly held: what the first word of a session says, so that whatever a disk has lost is
    /// sent again (HR-15).
    #[must_use]
    pub fn held_marks(&self, era: u64) -> Marks {
        let mark = |number, digest| Some(Mark { number, digest });
        Marks {
            era,
            epoch: self.newest_epoch().and_then(|e| mark(e.payload.epoch, e.digest)),
            // A head without the own record is asked for again: the record comes after it.
            revision: self
                .head
                .as_ref()
                .filter(|h| {
                    self.record
                        .as_ref()
                        .is_some_and(|(proof, _)| proof.revision == h.payload.revision)
                })
                .and_then(|h| mark(h.payload.revision, h.digest)),
            sequence: self
                .declaration
                .as_ref()
                .and_then(|d| mark(d.payload.sequence, d.digest)),
            timestamp: self
                .timestamp
                .as_ref()
                .and_then(|t| mark(u64::try_from(t.payload.issued_at).unwrap_or(0), t.digest)),
        }
    }

    /// Whether the timestamp has run out (SG-9). None at all is not stale: a fleet may have none yet.
    #[must_use]
    pub fn stale(&self, now: i64) -> bool {
        self.timestamp.as_ref().is_some_and(|t| now > t.payload.valid_to)
    }

    /// The highest numbers of what is held, to start from when both files of the marks are lost.
    #[must_use]
    pub fn rebuilt_marks(&self) -> Marks {
        let eras = [
            self.head.as_ref().map(|h| h.payload.era),
            self.newest_epoch().map(|e| e.payload.era),
            self.declaration.as_ref().map(|d| d.payload.era),
        ];
        let mut marks = self.held_marks(eras.into_iter().flatten().max().unwrap_or(0));
        marks.revision = self.head.as_ref().map(|h| Mark {
            number: h.payload.revision,
            digest: h.digest,
        });
        marks
    }
}
