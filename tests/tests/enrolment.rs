//! Enrolment through real sockets: the host's `enrol` against the reconciler's `Mesh` and decision (LK-3).

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use meshplan_host::edge::enrol::{EnrolError, Machine, RECORD_FILE, Step, TRUST_FILE, enrol};
use meshplan_host::edge::identity::Identity;
use meshplan_host::edge::link::Membership;
use meshplan_reconciler::edge::artifacts::Piece;
use meshplan_reconciler::edge::enrol::{FleetFacts, InviteSpec, make_invites};
use meshplan_reconciler::edge::mesh::{Desk, Mesh, MeshLimits, Taken, Unavailable};
use meshplan_reconciler::pure::enrol::{Admission, EnrolRequest, InviteRow, Verdict, check};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Signer as _, SoftSigner, seal};
use meshplan_schemas::fleet_list::{Author, FleetHead, Leaf, ListSettings, ProvenLeaf, UpdateClass};
use meshplan_schemas::ident::{FleetName, NodeId};
use meshplan_schemas::key::TransportKey;
use meshplan_schemas::merkle::{Tree, leaf_hash};
use meshplan_schemas::report::Marks;
use meshplan_schemas::session::LinkSecret;
use meshplan_schemas::session::token::Token;
use meshplan_schemas::wire::{FromEnrolling, ToEnrolling, ToHost};

const DEADLINE: Duration = Duration::from_secs(20);

/// A store with one invitation. Admissions are merged at once when `merges`.
struct Double {
    row: Mutex<InviteRow>,
    now: i64,
    firsts: Mutex<u32>,
    merges: bool,
    /// Signs the head; the token names the author of seed 7.
    author: SoftSigner,
}

impl Double {
    fn answer(&self, admission: &Admission) -> ToEnrolling {
        if self.merges {
            admitted(admission, &self.author)
        } else {
            admission.waiting()
        }
    }
    fn decide(&self, said: FromEnrolling) -> ToEnrolling {
        let mut row = self.row.lock().unwrap();
        if let FromEnrolling::Poll { .. } = said {
            return admitted(&row.admission().unwrap(), &self.author);
        }
        let request = EnrolRequest::of(said).unwrap();
        match check(&request, Some(&row), None, self.now) {
            Verdict::First(used, admission) => {
                *row = *used;
                *self.firsts.lock().unwrap() += 1;
                self.answer(&admission)
            }
            Verdict::Again(admission) => self.answer(&admission),
            Verdict::Refused(_) => ToEnrolling::Refused,
        }
    }
}

impl Desk for Double {
    fn record_of(&self, _: TransportKey) -> BoxFuture<'_, Result<Option<Leaf>, Unavailable>> {
        async { Ok(None) }.boxed()
    }
    fn orders_for(&self, _: NodeId, _: Marks) -> BoxFuture<'_, Result<Vec<ToHost>, Unavailable>> {
        async { Ok(vec![]) }.boxed()
    }
    fn epoch_bytes(&self, _: Digest) -> BoxFuture<'_, Result<Option<String>, Unavailable>> {
        async { Ok(None) }.boxed()
    }
    fn artifact(&self, _: Digest, _: u64, _: u32) -> BoxFuture<'_, Result<Option<Piece>, Unavailable>> {
        async { Ok(None) }.boxed()
    }
    fn take_report(&self, _: NodeId, _: u64, _: String) -> BoxFuture<'_, Taken> {
        async { Taken::Stored }.boxed()
    }
    fn enrol(&self, said: FromEnrolling) -> BoxFuture<'_, ToEnrolling> {
        let answer = self.decide(said);
        async { answer }.boxed()
    }
    fn heartbeat_secs(&self) -> u32 {
        30
    }
    fn went_up(&self, _: NodeId) {}
    fn went_down(&self, _: NodeId) {}
}

fn fleet() -> FleetName {
    "nexus0".parse().unwrap()
}
fn link_key(seed: u8) -> LinkSecret {
    LinkSecret::from_bytes(&[seed; 32]).unwrap()
}
fn author(seed: u8) -> SoftSigner {
    SoftSigner::new(None, &[seed; 32]).unwrap()
}
fn named(signer: &SoftSigner) -> Author {
    Author {
        id: signer.key_id(),
        key: signer.public(),
    }
}

