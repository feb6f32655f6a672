//! Deliveries of which nothing more can be decided (DL-2): they end, and what they have put on machines is not forgotten.

use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::story::{self, story};
use super::{RECONCILER, roll_back};
use crate::pure::decide::DecideError;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::faults::Fault;
use crate::pure::delivery::Delivery;

/// Ends a delivery that cannot be decided.
///
/// What has reached nobody has failed. A walk is taken back, which needs the former content alone; where that cannot be ordered
/// either it is held, with the machines that may have something of it, until a person or a newer commit goes on. One that is held
/// already and is to give way has failed: the newer walk answers for its machines.
pub(in crate::pure::decide) fn end(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    fault: &Fault,
) -> Result<(), DecideError> {
    let reason = format!(
        "it cannot be decided any further, by our own fault: {}",
        fault.why
    );
    let mut facts = story(delivery);
    let Some(walk) = delivery.walk.as_ref().filter(|_| delivery.has_begun()) else {
        return draft.transit(delivery, State::Failed, Code::Internal, RECONCILER, reason, facts);
    };
    let names: Vec<String> = walk
        .reached
        .values()
        .map(|reached| reached.name.to_string())
        .collect();
    let reached = format!("what has reached {} stays as it is there", story::few(&names));
    let (to, code, reason) = match (delivery.state, fault.times) {
        // Over, with something to order still: it is tried again with the next pass.
        (State::RolledBack, _) => return Ok(()),
        (State::Delivering, 1) => {
            let reason = format!("{reason}; what it had reached is taken back");
            return roll_back(draft, delivery, Code::Aborted, RECONCILER, reason, Vec::new());
        }
        (State::Delivering, _) => (
            State::Held,
            Code::Lost,
            format!("{reason}; nor can it be taken back: {reached}"),
        ),
        (State::RollingBack, _) => (
            State::Held,
            Code::RollBackFailed,
            format!("{reason}; the former content is not ordered: {reached}"),
        ),
        _ => (State::Failed, Code::Internal, format!("{reason}; {reached}")),
    };
    facts.push(("Outstanding".to_owned(), names.join(", ")));
    draft.transit(delivery, to, code, RECONCILER, reason, facts)
}
