//! Takes an order in, or refuses it with its reasons and no other effect (SG-5).
//!
//! [`meshplan_schemas::judge`] says whether an order is believed; here stands what a host adds: from whom it came,
//! what it holds already, which kind it is, and the proof of its own record. Nothing is written here.

use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::envelope::{Envelope, EnvelopeError, Payload};
use meshplan_schemas::epoch::Epoch;
use meshplan_schemas::fleet_list::{FleetHead, Leaf, ProofError, ProvenLeaf};
use meshplan_schemas::ident::{FleetName, NodeId};
use meshplan_schemas::judge::{self, Judged, Known, Refusal};
use meshplan_schemas::report::{Mark, Marks, RefusedOrder};
use meshplan_schemas::timestamp::Timestamp;
use semver::Version;

use super::orders::{Anchor, Kept, Orders};

/// The longest reason of a refusal in a report, in bytes.
const REASON_BYTES: usize = 500;

/// From where an order comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A session with a reconciler.
    Session,
    /// A file, a neighbour: it proves nothing by where it comes from.
    Hand,
}

/// What an order is judged by.
#[derive(Debug)]
pub struct Bench<'a> {
    /// The fleet of this host.
    pub fleet: &'a FleetName,
    /// This node.
    pub node: NodeId,
    /// This host's version.
    pub version: &'a Version,
    /// The highest numbers verified.
    pub marks: &'a Marks,
    /// Both files of the marks are lost: orders count only inside a session.
    pub marks_lost: bool,
    /// Whom this host believes; none when everything is lost.
    pub anchor: Option<&'a Anchor>,
    /// What is held.
    pub orders: &'a Orders,
    /// From where the order comes.
    pub source: Source,
    /// Unix seconds.
    pub now: i64,
    /// Unix seconds when the clock is known to be right.
    pub trusted_now: Option<i64>,
}

/// An order that is taken, or not.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    /// A new head.
    Head(Box<Kept<FleetHead>>),
    /// A new timestamp.
    Timestamp(Box<Kept<Timestamp>>),
    /// An epoch: newer, or one that the newest seen names as in force.
    Epoch(Box<Kept<Epoch>>),
    /// A declaration.
    Declaration(Box<Kept<Declaration>>),
    /// Known byte for byte and held: nothing to do.
    Duplicate,
    /// Refused.
    Refused(Refused),
}

/// Why an order was refused: every reason, the gravest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Refused {
    /// `epoch`, `fleet-list`, `timestamp`, `declaration`, `record`, `order` where it could not be read.
    pub order: String,
    /// Its number, when it could be read; believed only when `authentic`.
    pub number: Option<u64>,
    /// Whether somebody who may sign had signed these bytes for this fleet, so that only this host's age or the
    /// content stands against it.
    pub authentic: bool,
    /// The reasons.
    pub reasons: Vec<Why>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The judge's.
    #[error(transparent)]
    Judge(#[from] Refusal),
    /// No envelope.
    #[error("{0}")]
    Envelope(#[from] EnvelopeError),
    /// No kind of order.
    #[error("`{0}` is no kind of order that a host takes")]
    Kind(String),
    /// The marks are lost and it does not come from a reconciler.
    #[error(
        "both files with the highest numbers of this host are lost; until a reconciler has spoken, orders count only inside a session with one"
    )]
    MarksLost,
    /// Nothing to judge by and it does not come from a reconciler.
    #[error(
        "this host holds no fleet list and cannot tell who may sign; it takes one only from a reconciler"
    )]
    NoTrust,
    /// The timestamp has run out and it does not come from a reconciler.
    #[error(
        "the newest timestamp of this host has run out; a list or declaration counts only inside a session"
    )]
    Stale,
    /// It cannot be kept.
    #[error("{0}")]
    NoRoom(String),
    /// A head that does not follow the one before.
    #[error("revision {found} names another head as the one before it than the one that is held")]
    Previous {
        /// The new head's revision.
        found: u64,
    },
    /// A record whose proof does not hold.
    #[error("{0}")]
    Proof(#[from] ProofError),
    /// Another's record.
    #[error("the record is of the node {found}, this is {own}")]
    OtherRecord {
        /// The record's.
        found: NodeId,
        /// This node.
        own: NodeId,
    },
}

