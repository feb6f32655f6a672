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
use crate::pure::parts::{Branch, Left};

/// Withdraws what waits and has left its branch, and what is made of such a commit. The branches of which a person had held
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
