//! The tree of a notes ref: read at any depth that somebody may have written it in, written at 2/2/36.
//!
//! A commit's note is the blob whose path, without its slashes, is the commit's id. git reads any depth and mixtures of
//! them, and chooses its own when it writes; so a path that is touched is first removed wherever it stands.

use std::collections::BTreeMap;

use git2::{ObjectType, Oid, Repository, Tree};

/// Folders above a note.
const DEPTH: usize = 2;

/// From this many notes directly in the root on, somebody wrote it flat, and it is written anew as a whole: an append
/// would otherwise copy all of them each time.
const FLAT: usize = 512;

const BLOB: i32 = 0o100_644;
const TREE: i32 = 0o040_000;

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
    if let Some(entry) = tree.get_name(first).filter(|e| e.filemode() == TREE) {
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
    let flat = tree.map_or(0, |t| {
        t.iter().filter(|e| e.kind() == Some(ObjectType::Blob)).count()
    });
    if let Some(tree) = tree.filter(|_| flat > FLAT) {
        let mut all = normalised(repo, tree)?;
        all.extend(notes.iter().map(|(hex, blob)| (hex.clone(), *blob)));
        return write_level(repo, None, &borrowed(&all), DEPTH);
    }
    write_level(repo, tree, &borrowed(notes), DEPTH)
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
    tree: Option<&Tree<'_>>,
    notes: &[(&str, Oid)],
    depth: usize,
) -> Result<Oid, git2::Error> {
    let mut builder = repo.treebuilder(tree)?;
    let mut rest = notes;
    while let Some((hex, blob)) = rest.first() {
        let Some((first, _)) = split(hex) else {
            return Err(git2::Error::from_str("a note's name is no commit id"));
        };
        let below = tree
            .and_then(|t| t.get_name(first))
            .filter(|e| e.filemode() == TREE)
            .map(|e| repo.find_tree(e.id()))
            .transpose()?;
        if depth == 0 {
            if let Some(below) = below
                && let Some(left) = without(repo, &below, split(hex).map_or("", |(_, rest)| rest))?
            {
                put(&mut builder, first, left)?;
            }
            builder.insert(*hex, *blob, BLOB)?;
            rest = rest.get(1..).unwrap_or_default();
            continue;
        }
        let count = rest.iter().take_while(|(hex, _)| hex.starts_with(first)).count();
        let (these, others) = rest.split_at(count);
        for (hex, _) in these
            .iter()
            .filter(|(hex, _)| tree.is_some_and(|t| t.get_name(hex).is_some()))
        {
            builder.remove(*hex)?;
        }
        let inner: Vec<(&str, Oid)> = these
            .iter()
            .filter_map(|(hex, blob)| split(hex).map(|(_, rest)| (rest, *blob)))
            .collect();
        builder.insert(first, write_level(repo, below.as_ref(), &inner, depth - 1)?, TREE)?;
        rest = others;
    }
    builder.write()
}

/// A folder deeper than ours without one note; none when that changes nothing.
fn without(repo: &Repository, tree: &Tree<'_>, rest: &str) -> Result<Option<Oid>, git2::Error> {
    let mut builder = repo.treebuilder(Some(tree))?;
    let mut changed = false;
    if !rest.is_empty() && builder.get(rest)?.is_some() {
        builder.remove(rest)?;
        changed = true;
    }
    if let Some((first, rest)) = split(rest)
        && let Some(entry) = tree.get_name(first).filter(|e| e.filemode() == TREE)
        && let Some(left) = without(repo, &repo.find_tree(entry.id())?, rest)?
    {
        put(&mut builder, first, left)?;
        changed = true;
    }
    if changed {
        builder.write().map(Some)
    } else {
        Ok(None)
    }
}

/// Puts a folder, or removes it when it is empty.
fn put(builder: &mut git2::TreeBuilder<'_>, name: &str, tree: Oid) -> Result<(), git2::Error> {
    const EMPTY: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    if tree.to_string() == EMPTY {
        return builder.remove(name);
    }
    builder.insert(name, tree, TREE).map(drop)
}
