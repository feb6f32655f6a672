//! What cannot be decided of one thing hinders no other (DL-2: `failed (internal)`).
//!
//! A decision is made on a draft, and one that fails half-way has left numbers, assignments and orders there. Nothing of that is
//! mended: the pass is decided anew from its beginning, knowing what failed, and that is ended instead of decided. It stands
//! alone because every part of the engine meets it. Invariant: an act has nothing of a decision that failed.

use std::collections::BTreeMap;
use std::fmt;

use meshplan_schemas::ident::CommitId;

use super::DecideError;

/// So often a pass is decided anew because of one thing; then the error is the pass's.
const MOST: usize = 2;

/// What a decision is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// A delivery.
    Delivery(CommitId),
    /// A person's word, by its id.
    Request(String),
    /// Orders that are given once more outside of walks (DL-13).
    OnceMore,
}

impl fmt::Display for About {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delivery(commit) => write!(f, "the delivery of {}", commit.short()),
            Self::Request(id) => write!(f, "the request {id}"),
            Self::OnceMore => f.write_str("orders that went back and are given once more"),
        }
    }
}

/// A decision that failed.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    /// How often, in this pass.
    pub(super) times: usize,
    /// Why, in words.
    pub(super) why: String,
}

/// What failed in this pass so far.
#[derive(Debug, Default)]
pub(super) struct Faults(BTreeMap<About, Fault>);

impl Faults {
    /// Takes down what failed.
    ///
    /// # Errors
    /// The error itself, where it is about no single thing, or what was done about it failed too.
    pub(super) fn take(&mut self, error: DecideError) -> Result<(), DecideError> {
        let DecideError::Of { about, source } = &error else {
            return Err(error);
        };
        let fault = self.0.entry((**about).clone()).or_insert_with(|| Fault {
            times: 0,
            why: source.to_string(),
        });
        if fault.times == MOST {
            return Err(error);
        }
        fault.times += 1;
        Ok(())
    }

    /// What failed of this.
    pub(super) fn of(&self, about: &About) -> Option<&Fault> {
        self.0.get(about)
    }

    /// What failed of a delivery.
    pub(super) fn of_delivery(&self, commit: &CommitId) -> Option<&Fault> {
        self.of(&About::Delivery(commit.clone()))
    }

    /// All of it, in words.
    pub(super) fn words(&self) -> Vec<String> {
        let all = self.0.iter();
        all.map(|(about, fault)| format!("{about} cannot be decided: {}", fault.why))
            .collect()
    }
}
