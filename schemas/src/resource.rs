//! What a node can be asked to have (page 06).
//!
//! In a declaration a resource is its name, its kind as text and the kind's own fields, so that a host which does
//! not know a kind refuses that one module and applies the others (SG-4). [`Resource::read`] is the one place
//! where kinds are told apart.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::artifact::Artifact;
use crate::digest::Digest;
use crate::ident::{ResourceId, ResourceName};

pub mod accounts;
pub mod bundles;
pub mod containers;
pub mod net;
pub mod programs;
pub mod reversal;
mod wire_table;

/// One resource of a declaration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resource {
    /// `<module>.<id>`.
    pub name: ResourceName,
    /// A word of [`Kind::word`]; others are of newer builds.
    pub kind: String,
    /// The kind's fields.
    pub spec: serde_json::Value,
    /// Whether a roll-back leaves it as it is; none where the kind's own rule holds ([`reversal`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_only: Option<bool>,
    /// Why it cannot be undone, where somebody says so (HR-5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_reversible: Option<String>,
    /// Values of secrets that its sealed content was made of, by their content digests: sealed beside it, so that the
    /// host can keep them out of what it says (HR-11).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hides: Vec<Digest>,
}

impl Resource {
    /// The sealed value that is its content, or is in its environment; none where its fields say all.
    #[must_use]
    pub fn sealed(&self) -> Option<Digest> {
        let digest = match self.kind.as_str() {
            "file" => self.spec.get("content")?.get("sealed")?,
            "container" => self.spec.get("env_sealed")?,
            _ => return None,
        };
        digest.as_str()?.parse().ok()
    }

    /// What an archive or a bundle is made of; none for another kind, and where its fields cannot be read.
    #[must_use]
    pub fn artifact(&self) -> Option<Artifact> {
        let (digest, length) = match self.kind.as_str() {
            "archive" => ("sha256", "size_bytes"),
            "bundle" => ("tree", "list_bytes"),
            _ => return None,
        };
        Some(Artifact {
            name: self.name.clone(),
            sha256: self.spec.get(digest)?.as_str()?.parse().ok()?,
            size_bytes: self.spec.get(length)?.as_u64()?,
        })
    }

    /// What it has on the machine that only one resource may have: its path, or its kind and name.
    #[must_use]
    pub fn place(&self) -> String {
        let text = |key: &str| self.spec.get(key).and_then(serde_json::Value::as_str);
        match text("path") {
            Some(path) => path.to_owned(),
            None => {
                let name = ["name", "unit", "interface", "key"].into_iter().find_map(text);
                let name = name.map_or_else(|| self.name.to_string(), str::to_owned);
                format!("{} {name}", self.kind)
            }
        }
    }
}

/// Declares the kinds: each with its word and its fields.
macro_rules! kinds {
    ($( $(#[doc = $doc:literal])+ $kind:ident = $word:literal of $spec:ty ),+ $(,)?) => {
        /// A resource whose kind this build can read. Which of them a host can also do is for the host to say.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Kind {
            $( $(#[doc = $doc])+ $kind($spec), )+
        }

        impl Resource {
            /// Tells the kind.
            ///
            /// # Errors
            /// [`KindError`].
            pub fn read(&self) -> Result<Kind, KindError> {
                match self.kind.as_str() {
                    $( $word => fields($word, &self.spec).map(Kind::$kind), )+
                    other => Err(KindError::Unknown(other.to_owned())),
                }
            }
        }

        impl Kind {
            /// The words of all kinds.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word that stands in [`Resource::kind`].
            #[must_use]
            pub fn word(&self) -> &'static str {
                match self {
                    $( Self::$kind(_) => $word, )+
                }
            }

            /// The keys that the fields of a kind are written under; none for a word that is no kind.
            #[must_use]
            pub fn keys(word: &str) -> Option<&'static [&'static str]> {
                match word {
                    $( $word => Some(<$spec>::KEYS), )+
                    _ => None,
                }
            }

            fn spec(self) -> Result<serde_json::Value, serde_json::Error> {
                match self {
                    $( Self::$kind(spec) => serde_json::to_value(spec), )+
                }
            }
        }
    };
}
kinds! {
    /// HK-1.
    File = "file" of File,
    /// HK-1.
    Directory = "directory" of Directory,
    /// HK-1.
    Link = "link" of Link,
    /// HK-13.
    Probe = "probe" of Probe,
    /// HK-2.
    User = "user" of accounts::User,
    /// HK-2.
    Group = "group" of accounts::Group,
    /// HK-3.
    Package = "package" of accounts::Package,
    /// HK-4.
    Archive = "archive" of bundles::Archive,
    /// HK-4.
    Bundle = "bundle" of bundles::Bundle,
    /// HK-5.
    Service = "service" of programs::Service,
    /// HK-6.
    Process = "process" of programs::Process,
    /// HK-8.
    Container = "container" of containers::Container,
    /// HK-10.
    Network = "network" of containers::Network,
    /// HK-10.
    Volume = "volume" of containers::Volume,
    /// HK-11.
    Filter = "filter" of net::Filter,
    /// HK-12.
    PrivateNetwork = "private_network" of net::PrivateNetwork,
    /// HK-13.
    Sysctl = "sysctl" of programs::Sysctl,
    /// HK-13.
    KernelModule = "kernel-module" of programs::KernelModule,
    /// HK-16.
    Action = "action" of programs::Action,
    /// HK-16.
    Upgrade = "upgrade" of programs::Upgrade,
    /// HK-16.
    Reboot = "reboot" of programs::Reboot,
}

fn fields<T: serde::de::DeserializeOwned>(
    kind: &'static str,
    value: &serde_json::Value,
) -> Result<T, KindError> {
    T::deserialize(value).map_err(|e| KindError::Spec {
        kind,
        why: e.to_string(),
    })
}

/// Why a resource cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KindError {
    /// A kind of a newer build.
    #[error("this build does not know the kind `{0}`")]
    Unknown(String),
    /// Fields that do not fit the kind.
    #[error("the fields of this {kind} cannot be read: {why}")]
    Spec {
        /// The kind.
        kind: &'static str,
        /// What is wrong.
        why: String,
    },
}

