//! What is remembered of a pull request, and what is due to it.

use meshplan_schemas::ident::CommitId;
use serde::{Deserialize, Serialize};

use super::{Merged, Pull, User};
use crate::pure::parts::Part;

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
    /// Its head is in another repository than the branch: whoever made it may know nothing of ours. So is one that was remembered
    /// before this was.
    #[serde(default = "yes")]
    pub fork: bool,
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

fn yes() -> bool {
    true
}

/// What merges are previewed on. Whatever of it is another makes another preview.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct On {
    /// The branch's commit.
    pub base: CommitId,
    /// The fleet's newest commit up to it that was let through: records are held to that one (FR-5). None where it was not
    /// remembered yet.
    #[serde(default)]
    pub passed: Option<CommitId>,
    /// Components, as the newest delivery has them.
    #[serde(default)]
    pub components: Vec<Part>,
}

/// A merge that was previewed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previewed {
    /// On this.
    #[serde(flatten)]
    pub on: On,
    /// Of this commit.
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
            fork: pull.fork,
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

    /// The merge that is to be previewed, where it is another than the last: its head has moved, or what it is merged into.
    #[must_use]
    pub fn preview_due(&self, branch: &str, on: &On) -> Option<Previewed> {
        let wanted = Previewed {
            on: on.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> CommitId {
        format!("{n:040x}").parse().unwrap()
    }

    fn on(base: u8, passed: u8) -> On {
        On {
            base: id(base),
            passed: Some(id(passed)),
            components: Vec::new(),
        }
    }

    // holds: DL-8
    #[test]
    fn a_merge_is_previewed_again_whenever_what_it_is_held_to_is_another() {
        let pull = Pull {
            number: 7,
            author: User {
                id: 1,
                login: "dana".to_owned(),
            },
            head: id(3),
            fork_point: None,
            base: None,
            into: "main".to_owned(),
            open: true,
            merged: None,
            fork: false,
        };
        let mut kept = Kept::of(pull, None);
        kept.previewed = kept.preview_due("main", &on(1, 1));
        assert!(kept.previewed.is_some());
        assert_eq!(kept.preview_due("main", &on(1, 1)), None);
        assert!(
            kept.preview_due("main", &on(2, 1)).is_some(),
            "the branch has moved"
        );
        assert!(
            kept.preview_due("main", &on(1, 2)).is_some(),
            "its tip was let through"
        );
        let part = Part {
            of: crate::pure::parts::Branch {
                repo: "acme/site".to_owned(),
                branch: "main".to_owned(),
            },
            commit: id(9),
        };
        let with = On {
            components: vec![part],
            ..on(1, 1)
        };
        assert!(kept.preview_due("main", &with).is_some(), "a component has moved");
        assert_eq!(kept.preview_due("other", &on(2, 2)), None);

        // As it was remembered before there was more of it: it is previewed once more, and held to be from elsewhere.
        let mut before: serde_json::Value = serde_json::to_value(&kept).unwrap();
        before["previewed"] = serde_json::json!({ "base": id(1), "head": id(3) });
        before.as_object_mut().unwrap().remove("fork");
        let read: Kept = serde_json::from_value(before).unwrap();
        assert!(read.fork && read.preview_due("main", &on(1, 1)).is_some());
    }
}
