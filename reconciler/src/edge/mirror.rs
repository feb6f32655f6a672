//! The mirror: our own bare copy of the fleet repo, from which everything is read and through which notes go out.
//!
//! One process has it at a time: an OS lock says so, and so every git lock file found at the start is a dead one's.
//! What a crash or a bad disk can do to it ends in a fresh clone beside it. Invariants: only full ref names are
//! fetched, into `refs/meshplan/`; nothing is checked out; nothing is deleted but what a fresh copy replaces.
//!
//! Everything here blocks: call it from `spawn_blocking`.

mod components;
mod guard;
mod health;
mod lineage;
mod pack;
mod propose;
mod pulls;
mod remote;
mod signatures;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use git2::{Oid, Repository};
use meshplan_schemas::ident::CommitId;

use super::git_transport;
pub use components::{Beside, Joined};
pub use guard::BusyError;
pub(crate) use guard::{Guard, is_damage, patiently};
pub use lineage::{CommitInfo, Lineage};
pub(crate) use pack::tidy;
pub use propose::{MergeError, Person, Proposal, Reversal};
pub use pulls::{MergedTree, With};
pub use remote::{FetchError, Fetched, Heads, Remote};
pub(crate) use remote::{Pushed, bring_notes, push_ref};
pub use tree::{Content, EntryKind, TreeEntry};

/// The tip of the fleet branch as it was last fetched.
pub const HEAD_REF: &str = "refs/meshplan/remote/head";
/// The notes ref of the remote as it was last fetched or pushed.
pub const REMOTE_NOTES_REF: &str = "refs/meshplan/remote/notes";
/// The journal (DL-9), as we write it and as the remote calls it.
pub const NOTES_REF: &str = "refs/notes/mesh-plan";

/// How long a live stranger may hold a lock before we say so.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(10);

/// From this many packs on, a fetch puts the small ones together.
const MANY_PACKS: usize = 40;

/// The mirror is there and cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// Another process has it.
    #[error(transparent)]
    Busy(#[from] BusyError),
    /// The folder cannot be made, read or replaced.
    #[error("the mirror {}: {doing}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The credentials cannot be read.
    #[error("cannot read `forge.credentials_file` {}: {source}", path.display())]
    Credentials {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The commit is not in the mirror.
    #[error("commit {} is not in the mirror {}: fetch first, or the branch no longer has it", commit.short(), path.display())]
    NoCommit {
        /// Which.
        commit: CommitId,
        /// Where.
        path: PathBuf,
    },
    /// The tree is no fleet repo that anybody would write.
    #[error("the tree of commit {}: {why}", commit.short())]
    Tree {
        /// Which.
        commit: CommitId,
        /// What is wrong with it.
        why: String,
    },
    /// Objects are missing or damaged; the next fetch makes a fresh copy.
    #[error("the mirror {} is damaged ({why}); the next fetch replaces it by a fresh copy", path.display())]
    Damaged {
        /// Where.
        path: PathBuf,
        /// What was seen.
        why: String,
    },
}

/// The mirror. Not shared between threads: whoever needs it side by side wraps it in a mutex.
pub struct Mirror {
    path: PathBuf,
    remote: Remote,
    repo: Repository,
    guard: Arc<Guard>,
    blobs: tree::Blobs,
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mirror({} of {})", self.path.display(), self.remote.shown())
    }
}

impl Mirror {
    /// Opens the mirror at `path`, or makes an empty one. Talks to nobody.
    ///
    /// Takes the OS lock (`<path>.guard`), waiting ten seconds for another process that has it; removes git's lock
    /// files and half-written packs that a killed process left. A damaged mirror opens too: the next fetch replaces
    /// it.
    ///
    /// # Errors
    /// [`MirrorError::Busy`], [`MirrorError::Io`].
    pub fn open(path: &Path, remote: Remote) -> Result<Self, MirrorError> {
        Self::open_within(path, remote, LOCK_WAIT)
    }

