//! GitLab's webhooks: its events and headers.

use serde_json::{Value, json};
use uuid::Uuid;

use super::shapes;
use crate::double::{Done, Happening, Hook, Post, PullRow, Says, State, post};

/// What is sent of something that happened.
pub(in crate::double) fn posts(state: &State, happening: &Happening<'_>, hook: &Hook) -> Vec<Post> {
    let zeros = "0".repeat(40);
    match happening {
        Happening::Pushed {
            name,
            before,
            after,
            by,
        } => vec![sent(hook, PUSH, &push(state, (name, before, after), by))],
        Happening::Deleted { branch, before, by } => {
            let name = format!("refs/heads/{branch}");
            vec![sent(hook, PUSH, &push(state, (&name, before, &zeros), by))]
        }
        Happening::Pull { number, done, by } => {
            let Some(row) = state.pulls.get(number) else {
                return Vec::new();
            };
            let said = |action: &str| {
                sent(
                    hook,
                    MERGE_REQUEST,
                    &merge_request(state, row, (action, done), by),
                )
            };
            match done {
                Done::Opened => vec![said("open")],
                Done::Moved(_) => vec![said("update")],
                Done::Merged => vec![said("merge")],
                Done::Reviewed(Says::Approve) => vec![said("approval"), said("approved")],
                Done::Reviewed(Says::Refuse) => vec![said("unapproval")],
                Done::Reviewed(Says::Comment) => Vec::new(),
            }
        }
        Happening::Spoke { id, edited, by } => {
            let Some(row) = state.comments.get(id) else {
                return Vec::new();
            };
            let body = json!({
                "object_kind": "note", "event_type": "note", "user": shapes::user(state, by),
                "project_id": shapes::PROJECT_ID, "project": shapes::project(state),
                "object_attributes": {
                    "id": id, "note": row.body, "noteable_type": "MergeRequest", "noteable_id": 900 + row.number,
                    "system": false, "action": if *edited { "update" } else { "create" }, "url": "",
                },
                "merge_request": { "id": 900 + row.number, "iid": row.number, "state": "opened", "target_branch": "main" },
            });
            vec![sent(hook, NOTE, &body)]
        }
    }
}

/// What switches an event on, and its name.
const PUSH: (&str, &str) = ("push_events", "Push Hook");
const MERGE_REQUEST: (&str, &str) = ("merge_requests_events", "Merge Request Hook");
const NOTE: (&str, &str) = ("note_events", "Note Hook");

fn push(state: &State, (name, before, after): (&str, &str, &str), by: &str) -> Value {
    let gone = after.bytes().all(|b| b == b'0');
    json!({
        "object_kind": "push", "event_name": "push", "ref": name, "ref_protected": true, "before": before, "after": after,
        "checkout_sha": if gone { Value::Null } else { json!(after) }, "user_username": by,
        "project_id": shapes::PROJECT_ID, "project": shapes::project(state), "commits": [], "total_commits_count": 1,
        "repository": { "name": "fleet", "url": "" },
    })
}

fn merge_request(state: &State, row: &PullRow, (action, done): (&str, &Done<'_>), by: &str) -> Value {
    let mut body = json!({
        "object_kind": "merge_request", "event_type": "merge_request", "user": shapes::user(state, by),
        "project": shapes::project(state), "labels": [], "changes": {}, "assignees": [], "reviewers": [],
        "object_attributes": {
            "id": 900 + row.number, "iid": row.number, "title": row.title, "state": shapes::state_of(row), "draft": false,
            "action": action, "source_branch": row.from, "target_branch": "main",
            "target_project_id": shapes::PROJECT_ID, "merge_commit_sha": shapes::made(row.merged.as_ref()).0,
            "last_commit": { "id": row.head, "message": "" },
        },
    });
    if let (Done::Moved(was), Some(attributes)) = (done, body["object_attributes"].as_object_mut()) {
        attributes.insert("oldrev".to_owned(), json!(was));
    }
    body
}

/// A webhook: with a signing token it is signed, else the secret goes along in clear.
fn sent(hook: &Hook, (switch, event): (&'static str, &str), body: &Value) -> Post {
    let text = body.to_string();
    let id = Uuid::new_v4().to_string();
    let mut headers = vec![
        ("X-Gitlab-Event", event.to_owned()),
        ("X-Gitlab-Event-UUID", Uuid::new_v4().to_string()),
        ("X-Gitlab-Webhook-UUID", Uuid::new_v4().to_string()),
        ("Idempotency-Key", id.clone()),
        ("User-Agent", "GitLab/18.6.0".to_owned()),
    ];
    match post::standard(&hook.secret, &id, &text) {
        Some((at, signature)) => headers.extend([
            ("webhook-id", id),
            ("webhook-timestamp", at),
            ("webhook-signature", signature),
        ]),
        None => headers.push(("X-Gitlab-Token", hook.secret.clone())),
    }
    let headers = headers.into_iter();
    Post {
        switch,
        headers: headers.map(|(name, value)| (name.to_owned(), value)).collect(),
        text,
    }
}
