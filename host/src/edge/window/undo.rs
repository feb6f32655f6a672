//! Walks the way back (HR-14): each act puts one thing into the state that the journal names.
//!
//! Every act looks first and does nothing where the state is there, so it may be repeated after any cut.

use std::collections::BTreeSet;
use std::time::Duration;

use meshplan_schemas::ident::ResourceName;

use super::BLOBS;
use crate::edge::command::How;
use crate::edge::disk::{Disk, DiskError, NewFile, Owner, Sort, atomic};
use crate::edge::ledger::{blob, path_of, put_own};
use crate::edge::observe::observe;
use crate::edge::tree;
use crate::kinds::Reach;
use crate::pure::inverse::{Journal, Place, SILENT, UndoAct, engine_of, path_act};
use crate::pure::observed::Observed;
use crate::pure::target::Target;
use crate::pure::target_path::TargetPath;

/// What came of one act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// Whose thing it is.
    pub name: Option<ResourceName>,
    /// What it is, as words.
    pub target: String,
    /// Why it could not be done; none when it is done.
    pub fault: Option<String>,
}

/// Walks the whole way; an act that fails does not stop the next.
#[must_use]
pub fn walk(reach: Reach<'_>, state: &dyn Disk, journal: &Journal) -> Vec<Undone> {
    let acts = journal.acts.iter().enumerate();
    // What follows an act that failed is done again with it.
    let mut barred: BTreeSet<&Target> = BTreeSet::new();
    // Each act on an engine that does not answer would wait for it, and hold up those behind it.
    let mut silent: BTreeSet<&[String]> = BTreeSet::new();
    acts.map(|(at, entry)| {
        let is_barred = barred.contains(&entry.target);
        let done = match (&entry.act, &entry.target) {
            (
                UndoAct::Run {
                    argv,
                    accepts,
                    timeout_secs,
                },
                _,
            ) => {
                let bound = Duration::from_secs(u64::from(*timeout_secs));
                once(state, (at, is_barred), || {
                    let engine = engine_of(argv);
                    if engine.is_some_and(|engine| silent.contains(engine)) {
                        return Err("the container engine does not answer".to_owned());
                    }
                    let ended = reach.system.run(argv, bound);
                    if ended.how == How::Exited(SILENT) {
                        silent.extend(engine);
                    }
                    ended.fault(argv, accepts).map_or(Ok(()), Err)
                })
            }
            (act, Target::Path(path)) => {
                let disk = match entry.place {
                    Place::Root => reach.root,
                    Place::State => state,
                };
                on_path(disk, state, path, act).map_err(|e| e.to_string())
            }
            (_, target @ Target::Thing(..)) => Err(format!("{target} is no path, and its act is a path's")),
        };
        if done.is_err() {
            barred.insert(&entry.target);
        }
        Undone {
            name: entry.name.clone(),
            target: entry.target.to_string(),
            fault: done.err(),
        }
    })
    .collect()
}

/// Runs a program of the way back, unless an earlier walk of the same journal has: where one act is barred the whole way is
/// walked again, and what runs well by then is not restarted for that.
fn once(
    state: &dyn Disk,
    (at, is_barred): (usize, bool),
    run: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let ran = path_of(&format!("/window/ran-{at}"));
    if state.stat(&ran).map_err(|e| e.to_string())?.is_some() {
        return Ok(());
    }
    run()?;
    if is_barred {
        return Ok(());
    }
    if let Err(error) = put_own(state, &ran, b"") {
        tracing::warn!(%error, "that a program of the way back has run cannot be noted; it may run again");
    }
    Ok(())
}

/// Whether what stands at a path is what an act leads to.
fn is_as_before(there: &Observed, act: &UndoAct) -> bool {
    match there {
        Observed::Absent => *act == UndoAct::Remove,
        there => there.thing().is_some_and(|thing| path_act(Some(&thing)) == *act),
    }
}

fn on_path(disk: &dyn Disk, state: &dyn Disk, path: &TargetPath, act: &UndoAct) -> Result<(), DiskError> {
    match act {
        UndoAct::RemoveTree { made, mark } => return tree::put_away((disk, state), path, (made, mark)),
        UndoAct::PutTree { from, made } => return tree::put_back(disk, path, from, made),
        _ => {}
    }
    atomic::clear_beside(disk, path)?;
    let there = observe(disk, path);
    if is_as_before(&there, act) {
        return Ok(());
    }
    let is_folder = matches!(disk.stat(path)?, Some(stat) if stat.sort == Sort::Directory);
    let owner = |uid, gid| Owner {
        uid: Some(uid),
        gid: Some(gid),
    };
    match act {
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
        // Trees were put above, and a program is not of a path.
        UndoAct::RemoveTree { .. } | UndoAct::PutTree { .. } | UndoAct::Run { .. } => Ok(()),
    }
}
