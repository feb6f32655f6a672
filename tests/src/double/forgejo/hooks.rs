//! Forgejo's webhooks: its events and headers.

use serde_json::{Value, json};
use uuid::Uuid;

use super::shapes;
use crate::double::{Done, Happening, Hook, Post, Says, State, post};

/// What is sent of something that happened.
pub(in crate::double) fn posts(state: &State, happening: &Happening<'_>, hook: &Hook) -> Vec<Post> {
    let sent = |(switch, event, kind), body: Value| sent(hook, (switch, event, kind), &body);
    match happening {
        Happening::Pushed {
            name,
            before,
            after,
            by,
        } => {
            let mut posts = Vec::new();
            let (repository, by) = (shapes::repository(state), shapes::user(state, by));
            if before.bytes().all(|b| b == b'0') {
                let created = json!({
                    "sha": after, "ref": name, "ref_type": "branch", "repository": repository, "sender": by,
                });
                posts.push(sent(("create", "create", "create"), created));
            }
            let body = json!({
                "ref": name, "before": before, "after": after, "compare_url": "", "commits": [], "total_commits": 1,
                "head_commit": null, "repository": repository, "pusher": by, "sender": by,
            });
            posts.push(sent(("push", "push", "push"), body));
            posts
        }
        // That sends no push.
        Happening::Deleted { branch, by, .. } => {
            let body = json!({
                "ref": format!("refs/heads/{branch}"), "ref_type": "branch", "pusher_type": "user",
                "repository": shapes::repository(state), "sender": shapes::user(state, by),
            });
            vec![sent(("delete", "delete", "delete"), body)]
        }
        Happening::Pull { number, done, by } => {
            let Some(row) = state.pulls.get(number) else {
                return Vec::new();
            };
            let (action, names) = match done {
                Done::Opened => ("opened", ("pull_request_only", "pull_request", "pull_request")),
                Done::Merged => ("closed", ("pull_request_only", "pull_request", "pull_request")),
                Done::Moved(_) => (
                    "synchronized",
                    ("pull_request_sync", "pull_request", "pull_request_sync"),
                ),
                Done::Reviewed(says) => ("reviewed", of_review(*says)),
            };
            let body = json!({
                "action": action, "number": number, "pull_request": shapes::pull(state, row),
                "requested_reviewer": null, "repository": shapes::repository(state),
                "sender": shapes::user(state, by), "commit_id": "", "review": null,
            });
            vec![sent(names, body)]
        }
        // Its exact name is what a review's collapsed one is.
        Happening::Spoke { id, edited, by } => {
            let Some(row) = state.comments.get(id) else {
                return Vec::new();
            };
            let body = json!({
                "action": if *edited { "edited" } else { "created" },
                "issue": { "id": 900 + row.number, "number": row.number, "state": "open", "pull_request": { "merged": false } },
                "comment": shapes::comment(state, row), "repository": shapes::repository(state),
                "sender": shapes::user(state, by), "is_pull": true,
            });
            let names = ("pull_request_comment", "issue_comment", "pull_request_comment");
            vec![sent(names, body)]
        }
    }
}

fn of_review(says: Says) -> (&'static str, &'static str, &'static str) {
    match says {
        Says::Approve => (
            "pull_request_review",
            "pull_request_approved",
            "pull_request_review_approved",
        ),
        Says::Refuse => (
            "pull_request_review",
            "pull_request_rejected",
            "pull_request_review_rejected",
        ),
        Says::Comment => (
            "pull_request_review",
            "pull_request_comment",
            "pull_request_review_comment",
        ),
    }
}

/// A webhook that its switch (first), collapsed name and exact name are of.
fn sent(hook: &Hook, (switch, event, kind): (&'static str, &str, &str), body: &Value) -> Post {
    // Indented with two spaces, and signed so.
    let text = serde_json::to_string_pretty(body).unwrap_or_default();
    let tag = post::mac(hook.secret.as_bytes(), text.as_bytes());
    let delivery = Uuid::new_v4().to_string();
    let mut headers = Vec::new();
    for family in ["X-Forgejo", "X-Gitea", "X-Gogs", "X-GitHub"] {
        headers.push((format!("{family}-Event"), event.to_owned()));
        headers.push((format!("{family}-Event-Type"), kind.to_owned()));
        headers.push((format!("{family}-Delivery"), delivery.clone()));
    }
    for family in ["X-Forgejo", "X-Gitea", "X-Gogs"] {
        headers.push((format!("{family}-Signature"), tag.clone()));
    }
    headers.push(("X-Hub-Signature-256".to_owned(), format!("sha256={tag}")));
    Post {
        switch,
        headers,
        text,
    }
}
