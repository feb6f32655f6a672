//! Sessions through real sockets: the reconciler's `Mesh` and the host's link and enrolment (LK-1, LK-3, LK-7).

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test a panic is the verdict"
)]

#[path = "sessions/pieces.rs"]
mod pieces;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use meshplan_host::edge::link::{
    DIRECT, Followed, LinkEvent, Membership, RENEWED, Route, ToLink, spawn, spawn_following,
};
use meshplan_reconciler::edge::artifacts::Piece;
use meshplan_reconciler::edge::mesh::{Desk, Mesh, MeshLimits, Taken, Unavailable};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::SoftSigner;
use meshplan_schemas::envelope::{Signer as _, seal};
use meshplan_schemas::fleet_list::{Leaf, UpdateClass};
use meshplan_schemas::ident::{FleetName, NodeId};
use meshplan_schemas::key::TransportKey;
use meshplan_schemas::report::Marks;
use meshplan_schemas::session::LinkSecret;
use meshplan_schemas::timestamp::Timestamp;
use meshplan_schemas::wire::{FromEnrolling, FromHost, ToEnrolling, ToHost};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::task::JoinHandle;

/// Every wait ends by then.
const DEADLINE: Duration = Duration::from_secs(10);

/// A store that remembers what it was asked.
#[derive(Default)]
struct Double {
    records: Mutex<BTreeMap<TransportKey, Leaf>>,
    orders: Mutex<Vec<ToHost>>,
    marks: Mutex<Vec<Marks>>,
    reports: Mutex<Vec<(NodeId, u64, String)>>,
    notices: Mutex<Vec<(NodeId, bool)>>,
    enrolling: Mutex<Vec<FromEnrolling>>,
    out_of_order: Mutex<bool>,
}

impl Double {
    fn notices(&self) -> Vec<bool> {
        self.notices.lock().unwrap().iter().map(|(_, up)| *up).collect()
    }
}

impl Desk for Double {
    fn record_of(&self, key: TransportKey) -> BoxFuture<'_, Result<Option<Leaf>, Unavailable>> {
        let found = if *self.out_of_order.lock().unwrap() {
            Err(Unavailable("locked".into()))
        } else {
            Ok(self.records.lock().unwrap().get(&key).cloned())
        };
        async { found }.boxed()
    }
    fn orders_for(&self, _: NodeId, marks: Marks) -> BoxFuture<'_, Result<Vec<ToHost>, Unavailable>> {
        let mut orders = self.orders.lock().unwrap().clone();
        if marks.timestamp.is_some() {
            orders.clear();
        }
        orders.push(ToHost::Current);
        self.marks.lock().unwrap().push(marks);
        async { Ok(orders) }.boxed()
    }
    fn epoch_bytes(&self, digest: Digest) -> BoxFuture<'_, Result<Option<String>, Unavailable>> {
        let found = (digest == Digest::of(b"old")).then(|| "old epoch".to_owned());
        async { Ok(found) }.boxed()
    }
    fn artifact(
        &self,
        artifact: Digest,
        offset: u64,
        length: u32,
    ) -> BoxFuture<'_, Result<Option<Piece>, Unavailable>> {
        let piece = (artifact == Digest::of(b"artifact")).then(|| Piece {
            size_bytes: 8,
            bytes: b"artifact"
                .iter()
                .copied()
                .skip(usize::try_from(offset).unwrap())
                .take(length as usize)
                .collect(),
        });
        async { Ok(piece) }.boxed()
    }
    fn take_report(&self, node: NodeId, counter: u64, envelope: String) -> BoxFuture<'_, Taken> {
        let taken = match counter {
            7 => Taken::Rejected("no".into()),
            8 => Taken::Busy(250),
            _ => Taken::Stored,
        };
        self.reports.lock().unwrap().push((node, counter, envelope));
        async { taken }.boxed()
    }
    fn enrol(&self, said: FromEnrolling) -> BoxFuture<'_, ToEnrolling> {
        self.enrolling.lock().unwrap().push(said);
        async { ToEnrolling::Refused }.boxed()
    }
    fn heartbeat_secs(&self) -> u32 {
        30
    }
    fn went_up(&self, node: NodeId) {
        self.notices.lock().unwrap().push((node, true));
    }
    fn went_down(&self, node: NodeId) {
        self.notices.lock().unwrap().push((node, false));
    }
}

