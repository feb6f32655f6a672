//! Trees of commits, read from the mirror and composed, one after another: of a commit only what differs from the tree
//! that was read last is read (finding by tree ids), and only that is composed again.
//!
//! Invariant: the composer holds the tree of `at`, or nothing is known of it and the next tree is read whole.

use std::sync::Arc;

use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::CommitId;

use super::mirror::{self, Content, Mirror, MirrorError, TreeEntry};
use crate::pure::compose::{Composed, Composer, Expected, TreeError};
use crate::pure::decide::Tree;
use crate::pure::parse::is_ours;
use crate::pure::source_tree::{EntryKind, SourceTree, shown_path};

/// So many bytes of changed files are taken on top of a tree that was read whole, before the next is read whole again:
/// the bounds of a tree hold for its sum.
const CHANGED_BYTES: usize = 64 << 20;

/// Reads and composes trees.
#[derive(Debug)]
pub struct TreeReader {
    composer: Composer,
    at: Option<CommitId>,
    /// Bytes taken since a tree was read whole.
    changed_bytes: usize,
}

/// What was read of a tree.
#[derive(Debug)]
pub enum Entries {
    /// All of it.
    Whole(Vec<TreeEntry>),
    /// The files that have other bytes than in the tree before.
    Changed(Vec<TreeEntry>),
}

impl TreeReader {
    /// A reader that has read nothing.
    #[must_use]
    pub fn new(expected: Expected) -> Self {
        Self {
            composer: Composer::new(expected),
            at: None,
            changed_bytes: 0,
        }
    }

    /// Reads what has to be read of a commit's tree.
    ///
    /// # Errors
    /// As [`Mirror::read_tree`].
    pub fn read(&self, mirror: &mut Mirror, commit: &CommitId) -> Result<Entries, MirrorError> {
        if let Some(at) = &self.at
            && self.changed_bytes <= CHANGED_BYTES
            // What is wrong with the comparison is wrong with the whole too, and said by it.
            && let Ok(Some(changed)) = mirror.read_changes(at, commit)
        {
            return Ok(Entries::Changed(changed));
        }
        mirror.read_tree(commit).map(Entries::Whole)
    }

    /// Composes a commit's tree from what was read of it.
    pub fn compose(&mut self, commit: &CommitId, entries: Entries) -> Tree {
        let composed = match entries {
            Entries::Whole(entries) => self.whole(commit, entries),
            Entries::Changed(entries) => {
                self.at = None;
                let changed: Vec<_> = entries.into_iter().filter_map(changed_file).collect();
                self.changed_bytes += changed.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
                let composed = self.composer.step(changed);
                self.at = Some(commit.clone());
                composed
            }
        };
        Tree::of(composed)
    }

    fn whole(&mut self, commit: &CommitId, entries: Vec<TreeEntry>) -> Result<Arc<Composed>, TreeError> {
        self.at = None;
        self.changed_bytes = 0;
        let (tree, findings) = source_tree(entries);
        // What is wrong with paths is found in a whole tree only.
        let at = findings.is_empty().then(|| commit.clone());
        let composed = self.composer.whole(tree, findings);
        self.at = at;
        composed
    }
}

/// A whole tree as the composer takes it, with what is wrong with its paths.
pub(super) fn source_tree(entries: Vec<TreeEntry>) -> (SourceTree, Vec<Finding>) {
    let mut findings = Vec::new();
    let entries = entries.into_iter().map(|e| entry(e, &mut findings)).collect();
    let (tree, of_paths) = SourceTree::from_entries(entries);
    findings.extend(of_paths);
    (tree, findings)
}

/// A changed file as the composer takes it; its path is UTF-8, because the tree that it changes has no other.
fn changed_file(entry: TreeEntry) -> Option<(String, Arc<[u8]>)> {
    let path = String::from_utf8(entry.path).ok()?;
    match entry.content {
        Content::Bytes(bytes) => Some((path, bytes)),
        Content::TooLarge { .. } => None,
    }
}

/// A mirror's entry as the pure tree takes it. What is too large was not loaded; it is said where it is the fleet's, and
/// stands as nothing.
fn entry(entry: TreeEntry, findings: &mut Vec<Finding>) -> (Vec<u8>, EntryKind, Arc<[u8]>) {
    let kind = match entry.kind {
        mirror::EntryKind::Blob { executable: true } => EntryKind::Program,
        mirror::EntryKind::Blob { executable: false } => EntryKind::Blob,
        mirror::EntryKind::Symlink => EntryKind::Symlink,
        mirror::EntryKind::Submodule => EntryKind::Submodule,
    };
    let bytes = match entry.content {
        Content::Bytes(bytes) => bytes,
        Content::TooLarge { bytes } => {
            if std::str::from_utf8(&entry.path).is_ok_and(is_ours) {
                let message = format!("this file has {bytes} bytes, more than is read of one");
                findings.push(Finding::of_file(&shown_path(&entry.path), message));
            }
            Arc::from([])
        }
    };
    (entry.path, kind, bytes)
}
