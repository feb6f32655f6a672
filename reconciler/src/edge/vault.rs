//! What opens the secrets of a fleet in this process, and closes values for the store (FR-9).
//!
//! It stands alone because composing, storing and signing share it: one identity, one key of content digests. Values are
//! in memory only. At rest they are age files to this reconciler's own identity, whatever they came from.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use meshplan_schemas::digest::Digest;

use super::age_file::{AgeFileError, AgeIdentity, IDENTITY_FILE};
use crate::pure::secret_digest::SecretDigestKey;
use crate::pure::secrets::{OpensSecrets, Secret};

/// So many opened files are remembered; then all are forgotten, and opened again where they are needed.
const REMEMBERED: usize = 1024;

/// Opens secrets, or says why this reconciler opens none.
#[derive(Debug)]
pub struct Vault {
    /// With the key of content digests; none: a bare hash.
    identity: Result<(AgeIdentity, Option<SecretDigestKey>), String>,
    /// By the digest of the file.
    opened: Mutex<HashMap<Digest, Secret>>,
}

impl Vault {
    /// The vault of an identity.
    #[must_use]
    pub fn of(identity: AgeIdentity) -> Self {
        let key = identity.digest_key();
        Self {
            identity: Ok((identity, Some(key))),
            opened: Mutex::default(),
        }
    }

    /// The vault of a rehearsal: it keeps the stand-ins of [`crate::pure::secrets::Unopened`] as values are kept.
    #[must_use]
    pub fn of_stand_ins() -> Self {
        Self {
            identity: Ok((AgeIdentity::generate(), None)),
            opened: Mutex::default(),
        }
    }

    /// The vault of the identity beside the keys of a reconciler. One that is not there opens nothing, and says so where a
    /// secret is needed.
    ///
    /// # Errors
    /// The file is there and cannot be read, or others may read it.
    pub fn beside(keys: &Path) -> Result<Self, AgeFileError> {
        let path = identity_path(keys);
        if let Ok(found) = std::fs::metadata(&path) {
            let mode = found.permissions().mode() & 0o7777;
            if mode & 0o077 != 0 {
                return Err(AgeFileError::Mode { path, mode });
            }
            return AgeIdentity::read(&path).map(Self::of);
        }
        let why = format!(
            "this reconciler has no age identity: {} is not there",
            path.display()
        );
        Ok(Self {
            identity: Err(why),
            opened: Mutex::default(),
        })
    }

    /// A value, encrypted to this reconciler itself.
    ///
    /// # Errors
    /// Why not.
    pub fn close(&self, secret: &Secret) -> Result<Vec<u8>, String> {
        let (identity, _) = self.identity.as_ref().map_err(Clone::clone)?;
        identity
            .recipient()
            .seal(secret.value())
            .map_err(|e| e.to_string())
    }
}

/// Where the identity stands beside a reconciler's keys.
#[must_use]
pub fn identity_path(keys: &Path) -> PathBuf {
    keys.with_file_name(IDENTITY_FILE)
}

impl OpensSecrets for Vault {
    fn opens(&self) -> bool {
        true
    }

    fn open(&self, file: &[u8]) -> Result<Secret, String> {
        let (identity, _) = self.identity.as_ref().map_err(Clone::clone)?;
        let of_file = Digest::of(file);
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = opened.get(&of_file) {
            return Ok(known.clone());
        }
        let value = identity.open(file)?;
        let secret = Secret::new(self.digest(&value), value);
        if opened.len() >= REMEMBERED {
            opened.clear();
        }
        opened.insert(of_file, secret.clone());
        Ok(secret)
    }

    fn digest(&self, value: &[u8]) -> Digest {
        match &self.identity {
            Ok((_, Some(key))) => key.digest(value),
            Ok((_, None)) => Digest::of(value),
            // Nothing is opened, so that nothing is written into anything.
            Err(_) => Digest::of(b""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: FR-9
    #[test]
    fn what_is_encrypted_anew_is_the_same_secret_and_another_value_is_another() {
        let identity = AgeIdentity::generate();
        let to = identity.recipient();
        let vault = Vault::of(identity);
        let [once, again, other] = ["hunter2", "hunter2", "hunter3"].map(|value| {
            let file = to.seal(value.as_bytes()).unwrap();
            vault.open(&file).unwrap()
        });
        assert_eq!(once, again);
        assert_ne!(once, other);
        assert_ne!(
            once.digest(),
            Digest::of(b"hunter2"),
            "a bare hash lets values be tried"
        );
        assert!(!format!("{vault:?}").contains("hunter"));
        let closed = vault.close(&once).unwrap();
        assert_eq!(vault.open(&closed).unwrap(), once);
    }

    #[test]
    fn a_reconciler_without_an_identity_opens_nothing_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let vault = Vault::beside(&folder.path().join("keys.json")).unwrap();
        let file = AgeIdentity::generate().recipient().seal(b"x").unwrap();
        assert!(vault.open(&file).unwrap_err().contains("has no age identity"));
    }

    // holds: FR-9
    #[test]
    fn an_identity_that_others_may_read_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let keys = folder.path().join("keys.json");
        let path = identity_path(&keys);
        std::fs::write(&path, AgeIdentity::generate().file_text().as_bytes()).unwrap();
        for (mode, used) in [(0o600, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let vault = Vault::beside(&keys);
            assert_eq!(vault.is_ok(), used, "{mode:o}");
            if let Err(why) = vault {
                assert!(why.to_string().contains("chmod 0600"), "{why}");
            }
        }
    }
}
