//! The artifact store of the reconciler (HK-15): bytes by their SHA-256, a file each, in `artifacts/` of the state folder.
//!
//! Stands alone because it is neither the database nor the mirror: it can be made anew from the commits that orders go
//! back to. Invariant: a file that stands under a digest has those bytes, whole and synced, before any order names it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use meshplan_schemas::artifact::FileList;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::limits::PIECE_BYTES;

/// The folder's name in the state folder.
pub const FOLDER: &str = "artifacts";
/// What a cut left half written ends so.
const HALF: &str = ".new";

/// Where artifacts are kept.
#[derive(Debug, Clone)]
pub enum ArtifactStore {
    /// In this folder.
    Folder(PathBuf),
    /// In memory, for a rehearsal.
    Memory(Arc<Mutex<BTreeMap<Digest, Arc<[u8]>>>>),
}

/// An instant as file systems have it; none before 1970 is told from its begin.
fn instant(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0))
}

/// A piece of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// How long the whole is, in bytes.
    pub size_bytes: u64,
    /// The bytes from the offset on that was asked for; none at the end.
    pub bytes: Vec<u8>,
}

impl ArtifactStore {
    /// Opens the store of a state folder; what a cut left half written goes.
    ///
    /// # Errors
    /// The folder cannot be made or listed.
    pub fn open(state_dir: &Path) -> io::Result<Self> {
        let folder = state_dir.join(FOLDER);
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(HALF) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self::Folder(folder))
    }

    /// A store in memory.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::Memory(Arc::default())
    }

    /// Keeps artifacts: when this returns they are on the disk, wanted at `now`.
    ///
    /// # Errors
    /// The disk; then some may be there.
    pub fn put(&self, artifacts: &BTreeMap<Digest, Arc<[u8]>>, now: Timestamp) -> io::Result<()> {
        let folder = match self {
            Self::Folder(folder) => folder,
            Self::Memory(kept) => {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend(
                    artifacts
                        .iter()
                        .map(|(digest, bytes)| (*digest, Arc::clone(bytes))),
                );
                return Ok(());
            }
        };
        let mut is_new = false;
        for (digest, bytes) in artifacts {
            let path = folder.join(digest.hex());
            if let Ok(file) = File::open(&path) {
                // Wanted again: its age counts from now.
                file.set_modified(instant(now))?;
                continue;
            }
            let half = folder.join(format!("{}{HALF}", digest.hex()));
            let mut file = File::create(&half)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&half, &path)?;
            is_new = true;
        }
        if is_new {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    /// A piece of an artifact, no longer than `length` and than [`PIECE_BYTES`]; none where it is not kept.
    ///
    /// # Errors
    /// The disk.
    pub fn piece(&self, digest: Digest, offset: u64, length: u32) -> io::Result<Option<Piece>> {
        let most = u64::from(length.min(PIECE_BYTES));
        match self {
            Self::Memory(kept) => {
                let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(kept.get(&digest).map(|whole| {
                    let rest = usize::try_from(offset)
                        .ok()
                        .and_then(|offset| whole.get(offset..));
                    let most = usize::try_from(most).unwrap_or(usize::MAX);
                    Piece {
                        size_bytes: whole.len() as u64,
                        bytes: rest.unwrap_or_default().iter().copied().take(most).collect(),
                    }
                }))
            }
            Self::Folder(folder) => {
                let mut file = match File::open(folder.join(digest.hex())) {
                    Ok(file) => file,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                    Err(e) => return Err(e),
                };
                let size_bytes = file.metadata()?.len();
                let mut bytes = Vec::new();
                // Beyond its end a file has nothing, and an offset that is none of a file's is no trouble of the disk's.
                if offset < size_bytes {
                    file.seek(SeekFrom::Start(offset))?;
                    file.take(most).read_to_end(&mut bytes)?;
                }
                Ok(Some(Piece { size_bytes, bytes }))
            }
        }
    }

    /// Which of these are kept.
    ///
    /// # Errors
    /// The disk could not tell.
    pub fn has(&self, digest: Digest) -> io::Result<bool> {
        match self {
            Self::Memory(kept) => Ok(kept
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .contains_key(&digest)),
            Self::Folder(folder) => folder.join(digest.hex()).try_exists(),
        }
    }

    /// Removes what is not named and nobody wanted for `age` before `now`; says how many went. `lists` are lists of files,
    /// whose files are named too; `wholes` is what is named beside those.
    ///
    /// # Errors
    /// The disk; then some may be gone.
    pub fn collect(
        &self,
        (lists, wholes): (&BTreeSet<Digest>, &BTreeSet<Digest>),
        age: Duration,
        now: Timestamp,
    ) -> io::Result<usize> {
        let Self::Folder(folder) = self else { return Ok(0) };
        let mut named: BTreeSet<Digest> = lists.union(wholes).copied().collect();
        for list in lists {
            match fs::read(folder.join(list.hex())) {
                Ok(bytes) => {
                    let list: FileList = serde_json::from_slice(&bytes)?;
                    named.extend(list.files.values().map(|listed| listed.sha256));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        let mut gone = 0;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let digest = name.to_str().and_then(|hex| format!("sha256:{hex}").parse().ok());
            let Some(digest) = digest else { continue };
            let wanted = entry.metadata()?.modified()?;
            // One of the future is of a clock that was set back: it stays until its time has come.
            let since = instant(now).duration_since(wanted);
            if !named.contains(&digest) && since.is_ok_and(|since| since > age) {
                fs::remove_file(entry.path())?;
                gone += 1;
            }
        }
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(texts: &[&str]) -> BTreeMap<Digest, Arc<[u8]>> {
        let of = |text: &&str| (Digest::of(text.as_bytes()), Arc::from(text.as_bytes()));
        texts.iter().map(of).collect()
    }

    // holds: HK-15
    #[test]
    fn what_was_put_is_had_by_pieces_from_a_folder_as_from_memory() {
        let dir = tempfile::tempdir().unwrap();
        for store in [
            ArtifactStore::open(dir.path()).unwrap(),
            ArtifactStore::in_memory(),
        ] {
            store.put(&some(&["hello", ""]), Timestamp::UNIX_EPOCH).unwrap();
            let piece = |offset, length| {
                store
                    .piece(Digest::of(b"hello"), offset, length)
                    .unwrap()
                    .unwrap()
            };
            assert_eq!((piece(0, 2).bytes, piece(0, 2).size_bytes), (b"he".to_vec(), 5));
            assert_eq!(piece(2, u32::MAX).bytes, b"llo");
            assert!(piece(5, 9).bytes.is_empty() && piece(u64::MAX >> 1, 9).bytes.is_empty());
            assert_eq!(store.piece(Digest::of(b""), 0, 9).unwrap().unwrap().size_bytes, 0);
            assert_eq!(store.piece(Digest::of(b"other"), 0, 9).unwrap(), None);
        }
    }

    // holds: HK-15
    #[test]
    fn what_a_cut_left_goes_at_the_next_start_and_what_nobody_names_goes_with_its_age() {
        let dir = tempfile::tempdir().unwrap();
        let store = ArtifactStore::open(dir.path()).unwrap();
        let half = dir
            .path()
            .join(FOLDER)
            .join(format!("{}{HALF}", Digest::of(b"x").hex()));
        fs::write(&half, b"hal").unwrap();
        let now = Timestamp::from_second(1_764_500_000).unwrap();
        let file = Digest::of(b"a file");
        let list = format!(r#"{{"files":{{"a":{{"sha256":"{file}","size_bytes":6}}}}}}"#);
        store
            .put(&some(&["named", "young", "old", "a file", &list]), now)
            .unwrap();
        let store = ArtifactStore::open(dir.path()).unwrap();
        assert!(!half.exists());
        for digest in ["old", "named", "a file", &list].map(|text| Digest::of(text.as_bytes())) {
            let file = File::open(dir.path().join(FOLDER).join(digest.hex())).unwrap();
            file.set_modified(instant(now) - Duration::from_secs(1000))
                .unwrap();
        }
        let young = File::open(dir.path().join(FOLDER).join(Digest::of(b"young").hex())).unwrap();
        young.set_modified(instant(now)).unwrap();
        let lists = BTreeSet::from([Digest::of(list.as_bytes()), Digest::of(b"never here")]);
        let wholes = BTreeSet::from([Digest::of(b"named")]);
        let collected = store.collect((&lists, &wholes), Duration::from_secs(500), now);
        assert_eq!(collected.unwrap(), 1);
        let has = |text: &str| store.has(Digest::of(text.as_bytes())).unwrap();
        assert!(!has("old"));
        assert!(has("named") && has("young") && has("a file") && has(&list));
        // Wanted again, it is young again.
        store.put(&some(&["named"]), now).unwrap();
        assert_eq!(
            store
                .collect((&lists, &BTreeSet::new()), Duration::from_secs(500), now)
                .unwrap(),
            0
        );
    }
}
