//! The commit-confirm window as a value, and what a start does with the one it finds (EP-2, HR-13).
//!
//! Stands alone because it is the rule by which two worlds are kept apart: decided and undecided. Invariant: only
//! an undecided window of this very boot is waited for; every other one ends at the start.

use meshplan_schemas::digest::Digest;
use serde::{Deserialize, Serialize};

use super::confirm::Reason;

/// The version of the window's files that this build writes and reads.
pub const WINDOW_VERSION: u32 = 1;

/// An open window, as `window/window.json` holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// [`WINDOW_VERSION`].
    pub version: u32,
    /// The boot that it was opened under.
    pub boot_id: String,
    /// What it is about.
    pub order: Order,
    /// Unix seconds.
    pub opened_at: i64,
    /// Until when applying may take, unix seconds.
    pub apply_deadline: i64,
    /// Until when the confirm must have been given, unix seconds; set once, when the last act is done.
    pub confirm_deadline: Option<i64>,
    /// Where it stands.
    pub state: WindowState,
}

/// What a window is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A declaration.
    Declaration {
        /// Its sequence.
        sequence: u64,
        /// The digest of its payload.
        digest: Digest,
    },
    /// The effective policy of an epoch.
    Policy {
        /// The epoch.
        epoch: u64,
        /// The digest of the policy file's bytes.
        digest: Digest,
    },
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Declaration { sequence, .. } => write!(f, "declaration {sequence}"),
            Self::Policy { epoch, .. } => write!(f, "the policy of epoch {epoch}"),
        }
    }
}

/// Where a window stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowState {
    /// Acts are being done.
    Applying,
    /// All are done; the confirm is awaited.
    AwaitingConfirm,
}

/// How a window was decided: the one file that only the first can make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// [`WINDOW_VERSION`].
    pub version: u32,
    /// Which way.
    pub decided: Decided,
    /// Why, in a sentence.
    pub why: String,
    /// Why it went back: whether the content is to blame outlives the host's death (B28).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Unix seconds.
    pub at: i64,
}

impl Verdict {
    /// Everything goes back.
    #[must_use]
    pub fn reverted(reason: &Reason, at: i64) -> Self {
        Self {
            version: WINDOW_VERSION,
            decided: Decided::Reverted,
            why: reason.to_string(),
            reason: Some(reason.clone()),
            at,
        }
    }

    /// What was done stays.
    #[must_use]
    pub fn confirmed(at: i64) -> Self {
        Self {
            version: WINDOW_VERSION,
            decided: Decided::Confirmed,
            why: String::new(),
            reason: None,
            at,
        }
    }

    /// Why it went back; a verdict of a former build blames nothing.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
            .clone()
            .unwrap_or_else(|| Reason::Interrupted(self.why.clone()))
    }
}

/// The last window that went back, for a start that finds none open any more: what it was about did not stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenBack {
    /// [`WINDOW_VERSION`].
    pub version: u32,
    /// What it was about.
    pub order: Order,
    /// Why it went back.
    pub reason: Reason,
}

/// Which way a window went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decided {
    /// What was done stays.
    Confirmed,
    /// Everything goes back.
    Reverted,
}

/// What stands on the disk of a window, each as far as it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// `window.json`; none when it cannot be read.
    pub window: Option<Window>,
    /// `verdict.json`.
    pub verdict: FoundVerdict,
}

/// Whether a window was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundVerdict {
    /// Not yet.
    None,
    /// So.
    Given(Verdict),
    /// There is one, and it cannot be read.
    Unreadable,
}

/// What a start does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AtStart {
    /// Goes on waiting.
    Wait,
    /// Finishes what was confirmed.
    FinishConfirm,
    /// Finishes what was reverted.
    FinishRevert {
        /// As the verdict says.
        reason: Reason,
    },
    /// Decides for the way back.
    Revert {
        /// Why.
        reason: Reason,
    },
}

/// Decides what a start does with a window that it finds.
#[must_use]
pub fn at_start(standing: &Standing, boot_id: &str) -> AtStart {
    match (&standing.verdict, &standing.window) {
        (FoundVerdict::Given(v), _) if v.decided == Decided::Confirmed => AtStart::FinishConfirm,
        (FoundVerdict::Given(v), _) => AtStart::FinishRevert { reason: v.reason() },
        (FoundVerdict::Unreadable, _) => AtStart::FinishRevert {
            reason: Reason::Interrupted("the verdict on the window cannot be read".to_owned()),
        },
        (FoundVerdict::None, None) => AtStart::Revert {
            reason: Reason::Interrupted("the window's file cannot be read".to_owned()),
        },
        (FoundVerdict::None, Some(window)) if window.boot_id != boot_id => AtStart::Revert {
            reason: Reason::Interrupted(format!(
                "the machine was started anew while {} awaited its confirm",
                window.order
            )),
        },
        (FoundVerdict::None, Some(window)) if window.state == WindowState::Applying => AtStart::Revert {
            reason: Reason::Interrupted(format!("the host stopped while it applied {}", window.order)),
        },
        (FoundVerdict::None, Some(_)) => AtStart::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(boot: &str, state: WindowState) -> Window {
        Window {
            version: WINDOW_VERSION,
            boot_id: boot.to_owned(),
            order: Order::Declaration {
                sequence: 7,
                digest: Digest::of(b""),
            },
            opened_at: 0,
            apply_deadline: 1,
            confirm_deadline: None,
            state,
        }
    }

    fn verdict(decided: Decided) -> FoundVerdict {
        FoundVerdict::Given(Verdict {
            version: 1,
            decided,
            why: "so".to_owned(),
            reason: Some(Reason::Probe("so".to_owned())),
            at: 0,
        })
    }

    // holds: EP-2, HR-13
    #[test]
    fn every_pair_of_window_and_verdict_has_one_end_at_the_start() {
        use WindowState::{Applying, AwaitingConfirm};
        let windows = [
            (None, "none"),
            (Some(window("this", Applying)), "applying"),
            (Some(window("this", AwaitingConfirm)), "waiting"),
            (Some(window("other", Applying)), "other boot"),
            (Some(window("other", AwaitingConfirm)), "other boot"),
        ];
        for (window, word) in windows {
            let end = |verdict: FoundVerdict| {
                at_start(
                    &Standing {
                        window: window.clone(),
                        verdict,
                    },
                    "this",
                )
            };
            assert_eq!(end(verdict(Decided::Confirmed)), AtStart::FinishConfirm, "{word}");
            assert_eq!(
                end(verdict(Decided::Reverted)),
                AtStart::FinishRevert {
                    reason: Reason::Probe("so".to_owned())
                }
            );
            assert!(
                matches!(end(FoundVerdict::Unreadable), AtStart::FinishRevert { .. }),
                "{word}"
            );
            let undecided = end(FoundVerdict::None);
            if word == "waiting" {
                assert_eq!(undecided, AtStart::Wait);
            } else {
                assert!(
                    matches!(undecided, AtStart::Revert { .. }),
                    "{word}: {undecided:?}"
                );
            }
        }
    }
}
