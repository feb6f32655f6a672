//! Modules: resources that can be, sources that are there, an order without circles, one owner a target (HR-6).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use meshplan_schemas::document::module::{FileResource, ModuleFile, ProbeResource};
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::scalar::TargetPath;
use meshplan_schemas::finding::{Finding, Source, did_you_mean};
use meshplan_schemas::ident::{ModuleName, ResourceId};

use super::Names;
use crate::pure::parse::{Documents, ModuleFolder};

pub(super) fn check(documents: &Documents, names: &Names, findings: &mut Vec<Finding>) {
    for (name, folder) in &documents.modules {
        let Some(document) = &folder.document else {
            continue;
        };
        let Some(file) = &document.read else {
            continue;
        };
        let source = &document.source;
        findings.extend(
            file.after
                .iter()
                .filter_map(|m| names.module(source, &m.value, &m.span)),
        );
        if let Some(capability) = file.requires.first() {
            let message = "`requires` is not supported by this version yet";
            findings.push(source.error(capability.span.clone(), message));
        }
        check_ids(source, file, findings);
        for resource in &file.files {
            check_file(source, folder, resource, findings);
        }
        for link in file
            .links
            .iter()
            .filter(|l| l.target.value.is_empty() || l.target.value.contains('\0'))
        {
            findings.push(source.error(link.target.span.clone(), "a link needs something to point at"));
        }
        for probe in &file.probes {
            check_probe(source, probe, findings);
        }
        check_own_order(name, source, file, findings);
    }
    check_circles(documents, findings);
}

/// The ids of all resources with their places.
fn ids(file: &ModuleFile) -> Vec<&At<ResourceId>> {
    let files = file.files.iter().map(|r| &r.id);
    let directories = file.directories.iter().map(|r| &r.id);
    let links = file.links.iter().map(|r| &r.id);
    let probes = file.probes.iter().map(|r| &r.id);
    files.chain(directories).chain(links).chain(probes).collect()
}

/// The targets of all resources: path, id, place of the path.
fn targets(file: &ModuleFile) -> Vec<(&At<TargetPath>, &ResourceId)> {
    let files = file.files.iter().map(|r| (&r.path, &r.id.value));
    let directories = file.directories.iter().map(|r| (&r.path, &r.id.value));
    let links = file.links.iter().map(|r| (&r.path, &r.id.value));
    files.chain(directories).chain(links).collect()
}

fn check_ids(source: &Source, file: &ModuleFile, findings: &mut Vec<Finding>) {
    let ids = ids(file);
    let mut known: BTreeSet<&ResourceId> = BTreeSet::new();
    for id in &ids {
        if !known.insert(&id.value) {
            findings.push(source.error(id.span.clone(), format!("there are two resources `{}`", id.value)));
        }
    }
    let from_files = file
        .files
        .iter()
        .flat_map(|r| r.restarts.iter().chain(&r.reloads).chain(&r.runs));
    for wanted in from_files.chain(&file.on_policy_change) {
        if !known.contains(&wanted.value) {
            let names = known.iter().map(|id| id.as_str());
            let message = format!("this module has no resource `{}`", wanted.value);
            let help = did_you_mean(wanted.value.as_str(), names);
            findings.push(source.error(wanted.span.clone(), message).maybe_help(help));
        }
    }
}

fn check_file(source: &Source, folder: &ModuleFolder, file: &FileResource, findings: &mut Vec<Finding>) {
    match (&file.source, &file.content) {
        (Some(_), None) => {}
        (None, Some(_)) => {}
        (Some(_), Some(content)) => findings.push(source.error(
            content.span.clone(),
            "a file has `source` or `content`, this one has both",
        )),
        (None, None) => {
            let message = format!("the file `{}` has neither `source` nor `content`", file.id.value);
            findings.push(source.error(file.id.span.clone(), message));
        }
    }
    if let Some(wanted) = &file.source
        && !folder.files.contains_key(&wanted.value.0)
    {
        let message = format!("the module's folder has no file `{}`", wanted.value);
        let known = folder.files.keys().map(String::as_str);
        let help = did_you_mean(&wanted.value.0, known).unwrap_or_else(|| {
            "a source is a path inside the module's folder, as `files/web.conf`".to_owned()
        });
        findings.push(source.error(wanted.span.clone(), message).help(help));
    }
    if let Some(command) = &file.validate
        && !command.value.contains("%s")
    {
        let message = "`validate` must contain `%s`, the path of the temporary file";
        findings.push(source.error(command.span.clone(), message));
    }
}

