//! The freeze of a fleet: no new delivery begins until its time is over or a person lifts it (DL-4, FR-12).
//!
//! What walks goes on, and what must be taken back is. That it was frozen or lifted is a block on the newest commit's
//! note, so that the record holds it whole (DL-9): the delivery stays in its state.

use meshplan_schemas::lifecycle::delivery::Code;

use super::draft::Draft;
use crate::pure::snapshot::{Freeze, Request};

/// The trailer of the block that freezes or lifts.
pub const TRAILER: &str = "Freeze";

impl Freeze {
    /// In words, as holds and the status say it.
    #[must_use]
    pub fn words(&self) -> String {
        let until = match self.until {
            Some(until) => format!("until {until}"),
            None => "until somebody lifts it".to_owned(),
        };
        let why = if self.why.is_empty() {
            String::new()
        } else {
            format!(": {}", self.why)
        };
        format!("the fleet is frozen {until}, by {}{why}", self.actor)
    }
}

/// The freeze that holds new deliveries now.
pub(super) fn in_force<'d>(draft: &'d Draft<'_>) -> Option<&'d Freeze> {
    let now = draft.now();
    draft
        .freeze
        .as_ref()
        .filter(|freeze| freeze.until.is_none_or(|until| now < until))
}

/// Freezes the fleet, on a person's word.
pub(super) fn freeze(draft: &mut Draft<'_>, request: &Request) -> String {
    if let Some(until) = request.until.filter(|until| *until <= draft.now()) {
        return format!("refused: {until} has passed already");
    }
    let freeze = Freeze {
        since: draft.now(),
        until: request.until,
        actor: request.actor.clone(),
        why: request.why.clone(),
    };
    let words = freeze.words();
    if !put(draft, freeze) {
        return "refused: there is no delivery yet, so nothing that a freeze would hold".to_owned();
    }
    words
}

/// Lifts the freeze, on a person's word.
pub(super) fn lift(draft: &mut Draft<'_>, request: &Request) -> String {
    if draft.freeze.is_none() {
        return "refused: the fleet is not frozen".to_owned();
    }
    let why = if request.why.is_empty() {
        String::new()
    } else {
        format!(": {}", request.why)
    };
    record(
        draft,
        &request.actor,
        format!("the freeze is lifted{why}"),
        "lifted".to_owned(),
    );
    draft.set_freeze(None);
    "the freeze is lifted".to_owned()
}

/// Sets the freeze and takes it down on the newest delivery; whether there is one.
pub(super) fn put(draft: &mut Draft<'_>, freeze: Freeze) -> bool {
    let until = freeze
        .until
        .map_or_else(|| "until lifted".to_owned(), |until| format!("until {until}"));
    if !record(draft, &freeze.actor, freeze.words(), until) {
        return false;
    }
    draft.set_freeze(Some(freeze));
    true
}

/// A block on the newest commit: its delivery stays where it is.
fn record(draft: &mut Draft<'_>, actor: &str, reason: String, fact: String) -> bool {
    let Some(mut newest) = draft.deliveries.values().max_by_key(|d| d.order).cloned() else {
        return false;
    };
    let facts = vec![(TRAILER.to_owned(), fact)];
    draft.remark(&mut newest, Code::Freeze, actor, reason, facts);
    draft.put(newest);
    true
}
