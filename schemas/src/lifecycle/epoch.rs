//! The states of an epoch on a node (EP-1).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where an epoch stands on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EpochState {
    /// Verified and kept.
    Received,
    /// The effective policy stands beside the old one.
    Staged,
    /// In use; the confirm is awaited.
    AwaitingConfirm,
    /// Stays.
    Applied,
    /// Not taken.
    Rejected,
    /// The former policy is back.
    Reverted,
    /// Kept for neighbours only (UC-1).
    LeftBehind,
}

impl EpochState {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Received,
        Self::Staged,
        Self::AwaitingConfirm,
        Self::Applied,
        Self::Rejected,
        Self::Reverted,
        Self::LeftBehind,
    ];

    /// Whether `to` may follow.
    #[must_use]
    pub fn may_become(self, to: Self) -> bool {
        use EpochState::{Applied, AwaitingConfirm, LeftBehind, Received, Rejected, Reverted, Staged};
        matches!(
            (self, to),
            (Received, Staged | Applied | Rejected | LeftBehind)
                | (Staged, AwaitingConfirm | Rejected | Reverted)
                | (AwaitingConfirm, Applied | Reverted)
                | (LeftBehind, Received | Staged | Applied | Rejected)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: EP-1
    #[test]
    fn the_end_states_are_ends_and_each_other_state_has_a_way_out() {
        for from in EpochState::ALL {
            let out = EpochState::ALL
                .into_iter()
                .filter(|to| from.may_become(*to))
                .count();
            let end = matches!(
                from,
                EpochState::Applied | EpochState::Rejected | EpochState::Reverted
            );
            assert_eq!(out == 0, end, "{from:?}");
        }
    }
}
