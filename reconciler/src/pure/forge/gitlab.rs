//! GitLab: requests to `/api/v4` and what they answer.
//!
//! Pull requests are merge requests here, comments are notes, and whoever may write is at least a developer. Invariants: the
//! commit that a merge made is the merge commit, else the squashed one, else the head, which was fast-forwarded (B06); an
//! approval does not say of which head it is, so it counts for the head that stood there when it was given.

use std::time::Duration;

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;
use serde::Deserialize;
use serde_json::json;

use super::answer::{Unreadable, read, read_page};
use super::dialect::{Dialect, ReadChecks};
use super::request::{Call, Manners, Method, Page, encoded};
use super::{Comment, CommitStatus, Merged, NewPull, Pull, Review, Says, StatusState, User, Version};
use crate::pure::snapshot::{Checked, Verdict};
use crate::pure::trigger::hook::{self, Hook, Signed};
use crate::pure::trigger::{Event, Refusal};

/// The most of a list that one page has.
const PAGE: u32 = 100;
/// Of notes, which may have a million characters each: what is usual fits one answer that is read.
const NOTES: u32 = 20;
/// A developer's access level; they may write.
const DEVELOPER: u32 = 30;

/// How GitLab wants to be asked.
pub const MANNERS: Manners = Manners {
    authorization: "Bearer",
    headers: &[("accept", "application/json")],
    left: Some(("ratelimit-remaining", "ratelimit-reset")),
    too_fast: &[],
    there: &[(409, "already exists"), (400, "Cannot transition status")],
    write_gap: Duration::ZERO,
    edit_gap_secs: 2,
    push_gap: Duration::ZERO,
    api: ("api/v4", &[]),
};

/// Its webhooks: with a signing token (`whsec_...`) as Standard Webhooks has it, else with the secret in a header. A send that
/// is repeated keeps its key.
pub const HOOK: Hook = Hook {
    names: &["gitlab"],
    signed: Signed::Token {
        header: "x-gitlab-token",
    },
    deliveries: &["idempotency-key", "webhook-id", "x-gitlab-webhook-uuid"],
    events: &["x-gitlab-event"],
    event,
};

/// A project, as paths name it: its whole path, encoded into one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project(String);

impl Project {
    /// The project `group/project`, or `group/subgroup/project`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split('/').collect();
        let good = words.len() >= 2 && words.iter().all(|word| !word.is_empty());
        good.then(|| Self(format!("projects/{}", encoded(text))))
    }

    fn path(&self, rest: &str) -> String {
        format!("{}/{rest}", self.0)
    }

    fn list(&self, rest: &str) -> Call {
        self.list_by(PAGE, rest)
    }

    fn list_by(&self, page: u32, rest: &str) -> Call {
        let and = if rest.contains('?') { '&' } else { '?' };
        Call::get(self.path(&format!("{rest}{and}per_page={page}&page=1")))
    }
}

