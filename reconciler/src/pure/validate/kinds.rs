//! The resources of a module by kind: what a kind needs, and references between resources (HK-1 to HK-16).
//!
//! [`targets`] says what on the machine a resource is the only owner of (HR-6).

use std::ops::Range;

use meshplan_schemas::document::module::{Entry, ModuleFile};
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::finding::{Finding, Source, did_you_mean};
use meshplan_schemas::ident::{ModuleName, ResourceId};

use crate::pure::parse::{Documents, ModuleFolder};

mod accounts;
mod bundles;
mod containers;
mod files;
mod net;
mod programs;
mod takeover;
mod targets;

pub(in crate::pure) use bundles::packing;
pub(super) use takeover::check as takeovers;
pub(super) use targets::{Target, targets};

/// What the rules of one module look at.
struct Bench<'d> {
    documents: &'d Documents,
    name: &'d ModuleName,
    folder: &'d ModuleFolder,
    source: &'d Source,
    file: &'d ModuleFile,
    entries: Vec<Entry<'d>>,
}

impl<'d> Bench<'d> {
    fn error(&self, span: &Range<usize>, message: impl Into<String>) -> Finding {
        self.source.error(span.clone(), message)
    }

    /// What is wrong where a secret is named: the module's own, else the fleet's; none where it is there.
    fn secret(&self, at: &At<SecretName>) -> Option<Finding> {
        let own = self
            .folder
            .files
            .contains_key(&format!("secrets/{}.age", at.value));
        if own {
            None
        } else {
            super::sections::secret(self.documents, self.source, at)
        }
    }

    fn entry(&self, id: &ResourceId) -> Option<Entry<'d>> {
        (self.entries.iter().copied()).find(|entry| entry.common().id().value == *id)
    }

    /// What is wrong where an id must be that of a resource of one of these kinds; none where it is.
    fn wants(&self, wanted: &At<ResourceId>, kinds: &[&str]) -> Option<Finding> {
        let list = kinds.join(" or ");
        match self.entry(&wanted.value) {
            Some(entry) if kinds.is_empty() || kinds.contains(&entry.kind()) => None,
            Some(entry) => {
                let message = format!("`{}` is a {}, here a {list} is meant", wanted.value, entry.kind());
                Some(self.error(&wanted.span, message))
            }
            None => {
                let fitting = |entry: &&Entry<'d>| kinds.is_empty() || kinds.contains(&entry.kind());
                let ids =
                    (self.entries.iter().filter(fitting)).map(|entry| entry.common().id().value.as_str());
                let what = if kinds.is_empty() { "resource" } else { &list };
                let message = format!("this module has no {what} `{}`", wanted.value);
                Some(
                    self.error(&wanted.span, message)
                        .maybe_help(did_you_mean(wanted.value.as_str(), ids)),
                )
            }
        }
    }
}

pub(super) fn check(
    documents: &Documents,
    name: &ModuleName,
    folder: &ModuleFolder,
    (source, file): (&Source, &ModuleFile),
    findings: &mut Vec<Finding>,
) {
    let entries = file.entries();
    let bench = Bench {
        documents,
        name,
        folder,
        source,
        file,
        entries,
    };
    ids(&bench, findings);
    for entry in &bench.entries {
        match entry {
            Entry::File(r) => files::file(&bench, r, findings),
            Entry::Link(r) => files::link(&bench, r, findings),
            Entry::Probe(r) => files::probe(&bench, r, findings),
            Entry::User(r) => accounts::user(&bench, r, findings),
            Entry::Group(r) => accounts::group(&bench, r, findings),
            Entry::Package(r) => accounts::package(&bench, r, findings),
            Entry::Archive(r) => bundles::archive(&bench, r, findings),
            Entry::Bundle(r) => bundles::bundle(&bench, r, findings),
            Entry::Service(r) => programs::service(&bench, r, findings),
            Entry::Process(r) => programs::process(&bench, r, findings),
            Entry::Action(r) => programs::action(&bench, r, findings),
            Entry::Container(r) => containers::container(&bench, r, findings),
            Entry::Network(r) => containers::network(&bench, r, findings),
            Entry::Filter(r) => net::filter(&bench, r, findings),
            Entry::PrivateNetwork(r) => net::private_network(&bench, r, findings),
            Entry::Directory(_)
            | Entry::Volume(_)
            | Entry::Sysctl(_)
            | Entry::KernelModule(_)
            | Entry::Upgrade(_)
            | Entry::Reboot(_) => {}
        }
    }
}

/// The kinds that can be restarted and reloaded.
const RESTARTED: [&str; 3] = ["service", "process", "container"];
/// The kinds that can be run.
const RUN: [&str; 3] = ["action", "process", "container"];

/// One id, one resource; what is restarted, reloaded or run is a resource of the module.
fn ids(bench: &Bench<'_>, findings: &mut Vec<Finding>) {
    let mut known: Vec<&ResourceId> = Vec::new();
    for id in bench.entries.iter().map(|entry| entry.common().id()) {
        if known.contains(&&id.value) {
            findings.push(bench.error(&id.span, format!("there are two resources `{}`", id.value)));
        }
        known.push(&id.value);
    }
    for entry in &bench.entries {
        let (restarts, runs): (Vec<&At<ResourceId>>, Vec<&At<ResourceId>>) = match entry {
            Entry::File(r) => (
                r.restarts.iter().chain(&r.reloads).collect(),
                r.runs.iter().collect(),
            ),
            Entry::Package(r) => (r.restarts.iter().collect(), Vec::new()),
            Entry::Archive(r) => (r.restarts.iter().collect(), Vec::new()),
            Entry::Bundle(r) => (r.restarts.iter().collect(), Vec::new()),
            _ => continue,
        };
        findings.extend(restarts.into_iter().filter_map(|id| bench.wants(id, &RESTARTED)));
        findings.extend(runs.into_iter().filter_map(|id| bench.wants(id, &RUN)));
    }
    findings.extend(
        bench
            .file
            .on_policy_change
            .iter()
            .filter_map(|id| bench.wants(id, &[])),
    );
}
