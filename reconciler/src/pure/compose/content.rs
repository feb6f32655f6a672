//! The content of one module on one node: its resources with their bytes (page 06 has the kinds).

use meshplan_schemas::declaration::{Mode, ModuleContent};
use meshplan_schemas::document::module::{DirectoryResource, FileResource, LinkResource, ProbeResource};
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::scalar::Int;
use meshplan_schemas::ident::{ModuleName, ResourceId, ResourceName};
use meshplan_schemas::resource::{Ask, Content, Directory, File, Kind, Link, Probe, Resource};

use crate::pure::template::{RenderError, SUFFIX};
use crate::pure::validate::Module;

/// The resources of a module in the order in which they stand in its document.
pub(super) fn content(
    name: &ModuleName,
    module: &Module,
    observe: bool,
    mut render: impl FnMut(&str) -> Result<Vec<u8>, RenderError>,
) -> Result<ModuleContent, RenderError> {
    let document = &module.file;
    let mut kinds: Vec<(&At<ResourceId>, Kind)> = Vec::new();
    for resource in &document.files {
        kinds.push((&resource.id, Kind::File(file(module, resource, &mut render)?)));
    }
    kinds.extend(
        document
            .directories
            .iter()
            .map(|r| (&r.id, Kind::Directory(directory(r)))),
    );
    kinds.extend(document.links.iter().map(|r| (&r.id, Kind::Link(link(r)))));
    kinds.extend(
        document
            .probes
            .iter()
            .filter_map(|r| Some((&r.id, Kind::Probe(probe(r)?)))),
    );
    kinds.sort_by_key(|(id, _)| id.span.start);
    let resources = kinds.into_iter().filter_map(|(id, kind)| {
        let name = ResourceName {
            module: name.clone(),
            id: id.value.clone(),
        };
        kind.into_resource(name).ok()
    });
    let resources: Vec<Resource> = resources.collect();
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
fn probe(resource: &ProbeResource) -> Option<Probe> {
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
        (None, None, command) => Ask::Command(command.as_ref()?.value.clone()),
    };
    Some(Probe {
        ask,
        timeout_secs: resource.timeout_secs.0,
    })
}