impl Dialect for Project {
    fn manners(&self) -> &'static Manners {
        &MANNERS
    }

    fn head_ref(&self, number: u64) -> String {
        format!("refs/merge-requests/{number}/head")
    }

    fn read_me(&self, body: &[u8]) -> Result<User, Unreadable> {
        Ok(read::<UserBody>("our own user", body)?.user())
    }

    fn open_pulls(&self) -> Call {
        self.list("merge_requests?state=opened&order_by=created_at&sort=asc")
    }

    fn read_pulls(&self, body: &[u8]) -> Result<Page<Pull>, Unreadable> {
        read_page("merge requests", body, PullBody::pull)
    }

    fn pull(&self, number: u64) -> Call {
        Call::get(self.path(&format!("merge_requests/{number}")))
    }

    fn read_pull(&self, body: &[u8]) -> Result<Pull, Unreadable> {
        read::<PullBody>("a merge request", body)?.pull()
    }

    fn pulls_of_commit(&self, commit: &CommitId) -> Call {
        self.list(&format!("repository/commits/{commit}/merge_requests"))
    }

    /// It has no way to ask for the newer ones alone.
    fn comments(&self, number: u64, _since: Option<Timestamp>) -> Call {
        let rest = format!("merge_requests/{number}/notes?sort=asc&order_by=created_at");
        self.list_by(NOTES, &rest)
    }

    /// What the forge itself notes down is nobody's comment.
    fn read_comments(&self, body: &[u8]) -> Result<Page<Comment>, Unreadable> {
        let all: Vec<NoteBody> = read("notes", body)?;
        let count = all.len();
        let of_people = all.into_iter().filter(|note| !note.system);
        let mut comments: Vec<Comment> = of_people.map(NoteBody::comment).collect();
        comments.sort_by_key(|comment| comment.id);
        Ok(Page {
            count,
            unread: 0,
            total: None,
            items: comments,
        })
    }

    fn comment(&self, number: u64, body: &str) -> Call {
        let path = self.path(&format!("merge_requests/{number}/notes"));
        Call::send(Method::Post, path, json!({ "body": body }))
    }

    fn edit_comment(&self, number: u64, id: u64, body: &str) -> Call {
        let path = self.path(&format!("merge_requests/{number}/notes/{id}"));
        Call::send(Method::Put, path, json!({ "body": body }))
    }

    fn read_comment(&self, body: &[u8]) -> Result<Comment, Unreadable> {
        Ok(read::<NoteBody>("a note", body)?.comment())
    }

    fn set_status(&self, status: &CommitStatus) -> Call {
        let state = match status.state {
            StatusState::Pending => "running",
            StatusState::Success => "success",
            StatusState::Failure | StatusState::Error => "failed",
        };
        let path = self.path(&format!("statuses/{}", status.commit));
        let body = json!({ "state": state, "name": status.context, "description": status.description });
        Call::send(Method::Post, path, body)
    }

    fn open_pull(&self, new: &NewPull) -> Call {
        let body = json!({
            "title": new.title, "description": new.body, "source_branch": new.from, "target_branch": new.into,
        });
        Call::send(Method::Post, self.path("merge_requests"), body)
    }

    /// Those who approve now; whoever took it back is not among them.
    fn reviews(&self, number: u64) -> Call {
        Call::get(self.path(&format!("merge_requests/{number}/approvals")))
    }

    fn read_reviews(&self, body: &[u8]) -> Result<Page<Review>, Unreadable> {
        let body: ApprovalsBody = read("approvals", body)?;
        let yes = body.approved_by.into_iter().map(|by| Review {
            by: Some(by.user.user()),
            // Without a time nobody can tell what was approved.
            at: by.approved_at.unwrap_or(Timestamp::MIN),
            commit: None,
            says: Says::Yes,
        });
        Ok(Page::of(yes.collect()))
    }

    fn versions(&self, number: u64) -> Option<Call> {
        Some(self.list(&format!("merge_requests/{number}/versions")))
    }

    fn read_versions(&self, body: &[u8]) -> Result<Page<Version>, Unreadable> {
        let all: Vec<VersionBody> = read("versions of a merge request", body)?;
        let versions = all.into_iter().map(|version| Version {
            head: version.head_commit_sha,
            since: version.created_at,
        });
        Ok(Page::of(versions.collect()))
    }

    /// The newest of each name, jobs of the forge's own CI among them.
    fn checks(&self, commit: &CommitId) -> Vec<(Call, ReadChecks)> {
        let call = self.list(&format!("repository/commits/{commit}/statuses"));
        vec![(call, read_statuses)]
    }

    /// By number: a name may have gone to somebody else.
    fn permission(&self, user: &User) -> Call {
        Call::get(self.path(&format!("members/all/{}", user.id)))
    }

    fn read_may_write(&self, user: &User, body: &[u8]) -> Result<bool, Unreadable> {
        let body: MemberBody = read("a member", body)?;
        Ok(body.id == user.id && body.state == "active" && body.access_level >= DEVELOPER)
    }

    /// Of a group, by its whole path. Who is a member by a group above it is none of its own.
    fn members(&self, team: &str) -> Call {
        let group = encoded(team);
        Call::get(format!("groups/{group}/members?per_page={PAGE}&page=1"))
    }

    fn read_members(&self, body: &[u8]) -> Result<Page<User>, Unreadable> {
        let all: Vec<GroupMemberBody> = read("the members of a group", body)?;
        let count = all.len();
        let active = all.into_iter().filter(|member| member.state == "active");
        Ok(Page {
            count,
            ..Page::of(active.map(|member| member.user.user()).collect())
        })
    }
}

#[derive(Deserialize)]
struct GroupMemberBody {
    #[serde(flatten)]
    user: UserBody,
    state: String,
}

#[derive(Deserialize)]
struct UserBody {
    id: u64,
    username: String,
}

impl UserBody {
    fn user(self) -> User {
        User {
            id: self.id,
            login: self.username,
        }
    }
}

#[derive(Deserialize)]
struct PullBody {
    iid: u64,
    author: UserBody,
    state: String,
    sha: Option<String>,
    target_branch: String,
    source_project_id: Option<u64>,
    target_project_id: u64,
    merged_at: Option<Timestamp>,
    merge_commit_sha: Option<String>,
    squash_commit_sha: Option<String>,
    /// Not in a list.
    diff_refs: Option<DiffBody>,
}

#[derive(Deserialize)]
struct DiffBody {
    base_sha: Option<String>,
}

