//! Walks that are held and stand in the way of a newer commit: they give way, with what they have put on machines answered for
//! (DL-2).

use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::{RECONCILER, supersede};
use crate::pure::decide::draft::Draft;
use crate::pure::decide::{DecideError, walk};
use crate::pure::delivery::{Delivery, Inherited};
use crate::pure::scope::Scope;

/// A walk that is held gives way to a newer commit; one that moves is waited for.
pub(super) fn make_way(
    draft: &mut Draft<'_>,
    other: &CommitId,
    newer: &mut Delivery,
) -> Result<(), DecideError> {
    let Some(mut held) = draft
        .deliveries
        .get(other)
        .filter(|d| d.state == State::Held)
        .cloned()
    else {
        return Ok(());
    };
    // Where the former content is ordered already there is nothing to take back: one roll-back per failure (DL-14),
    // and the health of what came before is no condition for moving off it.
    let stuck = matches!(held.code, Code::RollBackFailed | Code::RetiredValue);
    let broken = draft.faults.of_delivery(other);
    if stuck || broken.is_some() || covers(newer, &held) {
        // The newer walk answers for what this one has put on machines.
        newer.inherited = held.walk.as_ref().map(|walk| Inherited {
            reached: walk.reached.clone(),
            first_epoch: walk.first_epoch,
        });
        if let Some(fault) = broken {
            walk::broken::end(draft, &mut held, fault)?;
            draft.put(held);
            return Ok(());
        }
        return supersede(draft, other, &newer.commit, &[]);
    }
    let reason = format!(
        "{} took its place and does not cover all that it had reached",
        newer.name
    );
    let back = walk::roll_back(draft, &mut held, Code::Newer, RECONCILER, reason, Vec::new());
    back.map_err(|error| error.of_delivery(other))?;
    draft.put(held);
    Ok(())
}

/// Whether the newer delivery changes everything that the older one has put on machines.
fn covers(newer: &Delivery, older: &Delivery) -> bool {
    let reached = older.walk.iter().flat_map(|w| w.reached.keys());
    let changed = |node: &NodeId, scope: &Scope| {
        newer
            .legs
            .iter()
            .any(|leg| leg.scope == *scope && leg.nodes.contains_key(node))
    };
    let mut reached = reached;
    reached.all(|node| {
        older
            .legs
            .iter()
            .filter(|leg| leg.nodes.contains_key(node))
            .all(|leg| changed(node, &leg.scope))
    })
}
