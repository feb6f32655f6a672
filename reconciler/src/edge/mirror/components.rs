//! Components in the mirror: their branches are fetched beside the fleet's, and the tree that a delivery is made of is put
//! together out of git's own trees (DL-1).
//!
//! What is put together is a commit of our own, the same bytes for the same parts: nobody else sees it, nothing is checked
//! out, and all that reads trees reads it as any other. A component's tree that may not be carried (links, submodules, too
//! much) is left out with the reason in its place: it is no fault of the fleet's tree.

use std::collections::{BTreeMap, BTreeSet};

use git2::{Commit, ObjectType, Oid, Repository, Signature, Tree};
use meshplan_schemas::artifact::path_fault;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::finding::Source;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::limits::{BUNDLE_BYTES, DOCUMENT_BYTES};

use super::remote::bring;
use super::{FetchError, Mirror, MirrorError, Remote, commit_id};
use crate::pure::parse::{self, LFS_POINTER_BYTES, is_lfs_pointer};
use crate::pure::parts::{Branch, Parts};
use crate::pure::source_tree::{COMPONENT_FAULT, COMPONENT_FILES, other_spelling};

const FILE: i32 = 0o100_644;
const PROGRAM: i32 = 0o100_755;
const FOLDER: i32 = 0o040_000;
/// So many files and folders a component may have. Folders count: a few small trees can stand for any number of them.
const MOST_FILES: usize = 100_000;
/// So deep its folders may be: three more stand above them, and a tree has 64.
const MOST_DEPTH: usize = 60;
/// So much all components of a tree may have together: half of what is read of one.
const BYTES_TOGETHER: u64 = 1 << 29;
/// See [`BYTES_TOGETHER`].
const FILES_TOGETHER: usize = 250_000;

/// A tree that was put together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// The commit to read: the fleet repo's own where it names no component.
    pub commit: CommitId,
    /// What it is made of, the fleet's commit first; components that it does not name are none of it.
    pub of: Vec<CommitId>,
    /// Components that are not in it, by their commits, and why.
    pub faults: BTreeMap<CommitId, String>,
}

impl Mirror {
    /// Fetches a component's branch; its tip, none where the branch is not there.
    ///
    /// # Errors
    /// [`FetchError`]; what was fetched before is untouched.
    pub fn fetch_component(&self, of: &Branch, remote: &Remote) -> Result<Option<CommitId>, FetchError> {
        fetch(&self.repo, of, remote)
    }

    /// Another handle on it, by which components are fetched while this one is used.
    ///
    /// # Errors
    /// [`FetchError::Local`]: it cannot be opened.
    pub fn beside(&self) -> Result<Beside, FetchError> {
        let opened = Repository::open_bare(&self.path);
        opened.map(Beside).map_err(|e| FetchError::Local {
            path: self.path.clone(),
            why: e.message().to_owned(),
        })
    }

    /// Puts together what a delivery is made of. `allowed` are the components that the configuration names.
    ///
    /// # Errors
    /// [`MirrorError::NoCommit`] of the fleet's commit, or of a component's that is carried; [`MirrorError::Damaged`].
    pub fn join(&self, parts: &Parts, allowed: &BTreeSet<Branch>) -> Result<Joined, MirrorError> {
        let fleet = self.find(&parts.fleet)?;
        let read = || {
            let fleet = self.repo.find_commit(fleet)?;
            let named = named(&self.repo, &fleet.tree()?)?;
            Ok((fleet, named))
        };
        let (fleet, named) = read().map_err(|e| self.damaged(&e))?;
        // One that is named no more may be gone with its repository.
        for of in named.of.values().filter(|of| allowed.contains(of)) {
            if let Some(commit) = parts.of(of) {
                self.find(commit)?;
            }
        }
        join(&self.repo, &fleet, named, (parts, allowed)).map_err(|e| self.damaged(&e))
    }
}

/// A handle on the mirror that only fetches.
pub struct Beside(Repository);

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Beside({})", self.0.path().display())
    }
}

impl Beside {
    /// As [`Mirror::fetch_component`].
    ///
    /// # Errors
    /// [`FetchError`]; what was fetched before is untouched.
    pub fn fetch(&self, of: &Branch, remote: &Remote) -> Result<Option<CommitId>, FetchError> {
        fetch(&self.0, of, remote)
    }
}

fn fetch(repo: &Repository, of: &Branch, remote: &Remote) -> Result<Option<CommitId>, FetchError> {
    // Where one's name begins with all of another's, a ref of names would have to be a file and a folder.
    let ours = Digest::of(format!("{} {}", of.repo, of.branch).as_bytes());
    let ours = format!("refs/meshplan/component/{}", ours.hex());
    let found = bring(repo, remote, &[(&remote.branch_ref(), &ours)])?;
    Ok(found.first().copied().flatten().map(commit_id))
}

/// What a tree says of components.
struct Named {
    /// By the modules that they feed.
    of: BTreeMap<String, Branch>,
    /// How many bytes one may have.
    most: u64,
}

