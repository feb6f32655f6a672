//! How a kind of forge signs and names its webhooks, as values that its own module says; and the shapes of bodies that
//! several kinds share.

use serde::Deserialize;

use super::{Event, Refusal};

/// The webhooks of a kind of forge.
#[derive(Debug)]
pub struct Hook {
    /// The last word of the addresses at which they are taken: `/hooks/<name>`.
    pub names: &'static [&'static str],
    /// How they are signed.
    pub signed: Signed,
    /// The headers that may hold the delivery's id; the first that is there counts.
    pub deliveries: &'static [&'static str],
    /// The headers that may hold the event's name; the first that is there counts.
    pub events: &'static [&'static str],
    /// What a body says, under the event's name.
    pub event: fn(Option<&str>, &[u8]) -> Result<Event, Refusal>,
}

/// How webhooks are signed.
#[derive(Debug)]
pub enum Signed {
    /// HMAC-SHA256 in hexadecimal, `sha256=` before it or not. The first of the headers that is there decides.
    Hmac {
        /// The headers.
        headers: &'static [&'static str],
        /// What is signed of a form.
        form: Form,
    },
    /// By a secret that begins with `whsec_` as Standard Webhooks has it (`webhook-signature`), and then by nothing else; any
    /// other secret stands in a header as it is.
    Token {
        /// The header.
        header: &'static str,
    },
}

/// What is signed of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The bytes of the body.
    Body,
    /// These, or the text in its field `payload`.
    Either,
}

#[derive(Deserialize)]
struct PushBody {
    #[serde(rename = "ref")]
    reference: String,
    before: String,
    after: String,
    repo: Option<String>,
    repository: Option<RepositoryBody>,
}

#[derive(Deserialize)]
struct RepositoryBody {
    full_name: String,
}

/// What Forgejo, Gitea and GitHub send of a pull request, of a review and of a comment: the number stands in one of three
/// places.
#[derive(Deserialize)]
struct PullBody {
    number: Option<u64>,
    pull_request: Option<NumberBody>,
    issue: Option<IssueBody>,
    is_pull: Option<bool>,
    repository: RepositoryBody,
    sender: Option<SenderBody>,
}

#[derive(Deserialize)]
struct NumberBody {
    number: Option<u64>,
}

#[derive(Deserialize)]
struct IssueBody {
    number: u64,
    pull_request: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct SenderBody {
    login: String,
}

/// The whole text is checked: a JSON reader does not look into fields that it skips.
pub(in crate::pure) fn body<'b, T: Deserialize<'b>>(json: &'b [u8]) -> Result<T, Refusal> {
    let text = std::str::from_utf8(json).map_err(|e| Refusal::Malformed(format!("it is not UTF-8: {e}")))?;
    serde_json::from_str(text).map_err(|e| Refusal::Malformed(e.to_string()))
}

/// The events of Forgejo, Gitea and GitHub.
///
/// # Errors
/// [`Refusal::Malformed`].
pub fn of_hub(name: Option<&str>, json: &[u8]) -> Result<Event, Refusal> {
    match name {
        Some("push") => of_push(json, |push| push.repository.map(|r| r.full_name).or(push.repo)),
        Some("ping") => Ok(Event::Ping),
        Some(name) if name.starts_with("pull_request") || name == "issue_comment" => of_pull(json),
        _ => Ok(Event::Other),
    }
}

/// The events of a bare repository's own hook: nothing but pushes, and it need not say so.
///
/// # Errors
/// [`Refusal::Malformed`].
pub fn of_bare(name: Option<&str>, json: &[u8]) -> Result<Event, Refusal> {
    match name {
        Some("push") | None => of_push(json, |push| push.repo.or(push.repository.map(|r| r.full_name))),
        Some("ping") => Ok(Event::Ping),
        Some(_) => Ok(Event::Other),
    }
}

fn of_push(json: &[u8], repo: impl FnOnce(PushBody) -> Option<String>) -> Result<Event, Refusal> {
    let push: PushBody = body(json)?;
    let (reference, before, after) = (push.reference.clone(), push.before.clone(), push.after.clone());
    let repo = repo(push).ok_or_else(|| Refusal::Malformed("it names no repository".to_owned()))?;
    moved(repo, reference, before, after)
}

/// A ref has moved, as far as the ids are ids.
pub(in crate::pure) fn moved(
    repo: String,
    reference: String,
    before: String,
    after: String,
) -> Result<Event, Refusal> {
    for id in [&before, &after] {
        if !matches!(id.len(), 40 | 64) || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Refusal::Malformed(
                "`before` and `after` must be commit ids of 40 or 64 hexadecimal digits".to_owned(),
            ));
        }
    }
    // what "Test delivery" sends on Gitea and Forgejo
    if before == after {
        return Ok(Event::Ping);
    }
    Ok(Event::Push {
        repo,
        reference,
        before,
        after,
    })
}

/// An event of a pull request; comments on plain issues are nothing.
fn of_pull(json: &[u8]) -> Result<Event, Refusal> {
    let body: PullBody = body(json)?;
    let spoken = body.issue.is_some();
    let of_issue = body
        .issue
        .filter(|issue| body.is_pull.unwrap_or(issue.pull_request.is_some()))
        .map(|issue| issue.number);
    let of_pull = body.pull_request.and_then(|pull| pull.number);
    let number = body.number.or(if spoken { of_issue } else { of_pull });
    let Some(number) = number else {
        return Ok(Event::Other);
    };
    Ok(Event::PullRequest {
        repo: body.repository.full_name,
        number,
        spoken,
        sender: body.sender.map(|s| s.login).unwrap_or_default(),
    })
}
