//! A disk in memory that remembers every act, and can say what a power cut at any of them may leave.
//!
//! What it models: bytes and mode of a file are lost until the file is synced; a name made, renamed or removed is
//! lost until its folder is synced; each of these independently of the others, as POSIX promises no more. A rename
//! is one act. Bytes may also be cut in half.

mod cuts;
mod tree;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Disk, DiskError, NewFile, Owner, Sort, Space, Stat, Stream};

use crate::pure::target_path::TargetPath;
use tree::{Node, Op, Tree};

/// What the host runs as, in memory.
const OWN: (u32, u32) = (1000, 1000);
/// A tree in memory; clones share it.
#[derive(Debug, Clone)]
pub struct SimDisk {
    sim: Arc<Mutex<Sim>>,
    base: Vec<String>,
}

#[derive(Debug, Clone)]
struct Sim {
    tree: Tree,
    before: Tree,
    log: Vec<Op>,
    forbidden: Vec<String>,
    space: Space,
    /// So many blocks are still free.
    left: Option<usize>,
}

impl Default for SimDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl SimDisk {
    /// An empty tree with plenty of room.
    #[must_use]
    pub fn new() -> Self {
        let space = Space {
            file_system: 1,
            free_bytes: 1 << 40,
            free_inodes: Some(1 << 20),
            block_bytes: 4096,
        };
        let tree = Tree::new();
        let sim = Sim {
            before: tree.clone(),
            tree,
            log: Vec::new(),
            forbidden: Vec::new(),
            space,
            left: None,
        };
        Self {
            sim: Arc::new(Mutex::new(sim)),
            base: Vec::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sim> {
        self.sim.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same tree with a folder of it as the root; the folder is made when it is not there.
    #[must_use]
    pub fn at(&self, path: &TargetPath) -> Self {
        let mut base = self.base.clone();
        for name in path.components() {
            base.push(name.to_owned());
            let mut sim = self.lock();
            if sim.tree.walk(&base).is_err() {
                let node = Node::Directory {
                    names: BTreeMap::new(),
                    mode: 0o755,
                    uid: OWN.0,
                    gid: OWN.1,
                };
                sim.make(&base, node);
            }
        }
        Self {
            sim: Arc::clone(&self.sim),
            base,
        }
    }

    /// Puts a file there as somebody else would, synced.
    pub fn plant(&self, path: &TargetPath, bytes: &[u8], mode: u32) {
        let node = Node::File {
            bytes: bytes.into(),
            mode,
            uid: OWN.0,
            gid: OWN.1,
        };
        if let Some(parent) = path.parent() {
            let _there = self.at(&parent);
        }
        let mut sim = self.lock();
        sim.make(&self.full(path), node);
    }

    /// From here on the acts are remembered: what was done before is on the disk.
    pub fn begin(&self) {
        let mut sim = self.lock();
        sim.before = sim.tree.clone();
        sim.log.clear();
    }

    /// How many acts were remembered.
    #[must_use]
    pub fn acts(&self) -> usize {
        self.lock().log.len()
    }

    /// From here on every act on this path, or below it, is refused.
    pub fn forbid(&self, path: &TargetPath) {
        let full = self.full(path).join("/");
        self.lock().forbidden.push(full);
    }

    /// What was forbidden is allowed again.
    pub fn permit(&self) {
        self.lock().forbidden.clear();
    }

    /// Sets the room that is left.
    pub fn set_space(&self, free_bytes: u64, free_inodes: Option<u64>) {
        let mut sim = self.lock();
        sim.space.free_bytes = free_bytes;
        sim.space.free_inodes = free_inodes;
    }

    /// From here on the disk is full once so many more blocks are taken: a thing takes at least one.
    pub fn full_after(&self, blocks: usize) {
        self.lock().left = Some(blocks);
    }

    /// Everything that stands there, as words by path.
    #[must_use]
    pub fn show(&self) -> BTreeMap<String, String> {
        let sim = self.lock();
        let mut out = BTreeMap::new();
        if let Ok(ino) = sim.tree.walk(&self.base) {
            sim.tree.show(ino, "", &mut out);
        }
        out
    }

    fn full(&self, path: &TargetPath) -> Vec<String> {
        self.base
            .iter()
            .cloned()
            .chain(path.components().map(str::to_owned))
            .collect()
    }

    fn allowed(&self, sim: &Sim, act: &'static str, path: &TargetPath) -> Result<(), DiskError> {
        let full = self.full(path).join("/");
        let barred = sim.forbidden.iter().any(|f| {
            full.strip_prefix(f.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if barred {
            return Err(fault(act, path, io::ErrorKind::PermissionDenied));
        }
        Ok(())
    }

    fn folder(&self, sim: &Sim, act: &'static str, path: &TargetPath) -> Result<u64, DiskError> {
        let mut full = self.full(path);
        full.pop();
        let ino = sim.tree.walk(&full).map_err(|kind| fault(act, path, kind))?;
        match sim.tree.names(ino) {
            Some(_) => Ok(ino),
            None => Err(fault(act, path, io::ErrorKind::NotADirectory)),
        }
    }

    fn named(&self, sim: &Sim, act: &'static str, path: &TargetPath) -> Result<(u64, u64), DiskError> {
        let folder = self.folder(sim, act, path)?;
        let ino = sim
            .tree
            .names(folder)
            .and_then(|n| n.get(path.file_name()))
            .copied();
        ino.map(|ino| (folder, ino))
            .ok_or_else(|| fault(act, path, io::ErrorKind::NotFound))
    }
}

fn fault(act: &'static str, path: &TargetPath, kind: io::ErrorKind) -> DiskError {
    DiskError::new(act, path, kind)
}

fn blocks(node: Option<&Node>) -> usize {
    match node {
        Some(Node::File { bytes, .. }) => bytes.len().div_ceil(4096).max(1),
        Some(_) => 1,
        None => 0,
    }
}

impl Sim {
    fn take(&mut self, act: &'static str, path: &TargetPath, blocks: usize) -> Result<(), DiskError> {
        if let Some(left) = self.left {
            let left = left.checked_sub(blocks);
            self.left = Some(left.ok_or_else(|| fault(act, path, io::ErrorKind::StorageFull))?);
        }
        Ok(())
    }
    fn give(&mut self, ino: u64) {
        let blocks = blocks(self.tree.nodes.get(&ino));
        self.left = self.left.map(|left| left + blocks);
    }
    fn act(&mut self, op: Op) {
        self.tree.apply(&op);
        self.log.push(op);
    }
    fn next_ino(&self) -> u64 {
        self.tree.nodes.keys().next_back().map_or(0, |last| last + 1)
    }
    /// Puts a node at a path without remembering it.
    fn make(&mut self, full: &[String], node: Node) {
        let ino = self.next_ino();
        self.tree.nodes.insert(ino, node);
        if let Some((name, folder)) = full.split_last()
            && let Ok(folder) = self.tree.walk(folder)
        {
            self.tree.apply(&Op::Names {
                folder,
                gone: None,
                new: Some((name.clone(), ino)),
            });
        }
        self.before = self.tree.clone();
    }
    fn make_file(&mut self, folder: u64, path: &TargetPath, file: &NewFile<'_>) {
        let node = Node::File {
            bytes: Arc::from([]),
            mode: 0o600,
            uid: OWN.0,
            gid: OWN.1,
        };
        let ino = self.make_named(folder, path.file_name(), node);
        self.act(Op::Bytes {
            ino,
            bytes: file.bytes.into(),
        });
        self.act(Op::Meta {
            ino,
            mode: file.mode,
            owner: file.owner,
        });
        self.act(Op::Sync { ino });
    }
    fn make_named(&mut self, folder: u64, name: &str, node: Node) -> u64 {
        let ino = self.next_ino();
        self.act(Op::Make { ino, node });
        self.act(Op::Names {
            folder,
            gone: None,
            new: Some((name.to_owned(), ino)),
        });
        ino
    }
}

impl Disk for SimDisk {
    fn stat(&self, path: &TargetPath) -> Result<Option<Stat>, DiskError> {
        let sim = self.lock();
        let ino = match sim.tree.walk(&self.full(path)) {
            Ok(ino) => ino,
            Err(io::ErrorKind::NotFound) => return Ok(None),
            Err(kind) => return Err(fault("look at", path, kind)),
        };
        Ok(sim.tree.nodes.get(&ino).map(Node::stat))
    }

    fn way(&self, path: Option<&TargetPath>) -> Result<Vec<(u64, u64)>, DiskError> {
        let sim = self.lock();
        let mut full = path.map_or_else(|| self.base.clone(), |path| self.full(path));
        if path.is_some() {
            full.pop();
        }
        let mut way = Vec::new();
        loop {
            let shown = full.join("/");
            let ino = sim
                .tree
                .walk(&full)
                .map_err(|kind| DiskError::new("look at the folders of", &shown, kind))?;
            way.push((1, ino));
            if full.pop().is_none() {
                return Ok(way);
            }
        }
    }

    fn read(&self, path: &TargetPath) -> Result<Vec<u8>, DiskError> {
        let sim = self.lock();
        let (_, ino) = self.named(&sim, "read", path)?;
        match sim.tree.nodes.get(&ino) {
            Some(Node::File { bytes, .. }) => Ok(bytes.to_vec()),
            _ => Err(fault("read", path, io::ErrorKind::InvalidInput)),
        }
    }

    fn read_link(&self, path: &TargetPath) -> Result<String, DiskError> {
        let sim = self.lock();
        let (_, ino) = self.named(&sim, "read the link", path)?;
        match sim.tree.nodes.get(&ino) {
            Some(Node::Link { target, .. }) => Ok(target.clone()),
            _ => Err(fault("read the link", path, io::ErrorKind::InvalidInput)),
        }
    }

    fn list(&self, folder: Option<&TargetPath>) -> Result<Vec<String>, DiskError> {
        let sim = self.lock();
        let full = folder.map_or_else(|| self.base.clone(), |path| self.full(path));
        let names = sim.tree.walk(&full).map(|ino| sim.tree.names(ino));
        match names {
            Ok(Some(names)) => Ok(names.keys().cloned().collect()),
            Ok(None) => Err(DiskError::new(
                "list",
                &full.join("/"),
                io::ErrorKind::NotADirectory,
            )),
            Err(kind) => Err(DiskError::new("list", &full.join("/"), kind)),
        }
    }

    fn space(&self, _path: Option<&TargetPath>) -> Result<Space, DiskError> {
        Ok(self.lock().space)
    }

    fn own(&self) -> (u32, u32) {
        OWN
    }

    fn create(&self, path: &TargetPath, file: &NewFile<'_>) -> Result<(), DiskError> {
        let mut sim = self.lock();
        self.allowed(&sim, "create", path)?;
        let folder = self.folder(&sim, "create", path)?;
        sim.take("create", path, file.bytes.len().div_ceil(4096).max(1))?;
        if sim
            .tree
            .names(folder)
            .is_some_and(|n| n.contains_key(path.file_name()))
        {
            return Err(fault("create", path, io::ErrorKind::AlreadyExists));
        }
        sim.make_file(folder, path, file);
        Ok(())
    }

    fn open(&self, path: &TargetPath) -> Result<Box<dyn Stream>, DiskError> {
        Ok(Box::new(io::Cursor::new(self.read(path)?)))
    }

    fn fill(
        &self,
        path: &TargetPath,
        from: &mut dyn Read,
        mode: u32,
        owner: Owner,
    ) -> Result<u64, DiskError> {
        let mut bytes = Vec::new();
        let written = from.read_to_end(&mut bytes);
        written.map_err(|e| DiskError::new("write", path, e))?;
        self.create(
            path,
            &NewFile {
                bytes: &bytes,
                mode,
                owner,
            },
        )?;
        // Made as `create` makes it, but for the sync.
        self.lock().log.pop();
        Ok(bytes.len() as u64)
    }

    fn append(&self, path: &TargetPath, bytes: &[u8]) -> Result<(), DiskError> {
        let Some(_) = self.stat(path)? else {
            return self.fill(path, &mut &*bytes, 0o600, Owner::default()).map(|_| ());
        };
        let whole: Vec<u8> = self
            .read(path)?
            .into_iter()
            .chain(bytes.iter().copied())
            .collect();
        let mut sim = self.lock();
        self.allowed(&sim, "write", path)?;
        let (_, ino) = self.named(&sim, "write", path)?;
        sim.take("write", path, bytes.len().div_ceil(4096))?;
        sim.act(Op::Bytes {
            ino,
            bytes: whole.into(),
        });
        Ok(())
    }

    fn sync_all(&self, _path: &TargetPath) -> Result<(), DiskError> {
        let mut sim = self.lock();
        sim.act(Op::SyncAll);
        Ok(())
    }

    fn symlink(&self, path: &TargetPath, target: &str, owner: Owner) -> Result<(), DiskError> {
        let mut sim = self.lock();
        self.allowed(&sim, "make the link", path)?;
        let folder = self.folder(&sim, "make the link", path)?;
        sim.take("make the link", path, 1)?;
        if sim
            .tree
            .names(folder)
            .is_some_and(|n| n.contains_key(path.file_name()))
        {
            return Err(fault("make the link", path, io::ErrorKind::AlreadyExists));
        }
        let (uid, gid) = (owner.uid.unwrap_or(OWN.0), owner.gid.unwrap_or(OWN.1));
        sim.make_named(
            folder,
            path.file_name(),
            Node::Link {
                target: target.to_owned(),
                uid,
                gid,
            },
        );
        Ok(())
    }

    fn mkdir(&self, path: &TargetPath) -> Result<(), DiskError> {
        let mut sim = self.lock();
        self.allowed(&sim, "make the folder", path)?;
        let folder = self.folder(&sim, "make the folder", path)?;
        sim.take("make the folder", path, 1)?;
        if sim
            .tree
            .names(folder)
            .is_some_and(|n| n.contains_key(path.file_name()))
        {
            return Err(fault("make the folder", path, io::ErrorKind::AlreadyExists));
        }
        let node = Node::Directory {
            names: BTreeMap::new(),
            mode: 0o700,
            uid: OWN.0,
            gid: OWN.1,
        };
        sim.make_named(folder, path.file_name(), node);
        Ok(())
    }

    fn set_meta(&self, path: &TargetPath, mode: u32, owner: Owner) -> Result<(), DiskError> {
        let mut sim = self.lock();
        self.allowed(&sim, "set mode and owner of", path)?;
        let (_, ino) = self.named(&sim, "set mode and owner of", path)?;
        if sim.tree.names(ino).is_none() {
            return Err(fault("set mode and owner of", path, io::ErrorKind::NotADirectory));
        }
        sim.act(Op::Meta { ino, mode, owner });
        sim.act(Op::Sync { ino });
        Ok(())
    }

    fn rename(&self, from: &TargetPath, to: &TargetPath) -> Result<(), DiskError> {
        let mut sim = self.lock();
        self.allowed(&sim, "put in place", to)?;
        let (folder, ino) = self.named(&sim, "put in place", from)?;
        if let Ok((_, there)) = self.named(&sim, "put in place", to)
            && sim.tree.names(there).is_some()
        {
            return Err(fault("put in place", to, io::ErrorKind::IsADirectory));
        }
        if let Ok((_, over)) = self.named(&sim, "put in place", to) {
            sim.give(over);
        }
        let (gone, new) = (
            Some(from.file_name().to_owned()),
            Some((to.file_name().to_owned(), ino)),
        );
        sim.act(Op::Names { folder, gone, new });
        Ok(())
    }

    fn rename_new(&self, from: &TargetPath, to: &TargetPath) -> Result<(), DiskError> {
        if self.stat(to)?.is_some() {
            return Err(fault("put in place", to, io::ErrorKind::AlreadyExists));
        }
        self.rename(from, to)
    }

    fn unlink(&self, path: &TargetPath) -> Result<(), DiskError> {
        let mut sim = self.lock();
        self.allowed(&sim, "remove", path)?;
        let (folder, ino) = self.named(&sim, "remove", path)?;
        if sim.tree.names(ino).is_some() {
            return Err(fault("remove", path, io::ErrorKind::IsADirectory));
        }
        sim.give(ino);
        sim.act(Op::Names {
            folder,
            gone: Some(path.file_name().to_owned()),
            new: None,
        });
        Ok(())
    }

    fn rmdir(&self, path: &TargetPath) -> Result<(), DiskError> {
        let mut sim = self.lock();
        self.allowed(&sim, "remove the folder", path)?;
        let (folder, ino) = self.named(&sim, "remove the folder", path)?;
        match sim.tree.names(ino) {
            None => return Err(fault("remove the folder", path, io::ErrorKind::NotADirectory)),
            Some(names) if !names.is_empty() => {
                return Err(fault("remove the folder", path, io::ErrorKind::DirectoryNotEmpty));
            }
            Some(_) => {}
        }
        sim.give(ino);
        sim.act(Op::Names {
            folder,
            gone: Some(path.file_name().to_owned()),
            new: None,
        });
        Ok(())
    }

    fn remove_all(&self, path: &TargetPath) -> Result<(), DiskError> {
        match self.stat(path)? {
            None => Ok(()),
            Some(stat) if stat.sort == Sort::Directory => {
                for name in self.list(Some(path))? {
                    let below = path.join(&name);
                    self.remove_all(
                        &below.map_err(|_| fault("remove", path, io::ErrorKind::InvalidFilename))?,
                    )?;
                }
                self.rmdir(path)
            }
            Some(_) => self.unlink(path),
        }
    }

    fn sync_parent(&self, path: &TargetPath) -> Result<(), DiskError> {
        let mut sim = self.lock();
        let folder = self.folder(&sim, "sync the folder of", path)?;
        sim.act(Op::SyncNames { folder });
        Ok(())
    }

    fn check(&self, path: &TargetPath, command: &str) -> Result<(), DiskError> {
        let sim = self.lock();
        self.named(&sim, "check", path)?;
        match command {
            "false" => Err(DiskError::Check {
                command: command.to_owned(),
                said: "no".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}
