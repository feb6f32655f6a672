//! The sessions of the fleet: `GET /mesh` (LK-1, LK-3, LK-7).
//!
//! One task a session, small buffers, no lock held over I/O. What a session needs to know it asks the [`Desk`], which
//! the store stands behind; a session decides nothing but whether its own socket still lives.
//!
//! A member counts as connected from its first message on, which proves its key: the handshake alone may be a replay
//! and must not push out the session that stands. One session a node: the newer one replaces the older.

mod admission;
mod carrier;
mod desk;
mod enrolling;
mod member;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderValue, Request as HttpRequest, StatusCode, header, request::Parts};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use meshplan_schemas::ident::{FleetName, NodeId};
use meshplan_schemas::limits::ENROLMENT_REQUEST_BYTES;
use meshplan_schemas::session::{LinkSecret, Protocol, Request, SessionError};
use meshplan_schemas::wire::ToHost;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;

use admission::{Attempts, Seldom};
use carrier::Carrier;
pub use desk::{Desk, Taken, Unavailable};

/// Times and bounds of sessions; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub struct MeshLimits {
    /// From the upgrade to the first message of a member.
    pub handshake: Duration,
    /// Between pings.
    pub ping: Duration,
    /// Nothing heard for so long: the session is over.
    pub idle: Duration,
    /// One write may take so long; a slower client is dropped (LK-7).
    pub write: Duration,
    /// Words that may wait for one host.
    pub mailbox: usize,
    /// Handshakes at one time; more are told to come again.
    pub handshakes: usize,
    /// Pieces of artifacts that are being given at one time: each takes about a mebibyte until its host has it.
    pub pieces: usize,
    /// So long a host waits for its turn; then it asks again by itself.
    pub piece_turn: Duration,
    /// Enrolments at one time.
    pub enrolments: usize,
    /// Attempts to enrol from one address in a minute.
    pub attempts_a_minute: u32,
    /// An enrolment session ends after so long; the machine makes another.
    pub enrolment: Duration,
    /// Between answers to one enrolling machine.
    pub enrolment_pace: Duration,
}

impl Default for MeshLimits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            ping: Duration::from_secs(20),
            idle: Duration::from_secs(65),
            write: Duration::from_secs(20),
            mailbox: 64,
            handshakes: 512,
            pieces: 64,
            piece_turn: Duration::from_secs(5),
            enrolments: 256,
            attempts_a_minute: 20,
            enrolment: Duration::from_secs(600),
            enrolment_pace: Duration::from_millis(500),
        }
    }
}

/// Close codes of the WebSocket, hints for the machine's journal. They stand outside the session and prove nothing.
pub mod close {
    /// The handshake was not understood, or does not verify.
    pub const HANDSHAKE: u16 = 4400;
    /// No record has this key.
    pub const REFUSED: u16 = 4403;
    /// Another reconciler is meant.
    pub const OTHER_RECONCILER: u16 = 4404;
    /// A newer session of the same node took over.
    pub const REPLACED: u16 = 4409;
    /// Come again later.
    pub const LATER: u16 = 4503;
}

/// The sessions; a cheap handle.
#[derive(Clone)]
pub struct Mesh {
    shared: Arc<Shared>,
}

struct Shared {
    desk: Arc<dyn Desk>,
    keys: Vec<LinkSecret>,
    fleet: FleetName,
    limits: MeshLimits,
    sessions: Mutex<Sessions>,
    /// Counts [`Mesh::publish`].
    published: watch::Sender<u64>,
    handshakes: Semaphore,
    enrolments: Semaphore,
    pieces: Semaphore,
    attempts: Mutex<Attempts>,
    unknown: Mutex<Seldom>,
    closing: CancellationToken,
}

#[derive(Default)]
struct Sessions {
    by_node: BTreeMap<NodeId, Handle>,
    next: u64,
    /// Whose session came or went since [`Mesh::moved`] said so.
    moved: BTreeSet<NodeId>,
}

