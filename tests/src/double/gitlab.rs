//! GitLab's API as far as it is used, with the refusals of the real one.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::api::{Answer, Asked, No, found, no};
use super::{Happening, NAME, New, OWNER, PullRow, Says, Shared, State, StatusRow, git, now, post};
use shapes::Form;

pub(super) mod hooks;
mod shapes;

/// More is refused.
const NOTE_CHARS: usize = 1_000_000;
/// Of each text of a status.
const STATUS_CHARS: usize = 255;
/// The usual page, and the most of one.
const PAGE: (usize, usize) = (20, 100);

pub(super) fn route(shared: &Arc<Shared>, state: &mut State, asked: &Asked<'_>) -> Answer {
    let scopes = &asked.token.scopes;
    let may = scopes.contains("api") || (asked.reads() && scopes.contains("read_api"));
    if !may {
        let why = "The request requires higher privileges than provided by the access token.";
        let no = no(StatusCode::FORBIDDEN, "").with("message", Value::Null);
        return Err(no
            .with("error", json!("insufficient_scope"))
            .with("error_description", json!(why)));
    }
    if asked.segments == ["user"] {
        return Ok(Json(shapes::user(state, &asked.token.login)).into_response());
    }
    if let ["groups", group, "members"] = asked.segments.as_slice() {
        let all = state.members(&group.replace("%2F", "/"), shapes::member);
        let all = all.ok_or_else(|| no(StatusCode::NOT_FOUND, "404 Group Not Found"))?;
        return Ok(asked.paged(all, "per_page", (PAGE.0, PAGE.1.min(state.page))));
    }
    let project = format!("{OWNER}%2F{NAME}");
    let rest = match asked.segments.as_slice() {
        ["projects", name, rest @ ..] if *name == project => rest,
        _ => return Err(no(StatusCode::NOT_FOUND, "404 Project Not Found")),
    };
    if state.permission(&asked.token.login) == "none" {
        return Err(no(StatusCode::NOT_FOUND, "404 Project Not Found"));
    }
    of_project(shared, state, asked, rest)
}

fn of_project(shared: &Arc<Shared>, state: &mut State, asked: &Asked<'_>, rest: &[&str]) -> Answer {
    let page = (PAGE.0, PAGE.1.min(state.page));
    let list = |all: Vec<Value>| asked.paged(all, "per_page", page);
    match (asked.method.as_str(), rest) {
        ("GET", ["merge_requests"]) => {
            let opened = asked.query.get("state").is_some_and(|wanted| wanted == "opened");
            let all = state.pulls.values().filter(|pull| pull.open || !opened);
            Ok(list(
                all.map(|pull| shapes::pull(state, pull, Form::Listed)).collect(),
            ))
        }
        ("POST", ["merge_requests"]) => open_pull(shared, state, asked),
        ("GET", ["merge_requests", iid]) => {
            let pull = found(state, iid)?;
            Ok(Json(shapes::pull(state, &pull, Form::Whole)).into_response())
        }
        ("GET", ["merge_requests", iid, "approvals"]) => {
            let pull = found(state, iid)?;
            Ok(Json(approvals(state, &pull)).into_response())
        }
        ("GET", ["merge_requests", iid, "versions"]) => {
            let pull = found(state, iid)?;
            Ok(list(pull.heads.iter().rev().map(shapes::version).collect()))
        }
        ("GET", ["repository", "commits", commit, "merge_requests"]) => {
            if !git::has(&state.repository(), commit) {
                return Err(no(StatusCode::NOT_FOUND, "404 Commit Not Found"));
            }
            let of = |pull: &&PullRow| {
                pull.head == *commit || pull.merged.as_ref().is_some_and(|(made, ..)| made == commit)
            };
            let all = state.pulls.values().filter(of);
            Ok(list(
                all.map(|pull| shapes::pull(state, pull, Form::Listed)).collect(),
            ))
        }
        ("GET", ["repository", "commits", commit, "statuses"]) => {
            let newest = newest(state, commit);
            Ok(list(
                newest.values().map(|row| shapes::status(state, row)).collect(),
            ))
        }
        ("POST", ["statuses", commit]) => set_status(state, commit, asked),
        ("GET", ["merge_requests", iid, "notes"]) => {
            let pull = found(state, iid)?;
            let of = state.comments.values().filter(|c| c.number == pull.number);
            let mut all = vec![shapes::system_note(state, &pull)];
            all.extend(of.map(|comment| shapes::note(state, comment)));
            Ok(list(all))
        }
        ("POST", ["merge_requests", iid, "notes"]) => {
            let pull = found(state, iid)?;
            let text = text_of(asked)?;
            if state.locked.contains(&pull.number) && !state.writes(&asked.token.login) {
                return Err(no(StatusCode::FORBIDDEN, "403 Forbidden"));
            }
            let comment = state.add_comment(shared, &asked.token.login, pull.number, &text);
            Ok((StatusCode::CREATED, Json(shapes::note(state, &comment))).into_response())
        }
        ("PUT", ["merge_requests", iid, "notes", id]) => edit_note(shared, state, asked, (iid, id)),
        ("GET", ["members", "all", id]) => {
            let id: u64 = id
                .parse()
                .map_err(|_| no(StatusCode::BAD_REQUEST, "user_id is invalid"))?;
            let login = state.people.iter().find(|(_, person)| person.id == id);
            let login = login.map(|(login, _)| login.clone());
            match login.filter(|login| state.permission(login) != "none") {
                Some(login) => Ok(Json(shapes::member(state, &login)).into_response()),
                None => Err(no(StatusCode::NOT_FOUND, "404 Not found")),
            }
        }
        _ => Err(no(StatusCode::NOT_FOUND, "404 Not Found")),
    }
}