impl Why {
    /// The word in journals and reports.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Judge(refusal) => refusal.code(),
            Self::Envelope(_) | Self::Kind(_) => "malformed",
            Self::MarksLost => "marks_lost",
            Self::NoTrust => "no_trust",
            Self::Stale => "stale",
            Self::NoRoom(_) => "disk_full",
            Self::Previous { .. } => "conflict",
            Self::Proof(_) => "proof",
            Self::OtherRecord { .. } => "other_node",
        }
    }
}

impl Refused {
    /// All reasons in one sentence.
    #[must_use]
    pub fn reason(&self) -> String {
        let words: Vec<String> = self.reasons.iter().map(ToString::to_string).collect();
        words.join("; ")
    }
    /// The gravest reason's code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.reasons.first().map_or("malformed", Why::code)
    }
    /// The line of the next report.
    #[must_use]
    pub fn line(&self) -> RefusedOrder {
        RefusedOrder {
            order: self.order.clone(),
            number: self.number,
            code: self.code().to_owned(),
            reason: shortened(&self.reason()),
        }
    }
}

/// The start of words that may come from a forger: a report is no place to fill.
fn shortened(words: &str) -> String {
    let end = (0..=REASON_BYTES.min(words.len()))
        .rev()
        .find(|at| words.is_char_boundary(*at))
        .unwrap_or(0);
    words.get(..end).unwrap_or_default().to_owned()
}

/// Judges an order by its exact text.
#[must_use]
pub fn admit(text: &str, bench: &Bench<'_>) -> Admission {
    let envelope = match Envelope::read(text.as_bytes()) {
        Ok(envelope) => envelope,
        Err(e) => return refused(text, vec![e.into()]),
    };
    let kind = envelope.payload_type.as_str();
    if bench.source == Source::Hand {
        let dated = kind == FleetHead::TYPE || kind == Declaration::TYPE;
        if bench.marks_lost {
            return refused(text, vec![Why::MarksLost]);
        }
        if dated && bench.orders.stale(bench.now) {
            return refused(text, vec![Why::Stale]);
        }
    }
    if let Some(admission) = verified_before(kind, text, &envelope, bench) {
        return admission;
    }
    let own_claim = match (bench.anchor, kind) {
        (Some(_), _) => None,
        // Everything is lost: the session vouches for the head, which must at least be signed by its own authors.
        (None, FleetHead::TYPE) if bench.source == Source::Session => {
            serde_json::from_slice(&envelope.payload)
                .ok()
                .map(|h: FleetHead| Anchor::of(&h))
        }
        _ => return refused(text, vec![Why::NoTrust]),
    };
    let Some(anchor) = bench.anchor.or(own_claim.as_ref()) else {
        return refused(text, vec![Why::NoTrust]);
    };
    let known = Known {
        fleet: bench.fleet,
        node: Some(bench.node),
        authors: &anchor.authors,
        threshold: anchor.threshold,
        timestamp_keys: &anchor.timestamp_keys,
        marks: bench.marks,
        in_force: bench.orders.in_force(),
        version: bench.version,
        trusted_now: bench.trusted_now,
    };
    let bytes = text.as_bytes();
    let held = bench.orders;
    match kind {
        Epoch::TYPE => finish(text, judge::epoch(bytes, &known), Admission::Epoch, |digest| {
            held.epochs.contains_key(digest)
        }),
        Declaration::TYPE => finish(
            text,
            judge::declaration(bytes, &known),
            Admission::Declaration,
            |digest| held.declaration.as_ref().is_some_and(|d| d.digest == *digest),
        ),
        Timestamp::TYPE => finish(
            text,
            judge::timestamp(bytes, &known),
            Admission::Timestamp,
            |digest| held.timestamp.as_ref().is_some_and(|t| t.digest == *digest),
        ),
        FleetHead::TYPE => head(text, judge::fleet_head(bytes, &known), held),
        other => refused(text, vec![Why::Kind(other.to_owned())]),
    }
}

