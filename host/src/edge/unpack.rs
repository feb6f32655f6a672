//! Archives and lists of files, put into a folder that is not there yet (HK-4).
//!
//! Stands alone because it is where somebody's bytes become names and files. Never the libraries' own way to unpack: each
//! entry goes through [`Gate`], and each byte that is written is counted, so that a small archive cannot fill the disk.

use std::collections::BTreeSet;
use std::io::{self, Read};

use meshplan_schemas::artifact::{FileList, folders};
use meshplan_schemas::digest::Hasher;
use meshplan_schemas::limits::{TREE_BYTES, TREE_FILES};
use meshplan_schemas::resource::bundles::Packing;

use super::artifacts::Artifacts;
use super::disk::{Disk, DiskError, Owner, Stream};
use crate::pure::inside::{Gate, Sort, mode};
use crate::pure::target_path::TargetPath;

/// Room that an archive leaves on the disk, in bytes.
const LEFT_BYTES: u64 = 16 << 20;
/// The mode of folders.
const FOLDER: u32 = 0o755;

/// The folder that is made.
pub struct Unpacking<'a> {
    disk: &'a dyn Disk,
    folder: &'a TargetPath,
    owner: Owner,
    made: BTreeSet<String>,
    bytes_left: u64,
    files_left: u64,
}

/// How an archive is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct How {
    /// How it is packed.
    pub packing: Packing,
    /// How many leading parts of its names are dropped.
    pub strip: u32,
    /// Whether setuid and setgid are kept.
    pub allow_setuid: bool,
}

impl<'a> Unpacking<'a> {
    /// Makes the folder, which is not there. All that comes into it belongs to `owner`.
    ///
    /// # Errors
    /// The disk.
    pub fn new(disk: &'a dyn Disk, folder: &'a TargetPath, owner: Owner) -> Result<Self, String> {
        let words = |e: DiskError| e.to_string();
        let free = disk.space(Some(folder)).map_err(words)?.free_bytes;
        disk.mkdir(folder).map_err(words)?;
        disk.set_meta(folder, FOLDER, owner).map_err(words)?;
        Ok(Self {
            disk,
            folder,
            owner,
            made: BTreeSet::new(),
            bytes_left: free.saturating_sub(LEFT_BYTES).min(TREE_BYTES),
            files_left: TREE_FILES,
        })
    }

    /// The files of a list.
    ///
    /// # Errors
    /// In words: the list, one of its artifacts, the disk.
    pub fn list(&mut self, list: &FileList, artifacts: Artifacts<'_>) -> Result<(), String> {
        if let Some(why) = list.fault() {
            return Err(format!("the bundle is refused: {why}"));
        }
        for (path, listed) in &list.files {
            let mut hashing = Hashing {
                inner: artifacts.open(listed.sha256)?,
                hasher: Hasher::default(),
            };
            let mode = if listed.executable { 0o755 } else { 0o644 };
            self.file(path, mode, &mut hashing)?;
            if hashing.hasher.digest() != listed.sha256 {
                return Err(format!(
                    "the kept bytes of {path:?} are not those that were fetched"
                ));
            }
        }
        Ok(())
    }

