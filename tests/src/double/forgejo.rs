//! Forgejo's API as far as it is used, with the refusals of the real one.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use super::api::{Answer, Asked, No, found, is_since, no};
use super::{BOT, NAME, New, OWNER, PullRow, Shared, State, StatusRow, git, now, post};
use crate::double::Happening;

pub(super) mod hooks;
mod shapes;

/// More is refused.
const COMMENT_CHARS: usize = 65_536;
/// More does not fit every forge.
const DESCRIPTION_CHARS: usize = 140;
/// The usual page, and the most of one.
const PAGE: (usize, usize) = (30, 50);

pub(super) fn route(shared: &Arc<Shared>, state: &mut State, asked: &Asked<'_>) -> Answer {
    let login = asked.token.login.clone();
    if asked.segments == ["user"] {
        scope(asked, "user")?;
        return Ok(Json(shapes::user(state, &login)).into_response());
    }
    if let ["orgs", ..] | ["teams", ..] = asked.segments.as_slice() {
        return teams(state, asked);
    }
    let rest = match asked.segments.as_slice() {
        ["repos", owner, name, rest @ ..] if *owner == OWNER && *name == NAME => rest,
        _ => return Err(no(StatusCode::NOT_FOUND, "not found")),
    };
    if state.permission(&login) == "none" {
        return Err(no(StatusCode::NOT_FOUND, "not found"));
    }
    let writes = state.writes(&login);
    let issues = rest.first() == Some(&"issues");
    scope(asked, if issues { "issue" } else { "repository" })?;
    let page = (PAGE.0, PAGE.1.min(state.page));
    match (asked.method.as_str(), rest) {
        ("GET", ["pulls"]) => Ok(pulls(state, asked, page)),
        ("GET", ["pulls", number]) => {
            let pull = found(state, number)?;
            Ok(Json(shapes::pull(state, &pull)).into_response())
        }
        ("POST", ["pulls"]) => open_pull(shared, state, asked),
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
            Ok(asked.paged(all, "limit", page))
        }
        ("GET", ["commits", commit, "status"]) => {
            let mut newest: BTreeMap<&str, &StatusRow> = BTreeMap::new();
            for row in state.statuses.iter().filter(|row| row.commit == *commit) {
                newest.insert(&row.context, row);
            }
            let (skip, many) = asked.page("limit", page);
            let all = newest.values().enumerate().skip(skip).take(many);
            let of_page: Vec<Value> = all.map(|(at, row)| shapes::status(state, row, at, BOT)).collect();
            let combined = json!({
                "state": "pending", "sha": commit, "total_count": newest.len(), "statuses": of_page, "commit_url": "",
            });
            Ok(Json(combined).into_response())
        }
        ("POST", ["statuses", commit]) => set_status(state, (&login, writes), commit, asked),
        ("GET", ["issues", number, "comments"]) => {
            let pull = found(state, number)?;
            let all: Vec<Value> = state
                .comments
                .values()
                .filter(|comment| comment.number == pull.number && is_since(asked, &comment.updated))
                .map(|comment| shapes::comment(state, comment))
                .collect();
            Ok(Json(all).into_response())
        }
        ("POST", ["issues", number, "comments"]) => {
            let pull = found(state, number)?;
            let text = text_of(asked)?;
            if state.locked.contains(&pull.number) && !writes {
                return Err(no(StatusCode::FORBIDDEN, "the conversation is locked"));
            }
            let comment = state.add_comment(shared, &login, pull.number, &text);
            Ok((StatusCode::CREATED, Json(shapes::comment(state, &comment))).into_response())
        }
        ("PATCH", ["issues", "comments", id]) => {
            let text = text_of(asked)?;
            let id: u64 = id.parse().map_err(|_| no(StatusCode::NOT_FOUND, "not found"))?;
            let comment = state
                .comments
                .get_mut(&id)
                .ok_or_else(|| no(StatusCode::NOT_FOUND, "not found"))?;
            if comment.author != login && !writes {
                return Err(no(StatusCode::FORBIDDEN, "not yours"));
            }
            comment.body = text;
            comment.updated = now();
            let comment = comment.clone();
            // The same text again sends this too.
            let (edited, by) = (true, login.as_str());
            post::tell(shared, state, &Happening::Spoke { id, edited, by });
            Ok(Json(shapes::comment(state, &comment)).into_response())
        }
        ("GET", ["collaborators", login, "permission"]) => {
            if state.permission(&asked.token.login) != "admin" && asked.token.login != *login {
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

/// Teams of the organisation are told to its members, who is in one to who is in it.
fn teams(state: &State, asked: &Asked<'_>) -> Answer {
    scope(asked, "organization")?;
    let page = (PAGE.0, PAGE.1.min(state.page));
    let login = &asked.token.login;
    match (asked.method.as_str(), asked.segments.as_slice()) {
        ("GET", ["orgs", owner, "teams"]) if *owner == OWNER => {
            if !state.teams.values().any(|members| members.contains(login)) {
                return Err(no(StatusCode::FORBIDDEN, "Must be an organization member"));
            }
            let all = state.numbered_teams().map(|(id, name)| state.team(id, name));
            Ok(asked.paged(all.collect(), "limit", page))
        }
        ("GET", ["teams", id, "members"]) => {
            let missing = || no(StatusCode::NOT_FOUND, "not found");
            let mut teams = state.numbered_teams();
            let (_, name) = teams.find(|(of, _)| of.to_string() == *id).ok_or_else(missing)?;
            if !state
                .teams
                .get(name)
                .is_some_and(|members| members.contains(login))
            {
                return Err(no(StatusCode::FORBIDDEN, "Must be a team member"));
            }
            let all = state.members(name, shapes::user).ok_or_else(missing)?;
            Ok(asked.paged(all, "limit", page))
        }
        _ => Err(no(StatusCode::NOT_FOUND, "not found")),
    }
}

/// Whether the token may do this at all.
fn scope(asked: &Asked<'_>, category: &str) -> Result<(), No> {
    let write = format!("write:{category}");
    let read = format!("read:{category}");
    let scopes = &asked.token.scopes;
    if scopes.contains(&write) || (asked.reads() && scopes.contains(&read)) {
        return Ok(());
    }
    let wanted = if asked.reads() { read } else { write };
    let why = format!("token does not have at least one of required scope(s): [{wanted}]");
    Err(no(StatusCode::FORBIDDEN, &why))
}

fn text_of(asked: &Asked<'_>) -> Result<String, No> {
    let fields = asked.fields(&["body"])?;
    let text = fields.get("body").copied().unwrap_or_default();
    if text.is_empty() || text.chars().count() > COMMENT_CHARS {
        return Err(no(StatusCode::UNPROCESSABLE_ENTITY, "no text, or too much of it"));
    }
    Ok(text.to_owned())
}

fn pulls(state: &State, asked: &Asked<'_>, page: (usize, usize)) -> axum::response::Response {
    let open = asked.query.get("state").is_none_or(|wanted| wanted == "open");
    let all = state.pulls.values().filter(|pull| pull.open || !open);
    let all: Vec<Value> = all.map(|pull| shapes::pull(state, pull)).collect();
    asked.paged(all, "limit", page)
}

fn open_pull(shared: &Arc<Shared>, state: &mut State, asked: &Asked<'_>) -> Answer {
    let fields = asked.fields(&["title", "body", "head", "base"])?;
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    let from = field("head");
    let head = git::resolve(&state.repository(), &format!("refs/heads/{from}"))
        .map_err(|_| no(StatusCode::NOT_FOUND, "no such branch"))?;
    if field("base") != "main" || field("title").is_empty() {
        let why = "a title, and a base that there is";
        return Err(no(StatusCode::UNPROCESSABLE_ENTITY, why));
    }
    if state.stands_open(from) {
        let why = "pull request already exists for these targets";
        return Err(no(StatusCode::CONFLICT, why));
    }
    let new = New {
        author: &asked.token.login,
        title: field("title"),
        body: field("body"),
        from,
        fork: None,
        head,
    };
    let number = state
        .add_pull(shared, new)
        .map_err(|e| no(StatusCode::INTERNAL_SERVER_ERROR, &e.to_string()))?;
    let pull = found(state, &number.to_string())?;
    Ok((StatusCode::CREATED, Json(shapes::pull(state, &pull))).into_response())
}

fn set_status(state: &mut State, (login, writes): (&str, bool), commit: &str, asked: &Asked<'_>) -> Answer {
    if !writes {
        return Err(no(
            StatusCode::FORBIDDEN,
            "user should have a permission to write to a repo",
        ));
    }
    let fields = asked.fields(&["state", "context", "description", "target_url"])?;
    let field = |name: &str| fields.get(name).copied().unwrap_or_default().to_owned();
    let row = StatusRow {
        commit: commit.to_owned(),
        context: field("context"),
        state: field("state"),
        description: field("description"),
        by: login.to_owned(),
        run: false,
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
