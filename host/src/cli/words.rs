//! Words that several commands use: instants, durations, states.

use std::fmt::Display;

use meshplan_schemas::report::Outcome;
use serde::Serialize;

/// `2026-11-29 20:00:01Z (4m 10s ago)`.
pub(super) fn at(instant: i64, now: i64) -> String {
    let text = instant_text(instant);
    let ago = now.saturating_sub(instant);
    if ago >= 0 {
        format!("{text} ({} ago)", span(ago))
    } else {
        format!("{text} (in {})", span(ago.saturating_neg()))
    }
}

/// `2026-11-29 20:00:01Z`.
pub(super) fn instant_text(instant: i64) -> String {
    jiff::Timestamp::from_second(instant).map_or_else(
        |_| instant.to_string(),
        |t| t.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
    )
}

/// `4m 10s`: the two greatest units.
pub(super) fn span(secs: i64) -> String {
    let parts = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let mut rest = secs;
    let mut words = Vec::new();
    for (size, unit) in parts {
        if rest >= size {
            words.push(format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    words.truncate(2);
    if words.is_empty() {
        "0s".to_owned()
    } else {
        words.join(" ")
    }
}

/// The word that a state or an outcome has in JSON.
pub(super) fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word.replace('_', " "),
        _ => "unknown".to_owned(),
    }
}

/// What a plan says of an outcome: nothing has happened yet.
pub(super) fn would(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Unchanged => "stays",
        Outcome::Created => "would be created",
        Outcome::Updated | Outcome::DriftRepaired => "would be changed",
        Outcome::Restarted => "would be restarted",
        Outcome::Removed => "would be removed",
        Outcome::Held => "is held",
        Outcome::Kept => "is kept",
        Outcome::Skipped => "would be skipped",
        Outcome::Refused => "would be refused",
        Outcome::Failed => "would fail",
        Outcome::Forgotten => "would be forgotten",
        Outcome::LeftOut => "is left out",
        Outcome::Reverted => "was put back",
    }
}

/// A line of a table of two columns.
pub(super) fn row(out: &mut String, name: &str, value: impl Display) {
    use std::fmt::Write as _;
    // Writing to a text does not fail.
    let _written = writeln!(out, "{name:<12} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_their_two_greatest_units() {
        assert_eq!(span(0), "0s");
        assert_eq!(span(59), "59s");
        assert_eq!(span(250), "4m 10s");
        assert_eq!(span(90_061), "1d 1h");
        assert_eq!(span(86_400), "1d");
    }

    #[test]
    fn an_instant_says_how_far_it_is_in_both_directions() {
        assert_eq!(at(0, 10), "1970-01-01 00:00:00Z (10s ago)");
        assert_eq!(at(10, 0), "1970-01-01 00:00:10Z (in 10s)");
    }
}
