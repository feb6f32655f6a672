//! The double's webhooks: the events and headers of Forgejo, sent at most once and never again.

use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use uuid::Uuid;

use super::{Posting, Shared, State, shapes};

/// A push, or that a branch is new.
pub(super) fn push(shared: &Arc<Shared>, state: &mut State, name: &str, before: &str, after: &str, by: &str) {
    let body = json!({
        "ref": name, "before": before, "after": after, "compare_url": "", "commits": [], "total_commits": 1,
        "head_commit": null, "repository": shapes::repository(state), "pusher": shapes::user(state, by),
        "sender": shapes::user(state, by),
    });
    if before.bytes().all(|b| b == b'0') {
        let created = json!({
            "sha": after, "ref": name, "ref_type": "branch", "repository": shapes::repository(state),
            "sender": shapes::user(state, by),
        });
        post(shared, state, ("create", "create", "create"), &created);
    }
    post(shared, state, ("push", "push", "push"), &body);
}

/// A branch is gone: that sends no push.
pub(super) fn deleted(shared: &Arc<Shared>, state: &mut State, branch: &str, by: &str) {
    let body = json!({
        "ref": format!("refs/heads/{branch}"), "ref_type": "branch", "pusher_type": "user",
        "repository": shapes::repository(state), "sender": shapes::user(state, by),
    });
    post(shared, state, ("delete", "delete", "delete"), &body);
}

/// Something of a pull request; `kind` is the exact name of the event.
pub(super) fn pull(shared: &Arc<Shared>, state: &mut State, number: u64, action: &str, kind: &str, by: &str) {
    let Some(row) = state.pulls.get(&number).cloned() else {
        return;
    };
    let body = json!({
        "action": action, "number": number, "pull_request": shapes::pull(state, &row), "requested_reviewer": null,
        "repository": shapes::repository(state), "sender": shapes::user(state, by), "commit_id": "", "review": null,
    });
    let (switch, event) = match kind {
        "pull_request" => ("pull_request_only", "pull_request"),
        "pull_request_review_approved" => ("pull_request_review", "pull_request_approved"),
        "pull_request_review_rejected" => ("pull_request_review", "pull_request_rejected"),
        "pull_request_review_comment" => ("pull_request_review", "pull_request_comment"),
        other => (other, "pull_request"),
    };
    post(shared, state, (switch, event, kind), &body);
}

/// A comment; its exact name is what a review's collapsed one is.
pub(super) fn comment(shared: &Arc<Shared>, state: &mut State, id: u64, action: &str, by: &str) {
    let Some(row) = state.comments.get(&id).cloned() else {
        return;
    };
    let body = json!({
        "action": action,
        "issue": { "id": 900 + row.number, "number": row.number, "state": "open", "pull_request": { "merged": false } },
        "comment": shapes::comment(state, &row), "repository": shapes::repository(state),
        "sender": shapes::user(state, by), "is_pull": true,
    });
    let names = ("pull_request_comment", "issue_comment", "pull_request_comment");
    post(shared, state, names, &body);
}

/// Sends to every hook that has switched the event on: (switch, collapsed name, exact name).
fn post(shared: &Arc<Shared>, state: &mut State, (switch, event, kind): (&str, &str, &str), body: &Value) {
    let times = match state.posting {
        Posting::Once => 1,
        Posting::Lost => 0,
        Posting::Twice => 2,
    };
    // Indented with two spaces, and signed so.
    let text = serde_json::to_string_pretty(body).unwrap_or_default();
    for hook in state.hooks.clone() {
        if !hook.events.contains(switch) {
            continue;
        }
        let delivery = Uuid::new_v4().to_string();
        for _ in 0..times {
            state.posted += 1;
            let Ok(mac) = Hmac::<Sha256>::new_from_slice(hook.secret.as_bytes()) else {
                continue;
            };
            let tag =
                data_encoding::HEXLOWER.encode(&mac.chain_update(text.as_bytes()).finalize().into_bytes());
            let mut request = shared
                .client
                .post(&hook.url)
                .header("Content-Type", "application/json");
            for family in ["X-Forgejo", "X-Gitea", "X-Gogs", "X-GitHub"] {
                request = request
                    .header(format!("{family}-Event"), event)
                    .header(format!("{family}-Event-Type"), kind)
                    .header(format!("{family}-Delivery"), &delivery);
            }
            for family in ["X-Forgejo", "X-Gitea", "X-Gogs"] {
                request = request.header(format!("{family}-Signature"), &tag);
            }
            let request = request
                .header("X-Hub-Signature-256", format!("sha256={tag}"))
                .body(text.clone());
            // Marked as delivered before it goes out: whatever comes of it, it is never sent again.
            shared.runtime.spawn(async move { request.send().await });
        }
    }
}
