//! Machines that leave the fleet while a delivery walks: they leave its stages, with a line (DL-6).
//!
//! The commit that takes a machine out waits for this walk, and the walk must not wait for a machine that is no more: a dead
//! one would turn silent and take everybody else back. Who is in the fleet is the word of the newest commit that nothing
//! holds. Invariant: a machine that has left is in no selection and proves nothing; what had reached it is still taken back
//! there, and nobody waits for that.

use std::sync::Arc;

use meshplan_schemas::ident::NodeId;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::RECONCILER;
use super::story::{self, standing, story};
use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::{DecideError, classes};
use crate::pure::delivery::{Delivery, Step};

/// The tree whose records say who is in the fleet now; none while no commit is judged yet, as then nobody can tell.
pub(super) fn fleet(draft: &Draft<'_>) -> Option<Arc<Composed>> {
    let newest = classes::counting(draft)?;
    draft.may_judge(newest.fleet.heartbeat_secs).then_some(newest)
}

/// Takes machines that have left the fleet out of the stages so far. A stage in hand that has nobody left then is held: it
/// would pass without a machine that says anything.
pub(super) fn leave(draft: &mut Draft<'_>, delivery: &mut Delivery) -> Result<(), DecideError> {
    // A walk's own tree has all of its machines.
    if classes::counting_delivery(draft).is_none_or(|newest| newest.commit == delivery.commit) {
        return Ok(());
    }
    let Some(fleet) = fleet(draft) else {
        return Ok(());
    };
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(());
    };
    let mut emptied = None;
    for at in 0..walk.stages.len() {
        let machines = &walk.stages[at].machines;
        let gone: Vec<NodeId> = machines
            .keys()
            .filter(|id| !fleet.nodes.contains_key(id))
            .copied()
            .collect();
        if gone.is_empty() {
            continue;
        }
        let said = gone.iter().filter_map(|id| {
            let machine = machines.get(id)?;
            Some(format!("{} ({})", machine.name, standing(walk, id, machine)))
        });
        let said: Vec<String> = said.collect();
        let stage = &mut walk.stages[at];
        walk.lines.push(format!(
            "left the fleet, and so the stage {}: {}",
            stage.name,
            story::few(&said)
        ));
        stage.machines.retain(|id, _| !gone.contains(id));
        let in_hand = at == walk.current && !matches!(walk.step, Step::Open);
        if in_hand && stage.machines.is_empty() {
            emptied = Some(stage.name.clone());
        }
    }
    let Some(stage) = emptied else {
        return Ok(());
    };
    let reason = format!("every machine of the stage {stage} left the fleet");
    let facts = story(delivery);
    draft.transit(delivery, State::Held, Code::NoMachine, RECONCILER, reason, facts)
}
