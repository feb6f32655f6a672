//! Rollouts over HTTP (RO-6), nodes and their status, and the journal of events (RO-7).
//!
//! It stands alone because its answers are held to a published page, [`crate::pure::api`]. Who may read and who may say a
//! word is decided where these routes are merged, [`super::operator`].

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::operator::{Counter, No, ask};
use super::rollouts::Asking;
use super::store::people::FindError;
use super::store::{Store, StoreError};
use crate::pure::api::{
    AbortAsk, ArchiveAnswer, EventsAnswer, NoAnswer, NodesAnswer, ReleaseAsk, RolloutAnswer, RolloutsAnswer,
    StartAsk, StatsAnswer, openapi_text, stats,
};
use crate::pure::delivery::Delivery;
use crate::pure::events::Numbered;
use crate::pure::roll_call::{self, By, Standing, Which};
use crate::pure::rollout::live::roster;
use crate::pure::rollout::words;
use crate::pure::snapshot::{Request as Word, Verb};

/// How many archives a page has where nobody says, and at most.
const PAGE: (u32, u32) = (20, 100);
/// How many events an answer has where nobody says, and at most.
const EVENTS: (u32, u32) = (100, 1000);
/// How many deliveries are looked through for the one in hand: one that walks is among the newest.
const LOOKED_THROUGH: u32 = 50;

/// What may be read.
pub(super) fn reads() -> Router<Counter> {
    Router::new()
        .route("/api/config/rollout", get(newest))
        .route("/api/config/rollouts", get(archives))
        .route("/api/config/rollouts/{id}", get(one))
        .route("/api/nodes", get(nodes))
        .route("/api/stats", get(every_node))
        .route("/api/events", get(events))
        .route("/api/events/stream", get(follow))
        .route("/api/openapi.json", get(page))
}

/// What changes something.
pub(super) fn words() -> Router<Counter> {
    Router::new()
        .route("/api/config/rollout/start", post(start))
        .route("/api/config/rollout/release", post(release))
        .route("/api/config/rollout/abort", post(abort))
}

/// Which fleet.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhichFleet {
    #[serde(default)]
    interface: Option<String>,
}

/// Which fleet, and which page.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhichPage {
    #[serde(default)]
    interface: Option<String>,
    #[serde(default)]
    page: Option<u64>,
    #[serde(default)]
    per_page: Option<u32>,
}

/// Which events.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct After {
    #[serde(default)]
    after: Option<u64>,
    #[serde(default)]
    limit: Option<u32>,
}

/// Which nodes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhichNodes {
    #[serde(default)]
    by: By,
    #[serde(default)]
    standing: Option<Standing>,
    #[serde(default)]
    after: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
}

/// Nothing.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn bad(why: String) -> No {
    No(StatusCode::BAD_REQUEST, why)
}

fn asked<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, No> {
    query.map(|Query(asked)| asked).map_err(|rejection| {
        let why = rejection.body_text();
        bad(format!(
            "the question after `?` cannot be read: {why}; /api/openapi.json lists what each route takes"
        ))
    })
}

/// Refuses another fleet than ours.
fn of_fleet(counter: &Counter, interface: Option<String>) -> Result<String, No> {
    let ours = &counter.fleet;
    match interface {
        Some(name) if name == *ours => Ok(name),
        Some(name) => Err(No(
            StatusCode::NOT_FOUND,
            format!(
                "there is no fleet `{name}` here: this reconciler serves `{ours}`; ask with ?interface={ours}"
            ),
        )),
        None => Err(bad(format!(
            "which fleet? the question names none; this reconciler serves `{ours}`: add ?interface={ours}"
        ))),
    }
}

/// The body of a word; an empty one says nothing more.
fn said<T: DeserializeOwned + Default>(body: &Bytes) -> Result<T, No> {
    if body.is_empty() {
        return Ok(T::default());
    }
    let value: serde_json::Value = serde_json::from_slice(body).map_err(|e| {
        bad(format!(
            "the body is no JSON: {e}; send an object, see /api/openapi.json"
        ))
    })?;
    if !value.is_object() {
        return Err(bad(
            "the body is not as it must be: it is no object; /api/openapi.json lists the keys".to_owned(),
        ));
    }
    let file = ["policy", "policy_file", "file", "text"];
    if let Some(key) = file.into_iter().find(|key| value.get(key).is_some()) {
        return Err(bad(format!(
            "`{key}` is not taken: a policy comes from a commit, never from a file; merge it, then start that commit"
        )));
    }
    serde_json::from_value(value).map_err(|e| {
        bad(format!(
            "the body is not as it must be: {e}; /api/openapi.json lists the keys"
        ))
    })
}

fn asking(counter: &Counter) -> Asking<'_> {
    Asking {
        store: &counter.store,
        health: &counter.health,
        now: counter.clock.now(),
    }
}

