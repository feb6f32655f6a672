//! The bodies of the fuzz targets `tree` and `template`, held against pieces of good and bad inputs in every run; the
//! documents' own are in `schemas/tests/strictness.rs`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::fmt::Write as _;
use std::path::Path;

use meshplan_reconciler::cli::check;
use meshplan_reconciler::pure::source_tree::EntryKind;
use proptest::prelude::*;

#[path = "../../fuzz/bodies/templates.rs"]
mod templates;
#[path = "../../fuzz/bodies/trees.rs"]
mod trees;

/// The museum of bad trees, each as one input.
fn museum() -> Vec<(String, Vec<u8>)> {
    let museum = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bad_trees");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(museum).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let (tree, _) = check::read(&folder, None).unwrap();
        let mut input = Vec::new();
        for (path, entry) in tree.iter().filter(|(path, _)| !path.ends_with(".txt")) {
            let target = String::from_utf8_lossy(&entry.bytes);
            let head = match entry.kind {
                EntryKind::Symlink => format!("=== {path} -> {target}\n"),
                _ => format!("=== {path}\n"),
            };
            input.extend_from_slice(head.as_bytes());
            if entry.kind == EntryKind::Blob {
                input.extend_from_slice(&entry.bytes);
                input.push(b'\n');
            }
        }
        found.push((folder.file_name().unwrap().to_str().unwrap().to_owned(), input));
    }
    found.sort();
    found
}

const TEMPLATES: [&str; 8] = [
    "{% for n in nodes %}{{ n.name }} {{ n.vars.list | join(', ') }}\n{% endfor %}",
    "{% include 'files/part.j2' %}",
    "{% if settings.port > 80 %}{{ settings.text | upper }}{% else %}{{ nowhere }}{% endif %}",
    "{% macro say(x) %}{{ x }}{% endmacro %}{{ say(fleet.vars.site) }}",
    "{% set x = 1 %}{{ x + settings.port }}{# done #}",
    "{{ secret('db') }}",
    "{{ range(9999999) | length }}{{ 'x' * 99999999 }}",
    "{% raw %}{{ }}{% endraw %}{{ [1, 2][node.name] }}",
];

#[test]
fn the_bodies_judge_as_the_rest_of_the_program_does() {
    let museum = museum();
    assert!(museum.len() > 30);
    let mut errors = String::new();
    for (name, input) in &museum {
        let found = trees::body(input).iter().filter(|f| f.is_error()).count();
        writeln!(errors, "{name}={found}").unwrap();
    }
    // One that only rendering finds, one with an error in each of three files, the good base itself.
    for part in ["template_undefined=0\n", "key_twice=4\n", "_base=0\n"] {
        assert!(errors.contains(part), "{part} is not in {errors}");
    }
    for (template, good) in TEMPLATES
        .iter()
        .zip([true, false, false, true, true, false, false, false])
    {
        assert_eq!(
            templates::body(template.as_bytes()).is_empty(),
            good,
            "{template}"
        );
    }
}

/// Cuts, doubles and disturbs; each edit by two places and a choice.
fn disturbed(text: &[u8], edits: &[(prop::sample::Index, prop::sample::Index, u8)], noise: &[u8]) -> Vec<u8> {
    let mut bytes = text.to_vec();
    for (from, to, how) in edits {
        if bytes.is_empty() {
            break;
        }
        let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
        let (first, last) = (from.min(to), from.max(to));
        match how {
            0 => bytes[from] = noise.first().copied().unwrap_or(0xff),
            1 => drop(bytes.drain(first..last.min(first + 40))),
            2 => drop(bytes.splice(from..from, noise.iter().copied())),
            _ => {
                let piece: Vec<u8> = bytes[first..last.min(first + 80)].to_vec();
                drop(bytes.splice(to..to, piece));
            }
        }
    }
    bytes
}

fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, prop::sample::Index, u8)>> {
    prop::collection::vec(
        (
            any::<prop::sample::Index>(),
            any::<prop::sample::Index>(),
            0..4_u8,
        ),
        1..6,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_documents_make_the_judge_panic_or_refuse_without_a_word(
        which in any::<prop::sample::Index>(), edits in edits(), noise in prop::collection::vec(any::<u8>(), 0..6),
    ) {
        let museum = museum();
        trees::body(&disturbed(&museum[which.index(museum.len())].1, &edits, &noise));
    }

    #[test]
    fn no_bytes_make_a_template_panic_or_fail_without_a_word(
        which in any::<prop::sample::Index>(), edits in edits(), noise in prop::collection::vec(any::<u8>(), 0..6),
    ) {
        templates::body(&disturbed(TEMPLATES[which.index(TEMPLATES.len())].as_bytes(), &edits, &noise));
    }
}
