//! Compose files (the Compose Specification): services become containers in the order in which they depend on each
//! other, volumes and networks keep the names that they have on the machine.

use std::collections::BTreeMap;
use std::ops::Range;

use meshplan_schemas::finding::Finding;
use toml_edit::Value as TomlValue;

use super::Request;
use super::draft::{Draft, Place, Resource};
use super::yaml::{self, Key, Node, Value};

mod order;
mod service;

pub(super) use service::health;

/// A compose file while it is read.
struct Compose<'a> {
    request: &'a Request<'a>,
    draft: Draft,
    /// What compose puts before the names of volumes and networks.
    project: String,
    /// Ids of volumes and networks, by their names in the file.
    volumes: BTreeMap<String, String>,
    networks: BTreeMap<String, String>,
    /// Containers that others wait for until they ended.
    completed: Vec<String>,
    several: bool,
}

/// Entries of a table; nothing where nothing stands there.
fn table(node: &Node) -> Result<&[(Key, Node)], String> {
    match &node.value {
        Value::Table(entries) => Ok(entries),
        _ if node.is_null() => Ok(&[]),
        _ => Err("expected a table".to_owned()),
    }
}

/// A text, as compose fills it in.
fn text(node: &Node) -> Result<String, String> {
    match &node.value {
        Value::Text { text, .. } => filled_in(text),
        _ => Err("expected a text".to_owned()),
    }
}

/// `$$` is a dollar; what compose would take from the shell around it is not known here.
fn filled_in(text: &str) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        filled.push_str(before);
        filled.push('$');
        let after = from.get(1..).unwrap_or_default();
        if let Some(more) = after.strip_prefix('$') {
            rest = more;
        } else if after.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '{') {
            let name: String = after
                .trim_start_matches('{')
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                .collect();
            return Err(format!(
                "`${{{name}}}` is filled in from the shell or `.env`, which is not known here: write the value, or \
                 keep it in a secret that `env_secrets` names"
            ));
        } else {
            rest = after;
        }
    }
    Ok(filled + rest)
}

fn truth(node: &Node) -> Result<bool, String> {
    match text(node)?.as_str() {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        other => Err(format!("`{other}` is neither true nor false")),
    }
}

/// A name with its value, or why it is none.
type Pair = Result<(String, String), String>;

/// Names with values, as a table or as a list of `name=value`; a name without value is none.
fn pairs(node: &Node) -> Vec<(Range<usize>, Pair)> {
    match &node.value {
        Value::Table(entries) => (entries.iter())
            .map(|(key, value)| {
                let pair = if value.is_null() {
                    Err(format!(
                        "`{}` has no value: it comes from the shell around compose",
                        key.text
                    ))
                } else {
                    text(value).map(|value| (key.text.clone(), value))
                };
                (key.span.clone(), pair)
            })
            .collect(),
        Value::List(list) => (list.iter())
            .map(|item| {
                let pair = text(item).and_then(|line| match line.split_once('=') {
                    Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
                    None => Err(format!(
                        "`{line}` has no value: it comes from the shell around compose"
                    )),
                });
                (item.span.clone(), pair)
            })
            .collect(),
        Value::Text { .. } => vec![(node.span.clone(), Err("expected a table or a list".to_owned()))],
    }
}

/// One text, or a list of them.
fn several(node: &Node) -> Vec<&Node> {
    match &node.value {
        Value::List(list) => list.iter().collect(),
        _ => vec![node],
    }
}

pub(super) fn read(request: &Request<'_>) -> Result<Draft, Finding> {
    let source = request.source;
    let root = yaml::read(source)?;
    let root = root.ok_or_else(|| Finding::of_file(source.file(), "this file is empty"))?;
    let Value::Table(entries) = &root.value else {
        return Err(source.error(root.span, "a compose file is a table with `services`"));
    };
    let part = |name: &str| entries.iter().find(|(key, _)| key.text == name);
    let Some((_, services)) = part("services") else {
        return Err(Finding::of_file(
            source.file(),
            "a compose file has `services`, this one has none",
        ));
    };
    let Value::Table(services) = &services.value else {
        return Err(source.error(services.span.clone(), "`services` is a table"));
    };
    let mut compose = Compose {
        request,
        draft: Draft::default(),
        project: project(request.folder),
        volumes: BTreeMap::new(),
        networks: BTreeMap::new(),
        completed: Vec::new(),
        several: services.len() > 1,
    };
    // The name first: the names of the rest are made with it.
    for (key, node) in entries {
        match key.text.as_str() {
            "name" => match text(node) {
                Ok(name) => compose.project = name,
                Err(why) => compose.leave(&key.span, "`name`", &why),
            },
            "services" | "volumes" | "networks" | "version" => {}
            extension if extension.starts_with("x-") => {}
            other => {
                let why = "meshplan has nothing for it";
                compose.leave(&key.span, &format!("`{other}`"), why);
            }
        }
    }
    let services = order::in_order(&mut compose, services);
    // Ids of services are what others see, so they are given first.
    let ids: Vec<String> = (services.iter())
        .map(|(key, _)| compose.draft.id_for(&key.text, "container"))
        .collect();
    for (kind, known) in [("volumes", "volume"), ("networks", "network")] {
        let Some((key, node)) = part(kind) else { continue };
        match table(node) {
            Ok(entries) => entries
                .iter()
                .for_each(|(key, node)| compose.shared(known, key, node)),
            Err(why) => compose.leave(&key.span, &format!("`{kind}`"), &why),
        }
    }
    for ((key, node), id) in services.iter().zip(ids) {
        service::read(&mut compose, key, node, id);
    }
    Ok(compose.draft)
}

