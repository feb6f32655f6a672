//! The fleets of `examples/` compose with no word but one, say nothing that would be regretted, and stand by their
//! schemas.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::path::{Path, PathBuf};

use clap::Parser as _;
use meshplan_reconciler::cli::Cli;
use meshplan_reconciler::cli::check;
use meshplan_reconciler::cli::exit::Exit;

/// Each with what it holds, and what checking warns of.
const EXAMPLES: [(&str, &str, Option<&str>); 3] = [
    ("homelab", "3 nodes, 2 modules, 1 plan", None),
    ("edge", "7 nodes, 2 modules, 2 plans", None),
    ("rotation", "5 nodes, 1 module, 1 plan", Some(NOT_WALKED)),
];
const NOT_WALKED: &str = "rotations are checked, and not walked by this version: the reconciler refuses a commit that has \
                          any, nothing of it is signed";

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples")
        .join(name)
}

fn meshplan(arguments: &[&str]) -> (Exit, String) {
    let cli = match Cli::try_parse_from(std::iter::once(&"meshplan").chain(arguments)) {
        Ok(cli) => cli,
        Err(error) => panic!("{error}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut out = Vec::new();
    let exit = runtime.block_on(cli.run(&mut out)).unwrap();
    (exit, String::from_utf8(out).unwrap())
}

// holds: FR-15
#[test]
fn each_example_composes_with_no_word_but_one_and_has_nothing_unwise() {
    for (name, holds, warns) in EXAMPLES {
        let dir = example(name);
        let dir = dir.to_str().unwrap();
        let (exit, said) = meshplan(&["check", dir]);
        let (first, last) = match warns {
            None => (None, "0 warnings"),
            Some(warning) => (Some(format!("warning: {warning}")), "1 warning"),
        };
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(exit, Exit::Done, "{said}");
        assert_eq!(
            lines.last().copied(),
            Some(format!("ok: the fleet {name} composes: {holds}; {last}").as_str())
        );
        assert_eq!(
            lines.first().copied().filter(|_| lines.len() > 1),
            first.as_deref()
        );
        let (exit, said) = meshplan(&["lint", "--strict", dir]);
        assert_eq!((exit, said.as_str()), (Exit::Done, "nothing to say\n"), "{name}");
    }
}

// holds: FR-15
#[test]
fn the_example_of_rotations_has_every_kind_under_way_with_one_node_a_role_and_all() {
    use meshplan_reconciler::pure::parse::parse;
    use meshplan_schemas::document::rotations::{RotationKind, Subject};
    let (tree, _) = check::read(&example("rotation"), None).unwrap();
    let file = parse(&tree).0.rotations.unwrap().read.unwrap();
    let entries: Vec<_> = file.rotations.iter().map(|entry| &entry.value).collect();
    for kind in [
        RotationKind::NodeTransport,
        RotationKind::NodeSigning,
        RotationKind::MeshSecret,
        RotationKind::ReconcilerTransport,
    ] {
        let mut of_kind = entries.iter().filter(|entry| entry.kind.value == kind);
        assert!(of_kind.any(|entry| entry.publish_at.value.0 > 0), "{kind}");
    }
    let subjects: Vec<_> = entries
        .iter()
        .filter_map(|entry| entry.subject.as_ref())
        .collect();
    assert!(subjects.iter().any(|at| matches!(at.value, Subject::Node(_))));
    assert!(subjects.iter().any(|at| matches!(at.value, Subject::Role(_))));
    assert!(subjects.iter().any(|at| at.value == Subject::All));
}

// holds: FR-15
#[test]
fn each_document_of_an_example_names_the_schema_that_it_is_of() {
    for name in ["quickstart", "homelab", "edge", "rotation"] {
        let dir = example(name);
        let (tree, findings) = check::read(&dir, None).unwrap();
        assert_eq!(findings, []);
        for (path, entry) in tree.iter().filter(|(path, _)| path.ends_with(".toml")) {
            let text = std::str::from_utf8(&entry.bytes).unwrap();
            let first = text.lines().next().unwrap_or_default();
            let schema = first.strip_prefix("#:schema ");
            let schema = schema.unwrap_or_else(|| panic!("{name}/{path} names no schema"));
            let at = dir.join(path).parent().unwrap().join(schema);
            assert!(at.is_file(), "{name}/{path}: there is no {}", at.display());
        }
    }
}
