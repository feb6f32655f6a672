//! Finds the documents in a tree and reads each by itself (FR-1, FR-3).
//!
//! A document that cannot be read keeps its name, so that what refers to it is not called wrong as well. A record that
//! has not changed is read once: a fleet has thousands, and a commit changes few.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use meshplan_schemas::document::fleet::ComponentDoc;
use meshplan_schemas::document::read::{self, Read};
use meshplan_schemas::document::signers::{self, Signer};
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::document::{
    ChecksFile, FleetFile, ModuleFile, NodeFile, PlanFile, PolicyFile, RetiredFile, RotationsFile,
};
use meshplan_schemas::finding::{Finding, Source, nearest};
use meshplan_schemas::ident::{CheckName, ModuleName, NodeName, PlanName, RoleName};
use meshplan_schemas::limits::DOCUMENT_BYTES;

use super::source_tree::{Entry, EntryKind, SourceTree, shown_path};

mod records;
mod sealed;

pub use records::ReadRecords;
pub(super) use records::is_record;

/// A document with its text; none where it could not be read.
#[derive(Debug, Clone)]
pub struct Document<T> {
    /// Its path, and its text where it has one.
    pub source: Source,
    /// What it says.
    pub read: Option<T>,
}

/// A node record and where it stood.
#[derive(Debug, Clone)]
pub struct NodeDocument {
    /// The name of its file.
    pub name: NodeName,
    /// Whether it stood in `nodes/revoked/`.
    pub in_revoked: bool,
    /// The record.
    pub document: Document<Arc<NodeFile>>,
}

/// A module's document and the files beside it.
#[derive(Debug, Clone, Default)]
pub struct ModuleFolder {
    /// `module.toml`; none where the folder has none.
    pub document: Option<Document<ModuleFile>>,
    /// The other files, by their path inside the folder.
    pub files: BTreeMap<String, Arc<[u8]>>,
    /// Those of them that can be run.
    pub programs: BTreeSet<String>,
}

/// Every document of a tree.
#[derive(Debug, Clone, Default)]
pub struct Documents {
    /// `fleet.toml`.
    pub fleet: Option<Document<FleetFile>>,
    /// Records, in the order of their paths.
    pub nodes: Vec<Arc<NodeDocument>>,
    /// `policy/base.toml`.
    pub base: Option<Document<PolicyFile>>,
    /// `policy/roles/<role>.toml`.
    pub overlays: BTreeMap<RoleName, Document<PolicyFile>>,
    /// `modules/<module>/`.
    pub modules: BTreeMap<ModuleName, ModuleFolder>,
    /// `plans/<plan>.toml`.
    pub plans: BTreeMap<PlanName, Document<PlanFile>>,
    /// `rotations.toml`.
    pub rotations: Option<Document<RotationsFile>>,
    /// `checks/<name>.toml`.
    pub checks: BTreeMap<CheckName, Document<ChecksFile>>,
    /// `secrets/<name>.age`, by name: their paths.
    pub secrets: BTreeMap<SecretName, String>,
    /// `secrets/retired.toml`.
    pub retired: Option<Document<RetiredFile>>,
    /// The file that `[trust] allowed_signers` names; none where nothing is named or it is not there.
    pub allowed_signers: Option<Document<Vec<Signer>>>,
    /// Something was wrong: nothing can be validated to the end.
    pub(super) broken: bool,
}

/// The folders whose content is the fleet's.
const FOLDERS: [&str; 6] = ["nodes", "policy", "modules", "plans", "checks", "secrets"];

/// Whether a path is one that the fleet's documents and modules have; any other is nobody's business (FR-3).
#[must_use]
pub fn is_ours(path: &str) -> bool {
    let first = path.split('/').next().unwrap_or_default();
    matches!(path, "fleet.toml" | "rotations.toml" | "allowed_signers") || FOLDERS.contains(&first)
}

/// What a git-lfs pointer begins with (git-lfs specification, "The Pointer").
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
/// A pointer is shorter.
pub const LFS_POINTER_BYTES: usize = 1024;