/// The name of a project as compose makes it from a folder's.
fn project(folder: &str) -> String {
    let name: String = (folder.to_lowercase().chars())
        .filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(*c))
        .collect();
    name.trim_start_matches(['_', '-']).to_owned()
}

impl Compose<'_> {
    fn place(&self, span: &Range<usize>) -> Place {
        Place {
            source: self.request.source.clone(),
            span: span.clone(),
        }
    }

    fn leave(&mut self, span: &Range<usize>, what: &str, why: &str) {
        let place = self.place(span);
        self.draft.leave(&place, what, why);
    }

    /// The name that compose gives to what it makes.
    fn made_name(&self, name: &str) -> String {
        if self.project.is_empty() {
            name.to_owned()
        } else {
            format!("{}_{name}", self.project)
        }
    }

    /// A volume or a network of the whole file.
    fn shared(&mut self, kind: &'static str, key: &Key, node: &Node) {
        let place = self.place(&key.span);
        let what = |inner: &str| format!("`{inner}` of the {kind} `{}`", key.text);
        let id = self.draft.id_for(&key.text, kind);
        let mut resource = Resource::new(kind, id.clone(), &place);
        resource.set("name", self.made_name(&key.text), &place);
        let entries = match table(node) {
            Ok(entries) => entries,
            Err(why) => return self.leave(&key.span, &format!("the {kind} `{}`", key.text), &why),
        };
        // An outside one has the name that it is called by, where it is not named.
        if entries
            .iter()
            .any(|(key, node)| key.text == "external" && truth(node) != Ok(false))
        {
            resource.set("name", key.text.as_str(), &place);
        }
        for (inner, node) in entries {
            let place = self.place(&inner.span);
            let carried = match (kind, inner.text.as_str()) {
                (_, "name") => text(node).map(|name| resource.set("name", name, &place)),
                (_, "external") => truth(node).map(drop),
                (_, "driver") => match text(node).as_deref() {
                    Ok("local") if kind == "volume" => Ok(()),
                    Ok("bridge" | "default") if kind == "network" => Ok(()),
                    Ok(other) => Err(format!("meshplan has no driver `{other}`")),
                    Err(why) => Err(why.to_owned()),
                },
                (_, "labels") => {
                    self.named(&mut resource, "labels", node, &what("labels"));
                    Ok(())
                }
                ("network", "internal") => truth(node).map(|internal| {
                    if internal {
                        resource.set("internal", true, &place);
                    }
                }),
                ("network", "ipam") => subnet(node).map(|subnet| {
                    if let Some(subnet) = subnet {
                        resource.set("subnet", subnet, &place);
                    }
                }),
                ("network", "attachable" | "enable_ipv6") => match truth(node) {
                    Ok(false) => Ok(()),
                    _ => Err("meshplan has nothing for it".to_owned()),
                },
                (_, extension) if extension.starts_with("x-") => Ok(()),
                _ => Err("meshplan has nothing for it".to_owned()),
            };
            if let Err(why) = carried {
                self.draft.leave(&place, &what(&inner.text), &why);
            }
        }
        let ids = if kind == "volume" {
            &mut self.volumes
        } else {
            &mut self.networks
        };
        ids.insert(key.text.clone(), id);
        self.draft.resources.push(resource);
    }

    /// A table of names with values.
    fn named(&mut self, resource: &mut Resource, key: &'static str, node: &Node, what: &str) {
        for (span, pair) in pairs(node) {
            match pair {
                Ok((name, value)) if key == "env" => {
                    let place = self.place(&span);
                    self.draft.variable(resource, (&name, &value), &place);
                }
                Ok((name, value)) => {
                    let place = self.place(&span);
                    resource.pair(key, &name, TomlValue::from(value), &place);
                }
                Err(why) => self.leave(&span, what, &why),
            }
        }
    }

    /// The id of a network; the one that compose makes by itself is made here when it is first asked for.
    fn network(&mut self, name: &str, span: &Range<usize>) -> Result<String, String> {
        if let Some(id) = self.networks.get(name) {
            return Ok(id.clone());
        }
        if name != "default" {
            return Err(format!("there is no network `{name}` in this file"));
        }
        let place = self.place(span);
        let id = self.draft.id_for("default", "network");
        let mut resource = Resource::new("network", id.clone(), &place);
        resource.set("name", self.made_name("default"), &place);
        self.draft.resources.push(resource);
        self.networks.insert("default".to_owned(), id.clone());
        Ok(id)
    }
}

/// The only subnet of a network.
fn subnet(node: &Node) -> Result<Option<String>, String> {
    let mut found = None;
    for (key, node) in table(node)? {
        match (key.text.as_str(), &node.value) {
            ("driver", _) if text(node).as_deref() == Ok("default") => {}
            ("config", Value::List(list)) if list.len() <= 1 => {
                for (key, node) in list.first().map_or(Ok(&[][..]), table)? {
                    match key.text.as_str() {
                        "subnet" => found = Some(text(node)?),
                        other => return Err(format!("meshplan has nothing for its `{other}`")),
                    }
                }
            }
            ("config", _) => return Err("meshplan gives a network one subnet".to_owned()),
            (other, _) => return Err(format!("meshplan has nothing for its `{other}`")),
        }
    }
    Ok(found)
}
