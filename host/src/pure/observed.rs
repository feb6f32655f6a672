//! What stands at a target when the host looks.
//!
//! Stands alone because "not there", "there" and "could not tell" must stay three answers through all deciding.

use meshplan_schemas::digest::Digest;

use super::record::Thing;

/// What stands at a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observed {
    /// Nothing.
    Absent,
    /// A regular file with its bytes.
    File {
        /// All of them.
        bytes: Vec<u8>,
        /// Permission bits.
        mode: u32,
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
    /// A folder with the names in it.
    Directory {
        /// In order.
        names: Vec<String>,
        /// Permission bits.
        mode: u32,
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
    /// A symbolic link.
    Link {
        /// What it points at.
        target: String,
        /// User number.
        uid: u32,
        /// Group number.
        gid: u32,
    },
    /// A thing that is no path.
    Is(Thing),
    /// At a path something that is none of the three, or too large to be put back; in words.
    Other(String),
    /// Could not tell; in words.
    Unknown(String),
}

impl Observed {
    /// The thing without its bytes; none for what could not be put back.
    #[must_use]
    pub fn thing(&self) -> Option<Thing> {
        match self {
            Self::File {
                bytes,
                mode,
                uid,
                gid,
            } => Some(Thing::File {
                content: Digest::of(bytes),
                mode: *mode,
                uid: *uid,
                gid: *gid,
            }),
            Self::Directory { mode, uid, gid, .. } => Some(Thing::Directory {
                mode: *mode,
                uid: *uid,
                gid: *gid,
            }),
            Self::Link { target, uid, gid } => Some(Thing::Link {
                target: target.clone(),
                uid: *uid,
                gid: *gid,
            }),
            Self::Is(thing) => Some(thing.clone()),
            Self::Absent | Self::Other(_) | Self::Unknown(_) => None,
        }
    }

    /// In a word or two.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            Self::Absent => "nothing",
            Self::File { .. } => "a file",
            Self::Directory { .. } => "a directory",
            Self::Link { .. } => "a link",
            Self::Is(_) => "a thing that is no path",
            Self::Other(word) | Self::Unknown(word) => word,
        }
    }
}
