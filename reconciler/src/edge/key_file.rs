//! The key bundle: one encrypted file with the keys of a reconciler (SG-7).
//!
//! It lives outside the fleet repo, has mode 0600, and holds the author's seed, the secret of the link and the
//! timestamp's seed. XChaCha20-Poly1305 under an argon2id key; what stands in clear beside it (format, cost, the
//! public halves) is authenticated with it. In memory the secrets are zeroized when dropped.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use data_encoding::BASE64;
use meshplan_schemas::envelope::{Signer as _, SoftSigner};
use meshplan_schemas::ident::KeyId;
use meshplan_schemas::key::{SigningKey, TransportKey};
use meshplan_schemas::session::LinkSecret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The environment variable that may hold the passphrase.
pub const PASSPHRASE_VARIABLE: &str = "MESHPLAN_PASSPHRASE";
/// The name of systemd's credential that may hold the passphrase.
pub const PASSPHRASE_CREDENTIAL: &str = "meshplan-passphrase";
const FORMAT: u32 = 1;
const FILE_BYTES: u64 = 64 * 1024;

/// Why a key bundle cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
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
        "{path} has mode {mode:04o}: others than its owner may open it, so it is not used; run `chmod 0600 {path}`"
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// There already.
    #[error(
        "{0} exists already; a key bundle is never overwritten, as hosts know its keys: move it away by hand"
    )]
    Exists(PathBuf),
    /// Not a bundle.
    #[error("{path} is no key bundle: {why}")]
    Form {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Does not open.
    #[error("{0} does not open: the passphrase is wrong, or the file was changed")]
    Passphrase(PathBuf),
    /// No passphrase anywhere.
    #[error(
        "no passphrase for the key bundle: name a file in the configuration (`[keys] passphrase_file`), set {PASSPHRASE_VARIABLE}, or give systemd's credential `{PASSPHRASE_CREDENTIAL}`"
    )]
    NoPassphrase,
    /// An empty passphrase.
    #[error("the passphrase from {0} is empty")]
    EmptyPassphrase(String),
    /// The system failed at cryptography.
    #[error("cannot make keys: {0}")]
    System(String),
}

/// A passphrase; zeroized when dropped, never printed.
pub struct Passphrase(Zeroizing<Vec<u8>>);

impl Passphrase {
    /// Takes bytes; a line end at their end is no part of it.
    ///
    /// # Errors
    /// [`KeyFileError::EmptyPassphrase`]; `from` says where it came from.
    pub fn new(bytes: Vec<u8>, from: &str) -> Result<Self, KeyFileError> {
        let bytes = Zeroizing::new(bytes);
        let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return Err(KeyFileError::EmptyPassphrase(from.to_owned()));
        }
        Ok(Self(Zeroizing::new(line.to_vec())))
    }

    /// Looks for one: the file of the configuration, then the environment, then systemd's credential. `env` reads a
    /// variable.
    ///
    /// # Errors
    /// [`KeyFileError`]; a file that others may read is refused.
    pub fn find(
        file: Option<&Path>,
        env: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<Self, KeyFileError> {
        if let Some(path) = file {
            return Self::new(read_private(path)?, &path.display().to_string());
        }
        if let Some(text) = env(PASSPHRASE_VARIABLE) {
            return Self::new(text.into_encoded_bytes(), PASSPHRASE_VARIABLE);
        }
        if let Some(folder) = env("CREDENTIALS_DIRECTORY") {
            let path = Path::new(&folder).join(PASSPHRASE_CREDENTIAL);
            if path.exists() {
                return Self::new(read_private(&path)?, &path.display().to_string());
            }
        }
        Err(KeyFileError::NoPassphrase)
    }
}

impl std::fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passphrase")
    }
}

