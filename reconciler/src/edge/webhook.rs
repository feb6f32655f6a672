//! `POST /hooks/<forge>` (FG-2): checked, stored, answered; all work follows from the inbox.
//!
//! Whoever is not let in learns nothing but the number; why stands in the log. A body is read within bounds of size,
//! time and, over all requests, memory: who has no secret can cost no more than that.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use meshplan_schemas::limits::WEBHOOK_BYTES;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::activation::Waker;
use super::repository::LookNow;
use super::store::Store;
use super::store::inbox::Arrival;
use crate::config::{Forge, ForgeKind};
use crate::pure::parts::Branch;
use crate::pure::trigger::{self, Event, Headers, Refusal};

/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// The most bytes of bodies in memory at once, over all requests.
const BODIES_BYTES: usize = 4 * WEBHOOK_BYTES;

/// Which webhooks are taken.
pub struct Hooks {
    kind: ForgeKind,
    secret: Vec<u8>,
    repo: String,
    branch: String,
    components: Vec<Branch>,
    store: Store,
    waker: Waker,
    pulls: Option<(Waker, LookNow)>,
    look_now: LookNow,
    body_within: Duration,
    room: Semaphore,
}

/// Why no webhooks can be taken.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The file cannot be read.
    #[error("cannot read the webhook secret {path}: {source}")]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There is nothing in it.
    #[error(
        "the webhook secret is empty: anybody could send webhooks. Write a long random text into the file that \
         `webhook_secret_file` names, and the same into the webhook at the forge"
    )]
    NoSecret,
}

impl Hooks {
    /// Takes the webhooks of the configured repository and branch.
    ///
    /// # Errors
    /// [`HookError`]: the secret cannot be read or is empty; the service must not start then.
    pub fn new(forge: &Forge, branch: &str, store: Store, waker: Waker) -> Result<Self, HookError> {
        let path = &forge.webhook_secret_file;
        let text = std::fs::read(path).map_err(|source| HookError::Read {
            path: path.clone(),
            source,
        })?;
        let secret = text.trim_ascii();
        if secret.is_empty() {
            return Err(HookError::NoSecret);
        }
        Ok(Self {
            kind: forge.kind,
            secret: secret.to_vec(),
            repo: forge.repo.clone(),
            branch: branch.to_owned(),
            components: Vec::new(),
            store,
            waker,
            pulls: None,
            look_now: LookNow::default(),
            body_within: BODY_WITHIN,
            room: Semaphore::new(BODIES_BYTES),
        })
    }

    /// Takes pushes to branches of these components too.
    #[must_use]
    pub fn with_components(mut self, components: impl IntoIterator<Item = Branch>) -> Self {
        self.components = components.into_iter().collect();
        self
    }

    /// By which a webhook that was looked at before, and comes again, leads to one more look.
    #[must_use]
    pub fn looking_again(mut self, look_now: LookNow) -> Self {
        self.look_now = look_now;
        self
    }

    /// By which whoever keeps pull requests is woken, and looks at all of them when a webhook comes again; without it
    /// nothing of them is taken.
    #[must_use]
    pub fn telling_of_pulls(mut self, waker: Waker, look_now: LookNow) -> Self {
        self.pulls = Some((waker, look_now));
        self
    }

    /// The route.
    pub fn router(self) -> Router {
        Router::new()
            .route("/hooks/{forge}", post(hook))
            .with_state(Arc::new(self))
    }
}

/// What the sender reads: the same few words whatever the cause.
fn said(status: StatusCode) -> Response {
    let text = match status {
        StatusCode::ACCEPTED => "",
        StatusCode::UNAUTHORIZED => "not signed with this hook's secret\n",
        StatusCode::PAYLOAD_TOO_LARGE => "too large\n",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "send application/json\n",
        StatusCode::REQUEST_TIMEOUT => "too slow\n",
        StatusCode::NOT_FOUND => "no such hook\n",
        StatusCode::SERVICE_UNAVAILABLE => "not stored, send it again\n",
        _ => "cannot be read\n",
    };
    let mut response = (status, text).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let soon = axum::http::HeaderValue::from_static("30");
        response.headers_mut().insert(header::RETRY_AFTER, soon);
    }
    response
}

