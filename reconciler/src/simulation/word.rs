//! A person's word in a rehearsal.

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;

use crate::pure::rollout::words::Overrides;
use crate::pure::snapshot::Verb;

/// What a person asks for.
#[derive(Debug)]
pub(super) struct Word {
    pub(super) verb: Verb,
    pub(super) commit: Option<CommitId>,
    pub(super) until: Option<Timestamp>,
    pub(super) why: String,
    pub(super) start: Option<Overrides>,
}

impl Word {
    pub(super) fn of(verb: Verb, commit: Option<CommitId>) -> Self {
        Self {
            verb,
            commit,
            until: None,
            why: String::new(),
            start: None,
        }
    }

    pub(super) fn because(self, why: &str) -> Self {
        Self {
            why: why.to_owned(),
            ..self
        }
    }
}
