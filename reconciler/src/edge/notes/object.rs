//! Objects of the journal: git's trees as bytes, and the short way to disk.
//!
//! An append writes five objects. libgit2 makes, links and unlinks a temporary file for each, and looks through all
//! packs before; a file without a name that is linked into place once costs a third of it, and a killed process
//! leaves nothing behind. The content is stored, not deflated: nearly all of it is object ids, and packing deflates.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use git2::{ObjectType, Oid, Repository};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// Mode of a note.
pub(super) const BLOB: u32 = 0o100_644;
/// Mode of a folder.
pub(super) const TREE: u32 = 0o040_000;

/// Writes an object and gives its id; one that is there is left.
pub(super) fn write(repo: &Repository, kind: ObjectType, data: &[u8]) -> Result<Oid, git2::Error> {
    let id = Oid::hash_object(kind, data)?;
    let hex = id.to_string();
    let (first, rest) = hex.split_at_checked(2).unwrap_or((&hex, ""));
    let folder = repo.path().join("objects").join(first);
    let path = folder.join(rest);
    if path.exists() || put(&folder, &path, &encoded(kind, data)).is_ok() {
        return Ok(id);
    }
    // A file system without nameless files: libgit2 knows a way, and says so if there is none.
    repo.odb()?.write(kind, data)
}

fn put(folder: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::RGRP | Mode::ROTH;
    let fd = match rustix::fs::open(folder, flags, mode) {
        Err(rustix::io::Errno::NOENT) => {
            std::fs::create_dir_all(folder)?;
            rustix::fs::open(folder, flags, mode)?
        }
        opened => opened?,
    };
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    let nameless = format!("/proc/self/fd/{}", file.as_raw_fd());
    match rustix::fs::linkat(CWD, nameless, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        // Somebody else wrote the same object meanwhile.
        Err(rustix::io::Errno::EXIST) => Ok(()),
        linked => Ok(linked?),
    }
}

/// A loose object: kind, length and content as a zlib stream (RFC 1950) of stored blocks (RFC 1951, 3.2.4).
fn encoded(kind: ObjectType, data: &[u8]) -> Vec<u8> {
    let mut plain = format!("{} {}\0", kind.str(), data.len()).into_bytes();
    plain.extend_from_slice(data);
    let mut out = Vec::with_capacity(plain.len() + 32);
    out.extend_from_slice(&[0x78, 0x01]);
    let mut rest = plain.as_slice();
    loop {
        let (block, after) = rest.split_at(rest.len().min(usize::from(u16::MAX)));
        let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
        out.push(u8::from(after.is_empty()));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(block);
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    let (mut a, mut b) = (1u32, 0u32);
    for byte in &plain {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    out.extend_from_slice(&(b << 16 | a).to_be_bytes());
    out
}

/// A tree object that is being changed. What else stands in it stays as it is.
#[derive(Default)]
pub(super) struct Folder {
    /// By git's order: a folder's name sorts as if it ended in `/`.
    entries: BTreeMap<Vec<u8>, (u32, Oid)>,
}

impl Folder {
    /// Reads a tree; without an id an empty one.
    pub(super) fn read(repo: &Repository, id: Option<Oid>) -> Result<Self, git2::Error> {
        let mut folder = Self::default();
        let Some(id) = id else { return Ok(folder) };
        let odb = repo.odb()?;
        let object = odb.read(id)?;
        let mut rest = object.data();
        while !rest.is_empty() {
            let Some((mode, name, id, after)) = entry(rest).filter(|_| object.kind() == ObjectType::Tree)
            else {
                return Err(git2::Error::new(
                    git2::ErrorCode::Invalid,
                    git2::ErrorClass::Tree,
                    format!("{id} is no tree"),
                ));
            };
            folder.set(name, mode, id);
            rest = after;
        }
        Ok(folder)
    }

    fn set(&mut self, name: &[u8], mode: u32, id: Oid) {
        self.entries.insert(key(name, mode), (mode, id));
    }

    /// The blob of this name.
    pub(super) fn blob(&self, name: &str) -> Option<Oid> {
        let entry = self.entries.get(name.as_bytes());
        entry
            .filter(|(mode, _)| mode & 0o170_000 == 0o100_000)
            .map(|(_, id)| *id)
    }

    /// The folder of this name.
    pub(super) fn folder(&self, name: &str) -> Option<Oid> {
        self.entries.get(&key(name.as_bytes(), TREE)).map(|(_, id)| *id)
    }

    /// How many blobs there are.
    pub(super) fn blobs(&self) -> usize {
        self.entries.values().filter(|(mode, _)| *mode != TREE).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Puts a note.
    pub(super) fn put_blob(&mut self, name: &str, id: Oid) {
        self.set(name.as_bytes(), BLOB, id);
    }

    /// Puts a folder; none removes it.
    pub(super) fn put_folder(&mut self, name: &str, id: Option<Oid>) {
        match id {
            Some(id) => self.set(name.as_bytes(), TREE, id),
            None => drop(self.entries.remove(&key(name.as_bytes(), TREE))),
        }
    }

    /// Removes a note; whether it was there.
    pub(super) fn remove_blob(&mut self, name: &str) -> bool {
        self.blob(name).is_some() && self.entries.remove(name.as_bytes()).is_some()
    }

    /// Writes the tree.
    pub(super) fn write(&self, repo: &Repository) -> Result<Oid, git2::Error> {
        let mut data = Vec::with_capacity(self.entries.len() * 32);
        for (key, (mode, id)) in &self.entries {
            let name = if *mode == TREE {
                key.strip_suffix(b"/").unwrap_or(key)
            } else {
                key
            };
            data.extend_from_slice(format!("{mode:o} ").as_bytes());
            data.extend_from_slice(name);
            data.push(0);
            data.extend_from_slice(id.as_bytes());
        }
        write(repo, ObjectType::Tree, &data)
    }
}

fn key(name: &[u8], mode: u32) -> Vec<u8> {
    let mut key = name.to_vec();
    if mode == TREE {
        key.push(b'/');
    }
    key
}

/// The first entry of a tree's bytes: mode, name, id, and the rest.
fn entry(bytes: &[u8]) -> Option<(u32, &[u8], Oid, &[u8])> {
    let space = bytes.iter().position(|b| *b == b' ')?;
    let mode = u32::from_str_radix(std::str::from_utf8(bytes.get(..space)?).ok()?, 8).ok()?;
    let rest = bytes.get(space + 1..)?;
    let end = rest.iter().position(|b| *b == 0)?;
    let (id, after) = rest.get(end + 1..)?.split_at_checked(20)?;
    Some((mode, rest.get(..end)?, Oid::from_bytes(id).ok()?, after))
}
