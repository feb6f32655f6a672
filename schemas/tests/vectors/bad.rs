//! Envelopes that are refused, named for the defect.

use data_encoding::BASE64;
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::canonical;
use meshplan_schemas::envelope::{Payload as _, pae};
use meshplan_schemas::epoch::Epoch;
use meshplan_schemas::fleet_list::FleetHead;
use meshplan_schemas::ident::NodeId;
use meshplan_schemas::report::Report;
use serde_json::Value;

use crate::make::*;

/// The order of the group of Ed25519, little-endian (RFC 8032, section 5.1).
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

/// A vector whose envelope an author has signed validly, refused for what it says.
fn said(name: &'static str, why: &'static str, keys: Keys, envelope: Vec<u8>, code: &str) -> Vector {
    let by = match keys.judged_as.as_str() {
        "timestamp" => CLOCK.id,
        "report" => NODE.id,
        _ => AUTHOR.id,
    };
    Vector {
        name,
        why,
        envelope,
        keys,
        verdict: refused(&[code]),
        signed_by: Some(vec![by]),
    }
}

/// A vector that is refused although nobody's signature is valid, or because none is.
fn forged(name: &'static str, why: &'static str, keys: Keys, envelope: Vec<u8>, code: &str) -> Vector {
    Vector {
        signed_by: Some(vec![]),
        ..said(name, why, keys, envelope, code)
    }
}

/// A vector whose bytes are no envelope.
fn unreadable(name: &'static str, why: &'static str, envelope: Vec<u8>) -> Vector {
    Vector {
        signed_by: None,
        ..said(name, why, knows("epoch"), envelope, "malformed")
    }
}

pub(crate) fn vectors() -> Vec<Vector> {
    [signatures(), keys(), forms(), numbers(), contents(), lists()].concat()
}

fn signatures() -> Vec<Vector> {
    let bytes = canonical(&epoch(7)).unwrap();
    let message = pae(Epoch::TYPE, &bytes);
    let good = AUTHOR.sign(&message);
    let with = |signature: Vec<u8>| envelope(Epoch::TYPE, &bytes, &[(AUTHOR.id, signature)]);
    let mut flipped_payload = bytes.clone();
    flipped_payload[40] ^= 1;
    let mut flipped = good.clone();
    flipped[5] ^= 0x10;
    let mut short = good.clone();
    short.pop();
    let forged = |name, why, envelope, code| forged(name, why, knows("epoch"), envelope, code);
    vec![
        forged(
            "flipped-payload-bit",
            "one bit of the payload is another",
            envelope(Epoch::TYPE, &flipped_payload, &[(AUTHOR.id, good.clone())]),
            "signature",
        ),
        forged(
            "flipped-signature-bit",
            "one bit of the signature is another",
            with(flipped),
            "signature",
        ),
        forged(
            "short-signature",
            "a signature of 63 bytes",
            with(short),
            "signature",
        ),
        forged(
            "high-s",
            "the same signature with the group's order added to S: whoever takes it has two names for one signature",
            with(high_s(&good)),
            "signature",
        ),
        forged(
            "wrong-key",
            "signed by nobody of this fleet",
            sealed(&epoch(7), STRANGER),
            "unknown_author",
        ),
        forged(
            "wrong-key-right-name",
            "signed by nobody of this fleet, in an author's name",
            envelope(Epoch::TYPE, &bytes, &[(AUTHOR.id, STRANGER.sign(&message))]),
            "signature",
        ),
        forged(
            "wrong-type-pae",
            "the signature covers another payload type than the envelope says",
            with(AUTHOR.sign(&pae(Declaration::TYPE, &bytes))),
            "signature",
        ),
        forged(
            "bare-payload-signed",
            "the signature covers the payload without DSSE's pre-authentication encoding",
            with(AUTHOR.sign(&bytes)),
            "signature",
        ),
        forged(
            "timestamp-key-signs-epoch",
            "the key of timestamps signs nothing else",
            envelope(Epoch::TYPE, &bytes, &[(CLOCK.id, CLOCK.sign(&message))]),
            "unknown_author",
        )
        .also_signed_by(CLOCK.id),
    ]
}

impl Vector {
    /// A signature that is valid, by a key whose word does not count here.
    fn also_signed_by(mut self, id: &'static str) -> Self {
        self.signed_by = Some(vec![id]);
        self
    }
}

/// S plus the group's order: the same number modulo the order, in another encoding.
fn high_s(signature: &[u8]) -> Vec<u8> {
    let mut out = signature.to_vec();
    let mut carry = 0_u16;
    for (byte, add) in out[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        let [high, low] = sum.to_be_bytes();
        *byte = low;
        carry = u16::from(high);
    }
    out
}

