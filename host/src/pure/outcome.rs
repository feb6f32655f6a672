//! The words of a resource's line: what differs, counted.

use std::collections::HashMap;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::report::{Outcome, ResourceLine};

/// A resource's line.
#[must_use]
pub fn line(
    name: &ResourceName,
    outcome: Outcome,
    reason: impl Into<String>,
    digest: Option<Digest>,
) -> ResourceLine {
    ResourceLine {
        name: name.clone(),
        outcome,
        reason: reason.into(),
        digest,
    }
}

/// How a file's bytes differ, as lines lost and lines new; empty when they are equal.
#[must_use]
pub fn lines_lost_and_new(old: &[u8], new: &[u8]) -> String {
    if old == new {
        return String::new();
    }
    let (Ok(old_text), Ok(new_text)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else {
        return format!(
            "{} instead of {}",
            count(new.len(), "byte"),
            count(old.len(), "byte")
        );
    };
    let mut seen: HashMap<&str, i64> = HashMap::new();
    for line in old_text.lines() {
        *seen.entry(line).or_default() -= 1;
    }
    for line in new_text.lines() {
        *seen.entry(line).or_default() += 1;
    }
    let lost: i64 = seen.values().filter(|n| **n < 0).map(|n| -n).sum();
    let fresh: i64 = seen.values().filter(|n| **n > 0).sum();
    match (lost, fresh) {
        (0, 0) => "the same lines in another order or with other line ends".to_owned(),
        (lost, fresh) => format!("{} lost, {fresh} new", count(lost, "line")),
    }
}

/// `1 line`, `2 lines`.
fn count<N: PartialEq + From<u8> + std::fmt::Display>(n: N, noun: &str) -> String {
    let s = if n == N::from(1) { "" } else { "s" };
    format!("{n} {noun}{s}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_with_their_repetitions() {
        assert_eq!(lines_lost_and_new(b"a\nb\n", b"a\nc\nc\n"), "1 line lost, 2 new");
        assert_eq!(lines_lost_and_new(b"a\na\n", b"a\n"), "1 line lost, 0 new");
        assert_eq!(lines_lost_and_new(b"", b"x\n"), "0 lines lost, 1 new");
        assert_eq!(lines_lost_and_new(b"x", b"x"), "");
    }

    #[test]
    fn a_difference_without_a_lost_line_is_still_said() {
        assert!(lines_lost_and_new(b"a\nb\n", b"b\na\n").contains("another order"));
        assert!(lines_lost_and_new(b"a\n", b"a").contains("line ends"));
        assert_eq!(lines_lost_and_new(&[0xff], b"ab"), "2 bytes instead of 1 byte");
    }
}
