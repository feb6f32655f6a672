//! GitHub's API as far as it is used, with the refusals of the real one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::api::{Answer, Asked, No, found, is_since, no, too_soon};
use super::{Happening, NAME, New, OWNER, PullRow, Shared, State, StatusRow, git, now, post};
use shapes::Form;

mod addresses;
pub(super) mod hooks;
mod shapes;

/// More is refused.
const COMMENT_CHARS: usize = 65_536;
/// More is refused.
const DESCRIPTION_CHARS: usize = 140;
/// The usual page, and the most of one.
const PAGE: (usize, usize) = (30, 100);
/// Requests that write come a second apart, edits of a comment eight; what the network takes is let go.
const WRITE_GAP: Duration = Duration::from_millis(900);
const EDIT_GAP: Duration = Duration::from_millis(7_500);
/// Statuses of one context on one commit.
const STATUSES: usize = 1000;

pub(super) fn route(shared: &Arc<Shared>, state: &mut State, asked: &Asked<'_>) -> Answer {
    if asked.header("user-agent").is_empty() {
        let why = "Request forbidden by administrative rules. Please make sure your request has a User-Agent header";
        return Err(no(StatusCode::FORBIDDEN, why));
    }
    if asked.header("x-github-api-version") != "2022-11-28" {
        return Err(no(StatusCode::BAD_REQUEST, "unknown version of the API"));
    }
    if asked.header("accept") != "application/vnd.github+json" {
        return Err(no(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Unsupported 'Accept' header",
        ));
    }
    if !asked.reads() {
        too_soon(state.written_at, WRITE_GAP)?;
        state.written_at = Some(Instant::now());
    }
    if asked.segments == ["user"] {
        return Ok(Json(shapes::user(state, &asked.token.login)).into_response());
    }
    if let ["orgs", owner, "teams", team, "members"] = asked.segments.as_slice() {
        return members(state, asked, (owner, team));
    }
    let rest = match asked.segments.as_slice() {
        ["repos", owner, name, rest @ ..] if *owner == OWNER && *name == NAME => rest,
        _ => return Err(no(StatusCode::NOT_FOUND, "Not Found")),
    };
    if state.permission(&asked.token.login) == "none" {
        return Err(no(StatusCode::NOT_FOUND, "Not Found"));
    }
    scope(asked, rest)?;
    repository(shared, state, asked, rest)
}

