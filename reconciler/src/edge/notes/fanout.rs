//! The tree of a notes ref: read at any depth that somebody may have written it in, written at 2/2/36.
//!
//! A commit's note is the blob whose path, without its slashes, is the commit's id. git reads any depth and mixtures of
//! them, and chooses its own when it writes; so a path that is touched is first removed wherever it stands.

use std::collections::BTreeMap;

use git2::{ObjectType, Oid};

use super::object::{Folder, Objects};

/// Folders above a note.
const DEPTH: usize = 2;

/// From this many notes directly in the root on, somebody wrote it flat, and it is written anew as a whole: an append
/// would otherwise copy all of them each time.
const FLAT: usize = 512;

/// The first two digits, and the rest.
fn split(hex: &str) -> Option<(&str, &str)> {
    hex.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())
}

/// The blobs of a note, as they stand: more than one if it stands at several depths.
fn find(objects: Objects<'_>, folder: &Folder, rest: &str, out: &mut Vec<Oid>) -> Result<(), git2::Error> {
    out.extend(folder.blob(rest));
    let Some((first, rest)) = split(rest) else {
        return Ok(());
    };
    match folder.folder(first) {
        Some(inner) => find(objects, &objects.folder(Some(inner))?, rest, out),
        None => Ok(()),
    }
}

/// A commit's note, below the root `tree`.
pub(super) fn read(objects: Objects<'_>, tree: Oid, hex: &str) -> Result<Option<Vec<u8>>, git2::Error> {
    let mut found = Vec::new();
    find(objects, &objects.folder(Some(tree))?, hex, &mut found)?;
    let mut out: Option<Vec<u8>> = None;
    for id in found {
        let blob = objects.repo.find_blob(id)?;
        out = Some(match out {
            None => blob.content().to_vec(),
            // As git itself does with two notes of one commit.
            Some(before) => [&before, &b"\n"[..], blob.content()].concat(),
        });
    }
    Ok(out)
}

/// All notes: the commit's id, the blob; sorted by place, the same id twice if it stands twice.
pub(super) fn list(objects: Objects<'_>, tree: Oid) -> Result<Vec<(String, Oid)>, git2::Error> {
    fn walk(
        objects: Objects<'_>,
        tree: Oid,
        prefix: &str,
        out: &mut Vec<(String, Oid)>,
    ) -> Result<(), git2::Error> {
        for entry in objects.folder(Some(tree))?.entries() {
            let Ok(name) = std::str::from_utf8(entry.name) else {
                continue;
            };
            let path = format!("{prefix}{name}");
            let is_hex = path.len() <= 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
            if is_hex && entry.is_file() {
                out.push((path, entry.id));
            } else if is_hex && entry.is_folder() && name.len() == 2 {
                walk(objects, entry.id, &path, out)?;
            }
        }
        Ok(())
    }
    let mut out = Vec::new();
    walk(objects, tree, "", &mut out)?;
    Ok(out)
}

/// The tree with these notes in it; entries that are no notes are kept.
pub(super) fn write(
    objects: Objects<'_>,
    tree: Option<Oid>,
    notes: &BTreeMap<String, Oid>,
) -> Result<Oid, git2::Error> {
    let root = objects.folder(tree)?;
    if let Some(tree) = tree.filter(|_| root.blobs() > FLAT) {
        let mut all = normalised(objects, tree)?;
        all.extend(notes.iter().map(|(hex, blob)| (hex.clone(), *blob)));
        return write_level(objects, Folder::default(), &borrowed(&all), DEPTH);
    }
    write_level(objects, root, &borrowed(notes), DEPTH)
}

fn borrowed(notes: &BTreeMap<String, Oid>) -> Vec<(&str, Oid)> {
    notes.iter().map(|(hex, blob)| (hex.as_str(), *blob)).collect()
}

/// All notes of a tree, one blob each.
fn normalised(objects: Objects<'_>, tree: Oid) -> Result<BTreeMap<String, Oid>, git2::Error> {
    let mut all: BTreeMap<String, Oid> = BTreeMap::new();
    for (hex, blob) in list(objects, tree)? {
        let blob = match all.get(&hex) {
            None => blob,
            Some(_) => objects.write(ObjectType::Blob, &read(objects, tree, &hex)?.unwrap_or_default())?,
        };
        all.insert(hex, blob);
    }
    Ok(all)
}

/// One folder, `depth` levels above the notes. `notes` are sorted.
fn write_level(
    objects: Objects<'_>,
    mut folder: Folder,
    notes: &[(&str, Oid)],
    depth: usize,
) -> Result<Oid, git2::Error> {
    let mut rest = notes;
    while let Some((hex, blob)) = rest.first() {
        let Some((first, below)) = split(hex) else {
            return Err(git2::Error::from_str("a note's name is no commit id"));
        };
        let inner = folder.folder(first);
        if depth == 0 {
            if let Some(inner) = inner {
                let left = without(objects, inner, below)?;
                folder.put_folder(first, left);
            }
            folder.put_blob(hex, *blob);
            rest = rest.get(1..).unwrap_or_default();
            continue;
        }
        let count = rest.iter().take_while(|(hex, _)| hex.starts_with(first)).count();
        let (these, others) = rest.split_at(count);
        for (hex, _) in these {
            folder.remove_blob(hex);
        }
        let below: Vec<(&str, Oid)> = these
            .iter()
            .filter_map(|(hex, blob)| split(hex).map(|(_, rest)| (rest, *blob)))
            .collect();
        let written = write_level(objects, objects.folder(inner)?, &below, depth - 1)?;
        folder.put_folder(first, Some(written));
        rest = others;
    }
    objects.write_folder(&folder)
}

/// A folder deeper than ours without one note; none when nothing is left in it.
fn without(objects: Objects<'_>, id: Oid, rest: &str) -> Result<Option<Oid>, git2::Error> {
    let mut folder = objects.folder(Some(id))?;
    folder.remove_blob(rest);
    if let Some((first, rest)) = split(rest)
        && let Some(inner) = folder.folder(first)
    {
        let left = without(objects, inner, rest)?;
        folder.put_folder(first, left);
    }
    if folder.is_empty() {
        Ok(None)
    } else {
        objects.write_folder(&folder).map(Some)
    }
}
