//! The tree of a notes ref: read at any depth that somebody may have written it in, written at 2/2/36.
//!
//! A commit's note is the blob whose path, without its slashes, is the commit's id. git reads any depth and mixtures of
//! them, and chooses its own when it writes; so a path that is touched is first removed wherever it stands.

use std::collections::BTreeMap;

use git2::{ObjectType, Oid, Repository, Tree};

use super::object::Folder;

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
fn find(repo: &Repository, tree: &Tree<'_>, rest: &str, out: &mut Vec<Oid>) -> Result<(), git2::Error> {
    if let Some(entry) = tree.get_name(rest).filter(|e| e.kind() == Some(ObjectType::Blob)) {
        out.push(entry.id());
    }
    let Some((first, rest)) = split(rest) else {
        return Ok(());
    };
    if let Some(entry) = tree
        .get_name(first)
        .filter(|e| e.kind() == Some(ObjectType::Tree))
    {
        find(repo, &repo.find_tree(entry.id())?, rest, out)?;
    }
    Ok(())
}

/// A commit's note.
pub(super) fn read(repo: &Repository, tree: &Tree<'_>, hex: &str) -> Result<Option<Vec<u8>>, git2::Error> {
    let mut found = Vec::new();
    find(repo, tree, hex, &mut found)?;
    let mut out: Option<Vec<u8>> = None;
    for id in found {
        let blob = repo.find_blob(id)?;
        out = Some(match out {
            None => blob.content().to_vec(),
            // As git itself does with two notes of one commit.
            Some(before) => [&before, &b"\n"[..], blob.content()].concat(),
        });
    }
    Ok(out)
}

/// All notes: the commit's id, the blob; sorted by place, the same id twice if it stands twice.
pub(super) fn list(repo: &Repository, tree: &Tree<'_>) -> Result<Vec<(String, Oid)>, git2::Error> {
    fn walk(
        repo: &Repository,
        tree: &Tree<'_>,
        prefix: &str,
        out: &mut Vec<(String, Oid)>,
    ) -> Result<(), git2::Error> {
        for entry in tree {
            let Ok(name) = entry.name() else { continue };
            let path = format!("{prefix}{name}");
            let is_hex = path.len() <= 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
            match entry.kind() {
                Some(ObjectType::Blob) if is_hex => out.push((path, entry.id())),
                Some(ObjectType::Tree) if is_hex && name.len() == 2 => {
                    walk(repo, &repo.find_tree(entry.id())?, &path, out)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
    let mut out = Vec::new();
    walk(repo, tree, "", &mut out)?;
    Ok(out)
}

/// The tree with these notes in it; entries that are no notes are kept.
pub(super) fn write(
    repo: &Repository,
    tree: Option<&Tree<'_>>,
    notes: &BTreeMap<String, Oid>,
) -> Result<Oid, git2::Error> {
    let root = Folder::read(repo, tree.map(Tree::id))?;
    if let Some(tree) = tree.filter(|_| root.blobs() > FLAT) {
        let mut all = normalised(repo, tree)?;
        all.extend(notes.iter().map(|(hex, blob)| (hex.clone(), *blob)));
        return write_level(repo, Folder::default(), &borrowed(&all), DEPTH);
    }
    write_level(repo, root, &borrowed(notes), DEPTH)
}

fn borrowed(notes: &BTreeMap<String, Oid>) -> Vec<(&str, Oid)> {
    notes.iter().map(|(hex, blob)| (hex.as_str(), *blob)).collect()
}

/// All notes of a tree, one blob each.
fn normalised(repo: &Repository, tree: &Tree<'_>) -> Result<BTreeMap<String, Oid>, git2::Error> {
    let mut all: BTreeMap<String, Oid> = BTreeMap::new();
    for (hex, blob) in list(repo, tree)? {
        let blob = match all.get(&hex) {
            None => blob,
            Some(_) => repo.blob(&read(repo, tree, &hex)?.unwrap_or_default())?,
        };
        all.insert(hex, blob);
    }
    Ok(all)
}

/// One folder, `depth` levels above the notes. `notes` are sorted.
fn write_level(
    repo: &Repository,
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
                let left = without(repo, inner, below)?;
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
        let written = write_level(repo, Folder::read(repo, inner)?, &below, depth - 1)?;
        folder.put_folder(first, Some(written));
        rest = others;
    }
    folder.write(repo)
}

/// A folder deeper than ours without one note; none when nothing is left in it.
fn without(repo: &Repository, id: Oid, rest: &str) -> Result<Option<Oid>, git2::Error> {
    let mut folder = Folder::read(repo, Some(id))?;
    folder.remove_blob(rest);
    if let Some((first, rest)) = split(rest)
        && let Some(inner) = folder.folder(first)
    {
        let left = without(repo, inner, rest)?;
        folder.put_folder(first, left);
    }
    if folder.is_empty() {
        Ok(None)
    } else {
        folder.write(repo).map(Some)
    }
}
