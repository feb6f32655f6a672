//! The one seam through which the host touches files (B40).
//!
//! Stands alone so that what a power cut may leave can be tried in memory: [`RealDisk`] acts, [`SimDisk`] records
//! the same acts and can say what the disk holds after a cut at any of them. The trait has only what a kernel does
//! in one step; what needs several (a file written whole) is in [`atomic`], the same for both.
//!
//! Invariant: a path is resolved inside the disk's root; the last component is never followed; a symbolic link on
//! the way is followed only when root or the host itself placed it (HK-1).

pub mod atomic;
mod check;
mod lock;
mod real;
mod sim;
mod walk;

use std::fmt;
use std::io::{self, Read, Seek};

pub use lock::{LockError, StateLock};
pub use real::RealDisk;
pub use sim::SimDisk;

use crate::pure::target_path::TargetPath;

/// A tree of files under one root.
pub trait Disk: Send + Sync + fmt::Debug {
    /// What stands at a path, itself and not what it points at; none when it or a folder on the way is not there.
    ///
    /// # Errors
    /// [`DiskError`]; "could not tell" is never "not there".
    fn stat(&self, path: &TargetPath) -> Result<Option<Stat>, DiskError>;
    /// The bytes of a regular file.
    ///
    /// # Errors
    /// [`DiskError`].
    fn read(&self, path: &TargetPath) -> Result<Vec<u8>, DiskError>;
    /// What a symbolic link points at.
    ///
    /// # Errors
    /// [`DiskError`]; a target that is not UTF-8 is refused.
    fn read_link(&self, path: &TargetPath) -> Result<String, DiskError>;
    /// The names in a folder, in order; `None` is the root. A name that is not UTF-8 is given escaped.
    ///
    /// # Errors
    /// [`DiskError`].
    fn list(&self, folder: Option<&TargetPath>) -> Result<Vec<String>, DiskError>;
    /// The room on the file system that a path is or would be on.
    ///
    /// # Errors
    /// [`DiskError`].
    fn space(&self, path: Option<&TargetPath>) -> Result<Space, DiskError>;
    /// Who files belong to that the host makes: user and group number.
    fn own(&self) -> (u32, u32);
    /// Device and inode of the folder that holds this path (of the root where there is none), and of each folder
    /// above it, nearest first. Links on the way are followed, so two spellings of one folder are one.
    ///
    /// # Errors
    /// The disk could not tell; the folder is not there.
    fn way(&self, path: Option<&TargetPath>) -> Result<Vec<(u64, u64)>, DiskError>;

