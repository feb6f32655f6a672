//! Forgejo and Gitea: requests to `/api/v1` and what they answer.
//!
//! Invariants: every list that the forge pages is read page by page to its end; what a pull request's merge made is
//! believed only where it says that it is merged (B06); nobody's word of a permission is taken but the forge's.

use std::time::Duration;

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;
use serde::Deserialize;
use serde_json::json;

use super::answer::{Unreadable, read, read_page};
use super::dialect::{Dialect, ReadChecks, owner_and_name, since_second};
use super::request::{Call, Manners, Method, Page, encoded};
use super::{Comment, CommitStatus, Merged, NewPull, Pull, Review, Says, Team, User};
use crate::pure::snapshot::{Checked, Verdict};
use crate::pure::trigger::hook::{self, Form, Hook, Signed};

/// The most of a list that one page has.
const PAGE: u32 = 50;

/// How Forgejo wants to be asked. It has no limits of its own; a proxy before it may.
pub const MANNERS: Manners = Manners {
    authorization: "token",
    headers: &[("accept", "application/json")],
    left: None,
    too_fast: &[],
    there: &[(409, "")],
    write_gap: Duration::ZERO,
    edit_gap_secs: 2,
    push_gap: Duration::ZERO,
    api: ("api/v1", &[]),
};

/// Its webhooks. Bare hexadecimal HMAC-SHA256, but for the last header, which puts `sha256=` before it; a form is signed over
/// the JSON in it. The exact name of an event goes before the collapsed one: one word means two things there.
pub const HOOK: Hook = Hook {
    names: &["forgejo", "gitea"],
    signed: Signed::Hmac {
        headers: &["x-forgejo-signature", "x-gitea-signature", "x-hub-signature-256"],
        form: Form::Either,
    },
    deliveries: &[
        "x-forgejo-delivery",
        "x-gitea-delivery",
        "x-gogs-delivery",
        "x-github-delivery",
    ],
    events: &[
        "x-forgejo-event-type",
        "x-gitea-event-type",
        "x-forgejo-event",
        "x-gitea-event",
        "x-gogs-event",
        "x-github-event",
    ],
    event: hook::of_hub,
};

/// A repository, as paths name it: owner and name, encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo {
    owner: String,
    name: String,
}

impl Repo {
    /// The repository `owner/name`; none for what is not two words.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        owner_and_name(text).map(|(owner, name)| Self { owner, name })
    }

    fn path(&self, rest: &str) -> String {
        format!("repos/{}/{}/{rest}", self.owner, self.name)
    }
}

