//! The machine's own disk.

use std::fs::File;
use std::io::{BufReader, Read, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, RawDir, RenameFlags, Uid, chownat, fchmod, fchown, fstat, fstatvfs,
    fsync, mkdirat, open, openat, readlinkat, renameat, renameat_with, statat, symlinkat, syncfs, unlinkat,
};
use rustix::io::Errno;

use super::super::failpoint::cut;
use super::{Disk, DiskError, NewFile, Owner, Sort, Space, Stat, Stream, check, walk};
use crate::pure::target_path::TargetPath;

/// A folder of the machine as a root.
#[derive(Debug)]
pub struct RealDisk {
    root: OwnedFd,
    path: PathBuf,
    uid: u32,
    gid: u32,
}

impl RealDisk {
    /// Opens a folder as a root.
    ///
    /// # Errors
    /// It is not there, or no folder.
    pub fn open(path: &Path) -> Result<Self, DiskError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(path, flags, Mode::empty())
            .map_err(|e| DiskError::new("open the folder", &path.display(), e))?;
        Ok(Self {
            root,
            path: path.to_owned(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        })
    }

    /// A regular file, opened to be read.
    fn regular(&self, path: &TargetPath) -> Result<File, DiskError> {
        let fault = |e: Errno| DiskError::new("read", path, e);
        // Without NONBLOCK an open of a pipe that somebody put here waits for ever.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(self.folder_of(path)?, path.file_name(), flags, Mode::empty()).map_err(fault)?;
        let stat = fstat(&file).map_err(fault)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(fault(Errno::INVAL));
        }
        Ok(File::from(file))
    }

    fn folder_of(&self, path: &TargetPath) -> Result<OwnedFd, DiskError> {
        let parent = path.parent();
        let components = parent.iter().flat_map(TargetPath::components);
        walk::open_folder(self.root.as_fd(), components, self.uid)
    }
}

