//! Reads a folder, a commit of a repository on this machine, or what a merge of two would make, as a tree: for the
//! commands that work beside a clone.
//!
//! The folder is read as git would store it: links are entries and never followed, what `.gitignore` hides is read
//! too, `.git` is not.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::{ObjectType, Repository};
use meshplan_schemas::finding::Finding;

use crate::pure::source_tree::{EntryKind, SourceTree, shown_path};

/// Why a folder or a commit cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// A file or folder cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The repository or the commit in it cannot be read.
    #[error("cannot read the commit {commit} of the repository at {path}")]
    Commit {
        /// Where.
        path: PathBuf,
        /// Which.
        commit: String,
        /// Why.
        source: git2::Error,
    },
}

/// The folders whose files are the fleet's.
const FLEET_FOLDERS: [&str; 6] = ["nodes", "policy", "modules", "plans", "checks", "secrets"];

type RawEntry = (Vec<u8>, EntryKind, Arc<[u8]>);

/// Reads a folder.
///
/// # Errors
/// [`WorktreeError::Read`].
pub fn read_folder(folder: &Path) -> Result<(SourceTree, Vec<Finding>), WorktreeError> {
    let mut entries = Vec::new();
    let mut open = vec![(folder.to_owned(), Vec::new())];
    while let Some((path, inside)) = open.pop() {
        let cannot = |path: &Path| {
            let path = path.to_owned();
            move |source| WorktreeError::Read { path, source }
        };
        for entry in fs::read_dir(&path).map_err(cannot(&path))? {
            let entry = entry.map_err(cannot(&path))?;
            let name = entry.file_name();
            if inside.is_empty() && name == ".git" {
                continue;
            }
            let mut raw: Vec<u8> = inside.clone();
            raw.extend_from_slice(name.as_bytes());
            let path = entry.path();
            let kind = entry.file_type().map_err(cannot(&path))?;
            if kind.is_symlink() {
                let target = fs::read_link(&path).map_err(cannot(&path))?;
                entries.push((raw, EntryKind::Symlink, Arc::from(target.as_os_str().as_bytes())));
            } else if kind.is_dir() && path.join(".git").exists() {
                entries.push((raw, EntryKind::Submodule, Arc::from(&b""[..])));
            } else if kind.is_dir() {
                raw.push(b'/');
                open.push((path, raw));
            } else if kind.is_file() {
                let bytes = fs::read(&path).map_err(cannot(&path))?;
                let mode = entry.metadata().map_err(cannot(&path))?.permissions().mode();
                // As git tells them apart: by the owner's bit.
                let kind = match mode & 0o100 {
                    0 => EntryKind::Blob,
                    _ => EntryKind::Program,
                };
                entries.push((raw, kind, Arc::from(bytes)));
            }
            // Sockets, pipes and devices are nothing that git could store.
        }
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(SourceTree::from_entries(entries))
}

/// Reads a commit of a repository on this machine.
///
/// # Errors
/// [`WorktreeError::Commit`].
pub fn read_commit(repository: &Path, commit: &str) -> Result<(SourceTree, Vec<Finding>), WorktreeError> {
    let entries = commit_entries(repository, commit).map_err(|source| WorktreeError::Commit {
        path: repository.to_owned(),
        commit: commit.to_owned(),
        source,
    })?;
    Ok(SourceTree::from_entries(entries))
}

/// Those of these paths of a folder that git would not store, because a `.gitignore` hides them and no commit has
/// them. None where the folder is in no repository.
#[must_use]
pub fn ignored(folder: &Path, paths: &[&str]) -> BTreeSet<String> {
    let Ok(repository) = Repository::discover(folder) else {
        return BTreeSet::new();
    };
    let (Some(root), Ok(folder)) = (repository.workdir(), folder.canonicalize()) else {
        return BTreeSet::new();
    };
    let (Ok(root), Ok(index)) = (root.canonicalize(), repository.index()) else {
        return BTreeSet::new();
    };
    let Ok(inside) = folder.strip_prefix(&root) else {
        return BTreeSet::new();
    };
    let ours = |path: &&&str| {
        let first = path.split('/').next().unwrap_or_default();
        path.ends_with("fleet.toml") || FLEET_FOLDERS.contains(&first)
    };
    let hidden = |path: &str| {
        let path = inside.join(path);
        index.get_path(&path, 0).is_none() && repository.is_path_ignored(&path).unwrap_or(false)
    };
    paths
        .iter()
        .filter(ours)
        .filter(|path| hidden(path))
        .map(|path| (*path).to_owned())
        .collect()
}

/// What a merge makes.
#[derive(Debug)]
pub enum Merged {
    /// A tree, with what its paths gave.
    Tree(SourceTree, Vec<Finding>),
    /// Nothing: these paths are changed on both sides.
    Conflicts(Vec<String>),
}

/// Reads what a merge of `head` into `base` would make. Nothing is written: the objects of the merge stay in memory.
///
/// # Errors
/// [`WorktreeError::Commit`].
pub fn read_merge(repository: &Path, base: &str, head: &str) -> Result<Merged, WorktreeError> {
    merged(repository, base, head).map_err(|source| WorktreeError::Commit {
        path: repository.to_owned(),
        commit: format!("{head}, merged into {base},"),
        source,
    })
}

fn merged(repository: &Path, base: &str, head: &str) -> Result<Merged, git2::Error> {
    let repository = Repository::discover(repository)?;
    let commit = |name: &str| repository.revparse_single(name)?.peel_to_commit();
    let (base, head) = (commit(base)?, commit(head)?);
    // The blobs that a merge makes go to the backend of the highest priority.
    let odb = repository.odb()?;
    let _in_memory = odb.add_new_mempack_backend(1000)?;
    let mut index = repository.merge_commits(&base, &head, None)?;
    if index.has_conflicts() {
        let mut paths = Vec::new();
        for conflict in index.conflicts()? {
            let conflict = conflict?;
            let entry = conflict.our.or(conflict.their).or(conflict.ancestor);
            paths.extend(entry.map(|entry| shown_path(&entry.path)));
        }
        return Ok(Merged::Conflicts(paths));
    }
    let tree = repository.find_tree(index.write_tree_to(&repository)?)?;
    let (tree, findings) = SourceTree::from_entries(tree_entries(&repository, &tree)?);
    Ok(Merged::Tree(tree, findings))
}

fn commit_entries(repository: &Path, commit: &str) -> Result<Vec<RawEntry>, git2::Error> {
    let repository = Repository::discover(repository)?;
    let tree = repository.revparse_single(commit)?.peel_to_tree()?;
    tree_entries(&repository, &tree)
}

/// Every entry below a tree, sorted by path. Walked by hand: libgit2's own walk stops at a folder whose name is no text.
fn tree_entries(repository: &Repository, tree: &git2::Tree<'_>) -> Result<Vec<RawEntry>, git2::Error> {
    let mut entries = Vec::new();
    let mut open = vec![(Vec::new(), tree.id())];
    while let Some((folder, id)) = open.pop() {
        for entry in &repository.find_tree(id)? {
            let mut path: Vec<u8> = folder.clone();
            path.extend_from_slice(entry.name_bytes());
            let blob = || {
                repository
                    .find_blob(entry.id())
                    .map(|blob| Arc::from(blob.content()))
            };
            match (entry.kind(), entry.filemode()) {
                (Some(ObjectType::Tree), _) => {
                    path.push(b'/');
                    open.push((path, entry.id()));
                }
                (Some(ObjectType::Commit), _) => {
                    entries.push((path, EntryKind::Submodule, Arc::from(&b""[..])));
                }
                (_, 0o120_000) => entries.push((path, EntryKind::Symlink, blob()?)),
                (_, 0o100_755) => entries.push((path, EntryKind::Program, blob()?)),
                _ => entries.push((path, EntryKind::Blob, blob()?)),
            }
        }
    }
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(entries)
}
