//! The engine: what is known and the time in, one [`Act`] out.
//!
//! One pass announces new commits, answers people, judges what waits, and moves the one delivery that walks by as
//! much as can be told now. It is a function: the daemon, the property tests and a simulation run the same one, and
//! run again over the same world it decides nothing.
//!
//! | file | what it decides |
//! | --- | --- |
//! | [`waiting`] | which waiting delivery is next, what holds it, when it begins |
//! | [`walk`] | stages, their selections, when they pass, what trouble does |
//! | [`look`] | what a report says of one machine |
//! | [`classes`] | whom a walk waits for, whose trouble counts, who follows later |
//! | [`orders`] | the orders of a stage, a release, a roll-back |
//! | [`freeze`] | that no new delivery of the fleet begins |
//! | [`people`] | what a person's word does |
//! | [`recovering`] | how it goes on after the database was lost |
//! | [`draft`] | the act while it is made: numbers, assignments, transitions |
//! | [`faults`] | that what cannot be decided of one delivery hinders no other |
//! | [`forecast`] | what a walk would take, before there is one |
//! | [`why`] | what a delivery waits for, in a sentence |

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::declaration::ModuleContent;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::finding::Finding;
use meshplan_schemas::fleet_list::{Author, Reconciler};
use meshplan_schemas::ident::{CommitId, FleetName, KeyId};
use meshplan_schemas::lifecycle::delivery::InvalidTransition;

use super::act::Act;
use super::compose::former::Former;
use super::compose::{Composed, TreeError};
use super::diff::PolicyOnNode;
use super::parts::{Branch, Left};
use super::signatures::Brought;
use super::snapshot::Snapshot;

pub mod aside;
pub mod classes;
pub mod draft;
pub mod faults;
pub mod forecast;
pub mod freeze;
pub mod look;
pub mod orders;
pub mod people;
mod recovering;
pub mod waiting;
pub mod walk;
pub mod why;
pub mod windows;

use faults::{About, Faults};
pub use waiting::signed::{base_after, bases};

#[cfg(test)]
mod tests;

/// Everything that a decision may know.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// What the store has.
    pub snapshot: &'a Snapshot,
    /// The trees of the deliveries that are open, and of the commits before them.
    pub trees: &'a BTreeMap<CommitId, Tree>,
    /// Content that assignments name.
    pub contents: &'a Contents,
    /// By commit, what [`super::diff::proven::wanted`] asks for its tree.
    pub formers: &'a BTreeMap<CommitId, Former>,
    /// By commit that waits, what it brings of each repository and how that is signed, where its base asks for signatures ([`bases`]).
    pub signatures: &'a BTreeMap<CommitId, Vec<Brought>>,
    /// Who this reconciler is.
    pub settings: &'a Settings,
    /// Commits that no delivery has yet, oldest first.
    pub news: &'a [NewCommit],
    /// Commits that waited and are not on their branch any more.
    pub left: &'a [Left],
    /// The time.
    pub now: Timestamp,
    /// Since when this reconciler serves: nobody is judged in its first two report intervals (RO-8).
    pub serving_since: Timestamp,
}

/// A commit's tree.
#[derive(Debug, Clone)]
pub enum Tree {
    /// It composes.
    Composed(Arc<Composed>),
    /// It does not validate or compose, or this version may not sign it; why, as a person reads it.
    Invalid(String),
    /// No fleet.toml, or no tree: never an order (FR-12).
    Gone(String),
}

impl Tree {
    /// What a commit's tree is to a decision, of what came of composing it. The one place where a tree that composes is
    /// kept from being an order: of one with something that this version does not carry out nothing is ever decided,
    /// so nothing is signed.
    #[must_use]
    pub fn of(composed: Result<Arc<Composed>, TreeError>) -> Self {
        match composed {
            Ok(composed) => match &composed.unsigned {
                None => Self::Composed(composed),
                Some(why) => Self::Invalid(why.to_string()),
            },
            Err(TreeError::NoFleet(why)) => Self::Gone(why),
            Err(TreeError::Findings(findings)) => Self::Invalid(said(&findings)),
        }
    }
}

/// Errors as one sentence for the transition; the first few whole, the rest counted.
fn said(findings: &[Finding]) -> String {
    const SHOWN: usize = 5;
    let errors: Vec<_> = findings.iter().filter(|f| f.is_error()).collect();
    let mut text: Vec<String> = errors.iter().take(SHOWN).map(ToString::to_string).collect();
    if errors.len() > SHOWN {
        text.push(format!(
            "and {} more; `meshplan check` shows all",
            errors.len() - SHOWN
        ));
    }
    text.join("; ")
}

