//! Takes an order, or says every reason why not (SG-5, SG-11).
//!
//! Both sides judge with these functions: a host before it acts, `meshplan envelope verify` before a person does.
//! Nothing of a payload is believed before a signature by somebody who may sign has been checked.

mod refusal;

pub use refusal::Refusal;

use semver::Version;

use crate::declaration::Declaration;
use crate::digest::Digest;
use crate::envelope::{Envelope, Payload};
use crate::epoch::{Epoch, InForce};
use crate::fleet_list::{Author, FleetHead};
use crate::ident::{FleetName, KeyId, NodeId};
use crate::key::SigningKey;
use crate::limits::{ISSUED_AHEAD_SECS, NUMBER_JUMP, SCHEMA};
use crate::policy;
use crate::report::{Mark, Marks, Report};
use crate::timestamp::Timestamp;

/// What the judge knows: whose orders count, and how far the numbers are.
#[derive(Debug, Clone)]
pub struct Known<'a> {
    /// The fleet that this host belongs to.
    pub fleet: &'a FleetName,
    /// The node that it is; none where nobody in particular judges.
    pub node: Option<NodeId>,
    /// Who may sign epochs, lists and declarations.
    pub authors: &'a [Author],
    /// How many of them must have signed a head.
    pub threshold: u32,
    /// Whose timestamps count.
    pub timestamp_keys: &'a [Author],
    /// The highest numbers verified so far.
    pub marks: &'a Marks,
    /// What the newest seen epoch names as still in force (EP-3).
    pub in_force: &'a [InForce],
    /// The judge's own version.
    pub version: &'a Version,
    /// Unix seconds of a trusted clock; none where the clock is not trusted.
    pub trusted_now: Option<i64>,
}

/// An order that was taken.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged<P> {
    /// What it says.
    pub payload: P,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Whether it was known before, byte for byte: fine, and nothing is to be done.
    pub duplicate: bool,
    /// Whether it is an older epoch that the newest seen one names as in force.
    pub in_force: bool,
}

/// The fields that every payload has (SG-1).
struct Header<'a> {
    schema: u32,
    fleet: &'a FleetName,
    era: u64,
    issued_at: i64,
    must_understand: &'a [String],
    /// What this build knows of the payload's type.
    fields: &'a [&'a str],
}

/// The header of a payload: every type has the same fields, and knows its own others.
macro_rules! header_of {
    ($payload:ident, $fields:expr) => {
        Header {
            schema: $payload.schema,
            fleet: &$payload.fleet,
            era: $payload.era,
            issued_at: $payload.issued_at,
            must_understand: &$payload.must_understand,
            fields: $fields,
        }
    };
}

/// Opens an envelope: type, then a valid signature of one of `keys`, then the payload.
fn open<P: Payload>(bytes: &[u8], keys: &[Author]) -> Result<(P, Envelope), Refusal> {
    let envelope = Envelope::read(bytes)?;
    if envelope.payload_type != P::TYPE {
        return Err(Refusal::Type {
            found: envelope.payload_type,
            expected: P::TYPE,
        });
    }
    if !keys.iter().any(|author| envelope.signed_by(&author.key)) {
        let named = |id: &KeyId| keys.iter().any(|author| author.id == *id);
        let first = &envelope.signatures[0].key_id;
        let known = envelope.signatures.iter().map(|s| &s.key_id).find(|id| named(id));
        return Err(match known {
            Some(id) => Refusal::BadSignature(id.to_string()),
            None => Refusal::UnknownAuthor(first.to_string()),
        });
    }
    let payload = serde_json::from_slice(&envelope.payload).map_err(|e| Refusal::Malformed(e.to_string()))?;
    Ok((payload, envelope))
}

/// Whether an order may name an era that is not verified yet. An author who could would be followed by nobody again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Era {
    /// The first list that a judge takes says which era it is.
    Open,
    /// Everything else stays in the era of the marks.
    Fixed,
}

fn header(known: &Known<'_>, header: &Header<'_>, era: Era, reasons: &mut Vec<Refusal>) {
    if header.schema > SCHEMA {
        reasons.push(Refusal::Schema { found: header.schema });
    }
    for field in header.must_understand {
        if !header.fields.contains(&field.as_str()) {
            reasons.push(Refusal::NotUnderstood(field.clone()));
        }
    }
    if header.fleet != known.fleet {
        reasons.push(Refusal::OtherFleet {
            found: header.fleet.to_string(),
            own: known.fleet.to_string(),
        });
    }
    if header.era < known.marks.era {
        reasons.push(Refusal::LowerEra {
            found: header.era,
            mark: known.marks.era,
        });
    }
    if header.era > known.marks.era && era == Era::Fixed {
        reasons.push(Refusal::HigherEra {
            found: header.era,
            mark: known.marks.era,
        });
    }
    if let Some(now) = known.trusted_now {
        let ahead = header.issued_at.saturating_sub(now);
        if ahead > ISSUED_AHEAD_SECS {
            reasons.push(Refusal::Ahead(ahead));
        }
    }
}

