//! Which commits of a look are new: orders in first-parent order, whatever became of the branch (DL-1, FG-3).
//!
//! The mirror says what git knows; what follows from it is decided here.

use std::collections::BTreeSet;

use meshplan_schemas::ident::CommitId;

use super::decide::NewCommit;
use super::forge::kept::Kept;

/// What a look found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The remote has no such branch.
    Gone,
    /// The branch as it stands.
    Branch(Line),
}

/// The branch between where it was read to and its tip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its tip.
    pub tip: Commit,
    /// What git has on the first-parent line that ends at the tip and not behind the commit that was read to, oldest
    /// first, the tip last. Empty where nothing was read, or nothing that is still here.
    pub since: Vec<Commit>,
    /// How the tip stands to the commit that the branch was read to.
    pub known: Known,
}

/// A commit as a delivery shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Its id.
    pub id: CommitId,
    /// Its parents, the first one first.
    pub parents: Vec<CommitId>,
    /// Its first line.
    pub subject: String,
    /// Its author's name.
    pub author: String,
    /// Its `Allow-Removals:` line, without the word (FR-12).
    pub allows_removals: Option<String>,
}

/// The commit that a branch was read to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// There is none: the branch was never read.
    None,
    /// It is not in the repository any more.
    Missing,
    /// The tip, or behind it.
    Behind,
    /// The tip does not come from it.
    Aside,
}

/// What follows of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// The branch is gone: the fleet is frozen as it stands.
    Gone,
    /// The branch is where it was.
    Nothing,
    /// The branch was set back to a commit that was delivered before: it is read to there, and nothing is undone.
    SetBack(CommitId),
    /// New orders, oldest first; the branch is read to the tip with them.
    New(Vec<NewCommit>, CommitId),
}

/// Judges what a look found. `cursor` is up to where the branch was read, `delivered` those of its commits that are
/// deliveries already: the same commit never becomes two (DL-1).
///
/// Of a branch that was never read, and of one whose past is gone, the tip alone is an order: what was before it is
/// in it. A commit before one that was delivered is in that one too, and never an order after it. `pulls` are the pull
/// requests that the forge told of before the look.
#[must_use]
pub fn judge(
    found: Found,
    cursor: Option<&CommitId>,
    delivered: &BTreeSet<CommitId>,
    pulls: &[Kept],
) -> Judged {
    let Found::Branch(Line { tip, since, known }) = found else {
        return Judged::Gone;
    };
    if cursor == Some(&tip.id) {
        return Judged::Nothing;
    }
    let rewritten = matches!(known, Known::Missing | Known::Aside);
    let head = tip.id.clone();
    let mut line = since;
    if line.is_empty() || matches!(known, Known::None | Known::Missing) {
        line = vec![tip];
    }
    let first = line
        .iter()
        .rposition(|c| delivered.contains(&c.id))
        .map_or(0, |at| at + 1);
    let new: Vec<NewCommit> = line
        .drain(first..)
        .map(|commit| NewCommit {
            rewritten: rewritten && commit.id == head,
            heard: heard(&commit, pulls),
            commit: commit.id,
            component: None,
            subject: commit.subject,
            author: commit.author,
            allows_removals: commit.allows_removals,
        })
        .collect();
    if new.is_empty() && rewritten {
        Judged::SetBack(head)
    } else {
        Judged::New(new, head)
    }
}

/// Whether the head that a commit merges was heard of before, see [`NewCommit::heard`].
fn heard(commit: &Commit, pulls: &[Kept]) -> Option<bool> {
    let was = |pull: &Kept| pull.was_heard_before(&commit.id, &commit.parents);
    // A squash is told from another commit by the forge's word alone, which may come after the push.
    let may_be = |pull: &Kept| pull.open && pull.open_head.is_some();
    match (pulls.iter().any(was), pulls.iter().any(may_be)) {
        (true, _) => Some(true),
        (false, true) => None,
        (false, false) => Some(false),
    }
}