fn admitted(admission: &Admission, author: &SoftSigner) -> ToEnrolling {
    let leaf = Leaf {
        id: admission.node,
        name: admission.name.clone(),
        transport_key: admission.transport_key,
        signing_key: admission.signing_key,
        next_transport_key: None,
        next_signing_key: None,
        rotations: vec![],
        address: None,
        lifeline: false,
        valid_to: 0,
        update_class: UpdateClass::Required,
        pinned: false,
    };
    let bytes = leaf.bytes().unwrap();
    let tree = Tree::new(vec![leaf_hash(b"another node"), leaf_hash(&bytes)]);
    let head = FleetHead {
        schema: 1,
        fleet: fleet(),
        era: 1,
        issued_at: 0,
        must_understand: vec![],
        revision: 2,
        previous: Some(Digest::of(b"revision 1")),
        commit: "a".repeat(40).parse().unwrap(),
        authors: vec![named(author)],
        roots: vec![],
        threshold: 1,
        root_threshold: 0,
        reconcilers: vec![],
        rotations: vec![],
        records_root: Digest(tree.root()),
        records_count: 2,
        wrapped_root: None,
        timestamp_keys: vec![],
        revoked: vec![],
        oldest_accepted: 1,
        settings: ListSettings {
            left_behind_grace_secs: 600,
            lifeline_secs: 86_400,
            require_trusted_clock_for_scheduled_activation: true,
        },
    };
    ToEnrolling::Admitted {
        name: admission.name.clone(),
        node: admission.node,
        head: String::from_utf8(seal(&head, author).unwrap()).unwrap(),
        record: ProvenLeaf {
            leaf: String::from_utf8(bytes).unwrap(),
            revision: 2,
            index: 1,
            path: tree.path(1).unwrap().into_iter().map(Digest).collect(),
        },
    }
}

struct World {
    desk: Arc<Double>,
    token: Token,
    mesh: Mesh,
}

/// A reconciler with one invitation, good until second 100; it is second `now`.
async fn world(now: i64, merges: bool, signs: u8) -> World {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let spec = InviteSpec {
        name: "ace".into(),
        count: 1,
        roles: vec![],
        modules: vec![],
        expires_secs: 100,
        admit: false,
    };
    let facts = FleetFacts {
        fleet: fleet(),
        addresses: vec![format!("ws://{address}/mesh")],
        link_key: link_key(9).public(),
        authors: vec![named(&author(7))],
    };
    let (token, row) = make_invites(&spec, &facts, |_| None, 0).unwrap().remove(0);
    let desk = Arc::new(Double {
        row: Mutex::new(row),
        now,
        firsts: Mutex::new(0),
        merges,
        author: author(signs),
    });
    let limits = MeshLimits {
        enrolment_pace: Duration::from_millis(1),
        ..MeshLimits::default()
    };
    let mesh = Mesh::with_limits(desk.clone(), vec![link_key(9)], fleet(), limits);
    let app = mesh.router().into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    World { desk, token, mesh }
}

async fn try_enrol(token: &Token, dir: &Path) -> (Result<Membership, EnrolError>, Vec<Step>) {
    let machine = Machine {
        capabilities: vec!["systemd".into()],
        host_version: "0.1.0".into(),
    };
    let mut steps = Vec::new();
    let enrolled = tokio::time::timeout(DEADLINE, enrol(token, dir, &machine, |step| steps.push(step)))
        .await
        .expect("an end of the enrolment");
    (enrolled, steps)
}

