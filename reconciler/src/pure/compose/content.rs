//! The content of modules on nodes: resources with their bytes, and the digests that deliveries go by (DL-3, DL-14).
//!
//! A module whose templates do not read `node` is made once for each set of settings, however many nodes have it.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::{LeftOut, Mode, ModuleContent};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::module::{
    DirectoryResource, Entry, FileResource, LinkResource, ModuleFile, ProbeResource,
};
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::scalar::Int;
use meshplan_schemas::document::var::Var;
use meshplan_schemas::finding::Finding;
use meshplan_schemas::ident::{ModuleName, NodeName, ResourceName};
use meshplan_schemas::resource::{Ask, Content, Directory, File, Kind, Link, Probe, Resource};
use serde_json::json;

use super::kinds::{self, Place};
use super::left_out;
use crate::pure::template::{Budget, RenderError, SUFFIX, Shared, Templates};
use crate::pure::validate::{Module, Record, Validated, settings};

/// Above this many nodes a template that reads all of them is worth a warning (FR-8).
const MANY_NODES: usize = 200;

/// Values of settings by name, as one set.
type Values<'v> = Vec<(&'v str, Option<&'v Var>)>;

/// Makes the contents of one tree.
pub(super) struct Contents<'v> {
    validated: &'v Validated,
    templates: BTreeMap<&'v ModuleName, Templates>,
    /// By module, whether it only observes, and its settings.
    made: BTreeMap<(&'v ModuleName, bool, Values<'v>), (Digest, ModuleContent)>,
    /// What fed each module, over all its nodes: settings, and `[vars]` where a template reads them.
    fed: BTreeMap<&'v ModuleName, BTreeSet<Vec<(&'v str, &'v Var)>>>,
    /// Why a module is left out on every node that has it.
    left_out: BTreeMap<&'v ModuleName, (String, Finding)>,
    failed: BTreeMap<(&'v ModuleName, RenderError), (&'v NodeName, usize)>,
    budget: Budget,
}

impl<'v> Contents<'v> {
    pub(super) fn of(validated: &'v Validated) -> Result<Self, Vec<Finding>> {
        let mut templates = BTreeMap::new();
        let mut left_out = BTreeMap::new();
        let mut findings = Vec::new();
        for (name, module) in validated.modules() {
            match Templates::compile(module) {
                Ok(compiled) => {
                    if let Some(why) = left_out::reason(name, module, &compiled) {
                        left_out.insert(name, why);
                    }
                    templates.insert(name, compiled);
                }
                Err(more) => findings.extend(more),
            }
        }
        if !findings.is_empty() {
            findings.extend(validated.warnings().iter().cloned());
            findings.sort();
            return Err(findings);
        }
        Ok(Self {
            validated,
            templates,
            made: BTreeMap::new(),
            fed: BTreeMap::new(),
            left_out,
            failed: BTreeMap::new(),
            budget: Budget::default(),
        })
    }

    /// The modules of a node, and those that are left out. What cannot be rendered is missing here and said by
    /// [`Contents::finish`].
    pub(super) fn of_node(
        &mut self,
        record: &'v Record,
        shared: &Shared,
    ) -> (BTreeMap<ModuleName, (Digest, ModuleContent)>, Vec<LeftOut>) {
        let mut contents = BTreeMap::new();
        let mut left_out = Vec::new();
        for wanted in &record.modules {
            let Some((name, module)) = self.validated.modules().get_key_value(wanted) else {
                continue;
            };
            if let Some((reason, _)) = self.left_out.get(name) {
                left_out.push(LeftOut {
                    module: name.clone(),
                    reason: reason.clone(),
                });
            } else if let Some(content) = self.of_module(record, name, module, shared) {
                contents.insert(name.clone(), content);
            }
        }
        (contents, left_out)
    }