/// Content by digest.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// Modules on nodes.
    pub modules: BTreeMap<Digest, Arc<ModuleContent>>,
    /// The policy scope on nodes.
    pub policies: BTreeMap<Digest, Arc<PolicyOnNode>>,
    /// Policy texts of the fleet.
    pub texts: BTreeMap<Digest, Arc<str>>,
}

/// Who this reconciler is, and what enters each order.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The fleet.
    pub fleet: FleetName,
    /// The repository, as deliveries are called after it.
    pub repo: String,
    /// The branch whose merges are orders.
    pub branch: String,
    /// The era of all orders.
    pub era: u64,
    /// The author that signs.
    pub author: KeyId,
    /// Where hosts find the reconcilers.
    pub reconcilers: Vec<Reconciler>,
    /// Whether there is a forge that can be asked for checks.
    pub asks_forge: bool,
    /// Whose timestamps count.
    pub timestamp_keys: Vec<Author>,
}

/// A commit of the fleet's branch, or of a component's, that no delivery has yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommit {
    /// Its id.
    pub commit: CommitId,
    /// The component that it is of; none: of the fleet repo.
    pub component: Option<Branch>,
    /// Its first line.
    pub subject: String,
    /// Its author's name.
    pub author: String,
    /// Whether the head that it merges was heard of while its pull request was open, else it is made from the forge's word
    /// (DL-2); none while the forge may still tell that a pull request which is open here was merged.
    pub heard: Option<bool>,
    /// The branch no longer has what was delivered before (FG-3).
    pub rewritten: bool,
    /// Its `Allow-Removals:` line, without the word (FR-12).
    pub allows_removals: Option<String>,
}

/// A decision that cannot be made: our own fault, never an input's.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// A transition that the table does not have.
    #[error(transparent)]
    Transition(#[from] InvalidTransition),
    /// A value that has no canonical bytes.
    #[error("cannot digest an order: {0}")]
    Digest(#[from] serde_json::Error),
    /// Content that an assignment names and nobody has.
    #[error("the content {0} is assigned and not in the store")]
    NoContent(Digest),
    /// One of these, of one thing; the others can be decided.
    #[error("{about} cannot be decided")]
    Of {
        /// Of what.
        about: Box<About>,
        /// Why.
        source: Box<DecideError>,
    },
}

impl DecideError {
    /// The error as one of this thing; as it is, where it is one of another already.
    fn of(self, about: About) -> Self {
        match self {
            Self::Of { .. } => self,
            source => Self::Of {
                about: Box::new(about),
                source: Box::new(source),
            },
        }
    }

    /// As [`DecideError::of`], of a delivery.
    fn of_delivery(self, commit: &CommitId) -> Self {
        self.of(About::Delivery(commit.clone()))
    }
}

/// Decides one pass.
///
/// # Flow
/// New commits, people's words, what waits, what walks; then the journal's blocks for all of it. After the database was lost
/// none of that, until the machines were heard.
///
/// # Guarantees
/// Every transition is one of the table's; every number is above the snapshot's; the same input gives the same act. What cannot
/// be decided of one delivery ends that one, and the act says so ([`Act::faults`]).
///
/// # Errors
/// [`DecideError`]: nothing is to be stored then.
pub fn decide(known: &Known<'_>) -> Result<Act, DecideError> {
    let mut faults = Faults::default();
    loop {
        match decide_but(known, &faults) {
            Ok(act) => return Ok(act),
            Err(error) => faults.take(error)?,
        }
    }
}

/// Decides one pass, in which what failed is ended instead.
fn decide_but(known: &Known<'_>, faults: &Faults) -> Result<Act, DecideError> {
    let mut draft = draft::Draft::new(known, faults);
    if let Some(recovering) = &known.snapshot.recovering {
        recovering::decide(&mut draft, recovering)?;
        return Ok(draft.finish());
    }
    let held = waiting::withdraw_left(&mut draft)?;
    waiting::announce(&mut draft, &held)?;
    people::answer(&mut draft)?;
    waiting::judge(&mut draft)?;
    walk::walk_on(&mut draft)?;
    if faults.of(&About::OnceMore).is_none() {
        aside::order_again(&mut draft).map_err(|error| error.of(About::OnceMore))?;
    }
    Ok(draft.finish())
}

/// Names as a sentence has them: the first, and how many more.
fn some(names: &[&str]) -> String {
    const NAMED: usize = 10;
    let named: Vec<&str> = names.iter().copied().take(NAMED).collect();
    match names.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// `from` and so many seconds; the farthest instant where that is beyond all calendars.
#[must_use]
pub(crate) fn after_secs(from: Timestamp, secs: u32) -> Timestamp {
    from.checked_add(SignedDuration::from_secs(i64::from(secs)))
        .unwrap_or(Timestamp::MAX)
}
