//! Users, groups, packages (HK-2, HK-3).

use std::ops::Range;

use meshplan_schemas::document::module::{GroupResource, PackageResource, UserResource};
use meshplan_schemas::document::texts::{AccountName, PackageName};
use meshplan_schemas::finding::Finding;
use meshplan_schemas::resource::accounts::is_host_package;

use super::Bench;

/// What is gone has no other key: the places of those that it has.
fn gone(bench: &Bench<'_>, what: &str, keys: &[(&str, Option<&Range<usize>>)], findings: &mut Vec<Finding>) {
    for (key, span) in keys {
        if let Some(span) = span {
            findings.push(bench.error(span, format!("a {what} with `absent = true` has no `{key}`")));
        }
    }
}

pub(super) fn user(bench: &Bench<'_>, user: &UserResource, findings: &mut Vec<Finding>) {
    if user.name.is_none() && user.id.value.as_str().parse::<AccountName>().is_err() {
        let message = format!(
            "the id `{}` is no name of a user: give it a `name`",
            user.id.value
        );
        findings.push(bench.error(&user.id.span, message));
    }
    if user.absent {
        let keys = [
            ("uid", user.uid.as_ref().map(|at| &at.span)),
            ("group", user.group.as_ref().map(|at| &at.span)),
            ("groups", user.groups.first().map(|at| &at.span)),
            ("home", user.home.as_ref().map(|at| &at.span)),
            ("shell", user.shell.as_ref().map(|at| &at.span)),
            (
                "authorized_keys",
                user.authorized_keys.as_ref().map(|at| &at.span),
            ),
        ];
        gone(bench, "user", &keys, findings);
    }
    if let Some(uid) = user.uid.as_ref().filter(|uid| uid.value.0 == 65_535) {
        findings.push(bench.error(
            &uid.span,
            "65535 is no user: it means \"nobody\" to programs of 16 bits",
        ));
    }
    let name = user
        .name
        .as_ref()
        .map_or(user.id.value.as_str(), |name| name.value.0.as_str());
    if name == "root" && user.absent {
        findings.push(bench.error(&user.id.span, "root is never removed"));
    }
}

pub(super) fn group(bench: &Bench<'_>, group: &GroupResource, findings: &mut Vec<Finding>) {
    if group.name.is_none() && group.id.value.as_str().parse::<AccountName>().is_err() {
        let message = format!(
            "the id `{}` is no name of a group: give it a `name`",
            group.id.value
        );
        findings.push(bench.error(&group.id.span, message));
    }
    if group.absent {
        gone(
            bench,
            "group",
            &[("gid", group.gid.as_ref().map(|at| &at.span))],
            findings,
        );
    }
}

pub(super) fn package(bench: &Bench<'_>, package: &PackageResource, findings: &mut Vec<Finding>) {
    if package.name.is_none() && package.id.value.as_str().parse::<PackageName>().is_err() {
        let message = format!(
            "the id `{}` is no name of a package: give it a `name`",
            package.id.value
        );
        findings.push(bench.error(&package.id.span, message));
    }
    if package.absent {
        gone(
            bench,
            "package",
            &[("version", package.version.as_ref().map(|at| &at.span))],
            findings,
        );
    }
    if let (Some(manager), Some(version)) = (&package.manager, &package.version)
        && !manager.value.has_versions()
    {
        let message = format!("{} has one version of each package", manager.value);
        let finding = bench.error(&version.span, message);
        findings.push(finding.help("leave `version` out"));
    }
    let name = package
        .name
        .as_ref()
        .map_or(package.id.value.as_str(), |name| name.value.0.as_str());
    if package.absent && is_host_package(name) {
        findings.push(bench.error(&package.id.span, "the host does not remove itself"));
    }
}
