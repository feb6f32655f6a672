//! Objects of the journal: git's trees as bytes, and the short way to disk.
//!
//! An append writes five objects. libgit2 makes, links and unlinks a temporary file for each, and looks through all
//! packs before; a file without a name that is linked into place once costs a third of it, and a killed process
//! leaves nothing behind. The content is stored, not deflated: nearly all of it is object ids, and packing deflates.
//!
//! The folders above a note are what grows with history, up to 256 entries each. So they are never taken apart: a
//! [`Folder`] is the tree's own bytes, changed in place, and the ones that an append has written are what the next one
//! reads ([`Recent`]).

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;

use git2::{ObjectType, Oid, Repository};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

/// Mode of a note.
const BLOB: u32 = 0o100_644;
/// Mode of a folder.
const TREE: u32 = 0o040_000;

/// Bytes of an id.
const ID: usize = 20;

/// Folders kept in memory: the root, and those of a few commits that are written to at the same time.
const RECENT: usize = 16;

/// Folders that were read or written lately, by their id, so never stale; some 8 KiB each.
#[derive(Default)]
pub(super) struct Recent(RefCell<BTreeMap<Oid, Arc<[u8]>>>);

impl Recent {
    fn put(&self, id: Oid, data: &[u8]) {
        let mut kept = self.0.borrow_mut();
        if kept.len() >= RECENT {
            kept.clear();
        }
        kept.insert(id, data.into());
    }
}

/// The objects of a repository.
#[derive(Clone, Copy)]
pub(super) struct Objects<'r> {
    pub(super) repo: &'r Repository,
    pub(super) recent: &'r Recent,
}

impl Objects<'_> {
    /// Reads a tree; without an id an empty one.
    pub(super) fn folder(&self, id: Option<Oid>) -> Result<Folder, git2::Error> {
        let Some(id) = id else {
            return Ok(Folder::default());
        };
        if let Some(data) = self.recent.0.borrow().get(&id) {
            return Ok(Folder { data: data.to_vec() });
        }
        let odb = self.repo.odb()?;
        let object = odb.read(id)?;
        let folder = Some(object.data())
            .filter(|_| object.kind() == ObjectType::Tree)
            .and_then(Folder::parse)
            .ok_or_else(|| {
                let why = format!("{id} is no tree");
                git2::Error::new(git2::ErrorCode::Invalid, git2::ErrorClass::Tree, why)
            })?;
        self.recent.put(id, &folder.data);
        Ok(folder)
    }

    /// Writes a tree.
    pub(super) fn write_folder(&self, folder: &Folder) -> Result<Oid, git2::Error> {
        let id = self.write(ObjectType::Tree, &folder.data)?;
        self.recent.put(id, &folder.data);
        Ok(id)
    }

    /// Writes an object and gives its id; one that is there is left.
    pub(super) fn write(&self, kind: ObjectType, data: &[u8]) -> Result<Oid, git2::Error> {
        let id = Oid::hash_object(kind, data)?;
        let hex = id.to_string();
        let (first, rest) = hex.split_at_checked(2).unwrap_or((&hex, ""));
        let folder = self.repo.path().join("objects").join(first);
        let path = folder.join(rest);
        if path.exists() || put(&folder, &path, &encoded(kind, data)).is_ok() {
            return Ok(id);
        }
        // A file system without nameless files: libgit2 knows a way, and says so if there is none.
        self.repo.odb()?.write(kind, data)
    }
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
    out.extend_from_slice(&adler32(&plain).to_be_bytes());
    out
}

/// The checksum of a zlib stream (RFC 1950, 8.2). Of this many bytes the sums cannot overflow before they are reduced.
fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for part in bytes.chunks(5_552) {
        for byte in part {
            a += u32::from(*byte);
            b += a;
        }
        a %= 65_521;
        b %= 65_521;
    }
    b << 16 | a
}

/// An entry of a tree.
#[derive(Clone, Copy)]
pub(super) struct Entry<'f> {
    mode: u32,
    /// Its name; by rule no slash is in it.
    pub(super) name: &'f [u8],
    /// What it names.
    pub(super) id: Oid,
}

