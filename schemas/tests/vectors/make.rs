//! What a vector is, and the material that vectors are made from.

use data_encoding::BASE64;
use ed25519_dalek::Signer as _;
use meshplan_schemas::declaration::{Declaration, Mode, OnFailure};
use meshplan_schemas::digest::{Digest, canonical};
use meshplan_schemas::envelope::{Payload, pae};
use meshplan_schemas::epoch::{Epoch, InForce, Phase, Targeting};
use meshplan_schemas::fleet_list::{Author, FleetHead, ListSettings};
use meshplan_schemas::ident::{KeyId, NodeId};
use meshplan_schemas::key::SigningKey;
use meshplan_schemas::report::{Mark, Marks};
use meshplan_schemas::timestamp::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(crate) const README: &str = "\
# Test vectors

Each folder is one envelope and what comes of it; its name says what is special. For other implementations of the
formats of `docs/design/02-signing.md`.

| file | what it holds |
| --- | --- |
| `envelope.json` | the envelope's exact bytes |
| `keys.json` | what the judge knows: whose orders count, how far the numbers are, who it is, its clock |
| `expected.json` | `taken`, `duplicate`, `in_force`; `codes` are the reasons for a refusal, in no order; `signed_by` the ids of the keys of `keys.json` by which the envelope bears a valid signature; `payload_digest`; `why` in words |

The code `key` means that a key of `keys.json` itself is refused when it is read. `signed_by` and `payload_digest` are
null where the envelope cannot be read.

They are made by `schemas/tests/vectors/`: `MESHPLAN_WRITE_VECTORS=1 cargo nextest run --workspace the_published_files`.
";

/// `keys.json`: what the judge knows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Keys {
    /// `epoch`, `fleet-list`, `declaration`, `timestamp`, `report`: as what the envelope came.
    pub(crate) judged_as: String,
    pub(crate) fleet: String,
    pub(crate) node: Option<NodeId>,
    /// Who may sign; for a report the node itself. Text, as a vector may have keys that are refused.
    pub(crate) authors: Vec<NamedKey>,
    pub(crate) threshold: u32,
    pub(crate) timestamp_keys: Vec<NamedKey>,
    pub(crate) marks: Marks,
    pub(crate) in_force: Vec<InForce>,
    pub(crate) version: String,
    pub(crate) trusted_now: Option<i64>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct NamedKey {
    pub(crate) id: String,
    pub(crate) key: String,
}

/// `expected.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Expected {
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
    pub(crate) signed_by: Option<Vec<String>>,
    pub(crate) payload_digest: Option<Digest>,
    pub(crate) why: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) taken: bool,
    pub(crate) duplicate: bool,
    pub(crate) in_force: bool,
    pub(crate) codes: Vec<String>,
}

/// One vector.
#[derive(Debug, Clone)]
pub(crate) struct Vector {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
    pub(crate) envelope: Vec<u8>,
    pub(crate) keys: Keys,
    pub(crate) verdict: Verdict,
    pub(crate) signed_by: Option<Vec<&'static str>>,
}

