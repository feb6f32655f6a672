//! What a webhook says, once its signature holds (FG-2). Only a hint that there may be something to look at.
//!
//! The signature is checked over the bytes as they came, in constant time, before anything in them is read. A form
//! is the one exception that Gitea and Forgejo ask for: they sign the JSON before they put it into the form, so its
//! one field is decoded, byte for byte, to have what was signed.

use std::collections::BTreeMap;

use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::Timestamp;
use meshplan_schemas::digest::Digest;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::forge;
use crate::config::ForgeKind;
use hook::{Form, Hook, Signed};

pub mod hook;

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

/// What a signing token of Standard Webhooks begins with.
const SIGNING: &[u8] = b"whsec_";
/// How far the time of such a webhook may be off.
const OFF_SECS: i64 = 300;
/// A delivery id that is longer is nobody's.
const DELIVERY_ID_BYTES: usize = 200;

/// The webhooks of a kind of forge.
#[must_use]
pub fn hook_of(kind: ForgeKind) -> &'static Hook {
    match kind {
        ForgeKind::Bare => &forge::bare::HOOK,
        ForgeKind::Forgejo => &forge::forgejo::HOOK,
        ForgeKind::Github => &forge::github::HOOK,
        ForgeKind::Gitlab => &forge::gitlab::HOOK,
    }
}

/// Checks a request and reads what it says. An empty secret opens to nobody.
///
/// # Errors
/// [`Refusal`].
pub fn read(
    kind: ForgeKind,
    secret: &[u8],
    headers: &Headers,
    body: &[u8],
    now: Timestamp,
) -> Result<Trigger, Refusal> {
    let hook = hook_of(kind);
    let form = is_form(headers)?;
    let payload = if form { form_field(body, b"payload") } else { None };
    let signed = match &hook.signed {
        Signed::Hmac { headers: names, form } => {
            let tag = tag(headers, names).ok_or(Refusal::Unauthorized)?;
            let of_payload = payload.as_ref().filter(|_| *form == Form::Either);
            holds(secret, &tag, body) || of_payload.is_some_and(|p| holds(secret, &tag, p))
        }
        Signed::Token { header } => match secret.strip_prefix(SIGNING) {
            Some(key) => is_standard(key, headers, body, now),
            None => is_secret(secret, headers.first(&[*header]).unwrap_or_default()),
        },
    };
    if !signed {
        return Err(Refusal::Unauthorized);
    }
    let json = match (&payload, form) {
        (Some(payload), _) => payload.as_slice(),
        (None, true) => return Err(Refusal::Malformed("the form has no field `payload`".to_owned())),
        (None, false) => body,
    };
    let delivery_id = headers.first(hook.deliveries).unwrap_or_default();
    if delivery_id.len() > DELIVERY_ID_BYTES {
        return Err(Refusal::Malformed(format!(
            "the delivery id is longer than {DELIVERY_ID_BYTES} bytes"
        )));
    }
    Ok(Trigger {
        delivery_id: delivery_id.to_owned(),
        body_digest: Digest::of(body),
        event: (hook.event)(headers.first(hook.events), json)?,
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

fn tag(headers: &Headers, names: &[&str]) -> Option<Vec<u8>> {
    let text = headers.first(names)?;
    let hex = text.strip_prefix("sha256=").unwrap_or(text);
    data_encoding::HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).ok()
}

/// Standard Webhooks: the id, the time and the body are signed; one signature of several is enough.
fn is_standard(key: &[u8], headers: &Headers, body: &[u8], now: Timestamp) -> bool {
    let Ok(key) = data_encoding::BASE64.decode(key) else {
        return false;
    };
    let of = |name: &str| headers.first(&[name]);
    let (Some(id), Some(at), Some(signatures)) =
        (of("webhook-id"), of("webhook-timestamp"), of("webhook-signature"))
    else {
        return false;
    };
    let about_now = |secs: i64| (now.as_second().saturating_sub(secs)).saturating_abs() <= OFF_SECS;
    if !at.parse().is_ok_and(about_now) {
        return false;
    }
    let message = [id.as_bytes(), b".", at.as_bytes(), b".", body].concat();
    let tags = signatures.split(' ').filter_map(|signature| {
        data_encoding::BASE64
            .decode(signature.strip_prefix("v1,")?.as_bytes())
            .ok()
    });
    // All are looked at, whichever holds.
    tags.fold(false, |any, tag| holds(&key, &tag, &message) | any)
}

/// Whether a header holds the secret itself; compared by what both make of the same message, in constant time.
fn is_secret(secret: &[u8], given: &str) -> bool {
    let tag = Hmac::<Sha256>::new_from_slice(given.as_bytes());
    let tag = tag.map(|mac| mac.chain_update(b"the secret").finalize().into_bytes());
    tag.is_ok_and(|tag| holds(secret, &tag, b"the secret"))
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

/// The id of nothing: zeros, 40 or 64 of them.
fn is_zero(id: &str) -> bool {
    id.bytes().all(|b| b == b'0')
}

#[cfg(test)]
mod tests;
