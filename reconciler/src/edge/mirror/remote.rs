//! Talking to the remote, and saying in words what came of it.

use std::path::PathBuf;

use git2::{Direction, ErrorClass, ErrorCode, FetchOptions, Oid, PushOptions, RemoteCallbacks, Repository};
use meshplan_schemas::ident::CommitId;

use super::super::git_transport::{CallError, Credentials, Failure, call, shown};
use super::{HEAD_REF, LOCK_WAIT, MirrorError, NOTES_REF, REMOTE_NOTES_REF, commit_id, is_damage, patiently};
use crate::config::Config;

/// Where the fleet repo lives. The branch is named here and nowhere guessed: a remote's HEAD means nothing to us.
#[derive(Debug, Clone)]
pub struct Remote {
    /// `http://` or `https://`; a path of this machine works too, for looking at a clone.
    pub url: String,
    /// The branch's name without `refs/heads/`.
    pub branch: String,
    /// Who we are.
    pub credentials: Option<Credentials>,
}

impl Remote {
    /// The remote of a configuration, with its credentials read.
    ///
    /// # Errors
    /// [`MirrorError::Credentials`]: the file cannot be read.
    pub fn configured(config: &Config) -> Result<Self, MirrorError> {
        let credentials = match &config.forge.credentials_file {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|source| MirrorError::Credentials {
                    path: path.clone(),
                    source,
                })?;
                Credentials::parse(&text)
            }
        };
        Ok(Self {
            url: config.forge.url.clone(),
            branch: config.branch.clone(),
            credentials,
        })
    }

    /// The address as it may be shown.
    #[must_use]
    pub fn shown(&self) -> String {
        shown(&self.url)
    }

    pub(super) fn branch_ref(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }
}

/// What a fetch brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The branch's tip; none: the branch is not there.
    pub head: Option<CommitId>,
    /// The notes ref; none: not there.
    pub notes: Option<Oid>,
}

/// What a look saw.
pub type Heads = Fetched;

/// Why nothing could be fetched or pushed. The text is for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// No answer, or one that says "later".
    #[error(
        "cannot reach {url}: {why}. What was fetched before stays in force, and the next look comes by itself; check the address `forge.url`, the network, and whether the forge is up"
    )]
    Unreachable {
        /// Where.
        url: String,
        /// What happened.
        why: String,
    },
    /// Something else than a git repository.
    #[error(
        "{url} is no git repository: {why}. Check `forge.url` in the configuration: it is the address that `git clone` takes; on some forges a private repository looks the same to who may not see it, so check `forge.credentials_file` too"
    )]
    NotARepository {
        /// Where.
        url: String,
        /// What answered.
        why: String,
    },
    /// The credentials are missing, wrong, or not enough.
    #[error(
        "{url} refuses us: {why}. Check the user and token in `forge.credentials_file`, and that they may read this repository (and push to it)"
    )]
    Auth {
        /// Where.
        url: String,
        /// What it answered.
        why: String,
    },
    /// Our copy is damaged.
    #[error("our copy of {url} is damaged: {why}. A fresh one is fetched with the next look")]
    Damaged {
        /// Where.
        url: String,
        /// What was seen.
        why: String,
    },
    /// The disk does not let us.
    #[error("the mirror {}: {why}. Check that the disk has room and that the folder is ours to write", path.display())]
    Local {
        /// Where.
        path: PathBuf,
        /// What happened.
        why: String,
    },
    /// Anything else.
    #[error("git at {url}: {why}. If it stays so, try `git ls-remote` with the same address")]
    Other {
        /// Where.
        url: String,
        /// What happened.
        why: String,
    },
}

impl FetchError {
    pub(super) fn of(remote: &Remote, error: CallError) -> Self {
        let url = remote.shown();
        let why = error.to_string();
        match error.failure {
            Some(Failure::Unreachable(_)) => Self::Unreachable { url, why },
            Some(Failure::Refused(_)) => Self::Auth { url, why },
            Some(Failure::NotARepository(_)) => Self::NotARepository { url, why },
            Some(Failure::Protocol(_)) => Self::Other { url, why },
            None => Self::of_git(url, &error.git),
        }
    }

    fn of_git(url: String, error: &git2::Error) -> Self {
        let why = error.message().to_owned();
        match (error.class(), error.code()) {
            (_, ErrorCode::Auth) => Self::Auth { url, why },
            (ErrorClass::Repository, ErrorCode::NotFound) => Self::NotARepository { url, why },
            _ if is_damage(error) => Self::Damaged { url, why },
            _ => Self::Other { url, why },
        }
    }
}

