//! What the double says of things, in the shapes of GitHub's API.

use serde_json::{Value, json};

use super::addresses;
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

/// Puts more beside what is said.
fn join(said: &mut Value, more: Value) {
    if let (Value::Object(said), Value::Object(more)) = (said, more) {
        said.extend(more);
    }
}

/// Where its API is.
fn api(state: &State) -> String {
    format!("http://{}/api/v3", state.address)
}

/// Where the repository is in it.
pub(super) fn repo_api(state: &State) -> String {
    format!("{}/repos/{OWNER}/{NAME}", api(state))
}

fn account(state: &State, (login, id, kind): (&str, u64, &str)) -> Value {
    let page = format!("http://{}/{login}", state.address);
    let mut said = json!({
        "login": login, "id": id, "node_id": format!("U_{id}"), "avatar_url": format!("{page}.png"), "gravatar_id": "",
        "html_url": page, "type": kind, "site_admin": false,
    });
    let base = format!("{}/users/{login}", api(state));
    addresses::put(&mut said, &base, addresses::OF_USER);
    said
}

pub(super) fn user(state: &State, login: &str) -> Value {
    let kind = if login == BOT { "Bot" } else { "User" };
    match state.people.get(login) {
        Some(person) => account(state, (login, person.id, kind)),
        None => Value::Null,
    }
}

pub(super) fn repository(state: &State) -> Value {
    let owner = account(state, (OWNER, 3, "Organization"));
    named(state, (OWNER, REPO_ID, owner))
}

/// A repository of that owner, with that number.
fn named(state: &State, (login, id, owner): (&str, u64, Value)) -> Value {
    let host = state.address;
    let page = format!("http://{host}/{login}/{NAME}");
    let mut said = json!({
        "id": id, "node_id": format!("R_{id}"), "name": NAME, "full_name": format!("{login}/{NAME}"), "private": true,
        "owner": owner, "html_url": page, "description": null, "fork": id == FORK_ID, "created_at": now(),
        "updated_at": now(), "pushed_at": now(), "git_url": format!("git://{host}/{login}/{NAME}.git"),
        "ssh_url": format!("git@{host}:{login}/{NAME}.git"), "clone_url": format!("{page}.git"), "svn_url": page,
    });
    let counts = json!({
        "homepage": null, "size": 8, "stargazers_count": 0, "watchers_count": 0, "language": null, "has_issues": true,
        "has_projects": false, "has_downloads": true, "has_wiki": false, "has_pages": false, "has_discussions": false,
        "forks_count": 0, "mirror_url": null, "archived": false, "disabled": false, "open_issues_count": 0,
        "license": null, "allow_forking": true, "is_template": false, "web_commit_signoff_required": false,
        "topics": [], "visibility": "private", "forks": 0, "open_issues": 0, "watchers": 0, "default_branch": "main",
        "custom_properties": {},
    });
    join(&mut said, counts);
    let base = format!("{}/repos/{login}/{NAME}", api(state));
    addresses::put(&mut said, &base, addresses::OF_REPOSITORY);
    said
}

/// The address of a pull request's part.
fn link(address: &str) -> Value {
    json!({ "href": address })
}

pub(super) fn pull(state: &State, pull: &PullRow, form: Form) -> Value {
    let page = format!("http://{}/{OWNER}/{NAME}/pull/{}", state.address, pull.number);
    let merged = pull.merged.as_ref();
    let (owner, head_repo) = match &pull.fork {
        Some(_) => {
            let owner = user(state, &pull.author);
            let repo = named(state, (&pull.author, FORK_ID, owner.clone()));
            (owner, repo)
        }
        None => (account(state, (OWNER, 3, "Organization")), repository(state)),
    };
    let api = repo_api(state);
    let (own, issue) = (
        format!("{api}/pulls/{}", pull.number),
        format!("{api}/issues/{}", pull.number),
    );
    let statuses = format!("{api}/statuses/{}", pull.head);
    let side = |owner: &Value, name: &str, sha: &str, repo: Value| {
        let login = owner["login"].as_str().unwrap_or_default();
        json!({ "label": format!("{login}:{name}"), "ref": name, "sha": sha, "user": owner, "repo": repo })
    };
    let base = side(
        &account(state, (OWNER, 3, "Organization")),
        "main",
        &pull.base,
        repository(state),
    );
    let mut said = json!({
        "url": own, "id": 900 + pull.number, "node_id": format!("PR_{}", pull.number), "html_url": page,
        "diff_url": format!("{page}.diff"), "patch_url": format!("{page}.patch"), "issue_url": issue,
        "number": pull.number, "state": if pull.open { "open" } else { "closed" },
        "locked": state.locked.contains(&pull.number), "title": pull.title, "user": user(state, &pull.author),
        "body": if pull.body.is_empty() { Value::Null } else { json!(pull.body) }, "created_at": now(),
        "updated_at": now(), "closed_at": merged.map(|(_, at, ..)| at), "merged_at": merged.map(|(_, at, ..)| at),
        "merge_commit_sha": merged.map_or(TRIAL, |(commit, ..)| commit), "head": side(&owner, &pull.from, &pull.head, head_repo),
        "base": base,
    });
    let beside = json!({
        "assignee": null, "assignees": [], "requested_reviewers": [], "requested_teams": [], "labels": [], "milestone": null, "draft": false,
        "commits_url": format!("{own}/commits"), "review_comments_url": format!("{own}/comments"),
        "review_comment_url": format!("{api}/pulls/comments{{/number}}"), "comments_url": format!("{issue}/comments"),
        "statuses_url": statuses,
        "_links": {
            "self": link(&own), "html": link(&page), "issue": link(&issue), "comments": link(&format!("{issue}/comments")),
            "review_comments": link(&format!("{own}/comments")),
            "review_comment": link(&format!("{api}/pulls/comments{{/number}}")),
            "commits": link(&format!("{own}/commits")), "statuses": link(&statuses),
        },
        "author_association": "CONTRIBUTOR", "auto_merge": null, "active_lock_reason": null,
    });
    join(&mut said, beside);
    if form == Form::Whole {
        let merged_by = merged.map(|(_, _, by, _)| user(state, by));
        let more = json!({
            "merged": merged.is_some(), "mergeable": null, "rebaseable": null, "mergeable_state": "unknown",
            "merged_by": merged_by, "comments": 0, "review_comments": 0, "maintainer_can_modify": false, "commits": 1,
            "additions": 1, "deletions": 1, "changed_files": 1,
        });
        join(&mut said, more);
    }
    said
}

