//! The artifacts of this machine (HK-15): bytes by their SHA-256, a file each, in `artifacts/` of the state folder.
//!
//! Stands alone because fetching fills it and kinds read it. Invariant: what an order names stands under its digest,
//! checked and synced, before the order is begun; what is being fetched stands beside and is nothing yet.

use std::collections::BTreeSet;
use std::io::Read as _;

use meshplan_schemas::artifact::FileList;
use meshplan_schemas::digest::{Digest, Hasher};
use meshplan_schemas::limits::LIST_BYTES;

use super::disk::{Disk, DiskError, Owner, Stream, atomic};
use super::ledger::path_of;
use crate::pure::target_path::TargetPath;

const FOLDER: &str = "/artifacts";
/// Of what is being fetched.
const PART: &str = ".part";
/// Of what the newest orders do not name and those before did.
const FORMER: &str = ".former";

/// The artifacts of a state folder.
#[derive(Debug, Clone, Copy)]
pub struct Artifacts<'a>(pub &'a dyn Disk);

fn at(digest: Digest, end: &str) -> TargetPath {
    path_of(&format!("{FOLDER}/{}{end}", digest.hex()))
}

impl Artifacts<'_> {
    /// How many bytes of an artifact are here; none when it is here whole, which is checked: what was not synced before a
    /// cut goes.
    ///
    /// # Errors
    /// The disk could not tell.
    pub fn begun(self, digest: Digest) -> Result<Option<u64>, DiskError> {
        let whole = at(digest, "");
        if self.0.stat(&whole)?.is_none() && self.0.stat(&at(digest, FORMER))?.is_some() {
            self.0.rename(&at(digest, FORMER), &whole)?;
        }
        if self.0.stat(&whole)?.is_some() {
            if self.has_digest(&whole, digest)? {
                return Ok(None);
            }
            self.0.unlink(&whole)?;
        }
        let part = self.0.stat(&at(digest, PART))?;
        Ok(Some(part.map_or(0, |part| part.size_bytes)))
    }

    /// Adds the next bytes of one that is being fetched.
    ///
    /// # Errors
    /// The disk.
    pub fn add(self, digest: Digest, bytes: &[u8]) -> Result<(), DiskError> {
        if self.0.stat(&path_of(FOLDER))?.is_none() {
            atomic::put_folder(self.0, &path_of(FOLDER), 0o700, Owner::default())?;
        }
        self.0.append(&at(digest, PART), bytes)
    }

    /// All its bytes were fetched: it is here when they have its digest, else nothing of it is.
    ///
    /// # Errors
    /// The disk.
    pub fn finish(self, digest: Digest) -> Result<bool, DiskError> {
        let part = at(digest, PART);
        if self.0.stat(&part)?.is_none() {
            if self.begun(digest)?.is_none() {
                return Ok(true);
            }
            // One without bytes.
            self.add(digest, b"")?;
        }
        if !self.has_digest(&part, digest)? {
            self.0.unlink(&part)?;
            return Ok(false);
        }
        self.0.rename(&part, &at(digest, ""))?;
        Ok(true)
    }

    fn has_digest(self, path: &TargetPath, digest: Digest) -> Result<bool, DiskError> {
        let mut stream = self.0.open(path)?;
        let mut hasher = Hasher::default();
        let mut buffer = [0; 16 * 1024];
        loop {
            let read = stream.read(&mut buffer);
            match read.map_err(|e| DiskError::new("read", path, e))? {
                0 => return Ok(hasher.digest() == digest),
                read => hasher.take(buffer.get(..read).unwrap_or_default()),
            }
        }
    }

    /// What is here stays here, whatever happens to the power.
    ///
    /// # Errors
    /// The disk.
    pub fn sync(self) -> Result<(), DiskError> {
        if self.0.stat(&path_of(FOLDER))?.is_none() {
            return Ok(());
        }
        self.0.sync_all(&path_of(&format!("{FOLDER}/x")))
    }

    /// One that is here.
    ///
    /// # Errors
    /// In words: it is not, or cannot be read.
    pub fn open(self, digest: Digest) -> Result<Box<dyn Stream>, String> {
        match self.0.open(&at(digest, "")) {
            Err(DiskError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Err(format!(
                    "its artifact {digest} is not on this machine; it comes with the next order that names it"
                ))
            }
            other => other.map_err(|e| e.to_string()),
        }
    }

    /// The list of files of a bundle.
    ///
    /// # Errors
    /// In words: it is not here, or not what its digest says, or no list.
    pub fn list(self, digest: Digest) -> Result<FileList, String> {
        let mut bytes = Vec::new();
        let read = self.open(digest)?.take(LIST_BYTES).read_to_end(&mut bytes);
        read.map_err(|e| format!("the list of files {digest} cannot be read: {e}"))?;
        if Digest::of(&bytes) != digest {
            return Err(format!("the kept bytes of the list of files {digest} are others"));
        }
        serde_json::from_slice(&bytes).map_err(|e| format!("{digest} is no list of files: {e}"))
    }

    /// What the newest orders do not name is set aside, and goes when the orders after them do not name it either.
    /// `lists` are the lists of files that they name, `wholes` what they name beside those.
    ///
    /// # Errors
    /// The disk; then some stay.
    pub fn collect(self, lists: &BTreeSet<Digest>, wholes: &BTreeSet<Digest>) -> Result<(), DiskError> {
        let folder = path_of(FOLDER);
        if self.0.stat(&folder)?.is_none() {
            return Ok(());
        }
        let mut keep: BTreeSet<String> = lists.iter().chain(wholes).map(Digest::hex).collect();
        for list in lists {
            // One that is not here names nothing that could be.
            if let Ok(list) = self.list(*list) {
                keep.extend(list.files.values().map(|listed| listed.sha256.hex()));
            }
        }
        for name in self.0.list(Some(&folder))? {
            let Ok(path) = folder.join(&name) else { continue };
            // Nothing is being fetched now: what was begun has been given up.
            if name.ends_with(PART) {
                self.0.unlink(&path)?;
                continue;
            }
            let bare = name.strip_suffix(FORMER).unwrap_or(&name);
            if keep.contains(bare) {
                continue;
            }
            if bare == name {
                if let Ok(former) = folder.join(&format!("{name}{FORMER}")) {
                    self.0.rename(&path, &former)?;
                }
            } else {
                self.0.unlink(&path)?;
            }
        }
        self.0.sync_parent(&path_of(&format!("{FOLDER}/x")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::disk::SimDisk;

    fn put(disk: &SimDisk, bytes: &[u8]) -> Digest {
        let digest = Digest::of(bytes);
        let artifacts = Artifacts(disk);
        for piece in bytes.chunks(3) {
            artifacts.add(digest, piece).unwrap();
        }
        assert!(artifacts.finish(digest).unwrap());
        digest
    }

    // holds: HK-15
    #[test]
    fn an_artifact_comes_by_pieces_and_is_nothing_until_its_digest_was_checked() {
        let disk = SimDisk::new();
        let artifacts = Artifacts(&disk);
        let digest = Digest::of(b"hello");
        assert_eq!(artifacts.begun(digest).unwrap(), Some(0));
        artifacts.add(digest, b"hel").unwrap();
        assert_eq!(artifacts.begun(digest).unwrap(), Some(3));
        assert!(artifacts.open(digest).is_err());
        artifacts.add(digest, b"lo").unwrap();
        assert!(artifacts.finish(digest).unwrap());
        assert_eq!(artifacts.begun(digest).unwrap(), None);
        artifacts.add(Digest::of(b"x"), b"y").unwrap();
        assert!(!artifacts.finish(Digest::of(b"x")).unwrap());
        assert_eq!(artifacts.begun(Digest::of(b"x")).unwrap(), Some(0));
        assert_eq!(put(&disk, b""), Digest::of(b""));
    }

    // holds: HK-15
    #[test]
    fn what_a_cut_leaves_is_whole_or_not_there() {
        let disk = SimDisk::new();
        disk.begin();
        let digest = put(&disk, b"hello world");
        Artifacts(&disk).sync().unwrap();
        for acts in 0..=disk.acts() {
            for cut in disk.cuts_after(acts) {
                if Artifacts(&cut).begun(digest).unwrap().is_none() {
                    let mut bytes = Vec::new();
                    Artifacts(&cut)
                        .open(digest)
                        .unwrap()
                        .read_to_end(&mut bytes)
                        .unwrap();
                    assert_eq!(bytes, b"hello world", "after {acts} acts");
                } else {
                    assert!(acts < disk.acts(), "it was synced, and is not there");
                    let artifacts = Artifacts(&cut);
                    artifacts.add(digest, b"?").unwrap();
                    assert!(!artifacts.finish(digest).unwrap());
                    assert_eq!(put(&cut, b"hello world"), digest, "it can be fetched anew");
                }
            }
        }
    }

    // holds: HK-15
    #[test]
    fn what_the_last_two_orders_do_not_name_goes() {
        let disk = SimDisk::new();
        let file = put(&disk, b"a file");
        let list = format!(r#"{{"files":{{"a":{{"sha256":"{file}","size_bytes":6}}}}}}"#);
        let list = put(&disk, list.as_bytes());
        let other = put(&disk, b"an archive");
        let artifacts = Artifacts(&disk);
        let of = |digests: &[Digest]| digests.iter().copied().collect::<BTreeSet<_>>();
        let here = |digest: Digest| artifacts.begun(digest).unwrap().is_none();
        artifacts.collect(&of(&[list]), &of(&[])).unwrap();
        artifacts.collect(&of(&[list]), &of(&[other])).unwrap();
        assert!(here(file) && here(list), "the files of a list stay with it");
        assert!(here(other), "it was named by the order before, and is taken back");
        artifacts.collect(&of(&[list]), &of(&[])).unwrap();
        artifacts.collect(&of(&[list]), &of(&[])).unwrap();
        assert!(!here(other) && here(list));
    }
}
