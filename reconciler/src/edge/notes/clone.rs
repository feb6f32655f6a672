//! Looking into any repository that has the notes: a person's clone, or the mirror while another process works on it.

use std::collections::BTreeMap;
use std::path::Path;

use git2::{Oid, Repository};
use meshplan_schemas::fleet_list::Author;
use meshplan_schemas::ident::{CommitId, KeyId};
use meshplan_schemas::key::SigningKey;
use serde::Deserialize;

use super::super::git_transport;
use super::super::mirror::{HEAD_REF, NOTES_REF, REMOTE_NOTES_REF, commit_id};
use super::object::{Objects, Recent};
use super::{NotesError, all, failed};

fn open(path: &Path) -> Result<Repository, NotesError> {
    git_transport::install()
        .and_then(|()| Repository::open(path))
        .map_err(failed(path))
}

/// All notes of a repository: its own ref, or what a mirror fetched and has not taken in yet.
///
/// # Errors
/// [`NotesError::Git`].
pub fn record_in(path: &Path) -> Result<BTreeMap<CommitId, String>, NotesError> {
    let repo = open(path)?;
    let objects = Objects {
        repo: &repo,
        recent: &Recent::default(),
    };
    let notes = all(objects, NOTES_REF).map_err(failed(path))?;
    if notes.is_empty() {
        return all(objects, REMOTE_NOTES_REF).map_err(failed(path));
    }
    Ok(notes)
}

/// The commit that git calls so, if there is one.
#[must_use]
pub fn commit_in(path: &Path, name: &str) -> Option<CommitId> {
    let object = open(path).ok()?;
    let commit = object.revparse_single(name).ok()?.peel_to_commit().ok()?;
    Some(commit_id(commit.id()))
}

/// The authors of fleet.toml, each that the branch has ever had: who is none any more may have signed old blocks.
///
/// # Errors
/// [`NotesError::Git`]; a fleet.toml that is no TOML has no authors, and is none.
pub fn authors_in(path: &Path) -> Result<Vec<(KeyId, SigningKey)>, NotesError> {
    let repo = open(path)?;
    let tip = repo
        .refname_to_id(HEAD_REF)
        .or_else(|_| repo.refname_to_id("HEAD"));
    match tip {
        Ok(tip) => authors(&repo, tip).map_err(failed(path)),
        Err(_) => Ok(Vec::new()),
    }
}

fn authors(repo: &Repository, tip: Oid) -> Result<Vec<(KeyId, SigningKey)>, git2::Error> {
    #[derive(Deserialize)]
    struct Authors {
        #[serde(default)]
        authors: Vec<Author>,
    }
    let mut keys: Vec<(KeyId, SigningKey)> = Vec::new();
    let mut seen = None;
    let mut next = Some(tip);
    while let Some(id) = next {
        let commit = repo.find_commit(id)?;
        let file = commit.tree()?.get_name("fleet.toml").map(|entry| entry.id());
        if let Some(blob) = file
            .filter(|_| file != seen)
            .and_then(|id| repo.find_blob(id).ok())
        {
            let text = String::from_utf8_lossy(blob.content());
            let found: Result<Authors, _> = toml::from_str(text.trim_start_matches('\u{feff}'));
            for author in found.map(|f| f.authors).unwrap_or_default() {
                let key = (author.id, author.key);
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        seen = file;
        next = commit.parent_id(0).ok();
    }
    Ok(keys)
}
