//! What a delivery waits for the forge to tell: reviews of just its change, and checks (DL-2, DL-15).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::kept::Kept;
use crate::pure::delivery::Delivery;
use crate::pure::snapshot::{Checked, Verdict};
use crate::pure::unpassed::Unpassed;

/// A forge may hear of its own merge after us: for so long a commit without a pull request is asked about again.
const HEARS_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// About so many commits whose place another took the forge is asked in one turn: one push may bring any number.
const PER_TURN: usize = 20;

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

/// The commits whose place a delivery took and whose checks are asked about in this turn: those of which not all is said, those
/// first of which nothing is. `said` is what the forge said before, by commit.
#[must_use]
pub fn to_ask<'a>(delivery: &'a Delivery, said: &BTreeMap<CommitId, Vec<Checked>>) -> Vec<&'a Unpassed> {
    let older = delivery.unpassed.iter();
    let (known, unknown): (Vec<_>, Vec<_>) = older
        .filter(|older| !is_answered(older, said.get(&older.commit)))
        .partition(|older| said.contains_key(&older.commit));
    unknown.into_iter().chain(known).take(PER_TURN).collect()
}

/// Whether the forge has said all that it will say. What never ran on a commit that nobody had asked about is not missed, so
/// one answer in which nothing runs is the last.
fn is_answered(older: &Unpassed, said: Option<&Vec<Checked>>) -> bool {
    if older.checks.is_empty() {
        return true;
    }
    let Some(said) = said else {
        return false;
    };
    let verdict = |name: &String| said.iter().find(|check| check.name == *name).map(|c| c.verdict);
    older.checks.iter().all(|name| match verdict(name) {
        Some(Verdict::Passed | Verdict::Failed) => true,
        Some(Verdict::Running) => false,
        _ => older.unasked,
    })
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
    fn of_a_push_of_many_commits_each_is_asked_about_once_and_so_many_in_a_turn() {
        let id = |n: usize| -> CommitId { format!("{n:040x}").parse().unwrap() };
        let since: Timestamp = "2026-11-29T10:00:00Z".parse().unwrap();
        let mut delivery = Delivery::announced("acme/fleet", id(9999), 1, since);
        let older = |n| Unpassed {
            commit: id(n),
            name: meshplan_schemas::ident::DeliveryName::new("acme/fleet", &id(n)),
            scopes: ["module:web".parse().unwrap()].into(),
            checks: vec!["ci/test".to_owned(), "ci/lint".to_owned()],
            unasked: true,
        };
        delivery.unpassed = (0..50).map(older).collect();
        let of = |verdicts: &[(&str, Verdict)]| -> Vec<Checked> {
            let check = |(name, verdict): &(&str, Verdict)| Checked {
                name: (*name).to_owned(),
                verdict: *verdict,
            };
            verdicts.iter().map(check).collect()
        };
        let asked = |delivery: &Delivery, said: &BTreeMap<CommitId, Vec<Checked>>| -> Vec<CommitId> {
            let asked = to_ask(delivery, said).into_iter();
            asked.map(|older| older.commit.clone()).collect()
        };
        let mut said = BTreeMap::new();
        let mut turns = Vec::new();
        // The first one's check runs on: it hinders none of the others.
        loop {
            let turn = asked(&delivery, &said);
            for commit in &turn {
                let first = *commit == id(0);
                let running = of(&[("ci/test", Verdict::Running)]);
                said.insert(commit.clone(), if first { running } else { of(&[]) });
            }
            turns.push(turn.len());
            if turn == [id(0)] {
                break;
            }
        }
        assert_eq!(turns, [20, 20, 11, 1]);
        said.insert(id(0), of(&[("ci/test", Verdict::Failed)]));
        assert!(asked(&delivery, &said).is_empty());

        // One that was asked about before its place was taken is asked until each check is told.
        delivery.unpassed = vec![Unpassed {
            unasked: false,
            ..older(0)
        }];
        assert_eq!(asked(&delivery, &said), [id(0)]);
        said.insert(
            id(0),
            of(&[("ci/test", Verdict::Failed), ("ci/lint", Verdict::Passed)]),
        );
        assert!(asked(&delivery, &said).is_empty());
        delivery.unpassed = vec![Unpassed {
            checks: Vec::new(),
            ..older(1)
        }];
        assert!(asked(&delivery, &BTreeMap::new()).is_empty());
    }

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
