//! Makes a module from what ran on a machine before: a compose file, a quadlet, a unit file (FR-14).
//!
//! Text in, `module.toml` out, and with it everything that could not be carried over, each at its place. Nothing is
//! left out in silence: a key is carried over, has no effect by its own definition, or is named. Defaults that differ
//! are written out, so that what is imported means what it meant.

use std::collections::BTreeMap;

use meshplan_schemas::finding::{Finding, Source};
use meshplan_schemas::ident::{ModuleName, RoleName};

mod compose;
mod draft;
mod quadlet;
mod shorthand;
mod systemd;
mod unit;
mod yaml;

#[cfg(test)]
mod tests;

use draft::{Draft, quoted};

/// The largest file that is imported, in bytes.
pub const FILE_BYTES: usize = 256 * 1024;
/// The most files beside it that are looked at.
pub const FILES_BESIDE: usize = 256;

/// What a file is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A compose file.
    Compose,
    /// `*.container`, `*.volume`, `*.network` of Podman.
    Quadlet,
    /// A service of systemd, or its timer.
    Unit,
}

impl Form {
    /// By the end of its name; none where it says nothing.
    #[must_use]
    pub fn of(file: &str) -> Option<Self> {
        let (_, end) = file.rsplit_once('.')?;
        match end {
            "yml" | "yaml" => Some(Self::Compose),
            "container" | "volume" | "network" => Some(Self::Quadlet),
            "service" | "timer" => Some(Self::Unit),
            _ => None,
        }
    }

    /// The ends of names of files beside it that belong to it.
    #[must_use]
    pub fn beside(self) -> &'static [&'static str] {
        match self {
            Self::Compose => &[],
            Self::Quadlet => &["volume", "network"],
            Self::Unit => &["service", "timer"],
        }
    }
}

/// The name that a module has where nobody gives one: a compose file's is that of its folder.
#[must_use]
pub fn suggested_name(form: Form, file: &str, folder: &str) -> Option<ModuleName> {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let name = if form == Form::Compose { folder } else { stem };
    let name = shorthand::id(name);
    name.parse().ok()
}

/// What is to be imported.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The module that it becomes.
    pub name: &'a ModuleName,
    /// Roles that bring it.
    pub roles: &'a [RoleName],
    /// What it is.
    pub form: Form,
    /// The file's name without its folder.
    pub file: &'a str,
    /// The name of the folder that the file lies in: compose names what it makes by it.
    pub folder: &'a str,
    /// The file.
    pub source: &'a Source,
    /// The files beside it, by their names.
    pub beside: &'a BTreeMap<String, Source>,
}

/// A module that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// `module.toml`, without the line that names its schema.
    pub module_toml: String,
    /// What could not be carried over, in the order of the files.
    pub left_out: Vec<Finding>,
    /// How many resources it has.
    pub resources: usize,
}

/// Makes the module.
///
/// # Errors
/// The file cannot be read as what it is, or nothing of it is left.
pub fn import(request: &Request<'_>) -> Result<Imported, Vec<Finding>> {
    let bytes = request.source.text().len();
    if bytes > FILE_BYTES {
        let message = format!("a file that is imported has at most {FILE_BYTES} bytes, this one has {bytes}");
        return Err(vec![Finding::of_file(request.source.file(), message)]);
    }
    let mut draft = match request.form {
        Form::Compose => compose::read(request),
        Form::Quadlet => quadlet::read(request),
        Form::Unit => unit::read(request),
    }
    .map_err(|finding| vec![finding])?;
    draft.judge();
    draft.left_out.sort();
    draft.left_out.dedup();
    if draft.resources.is_empty() {
        let mut findings = draft.left_out;
        findings.push(Finding::of_file(
            request.source.file(),
            "nothing of this file becomes a resource",
        ));
        return Err(findings);
    }
    Ok(Imported {
        module_toml: module_toml(request, &draft),
        resources: draft.resources.len(),
        left_out: draft.left_out,
    })
}

fn module_toml(request: &Request<'_>, draft: &Draft) -> String {
    let described = draft
        .description
        .clone()
        .unwrap_or_else(|| format!("Imported from {}", request.file));
    let roles: Vec<String> = request.roles.iter().map(|role| quoted(role.as_str())).collect();
    let mut text = format!("description = {}\n", quoted(&described));
    text.push_str(&format!("roles = [{}]\n", roles.join(", ")));
    if !draft.left_out.is_empty() {
        text.push_str("\n# Not carried over:\n");
        for finding in &draft.left_out {
            let line = finding.to_string();
            let line: String = line
                .chars()
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            text.push_str(&format!("# - {line}\n"));
        }
    }
    text + &draft.render()
}
