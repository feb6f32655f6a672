//! A path that a declaration may name: absolute, plain, one spelling only.
//!
//! Stands alone because every act of the host begins with such a path: what is refused here never reaches the
//! disk. Invariant: no empty component, no `.`, no `..`, no NUL, never the root itself.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest path that is taken, in bytes (PATH_MAX without its NUL).
const PATH_BYTES: usize = 4095;
/// The longest component that is taken, in bytes (NAME_MAX).
const COMPONENT_BYTES: usize = 255;

/// An absolute path below the host's root.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TargetPath(String);

/// Why a text is no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Does not start with `/`.
    #[error("{0:?} is not an absolute path")]
    Relative(String),
    /// Names the root.
    #[error("the root itself cannot be a target")]
    Root,
    /// `.`, `..`, `//` or a slash at the end: a second spelling of another path.
    #[error("{0:?} has the component {1:?}; write the path plainly")]
    Component(String, String),
    /// A NUL.
    #[error("{0:?} holds a NUL character")]
    Nul(String),
    /// Longer than a kernel takes.
    #[error("the path or one of its components is longer than the kernel takes: {0:?}")]
    TooLong(String),
}

impl TargetPath {
    /// Checks a text.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let cut = || text.chars().take(200).collect::<String>();
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PathError::Relative(cut()));
        };
        if rest.is_empty() {
            return Err(PathError::Root);
        }
        if text.contains('\0') {
            return Err(PathError::Nul(cut()));
        }
        if text.len() > PATH_BYTES || rest.split('/').any(|c| c.len() > COMPONENT_BYTES) {
            return Err(PathError::TooLong(cut()));
        }
        match rest.split('/').find(|c| matches!(*c, "" | "." | "..")) {
            Some(bad) => Err(PathError::Component(cut(), bad.to_owned())),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The components from the root on.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.get(1..).unwrap_or_default().split('/')
    }

    /// The last component.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(_, name)| name)
    }

    /// The folder that it stands in; none when that is the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        (!parent.is_empty()).then(|| Self(parent.to_owned()))
    }

    /// The folders above it, nearest first, without the root.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(self.parent(), Self::parent)
    }

    /// Another name in the same folder.
    ///
    /// # Errors
    /// The name is no plain component.
    pub fn sibling(&self, name: &str) -> Result<Self, PathError> {
        let parent = self.0.rsplit_once('/').map_or("", |(parent, _)| parent);
        Self::parse(&format!("{parent}/{name}"))
    }

    /// A path below it.
    ///
    /// # Errors
    /// The name is no plain component.
    pub fn join(&self, name: &str) -> Result<Self, PathError> {
        Self::parse(&format!("{}/{name}", self.0))
    }

    /// Whether it stands below `folder`.
    #[must_use]
    pub fn is_below(&self, folder: &Self) -> bool {
        self.0
            .strip_prefix(&folder.0)
            .is_some_and(|rest| rest.starts_with('/'))
    }
}

impl TryFrom<String> for TargetPath {
    type Error = PathError;
    fn try_from(text: String) -> Result<Self, PathError> {
        Self::parse(&text)
    }
}
impl From<TargetPath> for String {
    fn from(path: TargetPath) -> String {
        path.0
    }
}
impl fmt::Display for TargetPath {
    /// Control characters are escaped: a path may hold a line end and must not break a line of words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            if c.is_control() {
                write!(f, "{}", c.escape_default())
            } else {
                write!(f, "{c}")
            }
        })
    }
}
impl fmt::Debug for TargetPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: HK-1
    #[test]
    fn a_path_with_a_second_spelling_is_no_target() {
        for bad in [
            "",
            "etc",
            "/",
            "//",
            "/etc/",
            "/etc//x",
            "/etc/./x",
            "/etc/../x",
            "/..",
            "/a\0b",
            &format!("/{}", "x".repeat(256)),
            &"/x".repeat(2048),
        ] {
            assert!(TargetPath::parse(bad).is_err(), "{bad:?} was taken for a target");
        }
        for good in ["/a", "/etc/motd", "/etc/.hidden", "/etc/...", "/a b/ä\n", "/-rf"] {
            assert!(TargetPath::parse(good).is_ok(), "{good:?} was refused");
        }
    }

    #[test]
    fn a_line_end_in_a_path_does_not_break_a_line_of_words() {
        let path = TargetPath::parse("/a\nb\u{1b}").unwrap();
        assert_eq!(path.to_string(), "/a\\nb\\u{1b}");
    }

    #[test]
    fn below_means_a_whole_component() {
        let path = |t| TargetPath::parse(t).unwrap();
        assert!(path("/a/b").is_below(&path("/a")));
        assert!(!path("/ab").is_below(&path("/a")));
        assert!(!path("/a").is_below(&path("/a")));
    }
}
