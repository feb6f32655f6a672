//! Modules: resources that can be, sources that are there, an order without circles, one owner a target (HR-6).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use meshplan_schemas::document::ModuleFile;
use meshplan_schemas::document::read::At;
use meshplan_schemas::finding::{Finding, Source};
use meshplan_schemas::ident::{ModuleName, ResourceId};

use super::Names;
use super::kinds::{self, Target, targets};
use crate::pure::parse::Documents;

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
        kinds::check(documents, name, folder, (source, file), findings);
        check_own_order(name, source, file, findings);
    }
    check_circles(documents, findings);
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
    let mut claims: BTreeMap<Target, Vec<Claim<'_>>> = BTreeMap::new();
    for (name, folder) in &documents.modules {
        let Some(document) = &folder.document else {
            continue;
        };
        for (target, id, span) in document.read.iter().flat_map(targets) {
            claims
                .entry(target)
                .or_default()
                .push((name, id, &document.source, span));
        }
    }
    for (target, claims) in claims.iter().filter(|(_, claims)| claims.len() > 1) {
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
                    "{target} belongs to `{}.{}` already{on}, at {}:{}:{}; `{}.{}` cannot have it too",
                    first.0, first.1, place.file, place.line, place.column, second.0, second.1,
                );
                let finding = second.2.error(second.3.clone(), message);
                let finding = finding.help("one target, one resource");
                // A package that is for any manager meets another of that kind once for each.
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
                // One owner before it is enough to say; all pairs of a crowd would be too many.
                break;
            }
        }
    }
}
