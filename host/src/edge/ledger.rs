//! The ledger on disk: `ledger.json` of the state folder, whole or known to be lost (HR-3, HR-15).
//!
//! Stands alone because of one rule: empty, cut, noise and gone are "unknown", never "nothing is here" (B40). A
//! second file, `ledger.made`, says that there has been one.

use meshplan_schemas::digest::Digest;

use super::disk::{Disk, DiskError, NewFile, Owner, atomic};
use crate::pure::record::{LEDGER_VERSION, Ledger};
use crate::pure::target_path::TargetPath;

/// Whether the ledger can be believed (HR-15).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerState {
    /// Read, whole.
    Known(Box<Ledger>),
    /// There was none, nor a sign that there ever was.
    Fresh,
    /// Empty, cut, noise, of another version, or gone: rebuild it from the last verified declaration.
    Unknown {
        /// Why.
        why: String,
    },
}

pub(crate) fn path_of(name: &str) -> TargetPath {
    TargetPath::parse(name).expect("a constant path")
}

/// The name of a blob.
pub(crate) fn blob(folder: &str, digest: Digest) -> TargetPath {
    path_of(&format!("{folder}/{}", digest.hex()))
}

/// Writes one of the host's own files, whole.
pub(crate) fn put_own(disk: &dyn Disk, path: &TargetPath, bytes: &[u8]) -> Result<(), DiskError> {
    atomic::put_file(
        disk,
        path,
        &NewFile {
            bytes,
            mode: 0o600,
            owner: Owner::default(),
        },
        None,
    )
}

/// Bytes of a value of the host's own types.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("the host's own types have JSON");
    bytes.push(b'\n');
    bytes
}

/// Reads the ledger.
///
/// # Errors
/// The disk could not tell.
pub fn read(state: &dyn Disk) -> Result<LedgerState, DiskError> {
    let path = path_of("/ledger.json");
    if state.stat(&path)?.is_none() {
        return Ok(match state.stat(&path_of("/ledger.made"))? {
            None => LedgerState::Fresh,
            Some(_) => LedgerState::Unknown {
                why: "ledger.json is gone".to_owned(),
            },
        });
    }
    Ok(parse(&state.read(&path)?))
}

/// Reads the ledger's bytes.
#[must_use]
pub fn parse(bytes: &[u8]) -> LedgerState {
    #[derive(serde::Deserialize)]
    struct Versioned {
        version: u32,
    }
    let unknown = |why: String| LedgerState::Unknown { why };
    if bytes.is_empty() {
        return unknown("ledger.json is empty".to_owned());
    }
    match serde_json::from_slice::<Versioned>(bytes) {
        Ok(v) if v.version != LEDGER_VERSION => {
            return unknown(format!(
                "ledger.json is of version {}, this build reads {LEDGER_VERSION}",
                v.version
            ));
        }
        Ok(_) | Err(_) => {}
    }
    match serde_json::from_slice(bytes) {
        Ok(ledger) => LedgerState::Known(Box::new(ledger)),
        Err(e) => unknown(format!("ledger.json cannot be read: {e}")),
    }
}

/// Writes the ledger, whole and synced.
///
/// # Errors
/// [`DiskError`]; then the former one stands.
pub fn write(state: &dyn Disk, bytes: &[u8]) -> Result<(), DiskError> {
    put_own(state, &path_of("/ledger.json"), bytes)?;
    let made = path_of("/ledger.made");
    if state.stat(&made)?.is_none() {
        put_own(
            state,
            &made,
            b"a ledger was made here; when it is gone, that is a loss and not a beginning\n",
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: HR-15
    #[test]
    fn every_broken_ledger_is_unknown_and_only_a_first_start_is_fresh() {
        let whole = json(&Ledger::default());
        let mut museum: Vec<Vec<u8>> = (0..whole.len() - 1)
            .map(|n| whole.iter().take(n).copied().collect())
            .collect();
        museum.push(vec![0; 4096]);
        museum.push(b"{}".to_vec());
        museum.push(b"null".to_vec());
        museum.push(vec![0xff, 0x00, 0x7b]);
        museum.push(
            String::from_utf8(whole.clone())
                .unwrap()
                .replace("\"version\": 1", "\"version\": 2")
                .into_bytes(),
        );
        for bytes in museum {
            // The last cut of all only lacks the closing line end.
            let cut_is_whole = serde_json::from_slice::<serde_json::Value>(&bytes).is_ok()
                && parse(&bytes) == LedgerState::Known(Box::default());
            let unknown = matches!(parse(&bytes), LedgerState::Unknown { .. });
            assert!(
                unknown && !cut_is_whole,
                "taken: {}",
                String::from_utf8_lossy(&bytes)
            );
        }
        assert_eq!(parse(&whole), LedgerState::Known(Box::default()));
    }

    // holds: HR-15
    #[test]
    fn a_ledger_that_is_gone_is_a_loss_and_not_a_beginning() {
        let disk = super::super::disk::SimDisk::new();
        assert_eq!(read(&disk).unwrap(), LedgerState::Fresh);
        write(&disk, &json(&Ledger::default())).unwrap();
        atomic::remove_file(&disk, &path_of("/ledger.json")).unwrap();
        assert!(matches!(read(&disk).unwrap(), LedgerState::Unknown { .. }));
    }
}