impl Dialect for Repo {
    fn manners(&self) -> &'static Manners {
        &MANNERS
    }

    fn read_me(&self, body: &[u8]) -> Result<User, Unreadable> {
        read_me(body)
    }

    fn open_pulls(&self) -> Call {
        Call::get(self.path(&format!("pulls?state=open&sort=oldest&page=1&limit={PAGE}")))
    }

    fn read_pulls(&self, body: &[u8]) -> Result<Page<Pull>, Unreadable> {
        read_pulls(body)
    }

    fn pull(&self, number: u64) -> Call {
        Call::get(self.path(&format!("pulls/{number}")))
    }

    fn read_pull(&self, body: &[u8]) -> Result<Pull, Unreadable> {
        read_pull(body)
    }

    fn pulls_of_commit(&self, commit: &CommitId) -> Call {
        Call::get(self.path(&format!("commits/{commit}/pull")))
    }

    fn read_pulls_of_commit(&self, body: &[u8]) -> Result<Vec<Pull>, Unreadable> {
        Ok(vec![read_pull(body)?])
    }

    /// This list has no pages.
    fn comments(&self, number: u64, since: Option<Timestamp>) -> Call {
        let since = since.map(|at| format!("?since={}", since_second(at)));
        let since = since.unwrap_or_default();
        Call::get(self.path(&format!("issues/{number}/comments{since}")))
    }

    fn read_comments(&self, body: &[u8]) -> Result<Page<Comment>, Unreadable> {
        read_comments(body)
    }

    fn comment(&self, number: u64, body: &str) -> Call {
        let path = self.path(&format!("issues/{number}/comments"));
        Call::send(Method::Post, path, json!({ "body": body }))
    }

    fn edit_comment(&self, _number: u64, id: u64, body: &str) -> Call {
        let path = self.path(&format!("issues/comments/{id}"));
        Call::send(Method::Patch, path, json!({ "body": body }))
    }

    fn read_comment(&self, body: &[u8]) -> Result<Comment, Unreadable> {
        Ok(read::<CommentBody>("a comment", body)?.comment())
    }

    fn set_status(&self, status: &CommitStatus) -> Call {
        let path = self.path(&format!("statuses/{}", status.commit));
        Call::send(Method::Post, path, status_body(status))
    }

    fn open_pull(&self, new: &NewPull) -> Call {
        Call::send(Method::Post, self.path("pulls"), pull_body(new))
    }

    fn reviews(&self, number: u64) -> Call {
        Call::get(self.path(&format!("pulls/{number}/reviews?page=1&limit={PAGE}")))
    }

    fn read_reviews(&self, body: &[u8]) -> Result<Page<Review>, Unreadable> {
        read_reviews(body)
    }

    /// The newest status of each context.
    fn checks(&self, commit: &CommitId) -> Vec<(Call, ReadChecks)> {
        let path = self.path(&format!("commits/{commit}/status?page=1&limit={PAGE}"));
        vec![(Call::get(path), read_statuses)]
    }

    /// Asked of others by an administrator of the repository only.
    fn permission(&self, user: &User) -> Call {
        Call::get(self.path(&format!("collaborators/{}/permission", encoded(&user.login))))
    }

    fn read_may_write(&self, user: &User, body: &[u8]) -> Result<bool, Unreadable> {
        read_may_write(user, body)
    }

    /// Told to members of the organisation.
    fn teams(&self) -> Option<Call> {
        let path = format!("orgs/{}/teams?page=1&limit={PAGE}", self.owner);
        Some(Call::get(path))
    }

    fn read_teams(&self, body: &[u8]) -> Result<Page<Team>, Unreadable> {
        let team = |TeamBody { id, name }| Ok(Team { id, name });
        read_page("teams", body, team)
    }

    /// Told to members of the team.
    fn members(&self, team: &str) -> Call {
        let path = format!("teams/{}/members?page=1&limit={PAGE}", encoded(team));
        Call::get(path)
    }

    fn read_members(&self, body: &[u8]) -> Result<Page<User>, Unreadable> {
        read_members(body)
    }
}

#[derive(Deserialize)]
struct TeamBody {
    id: u64,
    name: String,
}

/// A status, as Forgejo and GitHub take it.
pub(super) fn status_body(status: &CommitStatus) -> serde_json::Value {
    json!({ "state": status.state, "context": status.context, "description": status.description })
}

/// A pull request, as Forgejo and GitHub take it.
pub(super) fn pull_body(new: &NewPull) -> serde_json::Value {
    json!({ "title": new.title, "body": new.body, "head": new.from, "base": new.into })
}

/// A user, as Forgejo and GitHub tell of one.
#[derive(Deserialize)]
pub(super) struct UserBody {
    id: i64,
    login: String,
}

impl UserBody {
    /// Users that are gone, and those that never were (actions, ghosts), have no number of their own.
    pub(super) fn user(self) -> Option<User> {
        let id = u64::try_from(self.id).ok().filter(|id| *id > 0)?;
        Some(User {
            id,
            login: self.login,
        })
    }
}

#[derive(Deserialize)]
struct PullBody {
    number: u64,
    user: Option<UserBody>,
    state: String,
    merged: bool,
    merged_at: Option<Timestamp>,
    merge_commit_sha: Option<String>,
    merge_base: Option<String>,
    base: SideBody,
    head: SideBody,
}

#[derive(Deserialize)]
struct SideBody {
    #[serde(rename = "ref")]
    name: String,
    sha: String,
    repo_id: i64,
}

impl PullBody {
    fn pull(self) -> Result<Pull, Unreadable> {
        let odd = |why: String| Unreadable {
            what: "a pull request",
            why,
        };
        let commit = |id: &str| {
            id.parse::<CommitId>()
                .map_err(|e| odd(format!("`{id}` is no whole commit id: {e}")))
        };
        let merged = match (self.merged, &self.merge_commit_sha, self.merged_at) {
            (true, Some(id), Some(at)) => Some(Merged {
                commit: commit(id)?,
                at,
            }),
            _ => None,
        };
        Ok(Pull {
            number: self.number,
            author: self.user.and_then(UserBody::user).unwrap_or_else(ghost),
            head: commit(&self.head.sha)?,
            fork_point: self.merge_base.and_then(|id| id.parse().ok()),
            base: None,
            into: self.base.name,
            open: self.state == "open",
            merged,
            fork: self.head.repo_id != self.base.repo_id,
        })
    }
}

