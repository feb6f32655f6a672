//! Forges, as the rest knows them: pull requests, comments, statuses, reviews; what is asked of a forge and what it
//! answers, as values (FG-1).
//!
//! A module a forge makes [`Call`]s and reads answers; nothing here talks to anybody. What is said on a pull request is
//! made here too, so that a text and the decision to say it can be tested without one.
//!
//! | file | what it is |
//! | --- | --- |
//! | [`dialect`] | what every forge can be asked |
//! | [`request`], [`answer`] | requests, lists and refusals as values |
//! | [`forgejo`], [`github`], [`gitlab`] | a forge's own words |
//! | [`bare`] | the webhook of a repository without a forge |
//! | [`gates`] | what deliveries wait for the forge to tell |
//! | [`check`] | the preview's comment and the status `meshplan/check` (DL-8) |
//! | [`view`] | the delivery's comment and the status `meshplan/delivery` (DL-11) |
//! | [`revert`] | the pull request that reverts what was taken back (DL-7) |
//! | [`orders`] | words of people in comments (DL-4) |
//! | [`kept`] | what is remembered of a pull request, and what is due to it |

use std::collections::BTreeMap;

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;
use serde::{Deserialize, Serialize};

pub mod answer;
pub mod bare;
pub mod check;
pub mod dialect;
pub mod forgejo;
pub mod gates;
pub mod github;
pub mod gitlab;
pub mod kept;
pub mod orders;
pub mod request;
pub mod revert;
pub mod view;

/// The most characters of a comment that we write: it fits every forge (DL-8).
pub const COMMENT_CHARS: usize = 60_000;
/// The most characters of a status's description: GitHub refuses more.
pub const DESCRIPTION_CHARS: usize = 140;
/// The marker of the preview's comment.
pub const PREVIEW_MARKER: &str = "<!-- mesh-delivery:preview -->";
/// The marker of the delivery's comment.
pub const VIEW_MARKER: &str = "<!-- mesh-delivery:view -->";
/// The status of a pull request's head.
pub const CHECK_CONTEXT: &str = "meshplan/check";
/// The status of a delivered commit.
pub const DELIVERY_CONTEXT: &str = "meshplan/delivery";

/// Somebody on a forge. The id stays when the login goes to another (B57).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The forge's number.
    pub id: u64,
    /// The name.
    pub login: String,
}

/// A team of a forge, which goes by its number there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Team {
    /// The forge's number.
    pub id: u64,
    /// The name.
    pub name: String,
}

/// A pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pull {
    /// Its number.
    pub number: u64,
    /// Who opened it.
    pub author: User,
    /// The commit that it would merge.
    pub head: CommitId,
    /// Where it left that branch: what reviewers see is the difference between the two.
    pub fork_point: Option<CommitId>,
    /// The commit of that branch from which reviewers see it, of a forge that does not tell the fork point.
    pub base: Option<CommitId>,
    /// The branch that it would be merged into, without `refs/heads/`.
    pub into: String,
    /// Whether it is open.
    pub open: bool,
    /// What its merge made of the branch; none before. A test merge is none (B06).
    pub merged: Option<Merged>,
    /// Whether its head is in another repository than its base.
    pub fork: bool,
}

/// A merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Merged {
    /// The commit that stands on the branch since.
    pub commit: CommitId,
    /// When.
    pub at: Timestamp,
}

/// A comment on a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// Its id, higher than those before it.
    pub id: u64,
    /// Who wrote it; none where that user is gone.
    pub author: Option<User>,
    /// Its text.
    pub body: String,
    /// When it was written.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// A review of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// Who; none where that user is gone, or where a team was asked.
    pub by: Option<User>,
    /// When.
    pub at: Timestamp,
    /// Of which head.
    pub commit: Option<CommitId>,
    /// What it says.
    pub says: Says,
}

/// What a review says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// Yes, of what stands there now, by somebody whose word counts.
    Yes,
    /// No, or a yes that does not count (any more).
    No,
    /// Neither.
    Nothing,
}

/// What a pull request's head was from some time on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The head.
    pub head: CommitId,
    /// Since when.
    pub since: Timestamp,
}

/// Reviews, each with the head that stood there when it was given where it does not say itself. Of one from the very moment in
/// which the head became another nobody can tell.
#[must_use]
pub fn placed(mut reviews: Vec<Review>, versions: &[Version]) -> Vec<Review> {
    for review in reviews.iter_mut().filter(|review| review.commit.is_none()) {
        let before = versions.iter().filter(|version| version.since < review.at);
        let there = before.max_by_key(|version| version.since);
        let moved = versions.iter().any(|version| version.since == review.at);
        review.commit = there.filter(|_| !moved).map(|version| version.head.clone());
    }
    reviews
}

/// Who approves of just this head: each by the last that they said of it, and nobody of his own (DL-15).
#[must_use]
pub fn approving(reviews: &[Review], head: &CommitId, author: &User) -> Vec<(User, Timestamp)> {
    let mut last: BTreeMap<u64, (&User, &Review)> = BTreeMap::new();
    for review in reviews.iter().filter(|review| review.says != Says::Nothing) {
        if let Some(by) = review.by.as_ref().filter(|by| by.id != author.id) {
            last.insert(by.id, (by, review));
        }
    }
    let yes = last
        .into_values()
        .filter(|(_, review)| review.says == Says::Yes && review.commit.as_ref() == Some(head));
    yes.map(|(by, review)| (by.clone(), review.at)).collect()
}

/// What a commit's status says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusState {
    /// On its way.
    Pending,
    /// Well.
    Success,
    /// Not well.
    Failure,
    /// Our own fault.
    Error,
}

/// A commit's status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitStatus {
    /// The component's repository; none: the fleet's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// Of which commit.
    pub commit: CommitId,
    /// Which status.
    pub context: String,
    /// What it says.
    pub state: StatusState,
    /// In words, at most [`DESCRIPTION_CHARS`].
    pub description: String,
}

/// A comment that shall stand on a pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// Which pull request.
    pub number: u64,
    /// By what it is found again; it opens the text.
    pub marker: String,
    /// The whole text, at most [`COMMENT_CHARS`].
    pub body: String,
}

impl Said {
    /// Under what it is kept: one comment of a marker on a pull request.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{} {}", self.number, self.marker)
    }
}

impl CommitStatus {
    /// Under what it is kept: one status of a context on a commit.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{} {}", self.commit, self.context)
    }
}

/// A pull request that we open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPull {
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
    /// The branch that it brings.
    pub from: String,
    /// The branch that it would be merged into.
    pub into: String,
}

/// The first so many characters of a text; what was cut shows as `...`.
#[must_use]
pub fn cut(text: &str, chars: usize) -> String {
    if text.chars().count() <= chars {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(chars.saturating_sub(3)).collect();
    short.push_str("...");
    short
}

/// A text as a block of code that nothing in it can end, mention anybody from, or speak to a terminal or page with.
#[must_use]
pub(crate) fn fenced(text: &str) -> String {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat((longest + 1).max(3));
    format!("{fence}text\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

/// Text that came from people, in a line of ours: no markup, no mention, no line end.
#[must_use]
pub(crate) fn plain(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat(longest + 1);
    let text = text.trim();
    if text.starts_with('`') || text.ends_with('`') {
        format!("{fence} {text} {fence}")
    } else {
        format!("{fence}{text}{fence}")
    }
}

#[cfg(test)]
mod tests;