/// Reads a file that only its owner may open.
fn read_private(path: &Path) -> Result<Vec<u8>, KeyFileError> {
    let failed = |source| KeyFileError::File {
        verb: "read",
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Mode {
            path: path.to_owned(),
            mode,
        });
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Writes a file of mode 0600 whole or not at all; one that exists is not touched.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), KeyFileError> {
    let failed = |source| KeyFileError::File {
        verb: "write",
        path: path.to_owned(),
        source,
    };
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    // A temporary file has mode 0600 from the start.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(bytes)
        .and_then(|()| file.as_file().sync_all())
        .map_err(failed)?;
    file.persist_noclobber(path).map_err(|e| match e.error.kind() {
        std::io::ErrorKind::AlreadyExists => KeyFileError::Exists(path.to_owned()),
        _ => failed(e.error),
    })?;
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(failed)
}

/// What the passphrase costs to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Cost {
    memory_kib: u32,
    passes: u32,
}

impl Cost {
    /// RFC 9106, section 4, second recommended option, with one lane.
    const DEFAULT: Self = Self {
        memory_kib: 64 * 1024,
        passes: 3,
    };
    /// A file that asks for more is not honest.
    const MOST: Self = Self {
        memory_kib: 1024 * 1024,
        passes: 64,
    };

    fn key(self, passphrase: &Passphrase, salt: &[u8]) -> Result<Zeroizing<[u8; 32]>, String> {
        let params =
            argon2::Params::new(self.memory_kib, self.passes, 1, Some(32)).map_err(|e| e.to_string())?;
        let mut key = Zeroizing::new([0; 32]);
        argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params)
            .hash_password_into(&passphrase.0, salt, &mut *key)
            .map_err(|e| e.to_string())?;
        Ok(key)
    }
}

/// The public halves, readable without the passphrase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublicKeys {
    /// The author's name.
    pub author_id: KeyId,
    /// The author's key: `[[authors]]` of fleet.toml.
    pub author: SigningKey,
    /// The key that hosts pin.
    pub link: TransportKey,
    /// The key of timestamps.
    pub timestamp: SigningKey,
}

/// What stands in clear and is authenticated.
#[derive(Debug, Serialize, Deserialize)]
struct Clear {
    format: u32,
    kdf: String,
    cost: Cost,
    salt: String,
    nonce: String,
    public: PublicKeys,
}

#[derive(Serialize, Deserialize)]
struct BundleFile {
    clear: Clear,
    sealed: String,
}

/// The keys of a reconciler.
pub struct KeyBundle {
    author_id: KeyId,
    author: Zeroizing<[u8; 32]>,
    link: LinkSecret,
    timestamp: Zeroizing<[u8; 32]>,
}

impl std::fmt::Debug for KeyBundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyBundle({})", self.author_id)
    }
}

fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, KeyFileError> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(&mut *bytes).map_err(|e| KeyFileError::System(e.to_string()))?;
    Ok(bytes)
}

impl KeyBundle {
    /// New keys, kept in a new file of mode 0600, fsynced.
    ///
    /// # Errors
    /// [`KeyFileError`]; a file that exists is never touched.
    pub fn create(path: &Path, author_id: KeyId, passphrase: &Passphrase) -> Result<Self, KeyFileError> {
        Self::create_at(path, author_id, passphrase, Cost::DEFAULT)
    }

    fn create_at(
        path: &Path,
        author_id: KeyId,
        passphrase: &Passphrase,
        cost: Cost,
    ) -> Result<Self, KeyFileError> {
        let bundle = Self {
            author_id,
            author: random()?,
            link: LinkSecret::generate().map_err(|e| KeyFileError::System(e.to_string()))?,
            timestamp: random()?,
        };
        let text = bundle.sealed(passphrase, cost)?;
        write_new(path, text.as_bytes())?;
        Ok(bundle)
    }