fn repository(shared: &Arc<Shared>, state: &mut State, asked: &Asked<'_>, rest: &[&str]) -> Answer {
    let page = (PAGE.0, PAGE.1.min(state.page));
    let list = |all: Vec<Value>| {
        let mut response = asked.paged(all, "per_page", page);
        response.headers_mut().remove("x-total-count");
        response
    };
    match (asked.method.as_str(), rest) {
        ("GET", ["pulls"]) => {
            let wanted = asked.query.get("state").map_or("open", String::as_str);
            let of = |pull: &&PullRow| pull.open || wanted != "open";
            let all = state.pulls.values().filter(of);
            Ok(list(
                all.map(|pull| shapes::pull(state, pull, Form::Listed)).collect(),
            ))
        }
        ("GET", ["pulls", number]) => {
            let pull = found(state, number)?;
            Ok(Json(shapes::pull(state, &pull, Form::Whole)).into_response())
        }
        ("POST", ["pulls"]) => open_pull(shared, state, asked),
        ("GET", ["commits", commit, "pulls"]) => {
            if !git::has(&state.repository(), commit) {
                let why = format!("No commit found for SHA: {commit}");
                return Err(no(StatusCode::UNPROCESSABLE_ENTITY, &why));
            }
            let of = |pull: &&PullRow| {
                pull.head == *commit || pull.merged.as_ref().is_some_and(|(made, ..)| made == commit)
            };
            let all = state.pulls.values().filter(of);
            Ok(list(
                all.map(|pull| shapes::pull(state, pull, Form::Listed)).collect(),
            ))
        }
        ("GET", ["pulls", number, "reviews"]) => {
            let pull = found(state, number)?;
            let of = state.reviews.iter().filter(|review| review.number == pull.number);
            Ok(list(of.map(|review| shapes::review(state, review)).collect()))
        }
        ("GET", ["commits", commit, "status"]) => {
            let newest = newest(state, commit, false);
            let (skip, many) = asked.page("per_page", page);
            let of_page = newest.values().skip(skip).take(many);
            let of_page: Vec<Value> = of_page.map(|row| shapes::status(state, row)).collect();
            let page = format!("{}/commits/{commit}", shapes::repo_api(state));
            let combined = json!({
                "state": "pending", "sha": commit, "total_count": newest.len(), "statuses": of_page,
                "repository": shapes::repository(state), "commit_url": page, "url": format!("{page}/status"),
            });
            let mut response = Json(combined).into_response();
            asked.link(&mut response, skip + many < newest.len());
            Ok(response)
        }
        ("GET", ["commits", commit, "check-runs"]) => {
            let newest = newest(state, commit, true);
            let (skip, many) = asked.page("per_page", page);
            let of_page = newest.values().skip(skip).take(many);
            let of_page: Vec<Value> = of_page.map(|row| shapes::run(state, row)).collect();
            let runs = json!({ "total_count": newest.len(), "check_runs": of_page });
            let mut response = Json(runs).into_response();
            asked.link(&mut response, skip + many < newest.len());
            Ok(response)
        }
        ("POST", ["statuses", commit]) => set_status(state, commit, asked),
        ("GET", ["issues", number, "comments"]) => {
            let pull = found(state, number)?;
            let of = state.comments.values().filter(|c| c.number == pull.number);
            let of = of.filter(|comment| is_since(asked, &comment.updated));
            Ok(list(of.map(|comment| shapes::comment(state, comment)).collect()))
        }
        ("POST", ["issues", number, "comments"]) => {
            let pull = found(state, number)?;
            let text = text_of(asked)?;
            if state.locked.contains(&pull.number) && !state.writes(&asked.token.login) {
                let why = "Unable to create comment because issue is locked.";
                return Err(no(StatusCode::FORBIDDEN, why));
            }
            let comment = state.add_comment(shared, &asked.token.login, pull.number, &text);
            Ok((StatusCode::CREATED, Json(shapes::comment(state, &comment))).into_response())
        }
        ("PATCH", ["issues", "comments", id]) => edit_comment(shared, state, asked, id),
        ("GET", ["collaborators", login, "permission"]) => {
            if !state.writes(&asked.token.login) {
                let why = "Must have push access to view collaborator permission.";
                return Err(no(StatusCode::FORBIDDEN, why));
            }
            if !state.people.contains_key(*login) {
                return Err(no(StatusCode::NOT_FOUND, &format!("{login} is not a user")));
            }
            let permission = state.permission(login);
            let said = json!({ "permission": permission, "role_name": permission, "user": shapes::user(state, login) });
            Ok(Json(said).into_response())
        }
        _ => Err(no(StatusCode::NOT_FOUND, "Not Found")),
    }
}

/// Who is in a team; of one that is not shown there is none.
fn members(state: &State, asked: &Asked<'_>, (owner, team): (&str, &str)) -> Answer {
    if !asked.token.scopes.contains("members:read") {
        let why = "Resource not accessible by personal access token";
        return Err(no(StatusCode::FORBIDDEN, why));
    }
    let missing = || no(StatusCode::NOT_FOUND, "Not Found");
    let all = state.members(team, shapes::user).filter(|_| owner == OWNER);
    let page = (PAGE.0, PAGE.1.min(state.page));
    let mut response = asked.paged(all.ok_or_else(missing)?, "per_page", page);
    response.headers_mut().remove("x-total-count");
    Ok(response)
}

/// Whether the token may do this at all.
fn scope(asked: &Asked<'_>, rest: &[&str]) -> Result<(), No> {
    let (category, write) = match rest {
        ["commits", _, "check-runs"] => ("checks", false),
        ["commits", _, "status"] => ("statuses", false),
        ["statuses", ..] => ("statuses", true),
        ["pulls" | "issues", ..] => ("pull_requests", !asked.reads()),
        ["commits", ..] => ("pull_requests", false),
        _ => ("metadata", false),
    };
    let has = |kind: &str| asked.token.scopes.contains(&format!("{category}:{kind}"));
    if has("write") || (!write && has("read")) {
        return Ok(());
    }
    let why = "Resource not accessible by personal access token";
    Err(no(StatusCode::FORBIDDEN, why))
}

/// The newest of each name.
fn newest<'s>(state: &'s State, commit: &str, run: bool) -> BTreeMap<&'s str, &'s StatusRow> {
    let of = |row: &&StatusRow| row.commit == commit && row.run == run;
    let rows = state.statuses.iter().filter(of);
    // Contexts are told apart without regard to case; ours are lower case.
    rows.map(|row| (row.context.as_str(), row)).collect()
}

