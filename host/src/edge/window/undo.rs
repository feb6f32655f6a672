//! Walks the way back (HR-14): each act puts one path into the state that the journal names.
//!
//! Every act looks first and does nothing where the state is there, so it may be repeated after any cut.

use meshplan_schemas::ident::ResourceName;

use super::BLOBS;
use crate::edge::disk::{Disk, DiskError, NewFile, Owner, Sort, atomic};
use crate::edge::ledger::blob;
use crate::edge::observe::observe;
use crate::pure::inverse::{Entry, Journal, Place, UndoAct, act_to};
use crate::pure::observed::Observed;

/// What came of one act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// Whose thing it is.
    pub name: Option<ResourceName>,
    /// The path as words.
    pub path: String,
    /// Why it could not be done; none when it is done.
    pub fault: Option<String>,
}

/// Walks the whole way; an act that fails does not stop the next.
#[must_use]
pub fn walk(root: &dyn Disk, state: &dyn Disk, journal: &Journal) -> Vec<Undone> {
    let acts = journal.acts.iter();
    acts.map(|entry| {
        let disk = match entry.place {
            Place::Root => root,
            Place::State => state,
        };
        let done = act(disk, state, entry);
        Undone {
            name: entry.name.clone(),
            path: entry.path.to_string(),
            fault: done.err().map(|e| e.to_string()),
        }
    })
    .collect()
}

/// Whether what stands at a path is what an act leads to.
#[must_use]
pub fn is_as_before(there: &Observed, act: &UndoAct) -> bool {
    match there {
        Observed::Absent => *act == UndoAct::Remove,
        there => there.thing().is_some_and(|thing| act_to(Some(&thing)) == *act),
    }
}

fn act(disk: &dyn Disk, state: &dyn Disk, entry: &Entry) -> Result<(), DiskError> {
    let path = &entry.path;
    atomic::clear_beside(disk, path)?;
    let there = observe(disk, path);
    if is_as_before(&there, &entry.act) {
        return Ok(());
    }
    let is_folder = matches!(disk.stat(path)?, Some(stat) if stat.sort == Sort::Directory);
    let owner = |uid, gid| Owner {
        uid: Some(uid),
        gid: Some(gid),
    };
    match &entry.act {
        UndoAct::Remove if is_folder => atomic::remove_folder(disk, path),
        UndoAct::Remove => atomic::remove_file(disk, path),
        UndoAct::PutFile {
            blob: digest,
            mode,
            uid,
            gid,
        } => {
            let bytes = state.read(&blob(BLOBS, *digest))?;
            if is_folder {
                atomic::remove_folder(disk, path)?;
            }
            let file = NewFile {
                bytes: &bytes,
                mode: *mode,
                owner: owner(*uid, *gid),
            };
            atomic::put_file(disk, path, &file, None)
        }
        UndoAct::PutLink { target, uid, gid } => {
            if is_folder {
                atomic::remove_folder(disk, path)?;
            }
            atomic::put_link(disk, path, target, owner(*uid, *gid))
        }
        UndoAct::PutDirectory { mode, uid, gid } => {
            if !is_folder {
                atomic::remove_file(disk, path)?;
            }
            atomic::put_folder(disk, path, *mode, owner(*uid, *gid))
        }
    }
}
