//! Secrets at rest: age files, and the identity that opens them (FR-9).
//!
//! It stands alone because it is the only file that knows the age crate. Invariant: no value and no identity is ever
//! in an error or in a `Debug` text.

use std::fmt;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use age::secrecy::ExposeSecret as _;
use zeroize::Zeroizing;

use crate::pure::secret_digest::SecretDigestKey;

/// The largest value, in bytes: what is larger belongs into an artifact.
pub const VALUE_BYTES: usize = 512 * 1024;

/// The name of the identity's file in a reconciler's state folder, beside its keys.
pub const IDENTITY_FILE: &str = "age-identity";

/// What opens the secrets of a fleet.
pub struct AgeIdentity(age::x25519::Identity);

/// To whom a secret is encrypted.
#[derive(Clone, PartialEq, Eq)]
pub struct AgeRecipient(age::x25519::Recipient);

/// Why a secret cannot be made, or an identity cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum AgeFileError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file has no identity.
    #[error("{path} holds no age identity: a line that begins with AGE-SECRET-KEY-1 is missing or damaged")]
    Identity {
        /// Which.
        path: PathBuf,
    },
    /// Others may read it.
    #[error(
        "{path} has mode {mode:04o}: others may read what opens every secret of the fleet; run `chmod 0600 {path}`, and change the secrets if others were on this machine"
    )]
    Mode {
        /// Which.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The age crate would not encrypt.
    #[error("the secret cannot be encrypted: {0}")]
    Encrypt(String),
}

impl AgeIdentity {
    /// A fresh one.
    #[must_use]
    pub fn generate() -> Self {
        Self(age::x25519::Identity::generate())
    }

    /// Reads a file as the age tool writes it: comments, and one line with the identity.
    ///
    /// # Errors
    /// [`AgeFileError::Read`], [`AgeFileError::Identity`].
    pub fn read(path: &Path) -> Result<Self, AgeFileError> {
        let text = fs::read_to_string(path).map_err(|source| AgeFileError::Read {
            path: path.to_owned(),
            source,
        })?;
        let text = Zeroizing::new(text);
        let line = text
            .lines()
            .map(str::trim)
            .find(|line| !line.is_empty() && !line.starts_with('#'));
        line.and_then(|line| age::x25519::Identity::from_str(line).ok())
            .map(Self)
            .ok_or_else(|| AgeFileError::Identity {
                path: path.to_owned(),
            })
    }

    /// The text of its file.
    #[must_use]
    pub fn file_text(&self) -> Zeroizing<String> {
        let (recipient, secret) = (self.recipient(), self.0.to_string());
        Zeroizing::new(format!("# public key: {recipient}\n{}\n", secret.expose_secret()))
    }

    /// Its public half.
    #[must_use]
    pub fn recipient(&self) -> AgeRecipient {
        AgeRecipient(self.0.to_public())
    }

    /// Whether an age file is encrypted to this identity, among others or alone. The value stays closed.
    #[must_use]
    pub fn opens(&self, file: &[u8]) -> bool {
        let reader = age::armor::ArmoredReader::new(file);
        age::Decryptor::new(reader).is_ok_and(|sealed| {
            sealed
                .decrypt(std::iter::once(&self.0 as &dyn age::Identity))
                .is_ok()
        })
    }

    /// Opens an age file that is encrypted to this identity.
    ///
    /// # Errors
    /// Why not, in a sentence without a value.
    pub fn open(&self, file: &[u8]) -> Result<Zeroizing<Vec<u8>>, &'static str> {
        let sealed = age::Decryptor::new(age::armor::ArmoredReader::new(file))
            .map_err(|_| "it is no age file, or a damaged one")?;
        let mut reader = sealed
            .decrypt(std::iter::once(&self.0 as &dyn age::Identity))
            .map_err(|_| "it is encrypted to somebody else")?;
        let mut value = Zeroizing::new(Vec::new());
        let mut piece = Zeroizing::new([0; 4096]);
        loop {
            match reader.read(&mut *piece) {
                Ok(0) => return Ok(value),
                // As the value grows by hand, what is left behind is zeroized.
                Ok(read) => append(&mut value, piece.get(..read).unwrap_or_default()),
                Err(_) => return Err("it is damaged"),
            }
            if value.len() > VALUE_BYTES {
                return Err("its value is larger than a secret may be");
            }
        }
    }

    /// The key of content digests of secrets (FR-9).
    #[must_use]
    pub fn digest_key(&self) -> SecretDigestKey {
        SecretDigestKey::of_identity(self.0.to_string().expose_secret().as_bytes())
    }
}

