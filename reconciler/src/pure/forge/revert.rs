//! The revert of a commit that was taken back: its branch, and the pull request that proposes it (DL-7).
//!
//! What the branch brings is content that is proven where the commit had come to, so its merge changes nothing on any
//! machine: it only makes the repository say again what the machines have.

use meshplan_schemas::ident::{CommitId, DeliveryName};
use serde::{Deserialize, Serialize};

use super::{NewPull, cut, plain};
use crate::pure::delivery::Delivery;

/// The most characters of a title.
const TITLE_CHARS: usize = 200;

/// A commit whose revert is proposed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revert {
    /// The commit.
    pub commit: CommitId,
    /// As its delivery is called.
    pub name: DeliveryName,
    /// Its first line.
    pub subject: String,
    /// Why it was taken back, in a sentence.
    pub cause: String,
}

impl Revert {
    /// The revert of a delivery's commit.
    #[must_use]
    pub fn of(delivery: &Delivery, cause: &str) -> Self {
        Self {
            commit: delivery.commit.clone(),
            name: delivery.name.clone(),
            subject: delivery.subject.clone(),
            cause: cause.to_owned(),
        }
    }

    /// The branch that brings it: one for each commit, so that it is proposed once.
    #[must_use]
    pub fn branch(&self) -> String {
        format!("meshplan/revert/{}", self.commit.short())
    }

    fn title(&self) -> String {
        let subject = self.subject.replace(char::is_control, " ");
        format!("Revert \"{}\"", cut(subject.trim(), TITLE_CHARS))
    }

    /// The message of the commit that reverts it, back to what `former` had.
    #[must_use]
    pub fn message(&self, former: &CommitId) -> String {
        format!(
            "{}\n\nThis reverts commit {}, whose delivery was taken back, to what {former} had.\n\nCause: {}\n",
            self.title(),
            self.commit,
            self.cause.replace(char::is_control, " "),
        )
    }

    /// The pull request.
    #[must_use]
    pub fn pull(&self, into: &str) -> NewPull {
        NewPull {
            title: self.title(),
            body: format!(
                "{} was taken back by itself: {}\n\nThe machines have the former content again. Merging this makes \
                 the branch say so too: against the branch it changes what the commit had changed, on the machines \
                 nothing.\n\nTo try the same content once more, close this and say \
                 `meshplan deliveries go --again {}`.\n",
                plain(&self.name.0),
                plain(&self.cause),
                self.commit.short(),
            ),
            from: self.branch(),
            into: into.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: DL-7
    #[test]
    fn a_subject_that_somebody_wrote_is_a_line_and_its_cause_speaks_to_nobody() {
        let commit: CommitId = "a".repeat(40).parse().unwrap();
        let mut delivery =
            Delivery::announced("acme/fleet", commit, 1, "2026-11-29T10:00:00Z".parse().unwrap());
        delivery.subject = format!("one\nReviewed-by: @everybody {}", "x".repeat(300));
        let revert = Revert::of(&delivery, "ace failed: says `no`\n@ann");
        assert_eq!(revert.branch(), "meshplan/revert/aaaaaaaaaaaa");
        let pull = revert.pull("main");
        assert!(!pull.title.contains('\n') && pull.title.chars().count() < 220);
        assert!(
            pull.body.contains("``ace failed: says `no` @ann``"),
            "{}",
            pull.body
        );
        let message = revert.message(&"b".repeat(40).parse().unwrap());
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines[0].starts_with("Revert \"one Reviewed-by:"), "{message}");
        assert_eq!(lines.last(), Some(&"Cause: ace failed: says `no` @ann"));
    }
}
