//! What is too large for a declaration and travels beside it, by its SHA-256 (HK-4, HK-15).
//!
//! An archive is one artifact. A bundle is a list of files, itself an artifact, and one artifact for each file, so that a
//! new version costs only the files that are new. Invariant: a list that [`FileList::fault`] finds nothing wrong with
//! stays inside the folder that it is put into.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::ident::ResourceName;

/// One artifact that a declaration names (SG-4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// The resource that it is for.
    pub name: ResourceName,
    /// The digest of its bytes.
    pub sha256: Digest,
    /// Its length.
    pub size_bytes: u64,
}

/// The files of a bundle: its canonical bytes are an artifact, and their digest is [`super::resource::bundles::Bundle::tree`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileList {
    /// By their path inside the bundle, `/` between folders.
    pub files: BTreeMap<String, Listed>,
}

/// One file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// The digest of its bytes, an artifact.
    pub sha256: Digest,
    /// Its length.
    pub size_bytes: u64,
    /// Whether it can be run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub executable: bool,
}

impl FileList {
    /// The bytes that it takes when it is put in place, and how many files and folders.
    #[must_use]
    pub fn room(&self) -> (u64, u64) {
        let bytes = self.files.values().map(|file| file.size_bytes);
        let folders: std::collections::BTreeSet<&str> = self.files.keys().flat_map(|p| folders(p)).collect();
        let count = self.files.len().saturating_add(folders.len());
        (bytes.fold(0, u64::saturating_add), count as u64)
    }

    /// What is wrong with it; none where it can be put in place: each path is one inside, and none is both a file and a
    /// folder.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.files.keys().find_map(|path| {
            if let Some(why) = path_fault(path) {
                return Some(format!("{path:?} {why}"));
            }
            let folder = folders(path).find(|folder| self.files.contains_key(*folder))?;
            Some(format!("{folder:?} is both a file and a folder"))
        })
    }
}

/// The folders on the way to a path, the outermost first.
pub fn folders(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..at))
}

/// The longest path inside a bundle or an archive, in bytes.
const PATH_BYTES: usize = 1024;
/// The longest name in such a path, in bytes (NAME_MAX).
const COMPONENT_BYTES: usize = 255;

/// Why a path cannot stand inside a folder; none where it can (HK-4).
#[must_use]
pub fn path_fault(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("is empty");
    }
    if path.len() > PATH_BYTES {
        return Some("is longer than a path may be");
    }
    if path.starts_with('/') {
        return Some("is absolute");
    }
    path.split('/').find_map(|name| match name {
        "" | "." => Some("has a part without a name"),
        ".." => Some("leaves the folder"),
        name if name.len() > COMPONENT_BYTES => Some("has a name that is longer than one may be"),
        name if name.contains('\0') => Some("has a NUL in it"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(paths: &[&str]) -> FileList {
        let listed = Listed {
            sha256: Digest::of(b"x"),
            size_bytes: 1,
            executable: false,
        };
        FileList {
            files: paths.iter().map(|p| ((*p).to_owned(), listed.clone())).collect(),
        }
    }

    // holds: HK-4
    #[test]
    fn no_path_of_a_list_leaves_its_folder_and_none_is_file_and_folder() {
        assert_eq!(list(&["a", "b/c", "b/d/e"]).fault(), None);
        for bad in [
            "",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a//b",
            "a/.",
            "./a",
            "a\0b",
        ] {
            assert!(list(&[bad]).fault().is_some(), "{bad:?} was taken");
        }
        assert!(list(&[&"n".repeat(256)]).fault().is_some());
        assert!(list(&["a", "a/b"]).fault().unwrap().contains("both"));
        assert!(list(&["a/b", "a/b/c/d"]).fault().unwrap().contains("both"));
    }

    // holds: HR-14
    #[test]
    fn the_room_of_a_list_counts_its_folders_once() {
        assert_eq!(list(&["a", "b/c", "b/d/e"]).room(), (3, 5));
    }
}
