//! The fleets of `examples/` compose without a word, say nothing that would be regretted, and stand by their schemas.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::path::{Path, PathBuf};

use clap::Parser as _;
use meshplan_reconciler::cli::Cli;
use meshplan_reconciler::cli::check;
use meshplan_reconciler::cli::exit::Exit;

const EXAMPLES: [(&str, &str); 2] = [
    ("homelab", "3 nodes, 2 modules, 1 plan"),
    ("edge", "7 nodes, 2 modules, 2 plans"),
];

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
fn each_example_composes_without_a_word_and_has_nothing_unwise() {
    for (name, holds) in EXAMPLES {
        let dir = example(name);
        let dir = dir.to_str().unwrap();
        let (exit, said) = meshplan(&["check", dir]);
        assert_eq!(
            (exit, said),
            (
                Exit::Done,
                format!("ok: the fleet {name} composes: {holds}; 0 warnings\n")
            )
        );
        let (exit, said) = meshplan(&["lint", "--strict", dir]);
        assert_eq!((exit, said.as_str()), (Exit::Done, "nothing to say\n"), "{name}");
    }
}

// holds: FR-15
#[test]
fn each_document_of_an_example_names_the_schema_that_it_is_of() {
    for name in ["quickstart", "homelab", "edge"] {
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
