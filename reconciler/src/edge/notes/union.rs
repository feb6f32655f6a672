//! Taking in what others wrote to the notes ref: a fast-forward, or the union of both sides.

use std::collections::BTreeMap;

use git2::{ObjectType, Oid, Repository, Tree};
use jiff::Timestamp;

use super::super::mirror::{LOCK_WAIT, NOTES_REF, REMOTE_NOTES_REF, patiently};
use super::{commit, fanout, tip};
use crate::pure::note;

/// Brings our notes ref to hold all that the remote's had when it was last fetched. `absorbed` remembers for which tip
/// that was done. A note that somebody deleted at the remote stays in ours: a record does not shrink.
pub(super) fn absorb(
    repo: &Repository,
    absorbed: &mut Option<Oid>,
    at: Timestamp,
) -> Result<(), git2::Error> {
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
        Some(ours) => union(repo, ours, theirs, at)?,
    }
    *absorbed = Some(theirs);
    Ok(())
}

/// A commit with both as its parents, or theirs itself when we have nothing of our own.
fn union(repo: &Repository, ours: Oid, theirs: Oid, at: Timestamp) -> Result<(), git2::Error> {
    let (our, their) = (repo.find_commit(ours)?, repo.find_commit(theirs)?);
    let (our_tree, their_tree) = (our.tree()?, their.tree()?);
    let base = repo.merge_base(ours, theirs).ok();
    let base_tree = base.map(|id| repo.find_commit(id)?.tree()).transpose()?;
    let mut edit = BTreeMap::new();
    let mut lost = false;
    for hex in changed(repo, base_tree.as_ref(), &their_tree)? {
        let mine = fanout::read(repo, &our_tree, &hex)?.unwrap_or_default();
        let Some(his) = fanout::read(repo, &their_tree, &hex)? else {
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
    let tree = fanout::write(repo, Some(&our_tree), &edit)?;
    commit(repo, tree, &[&our, &their], "meshplan: union of both sides", at).map(drop)
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
fn changed(repo: &Repository, old: Option<&Tree<'_>>, new: &Tree<'_>) -> Result<Vec<String>, git2::Error> {
    let mut blobs: BTreeMap<String, (Vec<Oid>, Vec<Oid>)> = BTreeMap::new();
    compare(repo, (old, Some(new)), "", &mut blobs)?;
    let differ = blobs.into_iter().filter(|(_, (old, new))| old != new);
    Ok(differ.map(|(hex, _)| hex).collect())
}

type Sides<'a, 'r> = (Option<&'a Tree<'r>>, Option<&'a Tree<'r>>);

fn compare(
    repo: &Repository,
    sides: Sides<'_, '_>,
    prefix: &str,
    out: &mut BTreeMap<String, (Vec<Oid>, Vec<Oid>)>,
) -> Result<(), git2::Error> {
    let mut names: BTreeMap<String, (Option<Oid>, Option<Oid>)> = BTreeMap::new();
    let mut folders: BTreeMap<String, (Option<Oid>, Option<Oid>)> = BTreeMap::new();
    for (tree, is_old) in [(sides.0, true), (sides.1, false)] {
        for entry in tree.into_iter().flatten() {
            let Ok(name) = entry.name() else { continue };
            if !name.bytes().all(|b| b.is_ascii_hexdigit()) || prefix.len() > 64 {
                continue;
            }
            let place = match entry.kind() {
                Some(ObjectType::Blob) => names.entry(name.to_owned()).or_default(),
                Some(ObjectType::Tree) if name.len() == 2 => folders.entry(name.to_owned()).or_default(),
                _ => continue,
            };
            *(if is_old { &mut place.0 } else { &mut place.1 }) = Some(entry.id());
        }
    }
    for (name, (old, new)) in names {
        let note = out.entry(format!("{prefix}{name}")).or_default();
        note.0.extend(old);
        note.1.extend(new);
    }
    for (name, (old, new)) in folders.into_iter().filter(|(_, (old, new))| old != new) {
        let open = |id: Option<Oid>| id.map(|id| repo.find_tree(id)).transpose();
        let (old, new) = (open(old)?, open(new)?);
        compare(
            repo,
            (old.as_ref(), new.as_ref()),
            &format!("{prefix}{name}"),
            out,
        )?;
    }
    Ok(())
}