/// Keys that are refused when they are read.
fn keys() -> Vec<Vector> {
    let mut point = [0; 32];
    point[0] = 1;
    let mut low_order = knows("epoch");
    low_order.authors = vec![NamedKey {
        id: "low-order".to_owned(),
        key: format!("ed25519:{}", BASE64.encode(&point)),
    }];
    // R is the neutral element and S is 0: under the neutral element as key this holds for every message, for
    // whoever does not refuse such keys.
    let mut universal = point.to_vec();
    universal.extend_from_slice(&[0; 32]);
    let bytes = canonical(&epoch(7)).unwrap();
    let envelope = envelope(Epoch::TYPE, &bytes, &[("low-order", universal)]);
    vec![forged(
        "low-order-key",
        "an author's key of low order, under which one signature fits every message",
        low_order,
        envelope,
        "key",
    )]
}

fn forms() -> Vec<Vector> {
    let good = sealed(&epoch(7), AUTHOR);
    let mut not_base64: Value = serde_json::from_slice(&good).unwrap();
    not_base64["payload"] = "*not base64*".into();
    let mut unsigned: Value = serde_json::from_slice(&good).unwrap();
    unsigned["signatures"] = Value::Array(vec![]);
    let text = |value: &Value| serde_json::to_vec(value).unwrap();
    vec![
        unreadable("truncated", "cut in the middle", good[..good.len() / 2].to_vec()),
        unreadable("empty", "no byte at all", vec![]),
        unreadable("not-base64", "the payload is not base64", text(&not_base64)),
        unreadable("unsigned", "an envelope without a signature", text(&unsigned)),
        said(
            "other-type",
            "a declaration where an epoch is expected",
            knows("epoch"),
            sealed(&declaration(12), AUTHOR),
            "malformed",
        ),
        said(
            "payload-not-json",
            "signed, but the payload is no JSON",
            knows("epoch"),
            sealed_bytes(Epoch::TYPE, b"epoch 7", AUTHOR),
            "malformed",
        ),
    ]
}

fn numbers() -> Vec<Vector> {
    let at = |kind: &str, number: u64| {
        let mut keys = knows(kind);
        let mark = Some(mark(number, b"other bytes"));
        match kind {
            "epoch" => keys.marks.epoch = mark,
            "declaration" => keys.marks.sequence = mark,
            "timestamp" => keys.marks.timestamp = mark,
            _ => keys.marks.revision = mark,
        }
        keys
    };
    let mut lower_era = knows("epoch");
    lower_era.marks.era = 2;
    let mut higher = epoch(8);
    higher.era = u64::MAX;
    let mut higher_head = head(5);
    higher_head.era = 2;
    let mut standing = at("epoch", 9);
    standing.in_force = vec![meshplan_schemas::epoch::InForce {
        epoch: 7,
        digest: meshplan_schemas::digest::Digest::of(b"the real epoch 7"),
        targeting: meshplan_schemas::epoch::Targeting::everyone(),
    }];
    let mut ahead = epoch(7);
    ahead.issued_at += 86_401;
    vec![
        said(
            "replayed-epoch",
            "below the highest verified, and not in force",
            at("epoch", 8),
            sealed(&epoch(7), AUTHOR),
            "replayed",
        ),
        said(
            "replayed-epoch-other-bytes",
            "in force by its number, but not by its digest",
            standing,
            sealed(&epoch(7), AUTHOR),
            "replayed",
        ),
        said(
            "replayed-declaration",
            "below the highest verified",
            at("declaration", 13),
            sealed(&declaration(12), AUTHOR),
            "replayed",
        ),
        said(
            "replayed-fleet-list",
            "below the highest verified",
            at("fleet-list", 4),
            sealed(&head(3), AUTHOR),
            "replayed",
        ),
        said(
            "replayed-timestamp",
            "issued before the newest verified",
            at("timestamp", 1_750_000_001),
            sealed(&timestamp(1_750_000_000), CLOCK),
            "replayed",
        ),
        said(
            "conflict",
            "the number of the mark with other bytes: somebody signed two orders under one number",
            at("epoch", 7),
            sealed(&epoch(7), AUTHOR),
            "conflict",
        ),
        said(
            "fast-forward",
            "more than a million above the mark",
            at("epoch", 7),
            sealed(&epoch(1_000_008), AUTHOR),
            "fast_forward",
        ),
        said(
            "issued-ahead",
            "issued more than a day ahead of a trusted clock",
            knows("epoch"),
            sealed(&ahead, AUTHOR),
            "fast_forward",
        ),
        said(
            "lower-era",
            "of a former era",
            lower_era,
            sealed(&epoch(7), AUTHOR),
            "era",
        ),
        said(
            "higher-era",
            "of an era that no list has begun: whoever believed it would believe nobody again",
            at("epoch", 7),
            sealed(&higher, AUTHOR),
            "era",
        ),
        said(
            "higher-era-fleet-list",
            "a list that raises the era: only roots of trust may",
            at("fleet-list", 4),
            sealed(&higher_head, AUTHOR),
            "era",
        ),
        said(
            "sequence-zero",
            "claims no order where orders are kept",
            at("declaration", 12),
            sealed(&declaration(0), AUTHOR),
            "no_order",
        ),
    ]
}

