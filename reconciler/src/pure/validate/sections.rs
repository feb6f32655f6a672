//! Sections of fleet.toml against the rest of the tree: components, roots, secrets, signers, messages out.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::document::FleetFile;
use meshplan_schemas::document::fleet::SignedCommits;
use meshplan_schemas::document::module::BundleSource;
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::finding::{Finding, Source, did_you_mean};
use meshplan_schemas::limits::BUNDLE_BYTES;

use super::Names;
use crate::pure::parse::Documents;
use crate::pure::source_tree::{is_of_component, shown_path};

pub(super) fn check(documents: &Documents, names: &Names, findings: &mut Vec<Finding>) {
    retired(documents, findings);
    let Some(document) = &documents.fleet else {
        return;
    };
    let Some(file) = &document.read else {
        return;
    };
    let source = &document.source;
    components(documents, names, (source, file), findings);
    roots((source, file), findings);
    trust(documents, (source, file), findings);
    secrets(documents, (source, file), findings);
    for At { value: notify, span } in file.notify.0.values() {
        if notify.url.is_some() == notify.url_secret.is_some() {
            findings.push(source.error(span.clone(), "messages go to exactly one of `url`, `url_secret`"));
        }
        findings.extend(
            notify
                .url_secret
                .iter()
                .filter_map(|at| secret(documents, source, at)),
        );
    }
    sizes(documents, file, findings);
}

/// What is wrong where a secret of the fleet is named; none where it is there.
pub(super) fn secret(documents: &Documents, source: &Source, at: &At<SecretName>) -> Option<Finding> {
    (!documents.secrets.contains_key(&at.value)).then(|| {
        let known = documents.secrets.keys().map(|name| name.0.as_str());
        let help = did_you_mean(&at.value.0, known)
            .unwrap_or_else(|| format!("put it into `secrets/{}.age`", at.value));
        source
            .error(at.span.clone(), format!("there is no secret `{}`", at.value))
            .help(help)
    })
}

fn retired(documents: &Documents, findings: &mut Vec<Finding>) {
    let Some(document) = &documents.retired else {
        return;
    };
    let mut seen = BTreeSet::new();
    for At { value: entry, .. } in document.read.iter().flat_map(|file| &file.retired) {
        findings.extend(secret(documents, &document.source, &entry.name));
        if !seen.insert(&entry.name.value) {
            let message = format!("the secret `{}` is retired twice", entry.name.value);
            findings.push(document.source.error(entry.name.span.clone(), message));
        }
    }
}

fn components(
    documents: &Documents,
    names: &Names,
    (source, file): (&Source, &FleetFile),
    findings: &mut Vec<Finding>,
) {
    let mut feeds = BTreeMap::new();
    let mut branches = BTreeMap::new();
    for At { value: component, .. } in &file.components {
        let module = &component.module;
        let (repo, branch) = (&component.repo, &component.branch);
        let other = branches.insert(&repo.value.0, &branch.value.0);
        if let Some(other) = other.filter(|other| *other != &branch.value.0) {
            let message = format!("the branch `{other}` of {} is a component already", repo.value.0);
            let help = "a repository is delivered from one branch: name that one, or give the other a repository of its own";
            findings.push(source.error(branch.span.clone(), message).help(help));
        }
        if let Some(other) = feeds.insert(&module.value, component) {
            let message = format!(
                "the module `{}` is fed by {} already",
                module.value, other.repo.value.0
            );
            findings.push(
                source
                    .error(module.span.clone(), message)
                    .help("a module has one component"),
            );
        }
        if let Some(finding) = names.module(source, &module.value, &module.span) {
            findings.push(finding);
            continue;
        }
        let folder = documents.modules.get(&module.value);
        let fed = folder
            .and_then(|f| f.document.as_ref()?.read.as_ref())
            .is_none_or(|file| {
                (file.bundles.iter()).any(|bundle| bundle.source.value == BundleSource::Component)
            });
        if !fed {
            let message = format!(
                "the module `{}` has no bundle that a component could feed",
                module.value
            );
            let help = "it needs a `[[bundle]]` with `source = \"component\"`";
            findings.push(source.error(module.span.clone(), message).help(help));
        }
    }
}