    /// An archive.
    ///
    /// # Errors
    /// In words: why it is refused, or what the disk said.
    pub fn archive(&mut self, mut from: Box<dyn Stream>, how: How) -> Result<(), String> {
        if how.packing == Packing::Zip {
            return self.zip(from, how);
        }
        sane(plain(&mut from, how.packing)?)?;
        from.rewind().map_err(broken)?;
        let unpacked = plain(&mut from, how.packing)?;
        let mut gate = Gate::new(how.strip);
        let mut archive = tar::Archive::new(unpacked);
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let name = text(&entry.path_bytes())?;
            let header = entry.header();
            let sort = match header.entry_type() {
                kind if kind.is_dir() => Sort::Folder,
                kind if kind.is_file() || kind.is_contiguous() => Sort::File(header.mode().map_err(broken)?),
                kind if kind.is_symlink() => {
                    let target = entry.link_name_bytes();
                    Sort::Link(text(&target.unwrap_or_default())?)
                }
                // What goes for the whole archive, as git writes it, is no entry.
                kind if kind.is_pax_global_extensions() => continue,
                kind if kind.is_hard_link() => Sort::Other("a hard link"),
                kind if kind.is_block_special() || kind.is_character_special() => Sort::Other("a device"),
                kind if kind.is_fifo() => Sort::Other("a pipe"),
                _ => Sort::Other("of a sort that is not known"),
            };
            self.entry(&mut gate, (&name, sort), how, &mut entry)?;
        }
        Ok(())
    }

    fn zip(&mut self, from: Box<dyn Stream>, how: How) -> Result<(), String> {
        let mut gate = Gate::new(how.strip);
        let mut archive = zip::ZipArchive::new(from).map_err(broken)?;
        for at in 0..archive.len() {
            let mut entry = archive.by_index(at).map_err(broken)?;
            let name = text(entry.name_raw())?;
            let sort = match entry.unix_mode() {
                _ if entry.is_dir() => Sort::Folder,
                _ if entry.is_symlink() => {
                    let mut target = Vec::new();
                    (&mut entry).take(4096).read_to_end(&mut target).map_err(broken)?;
                    Sort::Link(text(&target)?)
                }
                None => Sort::File(0o644),
                Some(mode) => match mode & 0o170_000 {
                    0 | 0o100_000 => Sort::File(mode),
                    _ => Sort::Other("no file, folder or link"),
                },
            };
            self.entry(&mut gate, (&name, sort), how, &mut entry)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        gate: &mut Gate,
        (name, sort): (&str, Sort),
        how: How,
        bytes: &mut dyn Read,
    ) -> Result<(), String> {
        let Some(path) = gate.enter(name, &sort)? else {
            return Ok(());
        };
        match sort {
            Sort::Folder => self.folders_to(&path).and_then(|()| self.make_folder(&path)),
            Sort::File(packed) => self.file(&path, mode(&path, packed, how.allow_setuid)?, bytes),
            Sort::Link(target) => {
                self.folders_to(&path)?;
                self.count()?;
                let at = self.at(&path)?;
                self.disk
                    .symlink(&at, &target, self.owner)
                    .map_err(|e| e.to_string())
            }
            // The gate has refused it.
            Sort::Other(_) => Ok(()),
        }
    }

    fn file(&mut self, path: &str, mode: u32, bytes: &mut dyn Read) -> Result<(), String> {
        self.folders_to(path)?;
        self.count()?;
        let at = self.at(path)?;
        // One more than may be, so that too much is seen.
        let mut bounded = bytes.take(self.bytes_left.saturating_add(1));
        let written = self.disk.fill(&at, &mut bounded, mode, self.owner);
        let written = written.map_err(|e| e.to_string())?;
        let left = self.bytes_left.checked_sub(written);
        self.bytes_left = left.ok_or_else(|| {
            "the archive is refused: it unpacks to more than there is room for, or than an archive may"
                .to_owned()
        })?;
        Ok(())
    }

    fn folders_to(&mut self, path: &str) -> Result<(), String> {
        folders(path).try_for_each(|folder| self.make_folder(folder))
    }

    fn make_folder(&mut self, path: &str) -> Result<(), String> {
        if self.made.contains(path) {
            return Ok(());
        }
        self.count()?;
        let at = self.at(path)?;
        let words = |e: DiskError| e.to_string();
        self.disk.mkdir(&at).map_err(words)?;
        self.disk.set_meta(&at, FOLDER, self.owner).map_err(words)?;
        self.made.insert(path.to_owned());
        Ok(())
    }

    fn count(&mut self) -> Result<(), String> {
        let left = self.files_left.checked_sub(1);
        self.files_left = left.ok_or_else(|| {
            format!("the archive is refused: it has more than {TREE_FILES} files and folders")
        })?;
        Ok(())
    }

    fn at(&self, path: &str) -> Result<TargetPath, String> {
        TargetPath::parse(&format!("{}/{path}", self.folder)).map_err(|e| e.to_string())
    }
}

