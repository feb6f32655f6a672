//! The commit-confirm window on disk (HR-13): `window/` in the state folder, opened before the first change and
//! closed by one verdict.
//!
//! Stands alone because it is what a start after a crash reads first. The folder is made whole beside
//! (`window.new`) and renamed in place, and renamed away (`window.done`) before it is emptied, so that while
//! `window/` exists, what it takes to go back stands in it, whole and synced:
//!
//! | file | what | made |
//! | --- | --- | --- |
//! | `blobs/<digest>` | the bytes of what was there before | before the window opens |
//! | `journal.json` | the way back, in a frozen vocabulary | before the window opens |
//! | `window.json` | what it is about, deadlines, boot id | before it opens; once more when armed |
//! | `forward.json` | what does not go back | after it opened, before the first change |
//! | `ledger.json` | the ledger as it will be | when the last act is done |
//! | `verdict.json` | confirmed or reverted; only the first can make it | at the end |

pub mod undo;

use std::collections::BTreeMap;

use meshplan_schemas::digest::Digest;
use serde::de::DeserializeOwned;

use super::disk::{Disk, DiskError, NewFile, Owner, atomic};
use super::ledger::{blob, json, path_of, put_own};
use crate::pure::commit_confirm::{FoundVerdict, Standing, TakenBack, Verdict, WINDOW_VERSION};
pub use crate::pure::commit_confirm::{Order, Window, WindowState};
use crate::pure::forward::Forward;
use crate::pure::inverse::{JOURNAL_VERSION, Journal};

/// What was taken back last.
const TAKEN_BACK: &str = "/taken-back.json";
/// Where blobs of the open window are.
pub(crate) const BLOBS: &str = "/window/blobs";

/// Opens a window: after this the way back stands on the disk.
///
/// # Errors
/// The disk; then no window is open, unless `window/` stands: it was opened, and may be lost in a power cut.
pub fn open(
    state: &dyn Disk,
    window: &Window,
    journal: &Journal,
    blobs: &BTreeMap<Digest, Vec<u8>>,
) -> Result<(), DiskError> {
    clear_beside(state)?;
    let made = (|| {
        let beside = path_of("/window.new");
        state.mkdir(&beside)?;
        state.mkdir(&path_of("/window.new/blobs"))?;
        let put = |path: &crate::pure::target_path::TargetPath, bytes: &[u8]| {
            state.create(
                path,
                &NewFile {
                    bytes,
                    mode: 0o600,
                    owner: Owner::default(),
                },
            )
        };
        for (digest, bytes) in blobs {
            put(&blob("/window.new/blobs", *digest), bytes)?;
        }
        state.sync_parent(&path_of("/window.new/blobs/x"))?;
        put(&path_of("/window.new/journal.json"), &json(journal))?;
        put(&path_of("/window.new/window.json"), &json(window))?;
        state.sync_parent(&path_of("/window.new/x"))?;
        state.rename_new(&beside, &path_of("/window"))?;
        state.sync_parent(&path_of("/window"))
    })();
    if made.is_err() {
        // Room for others: what is half made is nothing.
        let _cleared = clear_beside(state);
    }
    made
}

/// Removes what a cut left of a window that was not open yet, or not any more.
///
/// # Errors
/// The disk.
pub fn clear_beside(state: &dyn Disk) -> Result<(), DiskError> {
    atomic::remove_tree(state, &path_of("/window.new"))?;
    atomic::remove_tree(state, &path_of("/window.done"))
}

/// What stands on the disk; none when no window does.
///
/// # Errors
/// The disk could not tell.
pub fn standing(state: &dyn Disk) -> Result<Option<Standing>, DiskError> {
    if state.stat(&path_of("/window"))?.is_none() {
        return Ok(None);
    }
    let window: Option<Window> = read(state, "/window/window.json")?.flatten();
    let verdict = match read::<Verdict>(state, "/window/verdict.json")? {
        None => FoundVerdict::None,
        Some(None) => FoundVerdict::Unreadable,
        Some(Some(verdict)) => FoundVerdict::Given(verdict),
    };
    Ok(Some(Standing {
        window: window.filter(|w| w.version == WINDOW_VERSION),
        verdict,
    }))
}

