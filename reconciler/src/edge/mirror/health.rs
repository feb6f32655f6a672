//! What a crash leaves behind, and how damage is seen before it is stumbled over.

use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use git2::{Oid, Repository};

use super::{HEAD_REF, NOTES_REF, REMOTE_NOTES_REF};

/// The name of something that stands beside the mirror: `mirror.fresh`.
pub(super) fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(what);
    path.with_file_name(name)
}

/// Removes a folder that may not be there.
pub(super) fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Moves a broken mirror to `<path>.broken`, where the one before it goes: for whoever wants to look.
pub(super) fn set_aside(path: &Path) -> io::Result<()> {
    let broken = beside(path, "broken");
    remove_folder(&broken)?;
    fs::rename(path, broken)
}

/// Removes lock files and half-written files of a process that is no more. The caller has the OS lock, which proves
/// that no process of ours is at work.
pub(super) fn sweep(path: &Path) -> io::Result<()> {
    let mut folders = vec![path.to_owned()];
    let mut removed = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if name.ends_with(".lock") || is_half_written(&folder, &name) {
                fs::remove_file(entry.path())?;
                removed.push(
                    entry
                        .path()
                        .strip_prefix(path)
                        .unwrap_or(&entry.path())
                        .display()
                        .to_string(),
                );
            }
        }
    }
    if !removed.is_empty() {
        removed.sort();
        tracing::warn!(
            mirror = %path.display(),
            files = removed.join(", "),
            "removed lock files that a killed process left in the mirror"
        );
    }
    Ok(())
}

fn is_half_written(folder: &Path, name: &str) -> bool {
    let in_packs = folder.ends_with("objects/pack");
    (in_packs && !name.starts_with("pack-") && !name.starts_with("multi-pack-index"))
        || name.starts_with("tmp_obj")
        || (in_packs && name.starts_with("pack-") && name.contains(".pack_git2_"))
}

/// What is wrong with a repository, if anything is seen at a glance: cut packs, refs that lead nowhere.
pub(super) fn damage(repo: &Repository) -> Option<String> {
    let packs = repo.path().join("objects/pack");
    for entry in fs::read_dir(&packs).ok()?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "pack") {
            match is_whole(&path) {
                Ok(true) => {}
                Ok(false) => return Some(format!("{} is cut or changed", path.display())),
                Err(e) => return Some(format!("{}: {e}", path.display())),
            }
        }
    }
    for name in [HEAD_REF, REMOTE_NOTES_REF, NOTES_REF] {
        if !repo.path().join(name).exists() && repo.find_reference(name).is_err() {
            continue;
        }
        if let Err(e) = repo.find_reference(name).and_then(|r| r.peel_to_tree()) {
            return Some(format!("{name}: {}", e.message()));
        }
    }
    None
}

/// Whether a pack ends with the checksum that its index names (git's pack-format: the trailers of both).
fn is_whole(pack: &Path) -> io::Result<bool> {
    const HASH: i64 = 20;
    let index = pack.with_extension("idx");
    if !index.exists() {
        // Left by a process that was killed before it wrote the index: nothing can refer to it.
        return Ok(true);
    }
    let tail = |path: &Path, from_end: i64| {
        let mut file = fs::File::open(path)?;
        let mut bytes = [0u8; 20];
        if file.metadata()?.len() < from_end.unsigned_abs() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "too short"));
        }
        file.seek(SeekFrom::End(-from_end))?;
        file.read_exact(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    Ok(tail(pack, HASH)? == tail(&index, 2 * HASH)?)
}

/// Takes over what only the broken mirror may have: notes that were not pushed, kept commits. What cannot be read is
/// left: the outbox writes its blocks again.
pub(super) fn salvage(fresh: &Repository, broken: &Path) {
    let Ok(broken) = Repository::open_bare(broken) else {
        return;
    };
    let kept = broken
        .references_glob("refs/meshplan/keep/*")
        .into_iter()
        .flatten()
        .flatten();
    let mut names: Vec<String> = kept.filter_map(|r| r.name().ok().map(str::to_owned)).collect();
    names.push(NOTES_REF.to_owned());
    for name in names {
        if let Ok(id) = broken.refname_to_id(&name)
            && let Err(e) = carry(fresh, &broken, &name, id)
        {
            tracing::warn!(
                name,
                why = e.message(),
                "could not take this ref over from the damaged mirror"
            );
        }
    }
}

fn carry(fresh: &Repository, broken: &Repository, name: &str, id: Oid) -> Result<(), git2::Error> {
    let mut walk = broken.revwalk()?;
    walk.push(id)?;
    for known in [HEAD_REF, REMOTE_NOTES_REF] {
        if let Some(known) = fresh
            .refname_to_id(known)
            .ok()
            .filter(|id| broken.find_commit(*id).is_ok())
        {
            walk.hide(known)?;
        }
    }
    let mut builder = broken.packbuilder()?;
    builder.insert_walk(&mut walk)?;
    if builder.object_count() > 0 {
        builder.write(&fresh.path().join("objects/pack"), 0o444)?;
        fresh.odb()?.refresh()?;
    }
    fresh.find_commit(id)?.tree()?;
    fresh
        .reference(name, id, true, "taken over from the damaged mirror")
        .map(drop)
}