struct Handle {
    id: u64,
    /// Boxed, because a channel keeps room for 32 words from the start.
    mailbox: mpsc::Sender<Box<ToHost>>,
    /// Cancelled when a newer session takes over, or the client is too slow.
    end: CancellationToken,
}

/// A lock that a panicking holder left is taken anyway: each holder leaves the maps whole at every step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Mesh({} sessions)",
            locked(&self.shared.sessions).by_node.len()
        )
    }
}

/// The links to hosts as a pass needs them: the link's seam, real or simulated.
pub trait Links: Send + Sync {
    /// The nodes that have a session.
    fn connected(&self) -> Vec<NodeId>;
    /// Asks a node for a report with this look's id (DL-5); false when it has no session, and nothing was asked.
    fn look(&self, node: NodeId, id: u64) -> bool;
    /// Orders were stored.
    fn publish(&self);
}

impl Links for Mesh {
    fn connected(&self) -> Vec<NodeId> {
        Self::connected(self)
    }

    fn look(&self, node: NodeId, id: u64) -> bool {
        Self::look(self, node, id)
    }

    fn publish(&self) {
        Self::publish(self);
    }
}

impl Mesh {
    /// Sessions that `desk` answers for. `keys` are all unretired link keys of this reconciler.
    #[must_use]
    pub fn new(desk: Arc<dyn Desk>, keys: Vec<LinkSecret>, fleet: FleetName) -> Self {
        Self::with_limits(desk, keys, fleet, MeshLimits::default())
    }

    /// As [`Mesh::new`], with other times.
    #[must_use]
    pub fn with_limits(
        desk: Arc<dyn Desk>,
        keys: Vec<LinkSecret>,
        fleet: FleetName,
        limits: MeshLimits,
    ) -> Self {
        let shared = Shared {
            desk,
            keys,
            fleet,
            sessions: Mutex::default(),
            published: watch::Sender::new(0),
            handshakes: Semaphore::new(limits.handshakes),
            enrolments: Semaphore::new(limits.enrolments),
            pieces: Semaphore::new(limits.pieces),
            attempts: Mutex::new(Attempts::new(limits.attempts_a_minute)),
            unknown: Mutex::default(),
            closing: CancellationToken::new(),
            limits,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// `GET /mesh`. Served with `into_make_service_with_connect_info::<SocketAddr>()`, so that attempts to enrol can be
    /// counted by address; without it all share one count.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/mesh", get(upgrade))
            .with_state(self.clone())
    }

    /// The nodes that have a session.
    #[must_use]
    pub fn connected(&self) -> Vec<NodeId> {
        locked(&self.shared.sessions).by_node.keys().copied().collect()
    }

    /// Whose session came or went since this was asked last, with whether there is one now: for the roll call alone, as
    /// each is said once.
    #[must_use]
    pub fn moved(&self) -> BTreeMap<NodeId, bool> {
        let mut sessions = locked(&self.shared.sessions);
        let moved = std::mem::take(&mut sessions.moved);
        (moved.into_iter())
            .map(|node| (node, sessions.by_node.contains_key(&node)))
            .collect()
    }

    /// Asks a node for a report with this look's id (DL-5); false when it has no session, and nothing was asked.
    pub fn look(&self, node: NodeId, id: u64) -> bool {
        self.say(node, ToHost::Look { id })
    }

    /// Says a word to one node; false when it has no session, or was too slow and has been dropped.
    pub fn say(&self, node: NodeId, word: ToHost) -> bool {
        locked(&self.shared.sessions)
            .by_node
            .get(&node)
            .is_some_and(|handle| handle.put(word))
    }

    /// Orders were stored: every session sends what its host lacks, and ends if its record is gone.
    pub fn publish(&self) {
        self.shared.published.send_modify(|n| *n += 1);
    }

    /// Tells every host that the reconciler restarts by plan within so many seconds (EP-2).
    pub fn restarting(&self, secs: u32) {
        for handle in locked(&self.shared.sessions).by_node.values() {
            handle.put(ToHost::Restarting { secs });
        }
    }

    /// Ends every session, also those that are being opened, once what waits for its host is said. None is opened
    /// any more.
    pub fn close(&self) {
        self.shared.closing.cancel();
    }

    /// Takes a session into the table once its member is proven; the one before ends. Returns its number.
    fn enter(&self, node: NodeId, mailbox: mpsc::Sender<Box<ToHost>>, end: CancellationToken) -> u64 {
        let mut sessions = locked(&self.shared.sessions);
        sessions.next += 1;
        let id = sessions.next;
        if let Some(older) = sessions.by_node.insert(node, Handle { id, mailbox, end }) {
            tracing::info!(%node, "a newer session takes over");
            older.end.cancel();
        }
        sessions.moved.insert(node);
        // Told under the lock, so that the desk hears ups and downs of a node in their order.
        self.shared.desk.went_up(node);
        id
    }

    /// Takes a session out of the table, unless a newer one stands there.
    fn leave(&self, node: NodeId, id: u64) {
        let mut sessions = locked(&self.shared.sessions);
        if sessions.by_node.get(&node).is_some_and(|handle| handle.id == id) {
            sessions.by_node.remove(&node);
            sessions.moved.insert(node);
            self.shared.desk.went_down(node);
        }
    }
}

impl Handle {
    fn put(&self, word: ToHost) -> bool {
        match self.mailbox.try_send(Box::new(word)) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.end.cancel();
                false
            }
        }
    }
}