impl fmt::Debug for AgeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgeIdentity({})", self.recipient())
    }
}

impl FromStr for AgeRecipient {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, &'static str> {
        age::x25519::Recipient::from_str(text).map(Self)
    }
}
impl fmt::Display for AgeRecipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl fmt::Debug for AgeRecipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgeRecipient({self})")
    }
}

impl AgeRecipient {
    /// Encrypts a value: another file each time, also for the same value. The file is armored, so that it is text
    /// in a review.
    ///
    /// # Errors
    /// [`AgeFileError::Encrypt`].
    pub fn seal(&self, value: &[u8]) -> Result<Vec<u8>, AgeFileError> {
        let refused = |e: &dyn fmt::Display| AgeFileError::Encrypt(e.to_string());
        let recipient: &dyn age::Recipient = &self.0;
        let encryptor =
            age::Encryptor::with_recipients(std::iter::once(recipient)).map_err(|e| refused(&e))?;
        let mut file = Vec::new();
        let armor = age::armor::ArmoredWriter::wrap_output(&mut file, age::armor::Format::AsciiArmor)
            .map_err(|e| refused(&e))?;
        let mut writer = encryptor.wrap_output(armor).map_err(|e| refused(&e))?;
        writer
            .write_all(value)
            .and_then(|()| writer.finish())
            .and_then(|armor| armor.finish())
            .map_err(|e| refused(&e))?;
        Ok(file)
    }
}

/// Appends without leaving a copy of the former bytes behind.
fn append(value: &mut Zeroizing<Vec<u8>>, more: &[u8]) {
    let wanted = value.len() + more.len();
    if wanted > value.capacity() {
        let mut larger = Zeroizing::new(Vec::with_capacity(wanted.next_power_of_two()));
        larger.extend_from_slice(value);
        *value = larger;
    }
    value.extend_from_slice(more);
}

/// Whether a file is an age file at all, armored or not.
#[must_use]
pub fn is_age(file: &[u8]) -> bool {
    age::Decryptor::new(age::armor::ArmoredReader::new(file)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: FR-9
    #[test]
    fn what_is_sealed_opens_with_its_identity_alone() {
        let (ours, other) = (AgeIdentity::generate(), AgeIdentity::generate());
        let file = ours.recipient().seal(b"hunter2").unwrap();
        assert!(is_age(&file) && ours.opens(&file) && !other.opens(&file));
        assert!(!is_age(b"hunter2") && !ours.opens(b"hunter2"));
        let again = ours.recipient().seal(b"hunter2").unwrap();
        assert_ne!(file, again);
        assert_eq!(*ours.open(&file).unwrap(), b"hunter2");
        let larger = vec![7; 3 * 4096 + 1];
        let sealed = ours.recipient().seal(&larger).unwrap();
        assert_eq!(*ours.open(&sealed).unwrap(), larger);
        assert_eq!(other.open(&file).unwrap_err(), "it is encrypted to somebody else");
        let half = &file[..file.len() / 2];
        assert!(!ours.open(half).unwrap_err().contains("hunter2"));
    }

    // holds: FR-9
    #[test]
    fn an_identity_comes_back_from_its_file_and_says_its_public_half_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(IDENTITY_FILE);
        let identity = AgeIdentity::generate();
        fs::write(&path, identity.file_text().as_bytes()).unwrap();
        let back = AgeIdentity::read(&path).unwrap();
        assert_eq!(back.recipient(), identity.recipient());
        assert!(!format!("{back:?}").contains("AGE-SECRET"));
        fs::write(&path, "# nothing\nAGE-SECRET-KEY-1QQ\n").unwrap();
        let error = AgeIdentity::read(&path).unwrap_err().to_string();
        assert!(
            error.contains("holds no age identity") && !error.contains("1QQ"),
            "{error}"
        );
    }
}
