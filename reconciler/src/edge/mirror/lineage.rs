//! What git knows of a branch since a commit: its first-parent line, and whether it still has what it had. Which of
//! these are orders is decided in [`crate::pure::news`].

use std::collections::{BTreeSet, HashSet};

use git2::{Commit, Oid, Repository};
use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;

use super::{Mirror, MirrorError, commit_id};
use crate::pure::news::Known;
use crate::pure::news::trailer;

/// A commit, as far as a delivery shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitInfo {
    /// Its id.
    pub id: CommitId,
    /// Its parents, the first one first.
    pub parents: Vec<CommitId>,
    /// Its message's first line; what is no UTF-8 is replaced.
    pub subject: String,
    /// Its author's name.
    pub author: String,
    /// Its `Allow-Removals:` trailer, without the word; what is no UTF-8 is replaced.
    pub allows_removals: Option<String>,
    /// When its committer says that it was made.
    pub committed_at: Timestamp,
}

/// How a tip came about since one that was known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    /// The tip.
    pub head: CommitInfo,
    /// What is not behind the known commit on the first-parent line that ends at the tip, oldest first; the tip is
    /// the last. Empty when the known commit is the tip, when the branch was set back to an older commit, and when
    /// nothing, or nothing that is still here, was known.
    pub commits: Vec<CommitInfo>,
    /// How the tip stands to the known commit; [`Known::Aside`]: the branch was rewritten (FG-3, B08).
    pub known: Known,
}

impl Mirror {
    /// What is new on the branch between `known` and `head`. A merge whose other parent brought `known` is not a
    /// rewrite: nothing was dropped.
    ///
    /// # Errors
    /// [`MirrorError::NoCommit`] for `head`, [`MirrorError::Damaged`].
    pub fn first_parent_since(
        &self,
        known: Option<&CommitId>,
        head: &CommitId,
    ) -> Result<Lineage, MirrorError> {
        let tip = self.find(head)?;
        let commit = known.map(|k| self.find(k).map_err(|_| Known::Missing));
        let known = commit.unwrap_or(Err(Known::None));
        lineage(&self.repo, known, tip).map_err(|e| self.damaged(&e))
    }
}

impl Mirror {
    /// Those of these commits that are not in the history of `head`, or not here at all.
    ///
    /// # Errors
    /// [`MirrorError::Damaged`], or there is no `head`.
    pub fn not_behind(
        &self,
        commits: &BTreeSet<CommitId>,
        head: &CommitId,
    ) -> Result<BTreeSet<CommitId>, MirrorError> {
        let head = self.find(head)?;
        let mut out = BTreeSet::new();
        for commit in commits {
            let behind = match self.find(commit) {
                Ok(id) => {
                    id == head
                        || self
                            .repo
                            .graph_descendant_of(head, id)
                            .map_err(|e| self.damaged(&e))?
                }
                Err(_) => false,
            };
            if !behind {
                out.insert(commit.clone());
            }
        }
        Ok(out)
    }

    /// The commit that goes by these hexadecimal digits; none where none does, or several do.
    #[must_use]
    pub fn named(&self, digits: &str) -> Option<CommitId> {
        let found = self.repo.find_commit_by_prefix(digits).ok()?;
        Some(commit_id(found.id()))
    }

    /// What git knows of these commits; those that are not here are left out.
    ///
    /// # Errors
    /// [`MirrorError::Damaged`].
    pub fn commits<'c>(
        &self,
        commits: impl IntoIterator<Item = &'c CommitId>,
    ) -> Result<Vec<CommitInfo>, MirrorError> {
        let odb = self.repo.odb().map_err(|e| self.damaged(&e))?;
        let mut out = Vec::new();
        for commit in commits {
            let id = Oid::from_str(commit.as_str()).ok().filter(|id| odb.exists(*id));
            let Some(id) = id else { continue };
            out.push(info(&self.repo.find_commit(id).map_err(|e| self.damaged(&e))?));
        }
        Ok(out)
    }
}

fn lineage(repo: &Repository, known: Result<Oid, Known>, tip: Oid) -> Result<Lineage, git2::Error> {
    let head = info(&repo.find_commit(tip)?);
    let known = match known {
        Ok(known) => known,
        Err(known) => {
            let commits = Vec::new();
            return Ok(Lineage { head, commits, known });
        }
    };
    let behind = known == tip || repo.graph_descendant_of(tip, known)?;
    let mut walk = repo.revwalk()?;
    walk.push(tip)?;
    walk.hide(known)?;
    let new: HashSet<Oid> = walk.collect::<Result<_, _>>()?;
    let mut commits = Vec::new();
    let mut next = Some(tip);
    while let Some(id) = next.filter(|id| new.contains(id)) {
        let commit = repo.find_commit(id)?;
        commits.push(info(&commit));
        next = commit.parent_id(0).ok();
    }
    commits.reverse();
    let known = if behind { Known::Behind } else { Known::Aside };
    Ok(Lineage { head, commits, known })
}

fn info(commit: &Commit<'_>) -> CommitInfo {
    let message = String::from_utf8_lossy(commit.message_bytes());
    CommitInfo {
        id: commit_id(commit.id()),
        parents: commit.parent_ids().map(commit_id).collect(),
        subject: message
            .trim_start()
            .lines()
            .next()
            .unwrap_or_default()
            .trim_end()
            .to_owned(),
        author: String::from_utf8_lossy(commit.author().name_bytes()).into_owned(),
        allows_removals: trailer(&message, "Allow-Removals"),
        // A date that no calendar has is the writer's own; it decides nothing.
        committed_at: Timestamp::from_second(commit.time().seconds()).unwrap_or(Timestamp::UNIX_EPOCH),
    }
}
