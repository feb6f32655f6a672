//! What takes the kernel several steps, done so that a cut between any two leaves the old or the new, whole.
//!
//! Stands alone because the order of these steps is the whole of the argument: write and sync beside, rename over,
//! sync the folder. A name left by a cut is known from the path alone, so the next writer removes it.

use meshplan_schemas::digest::Digest;

use super::{Disk, DiskError, NewFile, Owner, Sort};
use crate::pure::target_path::TargetPath;

/// The name beside a path under which its next content is made.
#[must_use]
pub fn beside(path: &TargetPath) -> TargetPath {
    // Hashed, as the name itself may be as long as a name can be.
    let hex = Digest::of(path.file_name().as_bytes()).hex();
    let name = format!(".meshplan-{}.tmp", hex.chars().take(16).collect::<String>());
    path.sibling(&name).unwrap_or_else(|_| path.clone())
}

/// Removes what a cut left beside a path.
///
/// # Errors
/// [`DiskError`].
pub fn clear_beside(disk: &dyn Disk, path: &TargetPath) -> Result<(), DiskError> {
    let beside = beside(path);
    if disk.stat(&beside)?.is_some() {
        disk.unlink(&beside)?;
        disk.sync_parent(&beside)?;
    }
    Ok(())
}

/// Puts a file at a path, whole: what stood there (no folder) is replaced in one step.
///
/// # Errors
/// [`DiskError`]; then the path holds what it held.
pub fn put_file(
    disk: &dyn Disk,
    path: &TargetPath,
    file: &NewFile<'_>,
    check: Option<&str>,
) -> Result<(), DiskError> {
    clear_beside(disk, path)?;
    let beside = beside(path);
    let placed = disk
        .create(&beside, file)
        .and_then(|()| check.map_or(Ok(()), |command| disk.check(&beside, command)))
        .and_then(|()| disk.rename(&beside, path));
    if let Err(e) = placed {
        // The first fault is the one to tell; the next writer clears what this cannot.
        let _cleared = clear_beside(disk, path);
        return Err(e);
    }
    disk.sync_parent(path)
}

/// Puts a file where none may be: of two who try, one succeeds, and its content is whole.
///
/// # Errors
/// [`DiskError`]; [`DiskError::is_exists`] for the one who came second.
pub fn put_first(disk: &dyn Disk, path: &TargetPath, bytes: &[u8]) -> Result<(), DiskError> {
    clear_beside(disk, path)?;
    let beside = beside(path);
    disk.create(
        &beside,
        &NewFile {
            bytes,
            mode: 0o600,
            owner: Owner::default(),
        },
    )?;
    if let Err(e) = disk.rename_new(&beside, path) {
        let _cleared = clear_beside(disk, path);
        return Err(e);
    }
    disk.sync_parent(path)
}

/// Puts a symbolic link at a path; what stood there (no folder) is replaced in one step.
///
/// # Errors
/// [`DiskError`]; then the path holds what it held.
pub fn put_link(disk: &dyn Disk, path: &TargetPath, target: &str, owner: Owner) -> Result<(), DiskError> {
    clear_beside(disk, path)?;
    let beside = beside(path);
    let placed = disk
        .symlink(&beside, target, owner)
        .and_then(|()| disk.rename(&beside, path));
    if let Err(e) = placed {
        let _cleared = clear_beside(disk, path);
        return Err(e);
    }
    disk.sync_parent(path)
}

/// The folders on the way to a path that are not there, nearest first.
pub fn missing_folders(disk: &dyn Disk, path: &TargetPath) -> Vec<TargetPath> {
    let there = |folder: &TargetPath| {
        // A link on the way counts: it is followed, or refused, by the walk.
        matches!(disk.stat(folder), Ok(Some(stat)) if stat.sort != Sort::File)
    };
    path.ancestors().take_while(|folder| !there(folder)).collect()
}

/// Makes a folder, or gives the folder that is there its mode and owner.
///
/// # Errors
/// [`DiskError`].
pub fn put_folder(disk: &dyn Disk, path: &TargetPath, mode: u32, owner: Owner) -> Result<(), DiskError> {
    if disk.stat(path)?.is_none() {
        disk.mkdir(path)?;
        disk.sync_parent(path)?;
    }
    disk.set_meta(path, mode, owner)
}

/// Removes a file or a link; one that is gone already is fine.
///
/// # Errors
/// [`DiskError`].
pub fn remove_file(disk: &dyn Disk, path: &TargetPath) -> Result<(), DiskError> {
    if disk.stat(path)?.is_none() {
        return Ok(());
    }
    disk.unlink(path)?;
    disk.sync_parent(path)
}

/// Removes an empty folder; one that is gone already is fine.
///
/// # Errors
/// [`DiskError`].
pub fn remove_folder(disk: &dyn Disk, path: &TargetPath) -> Result<(), DiskError> {
    if disk.stat(path)?.is_none() {
        return Ok(());
    }
    disk.rmdir(path)?;
    disk.sync_parent(path)
}

/// Removes what stands at a path, a folder with all that is in it; what is gone already is fine.
///
/// # Errors
/// [`DiskError`]; something is mounted in it.
pub fn remove_tree(disk: &dyn Disk, path: &TargetPath) -> Result<(), DiskError> {
    if disk.stat(path)?.is_none() {
        return Ok(());
    }
    disk.remove_all(path)?;
    disk.sync_parent(path)
}