/// A pull request as an issue, which webhooks of comments call it.
pub(super) fn issue(state: &State, pull: &PullRow) -> Value {
    let page = format!("http://{}/{OWNER}/{NAME}/pull/{}", state.address, pull.number);
    let api = repo_api(state);
    let own = format!("{api}/issues/{}", pull.number);
    let closed = pull.merged.as_ref().map(|(_, at, ..)| at);
    json!({
        "url": own, "repository_url": api, "labels_url": format!("{own}/labels{{/name}}"),
        "comments_url": format!("{own}/comments"), "events_url": format!("{own}/events"), "html_url": page,
        "id": 900 + pull.number, "node_id": format!("PR_{}", pull.number), "number": pull.number, "title": pull.title,
        "user": user(state, &pull.author), "labels": [], "state": if pull.open { "open" } else { "closed" },
        "locked": state.locked.contains(&pull.number), "assignee": null, "assignees": [], "milestone": null, "comments": 1,
        "created_at": now(), "updated_at": now(), "closed_at": closed, "author_association": "CONTRIBUTOR",
        "active_lock_reason": null, "draft": false,
        "pull_request": {
            "url": format!("{api}/pulls/{}", pull.number), "html_url": page, "diff_url": format!("{page}.diff"),
            "patch_url": format!("{page}.patch"), "merged_at": closed,
        },
        "body": null, "reactions": reactions(&own), "timeline_url": format!("{own}/timeline"),
        "performed_via_github_app": null, "state_reason": null,
    })
}

fn reactions(of: &str) -> Value {
    json!({
        "url": format!("{of}/reactions"), "total_count": 0, "+1": 0, "-1": 0, "laugh": 0, "hooray": 0, "confused": 0,
        "heart": 0, "rocket": 0, "eyes": 0,
    })
}

pub(super) fn comment(state: &State, comment: &CommentRow) -> Value {
    let page = format!("http://{}/{OWNER}/{NAME}/pull/{}", state.address, comment.number);
    let api = repo_api(state);
    let own = format!("{api}/issues/comments/{}", comment.id);
    json!({
        "url": own, "html_url": format!("{page}#issuecomment-{}", comment.id),
        "issue_url": format!("{api}/issues/{}", comment.number), "id": comment.id,
        "node_id": format!("IC_{}", comment.id), "user": user(state, &comment.author), "created_at": comment.created,
        "updated_at": comment.updated, "author_association": "MEMBER", "body": comment.body,
        "reactions": reactions(&own), "performed_via_github_app": null,
    })
}

pub(super) fn status(state: &State, row: &StatusRow) -> Value {
    json!({
        "url": format!("{}/statuses/{}", repo_api(state), row.commit), "avatar_url": null, "id": 31, "node_id": "S_1",
        "state": row.state, "description": row.description, "target_url": null, "context": row.context,
        "created_at": now(), "updated_at": now(),
    })
}

/// A run of Actions.
pub(super) fn run(state: &State, row: &StatusRow) -> Value {
    let (status, conclusion) = match row.state.as_str() {
        "pending" => ("in_progress", Value::Null),
        "error" => ("completed", json!("timed_out")),
        other => ("completed", json!(other)),
    };
    let own = format!("{}/check-runs/41", repo_api(state));
    let page = format!("http://{}/{OWNER}/{NAME}/runs/41", state.address);
    let ended = if conclusion.is_null() {
        Value::Null
    } else {
        json!(now())
    };
    json!({
        "id": 41, "node_id": "CR_1", "name": row.context, "head_sha": row.commit, "status": status, "conclusion": conclusion,
        "url": own, "html_url": page, "details_url": page, "external_id": "", "started_at": now(), "completed_at": ended,
        "app": { "id": 15368, "slug": "github-actions" }, "check_suite": { "id": 5 }, "pull_requests": [],
        "output": {
            "title": null, "summary": null, "text": null, "annotations_count": 0,
            "annotations_url": format!("{own}/annotations"),
        },
    })
}

pub(super) fn review(state: &State, row: &ReviewRow) -> Value {
    let says = match row.says {
        _ if row.dismissed => "DISMISSED",
        Says::Approve => "APPROVED",
        Says::Refuse => "CHANGES_REQUESTED",
        Says::Comment => "COMMENTED",
    };
    let page = format!("http://{}/{OWNER}/{NAME}/pull/{}", state.address, row.number);
    let html = format!("{page}#pullrequestreview-640");
    let pull = format!("{}/pulls/{}", repo_api(state), row.number);
    json!({
        "id": 640, "node_id": "PRR_1", "user": user(state, &row.by), "body": "", "state": says, "commit_id": row.commit,
        "submitted_at": row.at, "author_association": "MEMBER", "html_url": html, "pull_request_url": pull,
        "_links": { "html": link(&html), "pull_request": link(&pull) },
    })
}
