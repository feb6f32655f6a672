//! What a forge's answers mean: JSON that is read, and refusals that are told apart.

use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::request::{Manners, Page};

/// The most characters of a forge's own words.
const WORDS: usize = 200;

/// An answer that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the forge's answer about {what} cannot be read: {why}")]
pub struct Unreadable {
    /// About what.
    pub what: &'static str,
    /// Why.
    pub why: String,
}

pub(super) fn read<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, Unreadable> {
    serde_json::from_slice(body).map_err(|e| Unreadable {
        what,
        why: e.to_string(),
    })
}

/// A page of things, each read by itself: one that cannot be read is counted, and hinders no other.
pub(super) fn read_page<B: DeserializeOwned, T>(
    what: &'static str,
    body: &[u8],
    one: impl Fn(B) -> Result<T, Unreadable>,
) -> Result<Page<T>, Unreadable> {
    let all: Vec<Value> = read(what, body)?;
    let items: Vec<T> = (all.iter())
        .filter_map(|value| one(B::deserialize(value).ok()?).ok())
        .collect();
    Ok(Page {
        count: all.len(),
        unread: all.len() - items.len(),
        total: None,
        items,
    })
}

/// An answer that is no yes.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// Its number.
    pub status: u16,
    /// For how long it asks to be left alone, by `Retry-After`.
    pub asked: Option<Duration>,
    /// How many requests are left, and when there are new ones, by the headers of [`Manners::left`].
    pub left: Option<(u64, Timestamp)>,
    /// Its words.
    pub words: &'a str,
}

/// What a refusal means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// Leave the forge alone: for so long, where it says for how long.
    Quiet(Option<Duration>),
    /// The same again, later.
    Later,
    /// It stands there already.
    There,
    /// It is not there, or not for us.
    Missing,
    /// The token is not taken, or may not do this.
    Refused,
    /// None of what the forge says to answer.
    Odd,
}

/// What a refusal means, in the forge's manners.
#[must_use]
pub fn meaning(manners: &Manners, refusal: &Refusal<'_>, now: Timestamp) -> Meaning {
    let Refusal {
        status,
        asked,
        left,
        words,
    } = *refusal;
    let there = |(number, said): &&(u16, &str)| *number == status && words.contains(said);
    if manners.there.iter().any(|of| there(&of)) {
        return Meaning::There;
    }
    // Numbers of requests that are left stand in every answer: they are the reason only where none is.
    let spent = left
        .filter(|(left, _)| *left == 0)
        .map(|(_, until)| Duration::try_from(until.duration_since(now)).unwrap_or_default());
    let fast = || {
        let words = words.to_lowercase();
        manners.too_fast.iter().any(|said| words.contains(said))
    };
    match status {
        429 => Meaning::Quiet(asked.or(spent)),
        403 | 503 if asked.is_some() => Meaning::Quiet(asked),
        403 if spent.is_some() || fast() => Meaning::Quiet(spent),
        404 | 410 => Meaning::Missing,
        401 | 403 | 423 => Meaning::Refused,
        // Two of ours at once, or one of ours and one of somebody else.
        408 | 409 => Meaning::Later,
        500.. => Meaning::Later,
        _ => Meaning::Odd,
    }
}

/// What the forge says where it refuses, at most so much of it as is worth a line.
///
/// Forgejo says `message`; GitHub that, and `errors` with a `message` each; GitLab `message` as a text, a list, or lists by
/// field, or `error` with `error_description`.
#[must_use]
pub fn words(body: &[u8]) -> String {
    let Ok(said) = serde_json::from_slice::<Value>(body) else {
        return String::new();
    };
    let mut words = Vec::new();
    for name in ["message", "errors", "error", "error_description"] {
        texts(said.get(name), 0, &mut words);
    }
    super::cut(&words.join(", "), WORDS)
}

