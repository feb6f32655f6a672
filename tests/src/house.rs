//! The rules of the house that no compiler knows, as functions over text: a test gives them the workspace, and each
//! is shown to fail on a made-up violation.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub mod arrows;
pub mod documents;
pub mod paths;
pub mod requirements;
pub mod shape;

/// A file of the workspace.
#[derive(Debug, Clone)]
pub struct SourceFile {
    /// Its path from the workspace's root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl SourceFile {
    /// A file, for the tests of the rules.
    #[must_use]
    pub fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }
}

/// The folder that holds the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Every file below `root` whose name ends in `.extension`, sorted by path; build output and hidden folders are no
/// part of the workspace.
///
/// # Errors
/// A folder or file cannot be read.
pub fn files(root: &Path, extension: &str) -> io::Result<Vec<SourceFile>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|e| e == extension) {
                let within = path.strip_prefix(root).unwrap_or(&path);
                found.push(SourceFile {
                    path: within.to_string_lossy().into_owned(),
                    text: fs::read_to_string(&path)?,
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}
