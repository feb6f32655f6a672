//! The double's API: the routes that are used, with the refusals of the real one.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::to_bytes;
use axum::extract::{Request, State as Extract};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LINK};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{
    BOT, CommentRow, NAME, OWNER, PullRow, Shared, State, StatusRow, Token, git, hooks, now, shapes,
};

/// More is refused.
const COMMENT_CHARS: usize = 65_536;
/// More does not fit every forge.
const DESCRIPTION_CHARS: usize = 140;

type Answer = Result<Response, (StatusCode, String)>;

fn no(status: StatusCode, why: &str) -> (StatusCode, String) {
    (status, why.to_owned())
}

pub(super) async fn answer(Extract(shared): Extract<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let json = parts
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|value| value == "application/json");
    let body = to_bytes(body, 1 << 20).await.unwrap_or_default();
    let path = parts.uri.path().trim_start_matches("/api/v1/").to_owned();
    let query: BTreeMap<String, String> = parts
        .uri
        .query()
        .unwrap_or_default()
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let mut state = shared.locked();
    if state.down {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let given = parts
        .headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let answered = match git::who(&state, given) {
        Err(why) => Err((StatusCode::UNAUTHORIZED, why.to_string())),
        Ok(token) => {
            let parsed = match (parts.method == Method::GET, json) {
                (true, _) => Ok(Value::Null),
                (false, true) => serde_json::from_slice(&body).map_err(|e| e.to_string()),
                (false, false) => Err("send application/json".to_owned()),
            };
            match parsed {
                Err(why) => Err((StatusCode::UNPROCESSABLE_ENTITY, why)),
                Ok(body) => {
                    let segments: Vec<&str> = path.split('/').collect();
                    route(
                        &shared,
                        &mut state,
                        &token,
                        &parts.method,
                        &segments,
                        &query,
                        &body,
                    )
                }
            }
        }
    };
    let response = match answered {
        Ok(response) => response,
        Err((status, why)) => {
            (status, Json(json!({ "message": why, "url": "/api/swagger" }))).into_response()
        }
    };
    state
        .calls
        .push(format!("{} {path} {}", parts.method, response.status().as_u16()));
    response
}

