//! Files below a root, put and removed whole: the launcher's own way to the disk (HK-1, HR-14).
//!
//! Each step of the way to a folder opens one component and follows nothing; a link is walked inside the root, and
//! only when root or this program's user placed it. What stands at a path is the old or the new, never half.

use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RawDir, RenameFlags, Stat, Uid, chownat, fchmod, fchown, fstat,
    fsync, mkdirat, openat, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

/// As many links as a kernel follows before it calls them a loop.
const LINKS: usize = 40;
/// Beside a path, while its next content is made.
const BESIDE: &str = ".meshplan-revert.tmp";

/// A tree of files.
pub(super) struct Tree {
    root: OwnedFd,
}

/// Mode and owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Meta {
    fn of(stat: &Stat) -> Self {
        Self {
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
        }
    }
    fn owner(self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }
}

/// A path's folder, open, and its last component.
struct Place {
    folder: OwnedFd,
    name: String,
}

type Done<T> = Result<T, Errno>;

impl Tree {
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map(|root| Self { root })
            .map_err(|e| format!("cannot open {}: {e}", path.display()))
    }

    /// Nothing stands there: a file or a link goes, a folder when it is empty.
    pub(super) fn remove(&self, path: &str) -> Result<(), String> {
        self.at(path, |place| {
            match place.stat()? {
                None => return Ok(()),
                Some(stat) if is(&stat, FileType::Directory) => remove_folder(place)?,
                Some(_) => unlinkat(&place.folder, &place.name, AtFlags::empty())?,
            }
            fsync(&place.folder)
        })
        // Where the folder is not there, nothing stands in it.
        .or_else(|e| if e == Errno::NOENT { Ok(()) } else { Err(e) })
        .map_err(|e| format!("{path} cannot be removed: {e}"))
    }

    /// This file stands there.
    pub(super) fn put_file(&self, path: &str, bytes: &[u8], meta: Meta) -> Result<(), String> {
        self.at(path, |place| {
            let there = place.stat()?;
            if let Some(stat) = there
                && is(&stat, FileType::RegularFile)
                && Meta::of(&stat) == meta
                && place.read()? == bytes
            {
                return Ok(());
            }
            make(place, BESIDE, bytes, Some(meta))?;
            take_folder_away(place, there.as_ref())?;
            renameat(&place.folder, BESIDE, &place.folder, &place.name)?;
            fsync(&place.folder)
        })
        .map_err(|e| format!("{path} cannot be put back: {e}"))
    }

    /// This file stands there, if nothing stood there: of two who try, one succeeds.
    pub(super) fn put_first(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        // A name of its own: the other who tries may be another launcher.
        let beside = format!(".meshplan-revert-{}.tmp", std::process::id());
        let put = self.at(path, |place| {
            make(place, &beside, bytes, None)?;
            let (folder, new) = (&place.folder, RenameFlags::NOREPLACE);
            let put = renameat_with(folder, &beside, folder, &place.name, new);
            if put.is_err() {
                place.clear(&beside)?;
            }
            put?;
            fsync(&place.folder)
        });
        match put {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(e) => Err(format!("{path} cannot be written: {e}")),
        }
    }

    /// This link stands there.
    pub(super) fn put_link(&self, path: &str, target: &str, uid: u32, gid: u32) -> Result<(), String> {
        let meta = Meta { mode: 0, uid, gid };
        self.at(path, |place| {
            let there = place.stat()?;
            if let Some(stat) = there
                && is(&stat, FileType::Symlink)
                && Meta::of(&stat).owner() == meta.owner()
                && readlinkat(&place.folder, &place.name, Vec::new())?.to_bytes() == target.as_bytes()
            {
                return Ok(());
            }
            place.clear(BESIDE)?;
            symlinkat(target, &place.folder, BESIDE)?;
            let (uid, gid) = meta.owner();
            chownat(&place.folder, BESIDE, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
            take_folder_away(place, there.as_ref())?;
            renameat(&place.folder, BESIDE, &place.folder, &place.name)?;
            fsync(&place.folder)
        })
        .map_err(|e| format!("{path} cannot be put back: {e}"))
    }

    /// This folder stands there.
    pub(super) fn put_directory(&self, path: &str, meta: Meta) -> Result<(), String> {
        self.at(path, |place| {
            let there = place.stat()?;
            let folder = there.filter(|stat| is(stat, FileType::Directory));
            if folder.is_some_and(|stat| Meta::of(&stat) == meta) {
                return Ok(());
            }
            if folder.is_none() {
                if there.is_some() {
                    unlinkat(&place.folder, &place.name, AtFlags::empty())?;
                }
                mkdirat(&place.folder, &place.name, Mode::RWXU)?;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder = openat(&place.folder, &place.name, flags, Mode::empty())?;
            let (uid, gid) = meta.owner();
            fchown(&folder, uid, gid)?;
            fchmod(&folder, Mode::from_raw_mode(meta.mode))?;
            fsync(&folder)?;
            fsync(&place.folder)
        })
        .map_err(|e| format!("{path} cannot be put back: {e}"))
    }

    /// Nothing stands there, nor under the other name beside it: a folder goes with all that is in it.
    pub(super) fn remove_tree(&self, path: &str, made: &str) -> Result<(), String> {
        self.at(path, |place| {
            let device = fstat(&place.folder)?.st_dev;
            remove_all(&place.folder, plain(made)?, device)?;
            remove_all(&place.folder, &place.name, device)?;
            fsync(&place.folder)
        })
        .or_else(|e| if e == Errno::NOENT { Ok(()) } else { Err(e) })
        .map_err(|e| format!("{path} cannot be removed: {e}"))
    }

    /// Nothing stands under the other name beside it.
    pub(super) fn clear_tree(&self, path: &str, made: &str) -> Result<(), String> {
        self.at(path, |place| {
            remove_all(&place.folder, plain(made)?, fstat(&place.folder)?.st_dev)?;
            fsync(&place.folder)
        })
        .or_else(|e| if e == Errno::NOENT { Ok(()) } else { Err(e) })
        .map_err(|e| format!("{path} cannot be cleared: {e}"))
    }

    /// Whether something stands there.
    pub(super) fn stands(&self, path: &str) -> Result<bool, String> {
        match self.at(path, Place::stat) {
            Err(Errno::NOENT) => Ok(false),
            there => Ok(there
                .map_err(|e| format!("{path} cannot be looked at: {e}"))?
                .is_some()),
        }
    }

    /// The tree that was kept beside stands there again; one that is not kept never left, or is back.
    pub(super) fn put_tree(&self, path: &str, from: &str, made: &str) -> Result<(), String> {
        self.at(path, |place| {
            let device = fstat(&place.folder)?.st_dev;
            remove_all(&place.folder, plain(made)?, device)?;
            let from = plain(from)?;
            match statat(&place.folder, from, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => return Ok(()),
                kept => kept?,
            };
            remove_all(&place.folder, &place.name, device)?;
            renameat_with(
                &place.folder,
                from,
                &place.folder,
                &place.name,
                RenameFlags::NOREPLACE,
            )?;
            fsync(&place.folder)
        })
        .map_err(|e| format!("{path} cannot be put back: {e}"))
    }

    /// The bytes of a regular file.
    pub(super) fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        self.at(path, Place::read)
            .map_err(|e| format!("{path} cannot be read: {e}"))
    }

    fn at<T>(&self, path: &str, act: impl FnOnce(&Place) -> Done<T>) -> Done<T> {
        let (folder, name) = path.rsplit_once('/').ok_or(Errno::INVAL)?;
        if !path.starts_with('/') || matches!(name, "" | "." | "..") || path.contains('\0') {
            return Err(Errno::INVAL);
        }
        act(&Place {
            folder: self.folder(folder)?,
            name: name.to_owned(),
        })
    }

    /// The way to a folder.
    fn folder(&self, path: &str) -> Done<OwnedFd> {
        let own = rustix::process::geteuid().as_raw();
        let mut ahead: VecDeque<String> = path.split('/').map(str::to_owned).collect();
        let mut behind: Vec<OwnedFd> = Vec::new();
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
            let here = behind.last().unwrap_or(&self.root);
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = openat(here, component.as_str(), flags, Mode::empty())?;
            let stat = fstat(&next)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => behind.push(next),
                FileType::Symlink if (stat.st_uid == 0 || stat.st_uid == own) && links < LINKS => {
                    links += 1;
                    let target = readlinkat(&next, "", Vec::new())?;
                    let target = target.into_string().map_err(|_| Errno::ILSEQ)?;
                    if target.starts_with('/') {
                        behind.clear();
                    }
                    for part in target.split('/').rev() {
                        ahead.push_front(part.to_owned());
                    }
                }
                // Somebody else's, or one of a loop.
                FileType::Symlink => return Err(Errno::LOOP),
                _ => return Err(Errno::NOTDIR),
            }
        }
        let here = behind.last().unwrap_or(&self.root);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(here.as_fd(), ".", flags, Mode::empty())
    }
}

