//! What a rollout waits for: its delivery, where the delivery's walk is that rollout's; nothing, where it is over.

use super::{Open, Why, why};
use crate::pure::delivery::Delivery;
use crate::pure::rollout::Rollout;

/// Explains one rollout by its record. `delivery` is the one of its commit, where that is kept.
#[must_use]
pub fn why_rollout(rollout: &Rollout, delivery: Option<&Delivery>, open: &Open) -> Why {
    let now = rollout.as_of;
    if let Some(delivery) = delivery.filter(|_| !rollout.phase.is_over()) {
        let its = why(delivery, open, now);
        return Why {
            waits_for: format!("in its phase {}: {}", rollout.phase.word(), its.waits_for),
            ..its
        };
    }
    let id = &rollout.rollout_id;
    let since = rollout
        .finished_at
        .map_or_else(String::new, |at| format!(" since {at}"));
    Why {
        waits_for: format!(
            "nothing: the rollout {id} that began with epoch {} is {}{since} ({})",
            rollout
                .canary_epoch
                .or(rollout.final_epoch)
                .unwrap_or(rollout.newest_epoch),
            rollout.phase.word(),
            rollout.reason
        ),
        rule: match &rollout.plan {
            Some(plan) => format!("plans/{plan}.toml"),
            None => "the built-in plan: one machine, then the rest".to_owned(),
        },
        next: "nothing".to_owned(),
        deadline: None,
        command: Some(format!("meshplan fleet rollout show {id}")),
        as_of: now,
    }
}
