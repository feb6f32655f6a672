//! The journal in git: signed blocks on `refs/notes/mesh-plan` of the mirror, and their way to the remote (DL-9, DL-10).
//!
//! Written by hand in a fan-out of 2/2/36, because libgit2's own notes call copies all of history with every note.
//! Invariants: never by force; what others wrote is kept; a block that is there is not written twice, so that the
//! outbox may repeat itself. A block is safe when [`NotesWriter::push`] has said [`PushOutcome::Pushed`]: until then
//! the outbox keeps it, and a mirror that had to be replaced gets it again.
//!
//! Everything here blocks: call it from `spawn_blocking`.

mod clone;
mod fanout;
mod object;
mod push;
mod union;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use git2::{ErrorCode, ObjectType, Oid, Repository};
use jiff::Timestamp;
use meshplan_schemas::envelope::{SignError, Signer};
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::limits::NOTE_BYTES;

use super::mirror::{Guard, LOCK_WAIT, Mirror, NOTES_REF, Remote, is_damage, patiently, tidy};
use crate::pure::act::UnsignedBlock;
use crate::pure::note;
pub use clone::{authors_in, commit_in, record_in};
use object::{Objects, Recent};
pub use push::PushOutcome;

/// Appends between two packings.
const PACK_EVERY: u32 = 500;

/// A signed block and the commit whose note it goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedText {
    /// The commit.
    pub commit: CommitId,
    /// The block with its `Sig:` line, as [`note::seal`] makes it.
    pub text: String,
}

impl SignedText {
    /// Signs a block of an act (DL-9).
    ///
    /// # Errors
    /// As [`Signer::sign`].
    pub fn seal(block: &UnsignedBlock, signer: &dyn Signer) -> Result<Self, SignError> {
        let signature = signer.sign(&note::signed_bytes(&block.text))?;
        Ok(Self {
            commit: block.commit.clone(),
            text: note::seal(&block.text, &signer.key_id(), &signature),
        })
    }
}

/// What an append did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Appended {
    /// Blocks that were not there before.
    pub written: usize,
    /// Notes that are above the cap now (DL-10): [`note::elide`], sign, [`NotesWriter::replace`].
    pub over: Vec<CommitId>,
}

/// The journal could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NotesError {
    /// Git.
    #[error("the notes in {}: {why}. If the mirror is damaged, the next fetch replaces it", path.display())]
    Git {
        /// The repository.
        path: PathBuf,
        /// What happened.
        why: String,
    },
    /// Another process holds git's lock on the ref, and keeps it.
    #[error("the notes in {}: another git process has held a lock there for {} s: {why}", path.display(), LOCK_WAIT.as_secs())]
    Locked {
        /// The repository.
        path: PathBuf,
        /// Which.
        why: String,
    },
    /// What was to be replaced is not there.
    #[error("the note of {} has changed since it was read: read it again", commit.short())]
    Changed {
        /// Whose note.
        commit: CommitId,
    },
}

/// Writes the journal. One a mirror: it has a handle of its own, so that it works beside a fetch.
pub struct NotesWriter {
    path: PathBuf,
    remote: Remote,
    guard: Arc<Guard>,
    repo: Repository,
    recent: Recent,
    generation: u64,
    since_packed: u32,
    /// The remote's tip that is known to be in ours.
    absorbed: Option<Oid>,
}

impl std::fmt::Debug for NotesWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NotesWriter({})", self.path.display())
    }
}

impl Mirror {
    /// The writer of this mirror's journal.
    ///
    /// # Errors
    /// [`NotesError::Git`].
    pub fn notes(&self) -> Result<NotesWriter, NotesError> {
        let guard = self.guard();
        let generation = *guard.using();
        Ok(NotesWriter {
            path: self.path().to_owned(),
            remote: self.remote().clone(),
            repo: Repository::open_bare(self.path()).map_err(failed(self.path()))?,
            recent: Recent::default(),
            guard,
            generation,
            since_packed: 0,
            absorbed: None,
        })
    }
}

