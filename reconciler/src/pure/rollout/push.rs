//! How a node stands with the epoch that counts for it (RO-3): facts in, one word out, in an order of precedence.
//!
//! It stands alone because the order is the rule: the first word that fits is the one, whatever else is true.

use jiff::Timestamp;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::Report;
use schemars::JsonSchema;
use semver::Version;
use serde::{Deserialize, Serialize};

/// The words of RO-3, in their order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PushState {
    /// Outside of targeting and gates by its class (UC-1).
    LeftBehind,
    /// No epoch of the rollout addresses it yet.
    NotTargeted,
    /// Its host is below the epoch's `min_daemon_version`.
    OldVersion,
    /// Rejected or reverted.
    Failed,
    /// It stays.
    Applied,
    /// In use, the confirm is awaited.
    AwaitingConfirm,
    /// Stands beside the old one.
    Staged,
    /// Verified and kept.
    Received,
    /// Addressed, and nothing was heard for too long.
    Silent,
    /// Addressed, and nothing was heard yet.
    Pending,
}

impl PushState {
    /// All of them, in their order of precedence.
    pub const ALL: [Self; 10] = [
        Self::LeftBehind,
        Self::NotTargeted,
        Self::OldVersion,
        Self::Failed,
        Self::Applied,
        Self::AwaitingConfirm,
        Self::Staged,
        Self::Received,
        Self::Silent,
        Self::Pending,
    ];

    /// What a word of EP-1 comes to; none for what is no such word.
    #[must_use]
    pub fn of(state: &str) -> Option<Self> {
        Some(match state {
            "rejected" | "reverted" => Self::Failed,
            "applied" => Self::Applied,
            "awaiting_confirm" => Self::AwaitingConfirm,
            "staged" => Self::Staged,
            "received" => Self::Received,
            "left_behind" => Self::LeftBehind,
            _ => return None,
        })
    }

    /// The word, as JSON has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::LeftBehind => "left_behind",
            Self::NotTargeted => "not_targeted",
            Self::OldVersion => "old_version",
            Self::Failed => "failed",
            Self::Applied => "applied",
            Self::AwaitingConfirm => "awaiting_confirm",
            Self::Staged => "staged",
            Self::Received => "received",
            Self::Silent => "silent",
            Self::Pending => "pending",
        }
    }
}

/// The word of a state of EP-1, as timelines have it.
#[must_use]
pub fn state_word(state: EpochState) -> &'static str {
    match state {
        EpochState::Received => "received",
        EpochState::Staged => "staged",
        EpochState::AwaitingConfirm => "awaiting_confirm",
        EpochState::Applied => "applied",
        EpochState::Rejected => "rejected",
        EpochState::Reverted => "reverted",
        EpochState::LeftBehind => "left_behind",
    }
}

/// What the word of a node is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Its class, of its record.
    pub class: UpdateClass,
    /// An epoch of the rollout addresses it.
    pub targeted: bool,
    /// Its host is below what the epoch asks for.
    pub old_version: bool,
    /// What it says of an epoch that counts for it; none where it has said nothing of one.
    pub said: Option<EpochState>,
    /// From when on its silence is called one; none: never.
    pub silent_from: Option<Timestamp>,
}

/// The word.
#[must_use]
pub fn push_state(facts: &Facts, now: Timestamp) -> PushState {
    if facts.class == UpdateClass::LeftBehind || facts.said == Some(EpochState::LeftBehind) {
        return PushState::LeftBehind;
    }
    if !facts.targeted {
        return PushState::NotTargeted;
    }
    if facts.old_version {
        return PushState::OldVersion;
    }
    match facts.said {
        Some(EpochState::Rejected | EpochState::Reverted) => PushState::Failed,
        Some(EpochState::Applied) => PushState::Applied,
        Some(EpochState::AwaitingConfirm) => PushState::AwaitingConfirm,
        Some(EpochState::Staged) => PushState::Staged,
        Some(EpochState::Received) => PushState::Received,
        Some(EpochState::LeftBehind) => PushState::LeftBehind,
        None if facts.silent_from.is_some_and(|from| now >= from) => PushState::Silent,
        None => PushState::Pending,
    }
}

/// Whether the host that made this report is below `min`. A version that cannot be read is none that is too old.
#[must_use]
pub fn is_old(report: Option<&Report>, min: Option<&Version>) -> bool {
    let (Some(report), Some(min)) = (report, min) else {
        return false;
    };
    report.host_version.parse::<Version>().is_ok_and(|has| has < *min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(1_796_000_000 + secs).unwrap()
    }

    /// The rule as the page writes it: the first line that fits, from the top.
    fn by_the_page(facts: &Facts, now: Timestamp) -> PushState {
        let said = |states: &[EpochState]| facts.said.is_some_and(|s| states.contains(&s));
        let heard_nothing = facts.said.is_none();
        let late = facts.silent_from.is_some_and(|from| now >= from);
        let lines: [(PushState, bool); 10] = [
            (
                PushState::LeftBehind,
                facts.class == UpdateClass::LeftBehind || said(&[EpochState::LeftBehind]),
            ),
            (PushState::NotTargeted, !facts.targeted),
            (PushState::OldVersion, facts.old_version),
            (
                PushState::Failed,
                said(&[EpochState::Rejected, EpochState::Reverted]),
            ),
            (PushState::Applied, said(&[EpochState::Applied])),
            (PushState::AwaitingConfirm, said(&[EpochState::AwaitingConfirm])),
            (PushState::Staged, said(&[EpochState::Staged])),
            (PushState::Received, said(&[EpochState::Received])),
            (PushState::Silent, heard_nothing && late),
            (PushState::Pending, heard_nothing),
        ];
        lines.into_iter().find(|(_, fits)| *fits).unwrap().0
    }

    // holds: RO-3
    #[test]
    fn of_all_that_is_true_of_a_node_the_first_word_of_the_page_is_said() {
        let classes = [
            UpdateClass::Required,
            UpdateClass::BestEffort,
            UpdateClass::LeftBehind,
        ];
        let said = EpochState::ALL.into_iter().map(Some).chain([None]);
        let mut seen = std::collections::BTreeSet::new();
        for said in said {
            for class in classes {
                for bits in 0..4_u8 {
                    for silent_from in [None, Some(at(9)), Some(at(10)), Some(at(11))] {
                        let facts = Facts {
                            class,
                            targeted: bits & 1 != 0,
                            old_version: bits & 2 != 0,
                            said,
                            silent_from,
                        };
                        let state = push_state(&facts, at(10));
                        assert_eq!(state, by_the_page(&facts, at(10)), "{facts:?}");
                        seen.insert(state);
                    }
                }
            }
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), PushState::ALL);
    }

    // holds: RO-3
    #[test]
    fn the_words_are_those_of_the_page() {
        for state in PushState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.word());
        }
        for state in EpochState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state_word(state));
            assert!(PushState::of(state_word(state)).is_some());
        }
    }
}
