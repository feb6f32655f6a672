//! Node records: each identity once, keys in pairs, references that exist (FR-5).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::NodeFile;
use meshplan_schemas::finding::{Finding, Source};
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{ModuleName, RoleName};

use super::Names;
use crate::pure::parse::{Documents, NodeDocument};

/// The modules of each record, in the order of the records: its own, and those that its roles bring.
pub(super) fn memberships(documents: &Documents) -> Vec<BTreeSet<ModuleName>> {
    let mut brought: BTreeMap<&RoleName, Vec<&ModuleName>> = BTreeMap::new();
    for (name, folder) in &documents.modules {
        let file = folder.document.as_ref().and_then(|d| d.read.as_ref());
        for role in file.iter().flat_map(|file| &file.roles) {
            brought.entry(&role.value).or_default().push(name);
        }
    }
    let of_record = |file: &NodeFile| {
        let own = file.modules.iter().map(|m| m.value.clone());
        let by_role = (file.roles.iter())
            .filter_map(|role| brought.get(&role.value))
            .flatten()
            .map(|name| (*name).clone());
        own.chain(by_role).collect()
    };
    (documents.nodes.iter())
        .map(|node| node.document.read.as_ref().map(of_record).unwrap_or_default())
        .collect()
}

/// Digests of the uuids and keys of revoked records (SG-3): of the texts as records write them, sorted.
pub(super) fn revoked(nodes: &[NodeDocument]) -> Vec<Digest> {
    let mut digests: Vec<Digest> = (nodes.iter())
        .filter_map(|node| {
            let file = node.document.read.as_ref()?;
            (node.in_revoked || file.revoked).then_some(file)
        })
        .flat_map(|file| {
            let keys = keys(file).into_iter().map(|(text, _)| text);
            keys.chain([file.id.value.to_string()])
        })
        .map(|text| Digest::of(text.as_bytes()))
        .collect();
    digests.sort();
    digests.dedup();
    digests
}

/// The keys of a record as text, with their places.
fn keys(file: &NodeFile) -> Vec<(String, Range<usize>)> {
    let transport = [&file.transport_key, &file.next_transport_key];
    let signing = [&file.signing_key, &file.next_signing_key];
    let transport = transport
        .into_iter()
        .flatten()
        .map(|k| (k.value.to_string(), k.span.clone()));
    let signing = signing
        .into_iter()
        .flatten()
        .map(|k| (k.value.to_string(), k.span.clone()));
    transport.chain(signing).collect()
}

pub(super) fn check(documents: &Documents, names: &Names, findings: &mut Vec<Finding>) {
    let mut taken = Taken::default();
    for node in &documents.nodes {
        let revoked = node.in_revoked || node.document.read.as_ref().is_some_and(|file| file.revoked);
        if !revoked {
            taken.name(node, findings);
        }
        let Some(file) = &node.document.read else {
            continue;
        };
        taken.identity(node, file, revoked, findings);
        check_record(&node.document.source, file, findings);
        if !revoked {
            let of_record = file.modules.iter().chain(&file.take);
            findings.extend(of_record.filter_map(|m| names.module(&node.document.source, &m.value, &m.span)));
        }
    }
    if !documents
        .nodes
        .iter()
        .any(|node| names.nodes.contains(&node.name))
    {
        findings.push(
            Finding::of_file("nodes", "the fleet has no nodes")
                .help("`meshplan node add NAME` makes a record; a fleet that had nodes before is frozen instead")
                .warning(),
        );
    }
}

/// What is already some record's, and whose.
#[derive(Default)]
struct Taken<'d> {
    names: BTreeMap<&'d str, &'d str>,
    /// Uuids, short ids and keys as text: the file, and whether it is revoked.
    identities: BTreeMap<String, (&'d str, bool)>,
}

impl<'d> Taken<'d> {
    fn name(&mut self, node: &'d NodeDocument, findings: &mut Vec<Finding>) {
        let file = node.document.source.file();
        if let Some(other) = self.names.insert(node.name.as_str(), file) {
            let message = format!("there are two nodes `{}`: the other is {other}", node.name);
            findings.push(
                Finding::of_file(file, message).help("the file's name is the node's name, in every folder"),
            );
        }
    }

    fn identity(
        &mut self,
        node: &'d NodeDocument,
        file: &NodeFile,
        revoked: bool,
        findings: &mut Vec<Finding>,
    ) {
        let source = &node.document.source;
        let uuid = file.id.value.to_string();
        if let Some(message) = self.take(format!("the uuid {uuid}"), source, revoked) {
            let help = "a uuid is never reused: `meshplan node add` makes another";
            findings.push(source.error(file.id.span.clone(), message).help(help));
        } else if let Some(message) =
            self.take(format!("the short id {}", file.id.value.short()), source, revoked)
        {
            findings.push(
                source
                    .error(file.id.span.clone(), message)
                    .help("make another uuid"),
            );
        }
        for (text, span) in keys(file) {
            if let Some(message) = self.take(format!("the key {text}"), source, revoked) {
                let help = "one machine, one key: a machine that was copied enrols again";
                findings.push(source.error(span, message).help(help));
            }
        }
    }

    fn take(&mut self, what: String, source: &'d Source, revoked: bool) -> Option<String> {
        let message =
            self.identities
                .get(&what)
                .map(|(other, other_revoked)| match (other_revoked, revoked) {
                    (false, false) | (true, true) => {
                        format!("{what} is in two records: the other is {other}")
                    }
                    (true, false) => format!("{what} was revoked in {other} and may not come back"),
                    (false, true) => format!("{what} is revoked here and is still in {other}"),
                });
        self.identities.entry(what).or_insert((source.file(), revoked));
        message
    }
}

/// What a record says against itself.
fn check_record(source: &Source, file: &NodeFile, findings: &mut Vec<Finding>) {
    let halves = [
        (
            file.transport_key.as_ref().map(|k| &k.span),
            file.signing_key.as_ref().map(|k| &k.span),
            "signing_key",
        ),
        (
            file.signing_key.as_ref().map(|k| &k.span),
            file.transport_key.as_ref().map(|k| &k.span),
            "transport_key",
        ),
    ];
    for (there, absent, missing) in halves {
        if let (Some(span), None) = (there, absent) {
            let message = format!("a record has both keys or none: `{missing}` is missing");
            findings.push(
                source
                    .error(span.clone(), message)
                    .help("both absent: invited, not yet enrolled"),
            );
        }
    }
    if let Some(address) = &file.address
        && !["ws://", "wss://"]
            .iter()
            .any(|scheme| address.value.strip_prefix(scheme).is_some_and(|r| !r.is_empty()))
    {
        let message = "an address begins with `ws://` or `wss://`";
        findings.push(source.error(address.span.clone(), message));
    }
    if file.pinned.value && file.update_class != UpdateClass::LeftBehind {
        let message = "`pinned` belongs to `update_class = \"left_behind\"` only";
        findings.push(source.error(file.pinned.span.clone(), message));
    }
    let mut seen = BTreeSet::new();
    for role in &file.roles {
        if !seen.insert(&role.value) {
            findings.push(source.error(
                role.span.clone(),
                format!("the role `{}` is named twice", role.value),
            ));
        }
    }
}
