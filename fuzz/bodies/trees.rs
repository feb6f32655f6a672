//! What must hold of any documents laid over a good tree: they are read and held against each other (FR-1, FR-3).

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_reconciler::pure::parse::parse;
use meshplan_reconciler::pure::source_tree::{EntryKind, SourceTree};
use meshplan_reconciler::pure::validate::validate;
use meshplan_schemas::finding::Finding;

/// A line that begins so says where what follows it stands in the tree.
const MARK: &[u8] = b"=== ";

/// The good tree: the base of the museum of bad trees.
const BASE: [(&str, &[u8]); 7] = [
    (
        "fleet.toml",
        include_bytes!("../../reconciler/tests/bad_trees/_base/fleet.toml"),
    ),
    (
        "modules/web/files/web.conf.j2",
        include_bytes!("../../reconciler/tests/bad_trees/_base/modules/web/files/web.conf.j2"),
    ),
    (
        "modules/web/module.toml",
        include_bytes!("../../reconciler/tests/bad_trees/_base/modules/web/module.toml"),
    ),
    (
        "nodes/ace.toml",
        include_bytes!("../../reconciler/tests/bad_trees/_base/nodes/ace.toml"),
    ),
    (
        "nodes/bea.toml",
        include_bytes!("../../reconciler/tests/bad_trees/_base/nodes/bea.toml"),
    ),
    (
        "plans/default.toml",
        include_bytes!("../../reconciler/tests/bad_trees/_base/plans/default.toml"),
    ),
    (
        "policy/base.toml",
        include_bytes!("../../reconciler/tests/bad_trees/_base/policy/base.toml"),
    ),
];

/// The base with what the bytes lay over it; `=== PATH` lines stand between the files, `=== PATH -> TARGET` is a link.
fn tree(bytes: &[u8]) -> (SourceTree, Vec<Finding>) {
    let base = BASE.map(|(path, text)| (path.as_bytes().to_vec(), (EntryKind::Blob, text.to_vec())));
    let mut entries = BTreeMap::from(base);
    let mut at: Option<Vec<u8>> = None;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let Some(head) = line.strip_prefix(MARK) else {
            let file = at.as_ref().and_then(|path| entries.get_mut(path));
            if let Some((_, bytes)) = file {
                bytes.extend_from_slice(line);
            }
            continue;
        };
        let head = head.strip_suffix(b"\n").unwrap_or(head);
        let arrow = head.windows(4).position(|w| w == b" -> ");
        let (path, kind, bytes) = match arrow {
            Some(arrow) => (
                head[..arrow].to_vec(),
                EntryKind::Symlink,
                head[arrow + 4..].to_vec(),
            ),
            None => (head.to_vec(), EntryKind::Blob, Vec::new()),
        };
        entries.insert(path.clone(), (kind, bytes));
        at = Some(path);
    }
    let entries = entries
        .into_iter()
        .map(|(path, (kind, bytes))| (path, kind, Arc::from(bytes)));
    SourceTree::from_entries(entries.collect())
}

/// Reads the documents and holds them against each other: all that is said is in order, shown, and said twice alike;
/// what is taken has no error in it.
pub(crate) fn body(bytes: &[u8]) -> Vec<Finding> {
    let judged = || {
        let (tree, of_paths) = tree(bytes);
        let (documents, of_documents) = parse(&tree);
        assert!(of_documents.is_sorted(), "{of_documents:?}");
        let (taken, between) = match validate(documents) {
            Ok(validated) => (true, validated.warnings().to_vec()),
            Err(findings) => (false, findings),
        };
        assert!(between.is_sorted(), "{between:?}");
        let all: Vec<Finding> = [of_paths, of_documents, between].concat();
        (taken, all)
    };
    let (taken, findings) = judged();
    for finding in &findings {
        assert!(!finding.message.is_empty() && !finding.render(false).is_empty());
    }
    let errors = findings.iter().filter(|f| f.is_error()).count();
    assert!(taken || errors > 0, "refused without a word: {findings:?}");
    assert_eq!(judged(), (taken, findings.clone()));
    findings
}
