//! Reading a commit's tree, by object and never by checkout (FR-3).
//!
//! A tree is somebody's input: how many entries, how deep and how large it is, is bounded before it is believed.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use git2::{ObjectType, Odb, Oid, Repository, Tree};
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::limits::DOCUMENT_BYTES;

use super::{Mirror, MirrorError};

/// What of one tree is read at all.
struct Limits {
    /// Files and folders. A few small tree objects can stand for any number of either.
    entries: usize,
    /// Folders in folders.
    depth: usize,
    /// Bytes of all files together that are kept in memory.
    bytes: u64,
    /// Bytes of changed files up to which a tree is worth comparing with another.
    changed_bytes: u64,
    /// Files up to this size are remembered for the next tree.
    remembered_bytes: usize,
}

const LIMITS: Limits = Limits {
    entries: 500_000,
    depth: 64,
    bytes: 1 << 30,
    changed_bytes: 1 << 24,
    remembered_bytes: 64 * 1024,
};

/// A file, link or submodule of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeEntry {
    /// Its path as git has it: bytes, `/` between folders.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// What is in it.
    pub content: Content,
    /// The id of the blob (of the commit, for a submodule): equal ids, equal content.
    pub id: Oid,
}

/// What an entry is (git's modes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A file.
    Blob {
        /// Mode 100755.
        executable: bool,
    },
    /// A symbolic link; its content is its target.
    Symlink,
    /// A submodule; it has no content here.
    Submodule,
}

/// What is in an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// More than may be (1 MiB, or 1 GiB under `modules/`): it was not loaded.
    TooLarge {
        /// How much.
        bytes: u64,
    },
}

/// The small files of the tree that was read last, so that the next one inflates only what has changed.
#[derive(Default)]
pub(super) struct Blobs(HashMap<Oid, Arc<[u8]>>);

enum Stop {
    Git(git2::Error),
    Bound(String),
    /// Two trees differ in more than the bytes of files.
    Apart,
}

impl From<git2::Error> for Stop {
    fn from(error: git2::Error) -> Self {
        Self::Git(error)
    }
}

