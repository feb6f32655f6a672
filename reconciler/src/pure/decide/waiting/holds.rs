//! What holds a delivery, with the rule's place: a key of a plan, in the tree that says it (DL-16).

use jiff::Timestamp;
use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::Code;

use crate::pure::compose::Composed;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::Awaits;
use crate::pure::scope::Scope;

/// Why a delivery may not begin yet.
#[derive(Debug)]
pub(super) struct Hold {
    /// As a word.
    pub(super) code: Code,
    /// In a sentence.
    pub(super) reason: String,
    /// For `why`.
    pub(super) awaits: Awaits,
}

impl Hold {
    pub(super) fn new(code: Code, reason: String) -> Self {
        let awaits = Awaits::held(code, &reason);
        Self { code, reason, awaits }
    }

    /// By this rule.
    pub(super) fn by(mut self, rule: &str) -> Self {
        self.awaits = self.awaits.by(rule);
        self
    }

    /// Until then, where the clock ends it.
    pub(super) fn until(mut self, until: Option<Timestamp>) -> Self {
        self.awaits.until = until;
        self
    }

    /// What happens next, where that is not what the code says.
    pub(super) fn next(mut self, next: &str) -> Self {
        next.clone_into(&mut self.awaits.next);
        self
    }
}

/// What a key of a plan says, and its place. The plan is one of `tree`, or of the tree whose gate was last accepted.
pub(super) fn place(
    draft: &Draft<'_>,
    tree: &Composed,
    plan: Option<&PlanDoc>,
    (key, says): (&str, &str),
) -> String {
    let Some(plan) = plan else {
        return format!("the built-in plan, {says}");
    };
    let of = if tree.plans.get(&plan.name) == Some(plan) {
        String::new()
    } else {
        of_before(draft)
    };
    match plan.places.line(key) {
        Some(line) => format!("plans/{}.toml:{line}{of}, {says}", plan.name),
        None => format!("plans/{}.toml{of}, {says} by default", plan.name),
    }
}

/// Says of a file that it is the one of the tree whose gate was last accepted.
pub(super) fn of_before(draft: &Draft<'_>) -> String {
    let accepted = draft.known.snapshot.accepted.get(&Scope::Gate);
    accepted.map_or_else(String::new, |accepted| format!(" of {}", accepted.commit.short()))
}

/// What follows where nothing is decided yet.
pub(super) const NEXT: &str = "it begins, or is held";

/// It waits for something of the repository that could not be read.
pub(super) fn unread(what: &str) -> Awaits {
    Awaits {
        on: format!("{what} to be read from the repository; `meshplan status` says what keeps it"),
        rule: "an order is made of what its commit has, and of nothing else (FR-1)".to_owned(),
        next: format!("the next look at the repository reads it, then {NEXT}"),
        ..Awaits::default()
    }
}

/// It waits for another walk.
pub(super) fn behind(other: CommitId) -> Awaits {
    Awaits {
        on: "another walk to be over".to_owned(),
        rule: "deliveries of a scope go one after the other, and a machine carries one at a time (DL-3)"
            .to_owned(),
        next: NEXT.to_owned(),
        behind: Some(other),
        ..Awaits::default()
    }
}