fn join(
    repo: &Repository,
    fleet: &Commit<'_>,
    named: Named,
    of: (&Parts, &BTreeSet<Branch>),
) -> Result<Joined, git2::Error> {
    let mut joined = Joined {
        commit: of.0.fleet.clone(),
        of: vec![of.0.fleet.clone()],
        faults: BTreeMap::new(),
    };
    let Some(together) = put_together(repo, &fleet.tree()?, named, of)? else {
        return Ok(joined);
    };
    let carried = together
        .components
        .iter()
        .map(|component| commit_id(component.id()));
    joined.of.extend(carried);
    joined.faults = together.faults;
    let tree = repo.find_tree(together.tree)?;
    // Nothing in it is of a time or a machine: the same parts are the same commit.
    let by = Signature::new("meshplan", "meshplan@localhost", &git2::Time::new(0, 0))?;
    let parents: Vec<&Commit<'_>> = std::iter::once(fleet).chain(&together.components).collect();
    joined.commit = commit_id(repo.commit(None, &by, &by, "put together\n", &tree, &parents)?);
    Ok(joined)
}

/// A tree of the fleet repo with the components that it names; itself, where it names none. What is written goes to `repo`.
pub(super) fn tree_with(
    repo: &Repository,
    tree: Oid,
    of: (&Parts, &BTreeSet<Branch>),
) -> Result<Oid, git2::Error> {
    let root = repo.find_tree(tree)?;
    let named = named(repo, &root)?;
    Ok(put_together(repo, &root, named, of)?.map_or(tree, |together| together.tree))
}

/// A tree with components in it.
struct Together<'r> {
    tree: Oid,
    /// Those that are in it, each once.
    components: Vec<Commit<'r>>,
    /// Those that are not, by their commits, and why.
    faults: BTreeMap<CommitId, String>,
}

/// Puts components where their modules are; none where the tree names none.
fn put_together<'r>(
    repo: &'r Repository,
    root: &Tree<'_>,
    Named { of: named, most }: Named,
    (parts, allowed): (&Parts, &BTreeSet<Branch>),
) -> Result<Option<Together<'r>>, git2::Error> {
    let modules = root
        .get_name("modules")
        .filter(|entry| entry.filemode() == FOLDER);
    let Some(modules) = modules.filter(|_| !named.is_empty()) else {
        return Ok(None);
    };
    let modules = repo.find_tree(modules.id())?;
    let mut all = repo.treebuilder(Some(&modules))?;
    let mut components: Vec<Commit<'r>> = Vec::new();
    let mut faults = BTreeMap::new();
    let mut room = Room {
        bytes: BYTES_TOGETHER,
        files: FILES_TOGETHER,
    };
    for (module, of) in named {
        let Some(entry) = modules
            .get_name(&module)
            .filter(|entry| entry.filemode() == FOLDER)
        else {
            continue;
        };
        let folder = repo.find_tree(entry.id())?;
        let mut with = repo.treebuilder(Some(&folder))?;
        for own in [COMPONENT_FILES.trim_end_matches('/'), COMPONENT_FAULT] {
            if with.get(own)?.is_some() {
                with.remove(own)?;
            }
        }
        match carried(repo, (parts, allowed), &of, most, &mut room)? {
            Ok(component) => {
                with.insert(COMPONENT_FILES.trim_end_matches('/'), component.tree_id(), FOLDER)?;
                if components.iter().all(|other| other.id() != component.id()) {
                    components.push(component);
                }
            }
            Err(why) => {
                with.insert(COMPONENT_FAULT, repo.blob(why.as_bytes())?, FILE)?;
                if let Some(commit) = parts.of(&of) {
                    faults.insert(commit.clone(), why);
                }
            }
        }
        all.insert(&module, with.write()?, FOLDER)?;
    }
    let mut whole = repo.treebuilder(Some(root))?;
    whole.insert("modules", all.write()?, FOLDER)?;
    Ok(Some(Together {
        tree: whole.write()?,
        components,
        faults,
    }))
}

/// The components that a tree's fleet.toml names, by the modules that they feed, and how large one may be. A fleet.toml that
/// cannot be read names none: what is wrong with it is said of the tree.
fn named(repo: &Repository, root: &Tree<'_>) -> Result<Named, git2::Error> {
    let nothing = Named {
        of: BTreeMap::new(),
        most: BUNDLE_BYTES,
    };
    let Some(entry) = root
        .get_name("fleet.toml")
        .filter(|entry| entry.kind() == Some(ObjectType::Blob))
    else {
        return Ok(nothing);
    };
    let blob = repo.find_blob(entry.id())?;
    if blob.content().len() > DOCUMENT_BYTES {
        return Ok(nothing);
    }
    let Ok(source) = Source::new("fleet.toml", blob.content().into()) else {
        return Ok(nothing);
    };
    Ok(
        parse::components(&source).map_or(nothing, |(components, bundle_mib)| {
            let most = bundle_mib.map_or(BUNDLE_BYTES, |mib| u64::from(mib) << 20);
            let of = components.into_iter().map(|of| {
                let branch = Branch {
                    repo: of.repo,
                    branch: of.branch,
                };
                (of.module.to_string(), branch)
            });
            Named {
                of: of.collect(),
                most,
            }
        }),
    )
}

