//! When a timestamp is made, and which instant it says (SG-9).

use meshplan_schemas::digest::Digest;
use meshplan_schemas::timestamp::Timestamp;

/// How old a timestamp grows before it is renewed, in seconds.
const RENEW_SECS: i64 = 86_400;

/// The `issued_at` of the timestamp to make now; none while the last one speaks of this head and is not a day old.
///
/// It is always above the last one's, which is its number: also with two heads in one second, or a clock set back.
#[must_use]
pub fn next_issue(last: Option<&Timestamp>, head: Digest, now: i64) -> Option<i64> {
    let Some(last) = last else { return Some(now) };
    let fresh = last.head == head && now.saturating_sub(last.issued_at) < RENEW_SECS;
    (!fresh).then(|| now.max(last.issued_at.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(head: &str, issued_at: i64) -> Timestamp {
        Timestamp {
            schema: 1,
            fleet: "home".parse().unwrap(),
            era: 0,
            issued_at,
            must_understand: vec![],
            revision: 1,
            head: Digest::of(head.as_bytes()),
            block: None,
            valid_to: 0,
        }
    }

    // holds: SG-9
    #[test]
    fn a_timestamp_is_made_for_a_new_head_and_daily_and_never_under_a_number_of_before() {
        let (a, b) = (Digest::of(b"a"), Digest::of(b"b"));
        assert_eq!(next_issue(None, a, 100), Some(100));
        assert_eq!(next_issue(Some(&last("a", 100)), a, 100 + RENEW_SECS - 1), None);
        assert_eq!(
            next_issue(Some(&last("a", 100)), a, 100 + RENEW_SECS),
            Some(100 + RENEW_SECS)
        );
        assert_eq!(
            next_issue(Some(&last("a", 100)), b, 100),
            Some(101),
            "two heads in one second"
        );
        assert_eq!(
            next_issue(Some(&last("a", 100)), b, 50),
            Some(101),
            "a clock that was set back"
        );
    }
}
