//! Room for the whole change, before anything is touched (HR-14, B40).

use std::collections::BTreeMap;

use crate::edge::disk::{Disk, DiskError, atomic};
use crate::edge::ledger::{path_of, put_own};
use crate::pure::target_path::TargetPath;

/// Room that is kept so that a failure can still be recorded.
const RESERVE_BYTES: usize = 256 * 1024;
/// Room for journal, ledger and window beside the before images.
const BOOK_BYTES: u64 = 256 * 1024;
/// Files of a window beside the before images.
const BOOK_FILES: u64 = 16;

/// What a change takes, summed by file system.
#[derive(Debug, Default)]
pub(super) struct Need {
    by_file_system: BTreeMap<u64, Sum>,
}

#[derive(Debug, Default)]
struct Sum {
    bytes: u64,
    files: u64,
    free_bytes: u64,
    free_files: Option<u64>,
    at: String,
}

impl Need {
    /// Adds a file of so many bytes at a path.
    ///
    /// # Errors
    /// The disk could not tell.
    pub(super) fn file(&mut self, disk: &dyn Disk, path: &TargetPath, bytes: u64) -> Result<(), DiskError> {
        self.files(disk, path, (bytes, 1))
    }

    /// Adds so many files of so many bytes together, at or below a path.
    ///
    /// # Errors
    /// The disk could not tell.
    pub(super) fn files(
        &mut self,
        disk: &dyn Disk,
        path: &TargetPath,
        (bytes, files): (u64, u64),
    ) -> Result<(), DiskError> {
        let space = disk.space(Some(path))?;
        let sum = self.by_file_system.entry(space.file_system).or_default();
        // Each but one ends in a block that it does not fill.
        let blocks = (bytes.div_ceil(space.block_bytes.max(1))).saturating_add(files.saturating_sub(1));
        sum.bytes = (sum.bytes).saturating_add(blocks.saturating_mul(space.block_bytes));
        sum.files = sum.files.saturating_add(files);
        sum.free_bytes = space.free_bytes;
        sum.free_files = space.free_inodes;
        if sum.at.is_empty() {
            sum.at = path.to_string();
        }
        Ok(())
    }

    /// Adds what the window itself takes beside its before images, and the book twice.
    ///
    /// # Errors
    /// The disk could not tell.
    pub(super) fn book(&mut self, state: &dyn Disk, book_bytes: u64) -> Result<(), DiskError> {
        let path = path_of("/window");
        for _ in 0..BOOK_FILES {
            self.file(state, &path, 0)?;
        }
        self.file(
            state,
            &path,
            BOOK_BYTES.saturating_add(book_bytes.saturating_mul(3)),
        )
    }

    /// In words what is lacking; none when there is room.
    pub(super) fn lacking(&self) -> Option<String> {
        self.by_file_system.values().find_map(|sum| {
            let at = &sum.at;
            if sum.bytes > sum.free_bytes {
                let (need, free) = (sum.bytes, sum.free_bytes);
                return Some(format!(
                    "no room: the whole change takes {need} bytes on the file system of {at}, {free} are free; \
                     nothing was touched"
                ));
            }
            let free = sum.free_files?;
            (sum.files > free).then(|| {
                let need = sum.files;
                format!(
                    "no room: the whole change takes {need} files on the file system of {at}, {free} can still be \
                     made; nothing was touched"
                )
            })
        })
    }
}

/// Takes the reserve, when it is not taken.
///
/// # Errors
/// The disk.
pub(super) fn reserve(state: &dyn Disk) -> Result<(), DiskError> {
    let path = path_of("/reserve");
    if state.stat(&path)?.is_none() {
        put_own(state, &path, &vec![0; RESERVE_BYTES])?;
    }
    Ok(())
}

/// Gives the reserve back.
pub(super) fn release(state: &dyn Disk) {
    if let Err(e) = atomic::remove_file(state, &path_of("/reserve")) {
        tracing::warn!(error = %e, "cannot give the reserved room back");
    }
}
