//! GitHub: requests to its REST API and what they answer.
//!
//! Invariants: what a pull request's merge made is believed only of one that is merged, whatever its `merge_commit_sha` holds
//! before (B06); checks are read from both places where they stand, statuses and check runs, and the worse of a name counts.

use std::time::Duration;

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;
use serde::Deserialize;
use serde_json::json;

use super::answer::{Unreadable, read, read_page};
use super::dialect::{Dialect, ReadChecks, owner_and_name, since_second};
use super::forgejo::{self, CommentBody, UserBody, ghost};
use super::request::{Call, Manners, Method, Page, encoded};
use super::{Comment, CommitStatus, Merged, NewPull, Pull, Review, Says, User};
use crate::pure::snapshot::{Checked, Verdict};
use crate::pure::trigger::hook::{self, Form, Hook, Signed};

/// The most of a list that one page has.
const PAGE: u32 = 100;
/// Of comments: so many of the longest (65,536 characters) fit one answer that is read.
const COMMENTS: u32 = 30;

/// How GitHub wants to be asked: a version of the API by name, requests that write a second apart, and no more than six
/// pushes a minute.
pub const MANNERS: Manners = Manners {
    authorization: "Bearer",
    headers: &[
        ("accept", "application/vnd.github+json"),
        ("x-github-api-version", "2022-11-28"),
    ],
    left: Some(("x-ratelimit-remaining", "x-ratelimit-reset")),
    too_fast: &["secondary rate limit", "abuse detection", "rate limit exceeded"],
    // One that brings nothing any more was merged meanwhile.
    there: &[(422, "already exists"), (422, "No commits between")],
    write_gap: Duration::from_secs(1),
    edit_gap_secs: 8,
    push_gap: Duration::from_secs(10),
    // Enterprise Server has it below its own name.
    api: ("api/v3", &[("github.com", "https://api.github.com")]),
};

/// Its webhooks: signed over the bytes as they are sent, also of a form.
pub const HOOK: Hook = Hook {
    names: &["github"],
    signed: Signed::Hmac {
        headers: &["x-hub-signature-256"],
        form: Form::Body,
    },
    deliveries: &["x-github-delivery"],
    events: &["x-github-event"],
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

    fn list(&self, rest: &str) -> Call {
        self.list_by(PAGE, rest)
    }

    fn list_by(&self, page: u32, rest: &str) -> Call {
        let and = if rest.contains('?') { '&' } else { '?' };
        Call::get(self.path(&format!("{rest}{and}per_page={page}&page=1")))
    }
}

impl Dialect for Repo {
    fn manners(&self) -> &'static Manners {
        &MANNERS
    }

    fn read_me(&self, body: &[u8]) -> Result<User, Unreadable> {
        forgejo::read_me(body)
    }

    fn open_pulls(&self) -> Call {
        self.list("pulls?state=open&sort=created&direction=asc")
    }

    fn read_pulls(&self, body: &[u8]) -> Result<Page<Pull>, Unreadable> {
        read_page("pull requests", body, PullBody::pull)
    }

    fn pull(&self, number: u64) -> Call {
        Call::get(self.path(&format!("pulls/{number}")))
    }

    fn read_pull(&self, body: &[u8]) -> Result<Pull, Unreadable> {
        read::<PullBody>("a pull request", body)?.pull()
    }

    fn pulls_of_commit(&self, commit: &CommitId) -> Call {
        self.list(&format!("commits/{commit}/pulls"))
    }

    fn comments(&self, number: u64, since: Option<Timestamp>) -> Call {
        let since = since.map(|at| format!("?since={}", since_second(at)));
        let since = since.unwrap_or_default();
        self.list_by(COMMENTS, &format!("issues/{number}/comments{since}"))
    }

    fn read_comments(&self, body: &[u8]) -> Result<Page<Comment>, Unreadable> {
        forgejo::read_comments(body)
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
        Call::send(Method::Post, path, forgejo::status_body(status))
    }

    fn open_pull(&self, new: &NewPull) -> Call {
        Call::send(Method::Post, self.path("pulls"), forgejo::pull_body(new))
    }

    fn reviews(&self, number: u64) -> Call {
        self.list(&format!("pulls/{number}/reviews"))
    }

    fn read_reviews(&self, body: &[u8]) -> Result<Page<Review>, Unreadable> {
        let all: Vec<ReviewBody> = read("reviews", body)?;
        Ok(Page::of(all.into_iter().map(ReviewBody::review).collect()))
    }

    /// Statuses that others set, and the runs of Actions and Apps.
    fn checks(&self, commit: &CommitId) -> Vec<(Call, ReadChecks)> {
        vec![
            (self.list(&format!("commits/{commit}/status")), read_statuses),
            (
                self.list(&format!("commits/{commit}/check-runs?filter=latest")),
                read_runs,
            ),
        ]
    }

    fn permission(&self, user: &User) -> Call {
        Call::get(self.path(&format!("collaborators/{}/permission", encoded(&user.login))))
    }

    /// Who maintains has `write` here, who triages `read`.
    fn read_may_write(&self, user: &User, body: &[u8]) -> Result<bool, Unreadable> {
        forgejo::read_may_write(user, body)
    }

    /// By the name that stands in the team's address. Members of the teams below it are told too.
    fn members(&self, team: &str) -> Call {
        let path = format!("orgs/{}/teams/{}/members", self.owner, encoded(team));
        Call::get(format!("{path}?per_page={PAGE}&page=1"))
    }

    fn read_members(&self, body: &[u8]) -> Result<Page<User>, Unreadable> {
        forgejo::read_members(body)
    }
}

