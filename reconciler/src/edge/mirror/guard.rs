//! Who has the mirror: an OS lock between processes, and what parts of one process agree on.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Another process has the mirror, or its lock cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("the mirror {} is in use by another process (its lock {} was not free within {} s); is a second `meshplan serve` running? {why}", path.display(), lock.display(), waited.as_secs())]
pub struct BusyError {
    /// The mirror.
    pub path: PathBuf,
    /// The lock file; removing it helps nobody.
    pub lock: PathBuf,
    /// How long it was waited for.
    pub waited: Duration,
    /// What the system said, empty when the lock was merely held.
    pub why: String,
}

/// Held as long as the mirror is open. The kernel lets go when the process dies, however it dies.
pub(crate) struct Guard {
    _file: File,
    /// Counts how often the repository was replaced; written while it happens.
    generation: RwLock<u64>,
    packing: Mutex<()>,
    /// Why the next fetch makes a fresh copy; whoever stumbles over damage writes it here.
    damage: Mutex<Option<String>>,
}

/// Whether an error of git means that objects are missing or broken.
pub(crate) fn is_damage(error: &git2::Error) -> bool {
    use git2::ErrorClass as Class;
    matches!(
        error.class(),
        Class::Odb | Class::Zlib | Class::Object | Class::Tree
    )
}

impl Guard {
    pub(super) fn take(mirror: &Path, wait: Duration) -> Result<Self, BusyError> {
        let lock = super::health::beside(mirror, "guard");
        let refuse = |why: String| BusyError {
            path: mirror.to_owned(),
            lock: lock.clone(),
            waited: wait,
            why,
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock)
            .map_err(|e| refuse(e.to_string()))?;
        let deadline = Instant::now() + wait;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(TryLockError::WouldBlock) => return Err(refuse(String::new())),
                Err(TryLockError::Error(e)) => return Err(refuse(e.to_string())),
            }
        }
        Ok(Self {
            _file: file,
            generation: RwLock::new(0),
            packing: Mutex::new(()),
            damage: Mutex::new(None),
        })
    }

    /// For as long as this is held, the repository is not replaced; the number says whether it has been.
    pub(crate) fn using(&self) -> RwLockReadGuard<'_, u64> {
        self.generation.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that the mirror is damaged.
    pub(crate) fn report(&self, why: &str) {
        let mut damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        damage.get_or_insert_with(|| why.to_owned());
    }

    pub(super) fn damage(&self) -> Option<String> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn repaired(&self) {
        *self.damage.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub(super) fn swapping(&self) -> RwLockWriteGuard<'_, u64> {
        self.generation.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `work` unless another thread is at it.
    pub(super) fn packing(&self, work: impl FnOnce()) {
        if let Ok(_held) = self.packing.try_lock() {
            work();
        }
    }
}

/// Does `work` again while a live stranger holds one of git's lock files, until the deadline. Ours are gone since the
/// mirror was opened, so one that is there now belongs to a git that somebody runs in it.
pub(crate) fn patiently<T>(
    wait: Duration,
    mut work: impl FnMut() -> Result<T, git2::Error>,
) -> Result<T, git2::Error> {
    let deadline = Instant::now() + wait;
    loop {
        match work() {
            Err(e) if e.code() == git2::ErrorCode::Locked && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}
