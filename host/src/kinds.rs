//! The resource kinds: one file each (HK-14).
//!
//! A kind says `validate` (is it asked for properly), `plan` (what would change), `apply`, `verify` (read back),
//! `revert` (the act that brings back what was there) and `remove`. Adding one touches its file and [`Wanted`].

pub mod directory;
pub mod file;
pub mod link;
pub mod probe;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::resource::{Ask, Kind, Probe};
use zeroize::Zeroizing;

use crate::edge::accounts::Accounts;
use crate::edge::disk::{Disk, DiskError};
pub use crate::pure::apply_plan::Decision;
use crate::pure::inverse::UndoAct;
use crate::pure::observed::Observed;
use crate::pure::record::Thing;
use crate::pure::target_path::TargetPath;

/// The value of a sealed content, or why it does not open and what to do.
pub type Opened = Result<Zeroizing<Vec<u8>>, String>;

/// Why a resource is not asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalid {
    /// Its fields cannot be: the module is refused.
    Fields(String),
    /// This machine lacks what it names: the resource fails.
    Machine(String),
}

/// A resource that was found to be asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// See [`file`].
    File(file::Wanted),
    /// See [`directory`].
    Directory(directory::Wanted),
    /// See [`link`].
    Link(link::Wanted),
    /// Asks, and changes nothing: judged by the agent.
    Probe,
}

/// `"0644"` as a number (FR-13).
fn mode(text: &str) -> Result<u32, Invalid> {
    let octal = (3..=5).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if octal && mode <= 0o7777 => Ok(mode),
        _ => Err(Invalid::Fields(format!(
            "the mode {:?} is not octal digits as in \"0644\"",
            text.chars().take(20).collect::<String>()
        ))),
    }
}

fn path(text: &str) -> Result<TargetPath, Invalid> {
    TargetPath::parse(text).map_err(|e| Invalid::Fields(e.to_string()))
}

/// `mode 0644 instead of 0600`, owner and group likewise; empty when they fit.
fn meta_words(wanted: (u32, crate::edge::disk::Owner), found: (u32, u32, u32)) -> Vec<String> {
    let ((mode, owner), (found_mode, uid, gid)) = (wanted, found);
    let mut words = Vec::new();
    if mode != found_mode {
        words.push(format!("mode {mode:04o} instead of {found_mode:04o}"));
    }
    if let Some(wanted) = owner.uid.filter(|wanted| *wanted != uid) {
        words.push(format!("owner {wanted} instead of {uid}"));
    }
    if let Some(wanted) = owner.gid.filter(|wanted| *wanted != gid) {
        words.push(format!("group {wanted} instead of {gid}"));
    }
    words
}

impl Wanted {
    /// Whether it is asked for properly; `opened` is the value of its sealed content.
    ///
    /// # Errors
    /// [`Invalid`].
    pub fn validate(kind: &Kind, accounts: &Accounts, opened: Option<&Opened>) -> Result<Self, Invalid> {
        match kind {
            Kind::File(spec) => file::validate(spec, accounts, opened).map(Self::File),
            Kind::Directory(spec) => directory::validate(spec, accounts).map(Self::Directory),
            Kind::Link(spec) => link::validate(spec).map(Self::Link),
            Kind::Probe(Probe {
                ask: Ask::Unit(_) | Ask::Container(_),
                ..
            }) => Err(Invalid::Fields(probe::NOT_ASKED_YET.to_owned())),
            Kind::Probe(spec) => match probe::validate(spec) {
                Ok(()) => Ok(Self::Probe),
                Err(why) => Err(Invalid::Fields(why)),
            },
            other => Err(Invalid::Fields(format!(
                "this host does not have the kind `{}` yet: nothing of the module is touched",
                other.word()
            ))),
        }
    }
    /// Where.
    #[must_use]
    pub fn path(&self) -> Option<&TargetPath> {
        match self {
            Self::File(w) => Some(&w.path),
            Self::Directory(w) => Some(&w.path),
            Self::Link(w) => Some(&w.path),
            Self::Probe => None,
        }
    }
    /// The digest of a file's bytes.
    #[must_use]
    pub fn content(&self) -> Option<Digest> {
        match self {
            Self::File(w) => Some(Digest::of(&w.bytes)),
            Self::Directory(_) | Self::Link(_) | Self::Probe => None,
        }
    }
    /// The bytes that it takes on the disk.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match self {
            Self::File(w) => w.bytes.len() as u64,
            Self::Directory(_) | Self::Link(_) | Self::Probe => 0,
        }
    }
    /// What is restarted, reloaded or run when it changes.
    #[must_use]
    pub fn followers(&self) -> &[String] {
        match self {
            Self::File(w) => &w.followers,
            Self::Directory(_) | Self::Link(_) | Self::Probe => &[],
        }
    }
    /// What would change.
    #[must_use]
    pub fn plan(&self, observed: &Observed) -> Decision {
        match self {
            Self::File(w) => file::plan(w, observed),
            Self::Directory(w) => directory::plan(w, observed),
            Self::Link(w) => link::plan(w, observed),
            Self::Probe => Decision::Unchanged,
        }
    }
    /// Makes it so.
    ///
    /// # Errors
    /// The disk.
    pub fn apply(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        match self {
            Self::File(w) => file::apply(w, disk),
            Self::Directory(w) => directory::apply(w, disk),
            Self::Link(w) => link::apply(w, disk),
            Self::Probe => Ok(()),
        }
    }
    /// Reads it back: none when it is as asked.
    #[must_use]
    pub fn verify(&self, observed: &Observed) -> Option<String> {
        match self.plan(observed) {
            Decision::Unchanged => None,
            Decision::Create(why)
            | Decision::Update(why)
            | Decision::Refuse(why)
            | Decision::Unknown(why) => Some(format!("it was written and reads back otherwise: {why}")),
        }
    }
}

/// The act that brings back what stood at a kind's target.
#[must_use]
pub fn revert(kind: &str, before: Option<&Thing>) -> UndoAct {
    match kind {
        "directory" => directory::revert(before),
        "link" => link::revert(before),
        _ => file::revert(before),
    }
}

/// Removes what a resource of this kind wrote.
///
/// # Errors
/// The disk; "cannot, because" for a folder that is not empty.
pub fn remove(kind: &str, disk: &dyn Disk, path: &TargetPath) -> Result<(), DiskError> {
    match kind {
        "directory" => directory::remove(disk, path),
        "link" => link::remove(disk, path),
        _ => file::remove(disk, path),
    }
}
