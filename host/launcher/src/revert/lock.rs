//! The lock on the state folder, and what is done about a host that holds it and does not decide.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::LOOK_EVERY;
use crate::say;

/// The held lock; the end of the process gives it back.
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes it; none while another program has it.
    pub(super) fn take(state: &Path) -> Result<Option<Self>, String> {
        let file = lock_file(state)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(format!("cannot lock {}: {e}", state.display())),
        }
    }
}

fn lock_file(state: &Path) -> Result<File, String> {
    let path = state.join("lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    open(&path, flags, Mode::RUSR | Mode::WUSR)
        .map(File::from)
        .map_err(|e| format!("cannot open {}: {e}", path.display()))
}

/// Ends whoever holds the lock, with all that it has started, and takes it.
pub(super) fn take_from_holder(state: &Path, patience: Duration) -> Result<Lock, String> {
    let until = Instant::now() + patience;
    loop {
        if let Some(lock) = Lock::take(state)? {
            return Ok(lock);
        }
        // Anew each time: the launcher starts the host again.
        if let Some(holder) = holder(state)? {
            say(&format!(
                "process {holder} works on the window past its time; it is ended"
            ));
            let mut all = vec![holder];
            let mut at = 0;
            while let Some(pid) = all.get(at).copied() {
                all.extend(children(pid));
                at += 1;
            }
            for pid in all
                .into_iter()
                .filter_map(|pid| i32::try_from(pid).ok())
                .filter_map(Pid::from_raw)
            {
                // It may have ended by itself.
                let _ended = kill_process(pid, Signal::KILL);
            }
        }
        if Instant::now() >= until {
            return Err(format!(
                "another program holds {} and cannot be ended; it must stand down, for the window goes back",
                state.join("lock").display()
            ));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The process that has written its number into the lock, when it has the lock's file open.
fn holder(state: &Path) -> Result<Option<u32>, String> {
    let mut file = lock_file(state)?;
    let fault = |e: std::io::Error| format!("cannot read {}: {e}", state.join("lock").display());
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(fault)?;
    let own = file.metadata().map_err(fault)?;
    let Ok(pid) = text.trim().parse::<u32>() else {
        return Ok(None);
    };
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let mut open = open.filter_map(|fd| std::fs::metadata(fd.path()).ok());
    let has_it = open.any(|file| (file.dev(), file.ino()) == (own.dev(), own.ino()));
    Ok((has_it && pid != std::process::id()).then_some(pid))
}

fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let mut all = Vec::new();
    for list in lists {
        all.extend(
            list.split_whitespace()
                .filter_map(|child| child.parse::<u32>().ok()),
        );
    }
    all
}
