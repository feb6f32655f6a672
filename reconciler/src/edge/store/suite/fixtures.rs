//! Values that the suite stores.

use jiff::Timestamp;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Envelope, Payload, Signature};
use meshplan_schemas::fleet_list::{FleetHead, Leaf, ListSettings, UpdateClass};
use meshplan_schemas::ident::{CommitId, KeyId, NodeId};
use meshplan_schemas::key::{SigningKey, TransportKey};
use meshplan_schemas::lifecycle::delivery::{Code, State};
use meshplan_schemas::report::{Cause, Marks, Report};
use meshplan_schemas::timestamp::BlockMark;

use crate::edge::store::journal::SignedBlock;
use crate::edge::store::orders::{OrderKind, SignedOrder};
use crate::pure::act::{Act, Order, UnsignedBlock};
use crate::pure::delivery::{Delivery, Transition};
use crate::pure::snapshot::Counters;

pub(super) fn at(secs: i64) -> Timestamp {
    Timestamp::from_second(1_790_000_000 + secs).unwrap()
}

pub(super) fn commit(n: u8) -> CommitId {
    format!("{n:02x}").repeat(20).parse().unwrap()
}

pub(super) fn node(n: u128) -> NodeId {
    NodeId(uuid::Uuid::from_u128(n))
}

pub(super) fn transport_key(n: u8) -> TransportKey {
    let mut bytes = [n; 32];
    bytes[31] = 1;
    TransportKey::from_bytes(bytes).unwrap()
}

fn signing_key() -> SigningKey {
    let key = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
    SigningKey::from_bytes(key.verifying_key().to_bytes()).unwrap()
}

pub(super) fn delivery(n: u8, state: State) -> Delivery {
    Delivery {
        subject: format!("change {n} \u{1f680}"),
        author: "dana".into(),
        state,
        reason: "merged".into(),
        transitions: 1,
        ..Delivery::announced("fleet", commit(n), u64::from(n), at(i64::from(n)))
    }
}

pub(super) fn transition(n: u8, seq: u32) -> Transition {
    Transition {
        commit: commit(n),
        seq,
        at: at(i64::from(seq)),
        from: None,
        to: State::Proposed,
        code: Code::Announced,
        actor: "reconciler".into(),
        reason: "merged".into(),
        facts: vec![("Delivery".into(), format!("fleet@{}", commit(n).short()))],
    }
}

pub(super) fn block(number: u64, n: u8) -> SignedBlock {
    let text = format!("Block: {number}\n");
    SignedBlock {
        mark: BlockMark {
            number,
            digest: Digest::of(text.as_bytes()),
        },
        commit: commit(n),
        text: format!("{text}Sig: author c2ln\n"),
    }
}

fn sign<P: Payload>(payload: &P) -> Envelope {
    Envelope {
        payload_type: P::TYPE.to_owned(),
        payload: meshplan_schemas::digest::canonical(payload).unwrap(),
        signatures: vec![Signature {
            key_id: KeyId("author".into()),
            bytes: vec![0; 64],
        }],
    }
}

pub(super) fn order(kind: OrderKind, number: u64, of: Option<NodeId>, text: &str) -> SignedOrder {
    SignedOrder {
        kind,
        number,
        node: of,
        digest: Digest::of(text.as_bytes()),
        envelope: text.to_owned(),
        commit: Some(commit(1)),
        issued_at: at(0),
    }
}

pub(super) fn leaf(n: u8) -> Leaf {
    Leaf {
        id: node(u128::from(n)),
        name: format!("ace-{n}").parse().unwrap(),
        transport_key: transport_key(n),
        signing_key: signing_key(),
        next_transport_key: (n == 2).then(|| transport_key(102)),
        next_signing_key: None,
        rotations: Vec::new(),
        address: None,
        lifeline: false,
        valid_to: 0,
        update_class: UpdateClass::Required,
        pinned: false,
    }
}

/// A head over these leaves, unsigned and signed.
pub(super) fn head(revision: u64, leaves: Vec<Leaf>) -> (Order, SignedOrder) {
    let head = FleetHead {
        schema: 1,
        fleet: "demo".parse().unwrap(),
        era: 0,
        issued_at: at(0).as_second(),
        must_understand: Vec::new(),
        revision,
        previous: None,
        commit: commit(1),
        authors: Vec::new(),
        roots: Vec::new(),
        threshold: 1,
        root_threshold: 0,
        reconcilers: Vec::new(),
        rotations: Vec::new(),
        records_root: Digest::of(b""),
        records_count: leaves.len() as u64,
        wrapped_root: None,
        timestamp_keys: Vec::new(),
        revoked: Vec::new(),
        oldest_accepted: revision.saturating_sub(1),
        settings: ListSettings {
            left_behind_grace_secs: 0,
            lifeline_secs: 0,
            require_trusted_clock_for_scheduled_activation: false,
        },
    };
    let envelope = sign(&head);
    let signed = SignedOrder {
        digest: envelope.payload_digest(),
        envelope: String::from_utf8(envelope.write()).unwrap(),
        ..order(OrderKind::Head, revision, None, "")
    };
    (Order::Head { head, leaves }, signed)
}

/// An act that goes from these counters to those and does nothing else.
pub(super) fn act(before: &Counters, after: &Counters) -> Act {
    Act {
        counters_before: before.clone(),
        counters: after.clone(),
        ..Act::default()
    }
}

pub(super) fn unsigned(block: &SignedBlock) -> UnsignedBlock {
    UnsignedBlock {
        mark: block.mark.clone(),
        commit: block.commit.clone(),
        text: format!("Block: {}\n", block.mark.number),
    }
}

pub(super) fn report(of: NodeId, counter: u64, cause: Cause) -> Report {
    Report {
        schema: 1,
        fleet: "demo".parse().unwrap(),
        era: 0,
        issued_at: at(0).as_second(),
        must_understand: Vec::new(),
        node: of,
        counter,
        boot_id: "boot".into(),
        instance: format!("instance-{counter}"),
        started_at: 0,
        host_version: "0.1.0".into(),
        launcher_version: None,
        cause,
        declaration: None,
        resources: Vec::new(),
        held: Vec::new(),
        strays: Vec::new(),
        left_out: Vec::new(),
        capabilities: Vec::new(),
        probes: Vec::new(),
        restarts: 0,
        links: Vec::new(),
        filters: Vec::new(),
        firewalls: Vec::new(),
        rollbacks: Vec::new(),
        witness: 1,
        marks: Marks::default(),
        stale: false,
        paused: None,
        epoch: None,
        rotations: Vec::new(),
        policy_digest: None,
        clock_trusted: None,
        disk_free_bytes: None,
        load_hundredths: None,
        refused: Vec::new(),
        take_requests: Vec::new(),
    }
}
