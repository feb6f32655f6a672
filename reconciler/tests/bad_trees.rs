//! Walks the museum of bad trees: what a person reads about each defect is held to the letter.
#![expect(clippy::unwrap_used, reason = "a test says why by failing")]

use std::path::Path;

use meshplan_reconciler::cli::check;
use meshplan_reconciler::pure::compose::TreeError;
use meshplan_reconciler::pure::source_tree::SourceTree;
use meshplan_schemas::finding::Finding;

/// The base with a defect laid over it.
fn tree(museum: &Path, defect: &Path) -> (SourceTree, Vec<Finding>) {
    let gone = std::fs::read_to_string(defect.join("gone.txt")).unwrap_or_default();
    let (base, _) = check::read(&museum.join("_base"), None).unwrap();
    let (over, findings) = check::read(defect, None).unwrap();
    assert_eq!(findings, []);
    let of_base = base
        .iter()
        .filter(|(path, _)| over.get(path).is_none() && !gone.lines().any(|g| g == *path));
    let own = over
        .iter()
        .filter(|(path, _)| !["expected.txt", "gone.txt"].contains(path));
    let entries = of_base
        .chain(own)
        .map(|(path, e)| (path.into(), e.kind, e.bytes.clone()));
    SourceTree::from_entries(entries.collect())
}

// holds: FR-1, FR-2, FR-3, FR-4, FR-5, FR-6, FR-8, FR-13, HR-6, DL-19
// holds: B13, B15, B16, B19, B20, B21, B26
#[test]
fn every_bad_tree_is_refused_with_the_words_that_a_person_reads() {
    let museum = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad_trees");
    let bless = std::env::var_os("MESHPLAN_BLESS").is_some();
    let mut differing = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(&museum).unwrap() {
        let defect = entry.unwrap().path();
        if !defect.is_dir() || defect.ends_with("_base") {
            continue;
        }
        count += 1;
        let (tree, findings) = tree(&museum, &defect);
        let said = match check::compose_with(&tree, findings) {
            Ok(composed) => composed.warnings,
            Err(TreeError::Findings(findings)) => findings,
            Err(TreeError::NoFleet(why)) => vec![Finding::of_file("", why)],
        };
        assert!(!said.is_empty(), "{} is taken without a word", defect.display());
        assert!(
            said.is_sorted(),
            "{}: the findings are not in order",
            defect.display()
        );
        let said: String = said.iter().map(|f| f.render(false) + "\n\n").collect();
        let expected = std::fs::read_to_string(defect.join("expected.txt")).unwrap_or_default();
        if said != expected {
            differing.push(format!("== {}\n{said}", defect.display()));
            if bless {
                std::fs::write(defect.join("expected.txt"), said).unwrap();
            }
        }
    }
    assert!(count >= 30, "only {count} bad trees were found");
    assert!(bless || differing.is_empty(), "{}", differing.join("\n"));
}