/// What a number says beside the mark: the same order once more, a newer one, or a reason to refuse.
fn number(order: &'static str, found: u64, digest: Digest, mark: Option<Mark>) -> Result<bool, Refusal> {
    let Some(mark) = mark else { return Ok(false) };
    if found == mark.number {
        let same = digest == mark.digest;
        return if same {
            Ok(true)
        } else {
            Err(Refusal::Conflict {
                order,
                found,
                known: mark.digest,
            })
        };
    }
    if found < mark.number {
        return Err(Refusal::Replayed {
            order,
            found,
            mark: mark.number,
        });
    }
    if found - mark.number > NUMBER_JUMP {
        return Err(Refusal::FastForward {
            order,
            found,
            mark: mark.number,
        });
    }
    Ok(false)
}

fn outcome<P>(
    payload: P,
    digest: Digest,
    duplicate: bool,
    reasons: Vec<Refusal>,
) -> Result<Judged<P>, Vec<Refusal>> {
    if reasons.is_empty() {
        Ok(Judged {
            payload,
            digest,
            duplicate,
            in_force: false,
        })
    } else {
        Err(reasons)
    }
}

/// Judges an epoch.
///
/// # Errors
/// Every reason for which it is refused, the gravest first.
pub fn epoch(bytes: &[u8], known: &Known<'_>) -> Result<Judged<Epoch>, Vec<Refusal>> {
    let (payload, envelope) = open::<Epoch>(bytes, known.authors).map_err(|r| vec![r])?;
    let digest = envelope.payload_digest();
    let mut reasons = Vec::new();
    header(
        known,
        &header_of!(payload, EPOCH_FIELDS),
        Era::Fixed,
        &mut reasons,
    );
    let standing = known
        .in_force
        .iter()
        .any(|e| e.epoch == payload.epoch && e.digest == digest);
    let duplicate = match number("epoch", payload.epoch, digest, known.marks.epoch) {
        Ok(duplicate) => duplicate,
        Err(Refusal::Replayed { .. }) if standing => false,
        Err(reason) => {
            reasons.push(reason);
            false
        }
    };
    if let Err(why) = policy::parse(&payload.policy) {
        reasons.push(Refusal::Policy(why.to_string()));
    }
    if let Some(needed) = payload.min_daemon_version.as_ref().filter(|v| *v > known.version) {
        reasons.push(Refusal::OldVersion {
            needed: needed.clone(),
            own: known.version.clone(),
        });
    }
    let mut judged = outcome(payload, digest, duplicate, reasons)?;
    judged.in_force = standing;
    Ok(judged)
}

/// Judges a declaration.
///
/// # Errors
/// Every reason for which it is refused.
pub fn declaration(bytes: &[u8], known: &Known<'_>) -> Result<Judged<Declaration>, Vec<Refusal>> {
    let (payload, envelope) = open::<Declaration>(bytes, known.authors).map_err(|r| vec![r])?;
    let digest = envelope.payload_digest();
    let mut reasons = Vec::new();
    header(
        known,
        &header_of!(payload, DECLARATION_FIELDS),
        Era::Fixed,
        &mut reasons,
    );
    if let Some(own) = known.node.filter(|own| *own != payload.node) {
        reasons.push(Refusal::OtherNode {
            found: payload.node,
            own,
        });
    }
    let mark = known.marks.sequence;
    let mut duplicate = false;
    match (payload.sequence, mark) {
        (0, Some(mark)) if !(mark.number == 0 && mark.digest == digest) => {
            reasons.push(Refusal::NoOrder(mark.number));
        }
        _ => match number("sequence", payload.sequence, digest, mark) {
            Ok(same) => duplicate = same,
            Err(reason) => reasons.push(reason),
        },
    }
    if let Some(needed) = payload.min_host_version.as_ref().filter(|v| *v > known.version) {
        reasons.push(Refusal::OldVersion {
            needed: needed.clone(),
            own: known.version.clone(),
        });
    }
    outcome(payload, digest, duplicate, reasons)
}