async fn newest(
    State(counter): State<Counter>,
    which: Result<Query<WhichFleet>, QueryRejection>,
) -> Result<Json<RolloutAnswer>, No> {
    let interface = of_fleet(&counter, asked(which)?.interface)?;
    let rollout = asking(&counter).newest().await?;
    Ok(Json(RolloutAnswer {
        interface,
        in_hand: rollout.as_ref().is_some_and(|r| !r.phase.is_over()),
        rollout,
    }))
}

async fn archives(
    State(counter): State<Counter>,
    which: Result<Query<WhichPage>, QueryRejection>,
) -> Result<Json<RolloutsAnswer>, No> {
    let which = asked(which)?;
    let interface = of_fleet(&counter, which.interface)?;
    let per_page = which.per_page.unwrap_or(PAGE.0);
    if !(1..=PAGE.1).contains(&per_page) {
        return Err(bad(format!("per_page is from 1 to {}, not {per_page}", PAGE.1)));
    }
    let total = counter.store.count_archives().await?;
    let pages = total.div_ceil(u64::from(per_page)).max(1);
    let page = which.page.unwrap_or(1);
    if !(1..=pages).contains(&page) {
        return Err(bad(format!(
            "there is no page {page}: {total} archives are {pages} pages of {per_page}; ask for page 1 to {pages}"
        )));
    }
    let skip = (page - 1) * u64::from(per_page);
    Ok(Json(RolloutsAnswer {
        interface,
        page,
        pages,
        per_page,
        total,
        rollouts: counter.store.archives(skip, per_page).await?,
    }))
}

async fn one(
    State(counter): State<Counter>,
    Path(id): Path<String>,
    which: Result<Query<WhichFleet>, QueryRejection>,
) -> Result<Json<ArchiveAnswer>, No> {
    let interface = of_fleet(&counter, asked(which)?.interface)?;
    let found = match counter.store.find_rollout(&id).await? {
        Some(row) => asking(&counter).of(&row).await?,
        None => None,
    };
    let Some((rollout, archived)) = found else {
        let fleet = &counter.fleet;
        return Err(No(
            StatusCode::NOT_FOUND,
            format!(
                "there is no rollout `{id}`: it never was, or is older than what is kept; \
                 /api/config/rollouts?interface={fleet} lists those that are"
            ),
        ));
    };
    Ok(Json(ArchiveAnswer {
        interface,
        archived_at: archived.map(|(at, _)| at),
        closed: archived.is_some_and(|(_, closed)| closed),
        rollout,
    }))
}

async fn nodes(
    State(counter): State<Counter>,
    which: Result<Query<WhichNodes>, QueryRejection>,
) -> Result<Json<NodesAnswer>, No> {
    let which = asked(which)?;
    let limit = which.limit.unwrap_or(roll_call::PAGE);
    if !(1..=roll_call::LARGEST_PAGE).contains(&limit) {
        let most = roll_call::LARGEST_PAGE;
        return Err(bad(format!("limit is from 1 to {most}, not {limit}")));
    }
    let after = which.after.map(|after| after.parse()).transpose();
    let which = Which {
        by: which.by,
        standing: which.standing,
        after: after.map_err(bad)?,
        limit,
    };
    Ok(Json(NodesAnswer {
        page: counter.nodes(&which).await?,
        as_of: counter.clock.now(),
    }))
}

async fn every_node(
    State(counter): State<Counter>,
    nothing: Result<Query<Nothing>, QueryRejection>,
) -> Result<Json<StatsAnswer>, No> {
    asked(nothing)?;
    let roster = counter.health.roster().map(|tree| roster(&tree));
    let nodes = counter.store.nodes().await?;
    let connected = counter.mesh.connected().into_iter().collect();
    let roster = roster.unwrap_or_default();
    Ok(Json(stats(
        &counter.fleet,
        &roster,
        &nodes,
        &connected,
        counter.clock.now(),
    )))
}

/// The rollout in hand (RO-2).
async fn in_hand(counter: &Counter) -> Result<Option<Delivery>, StoreError> {
    let newest = counter.store.deliveries(LOOKED_THROUGH).await?;
    Ok(newest.into_iter().find(words::is_in_hand))
}

/// Refused, with the rollout in hand.
async fn conflict(counter: &Counter, why: String) -> Result<Response, No> {
    let rollout = match in_hand(counter).await? {
        Some(_) => asking(counter).newest().await?,
        None => None,
    };
    let no = NoAnswer { error: why, rollout };
    Ok((StatusCode::CONFLICT, Json(no)).into_response())
}

async fn pass_on(
    counter: &Counter,
    verb: Verb,
    delivery: &Delivery,
    (actor, why): (Option<String>, String),
    start: Option<words::Overrides>,
) -> Result<Response, No> {
    let request = Word {
        id: Uuid::now_v7().to_string(),
        at: counter.clock.now(),
        actor: actor.unwrap_or_else(|| "operator".to_owned()),
        verb,
        commit: Some(delivery.commit.clone()),
        until: None,
        why,
        start,
        by: None,
    };
    match ask(counter, &request).await {
        Err(No(StatusCode::CONFLICT, why)) => conflict(counter, why).await,
        answered => answered,
    }
}