impl NotesWriter {
    /// Appends blocks, all in one commit; none is made when all are there already. What the last fetch brought of
    /// the remote's notes is taken in first.
    ///
    /// # Errors
    /// [`NotesError`]; nothing is written then.
    pub fn append(&mut self, blocks: &[SignedText], at: Timestamp) -> Result<Appended, NotesError> {
        let path = self.path.clone();
        let done = self.locked(|objects, absorbed| {
            union::absorb(objects, absorbed, at)?;
            append(objects, blocks, at)
        });
        let appended = done.map_err(failed(&path))?;
        if appended.written > 0 {
            self.since_packed += 1;
            if self.since_packed >= PACK_EVERY {
                self.since_packed = 0;
                let _in_place = self.guard.using();
                tidy(&self.repo, &self.guard, 0);
            }
        }
        Ok(appended)
    }

    /// Puts a signed elided block in the place of the one that it stands for (DL-10).
    ///
    /// # Errors
    /// [`NotesError::Changed`] when the old one is not there; else as [`NotesWriter::append`].
    pub fn replace(
        &mut self,
        commit: &CommitId,
        elision: &note::Elision,
        signed: &str,
        at: Timestamp,
    ) -> Result<(), NotesError> {
        let path = self.path.clone();
        let replaced = self.locked(|objects, _| {
            let old = read(objects, commit)?.unwrap_or_default();
            let Some(new) = elision.apply(&String::from_utf8_lossy(&old), signed) else {
                return Ok(false);
            };
            let blob = objects.write(ObjectType::Blob, new.as_bytes())?;
            let edit = BTreeMap::from([(commit.to_string(), blob)]);
            let message = format!("meshplan: block {} without its detail", elision.new.number);
            record(objects, Root::read(objects.repo)?, &edit, &message, at)?;
            Ok(true)
        });
        match replaced.map_err(failed(&path))? {
            true => Ok(()),
            false => Err(NotesError::Changed {
                commit: commit.clone(),
            }),
        }
    }