fn check_probe(source: &Source, probe: &ProbeResource, findings: &mut Vec<Finding>) {
    let asks = [probe.http.is_some(), probe.tcp.is_some(), probe.command.is_some()];
    let asked = asks.into_iter().filter(|asked| *asked).count();
    if asked != 1 {
        let message = format!(
            "the probe `{}` must ask exactly one of `http`, `tcp`, `command`",
            probe.id.value
        );
        findings.push(source.error(probe.id.span.clone(), message));
    }
    if let (Some(status), None) = (&probe.status, &probe.http) {
        findings.push(source.error(status.span.clone(), "`status` belongs to `http`"));
    }
    if let Some(command) = &probe.command
        && command.value.first().is_none_or(String::is_empty)
    {
        let message = "a command is an array: the program, then its arguments";
        findings.push(source.error(command.span.clone(), message));
    }
}

fn check_own_order(name: &ModuleName, source: &Source, file: &ModuleFile, findings: &mut Vec<Finding>) {
    for after in file.after.iter().filter(|after| after.value == *name) {
        findings.push(source.error(after.span.clone(), "a module cannot come after itself"));
    }
}

/// Says each circle of `after` once, at the module of it whose name comes first.
fn check_circles(documents: &Documents, findings: &mut Vec<Finding>) {
    let after: BTreeMap<&ModuleName, (&Source, &[At<ModuleName>])> = (documents.modules.iter())
        .filter_map(|(name, folder)| {
            let document = folder.document.as_ref()?;
            Some((name, (&document.source, document.read.as_ref()?.after.as_slice())))
        })
        .collect();
    let mut done: BTreeSet<&ModuleName> = BTreeSet::new();
    for start in after.keys() {
        // Depth first, with the way that led here: a step back onto it closes a circle.
        let mut way: Vec<(&ModuleName, usize)> = vec![(start, 0)];
        while let Some((name, next)) = way.pop() {
            let step = after
                .get(name)
                .and_then(|(source, list)| Some((source, list.get(next)?)));
            let Some((source, to)) = step.filter(|_| !done.contains(name)) else {
                done.insert(name);
                continue;
            };
            way.push((name, next + 1));
            if let Some(back) = way.iter().position(|(on_way, _)| **on_way == to.value) {
                if back + 1 < way.len() {
                    let circle: Vec<&str> = way[back..].iter().map(|(name, _)| name.as_str()).collect();
                    let message = format!(
                        "`after` goes in a circle: {} -> {}",
                        circle.join(" -> "),
                        to.value
                    );
                    findings.push(source.error(to.span.clone(), message));
                }
            } else if !done.contains(&to.value) {
                way.push((&to.value, 0));
            }
        }
    }
}

/// A place that wants a target.
type Claim<'d> = (&'d ModuleName, &'d ResourceId, &'d Source, &'d Range<usize>);

/// One target, one owner, on each node (HR-6).
pub(super) fn check_targets(
    documents: &Documents,
    memberships: &[Arc<BTreeSet<ModuleName>>],
    findings: &mut Vec<Finding>,
) {
    let mut claims: BTreeMap<&TargetPath, Vec<Claim<'_>>> = BTreeMap::new();
    for (name, folder) in &documents.modules {
        let Some(document) = &folder.document else {
            continue;
        };
        for (path, id) in document.read.iter().flat_map(targets) {
            claims
                .entry(&path.value)
                .or_default()
                .push((name, id, &document.source, &path.span));
        }
    }
    for (path, claims) in claims.iter().filter(|(_, claims)| claims.len() > 1) {
        for (at, second) in claims.iter().enumerate() {
            for first in &claims[..at] {
                let on = if first.0 == second.0 {
                    Some(String::new())
                } else {
                    let both = |of_node: &Arc<BTreeSet<ModuleName>>| {
                        of_node.contains(first.0) && of_node.contains(second.0)
                    };
                    (documents.nodes.iter().zip(memberships))
                        .find(|(node, of_node)| !node.in_revoked && both(of_node))
                        .map(|(node, _)| format!(" on {}", node.name))
                };
                let Some(on) = on else {
                    continue;
                };
                let place = first.2.error(first.3.clone(), "");
                let message = format!(
                    "`{path}` belongs to `{}.{}` already{on}, at {}:{}:{}; `{}.{}` cannot have it too",
                    first.0, first.1, place.file, place.line, place.column, second.0, second.1,
                );
                findings.push(
                    second
                        .2
                        .error(second.3.clone(), message)
                        .help("one target, one resource"),
                );
                // One owner before it is enough to say; all pairs of a crowd would be too many.
                break;
            }
        }
    }
}
