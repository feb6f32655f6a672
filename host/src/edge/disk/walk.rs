//! The way to a folder, one component at a time (HK-1).
//!
//! Stands alone because it is what keeps the host from being led astray: each step is an open of one component
//! that follows nothing, so nothing can be exchanged between a look and a step. A symbolic link is read as text and
//! walked inside the root; one that neither root nor the host placed ends the walk.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::DiskError;

/// As many links as a kernel follows before it calls them a loop.
const LINKS: usize = 40;

/// Opens a folder below `root` for use as a starting point of the `*at` calls and for a sync.
pub(super) fn open_folder<'a>(
    root: BorrowedFd<'_>,
    components: impl Iterator<Item = &'a str>,
    own_uid: u32,
) -> Result<OwnedFd, DiskError> {
    let mut ahead: VecDeque<String> = components.map(str::to_owned).collect();
    let mut behind: Vec<(String, OwnedFd)> = Vec::new();
    let mut links = 0;
    while let Some(component) = ahead.pop_front() {
        match component.as_str() {
            "" | "." => continue,
            ".." => {
                behind.pop();
                continue;
            }
            _ => {}
        }
        let shown = || {
            let so_far: String = behind
                .iter()
                .map(|(name, _)| format!("/{}", name.escape_debug()))
                .collect();
            format!("{so_far}/{}", component.escape_debug())
        };
        let fault = |errno: Errno| DiskError::new("open", &shown(), errno);
        let here = behind.last().map_or(root, |(_, fd)| fd.as_fd());
        let next = openat(
            here,
            component.as_str(),
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(fault)?;
        let stat = fstat(&next).map_err(fault)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => behind.push((component, next)),
            FileType::Symlink => {
                if stat.st_uid != 0 && stat.st_uid != own_uid {
                    return Err(DiskError::ForeignLink {
                        path: shown(),
                        uid: stat.st_uid,
                    });
                }
                links += 1;
                if links > LINKS {
                    return Err(fault(Errno::LOOP));
                }
                let target = readlinkat(&next, "", Vec::new()).map_err(fault)?;
                let target = target.into_string().map_err(|_| fault(Errno::ILSEQ))?;
                if target.starts_with('/') {
                    behind.clear();
                }
                for part in target.split('/').rev() {
                    ahead.push_front(part.to_owned());
                }
            }
            _ => return Err(fault(Errno::NOTDIR)),
        }
    }
    let here = behind.last().map_or(root, |(_, fd)| fd.as_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(here, ".", flags, Mode::empty()).map_err(|e| {
        let shown: String = behind
            .iter()
            .map(|(name, _)| format!("/{}", name.escape_debug()))
            .collect();
        DiskError::new("open the folder", &shown, e)
    })
}
