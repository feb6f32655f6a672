//! Trees that are put in place whole (HK-4): made beside, swapped in, and the former one kept until it is known that
//! nobody goes back to it.
//!
//! Stands alone because the order of these steps is the argument: the new tree is on the disk before the old one moves
//! aside, and the old one is only ever renamed until the change is confirmed. Between the two renames nothing stands at
//! the path; a start finds the way from any of these states.

use meshplan_schemas::digest::Digest;
use serde::{Deserialize, Serialize};

use super::disk::{Disk, DiskError, Owner, Sort, atomic};
use super::ledger::{path_of, put_own};
use crate::pure::target_path::TargetPath;

/// What is kept of each tree, in the state folder.
const FOLDER: &str = "/trees";

fn beside(path: &TargetPath, end: &str) -> TargetPath {
    let hex = Digest::of(path.file_name().as_bytes()).hex();
    let name = format!(".meshplan-{}.{end}", hex.chars().take(16).collect::<String>());
    path.sibling(&name).unwrap_or_else(|_| path.clone())
}

/// Where the next tree of a path is made.
#[must_use]
pub fn coming(path: &TargetPath) -> TargetPath {
    beside(path, "new")
}

/// Where the former tree of a path is kept.
#[must_use]
pub fn leaving(path: &TargetPath) -> TargetPath {
    beside(path, "old")
}

/// Whether something stood at a path when it was decided what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Was {
    /// Nothing: what came since is somebody's, and the new tree does not take its place.
    Away,
    /// Something: it is kept.
    There,
}

/// Puts the tree that was made beside in place; what stood there is kept.
///
/// # Errors
/// The disk.
pub fn swap_in(disk: &dyn Disk, path: &TargetPath, was: Was) -> Result<(), DiskError> {
    disk.sync_all(path)?;
    if was == Was::There {
        take_out(disk, path)?;
    }
    disk.rename_new(&coming(path), path)?;
    disk.sync_parent(path)
}

/// Takes what stands at a path away and keeps it.
///
/// # Errors
/// The disk.
pub fn take_out(disk: &dyn Disk, path: &TargetPath) -> Result<(), DiskError> {
    let Some(stat) = disk.stat(path)? else {
        return Ok(());
    };
    if stat.sort == Sort::Directory {
        nothing_mounted(disk, path, stat.device)?;
    }
    atomic::remove_tree(disk, &leaving(path))?;
    disk.rename_new(path, &leaving(path))?;
    disk.sync_parent(path)
}

/// What was kept is not needed any more.
///
/// # Errors
/// The disk.
pub fn forget_former(disk: &dyn Disk, path: &TargetPath) -> Result<(), DiskError> {
    atomic::remove_tree(disk, &leaving(path))
}

/// Puts back what was kept at `from`; nothing where nothing is kept there: it never left, or is back.
///
/// # Errors
/// The disk.
pub fn put_back(disk: &dyn Disk, path: &TargetPath, from: &str, made: &str) -> Result<(), DiskError> {
    clear(disk, path, made)?;
    let Ok(from) = path.sibling(from) else {
        return Ok(());
    };
    if disk.stat(&from)?.is_none() {
        return Ok(());
    }
    atomic::remove_tree(disk, path)?;
    disk.rename_new(&from, path)?;
    disk.sync_parent(path)
}

/// Nothing stands at a path any more, whatever is in it, nor beside it; where no mark says that the host put a tree there,
/// what stands there is somebody's and stays.
///
/// # Errors
/// The disk.
pub fn put_away(
    (disk, state): (&dyn Disk, &dyn Disk),
    path: &TargetPath,
    (made, mark): (&str, &str),
) -> Result<(), DiskError> {
    clear(disk, path, made)?;
    let is_marked = match TargetPath::parse(mark) {
        Ok(mark) => state.stat(&mark)?.is_some(),
        Err(_) => false,
    };
    if is_marked {
        atomic::remove_tree(disk, path)
    } else {
        Ok(())
    }
}

