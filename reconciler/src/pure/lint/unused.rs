//! Rules of what stands there for nothing: modules, settings, values, files. Of roles `check` itself warns.
//!
//! Whether a template reads a name is told by its text. A name that occurs anywhere in it counts as read: a rule that
//! keeps silent too often is better than one that is switched off.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::document::read::At;
use meshplan_schemas::document::var::Var;
use meshplan_schemas::finding::{Finding, Source, did_you_mean};

use super::Subject;
use crate::pure::template::is_template;
use crate::pure::validate::Module;

pub(super) fn modules(subject: &Subject<'_>) -> Vec<Finding> {
    let nodes = subject.validated.nodes();
    if nodes.is_empty() {
        return Vec::new();
    }
    let had: BTreeSet<_> = nodes.iter().flat_map(|record| record.modules.iter()).collect();
    (subject.validated.modules().iter())
        .filter(|(name, _)| !had.contains(name))
        .map(|(name, module)| {
            let why = format!("no node has the module `{name}`");
            let help = "give it a role that a record carries, or name it in the `modules` of a record";
            Finding::of_file(module.source.file(), why).help(help)
        })
        .collect()
}

/// The texts of a module's templates.
fn templates(module: &Module) -> impl Iterator<Item = &str> {
    (module.files.iter())
        .filter(|(path, _)| is_template(path))
        .filter_map(|(_, bytes)| std::str::from_utf8(bytes).ok())
}

/// Whether a text has this name as a word.
fn names(text: &str, name: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let after = text.get(at + name.len()..).and_then(|after| after.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// Whether a template takes a whole table apart, so that any name of it may be read.
fn takes_all(text: &str, table: &str) -> bool {
    text.match_indices(table).any(|(at, _)| {
        let after = text.get(at + table.len()..).unwrap_or_default();
        !after.starts_with('.') && !after.starts_with("[\"") && !after.starts_with("['")
    })
}

pub(super) fn settings(subject: &Subject<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, module) in subject.validated.modules() {
        let all = templates(module).any(|text| takes_all(text, "settings"));
        for (setting, declared) in module.file.settings.0.iter().filter(|_| !all) {
            if !templates(module).any(|text| names(text, setting)) {
                let why = format!("no template of the module `{name}` reads the setting `{setting}`");
                let help = format!(
                    "a template reads it as `settings.{setting}`; take it out where nothing needs it"
                );
                found.push(module.source.error(declared.span.clone(), why).help(help));
            }
        }
    }
    found
}

pub(super) fn vars(subject: &Subject<'_>) -> Vec<Finding> {
    let modules = subject.validated.modules();
    let declared: BTreeSet<&str> = modules
        .values()
        .flat_map(|module| module.file.settings.0.keys().map(String::as_str))
        .collect();
    // A private network reads each node's address by the name of a value.
    let of_networks: BTreeSet<&str> = (modules.values())
        .flat_map(|module| &module.file.private_networks)
        .flat_map(|network| [Some(&network.address_var), network.endpoint_var.as_ref()])
        .flatten()
        .map(|var| var.value.0.as_str())
        .collect();
    let texts: Vec<&str> = modules.values().flat_map(templates).collect();
    if texts.iter().any(|text| takes_all(text, "vars")) {
        return Vec::new();
    }
    // Each name once: thousands of records give the same ones.
    let mut read: BTreeMap<&str, bool> = BTreeMap::new();
    let mut unread: BTreeMap<&str, (&Source, &At<Var>, usize)> = BTreeMap::new();
    let fleet = subject.documents.fleet.as_ref();
    let of_fleet = fleet.and_then(|document| Some((&document.source, &document.read.as_ref()?.vars)));
    let of_nodes = subject
        .validated
        .nodes()
        .iter()
        .map(|record| (&record.source, &record.file.vars));
    for (source, vars) in of_fleet.into_iter().chain(of_nodes) {
        for (name, at) in &vars.0 {
            let read = *read.entry(name).or_insert_with(|| {
                declared.contains(name.as_str())
                    || of_networks.contains(name.as_str())
                    || texts.iter().any(|text| names(text, name))
            });
            if !read {
                unread.entry(name).or_insert((source, at, 0)).2 += 1;
            }
        }
    }
    (unread.into_iter())
        .map(|(name, (source, at, count))| {
            let more = match count {
                1 => String::new(),
                count => format!(" (here and in {} more)", count - 1),
            };
            let why =
                format!("nothing reads `{name}`: no module has a setting, and no template the name{more}");
            let near = did_you_mean(name, declared.iter().copied());
            let help = near.unwrap_or_else(|| "take it out, or read it in a template".to_owned());
            source.error(at.span.clone(), why).help(help)
        })
        .collect()
}

pub(super) fn files(subject: &Subject<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (name, module) in subject.validated.modules() {
        let document = module.source.text();
        for path in module.files.keys() {
            let file = path.rsplit('/').next().unwrap_or(path);
            let bystander =
                file.starts_with('.') || file.starts_with("README") || file.starts_with("LICENSE");
            // Kinds name files and folders in fields of their own: any mention in the document is a use.
            let folders = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
            let mut mentions = folders
                .chain([path.as_str()])
                .filter(|part| part.contains('/') || *part == path);
            let used = mentions.any(|part| document.contains(&format!("\"{part}\"")))
                || templates(module).any(|text| text.contains(path.as_str()));
            let kept = ["secrets/", "bundle/"]
                .iter()
                .any(|folder| path.starts_with(folder));
            if !bystander && !used && !kept {
                let why = format!("nothing of the module `{name}` uses this file");
                let help = format!("name it as a `source = \"{path}\"`, or take it away");
                let folder = module.source.file().trim_end_matches("module.toml");
                found.push(Finding::of_file(&format!("{folder}{path}"), why).help(help));
            }
        }
    }
    found
}
