//! What a webhook says, once its signature holds (FG-2). Only a hint that there may be something to look at.
//!
//! The signature is checked over the bytes as they came, in constant time, before anything in them is read. A form
//! is the one exception that Gitea and Forgejo ask for: they sign the JSON before they put it into the form, so its
//! one field is decoded, byte for byte, to have what was signed.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit as _, Mac as _};
use meshplan_schemas::digest::Digest;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::config::ForgeKind;

/// A webhook whose signature held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trigger {
    /// The forge's id of this delivery, empty when it sent none.
    pub delivery_id: String,
    /// The digest of the body's bytes.
    pub body_digest: Digest,
    /// What it says.
    pub event: Event,
}

/// What a webhook says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A ref has moved.
    Push {
        /// The repository.
        repo: String,
        /// The full name of the ref.
        reference: String,
        /// Where it was; zeros when it is new.
        before: String,
        /// Where it is; zeros when it is gone.
        after: String,
    },
    /// Something of a pull request: it was opened, changed, merged, reviewed, or spoken on.
    PullRequest {
        /// The repository.
        repo: String,
        /// Its number.
        number: u64,
        /// Somebody spoke on it, and it is as it was.
        spoken: bool,
        /// Who did it, by login; empty where the forge does not say.
        sender: String,
    },
    /// A trial delivery.
    Ping,
    /// Something that starts no work.
    Other,
}

/// Why a webhook is refused. The sender is told the number, nothing more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No signature, or not one by the configured secret.
    #[error("the signature is missing, or was not made with the configured secret")]
    Unauthorized,
    /// Neither JSON nor a form.
    #[error("the content type is `{0}`; webhooks are `application/json` (or a form with a `payload` field)")]
    UnsupportedType(String),
    /// Signed, and not what the forge sends.
    #[error("the signature holds, but the body cannot be read: {0}")]
    Malformed(String),
}

/// The headers of a request, by lower-case name; of a name that comes twice the first counts.
#[derive(Debug, Clone, Default)]
pub struct Headers(BTreeMap<String, String>);

impl<N: AsRef<str>, V: Into<String>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut headers = BTreeMap::new();
        for (name, value) in pairs {
            headers
                .entry(name.as_ref().to_ascii_lowercase())
                .or_insert_with(|| value.into());
        }
        Self(headers)
    }
}

impl Headers {
    /// The first of these headers that is there and not empty.
    fn first(&self, names: &[&str]) -> Option<&str> {
        names
            .iter()
            .filter_map(|name| self.0.get(*name))
            .map(|value| value.trim())
            .find(|value| !value.is_empty())
    }
}

/// Bare hexadecimal HMAC-SHA256, but for the last, which puts `sha256=` before it. The first that is there decides.
const SIGNATURES: &[&str] = &[
    "x-meshplan-signature",
    "x-forgejo-signature",
    "x-gitea-signature",
    "x-hub-signature-256",
];
const DELIVERIES: &[&str] = &[
    "x-meshplan-delivery",
    "x-forgejo-delivery",
    "x-gitea-delivery",
    "x-gogs-delivery",
    "x-github-delivery",
];
/// The exact name goes before the collapsed one: one word means two things there.
const EVENTS: &[&str] = &[
    "x-meshplan-event",
    "x-forgejo-event-type",
    "x-gitea-event-type",
    "x-forgejo-event",
    "x-gitea-event",
    "x-gogs-event",
    "x-github-event",
];
/// A delivery id that is longer is nobody's.
const DELIVERY_ID_BYTES: usize = 200;

/// Checks a request and reads what it says. An empty secret opens to nobody.
///
/// # Errors
/// [`Refusal`].
pub fn read(kind: ForgeKind, secret: &[u8], headers: &Headers, body: &[u8]) -> Result<Trigger, Refusal> {
    let form = is_form(headers)?;
    let payload = if form { form_field(body, b"payload") } else { None };
    let tag = tag(headers).ok_or(Refusal::Unauthorized)?;
    let signed = holds(secret, &tag, body) || payload.as_ref().is_some_and(|p| holds(secret, &tag, p));
    if !signed {
        return Err(Refusal::Unauthorized);
    }
    let json = match (&payload, form) {
        (Some(payload), _) => payload.as_slice(),
        (None, true) => return Err(Refusal::Malformed("the form has no field `payload`".to_owned())),
        (None, false) => body,
    };
    let delivery_id = headers.first(DELIVERIES).unwrap_or_default();
    if delivery_id.len() > DELIVERY_ID_BYTES {
        return Err(Refusal::Malformed(format!(
            "the delivery id is longer than {DELIVERY_ID_BYTES} bytes"
        )));
    }
    Ok(Trigger {
        delivery_id: delivery_id.to_owned(),
        body_digest: Digest::of(body),
        event: event(kind, headers, json)?,
    })
}

