//! The states of a delivery and the codes of its transitions: the table of DL-2 as a value.
//!
//! [`TABLE`] is the page's table, row by row; everything else asks it. A transition that it does not have is an
//! error that names both ends and the code.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Known, not yet begun.
    Proposed,
    /// Waits for a cause or a person.
    Held,
    /// On its way.
    Delivering,
    /// The former content is on its way.
    RollingBack,
    /// Done.
    Delivered,
    /// The former content stands again.
    RolledBack,
    /// A newer one took its place.
    Superseded,
    /// A person took it back before it reached a machine.
    Withdrawn,
    /// Cannot be composed.
    Failed,
}

macro_rules! words {
    ($type:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        impl $type {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// The word, as in notes and messages.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }
        impl std::str::FromStr for $type {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                Self::ALL.iter().copied().find(|v| v.word() == text).ok_or_else(|| UnknownWord(text.to_owned()))
            }
        }
    };
}

/// A word that is no state or no code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a word of the delivery table (DL-2)")]
pub struct UnknownWord(String);

words!(State {
    Proposed = "proposed", Held = "held", Delivering = "delivering", RollingBack = "rolling-back",
    Delivered = "delivered", RolledBack = "rolled-back", Superseded = "superseded", Withdrawn = "withdrawn",
    Failed = "failed",
});

impl State {
    /// Whether nothing follows but `again`.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Self::Delivered | Self::RolledBack | Self::Superseded | Self::Withdrawn | Self::Failed
        )
    }
}

/// Why a transition happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The commit is known.
    Announced,
    /// At the merge no named check had passed and none was running.
    MergedUnchecked,
    /// A named check failed.
    CheckFailed,
    /// Reviews are missing.
    Approvals,
    /// Signatures are missing (SG-6).
    Signatures,
    /// The plan says so.
    PlanHold,
    /// A person said so.
    PersonHold,
    /// The fleet is frozen.
    Freeze,
    /// The content failed before (DL-14).
    KnownBad,
    /// More would vanish than the plan allows (FR-12).
    Removals,
    /// The branch was rewritten (FG-3).
    HistoryRewritten,
    /// A retire waits for nodes (RT-5).
    RetireGate,
    /// Required machines are not there (DL-19).
    Absent,
    /// The plan's window is shut.
    Window,
    /// The conditions hold.
    Checked,
    /// A person said go.
    Go,
    /// The cause has gone.
    Opened,
    /// The failed stage once more.
    Retry,
    /// The commit changes no order.
    NothingToDo,
    /// A newer commit covers it.
    Newer,
    /// A stage did not pass.
    StageFailed,
    /// A machine was not heard from.
    Silent,
    /// A stage has too few machines.
    NoMachine,
    /// A person said stop.
    Stopped,
    /// The reconciler cannot tell how far the walk is.
    Lost,
    /// Every machine passed.
    Done,
    /// A person said abort.
    Aborted,
    /// A person said withdraw.
    Withdrawn,
    /// Every reached machine has the former content.
    Taken,
    /// Some have; the rest are outstanding.
    Partly,
    /// The former content failed too.
    RollBackFailed,
    /// The former content needs a retired value.
    RetiredValue,
    /// A person said go `--again`.
    Again,
    /// The tree does not validate.
    Invalid,
    /// Our own fault.
    Internal,
}

words!(Code {
    Announced = "announced", MergedUnchecked = "merged-unchecked", CheckFailed = "check-failed",
    Approvals = "approvals", Signatures = "signatures", PlanHold = "plan-hold", PersonHold = "person-hold",
    Freeze = "freeze", KnownBad = "known-bad", Removals = "removals", HistoryRewritten = "history-rewritten",
    RetireGate = "retire-gate", Absent = "absent", Window = "window", Checked = "checked", Go = "go",
    Opened = "opened", Retry = "retry", NothingToDo = "nothing-to-do", Newer = "newer",
    StageFailed = "stage-failed", Silent = "silent", NoMachine = "no-machine", Stopped = "stopped",
    Lost = "lost", Done = "done", Aborted = "aborted", Withdrawn = "withdrawn", Taken = "taken",
    Partly = "partly", RollBackFailed = "roll-back-failed", RetiredValue = "retired-value", Again = "again",
    Invalid = "invalid", Internal = "internal",
});

/// A row of the table: from any of these, to this, for any of these codes. `None` is "(new)".
#[derive(Debug)]
pub struct Row {
    /// From.
    pub from: &'static [Option<State>],
    /// To.
    pub to: State,
    /// Codes.
    pub codes: &'static [Code],
}

const PROPOSED: Option<State> = Some(State::Proposed);
const HELD: Option<State> = Some(State::Held);
const DELIVERING: Option<State> = Some(State::Delivering);
const ROLLING_BACK: Option<State> = Some(State::RollingBack);

