//! Words of people in comments on a pull request: `/plans go`, and the others (DL-4).
//!
//! A word counts when it stands on a line of its own, in a comment that was never edited, in no block of code and in no
//! quotation (B57): so nobody orders by quoting, by showing an example, or by changing what another was answered to.

use super::Comment;
use crate::pure::snapshot::Verb;

/// The most characters of a reason that are taken down.
const WHY_CHARS: usize = 200;

/// A word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// What.
    pub verb: Verb,
    /// As it was written, without the reason.
    pub word: String,
    /// Why, as the person says; may be empty.
    pub why: String,
}

/// The first word of a comment; none where it has none, or was edited.
#[must_use]
pub fn order(comment: &Comment) -> Option<Order> {
    if comment.updated_at != comment.created_at {
        return None;
    }
    let mut fence: Option<(char, usize)> = None;
    for line in comment.body.lines() {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let text = line.trim();
        let first = text.chars().next();
        let run = first.map_or(0, |c| text.chars().take_while(|other| *other == c).count());
        match (fence, first) {
            (None, Some(c @ ('`' | '~'))) if run >= 3 => fence = Some((c, run)),
            (Some((open, length)), Some(c)) if c == open && run >= length && text.chars().all(|x| x == c) => {
                fence = None;
            }
            (None, Some('/')) if indent < 4 && !line.starts_with('\t') => {
                if let Some(order) = word(text) {
                    return Some(order);
                }
            }
            _ => {}
        }
    }
    None
}

fn word(line: &str) -> Option<Order> {
    let mut words = line.split_whitespace();
    if words.next() != Some("/plans") {
        return None;
    }
    let said = words.next()?;
    let mut rest: Vec<&str> = words.collect();
    let verb = match said {
        "go" if rest.first() == Some(&"--again") => {
            rest.remove(0);
            Verb::GoAgain
        }
        "go" => Verb::Go,
        "hold" => Verb::Hold,
        "stop" => Verb::Stop,
        "withdraw" => Verb::Withdraw,
        "retry" => Verb::Retry,
        _ => return None,
    };
    let word = match verb {
        Verb::GoAgain => "/plans go --again".to_owned(),
        _ => format!("/plans {said}"),
    };
    Some(Order {
        verb,
        word,
        why: super::cut(&rest.join(" "), WHY_CHARS),
    })
}

#[cfg(test)]
mod tests;
