//! Roles that stand alone: no record carries one, or only records name it (FR-5). A misspelt role refuses nothing and does
//! nothing; the warning is where that is seen.

use std::collections::BTreeSet;
use std::ops::Range;

use meshplan_schemas::document::rotations::Subject;
use meshplan_schemas::finding::{Finding, Source, did_you_mean};
use meshplan_schemas::ident::RoleName;

use super::Names;
use crate::pure::parse::Documents;

/// Roles that a plan, a check, a private network or a rotation names: these mean a role that records carry.
pub(super) fn spoken_of(documents: &Documents) -> BTreeSet<RoleName> {
    let plans = documents.plans.values().filter_map(|plan| plan.read.as_ref());
    let stages = plans.flat_map(|plan| &plan.stages);
    let of_stages = stages.flat_map(|stage| stage.value.roles.iter().map(|role| &role.value));
    let checks = documents.checks.values().filter_map(|file| file.read.as_ref());
    let of_checks = checks
        .flat_map(|file| &file.checks)
        .filter_map(|check| Some(&check.value.role.as_ref()?.value));
    let modules = documents.modules.values();
    let of_networks = modules
        .filter_map(|folder| folder.document.as_ref()?.read.as_ref())
        .flat_map(|file| &file.private_networks)
        .flat_map(|network| network.roles.iter().map(|role| &role.value));
    let rotations = documents.rotations.as_ref().and_then(|d| d.read.as_ref());
    let of_rotations = rotations
        .into_iter()
        .flat_map(|file| &file.rotations)
        .filter_map(|rotation| match &rotation.value.subject.as_ref()?.value {
            Subject::Role(role) => Some(role),
            Subject::Node(_) | Subject::All => None,
        });
    (of_stages.chain(of_checks).chain(of_networks).chain(of_rotations))
        .cloned()
        .collect()
}

/// Warns of roles that no record carries, where they are named, and of those that only records name.
pub(super) fn warn(documents: &Documents, names: &Names, findings: &mut Vec<Finding>) {
    for (role, (at, span)) in &names.carried {
        if names.meant.contains(role) || names.spoken_of.contains(role) || templates_name(documents, role) {
            continue;
        }
        let known = names.meant.iter().map(RoleName::as_str);
        let source = &documents.nodes[*at].document.source;
        let message = format!(
            "the role `{role}` is named by records only: no overlay, module, plan or check knows it, and no template"
        );
        let finding = source.error(span.clone(), message);
        let help = did_you_mean(role.as_str(), known);
        findings.push(finding.maybe_help(help).warning());
    }
    // Before the first record nobody can carry one.
    if documents.nodes.is_empty() {
        return;
    }
    for (role, overlay) in &documents.overlays {
        if !names.carried.contains_key(role) {
            let message = format!("no record carries the role `{role}`: this overlay reaches nobody");
            let finding = Finding::of_file(overlay.source.file(), message);
            findings.push(finding.help(next(names, role)).warning());
        }
    }
    for folder in documents.modules.values() {
        let Some(document) = &folder.document else {
            continue;
        };
        for role in document.read.iter().flat_map(|file| &file.roles) {
            findings.extend(brings_to_nobody(names, &document.source, &role.value, &role.span));
        }
    }
}

fn brings_to_nobody(names: &Names, source: &Source, role: &RoleName, span: &Range<usize>) -> Option<Finding> {
    if names.carried.contains_key(role) {
        return None;
    }
    let message = format!("no record carries the role `{role}`: it brings this module to nobody");
    let finding = source.error(span.clone(), message);
    Some(finding.help(next(names, role)).warning())
}

/// What to do about a role that nobody carries.
fn next(names: &Names, role: &RoleName) -> String {
    let near = did_you_mean(role.as_str(), names.carried.keys().map(RoleName::as_str));
    near.unwrap_or_else(|| "take it out, or give it to a record".to_owned())
}

/// Whether a template has the role's name in quotes, as `"edge" in node.roles`.
fn templates_name(documents: &Documents, role: &RoleName) -> bool {
    let quoted = [format!("\"{role}\""), format!("'{role}'")];
    let files = documents.modules.values().flat_map(|folder| &folder.files);
    files
        .filter(|(path, _)| path.ends_with(".j2"))
        .filter_map(|(_, bytes)| std::str::from_utf8(bytes).ok())
        .any(|text| quoted.iter().any(|quoted| text.contains(quoted)))
}