    fn sealed(&self, passphrase: &Passphrase, cost: Cost) -> Result<String, KeyFileError> {
        let (salt, nonce) = (random::<16>()?, random::<24>()?);
        let clear = Clear {
            format: FORMAT,
            kdf: "argon2id".to_owned(),
            cost,
            salt: BASE64.encode(&*salt),
            nonce: BASE64.encode(&*nonce),
            public: self.public(),
        };
        let key = cost.key(passphrase, &*salt).map_err(KeyFileError::System)?;
        let plain = Zeroizing::new([*self.author, *self.link.as_bytes(), *self.timestamp].concat());
        let aad = serde_json::to_vec(&clear).map_err(|e| KeyFileError::System(e.to_string()))?;
        let payload = Payload {
            msg: &plain,
            aad: &aad,
        };
        let sealed = XChaCha20Poly1305::new((&*key).into())
            .encrypt(&XNonce::from(*nonce), payload)
            .map_err(|e| KeyFileError::System(e.to_string()))?;
        let file = BundleFile {
            clear,
            sealed: BASE64.encode(&sealed),
        };
        serde_json::to_string_pretty(&file)
            .map(|text| text + "\n")
            .map_err(|e| KeyFileError::System(e.to_string()))
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`KeyFileError`].
    pub fn open(path: &Path, passphrase: &Passphrase) -> Result<Self, KeyFileError> {
        let form = |why: String| KeyFileError::Form {
            path: path.to_owned(),
            why,
        };
        let file = read(path)?;
        let clear = file.clear;
        if clear.cost.memory_kib > Cost::MOST.memory_kib || clear.cost.passes > Cost::MOST.passes {
            return Err(form("it asks for more work than any honest one".to_owned()));
        }
        let bytes = |name: &str, text: &str| {
            BASE64
                .decode(text.as_bytes())
                .map_err(|_| form(format!("`{name}` is not base64")))
        };
        let nonce: [u8; 24] = bytes("nonce", &clear.nonce)?
            .try_into()
            .map_err(|_| form("`nonce` is not 24 bytes".to_owned()))?;
        let key = clear
            .cost
            .key(passphrase, &bytes("salt", &clear.salt)?)
            .map_err(&form)?;
        let aad = serde_json::to_vec(&clear).map_err(|e| form(e.to_string()))?;
        let payload = Payload {
            msg: &bytes("sealed", &file.sealed)?,
            aad: &aad,
        };
        let plain = XChaCha20Poly1305::new((&*key).into())
            .decrypt(&XNonce::from(nonce), payload)
            .map(Zeroizing::new)
            .map_err(|_| KeyFileError::Passphrase(path.to_owned()))?;
        let part = |at: usize| -> Result<Zeroizing<[u8; 32]>, KeyFileError> {
            plain
                .get(at * 32..(at + 1) * 32)
                .and_then(|part| part.try_into().ok())
                .map(Zeroizing::new)
                .ok_or_else(|| form("it holds fewer keys than it should".to_owned()))
        };
        Ok(Self {
            author_id: clear.public.author_id,
            author: part(0)?,
            link: LinkSecret::from_bytes(&*part(1)?).map_err(|e| form(e.to_string()))?,
            timestamp: part(2)?,
        })
    }

    /// Signs epochs, lists, declarations and blocks.
    #[must_use]
    pub fn author(&self) -> SoftSigner {
        signer(Some(self.author_id.clone()), &self.author)
    }

    /// Signs timestamps; its key id is the key's own.
    #[must_use]
    pub fn timestamp(&self) -> SoftSigner {
        signer(None, &self.timestamp)
    }

    /// Opens sessions.
    #[must_use]
    pub fn link(&self) -> &LinkSecret {
        &self.link
    }

    /// The public halves.
    #[must_use]
    pub fn public(&self) -> PublicKeys {
        PublicKeys {
            author_id: self.author_id.clone(),
            author: self.author().public(),
            link: self.link.public(),
            timestamp: self.timestamp().public(),
        }
    }
}

/// The public halves of a bundle, without its passphrase; not authenticated before the bundle is opened.
///
/// # Errors
/// [`KeyFileError`].
pub fn public_keys(path: &Path) -> Result<PublicKeys, KeyFileError> {
    Ok(read(path)?.clear.public)
}

fn read(path: &Path) -> Result<BundleFile, KeyFileError> {
    let bytes = read_private(path)?;
    let form = |why: String| KeyFileError::Form {
        path: path.to_owned(),
        why,
    };
    let file: BundleFile = serde_json::from_slice(&bytes).map_err(|e| form(e.to_string()))?;
    if file.clear.format > FORMAT || file.clear.kdf != "argon2id" {
        return Err(form(format!(
            "format {} with `{}` is newer than this build",
            file.clear.format, file.clear.kdf
        )));
    }
    Ok(file)
}