/// The components that a fleet.toml names, and its `bundle_mib`; none where it cannot be read, which is said where the
/// whole tree is.
#[must_use]
pub fn components(fleet: &Source) -> Option<(Vec<ComponentDoc>, Option<u32>)> {
    let file: FleetFile = read::document(fleet, &mut Vec::new())?;
    Some((file.component_docs(), file.limits.bundle_mib.map(|mib| mib.0)))
}

/// What a git-lfs pointer is known by: it is small, and begins so.
#[must_use]
pub fn is_lfs_pointer(bytes: &[u8]) -> bool {
    bytes.starts_with(LFS_POINTER) && bytes.len() < LFS_POINTER_BYTES
}

/// Reads every document of a tree. The findings are sorted by file and line.
#[must_use]
pub fn parse(tree: &SourceTree) -> (Documents, Vec<Finding>) {
    parse_after(tree, &mut ReadRecords::default())
}

/// The same; records that `known` has are not read again.
#[must_use]
pub fn parse_after(tree: &SourceTree, known: &mut ReadRecords) -> (Documents, Vec<Finding>) {
    let mut reading = Reading::default();
    let mut records = known.of_tree(tree);
    for (path, entry) in tree.iter() {
        match records.next_if(path) {
            Some(record) => {
                reading.documents.nodes.extend(record.document.clone());
                reading.findings.extend(record.findings.iter().cloned());
            }
            None => reading.entry(path, entry),
        }
    }
    reading.allowed_signers(tree);
    reading.module_folders();
    let Reading {
        mut documents,
        mut findings,
        ..
    } = reading;
    documents.broken = findings.iter().any(Finding::is_error);
    findings.sort();
    (documents, findings)
}

#[derive(Default)]
struct Reading {
    documents: Documents,
    findings: Vec<Finding>,
}

impl Reading {
    fn say(&mut self, path: &str, message: impl Into<String>, help: &str) {
        let finding = Finding::of_file(&shown_path(path.as_bytes()), message);
        self.findings.push(finding.help(help));
    }

    fn entry(&mut self, path: &str, entry: &Entry) {
        let parts: Vec<&str> = path.split('/').collect();
        if !is_ours(path) {
            self.near_miss(path, &parts);
            return;
        }
        // What is refused keeps its name, without content: nothing that refers to it is called wrong as well.
        let bytes = self.is_plain(path, entry).then_some(&entry.bytes);
        self.place(path, &parts, bytes);
        if entry.kind == EntryKind::Program
            && let ["modules", module, inside @ ..] = parts.as_slice()
            && let Some(folder) =
                (module.parse().ok()).and_then(|name| self.documents.modules.get_mut::<ModuleName>(&name))
        {
            folder.programs.insert(inside.join("/"));
        }
    }

