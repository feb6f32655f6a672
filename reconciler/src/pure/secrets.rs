//! Secrets of a tree as values: opened through a seam, zeroized, printed as `[secret]` (FR-9).
//!
//! It stands alone because composing, deciding and signing hand these values on, and none of them may show one.
//! Invariant: what is kept, compared and said of a value is its content digest and never the value.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::ModuleName;
use zeroize::Zeroizing;

use super::source_tree::SourceTree;

/// How the names of files end that are secrets at rest.
const SUFFIX: &str = ".age";

/// A value that goes to nodes sealed.
#[derive(Clone)]
pub struct Secret {
    digest: Digest,
    value: Arc<Zeroizing<Vec<u8>>>,
}

impl Secret {
    /// A value by its content digest.
    #[must_use]
    pub fn new(digest: Digest, value: Zeroizing<Vec<u8>>) -> Self {
        Self {
            digest,
            value: Arc::new(value),
        }
    }

    /// The content digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The value, to be sealed and for nothing else.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        &self.value
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}
impl Eq for Secret {}

/// Opens secrets: the seam between what composes and who has the identity.
pub trait OpensSecrets: fmt::Debug + Send + Sync {
    /// Whether values are opened at all.
    fn opens(&self) -> bool;
    /// Opens an age file.
    ///
    /// # Errors
    /// Why not, in a sentence without a value.
    fn open(&self, file: &[u8]) -> Result<Secret, String>;
    /// The content digest of a value that secrets were written into.
    fn digest(&self, value: &[u8]) -> Digest;
}

/// Opens nothing: who checks a tree without the reconciler's identity. A stand-in takes the place of each value, which is
/// another for each file; so a value that is encrypted anew counts as changed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unopened;

impl OpensSecrets for Unopened {
    fn opens(&self) -> bool {
        false
    }
    fn open(&self, file: &[u8]) -> Result<Secret, String> {
        let stand_in = format!("[secret {}]", Digest::of(file)).into_bytes();
        Ok(Secret::new(Digest::of(&stand_in), Zeroizing::new(stand_in)))
    }
    fn digest(&self, value: &[u8]) -> Digest {
        Digest::of(value)
    }
}

/// A secret of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Opened {
    /// The digest of the file as it is encrypted.
    file: Digest,
    /// The value, or why there is none.
    secret: Result<Secret, String>,
}

/// The secrets of one tree.
#[derive(Debug, Clone)]
pub struct Secrets {
    opener: Arc<dyn OpensSecrets>,
    by_path: BTreeMap<String, Opened>,
}

impl Default for Secrets {
    fn default() -> Self {
        Self::none(Arc::new(Unopened))
    }
}

impl Secrets {
    fn none(opener: Arc<dyn OpensSecrets>) -> Self {
        Self {
            opener,
            by_path: BTreeMap::new(),
        }
    }

    /// Opens the secrets of a tree.
    #[must_use]
    pub fn of(tree: &SourceTree, opener: &Arc<dyn OpensSecrets>) -> Self {
        let mut secrets = Self::none(Arc::clone(opener));
        let files = tree.iter().filter(|(path, _)| is_secret(path));
        for (path, entry) in files {
            let opened = Opened {
                file: Digest::of(&entry.bytes),
                secret: opener.open(&entry.bytes),
            };
            secrets.by_path.insert(path.to_owned(), opened);
        }
        secrets
    }

    /// How many there are whose values nobody opened; 0 where somebody opens them.
    #[must_use]
    pub fn not_opened(&self) -> usize {
        if self.opener.opens() {
            0
        } else {
            self.by_path.len()
        }
    }

    /// Those that do not open, by path: the digest of the file, and why.
    #[must_use]
    pub fn failed(&self) -> BTreeMap<String, (Digest, String)> {
        let failed = self.by_path.iter().filter_map(|(path, opened)| {
            let why = opened.secret.as_ref().err()?;
            Some((path.clone(), (opened.file, why.clone())))
        });
        failed.collect()
    }

    /// What is to be said of those that do not open.
    pub fn findings(&self) -> impl Iterator<Item = Finding> {
        self.failed().into_iter().map(|(path, (_, why))| {
            let help = "`meshplan secret set NAME` encrypts a value to the reconciler that fleet.toml names";
            let message = format!("the reconciler cannot open this secret: {why}");
            Finding::of_file(&path, message).help(help).warning()
        })
    }

    /// The digest of the value of a secret of the fleet; none where there is none, or it does not open.
    #[must_use]
    pub fn digest_of(&self, name: &str) -> Option<Digest> {
        let opened = self.by_path.get(&format!("secrets/{name}{SUFFIX}"))?;
        opened.secret.as_ref().ok().map(Secret::digest)
    }

    /// The digest by which the sources of a module go for a file of its folder: that of the value, for a secret.
    #[must_use]
    pub fn source_digest(&self, path: &str) -> Option<Digest> {
        let opened = self.by_path.get(path)?;
        Some(opened.secret.as_ref().map_or(opened.file, Secret::digest))
    }