/// Judges a head of the fleet list, whose signatures must satisfy the head before (which `known` speaks for).
///
/// # Errors
/// Every reason for which it is refused.
pub fn fleet_head(bytes: &[u8], known: &Known<'_>) -> Result<Judged<FleetHead>, Vec<Refusal>> {
    let (payload, envelope) = open::<FleetHead>(bytes, known.authors).map_err(|r| vec![r])?;
    let digest = envelope.payload_digest();
    let mut reasons = Vec::new();
    header(
        known,
        &header_of!(payload, HEAD_FIELDS),
        if known.marks.revision.is_none() {
            Era::Open
        } else {
            Era::Fixed
        },
        &mut reasons,
    );
    // Signatures count by distinct decoded key, whatever ids they carry (SG-6).
    let mut keys: Vec<&SigningKey> = known.authors.iter().map(|a| &a.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let signed = keys.iter().filter(|key| envelope.signed_by(key)).count();
    let found = u32::try_from(signed).unwrap_or(u32::MAX);
    if found < known.threshold {
        reasons.push(Refusal::Threshold {
            found,
            needed: known.threshold,
        });
    }
    if payload.authors.is_empty() {
        reasons.push(Refusal::DropsAllAuthors);
    }
    let mark = known.marks.revision;
    let duplicate = number("revision", payload.revision, digest, mark).unwrap_or_else(|reason| {
        reasons.push(reason);
        false
    });
    outcome(payload, digest, duplicate, reasons)
}

/// Judges a timestamp.
///
/// # Errors
/// Every reason for which it is refused.
pub fn timestamp(bytes: &[u8], known: &Known<'_>) -> Result<Judged<Timestamp>, Vec<Refusal>> {
    let (payload, envelope) = open::<Timestamp>(bytes, known.timestamp_keys).map_err(|r| vec![r])?;
    let digest = envelope.payload_digest();
    let mut reasons = Vec::new();
    header(
        known,
        &header_of!(payload, TIMESTAMP_FIELDS),
        Era::Fixed,
        &mut reasons,
    );
    let issued = u64::try_from(payload.issued_at).unwrap_or(0);
    // Two timestamps of one second may differ by their journal block; only an older one is a replay.
    let mut duplicate = false;
    if let Some(mark) = known.marks.timestamp {
        duplicate = mark.digest == digest;
        if issued < mark.number {
            reasons.push(Refusal::Replayed {
                order: "timestamp",
                found: issued,
                mark: mark.number,
            });
        }
    }
    outcome(payload, digest, duplicate, reasons)
}

/// Judges a report: signed by a key of that node, of this fleet. Counters are the store's business.
///
/// # Errors
/// Every reason for which it is refused.
pub fn report(
    bytes: &[u8],
    fleet: &FleetName,
    node: NodeId,
    keys: &[SigningKey],
) -> Result<Judged<Report>, Vec<Refusal>> {
    let authors: Vec<Author> = keys
        .iter()
        .map(|key| Author {
            id: key.id(),
            key: *key,
        })
        .collect();
    let (payload, envelope) = open::<Report>(bytes, &authors).map_err(|r| vec![r])?;
    let mut reasons = Vec::new();
    if payload.schema > SCHEMA {
        reasons.push(Refusal::Schema {
            found: payload.schema,
        });
    }
    if payload.fleet != *fleet {
        reasons.push(Refusal::OtherFleet {
            found: payload.fleet.to_string(),
            own: fleet.to_string(),
        });
    }
    if payload.node != node {
        reasons.push(Refusal::OtherNode {
            found: payload.node,
            own: node,
        });
    }
    outcome(payload, envelope.payload_digest(), false, reasons)
}

/// The number that an order carries, read without belief: for messages about orders that were refused.
#[must_use]
pub fn claimed_number(bytes: &[u8]) -> Option<(String, u64)> {
    let envelope = Envelope::read(bytes).ok()?;
    let value: serde_json::Value = serde_json::from_slice(&envelope.payload).ok()?;
    let word = envelope
        .payload_type
        .strip_prefix("application/vnd.meshplan.")?
        .strip_suffix("+json")?;
    let field = match word {
        "epoch" => "epoch",
        "fleet-list" => "revision",
        "declaration" => "sequence",
        "timestamp" => "issued_at",
        _ => return None,
    };
    Some((word.to_owned(), value.get(field)?.as_u64()?))
}

const EPOCH_FIELDS: &[&str] = &[
    "author",
    "targeting",
    "min_daemon_version",
    "confirm_secs",
    "confirm_probe",
    "policy",
    "in_force",
    "watch_until",
    "rollout_id",
    "phase",
    "urgent",
    "again",
    "commit",
    "epoch",
];
const DECLARATION_FIELDS: &[&str] = &[
    "node",
    "sequence",
    "modules",
    "roles",
    "resources",
    "left_out",
    "apply_secs",
    "confirm_secs",
    "confirm_probe",
    "on_failure",
    "mode",
    "min_host_version",
    "urgent",
    "again",
];
const HEAD_FIELDS: &[&str] = &[
    "revision",
    "previous",
    "commit",
    "authors",
    "threshold",
    "reconcilers",
    "records_root",
    "records_count",
    "timestamp_keys",
    "revoked",
    "oldest_accepted",
    "settings",
];
const TIMESTAMP_FIELDS: &[&str] = &["revision", "head", "block", "valid_to"];