    fn place(&mut self, path: &str, parts: &[&str], bytes: Option<&Arc<[u8]>>) {
        match parts {
            ["fleet.toml"] => self.documents.fleet = Some(self.document(path, bytes)),
            ["rotations.toml"] => self.documents.rotations = Some(self.document(path, bytes)),
            ["policy", "base.toml"] => self.documents.base = Some(self.document(path, bytes)),
            ["policy", "roles", file] if toml(file) => {
                if let Some((name, document)) = self.named(path, file, bytes) {
                    self.documents.overlays.insert(name, document);
                }
            }
            ["plans", file] if toml(file) => {
                if let Some((name, document)) = self.named(path, file, bytes) {
                    self.documents.plans.insert(name, document);
                }
            }
            ["nodes", between @ .., file] if toml(file) => {
                if let Some((name, document)) = self.named(path, file, bytes) {
                    let in_revoked = between.first() == Some(&"revoked");
                    let Document { source, read } = document;
                    let read: Option<NodeFile> = read;
                    self.documents.nodes.push(Arc::new(NodeDocument {
                        name,
                        in_revoked,
                        document: Document {
                            source,
                            read: read.map(Arc::new),
                        },
                    }));
                }
            }
            ["modules", module, rest @ ..] if !rest.is_empty() => {
                self.module_file(path, module, &rest.join("/"), bytes);
            }
            // A link or submodule for a whole module keeps the module's name.
            ["modules", module] if bytes.is_none() => {
                if let Ok(name) = module.parse() {
                    let document = Some(self.document(path, None));
                    let folder = ModuleFolder {
                        document,
                        ..ModuleFolder::default()
                    };
                    self.documents.modules.insert(name, folder);
                }
            }
            ["checks", file] if toml(file) => {
                if let Some((name, document)) = self.named(path, file, bytes) {
                    self.documents.checks.insert(name, document);
                }
            }
            ["secrets", "retired.toml"] => self.documents.retired = Some(self.document(path, bytes)),
            ["secrets", between @ .., file] if !bystander(file) => {
                self.secret(path, between, file, bytes);
            }
            [folder, .., file] if toml(file) => {
                let expected = match *folder {
                    "policy" => "policy is `policy/base.toml` and `policy/roles/<role>.toml`",
                    "plans" => "plans are `plans/<plan>.toml`",
                    "checks" => "checks are `checks/<name>.toml`",
                    _ => "modules are `modules/<module>/module.toml`",
                };
                self.say(path, "no document is expected here", expected);
            }
            _ => {}
        }
    }

    /// Says when a path outside looks like a misspelt path of ours.
    fn near_miss(&mut self, path: &str, parts: &[&str]) {
        let known: &[&str] = if parts.len() == 1 {
            &["fleet.toml", "rotations.toml"]
        } else {
            &FOLDERS
        };
        if path.ends_with(".toml")
            && let Some(near) = nearest(parts[0], known.iter().copied())
        {
            let finding = Finding::of_file(&shown_path(path.as_bytes()), "this file is no part of the fleet");
            self.findings
                .push(finding.help(format!("did you mean `{near}`?")).warning());
        }
    }

    /// Refuses links, submodules, LFS pointers and giants (FR-3).
    fn is_plain(&mut self, path: &str, entry: &Entry) -> bool {
        let parts: Vec<&str> = path.split('/').collect();
        let module = parts[0] == "modules" && !matches!(parts[..], [_, _, "module.toml"]);
        match entry.kind {
            EntryKind::Symlink => {
                let help = "put the file itself here: links are never followed";
                self.say(path, "this is a symbolic link where a file is expected", help);
                false
            }
            EntryKind::Submodule => {
                let help = "put the files themselves here: submodules are never fetched";
                self.say(path, "this is a submodule where files are expected", help);
                false
            }
            EntryKind::Blob | EntryKind::Program if is_lfs_pointer(&entry.bytes) => {
                let help =
                    "nodes would get these three lines: commit the file itself (`git lfs migrate export`)";
                self.say(path, "this is a git-lfs pointer, not the file", help);
                false
            }
            EntryKind::Blob | EntryKind::Program if !module && entry.bytes.len() > DOCUMENT_BYTES => {
                let message = format!("this document has {} bytes", entry.bytes.len());
                self.say(
                    path,
                    message,
                    &format!("a document is at most {DOCUMENT_BYTES} bytes"),
                );
                false
            }
            EntryKind::Blob | EntryKind::Program => true,
        }
    }

    fn document<T: Read>(&mut self, path: &str, bytes: Option<&Arc<[u8]>>) -> Document<T> {
        let shown = shown_path(path.as_bytes());
        let Some(bytes) = bytes else {
            return Document {
                source: Source::empty(&shown),
                read: None,
            };
        };
        match Source::new(&shown, Arc::clone(bytes)) {
            Ok(source) => {
                let read = read::document(&source, &mut self.findings);
                Document { source, read }
            }
            Err(finding) => {
                self.findings.push(finding);
                Document {
                    source: Source::empty(&shown),
                    read: None,
                }
            }
        }
    }