    /// Makes a file that is not there, writes it, gives it owner and mode, and syncs it (not its folder).
    ///
    /// # Errors
    /// [`DiskError`]; something stands there already.
    fn create(&self, path: &TargetPath, file: &NewFile<'_>) -> Result<(), DiskError>;
    /// A regular file, to be read by pieces.
    ///
    /// # Errors
    /// [`DiskError`].
    fn open(&self, path: &TargetPath) -> Result<Box<dyn Stream>, DiskError>;
    /// Makes a file that is not there of all that a reader gives, with owner and mode; not synced
    /// ([`Disk::sync_all`]). Says how many bytes it has.
    ///
    /// # Errors
    /// [`DiskError`], also of the reader; then the file is not there.
    fn fill(&self, path: &TargetPath, from: &mut dyn Read, mode: u32, owner: Owner)
    -> Result<u64, DiskError>;
    /// Adds bytes at the end of a file of the host's own, which is made where it is not there; not synced.
    ///
    /// # Errors
    /// [`DiskError`].
    fn append(&self, path: &TargetPath, bytes: &[u8]) -> Result<(), DiskError>;
    /// Syncs all of the file system on which the folder of a path is.
    ///
    /// # Errors
    /// [`DiskError`].
    fn sync_all(&self, path: &TargetPath) -> Result<(), DiskError>;
    /// Makes a symbolic link that is not there.
    ///
    /// # Errors
    /// [`DiskError`].
    fn symlink(&self, path: &TargetPath, target: &str, owner: Owner) -> Result<(), DiskError>;
    /// Makes a folder that is not there, open to the host only.
    ///
    /// # Errors
    /// [`DiskError`].
    fn mkdir(&self, path: &TargetPath) -> Result<(), DiskError>;
    /// Gives a folder its owner and mode, and syncs it.
    ///
    /// # Errors
    /// [`DiskError`]; it is no folder.
    fn set_meta(&self, path: &TargetPath, mode: u32, owner: Owner) -> Result<(), DiskError>;
    /// Renames inside one folder, over what stands there.
    ///
    /// # Errors
    /// [`DiskError`].
    fn rename(&self, from: &TargetPath, to: &TargetPath) -> Result<(), DiskError>;
    /// Renames inside one folder where nothing stands: the one who succeeds was the first.
    ///
    /// # Errors
    /// [`DiskError`]; [`DiskError::is_exists`] when something stands there.
    fn rename_new(&self, from: &TargetPath, to: &TargetPath) -> Result<(), DiskError>;
    /// Removes a file or a link.
    ///
    /// # Errors
    /// [`DiskError`].
    fn unlink(&self, path: &TargetPath) -> Result<(), DiskError>;
    /// Removes an empty folder.
    ///
    /// # Errors
    /// [`DiskError`].
    fn rmdir(&self, path: &TargetPath) -> Result<(), DiskError>;
    /// Removes a folder with all that is in it, whatever its names are; no link is followed, and nothing that is mounted in
    /// it is touched. Nothing there is fine.
    ///
    /// # Errors
    /// [`DiskError`]; then some of it may be gone.
    fn remove_all(&self, path: &TargetPath) -> Result<(), DiskError>;
    /// Syncs the folder that a path stands in: what was made, renamed and removed there stays so.
    ///
    /// # Errors
    /// [`DiskError`].
    fn sync_parent(&self, path: &TargetPath) -> Result<(), DiskError>;
    /// Runs a check command on a file; `%s` is its path.
    ///
    /// # Errors
    /// [`DiskError::Check`] with what the command said.
    fn check(&self, path: &TargetPath, command: &str) -> Result<(), DiskError>;
}

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub sort: Sort,
    /// Permission bits with setuid, setgid, sticky.
    pub mode: u32,
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
    /// Its length.
    pub size_bytes: u64,
    /// On which file system it is.
    pub device: u64,
    /// When its bytes were changed last, in nanoseconds: only to be compared.
    pub modified_ns: i64,
}

/// What can be read by pieces.
pub trait Stream: Read + Seek + Send {}

impl<T: Read + Seek + Send> Stream for T {}

/// What a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// A regular file.
    File,
    /// A folder.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, a socket, a pipe.
    Other,
}

/// Who a thing shall belong to; none leaves it to whoever the host runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// User number.
    pub uid: Option<u32>,
    /// Group number.
    pub gid: Option<u32>,
}

/// A file that is to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewFile<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Permission bits.
    pub mode: u32,
    /// Whose.
    pub owner: Owner,
}

/// The room on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Which file system: equal numbers are one.
    pub file_system: u64,
    /// Bytes that may still be written.
    pub free_bytes: u64,
    /// Files that may still be made; none where the file system does not count them.
    pub free_inodes: Option<u64>,
    /// The smallest piece that a file takes.
    pub block_bytes: u64,
}

/// Why the disk could not do it.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The kernel said no.
    #[error("cannot {act} {path}: {source}")]
    Io {
        /// What was tried.
        act: &'static str,
        /// Where.
        path: String,
        /// The kernel's word.
        source: io::Error,
    },
    /// A symbolic link on the way belongs to neither root nor the host.
    #[error("{path} is a symbolic link that user {uid} placed; it is not followed")]
    ForeignLink {
        /// The link.
        path: String,
        /// Whose it is.
        uid: u32,
    },
    /// The check command did not pass.
    #[error("the check `{command}` did not pass: {said}")]
    Check {
        /// The command.
        command: String,
        /// What it said, cut.
        said: String,
    },
}

impl DiskError {
    pub(super) fn new(act: &'static str, path: &dyn fmt::Display, source: impl Into<io::Error>) -> Self {
        Self::Io {
            act,
            path: path.to_string(),
            source: source.into(),
        }
    }
    /// Something stands there already.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }
    /// Nothing stands there, or no longer.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
    /// No room is left.
    #[must_use]
    pub fn is_no_room(&self) -> bool {
        matches!(self, Self::Io { source, .. } if matches!(source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }
}