async fn upgrade(State(mesh): State<Mesh>, parts: Parts) -> Response {
    let address = parts
        .extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |info| info.0.ip());
    if mesh.shared.closing.is_cancelled() || mesh.shared.handshakes.available_permits() == 0 {
        let mut response = StatusCode::SERVICE_UNAVAILABLE.into_response();
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        return response;
    }
    let mut request = HttpRequest::from_parts(parts, ());
    let response = match tungstenite::handshake::server::create_response(&request) {
        Ok(response) => response.map(|()| Body::empty()),
        Err(why) => {
            let why = format!("hosts open their sessions here, with a WebSocket: {why}\n");
            return (
                StatusCode::UPGRADE_REQUIRED,
                [(header::CONNECTION, "upgrade"), (header::UPGRADE, "websocket")],
                why,
            )
                .into_response();
        }
    };
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgraded.await {
            Ok(socket) => mesh.open(TokioIo::new(socket), address).await,
            Err(why) => tracing::debug!(%address, %why, "a connection ended before its session"),
        }
    });
    response
}

impl Mesh {
    async fn open(self, socket: TokioIo<Upgraded>, address: IpAddr) {
        let mut carrier = Carrier::new(socket, self.shared.limits.write, self.shared.limits.idle);
        let Ok(permit) = self.shared.handshakes.try_acquire() else {
            return carrier.close(close::LATER, "too many at once").await;
        };
        let first = tokio::select! {
            first = tokio::time::timeout(self.shared.limits.handshake, carrier.next()) => first,
            () = self.shared.closing.cancelled() => return,
        };
        let Ok(Some(first)) = first else { return };
        let request = match Request::read(&self.shared.fleet, &self.shared.keys, &first) {
            Ok(request) => request,
            Err(why) => {
                tracing::debug!(%address, %why, "a handshake was not taken");
                let code = match why {
                    SessionError::OtherResponder => close::OTHER_RECONCILER,
                    _ => close::HANDSHAKE,
                };
                return carrier.close(code, &why.to_string()).await;
            }
        };
        match request.protocol() {
            Protocol::Member => self.member(carrier, request, permit).await,
            Protocol::Enrolment => {
                drop(permit);
                self.enrolling(carrier, request, address).await;
            }
        }
    }
}

// The longest request of an enrolment is no longer than a frame may be, so the carrier's bound holds for both protocols.
const _: () = assert!(ENROLMENT_REQUEST_BYTES < carrier::MESSAGE_BYTES);
