//! Finds the documents in a tree and reads each by itself (FR-1, FR-3).
//!
//! A document that cannot be read keeps its name, so that what refers to it is not called wrong as well.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use meshplan_schemas::document::read::{self, Read};
use meshplan_schemas::document::{FleetFile, ModuleFile, NodeFile, PlanFile, PolicyFile};
use meshplan_schemas::finding::{Finding, Source, nearest};
use meshplan_schemas::ident::{ModuleName, NodeName, PlanName, RoleName, SecretName};
use meshplan_schemas::limits::{BUNDLE_BYTES, DOCUMENT_BYTES};

use super::source_tree::{Entry, EntryKind, SourceTree, shown_path};

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
    pub document: Document<NodeFile>,
}

/// A module's document and the files beside it.
#[derive(Debug, Clone, Default)]
pub struct ModuleFolder {
    /// `module.toml`; none where the folder has none.
    pub document: Option<Document<ModuleFile>>,
    /// The other files, by their path inside the folder.
    pub files: BTreeMap<String, Arc<[u8]>>,
}

/// Every document of a tree.
#[derive(Debug, Clone, Default)]
pub struct Documents {
    /// `fleet.toml`.
    pub fleet: Option<Document<FleetFile>>,
    /// Records, in the order of their paths.
    pub nodes: Vec<NodeDocument>,
    /// `policy/base.toml`.
    pub base: Option<Document<PolicyFile>>,
    /// `policy/roles/<role>.toml`.
    pub overlays: BTreeMap<RoleName, Document<PolicyFile>>,
    /// `modules/<module>/`.
    pub modules: BTreeMap<ModuleName, ModuleFolder>,
    /// `plans/<plan>.toml`.
    pub plans: BTreeMap<PlanName, Document<PlanFile>>,
    /// Something was wrong: nothing can be validated to the end.
    pub(super) broken: bool,
}

/// The folders whose content is the fleet's.
const FOLDERS: [&str; 6] = ["nodes", "policy", "modules", "plans", "checks", "secrets"];
/// What an age file begins with, binary or armored (age-encryption.org/v1).
const AGE: [&[u8]; 2] = [b"age-encryption.org/v1\n", b"-----BEGIN AGE ENCRYPTED FILE-----"];
/// What a git-lfs pointer begins with (git-lfs specification, "The Pointer").
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Reads every document of a tree. The findings are sorted by file and line.
#[must_use]
pub fn parse(tree: &SourceTree) -> (Documents, Vec<Finding>) {
    let mut reading = Reading::default();
    for (path, entry) in tree.iter() {
        reading.entry(path, entry);
    }
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
    module_bytes: BTreeMap<ModuleName, u64>,
}

impl Reading {
    fn say(&mut self, path: &str, message: impl Into<String>, help: &str) {
        let finding = Finding::of_file(&shown_path(path.as_bytes()), message);
        self.findings.push(finding.help(help));
    }

    fn entry(&mut self, path: &str, entry: &Entry) {
        let parts: Vec<&str> = path.split('/').collect();
        let ours = matches!(path, "fleet.toml" | "rotations.toml" | "allowed_signers")
            || FOLDERS.contains(&parts[0]);
        if !ours {
            self.near_miss(path, &parts);
            return;
        }
        // What is refused keeps its name, without content: nothing that refers to it is called wrong as well.
        let bytes = self.is_plain(path, entry).then_some(&entry.bytes);
        self.place(path, &parts, bytes);
    }

    fn place(&mut self, path: &str, parts: &[&str], bytes: Option<&Arc<[u8]>>) {
        match parts {
            ["fleet.toml"] => self.documents.fleet = Some(self.document(path, bytes)),
            ["rotations.toml"] => self.not_empty(path, bytes),
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
                    self.documents.nodes.push(NodeDocument {
                        name,
                        in_revoked,
                        document,
                    });
                }
            }
            ["modules", module, rest @ ..] if !rest.is_empty() => {
                self.module_file(path, module, &rest.join("/"), bytes);
            }
            ["secrets", .., file] if !bystander(file) && path != "secrets/retired.toml" => {
                self.sealed(path, bytes);
            }
            ["checks" | "secrets", .., file] if !bystander(file) => {
                let help =
                    "it would have to be honoured, so it is not skipped in silence: take it out for now";
                self.say(
                    path,
                    format!("`{}/` is not supported by this version yet", parts[0]),
                    help,
                );
            }
            [folder, .., file] if toml(file) => {
                let expected = match *folder {
                    "policy" => "policy is `policy/base.toml` and `policy/roles/<role>.toml`",
                    "plans" => "plans are `plans/<plan>.toml`",
                    _ => "modules are `modules/<module>/module.toml`",
                };
                self.say(path, "no document is expected here", expected);
            }
            _ => {}
        }
    }

    /// Only the name of a sealed secret is anybody's business here (FR-9); what is not sealed is everybody's.
    fn sealed(&mut self, path: &str, bytes: Option<&Arc<[u8]>>) {
        let name = path
            .strip_prefix("secrets/")
            .and_then(|file| file.strip_suffix(".age"));
        if name.is_none_or(|name| name.parse::<SecretName>().is_err()) {
            let help =
                "`meshplan secret set NAME` writes one; a value that stood here in clear is known: change it";
            self.say(
                path,
                "this is no sealed secret: secrets are `secrets/<name>.age`",
                help,
            );
        } else if bytes.is_some_and(|bytes| !AGE.iter().any(|head| bytes.starts_with(head))) {
            let help =
                "`meshplan secret set` seals a value; one that stood here in clear is known: change it";
            self.say(path, "this file ends in `.age` and is no age file", help);
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
        let module = path.starts_with("modules/") && !path.ends_with("/module.toml");
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
            EntryKind::Blob if entry.bytes.starts_with(LFS_POINTER) && entry.bytes.len() < 1024 => {
                let help =
                    "nodes would get these three lines: commit the file itself (`git lfs migrate export`)";
                self.say(path, "this is a git-lfs pointer, not the file", help);
                false
            }
            EntryKind::Blob if !module && entry.bytes.len() > DOCUMENT_BYTES => {
                let message = format!("this document has {} bytes", entry.bytes.len());
                self.say(
                    path,
                    message,
                    &format!("a document is at most {DOCUMENT_BYTES} bytes"),
                );
                false
            }
            EntryKind::Blob => true,
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

    fn not_empty(&mut self, path: &str, bytes: Option<&Arc<[u8]>>) {
        let says_something = |line: &[u8]| {
            let line = line.trim_ascii();
            !line.is_empty() && !line.starts_with(b"#")
        };
        if bytes.is_some_and(|bytes| bytes.split(|b| *b == b'\n').any(says_something)) {
            let help = "it would have to be honoured, so it is not skipped in silence: empty it for now";
            self.say(path, "rotations are not supported by this version yet", help);
        }
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
        let sum = self.module_bytes.entry(name.clone()).or_default();
        let before = *sum;
        *sum = sum.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if before <= BUNDLE_BYTES && *sum > BUNDLE_BYTES {
            let message = format!("with this file the module is larger than {BUNDLE_BYTES} bytes");
            self.say(path, message, "large files belong into artifacts");
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