fn contents() -> Vec<Vector> {
    let mut other_fleet = epoch(7);
    other_fleet.fleet = "nexus1".parse().unwrap();
    let mut other_node = declaration(12);
    other_node.node = NodeId(uuid::Uuid::from_u128(2));
    let mut section = epoch(7);
    section.policy = "[base.identity]\nname = \"x\"\n".to_owned();
    let mut overlay = epoch(7);
    overlay.policy = "[roles.edge.peers]\n".to_owned();
    let mut no_toml = epoch(7);
    no_toml.policy = "[base.scheduler\n".to_owned();
    let mut newer = epoch(7);
    newer.min_daemon_version = Some("9.0.0".parse().unwrap());
    let mut schema = epoch(7);
    schema.schema = 2;
    let mut must = epoch(7);
    must.must_understand = vec!["colour".to_owned()];
    let mut everything = other_fleet.clone();
    everything.policy = section.policy.clone();
    everything.epoch = 6;
    let mut at_seven = knows("epoch");
    at_seven.marks.epoch = Some(mark(7, b"epoch 7"));
    let mut strange = report();
    strange["node"] = "00000000-0000-0000-0000-000000000002".into();
    let epoch_says =
        |name, why, epoch: &Epoch, code| said(name, why, knows("epoch"), sealed(epoch, AUTHOR), code);
    vec![
        epoch_says(
            "other-fleet",
            "an order of another fleet",
            &other_fleet,
            "other_fleet",
        ),
        said(
            "other-node",
            "a declaration for another node",
            knows("declaration"),
            sealed(&other_node, AUTHOR),
            "other_node",
        ),
        said(
            "report-of-other-node",
            "a node that speaks for another",
            knows("report"),
            sealed_bytes(Report::TYPE, &canonical(&strange).unwrap(), NODE),
            "other_node",
        ),
        epoch_says(
            "forbidden-policy-section",
            "`identity` is not policy",
            &section,
            "policy",
        ),
        epoch_says(
            "forbidden-policy-overlay",
            "`peers` in a role's overlay is not policy either",
            &overlay,
            "policy",
        ),
        epoch_says(
            "policy-not-toml",
            "a policy that does not parse",
            &no_toml,
            "policy",
        ),
        epoch_says(
            "old-version",
            "for hosts newer than this one; kept for later",
            &newer,
            "old_version",
        ),
        epoch_says("newer-schema", "of a newer schema", &schema, "not_understood"),
        epoch_says(
            "must-understand",
            "names a field that must be understood and is not",
            &must,
            "not_understood",
        ),
        Vector {
            verdict: refused(&["other_fleet", "replayed", "policy"]),
            ..said(
                "several-reasons",
                "another fleet, an old number and no policy: all are said",
                at_seven,
                sealed(&everything, AUTHOR),
                "",
            )
        },
    ]
}

fn lists() -> Vec<Vector> {
    let mut nobody = head(3);
    nobody.authors.clear();
    let mut two = knows("fleet-list");
    two.authors.push(SECOND.named());
    two.threshold = 2;
    let bytes = canonical(&head(3)).unwrap();
    let signature = AUTHOR.sign(&pae(FleetHead::TYPE, &bytes));
    let twice = [(AUTHOR.id, signature.clone()), (SECOND.id, signature)];
    vec![
        said(
            "drops-all-authors",
            "after it nobody could sign",
            knows("fleet-list"),
            sealed(&nobody, AUTHOR),
            "drops_all_authors",
        ),
        said(
            "one-of-two",
            "two authors must sign, one has",
            two.clone(),
            sealed(&head(3), AUTHOR),
            "threshold",
        ),
        said(
            "one-key-twice",
            "two must sign; one has, under two names",
            two,
            envelope(FleetHead::TYPE, &bytes, &twice),
            "threshold",
        ),
    ]
}
