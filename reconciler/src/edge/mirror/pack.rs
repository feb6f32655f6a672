//! Keeping the mirror small: loose objects and small packs become one pack, so that history stays cheap to have.
//!
//! Nothing is dropped: what was there is in the new pack before the old file goes. Packs are put together by size
//! class, so that each object is written again only a few times in the life of a fleet.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use git2::{Oid, Repository};

use super::Guard;

/// Packs of about one size before they become one.
const CLASS: usize = 16;

/// Objects in a pack of the first size class; each class above holds [`CLASS`] times as many.
const FIRST_CLASS_OBJECTS: usize = 8192;

/// Packs loose objects and, where a size class is full, its packs; only when there are at least `from_packs` packs
/// (0: always). Failing to is no harm: it is said and tried again.
pub(crate) fn tidy(repo: &Repository, guard: &Guard, from_packs: usize) {
    guard.packing(|| {
        let folder = repo.path().join("objects/pack");
        let result = packs(&folder).map_err(|e| e.to_string()).and_then(|packs| {
            if packs.len() < from_packs {
                return Ok(());
            }
            together(repo, &full_class(packs)).map_err(|e| e.to_string())
        });
        if let Err(why) = result {
            tracing::warn!(mirror = %repo.path().display(), why, "could not pack the mirror");
        }
    });
}

/// A pack and the objects in it.
struct Pack {
    path: PathBuf,
    objects: usize,
}

fn packs(folder: &Path) -> std::io::Result<Vec<Pack>> {
    let mut packs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let ours = path.extension().is_some_and(|e| e == "idx") && !path.with_extension("keep").exists();
        if ours && path.with_extension("pack").exists() {
            let objects = object_count(&path)?;
            packs.push(Pack { path, objects });
        }
    }
    Ok(packs)
}

/// The packs of the smallest size classes that are full, together with all smaller ones.
fn full_class(mut packs: Vec<Pack>) -> Vec<PathBuf> {
    packs.sort_by_key(|p| p.objects);
    let (mut take, mut upto, mut start) = (0, FIRST_CLASS_OBJECTS, 0);
    while start < packs.len() {
        let end = packs.partition_point(|p| p.objects < upto);
        if end - start >= CLASS {
            take = end;
        }
        start = end;
        upto = upto.saturating_mul(CLASS);
    }
    packs.truncate(take);
    packs.into_iter().map(|p| p.path).collect()
}

/// Offset and length of the table of an index of version 2 (git's pack-format): magic, version, 256 counts, ids.
const TABLE: usize = 8 + 256 * 4;

fn object_count(index: &Path) -> std::io::Result<usize> {
    let mut head = [0u8; TABLE];
    fs::File::open(index)?.read_exact(&mut head)?;
    let total = head.last_chunk::<4>().map_or(0, |b| u32::from_be_bytes(*b));
    Ok(usize::try_from(total).unwrap_or(usize::MAX))
}

fn objects_of(index: &Path) -> std::io::Result<Vec<Oid>> {
    let bytes = fs::read(index)?;
    let count = object_count(index)?;
    let ids = bytes
        .get(TABLE..)
        .unwrap_or_default()
        .chunks_exact(20)
        .take(count);
    Ok(ids.filter_map(|id| Oid::from_bytes(id).ok()).collect())
}

fn loose(repo: &Repository) -> std::io::Result<Vec<(Oid, PathBuf)>> {
    let mut found = Vec::new();
    for folder in fs::read_dir(repo.path().join("objects"))? {
        let folder = folder?;
        let name = folder.file_name();
        let Some(first) = name.to_str().filter(|n| n.len() == 2) else {
            continue;
        };
        for file in fs::read_dir(folder.path())? {
            let file = file?;
            let name = file.file_name();
            if let Some(id) = name
                .to_str()
                .and_then(|rest| Oid::from_str(&format!("{first}{rest}")).ok())
            {
                found.push((id, file.path()));
            }
        }
    }
    Ok(found)
}

fn together(repo: &Repository, old: &[PathBuf]) -> Result<(), Box<dyn std::error::Error>> {
    let loose = loose(repo)?;
    if loose.is_empty() && old.len() < 2 {
        return Ok(());
    }
    let mut ids: Vec<Oid> = loose.iter().map(|(id, _)| *id).collect();
    for index in old {
        ids.extend(objects_of(index)?);
    }
    let mut builder = repo.packbuilder()?;
    builder.set_threads(1);
    let mut seen = HashSet::new();
    for id in ids.into_iter().filter(|id| seen.insert(*id)) {
        builder.insert_object(id, None)?;
    }
    let folder = repo.path().join("objects/pack");
    builder.write(&folder, 0o444)?;
    let Some(name) = builder.name()?.map(str::to_owned) else {
        return Err("libgit2 gave the pack no name".into());
    };
    drop(builder);
    let new = folder.join(format!("pack-{name}.idx"));
    // The old copies go only when the new one cannot be lost any more.
    for path in [&new, &new.with_extension("pack"), &folder] {
        fs::File::open(path)?.sync_all()?;
    }
    repo.odb()?.refresh()?;
    // An index over several packs would name some that go; git makes it again where it is wanted.
    let _ = fs::remove_file(folder.join("multi-pack-index"));
    for index in old.iter().filter(|index| **index != new) {
        for ending in ["idx", "rev", "bitmap", "mtimes", "pack"] {
            match fs::remove_file(index.with_extension(ending)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            }
        }
    }
    for (_, path) in &loose {
        fs::remove_file(path)?;
    }
    tracing::debug!(objects = seen.len(), packs = old.len(), "packed the mirror");
    Ok(())
}
