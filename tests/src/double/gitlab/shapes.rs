//! What the double says of things, in the shapes of GitLab's API.

use serde_json::{Value, json};

use crate::double::{CommentRow, Merged, NAME, OWNER, PullRow, State, StatusRow, Way, now};

pub(super) const PROJECT_ID: u64 = 12;
const FORK_ID: u64 = 55;

/// How much is said of a merge request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Asked for by its number.
    Whole,
    /// In a list: that has no `diff_refs`.
    Listed,
}

pub(super) fn user(state: &State, login: &str) -> Value {
    match state.people.get(login) {
        Some(person) => json!({
            "id": person.id, "username": login, "name": login, "state": "active", "avatar_url": null, "web_url": "",
        }),
        None => Value::Null,
    }
}

pub(super) fn member(state: &State, login: &str) -> Value {
    let mut said = user(state, login);
    let level = match state.permission(login) {
        "admin" => 40,
        "write" => 30,
        _ => 20,
    };
    if let Some(object) = said.as_object_mut() {
        object.insert("access_level".to_owned(), json!(level));
        object.insert("membership_state".to_owned(), json!("active"));
        object.insert("expires_at".to_owned(), Value::Null);
    }
    said
}

pub(super) fn project(state: &State) -> Value {
    let page = format!("http://{}/{OWNER}/{NAME}", state.address);
    json!({
        "id": PROJECT_ID, "name": NAME, "path_with_namespace": format!("{OWNER}/{NAME}"), "default_branch": "main",
        "web_url": page, "git_http_url": format!("{page}.git"), "visibility_level": 0,
    })
}

/// The commits that a merge made: none of its own where the branch was fast-forwarded.
pub(super) fn made(merged: Option<&Merged>) -> (Value, Value) {
    match merged {
        Some((commit, _, _, Way::Merge)) => (json!(commit), Value::Null),
        Some((commit, _, _, Way::Squash)) => (Value::Null, json!(commit)),
        _ => (Value::Null, Value::Null),
    }
}

pub(super) fn state_of(pull: &PullRow) -> &'static str {
    match (pull.open, pull.merged.is_some()) {
        (true, _) => "opened",
        (false, true) => "merged",
        (false, false) => "closed",
    }
}

pub(super) fn pull(state: &State, pull: &PullRow, form: Form) -> Value {
    let merged = pull.merged.as_ref();
    let (merge_commit, squash_commit) = made(merged);
    let mut said = json!({
        "id": 900 + pull.number, "iid": pull.number, "project_id": PROJECT_ID, "title": pull.title,
        "description": pull.body, "state": state_of(pull), "draft": false, "author": user(state, &pull.author),
        "source_branch": pull.from, "target_branch": "main",
        "source_project_id": if pull.fork.is_some() { FORK_ID } else { PROJECT_ID }, "target_project_id": PROJECT_ID,
        "sha": pull.head, "merge_commit_sha": merge_commit, "squash_commit_sha": squash_commit,
        "merged_at": merged.map(|(_, at, ..)| at), "merge_user": merged.map(|(_, _, by, _)| user(state, by)),
        "detailed_merge_status": "checking", "discussion_locked": state.locked.contains(&pull.number),
        "created_at": now(), "updated_at": now(), "web_url": "",
    });
    if form == Form::Whole
        && let Some(object) = said.as_object_mut()
    {
        let refs = json!({ "base_sha": pull.fork_point, "head_sha": pull.head, "start_sha": pull.base });
        object.insert("diff_refs".to_owned(), refs);
        object.insert("changes_count".to_owned(), json!("1"));
    }
    said
}

/// A head, and since when it is.
pub(super) fn version((head, since): &(String, String)) -> Value {
    json!({
        "id": 110, "head_commit_sha": head, "base_commit_sha": head, "start_commit_sha": head, "created_at": since,
        "state": "collected", "real_size": "1",
    })
}

pub(super) fn note(state: &State, comment: &CommentRow) -> Value {
    json!({
        "id": comment.id, "type": null, "body": comment.body, "author": user(state, &comment.author), "system": false,
        "noteable_id": 900 + comment.number, "noteable_type": "MergeRequest", "noteable_iid": comment.number,
        "created_at": comment.created, "updated_at": comment.updated, "resolvable": false, "internal": false,
    })
}

/// What the forge notes down by itself, in the name of whoever did it; its words are nobody's.
pub(super) fn system_note(state: &State, pull: &PullRow) -> Value {
    json!({
        "id": pull.number, "type": null, "body": "/plans go", "author": user(state, "ravi"), "system": true,
        "noteable_type": "MergeRequest", "noteable_iid": pull.number, "created_at": now(), "updated_at": now(),
    })
}

pub(super) fn status(state: &State, row: &StatusRow) -> Value {
    // What others' CIs say in the words of the other forges.
    let said = match row.state.as_str() {
        "failure" | "error" => "failed",
        other => other,
    };
    json!({
        "id": 93, "sha": row.commit, "ref": "main", "name": row.context, "status": said, "description": row.description,
        "target_url": null, "allow_failure": false, "created_at": now(), "author": user(state, &row.by),
    })
}
