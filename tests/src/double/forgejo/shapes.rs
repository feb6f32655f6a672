//! What the double says of things, in the shapes of Forgejo's API.

use serde_json::{Value, json};

use crate::double::{CommentRow, NAME, OWNER, PullRow, ReviewRow, Says, State, StatusRow, now};

const REPO_ID: i64 = 12;
const FORK_ID: i64 = 55;

pub(super) fn user(state: &State, login: &str) -> Value {
    let id = state
        .people
        .get(login)
        .map_or(-1, |person| i64::try_from(person.id).unwrap_or(-1));
    json!({
        "id": id, "login": login, "login_name": "", "full_name": "", "email": format!("{login}@acme.test"),
        "avatar_url": format!("http://{}/avatars/{id}", state.address), "username": login,
    })
}

pub(super) fn repository(state: &State) -> Value {
    let page = format!("http://{}/{OWNER}/{NAME}", state.address);
    json!({
        "id": REPO_ID, "owner": { "id": 3, "login": OWNER, "username": OWNER }, "name": NAME,
        "full_name": format!("{OWNER}/{NAME}"), "private": true, "fork": false, "html_url": page,
        "clone_url": format!("{page}.git"), "default_branch": "main", "archived": false,
    })
}

pub(super) fn pull(state: &State, pull: &PullRow) -> Value {
    let base = state.main();
    let page = format!("http://{}/{OWNER}/{NAME}/pulls/{}", state.address, pull.number);
    let merged = pull.merged.as_ref();
    let head_repo = match &pull.fork {
        Some(fork) => json!({ "id": FORK_ID, "full_name": fork, "fork": true }),
        None => self::repository(state),
    };
    json!({
        "id": 900 + pull.number, "number": pull.number, "url": page, "html_url": page,
        "user": user(state, &pull.author), "title": pull.title, "body": pull.body,
        "state": if pull.open { "open" } else { "closed" }, "draft": pull.title.starts_with("WIP:"),
        "is_locked": state.locked.contains(&pull.number), "comments": 0, "mergeable": true,
        "merged": merged.is_some(), "merged_at": merged.map(|(_, at, ..)| at),
        "merge_commit_sha": merged.map(|(commit, ..)| commit), "merged_by": merged.map(|(_, _, by, _)| user(state, by)),
        "requested_reviewers": [], "requested_reviewers_teams": [],
        "base": { "label": "main", "ref": "main", "sha": base, "repo_id": REPO_ID, "repo": self::repository(state) },
        "head": {
            "label": pull.from, "ref": pull.from, "sha": pull.head,
            "repo_id": if pull.fork.is_some() { FORK_ID } else { REPO_ID }, "repo": head_repo,
        },
        "merge_base": pull.fork_point, "closed_at": merged.map(|(_, at, ..)| at),
    })
}

pub(super) fn comment(state: &State, comment: &CommentRow) -> Value {
    let page = format!("http://{}/{OWNER}/{NAME}/pulls/{}", state.address, comment.number);
    json!({
        "id": comment.id, "html_url": format!("{page}#issuecomment-{}", comment.id), "pull_request_url": page,
        "issue_url": "", "user": user(state, &comment.author), "original_author": "", "original_author_id": 0,
        "body": comment.body, "assets": [], "created_at": comment.created, "updated_at": comment.updated,
    })
}

/// The item's state is in the field `status`.
pub(super) fn status(state: &State, row: &StatusRow, id: usize, by: &str) -> Value {
    json!({
        "id": id, "status": row.state, "context": row.context, "description": row.description, "target_url": "",
        "url": "", "creator": user(state, by), "created_at": now(), "updated_at": now(),
    })
}

pub(super) fn review(state: &State, pull: &PullRow, row: &ReviewRow) -> Value {
    let says = match row.says {
        Says::Approve => "APPROVED",
        Says::Refuse => "REQUEST_CHANGES",
        Says::Comment => "COMMENT",
    };
    json!({
        "id": 640, "user": user(state, &row.by), "team": null, "state": says, "body": "", "commit_id": row.commit,
        "stale": row.commit != pull.head, "official": row.official, "dismissed": row.dismissed, "comments_count": 0,
        "submitted_at": now(), "updated_at": now(), "html_url": "", "pull_request_url": "",
    })
}