    /// The secrets that a module can name: its own, then the fleet's.
    #[must_use]
    pub fn within(&self, module: &ModuleName) -> Scope {
        let own = format!("modules/{module}/secrets/");
        let mut names = BTreeMap::new();
        for (folder, prefix) in [("secrets/", String::new()), (own.as_str(), format!("{module}/"))] {
            let inside = self.by_path.iter().filter_map(|(path, opened)| {
                let name = path.strip_prefix(folder)?.strip_suffix(SUFFIX)?;
                Some((name, opened))
            });
            for (name, opened) in inside {
                let known_as = format!("{prefix}{name}");
                names.insert(name.to_owned(), (known_as, opened.secret.clone()));
            }
        }
        Scope {
            opener: Arc::clone(&self.opener),
            names,
        }
    }
}

fn is_secret(path: &str) -> bool {
    let of_module = || {
        let inside = path.strip_prefix("modules/")?.split_once('/')?.1;
        inside.strip_prefix("secrets/")
    };
    path.ends_with(SUFFIX) && (path.starts_with("secrets/") || of_module().is_some())
}

/// Why a secret is not to be had.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoSecret {
    /// Nobody has one of this name.
    Unknown(String),
    /// It does not open, because.
    Closed(String),
}

/// The secrets that one module can name.
#[derive(Debug, Clone)]
pub struct Scope {
    opener: Arc<dyn OpensSecrets>,
    /// By name: how content calls it, and the value.
    names: BTreeMap<String, (String, Result<Secret, String>)>,
}

impl Scope {
    /// A secret by its name, with the name that content knows it by.
    ///
    /// # Errors
    /// [`NoSecret`].
    pub fn get(&self, name: &str) -> Result<(&str, &Secret), NoSecret> {
        match self.names.get(name) {
            Some((known_as, Ok(secret))) => Ok((known_as, secret)),
            Some((_, Err(why))) => Err(NoSecret::Closed(format!(
                "the reconciler cannot open the secret `{name}`: {why}"
            ))),
            None => Err(NoSecret::Unknown(format!("there is no secret `{name}`"))),
        }
    }

    /// A value that secrets were written into, as a secret of its own.
    #[must_use]
    pub fn made(&self, value: Zeroizing<Vec<u8>>) -> Secret {
        Secret::new(self.opener.digest(&value), value)
    }

    /// What these uses hang on: by the name that content knows each by, the digest of its value, or why there is none.
    #[must_use]
    pub fn state(&self, uses: &Uses) -> BTreeMap<String, Result<Digest, String>> {
        let used = self.names.iter().filter(|(name, _)| uses.is_of(name));
        used.map(|(_, (known_as, secret))| {
            let state = secret.as_ref().map(Secret::digest).map_err(Clone::clone);
            (known_as.clone(), state)
        })
        .collect()
    }
}

/// The secrets that texts and documents name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Uses {
    /// By name.
    pub names: BTreeSet<String>,
    /// One is asked for by a value, so that it may be any.
    pub any: bool,
}

impl Uses {
    /// Adds those that a template asks for, however it is spaced. What reads like it in ordinary text counts too.
    pub fn add_calls(&mut self, text: &str) {
        for rest in text.split("secret").skip(1) {
            let Some(argument) = rest.trim_start().strip_prefix('(').map(str::trim_start) else {
                continue;
            };
            let named = ['"', '\''].into_iter().find_map(|quote| {
                let (name, rest) = argument.strip_prefix(quote)?.split_once(quote)?;
                rest.trim_start().starts_with(')').then_some(name)
            });
            match named {
                Some(name) => {
                    self.names.insert(name.to_owned());
                }
                None => self.any = true,
            }
        }
    }

    /// Whether one of this name may be used.
    #[must_use]
    pub fn is_of(&self, name: &str) -> bool {
        self.any || self.names.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: FR-9
    #[test]
    fn a_value_is_printed_as_a_secret_wherever_it_stands() {
        let secret = Secret::new(Digest::of(b"x"), Zeroizing::new(b"hunter2".to_vec()));
        assert_eq!(format!("{:?}", Some(&secret)), "Some([secret])");
        let scope = Scope {
            opener: Arc::new(Unopened),
            names: BTreeMap::from([("db".to_owned(), ("db".to_owned(), Ok(secret)))]),
        };
        let printed = format!("{scope:?}");
        assert!(
            printed.contains("[secret]") && !printed.contains("hunter2"),
            "{printed}"
        );
    }

    #[test]
    fn a_call_is_seen_however_it_is_spaced_and_one_by_a_value_may_be_any() {
        for text in [
            "{{ secret(\"db\") }}",
            "{{ secret( 'db' )|upper }}",
            "{%set x=secret (\"db\")%}",
        ] {
            let mut uses = Uses::default();
            uses.add_calls(text);
            assert!(!uses.any && uses.is_of("db") && !uses.is_of("db2"), "{text}");
        }
        for text in ["{{ secret(\"db2\") }}", "{{ settings.secret }} db", ""] {
            let mut uses = Uses::default();
            uses.add_calls(text);
            assert!(!uses.is_of("db"), "{text}");
        }
        let mut by_value = Uses::default();
        by_value.add_calls("{{ secret(settings.which) }}");
        assert!(by_value.any && by_value.is_of("db"));
        let mut joined = Uses::default();
        joined.add_calls("{{ secret(\"d\" ~ \"b\") }}");
        assert!(joined.is_of("db"), "the name is not the first text alone");
    }
}
