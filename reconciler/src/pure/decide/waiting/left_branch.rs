//! Commits that wait and are not on their branch any more: it was set back, or rewritten under them (DL-2). What nobody can
//! merge any more must not open by itself.
//!
//! It stands apart because it is decided before anything else of a waiting commit: neither a window that opens nor a newer
//! commit has a say. Invariant: what has reached a machine is a walk's business, and nothing that was delivered is undone.

use std::collections::BTreeSet;

use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use crate::pure::decide::DecideError;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::Delivery;
use crate::pure::parts::{Branch, Left, may_leave};

/// Withdraws what waits and has left its branch, and what is made of such a commit; where the newest delivery was dropped before
/// it walked, what left its branch is in no tree after it. The branches of which a person had held
/// one: who rewrites a branch does not take that word away.
pub(in crate::pure::decide) fn withdraw_left(
    draft: &mut Draft<'_>,
) -> Result<BTreeSet<Option<Branch>>, DecideError> {
    let mut held = BTreeSet::new();
    let all = draft.known.left;
    for left in all {
        let waiting = draft.deliveries.values().filter(|d| d.waits());
        let gone = waiting.filter(|d| d.parts().first_of(left).is_some());
        let gone: Vec<Delivery> = gone.cloned().collect();
        for mut delivery in gone {
            let Some(commit) = delivery.parts().first_of(left).cloned() else {
                continue;
            };
            if delivery.person_hold {
                held.insert(left.of.clone());
            }
            let after = delivery.parts_after().without(all);
            let facts = after.all_facts();
            delivery.parts_after = Some(after);
            let reason = reason(draft, left, &delivery, &commit);
            let (to, code) = (State::Withdrawn, Code::Withdrawn);
            draft.transit(&mut delivery, to, code, "forge", reason, facts)?;
            draft.put(delivery);
        }
    }
    let newest = draft.deliveries.values().max_by_key(|d| d.order);
    if let Some(mut dropped) = newest.filter(|d| may_leave(d)).cloned() {
        let (before, after) = (dropped.parts_after(), dropped.parts_after().without(all));
        if after != before {
            dropped.parts_after = Some(after);
            draft.put(dropped);
        }
    }
    Ok(held)
}

fn reason(draft: &Draft<'_>, left: &Left, delivery: &Delivery, commit: &CommitId) -> String {
    let branch = left
        .of
        .as_ref()
        .map_or(&draft.known.settings.branch, |of| &of.branch);
    let now = format!(
        "{branch} was set back or rewritten, and is at {}",
        left.head.short()
    );
    if delivery.commit == *commit {
        return format!("the commit is not on its branch any more: {now}");
    }
    format!(
        "it has {} in it, which is not on its branch any more: {now}; the next commit brings what else it has",
        draft.name_of(commit)
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;
    use meshplan_schemas::ident::KeyId;

    use super::*;
    use crate::pure::decide::{Contents, Known, Settings, decide};
    use crate::pure::parts::Parts;
    use crate::pure::snapshot::Snapshot;

    // holds: DL-2
    #[test]
    fn a_commit_that_was_dropped_and_then_left_its_branch_is_remembered_so() {
        let id = |c: &str| -> CommitId { c.repeat(40).parse().unwrap() };
        let settings = Settings {
            fleet: "lab".parse().unwrap(),
            repo: "fleet".to_owned(),
            branch: "main".to_owned(),
            era: 0,
            author: KeyId("author".to_owned()),
            reconcilers: Vec::new(),
            asks_forge: false,
            timestamp_keys: Vec::new(),
        };
        let left = [Left {
            of: None,
            head: id("a"),
            commits: BTreeSet::from([id("b")]),
        }];
        let after = |state: State| {
            let mut dropped = Delivery::announced("fleet", id("b"), 2, Timestamp::UNIX_EPOCH);
            dropped.state = state;
            let mut snapshot = Snapshot::default();
            snapshot.counters.order = 2;
            snapshot.deliveries.insert(id("b"), dropped);
            let act = decide(&Known {
                snapshot: &snapshot,
                trees: &BTreeMap::new(),
                contents: &Contents::default(),
                formers: &BTreeMap::new(),
                signatures: &BTreeMap::new(),
                settings: &settings,
                news: &[],
                left: &left,
                now: Timestamp::UNIX_EPOCH,
                serving_since: Timestamp::UNIX_EPOCH,
            });
            let decided = act.unwrap().deliveries;
            let decided = decided.into_iter().find(|d| d.commit == id("b"))?;
            assert_eq!(decided.state, state);
            decided.parts_after
        };
        assert_eq!(after(State::Withdrawn), Some(Parts::alone(id("a"))));
        assert_eq!(after(State::Failed), Some(Parts::alone(id("a"))));
        assert_eq!(after(State::Delivered), None);
    }
}
