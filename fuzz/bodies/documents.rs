//! What must hold of any bytes that stand where a document is expected (FR-1). Called with what the fuzzer makes and,
//! in every run of the tests, with pieces of the samples.

use meshplan_schemas::document::read::{self, Read};
use meshplan_schemas::document::{
    ChecksFile, FleetFile, ModuleFile, NodeFile, PlanFile, PolicyFile, RetiredFile, RotationsFile,
};
use meshplan_schemas::finding::{Finding, Source};

fn read<T: Read>(bytes: &[u8]) -> (bool, Vec<Finding>) {
    let mut findings = Vec::new();
    let read: Option<T> = match Source::new("a.toml", bytes.into()) {
        Ok(source) => read::document(&source, &mut findings),
        Err(finding) => {
            findings.push(finding);
            None
        }
    };
    (read.is_some(), findings)
}

/// Whether the reader of this document took the bytes, and what it said.
fn read_as(name: &str, bytes: &[u8]) -> (bool, Vec<Finding>) {
    match name {
        "checks" => read::<ChecksFile>(bytes),
        "fleet" => read::<FleetFile>(bytes),
        "module" => read::<ModuleFile>(bytes),
        "node" => read::<NodeFile>(bytes),
        "plan" => read::<PlanFile>(bytes),
        "policy" => read::<PolicyFile>(bytes),
        "retired" => read::<RetiredFile>(bytes),
        "rotations" => read::<RotationsFile>(bytes),
        other => panic!("no reader for {other}"),
    }
}

/// Reads the bytes as this document: it is taken, or what is wrong is said, at a place that is there; and a second reading
/// says the same.
pub(crate) fn body(name: &str, bytes: &[u8]) -> Vec<Finding> {
    let (taken, findings) = read_as(name, bytes);
    // A document with a misspelt key still gives what it says otherwise, for whoever refers to it.
    assert!(
        taken || findings.iter().any(Finding::is_error),
        "{name}: refused without a word: {findings:?}"
    );
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
    for finding in &findings {
        assert!(
            usize::try_from(finding.line).is_ok_and(|line| line <= lines),
            "{finding:?}"
        );
        assert!(!finding.source.contains('\n'), "{finding:?}");
        assert!(!finding.message.is_empty() && !finding.render(false).is_empty());
    }
    assert_eq!(read_as(name, bytes), (taken, findings.clone()));
    findings
}
