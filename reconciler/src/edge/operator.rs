//! What people ask and say: the API behind status page and command line (DL-4, OP-2, OP-4).
//!
//! Reads are served on loopback; words that change something only over the unix socket in the state folder, which
//! the file system guards. Both answer JSON; an error is `{"error": sentence}` with a status that says whose fault.

use std::sync::{Arc, PoisonError};

use axum::extract::{ConnectInfo, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::activation::Waker;
use super::admission::{AdmissionError, Admissions, NewInvite};
use super::announce::{Watched, announce};
use super::clock::Clock;
use super::health::{Health, RECOVERING};
use super::mesh::Mesh;
use super::roll_call::Kept;
use super::rollout_api;
use super::rollouts::Asking;
use super::status_page;
use super::store::people::FindError;
use super::store::{Store, StoreError};
use crate::pure::decide::why::{self, rotations};
use crate::pure::delivery::Delivery;
use crate::pure::page::{self, DeliveryView, StatusView};
use crate::pure::roll_call::{Page, RollCall, Which};
use crate::pure::snapshot::{Nodes, Request as Word, Verb};

/// How many deliveries a list shows.
const LISTED: u32 = 50;
/// How long a person waits for the pass that answers, in seconds.
const ANSWER_SECS: u64 = 20;

/// What the handlers need.
#[derive(Debug, Clone)]
pub struct Counter {
    /// The store.
    pub store: Store,
    /// What is wrong, and who is in the fleet.
    pub health: Arc<Health>,
    /// Who is connected.
    pub mesh: Mesh,
    /// The nodes in the order in which people see them.
    pub roll_call: Arc<Kept>,
    /// Invitations and admissions.
    pub admissions: Admissions,
    /// Wakes the pass.
    pub waker: Waker,
    /// The time.
    pub clock: Clock,
    /// The fleet's name.
    pub fleet: String,
    /// The branch whose merges are orders.
    pub branch: String,
    /// That branch and those of components.
    pub watched: Watched,
    /// Ends what would be followed for ever.
    pub stop: CancellationToken,
}

impl Counter {
    /// Asks the roll call, as of now.
    async fn ask<A>(&self, question: impl FnOnce(&RollCall, &Nodes) -> A) -> Result<A, StoreError> {
        let of = (&self.store, &*self.health, &self.mesh);
        self.roll_call.ask(of, question).await
    }

    /// A page of the nodes.
    pub(super) async fn nodes(&self, which: &Which) -> Result<Page, StoreError> {
        self.ask(|roll, heard| roll.page(which, heard)).await
    }
}

/// What a person says with a word.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Said {
    /// Who, where the caller may say so; else `operator`.
    #[serde(default)]
    pub actor: Option<String>,
    /// Why.
    #[serde(default)]
    pub why: String,
}

/// A word about the whole fleet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Frozen {
    /// Lift the freeze instead.
    #[serde(default)]
    lift: bool,
    /// Until when; none: until it is lifted.
    #[serde(default)]
    until: Option<Timestamp>,
    /// Who, where the caller may say so; else `operator`.
    #[serde(default)]
    actor: Option<String>,
    /// Why.
    #[serde(default)]
    why: String,
}

/// An answer that is no: whose fault, and a sentence.
#[derive(Debug)]
pub(super) struct No(pub(super) StatusCode, pub(super) String);

