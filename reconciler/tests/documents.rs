//! Documents at their places in a tree: each sample is read where a fleet has it, and an overlay is read as strictly as
//! the policy for every node.
#![expect(clippy::unwrap_used, reason = "a test says why by failing")]

use std::sync::Arc;

use meshplan_reconciler::pure::parse::{Documents, parse};
use meshplan_reconciler::pure::source_tree::{EntryKind, SourceTree};
use meshplan_reconciler::pure::validate::validate;
use meshplan_schemas::document::published;
use meshplan_schemas::finding::Finding;
use serde_json::Value;

/// Where a fleet has a document of each kind; policy stands at two.
const PLACES: [(&str, &str); 9] = [
    ("checks", "checks/edges.toml"),
    ("fleet", "fleet.toml"),
    ("module", "modules/web/module.toml"),
    ("node", "nodes/ams/ace.toml"),
    ("plan", "plans/default.toml"),
    ("policy", "policy/base.toml"),
    ("policy", "policy/roles/edge.toml"),
    ("retired", "secrets/retired.toml"),
    ("rotations", "rotations.toml"),
];

fn sample(name: &str) -> String {
    let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/tests/samples");
    std::fs::read_to_string(format!("{samples}/{name}.toml")).unwrap()
}

fn parsed(path: &str, text: &str) -> (Documents, Vec<Finding>) {
    let entry = (path.into(), EntryKind::Blob, Arc::from(text.as_bytes()));
    parse(&SourceTree::from_entries(vec![entry]).0)
}

// holds: FR-1
#[test]
fn every_sample_is_read_at_its_place_and_one_key_more_is_refused_there() {
    for name in published::NAMES {
        assert!(PLACES.iter().any(|(of, _)| *of == name), "{name} has no place");
    }
    for (name, path) in PLACES {
        assert_eq!(parsed(path, &sample(name)).1, [], "{path}");
        let (_, said) = parsed(path, &format!("unheard_of = 1\n{}", sample(name)));
        let said: Vec<_> = said
            .iter()
            .map(|f| (f.file.as_str(), f.line, f.message.as_str()))
            .collect();
        assert_eq!(said, [(path, 1, "unknown key `unheard_of`")]);
    }
}

/// The paths of every key of the tables of a schema; arrays are not gone into.
fn keys(schema: &Value, path: &str, found: &mut Vec<String>) {
    for (key, of) in schema["properties"].as_object().into_iter().flatten() {
        found.push(format!("{path}{key}"));
        keys(of, &format!("{path}{key}."), found);
    }
}

// holds: FR-1, FR-6, B16
#[test]
fn a_misspelt_key_of_an_overlay_is_found_as_in_the_policy_of_all() {
    let overlay = "policy/roles/edge.toml";
    let (documents, _) = parsed(overlay, &sample("policy"));
    assert!(documents.overlays["edge"].read.is_some());
    let mut known = Vec::new();
    keys(&published::value("policy"), "", &mut known);
    assert!(known.len() > 20, "only {known:?}");
    for key in known {
        let (table, name) = key
            .rsplit_once('.')
            .map_or((None, key.as_str()), |(t, n)| (Some(t), n));
        let forms = match table {
            None => vec![format!("{name}x = 1\n")],
            Some(table) => vec![
                format!("{table}.{name}x = 1\n"),
                format!("[{table}]\n{name}x = 1\n"),
                format!("{table} = {{ {name}x = 1 }}\n"),
            ],
        };
        for text in forms {
            let (documents, said) = parsed(overlay, &text);
            let [only] = said.as_slice() else {
                unreachable!("{text} gave {said:?}")
            };
            assert_eq!(
                (only.file.as_str(), only.message.clone()),
                (overlay, format!("unknown key `{key}x`"))
            );
            assert!(
                only.help
                    .as_ref()
                    .is_some_and(|help| help.contains("did you mean `")),
                "{only:?}"
            );
            assert!(validate(documents).is_err(), "{text} was taken");
        }
    }
}
