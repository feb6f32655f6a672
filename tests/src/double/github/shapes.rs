//! What the double says of things, in the shapes of GitHub's API.

use serde_json::{Value, json};

use crate::double::{BOT, CommentRow, NAME, OWNER, PullRow, ReviewRow, Says, State, StatusRow, now};

const REPO_ID: u64 = 12;
const FORK_ID: u64 = 55;
/// What the test merge of an open pull request, or of one closed without a merge, is said to be.
const TRIAL: &str = "efefefefefefefefefefefefefefefefefefefef";

/// How much is said of a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Asked for by its number, or in a webhook.
    Whole,
    /// In a list: that has no `merged`.
    Listed,
}

pub(super) fn user(state: &State, login: &str) -> Value {
    match state.people.get(login) {
        Some(person) => json!({
            "login": login, "id": person.id, "node_id": format!("U_{}", person.id), "site_admin": false,
            "type": if login == BOT { "Bot" } else { "User" },
        }),
        None => Value::Null,
    }
}

pub(super) fn repository(state: &State) -> Value {
    let page = format!("http://{}/{OWNER}/{NAME}", state.address);
    json!({
        "id": REPO_ID, "node_id": "R_1", "name": NAME, "full_name": format!("{OWNER}/{NAME}"), "private": true,
        "owner": { "login": OWNER, "id": 3, "type": "Organization" }, "fork": false, "html_url": page,
        "clone_url": format!("{page}.git"), "default_branch": "main",
    })
}

pub(super) fn pull(state: &State, pull: &PullRow, form: Form) -> Value {
    let page = format!("http://{}/{OWNER}/{NAME}/pull/{}", state.address, pull.number);
    let merged = pull.merged.as_ref();
    let (owner, head_repo) = match &pull.fork {
        Some(fork) => (
            pull.author.as_str(),
            json!({ "id": FORK_ID, "full_name": fork, "fork": true }),
        ),
        None => (OWNER, repository(state)),
    };
    let mut said = json!({
        "id": 900 + pull.number, "node_id": format!("PR_{}", pull.number), "number": pull.number,
        "state": if pull.open { "open" } else { "closed" }, "locked": state.locked.contains(&pull.number),
        "title": pull.title, "body": if pull.body.is_empty() { Value::Null } else { json!(pull.body) },
        "draft": false, "user": user(state, &pull.author), "merged_at": merged.map(|(_, at, ..)| at),
        "merge_commit_sha": merged.map_or(TRIAL, |(commit, ..)| commit), "author_association": "CONTRIBUTOR",
        "head": {
            "label": format!("{owner}:{}", pull.from), "ref": pull.from, "sha": pull.head, "repo": head_repo,
        },
        "base": {
            "label": format!("{OWNER}:main"), "ref": "main", "sha": pull.base, "repo": repository(state),
        },
        "html_url": page, "created_at": now(), "updated_at": now(), "closed_at": merged.map(|(_, at, ..)| at),
    });
    if form == Form::Whole
        && let Some(object) = said.as_object_mut()
    {
        object.insert("merged".to_owned(), json!(merged.is_some()));
        object.insert(
            "merged_by".to_owned(),
            json!(merged.map(|(_, _, by, _)| user(state, by))),
        );
        object.insert("mergeable".to_owned(), Value::Null);
        object.insert("mergeable_state".to_owned(), json!("unknown"));
        for count in [
            "comments",
            "review_comments",
            "commits",
            "additions",
            "deletions",
            "changed_files",
        ] {
            object.insert(count.to_owned(), json!(0));
        }
    }
    said
}

pub(super) fn comment(state: &State, comment: &CommentRow) -> Value {
    let page = format!("http://{}/{OWNER}/{NAME}/pull/{}", state.address, comment.number);
    json!({
        "id": comment.id, "node_id": format!("IC_{}", comment.id), "html_url": format!("{page}#issuecomment-{}", comment.id),
        "issue_url": "", "user": user(state, &comment.author), "body": comment.body, "created_at": comment.created,
        "updated_at": comment.updated, "author_association": "MEMBER",
    })
}

pub(super) fn status(row: &StatusRow) -> Value {
    json!({
        "id": 31, "node_id": "S_1", "state": row.state, "context": row.context, "description": row.description,
        "target_url": null, "url": "", "avatar_url": null, "created_at": now(), "updated_at": now(),
    })
}

/// A run of Actions.
pub(super) fn run(row: &StatusRow) -> Value {
    let (status, conclusion) = match row.state.as_str() {
        "pending" => ("in_progress", Value::Null),
        "error" => ("completed", json!("timed_out")),
        other => ("completed", json!(other)),
    };
    json!({
        "id": 41, "name": row.context, "head_sha": row.commit, "status": status, "conclusion": conclusion,
        "app": { "id": 15368, "slug": "github-actions" }, "output": { "title": null, "summary": null },
    })
}

pub(super) fn review(state: &State, row: &ReviewRow) -> Value {
    let says = match row.says {
        _ if row.dismissed => "DISMISSED",
        Says::Approve => "APPROVED",
        Says::Refuse => "CHANGES_REQUESTED",
        Says::Comment => "COMMENTED",
    };
    json!({
        "id": 640, "node_id": "PRR_1", "user": user(state, &row.by), "body": "", "state": says, "commit_id": row.commit,
        "submitted_at": now(), "author_association": "MEMBER", "html_url": "", "pull_request_url": "",
    })
}
