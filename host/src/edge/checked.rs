//! Text files that know whether they are whole: the exact text, then a line with the digest of it.
//!
//! It stands alone because "empty, cut, noise" and "not there" are two answers (HR-15), for every file that the agent
//! keeps. Written whole or not at all, synced with their folder.

use meshplan_schemas::digest::Digest;

use super::disk::{Disk, DiskError, NewFile, Owner, atomic};
use crate::pure::target_path::TargetPath;

/// The line before the digest.
const SEAL: &str = "\n#whole ";

/// What stands in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Nothing is there.
    Missing,
    /// The exact text that was written.
    Whole(String),
    /// Something is there and it is not what was written: unknown, never "nothing".
    Broken(String),
}

/// Parts a text from its seal; none when it has none or another's.
#[must_use]
pub fn unseal(sealed: &str) -> Option<&str> {
    let (text, seal) = sealed.rsplit_once(SEAL)?;
    let digest: Digest = seal.trim_end_matches('\n').parse().ok()?;
    (digest == Digest::of(text.as_bytes())).then_some(text)
}

/// Reads a file; one that cannot be read is broken.
#[must_use]
pub fn read(disk: &dyn Disk, path: &TargetPath) -> Found {
    look(disk, path).unwrap_or_else(|e| Found::Broken(e.to_string()))
}

/// Reads a file, for whoever must tell one that cannot be read now from one that was read and is damaged.
///
/// # Errors
/// [`DiskError`]: it could not be read, so nothing is known of it.
pub fn look(disk: &dyn Disk, path: &TargetPath) -> Result<Found, DiskError> {
    match disk.stat(path)? {
        None => Ok(Found::Missing),
        Some(_) => judged(path, disk.read(path)),
    }
}

/// What was read where something stood a moment before.
fn judged(path: &TargetPath, bytes: Result<Vec<u8>, DiskError>) -> Result<Found, DiskError> {
    let bytes = match bytes {
        // Somebody took it away meanwhile.
        Err(e) if e.is_not_found() => return Ok(Found::Missing),
        bytes => bytes?,
    };
    if bytes.is_empty() {
        return Ok(Found::Broken(format!("{path} is empty")));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => match unseal(&text) {
            Some(text) => Found::Whole(text.to_owned()),
            None => Found::Broken(format!("{path} is cut or damaged: its digest does not fit")),
        },
        Err(_) => Found::Broken(format!("{path} is damaged: it is no text")),
    })
}

/// Writes a file whole.
///
/// # Errors
/// [`DiskError`]; then the file holds what it held.
pub fn write(disk: &dyn Disk, path: &TargetPath, text: &str) -> Result<(), DiskError> {
    let sealed = format!("{text}{SEAL}{}\n", Digest::of(text.as_bytes()));
    let file = NewFile {
        bytes: sealed.as_bytes(),
        mode: 0o600,
        owner: Owner::default(),
    };
    atomic::put_file(disk, path, &file, None)
}

/// A path in the state folder, from a literal of this crate.
pub(crate) fn path(text: &str) -> TargetPath {
    TargetPath::parse(text).expect("the state folder's names are plain")
}

#[cfg(test)]
mod tests {
    use super::super::disk::SimDisk;
    use super::*;

    // holds: HR-15
    #[test]
    fn cut_empty_and_noise_are_broken_and_never_missing() {
        let disk = SimDisk::new();
        let file = path("/standing.json");
        assert_eq!(read(&disk, &file), Found::Missing);
        write(&disk, &file, "{\"a\":1}").unwrap();
        assert_eq!(read(&disk, &file), Found::Whole("{\"a\":1}".into()));
        let whole = disk.read(&file).unwrap();
        for len in 0..whole.len() - 1 {
            disk.plant(&file, &whole[..len], 0o600);
            assert!(
                matches!(read(&disk, &file), Found::Broken(_)),
                "cut to {len} bytes"
            );
        }
        for place in 0..whole.len() - 1 {
            let mut noise = whole.clone();
            noise[place] ^= 0x55;
            disk.plant(&file, &noise, 0o600);
            assert!(matches!(read(&disk, &file), Found::Broken(_)), "noise at {place}");
        }
    }

    // holds: HR-15
    #[test]
    fn what_went_between_two_looks_is_missing_and_what_cannot_be_read_is_neither_missing_nor_damaged() {
        let file = path("/x");
        let fault = |kind: std::io::ErrorKind| DiskError::new("read", &file, kind);
        let gone = judged(&file, Err(fault(std::io::ErrorKind::NotFound)));
        assert_eq!(gone.unwrap(), Found::Missing);
        assert!(judged(&file, Err(fault(std::io::ErrorKind::Other))).is_err());
        let disk = SimDisk::new();
        let _folder = disk.at(&file);
        assert!(look(&disk, &file).is_err());
        assert!(matches!(read(&disk, &file), Found::Broken(_)));
    }

    #[test]
    fn a_text_that_holds_the_seals_own_line_comes_back_whole() {
        let disk = SimDisk::new();
        let file = path("/x");
        let text = format!("a{SEAL}b\n");
        write(&disk, &file, &text).unwrap();
        assert_eq!(read(&disk, &file), Found::Whole(text));
    }
}
