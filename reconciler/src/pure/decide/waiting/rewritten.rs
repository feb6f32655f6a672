//! A branch that was rewritten under what was delivered (FG-3): the new head walks only where a person, or the plan before
//! and the plan after, let it.
//!
//! It is a mark on the delivery and not a state: it goes on to the commit that takes a marked one's place, so that no later
//! commit launders it, and ends with the walk that was let through.

use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::document::plan::Rewritten;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::holds::{Hold, place};
use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::Delivery;
use crate::pure::recover::REWRITTEN;

const SAYS: &str = "what was delivered before is no longer on the branch";

/// The fact of the announcement of a delivery that is marked: a database may be lost before anybody judged it (DL-12).
pub(super) fn announced(delivery: &Delivery) -> Option<(String, String)> {
    delivery
        .rewritten
        .then(|| (REWRITTEN.to_owned(), SAYS.to_owned()))
}

/// Whether a delivery is marked, and waits or has failed without anybody having let it through.
pub(super) fn unanswered(delivery: Option<&Delivery>) -> bool {
    let open = |d: &Delivery| matches!(d.state, State::Proposed | State::Held | State::Failed);
    delivery.is_some_and(|d| d.rewritten && open(d))
}

/// Why the delivery waits for a person's word; none where both plans walk it.
pub(super) fn hold(
    draft: &Draft<'_>,
    delivery: &Delivery,
    tree: &Composed,
    bounds: &[Option<PlanDoc>],
) -> Option<Hold> {
    let walks = |plan: &Option<PlanDoc>| {
        plan.as_ref()
            .is_some_and(|p| p.history_rewritten == Rewritten::Walk)
    };
    let strict = bounds.iter().find(|plan| delivery.rewritten && !walks(plan))?;
    let reason = "the branch was rewritten: what was delivered before is no longer on it; a go walks it, or a plan that says \
                  `history_rewritten = \"walk\"` before and after";
    let says = ("history_rewritten", "history_rewritten = \"hold\"");
    let rule = place(draft, tree, strict.as_ref(), says);
    Some(Hold::new(Code::HistoryRewritten, reason.to_owned()).by(&rule))
}

/// Takes the mark off a delivery whose walk begins; the fact for its note.
pub(super) fn let_through(delivery: &mut Delivery) -> Option<(String, String)> {
    std::mem::take(&mut delivery.rewritten).then(|| (REWRITTEN.to_owned(), SAYS.to_owned()))
}
