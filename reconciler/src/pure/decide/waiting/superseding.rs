//! What waits gives its place to the newest commit, which answers for it (DL-1, DL-15).

use std::sync::Arc;

use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::plan::plan_for;
use super::{RECONCILER, checks, differ, own_bounds, rewritten};
use crate::pure::decide::draft::Draft;
use crate::pure::decide::{DecideError, Tree};
use crate::pure::delivery::Delivery;
use crate::pure::recover::SUPERSEDED_BY;
use crate::pure::unpassed::Unpassed;

/// Whether nobody can say yet what a delivery is asked, for nobody has read its tree (DL-15): a pass that has it decides.
pub(super) fn is_unread(draft: &Draft<'_>, older: &CommitId) -> bool {
    let unjudged = draft
        .deliveries
        .get(older)
        .is_some_and(|delivery| delivery.legs.is_empty());
    unjudged && !draft.known.trees.contains_key(older)
}

/// Takes the place of a delivery that waits. That launders nothing (DL-15): neither a rewritten branch, nor a check, nor a
/// person's word.
pub(super) fn take_place(
    draft: &mut Draft<'_>,
    newest: &mut Delivery,
    older: &CommitId,
) -> Result<(), DecideError> {
    let mut handed = Vec::new();
    if let Some(mut delivery) = draft.deliveries.get(older).cloned() {
        let unasked = weigh(draft, &mut delivery).map_err(|error| error.of_delivery(older))?;
        newest.rewritten |= rewritten::unanswered(Some(&delivery));
        newest.person_hold |= delivery.person_hold;
        newest.inherited = newest.inherited.take().or_else(|| delivery.inherited.clone());
        Unpassed::gather(
            &mut handed,
            checks::unpassed(draft, &delivery, unasked),
            &newest.repo,
        );
        draft.put(delivery);
    }
    supersede(draft, older, &newest.commit, &handed)?;
    Unpassed::gather(&mut newest.unpassed, handed, &newest.repo);
    Ok(())
}

/// Says what a delivery changes and which checks it wants, of one that nobody judged before a newer commit came. Whether it
/// is one.
pub(in crate::pure::decide) fn weigh(
    draft: &Draft<'_>,
    delivery: &mut Delivery,
) -> Result<bool, DecideError> {
    let tree = match draft.known.trees.get(&delivery.commit) {
        Some(Tree::Composed(tree)) if delivery.legs.is_empty() => Arc::clone(tree),
        _ => return Ok(false),
    };
    let previous = delivery.previous.as_ref().and_then(|commit| draft.tree(commit));
    delivery.legs = differ(draft, &tree, previous.as_deref(), delivery)?.legs;
    let plan = plan_for(&tree, delivery.component(), &delivery.legs);
    delivery.checks = checks::named(&own_bounds(draft, delivery, plan));
    Ok(true)
}

/// A delivery that a person withdraws leaves its gate to the newest one, which has its content and waits for nobody or has
/// ended by itself; the facts that say so. One that is the newest leaves it to the next commit, when that is announced.
pub(in crate::pure::decide) fn leave_debts(
    draft: &mut Draft<'_>,
    withdrawn: &Delivery,
) -> Vec<(String, String)> {
    let newest = draft.deliveries.values().max_by_key(|d| d.order);
    let Some(mut newest) = newest.filter(|d| d.commit != withdrawn.commit).cloned() else {
        return Vec::new();
    };
    let mut owed = Vec::new();
    Unpassed::gather(&mut owed, checks::unpassed(draft, withdrawn, false), &newest.repo);
    let facts = owed.iter().flat_map(Unpassed::facts).collect();
    Unpassed::gather(&mut newest.unpassed, owed, &newest.repo.clone());
    draft.put(newest);
    facts
}

/// Ends what a newer commit covers; `owed` is what that one answers for from now on.
pub(super) fn supersede(
    draft: &mut Draft<'_>,
    older: &CommitId,
    newer: &CommitId,
    owed: &[Unpassed],
) -> Result<(), DecideError> {
    let name = draft.name_of(newer);
    let Some(mut delivery) = draft.deliveries.get(older).cloned() else {
        return Ok(());
    };
    let by = (SUPERSEDED_BY.to_owned(), name.to_string());
    let facts = std::iter::once(by)
        .chain(owed.iter().flat_map(Unpassed::facts))
        .collect();
    let reason = format!("{name} takes its place");
    draft.transit(
        &mut delivery,
        State::Superseded,
        Code::Newer,
        RECONCILER,
        reason,
        facts,
    )?;
    draft.put(delivery);
    Ok(())
}
