//! Pull requests of a forge, read and never merged: their heads are fetched by the forge's own refs, and what a merge
//! would make is made in memory (DL-8).

use git2::Repository;
use meshplan_schemas::ident::CommitId;

use super::tree::TreeEntry;
use super::{FetchError, HEAD_REF, Mirror, MirrorError, commit_id, remote};
use crate::pure::source_tree::shown_path;

/// The priority of what is in memory: what is written goes to the highest, and the disk's are 1 and 2.
const IN_MEMORY: i32 = 1000;

/// What a merge would make.
#[derive(Debug)]
pub enum MergedTree {
    /// This.
    Tree(Vec<TreeEntry>),
    /// Nothing: both sides change these paths.
    Conflicts(Vec<String>),
}

impl Mirror {
    /// Fetches the fleet branch and the heads of these pull requests, in one connection. Gives the branch's tip, none
    /// where it is gone.
    ///
    /// # Errors
    /// [`FetchError`]; what was fetched before is untouched.
    pub fn fetch_pulls(&mut self, numbers: &[u64]) -> Result<Option<CommitId>, FetchError> {
        if let Some(why) = self.guard().damage() {
            self.replace(&why)?;
        }
        let mut names = vec![(self.remote().branch_ref(), HEAD_REF.to_owned())];
        // The head of each is in the base repository, also of one that comes from a fork: nothing is fetched from there.
        let pull = |number: &u64| {
            (
                format!("refs/pull/{number}/head"),
                format!("refs/meshplan/pull/{number}"),
            )
        };
        names.extend(numbers.iter().map(pull));
        let pairs: Vec<(&str, &str)> = names
            .iter()
            .map(|(theirs, ours)| (theirs.as_str(), ours.as_str()))
            .collect();
        let found = remote::bring(&self.repo, &self.remote, &pairs)?;
        Ok(found.first().copied().flatten().map(commit_id))
    }

    /// Reads what a merge of `head` into `base` would make. Nothing of it is written: another handle on the repository
    /// keeps the merge's objects in memory, and goes with them.
    ///
    /// # Errors
    /// As [`Mirror::read_tree`].
    pub fn read_merge(&mut self, base: &CommitId, head: &CommitId) -> Result<MergedTree, MirrorError> {
        let (ours, theirs) = (self.find(base)?, self.find(head)?);
        let in_memory = Repository::open_bare(self.path()).map_err(|e| self.damaged(&e))?;
        let merged = merge(&in_memory, ours, theirs).map_err(|e| self.damaged(&e))?;
        match merged {
            Err(paths) => Ok(MergedTree::Conflicts(paths)),
            Ok(tree) => Ok(MergedTree::Tree(self.read_tree_of(&in_memory, tree, head)?)),
        }
    }
}

/// The tree of a merge, or the paths that both sides change.
fn merge(
    repo: &Repository,
    ours: git2::Oid,
    theirs: git2::Oid,
) -> Result<Result<git2::Oid, Vec<String>>, git2::Error> {
    repo.odb()?.add_new_mempack_backend(IN_MEMORY)?;
    let (ours, theirs) = (repo.find_commit(ours)?, repo.find_commit(theirs)?);
    let mut index = repo.merge_commits(&ours, &theirs, None)?;
    if !index.has_conflicts() {
        return Ok(Ok(index.write_tree_to(repo)?));
    }
    let mut paths = Vec::new();
    for conflict in index.conflicts()? {
        let conflict = conflict?;
        let entry = conflict.our.or(conflict.their).or(conflict.ancestor);
        paths.extend(entry.map(|entry| shown_path(&entry.path)));
    }
    paths.dedup();
    Ok(Err(paths))
}