fn texts(value: Option<&Value>, depth: u32, words: &mut Vec<String>) {
    if depth > 3 || words.len() > 8 {
        return;
    }
    match value {
        Some(Value::String(text)) if !text.is_empty() => words.push(text.clone()),
        Some(Value::Array(all)) => all.iter().for_each(|one| texts(Some(one), depth + 1, words)),
        Some(Value::Object(fields)) => match fields.get("message") {
            Some(message) => texts(Some(message), depth + 1, words),
            None => fields.values().for_each(|one| texts(Some(one), depth + 1, words)),
        },
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::forge::{forgejo, github, gitlab};

    fn refusal(status: u16, words: &str) -> Refusal<'_> {
        Refusal {
            status,
            asked: None,
            left: None,
            words,
        }
    }

    // holds: FG-4
    #[test]
    fn a_forge_that_has_had_enough_is_told_from_one_that_says_no() {
        let now: Timestamp = "2026-11-29T10:00:00Z".parse().unwrap();
        let hub = |refusal: Refusal<'_>| meaning(&github::MANNERS, &refusal, now);
        let secs = Duration::from_secs;
        let plain = refusal(403, "Resource not accessible by personal access token");
        assert_eq!(hub(plain), Meaning::Refused);
        let spent = Some((0, now.checked_add(secs(90)).unwrap()));
        assert_eq!(
            hub(Refusal { left: spent, ..plain }),
            Meaning::Quiet(Some(secs(90)))
        );
        let some = Some((7, now.checked_add(secs(90)).unwrap()));
        assert_eq!(hub(Refusal { left: some, ..plain }), Meaning::Refused);
        assert_eq!(
            hub(Refusal {
                asked: Some(secs(5)),
                ..plain
            }),
            Meaning::Quiet(Some(secs(5)))
        );
        let fast =
            "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
        assert_eq!(hub(refusal(403, fast)), Meaning::Quiet(None));
        assert_eq!(hub(refusal(429, "")), Meaning::Quiet(None));
        assert_eq!(
            meaning(&forgejo::MANNERS, &refusal(403, fast), now),
            Meaning::Refused,
            "words of another forge"
        );
        assert_eq!(hub(refusal(410, "")), Meaning::Missing);
        assert_eq!(hub(refusal(502, "")), Meaning::Later);
        assert_eq!(hub(refusal(422, "Validation Failed")), Meaning::Odd);
    }

    // holds: FG-4
    #[test]
    fn what_stands_there_already_is_told_in_each_forges_words() {
        let now = Timestamp::UNIX_EPOCH;
        let there = "Validation Failed, A pull request already exists for acme:edge.";
        assert_eq!(
            meaning(&github::MANNERS, &refusal(422, there), now),
            Meaning::There
        );
        let merged = "Validation Failed, No commits between main and meshplan/admit/ace";
        assert_eq!(
            meaning(&github::MANNERS, &refusal(422, merged), now),
            Meaning::There
        );
        let gitlab = |status, words| meaning(&gitlab::MANNERS, &refusal(status, words), now);
        let there = "Another open merge request already exists for this source branch: !1";
        assert_eq!(gitlab(409, there), Meaning::There);
        assert_eq!(gitlab(409, "Cannot obtain an exclusive lease"), Meaning::Later);
        let there = "Cannot transition status via :run from :running (Reason(s): ...)";
        assert_eq!(gitlab(400, there), Meaning::There);
        assert_eq!(gitlab(400, "state does not have a valid value"), Meaning::Odd);
        assert_eq!(
            meaning(&forgejo::MANNERS, &refusal(409, "x"), now),
            Meaning::There
        );
        assert_eq!(meaning(&github::MANNERS, &refusal(409, "x"), now), Meaning::Later);
    }

    #[test]
    fn words_are_found_where_each_forge_puts_them() {
        for (body, said) in [
            (r#"{"message":"no","url":"/api/swagger"}"#, "no"),
            (
                r#"{"message":"Validation Failed","errors":[{"resource":"PullRequest","code":"custom","message":"it exists"}]}"#,
                "Validation Failed, it exists",
            ),
            (r#"{"message":["one","two"]}"#, "one, two"),
            (r#"{"message":{"base":["taken"]}}"#, "taken"),
            (
                r#"{"error":"insufficient_scope","error_description":"needs more"}"#,
                "insufficient_scope, needs more",
            ),
            ("<html>", ""),
        ] {
            assert_eq!(words(body.as_bytes()), said, "{body}");
        }
    }
}