/// The commit of a component, where it may be carried; why not.
fn carried<'r>(
    repo: &'r Repository,
    (parts, allowed): (&Parts, &BTreeSet<Branch>),
    of: &Branch,
    most: u64,
    room: &mut Room,
) -> Result<Result<Commit<'r>, String>, git2::Error> {
    let Branch { repo: name, branch } = of;
    if !allowed.contains(of) {
        return Ok(Err(format!(
            "the reconciler's configuration does not allow the component {name} ({branch}): add it there under [[components]]"
        )));
    }
    let Some(commit) = parts.of(of) else {
        return Ok(Err(format!(
            "no commit of the component {name} ({branch}) is known yet"
        )));
    };
    let found = repo.find_commit(Oid::from_str(commit.as_str())?)?;
    let tree = found.tree()?;
    let mut sum = Sum {
        most,
        bytes: 0,
        files: 0,
        entries: 0,
        spellings: BTreeMap::new(),
    };
    let fault = sum.fault(repo, &tree, &mut Vec::new(), 0)?;
    let fault = fault.or_else(|| match sum.files {
        0 => Some("it has no file".to_owned()),
        _ => room.take(&sum),
    });
    Ok(match fault {
        None => Ok(found),
        Some(why) => Err(format!("{name}@{}: {why}", commit.short())),
    })
}

/// What all components of a tree may still have, so that the tree with them stays within what is read of one.
struct Room {
    bytes: u64,
    files: usize,
}

impl Room {
    /// Takes a component in; why not, where it has no room.
    fn take(&mut self, sum: &Sum) -> Option<String> {
        let left = (self.bytes.checked_sub(sum.bytes)).zip(self.files.checked_sub(sum.entries));
        let Some((bytes, files)) = left else {
            return Some(format!(
                "the components of the tree have more than {} MiB or {FILES_TOGETHER} files and folders together",
                BYTES_TOGETHER >> 20
            ));
        };
        (self.bytes, self.files) = (bytes, files);
        None
    }
}

/// What was seen of a component's tree.
struct Sum {
    most: u64,
    bytes: u64,
    files: usize,
    /// Files and folders.
    entries: usize,
    spellings: BTreeMap<String, String>,
}

impl Sum {
    /// Why a tree may not be carried; none where it may. FR-3, HK-4.
    fn fault(
        &mut self,
        repo: &Repository,
        tree: &Tree<'_>,
        at: &mut Vec<u8>,
        depth: usize,
    ) -> Result<Option<String>, git2::Error> {
        if depth > MOST_DEPTH {
            return Ok(Some(format!("its folders are more than {MOST_DEPTH} deep")));
        }
        for entry in tree {
            self.entries += 1;
            if self.entries > MOST_FILES {
                return Ok(Some(format!("it has more than {MOST_FILES} files and folders")));
            }
            let length = at.len();
            at.extend_from_slice(entry.name_bytes());
            let fault = match entry.filemode() {
                FOLDER => {
                    at.push(b'/');
                    self.fault(repo, &repo.find_tree(entry.id())?, at, depth + 1)?
                }
                FILE | PROGRAM | 0o100_664 => self.file(repo, entry.id(), at)?,
                0o120_000 => Some(format!("{} is a symbolic link", at.escape_ascii())),
                0o160_000 => Some(format!("{} is a submodule", at.escape_ascii())),
                _ => Some(format!("{} is no file", at.escape_ascii())),
            };
            if fault.is_some() {
                return Ok(fault);
            }
            at.truncate(length);
        }
        Ok(None)
    }

    fn file(&mut self, repo: &Repository, id: Oid, at: &[u8]) -> Result<Option<String>, git2::Error> {
        self.files += 1;
        let bytes = repo.odb()?.read_header(id)?.0;
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if self.bytes > self.most {
            let mib = self.most >> 20;
            return Ok(Some(format!(
                "it has more than {mib} MiB of files; `bundle_mib` under `[limits]` of fleet.toml raises the bound"
            )));
        }
        let Ok(path) = std::str::from_utf8(at) else {
            return Ok(Some(format!("the name of {} is not UTF-8", at.escape_ascii())));
        };
        if bytes < LFS_POINTER_BYTES && is_lfs_pointer(repo.find_blob(id)?.content()) {
            return Ok(Some(format!(
                "{} is a git-lfs pointer, not the file",
                path.escape_debug()
            )));
        }
        if let Some(other) = other_spelling(&mut self.spellings, path) {
            let (path, other) = (path.escape_debug(), other.escape_debug());
            return Ok(Some(format!("{path} differs from {other} only by case")));
        }
        Ok(path_fault(path).map(|why| format!("{} {why}", path.escape_debug())))
    }
}