/// The way back; none when it cannot be read.
///
/// # Errors
/// The disk could not tell.
pub fn journal(state: &dyn Disk) -> Result<Option<Journal>, DiskError> {
    let journal: Option<Journal> = read(state, "/window/journal.json")?.flatten();
    Ok(journal.filter(|journal| journal.version == JOURNAL_VERSION))
}

/// Not there, there and unreadable, there.
fn read<T: DeserializeOwned>(state: &dyn Disk, path: &str) -> Result<Option<Option<T>>, DiskError> {
    let path = path_of(path);
    if state.stat(&path)?.is_none() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&state.read(&path)?).ok()))
}

/// Writes the window's file anew.
///
/// # Errors
/// The disk; then the former one stands.
pub fn update(state: &dyn Disk, window: &Window) -> Result<(), DiskError> {
    put_own(state, &path_of("/window/window.json"), &json(window))
}

/// Keeps the ledger as it will be once confirmed.
///
/// # Errors
/// The disk.
pub fn keep_ledger(state: &dyn Disk, bytes: &[u8]) -> Result<(), DiskError> {
    put_own(state, &path_of("/window/ledger.json"), bytes)
}

/// Keeps what does not go back, before anything is changed.
///
/// # Errors
/// The disk.
pub fn keep_forward(state: &dyn Disk, forward: &Forward) -> Result<(), DiskError> {
    if forward.is_empty() {
        return Ok(());
    }
    put_own(state, &path_of("/window/forward.json"), &json(forward))
}

/// What does not go back; none where all does.
///
/// # Errors
/// The disk could not tell.
pub fn kept_forward(state: &dyn Disk) -> Result<Option<Forward>, DiskError> {
    let kept = read(state, "/window/forward.json")?;
    if kept == Some(None) {
        tracing::error!("what goes only forward in this window cannot be read; it stays and counts as drift");
    }
    Ok(kept.flatten())
}

/// The ledger as it will be; none when the window does not change it.
///
/// # Errors
/// The disk could not tell.
pub fn kept_ledger(state: &dyn Disk) -> Result<Option<Vec<u8>>, DiskError> {
    let path = path_of("/window/ledger.json");
    match state.stat(&path)? {
        None => Ok(None),
        Some(_) => state.read(&path).map(Some),
    }
}

/// Gives the verdict: who makes the file has decided.
///
/// # Errors
/// The disk; [`DiskError::is_exists`] when it was given already.
pub fn decide(state: &dyn Disk, verdict: &Verdict) -> Result<(), DiskError> {
    atomic::put_first(state, &path_of("/window/verdict.json"), &json(verdict))
}

/// Notes beside the window what it was about and why it went back; nothing when its files cannot be read.
///
/// # Errors
/// The disk.
pub fn note_taken_back(state: &dyn Disk) -> Result<(), DiskError> {
    let Some(Standing {
        window: Some(window),
        verdict: FoundVerdict::Given(verdict),
    }) = standing(state)?
    else {
        return Ok(());
    };
    let note = TakenBack {
        version: WINDOW_VERSION,
        order: window.order,
        reason: verdict.reason(),
    };
    put_own(state, &path_of(TAKEN_BACK), &json(&note))
}

/// The last window that went back; none when it cannot be read.
///
/// # Errors
/// The disk could not tell.
pub fn taken_back(state: &dyn Disk) -> Result<Option<TakenBack>, DiskError> {
    let note: Option<TakenBack> = read(state, TAKEN_BACK)?.flatten();
    Ok(note.filter(|note| note.version == WINDOW_VERSION))
}

/// Closes the window: after this there is none.
///
/// # Errors
/// The disk.
pub fn close(state: &dyn Disk) -> Result<(), DiskError> {
    // A close that failed half way is done again: the window may be away already.
    if state.stat(&path_of("/window"))?.is_some() {
        atomic::remove_tree(state, &path_of("/window.done"))?;
        state.rename_new(&path_of("/window"), &path_of("/window.done"))?;
    }
    state.sync_parent(&path_of("/window"))?;
    atomic::remove_tree(state, &path_of("/window.done"))
}

/// Sets a window aside that cannot be walked back, for a person to look at; the one set aside before goes.
///
/// # Errors
/// The disk.
pub fn set_aside(state: &dyn Disk) -> Result<(), DiskError> {
    atomic::remove_tree(state, &path_of("/window.broken"))?;
    state.rename_new(&path_of("/window"), &path_of("/window.broken"))?;
    state.sync_parent(&path_of("/window"))
}