    /// As [`Mirror::open`], waiting `wait` for another process.
    ///
    /// # Errors
    /// As [`Mirror::open`].
    pub fn open_within(path: &Path, remote: Remote, wait: Duration) -> Result<Self, MirrorError> {
        let io = |doing| {
            move |source| MirrorError::Io {
                path: path.to_owned(),
                doing,
                source,
            }
        };
        git_transport::install().map_err(|e| io("set up git")(std::io::Error::other(e)))?;
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(io("make its folder"))?;
        }
        let guard = Guard::take(path, wait)?;
        health::remove_folder(&health::beside(path, "fresh")).map_err(io("remove a half-made copy"))?;
        if path.exists() {
            health::sweep(path).map_err(io("remove a dead process's lock files"))?;
        }
        let opened = if path.exists() {
            Repository::open_bare(path).ok()
        } else {
            None
        };
        let repo = match opened {
            Some(repo) => repo,
            None => {
                if path.exists() {
                    tracing::warn!(mirror = %path.display(), "the mirror is no repository any more: starting a new one beside it");
                    health::set_aside(path).map_err(io("set the broken one aside"))?;
                }
                init(path, &remote.branch).map_err(|e| io("make it")(std::io::Error::other(e)))?
            }
        };
        if let Some(why) = health::damage(&repo) {
            tracing::warn!(mirror = %path.display(), why, "the mirror is damaged: the next fetch replaces it");
            guard.report(&why);
        }
        Ok(Self {
            path: path.to_owned(),
            remote,
            repo,
            guard: Arc::new(guard),
            blobs: tree::Blobs::default(),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn guard(&self) -> Arc<Guard> {
        Arc::clone(&self.guard)
    }

    pub(crate) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Fetches branch and notes. A branch that is not there is `head: None`, never an error and never "empty": the
    /// fleet freezes. A damaged mirror is replaced by a fresh copy here.
    ///
    /// # Errors
    /// [`FetchError`]; what was fetched before is untouched.
    pub fn fetch(&mut self) -> Result<Fetched, FetchError> {
        if let Some(why) = self.guard.damage() {
            return self.replace(&why);
        }
        match remote::fetch(&self.repo, &self.remote) {
            Err(FetchError::Damaged { why, .. }) => self.replace(&why),
            Ok(fetched) => {
                tidy(&self.repo, &self.guard, MANY_PACKS);
                Ok(fetched)
            }
            failed => failed,
        }
    }

    /// Looks which commits branch and notes ref point at, and fetches nothing: a poll.
    ///
    /// # Errors
    /// [`FetchError`].
    pub fn ls_remote(&self) -> Result<Heads, FetchError> {
        remote::look(&self.repo, &self.remote)
    }

    /// Keeps a commit for ever, even when the branch drops it: a ref of our own, `refs/meshplan/keep/<commit>`. The
    /// refs of its ancestors go, since it keeps them too: so there is one ref for each end of history, not one a
    /// delivery, and a fetch stays cheap.
    ///
    /// # Errors
    /// [`MirrorError::NoCommit`], [`MirrorError::Damaged`].
    pub fn keep(&self, commit: &CommitId) -> Result<(), MirrorError> {
        let id = self.find(commit)?;
        let keep = || {
            for old in self.repo.references_glob("refs/meshplan/keep/*")? {
                let mut old = old?;
                match old.target() {
                    Some(kept) if self.repo.graph_descendant_of(kept, id)? || kept == id => return Ok(()),
                    Some(kept) if self.repo.graph_descendant_of(id, kept)? => old.delete()?,
                    _ => {}
                }
            }
            let name = format!("refs/meshplan/keep/{commit}");
            self.repo.reference(&name, id, true, "").map(drop)
        };
        patiently(LOCK_WAIT, keep).map_err(|e| self.damaged(&e))
    }

    /// The id of a commit that must be here.
    fn find(&self, commit: &CommitId) -> Result<Oid, MirrorError> {
        Oid::from_str(commit.as_str())
            .and_then(|id| self.repo.find_commit(id))
            .map(|found| found.id())
            .map_err(|_| MirrorError::NoCommit {
                commit: commit.clone(),
                path: self.path.clone(),
            })
    }

    fn damaged(&self, error: &git2::Error) -> MirrorError {
        MirrorError::Damaged {
            path: self.path.clone(),
            why: error.message().to_owned(),
        }
    }

    /// Puts a fresh copy in this one's place. While the remote cannot be reached, what is left stays in use.
    fn replace(&mut self, why: &str) -> Result<Fetched, FetchError> {
        let local = |doing: &str, e: &dyn std::fmt::Display| FetchError::Local {
            path: self.path.clone(),
            why: format!("{doing}: {e}"),
        };
        tracing::warn!(mirror = %self.path.display(), why, "fetching a fresh copy of the mirror");
        let fresh = health::beside(&self.path, "fresh");
        health::remove_folder(&fresh).map_err(|e| local("remove a half-made copy", &e))?;
        let repo = init(&fresh, &self.remote.branch).map_err(|e| local("make a fresh copy", &e))?;
        let fetched = remote::fetch(&repo, &self.remote)?;
        health::salvage(&repo, &self.path);
        drop(repo);
        let mut generation = self.guard.swapping();
        health::set_aside(&self.path).map_err(|e| local("set the broken one aside", &e))?;
        std::fs::rename(&fresh, &self.path).map_err(|e| local("put the fresh copy in place", &e))?;
        self.repo = Repository::open_bare(&self.path).map_err(|e| local("open the fresh copy", &e))?;
        *generation += 1;
        drop(generation);
        self.guard.repaired();
        tracing::info!(mirror = %self.path.display(), "the mirror is whole again");
        Ok(fetched)
    }
}

/// An empty bare repository in which git's own housekeeping deletes nothing.
fn init(path: &Path, branch: &str) -> Result<Repository, git2::Error> {
    let mut options = git2::RepositoryInitOptions::new();
    options
        .bare(true)
        .external_template(false)
        .initial_head(&format!("refs/heads/{branch}"));
    let repo = Repository::init_opts(path, &options)?;
    let mut config = repo.config()?;
    config.set_i32("gc.auto", 0)?;
    config.set_str("gc.pruneExpire", "never")?;
    config.set_str("core.fsync", "all")?;
    Ok(repo)
}

/// A commit's id as the rest of the program knows it.
pub(crate) fn commit_id(id: Oid) -> CommitId {
    id.to_string()
        .parse()
        .expect("libgit2 writes ids as lower-case hexadecimal digits of full length")
}