fn heads(list: &[git2::RemoteHead<'_>], names: &[&str]) -> Vec<Option<Oid>> {
    let find = |name: &&str| {
        list.iter()
            .find(|head| head.name() == *name)
            .map(git2::RemoteHead::oid)
    };
    names.iter().map(find).collect()
}

/// Which commits these refs of the remote point at, in the order of the names. Compared as full names, so that a tag or
/// another branch that ends alike is not taken (B05).
pub(super) fn refs(
    repo: &Repository,
    remote: &Remote,
    names: &[&str],
) -> Result<Vec<Option<Oid>>, FetchError> {
    call(remote.credentials.as_ref(), || {
        let mut to = repo.remote_anonymous(&remote.url)?;
        let connection = to.connect_auth(Direction::Fetch, None, None)?;
        Ok(heads(connection.list()?, names))
    })
    .map_err(|e| FetchError::of(remote, e))
}

pub(super) fn look(repo: &Repository, remote: &Remote) -> Result<Heads, FetchError> {
    let found = refs(repo, remote, &[&remote.branch_ref(), NOTES_REF])?;
    Ok(Heads {
        head: found.first().copied().flatten().map(commit_id),
        notes: found.get(1).copied().flatten(),
    })
}

/// Brings refs of the remote here, by full names, each into a ref of ours; gives what the remote has for each. Nothing
/// is asked for that is here already. One connection.
pub(super) fn bring(
    repo: &Repository,
    remote: &Remote,
    pairs: &[(&str, &str)],
) -> Result<Vec<Option<Oid>>, FetchError> {
    let found = call(remote.credentials.as_ref(), || {
        let mut to = repo.remote_anonymous(&remote.url)?;
        let mut connection = to.connect_auth(Direction::Fetch, None, None)?;
        let names: Vec<&str> = pairs.iter().map(|(theirs, _)| *theirs).collect();
        let found = heads(connection.list()?, &names);
        let odb = repo.odb()?;
        let missing: Vec<String> = pairs
            .iter()
            .zip(&found)
            .filter(|(_, id)| id.is_some_and(|id| !odb.exists(id)))
            .map(|((theirs, ours), _)| format!("+{theirs}:{ours}"))
            .collect();
        if !missing.is_empty() {
            let mut options = FetchOptions::new();
            options
                .download_tags(git2::AutotagOption::None)
                .update_fetchhead(false);
            connection.remote().download(&missing, Some(&mut options))?;
        }
        Ok(found)
    })
    .map_err(|e| FetchError::of(remote, e))?;
    let local = |e: git2::Error| FetchError::Local {
        path: repo.path().to_owned(),
        why: e.message().to_owned(),
    };
    for ((theirs, ours), id) in pairs.iter().zip(&found) {
        let Some(id) = id else { continue };
        if repo.refname_to_id(ours).ok() != Some(*id) {
            let note = format!("fetch {theirs}");
            patiently(LOCK_WAIT, || repo.reference(ours, *id, true, &note)).map_err(local)?;
        }
    }
    Ok(found)
}

pub(super) fn fetch(repo: &Repository, remote: &Remote) -> Result<Fetched, FetchError> {
    let branch = remote.branch_ref();
    let found = bring(
        repo,
        remote,
        &[(&branch, HEAD_REF), (NOTES_REF, REMOTE_NOTES_REF)],
    )?;
    let fetched = Fetched {
        head: found.first().copied().flatten().map(commit_id),
        notes: found.get(1).copied().flatten(),
    };
    if fetched.notes.is_none()
        && let Ok(mut gone) = repo.find_reference(REMOTE_NOTES_REF)
    {
        // Somebody deleted the record at the remote: what we have is pushed again.
        tracing::warn!(remote = remote.shown(), "the remote has no {NOTES_REF} any more");
        patiently(LOCK_WAIT, || gone.delete()).map_err(|e| FetchError::Local {
            path: repo.path().to_owned(),
            why: e.message().to_owned(),
        })?;
    }
    Ok(fetched)
}

/// Fetches the notes alone.
pub(crate) fn bring_notes(repo: &Repository, remote: &Remote) -> Result<(), FetchError> {
    bring(repo, remote, &[(NOTES_REF, REMOTE_NOTES_REF)]).map(drop)
}

/// What came of pushing one ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The remote has it.
    Done,
    /// The remote's ref is not where we thought, or the remote has more than we do.
    Moved,
    /// The remote does not want it, and its ref has not moved.
    Refused(String),
    /// Anything of [`FetchError`].
    Failed(FetchError),
}

/// Pushes one commit to one ref, never by force. `known` is where we believe the remote's ref to be: whether a
/// refusal means "moved" is told by looking where it is now, not by the words of the refusal (B10).
pub(crate) fn push_ref(
    repo: &Repository,
    remote: &Remote,
    id: Oid,
    name: &str,
    known: Option<Oid>,
) -> Pushed {
    let mut status: Option<Option<String>> = None;
    let result = call(remote.credentials.as_ref(), || {
        let mut to = repo.remote_anonymous(&remote.url)?;
        let mut callbacks = RemoteCallbacks::new();
        callbacks.push_update_reference(|updated, refusal| {
            if updated == name {
                status = Some(refusal.map(str::to_owned));
            }
            Ok(())
        });
        let mut options = PushOptions::new();
        options.remote_callbacks(callbacks).packbuilder_parallelism(1);
        to.push(&[format!("{id}:{name}")], Some(&mut options))
    });
    let refusal = match (result, status) {
        (Ok(()), Some(None)) => return Pushed::Done,
        (Ok(()), Some(Some(refusal))) => refusal,
        // Nothing was to do: the remote has this very commit. libgit2 then reports on no ref.
        (Ok(()), None) => String::new(),
        (Err(e), _) if e.git.code() == ErrorCode::NotFastForward => return Pushed::Moved,
        (Err(e), _) if e.failure.is_some() => return Pushed::Failed(FetchError::of(remote, e)),
        (Err(e), _) => e.to_string(),
    };
    match refs(repo, remote, &[name]) {
        Err(e) => Pushed::Failed(e),
        Ok(now) => match now.first().copied().flatten() {
            Some(now) if now == id => Pushed::Done,
            now if now != known => Pushed::Moved,
            _ => Pushed::Refused(if refusal.is_empty() {
                "without a word".to_owned()
            } else {
                refusal
            }),
        },
    }
}