/// Removes what stands under a name; what is on another file system is busy.
fn remove_all<N: rustix::path::Arg + Copy>(folder: &OwnedFd, name: N, device: u64) -> Result<(), Errno> {
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
    let mut buffer = Vec::with_capacity(8192);
    let mut entries = RawDir::new(&inside, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    for name in names {
        remove_all(&inside, name.as_c_str(), device)?;
    }
    unlinkat(folder, name, AtFlags::REMOVEDIR)
}

/// Gives a file its owner and mode.
fn give(file: &File, mode: u32, owner: Owner) -> std::io::Result<()> {
    let (uid, gid) = ids(owner);
    if uid.is_some() || gid.is_some() {
        fchown(file, uid, gid)?;
    }
    // After the owner: a change of owner takes setuid and setgid away.
    Ok(fchmod(file, raw_mode(mode))?)
}

fn raw_mode(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

fn ids(owner: Owner) -> (Option<Uid>, Option<Gid>) {
    (owner.uid.map(Uid::from_raw), owner.gid.map(Gid::from_raw))
}

impl Disk for RealDisk {
    fn stat(&self, path: &TargetPath) -> Result<Option<Stat>, DiskError> {
        let folder = match self.folder_of(path) {
            Ok(folder) => folder,
            Err(DiskError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let stat = match statat(&folder, path.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(DiskError::new("look at", path, e)),
        };
        Ok(Some(Stat {
            sort: match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Sort::File,
                FileType::Directory => Sort::Directory,
                FileType::Symlink => Sort::Link,
                _ => Sort::Other,
            },
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            device: stat.st_dev,
            modified_ns: (stat.st_mtime)
                .saturating_mul(1_000_000_000)
                .saturating_add_unsigned(stat.st_mtime_nsec),
        }))
    }

    fn way(&self, path: Option<&TargetPath>) -> Result<Vec<(u64, u64)>, DiskError> {
        let fault =
            |e: Errno| DiskError::new("look at the folders of", &path.map_or("/", TargetPath::as_str), e);
        let folder = |at: &OwnedFd, name| openat(at, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let mut here = match path {
            Some(path) => self.folder_of(path)?,
            None => folder(&self.root, ".").map_err(fault)?,
        };
        let mut way = Vec::new();
        loop {
            let stat = fstat(&here).map_err(fault)?;
            let id = (stat.st_dev, stat.st_ino);
            // Only above the machine's own root there is nothing else.
            if way.last() == Some(&id) {
                return Ok(way);
            }
            way.push(id);
            here = folder(&here, "..").map_err(fault)?;
        }
    }

    fn read(&self, path: &TargetPath) -> Result<Vec<u8>, DiskError> {
        let mut bytes = Vec::new();
        self.regular(path)?
            .read_to_end(&mut bytes)
            .map_err(|e| DiskError::new("read", path, e))?;
        Ok(bytes)
    }

    fn read_link(&self, path: &TargetPath) -> Result<String, DiskError> {
        let fault = |e: Errno| DiskError::new("read the link", path, e);
        let target = readlinkat(self.folder_of(path)?, path.file_name(), Vec::new()).map_err(fault)?;
        target.into_string().map_err(|_| fault(Errno::ILSEQ))
    }

    fn list(&self, folder: Option<&TargetPath>) -> Result<Vec<String>, DiskError> {
        let components = folder.into_iter().flat_map(TargetPath::components);
        let fd = walk::open_folder(self.root.as_fd(), components, self.uid)?;
        let shown = folder.map_or_else(|| "/".to_owned(), ToString::to_string);
        let mut buffer = Vec::with_capacity(8192);
        let mut entries = RawDir::new(fd, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|e| DiskError::new("list", &shown, e))?;
            let name = match entry.file_name().to_str() {
                Ok(name) => name.to_owned(),
                Err(_) => entry.file_name().to_bytes().escape_ascii().to_string(),
            };
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn space(&self, path: Option<&TargetPath>) -> Result<Space, DiskError> {
        // The nearest folder that is there: the path itself may still have to be made.
        let mut folder = path.and_then(TargetPath::parent);
        let fd = loop {
            let components = folder.iter().flat_map(TargetPath::components);
            match walk::open_folder(self.root.as_fd(), components, self.uid) {
                Err(DiskError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound && folder.is_some() =>
                {
                    folder = folder.as_ref().and_then(TargetPath::parent);
                }
                other => break other?,
            }
        };
        let fault = |e: Errno| DiskError::new("ask for the room at", &self.path.display(), e);
        let room = fstatvfs(&fd).map_err(fault)?;
        Ok(Space {
            file_system: fstat(&fd).map_err(fault)?.st_dev,
            free_bytes: room.f_bavail.saturating_mul(room.f_frsize),
            free_inodes: (room.f_files != 0).then_some(room.f_favail),
            block_bytes: room.f_frsize.max(1),
        })
    }

    fn own(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    fn create(&self, path: &TargetPath, file: &NewFile<'_>) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::create");
        let folder = self.folder_of(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&folder, path.file_name(), flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| DiskError::new("create", path, e))?;
        let mut out = File::from(fd);
        let written = (|| {
            out.write_all(file.bytes)?;
            cut("host::disk::written");
            give(&out, file.mode, file.owner)?;
            out.sync_all()
        })();
        written.map_err(|e| {
            let _removed = unlinkat(&folder, path.file_name(), AtFlags::empty());
            DiskError::new("write", path, e)
        })
    }

    fn open(&self, path: &TargetPath) -> Result<Box<dyn Stream>, DiskError> {
        Ok(Box::new(BufReader::new(self.regular(path)?)))
    }

    fn fill(
        &self,
        path: &TargetPath,
        from: &mut dyn Read,
        mode: u32,
        owner: Owner,
    ) -> Result<u64, DiskError> {
        cut("host::disk::act");
        cut("host::disk::fill");
        let folder = self.folder_of(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&folder, path.file_name(), flags, Mode::RUSR | Mode::WUSR)
            .map_err(|e| DiskError::new("create", path, e))?;
        let mut out = File::from(fd);
        let written = (|| {
            let written = std::io::copy(from, &mut out)?;
            give(&out, mode, owner)?;
            Ok(written)
        })();
        written.map_err(|e: std::io::Error| {
            let _removed = unlinkat(&folder, path.file_name(), AtFlags::empty());
            DiskError::new("write", path, e)
        })
    }

    fn append(&self, path: &TargetPath, bytes: &[u8]) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::append");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(
            self.folder_of(path)?,
            path.file_name(),
            flags,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(std::io::Error::from)
        .and_then(|fd| File::from(fd).write_all(bytes))
        .map_err(|e| DiskError::new("write", path, e))
    }

    fn sync_all(&self, path: &TargetPath) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::sync_all");
        syncfs(self.folder_of(path)?).map_err(|e| DiskError::new("sync the file system of", path, e))
    }

    fn symlink(&self, path: &TargetPath, target: &str, owner: Owner) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::symlink");
        let fault = |e: Errno| DiskError::new("make the link", path, e);
        let folder = self.folder_of(path)?;
        symlinkat(target, &folder, path.file_name()).map_err(fault)?;
        let (uid, gid) = ids(owner);
        if uid.is_some() || gid.is_some() {
            chownat(&folder, path.file_name(), uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(fault)?;
        }
        Ok(())
    }

    fn mkdir(&self, path: &TargetPath) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::mkdir");
        mkdirat(self.folder_of(path)?, path.file_name(), Mode::RWXU)
            .map_err(|e| DiskError::new("make the folder", path, e))
    }

    fn set_meta(&self, path: &TargetPath, mode: u32, owner: Owner) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::set_meta");
        let fault = |e: Errno| DiskError::new("set mode and owner of", path, e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(self.folder_of(path)?, path.file_name(), flags, Mode::empty()).map_err(fault)?;
        let (uid, gid) = ids(owner);
        if uid.is_some() || gid.is_some() {
            fchown(&fd, uid, gid).map_err(fault)?;
        }
        fchmod(&fd, raw_mode(mode)).map_err(fault)?;
        fsync(&fd).map_err(fault)
    }

    fn rename(&self, from: &TargetPath, to: &TargetPath) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::rename");
        let folder = self.folder_of(from)?;
        renameat(&folder, from.file_name(), &folder, to.file_name())
            .map_err(|e| DiskError::new("put in place", to, e))
    }

    fn rename_new(&self, from: &TargetPath, to: &TargetPath) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::rename_new");
        let folder = self.folder_of(from)?;
        renameat_with(
            &folder,
            from.file_name(),
            &folder,
            to.file_name(),
            RenameFlags::NOREPLACE,
        )
        .map_err(|e| DiskError::new("put in place", to, e))
    }

    fn unlink(&self, path: &TargetPath) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::unlink");
        unlinkat(self.folder_of(path)?, path.file_name(), AtFlags::empty())
            .map_err(|e| DiskError::new("remove", path, e))
    }

    fn rmdir(&self, path: &TargetPath) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::rmdir");
        unlinkat(self.folder_of(path)?, path.file_name(), AtFlags::REMOVEDIR)
            .map_err(|e| DiskError::new("remove the folder", path, e))
    }

    fn remove_all(&self, path: &TargetPath) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::remove_all");
        let folder = self.folder_of(path)?;
        let fault = |e: Errno| DiskError::new("remove", path, e);
        let device = fstat(&folder).map_err(fault)?.st_dev;
        remove_all(&folder, path.file_name(), device).map_err(fault)
    }

    fn sync_parent(&self, path: &TargetPath) -> Result<(), DiskError> {
        cut("host::disk::act");
        cut("host::disk::sync_parent");
        fsync(self.folder_of(path)?).map_err(|e| DiskError::new("sync the folder of", path, e))
    }

    fn check(&self, path: &TargetPath, command: &str) -> Result<(), DiskError> {
        let file = self.path.join(path.as_str().trim_start_matches('/'));
        check::run(&self.path, &file, command)
    }
}
