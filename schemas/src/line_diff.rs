//! Two texts as lines lost and lines new, for people: on a node, and in a preview of a merge.
//!
//! It stands alone because it is bounded: what is too long for a fine comparison is shown as a coarse one, never not
//! at all.

use std::fmt::Write as _;

/// Above this many pairs of lines the middle is shown as all lost and all new.
const PAIRS: usize = 4_000_000;
/// Lines around a change.
const AROUND: usize = 3;

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// It is in both.
    Kept,
    /// It is in the old text only.
    Lost,
    /// It is in the new text only.
    New,
}

impl Mark {
    /// How it is written before its line.
    #[must_use]
    pub fn sign(self) -> char {
        match self {
            Self::Kept => ' ',
            Self::Lost => '-',
            Self::New => '+',
        }
    }
}

/// A line with its end, and what became of it.
pub type Line<'a> = (Mark, &'a str);

/// How two contents differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Diff {
    /// Lines with `-` lost, `+` new, two spaces for those around.
    Lines(String),
    /// At least one is no text.
    Binary,
}

/// Compares what is there with what is declared.
#[must_use]
pub fn diff(there: &[u8], declared: &[u8]) -> Diff {
    let (Ok(there), Ok(declared)) = (std::str::from_utf8(there), std::str::from_utf8(declared)) else {
        return Diff::Binary;
    };
    Diff::Lines(render(&marked(there, declared)))
}

/// Every line of both texts with its mark, in order.
#[must_use]
pub fn marked<'a>(there: &'a str, declared: &'a str) -> Vec<Line<'a>> {
    let (there, declared): (Vec<&str>, Vec<&str>) = (
        there.split_inclusive('\n').collect(),
        declared.split_inclusive('\n').collect(),
    );
    let start = there.iter().zip(&declared).take_while(|(a, b)| a == b).count();
    let end = there[start..]
        .iter()
        .rev()
        .zip(declared[start..].iter().rev())
        .take_while(|(a, b)| a == b)
        .count();
    let lost = &there[start..there.len() - end];
    let new = &declared[start..declared.len() - end];
    let mut marked: Vec<Line<'a>> = there[..start].iter().map(|line| (Mark::Kept, *line)).collect();
    marked.extend(middle(lost, new));
    marked.extend(there[there.len() - end..].iter().map(|line| (Mark::Kept, *line)));
    marked
}

/// The longest common subsequence, by the table of its lengths.
fn middle<'a>(lost: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    if lost.len().saturating_mul(new.len()) > PAIRS {
        let lost = lost.iter().map(|line| (Mark::Lost, *line));
        return lost.chain(new.iter().map(|line| (Mark::New, *line))).collect();
    }
    let width = new.len() + 1;
    let mut common = vec![0_u32; (lost.len() + 1) * width];
    for (i, a) in lost.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            common[i * width + j] = if a == b {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut marked) = (0, 0, Vec::new());
    while i < lost.len() || j < new.len() {
        if i < lost.len() && j < new.len() && lost[i] == new[j] {
            marked.push((Mark::Kept, lost[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len()
            || (i < lost.len() && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            marked.push((Mark::Lost, lost[i]));
            i += 1;
        } else {
            marked.push((Mark::New, new[j]));
            j += 1;
        }
    }
    marked
}

/// The lines that changed and those around them, each after its sign.
#[must_use]
pub fn render(marked: &[Line<'_>]) -> String {
    let near = |at: usize| {
        let from = at.saturating_sub(AROUND);
        let to = (at + AROUND + 1).min(marked.len());
        marked[from..to].iter().any(|(mark, _)| *mark != Mark::Kept)
    };
    let mut out = String::new();
    let mut skipped = false;
    for (at, (mark, line)) in marked.iter().enumerate() {
        if !near(at) {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            out.push_str("  ...\n");
        }
        // Writing into a text cannot fail.
        let _ = write!(out, "{} {}", mark.sign(), line.trim_end_matches('\n'));
        if !line.ends_with('\n') {
            out.push_str("  (no line end)");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(there: &str, declared: &str) -> String {
        match diff(there.as_bytes(), declared.as_bytes()) {
            Diff::Lines(text) => text,
            Diff::Binary => panic!("taken for no text"),
        }
    }

    #[test]
    fn lines_lost_and_new_stand_between_those_around() {
        let there = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let declared = "1\n2\n3\n4\n5\nsix\n7\n8\n9\n";
        assert_eq!(
            lines(there, declared),
            "  ...\n  3\n  4\n  5\n- 6\n+ six\n  7\n  8\n  9\n"
        );
        assert_eq!(lines("a", "a\n"), "- a  (no line end)\n+ a\n");
        assert_eq!(lines("", "new\n"), "+ new\n");
        assert_eq!(diff(&[0xff], b"a"), Diff::Binary);
    }

    #[test]
    fn what_is_too_long_for_a_fine_comparison_is_shown_all_the_same() {
        let there: String = (0..3000).map(|n| format!("a{n}\n")).collect();
        let declared: String = (0..3000).map(|n| format!("b{n}\n")).collect();
        assert_eq!(lines(&there, &declared).lines().count(), 6000);
    }

    proptest! {
        #[test]
        fn the_lost_and_the_kept_are_the_old_text_and_the_new_and_the_kept_are_the_new_one(
            a in "[ab\n]{0,30}", b in "[ab\n]{0,30}"
        ) {
            let (x, y): (Vec<&str>, Vec<&str>) =
                (a.split_inclusive('\n').collect(), b.split_inclusive('\n').collect());
            let marked = middle(&x, &y);
            let without = |mark: Mark| -> Vec<&str> {
                marked.iter().filter(|(m, _)| *m != mark).map(|(_, l)| *l).collect()
            };
            prop_assert_eq!(without(Mark::New), x);
            prop_assert_eq!(without(Mark::Lost), y);
        }
    }
}
