//! Forgejo and Gitea: requests to `/api/v1` and what they answer.
//!
//! Invariants: every list that the forge pages is read page by page to its end; what a pull request's merge made is
//! believed only where it says that it is merged (B06); nobody's word of a permission is taken but the forge's.

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Call, Comment, CommitStatus, Merged, Method, NewPull, Pull, Review, Says, Unreadable, User};
use crate::pure::snapshot::{Checked, Verdict};

/// The most of a list that one page has.
pub const PAGE: u32 = 50;
/// The most pages of a list that are read.
pub const PAGES: u32 = 200;

/// A repository, as paths name it: owner and name, encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo(String);

impl Repo {
    /// The repository `owner/name`; none for what is not two words.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (owner, name) = text.split_once('/')?;
        if owner.is_empty() || name.is_empty() || name.contains('/') {
            return None;
        }
        Some(Self(format!("repos/{}/{}", encoded(owner), encoded(name))))
    }

    fn path(&self, rest: &str) -> String {
        format!("{}/{rest}", self.0)
    }

    /// A page of the open pull requests, the first is 1.
    #[must_use]
    pub fn open_pulls(&self, page: u32) -> Call {
        Call::get(self.path(&format!("pulls?state=open&sort=oldest&page={page}&limit={PAGE}")))
    }

    /// One pull request.
    #[must_use]
    pub fn pull(&self, number: u64) -> Call {
        Call::get(self.path(&format!("pulls/{number}")))
    }

    /// The pull request whose merge made a commit.
    #[must_use]
    pub fn pull_of_commit(&self, commit: &CommitId) -> Call {
        Call::get(self.path(&format!("commits/{commit}/pull")))
    }

    /// All comments of a pull request: this list has no pages.
    #[must_use]
    pub fn comments(&self, number: u64) -> Call {
        Call::get(self.path(&format!("issues/{number}/comments")))
    }

    /// Writes a comment.
    #[must_use]
    pub fn comment(&self, number: u64, body: &str) -> Call {
        Call {
            method: Method::Post,
            path: self.path(&format!("issues/{number}/comments")),
            body: Some(json!({ "body": body })),
        }
    }

    /// Changes a comment.
    #[must_use]
    pub fn edit_comment(&self, id: u64, body: &str) -> Call {
        Call {
            method: Method::Patch,
            path: self.path(&format!("issues/comments/{id}")),
            body: Some(json!({ "body": body })),
        }
    }

    /// Sets a status.
    #[must_use]
    pub fn set_status(&self, status: &CommitStatus) -> Call {
        Call {
            method: Method::Post,
            path: self.path(&format!("statuses/{}", status.commit)),
            body: Some(json!({
                "state": status.state,
                "context": status.context,
                "description": status.description,
            })),
        }
    }

    /// Opens a pull request; one that stands open already is a conflict.
    #[must_use]
    pub fn open_pull(&self, new: &NewPull) -> Call {
        Call {
            method: Method::Post,
            path: self.path("pulls"),
            body: Some(json!({ "title": new.title, "body": new.body, "head": new.from, "base": new.into })),
        }
    }

    /// A page of the reviews of a pull request.
    #[must_use]
    pub fn reviews(&self, number: u64, page: u32) -> Call {
        Call::get(self.path(&format!("pulls/{number}/reviews?page={page}&limit={PAGE}")))
    }

    /// A page of a commit's statuses, the newest of each context.
    #[must_use]
    pub fn statuses(&self, commit: &CommitId, page: u32) -> Call {
        Call::get(self.path(&format!("commits/{commit}/status?page={page}&limit={PAGE}")))
    }

    /// What a user may do here. Asked of others by an administrator of the repository only.
    #[must_use]
    pub fn permission(&self, login: &str) -> Call {
        Call::get(self.path(&format!("collaborators/{}/permission", encoded(login))))
    }
}

/// Who the token is.
#[must_use]
pub fn me() -> Call {
    Call::get("user".to_owned())
}

/// Whether a list goes on after a page: by its `Link` header, else by how many there are in all and on the page.
#[must_use]
pub fn goes_on(link: Option<&str>, total: Option<&str>, read: usize, page: usize) -> bool {
    if page == 0 {
        return false;
    }
    if let Some(link) = link {
        return link.split(',').any(|part| {
            let mut words = part.split(';').skip(1).map(str::trim);
            words.any(|word| word == "rel=\"next\"")
        });
    }
    match total.and_then(|total| total.trim().parse::<usize>().ok()) {
        Some(total) => read < total,
        None => page >= PAGE as usize,
    }
}

