//! Looks at a path and says what stands there.

use super::disk::{Disk, DiskError, Sort};
use crate::pure::observed::Observed;
use crate::pure::target_path::TargetPath;

/// A file above this is not kept as a before image, so it is not replaced either.
const BEFORE_IMAGE_BYTES: u64 = 256 * 1024 * 1024;

/// Looks. What cannot be told is an answer of its own, never "nothing".
#[must_use]
pub fn observe(disk: &dyn Disk, path: &TargetPath) -> Observed {
    look(disk, path).unwrap_or_else(|e| Observed::Unknown(e.to_string()))
}

fn look(disk: &dyn Disk, path: &TargetPath) -> Result<Observed, DiskError> {
    let Some(stat) = disk.stat(path)? else {
        return Ok(Observed::Absent);
    };
    let (mode, uid, gid) = (stat.mode, stat.uid, stat.gid);
    Ok(match stat.sort {
        Sort::File if stat.size_bytes > BEFORE_IMAGE_BYTES => Observed::Other(format!(
            "a file of {} bytes, more than the {BEFORE_IMAGE_BYTES} that are kept for the way back",
            stat.size_bytes
        )),
        Sort::File => Observed::File {
            bytes: disk.read(path)?,
            mode,
            uid,
            gid,
        },
        Sort::Directory => Observed::Directory {
            names: disk.list(Some(path))?,
            mode,
            uid,
            gid,
        },
        Sort::Link => Observed::Link {
            target: disk.read_link(path)?,
            uid,
            gid,
        },
        Sort::Other => Observed::Other("a device, socket or pipe".to_owned()),
    })
}