impl Entry<'_> {
    /// Whether it is a folder.
    pub(super) fn is_folder(&self) -> bool {
        self.mode == TREE
    }

    /// Whether it is a file, whoever may run it.
    pub(super) fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    fn order(&self, other: &Entry<'_>) -> Ordering {
        key(self.name, self.mode).cmp(key(other.name, other.mode))
    }

    /// The first entry of a tree's bytes, and the rest.
    fn first(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
        let space = bytes.iter().position(|b| *b == b' ')?;
        let mode = u32::from_str_radix(std::str::from_utf8(bytes.get(..space)?).ok()?, 8).ok()?;
        let rest = bytes.get(space + 1..)?;
        let end = rest.iter().position(|b| *b == 0)?;
        let (id, after) = rest.get(end + 1..)?.split_at_checked(ID)?;
        let (name, id) = (rest.get(..end)?, Oid::from_bytes(id).ok()?);
        Some((Entry { mode, name, id }, after))
    }

    fn write_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{:o} ", self.mode).as_bytes());
        out.extend_from_slice(self.name);
        out.push(0);
        out.extend_from_slice(self.id.as_bytes());
    }
}

/// A tree object that is being changed, as its bytes: whole entries in git's order. What else stands in it stays as it is.
#[derive(Default)]
pub(super) struct Folder {
    data: Vec<u8>,
}

impl Folder {
    /// None when it is no tree. Entries that somebody wrote out of order, or twice, are put in order, once.
    fn parse(data: &[u8]) -> Option<Self> {
        let (mut entries, mut rest) = (Vec::new(), data);
        while !rest.is_empty() {
            let (entry, after) = Entry::first(rest)?;
            entries.push(entry);
            rest = after;
        }
        if entries.is_sorted_by(|a, b| a.order(b) == Ordering::Less) {
            return Some(Self { data: data.to_vec() });
        }
        entries.sort_by(Entry::order);
        entries.dedup_by(|a, b| a.order(b) == Ordering::Equal);
        let mut folder = Self::default();
        for entry in entries {
            entry.write_to(&mut folder.data);
        }
        Some(folder)
    }

    /// What stands in it, in git's order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut rest = self.data.as_slice();
        std::iter::from_fn(move || {
            let (entry, after) = Entry::first(rest)?;
            rest = after;
            Some(entry)
        })
    }

    /// The bytes of an entry, and the entry; where it would be put when there is none.
    fn place(&self, name: &[u8], mode: u32) -> (Range<usize>, Option<Entry<'_>>) {
        let mut rest = self.data.as_slice();
        while let Some((entry, after)) = Entry::first(rest) {
            let (from, to) = (self.data.len() - rest.len(), self.data.len() - after.len());
            match key(entry.name, entry.mode).cmp(key(name, mode)) {
                Ordering::Less => rest = after,
                Ordering::Equal => return (from..to, Some(entry)),
                Ordering::Greater => return (from..from, None),
            }
        }
        (self.data.len()..self.data.len(), None)
    }

    fn put(&mut self, name: &str, mode: u32, id: Oid) {
        let name = name.as_bytes();
        let mut bytes = Vec::new();
        Entry { mode, name, id }.write_to(&mut bytes);
        let (place, _) = self.place(name, mode);
        self.data.splice(place, bytes);
    }

    fn remove(&mut self, name: &str, mode: u32) {
        let (place, _) = self.place(name.as_bytes(), mode);
        self.data.drain(place);
    }

    /// The blob of this name.
    pub(super) fn blob(&self, name: &str) -> Option<Oid> {
        let (_, entry) = self.place(name.as_bytes(), BLOB);
        entry.filter(Entry::is_file).map(|entry| entry.id)
    }

    /// The folder of this name.
    pub(super) fn folder(&self, name: &str) -> Option<Oid> {
        let (_, entry) = self.place(name.as_bytes(), TREE);
        entry.map(|entry| entry.id)
    }

    /// How many things stand in it that are no folders.
    pub(super) fn blobs(&self) -> usize {
        self.entries().filter(|entry| !entry.is_folder()).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Puts a note.
    pub(super) fn put_blob(&mut self, name: &str, id: Oid) {
        self.put(name, BLOB, id);
    }

    /// Puts a folder; none removes it.
    pub(super) fn put_folder(&mut self, name: &str, id: Option<Oid>) {
        match id {
            Some(id) => self.put(name, TREE, id),
            None => self.remove(name, TREE),
        }
    }

    /// Removes a note, if it is there.
    pub(super) fn remove_blob(&mut self, name: &str) {
        if self.blob(name).is_some() {
            self.remove(name, BLOB);
        }
    }
}

/// git's order: a folder's name sorts as if it ended in `/`.
fn key(name: &[u8], mode: u32) -> impl Iterator<Item = &u8> {
    name.iter().chain((mode == TREE).then_some(&b'/'))
}