/// "Validation Failed", and why.
fn invalid(resource: &str, field: &str, why: &str) -> No {
    let error = json!({ "resource": resource, "field": field, "code": "custom", "message": why });
    no(StatusCode::UNPROCESSABLE_ENTITY, "Validation Failed").with("errors", json!([error]))
}

fn text_of(asked: &Asked<'_>) -> Result<String, No> {
    let fields = asked.fields(&["body"])?;
    let text = fields.get("body").copied().unwrap_or_default();
    if text.is_empty() {
        return Err(invalid("IssueComment", "body", "body can't be blank"));
    }
    if text.chars().count() > COMMENT_CHARS {
        let why = "body is too long (maximum is 65536 characters)";
        return Err(invalid("IssueComment", "body", why));
    }
    Ok(text.to_owned())
}

fn edit_comment(shared: &Arc<Shared>, state: &mut State, asked: &Asked<'_>, id: &str) -> Answer {
    let text = text_of(asked)?;
    let login = asked.token.login.as_str();
    let writes = state.writes(login);
    let id: u64 = id.parse().map_err(|_| no(StatusCode::NOT_FOUND, "Not Found"))?;
    let comment = state
        .comments
        .get_mut(&id)
        .ok_or_else(|| no(StatusCode::NOT_FOUND, "Not Found"))?;
    if comment.author != login && !writes {
        return Err(no(StatusCode::FORBIDDEN, "Must have admin rights to Repository."));
    }
    too_soon(comment.edited_at, EDIT_GAP)?;
    comment.edited_at = Some(Instant::now());
    comment.body = text;
    comment.updated = now();
    let comment = comment.clone();
    let (edited, by) = (true, login);
    post::tell(shared, state, &Happening::Spoke { id, edited, by });
    Ok(Json(shapes::comment(state, &comment)).into_response())
}

fn open_pull(shared: &Arc<Shared>, state: &mut State, asked: &Asked<'_>) -> Answer {
    let fields = asked.fields(&["title", "body", "head", "base"])?;
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    let from = field("head");
    let Ok(head) = git::resolve(&state.repository(), &format!("refs/heads/{from}")) else {
        return Err(invalid("PullRequest", "head", "head is invalid"));
    };
    if field("base") != "main" {
        return Err(invalid("PullRequest", "base", "base is invalid"));
    }
    if field("title").is_empty() {
        return Err(invalid("PullRequest", "title", "title can't be blank"));
    }
    if state.stands_open(from) {
        let why = format!("A pull request already exists for {OWNER}:{from}.");
        return Err(invalid("PullRequest", "base", &why));
    }
    if git::is_behind(&state.repository(), &head, &state.main()) {
        let why = format!("No commits between main and {from}");
        return Err(invalid("PullRequest", "base", &why));
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
    let said = Json(shapes::pull(state, &pull, Form::Whole));
    Ok((StatusCode::CREATED, said).into_response())
}

fn set_status(state: &mut State, commit: &str, asked: &Asked<'_>) -> Result<Response, No> {
    if !state.writes(&asked.token.login) {
        return Err(no(StatusCode::NOT_FOUND, "Not Found"));
    }
    let fields = asked.fields(&["state", "context", "description", "target_url"])?;
    let field = |name: &str| fields.get(name).copied().unwrap_or_default().to_owned();
    let row = StatusRow {
        commit: commit.to_owned(),
        context: field("context"),
        state: field("state"),
        description: field("description"),
        by: asked.token.login.clone(),
        run: false,
    };
    if !["pending", "success", "error", "failure"].contains(&row.state.as_str()) {
        return Err(invalid("Status", "state", "state is not included in the list"));
    }
    if row.description.chars().count() > DESCRIPTION_CHARS {
        let why = "description is too long (maximum is 140 characters)";
        return Err(invalid("Status", "description", why));
    }
    if !git::has(&state.repository(), commit) {
        let why = format!("No commit found for SHA: {commit}");
        return Err(no(StatusCode::UNPROCESSABLE_ENTITY, &why));
    }
    let of = |other: &&StatusRow| other.commit == row.commit && other.context == row.context;
    if state.statuses.iter().filter(of).count() >= STATUSES {
        let why = "This SHA and context has reached the maximum number of statuses.";
        return Err(invalid("Status", "context", why));
    }
    state.statuses.push(row.clone());
    Ok((StatusCode::CREATED, Json(shapes::status(state, &row))).into_response())
}