/// Whether an event is a move of exactly this branch of this repository, or of one of its pull requests: names are
/// compared whole, and a branch that is gone starts nothing (B05).
#[must_use]
pub fn concerns(event: &Event, repo: &str, branch: &str) -> bool {
    match event {
        Event::Push {
            repo: of,
            reference,
            after,
            ..
        } => of == repo && reference.strip_prefix("refs/heads/") == Some(branch) && !is_zero(after),
        Event::PullRequest { repo: of, .. } => of == repo,
        Event::Ping | Event::Other => false,
    }
}

fn is_form(headers: &Headers) -> Result<bool, Refusal> {
    let text = headers.first(&["content-type"]).unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        "application/json" => Ok(false),
        "application/x-www-form-urlencoded" => Ok(true),
        _ => Err(Refusal::UnsupportedType(text.chars().take(100).collect())),
    }
}

fn tag(headers: &Headers) -> Option<Vec<u8>> {
    let text = headers.first(SIGNATURES)?;
    let hex = text.strip_prefix("sha256=").unwrap_or(text);
    data_encoding::HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).ok()
}

fn holds(secret: &[u8], tag: &[u8], message: &[u8]) -> bool {
    if secret.is_empty() {
        return false;
    }
    Hmac::<Sha256>::new_from_slice(secret)
        .is_ok_and(|mac| mac.chain_update(message).verify_slice(tag).is_ok())
}

/// The decoded bytes of a form's field, as they are: a decoder that made text of them would change what was signed.
fn form_field(body: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    body.split(|b| *b == b'&').find_map(|pair| {
        let mut halves = pair.splitn(2, |b| *b == b'=');
        let key = percent_decoded(halves.next()?)?;
        let value = halves.next()?;
        (key == name).then(|| percent_decoded(value)).flatten()
    })
}

fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digit = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16));
                let value = digit(bytes.next())? * 16 + digit(bytes.next())?;
                out.push(u8::try_from(value).ok()?);
            }
            other => out.push(*other),
        }
    }
    Some(out)
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

/// What Forgejo and Gitea send of a pull request and of a comment on one: the number stands in one of two places.
#[derive(Deserialize)]
struct PullBody {
    number: Option<u64>,
    issue: Option<IssueBody>,
    is_pull: Option<bool>,
    repository: RepositoryBody,
    sender: Option<SenderBody>,
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
fn text_of(json: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(json).map_err(|e| Refusal::Malformed(format!("it is not UTF-8: {e}")))
}

/// An event of a pull request; comments on plain issues are nothing.
fn of_pull(json: &[u8]) -> Result<Event, Refusal> {
    let body: PullBody =
        serde_json::from_str(text_of(json)?).map_err(|e| Refusal::Malformed(e.to_string()))?;
    let spoken = body.issue.is_some();
    let of_issue = body
        .issue
        .filter(|issue| body.is_pull.unwrap_or(issue.pull_request.is_some()))
        .map(|issue| issue.number);
    let Some(number) = body.number.or(of_issue) else {
        return Ok(Event::Other);
    };
    Ok(Event::PullRequest {
        repo: body.repository.full_name,
        number,
        spoken,
        sender: body.sender.map(|s| s.login).unwrap_or_default(),
    })
}

fn event(kind: ForgeKind, headers: &Headers, json: &[u8]) -> Result<Event, Refusal> {
    match (headers.first(EVENTS), kind) {
        // our own hook sends nothing but pushes and need not say so
        (Some("push"), _) | (None, ForgeKind::Bare) => {}
        (Some("ping"), _) => return Ok(Event::Ping),
        (Some(name), ForgeKind::Forgejo) if name.starts_with("pull_request") || name == "issue_comment" => {
            return of_pull(json);
        }
        (Some(_), _) | (None, ForgeKind::Forgejo) => return Ok(Event::Other),
    }
    let push: PushBody =
        serde_json::from_str(text_of(json)?).map_err(|e| Refusal::Malformed(e.to_string()))?;
    let repo = match kind {
        ForgeKind::Forgejo => push.repository.map(|r| r.full_name).or(push.repo),
        ForgeKind::Bare => push.repo.or(push.repository.map(|r| r.full_name)),
    };
    let repo = repo.ok_or_else(|| Refusal::Malformed("it names no repository".to_owned()))?;
    for id in [&push.before, &push.after] {
        if !matches!(id.len(), 40 | 64) || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Refusal::Malformed(
                "`before` and `after` must be commit ids of 40 or 64 hexadecimal digits".to_owned(),
            ));
        }
    }
    // what "Test delivery" sends on Gitea and Forgejo
    if push.before == push.after {
        return Ok(Event::Ping);
    }
    Ok(Event::Push {
        repo,
        reference: push.reference,
        before: push.before,
        after: push.after,
    })
}

/// The id of nothing: zeros, 40 or 64 of them.
fn is_zero(id: &str) -> bool {
    id.bytes().all(|b| b == b'0')
}

#[cfg(test)]
mod tests;