async fn hook(State(hooks): State<Arc<Hooks>>, Path(forge): Path<String>, request: Request) -> Response {
    if !trigger::hook_of(hooks.kind).names.contains(&forge.as_str()) {
        return said(StatusCode::NOT_FOUND);
    }
    let (parts, body) = request.into_parts();
    let read = body_of(&hooks.room, &parts.headers, body);
    let (body, _room) = match tokio::time::timeout(hooks.body_within, read).await {
        Ok(Ok(body)) => body,
        Ok(Err(status)) => return said(status),
        Err(_) => return said(StatusCode::REQUEST_TIMEOUT),
    };
    said(hooks.take(&parts.headers, &body).await)
}

impl Hooks {
    /// Pull requests of components are nobody's here.
    fn concerns(&self, event: &Event) -> bool {
        let is_push = matches!(event, Event::Push { .. });
        let mut components = self.components.iter().filter(|_| is_push);
        trigger::concerns(event, &self.repo, &self.branch)
            || components.any(|of| trigger::concerns(event, &of.repo, &of.branch))
    }

    async fn take(&self, headers: &HeaderMap, body: &[u8]) -> StatusCode {
        let headers: Headers = headers
            .iter()
            .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())))
            .collect();
        let trigger = match trigger::read(self.kind, &self.secret, &headers, body, self.store.now()) {
            Ok(trigger) => trigger,
            Err(refusal) => {
                tracing::warn!(why = %refusal, "webhook refused");
                return match refusal {
                    Refusal::Unauthorized => StatusCode::UNAUTHORIZED,
                    Refusal::UnsupportedType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    Refusal::Malformed(_) => StatusCode::BAD_REQUEST,
                };
            }
        };
        if !self.concerns(&trigger.event) {
            if let Event::Push { repo, reference, .. } = &trigger.event {
                tracing::info!(repo, reference, "webhook of another repository or branch");
            }
            return StatusCode::ACCEPTED;
        }
        let (waker, look_now) = match (&trigger.event, &self.pulls) {
            (Event::PullRequest { .. }, Some((waker, look_now))) => (waker, look_now),
            (Event::PullRequest { .. }, None) => return StatusCode::ACCEPTED,
            _ => (&self.waker, &self.look_now),
        };
        match self.store.put_inbox(&trigger).await {
            Ok(arrival) => {
                if arrival != Arrival::Fresh {
                    tracing::info!(delivery = trigger.delivery_id, "webhook came again");
                    // its row may be handled and asks for nothing any more: at worst one extra look (B03)
                    look_now.say();
                }
                waker.wake();
                StatusCode::ACCEPTED
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "webhook not stored; the poll covers it"
                );
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

/// Reads a body within its bound, whatever length it claims; the permit is its share of the memory.
async fn body_of<'a>(
    room: &'a Semaphore,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Bytes, Option<SemaphorePermit<'a>>), StatusCode> {
    let claimed = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse::<usize>().ok());
    if claimed.is_some_and(|bytes| bytes > WEBHOOK_BYTES) {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let mut held: Option<SemaphorePermit<'a>> = None;
    let mut whole = BytesMut::new();
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| StatusCode::BAD_REQUEST)?;
        if whole.len() + chunk.len() > WEBHOOK_BYTES {
            return Err(StatusCode::PAYLOAD_TOO_LARGE);
        }
        let bytes = u32::try_from(chunk.len()).map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
        let more = room
            .try_acquire_many(bytes)
            .map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        match &mut held {
            Some(held) => held.merge(more),
            None => held = Some(more),
        }
        whole.extend_from_slice(&chunk);
    }
    Ok((whole.freeze(), held))
}

#[cfg(test)]
mod tests;
