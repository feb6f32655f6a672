//! What came of previewing a merge: a preview, errors at their lines, or conflicts. Command line and comments on pull
//! requests say the same, because they ask here.

use meshplan_schemas::finding::Finding;

use super::text::lines_within;
use super::{Preview, preview};
use crate::pure::compose::{Composed, TreeError};
use crate::pure::identities::{self, Passed};

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// What the merge would do.
    Preview(Box<Preview>),
    /// One of the trees does not compose.
    Refused {
        /// Which, in a sentence.
        what: String,
        /// Why, at its lines; warnings are among them.
        findings: Vec<Finding>,
    },
    /// The two sides change the same: these paths.
    Conflicts(Vec<String>),
}

impl Outcome {
    /// Of a base and what a merge would make of it, both composed or refused. `base_name` is what the base is called,
    /// `passed` what its identities are held against.
    ///
    /// # Errors
    /// Content that cannot be digested, which does not happen for what a tree composes to.
    pub fn of(
        base_name: &str,
        before: Result<&Composed, &TreeError>,
        after: Result<&Composed, &TreeError>,
        passed: Passed<'_>,
    ) -> Result<Self, serde_json::Error> {
        let before = match before {
            Ok(before) => Some(before),
            // Where nothing stands yet, everything is new.
            Err(TreeError::NoFleet(_)) => None,
            Err(TreeError::Findings(findings)) => {
                return Ok(Self::Refused {
                    what: format!("{base_name} does not compose, so it was never accepted"),
                    findings: findings.clone(),
                });
            }
        };
        let after = match after {
            Ok(after) => after,
            Err(error) => {
                return Ok(Self::Refused {
                    what: "the merge does not check".to_owned(),
                    findings: match error {
                        TreeError::Findings(findings) => findings.clone(),
                        TreeError::NoFleet(reason) => vec![Finding::of_file("", reason.clone())],
                    },
                });
            }
        };
        let mut findings = identities::faults(passed.tree, after, passed.revoked);
        if !findings.is_empty() {
            findings.extend(after.warnings.iter().cloned());
            findings.sort();
            return Ok(Self::Refused {
                what: "the merge does not check".to_owned(),
                findings,
            });
        }
        Ok(Self::Preview(Box::new(preview(before, after)?)))
    }

    /// All of it as text, at most so many characters; what is cut is counted. `head_name` is what would be merged.
    #[must_use]
    pub fn text(&self, base_name: &str, head_name: &str, chars: usize) -> String {
        match self {
            Self::Preview(preview) => {
                let lines = lines_within(preview, chars);
                let texts: Vec<String> = lines.into_iter().map(|line| line.text).collect();
                texts.join("\n")
            }
            Self::Refused { what, findings } => {
                let texts = findings.iter().map(|finding| finding.render(false));
                let (shown, cut) = within(texts, chars.saturating_sub(what.chars().count() + 100), 2);
                let cut = match cut {
                    0 => String::new(),
                    more => format!("\n\nnot shown: {more} more"),
                };
                format!("{what}\n\n{}{cut}", shown.join("\n\n"))
            }
            Self::Conflicts(paths) => {
                let texts = paths.iter().map(|path| format!("  {path}"));
                let (shown, cut) = within(texts, chars.saturating_sub(400), 1);
                let cut = match cut {
                    0 => String::new(),
                    more => format!("\n  and {more} more"),
                };
                format!(
                    "{head_name} cannot be merged into {base_name} as it is; both change:\n{}{cut}\nmerge {base_name} into \
                     {head_name} and settle these, then ask again",
                    shown.join("\n")
                )
            }
        }
    }
}

/// As many of the texts as fit, each with so many characters between it and the next, and how many are left.
fn within(texts: impl Iterator<Item = String>, chars: usize, between: usize) -> (Vec<String>, usize) {
    let (mut shown, mut cut, mut left) = (Vec::new(), 0, chars);
    for text in texts {
        let size = text.chars().count() + between;
        if cut > 0 || size > left {
            cut += 1;
            continue;
        }
        left -= size;
        shown.push(text);
    }
    (shown, cut)
}