impl PullBody {
    fn pull(self) -> Result<Pull, Unreadable> {
        let odd = |why: String| Unreadable {
            what: "a merge request",
            why,
        };
        let commit = |id: &str| {
            id.parse::<CommitId>()
                .map_err(|e| odd(format!("`{id}` is no whole commit id: {e}")))
        };
        let head = commit(&self.sha.ok_or_else(|| odd("it has no head".to_owned()))?)?;
        let made = self.merge_commit_sha.or(self.squash_commit_sha);
        let merged = match (self.state.as_str(), self.merged_at) {
            ("merged", Some(at)) => Some(Merged {
                commit: made.map_or_else(|| Ok(head.clone()), |id| commit(&id))?,
                at,
            }),
            _ => None,
        };
        Ok(Pull {
            number: self.iid,
            author: self.author.user(),
            head,
            fork_point: self
                .diff_refs
                .and_then(|refs| refs.base_sha)
                .and_then(|id| id.parse().ok()),
            base: None,
            into: self.target_branch,
            open: matches!(self.state.as_str(), "opened" | "locked"),
            merged,
            fork: self.source_project_id != Some(self.target_project_id),
        })
    }
}

#[derive(Deserialize)]
struct NoteBody {
    id: u64,
    author: Option<UserBody>,
    body: String,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(default)]
    system: bool,
}

impl NoteBody {
    fn comment(self) -> Comment {
        Comment {
            id: self.id,
            author: self.author.map(UserBody::user),
            body: self.body,
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }
}

#[derive(Deserialize)]
struct ApprovalsBody {
    approved_by: Vec<ApprovedBody>,
}

#[derive(Deserialize)]
struct ApprovedBody {
    user: UserBody,
    approved_at: Option<Timestamp>,
}

#[derive(Deserialize)]
struct VersionBody {
    head_commit_sha: CommitId,
    created_at: Timestamp,
}

#[derive(Deserialize)]
struct MemberBody {
    id: u64,
    state: String,
    access_level: u32,
}

#[derive(Deserialize)]
struct StatusBody {
    name: String,
    status: String,
}

fn read_statuses(body: &[u8]) -> Result<Page<Checked>, Unreadable> {
    let all: Vec<StatusBody> = read("statuses", body)?;
    let checked = all.into_iter().map(|status| Checked {
        verdict: match status.status.as_str() {
            "success" => Verdict::Passed,
            // One that was skipped has not run: something before it failed.
            "failed" | "canceled" | "canceling" | "skipped" => Verdict::Failed,
            _ => Verdict::Running,
        },
        name: status.name,
    });
    Ok(Page::of(checked.collect()))
}

#[derive(Deserialize)]
struct HookBody {
    /// None in events of systems and groups, which are of no use here.
    #[serde(default)]
    object_kind: String,
    project: Option<ProjectBody>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    before: Option<String>,
    after: Option<String>,
    user: Option<SenderBody>,
    object_attributes: Option<AttributesBody>,
    merge_request: Option<NumberBody>,
}

#[derive(Deserialize)]
struct ProjectBody {
    path_with_namespace: String,
}

#[derive(Deserialize)]
struct SenderBody {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
struct AttributesBody {
    iid: Option<u64>,
    noteable_type: Option<String>,
}

#[derive(Deserialize)]
struct NumberBody {
    iid: u64,
}

/// What a webhook says. A system hook names all events alike, so that the body decides.
fn event(_name: Option<&str>, json: &[u8]) -> Result<Event, Refusal> {
    let body: HookBody = hook::body(json)?;
    let missing = |what: &str| Refusal::Malformed(format!("it has no {what}"));
    let repo = |project: Option<ProjectBody>| {
        let project = project.ok_or_else(|| missing("project"))?;
        Ok(project.path_with_namespace)
    };
    let sender = body.user.map(|user| user.username).unwrap_or_default();
    let of = body.object_attributes;
    match body.object_kind.as_str() {
        "push" => match (body.reference, body.before, body.after) {
            (Some(reference), Some(before), Some(after)) => {
                hook::moved(repo(body.project)?, reference, before, after)
            }
            _ => Err(missing("`ref`, `before` and `after`")),
        },
        "merge_request" => Ok(Event::PullRequest {
            repo: repo(body.project)?,
            number: of
                .and_then(|of| of.iid)
                .ok_or_else(|| missing("`object_attributes.iid`"))?,
            spoken: false,
            sender,
        }),
        "note" => match (body.merge_request, of.and_then(|of| of.noteable_type).as_deref()) {
            (Some(merge_request), Some("MergeRequest")) => Ok(Event::PullRequest {
                repo: repo(body.project)?,
                number: merge_request.iid,
                spoken: true,
                sender,
            }),
            _ => Ok(Event::Other),
        },
        _ => Ok(Event::Other),
    }
}

#[cfg(test)]
mod tests;