fn route(
    shared: &Arc<Shared>,
    state: &mut State,
    token: &Token,
    method: &Method,
    segments: &[&str],
    query: &BTreeMap<String, String>,
    body: &Value,
) -> Answer {
    if segments == ["user"] {
        scope(token, "user", method)?;
        return Ok(Json(shapes::user(state, &token.login)).into_response());
    }
    let rest = match segments {
        ["repos", owner, name, rest @ ..] if *owner == OWNER && *name == NAME => rest,
        _ => return Err(no(StatusCode::NOT_FOUND, "not found")),
    };
    let permission = state
        .people
        .get(&token.login)
        .map_or("none", |p| p.permission.as_str())
        .to_owned();
    if permission == "none" {
        return Err(no(StatusCode::NOT_FOUND, "not found"));
    }
    let writes = matches!(permission.as_str(), "write" | "admin");
    scope(
        token,
        if rest.first() == Some(&"issues") {
            "issue"
        } else {
            "repository"
        },
        method,
    )?;
    match (method.as_str(), rest) {
        ("GET", ["pulls"]) => pulls(state, query),
        ("GET", ["pulls", number]) => {
            let pull = found(state, number)?;
            Ok(Json(shapes::pull(state, &pull)).into_response())
        }
        ("POST", ["pulls"]) => open_pull(shared, state, &token.login, body),
        ("GET", ["commits", commit, "pull"]) => {
            let merged = |pull: &&PullRow| pull.merged.as_ref().is_some_and(|(made, ..)| made == commit);
            let pull = state.pulls.values().find(merged).cloned();
            let pull = pull.ok_or_else(|| no(StatusCode::NOT_FOUND, "not found"))?;
            Ok(Json(shapes::pull(state, &pull)).into_response())
        }
        ("GET", ["pulls", number, "reviews"]) => {
            let pull = found(state, number)?;
            let of = state.reviews.iter().filter(|review| review.number == pull.number);
            let all: Vec<Value> = of.map(|review| shapes::review(state, &pull, review)).collect();
            Ok(paged(all, query, state.page))
        }
        ("GET", ["commits", commit, "status"]) => {
            let mut newest: BTreeMap<&str, &StatusRow> = BTreeMap::new();
            for row in state.statuses.iter().filter(|row| row.commit == *commit) {
                newest.insert(&row.context, row);
            }
            let limit = number(query, "limit", 30).min(state.page);
            let skip = (number(query, "page", 1).max(1) - 1) * limit;
            let all = newest.values().enumerate().skip(skip).take(limit);
            let of_page: Vec<Value> = all.map(|(at, row)| shapes::status(state, row, at, BOT)).collect();
            let combined = json!({
                "state": "pending", "sha": commit, "total_count": newest.len(), "statuses": of_page, "commit_url": "",
            });
            Ok(Json(combined).into_response())
        }
        ("POST", ["statuses", commit]) => set_status(state, (&token.login, writes), commit, body),
        ("GET", ["issues", number, "comments"]) => {
            let pull = found(state, number)?;
            let all: Vec<Value> = state
                .comments
                .values()
                .filter(|comment| comment.number == pull.number)
                .map(|comment| shapes::comment(state, comment))
                .collect();
            Ok(Json(all).into_response())
        }
        ("POST", ["issues", number, "comments"]) => {
            let pull = found(state, number)?;
            let text = text_of(body)?;
            if state.locked.contains(&pull.number) && !writes {
                return Err(no(StatusCode::FORBIDDEN, "the conversation is locked"));
            }
            let comment = write_comment(shared, state, &token.login, pull.number, &text);
            Ok((StatusCode::CREATED, Json(shapes::comment(state, &comment))).into_response())
        }
        ("PATCH", ["issues", "comments", id]) => {
            let text = text_of(body)?;
            let id: u64 = id.parse().map_err(|_| no(StatusCode::NOT_FOUND, "not found"))?;
            let comment = state
                .comments
                .get_mut(&id)
                .ok_or_else(|| no(StatusCode::NOT_FOUND, "not found"))?;
            if comment.author != token.login && !writes {
                return Err(no(StatusCode::FORBIDDEN, "not yours"));
            }
            comment.body = text;
            comment.updated = now();
            let comment = comment.clone();
            // The same text again sends this too.
            hooks::comment(shared, state, id, "edited", &token.login);
            Ok(Json(shapes::comment(state, &comment)).into_response())
        }
        ("GET", ["collaborators", login, "permission"]) => {
            if permission != "admin" && token.login != *login {
                let why = "Only admins can query all permissions, repo admins can query all repo permissions, \
                           collaborators can query only their own";
                return Err(no(StatusCode::FORBIDDEN, why));
            }
            let of = state
                .people
                .get(*login)
                .ok_or_else(|| no(StatusCode::NOT_FOUND, "user does not exist"))?;
            let said = json!({ "permission": of.permission, "role_name": of.permission, "user": shapes::user(state, login) });
            Ok(Json(said).into_response())
        }
        _ => Err(no(StatusCode::NOT_FOUND, "not found")),
    }
}

/// Whether the token may do this at all.
fn scope(token: &Token, category: &str, method: &Method) -> Result<(), (StatusCode, String)> {
    let write = format!("write:{category}");
    let read = format!("read:{category}");
    if token.scopes.contains(&write) || (*method == Method::GET && token.scopes.contains(&read)) {
        return Ok(());
    }
    let wanted = if *method == Method::GET { read } else { write };
    Err((
        StatusCode::FORBIDDEN,
        format!("token does not have at least one of required scope(s): [{wanted}]"),
    ))
}

fn found(state: &State, number: &str) -> Result<PullRow, (StatusCode, String)> {
    let pull = number
        .parse()
        .ok()
        .and_then(|number: u64| state.pulls.get(&number));
    pull.cloned()
        .ok_or_else(|| no(StatusCode::NOT_FOUND, "not found"))
}

/// The fields of a body: all that are known, and no other.
fn fields<'b>(body: &'b Value, known: &[&str]) -> Result<BTreeMap<&'b str, &'b str>, (StatusCode, String)> {
    let object = body
        .as_object()
        .ok_or_else(|| no(StatusCode::UNPROCESSABLE_ENTITY, "no object"))?;
    let mut fields = BTreeMap::new();
    for (name, value) in object {
        let text = value.as_str().filter(|_| known.contains(&name.as_str()));
        let text = text.ok_or((
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("no such field, or no text: {name}"),
        ))?;
        fields.insert(name.as_str(), text);
    }
    Ok(fields)
}

fn text_of(body: &Value) -> Result<String, (StatusCode, String)> {
    let fields = fields(body, &["body"])?;
    let text = fields.get("body").copied().unwrap_or_default();
    if text.is_empty() || text.chars().count() > COMMENT_CHARS {
        return Err(no(StatusCode::UNPROCESSABLE_ENTITY, "no text, or too much of it"));
    }
    Ok(text.to_owned())
}

fn number(query: &BTreeMap<String, String>, key: &str, other: usize) -> usize {
    query
        .get(key)
        .and_then(|value| value.parse().ok())
        .unwrap_or(other)
}

