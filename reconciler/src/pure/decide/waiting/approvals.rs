//! Reviews of a forge: what they bind, and whether there are enough (DL-15).
//!
//! A review is of one change: the content of each leg before and after, and the gate under which it was asked. Whatever
//! changes one of these asks again, so nobody approves what he has not seen; a commit's own author approves nothing.

use std::collections::BTreeSet;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::lifecycle::delivery::Code;
use serde::Serialize;

use super::holds::{Hold, place};
use crate::pure::compose::Composed;
use crate::pure::decide::DecideError;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::{Delivery, Leg};

/// What an approval or a go binds.
#[derive(Serialize)]
struct Bound<'a> {
    legs: &'a [Leg],
    gate: Digest,
    plan: Option<&'a PlanDoc>,
}

/// The digest of what an approval of these legs binds, under the gate of this tree.
///
/// # Errors
/// [`DecideError::Digest`]: a value that has no canonical bytes.
pub(in crate::pure::decide) fn binding(
    legs: &[Leg],
    tree: &Composed,
    plan: Option<&PlanDoc>,
) -> Result<Digest, DecideError> {
    let bound = Bound {
        legs,
        gate: tree.gate_digest,
        plan,
    };
    Ok(Digest::of_value(&bound)?)
}

/// The reviews that are of just this change, by whom; and those that are of another.
fn reviews<'d>(draft: &'d Draft<'_>, delivery: &Delivery) -> (BTreeSet<&'d str>, BTreeSet<&'d str>) {
    let all = draft.known.snapshot.reviews.get(&delivery.commit);
    let others = all
        .into_iter()
        .flatten()
        .filter(|review| review.by != delivery.author);
    let (mut of_this, mut of_another) = (BTreeSet::new(), BTreeSet::new());
    for review in others {
        if Some(review.binds) == delivery.binds {
            of_this.insert(review.by.as_str());
        } else {
            of_another.insert(review.by.as_str());
        }
    }
    of_another.retain(|by| !of_this.contains(by));
    (of_this, of_another)
}

/// That reviews are missing, where they are: the stricter of the plans before and after counts.
pub(super) fn hold(
    draft: &Draft<'_>,
    delivery: &Delivery,
    tree: &Composed,
    bounds: &[Option<PlanDoc>],
) -> Option<Hold> {
    let plan = bounds.iter().flatten().max_by_key(|plan| plan.approvals)?;
    let wanted = usize::try_from(plan.approvals).unwrap_or(usize::MAX);
    let (of_this, of_another) = reviews(draft, delivery);
    if of_this.len() >= wanted {
        return None;
    }
    let list = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    let mut reason = format!(
        "the plan {} wants {wanted} approvals of just this change, and there are {}",
        plan.name,
        of_this.len()
    );
    if !of_this.is_empty() {
        reason.push_str(&format!(" ({})", list(of_this)));
    }
    if !of_another.is_empty() {
        reason.push_str(&format!("; what {} approved was another", list(of_another)));
    }
    let says = ("approvals", &*format!("approvals = {wanted}"));
    Some(Hold::new(Code::Approvals, reason).by(&place(draft, tree, Some(plan), says)))
}

/// The facts for the note: what was bound, and who approved it.
pub(super) fn facts(draft: &Draft<'_>, delivery: &Delivery) -> Vec<(String, String)> {
    let (of_this, _) = reviews(draft, delivery);
    let binds = delivery
        .binds
        .map(|binds| ("Binds".to_owned(), binds.to_string()));
    let approved = of_this
        .into_iter()
        .map(|by| ("Approved-By".to_owned(), by.to_owned()));
    binds.into_iter().chain(approved).collect()
}
