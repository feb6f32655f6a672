//! What a delivery waits for the forge to tell: reviews of just its change, and checks (DL-2, DL-15).

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::kept::Kept;
use crate::pure::delivery::Delivery;

/// A forge may hear of its own merge after us: for so long a commit without a pull request is asked about again.
const HEARS_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// What a delivery waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Reviews of its pull request.
    Reviews,
    /// The checks that its plan names.
    Checks,
}

/// What a delivery waits for; none where the forge has nothing to tell it.
#[must_use]
pub fn wait(delivery: &Delivery) -> Option<Wait> {
    match (delivery.state, delivery.code) {
        (State::Held, Code::Approvals) => Some(Wait::Reviews),
        (State::Proposed, _) if !delivery.checks.is_empty() || owes_checks(delivery) => Some(Wait::Checks),
        _ => None,
    }
}

/// Whether it answers for checks of commits whose place it took (DL-15).
fn owes_checks(delivery: &Delivery) -> bool {
    delivery.unpassed.iter().any(|older| !older.checks.is_empty())
}

/// The commit whose checks count: the head that was merged; of a commit that no pull request brought, itself. None while
/// the forge may still hear of one.
#[must_use]
pub fn checked_commit<'a>(
    delivery: &'a Delivery,
    kept: Option<&'a Kept>,
    now: Timestamp,
) -> Option<&'a CommitId> {
    match kept {
        Some(kept) => Some(&kept.head),
        None => (now.duration_since(delivery.since) >= HEARS_WITHIN).then_some(&delivery.commit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: DL-15
    #[test]
    fn a_commit_without_a_pull_request_is_asked_about_itself_once_the_forge_has_had_its_time() {
        let commit: CommitId = "a".repeat(40).parse().unwrap();
        let since: Timestamp = "2026-11-29T10:00:00Z".parse().unwrap();
        let mut delivery = Delivery::announced("acme/fleet", commit.clone(), 1, since);
        assert_eq!(wait(&delivery), None);
        delivery.checks = vec!["ci/test".to_owned()];
        assert_eq!(wait(&delivery), Some(Wait::Checks));
        let after = |secs| since.checked_add(SignedDuration::from_secs(secs)).unwrap();
        assert_eq!(checked_commit(&delivery, None, after(59)), None);
        assert_eq!(checked_commit(&delivery, None, after(60)), Some(&commit));
        (delivery.state, delivery.code) = (State::Held, Code::Approvals);
        assert_eq!(wait(&delivery), Some(Wait::Reviews));
    }
}