/// The tar in a packed stream, no longer than a tree with all that a tar has beside it may be.
fn plain(from: &mut dyn Stream, packing: Packing) -> Result<Box<dyn Read + '_>, String> {
    let most = TREE_BYTES.saturating_add(TREE_FILES.saturating_mul(4096));
    Ok(match packing {
        Packing::TarGz => Box::new(flate2::read::MultiGzDecoder::new(from).take(most)),
        Packing::TarZst => Box::new(zstd::stream::read::Decoder::new(from).map_err(broken)?.take(most)),
        Packing::Tar | Packing::Zip => Box::new(from.take(most)),
    })
}

/// The longest name, or other words about an entry, in bytes: all of it is read into memory.
const WORDS_BYTES: u64 = 64 * 1024;

/// Looks through a tar before anything of it is read into memory: how long its words are, how many entries it has.
fn sane(tar: Box<dyn Read + '_>) -> Result<(), String> {
    let mut archive = tar::Archive::new(tar);
    let mut left = TREE_FILES.saturating_mul(4);
    for entry in archive.entries().map_err(broken)?.raw(true) {
        let entry = entry.map_err(broken)?;
        let kind = entry.header().entry_type();
        let is_words = kind.is_gnu_longname()
            || kind.is_gnu_longlink()
            || kind.is_pax_local_extensions()
            || kind.is_pax_global_extensions();
        if is_words && entry.header().entry_size().map_err(broken)? > WORDS_BYTES {
            return Err("the archive is refused: a name in it is longer than any may be".to_owned());
        }
        left = left
            .checked_sub(1)
            .ok_or_else(|| format!("the archive is refused: it has far more than {TREE_FILES} entries"))?;
    }
    Ok(())
}

fn broken(error: impl std::fmt::Display) -> String {
    format!("the archive cannot be read: {error}")
}

fn text(name: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(name);
    let text = text.map_err(|_| format!("the archive is refused: {} is not UTF-8", name.escape_ascii()))?;
    Ok(text.to_owned())
}

/// Takes the digest of what goes through.
struct Hashing {
    inner: Box<dyn Stream>,
    hasher: Hasher,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.take(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::edge::disk::SimDisk;

    const HOW: How = How {
        packing: Packing::Tar,
        strip: 0,
        allow_setuid: false,
    };

    type Made = Result<Vec<String>, String>;

    /// Unpacks; the paths that came of it.
    fn unpack(bytes: Vec<u8>, how: How) -> Made {
        unpack_on(&SimDisk::new(), bytes, how)
    }

    fn unpack_on(disk: &SimDisk, bytes: Vec<u8>, how: How) -> Made {
        let folder = TargetPath::parse("/t").unwrap();
        let mut unpacking = Unpacking::new(disk, &folder, Owner::default())?;
        unpacking.archive(Box::new(io::Cursor::new(bytes)), how)?;
        let shown = disk.show().into_iter();
        Ok(shown
            .filter_map(|(at, how)| Some(format!("{} {how}", at.strip_prefix("/t/")?)))
            .collect())
    }

    /// An entry as a hostile packer writes it, without a library's checks.
    fn raw(name: &str, kind: tar::EntryType, mode: u32, to: &str, bytes: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_ustar();
        header
            .as_old_mut()
            .name
            .iter_mut()
            .zip(name.bytes())
            .for_each(|(at, byte)| *at = byte);
        header
            .as_old_mut()
            .linkname
            .iter_mut()
            .zip(to.bytes())
            .for_each(|(at, byte)| *at = byte);
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        let mut out = header.as_bytes().to_vec();
        out.extend_from_slice(bytes);
        out.resize(out.len().div_ceil(512) * 512, 0);
        out
    }

    fn file(name: &str, bytes: &[u8]) -> Vec<u8> {
        raw(name, tar::EntryType::Regular, 0o644, "", bytes)
    }

    fn tar_of(entries: &[Vec<u8>]) -> Vec<u8> {
        entries.concat().into_iter().chain([0; 1024]).collect()
    }

    // holds: HK-4
    #[test]
    fn an_archive_of_each_packing_unpacks_to_the_same() {
        let tar = tar_of(&[
            raw("a/", tar::EntryType::Directory, 0o700, "", b""),
            raw("a/run", tar::EntryType::Regular, 0o100_755, "", b"x"),
            raw("l", tar::EntryType::Symlink, 0o777, "a/run", b""),
        ]);
        let wanted = [
            "a folder 755 1000:1000",
            "a/run file 755 1000:1000 \"x\"",
            "l link 1000:1000 \"a/run\"",
        ];
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&tar).unwrap();
        let zst = zstd::stream::encode_all(tar.as_slice(), 1).unwrap();
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default();
        zip.add_directory("a", options).unwrap();
        zip.start_file("a/run", options.unix_permissions(0o755)).unwrap();
        zip.write_all(b"x").unwrap();
        zip.add_symlink("l", "a/run", options).unwrap();
        let zip = zip.finish().unwrap().into_inner();
        let packed = [
            (tar, Packing::Tar),
            (gz.finish().unwrap(), Packing::TarGz),
            (zst, Packing::TarZst),
            (zip, Packing::Zip),
        ];
        for (bytes, packing) in packed {
            assert_eq!(
                unpack(bytes, How { packing, ..HOW }).unwrap(),
                wanted,
                "{packing:?}"
            );
        }
    }