impl Mirror {
    /// One file of a commit's tree; none where the commit, or the tree, does not have it.
    ///
    /// # Errors
    /// [`MirrorError::Damaged`].
    pub fn file(&self, commit: &CommitId, path: &str) -> Result<Option<Vec<u8>>, MirrorError> {
        let Ok(commit) = self.find(commit) else {
            return Ok(None);
        };
        let read = || {
            let tree = self.repo.find_commit(commit)?.tree()?;
            match tree.get_path(Path::new(path)) {
                Ok(entry) => Ok(Some(self.repo.find_blob(entry.id())?.content().to_vec())),
                Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        read().map_err(|e: git2::Error| self.damaged(&e))
    }

    /// Everything in a commit's tree, in git's order.
    ///
    /// # Errors
    /// [`MirrorError::NoCommit`]; [`MirrorError::Tree`] for a tree beyond all bounds; [`MirrorError::Damaged`], after
    /// which the next fetch makes a fresh copy.
    pub fn read_tree(&mut self, commit: &CommitId) -> Result<Vec<TreeEntry>, MirrorError> {
        let id = self.find(commit)?;
        let odb = self.repo.odb().map_err(|e| self.damaged(&e))?;
        let mut reader = Reader {
            repo: &self.repo,
            odb,
            known: std::mem::take(&mut self.blobs),
            entries: Vec::new(),
            bytes: 0,
            seen: 0,
        };
        let walked = self
            .repo
            .find_commit(id)
            .and_then(|commit| commit.tree())
            .map_err(Stop::from)
            .and_then(|tree| reader.walk(&tree, &mut Vec::new(), 0));
        let entries = std::mem::take(&mut reader.entries);
        drop(reader);
        match walked {
            Ok(()) => {
                self.blobs = Blobs(entries.iter().filter_map(TreeEntry::remembered).collect());
                Ok(entries)
            }
            Err(stop) => Err(self.stopped(commit, &stop)),
        }
    }

    /// The files that have other bytes in the one commit than in the other, found by comparing the ids of folders; none
    /// where the trees differ in more than that (a path, or what kind it is), or in too much to be worth it.
    ///
    /// # Errors
    /// As [`Mirror::read_tree`].
    pub fn read_changes(
        &mut self,
        from: &CommitId,
        to: &CommitId,
    ) -> Result<Option<Vec<TreeEntry>>, MirrorError> {
        let ids = (self.find(from)?, self.find(to)?);
        let odb = self.repo.odb().map_err(|e| self.damaged(&e))?;
        let mut reader = Reader {
            repo: &self.repo,
            odb,
            known: std::mem::take(&mut self.blobs),
            entries: Vec::new(),
            bytes: 0,
            seen: 0,
        };
        let tree_of = |id| self.repo.find_commit(id).and_then(|commit| commit.tree());
        let walked = (tree_of(ids.0).and_then(|from| Ok((from, tree_of(ids.1)?))))
            .map_err(Stop::from)
            .and_then(|(from, to)| reader.compare(&from, &to, &mut Vec::new(), 0));
        let Reader { entries, known, .. } = reader;
        self.blobs = known;
        match walked {
            Ok(()) => {
                self.blobs
                    .0
                    .extend(entries.iter().filter_map(TreeEntry::remembered));
                Ok(Some(entries))
            }
            Err(Stop::Apart) => Ok(None),
            Err(stop) => Err(self.stopped(to, &stop)),
        }
    }

    /// Everything in a tree of another handle on this repository, where what a merge makes of two commits is in memory.
    pub(super) fn read_tree_of(
        &mut self,
        repo: &Repository,
        tree: Oid,
        commit: &CommitId,
    ) -> Result<Vec<TreeEntry>, MirrorError> {
        let odb = repo.odb().map_err(|e| self.damaged(&e))?;
        let mut reader = Reader {
            repo,
            odb,
            known: std::mem::take(&mut self.blobs),
            entries: Vec::new(),
            bytes: 0,
            seen: 0,
        };
        let walked = repo
            .find_tree(tree)
            .map_err(Stop::from)
            .and_then(|tree| reader.walk(&tree, &mut Vec::new(), 0));
        let Reader { entries, known, .. } = reader;
        self.blobs = known;
        walked
            .map(|()| entries)
            .map_err(|stop| self.stopped(commit, &stop))
    }

    fn stopped(&self, commit: &CommitId, stop: &Stop) -> MirrorError {
        match stop {
            Stop::Git(e) => {
                self.guard
                    .report(&format!("the tree of {commit}: {}", e.message()));
                self.damaged(e)
            }
            Stop::Bound(why) => MirrorError::Tree {
                commit: commit.clone(),
                why: why.clone(),
            },
            Stop::Apart => MirrorError::Tree {
                commit: commit.clone(),
                why: "it is not compared".to_owned(),
            },
        }
    }
}

impl TreeEntry {
    /// Its bytes, when they are few enough to be remembered for the next tree.
    fn remembered(&self) -> Option<(Oid, Arc<[u8]>)> {
        match &self.content {
            Content::Bytes(bytes) if bytes.len() <= LIMITS.remembered_bytes => {
                Some((self.id, Arc::clone(bytes)))
            }
            _ => None,
        }
    }
}

struct Reader<'r> {
    repo: &'r Repository,
    odb: Odb<'r>,
    known: Blobs,
    entries: Vec<TreeEntry>,
    bytes: u64,
    /// Files and folders so far.
    seen: usize,
}

impl Reader<'_> {
    fn walk(&mut self, tree: &Tree<'_>, folder: &mut Vec<u8>, depth: usize) -> Result<(), Stop> {
        if depth > LIMITS.depth {
            return Err(Stop::Bound(format!(
                "folders are nested more than {} deep, below {}",
                LIMITS.depth,
                folder.escape_ascii()
            )));
        }
        for entry in tree {
            if self.is_beyond() {
                return Err(Stop::Bound(format!(
                    "it has more than {} files and folders",
                    LIMITS.entries
                )));
            }
            let length = folder.len();
            folder.extend_from_slice(entry.name_bytes());
            let (id, mode) = (entry.id(), entry.filemode());
            if mode == 0o040_000 {
                folder.push(b'/');
                let below = self.repo.find_tree(id)?;
                self.walk(&below, folder, depth + 1)?;
            } else {
                let (kind, content) = self.leaf(id, mode, folder)?;
                self.entries.push(TreeEntry {
                    path: folder.clone(),
                    kind,
                    content,
                    id,
                });
            }
            folder.truncate(length);
        }
        Ok(())
    }