/// Those who approve: by a push that came after nothing is taken away, as the project is set here.
fn approvals(state: &State, pull: &PullRow) -> Value {
    let mut last: BTreeMap<&str, (&Says, &str)> = BTreeMap::new();
    for review in state.reviews.iter().filter(|review| review.number == pull.number) {
        if review.says != Says::Comment && !review.dismissed {
            last.insert(&review.by, (&review.says, &review.at));
        }
    }
    let yes = last.iter().filter(|(_, (says, _))| **says == Says::Approve);
    let by: Vec<Value> = yes
        .map(|(login, (_, at))| json!({ "user": shapes::user(state, login), "approved_at": at }))
        .collect();
    json!({ "id": 900 + pull.number, "iid": pull.number, "approvals_required": 0, "approvals_left": 0, "approved_by": by })
}

fn newest<'s>(state: &'s State, commit: &str) -> BTreeMap<&'s str, &'s StatusRow> {
    let rows = state.statuses.iter().filter(|row| row.commit == commit);
    rows.map(|row| (row.context.as_str(), row)).collect()
}

fn text_of(asked: &Asked<'_>) -> Result<String, No> {
    let fields = asked.fields(&["body"])?;
    let text = fields.get("body").copied().unwrap_or_default();
    if text.is_empty() {
        return Err(no(
            StatusCode::BAD_REQUEST,
            "400 Bad request - Note can't be blank",
        ));
    }
    if text.chars().count() > NOTE_CHARS {
        return Err(no(StatusCode::BAD_REQUEST, "400 Bad request - Note is too long"));
    }
    Ok(text.to_owned())
}

fn edit_note(shared: &Arc<Shared>, state: &mut State, asked: &Asked<'_>, (iid, id): (&str, &str)) -> Answer {
    let pull = found(state, iid)?;
    let text = text_of(asked)?;
    let login = asked.token.login.as_str();
    let missing = || no(StatusCode::NOT_FOUND, "404 Note Not Found");
    let id: u64 = id.parse().map_err(|_| missing())?;
    let comment = state.comments.get_mut(&id).filter(|c| c.number == pull.number);
    let comment = comment.ok_or_else(missing)?;
    if comment.author != login {
        return Err(no(StatusCode::FORBIDDEN, "403 Forbidden"));
    }
    comment.body = text;
    comment.updated = now();
    let comment = comment.clone();
    let (edited, by) = (true, login);
    post::tell(shared, state, &Happening::Spoke { id, edited, by });
    Ok(Json(shapes::note(state, &comment)).into_response())
}

fn open_pull(shared: &Arc<Shared>, state: &mut State, asked: &Asked<'_>) -> Answer {
    let fields = asked.fields(&["title", "description", "source_branch", "target_branch"])?;
    let field = |name: &str| fields.get(name).copied().unwrap_or_default();
    let from = field("source_branch");
    let Ok(head) = git::resolve(&state.repository(), &format!("refs/heads/{from}")) else {
        let why = "Source branch does not exist";
        return Err(no(StatusCode::BAD_REQUEST, "").with("message", json!({ "validate_branches": [why] })));
    };
    if field("target_branch") != "main" || field("title").is_empty() {
        return Err(no(
            StatusCode::BAD_REQUEST,
            "title is missing, target_branch is missing",
        ));
    }
    if state.stands_open(from) {
        let why = "Another open merge request already exists for this source branch: !1";
        return Err(no(StatusCode::CONFLICT, "").with("message", json!([why])));
    }
    let new = New {
        author: &asked.token.login,
        title: field("title"),
        body: field("description"),
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

/// A status is a job of a pipeline: one that is not over moves on, and does not move to where it is.
fn set_status(state: &mut State, commit: &str, asked: &Asked<'_>) -> Result<Response, No> {
    if !state.writes(&asked.token.login) {
        return Err(no(StatusCode::FORBIDDEN, "403 Forbidden"));
    }
    let fields = asked.fields(&["state", "name", "context", "description", "target_url", "ref"])?;
    let field = |name: &str| fields.get(name).copied().unwrap_or_default().to_owned();
    let known = ["pending", "running", "success", "failed", "canceled", "skipped"];
    let wanted = field("state");
    if !known.contains(&wanted.as_str()) {
        return Err(no(StatusCode::BAD_REQUEST, "state does not have a valid value"));
    }
    if fields.values().any(|text| text.chars().count() > STATUS_CHARS) {
        let why = json!({ "description": ["is too long (maximum is 255 characters)"] });
        return Err(no(StatusCode::BAD_REQUEST, "").with("message", why));
    }
    if !git::has(&state.repository(), commit) {
        return Err(no(StatusCode::NOT_FOUND, "404 Commit Not Found"));
    }
    if !git::is_on_a_branch(&state.repository(), commit) {
        return Err(no(StatusCode::NOT_FOUND, "404 References for commit Not Found"));
    }
    let name = field("name");
    let open = |row: &&mut StatusRow| {
        row.commit == commit
            && row.context == name
            && !row.run
            && matches!(row.state.as_str(), "pending" | "running")
    };
    let last = state.statuses.iter_mut().rfind(open);
    if last.is_some_and(|row| row.state == wanted) {
        let verb = if wanted == "running" { "run" } else { "enqueue" };
        let why = format!(
            "Cannot transition status via :{verb} from :{wanted} (Reason(s): Status cannot transition via \"{verb}\")"
        );
        return Err(no(StatusCode::BAD_REQUEST, &why));
    }
    let row = StatusRow {
        commit: commit.to_owned(),
        context: name,
        state: wanted,
        description: field("description"),
        by: asked.token.login.clone(),
        run: false,
    };
    state.statuses.push(row.clone());
    Ok((StatusCode::CREATED, Json(shapes::status(state, &row))).into_response())
}