/// The table of DL-2, in its order.
pub const TABLE: &[Row] = &[
    Row {
        from: &[None],
        to: State::Proposed,
        codes: &[Code::Announced],
    },
    Row {
        from: &[PROPOSED],
        to: State::Held,
        codes: &[
            Code::MergedUnchecked,
            Code::CheckFailed,
            Code::Approvals,
            Code::Signatures,
            Code::PlanHold,
            Code::PersonHold,
            Code::Freeze,
            Code::KnownBad,
            Code::Removals,
            Code::HistoryRewritten,
            Code::RetireGate,
            Code::Absent,
            Code::Window,
        ],
    },
    Row {
        from: &[PROPOSED],
        to: State::Delivering,
        codes: &[Code::Checked],
    },
    Row {
        from: &[HELD],
        to: State::Delivering,
        codes: &[Code::Go, Code::Opened, Code::Retry],
    },
    Row {
        from: &[PROPOSED],
        to: State::Delivered,
        codes: &[Code::NothingToDo],
    },
    Row {
        from: &[PROPOSED, HELD, ROLLING_BACK],
        to: State::Superseded,
        codes: &[Code::Newer],
    },
    Row {
        from: &[DELIVERING],
        to: State::Held,
        codes: &[
            Code::StageFailed,
            Code::Silent,
            Code::NoMachine,
            Code::Stopped,
            Code::Lost,
        ],
    },
    Row {
        from: &[DELIVERING],
        to: State::Delivered,
        codes: &[Code::Done],
    },
    Row {
        from: &[DELIVERING, HELD],
        to: State::RollingBack,
        codes: &[Code::StageFailed, Code::Silent, Code::Aborted, Code::Withdrawn],
    },
    Row {
        from: &[HELD],
        to: State::RollingBack,
        codes: &[Code::Newer],
    },
    Row {
        from: &[ROLLING_BACK],
        to: State::RolledBack,
        codes: &[Code::Taken, Code::Partly],
    },
    Row {
        from: &[ROLLING_BACK],
        to: State::Held,
        codes: &[Code::RollBackFailed, Code::RetiredValue],
    },
    Row {
        from: &[PROPOSED, HELD],
        to: State::Withdrawn,
        codes: &[Code::Withdrawn],
    },
    Row {
        from: &[Some(State::RolledBack), Some(State::Failed)],
        to: State::Proposed,
        codes: &[Code::Again],
    },
    Row {
        from: &[PROPOSED, HELD, DELIVERING, ROLLING_BACK],
        to: State::Failed,
        codes: &[Code::Invalid, Code::Internal],
    },
];

/// A transition that the table does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a delivery cannot go from {} to {to} because of `{code}` (DL-2)", from.map_or("(new)", State::word))]
pub struct InvalidTransition {
    /// From.
    pub from: Option<State>,
    /// To.
    pub to: State,
    /// Code.
    pub code: Code,
}

/// Checks a transition against the table.
///
/// # Errors
/// [`InvalidTransition`] names from, to and code.
pub fn check(from: Option<State>, to: State, code: Code) -> Result<(), InvalidTransition> {
    let known = TABLE
        .iter()
        .any(|row| row.from.contains(&from) && row.to == to && row.codes.contains(&code));
    if known {
        Ok(())
    } else {
        Err(InvalidTransition { from, to, code })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every pair of states and every code, written down once by hand from the page.
    const PAGE: &str = "
        (new) -> proposed: announced
        proposed -> held: merged-unchecked check-failed approvals signatures plan-hold person-hold freeze known-bad removals history-rewritten retire-gate absent window
        proposed -> delivering: checked
        held -> delivering: go opened retry
        proposed -> delivered: nothing-to-do
        proposed -> superseded: newer
        held -> superseded: newer
        rolling-back -> superseded: newer
        delivering -> held: stage-failed silent no-machine stopped lost
        delivering -> delivered: done
        delivering -> rolling-back: stage-failed silent aborted withdrawn
        held -> rolling-back: stage-failed silent aborted withdrawn newer
        rolling-back -> rolled-back: taken partly
        rolling-back -> held: roll-back-failed retired-value
        proposed -> withdrawn: withdrawn
        held -> withdrawn: withdrawn
        rolled-back -> proposed: again
        failed -> proposed: again
        proposed -> failed: invalid internal
        held -> failed: invalid internal
        delivering -> failed: invalid internal
        rolling-back -> failed: invalid internal
    ";

    // holds: DL-2
    #[test]
    fn every_pair_of_states_with_every_code_is_as_the_page_says() {
        let mut page = BTreeSet::new();
        for line in PAGE.lines().map(str::trim).filter(|l| !l.is_empty()) {
            let (pair, codes) = line.split_once(": ").unwrap();
            for code in codes.split(' ') {
                page.insert(format!("{pair}: {code}"));
            }
        }
        let mut tried = 0;
        let froms = std::iter::once(None).chain(State::ALL.iter().copied().map(Some));
        for from in froms {
            for &to in State::ALL {
                for &code in Code::ALL {
                    let text = format!("{} -> {to}: {code}", from.map_or("(new)", State::word));
                    assert_eq!(check(from, to, code).is_ok(), page.contains(&text), "{text}");
                    tried += 1;
                }
            }
        }
        assert_eq!(tried, 10 * 9 * 35);
    }

    // holds: DL-2
    #[test]
    fn every_state_that_is_not_final_has_a_way_out_and_final_ones_only_again() {
        for &from in State::ALL {
            for row in TABLE.iter().filter(|r| r.from.contains(&Some(from))) {
                assert!(!from.is_final() || row.codes == [Code::Again]);
            }
            let out = TABLE.iter().any(|r| r.from.contains(&Some(from)));
            assert!(out || from.is_final(), "{from} is a trap");
        }
    }

    #[test]
    fn an_impossible_transition_names_both_ends_and_the_code() {
        let error = check(Some(State::Delivered), State::Delivering, Code::Go).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a delivery cannot go from delivered to delivering because of `go` (DL-2)"
        );
    }

    #[test]
    fn the_words_come_back() {
        for state in State::ALL {
            assert_eq!(state.word().parse::<State>().as_ref(), Ok(state));
        }
        for code in Code::ALL {
            assert_eq!(code.word().parse::<Code>().as_ref(), Ok(code));
        }
    }
}