    // holds: HK-4
    #[test]
    fn hostile_entries_are_refused_each_with_its_name() {
        use tar::EntryType as Kind;
        let bad = [
            file("/etc/passwd", b"x"),
            file("../x", b"x"),
            file("a/../../x", b"x"),
            raw("dev", Kind::Char, 0o644, "", b""),
            raw("disk", Kind::Block, 0o644, "", b""),
            raw("pipe", Kind::Fifo, 0o644, "", b""),
            raw("hard", Kind::Link, 0o644, "/etc/shadow", b""),
            raw("soft", Kind::Symlink, 0o777, "/etc", b""),
            raw("soft", Kind::Symlink, 0o777, "../..", b""),
            raw("su", Kind::Regular, 0o4755, "", b"x"),
            [raw("d", Kind::Symlink, 0o777, ".", b""), file("d/x", b"x")].concat(),
            [file("twice", b"1"), file("twice", b"2")].concat(),
            [file("f", b"1"), file("f/x", b"2")].concat(),
        ];
        for entries in bad {
            let name = String::from_utf8_lossy(
                &entries
                    .iter()
                    .copied()
                    .take_while(|b| *b != 0)
                    .collect::<Vec<_>>(),
            )
            .into_owned();
            let why = unpack(tar_of(&[entries]), HOW).unwrap_err();
            assert!(why.contains("refused"), "{name}: {why}");
        }
        let long = raw("././@LongLink", Kind::GNULongName, 0o644, "", &[b'n'; 70_000]);
        let why = unpack(tar_of(&[long, file("x", b"")]), HOW).unwrap_err();
        assert!(why.contains("longer than any may be"), "{why}");
        let su = || tar_of(&[raw("su", Kind::Regular, 0o4755, "", b"x")]);
        let allowed = How {
            allow_setuid: true,
            ..HOW
        };
        assert_eq!(unpack(su(), allowed).unwrap(), ["su file 4755 1000:1000 \"x\""]);
        let mut cut = tar_of(&[file("a", &[b'x'; 2000])]);
        cut.truncate(900);
        assert!(unpack(cut, HOW).is_err());
        for packing in [Packing::TarGz, Packing::TarZst, Packing::Zip] {
            assert!(unpack(b"no archive at all".to_vec(), How { packing, ..HOW }).is_err());
        }
    }

    // holds: HK-4
    #[test]
    fn a_small_archive_cannot_fill_the_disk() {
        let bomb = tar_of(&[file("zeros", &[0; 4 << 20])]);
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gz.write_all(&bomb).unwrap();
        let small = gz.finish().unwrap();
        assert!(small.len() < 10_000);
        let disk = SimDisk::new();
        disk.set_space(LEFT_BYTES + (1 << 20), None);
        let how = How {
            packing: Packing::TarGz,
            ..HOW
        };
        let why = unpack_on(&disk, small, how).unwrap_err();
        assert!(why.contains("more than there is room for"), "{why}");
    }
}
