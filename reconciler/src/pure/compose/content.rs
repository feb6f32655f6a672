//! The content of one module on one node: its resources with their bytes (page 06 has the kinds).

use meshplan_schemas::declaration::{Mode, ModuleContent};
use meshplan_schemas::document::module::{
    DirectoryResource, Entry, FileResource, LinkResource, ModuleFile, ProbeResource,
};
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::scalar::Int;
use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::resource::{Ask, Content, Directory, File, Kind, Link, Probe, Resource};

use super::kinds::{self, Place};
use crate::pure::template::{RenderError, SUFFIX};
use crate::pure::validate::Module;

/// The resources of a module in the order in which they stand in its document.
pub(super) fn content(
    place: Place<'_>,
    observe: bool,
    mut render: impl FnMut(&str) -> Result<Vec<u8>, RenderError>,
) -> Result<ModuleContent, RenderError> {
    let Place { name, module, .. } = place;
    let document = &module.file;
    let mut resources: Vec<Resource> = Vec::new();
    for entry in document.entries() {
        let common = entry.common();
        let id = common.id().value.clone();
        let forward_only = common.forward_only().map(|at| at.value);
        let not_reversible = common.not_reversible().map(|at| at.value.0.clone());
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
            let resource = kind.into_resource(ResourceName { module, id }).ok()?;
            Some(Resource {
                forward_only,
                not_reversible: not_reversible.clone(),
                ..resource
            })
        }));
    }
    Ok(ModuleContent {
        module: name.clone(),
        mode: if observe { Mode::Observe } else { Mode::Apply },
        after: document.after.iter().map(|m| m.value.clone()).collect(),
        on_policy_change: values(&document.on_policy_change),
        requires: document.requires.iter().map(|at| at.value.to_string()).collect(),
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