impl Vector {
    /// The three files.
    pub(crate) fn files(&self) -> [(&'static str, Vec<u8>); 3] {
        let digest = self.signed_by.as_ref().and_then(|_| {
            let value: Value = serde_json::from_slice(&self.envelope).ok()?;
            let text = value.get("payload")?.as_str()?.to_owned();
            let standard = text.replace('-', "+").replace('_', "/");
            Some(Digest::of(&BASE64.decode(standard.as_bytes()).ok()?))
        });
        let expected = Expected {
            verdict: self.verdict.clone(),
            signed_by: self
                .signed_by
                .as_ref()
                .map(|ids| ids.iter().map(|id| (*id).to_owned()).collect()),
            payload_digest: digest,
            why: self.why.to_owned(),
        };
        let pretty = |value: String| (value + "\n").into_bytes();
        [
            ("envelope.json", self.envelope.clone()),
            (
                "keys.json",
                pretty(serde_json::to_string_pretty(&self.keys).unwrap()),
            ),
            (
                "expected.json",
                pretty(serde_json::to_string_pretty(&expected).unwrap()),
            ),
        ]
    }
}

/// A key by its one-byte seed; the id is what signatures by it say.
#[derive(Clone, Copy)]
pub(crate) struct Who {
    pub(crate) id: &'static str,
    seed: u8,
}

/// The author of the fleet.
pub(crate) const AUTHOR: Who = Who {
    id: "author-1",
    seed: 1,
};
/// A second one, where two must sign.
pub(crate) const SECOND: Who = Who {
    id: "author-2",
    seed: 2,
};
/// Nobody.
pub(crate) const STRANGER: Who = Who {
    id: "stranger",
    seed: 3,
};
/// Signs timestamps.
pub(crate) const CLOCK: Who = Who {
    id: "timestamp-1",
    seed: 4,
};
/// The node's own signing key.
pub(crate) const NODE: Who = Who { id: "node", seed: 5 };

impl Who {
    pub(crate) fn secret(self) -> ed25519_dalek::SigningKey {
        ed25519_dalek::SigningKey::from_bytes(&[self.seed; 32])
    }
    pub(crate) fn key(self) -> SigningKey {
        SigningKey::from_bytes(self.secret().verifying_key().to_bytes()).unwrap()
    }
    pub(crate) fn named(self) -> NamedKey {
        NamedKey {
            id: self.id.to_owned(),
            key: self.key().to_string(),
        }
    }
    pub(crate) fn author(self) -> Author {
        Author {
            id: KeyId(self.id.to_owned()),
            key: self.key(),
        }
    }
    /// A signature over any message.
    pub(crate) fn sign(self, message: &[u8]) -> Vec<u8> {
        self.secret().sign(message).to_bytes().to_vec()
    }
}

pub(crate) fn node() -> NodeId {
    NodeId(uuid::Uuid::from_u128(0x0192_f0c1_0000_7000_8000_0000_0000_0001))
}

/// What a host of the fleet knows that has verified nothing yet.
pub(crate) fn knows(judged_as: &str) -> Keys {
    Keys {
        judged_as: judged_as.to_owned(),
        fleet: "nexus0".to_owned(),
        node: Some(node()),
        authors: vec![if judged_as == "report" { NODE } else { AUTHOR }.named()],
        threshold: 1,
        timestamp_keys: vec![CLOCK.named()],
        marks: Marks {
            era: 1,
            ..Marks::default()
        },
        in_force: vec![],
        version: "0.1.0".to_owned(),
        trusted_now: Some(1_750_000_000),
    }
}

pub(crate) fn mark(number: u64, of: &[u8]) -> Mark {
    Mark {
        number,
        digest: Digest::of(of),
    }
}

pub(crate) fn epoch(number: u64) -> Epoch {
    Epoch {
        schema: 1,
        fleet: "nexus0".parse().unwrap(),
        era: 1,
        issued_at: 1_750_000_000,
        must_understand: vec![],
        epoch: number,
        author: KeyId(AUTHOR.id.to_owned()),
        targeting: Targeting::everyone(),
        min_daemon_version: None,
        confirm_secs: 60,
        confirm_probe: None,
        policy: "[base.scheduler]\nreconcile_secs = 300\n".to_owned(),
        in_force: vec![],
        watch_until: None,
        rollout_id: "acme/fleet@aaaaaaaaaaaa".to_owned(),
        phase: Phase::Canary,
        urgent: false,
        again: vec![],
        manifest: None,
        commit: "a".repeat(40).parse().unwrap(),
    }
}

pub(crate) fn declaration(sequence: u64) -> Declaration {
    Declaration {
        schema: 1,
        fleet: "nexus0".parse().unwrap(),
        era: 1,
        issued_at: 1_750_000_000,
        must_understand: vec![],
        node: node(),
        sequence,
        modules: vec![],
        roles: vec!["edge".parse().unwrap()],
        adopted: false,
        take: vec![],
        resources: vec![],
        left_out: vec![],
        artifacts: vec![],
        sealed: Vec::new(),
        apply_secs: 600,
        confirm_secs: 60,
        confirm_probe: None,
        on_failure: OnFailure::Revert,
        mode: Mode::Apply,
        min_host_version: None,
        urgent: false,
        again: vec![],
        membership: None,
        neighbours: vec![],
        manifest: None,
    }
}

pub(crate) fn head(revision: u64) -> FleetHead {
    FleetHead {
        schema: 1,
        fleet: "nexus0".parse().unwrap(),
        era: 1,
        issued_at: 1_750_000_000,
        must_understand: vec![],
        revision,
        previous: Some(Digest::of(b"the head before")),
        commit: "a".repeat(40).parse().unwrap(),
        authors: vec![AUTHOR.author()],
        roots: vec![],
        threshold: 1,
        root_threshold: 0,
        reconcilers: vec![],
        rotations: vec![],
        records_root: Digest::of(b""),
        records_count: 0,
        wrapped_root: None,
        timestamp_keys: vec![CLOCK.author()],
        revoked: vec![],
        oldest_accepted: 1,
        settings: ListSettings {
            left_behind_grace_secs: 600,
            lifeline_secs: 86_400,
            require_trusted_clock_for_scheduled_activation: true,
        },
    }
}

pub(crate) fn timestamp(issued_at: i64) -> Timestamp {
    Timestamp {
        schema: 1,
        fleet: "nexus0".parse().unwrap(),
        era: 1,
        issued_at,
        must_understand: vec![],
        revision: 3,
        head: Digest::of(b"the head"),
        block: None,
        valid_to: issued_at + 2_592_000,
    }
}

/// A report of [`node`]; JSON, so that what it says grows without the vectors.
pub(crate) fn report() -> Value {
    json!({
        "schema": 1, "fleet": "nexus0", "era": 1, "issued_at": 1_750_000_000, "node": node(), "counter": 7,
        "boot_id": "b", "instance": "i", "started_at": 1_749_999_000, "host_version": "0.1.0", "cause": "start",
        "witness": 0, "marks": { "era": 1 },
    })
}

/// An envelope's JSON of these parts.
pub(crate) fn envelope(payload_type: &str, payload: &[u8], signatures: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let signatures: Vec<Value> = signatures
        .iter()
        .map(|(id, sig)| json!({ "keyid": id, "sig": BASE64.encode(sig) }))
        .collect();
    let whole = json!({
        "payload": BASE64.encode(payload), "payloadType": payload_type, "signatures": signatures,
    });
    serde_json::to_vec(&whole).unwrap()
}

/// The envelope of a payload, signed as it should be.
pub(crate) fn sealed<P: Payload>(payload: &P, by: Who) -> Vec<u8> {
    sealed_bytes(P::TYPE, &canonical(payload).unwrap(), by)
}

pub(crate) fn sealed_bytes(payload_type: &str, payload: &[u8], by: Who) -> Vec<u8> {
    let signature = by.sign(&pae(payload_type, payload));
    envelope(payload_type, payload, &[(by.id, signature)])
}

pub(crate) fn taken() -> Verdict {
    Verdict {
        taken: true,
        ..Verdict::default()
    }
}

pub(crate) fn refused(codes: &[&str]) -> Verdict {
    Verdict {
        codes: codes.iter().map(|code| (*code).to_owned()).collect(),
        ..Verdict::default()
    }
}