/// The value of a trailer: a `Key: value` line of a message's last paragraph, the key in any case (git-interpret-trailers(1)).
/// None where it says nothing.
#[must_use]
pub fn trailer(message: &str, key: &str) -> Option<String> {
    let message = message.replace("\r\n", "\n");
    // The first paragraph is the subject's, whatever it looks like.
    let (_, last) = message.trim_end().rsplit_once("\n\n")?;
    let values = last.lines().filter_map(|line| line.split_once(':'));
    let mut values = values.filter(|(word, _)| word.trim_end().eq_ignore_ascii_case(key));
    values.find_map(|(_, value)| Some(value.trim().to_owned()).filter(|value| !value.is_empty()))
}

/// The commits whose deliveries [`judge`] asks about.
pub fn candidates(found: &Found) -> impl Iterator<Item = &CommitId> {
    let line = match found {
        Found::Gone => None,
        Found::Branch(line) => Some(line),
    };
    line.into_iter().flat_map(|line| {
        let tip = (line.since.last() != Some(&line.tip)).then_some(&line.tip);
        line.since.iter().chain(tip).map(|c| &c.id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::forge::{Merged as MergeOf, Pull, User};

    fn id(n: u8) -> CommitId {
        format!("{n:040x}").parse().unwrap()
    }

    fn commit(n: u8) -> Commit {
        Commit {
            id: id(n),
            parents: Vec::new(),
            subject: format!("change {n}"),
            author: "dana".to_owned(),
            allows_removals: None,
        }
    }

    /// `New` as numbers, with `!` behind the one that is marked as rewritten.
    fn said(judged: &Judged) -> String {
        let number = |id: &CommitId| u8::from_str_radix(id.as_str().trim_start_matches('0'), 16).unwrap();
        match judged {
            Judged::Gone => "gone".to_owned(),
            Judged::Nothing => "nothing".to_owned(),
            Judged::SetBack(head) => format!("set back to {}", number(head)),
            Judged::New(new, head) => {
                let mark = |c: &NewCommit| if c.rewritten { "!" } else { "" };
                let new: Vec<String> = new
                    .iter()
                    .map(|c| format!("{}{}", number(&c.commit), mark(c)))
                    .collect();
                format!("{}, read to {}", new.join(" "), number(head))
            }
        }
    }

    // holds: DL-1, FG-3, FG-4
    #[test]
    fn what_a_look_found_becomes_orders_once_and_in_first_parent_order() {
        use Known::{Aside, Behind, Missing, None};
        // cursor (0: none), tip, since, known, delivered, what follows
        type Row = (
            &'static str,
            u8,
            u8,
            &'static [u8],
            Known,
            &'static [u8],
            &'static str,
        );
        let rows: &[Row] = &[
            ("never read: the tip alone", 0, 5, &[], None, &[], "5, read to 5"),
            (
                "never read, with a past that git offers",
                0,
                5,
                &[3, 4, 5],
                None,
                &[],
                "5, read to 5",
            ),
            ("nothing moved", 5, 5, &[], Behind, &[5], "nothing"),
            ("one merged", 5, 6, &[6], Behind, &[5], "6, read to 6"),
            (
                "several at once, oldest first",
                5,
                8,
                &[6, 7, 8],
                Behind,
                &[5],
                "6 7 8, read to 8",
            ),
            (
                "some stored by the pass that died",
                5,
                8,
                &[6, 7, 8],
                Behind,
                &[5, 6],
                "7 8, read to 8",
            ),
            (
                "all stored by it",
                5,
                7,
                &[6, 7],
                Behind,
                &[5, 6, 7],
                ", read to 7",
            ),
            ("rewritten", 5, 9, &[8, 9], Aside, &[5], "8 9!, read to 9"),
            (
                "rewritten onto what was delivered",
                5,
                4,
                &[4],
                Aside,
                &[4, 5],
                "set back to 4",
            ),
            ("set back to a parent", 5, 4, &[], Aside, &[4, 5], "set back to 4"),
            (
                "set back to one that never was an order",
                5,
                3,
                &[],
                Aside,
                &[5],
                "3!, read to 3",
            ),
            ("the past is gone", 5, 9, &[], Missing, &[5], "9!, read to 9"),
            (
                "the past is gone, the tip is known",
                5,
                4,
                &[],
                Missing,
                &[4, 5],
                "set back to 4",
            ),
            (
                "older than what was delivered",
                5,
                9,
                &[7, 8, 9],
                Aside,
                &[5, 8],
                "9!, read to 9",
            ),
            (
                "the tip is known, its past is not",
                5,
                8,
                &[7, 8],
                Aside,
                &[5, 8],
                "set back to 8",
            ),
        ];
        for (what, cursor, tip, since, known, delivered, expected) in rows {
            let found = Found::Branch(Line {
                tip: commit(*tip),
                since: since.iter().map(|n| commit(*n)).collect(),
                known: *known,
            });
            let asked: BTreeSet<CommitId> = candidates(&found).cloned().collect();
            let delivered = delivered
                .iter()
                .map(|n| id(*n))
                .filter(|c| asked.contains(c))
                .collect();
            let cursor = (*cursor > 0).then(|| id(*cursor));
            assert_eq!(
                said(&judge(found, cursor.as_ref(), &delivered, &[])),
                *expected,
                "{what}"
            );
        }
    }

    // holds: DL-2
    #[test]
    fn a_commit_is_made_from_the_forges_word_unless_the_head_that_it_merges_was_heard_of_while_it_was_open() {
        let user = || User {
            id: 1,
            login: "dana".to_owned(),
        };
        let pull = |head: u8, merged: Option<u8>| Pull {
            number: 7,
            author: user(),
            head: id(head),
            fork_point: None,
            base: None,
            into: "main".to_owned(),
            open: merged.is_none(),
            merged: merged.map(|commit| MergeOf {
                commit: id(commit),
                at: jiff::Timestamp::UNIX_EPOCH,
            }),
            fork: false,
        };
        let heard = |kept: &Kept, n: u8, parents: &[u8]| {
            let found = Found::Branch(Line {
                tip: commit(n),
                since: vec![Commit {
                    parents: parents.iter().map(|n| id(*n)).collect(),
                    ..commit(n)
                }],
                known: Known::Behind,
            });
            match judge(found, Some(&id(1)), &BTreeSet::new(), std::slice::from_ref(kept)) {
                Judged::New(new, _) => new[0].heard,
                other => panic!("{other:?}"),
            }
        };
        let open = Kept::of(pull(3, None), None);
        assert_eq!(heard(&open, 5, &[1, 3]), Some(true), "merged");
        assert_eq!(heard(&open, 3, &[1]), Some(true), "fast-forward");
        assert_eq!(heard(&open, 5, &[1]), None, "squashed, or another commit");
        assert_eq!(heard(&open, 5, &[3]), None, "on top of it, and no merge of it");
        assert_eq!(heard(&open, 5, &[1, 4]), None, "pushed to and merged at once");

        let squashed = Kept::of(pull(3, Some(5)), Some(open.clone()));
        assert_eq!(
            heard(&squashed, 5, &[1]),
            Some(true),
            "squashed, as the forge has told since"
        );
        let moved = Kept::of(pull(4, Some(5)), Some(open));
        assert_eq!(
            heard(&moved, 5, &[1]),
            Some(false),
            "squashed with a head that was never heard of"
        );
        let unknown = Kept::of(pull(3, Some(5)), None);
        assert_eq!(
            heard(&unknown, 5, &[1, 3]),
            Some(false),
            "heard of when it was over"
        );
    }

    // holds: FG-3
    #[test]
    fn a_branch_that_is_gone_is_no_order_and_moves_nothing() {
        for cursor in [None, Some(id(5))] {
            assert_eq!(
                judge(Found::Gone, cursor.as_ref(), &BTreeSet::new(), &[]),
                Judged::Gone
            );
        }
        assert_eq!(candidates(&Found::Gone).count(), 0);
    }

    // holds: FR-12
    #[test]
    fn a_trailer_is_a_line_of_the_last_paragraph_and_says_something() {
        for (message, expected) in [
            (
                "take it away\n\nAllow-Removals: the old stack is gone\n",
                Some("the old stack is gone"),
            ),
            (
                "take it away\r\n\r\nwords\r\n\r\nSigned-off-by: D\r\nallow-removals:  yes: all \r\n",
                Some("yes: all"),
            ),
            ("Allow-Removals: a subject is none", None),
            (
                "take it away\n\nAllow-Removals: above\n\nand words after it",
                None,
            ),
            ("take it away\n\nAllow-Removals:\n", None),
            ("take it away\n\nDisallow-Removals: no\n", None),
            ("", None),
        ] {
            assert_eq!(
                trailer(message, "Allow-Removals").as_deref(),
                expected,
                "{message:?}"
            );
        }
    }
}
