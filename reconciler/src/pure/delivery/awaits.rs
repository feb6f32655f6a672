//! What a delivery waits for before it begins: made where that is decided, kept with it, and said by `why` (DL-16).

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::Code;
use serde::{Deserialize, Serialize};

/// What a delivery waits for, one sentence each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaits {
    /// What for.
    pub on: String,
    /// By which rule, and where that stands.
    pub rule: String,
    /// What happens next.
    pub next: String,
    /// When it is over by the clock, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// As what it is held now, which may be another cause than the one that it was held for first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// The walk that is in its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<CommitId>,
}

impl Awaits {
    /// Of what is held under a code for this reason, before it is known where the rule stands. A code that is for walks alone
    /// leaves its rule and what is next to the walk.
    #[must_use]
    pub fn held(code: Code, reason: &str) -> Self {
        let (rule, next) = words(code);
        Self {
            on: match code {
                Code::Absent => format!("machines that cannot begin now: {reason}"),
                Code::Window | Code::Freeze | Code::Approvals | Code::Signatures | Code::RetireGate => {
                    reason.to_owned()
                }
                _ => format!("a person: {reason}"),
            },
            rule: format!("{rule} ({code})"),
            next: next.to_owned(),
            until: None,
            code: Some(code),
            behind: None,
        }
    }

    /// The same under a rule that stands there.
    #[must_use]
    pub fn by(mut self, rule: &str) -> Self {
        let code = self.code.map_or_else(String::new, |code| format!(" ({code})"));
        self.rule = format!("{rule}{code}");
        self
    }
}

/// The rule of a hold and what follows, where nothing more is known.
fn words(code: Code) -> (&'static str, &'static str) {
    match code {
        Code::MergedUnchecked => (
            "a plan names checks, and none had passed or ran at the merge, DL-2",
            "a go begins it, or a newer commit takes its place; a check that passes later lifts nothing",
        ),
        Code::CheckFailed => (
            "a plan names checks, and one failed, DL-2",
            "a newer commit takes its place, or a go begins it all the same; a check that passes later lifts nothing",
        ),
        Code::Approvals => (
            "a plan wants approvals, DL-15",
            "it begins with the approvals that are missing, or with a go",
        ),
        Code::Signatures => (
            "commits are signed by whom the fleet trusts, SG-6",
            "it begins by itself once what was let through before it trusts its signer; a go begins it now, or a newer \
             commit takes its place",
        ),
        Code::PersonHold => (
            "what a person holds waits for a person, DL-4",
            "a go begins it, a withdraw ends it; a newer commit takes its place and is held in its stead",
        ),
        Code::Freeze => (
            "no new delivery of a frozen fleet begins, DL-4",
            "it begins by itself once that is lifted; with a go it begins in spite of that",
        ),
        Code::KnownBad => (
            "what failed is not tried again by itself, DL-14",
            "a go with `--again` tries it once more, or a newer commit takes its place",
        ),
        Code::RetireGate => (
            "a retire waits for the nodes that it would leave behind, RT-5",
            "it begins by itself when they have moved, or with a go",
        ),
        Code::Absent => (
            "a delivery waits for required machines, DL-19",
            "it begins by itself when they can; a go begins now, without those that were not heard from",
        ),
        Code::Window => (
            "stages open in their window, DL-17",
            "it begins by itself then, or with a go now",
        ),
        Code::PlanHold | Code::Removals | Code::HistoryRewritten => (
            "what takes more than its plan lets go waits for a person, DL-2",
            "a go begins it, a withdraw ends it, or a newer commit takes its place",
        ),
        _ => ("a person decides, DL-2", "a go, a withdraw, or a newer commit"),
    }
}
