//! What the documents can say and this version cannot honour: each refused at its place, or kept from being signed, in
//! this one file, so that nothing is ever ignored in silence and honouring it later takes lines away here.

use std::ops::Range;

use meshplan_schemas::document::FleetFile;
use meshplan_schemas::document::plan::{ConfirmBy, PlanFile};
use meshplan_schemas::document::read::At;
use meshplan_schemas::finding::{Finding, Source};

use crate::pure::parse::{Document, Documents};

pub(super) fn check(documents: &Documents, findings: &mut Vec<Finding>) {
    let mut say = |source: &Source, span: &Range<usize>, what: &str| {
        let message = format!("{what} not supported by this version yet");
        let help = "it would have to be honoured, so it is not skipped in silence: take it out for now";
        findings.push(source.error(span.clone(), message).help(help));
    };
    if let Some((source, file)) = read(documents.fleet.as_ref()) {
        fleet(file, &mut |span, what| say(source, span, what));
    }
    for document in documents.plans.values() {
        if let Some((source, file)) = read(Some(document)) {
            plan(file, &mut |span, what| say(source, span, what));
        }
    }
}

/// What is right in a tree and keeps this version from signing anything of it: rotations, which are checked in full
/// and not walked.
pub(super) fn unsigned(documents: &Documents) -> Option<Finding> {
    let (source, file) = read(documents.rotations.as_ref())?;
    let first = file.rotations.first()?;
    let message = "rotations are checked, and not walked by this version: the reconciler refuses a commit that has any, \
                   nothing of it is signed";
    let help = "keep them on a branch, or take them out of `rotations.toml` before the merge";
    let finding = source.error(first.value.id.span.clone(), message);
    Some(finding.help(help).warning())
}

fn read<T>(document: Option<&Document<T>>) -> Option<(&Source, &T)> {
    let document = document?;
    Some((&document.source, document.read.as_ref()?))
}

fn fleet(file: &FleetFile, say: &mut impl FnMut(&Range<usize>, &str)) {
    if let Some(At { value, span }) = &file.trust.threshold
        && value.0 > 1
    {
        say(span, "a `threshold` above 1 is");
    }
    if let Some(at) = &file.trust.root_threshold {
        say(&at.span, "`root_threshold` is");
    }
    if let Some(at) = file.roots.first() {
        say(&at.span, "`roots` are");
    }
    if let Some(at) = file.notify.0.values().next() {
        say(&at.span, "`notify` is");
    }
    if let Some(at) = &file.neighbours {
        say(&at.span, "`neighbours` are");
    }
}

fn plan(file: &PlanFile, say: &mut impl FnMut(&Range<usize>, &str)) {
    if file.confirm.value == ConfirmBy::Neighbour {
        say(&file.confirm.span, "`confirm = \"neighbour\"` is");
    }
}
