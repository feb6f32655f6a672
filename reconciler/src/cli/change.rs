//! A change to the files of a fleet's folder: all of it or nothing, and only where the result checks (FR-10).
//!
//! Each file is written beside its place and moved there, so that nobody ever sees half a document; what refers to
//! other files is moved last.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use meshplan_schemas::finding::Finding;
use tempfile::{Builder, TempPath};

use super::check;
use super::exit::Exit;
use crate::edge::worktree;
use crate::pure::compose::TreeError;
use crate::pure::source_tree::{Entry, EntryKind, SourceTree};

/// A fleet's folder, and the files that are to be written, in the order in which they are moved to their places.
pub(super) struct Change {
    dir: PathBuf,
    tree: SourceTree,
    files: Vec<(String, Vec<u8>)>,
}

impl Change {
    /// Reads the folder; says so, and gives none, where it is no fleet's.
    ///
    /// # Errors
    /// It cannot be read, or nothing can be written to `out`.
    pub(super) fn begin(dir: &Path, out: &mut dyn Write) -> anyhow::Result<Option<Self>> {
        if !dir.join("fleet.toml").is_file() {
            writeln!(
                out,
                "{} is no fleet's repository: it has no fleet.toml",
                dir.display()
            )?;
            return Ok(None);
        }
        let (tree, _) =
            worktree::read_folder(dir).with_context(|| format!("cannot read {}", dir.display()))?;
        Ok(Some(Self {
            dir: dir.to_owned(),
            tree,
            files: Vec::new(),
        }))
    }

    /// What stands in the folder.
    pub(super) fn tree(&self) -> &SourceTree {
        &self.tree
    }

    /// Adds a file; one that is at this path is replaced.
    pub(super) fn write(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        self.files.push((path.into(), bytes.into()));
    }

    /// Carries it out. [`Exit::No`] where the result would not check, with the errors; nothing is written then.
    ///
    /// # Errors
    /// A file cannot be written, or nothing can be written to `out`.
    pub(super) fn carry_out(self, out: &mut dyn Write) -> anyhow::Result<Exit> {
        let errors = self.errors();
        if !errors.is_empty() {
            for finding in &errors {
                writeln!(out, "{}\n", finding.render(false))?;
            }
            writeln!(out, "nothing is written: the fleet would not check with this")?;
            return Ok(Exit::No);
        }
        // Everything is on disk before the first file is in its place.
        let mut ready: Vec<(TempPath, PathBuf)> = Vec::new();
        for (path, bytes) in &self.files {
            let to = self.dir.join(path);
            ready.push((prepare(&to, bytes)?, to));
        }
        for (file, to) in ready {
            file.persist(&to)
                .with_context(|| format!("cannot write {}", to.display()))?;
        }
        Ok(Exit::Done)
    }

    /// What would be wrong with the result.
    fn errors(&self) -> Vec<Finding> {
        let changed = |path: &str| self.files.iter().any(|(new, _)| new == path);
        let kept = self.tree.iter().filter(|(path, _)| !changed(path));
        let raw = |(path, entry): (&str, &Entry)| (path.as_bytes().to_vec(), entry.kind, entry.bytes.clone());
        let new = self.files.iter().map(|(path, bytes)| {
            let bytes: Arc<[u8]> = Arc::from(bytes.as_slice());
            (path.as_bytes().to_vec(), EntryKind::Blob, bytes)
        });
        let mut entries: Vec<_> = kept.map(raw).chain(new).collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        let (tree, of_paths) = SourceTree::from_entries(entries);
        match check::compose_with(&tree, of_paths) {
            Ok(_) => Vec::new(),
            Err(TreeError::Findings(findings)) => findings.into_iter().filter(Finding::is_error).collect(),
            Err(TreeError::NoFleet(reason)) => vec![Finding::of_file("", reason)],
        }
    }
}

/// Writes the bytes beside their place, with the mode of what is there, else as the umask gives it.
fn prepare(to: &Path, bytes: &[u8]) -> anyhow::Result<TempPath> {
    let folder = to.parent().context("a file of a fleet stands in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let cannot = || format!("cannot write {}", to.display());
    let there = fs::symlink_metadata(to).ok().map(|there| there.permissions());
    let mut file = Builder::new()
        .prefix(".meshplan-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
        .with_context(cannot)?;
    if let Some(permissions) = there {
        file.as_file().set_permissions(permissions).with_context(cannot)?;
    }
    file.write_all(bytes)
        .and_then(|()| file.as_file().sync_all())
        .with_context(cannot)?;
    Ok(file.into_temp_path())
}

/// The `#:schema` line of a document, whose path says how deep it stands.
pub(super) fn schema_line(path: &str, schema: &str) -> String {
    let up = "../".repeat(path.matches('/').count());
    format!("#:schema {up}.meshplan/schemas/{schema}.json\n")
}