    fn of_module(
        &mut self,
        record: &'v Record,
        name: &'v ModuleName,
        module: &'v Module,
        shared: &Shared,
    ) -> Option<(Digest, ModuleContent)> {
        let templates = self.templates.get(name)?;
        let values: Values<'v> =
            settings::resolve(&module.file, self.validated.fleet_vars(), &record.file.vars).collect();
        let own = templates.read("node") || kinds::reads_the_node(module);
        let mut fed: Vec<(&str, &Var)> = values
            .iter()
            .filter_map(|(name, value)| Some((*name, (*value)?)))
            .collect();
        if own {
            fed.extend(
                record
                    .file
                    .vars
                    .0
                    .iter()
                    .map(|(name, at)| (name.as_str(), &at.value)),
            );
        }
        self.fed.entry(name).or_default().insert(fed);
        let observe = module.file.mode == Mode::Observe || record.file.mode == Mode::Observe;
        let key = (name, observe, values);
        if !own && let Some(made) = self.made.get(&key) {
            return Some(made.clone());
        }
        let context = || shared.context(record, &key.2);
        let render = |path: &str| templates.render(path, context(), &mut self.budget);
        let place = Place {
            validated: self.validated,
            name,
            module,
            record,
        };
        let content = match content(place, observe, render) {
            Ok(content) => content,
            Err(error) => {
                self.failed.entry((name, error)).or_insert((&record.name, 0)).1 += 1;
                return None;
            }
        };
        let made = (Digest::of_value(&content).ok()?, content);
        if !own {
            self.made.insert(key, made.clone());
        }
        Some(made)
    }

    /// Says what could not be rendered, and warns of what is dear.
    pub(super) fn finish(&self, warnings: &mut Vec<Finding>) -> Result<(), Vec<Finding>> {
        warnings.extend(self.left_out.values().map(|(_, finding)| finding.clone()));
        let count = self.validated.nodes().len();
        for (name, templates) in self
            .templates
            .iter()
            .filter(|(_, t)| count > MANY_NODES && t.read("nodes"))
        {
            let having = self
                .validated
                .nodes()
                .iter()
                .filter(|record| record.modules.contains(*name))
                .count();
            let file = self.validated.modules()[*name].source.file();
            let readers: Vec<&str> = self.validated.modules()[*name]
                .files
                .keys()
                .map(String::as_str)
                .collect();
            let reader = readers
                .into_iter()
                .find(|path| templates.source(path).is_some_and(|s| s.text().contains("nodes")));
            let message = format!(
                "{} reads all {count} nodes: a change of any record makes {having} new declarations",
                reader.unwrap_or("a template")
            );
            warnings.push(Finding::of_file(file, message).warning());
        }
        if self.failed.is_empty() {
            return Ok(());
        }
        let mut findings: Vec<Finding> = (self.failed.iter())
            .filter_map(|((name, error), (node, nodes))| {
                Some(self.templates.get(name)?.finding(error, node.as_str(), *nodes))
            })
            .chain(warnings.iter().cloned())
            .collect();
        findings.sort();
        Err(findings)
    }

    /// For each module the digest of its folder and of what feeds it: another node with the same settings does not
    /// change it, another value does.
    pub(super) fn sources(&self) -> Result<BTreeMap<ModuleName, Digest>, serde_json::Error> {
        let none = BTreeSet::new();
        (self.validated.modules().iter())
            .map(|(name, module)| {
                let files: BTreeMap<&str, Digest> = module
                    .files
                    .iter()
                    .map(|(path, bytes)| (path.as_str(), Digest::of(bytes)))
                    .collect();
                let fleet_vars: BTreeMap<&str, &Var> = (self.validated.fleet_vars().0.iter())
                    .filter(|_| self.templates.get(name).is_some_and(|t| t.read("fleet")))
                    .map(|(name, at)| (name.as_str(), &at.value))
                    .collect();
                let digest = Digest::of_value(&json!({
                    "document": Digest::of(module.source.text().as_bytes()),
                    "files": files,
                    "fleet_vars": fleet_vars,
                    "fed": self.fed.get(name).unwrap_or(&none),
                }))?;
                Ok((name.clone(), digest))
            })
            .collect()
    }
}

