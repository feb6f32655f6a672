//! Files, links and probes (HK-1, HK-13).

use meshplan_schemas::document::module::{FileResource, LinkResource, ProbeResource};
use meshplan_schemas::finding::{Finding, did_you_mean};

use super::Bench;

pub(super) fn file(bench: &Bench<'_>, file: &FileResource, findings: &mut Vec<Finding>) {
    let given = [
        (file.source.as_ref().map(|at| &at.span), "source"),
        (file.content.as_ref().map(|at| &at.span), "content"),
        (file.secret.as_ref().map(|at| &at.span), "secret"),
    ];
    let given: Vec<_> = given
        .into_iter()
        .filter_map(|(span, key)| Some((span?, key)))
        .collect();
    match given.as_slice() {
        [] => {
            let message = format!(
                "the file `{}` has none of `source`, `content`, `secret`",
                file.id.value
            );
            findings.push(bench.error(&file.id.span, message));
        }
        [_] => {}
        [.., (span, _)] => {
            let keys: Vec<String> = given.iter().map(|(_, key)| format!("`{key}`")).collect();
            let message = format!(
                "a file has one of `source`, `content`, `secret`; this one has {}",
                keys.join(" and ")
            );
            findings.push(bench.error(span, message));
        }
    }
    if let Some(wanted) = &file.source
        && !bench.folder.files.contains_key(&wanted.value.0)
    {
        let message = format!("the module's folder has no file `{}`", wanted.value);
        let known = bench.folder.files.keys().map(String::as_str);
        let help = did_you_mean(&wanted.value.0, known).unwrap_or_else(|| {
            "a source is a path inside the module's folder, as `files/web.conf`".to_owned()
        });
        findings.push(bench.error(&wanted.span, message).help(help));
    }
    findings.extend(file.secret.iter().filter_map(|secret| bench.secret(secret)));
    if let Some(command) = &file.validate
        && !command.value.contains("%s")
    {
        let message = "`validate` must contain `%s`, the path of the temporary file";
        findings.push(bench.error(&command.span, message));
    }
}

pub(super) fn link(bench: &Bench<'_>, link: &LinkResource, findings: &mut Vec<Finding>) {
    if link.target.value.is_empty() || link.target.value.contains('\0') {
        findings.push(bench.error(&link.target.span, "a link needs something to point at"));
    }
}

pub(super) fn probe(bench: &Bench<'_>, probe: &ProbeResource, findings: &mut Vec<Finding>) {
    let asks = [
        probe.http.is_some(),
        probe.tcp.is_some(),
        probe.command.is_some(),
        probe.unit.is_some(),
        probe.container.is_some(),
    ];
    if asks.into_iter().filter(|asked| *asked).count() != 1 {
        let message = format!(
            "the probe `{}` must ask exactly one of `http`, `tcp`, `command`, `unit`, `container`",
            probe.id.value
        );
        findings.push(bench.error(&probe.id.span, message));
    }
    if let (Some(status), None) = (&probe.status, &probe.http) {
        findings.push(bench.error(&status.span, "`status` belongs to `http`"));
    }
    if let Some(container) = &probe.container {
        findings.extend(bench.wants(container, &["container"]));
        let without = (bench.file.containers.iter())
            .find(|c| c.id.value == container.value)
            .is_some_and(|c| c.healthcheck.is_none());
        if without {
            let message = format!(
                "the container `{}` has no `healthcheck` that could be asked",
                container.value
            );
            findings.push(bench.error(&container.span, message));
        }
    }
}
