//! What must hold of any bytes that stand where a template is expected (FR-8): they are rendered on each node within
//! their bounds, or refused at their place.

use std::sync::Arc;

use meshplan_reconciler::pure::compose::{TreeError, compose_tree};
use meshplan_reconciler::pure::source_tree::{EntryKind, SourceTree};
use meshplan_schemas::finding::Finding;

/// The template is `t.j2`; `part.j2`, which it can include, is the same.
const FILES: [(&str, &str); 4] = [
    (
        "fleet.toml",
        "schema = 1\nfleet = \"lab\"\nbranch = \"main\"\n[[authors]]\nid = \"example\"\n\
         key = \"ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n[vars]\nsite = \"{{ lab }}\"\n",
    ),
    (
        "nodes/ace.toml",
        "id = \"0192f0c1-0000-7000-8000-000000000001\"\nmodules = [\"m\"]\n[vars]\nlist = [\"a\", \"b\"]\n",
    ),
    (
        "plans/default.toml",
        "covers = [\"*\"]\n[[stage]]\nname = \"rest\"\nrest = true\n",
    ),
    (
        "modules/m/module.toml",
        "[settings.text]\ntype = \"string\"\ndefault = \"{% raw %}\"\n[settings.port]\ntype = \"integer\"\ndefault = 80\n\
         [[file]]\nid = \"t\"\npath = \"/t\"\nsource = \"files/t.j2\"\n",
    ),
];

/// Composes a tree with this template.
pub(crate) fn body(bytes: &[u8]) -> Vec<Finding> {
    let texts = FILES.map(|(path, text)| (path, text.as_bytes()));
    let templates = ["modules/m/files/t.j2", "modules/m/files/part.j2"].map(|path| (path, bytes));
    let entries = texts
        .into_iter()
        .chain(templates)
        .map(|(path, bytes)| (path.into(), EntryKind::Blob, Arc::from(bytes)));
    let (tree, of_paths) = SourceTree::from_entries(entries.collect());
    assert_eq!(of_paths, []);
    let findings = match compose_tree(&tree, None, None) {
        Ok(composed) => {
            assert!(composed.warnings.iter().all(|f| !f.is_error()));
            composed.warnings
        }
        Err(TreeError::Findings(findings)) => {
            assert!(findings.iter().any(Finding::is_error), "refused without a word");
            findings
        }
        Err(TreeError::NoFleet(why)) => panic!("{why}"),
    };
    for finding in &findings {
        assert!(finding.file.starts_with("modules/m/"), "{finding:?}");
        assert!(!finding.message.is_empty() && !finding.render(false).is_empty());
    }
    findings
}