/// What bears the digest of the mark was verified here once and stays so (SG-12), also when its author has left since:
/// if the disk lost its bytes they are taken again by the digest alone.
fn verified_before(kind: &str, text: &str, envelope: &Envelope, bench: &Bench<'_>) -> Option<Admission> {
    fn again<P: Payload>(text: &str, take: fn(Box<Kept<P>>) -> Admission) -> Option<Admission> {
        Kept::read(text.to_owned()).ok().map(|kept| take(Box::new(kept)))
    }
    let (marks, held) = (bench.marks, bench.orders);
    let digest = envelope.payload_digest();
    let lost = |mark: Option<Mark>, held: bool| !held && mark.is_some_and(|m| m.digest == digest);
    match kind {
        _ if bench.marks_lost => None,
        FleetHead::TYPE
            if lost(
                marks.revision,
                held.head.as_ref().is_some_and(|h| h.digest == digest),
            ) =>
        {
            again(text, Admission::Head)
        }
        Epoch::TYPE if lost(marks.epoch, held.epochs.contains_key(&digest)) => again(text, Admission::Epoch),
        Declaration::TYPE
            if lost(
                marks.sequence,
                held.declaration.as_ref().is_some_and(|d| d.digest == digest),
            ) =>
        {
            again(text, Admission::Declaration)
        }
        _ => None,
    }
}

fn head(text: &str, judged: Result<Judged<FleetHead>, Vec<Refusal>>, held: &Orders) -> Admission {
    if let (Ok(new), Some(before)) = (&judged, &held.head) {
        let follows = before.payload.revision.checked_add(1) == Some(new.payload.revision);
        let named = new.payload.previous;
        if follows && before.payload.era == new.payload.era && named.is_some_and(|d| d != before.digest) {
            let found = new.payload.revision;
            return refused(text, vec![Why::Previous { found }]);
        }
    }
    finish(text, judged, Admission::Head, |digest| {
        held.head.as_ref().is_some_and(|h| h.digest == *digest)
    })
}

/// A duplicate of which the bytes are lost is taken once more: the disk may have lost what the marks remember.
fn finish<P>(
    text: &str,
    judged: Result<Judged<P>, Vec<Refusal>>,
    take: fn(Box<Kept<P>>) -> Admission,
    held: impl Fn(&meshplan_schemas::digest::Digest) -> bool,
) -> Admission {
    match judged {
        Ok(judged) if held(&judged.digest) => Admission::Duplicate,
        Ok(judged) => take(Box::new(Kept {
            payload: judged.payload,
            digest: judged.digest,
            text: text.to_owned(),
        })),
        Err(reasons) => refused(text, reasons.into_iter().map(Why::Judge).collect()),
    }
}

/// Refuses what would be taken, because there is no room to keep it: nothing is begun whose order is not on disk.
#[must_use]
pub fn without_room(admission: Admission, text: &str, lacking: String) -> Admission {
    match admission {
        Admission::Duplicate | Admission::Refused(_) => admission,
        Admission::Head(_) | Admission::Timestamp(_) | Admission::Epoch(_) | Admission::Declaration(_) => {
            refused(text, vec![Why::NoRoom(lacking)])
        }
    }
}

fn refused(text: &str, reasons: Vec<Why>) -> Admission {
    let (order, number) = match judge::claimed_number(text.as_bytes()) {
        Some((order, number)) => (order, Some(number)),
        None => ("order".to_owned(), None),
    };
    let authentic = !reasons.is_empty()
        && reasons.iter().all(|why| {
            matches!(
                why,
                Why::Judge(
                    Refusal::OldVersion { .. }
                        | Refusal::Policy(_)
                        | Refusal::NotUnderstood(_)
                        | Refusal::Schema { .. }
                )
            )
        });
    Admission::Refused(Refused {
        order,
        number,
        authentic,
        reasons,
    })
}

/// Opens the own record against the head that is held.
///
/// # Errors
/// The proof does not hold, or the record is another's.
pub fn record(proof: &ProvenLeaf, head: Option<&FleetHead>, own: NodeId) -> Result<Leaf, Refused> {
    let refuse = |why: Why| Refused {
        order: "record".to_owned(),
        number: Some(proof.revision),
        authentic: false,
        reasons: vec![why],
    };
    let head = head.ok_or_else(|| refuse(Why::NoTrust))?;
    let leaf = proof.open(head).map_err(|e| refuse(e.into()))?;
    if leaf.id != own {
        return Err(refuse(Why::OtherRecord { found: leaf.id, own }));
    }
    Ok(leaf)
}

#[cfg(test)]
mod museum;