    /// The note of a commit, none when it has none. What is no UTF-8 in it is replaced.
    ///
    /// # Errors
    /// [`NotesError::Git`].
    pub fn read(&mut self, commit: &CommitId) -> Result<Option<String>, NotesError> {
        let path = self.path.clone();
        let found = self
            .locked(|objects, _| read(objects, commit))
            .map_err(failed(&path))?;
        Ok(found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// All notes.
    ///
    /// # Errors
    /// [`NotesError::Git`].
    pub fn read_all(&mut self) -> Result<BTreeMap<CommitId, String>, NotesError> {
        let path = self.path.clone();
        self.locked(|objects, _| all(objects, NOTES_REF))
            .map_err(failed(&path))
    }

    /// Works on the repository while nobody replaces it.
    fn locked<T>(
        &mut self,
        work: impl FnOnce(Objects<'_>, &mut Option<Oid>) -> Result<T, git2::Error>,
    ) -> Result<T, git2::Error> {
        let guard = Arc::clone(&self.guard);
        let generation = guard.using();
        if *generation != self.generation {
            self.repo = Repository::open_bare(&self.path)?;
            self.recent = Recent::default();
            self.generation = *generation;
            self.absorbed = None;
        }
        let objects = Objects {
            repo: &self.repo,
            recent: &self.recent,
        };
        work(objects, &mut self.absorbed).inspect_err(|e| {
            if is_damage(e) {
                guard.report(&format!("the notes: {}", e.message()));
            }
        })
    }
}

fn failed(path: &Path) -> impl FnOnce(git2::Error) -> NotesError {
    let path = path.to_owned();
    move |e| {
        let why = e.message().to_owned();
        match e.code() {
            ErrorCode::Locked => NotesError::Locked { path, why },
            _ => NotesError::Git { path, why },
        }
    }
}

/// The tip of a ref, none when there is no such ref.
fn tip(repo: &Repository, reference: &str) -> Result<Option<Oid>, git2::Error> {
    match repo.refname_to_id(reference) {
        Ok(id) => Ok(Some(id)),
        Err(e) if e.code() == ErrorCode::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Where the notes ref stands: its commit and that commit's tree.
#[derive(Clone, Copy)]
struct Root {
    commit: Oid,
    tree: Oid,
}

impl Root {
    fn read(repo: &Repository) -> Result<Option<Self>, git2::Error> {
        let Some(commit) = tip(repo, NOTES_REF)? else {
            return Ok(None);
        };
        let tree = repo.find_commit(commit)?.tree_id();
        Ok(Some(Self { commit, tree }))
    }
}

fn read(objects: Objects<'_>, commit: &CommitId) -> Result<Option<Vec<u8>>, git2::Error> {
    match Root::read(objects.repo)? {
        Some(root) => fanout::read(objects, root.tree, commit.as_str()),
        None => Ok(None),
    }
}

fn all(objects: Objects<'_>, reference: &str) -> Result<BTreeMap<CommitId, String>, git2::Error> {
    let mut notes = BTreeMap::new();
    let Some(tip) = tip(objects.repo, reference)? else {
        return Ok(notes);
    };
    for (hex, blob) in fanout::list(objects, objects.repo.find_commit(tip)?.tree_id())? {
        if let Ok(commit) = hex.parse::<CommitId>() {
            let text = String::from_utf8_lossy(objects.repo.find_blob(blob)?.content()).into_owned();
            // At two depths at once, as git itself would show it: one after the other.
            let note: &mut String = notes.entry(commit).or_default();
            *note = if note.is_empty() {
                text
            } else {
                format!("{note}\n{text}")
            };
        }
    }
    Ok(notes)
}

fn append(objects: Objects<'_>, blocks: &[SignedText], at: Timestamp) -> Result<Appended, git2::Error> {
    let root = Root::read(objects.repo)?;
    let stored = |commit: &CommitId| match root {
        Some(root) => fanout::read(objects, root.tree, commit.as_str()).map(Option::unwrap_or_default),
        None => Ok(Vec::new()),
    };
    let mut texts: BTreeMap<&CommitId, Vec<u8>> = BTreeMap::new();
    let mut appended = Appended::default();
    for block in blocks {
        let old = match texts.get(&block.commit) {
            Some(text) => text.clone(),
            None => stored(&block.commit)?,
        };
        if let Some(new) = appended_to(&old, &block.text) {
            texts.insert(&block.commit, new);
            appended.written += 1;
        }
    }
    if texts.is_empty() {
        return Ok(appended);
    }
    let mut edit = BTreeMap::new();
    for (commit, text) in &texts {
        if text.len() > NOTE_BYTES {
            appended.over.push((*commit).clone());
        }
        edit.insert(commit.to_string(), objects.write(ObjectType::Blob, text)?);
    }
    let message = match blocks.len() {
        1 => "meshplan: 1 block".to_owned(),
        n => format!("meshplan: {n} blocks"),
    };
    record(objects, root, &edit, &message, at)?;
    Ok(appended)
}

/// A note with a block more; what others wrote is kept byte for byte, also what is no UTF-8.
fn appended_to(old: &[u8], block: &str) -> Option<Vec<u8>> {
    match std::str::from_utf8(old) {
        Ok(text) => note::append(text, block).map(String::into_bytes),
        Err(_) => {
            note::append(&String::from_utf8_lossy(old), block)?;
            let gap: &[u8] = if old.ends_with(b"\n") { b"\n" } else { b"\n\n" };
            Some([old, gap, block.as_bytes()].concat())
        }
    }
}

/// One commit on the notes ref that puts these blobs in their places.
fn record(
    objects: Objects<'_>,
    root: Option<Root>,
    edit: &BTreeMap<String, Oid>,
    message: &str,
    at: Timestamp,
) -> Result<Oid, git2::Error> {
    let tree = fanout::write(objects, root.map(|root| root.tree), edit)?;
    let parents: Vec<Oid> = root.map(|root| root.commit).into_iter().collect();
    commit(objects, tree, &parents, message, at)
}

/// Makes a commit and moves the notes ref to it from the first of its parents, where it must still be. Written by hand:
/// libgit2 would read the tree again that was just written.
fn commit(
    objects: Objects<'_>,
    tree: Oid,
    parents: &[Oid],
    message: &str,
    at: Timestamp,
) -> Result<Oid, git2::Error> {
    let parent_lines: String = parents.iter().map(|id| format!("parent {id}\n")).collect();
    let by = format!("meshplan <nobody@localhost> {} +0000", at.as_second());
    let text = format!("tree {tree}\n{parent_lines}author {by}\ncommitter {by}\n\n{message}");
    let id = objects.write(ObjectType::Commit, text.as_bytes())?;
    patiently(LOCK_WAIT, || match parents.first() {
        Some(old) => objects
            .repo
            .reference_matching(NOTES_REF, id, true, *old, message),
        None => objects.repo.reference(NOTES_REF, id, false, message),
    })?;
    Ok(id)
}
