//! What on the machine only one resource may have (HR-6): a path, a unit, a container, a user and so on.

use std::fmt;
use std::ops::Range;

use meshplan_schemas::document::module::{Entry, ModuleFile};
use meshplan_schemas::document::read::At;
use meshplan_schemas::ident::ResourceId;
use meshplan_schemas::resource::accounts::{Manager, plain_package};

/// A thing on a machine, by its kind and name; paths are paths whatever stands there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::pure::validate) struct Target {
    what: &'static str,
    name: String,
    /// Of a package: the manager that has it. Managers have packages of one name.
    manager: Option<Manager>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.what, self.name.as_str()) {
            ("path", name) => write!(f, "`{name}`"),
            (what, "") => write!(f, "the {what}"),
            (what, name) => write!(f, "the {what} `{name}`"),
        }
    }
}

/// A target, whose it is, and where that is said.
pub(in crate::pure::validate) type Claim<'d> = (Target, &'d ResourceId, &'d Range<usize>);

/// The targets of all resources of a module.
pub(in crate::pure::validate) fn targets(file: &ModuleFile) -> Vec<Claim<'_>> {
    file.entries().into_iter().flat_map(claims).collect()
}

/// A package that is for any manager is one for each.
fn claims(entry: Entry<'_>) -> Vec<Claim<'_>> {
    let managers: Vec<Option<Manager>> = match &entry {
        Entry::Package(r) => match &r.manager {
            Some(manager) => vec![Some(manager.value)],
            None => Manager::WORDS.iter().map(|(_, m)| Some(*m)).collect(),
        },
        _ => vec![None],
    };
    let Some((target, id, span)) = claim(entry) else {
        return Vec::new();
    };
    let of = |manager| {
        (
            Target {
                manager,
                ..target.clone()
            },
            id,
            span,
        )
    };
    managers.into_iter().map(of).collect()
}

fn claim(entry: Entry<'_>) -> Option<Claim<'_>> {
    let id = entry.common().id();
    let path = |at: &At<meshplan_schemas::document::scalar::TargetPath>| at.value.0.clone();
    let (what, name, span) = match entry {
        Entry::File(r) => ("path", path(&r.path), &r.path.span),
        Entry::Directory(r) => ("path", path(&r.path), &r.path.span),
        Entry::Link(r) => ("path", path(&r.path), &r.path.span),
        Entry::Archive(r) => ("path", path(&r.path), &r.path.span),
        Entry::Bundle(r) => ("path", path(&r.path), &r.path.span),
        Entry::User(r) => named("user", r.name.as_ref().map(|at| (&at.value.0, &at.span)), id),
        Entry::Group(r) => named("group", r.name.as_ref().map(|at| (&at.value.0, &at.span)), id),
        Entry::Package(r) => {
            let given = r.name.as_ref().map(|at| (&at.value.0, &at.span));
            let (what, name, span) = named("package", given, id);
            (what, plain_package(&name).to_owned(), span)
        }
        Entry::Service(r) => ("unit", r.unit.value.0.clone(), &r.unit.span),
        Entry::Process(r) => {
            let (_, name, span) = named("unit", r.name.as_ref().map(|at| (&at.value.0, &at.span)), id);
            ("unit", format!("{name}.service"), span)
        }
        Entry::Container(r) => named("container", r.name.as_ref().map(|at| (&at.value.0, &at.span)), id),
        Entry::Network(r) => named("network", r.name.as_ref().map(|at| (&at.value.0, &at.span)), id),
        Entry::Volume(r) => named("volume", r.name.as_ref().map(|at| (&at.value.0, &at.span)), id),
        Entry::Filter(_) => ("machine's filter", String::new(), &id.span),
        Entry::PrivateNetwork(r) => ("interface", r.interface.value.0.clone(), &r.interface.span),
        // `net/ipv4/x` and `net.ipv4.x` are one setting.
        Entry::Sysctl(r) => ("kernel setting", r.key.value.0.replace('/', "."), &r.key.span),
        Entry::KernelModule(r) => {
            let (what, name, span) = named(
                "kernel module",
                r.name.as_ref().map(|at| (&at.value.0, &at.span)),
                id,
            );
            (what, name.replace('-', "_"), span)
        }
        Entry::Upgrade(_) => ("machine's upgrade", String::new(), &id.span),
        Entry::Reboot(_) => ("machine's reboot", String::new(), &id.span),
        Entry::Probe(_) | Entry::Action(_) => return None,
    };
    let target = Target {
        what,
        name,
        manager: None,
    };
    Some((target, &id.value, span))
}

/// The name that is given, else the id.
fn named<'d>(
    what: &'static str,
    given: Option<(&'d String, &'d Range<usize>)>,
    id: &'d At<ResourceId>,
) -> (&'static str, String, &'d Range<usize>) {
    match given {
        Some((name, span)) => (what, name.clone(), span),
        None => (what, id.value.to_string(), &id.span),
    }
}