/// The resources of a module in the order in which they stand in its document.
fn content(
    place: Place<'_>,
    observe: bool,
    mut render: impl FnMut(&str) -> Result<Vec<u8>, RenderError>,
) -> Result<ModuleContent, RenderError> {
    let Place { name, module, .. } = place;
    let document = &module.file;
    let mut resources: Vec<Resource> = Vec::new();
    for entry in document.entries() {
        let id = entry.common().id().value.clone();
        let kinds = match entry {
            Entry::File(r) => vec![(id, Kind::File(file(module, r, &mut render)?))],
            Entry::Directory(r) => vec![(id, Kind::Directory(directory(r)))],
            Entry::Link(r) => vec![(id, Kind::Link(link(r)))],
            Entry::Probe(r) => probe(document, r)
                .map(|probe| (id, Kind::Probe(probe)))
                .into_iter()
                .collect(),
            other => kinds::kinds(place, other),
        };
        resources.extend(kinds.into_iter().filter_map(|(id, kind)| {
            let module = name.clone();
            kind.into_resource(ResourceName { module, id }).ok()
        }));
    }
    Ok(ModuleContent {
        module: name.clone(),
        mode: if observe { Mode::Observe } else { Mode::Apply },
        after: document.after.iter().map(|m| m.value.clone()).collect(),
        on_policy_change: values(&document.on_policy_change),
        resources,
    })
}

fn values<T: Clone>(list: &[At<T>]) -> Vec<T> {
    list.iter().map(|at| at.value.clone()).collect()
}

fn file(
    module: &Module,
    resource: &FileResource,
    render: &mut impl FnMut(&str) -> Result<Vec<u8>, RenderError>,
) -> Result<File, RenderError> {
    let content = match (&resource.source, &resource.content) {
        (Some(source), _) if source.value.0.ends_with(SUFFIX) => Content::of(&render(&source.value.0)?),
        (Some(source), _) => Content::of(
            module
                .files
                .get(&source.value.0)
                .map(AsRef::as_ref)
                .unwrap_or_default(),
        ),
        (None, inline) => Content::Text(inline.as_ref().map(|at| at.value.clone()).unwrap_or_default()),
    };
    Ok(File {
        path: resource.path.value.0.clone(),
        content,
        mode: resource.mode.0.clone(),
        owner: resource.owner.as_ref().map(|o| o.0.clone()),
        group: resource.group.as_ref().map(|g| g.0.clone()),
        restarts: values(&resource.restarts),
        reloads: values(&resource.reloads),
        runs: values(&resource.runs),
        validate: resource.validate.as_ref().map(|v| v.value.clone()),
    })
}

fn directory(resource: &DirectoryResource) -> Directory {
    Directory {
        path: resource.path.value.0.clone(),
        mode: resource.mode.0.clone(),
        owner: resource.owner.as_ref().map(|o| o.0.clone()),
        group: resource.group.as_ref().map(|g| g.0.clone()),
    }
}

fn link(resource: &LinkResource) -> Link {
    Link {
        path: resource.path.value.0.clone(),
        target: resource.target.value.clone(),
    }
}

/// None where it asks nothing, which validation has refused.
fn probe(module: &ModuleFile, resource: &ProbeResource) -> Option<Probe> {
    let ask = match (&resource.http, &resource.tcp, &resource.command) {
        (Some(url), _, _) => Ask::Http {
            url: url.value.0.clone(),
            status: match &resource.status {
                Some(At {
                    value: Int(status), ..
                }) => u16::try_from(*status).ok()?,
                None => 200,
            },
        },
        (None, Some(address), _) => Ask::Tcp(address.value.0.clone()),
        (None, None, Some(command)) => Ask::Command(command.value.0.clone()),
        (None, None, None) => match (&resource.unit, &resource.container) {
            (Some(unit), _) => Ask::Unit(unit.value.0.clone()),
            (None, wanted) => {
                let wanted = &wanted.as_ref()?.value;
                let container = module.containers.iter().find(|c| c.id.value == *wanted)?;
                let name = container.name.as_ref().map(|at| at.value.0.clone());
                Ask::Container(name.unwrap_or_else(|| wanted.to_string()))
            }
        },
    };
    Some(Probe {
        ask,
        timeout_secs: resource.timeout_secs.0,
    })
}