#[derive(Deserialize)]
struct PullBody {
    number: u64,
    user: Option<UserBody>,
    state: String,
    // There is no `merged` in a list.
    merged_at: Option<Timestamp>,
    merge_commit_sha: Option<String>,
    base: SideBody,
    head: SideBody,
}

#[derive(Deserialize)]
struct SideBody {
    #[serde(rename = "ref")]
    name: String,
    sha: String,
    /// None of a fork that is gone.
    repo: Option<RepoBody>,
}

#[derive(Deserialize)]
struct RepoBody {
    id: u64,
}

impl PullBody {
    fn pull(self) -> Result<Pull, Unreadable> {
        let commit = |id: &str| {
            id.parse::<CommitId>().map_err(|e| Unreadable {
                what: "a pull request",
                why: format!("`{id}` is no whole commit id: {e}"),
            })
        };
        let merged = match (self.merged_at, &self.merge_commit_sha) {
            (Some(at), Some(id)) => Some(Merged {
                commit: commit(id)?,
                at,
            }),
            _ => None,
        };
        let repo = |side: &SideBody| side.repo.as_ref().map(|repo| repo.id);
        Ok(Pull {
            number: self.number,
            author: self.user.and_then(UserBody::user).unwrap_or_else(ghost),
            head: commit(&self.head.sha)?,
            fork_point: None,
            base: Some(commit(&self.base.sha)?),
            fork: repo(&self.head) != repo(&self.base),
            into: self.base.name,
            open: self.state == "open",
            merged,
        })
    }
}

#[derive(Deserialize)]
struct ReviewBody {
    user: Option<UserBody>,
    state: String,
    commit_id: Option<String>,
    submitted_at: Option<Timestamp>,
}

impl ReviewBody {
    /// Of those who have reviewed more than once the last word counts that is no comment; one that was dismissed is a no.
    fn review(self) -> Review {
        let says = match self.state.as_str() {
            "APPROVED" => Says::Yes,
            "CHANGES_REQUESTED" | "DISMISSED" => Says::No,
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

#[derive(Deserialize)]
struct CombinedBody {
    total_count: usize,
    statuses: Vec<StatusBody>,
}

#[derive(Deserialize)]
struct StatusBody {
    state: String,
    context: String,
}

fn read_statuses(body: &[u8]) -> Result<Page<Checked>, Unreadable> {
    let body: CombinedBody = read("statuses", body)?;
    let checked = body.statuses.into_iter().map(|status| Checked {
        verdict: match status.state.as_str() {
            "success" => Verdict::Passed,
            "pending" => Verdict::Running,
            _ => Verdict::Failed,
        },
        name: status.context,
    });
    Ok(Page {
        total: Some(body.total_count),
        ..Page::of(checked.collect())
    })
}

#[derive(Deserialize)]
struct RunsBody {
    total_count: usize,
    check_runs: Vec<RunBody>,
}

#[derive(Deserialize)]
struct RunBody {
    name: String,
    status: String,
    conclusion: Option<String>,
}

fn read_runs(body: &[u8]) -> Result<Page<Checked>, Unreadable> {
    let body: RunsBody = read("check runs", body)?;
    let checked = body.check_runs.into_iter().map(|run| Checked {
        verdict: match (run.status.as_str(), run.conclusion.as_deref()) {
            // As the forge's own protection of branches takes them.
            ("completed", Some("success" | "neutral" | "skipped")) => Verdict::Passed,
            ("completed", _) => Verdict::Failed,
            _ => Verdict::Running,
        },
        name: run.name,
    });
    Ok(Page {
        total: Some(body.total_count),
        ..Page::of(checked.collect())
    })
}

#[cfg(test)]
mod tests;
