//! What a revert for the link says of the content (DL-13).
//!
//! A host that lost its link in the confirm window goes back and cannot tell whose fault that was; the reconciler sees more. Where
//! it was not serving itself, or most machines that were told in the same minutes lost theirs, it is nobody's. Where the others
//! kept theirs, the machine lost it by what it was told: else content that cuts the uplink of each canary would walk for ever.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::ident::NodeId;

use crate::pure::decide::draft::Draft;
use crate::pure::decide::look;
use crate::pure::delivery::{Delivery, StageRun};

/// Machines that were told within so many seconds of each other were told in the same minutes.
const SAME_MINUTES_SECS: i64 = 300;

/// What the lost links of a stage say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// Nothing about the content.
    Nothing,
    /// It did not bear the content.
    Blames,
    /// Not known before more of the others have said how it went there.
    NotYet,
}

/// Of each stage that has an open machine whose link took it back, what that says.
pub(super) fn said(
    draft: &Draft<'_>,
    delivery: &Delivery,
    open: &[(usize, NodeId)],
) -> BTreeMap<usize, Says> {
    let mut all = BTreeMap::new();
    let stages = delivery
        .walk
        .as_ref()
        .map(|walk| walk.stages.as_slice())
        .unwrap_or_default();
    for (at, id) in open {
        let Some(stage) = stages.get(*at).filter(|_| !all.contains_key(at)) else {
            continue;
        };
        if lost(draft, stage, id) == Some(true) {
            all.insert(*at, says(draft, delivery, stage));
        }
    }
    all
}

fn says(draft: &Draft<'_>, delivery: &Delivery, stage: &StageRun) -> Says {
    let Some(ordered_at) = stage.ordered_at.filter(|at| draft.known.serving_since <= *at) else {
        return Says::Nothing;
    };
    let others = draft
        .deliveries
        .values()
        .filter(|d| d.commit != delivery.commit && !d.state.is_final());
    let walks = others.chain([delivery]).filter_map(|d| d.walk.as_ref());
    let beside = walks.flat_map(|walk| &walk.stages).filter(|stage| {
        stage
            .ordered_at
            .is_some_and(|at| in_the_same_minutes(at, ordered_at))
    });
    let (mut told, mut lost_it, mut kept_it) = (0_usize, 0_usize, 0_usize);
    for (stage, id) in beside.flat_map(|stage| stage.machines.keys().map(move |id| (stage, id))) {
        told += 1;
        match lost(draft, stage, id) {
            Some(true) => lost_it += 1,
            Some(false) => kept_it += 1,
            None => {}
        }
    }
    // One alone is not most of anything.
    if told > 1 && 2 * lost_it > told {
        Says::Nothing
    } else if told == 1 || 2 * kept_it >= told {
        Says::Blames
    } else {
        Says::NotYet
    }
}

fn in_the_same_minutes(a: Timestamp, b: Timestamp) -> bool {
    a.duration_since(b).abs() <= SignedDuration::from_secs(SAME_MINUTES_SECS)
}

/// Whether a machine lost its link over what it was sent; none while that is not over there.
fn lost(draft: &Draft<'_>, stage: &StageRun, id: &NodeId) -> Option<bool> {
    let machine = stage.machines.get(id)?;
    let report = draft.known.snapshot.nodes.get(id)?.report.as_ref()?;
    look::lost_link(report, machine)
}
