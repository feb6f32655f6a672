//! Orders for the tests of this crate: signed by a known key, as small as they can be.

use meshplan_schemas::declaration::{Declaration, Mode, ModuleEntry, OnFailure};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Payload, Signer as _, SoftSigner, seal};
use meshplan_schemas::epoch::{Epoch, InForce, Phase, Targeting};
use meshplan_schemas::fleet_list::{Author, FleetHead, Leaf, ListSettings, ProvenLeaf, UpdateClass};
use meshplan_schemas::ident::{KeyId, NodeId};
use meshplan_schemas::key::TransportKey;
use meshplan_schemas::merkle;
use meshplan_schemas::timestamp::Timestamp;
use uuid::Uuid;

use meshplan_schemas::report::Marks;

use super::agent::{Agent, Given};
use super::known_bad::KnownBad;
use super::orders::{Kept, Orders};
use super::report::Facts;
use super::standing::Standing;

pub(crate) const NODE: NodeId = NodeId(Uuid::from_u128(1));
pub(crate) const OTHER_NODE: NodeId = NodeId(Uuid::from_u128(2));

pub(crate) fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

pub(crate) fn signer(seed: u8) -> SoftSigner {
    SoftSigner::new(Some(KeyId(format!("author-{seed}"))), &[seed; 32]).unwrap()
}

pub(crate) fn author(seed: u8) -> Author {
    Author {
        id: signer(seed).key_id(),
        key: signer(seed).public(),
    }
}

/// Signed by the author of the fleet, `author-1`.
pub(crate) fn text<P: Payload>(payload: &P) -> String {
    text_by(payload, 1)
}

pub(crate) fn text_by<P: Payload>(payload: &P, seed: u8) -> String {
    String::from_utf8(seal(payload, &signer(seed)).unwrap()).unwrap()
}

pub(crate) fn kept<P: Payload>(payload: &P) -> Kept<P> {
    Kept::read(text(payload)).unwrap()
}

pub(crate) fn declaration(sequence: u64, modules: &[(&str, &str)]) -> Declaration {
    Declaration {
        schema: 1,
        fleet: "shop".parse().unwrap(),
        era: 0,
        issued_at: 1000,
        must_understand: vec![],
        node: NODE,
        sequence,
        modules: modules
            .iter()
            .map(|(module, content)| ModuleEntry {
                module: module.parse().unwrap(),
                digest: digest(content),
                commit: "0".repeat(40).parse().unwrap(),
                delivery: "fleet@000000000000".into(),
                mode: Mode::Apply,
                after: vec![],
                on_policy_change: vec![],
                requires: vec![],
            })
            .collect(),
        roles: vec![],
        adopted: false,
        take: vec![],
        resources: vec![],
        left_out: vec![],
        artifacts: vec![],
        sealed: Vec::new(),
        apply_secs: 60,
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

pub(crate) fn epoch(number: u64, policy: &str, targeting: Targeting, in_force: Vec<InForce>) -> Epoch {
    Epoch {
        schema: 1,
        fleet: "shop".parse().unwrap(),
        era: 0,
        issued_at: 1000,
        must_understand: vec![],
        epoch: number,
        author: KeyId("author-1".into()),
        targeting,
        min_daemon_version: None,
        confirm_secs: 60,
        confirm_probe: None,
        policy: policy.into(),
        in_force,
        watch_until: None,
        rollout_id: "r1".into(),
        phase: Phase::Release,
        urgent: false,
        again: vec![],
        manifest: None,
        commit: "0".repeat(40).parse().unwrap(),
    }
}

pub(crate) fn leaf(node: NodeId, class: UpdateClass) -> Leaf {
    Leaf {
        id: node,
        name: "web-1".parse().unwrap(),
        transport_key: TransportKey::from_bytes([9; 32]).unwrap(),
        signing_key: signer(9).public(),
        next_transport_key: None,
        next_signing_key: None,
        rotations: vec![],
        address: None,
        lifeline: false,
        valid_to: 0,
        update_class: class,
        pinned: false,
    }
}

/// A head over the two nodes' records, and the proof of this node's.
pub(crate) fn head(revision: u64, authors: &[u8]) -> (FleetHead, ProvenLeaf) {
    let leaves = [
        leaf(NODE, UpdateClass::Required),
        leaf(OTHER_NODE, UpdateClass::Required),
    ];
    let bytes: Vec<Vec<u8>> = leaves.iter().map(|l| l.bytes().unwrap()).collect();
    let hashes: Vec<_> = bytes.iter().map(|b| merkle::leaf_hash(b)).collect();
    let head = FleetHead {
        schema: 1,
        fleet: "shop".parse().unwrap(),
        era: 0,
        issued_at: 1000,
        must_understand: vec![],
        revision,
        previous: None,
        commit: "0".repeat(40).parse().unwrap(),
        authors: authors.iter().map(|seed| author(*seed)).collect(),
        roots: vec![],
        threshold: 1,
        root_threshold: 0,
        reconcilers: vec![],
        rotations: vec![],
        records_root: Digest(merkle::root(&hashes)),
        records_count: 2,
        wrapped_root: None,
        timestamp_keys: vec![author(1)],
        revoked: vec![],
        oldest_accepted: 0,
        settings: ListSettings {
            left_behind_grace_secs: 0,
            lifeline_secs: 0,
            require_trusted_clock_for_scheduled_activation: false,
        },
    };
    let proof = ProvenLeaf {
        leaf: String::from_utf8(bytes[0].clone()).unwrap(),
        revision,
        index: 0,
        path: vec![Digest(hashes[1])],
    };
    (head, proof)
}

pub(crate) fn timestamp(issued_at: i64, valid_to: i64) -> Timestamp {
    Timestamp {
        schema: 1,
        fleet: "shop".parse().unwrap(),
        era: 0,
        issued_at,
        must_understand: vec![],
        revision: 1,
        head: digest("head"),
        block: None,
        valid_to,
    }
}

/// An agent that holds nothing.
pub(crate) fn agent() -> Agent {
    Agent::new(
        Given {
            fleet: "shop".parse().unwrap(),
            node: NODE,
            version: semver::Version::new(0, 1, 0),
            orders: Orders::default(),
            marks: Some((Marks::default(), None)),
            standing: Standing::default(),
            known_bad: KnownBad::default(),
            reconcile_secs: None,
            instance: "i".into(),
            boot_id: "b".into(),
        },
        1000,
    )
}

pub(crate) fn facts(counter: u64) -> Facts {
    Facts {
        counter,
        boot_id: "b".into(),
        instance: "i".into(),
        started_at: 1000,
        host_version: "0.1.0".into(),
        launcher_version: None,
        capabilities: vec![],
        filters: Vec::new(),
        firewalls: Vec::new(),
        take_requests: vec![],
        disk_free_bytes: None,
        load_hundredths: None,
    }
}