impl Place {
    fn stat(&self) -> Done<Option<Stat>> {
        match statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn read(&self) -> Done<Vec<u8>> {
        // Without NONBLOCK an open of a pipe that somebody put here waits for ever.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.folder, &self.name, flags, Mode::empty())?;
        if !is(&fstat(&file)?, FileType::RegularFile) {
            return Err(Errno::INVAL);
        }
        let mut bytes = Vec::new();
        File::from(file).read_to_end(&mut bytes).map_err(errno)?;
        Ok(bytes)
    }

    /// Removes what a cut left beside the path.
    fn clear(&self, beside: &str) -> Done<()> {
        match unlinkat(&self.folder, beside, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }
}

fn is(stat: &Stat, sort: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == sort
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Makes the next content beside a path, synced; without mode and owner it is for this program's user alone.
fn make(place: &Place, beside: &str, bytes: &[u8], meta: Option<Meta>) -> Done<()> {
    place.clear(beside)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(&place.folder, beside, flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = File::from(made);
    file.write_all(bytes).map_err(errno)?;
    if let Some(meta) = meta {
        let (uid, gid) = meta.owner();
        // The owner first: a change of owner takes setuid and setgid away.
        fchown(&file, uid, gid)?;
        fchmod(&file, Mode::from_raw_mode(meta.mode))?;
    }
    file.sync_all().map_err(errno)
}

/// A folder cannot be renamed over by what is none.
fn take_folder_away(place: &Place, there: Option<&Stat>) -> Done<()> {
    match there {
        Some(stat) if is(stat, FileType::Directory) => remove_folder(place),
        _ => Ok(()),
    }
}

/// A name in a folder, and nothing else.
fn plain(name: &str) -> Done<&str> {
    match name {
        "" | "." | ".." => Err(Errno::INVAL),
        name if name.contains(['/', '\0']) => Err(Errno::INVAL),
        name => Ok(name),
    }
}

/// Removes what stands under a name, a folder with all that is in it; nothing is fine. No link is followed, and what is
/// mounted in it is busy.
fn remove_all<N: rustix::path::Arg + Copy>(folder: &OwnedFd, name: N, device: u64) -> Done<()> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR) => {}
        other => return other,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = openat(folder, name, flags, Mode::empty())?;
    if fstat(&inside)?.st_dev != device {
        return Err(Errno::BUSY);
    }
    for name in names(&inside)? {
        remove_all(&inside, name.as_c_str(), device)?;
    }
    unlinkat(folder, name, AtFlags::REMOVEDIR)
}

/// The names in a folder.
fn names(folder: &OwnedFd) -> Done<Vec<CString>> {
    let mut buffer = Vec::with_capacity(8192);
    let mut entries = RawDir::new(folder, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    Ok(names)
}

/// Removes a folder in which nothing is but what a cut left of the host's own writing.
fn remove_folder(place: &Place) -> Done<()> {
    let first = unlinkat(&place.folder, &place.name, AtFlags::REMOVEDIR);
    if first != Err(Errno::NOTEMPTY) {
        return first;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = openat(&place.folder, &place.name, flags, Mode::empty())?;
    let left = names(&folder)?;
    let ours =
        |name: &CString| name.to_bytes().starts_with(b".meshplan-") && name.to_bytes().ends_with(b".tmp");
    if !left.iter().all(ours) {
        return first;
    }
    for name in left {
        unlinkat(&folder, name, AtFlags::empty())?;
    }
    unlinkat(&place.folder, &place.name, AtFlags::REMOVEDIR)
}