// holds: LK-3
#[tokio::test]
async fn a_machine_enrols_waits_and_keeps_what_it_verified() {
    let (world, dir) = (world(50, false, 7).await, tempfile::tempdir().unwrap());
    let (membership, steps) = try_enrol(&world.token, dir.path()).await;
    let membership = membership.unwrap();
    let Step::Keys { fingerprint } = &steps[0] else {
        panic!("{steps:?}")
    };
    let admission = world.desk.row.lock().unwrap().admission().unwrap();
    assert_eq!(
        *fingerprint, admission.fingerprint,
        "machine and pull request show the same"
    );
    assert!(matches!(&steps[1], Step::Waiting { name, .. } if name.as_str() == "ace"));
    assert_eq!(Membership::load(dir.path()).unwrap(), Some(membership.clone()));
    assert_eq!(membership.node, admission.node);
    let (transport, signing) = Identity::load(dir.path()).unwrap().public();
    assert_eq!(
        (transport, signing),
        (admission.transport_key, admission.signing_key)
    );
    for name in [TRUST_FILE, RECORD_FILE] {
        assert!(dir.path().join(name).exists(), "{name}");
    }
    let (again, _) = try_enrol(&world.token, dir.path()).await;
    assert!(matches!(again, Err(EnrolError::Already { .. })));
}

// holds: LK-3
#[tokio::test]
async fn a_machine_that_lost_the_answer_enrols_once() {
    let (world, dir) = (world(50, true, 7).await, tempfile::tempdir().unwrap());
    try_enrol(&world.token, dir.path()).await.0.unwrap();
    // The membership did not reach the disk: the power went just before.
    std::fs::remove_file(dir.path().join("membership.json")).unwrap();
    try_enrol(&world.token, dir.path()).await.0.unwrap();
    assert_eq!(*world.desk.firsts.lock().unwrap(), 1);
}

// holds: LK-3
#[tokio::test]
async fn used_and_expired_tokens_are_refused_alike() {
    let (world_now, one, two) = (
        world(50, true, 7).await,
        tempfile::tempdir().unwrap(),
        tempfile::tempdir().unwrap(),
    );
    try_enrol(&world_now.token, one.path()).await.0.unwrap();
    let used = try_enrol(&world_now.token, two.path()).await.0.unwrap_err();
    let late = world(100, true, 7).await;
    let expired = try_enrol(&late.token, two.path()).await.0.unwrap_err();
    assert_eq!(used.to_string(), expired.to_string());
    assert!(matches!(used, EnrolError::Refused));
    assert_eq!(Membership::load(two.path()).unwrap(), None);
}

// holds: LK-3
#[tokio::test]
async fn a_list_that_no_author_of_the_token_signed_leaves_no_membership() {
    let (world, dir) = (world(50, true, 8).await, tempfile::tempdir().unwrap());
    let refused = try_enrol(&world.token, dir.path()).await.0.unwrap_err();
    assert!(matches!(refused, EnrolError::Admission(_)), "{refused}");
    assert!(!dir.path().join(TRUST_FILE).exists());
    assert_eq!(Membership::load(dir.path()).unwrap(), None);
}

// holds: LK-3
#[tokio::test]
async fn the_secret_does_not_leave_when_another_key_answers() {
    let (world, dir) = (world(50, true, 7).await, tempfile::tempdir().unwrap());
    let mut token = world.token.clone();
    token.reconciler_key = link_key(5).public();
    let machine = Machine {
        capabilities: vec![],
        host_version: "0.1.0".into(),
    };
    let (said, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let enrolling = enrol(&token, dir.path(), &machine, |step| {
        let _ = said.send(step);
    });
    let first_failure = async {
        while let Some(step) = heard.recv().await {
            if let Step::Again { why, .. } = step {
                return why;
            }
        }
        panic!("the enrolment ended")
    };
    tokio::select! {
        ended = enrolling => panic!("{ended:?}"),
        why = tokio::time::timeout(DEADLINE, first_failure) => {
            let why = why.unwrap();
            assert!(why.contains("another reconciler"), "{why}");
        }
    }
    assert_eq!(*world.desk.firsts.lock().unwrap(), 0);
    assert!(world.mesh.connected().is_empty());
}

// holds: LK-4
#[tokio::test]
async fn a_token_for_a_link_that_this_host_lacks_is_refused_before_anything_is_sent() {
    let (world, dir) = (world(50, true, 7).await, tempfile::tempdir().unwrap());
    let mut token = world.token.clone();
    token.link = "bus".into();
    let refused = try_enrol(&token, dir.path()).await.0.unwrap_err();
    assert!(matches!(refused, EnrolError::Kind(kind) if kind == "bus"));
    assert!(!dir.path().join("keys").exists());
}
