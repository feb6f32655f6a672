//! Archives and bundles (HK-4).

use meshplan_schemas::document::module::{ArchiveResource, BundleResource, BundleSource};
use meshplan_schemas::finding::{Finding, did_you_mean};
use meshplan_schemas::resource::bundles::Packing;

use super::Bench;

/// How an archive is packed, as it says or by the end of its file's name; none where neither tells.
pub(in crate::pure) fn packing(archive: &ArchiveResource) -> Option<Packing> {
    if let Some(at) = &archive.packing {
        return Some(at.value);
    }
    let name = &archive.source.as_ref()?.value.0;
    let ends = [
        (".tar", Packing::Tar),
        (".tar.gz", Packing::TarGz),
        (".tgz", Packing::TarGz),
        (".tar.zst", Packing::TarZst),
        (".zip", Packing::Zip),
    ];
    (ends.into_iter().find(|(end, _)| name.ends_with(end))).map(|(_, packing)| packing)
}

pub(super) fn archive(bench: &Bench<'_>, archive: &ArchiveResource, findings: &mut Vec<Finding>) {
    match (&archive.source, &archive.sha256) {
        (Some(_), Some(at)) => {
            findings.push(bench.error(&at.span, "an archive has `source` or `sha256`, this one has both"));
        }
        (None, None) => {
            let message = format!(
                "the archive `{}` has neither `source` nor `sha256`",
                archive.id.value
            );
            findings.push(bench.error(&archive.id.span, message));
        }
        _ => {}
    }
    if let Some(at) = &archive.source
        && !bench.folder.files.contains_key(&at.value.0)
    {
        let known = bench.folder.files.keys().map(String::as_str);
        let message = format!("the module's folder has no file `{}`", at.value);
        findings.push(
            bench
                .error(&at.span, message)
                .maybe_help(did_you_mean(&at.value.0, known)),
        );
    }
    if packing(archive).is_none() && (archive.source.is_some() || archive.sha256.is_some()) {
        let message = format!("nobody can say how the archive `{}` is packed", archive.id.value);
        let help = "give it `packing`: tar, tar.gz, tar.zst or zip";
        findings.push(bench.error(&archive.id.span, message).help(help));
    }
}

pub(super) fn bundle(bench: &Bench<'_>, bundle: &BundleResource, findings: &mut Vec<Finding>) {
    match &bundle.source.value {
        BundleSource::Component => {
            let fleet = bench.documents.fleet.as_ref().and_then(|d| d.read.as_ref());
            let fed = fleet.is_none_or(|f| f.components.iter().any(|c| c.value.module.value == *bench.name));
            if !fed {
                let message = "no component of fleet.toml feeds this module";
                let help = format!("add `[[components]]` with `module = \"{}\"`", bench.name);
                findings.push(bench.error(&bundle.source.span, message).help(help));
            }
        }
        BundleSource::Folder(folder) => {
            let inside = format!("{}/", folder.0);
            if !bench.folder.files.keys().any(|path| path.starts_with(&inside)) {
                let message = format!("the module's folder has no folder `{folder}` with files in it");
                let known = bench
                    .folder
                    .files
                    .keys()
                    .filter_map(|path| path.split_once('/'))
                    .map(|(top, _)| top);
                let help = did_you_mean(&folder.0, known);
                findings.push(bench.error(&bundle.source.span, message).maybe_help(help));
            }
        }
    }
}