    /// The document and the name that its file gives it.
    fn named<N, T>(&mut self, path: &str, file: &str, bytes: Option<&Arc<[u8]>>) -> Option<(N, Document<T>)>
    where
        N: FromStr<Err: Display>,
        T: Read,
    {
        let stem = file.strip_suffix(".toml").unwrap_or(file);
        match stem.parse() {
            Ok(name) => Some((name, self.document(path, bytes))),
            Err(e) => {
                self.say(
                    path,
                    format!("the file's name gives no name: {e}"),
                    "rename the file",
                );
                None
            }
        }
    }

    fn secret(&mut self, path: &str, between: &[&str], file: &str, bytes: Option<&Arc<[u8]>>) {
        let name = file.strip_suffix(".age").filter(|_| between.is_empty());
        let Some(name) = name else {
            let help =
                "a secret is `secrets/<name>.age`, encrypted; beside it is `secrets/retired.toml` only";
            self.say(path, "this is no secret", help);
            return;
        };
        match name.parse::<SecretName>() {
            Ok(name) => {
                self.documents.secrets.insert(name, path.to_owned());
            }
            Err(e) => self.say(
                path,
                format!("the file's name gives no name: {e}"),
                "rename the file",
            ),
        }
        if let Some(bytes) = bytes {
            self.findings.extend(sealed::finding(path, bytes));
        }
    }

    /// The file that `[trust]` names, wherever it is.
    fn allowed_signers(&mut self, tree: &SourceTree) {
        let named = self.documents.fleet.as_ref().and_then(|d| d.read.as_ref());
        let Some(path) = named.and_then(|f| f.trust.signers_path()).map(str::to_owned) else {
            return;
        };
        let Some(entry) = tree.get(&path) else {
            return;
        };
        // What stands in a folder of ours has been looked at already.
        let ours = path == "allowed_signers" || FOLDERS.iter().any(|f| path.starts_with(&format!("{f}/")));
        let plain = if ours {
            entry.kind.is_file()
        } else {
            self.is_plain(&path, entry)
        };
        let shown = shown_path(path.as_bytes());
        let source = match Source::new(&shown, Arc::clone(&entry.bytes)) {
            Ok(source) if plain => source,
            Ok(_) => Source::empty(&shown),
            Err(finding) => {
                self.findings.push(finding);
                Source::empty(&shown)
            }
        };
        let read = Some(signers::read(&source, &mut self.findings));
        self.documents.allowed_signers = Some(Document { source, read });
    }

    fn module_file(&mut self, path: &str, module: &str, inside: &str, bytes: Option<&Arc<[u8]>>) {
        let name: ModuleName = match module.parse() {
            Ok(name) => name,
            Err(e) => {
                self.say(
                    path,
                    format!("the folder's name is no module's: {e}"),
                    "rename the folder",
                );
                return;
            }
        };
        if inside == "module.toml" {
            let document = self.document(path, bytes);
            self.documents.modules.entry(name).or_default().document = Some(document);
            return;
        }
        let bytes = bytes.map_or_else(|| Arc::from(&b""[..]), Arc::clone);
        if inside.starts_with("secrets/") && inside.ends_with(".age") {
            self.findings.extend(sealed::finding(path, &bytes));
        }
        let folder = self.documents.modules.entry(name).or_default();
        folder.files.insert(inside.to_owned(), bytes);
    }

    fn module_folders(&mut self) {
        let bare: Vec<String> = (self.documents.modules.iter())
            .filter(|(_, folder)| folder.document.is_none())
            .map(|(name, _)| format!("modules/{name}"))
            .collect();
        for path in bare {
            let message = format!("this folder has no `{path}/module.toml`");
            self.say(
                &path,
                message,
                "a module needs one; `meshplan schema module` prints what it holds",
            );
        }
    }
}

fn toml(file: &str) -> bool {
    file.ends_with(".toml")
}

/// Files that hold a folder open or explain it, and mean nothing to the fleet.
fn bystander(file: &str) -> bool {
    file.starts_with('.') || file.starts_with("README")
}