    /// Counts one more; whether that is more than a tree may have.
    fn is_beyond(&mut self) -> bool {
        self.seen += 1;
        self.seen > LIMITS.entries
    }

    /// Reads the files below that have other bytes; [`Stop::Apart`] where anything else differs.
    fn compare(
        &mut self,
        from: &Tree<'_>,
        to: &Tree<'_>,
        folder: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Stop> {
        if from.id() == to.id() {
            return Ok(());
        }
        if from.len() != to.len() || depth > LIMITS.depth {
            return Err(Stop::Apart);
        }
        for (old, new) in from.iter().zip(to.iter()) {
            if self.is_beyond() || old.name_bytes() != new.name_bytes() || old.filemode() != new.filemode() {
                return Err(Stop::Apart);
            }
            if old.id() == new.id() {
                continue;
            }
            let length = folder.len();
            folder.extend_from_slice(new.name_bytes());
            let mode = new.filemode();
            if mode == 0o040_000 {
                folder.push(b'/');
                let below = (self.repo.find_tree(old.id())?, self.repo.find_tree(new.id())?);
                self.compare(&below.0, &below.1, folder, depth + 1)?;
            } else {
                let (kind, content) = self.leaf(new.id(), mode, folder)?;
                if !matches!((kind, &content), (EntryKind::Blob { .. }, Content::Bytes(_)))
                    || self.bytes > LIMITS.changed_bytes
                {
                    return Err(Stop::Apart);
                }
                self.entries.push(TreeEntry {
                    path: folder.clone(),
                    kind,
                    content,
                    id: new.id(),
                });
            }
            folder.truncate(length);
        }
        Ok(())
    }

    fn leaf(&mut self, id: Oid, mode: i32, path: &[u8]) -> Result<(EntryKind, Content), Stop> {
        let kind = match mode {
            0o160_000 => return Ok((EntryKind::Submodule, Content::Bytes(Arc::from([])))),
            0o120_000 => EntryKind::Symlink,
            0o100_755 => EntryKind::Blob { executable: true },
            _ => EntryKind::Blob { executable: false },
        };
        if let Some(bytes) = self.known.0.get(&id) {
            self.bytes += bytes.len() as u64;
            return Ok((kind, Content::Bytes(Arc::clone(bytes))));
        }
        let (length, object) = self.odb.read_header(id)?;
        if object != ObjectType::Blob {
            return Err(Stop::Bound(format!("{} is no file", path.escape_ascii())));
        }
        let length = length as u64;
        let limit = if path.starts_with(b"modules/") {
            // How much a module may have, the tree itself says; all together is bounded below.
            LIMITS.bytes
        } else {
            DOCUMENT_BYTES as u64
        };
        if length > limit {
            return Ok((kind, Content::TooLarge { bytes: length }));
        }
        self.bytes += length;
        if self.bytes > LIMITS.bytes {
            return Err(Stop::Bound(format!(
                "it has more than {} MiB of files",
                LIMITS.bytes >> 20
            )));
        }
        let bytes = self.odb.read(id)?;
        Ok((kind, Content::Bytes(Arc::from(bytes.data()))))
    }
}
