//! The tree of the disk in memory, and the acts that change it.
//!
//! Stands alone because a cut replays acts on a tree of its own, without the disk that they were done on.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use meshplan_schemas::digest::Digest;

use super::{OWN, Owner, Sort, Stat};

#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) nodes: BTreeMap<u64, Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
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
pub(super) enum Op {
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
    /// All that was done before is on the disk.
    SyncAll,
}

impl Node {
    pub(super) fn stat(&self) -> Stat {
        match self {
            Self::File {
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
                device: 1,
                // As if no two contents were ever written at one instant.
                modified_ns: i64::from_be_bytes(first_eight(&Digest::of(bytes))),
            },
            Self::Directory { mode, uid, gid, .. } => Stat {
                sort: Sort::Directory,
                mode: *mode,
                uid: *uid,
                gid: *gid,
                size_bytes: 0,
                device: 1,
                modified_ns: 0,
            },
            Self::Link { uid, gid, .. } => Stat {
                sort: Sort::Link,
                mode: 0o777,
                uid: *uid,
                gid: *gid,
                size_bytes: 0,
                device: 1,
                modified_ns: 0,
            },
        }
    }
}

fn first_eight(digest: &Digest) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(digest.0).for_each(|(to, from)| *to = from);
    bytes
}

impl Tree {
    pub(super) fn new() -> Self {
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

    pub(super) fn names(&self, ino: u64) -> Option<&BTreeMap<String, u64>> {
        match self.nodes.get(&ino) {
            Some(Node::Directory { names, .. }) => Some(names),
            _ => None,
        }
    }

    pub(super) fn apply(&mut self, op: &Op) {
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
            Op::Sync { .. } | Op::SyncNames { .. } | Op::SyncAll => {}
        }
    }

    pub(super) fn walk(&self, path: &[String]) -> Result<u64, io::ErrorKind> {
        path.iter().try_fold(0, |ino, name| {
            let names = self.names(ino).ok_or(io::ErrorKind::NotADirectory)?;
            names.get(name).copied().ok_or(io::ErrorKind::NotFound)
        })
    }

    pub(super) fn show(&self, ino: u64, at: &str, out: &mut BTreeMap<String, String>) {
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