fn clear(disk: &dyn Disk, path: &TargetPath, made: &str) -> Result<(), DiskError> {
    match path.sibling(made) {
        Ok(made) => atomic::remove_tree(disk, &made),
        Err(_) => Ok(()),
    }
}

/// What is mounted in a tree would move and go with it: refused before anything is renamed.
fn nothing_mounted(disk: &dyn Disk, path: &TargetPath, device: u64) -> Result<(), DiskError> {
    for name in disk.list(Some(path))? {
        let Ok(below) = path.join(&name) else { continue };
        match disk.stat(&below)? {
            // Folders alone: a file system that is made of others gives their files the numbers of those.
            Some(stat) if stat.sort != Sort::Directory => {}
            Some(stat) if stat.device != device => {
                let busy = std::io::Error::from(std::io::ErrorKind::ResourceBusy);
                return Err(DiskError::new("move what is mounted at", &below, busy));
            }
            Some(_) => nothing_mounted(disk, &below, device)?,
            None => {}
        }
    }
    Ok(())
}

/// How a tree stands, without a look at its bytes: what is in it by path, with mode, owner, length and time of change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape(Vec<(String, String)>);

impl Shape {
    /// Of the tree that stands here.
    ///
    /// # Errors
    /// The disk could not tell.
    pub fn of(disk: &dyn Disk, tree: &TargetPath) -> Result<Self, DiskError> {
        let mut all = Vec::new();
        if let Some(root) = disk.stat(tree)? {
            all.push((
                ".".to_owned(),
                format!("folder {:o} {}:{}", root.mode, root.uid, root.gid),
            ));
        }
        let mut ahead = vec![(tree.clone(), String::new())];
        while let Some((folder, inside)) = ahead.pop() {
            let names = match disk.list(Some(&folder)) {
                // It went while it was looked at.
                Err(DiskError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                    continue;
                }
                names => names?,
            };
            for name in names {
                let Ok(path) = folder.join(&name) else { continue };
                let shown = format!("{inside}{name}");
                let Some(stat) = disk.stat(&path)? else {
                    all.push((shown, "of a name that cannot be read".to_owned()));
                    continue;
                };
                let meta = format!("{:o} {}:{}", stat.mode, stat.uid, stat.gid);
                match stat.sort {
                    Sort::Directory => {
                        ahead.push((path, format!("{shown}/")));
                        all.push((shown, format!("folder {meta}")));
                    }
                    Sort::File => {
                        let bytes = (stat.size_bytes, stat.modified_ns);
                        all.push((shown, format!("file {meta} {} {}", bytes.0, bytes.1)));
                    }
                    Sort::Link => {
                        let to = disk.read_link(&path)?;
                        all.push((shown, format!("link {}:{} {to}", stat.uid, stat.gid)));
                    }
                    Sort::Other => all.push((shown, "a device, socket or pipe".to_owned())),
                }
            }
        }
        all.sort_unstable();
        Ok(Self(all))
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many files and folders are in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// What of another is other here, in words. What is here beside it is nobody's business: programs leave things in
    /// their folders.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Option<String> {
        if self == other {
            return None;
        }
        let mine: std::collections::BTreeMap<_, _> = self.0.iter().cloned().collect();
        let theirs: std::collections::BTreeMap<_, _> = other.0.iter().cloned().collect();
        let gone = theirs.keys().filter(|path| !mine.contains_key(*path));
        let changed = mine
            .iter()
            .filter(|(path, how)| theirs.get(*path).is_some_and(|of| of != *how));
        let parts = [
            ("gone", gone.collect::<Vec<_>>()),
            ("changed", changed.map(|(path, _)| path).collect()),
        ];
        let words: Vec<String> = (parts.into_iter())
            .filter_map(|(word, paths)| match paths.as_slice() {
                [] => None,
                [only] => Some(format!("{only} is {word}")),
                [first, rest @ ..] => Some(format!("{first} and {} others are {word}", rest.len())),
            })
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// What is kept of the tree of a path: where it is, the host has put one there.
#[must_use]
pub fn kept(path: &TargetPath) -> TargetPath {
    path_of(&format!(
        "{FOLDER}/{}",
        Digest::of(path.as_str().as_bytes()).hex()
    ))
}

/// The shape in which a content was unpacked at a path; none where it was not, or what is kept cannot be read.
///
/// # Errors
/// The disk could not tell.
pub fn shape_of(state: &dyn Disk, path: &TargetPath, content: Digest) -> Result<Option<Shape>, DiskError> {
    let Ok(file) = kept(path).join(&content.hex()) else {
        return Ok(None);
    };
    match state.stat(&file)? {
        None => Ok(None),
        Some(_) => Ok(serde_json::from_slice(&state.read(&file)?).ok()),
    }
}

/// Whether the host has put any tree at a path.
///
/// # Errors
/// The disk could not tell.
pub fn is_ours(state: &dyn Disk, path: &TargetPath) -> Result<bool, DiskError> {
    Ok(state.stat(&kept(path))?.is_some())
}

/// Keeps the shape in which a content was unpacked, beside that of what stands there now, which may come back.
///
/// # Errors
/// The disk.
pub fn keep_shape(
    state: &dyn Disk,
    path: &TargetPath,
    (content, shape): (Digest, &Shape),
    now: Option<&Shape>,
) -> Result<(), DiskError> {
    let folder = kept(path);
    for folder in [path_of(FOLDER), folder.clone()] {
        if state.stat(&folder)?.is_none() {
            atomic::put_folder(state, &folder, 0o700, Owner::default())?;
        }
    }
    for name in state.list(Some(&folder))? {
        let Ok(old) = folder.join(&name) else { continue };
        let of_old: Option<Shape> = serde_json::from_slice(&state.read(&old)?).ok();
        // What programs have left beside it makes it no other.
        let is_now = now
            .zip(of_old.as_ref())
            .is_some_and(|(now, old)| now.differs(old).is_none());
        if !is_now {
            state.unlink(&old)?;
        }
    }
    match (folder.join(&content.hex()), serde_json::to_vec(shape)) {
        (Ok(file), Ok(bytes)) => put_own(state, &file, &bytes),
        _ => Ok(()),
    }
}

/// The host has no tree at a path any more.
///
/// # Errors
/// The disk.
pub fn forget(state: &dyn Disk, path: &TargetPath) -> Result<(), DiskError> {
    atomic::remove_tree(state, &kept(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::disk::SimDisk;

    fn path(text: &str) -> TargetPath {
        TargetPath::parse(text).unwrap()
    }

    // holds: HR-14, HK-4
    #[test]
    fn what_came_to_a_path_while_a_tree_was_made_for_it_is_not_moved_nor_taken_away() {
        let (disk, state) = (SimDisk::new(), SimDisk::new());
        let (at, mark) = (path("/opt/app"), kept(&path("/opt/app")).to_string());
        let made = coming(&at).file_name().to_owned();
        disk.plant(&path(&format!("{}/new", coming(&at))), b"new", 0o644);
        disk.plant(&path("/opt/app/theirs"), b"theirs", 0o644);
        assert!(swap_in(&disk, &at, Was::Away).unwrap_err().is_exists());
        put_away((&disk, &state), &at, (&made, &mark)).unwrap();
        assert!(disk.stat(&path("/opt/app/theirs")).unwrap().is_some());
        assert!(
            disk.stat(&coming(&at)).unwrap().is_none(),
            "what was made beside goes"
        );
        // Once the host has put one there, it goes.
        let shape = Shape::of(&disk, &at).unwrap();
        keep_shape(&state, &at, (Digest::of(b"x"), &shape), None).unwrap();
        put_away((&disk, &state), &at, (&made, &mark)).unwrap();
        assert!(disk.stat(&at).unwrap().is_none());
    }
}
