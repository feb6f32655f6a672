//! What is remembered of a pull request, and what is due to it.

use meshplan_schemas::ident::CommitId;
use serde::{Deserialize, Serialize};

use super::{Merged, Pull, User};

/// A pull request as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Its number.
    pub number: u64,
    /// Who opened it.
    pub author: User,
    /// The commit that it would merge.
    pub head: CommitId,
    /// Its head when it was last heard of while it was open; none of one that was heard of when it was over.
    #[serde(default)]
    pub open_head: Option<CommitId>,
    /// Where it left the branch, as the forge says.
    #[serde(default)]
    pub fork_point: Option<CommitId>,
    /// The commit of the branch from which reviewers see it, as the forge says.
    #[serde(default)]
    pub base: Option<CommitId>,
    /// The branch that it would be merged into.
    pub into: String,
    /// Whether it is open.
    pub open: bool,
    /// What its merge made of the branch.
    pub merged: Option<Merged>,
    /// The merge that was previewed last; none yet.
    #[serde(default)]
    pub previewed: Option<Previewed>,
    /// The highest id of a comment that was read for orders.
    #[serde(default)]
    pub read_to: u64,
    /// Words of people that count, oldest first.
    #[serde(default)]
    pub words: Vec<Word>,
}

/// A merge that was previewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previewed {
    /// Into this commit.
    pub base: CommitId,
    /// Of this one.
    pub head: CommitId,
}

/// A person's word, and under which id it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// Who, by login.
    pub by: String,
    /// What, as it was written.
    pub word: String,
    /// The request; none where nothing was asked.
    #[serde(default)]
    pub request: Option<String>,
    /// Why nothing was asked.
    #[serde(default)]
    pub refused: Option<String>,
}

impl Kept {
    /// A pull request that was never seen, or what is new of one that was.
    #[must_use]
    pub fn of(pull: Pull, former: Option<Self>) -> Self {
        // A list says less than a pull request of its own: what is known of the same head stays known.
        let same = former.as_ref().filter(|kept| kept.head == pull.head);
        let (fork_point, base) = (
            same.and_then(|kept| kept.fork_point.clone()),
            same.and_then(|kept| kept.base.clone()),
        );
        let (was_open, previewed, read_to, words) = former.map_or((None, None, 0, Vec::new()), |kept| {
            (kept.open_head, kept.previewed, kept.read_to, kept.words)
        });
        let open_head = if pull.open {
            Some(pull.head.clone())
        } else {
            was_open
        };
        Self {
            number: pull.number,
            author: pull.author,
            head: pull.head,
            open_head,
            fork_point: pull.fork_point.or(fork_point),
            base: pull.base.or(base),
            into: pull.into,
            open: pull.open,
            merged: pull.merged,
            previewed,
            read_to,
            words,
        }
    }

    /// The merge that is to be previewed, where it is another than the last: its head has moved, or the branch has.
    #[must_use]
    pub fn preview_due(&self, branch: &str, base: &CommitId) -> Option<Previewed> {
        let wanted = Previewed {
            base: base.clone(),
            head: self.head.clone(),
        };
        (self.open && self.into == branch && self.previewed.as_ref() != Some(&wanted)).then_some(wanted)
    }

    /// Whether a commit of the branch has this head in it by its merge, by whatever way (merged, squashed, rebased,
    /// fast-forward), and the head was heard of before that (DL-2).
    #[must_use]
    pub fn was_heard_before(&self, commit: &CommitId, parents: &[CommitId]) -> bool {
        let merges = |head: &CommitId| head == commit || parents.iter().skip(1).any(|parent| parent == head);
        self.open_head
            .as_ref()
            .is_some_and(|head| merges(head) || *head == self.head && self.made(commit))
    }

    /// Whether its merge made this commit.
    #[must_use]
    pub fn made(&self, commit: &CommitId) -> bool {
        self.merged
            .as_ref()
            .is_some_and(|merged| merged.commit == *commit)
    }
}