impl IntoResponse for No {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}
impl From<StoreError> for No {
    fn from(error: StoreError) -> Self {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "a question could not be answered"
        );
        Self(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}
impl From<FindError> for No {
    fn from(error: FindError) -> Self {
        match error {
            FindError::Store(error) => error.into(),
            other => Self(StatusCode::NOT_FOUND, other.to_string()),
        }
    }
}
impl From<AdmissionError> for No {
    fn from(error: AdmissionError) -> Self {
        let status = if error.is_ours() {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::CONFLICT
        };
        Self(status, error.to_string())
    }
}

/// What may be read.
pub fn reads(counter: Counter) -> Router {
    Router::new()
        .route("/", get(home))
        .route("/status.css", get(status_page::css))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/api/status", get(status))
        .route("/api/deliveries", get(deliveries))
        .route("/api/deliveries/{which}", get(delivery))
        .route("/api/deliveries/{which}/why", get(explain))
        .route("/api/why/{which}", get(explain_any))
        .merge(rollout_api::reads())
        .with_state(counter)
}

/// What changes something; for the unix socket alone.
pub fn words(counter: Counter) -> Router {
    Router::new()
        .route("/api/deliveries/{which}/{verb}", post(word))
        .route("/api/announce", post(announce))
        .route("/api/freeze", post(freeze))
        .route("/api/recover", post(recover))
        .route("/api/invites", post(invite))
        .route("/api/admissions/{name}", post(admit))
        .merge(rollout_api::words())
        .with_state(counter)
}

/// Lets only this machine read (OP-4): a peer on loopback, that speaks to a loopback name, through no proxy.
pub async fn local_only(request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<std::net::SocketAddr>>();
    let near = peer.is_some_and(|ConnectInfo(peer)| peer.ip().is_loopback());
    if near && names_loopback(request.headers()) && !proxied(request.headers()) {
        return next.run(request).await;
    }
    let sentence = "only this machine may read, until people can sign in; use a tunnel to it";
    No(StatusCode::FORBIDDEN, sentence.to_owned()).into_response()
}

/// Wraps reads so that only this machine gets them.
pub fn local(router: Router) -> Router {
    router.layer(middleware::from_fn(local_only))
}

/// A page of elsewhere that resolves its own name to 127.0.0.1 is not from here.
fn names_loopback(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|h| h.to_str().ok()) else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

fn proxied(headers: &HeaderMap) -> bool {
    headers.contains_key("x-forwarded-for") || headers.contains_key(header::FORWARDED)
}

/// The newest deliveries, newest first.
async fn newest(counter: &Counter) -> Result<Vec<DeliveryView>, StoreError> {
    let heard = counter.store.nodes().await?;
    let mut views = Vec::new();
    let open = counter.store.snapshot().await?.deliveries;
    for delivery in counter.store.deliveries(LISTED).await? {
        let transitions = counter.store.transitions_of(&delivery.commit).await?;
        let why = answer(counter, &delivery, &open);
        views.push(page::delivery(&delivery, &transitions, &heard).answering(why));
    }
    Ok(views)
}

async fn view(counter: &Counter) -> Result<StatusView, StoreError> {
    let views = newest(counter).await?;
    let mut troubles = counter.health.troubles();
    for row in counter.store.outbox_open().await? {
        if let Some(error) = row.error.filter(|_| row.attempts > 2) {
            troubles.push(format!(
                "{} {} is not carried out yet: {error}",
                row.kind, row.key
            ));
        }
    }
    troubles.sort();
    troubles.dedup();
    let now = counter.clock.now();
    let frozen = counter.store.freeze().await?;
    let frozen = frozen.filter(|freeze| freeze.until.is_none_or(|until| now < until));
    Ok(StatusView {
        fleet: counter.fleet.clone(),
        branch: counter.branch.clone(),
        as_of: now,
        frozen: frozen.map(|freeze| freeze.words()),
        recovering: counter.health.trouble(RECOVERING),
        troubles,
        deliveries: views,
        page: counter.nodes(&Which::default()).await?,
    })
}

async fn seen(counter: &Counter, delivery: &Delivery) -> Result<DeliveryView, StoreError> {
    let transitions = counter.store.transitions_of(&delivery.commit).await?;
    let heard = if page::asks_nodes(delivery) {
        counter.store.nodes().await?
    } else {
        Arc::default()
    };
    let why = if delivery.state.is_final() {
        None
    } else {
        answer(counter, delivery, &counter.store.snapshot().await?.deliveries)
    };
    Ok(page::delivery(delivery, &transitions, &heard).answering(why))
}

/// What a delivery waits for; none of one that is over.
fn answer(counter: &Counter, delivery: &Delivery, open: &why::Open) -> Option<why::Why> {
    let waits = !delivery.state.is_final();
    waits.then(|| unless_recovering(counter, why::why(delivery, open, counter.clock.now())))
}

async fn home(State(counter): State<Counter>) -> Result<Response, No> {
    Ok(status_page::html(&view(&counter).await?))
}

async fn status(State(counter): State<Counter>) -> Result<Json<StatusView>, No> {
    Ok(Json(view(&counter).await?))
}

async fn deliveries(State(counter): State<Counter>) -> Result<Json<Vec<DeliveryView>>, No> {
    Ok(Json(newest(&counter).await?))
}

async fn delivery(
    State(counter): State<Counter>,
    Path(which): Path<String>,
) -> Result<Json<DeliveryView>, No> {
    let delivery = counter.store.find_delivery(&which).await?;
    Ok(Json(seen(&counter, &delivery).await?))
}

async fn explain(State(counter): State<Counter>, Path(which): Path<String>) -> Result<Json<why::Why>, No> {
    let delivery = counter.store.find_delivery(&which).await?;
    let open = counter.store.snapshot().await?.deliveries;
    let why = why::why(&delivery, &open, counter.clock.now());
    if delivery.state.is_final() {
        return Ok(Json(why));
    }
    Ok(Json(unless_recovering(&counter, why)))
}

/// Of a node by its name, else of a delivery, else of a rollout by the number of its first epoch, else of a rotation.
async fn explain_any(
    State(counter): State<Counter>,
    Path(which): Path<String>,
) -> Result<Json<why::Why>, No> {
    let found = counter.ask(|roll, heard| roll.find(&which, heard)).await?;
    if let Some(node) = found {
        let open = counter.store.snapshot().await?.deliveries;
        let why = why::why_node(&node, &open, counter.clock.now());
        return Ok(Json(unless_recovering(&counter, why)));
    }
    match explain(State(counter.clone()), Path(which.clone())).await {
        Err(No(StatusCode::NOT_FOUND, said)) => match explain_rollout(&counter, &which).await? {
            Some(why) => Ok(Json(why)),
            None => match explain_rotation(&counter, &which).await? {
                Some(why) => Ok(Json(why)),
                None => Err(No(StatusCode::NOT_FOUND, said)),
            },
        },
        explained => explained,
    }
}

/// Of a rollout by its id, or by the number of its first epoch; none where there is no such rollout.
async fn explain_rollout(counter: &Counter, which: &str) -> Result<Option<why::Why>, No> {
    let Some(row) = counter.store.find_rollout(which).await? else {
        return Ok(None);
    };
    let asking = Asking {
        store: &counter.store,
        health: &counter.health,
        now: counter.clock.now(),
    };
    let Some((rollout, _)) = asking.of(&row).await? else {
        return Ok(None);
    };
    let delivery = counter.store.delivery(&row.commit).await?;
    let open = counter.store.snapshot().await?.deliveries;
    let why = why::why_rollout(&rollout, delivery.as_ref(), &open);
    Ok(Some(if rollout.phase.is_over() {
        why
    } else {
        unless_recovering(counter, why)
    }))
}

/// Of a rotation in the tree of the newest commit; none where that has none of this name.
async fn explain_rotation(counter: &Counter, which: &str) -> Result<Option<why::Why>, No> {
    let Some(newest) = counter.store.deliveries(1).await?.pop() else {
        return Ok(None);
    };
    let mirror = Arc::clone(&counter.watched.mirror);
    let commit = newest.parts().fleet;
    let read = tokio::task::spawn_blocking(move || {
        let mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
        mirror.file(&commit, rotations::FILE)
    });
    let text = match read.await {
        Ok(read) => read.map_err(|error| No(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?,
        Err(_) => None,
    };
    Ok(text.and_then(|text| rotations::why_rotation(which, text.into(), &newest, counter.clock.now())))
}

/// After the database was lost everything waits for one thing.
fn unless_recovering(counter: &Counter, why: why::Why) -> why::Why {
    match counter.health.trouble(RECOVERING) {
        Some(words) => why.recovering(words),
        None => why,
    }
}

async fn word(
    State(counter): State<Counter>,
    Path((which, verb)): Path<(String, String)>,
    said: Option<Json<Said>>,
) -> Result<Response, No> {
    let verb: Verb = serde_json::from_value(json!(verb)).map_err(|_| {
        No(
            StatusCode::NOT_FOUND,
            format!("`{verb}` is no word; words are go, go-again, hold, stop, withdraw, abort, retry"),
        )
    })?;
    let Json(said) = said.unwrap_or_default();
    let delivery = counter.store.find_delivery(&which).await?;
    let request = Word {
        id: Uuid::now_v7().to_string(),
        at: counter.clock.now(),
        actor: said.actor.unwrap_or_else(|| "operator".to_owned()),
        verb,
        commit: Some(delivery.commit),
        until: None,
        why: said.why,
        start: None,
        by: None,
    };
    ask(&counter, &request).await
}

async fn freeze(State(counter): State<Counter>, Json(said): Json<Frozen>) -> Result<Response, No> {
    let request = Word {
        id: Uuid::now_v7().to_string(),
        at: counter.clock.now(),
        actor: said.actor.unwrap_or_else(|| "operator".to_owned()),
        verb: if said.lift { Verb::Lift } else { Verb::Freeze },
        commit: None,
        until: said.until,
        start: None,
        by: None,
        why: said.why,
    };
    ask(&counter, &request).await
}

async fn recover(State(counter): State<Counter>, said: Option<Json<Said>>) -> Result<Response, No> {
    let Json(said) = said.unwrap_or_default();
    let request = Word {
        id: Uuid::now_v7().to_string(),
        at: counter.clock.now(),
        actor: said.actor.unwrap_or_else(|| "operator".to_owned()),
        verb: Verb::Recover,
        commit: None,
        until: None,
        why: said.why,
        start: None,
        by: None,
    };
    ask(&counter, &request).await
}

/// Takes a word down, wakes the pass, and waits for what it answers.
pub(super) async fn ask(counter: &Counter, request: &Word) -> Result<Response, No> {
    counter.store.add_request(request).await?;
    counter.waker.wake();
    let within = std::time::Duration::from_secs(ANSWER_SECS);
    let answer = counter.store.wait_answer(&request.id, within).await?;
    match answer {
        Some(answer) => match answer.strip_prefix("refused: ") {
            Some(why) => Err(No(StatusCode::CONFLICT, why.to_owned())),
            None => Ok(Json(json!({ "answer": answer })).into_response()),
        },
        None => Ok((
            StatusCode::ACCEPTED,
            Json(json!({ "answer": "taken down; the next pass answers it, see `meshplan deliveries show`" })),
        )
            .into_response()),
    }
}

async fn invite(State(counter): State<Counter>, Json(new): Json<NewInvite>) -> Result<Response, No> {
    Ok(Json(counter.admissions.invite(&counter.store, &new).await?).into_response())
}

async fn admit(State(counter): State<Counter>, Path(name): Path<String>) -> Result<Response, No> {
    let commit = counter.admissions.admit(&name).await?;
    counter.waker.wake();
    Ok(Json(json!({ "commit": commit })).into_response())
}