/// Whoever is gone.
pub(super) fn ghost() -> User {
    User {
        id: 0,
        login: String::new(),
    }
}

fn read_pull(body: &[u8]) -> Result<Pull, Unreadable> {
    read::<PullBody>("a pull request", body)?.pull()
}

fn read_pulls(body: &[u8]) -> Result<Page<Pull>, Unreadable> {
    read_page("pull requests", body, PullBody::pull)
}

/// A comment, as Forgejo and GitHub tell of one.
#[derive(Deserialize)]
pub(super) struct CommentBody {
    id: u64,
    user: Option<UserBody>,
    body: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl CommentBody {
    pub(super) fn comment(self) -> Comment {
        Comment {
            id: self.id,
            author: self.user.and_then(UserBody::user),
            body: self.body.unwrap_or_default(),
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }
}

/// Reads a page of comments, oldest first.
pub(super) fn read_comments(body: &[u8]) -> Result<Page<Comment>, Unreadable> {
    let all: Vec<CommentBody> = read("comments", body)?;
    let mut comments: Vec<Comment> = all.into_iter().map(CommentBody::comment).collect();
    comments.sort_by_key(|comment| comment.id);
    Ok(Page::of(comments))
}

/// Reads who the token is.
pub(super) fn read_me(body: &[u8]) -> Result<User, Unreadable> {
    read::<UserBody>("our own user", body)?
        .user()
        .ok_or_else(|| Unreadable {
            what: "our own user",
            why: "it has no number".to_owned(),
        })
}

#[derive(Deserialize)]
struct ReviewBody {
    user: Option<UserBody>,
    state: String,
    commit_id: Option<String>,
    submitted_at: Option<Timestamp>,
    #[serde(default)]
    official: bool,
    #[serde(default)]
    stale: bool,
    #[serde(default)]
    dismissed: bool,
}

impl ReviewBody {
    fn review(self) -> Review {
        let counts = self.official && !self.stale && !self.dismissed;
        let says = match self.state.as_str() {
            "APPROVED" if counts => Says::Yes,
            "APPROVED" | "REQUEST_CHANGES" => Says::No,
            _ => Says::Nothing,
        };
        Review {
            by: self.user.and_then(UserBody::user),
            at: self.submitted_at.unwrap_or_default(),
            commit: self.commit_id.and_then(|id| id.parse().ok()),
            says,
        }
    }
}

fn read_reviews(body: &[u8]) -> Result<Page<Review>, Unreadable> {
    let all: Vec<ReviewBody> = read("reviews", body)?;
    Ok(Page::of(all.into_iter().map(ReviewBody::review).collect()))
}

#[derive(Deserialize)]
struct CombinedBody {
    #[serde(default)]
    total_count: usize,
    statuses: Option<Vec<StatusBody>>,
}

#[derive(Deserialize)]
struct StatusBody {
    /// The item's state is in the field `status`; `state` is the combined one's.
    status: String,
    context: String,
}

fn read_statuses(body: &[u8]) -> Result<Page<Checked>, Unreadable> {
    let body: CombinedBody = read("statuses", body)?;
    let verdict = |said: &str| match said {
        "success" | "skipped" => Verdict::Passed,
        "pending" => Verdict::Running,
        _ => Verdict::Failed,
    };
    let all = body.statuses.unwrap_or_default().into_iter();
    let checked = all.map(|status| Checked {
        verdict: verdict(&status.status),
        name: status.context,
    });
    Ok(Page {
        total: Some(body.total_count),
        ..Page::of(checked.collect())
    })
}

/// Reads a page of members, as Forgejo and GitHub tell of them.
pub(super) fn read_members(body: &[u8]) -> Result<Page<User>, Unreadable> {
    read_page("the members of a team", body, |user: UserBody| {
        user.user().ok_or_else(|| Unreadable {
            what: "a member of a team",
            why: "it has no number".to_owned(),
        })
    })
}

#[derive(Deserialize)]
struct PermissionBody {
    permission: String,
    user: Option<UserBody>,
}

/// Whether just this user, by number, may write, as Forgejo and GitHub tell it.
pub(super) fn read_may_write(user: &User, body: &[u8]) -> Result<bool, Unreadable> {
    let body: PermissionBody = read("a permission", body)?;
    let same = body
        .user
        .and_then(UserBody::user)
        .is_some_and(|of| of.id == user.id);
    Ok(same && matches!(body.permission.as_str(), "write" | "admin" | "owner"))
}

#[cfg(test)]
mod tests;
