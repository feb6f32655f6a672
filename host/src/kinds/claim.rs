//! What the fields of a resource claim of a machine, without a look at it (HR-6, HK-9).

use meshplan_schemas::ident::{ResourceId, ResourceName};
use meshplan_schemas::resource::Kind;
use meshplan_schemas::resource::accounts::plain_package;
use meshplan_schemas::resource::programs::Run;

use super::{Reach, container, filter, kernel_module, package, process};
use crate::pure::target::{Sort, Target};
use crate::pure::target_path::TargetPath;
use crate::pure::unit_file::Around;

/// What a resource of a kind has; none for what is no target: a probe, a kind that this host does not have, a path that
/// is none.
#[must_use]
pub fn target(name: &ResourceName, kind: &Kind) -> Option<Target> {
    let thing = |sort, name: &str| Some(Target::Thing(sort, name.to_owned()));
    match kind {
        Kind::Service(spec) => thing(Sort::Unit, &spec.unit),
        Kind::Process(spec) => thing(Sort::Process, &spec.name),
        Kind::User(spec) => thing(Sort::User, &spec.name),
        Kind::Group(spec) => thing(Sort::Group, &spec.name),
        Kind::Sysctl(spec) => thing(Sort::Setting, &spec.key),
        Kind::KernelModule(spec) => thing(Sort::KernelModule, &kernel_module::plain(&spec.name)),
        Kind::Action(_) => thing(Sort::Step, &name.to_string()),
        Kind::Archive(spec) => thing(Sort::Tree, &spec.path),
        Kind::Bundle(spec) => thing(Sort::Tree, &spec.path),
        Kind::Container(spec) => thing(Sort::Container, &spec.name),
        Kind::Network(spec) => thing(Sort::Network, &spec.name),
        Kind::Volume(spec) => thing(Sort::Volume, &spec.name),
        Kind::Package(spec) => thing(Sort::Package, &spec.name),
        Kind::Filter(_) => thing(Sort::Filter, filter::NAME),
        other => TargetPath::parse(other.target()?).ok().map(Target::Path),
    }
}

/// Whether a resource is for another machine than this, so that it claims nothing here: a package for another manager.
#[must_use]
pub fn is_elsewhere(kind: &Kind, reach: Reach<'_>) -> bool {
    matches!(kind, Kind::Package(spec) if package::is_elsewhere(spec, reach))
}

/// What else a resource of a kind keeps others from having (HR-6): the units and files of a process, or of a scheduled
/// container; the path of a tree; a package whatever its architecture; the file of the filter.
#[must_use]
pub fn claims(kind: &Kind) -> Vec<Target> {
    match kind {
        Kind::Process(spec) => claims_of(&spec.name),
        // `nginx` and `nginx:amd64` are one.
        Kind::Package(spec) => {
            let plain = plain_package(&spec.name);
            let is_other = plain != spec.name;
            (is_other.then(|| Target::Thing(Sort::Package, plain.to_owned())))
                .into_iter()
                .collect()
        }
        Kind::Archive(_) | Kind::Bundle(_) => {
            let path = kind.target().and_then(|path| TargetPath::parse(path).ok());
            path.into_iter().map(Target::Path).collect()
        }
        Kind::Container(spec) if spec.run == Run::Scheduled => claims_of(&container::units_of(&spec.name)),
        Kind::Filter(_) => (TargetPath::parse(filter::FILE).ok().into_iter())
            .map(Target::Path)
            .collect(),
        _ => Vec::new(),
    }
}

/// The units and files of a process of this name.
#[must_use]
pub fn claims_of(process: &str) -> Vec<Target> {
    let units = [process::service_of(process), process::timer_of(process)];
    let of = |unit: String| {
        let file = process::file_of(&unit).ok().map(Target::Path);
        file.into_iter().chain([Target::Thing(Sort::Unit, unit)])
    };
    units.into_iter().flat_map(of).collect()
}

/// How what other resources of a module may name is stopped and started around a run (HK-9); none where it is nothing
/// that can be.
#[must_use]
pub fn around_of(kind: &Kind, reach: Reach<'_>) -> Option<Result<Around, String>> {
    match kind {
        Kind::Process(spec) => Some(Ok(Around::Unit(process::service_of(&spec.name)))),
        Kind::Service(spec) => Some(Ok(Around::Unit(spec.unit.clone()))),
        Kind::Container(spec) if spec.run == Run::Daemon => {
            Some(container::around_of(spec, reach.system.engine()))
        }
        _ => None,
    }
}

/// The unit of what is scheduled, and what is stopped while it runs (HK-9).
#[must_use]
pub fn stopped_while(kind: &Kind) -> Option<(String, Vec<ResourceId>)> {
    match kind {
        Kind::Process(spec) if spec.run == Run::Scheduled => {
            Some((process::service_of(&spec.name), spec.while_stopped.clone()))
        }
        Kind::Container(spec) if spec.run == Run::Scheduled => {
            let unit = process::service_of(&container::units_of(&spec.name));
            Some((unit, spec.while_stopped.clone()))
        }
        _ => None,
    }
}
