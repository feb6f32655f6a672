//! A double's API: what is the same for all forges. Who asks, what of it can be read, pages, and the record of calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::to_bytes;
use axum::extract::{Request, State as Extract};
use axum::http::header::{CONTENT_TYPE, LINK};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{Brand, Exchange, PullRow, Shared, Spoilt, State, Token, forgejo, git, github, gitlab};

/// What a route answers, or why not.
pub(super) type Answer = Result<Response, No>;

/// A refusal.
#[derive(Debug)]
pub(super) struct No {
    status: StatusCode,
    body: Value,
    retry_after: Option<u64>,
}

/// A refusal with a message.
pub(super) fn no(status: StatusCode, why: &str) -> No {
    No {
        status,
        body: json!({ "message": why }),
        retry_after: None,
    }
}

impl No {
    /// With what else stands beside the message.
    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        if let Some(object) = self.body.as_object_mut() {
            object.insert(name.to_owned(), value);
        }
        self
    }
}

/// A request, as a route sees it.
pub(super) struct Asked<'a> {
    pub(super) method: &'a Method,
    pub(super) path: &'a str,
    pub(super) segments: Vec<&'a str>,
    pub(super) raw_query: &'a str,
    pub(super) query: BTreeMap<String, String>,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Value,
    pub(super) token: Token,
}

impl Asked<'_> {
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    }

    pub(super) fn reads(&self) -> bool {
        *self.method == Method::GET
    }

    /// The fields of the body: texts, all that are known, and no other. Nothing is said by one that is null.
    pub(super) fn fields(&self, known: &[&str]) -> Result<BTreeMap<&str, &str>, No> {
        let unreadable = |why: &str| no(StatusCode::UNPROCESSABLE_ENTITY, why);
        let object = self.body.as_object().ok_or_else(|| unreadable("no object"))?;
        let mut fields = BTreeMap::new();
        for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            let text = value.as_str().filter(|_| known.contains(&name.as_str()));
            let text = text.ok_or_else(|| unreadable(&format!("no such field, or no text: {name}")))?;
            fields.insert(name.as_str(), text);
        }
        Ok(fields)
    }

    fn number(&self, key: &str, other: usize) -> usize {
        let given = self.query.get(key).and_then(|value| value.parse().ok());
        given.unwrap_or(other)
    }

    /// Which of a list are on the page that is asked for: how many before it, how many on it. `limit` is how the forge calls
    /// the length of a page, which is `usual` where none is asked for and `most` at the most.
    pub(super) fn page(&self, limit: &str, (usual, most): (usize, usize)) -> (usize, usize) {
        let limit = self.number(limit, usual).min(most);
        ((self.number("page", 1).max(1) - 1) * limit, limit)
    }

    /// A page of a list, with where it goes on.
    pub(super) fn paged(&self, all: Vec<Value>, limit: &str, bounds: (usize, usize)) -> Response {
        let (skip, many) = self.page(limit, bounds);
        let total = all.len();
        let of_page: Vec<Value> = all.into_iter().skip(skip).take(many).collect();
        let mut response = Json(of_page).into_response();
        self.link(&mut response, skip + many < total);
        if let Ok(total) = HeaderValue::from_str(&total.to_string()) {
            response
                .headers_mut()
                .insert(HeaderName::from_static("x-total-count"), total);
        }
        response
    }

    /// Says where a list goes on: the same address, another page.
    pub(super) fn link(&self, response: &mut Response, more: bool) {
        let page = self.number("page", 1).max(1);
        let to = |page: usize, rel: &str| {
            let mut pairs: Vec<String> = self
                .raw_query
                .split('&')
                .filter(|pair| !pair.is_empty() && !pair.starts_with("page="))
                .map(str::to_owned)
                .collect();
            pairs.push(format!("page={page}"));
            format!(
                "<https://as-it-calls-itself.test/{}?{}>; rel=\"{rel}\"",
                self.path,
                pairs.join("&")
            )
        };
        let mut links = Vec::new();
        if more {
            links.push(to(page + 1, "next"));
        }
        if page > 1 {
            links.push(to(1, "first"));
        }
        if !links.is_empty()
            && let Ok(link) = HeaderValue::from_str(&links.join(", "))
        {
            response.headers_mut().insert(LINK, link);
        }
    }
}