async fn start(
    State(counter): State<Counter>,
    which: Result<Query<WhichFleet>, QueryRejection>,
    body: Bytes,
) -> Result<Response, No> {
    of_fleet(&counter, asked(which)?.interface)?;
    let ask: StartAsk = said(&body)?;
    if ask.commit.is_empty() {
        return Err(bad(
            "a start names a commit: send {\"commit\": \"...\"}; `meshplan deliveries list` shows those that are held"
                .to_owned(),
        ));
    }
    let delivery = match counter.store.find_delivery(&ask.commit).await {
        Err(error @ FindError::NotACommit(_)) => return Err(bad(error.to_string())),
        found => found?,
    };
    let walking = in_hand(&counter).await?;
    if let Some(why) = words::start_refused(&delivery, walking.as_ref()) {
        return conflict(&counter, why).await;
    }
    let overrides = ask.overrides();
    pass_on(
        &counter,
        Verb::Go,
        &delivery,
        (ask.actor, ask.why),
        Some(overrides),
    )
    .await
}

async fn release(
    State(counter): State<Counter>,
    which: Result<Query<WhichFleet>, QueryRejection>,
    body: Bytes,
) -> Result<Response, No> {
    of_fleet(&counter, asked(which)?.interface)?;
    let ask: ReleaseAsk = said(&body)?;
    let walking = in_hand(&counter).await?;
    match (words::release(walking.as_ref(), ask.force), walking) {
        (Ok(verb), Some(delivery)) => pass_on(&counter, verb, &delivery, (ask.actor, ask.why), None).await,
        (Err(why), _) => conflict(&counter, why).await,
        (Ok(_), None) => conflict(&counter, "no rollout is in hand any more".to_owned()).await,
    }
}

async fn abort(
    State(counter): State<Counter>,
    which: Result<Query<WhichFleet>, QueryRejection>,
    body: Bytes,
) -> Result<Response, No> {
    of_fleet(&counter, asked(which)?.interface)?;
    let ask: AbortAsk = said(&body)?;
    let walking = in_hand(&counter).await?;
    match (words::abort(walking.as_ref()), walking) {
        (Ok(verb), Some(delivery)) => pass_on(&counter, verb, &delivery, (ask.actor, ask.why), None).await,
        (Err(why), _) => conflict(&counter, why).await,
        (Ok(_), None) => conflict(&counter, "no rollout is in hand any more".to_owned()).await,
    }
}

async fn events(
    State(counter): State<Counter>,
    which: Result<Query<After>, QueryRejection>,
) -> Result<Json<EventsAnswer>, No> {
    let which = asked(which)?;
    let limit = which.limit.unwrap_or(EVENTS.0);
    if !(1..=EVENTS.1).contains(&limit) {
        return Err(bad(format!("limit is from 1 to {}, not {limit}", EVENTS.1)));
    }
    let after = which.after.unwrap_or(0);
    let events = counter.store.events(after, limit).await?;
    Ok(Json(EventsAnswer {
        next: events.last().map_or(after, |e| e.number),
        events,
    }))
}

/// Follows the journal from `after` on, or from where a reader that comes back left off.
async fn follow(
    State(counter): State<Counter>,
    which: Result<Query<After>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, No> {
    let which = asked(which)?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let last = last.and_then(|id| id.parse().ok());
    let after = last.or(which.after).unwrap_or(0);
    let stop = counter.stop.clone().cancelled_owned();
    let sent = following(counter.store, after).take_until(stop);
    Ok(Sse::new(sent).keep_alive(KeepAlive::default()).into_response())
}

fn following(store: Store, after: u64) -> impl Stream<Item = Result<Sent, Infallible>> {
    let happenings = store.happenings();
    let begin = (store, happenings, after, VecDeque::<Numbered>::new());
    stream::unfold(
        begin,
        |(store, mut happenings, mut after, mut waiting)| async move {
            loop {
                if let Some(next) = waiting.pop_front() {
                    after = next.number;
                    let sent = Sent::default()
                        .id(next.number.to_string())
                        .event(next.event.event.word());
                    let sent = sent.json_data(&next).ok()?;
                    return Some((Ok(sent), (store, happenings, after, waiting)));
                }
                happenings.mark_unchanged();
                match store.events(after, EVENTS.1).await {
                    Ok(more) if more.is_empty() => happenings.changed().await.ok()?,
                    Ok(more) => waiting.extend(more),
                    Err(error) => {
                        tracing::warn!(
                            error = &error as &dyn std::error::Error,
                            "who follows the events must come again"
                        );
                        return None;
                    }
                }
            }
        },
    )
}

async fn page() -> Response {
    ([("content-type", "application/json")], openapi_text()).into_response()
}
