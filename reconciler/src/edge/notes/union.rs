//! Taking in what others wrote to the notes ref: a fast-forward, or the union of both sides.

use std::collections::BTreeMap;

use git2::Oid;
use jiff::Timestamp;

use super::super::mirror::{LOCK_WAIT, NOTES_REF, REMOTE_NOTES_REF, patiently};
use super::object::Objects;
use super::{commit, fanout, tip};
use crate::pure::note;

/// Brings our notes ref to hold all that the remote's had when it was last fetched. `absorbed` remembers for which tip
/// that was done. A note that somebody deleted at the remote stays in ours: a record does not shrink.
pub(super) fn absorb(
    objects: Objects<'_>,
    absorbed: &mut Option<Oid>,
    at: Timestamp,
) -> Result<(), git2::Error> {
    let repo = objects.repo;
    let Some(theirs) = tip(repo, REMOTE_NOTES_REF)? else {
        return Ok(());
    };
    if *absorbed == Some(theirs) && repo.find_reference(NOTES_REF).is_ok() {
        return Ok(());
    }
    match tip(repo, NOTES_REF)? {
        None => {
            patiently(LOCK_WAIT, || repo.reference(NOTES_REF, theirs, false, "fetch"))?;
        }
        Some(ours) if ours == theirs || repo.graph_descendant_of(ours, theirs)? => {}
        Some(ours) => union(objects, ours, theirs, at)?,
    }
    *absorbed = Some(theirs);
    Ok(())
}

/// A commit with both as its parents, or theirs itself when we have nothing of our own.
fn union(objects: Objects<'_>, ours: Oid, theirs: Oid, at: Timestamp) -> Result<(), git2::Error> {
    let repo = objects.repo;
    let (our, their) = (repo.find_commit(ours)?, repo.find_commit(theirs)?);
    let (our_tree, their_tree) = (our.tree_id(), their.tree_id());
    let base = repo.merge_base(ours, theirs).ok();
    let base_tree = base
        .map(|id| Ok::<_, git2::Error>(repo.find_commit(id)?.tree_id()))
        .transpose()?;
    let mut edit = BTreeMap::new();
    let mut lost = false;
    for hex in changed(objects, base_tree, their_tree)? {
        let mine = fanout::read(objects, our_tree, &hex)?.unwrap_or_default();
        let Some(his) = fanout::read(objects, their_tree, &hex)? else {
            lost |= !mine.is_empty();
            continue;
        };
        let both = merged(&mine, &his);
        lost |= both != his;
        if both != mine {
            edit.insert(hex, repo.blob(&both)?);
        }
    }
    if base == Some(ours) && !lost {
        let moved = || repo.reference_matching(NOTES_REF, theirs, true, ours, "fetch");
        return patiently(LOCK_WAIT, moved).map(drop);
    }
    let tree = fanout::write(objects, Some(our_tree), &edit)?;
    commit(
        objects,
        tree,
        &[ours, theirs],
        "meshplan: union of both sides",
        at,
    )
    .map(drop)
}

fn merged(mine: &[u8], his: &[u8]) -> Vec<u8> {
    match (std::str::from_utf8(mine), std::str::from_utf8(his)) {
        (Ok(mine), Ok(his)) => note::merge(mine, his).into_bytes(),
        _ if mine == his || his.is_empty() => mine.to_vec(),
        _ if mine.is_empty() => his.to_vec(),
        // Not text: nothing is understood of it, so both stay.
        _ if mine.windows(his.len()).any(|part| part == his) => mine.to_vec(),
        _ if his.windows(mine.len()).any(|part| part == mine) => his.to_vec(),
        _ => [mine, b"\n", his].concat(),
    }
}

/// The commits whose note is not the same blob in both trees. Folders that are equal are not opened.
fn changed(objects: Objects<'_>, old: Option<Oid>, new: Oid) -> Result<Vec<String>, git2::Error> {
    let mut blobs: BTreeMap<String, (Vec<Oid>, Vec<Oid>)> = BTreeMap::new();
    compare(objects, (old, Some(new)), "", &mut blobs)?;
    let differ = blobs.into_iter().filter(|(_, (old, new))| old != new);
    Ok(differ.map(|(hex, _)| hex).collect())
}

/// The old and the new id of what stands at one place.
type Sides = (Option<Oid>, Option<Oid>);

fn compare(
    objects: Objects<'_>,
    sides: Sides,
    prefix: &str,
    out: &mut BTreeMap<String, (Vec<Oid>, Vec<Oid>)>,
) -> Result<(), git2::Error> {
    let mut names: BTreeMap<String, Sides> = BTreeMap::new();
    let mut folders: BTreeMap<String, Sides> = BTreeMap::new();
    for (tree, is_old) in [(sides.0, true), (sides.1, false)] {
        for entry in objects.folder(tree)?.entries() {
            let Ok(name) = std::str::from_utf8(entry.name) else {
                continue;
            };
            if !name.bytes().all(|b| b.is_ascii_hexdigit()) || prefix.len() > 64 {
                continue;
            }
            let place = if entry.is_file() {
                names.entry(name.to_owned()).or_default()
            } else if entry.is_folder() && name.len() == 2 {
                folders.entry(name.to_owned()).or_default()
            } else {
                continue;
            };
            *(if is_old { &mut place.0 } else { &mut place.1 }) = Some(entry.id);
        }
    }
    for (name, (old, new)) in names {
        let note = out.entry(format!("{prefix}{name}")).or_default();
        note.0.extend(old);
        note.1.extend(new);
    }
    for (name, sides) in folders.into_iter().filter(|(_, (old, new))| old != new) {
        compare(objects, sides, &format!("{prefix}{name}"), out)?;
    }
    Ok(())
}