/// The pull request of this number.
pub(super) fn found(state: &State, number: &str) -> Result<PullRow, No> {
    let pull = number
        .parse()
        .ok()
        .and_then(|number: u64| state.pulls.get(&number));
    pull.cloned()
        .ok_or_else(|| no(StatusCode::NOT_FOUND, "not found"))
}

/// What one that writes too soon after another is told.
pub(super) fn too_soon(last: Option<Instant>, gap: Duration) -> Result<(), No> {
    if last.is_none_or(|last| last.elapsed() >= gap) {
        return Ok(());
    }
    let why = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
    Err(No {
        retry_after: Some(60),
        ..no(StatusCode::FORBIDDEN, why)
    })
}

fn spoilt(how: Spoilt) -> Response {
    match how {
        Spoilt::TooLong => format!("[{}]", " ".repeat(17 << 20)).into_response(),
        Spoilt::Nonsense => "<html>It works!</html>".into_response(),
        Spoilt::Gone => (StatusCode::NOT_FOUND, Json(json!({ "message": "gone" }))).into_response(),
        Spoilt::Down => StatusCode::BAD_GATEWAY.into_response(),
    }
}

/// Whether something was changed since the time that is asked for, to the second.
pub(super) fn is_since(asked: &Asked<'_>, updated: &str) -> bool {
    let second = |time: &str| time.get(..19).map(str::to_owned);
    let since = asked.query.get("since").and_then(|since| second(since));
    since <= second(updated)
}

pub(super) async fn answer(Extract(shared): Extract<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 4 << 20).await.unwrap_or_default();
    let path = parts.uri.path();
    let path = path.strip_prefix(shared.locked().brand.api()).unwrap_or(path);
    let path = path.trim_start_matches('/');
    let response = answered(&shared, (&parts, path), &body);
    let exchange = Exchange {
        method: parts.method.to_string(),
        path: path.to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        sent: serde_json::from_slice(&body).unwrap_or_default(),
        status: 0,
        answered: Value::Null,
    };
    shared.kept(exchange, response).await
}

fn answered(shared: &Arc<Shared>, (parts, path): (&Parts, &str), body: &[u8]) -> Response {
    let is_json = parts
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value == "application/json");
    let raw_query = parts.uri.query().unwrap_or_default();
    let pairs = raw_query.split('&').filter_map(|pair| pair.split_once('='));
    let query = pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let mut state = shared.locked();
    if state.down {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let asked = || -> Answer {
        let token =
            git::who(&state, &parts.headers).map_err(|why| no(StatusCode::UNAUTHORIZED, &why.to_string()))?;
        let body = match (parts.method == Method::GET, is_json) {
            (true, _) => Value::Null,
            (false, true) => serde_json::from_slice(body)
                .map_err(|e| no(StatusCode::UNPROCESSABLE_ENTITY, &e.to_string()))?,
            (false, false) => return Err(no(StatusCode::UNPROCESSABLE_ENTITY, "send application/json")),
        };
        let asked = Asked {
            method: &parts.method,
            path,
            segments: path.split('/').collect(),
            raw_query,
            query,
            headers: &parts.headers,
            body,
            token,
        };
        if asked.reads()
            && let Some(how) = state.spoilt.iter().find(|(part, _)| path.contains(*part))
        {
            return Ok(spoilt(*how.1));
        }
        match state.brand {
            Brand::Forgejo => forgejo::route(shared, &mut state, &asked),
            Brand::Github => github::route(shared, &mut state, &asked),
            Brand::Gitlab => gitlab::route(shared, &mut state, &asked),
        }
    };
    let response = asked().unwrap_or_else(|no| {
        let mut response = (no.status, Json(no.body)).into_response();
        if let Some(secs) = no.retry_after {
            response
                .headers_mut()
                .insert("retry-after", HeaderValue::from(secs));
        }
        response
    });
    state
        .calls
        .push(format!("{} {path} {}", parts.method, response.status().as_u16()));
    response
}
