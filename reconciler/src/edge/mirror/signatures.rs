//! What git has of signatures: the commits between two, each with what its signature proves. Whom anybody trusts is judged in
//! [`crate::pure::signatures`].

use git2::{Commit, ErrorCode, Oid, Repository};
use meshplan_schemas::ident::CommitId;

use super::{Mirror, MirrorError, commit_id};
use crate::pure::signatures::{Brought, BroughtCommit, Proof, proof};

/// So many commits of one delivery are looked at.
const MOST: usize = 1000;

impl Mirror {
    /// The commits that are behind `commit` and not behind `base`, oldest first, `commit` the last; all of them where there is
    /// no base.
    ///
    /// # Errors
    /// [`MirrorError::NoCommit`] for `commit`, [`MirrorError::Damaged`].
    pub fn brought(&self, base: Option<&CommitId>, commit: &CommitId) -> Result<Brought, MirrorError> {
        let tip = self.find(commit)?;
        // A base that git has no more hides nothing: everything must be signed then.
        let base = base.and_then(|base| self.find(base).ok());
        brought(&self.repo, base, tip).map_err(|e| self.damaged(&e))
    }
}

fn brought(repo: &Repository, base: Option<Oid>, tip: Oid) -> Result<Brought, git2::Error> {
    let mut walk = repo.revwalk()?;
    walk.push(tip)?;
    if let Some(base) = base {
        walk.hide(base)?;
    }
    walk.set_sorting(git2::Sort::TOPOLOGICAL)?;
    let mut commits = Vec::new();
    let mut more = false;
    for id in walk {
        more = commits.len() == MOST;
        if more {
            break;
        }
        commits.push(one(repo, &repo.find_commit(id?)?)?);
    }
    if commits.is_empty() {
        // The branch was set back: its tip is all that it brings.
        commits.push(one(repo, &repo.find_commit(tip)?)?);
    }
    commits.reverse();
    Ok(Brought { commits, more })
}

fn one(repo: &Repository, commit: &Commit<'_>) -> Result<BroughtCommit, git2::Error> {
    let proof = match repo.extract_signature(&commit.id(), None) {
        Ok((signature, payload)) => proof(&signature, &payload),
        Err(error) if error.code() == ErrorCode::NotFound => Proof::Unsigned,
        Err(error) => return Err(error),
    };
    Ok(BroughtCommit {
        id: commit_id(commit.id()),
        at: commit.time().seconds(),
        clean_merge: proof == Proof::Unsigned && is_clean_merge(repo, commit)?,
        proof,
    })
}

/// Whether a merge has just what git makes of its two parents.
fn is_clean_merge(repo: &Repository, commit: &Commit<'_>) -> Result<bool, git2::Error> {
    if commit.parent_count() != 2 {
        return Ok(false);
    }
    let mut index = repo.merge_commits(&commit.parent(0)?, &commit.parent(1)?, None)?;
    Ok(!index.has_conflicts() && index.write_tree_to(repo)? == commit.tree_id())
}
