//! A disk in memory that remembers every act, and can say what a power cut at any of them may leave.
//!
//! What it models: bytes and mode of a file are lost until the file is synced; a name made, renamed or removed is
//! lost until its folder is synced; each of these independently of the others, as POSIX promises no more. A rename
//! is one act. Bytes may also be cut in half.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meshplan_schemas::digest::Digest;

use super::{Disk, DiskError, NewFile, Owner, Sort, Space, Stat};
use crate::pure::target_path::TargetPath;

/// What the host runs as, in memory.
const OWN: (u32, u32) = (1000, 1000);
/// More pending acts than this are not tried in every combination.
const PENDING: usize = 5;

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

#[derive(Debug, Clone)]
struct Tree {
    nodes: BTreeMap<u64, Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    File {
        bytes: Arc<[u8]>,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    Directory {
        names: BTreeMap<String, u64>,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    Link {
        target: String,
        uid: u32,
        gid: u32,
    },
}

#[derive(Debug, Clone)]
enum Op {
    /// A thing comes to be, without a name.
    Make { ino: u64, node: Node },
    /// Its bytes.
    Bytes { ino: u64, bytes: Arc<[u8]> },
    /// Mode and owner.
    Meta { ino: u64, mode: u32, owner: Owner },
    /// Bytes, mode and owner are on the disk.
    Sync { ino: u64 },
    /// Names of a folder change, in one step.
    Names {
        folder: u64,
        gone: Option<String>,
        new: Option<(String, u64)>,
    },
    /// The folder's names are on the disk.
    SyncNames { folder: u64 },
}

impl Tree {
    fn new() -> Self {
        let root = Node::Directory {
            names: BTreeMap::new(),
            mode: 0o755,
            uid: OWN.0,
            gid: OWN.1,
        };
        Self {
            nodes: BTreeMap::from([(0, root)]),
        }
    }

    fn names(&self, ino: u64) -> Option<&BTreeMap<String, u64>> {
        match self.nodes.get(&ino) {
            Some(Node::Directory { names, .. }) => Some(names),
            _ => None,
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Make { ino, node } => {
                self.nodes.insert(*ino, node.clone());
            }
            Op::Bytes { ino, bytes: new } => {
                if let Some(Node::File { bytes, .. }) = self.nodes.get_mut(ino) {
                    bytes.clone_from(new);
                }
            }
            Op::Meta {
                ino,
                mode: new,
                owner,
            } => {
                if let Some(Node::File { mode, uid, gid, .. } | Node::Directory { mode, uid, gid, .. }) =
                    self.nodes.get_mut(ino)
                {
                    *mode = *new;
                    *uid = owner.uid.unwrap_or(*uid);
                    *gid = owner.gid.unwrap_or(*gid);
                }
            }
            Op::Names { folder, gone, new } => {
                if let Some(Node::Directory { names, .. }) = self.nodes.get_mut(folder) {
                    if let Some(gone) = gone {
                        names.remove(gone);
                    }
                    if let Some((name, ino)) = new {
                        names.insert(name.clone(), *ino);
                    }
                }
            }
            Op::Sync { .. } | Op::SyncNames { .. } => {}
        }
    }

    fn walk(&self, path: &[String]) -> Result<u64, io::ErrorKind> {
        path.iter().try_fold(0, |ino, name| {
            let names = self.names(ino).ok_or(io::ErrorKind::NotADirectory)?;
            names.get(name).copied().ok_or(io::ErrorKind::NotFound)
        })
    }

    fn show(&self, ino: u64, at: &str, out: &mut BTreeMap<String, String>) {
        match self.nodes.get(&ino) {
            Some(Node::File {
                bytes,
                mode,
                uid,
                gid,
            }) => {
                let shown = match bytes.len() {
                    0..=4096 => format!("{:?}", String::from_utf8_lossy(bytes)),
                    long => format!("{long} bytes {}", Digest::of(bytes)),
                };
                out.insert(at.to_owned(), format!("file {mode:o} {uid}:{gid} {shown}"));
            }
            Some(Node::Link { target, uid, gid }) => {
                out.insert(at.to_owned(), format!("link {uid}:{gid} {target:?}"));
            }
            Some(Node::Directory {
                names,
                mode,
                uid,
                gid,
            }) => {
                out.insert(at.to_owned(), format!("folder {mode:o} {uid}:{gid}"));
                for (name, ino) in names {
                    self.show(*ino, &format!("{at}/{name}"), out);
                }
            }
            None => {}
        }
    }
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

    /// What a power cut after the first `acts` acts may leave: each answer is a disk of its own. At most a few dozen:
    /// every combination of the lost and the kept when few are pending, else all, none, and each alone.
    #[must_use]
    pub fn cuts_after(&self, acts: usize) -> Vec<Self> {
        let sim = self.lock();
        let log = sim.log.get(..acts).unwrap_or(&sim.log);
        let pending: Vec<usize> = (0..log.len()).filter(|at| is_pending(log, *at)).collect();
        let choices: Vec<Vec<Fate>> = fates(log, &pending);
        choices
            .into_iter()
            .map(|fate| self.cut(&sim, log, &pending, fate))
            .collect()
    }

    /// What a kill after the first `acts` acts leaves: all that was done.
    #[must_use]
    pub fn cut_keeping_all(&self, acts: usize) -> Self {
        self.cut_with(acts, Fate::Kept)
    }

    /// What the worst power cut after the first `acts` acts leaves: nothing that was not synced.
    #[must_use]
    pub fn cut_losing_all(&self, acts: usize) -> Self {
        self.cut_with(acts, Fate::Lost)
    }

    fn cut_with(&self, acts: usize, fate: Fate) -> Self {
        let sim = self.lock();
        let log = sim.log.get(..acts).unwrap_or(&sim.log);
        let pending: Vec<usize> = (0..log.len()).filter(|at| is_pending(log, *at)).collect();
        let fates = pending.iter().map(|_| fate).collect();
        self.cut(&sim, log, &pending, fates)
    }

    fn cut(&self, sim: &Sim, log: &[Op], pending: &[usize], fate: Vec<Fate>) -> Self {
        let mut tree = sim.before.clone();
        for (at, op) in log.iter().enumerate() {
            let fate = pending
                .iter()
                .position(|p| *p == at)
                .and_then(|i| fate.get(i).copied());
            match (fate, op) {
                (Some(Fate::Lost), _) => {}
                (Some(Fate::Torn), Op::Bytes { ino, bytes }) => {
                    let half = bytes.iter().take(bytes.len() / 2).copied().collect();
                    tree.apply(&Op::Bytes {
                        ino: *ino,
                        bytes: half,
                    });
                }
                _ => tree.apply(op),
            }
        }
        let forbidden = sim.forbidden.clone();
        let cut = Sim {
            before: tree.clone(),
            tree,
            log: Vec::new(),
            forbidden,
            space: sim.space,
            left: sim.left,
        };
        Self {
            sim: Arc::new(Mutex::new(cut)),
            base: self.base.clone(),
        }
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

#[derive(Debug, Clone, Copy)]
enum Fate {
    Kept,
    Lost,
    Torn,
}

fn is_pending(log: &[Op], at: usize) -> bool {
    let later = log.get(at + 1..).unwrap_or_default();
    match log.get(at) {
        Some(Op::Bytes { ino, .. } | Op::Meta { ino, .. }) => !later.iter().any(|op| match op {
            Op::Sync { ino: synced } | Op::SyncNames { folder: synced } => synced == ino,
            _ => false,
        }),
        Some(Op::Names { folder, .. }) => !later
            .iter()
            .any(|op| matches!(op, Op::SyncNames { folder: synced } if synced == folder)),
        _ => false,
    }
}

fn fates(log: &[Op], pending: &[usize]) -> Vec<Vec<Fate>> {
    let ways = |at: &usize| -> &'static [Fate] {
        match log.get(*at) {
            Some(Op::Bytes { .. }) => &[Fate::Lost, Fate::Torn, Fate::Kept],
            _ => &[Fate::Lost, Fate::Kept],
        }
    };
    if pending.len() <= PENDING {
        return pending.iter().fold(vec![Vec::new()], |all, at| {
            all.iter()
                .flat_map(|head| {
                    ways(at)
                        .iter()
                        .map(move |fate| head.iter().copied().chain([*fate]).collect())
                })
                .collect()
        });
    }
    let all = |fate: Fate| pending.iter().map(|_| fate).collect::<Vec<Fate>>();
    let mut out = vec![all(Fate::Lost), all(Fate::Kept)];
    for (i, at) in pending.iter().enumerate() {
        for (rest, one) in [(Fate::Lost, Fate::Kept), (Fate::Kept, Fate::Lost)] {
            let mut fate = all(rest);
            if let Some(f) = fate.get_mut(i) {
                *f = one;
            }
            out.push(fate);
        }
        if matches!(log.get(*at), Some(Op::Bytes { .. })) {
            let mut fate = all(Fate::Kept);
            if let Some(f) = fate.get_mut(i) {
                *f = Fate::Torn;
            }
            out.push(fate);
        }
    }
    out
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
        Ok(sim.tree.nodes.get(&ino).map(|node| match node {
            Node::File {
                bytes,
                mode,
                uid,
                gid,
            } => Stat {
                sort: Sort::File,
                mode: *mode,
                uid: *uid,
                gid: *gid,
                size_bytes: bytes.len() as u64,
            },
            Node::Directory { mode, uid, gid, .. } => Stat {
                sort: Sort::Directory,
                mode: *mode,
                uid: *uid,
                gid: *gid,
                size_bytes: 0,
            },
            Node::Link { uid, gid, .. } => Stat {
                sort: Sort::Link,
                mode: 0o777,
                uid: *uid,
                gid: *gid,
                size_bytes: 0,
            },
        }))
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
        let node = Node::File {
            bytes: Arc::from([]),
            mode: 0o600,
            uid: OWN.0,
            gid: OWN.1,
        };
        let ino = sim.make_named(folder, path.file_name(), node);
        sim.act(Op::Bytes {
            ino,
            bytes: file.bytes.into(),
        });
        sim.act(Op::Meta {
            ino,
            mode: file.mode,
            owner: file.owner,
        });
        sim.act(Op::Sync { ino });
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
