//! The lock on the state folder: one host program works on it at a time.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

/// The held lock; dropping it, or the end of the process however it comes, gives it back.
#[derive(Debug)]
pub struct StateLock {
    _file: OwnedFd,
}

/// Why the lock is not held.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another program has it.
    #[error("another meshplan-host works on {0}")]
    Busy(String),
    /// The kernel said no.
    #[error("cannot lock {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The kernel's word.
        source: std::io::Error,
    },
}

impl StateLock {
    /// Takes the lock of a state folder without waiting.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn take(state_folder: &Path) -> Result<Self, LockError> {
        let path = state_folder.join("lock");
        let io = |source: rustix::io::Errno| LockError::Io {
            path: path.display().to_string(),
            source: source.into(),
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(io)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                write_holder(&file);
                Ok(Self { _file: file })
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(LockError::Busy(state_folder.display().to_string())),
            Err(e) => Err(io(e)),
        }
    }
}

/// Who holds it, for `meshplan-launcher revert`, which ends a host that does not decide (HR-13). On a full disk the
/// former number stays, and nobody has that file open any more: such a host must stand down by itself.
fn write_holder(file: &OwnedFd) {
    let written = rustix::fs::ftruncate(file, 0)
        .and_then(|()| rustix::io::pwrite(file, format!("{}\n", std::process::id()).as_bytes(), 0));
    if let Err(error) = written {
        tracing::warn!(%error, "the lock does not say whose it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_host_on_one_state_folder_is_refused_until_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let first = StateLock::take(folder.path()).unwrap();
        let holder = std::fs::read_to_string(folder.path().join("lock")).unwrap();
        assert_eq!(holder.trim(), std::process::id().to_string());
        assert!(matches!(StateLock::take(folder.path()), Err(LockError::Busy(_))));
        drop(first);
        assert!(StateLock::take(folder.path()).is_ok());
    }
}
