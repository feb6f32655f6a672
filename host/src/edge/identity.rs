//! This machine's two keys: made on it, kept in its state folder, never anywhere else (LK-3).
//!
//! `keys/transport.key` and `keys/signing.key` hold 32 bytes in base64, mode 0600. They are fsynced before they are
//! used, and an enrolment that is tried again uses them again.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use meshplan_schemas::envelope::{Signer as _, SoftSigner};
use meshplan_schemas::key::{SigningKey, TransportKey};
use meshplan_schemas::session::LinkSecret;
use zeroize::Zeroizing;

/// Why the keys cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// None were made yet.
    #[error("this machine has no keys in {0}; enrol it with `meshplan-host enrol TOKEN`")]
    Missing(PathBuf),
    /// The file system said no.
    #[error("cannot {verb} {path}")]
    File {
        /// `read`, `write`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others may read it.
    #[error(
        "{path} has mode {mode:04o}: others may read this machine's key; run `chmod 0600 {path}`, and enrol anew if others were on this machine"
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Not a key.
    #[error("{0} holds no key: 32 bytes in base64 are expected; the file is damaged")]
    Damaged(PathBuf),
    /// No randomness.
    #[error("the system gave no random bytes: {0}")]
    Random(String),
}

/// The keys of this machine.
#[derive(Debug)]
pub struct Identity {
    /// Opens sessions.
    pub transport: LinkSecret,
    /// Signs reports; its key id is the key's own.
    pub signing: SoftSigner,
}

impl Identity {
    /// The keys in this state folder.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn load(state_dir: &Path) -> Result<Self, IdentityError> {
        let [transport, signing] = paths(state_dir);
        let missing = || IdentityError::Missing(state_dir.join("keys"));
        Self::of(
            (&transport, read(&transport)?.ok_or_else(missing)?),
            (&signing, read(&signing)?.ok_or_else(missing)?),
        )
    }

    /// The keys in this state folder; those that are not there are made and fsynced first.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn load_or_make(state_dir: &Path) -> Result<Self, IdentityError> {
        let folder = state_dir.join("keys");
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(|source| IdentityError::File {
                verb: "make",
                path: folder,
                source,
            })?;
        let [transport, signing] = paths(state_dir);
        let transport_seed = read_or_make(&transport)?;
        let signing_seed = read_or_make(&signing)?;
        Self::of((&transport, transport_seed), (&signing, signing_seed))
    }

    fn of(transport: (&Path, Seed), signing: (&Path, Seed)) -> Result<Self, IdentityError> {
        let damaged = |path: &Path| IdentityError::Damaged(path.to_owned());
        Ok(Self {
            transport: LinkSecret::from_bytes(&transport.1).map_err(|_| damaged(transport.0))?,
            signing: SoftSigner::new(None, &signing.1).map_err(|_| damaged(signing.0))?,
        })
    }

    /// The public halves: transport, signing.
    #[must_use]
    pub fn public(&self) -> (TransportKey, SigningKey) {
        (self.transport.public(), self.signing.public())
    }
}

type Seed = Zeroizing<[u8; 32]>;

fn paths(state_dir: &Path) -> [PathBuf; 2] {
    ["transport.key", "signing.key"].map(|name| state_dir.join("keys").join(name))
}

fn read(path: &Path) -> Result<Option<Seed>, IdentityError> {
    let failed = |source| IdentityError::File {
        verb: "read",
        path: path.to_owned(),
        source,
    };
    let text = match std::fs::read(path) {
        Ok(text) => Zeroizing::new(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let mode = std::fs::metadata(path).map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(IdentityError::Mode {
            path: path.to_owned(),
            mode,
        });
    }
    let damaged = || IdentityError::Damaged(path.to_owned());
    let bytes = BASE64
        .decode(text.trim_ascii())
        .map(Zeroizing::new)
        .map_err(|_| damaged())?;
    let seed = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| damaged())?;
    Ok(Some(Zeroizing::new(seed)))
}

fn read_or_make(path: &Path) -> Result<Seed, IdentityError> {
    if let Some(seed) = read(path)? {
        return Ok(seed);
    }
    let mut seed = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *seed).map_err(|e| IdentityError::Random(e.to_string()))?;
    let text = Zeroizing::new(BASE64.encode(&*seed) + "\n");
    keep(path, text.as_bytes()).map_err(|source| IdentityError::File {
        verb: "write",
        path: path.to_owned(),
        source,
    })?;
    Ok(seed)
}

/// Replaces a file of mode 0600 whole: written, fsynced, renamed, the folder fsynced.
pub(crate) fn keep(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    // A temporary file has mode 0600 from the start.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    std::fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: LK-3
    #[test]
    fn keys_are_made_once_and_kept_private() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Identity::load(dir.path()).unwrap_err();
        assert!(missing.to_string().contains("meshplan-host enrol"));
        let made = Identity::load_or_make(dir.path()).unwrap();
        let again = Identity::load_or_make(dir.path()).unwrap();
        assert_eq!(made.public(), again.public());
        assert_eq!(made.public(), Identity::load(dir.path()).unwrap().public());
        for path in paths(dir.path()) {
            let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600);
        }
    }

    #[test]
    fn a_key_that_others_may_read_or_that_is_damaged_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        Identity::load_or_make(dir.path()).unwrap();
        let [transport, signing] = paths(dir.path());
        std::fs::write(&signing, "AAAA\n").unwrap();
        let damaged = Identity::load(dir.path()).unwrap_err();
        assert!(matches!(damaged, IdentityError::Damaged(path) if path == signing));
        std::fs::set_permissions(&transport, std::fs::Permissions::from_mode(0o644)).unwrap();
        let wide = Identity::load(dir.path()).unwrap_err();
        assert!(wide.to_string().contains("chmod 0600"));
    }
}