fn pulls(state: &State, query: &BTreeMap<String, String>) -> Answer {
    let open = query.get("state").is_none_or(|wanted| wanted == "open");
    let all = state.pulls.values().filter(|pull| pull.open || !open);
    let all: Vec<Value> = all.map(|pull| shapes::pull(state, pull)).collect();
    Ok(paged(all, query, state.page))
}

/// A page of a list, with where it goes on.
fn paged(all: Vec<Value>, query: &BTreeMap<String, String>, most: usize) -> Response {
    let (page, limit) = (
        number(query, "page", 1).max(1),
        number(query, "limit", 30).min(most),
    );
    let total = all.len();
    let of_page: Vec<Value> = all.into_iter().skip((page - 1) * limit).take(limit).collect();
    let mut response = Json(of_page).into_response();
    let headers = response.headers_mut();
    if let Ok(total) = HeaderValue::from_str(&total.to_string()) {
        headers.insert(HeaderName::from_static("x-total-count"), total);
    }
    let mut links = Vec::new();
    if page * limit < total {
        links.push(format!("<http://x/api/v1/x?page={}>; rel=\"next\"", page + 1));
    }
    if page > 1 {
        links.push("<http://x/api/v1/x?page=1>; rel=\"first\"".to_owned());
    }
    if !links.is_empty()
        && let Ok(link) = HeaderValue::from_str(&links.join(","))
    {
        headers.insert(LINK, link);
    }
    response
}

fn open_pull(shared: &Arc<Shared>, state: &mut State, login: &str, body: &Value) -> Answer {
    let fields = fields(body, &["title", "body", "head", "base"])?;
    let field = |name: &str| fields.get(name).copied().unwrap_or_default().to_owned();
    let head = git::resolve(&state.repository(), &format!("refs/heads/{}", field("head")))
        .map_err(|_| no(StatusCode::NOT_FOUND, "no such branch"))?;
    let from = field("head");
    if field("base") != "main" || field("title").is_empty() {
        return Err(no(
            StatusCode::UNPROCESSABLE_ENTITY,
            "a title, and a base that there is",
        ));
    }
    if state
        .pulls
        .values()
        .any(|pull| pull.open && pull.from == from && pull.fork.is_none())
    {
        return Err(no(
            StatusCode::CONFLICT,
            "pull request already exists for these targets",
        ));
    }
    let number = state.pulls.keys().next_back().map_or(1, |last| last + 1);
    let set = git::set(&state.repository(), &format!("refs/pull/{number}/head"), &head);
    set.map_err(|e| (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))?;
    let pull = PullRow {
        number,
        author: login.to_owned(),
        title: field("title"),
        body: field("body"),
        from,
        fork: None,
        fork_point: git::fork_point(&state.repository(), &head).unwrap_or_default(),
        head,
        open: true,
        merged: None,
    };
    state.pulls.insert(number, pull.clone());
    hooks::pull(shared, state, number, "opened", "pull_request", login);
    Ok((StatusCode::CREATED, Json(shapes::pull(state, &pull))).into_response())
}

fn set_status(state: &mut State, (login, writes): (&str, bool), commit: &str, body: &Value) -> Answer {
    if !writes {
        return Err(no(
            StatusCode::FORBIDDEN,
            "user should have a permission to write to a repo",
        ));
    }
    let fields = fields(body, &["state", "context", "description", "target_url"])?;
    let field = |name: &str| fields.get(name).copied().unwrap_or_default().to_owned();
    let row = StatusRow {
        commit: commit.to_owned(),
        context: field("context"),
        state: field("state"),
        description: field("description"),
    };
    let known = ["pending", "success", "error", "failure", "warning"].contains(&row.state.as_str());
    if !known || row.description.chars().count() > DESCRIPTION_CHARS {
        return Err(no(
            StatusCode::UNPROCESSABLE_ENTITY,
            "no such state, or too long a description",
        ));
    }
    if !git::has(&state.repository(), commit) {
        return Err(no(StatusCode::INTERNAL_SERVER_ERROR, "object does not exist"));
    }
    state.statuses.push(row.clone());
    let said = shapes::status(state, &row, state.statuses.len(), login);
    Ok((StatusCode::CREATED, Json(said)).into_response())
}

pub(super) fn write_comment(
    shared: &Arc<Shared>,
    state: &mut State,
    login: &str,
    number: u64,
    body: &str,
) -> CommentRow {
    let comment = CommentRow {
        id: state.id(),
        number,
        author: login.to_owned(),
        body: body.to_owned(),
        created: now(),
        updated: now(),
    };
    state.comments.insert(comment.id, comment.clone());
    hooks::comment(shared, state, comment.id, "created", login);
    comment
}