fn roots((source, file): (&Source, &FleetFile), findings: &mut Vec<Finding>) {
    let (mut ids, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for At { value: root, span } in &file.roots {
        if !ids.insert(&root.id) {
            findings.push(source.error(
                span.clone(),
                format!("there are two roots with the id `{}`", root.id),
            ));
        }
        // One key under two names would meet a threshold of two (B32).
        if !keys.insert(root.key) {
            findings.push(source.error(
                span.clone(),
                format!("the root `{}` has another root's key", root.id),
            ));
        }
        if let Some(author) = file.authors.iter().find(|author| author.value.key == root.key) {
            let message = format!(
                "the root `{}` has the key of the author `{}`: a key that signs every day is not kept offline",
                root.id, author.value.id
            );
            findings.push(source.error(span.clone(), message));
        }
    }
}

fn trust(documents: &Documents, (source, file): (&Source, &FleetFile), findings: &mut Vec<Finding>) {
    let enough = [
        (&file.trust.threshold, file.authors.len(), "authors"),
        (&file.trust.root_threshold, file.roots.len(), "roots"),
    ];
    for (threshold, count, who) in enough {
        if let Some(at) = threshold
            && usize::try_from(at.value.0).is_ok_and(|wanted| wanted > count)
        {
            let message = format!("{} must sign, and the number of {who} is {count}", at.value.0);
            findings.push(source.error(at.span.clone(), message));
        }
    }
    if let Some(at) = &file.trust.signed_commits
        && at.value != SignedCommits::Off
        && file.trust.allowed_signers.is_none()
        && let Some(path) = file.trust.signers_path()
        && documents.allowed_signers.is_none()
    {
        let message = format!(
            "`signed_commits = \"{}\"` needs the file that names who may sign, and there is no `{path}`",
            at.value
        );
        let help = "a line a signer: `<who> <key type> <key>`, as ssh-keygen reads it";
        findings.push(source.error(at.span.clone(), message).help(help));
    }
    if let Some(at) = &file.trust.allowed_signers {
        match &documents.allowed_signers {
            None => {
                let message = format!("there is no `{}`", at.value);
                let help = "a line a signer: `<who> <key type> <key>`, as ssh-keygen reads it";
                findings.push(source.error(at.span.clone(), message).help(help));
            }
            Some(document) if document.read.as_ref().is_some_and(Vec::is_empty) && !documents.broken => {
                let message = format!("`{}` names no signer", at.value);
                findings.push(source.error(at.span.clone(), message));
            }
            Some(_) => {}
        }
    }
}

/// Secrets need somebody who can open them.
fn secrets(documents: &Documents, (source, file): (&Source, &FleetFile), findings: &mut Vec<Finding>) {
    if file.secrets.recipient.is_some() {
        return;
    }
    let of_modules = documents.modules.iter().find_map(|(name, folder)| {
        let path = folder
            .files
            .keys()
            .find(|path| path.starts_with("secrets/") && path.ends_with(".age"))?;
        Some(format!("modules/{name}/{path}"))
    });
    if let Some(path) = documents.secrets.values().next().cloned().or(of_modules) {
        let message = format!("the tree holds `{path}`, and fleet.toml names nobody who could open it");
        let help = "add `[secrets]` with `recipient = \"age1...\"`, the reconciler's";
        findings.push(Finding::of_file(source.file(), message).help(help));
    }
}

/// FR-3: a module's folder is at most so large, unless fleet.toml raises it.
fn sizes(documents: &Documents, file: &FleetFile, findings: &mut Vec<Finding>) {
    let most = file
        .limits
        .bundle_mib
        .map_or(BUNDLE_BYTES, |mib| u64::from(mib.0) * 1024 * 1024);
    for (name, folder) in &documents.modules {
        let mut sum = 0_u64;
        // What a component brings is bounded by itself, and no fault of this tree.
        let own = folder.files.iter().filter(|(path, _)| !is_of_component(path));
        for (path, bytes) in own {
            sum = sum.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            if sum > most {
                let path = shown_path(format!("modules/{name}/{path}").as_bytes());
                let message = format!("with this file the module is larger than {most} bytes");
                let help = "large files belong into artifacts; `bundle_mib` under `[limits]` of fleet.toml raises the bound";
                findings.push(Finding::of_file(&path, message).help(help));
                break;
            }
        }
    }
}
