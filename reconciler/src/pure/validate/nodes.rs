//! Node records: each identity once, keys in pairs, references that exist (FR-5).

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::NodeFile;
use meshplan_schemas::finding::{Finding, Source};
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{ModuleName, NodeId, RoleName, ShortId};
use meshplan_schemas::key::{SigningKey, TransportKey};

use super::Names;
use crate::pure::parse::{Documents, NodeDocument};

/// Modules and roles that a record names.
type Named<'d> = (Vec<&'d ModuleName>, Vec<&'d RoleName>);

/// The modules of each record, in the order of the records: its own, and those that its roles bring. Records that name
/// the same share one set.
pub(super) fn memberships(documents: &Documents) -> Vec<Arc<BTreeSet<ModuleName>>> {
    let mut brought: BTreeMap<&RoleName, Vec<&ModuleName>> = BTreeMap::new();
    for (name, folder) in &documents.modules {
        let file = folder.document.as_ref().and_then(|d| d.read.as_ref());
        for role in file.iter().flat_map(|file| &file.roles) {
            brought.entry(&role.value).or_default().push(name);
        }
    }
    let mut made: HashMap<Named<'_>, Arc<BTreeSet<ModuleName>>> = HashMap::new();
    (documents.nodes.iter())
        .map(|node| {
            let file = node.document.read.as_ref();
            let own: Vec<&ModuleName> = file.iter().flat_map(|f| &f.modules).map(|m| &m.value).collect();
            let roles: Vec<&RoleName> = file.iter().flat_map(|f| &f.roles).map(|r| &r.value).collect();
            let of_record = made.entry((own, roles)).or_insert_with_key(|(own, roles)| {
                let by_role = roles.iter().filter_map(|role| brought.get(role)).flatten();
                Arc::new(own.iter().chain(by_role).map(|name| (*name).clone()).collect())
            });
            Arc::clone(of_record)
        })
        .collect()
}

/// Digests of the uuids and keys of revoked records (SG-3): of the texts as records write them, sorted.
pub(super) fn revoked(nodes: &[Arc<NodeDocument>]) -> Vec<Digest> {
    let mut digests: Vec<Digest> = (nodes.iter())
        .filter_map(|node| {
            let file = node.document.read.as_ref()?;
            (node.in_revoked || file.revoked).then_some(file)
        })
        .flat_map(|file| {
            let keys = keys(file).map(|(key, _)| key.text());
            keys.chain([file.id.value.to_string()]).collect::<Vec<_>>()
        })
        .map(|text| Digest::of(text.as_bytes()))
        .collect();
    digests.sort();
    digests.dedup();
    digests
}

/// What can be one record's only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Identity {
    Uuid(NodeId),
    Short(ShortId),
    Transport(TransportKey),
    Signing(SigningKey),
}

impl Identity {
    fn text(&self) -> String {
        match self {
            Self::Uuid(id) => id.to_string(),
            Self::Short(id) => id.to_string(),
            Self::Transport(key) => key.to_string(),
            Self::Signing(key) => key.to_string(),
        }
    }

    fn words(&self) -> String {
        let what = match self {
            Self::Uuid(_) => "uuid",
            Self::Short(_) => "short id",
            Self::Transport(_) | Self::Signing(_) => "key",
        };
        format!("the {what} {}", self.text())
    }
}

/// The keys of a record with their places.
pub(super) fn keys(file: &NodeFile) -> impl Iterator<Item = (Identity, &Range<usize>)> {
    let transport = [&file.transport_key, &file.next_transport_key];
    let signing = [&file.signing_key, &file.next_signing_key];
    let transport = (transport.into_iter().flatten()).map(|k| (Identity::Transport(k.value), &k.span));
    let signing = (signing.into_iter().flatten()).map(|k| (Identity::Signing(k.value), &k.span));
    transport.chain(signing)
}

/// Every identity of a tree, with the record that has it and whether that is revoked.
pub(super) type Identities = HashMap<Identity, (Source, bool)>;

pub(super) fn check(documents: &Documents, names: &Names, findings: &mut Vec<Finding>) -> Identities {
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
    taken.identities
}

/// What is already some record's, and whose.
#[derive(Default)]
struct Taken<'d> {
    names: HashMap<&'d str, &'d str>,
    identities: Identities,
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
        let id = file.id.value;
        if let Some(message) = self.take(Identity::Uuid(id), source, revoked) {
            let help = "a uuid is never reused: `meshplan node add` makes another";
            findings.push(source.error(file.id.span.clone(), message).help(help));
        } else if let Some(message) = self.take(Identity::Short(id.short()), source, revoked) {
            findings.push(
                source
                    .error(file.id.span.clone(), message)
                    .help("make another uuid"),
            );
        }
        for (key, span) in keys(file) {
            if let Some(message) = self.take(key, source, revoked) {
                let help = "one machine, one key: a machine that was copied enrols again";
                findings.push(source.error(span.clone(), message).help(help));
            }
        }
    }

    fn take(&mut self, what: Identity, source: &Source, revoked: bool) -> Option<String> {
        let entry = match self.identities.entry(what) {
            Entry::Vacant(free) => {
                free.insert((source.clone(), revoked));
                return None;
            }
            Entry::Occupied(taken) => taken,
        };
        let (what, (other, other_revoked)) = (entry.key().words(), entry.get());
        let other = other.file();
        Some(match (other_revoked, revoked) {
            (false, false) | (true, true) => format!("{what} is in two records: the other is {other}"),
            (true, false) => format!("{what} was revoked in {other} and may not come back"),
            (false, true) => format!("{what} is revoked here and is still in {other}"),
        })
    }
}

/// What a record says against itself.
pub(super) fn check_record(source: &Source, file: &NodeFile, findings: &mut Vec<Finding>) {
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
