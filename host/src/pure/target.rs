//! What of a machine only one resource may have (HR-6): a path, or a thing by its sort and name.
//!
//! Stands alone because the ledger, the plan and the way back all go by it. As text a path is itself and a thing is
//! `<sort>:<name>`; the ledger and the undo journal hold that text, so the words of the sorts are frozen.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::target_path::{PathError, TargetPath};

/// What only one resource may have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Target {
    /// A path.
    Path(TargetPath),
    /// A thing that is no path.
    Thing(Sort, String),
}

/// The sorts of things that are no paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sort {
    /// A unit of the service manager, with its suffix.
    Unit,
    /// A process of the host's own, by its name.
    Process,
    /// A user.
    User,
    /// A group.
    Group,
    /// A setting of the kernel, by its name with dots.
    Setting,
    /// A module of the kernel.
    KernelModule,
    /// A step, by the name of its resource.
    Step,
    /// A folder that is put in place whole, by its path.
    Tree,
    /// A container.
    Container,
    /// A network of containers.
    Network,
    /// A volume of containers.
    Volume,
    /// A package of the machine's package manager.
    Package,
    /// The machine's filter.
    Filter,
}

impl Sort {
    const ALL: [Self; 13] = [
        Self::Unit,
        Self::Process,
        Self::User,
        Self::Group,
        Self::Setting,
        Self::KernelModule,
        Self::Step,
        Self::Tree,
        Self::Container,
        Self::Network,
        Self::Volume,
        Self::Package,
        Self::Filter,
    ];

    /// The word before the colon.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unit => "unit",
            Self::Process => "process",
            Self::User => "user",
            Self::Group => "group",
            Self::Setting => "sysctl",
            Self::KernelModule => "kernel-module",
            Self::Step => "step",
            Self::Tree => "tree",
            Self::Container => "container",
            Self::Network => "network",
            Self::Volume => "volume",
            Self::Package => "package",
            Self::Filter => "filter",
        }
    }
}

/// Why a text is no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It begins as a path and is none.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It is neither a path nor a thing of a sort that this build knows.
    #[error("{0:?} is neither a path nor a thing of a known sort")]
    Sort(String),
}

impl Target {
    /// The path; none for a thing.
    #[must_use]
    pub fn path(&self) -> Option<&TargetPath> {
        match self {
            Self::Path(path) => Some(path),
            Self::Thing(..) => None,
        }
    }

    /// Where it stands: the path, and that of a tree; none for any other thing.
    #[must_use]
    pub fn place(&self) -> Option<TargetPath> {
        match self {
            Self::Path(path) => Some(path.clone()),
            Self::Thing(Sort::Tree, path) => TargetPath::parse(path).ok(),
            Self::Thing(..) => None,
        }
    }

    /// Whether it is a path below a folder.
    #[must_use]
    pub fn is_below(&self, folder: &TargetPath) -> bool {
        self.path().is_some_and(|path| path.is_below(folder))
    }
}

impl From<TargetPath> for Target {
    fn from(path: TargetPath) -> Self {
        Self::Path(path)
    }
}

impl FromStr for Target {
    type Err = TargetError;
    fn from_str(text: &str) -> Result<Self, TargetError> {
        if text.starts_with('/') {
            return Ok(Self::Path(TargetPath::parse(text)?));
        }
        let thing = text.split_once(':').and_then(|(word, name)| {
            let sort = Sort::ALL.into_iter().find(|sort| sort.word() == word)?;
            (!name.is_empty()).then(|| Self::Thing(sort, name.to_owned()))
        });
        thing.ok_or_else(|| TargetError::Sort(text.chars().take(200).collect()))
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;
    fn try_from(text: String) -> Result<Self, TargetError> {
        text.parse()
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.fmt(f),
            Self::Thing(sort, name) => write!(f, "{}:{name}", sort.word()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: HR-6
    #[test]
    fn every_sort_is_read_back_as_it_was_written_and_nothing_else_is_taken() {
        for sort in Sort::ALL {
            let target = Target::Thing(sort, "a.b:c".to_owned());
            assert_eq!(target.to_string().parse(), Ok(target));
        }
        let path: Target = "/etc/motd".parse().unwrap();
        assert_eq!(path.path().map(TargetPath::as_str), Some("/etc/motd"));
        for bad in ["", "etc/motd", "unit:", "unit", "planet:mars", "/a/../b"] {
            assert!(bad.parse::<Target>().is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn the_words_are_frozen_for_ledgers_and_journals_hold_them() {
        let words = Sort::ALL.map(Sort::word);
        assert_eq!(
            words,
            [
                "unit",
                "process",
                "user",
                "group",
                "sysctl",
                "kernel-module",
                "step",
                "tree",
                "container",
                "network",
                "volume",
                "package",
                "filter"
            ]
        );
    }
}
