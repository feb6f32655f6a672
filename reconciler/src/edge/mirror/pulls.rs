//! Pull requests of a forge, read and never merged: their heads are fetched by the forge's own refs, and what a merge
//! would make is made in memory (DL-8).

use std::collections::BTreeSet;
use std::path::Path;

use git2::Repository;
use meshplan_schemas::ident::CommitId;

use super::tree::TreeEntry;
use super::{FetchError, HEAD_REF, Mirror, MirrorError, commit_id, components, remote};
use crate::pure::parts::{Branch, Parts};
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

/// Components that are read with a tree of the fleet repo.
#[derive(Debug, Clone, Copy)]
pub struct With<'a> {
    /// The folder of objects in which their commits are: another mirror's.
    pub objects: &'a Path,
    /// At which commits they are.
    pub parts: &'a Parts,
    /// Those that the configuration names.
    pub allowed: &'a BTreeSet<Branch>,
}

impl Mirror {
    /// Fetches the fleet branch and the heads of these pull requests, by their numbers and refs, in one connection. Gives
    /// the branch's tip, none where it is gone.
    ///
    /// # Errors
    /// [`FetchError`]; what was fetched before is untouched.
    pub fn fetch_pulls(&mut self, heads: &[(u64, String)]) -> Result<Option<CommitId>, FetchError> {
        if let Some(why) = self.guard().damage() {
            self.replace(&why)?;
        }
        let mut names = vec![(self.remote().branch_ref(), HEAD_REF.to_owned())];
        // The head of each is in the base repository, also of one that comes from a fork: nothing is fetched from there.
        let pull = |(number, head): &(u64, String)| (head.clone(), format!("refs/meshplan/pull/{number}"));
        names.extend(heads.iter().map(pull));
        let pairs: Vec<(&str, &str)> = names
            .iter()
            .map(|(theirs, ours)| (theirs.as_str(), ours.as_str()))
            .collect();
        let found = remote::bring(&self.repo, &self.remote, &pairs)?;
        Ok(found.first().copied().flatten().map(commit_id))
    }

    /// Where a head left the branch that was at `base`; none where the two have nothing in common.
    ///
    /// # Errors
    /// [`MirrorError::NoCommit`], [`MirrorError::Damaged`].
    pub fn fork_point(&self, base: &CommitId, head: &CommitId) -> Result<Option<CommitId>, MirrorError> {
        let (base, head) = (self.find(base)?, self.find(head)?);
        match self.repo.merge_base(base, head) {
            Ok(point) => Ok(Some(commit_id(point))),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
            Err(error) => Err(self.damaged(&error)),
        }
    }

    /// Whether the branch changed between two commits in just what a pull request changes: the same files from and to the
    /// same bytes, under the same gate as when it was made. So what was approved there is what is delivered, however it was
    /// merged; what came in between, or moved under it, was approved by nobody (DL-15).
    ///
    /// # Errors
    /// [`MirrorError::NoCommit`], [`MirrorError::Damaged`].
    pub fn brings_just(
        &self,
        (since, commit): (&CommitId, &CommitId),
        (fork_point, head): (&CommitId, &CommitId),
    ) -> Result<bool, MirrorError> {
        let (since, commit) = (self.find(since)?, self.find(commit)?);
        let (fork_point, head) = (self.find(fork_point)?, self.find(head)?);
        let just = || {
            let gate = changes(&self.repo, fork_point, since)?;
            let same_gate = !gate.iter().any(|(path, ..)| is_gate(path));
            Ok(same_gate && changes(&self.repo, since, commit)? == changes(&self.repo, fork_point, head)?)
        };
        just().map_err(|e: git2::Error| self.damaged(&e))
    }

    /// Reads what a merge of `head` into `base` would make. Nothing of it is written: another handle on the repository
    /// keeps the merge's objects in memory, and goes with them.
    ///
    /// # Errors
    /// As [`Mirror::read_tree`].
    pub fn read_merge(
        &mut self,
        base: &CommitId,
        head: &CommitId,
        with: Option<With<'_>>,
    ) -> Result<MergedTree, MirrorError> {
        let (ours, theirs) = (self.find(base)?, self.find(head)?);
        let in_memory = in_memory(self.path()).map_err(|e| self.damaged(&e))?;
        let merged = merge(&in_memory, ours, theirs).map_err(|e| self.damaged(&e))?;
        match merged {
            Err(paths) => Ok(MergedTree::Conflicts(paths)),
            Ok(tree) => Ok(MergedTree::Tree(self.read_with(&in_memory, tree, head, with)?)),
        }
    }

    /// Reads the tree of a commit of the branch, as [`Mirror::read_merge`] would read one that is merged into it.
    ///
    /// # Errors
    /// As [`Mirror::read_tree`].
    pub fn read_base(
        &mut self,
        base: &CommitId,
        with: Option<With<'_>>,
    ) -> Result<Vec<TreeEntry>, MirrorError> {
        let commit = self.find(base)?;
        let in_memory = in_memory(self.path()).map_err(|e| self.damaged(&e))?;
        let tree = in_memory.find_commit(commit).map(|commit| commit.tree_id());
        let tree = tree.map_err(|e| self.damaged(&e))?;
        self.read_with(&in_memory, tree, base, with)
    }

    fn read_with(
        &mut self,
        in_memory: &Repository,
        tree: git2::Oid,
        commit: &CommitId,
        with: Option<With<'_>>,
    ) -> Result<Vec<TreeEntry>, MirrorError> {
        let together = |with: With<'_>| {
            let objects = with.objects.to_str();
            let objects =
                objects.ok_or_else(|| git2::Error::from_str("the folder of components is no UTF-8"))?;
            in_memory.odb()?.add_disk_alternate(objects)?;
            components::tree_with(in_memory, tree, (with.parts, with.allowed))
        };
        let tree = with.map_or(Ok(tree), together).map_err(|e| self.damaged(&e))?;
        self.read_tree_of(in_memory, tree, commit)
    }
}

/// Another handle on the repository, that writes nothing to it.
fn in_memory(path: &Path) -> Result<Repository, git2::Error> {
    let repo = Repository::open_bare(path)?;
    repo.odb()?.add_new_mempack_backend(IN_MEMORY)?;
    Ok(repo)
}

/// Which files differ between two trees: path, and what stood and stands there.
type Changes = BTreeSet<(Vec<u8>, (git2::Oid, u32), (git2::Oid, u32))>;

fn changes(repo: &Repository, from: git2::Oid, to: git2::Oid) -> Result<Changes, git2::Error> {
    let tree = |id: git2::Oid| repo.find_commit(id)?.tree();
    let diff = repo.diff_tree_to_tree(Some(&tree(from)?), Some(&tree(to)?), None)?;
    let side = |file: &git2::DiffFile<'_>| (file.id(), u32::from(file.mode()));
    let of = |delta: git2::DiffDelta<'_>| {
        let path = delta.new_file().path_bytes().unwrap_or_default().to_vec();
        (path, side(&delta.old_file()), side(&delta.new_file()))
    };
    Ok(diff.deltas().map(of).collect())
}

/// Whether a file is of the gate: who must say what before something begins (DL-3).
fn is_gate(path: &[u8]) -> bool {
    path == b"fleet.toml" || path.starts_with(b"plans/") || path.starts_with(b"checks/")
}

/// The tree of a merge, or the paths that both sides change.
fn merge(
    repo: &Repository,
    ours: git2::Oid,
    theirs: git2::Oid,
) -> Result<Result<git2::Oid, Vec<String>>, git2::Error> {
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
