//! The tree of a commit as values: every path with its bytes, or with what stands there instead (FR-3).
//!
//! Made from git objects (or from a folder, for `meshplan check`), so that nothing here can follow a link or run a
//! filter. Invariant: every path is UTF-8, and no two differ only by case.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::finding::Finding;

/// Where in a module's folder the files of its component are put, in the trees that the reconciler composes.
pub const COMPONENT_FILES: &str = ".component/";
/// Where stands why there are none, in words.
pub const COMPONENT_FAULT: &str = ".component-fault";

/// Whether a path in a module's folder is of its component.
#[must_use]
pub fn is_of_component(inside: &str) -> bool {
    inside.starts_with(COMPONENT_FILES) || inside == COMPONENT_FAULT
}

/// What a tree entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A file.
    Blob,
    /// A file that can be run (git's mode 100755).
    Program,
    /// A symbolic link; its bytes are where it points.
    Symlink,
    /// A submodule's commit; it has no bytes.
    Submodule,
}

impl EntryKind {
    /// Whether it is a file, one that can be run or not.
    #[must_use]
    pub fn is_file(self) -> bool {
        matches!(self, Self::Blob | Self::Program)
    }
}

/// One entry.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What it is.
    pub kind: EntryKind,
    /// The blob's bytes, as they are in git.
    pub bytes: Arc<[u8]>,
}

/// A whole tree.
#[derive(Debug, Clone, Default)]
pub struct SourceTree {
    entries: BTreeMap<String, Entry>,
}

/// A path as findings show it: unusual bytes escaped, so that two names that look alike can be told apart.
#[must_use]
pub fn shown_path(raw: &[u8]) -> String {
    match std::str::from_utf8(raw) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        Ok(text) => text.escape_debug().to_string(),
        Err(_) => raw.escape_ascii().to_string(),
    }
}

impl SourceTree {
    /// Takes entries as git has them: raw path, kind, bytes. Paths that are not UTF-8, or that differ from another
    /// only by case, are findings (FR-3); of two alike the first stays.
    #[must_use]
    pub fn from_entries(raw: Vec<(Vec<u8>, EntryKind, Arc<[u8]>)>) -> (Self, Vec<Finding>) {
        let mut tree = Self::default();
        let mut findings = Vec::new();
        let mut spellings = BTreeMap::new();
        for (raw_path, kind, bytes) in raw {
            let shown = shown_path(&raw_path);
            let Ok(path) = String::from_utf8(raw_path) else {
                findings.push(
                    Finding::of_file(&shown, "the name of this file is not UTF-8")
                        .help("rename it; the bytes that are no UTF-8 are shown escaped"),
                );
                continue;
            };
            if let Some(other) = other_spelling(&mut spellings, &path) {
                let message = format!(
                    "this path differs from `{}` only by case",
                    shown_path(other.as_bytes())
                );
                findings.push(
                    Finding::of_file(&shown, message)
                        .help("rename one of them: on some file systems they are one"),
                );
            } else {
                tree.entries.insert(path, Entry { kind, bytes });
            }
        }
        (tree, findings)
    }

    /// What stands at a path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// Gives the file at a path other bytes; nothing where there is none.
    pub fn replace(&mut self, path: &str, bytes: Arc<[u8]>) {
        if let Some(entry) = self.entries.get_mut(path) {
            entry.bytes = bytes;
        }
    }

    /// All entries, in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// The path, or the folder on the way to it, that is the same but for case; remembers this one's spelling.
#[must_use]
pub fn other_spelling(spellings: &mut BTreeMap<String, String>, path: &str) -> Option<String> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    for prefix in ends.filter_map(|end| path.get(..end)) {
        match spellings.get(&prefix.to_lowercase()) {
            Some(known) if known != prefix => return Some(known.clone()),
            Some(_) => {}
            None => {
                spellings.insert(prefix.to_lowercase(), prefix.to_owned());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&[u8]]) -> (SourceTree, Vec<Finding>) {
        let entry = |path: &&[u8]| (path.to_vec(), EntryKind::Blob, Arc::from(&b""[..]));
        SourceTree::from_entries(paths.iter().map(entry).collect())
    }

    // holds: FR-3
    #[test]
    fn a_path_that_is_not_utf_8_is_a_finding_with_its_bytes_escaped() {
        let (tree, findings) = tree(&[b"modules/a\xff", b"modules/a\xfe", b"modules/a"]);
        assert_eq!(tree.iter().count(), 1);
        let files: Vec<_> = findings.iter().map(|f| f.file.as_str()).collect();
        assert_eq!(files, ["modules/a\\xff", "modules/a\\xfe"]);
    }

    // holds: FR-3
    #[test]
    fn paths_and_folders_that_differ_only_by_case_are_findings() {
        let (_, findings) = tree(&[b"nodes/a.toml", b"nodes/A.toml", b"Nodes/b.toml", b"nodes/c.toml"]);
        let files: Vec<_> = findings.iter().map(|f| f.file.as_str()).collect();
        assert_eq!(files, ["nodes/A.toml", "Nodes/b.toml"]);
        assert!(findings[1].message.contains("`nodes`"));
    }

    #[test]
    fn names_with_accents_newlines_and_spaces_stay_apart() {
        let (tree, findings) = tree(&["\u{e9}".as_bytes(), "e\u{301}".as_bytes(), b"a\nb", b"a "]);
        assert_eq!((tree.iter().count(), findings.len()), (4, 0));
        assert_eq!(shown_path(b"a\nb"), "a\\nb");
    }
}
