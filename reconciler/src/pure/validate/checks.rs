//! Checks by themselves and against the tree: one assertion each, about things that can be (FR-11).

use meshplan_schemas::document::checks::{CheckFile, Never, Operand, PolicyClaim};
use meshplan_schemas::document::published;
use meshplan_schemas::document::read::At;
use meshplan_schemas::finding::{Finding, Source, did_you_mean};
use meshplan_schemas::resource::Kind;
use serde_json::Value;

use super::Names;
use crate::pure::parse::Documents;

pub(super) fn check(documents: &Documents, names: &Names, findings: &mut Vec<Finding>) {
    if documents.checks.is_empty() {
        return;
    }
    let policy = published::value("policy");
    for document in documents.checks.values() {
        let mut seen: Vec<&str> = Vec::new();
        for At { value: check, .. } in document.read.iter().flat_map(|file| &file.checks) {
            let source = &document.source;
            if seen.contains(&check.name.value.0.as_str()) {
                let message = format!("there are two checks `{}`", check.name.value.0);
                findings.push(source.error(check.name.span.clone(), message));
            }
            seen.push(&check.name.value.0);
            one(source, check, findings);
            findings.extend((check.node.iter()).filter_map(|n| names.node(source, &n.value, &n.span)));
            findings.extend((check.role.iter()).filter_map(|r| names.role(source, &r.value, &r.span)));
            for wanted in check.has.iter().flat_map(|has| &has.value.0) {
                has(documents, names, source, wanted, findings);
            }
            if let Some(claim) = &check.policy
                && let Err((why, help)) = claim_fits(&policy, &claim.value)
            {
                findings.push(source.error(claim.span.clone(), why).maybe_help(help));
            }
            if let Some(never) = &check.never
                && let Some((why, help)) = never_misses(&never.value)
            {
                findings.push(source.error(never.span.clone(), why).maybe_help(help));
            }
        }
    }
}

fn one(source: &Source, check: &CheckFile, findings: &mut Vec<Finding>) {
    let asks = [check.has.is_some(), check.policy.is_some(), check.never.is_some()];
    if asks.into_iter().filter(|asks| *asks).count() != 1 {
        let message = format!(
            "the check `{}` must have exactly one of `has`, `policy`, `never`",
            check.name.value.0
        );
        findings.push(source.error(check.name.span.clone(), message));
    }
    if let (Some(node), Some(_)) = (&check.node, &check.role) {
        let message = "a check is about a `node` or a `role`, this one names both";
        findings.push(source.error(node.span.clone(), message));
    }
    if let Some(has) = check.has.as_ref().filter(|has| has.value.0.is_empty()) {
        findings.push(source.error(has.span.clone(), "`has` is empty: it would hold of every node"));
    }
}

fn has(
    documents: &Documents,
    names: &Names,
    source: &Source,
    wanted: &At<meshplan_schemas::ident::ResourceName>,
    findings: &mut Vec<Finding>,
) {
    if let Some(finding) = names.module(source, &wanted.value.module, &wanted.span) {
        findings.push(finding);
        return;
    }
    let folder = documents.modules.get(&wanted.value.module);
    let Some(file) = folder.and_then(|f| f.document.as_ref()?.read.as_ref()) else {
        return;
    };
    let entries = file.entries();
    let ids = || entries.iter().map(|entry| entry.common().id().value.as_str());
    if !ids().any(|id| id == wanted.value.id.as_str()) {
        let message = format!(
            "the module `{}` has no resource `{}`",
            wanted.value.module, wanted.value.id
        );
        let help = did_you_mean(wanted.value.id.as_str(), ids());
        findings.push(source.error(wanted.span.clone(), message).maybe_help(help));
    }
}

/// Whether policy can have such a value at all; free keys can have any.
fn claim_fits(policy: &Value, claim: &PolicyClaim) -> Result<(), (String, Option<String>)> {
    let mut at = policy;
    for (depth, key) in claim.path.iter().enumerate() {
        let path = claim.path[..=depth].join(".");
        let Some(keys) = at["properties"].as_object() else {
            // A table of free keys, or something that has none.
            let free = at["type"] == "object";
            return if free {
                Ok(())
            } else {
                Err((format!("policy has no `{path}`"), None))
            };
        };
        at = keys.get(key).ok_or_else(|| {
            let near = did_you_mean(key, keys.keys().map(String::as_str));
            (format!("policy has no `{path}`"), near)
        })?;
    }
    let path = claim.path.join(".");
    let wanted = at["type"].as_str().unwrap_or_default();
    let fits = match &claim.operand {
        Operand::Number(_) => wanted == "integer",
        Operand::Flag(_) => wanted == "boolean",
        Operand::Text(_) => wanted == "string",
    };
    if fits {
        return Ok(());
    }
    Err(match wanted {
        "integer" => (format!("`{path}` is a whole number"), None),
        "boolean" => (format!("`{path}` is true or false"), None),
        "string" => (format!("`{path}` is a text"), None),
        _ => (
            format!("`{path}` is no single value that could be compared"),
            None,
        ),
    })
}

/// Why no resource could ever be such a one: it is asked of what a node is given, by the keys that stand there.
fn never_misses(never: &Never) -> Option<(String, Option<String>)> {
    let (key, _) = never.with.as_ref()?;
    let keys = Kind::keys(&never.kind)?;
    // `with capability X` reads better than `with capabilities X`, and means the same.
    let known = keys
        .iter()
        .any(|k| *k == key || singular(k).as_deref() == Some(key));
    (!known).then(|| {
        let near = did_you_mean(key, keys.iter().copied())
            .unwrap_or_else(|| format!("a {} has {}", never.kind, keys.join(", ")));
        (
            format!("the kind `{}` has no key `{key}`", never.kind),
            Some(near),
        )
    })
}

fn singular(key: &str) -> Option<String> {
    match key.strip_suffix("ies") {
        Some(stem) => Some(format!("{stem}y")),
        None => key.strip_suffix('s').map(str::to_owned),
    }
}