fn signer(id: Option<KeyId>, seed: &[u8; 32]) -> SoftSigner {
    // No seed that can be found makes a point of low order: it would take a hash of that value.
    SoftSigner::new(id, seed).expect("a seed never makes a key of low order")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHEAP: Cost = Cost {
        memory_kib: 64,
        passes: 1,
    };
    fn passphrase(text: &str) -> Passphrase {
        Passphrase::new(text.as_bytes().to_vec(), "the test").unwrap()
    }
    fn id() -> KeyId {
        KeyId("reconciler-2026".into())
    }

    // holds: SG-7
    #[test]
    fn a_bundle_comes_back_with_the_same_keys_and_the_file_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let made = KeyBundle::create_at(&path, id(), &passphrase("horse"), CHEAP).unwrap();
        let opened = KeyBundle::open(&path, &passphrase("horse\n")).unwrap();
        assert_eq!(made.public(), opened.public());
        assert_eq!(public_keys(&path).unwrap(), made.public());
        assert_eq!(
            made.author().sign(b"x").unwrap(),
            opened.author().sign(b"x").unwrap()
        );
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&*made.link().to_text()));
        assert!(!text.contains(&BASE64.encode(&*made.author)));
    }

    // holds: SG-7
    #[test]
    fn a_wrong_passphrase_a_changed_byte_and_a_wide_mode_are_refused_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        KeyBundle::create_at(&path, id(), &passphrase("horse"), CHEAP).unwrap();
        let said = |p: &str| KeyBundle::open(&path, &passphrase(p)).unwrap_err().to_string();
        assert!(said("cow").contains("the passphrase is wrong"));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("reconciler-2026", "reconciler-2027")).unwrap();
        assert!(
            said("horse").contains("was changed"),
            "what stands in clear is authenticated"
        );
        std::fs::write(
            &path,
            text.replace("\"memory_kib\": 64", "\"memory_kib\": 99999999"),
        )
        .unwrap();
        assert!(said("horse").contains("more work than any honest one"));
        std::fs::write(&path, "{}").unwrap();
        assert!(said("horse").contains("is no key bundle"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(said("horse").contains(&format!("chmod 0600 {}", path.display())));
    }

    // holds: SG-7
    #[test]
    fn a_bundle_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, "old").unwrap();
        let made = KeyBundle::create_at(&path, id(), &passphrase("horse"), CHEAP);
        assert!(matches!(made, Err(KeyFileError::Exists(_))));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    }

    // holds: SG-7
    #[test]
    fn the_passphrase_comes_from_file_environment_or_credential_in_this_order() {
        let dir = tempfile::tempdir().unwrap();
        let private = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
            path
        };
        let file = private("file", "of the file\n");
        private(PASSPHRASE_CREDENTIAL, "of systemd\n");
        let folder = dir.path().as_os_str().to_owned();
        let both = |name: &str| match name {
            PASSPHRASE_VARIABLE => Some("of the environment".into()),
            "CREDENTIALS_DIRECTORY" => Some(folder.clone()),
            _ => None,
        };
        let found = |file: Option<&Path>, variable: bool| {
            let env = |name: &str| both(name).filter(|_| variable || name != PASSPHRASE_VARIABLE);
            Passphrase::find(file, env).unwrap().0.to_vec()
        };
        assert_eq!(found(Some(&file), true), b"of the file");
        assert_eq!(found(None, true), b"of the environment");
        assert_eq!(found(None, false), b"of systemd");
        let none = Passphrase::find(None, |_| None).unwrap_err();
        assert!(matches!(none, KeyFileError::NoPassphrase));
        let empty = Passphrase::find(None, |name| (name == PASSPHRASE_VARIABLE).then(|| "\n".into()));
        assert!(matches!(empty, Err(KeyFileError::EmptyPassphrase(_))));
    }
}