fn fleet() -> FleetName {
    "nexus0".parse().unwrap()
}
fn secret(seed: u8) -> LinkSecret {
    LinkSecret::from_bytes(&[seed; 32]).unwrap()
}
fn node(n: u8) -> NodeId {
    NodeId(uuid::Uuid::from_u128(u128::from(n)))
}
fn leaf(n: u8) -> Leaf {
    Leaf {
        id: node(n),
        name: format!("node-{n}").parse().unwrap(),
        transport_key: secret(n).public(),
        signing_key: SoftSigner::new(None, &[n; 32]).unwrap().public(),
        next_transport_key: None,
        next_signing_key: None,
        rotations: vec![],
        address: None,
        lifeline: false,
        valid_to: 0,
        update_class: UpdateClass::Required,
        pinned: false,
    }
}

/// A reconciler with the link key of seed 9 and the records of the nodes 1 and 2.
struct World {
    desk: Arc<Double>,
    mesh: Mesh,
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl World {
    async fn new() -> Self {
        let desk = Arc::new(Double::default());
        for n in [1, 2] {
            desk.records.lock().unwrap().insert(secret(n).public(), leaf(n));
        }
        Self::at(desk, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }
    async fn at(desk: Arc<Double>, address: SocketAddr) -> Self {
        Self::with(desk, address, MeshLimits::default()).await
    }
    async fn with(desk: Arc<Double>, address: SocketAddr, limits: MeshLimits) -> Self {
        let limits = MeshLimits {
            ping: Duration::from_millis(50),
            attempts_a_minute: 2,
            enrolment_pace: Duration::from_millis(1),
            ..limits
        };
        let mesh = Mesh::with_limits(desk.clone(), vec![secret(8), secret(9)], fleet(), limits);
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = mesh.router().into_make_service_with_connect_info::<SocketAddr>();
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            desk,
            mesh,
            address,
            server,
        }
    }
    fn membership(&self, n: u8, reconciler: u8) -> Membership {
        Membership {
            link: DIRECT.into(),
            fleet: fleet(),
            node: node(n),
            name: format!("node-{n}").parse().unwrap(),
            addresses: vec![format!("ws://{}/mesh", self.address)],
            reconciler_key: secret(reconciler).public(),
        }
    }
    fn host(&self, n: u8) -> Host {
        Host::new(self.membership(n, 9), secret(n))
    }
}

struct Host {
    say: Sender<ToLink>,
    events: Receiver<LinkEvent>,
}

impl Host {
    fn new(membership: Membership, secret: LinkSecret) -> Self {
        let (say, events) = spawn(membership, secret).unwrap();
        Self { say, events }
    }
    async fn say(&self, word: FromHost) {
        self.say.send(ToLink::Say(Box::new(word))).await.unwrap();
    }
    async fn next(&mut self) -> LinkEvent {
        tokio::time::timeout(DEADLINE, self.events.recv())
            .await
            .expect("an event comes")
            .unwrap()
    }
    async fn message(&mut self) -> ToHost {
        match self.next().await {
            LinkEvent::Message(word) => *word,
            other => panic!("expected a message, came {other:?}"),
        }
    }
    async fn down(&mut self) -> String {
        loop {
            if let LinkEvent::Down { why } = self.next().await {
                return why;
            }
        }
    }
    async fn up(&mut self) {
        while !matches!(self.next().await, LinkEvent::Up(_)) {}
    }
    /// Up, hello, and everything up to `Current`.
    async fn greet(&mut self) -> Vec<ToHost> {
        self.up().await;
        self.say(hello()).await;
        let mut heard = Vec::new();
        loop {
            match self.message().await {
                ToHost::Current => return heard,
                word => heard.push(word),
            }
        }
    }
}

fn hello() -> FromHost {
    FromHost::Hello {
        host_version: "0.1.0".into(),
        marks: Box::default(),
        instance: "i".into(),
        boot_id: "b".into(),
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while !holds() {
        assert!(tokio::time::Instant::now() < end, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn timestamp(issued_at: i64) -> String {
    let payload = Timestamp {
        schema: 1,
        fleet: fleet(),
        era: 1,
        issued_at,
        must_understand: vec![],
        revision: 1,
        head: Digest::of(b""),
        block: None,
        valid_to: issued_at + 60,
    };
    let signer = SoftSigner::new(None, &[5; 32]).unwrap();
    String::from_utf8(seal(&payload, &signer).unwrap()).unwrap()
}

// holds: LK-1
#[tokio::test]
async fn a_member_gets_what_it_lacks_and_its_reports_are_acknowledged_once_stored() {
    let world = World::new().await;
    let order = ToHost::Order {
        envelope: timestamp(1),
    };
    world.desk.orders.lock().unwrap().push(order.clone());
    let mut host = world.host(1);
    assert_eq!(host.greet().await, [ToHost::Heartbeat { secs: 30 }, order]);
    assert_eq!(world.mesh.connected(), [node(1)]);

    // Longer than a Noise message.
    let report = "r".repeat(200_000);
    for counter in [6, 7, 8] {
        let envelope = report.clone();
        host.say(FromHost::Report { counter, envelope }).await;
    }
    assert_eq!(host.message().await, ToHost::Ack { counter: 6 });
    assert!(matches!(host.message().await, ToHost::Reject { counter: 7, .. }));
    assert_eq!(host.message().await, ToHost::Busy { retry_after_ms: 250 });
    assert_eq!(world.desk.reports.lock().unwrap()[0], (node(1), 6, report));

    host.say(FromHost::Want {
        digest: Digest::of(b"old"),
    })
    .await;
    let envelope = "old epoch".to_owned();
    assert_eq!(host.message().await, ToHost::Order { envelope });

    assert!(world.mesh.look(node(1), 3));
    assert_eq!(host.message().await, ToHost::Look { id: 3 });
    assert!(!world.mesh.look(node(2), 3), "it has no session");
    world.mesh.restarting(5);
    assert_eq!(host.message().await, ToHost::Restarting { secs: 5 });
}

// holds: LK-1
#[tokio::test]
async fn what_is_published_reaches_every_session_once() {
    let world = World::new().await;
    let mut hosts = [world.host(1), world.host(2)];
    for host in &mut hosts {
        host.greet().await;
    }
    let envelope = timestamp(1);
    let order = ToHost::Order { envelope };
    world.desk.orders.lock().unwrap().push(order.clone());
    world.mesh.publish();
    for host in &mut hosts {
        assert_eq!(host.message().await, order);
        assert_eq!(host.message().await, ToHost::Current);
    }
    let asked = world.desk.marks.lock().unwrap().len();
    world.mesh.publish();
    until("both sessions ask again", || {
        world.desk.marks.lock().unwrap().len() == asked + 2
    })
    .await;
    // What was sent counts as had, so a look is the next word, not the order again.
    for (n, host) in [1, 2].into_iter().zip(&mut hosts) {
        world.mesh.look(node(n), 1);
        assert_eq!(host.message().await, ToHost::Look { id: 1 });
    }
}

// holds: LK-1
#[tokio::test]
async fn a_key_without_a_record_gets_no_session() {
    let world = World::new().await;
    let mut stranger = world.host(3);
    let why = stranger.down().await;
    assert!(why.contains("no record has this key"), "{why}");
    assert!(world.mesh.connected().is_empty());
    assert!(world.desk.notices().is_empty());
}

// holds: LK-1
#[tokio::test]
async fn a_store_that_cannot_tell_puts_off_and_does_not_refuse() {
    let world = World::new().await;
    *world.desk.out_of_order.lock().unwrap() = true;
    let mut host = world.host(1);
    let why = host.down().await;
    assert!(why.contains("come again"), "{why}");
    *world.desk.out_of_order.lock().unwrap() = false;
    host.greet().await;
}

// holds: LK-1
#[tokio::test]
async fn a_record_that_is_revoked_ends_its_session_at_the_next_publication() {
    let world = World::new().await;
    let mut host = world.host(1);
    host.greet().await;
    world.desk.records.lock().unwrap().clear();
    world.mesh.publish();
    host.down().await;
    until("the session is gone", || world.mesh.connected().is_empty()).await;
    assert_eq!(world.desk.notices(), [true, false]);
}

// holds: LK-1
#[tokio::test]
async fn another_reconciler_than_the_pinned_one_is_not_talked_to() {
    let world = World::new().await;
    let mut host = Host::new(world.membership(1, 7), secret(1));
    let why = host.down().await;
    assert!(why.contains("another reconciler"), "{why}");
    let mut former = Host::new(world.membership(2, 8), secret(2));
    former.greet().await;
    assert_eq!(
        world.mesh.connected(),
        [node(2)],
        "an unretired key is answered too"
    );
}

// holds: LK-1, EP-2
#[tokio::test]
async fn a_renewed_session_is_a_new_handshake() {
    let world = World::new().await;
    let mut host = world.host(1);
    host.greet().await;
    host.say.send(ToLink::Renew).await.unwrap();
    assert_eq!(host.down().await, RENEWED);
    host.greet().await;
    until("the notices", || world.desk.notices().len() >= 2).await;
    assert_eq!(world.mesh.connected(), [node(1)]);
    assert_eq!(world.desk.notices().last(), Some(&true));
}

// holds: LK-1
#[tokio::test]
async fn a_newer_session_of_a_node_replaces_the_older() {
    let world = World::new().await;
    let mut older = world.host(1);
    older.greet().await;
    let mut newer = world.host(1);
    newer.greet().await;
    let why = older.down().await;
    assert!(why.contains("newer session"), "{why}");
    assert_eq!(world.desk.notices(), [true, true], "the node never went down");
    drop(older);
    assert!(world.mesh.look(node(1), 4));
    assert_eq!(newer.message().await, ToHost::Look { id: 4 });
}

// holds: LK-1
#[tokio::test]
async fn the_link_comes_back_when_the_reconciler_does() {
    let world = World::new().await;
    let (desk, address) = (world.desk.clone(), world.address);
    let mut host = world.host(1);
    host.greet().await;
    world.mesh.close();
    world.server.abort();
    let _ = world.server.await;
    host.down().await;
    let world = World::at(desk, address).await;
    host.greet().await;
    assert_eq!(world.mesh.connected(), [node(1)]);
}

// holds: LK-1
#[tokio::test]
async fn a_replayed_handshake_does_not_push_out_the_session_that_stands() {
    use meshplan_schemas::session::Initiator;
    let world = World::new().await;
    let mut host = world.host(1);
    host.greet().await;
    // The first frame of that very key, without anybody behind it who could say a word.
    let (_, first) = Initiator::member(&fleet(), &secret(1), &secret(9).public()).unwrap();
    let mut replay = raw::Socket::open(world.address).await;
    replay.send(&first).await;
    assert_eq!(replay.receive().await.len(), 48, "the handshake is answered");
    assert!(world.mesh.look(node(1), 5));
    assert_eq!(host.message().await, ToHost::Look { id: 5 });
    assert_eq!(world.desk.notices(), [true]);
}

// holds: LK-7
#[tokio::test]
async fn a_client_that_does_not_read_is_dropped_and_others_go_on() {
    let world = World::new().await;
    let mut slow = world.host(1);
    let mut other = world.host(2);
    slow.greet().await;
    other.greet().await;
    // `slow` reads no event any more; its channel, the socket and its mailbox fill.
    let envelope = "x".repeat(1024 * 1024);
    until("the slow one is dropped", || {
        let word = ToHost::Order {
            envelope: envelope.clone(),
        };
        !world.mesh.say(node(1), word)
    })
    .await;
    assert!(world.mesh.look(node(2), 6));
    assert_eq!(other.message().await, ToHost::Look { id: 6 });
}

// holds: LK-1
#[tokio::test]
async fn attempts_to_enrol_are_limited_by_address_and_never_reach_the_store() {
    use meshplan_schemas::session::{self, Initiator};
    let world = World::new().await;
    let mut answers = Vec::new();
    for _ in 0..3 {
        let (initiator, first) = Initiator::enrolment(&fleet(), &secret(9).public()).unwrap();
        let mut socket = raw::Socket::open(world.address).await;
        socket.send(&first).await;
        let mut session = initiator.finish(&socket.receive().await).unwrap();
        let said = FromEnrolling::Enrol {
            message_id: "m".into(),
            secret: "s".into(),
            transport_key: secret(3).public(),
            signing_key: leaf(3).signing_key,
            capabilities: vec![],
            host_version: "0.1.0".into(),
        };
        for frame in session.send(&session::encode(&said).unwrap(), 0).unwrap() {
            socket.send(&frame).await;
        }
        let message = session.receive(&socket.receive().await).unwrap().unwrap();
        answers.push(session::decode::<ToEnrolling>(&message).unwrap());
    }
    assert_eq!(answers[..2], [ToEnrolling::Refused, ToEnrolling::Refused]);
    assert!(matches!(answers[2], ToEnrolling::Busy { .. }));
    assert_eq!(world.desk.enrolling.lock().unwrap().len(), 2);
}

/// A WebSocket without a session: what a stranger may send.
mod raw {
    use std::net::SocketAddr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    pub(super) struct Socket(TcpStream);

    impl Socket {
        pub(super) async fn open(address: SocketAddr) -> Self {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let upgrade = "GET /mesh HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                           Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
            stream.write_all(upgrade.as_bytes()).await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            assert!(head.starts_with(b"HTTP/1.1 101"));
            Self(stream)
        }
        /// A masked binary frame (RFC 6455, section 5.2), with a mask of zeros.
        pub(super) async fn send(&mut self, bytes: &[u8]) {
            let mut frame = vec![0x82];
            match u8::try_from(bytes.len()) {
                Ok(short) if short < 126 => frame.push(0x80 | short),
                _ => {
                    frame.push(0x80 | 126);
                    frame.extend_from_slice(&u16::try_from(bytes.len()).unwrap().to_be_bytes());
                }
            }
            frame.extend_from_slice(&[0; 4]);
            frame.extend_from_slice(bytes);
            self.0.write_all(&frame).await.unwrap();
        }
        /// The next binary frame; pings are passed over.
        pub(super) async fn receive(&mut self) -> Vec<u8> {
            loop {
                let kind = self.0.read_u8().await.unwrap();
                let length = match self.0.read_u8().await.unwrap() {
                    126 => usize::from(self.0.read_u16().await.unwrap()),
                    short => usize::from(short),
                };
                let mut bytes = vec![0; length];
                self.0.read_exact(&mut bytes).await.unwrap();
                if kind == 0x82 {
                    return bytes;
                }
            }
        }
    }
}

// holds: SG-3
#[tokio::test]
async fn a_host_follows_its_reconciler_to_where_the_list_says_it_is() {
    let world = World::new().await;
    // What the token named is gone; what the list names since then answers, under a key of its own.
    let mut membership = world.membership(1, 7);
    membership.addresses = vec!["ws://127.0.0.1:1/mesh".into()];
    let (list, listed) = tokio::sync::watch::channel(Followed::default());
    let (say, events) = spawn_following(membership, secret(1), listed).unwrap();
    let mut host = Host { say, events };
    host.down().await;
    let route = Route {
        address: format!("ws://{}/mesh", world.address),
        key: secret(9).public(),
    };
    let followed = Followed {
        routes: vec![route],
        ..Followed::default()
    };
    list.send(followed).unwrap();
    host.greet().await;
    assert_eq!(world.mesh.connected(), [node(1)]);
}