impl Kind {
    /// The resource of a declaration, without a mark.
    ///
    /// # Errors
    /// The fields cannot be written as JSON, which does not happen for these types.
    pub fn into_resource(self, name: ResourceName) -> Result<Resource, serde_json::Error> {
        let kind = self.word().to_owned();
        let spec = self.spec()?;
        Ok(Resource {
            name,
            kind,
            spec,
            forward_only: None,
            not_reversible: None,
            hides: Vec::new(),
        })
    }

    /// The path on the machine that only one resource may have (HR-6); none for what is no path. What else only one
    /// may have (a unit, a container's name) is checked where documents are.
    #[must_use]
    pub fn target(&self) -> Option<&str> {
        match self {
            Self::File(s) => Some(&s.path),
            Self::Directory(s) => Some(&s.path),
            Self::Link(s) => Some(&s.path),
            Self::Archive(s) => Some(&s.path),
            Self::Bundle(s) => Some(&s.path),
            _ => None,
        }
    }
}

impl File {
    /// The keys that its fields are written under.
    pub const KEYS: &'static [&'static str] = &[
        "path", "content", "mode", "owner", "group", "restarts", "reloads", "runs", "validate",
    ];
}

impl Directory {
    /// The keys that its fields are written under.
    pub const KEYS: &'static [&'static str] = &["path", "mode", "owner", "group"];
}

impl Link {
    /// The keys that its fields are written under.
    pub const KEYS: &'static [&'static str] = &["path", "target"];
}

impl Probe {
    /// The keys that its fields are written under.
    pub const KEYS: &'static [&'static str] = &["ask", "timeout_secs"];
}

/// A file (HK-1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Absolute path on the node.
    pub path: String,
    /// Its bytes.
    pub content: Content,
    /// Octal digits, as `"0644"` (FR-13).
    pub mode: String,
    /// User name or number; none leaves it to whoever the host runs as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Group name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Resources of the module that are restarted when it changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<ResourceId>,
    /// Resources of the module that are reloaded when it changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reloads: Vec<ResourceId>,
    /// Resources of the module that are run when it changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<ResourceId>,
    /// A command that must succeed on the temporary file first; `%s` is its path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate: Option<String>,
}

/// Bytes of a file: text where they are UTF-8, else base64; or a secret, which stands elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// UTF-8.
    Text(String),
    /// Standard base64.
    Base64(String),
    /// The value with this content digest, which the declaration carries sealed to its node (FR-9).
    Sealed(Digest),
}

/// Why a content has no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// Bad base64.
    #[error("the content is not base64: {0}")]
    Base64(#[from] data_encoding::DecodeError),
    /// They are sealed to a node.
    #[error("the content is a sealed value")]
    Sealed,
}

impl Content {
    /// Wraps bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(data_encoding::BASE64.encode(bytes)),
        }
    }
    /// The bytes.
    ///
    /// # Errors
    /// [`ContentError`].
    pub fn bytes(&self) -> Result<Vec<u8>, ContentError> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Base64(text) => Ok(data_encoding::BASE64.decode(text.as_bytes())?),
            Self::Sealed(_) => Err(ContentError::Sealed),
        }
    }
}

/// A directory (HK-1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    /// Absolute path on the node.
    pub path: String,
    /// Octal digits.
    pub mode: String,
    /// User name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Group name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// A symbolic link (HK-1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Absolute path of the link.
    pub path: String,
    /// What it points at, as it stands.
    pub target: String,
}

/// A probe (HK-13): feeds confirm and looks, changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// What is asked.
    pub ask: Ask,
    /// After how long no answer is "no", in seconds.
    pub timeout_secs: u32,
}

/// What a probe asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// A GET of a plain-http address on the node; the status must be the one given.
    Http {
        /// `http://host:port/path`.
        url: String,
        /// The status that counts as healthy.
        status: u16,
    },
    /// A connection to `host:port`.
    Tcp(String),
    /// A command, argv; exit code 0 is healthy. It runs with the host's root as working directory and in
    /// `MESHPLAN_ROOT`.
    Command(Vec<String>),
    /// A unit of the service manager; active is healthy.
    Unit(String),
    /// A container by its name; what its own healthcheck says.
    Container(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of the kinds that are written by hand are those of their types; the others come from one list.
    #[test]
    fn the_keys_of_a_kind_are_those_that_it_is_written_with() {
        let of = |schema: schemars::Schema| -> Vec<String> {
            let keys = schema
                .get("properties")
                .and_then(serde_json::Value::as_object)
                .unwrap();
            keys.keys().cloned().collect()
        };
        for (word, schema) in [
            ("file", schemars::schema_for!(File)),
            ("directory", schemars::schema_for!(Directory)),
            ("link", schemars::schema_for!(Link)),
            ("probe", schemars::schema_for!(Probe)),
        ] {
            let mut keys: Vec<&str> = Kind::keys(word).unwrap().to_vec();
            keys.sort_unstable();
            assert_eq!(keys, of(schema), "{word}");
        }
        assert!(Kind::WORDS.iter().all(|word| Kind::keys(word).is_some()));
        assert!(Kind::keys("container").unwrap().contains(&"capabilities"));
        assert_eq!(Kind::keys("nothing"), None);
    }
}
