//! Names and identities as types, so that one cannot stand in another's place.
//!
//! Every name that can become part of a path is checked when it is made (FR-4): a value of these types never
//! holds `/`, `..` or an empty component.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::limits::NAME_BYTES;

/// Why a text is not a name (FR-4).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("a name may not be empty")]
    Empty,
    /// Longer than [`NAME_BYTES`].
    #[error("a name is at most {NAME_BYTES} characters long, this one has {0}")]
    TooLong(usize),
    /// Starts with a dot or a dash.
    #[error("a name may not start with `{0}`")]
    Start(char),
    /// A character outside `[a-z0-9._-]`.
    #[error("a name consists of a-z, 0-9, `.`, `_` and `-`; `{0}` is none of them")]
    Character(char),
    /// A dot where none may be.
    #[error("this name may not contain a dot")]
    Dot,
    /// `<module>.<id>` without its dot.
    #[error("a resource is named `<module>.<id>`")]
    NotAResource,
    /// Not a commit id.
    #[error("a commit id is 40 or 64 lower-case hexadecimal digits")]
    NotACommit,
}

fn check_name(text: &str, dots: bool) -> Result<(), NameError> {
    let Some(first) = text.chars().next() else {
        return Err(NameError::Empty);
    };
    if text.len() > NAME_BYTES {
        return Err(NameError::TooLong(text.len()));
    }
    if first == '.' || first == '-' {
        return Err(NameError::Start(first));
    }
    for c in text.chars() {
        match c {
            'a'..='z' | '0'..='9' | '_' | '-' => {}
            '.' if dots => {}
            '.' => return Err(NameError::Dot),
            other => return Err(NameError::Character(other)),
        }
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
        #[serde(try_from = "String")]
        #[schemars(with = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }
        impl FromStr for $type {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                let check: fn(&str) -> Result<(), NameError> = $check;
                check(text)?;
                Ok(Self(text.into()))
            }
        }
        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0.as_ref().to_owned()
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }
        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// A node's name: the file name of its record without `.toml`; no dot (FR-4).
    NodeName, |t| check_name(t, false));
name!(
    /// A role's name.
    RoleName, |t| check_name(t, true));
name!(
    /// A module's name; may have dots.
    ModuleName, |t| check_name(t, true));
name!(
    /// A resource's id inside its module; no dot.
    ResourceId, |t| check_name(t, false));
name!(
    /// A deploy plan's name.
    PlanName, |t| check_name(t, true));
name!(
    /// The name of a file of checks.
    CheckName, |t| check_name(t, true));
name!(
/// The fleet's name: `[a-z0-9][a-z0-9-]{0,62}` (page 01).
FleetName, |t| {
    check_name(t, false)?;
    match t.find('_') { Some(_) => Err(NameError::Character('_')), None => Ok(()) }
});
name!(
/// A commit's id: 40 (SHA-1) or 64 (SHA-256) lower-case hexadecimal digits.
CommitId, |t| {
    let hex = t.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if hex && (t.len() == 40 || t.len() == 64) { Ok(()) } else { Err(NameError::NotACommit) }
});

impl CommitId {
    /// Git's name for no commit, forty zeros: stands for one that is not made yet.
    #[must_use]
    pub fn null() -> Self {
        Self("0".repeat(40).into())
    }
    /// The first 12 digits, as a delivery's name shows them (DL-1).
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

/// A resource of a node: `<module>.<id>`; the last dot is the boundary (HR-6).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct ResourceName {
    /// The module that owns it.
    pub module: ModuleName,
    /// Its id in the module.
    pub id: ResourceId,
}

impl FromStr for ResourceName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (module, id) = text.rsplit_once('.').ok_or(NameError::NotAResource)?;
        Ok(Self {
            module: module.parse()?,
            id: id.parse()?,
        })
    }
}
impl TryFrom<String> for ResourceName {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}
impl From<ResourceName> for String {
    fn from(name: ResourceName) -> String {
        name.to_string()
    }
}
impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.module, self.id)
    }
}

/// A node's identity: its record's uuid. Never reused (FR-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(with = "String")]
pub struct NodeId(pub Uuid);

impl NodeId {
    /// The first 8 hex digits of the SHA-256 of the uuid's lower-case text with hyphens (vocabulary).
    #[must_use]
    pub fn short(&self) -> ShortId {
        let mut text = Uuid::encode_buffer();
        let digest = Sha256::digest(self.0.hyphenated().encode_lower(&mut text).as_bytes());
        ShortId(data_encoding::HEXLOWER.encode(&digest[..4]))
    }
}
impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.hyphenated())
    }
}
impl FromStr for NodeId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::parse_str(text).map(Self)
    }
}

/// A node's short id (vocabulary).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ShortId(String);

impl ShortId {
    /// The eight digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a key that signs: an author's `id`, or the first 16 hex digits of the key's SHA-256 (vocabulary).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct KeyId(pub String);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a delivery: `<repo>@<first 12 hex>` (DL-1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeliveryName(pub String);

impl DeliveryName {
    /// Names the delivery of `commit` in the repository that the configuration calls `repo`.
    #[must_use]
    pub fn new(repo: &str, commit: &CommitId) -> Self {
        Self(format!("{repo}@{}", commit.short()))
    }
}
impl fmt::Display for DeliveryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: FR-4
    #[test]
    fn a_name_is_one_path_component() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "-a",
            ".a",
            "A",
            "ä",
            "a b",
            "a\n",
            &"x".repeat(64),
        ] {
            assert!(bad.parse::<RoleName>().is_err(), "{bad:?} was taken for a name");
        }
        for good in ["a", "web-1", "a.b_c", "0", &"x".repeat(63)] {
            assert!(good.parse::<RoleName>().is_ok(), "{good:?} was refused");
        }
    }

    // holds: FR-4
    #[test]
    fn a_node_has_no_dot_and_a_module_may() {
        assert_eq!("a.b".parse::<NodeName>(), Err(NameError::Dot));
        assert!("a.b".parse::<ModuleName>().is_ok());
    }

    // holds: HR-6
    #[test]
    fn the_last_dot_parts_module_and_id() {
        let name: ResourceName = "net.web.conf".parse().unwrap();
        assert_eq!((name.module.as_str(), name.id.as_str()), ("net.web", "conf"));
    }

    #[test]
    fn the_short_id_is_of_the_text_with_hyphens() {
        // printf %s 0192f0c1-0000-7000-8000-000000000001 | sha256sum
        let id: NodeId = "0192F0C1-0000-7000-8000-000000000001".parse().unwrap();
        let text = data_encoding::HEXLOWER.encode(&Sha256::digest(b"0192f0c1-0000-7000-8000-000000000001"));
        assert_eq!(id.short().as_str(), text.get(..8).unwrap());
    }

    #[test]
    fn a_commit_id_is_hex_of_one_of_two_lengths() {
        assert!("a".repeat(40).parse::<CommitId>().is_ok());
        assert!("a".repeat(64).parse::<CommitId>().is_ok());
        assert!("a".repeat(12).parse::<CommitId>().is_err());
        assert!("G".repeat(40).parse::<CommitId>().is_err());
    }
}
