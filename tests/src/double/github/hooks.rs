//! GitHub's webhooks: its events and headers.

use serde_json::{Value, json};
use uuid::Uuid;

use super::shapes::{self, Form};
use crate::double::{Done, Happening, Hook, Post, Says, State, post};

/// What is sent of something that happened.
pub(in crate::double) fn posts(state: &State, happening: &Happening<'_>, hook: &Hook) -> Vec<Post> {
    let sent = |event, body: Value| sent(hook, event, &body);
    let repository = || shapes::repository(state);
    match happening {
        Happening::Pushed {
            name,
            before,
            after,
            by,
        } => vec![sent("push", push(state, (name, before, after), by))],
        // That sends both.
        Happening::Deleted { branch, before, by } => {
            let name = format!("refs/heads/{branch}");
            let zeros = "0".repeat(40);
            let deleted = json!({
                "ref": branch, "ref_type": "branch", "pusher_type": "user", "repository": repository(),
                "sender": shapes::user(state, by),
            });
            let pushed = push(state, (&name, before, &zeros), by);
            vec![sent("push", pushed), sent("delete", deleted)]
        }
        Happening::Pull { number, done, by } => {
            let Some(row) = state.pulls.get(number) else {
                return Vec::new();
            };
            let sender = shapes::user(state, by);
            if let Done::Reviewed(says) = done {
                // The state is in lower case here, and the pull request in its short form.
                let said = match says {
                    Says::Approve => "approved",
                    Says::Refuse => "changes_requested",
                    Says::Comment => "commented",
                };
                let last = state.reviews.iter().rfind(|review| review.number == *number);
                let Some(mut review) = last.map(|review| shapes::review(state, review)) else {
                    return Vec::new();
                };
                review["state"] = json!(said);
                let body = json!({
                    "action": "submitted", "review": review, "pull_request": shapes::pull(state, row, Form::Listed),
                    "repository": repository(), "sender": sender,
                });
                return vec![sent("pull_request_review", body)];
            }
            let mut body = json!({
                "action": match done {
                    Done::Opened => "opened",
                    Done::Moved(_) => "synchronize",
                    _ => "closed",
                },
                "number": number, "pull_request": shapes::pull(state, row, Form::Whole), "repository": repository(),
                "sender": sender,
            });
            if let (Done::Moved(was), Some(object)) = (done, body.as_object_mut()) {
                object.insert("before".to_owned(), json!(was));
                object.insert("after".to_owned(), json!(row.head));
            }
            vec![sent("pull_request", body)]
        }
        Happening::Spoke { id, edited, by } => {
            let Some(row) = state.comments.get(id) else {
                return Vec::new();
            };
            let Some(pull) = state.pulls.get(&row.number) else {
                return Vec::new();
            };
            let mut body = json!({
                "action": if *edited { "edited" } else { "created" }, "issue": shapes::issue(state, pull),
                "comment": shapes::comment(state, row), "repository": repository(), "sender": shapes::user(state, by),
            });
            if *edited {
                body["changes"] = json!({});
            }
            vec![sent("issue_comment", body)]
        }
    }
}

fn push(state: &State, (name, before, after): (&str, &str, &str), by: &str) -> Value {
    let zero = |id: &str| id.bytes().all(|b| b == b'0');
    json!({
        "ref": name, "before": before, "after": after, "created": zero(before), "deleted": zero(after), "forced": false,
        "base_ref": null, "compare": format!("http://{}/compare", state.address), "commits": [], "head_commit": null, "repository": shapes::repository(state),
        "pusher": { "name": by, "email": format!("{by}@acme.test") }, "sender": shapes::user(state, by),
    })
}

/// A webhook, signed over its bytes.
fn sent(hook: &Hook, event: &'static str, body: &Value) -> Post {
    let text = body.to_string();
    let tag = post::mac(hook.secret.as_bytes(), text.as_bytes());
    let headers = [
        ("X-GitHub-Event", event.to_owned()),
        ("X-GitHub-Delivery", Uuid::new_v4().to_string()),
        ("X-GitHub-Hook-ID", "88".to_owned()),
        ("X-Hub-Signature-256", format!("sha256={tag}")),
        ("User-Agent", "GitHub-Hookshot/044aadd".to_owned()),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value));
    Post {
        switch: event,
        headers: headers.into(),
        text,
    }
}
