//! The content of one module on one node: its resources with their bytes (page 06 has the kinds).

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::declaration::{Mode, ModuleContent};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::module::{
    DirectoryResource, Entry, FileResource, LinkResource, ModuleFile, ProbeResource,
};
use meshplan_schemas::document::read::At;
use meshplan_schemas::document::scalar::Int;
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::resource::{Ask, Content, Directory, File, Kind, Link, Probe, Resource};

use zeroize::Zeroizing;

use super::Filled;
use super::kinds::{self, Place};
use crate::pure::secrets::{NoSecret, Scope, Secret};
use crate::pure::template::{RenderError, Rendered, SUFFIX};
use crate::pure::validate::Module;

/// The permission bits of a file that holds a secret, where nobody says any (HK-1).
const SEALED_MODE: &str = "0600";
/// Those of any other.
const PLAIN_MODE: &str = "0644";

/// The resources of a module in the order in which they stand in its document, with the values that they name.
pub(super) fn content(
    place: Place<'_>,
    observe: bool,
    scope: &Scope,
    render: impl FnMut(&str) -> Result<Rendered, RenderError>,
) -> Result<Filled, RenderError> {
    let Place { name, module, .. } = place;
    let document = &module.file;
    let mut resources: Vec<Resource> = Vec::new();
    let mut files = Files {
        module,
        scope,
        render,
        secrets: BTreeMap::new(),
        values: Vec::new(),
        hides: Vec::new(),
    };
    for entry in document.entries() {
        let common = entry.common();
        let id = common.id().value.clone();
        let forward_only = common.forward_only().map(|at| at.value);
        let not_reversible = common.not_reversible().map(|at| at.value.0.clone());
        files.hides.clear();
        let kinds = match entry {
            Entry::File(r) => vec![(id, Kind::File(files.file(r)?))],
            Entry::Directory(r) => vec![(id, Kind::Directory(directory(r)))],
            Entry::Link(r) => vec![(id, Kind::Link(link(r)))],
            Entry::Probe(r) => probe(document, r)
                .map(|probe| (id, Kind::Probe(probe)))
                .into_iter()
                .collect(),
            Entry::Container(r) if !r.env_secrets.is_empty() => {
                let sealed = files.environment(&r.env_secrets)?;
                let mut kinds = kinds::kinds(place, entry);
                for (_, kind) in &mut kinds {
                    if let Kind::Container(container) = kind {
                        container.env_sealed = Some(Box::new(sealed));
                    }
                }
                kinds
            }
            other => kinds::kinds(place, other),
        };
        resources.extend(kinds.into_iter().filter_map(|(id, kind)| {
            let module = name.clone();
            let resource = kind.into_resource(ResourceName { module, id }).ok()?;
            Some(Resource {
                forward_only,
                not_reversible: not_reversible.clone(),
                hides: files.hides.clone(),
                ..resource
            })
        }));
    }
    let content = ModuleContent {
        module: name.clone(),
        mode: if observe { Mode::Observe } else { Mode::Apply },
        after: document.after.iter().map(|m| m.value.clone()).collect(),
        on_policy_change: values(&document.on_policy_change),
        requires: document.requires.iter().map(|at| at.value.to_string()).collect(),
        secrets: files.secrets,
        resources,
    };
    Ok(Filled {
        content,
        values: files.values,
        artifacts: Arc::clone(place.artifacts),
    })
}

fn values<T: Clone>(list: &[At<T>]) -> Vec<T> {
    list.iter().map(|at| at.value.clone()).collect()
}

/// Makes the files of a module.
struct Files<'m, R> {
    module: &'m Module,
    scope: &'m Scope,
    render: R,
    /// The secrets that went in: [`ModuleContent::secrets`].
    secrets: BTreeMap<String, Digest>,
    /// The values that are named.
    values: Vec<Secret>,
    /// Those of the file in hand: [`Resource::hides`].
    hides: Vec<Digest>,
}

impl<R: FnMut(&str) -> Result<Rendered, RenderError>> Files<'_, R> {
    fn file(&mut self, resource: &FileResource) -> Result<File, RenderError> {
        let content = match (&resource.secret, &resource.source, &resource.content) {
            (Some(name), ..) => self.secret(&name.value.0)?,
            (None, Some(source), _) if source.value.0.ends_with(SUFFIX) => self.rendered(&source.value.0)?,
            (None, Some(source), _) => Content::of(
                self.module
                    .files
                    .get(&source.value.0)
                    .map(AsRef::as_ref)
                    .unwrap_or_default(),
            ),
            (None, None, inline) => {
                Content::Text(inline.as_ref().map(|at| at.value.clone()).unwrap_or_default())
            }
        };
        let mode = resource.mode.as_ref().map(|at| at.value.0.clone());
        let mode = mode.unwrap_or_else(|| match content {
            Content::Sealed(_) => SEALED_MODE.to_owned(),
            Content::Text(_) | Content::Base64(_) => PLAIN_MODE.to_owned(),
        });
        Ok(File {
            path: resource.path.value.0.clone(),
            content,
            mode,
            owner: resource.owner.as_ref().map(|o| o.0.clone()),
            group: resource.group.as_ref().map(|g| g.0.clone()),
            restarts: values(&resource.restarts),
            reloads: values(&resource.reloads),
            runs: values(&resource.runs),
            validate: resource.validate.as_ref().map(|v| v.value.clone()),
        })
    }

    fn secret(&mut self, name: &str) -> Result<Content, RenderError> {
        match self.scope.get(name) {
            Ok((known_as, secret)) => {
                self.secrets.insert(known_as.to_owned(), secret.digest());
                self.values.push(secret.clone());
                Ok(Content::Sealed(secret.digest()))
            }
            // That there is none, validation has refused.
            Err(NoSecret::Closed(why) | NoSecret::Unknown(why)) => Err(RenderError::closed(why)),
        }
    }

    /// The environment that secrets hold, in their order: a later one stands above a former. Sealed whole (FR-9).
    fn environment(&mut self, names: &[At<SecretName>]) -> Result<Digest, RenderError> {
        let mut lines = Zeroizing::new(Vec::new());
        for name in names {
            self.secret(&name.value.0)?;
            let Some(secret) = self.values.last() else {
                continue;
            };
            self.hides.push(secret.digest());
            lines.extend_from_slice(secret.value());
            if !lines.ends_with(b"\n") {
                lines.push(b'\n');
            }
        }
        let whole = self.scope.made(lines);
        let digest = whole.digest();
        self.values.push(whole);
        Ok(digest)
    }

    /// A template that called `secret()` is sealed whole (FR-8).
    fn rendered(&mut self, path: &str) -> Result<Content, RenderError> {
        let rendered = (self.render)(path)?;
        if rendered.secrets.is_empty() {
            return Ok(Content::of(&rendered.bytes));
        }
        for secret in rendered.secrets.values() {
            self.hides.push(secret.digest());
            self.values.push(secret.clone());
        }
        let names = rendered.secrets.into_iter();
        self.secrets
            .extend(names.map(|(name, secret)| (name, secret.digest())));
        let whole = self.scope.made(rendered.bytes);
        let content = Content::Sealed(whole.digest());
        self.values.push(whole);
        Ok(content)
    }
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