fn encoded(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    // A segment of dots alone would be read as a way through folders.
    if !out.is_empty() && out.bytes().all(|b| b == b'.') {
        return out.replace('.', "%2E");
    }
    out
}

fn read<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, Unreadable> {
    serde_json::from_slice(body).map_err(|e| Unreadable {
        what,
        why: e.to_string(),
    })
}

#[derive(Deserialize)]
struct UserBody {
    id: i64,
    login: String,
}

impl UserBody {
    /// Users that are gone, and those that never were (actions, ghosts), have no number of their own.
    fn user(self) -> Option<User> {
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
        let ghost = || User {
            id: 0,
            login: String::new(),
        };
        Ok(Pull {
            number: self.number,
            author: self.user.and_then(UserBody::user).unwrap_or_else(ghost),
            head: commit(&self.head.sha)?,
            fork_point: self.merge_base.and_then(|id| id.parse().ok()),
            into: self.base.name,
            open: self.state == "open",
            merged,
            fork: self.head.repo_id != self.base.repo_id,
        })
    }
}

/// Reads one pull request.
///
/// # Errors
/// [`Unreadable`].
pub fn read_pull(body: &[u8]) -> Result<Pull, Unreadable> {
    read::<PullBody>("a pull request", body)?.pull()
}

/// Reads a page of pull requests. One that cannot be read is left out: it hides no other.
///
/// # Errors
/// [`Unreadable`]: no list.
pub fn read_pulls(body: &[u8]) -> Result<(usize, Vec<Pull>), Unreadable> {
    let all: Vec<serde_json::Value> = read("pull requests", body)?;
    let pulls = all
        .iter()
        .filter_map(|one| PullBody::deserialize(one).ok()?.pull().ok())
        .collect();
    Ok((all.len(), pulls))
}

#[derive(Deserialize)]
struct CommentBody {
    id: u64,
    user: Option<UserBody>,
    body: String,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl CommentBody {
    fn comment(self) -> Comment {
        Comment {
            id: self.id,
            author: self.user.and_then(UserBody::user),
            body: self.body,
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }
}

/// Reads all comments of a pull request, oldest first.
///
/// # Errors
/// [`Unreadable`].
pub fn read_comments(body: &[u8]) -> Result<Vec<Comment>, Unreadable> {
    let all: Vec<CommentBody> = read("comments", body)?;
    let mut comments: Vec<Comment> = all.into_iter().map(CommentBody::comment).collect();
    comments.sort_by_key(|comment| comment.id);
    Ok(comments)
}

/// Reads a comment that was just written.
///
/// # Errors
/// [`Unreadable`].
pub fn read_comment(body: &[u8]) -> Result<Comment, Unreadable> {
    Ok(read::<CommentBody>("a comment", body)?.comment())
}

/// Reads who the token is.
///
/// # Errors
/// [`Unreadable`].
pub fn read_me(body: &[u8]) -> Result<User, Unreadable> {
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

/// Reads a page of reviews, oldest first; how many there are on it.
///
/// # Errors
/// [`Unreadable`].
pub fn read_reviews(body: &[u8]) -> Result<(usize, Vec<Review>), Unreadable> {
    let all: Vec<ReviewBody> = read("reviews", body)?;
    Ok((all.len(), all.into_iter().map(ReviewBody::review).collect()))
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

/// Reads a page of a commit's statuses: how many there are in all, and what each context says.
///
/// # Errors
/// [`Unreadable`].
pub fn read_statuses(body: &[u8]) -> Result<(usize, Vec<Checked>), Unreadable> {
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
    Ok((body.total_count, checked.collect()))
}

#[derive(Deserialize)]
struct PermissionBody {
    permission: String,
    user: Option<UserBody>,
}

/// Whether just this user, by number, may write: whoever took over the login of another is not he (B57).
///
/// # Errors
/// [`Unreadable`].
pub fn read_may_write(user: &User, body: &[u8]) -> Result<bool, Unreadable> {
    let body: PermissionBody = read("a permission", body)?;
    let same = body
        .user
        .and_then(UserBody::user)
        .is_some_and(|of| of.id == user.id);
    Ok(same && matches!(body.permission.as_str(), "write" | "admin" | "owner"))
}

/// What the forge says where it refuses: its `message`, at most so much of it as is worth a line.
#[must_use]
pub fn read_refusal(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Refusal {
        message: String,
    }
    serde_json::from_slice::<Refusal>(body)
        .map_or_else(|_| String::new(), |said| super::cut(&said.message, 200))
}

#[cfg(test)]
mod tests;
