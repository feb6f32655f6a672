//! Strictness, proven by walking the published schemas over one good sample of each document (B16, B20): whatever table,
//! key, number or word a type has is held here from the day it is added, because a sample that lacks it fails too.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::path::Path;

use jsonschema::Validator;
use meshplan_schemas::document::read::{self, Read};
use meshplan_schemas::document::{
    ChecksFile, FleetFile, ModuleFile, NodeFile, PlanFile, PolicyFile, RetiredFile, RotationsFile, published,
};
use meshplan_schemas::finding::{Finding, Source};
use proptest::prelude::*;
use serde_json::Value;
use toml_edit::{DocumentMut, Item, TableLike};

fn findings_of<T: Read>(bytes: &[u8]) -> Vec<Finding> {
    let mut findings = Vec::new();
    match Source::new("a.toml", bytes.into()) {
        Ok(source) => {
            let _: Option<T> = read::document(&source, &mut findings);
        }
        Err(finding) => findings.push(finding),
    }
    findings
}

/// Whatever the bytes are, the reader of this document says findings, and nothing else happens.
fn findings(name: &str, bytes: &[u8]) -> Vec<Finding> {
    match name {
        "checks" => findings_of::<ChecksFile>(bytes),
        "fleet" => findings_of::<FleetFile>(bytes),
        "module" => findings_of::<ModuleFile>(bytes),
        "node" => findings_of::<NodeFile>(bytes),
        "plan" => findings_of::<PlanFile>(bytes),
        "policy" => findings_of::<PolicyFile>(bytes),
        "retired" => findings_of::<RetiredFile>(bytes),
        "rotations" => findings_of::<RotationsFile>(bytes),
        other => panic!("no reader for {other}"),
    }
}

fn sample(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/samples/{name}.toml"));
    std::fs::read_to_string(path).unwrap()
}

/// One step to a table.
#[derive(Clone, PartialEq, Debug)]
enum Step {
    Key(String),
    /// The first of an array.
    First,
    /// The first of free keys.
    Any,
}

/// Every table of a schema with known keys, and the steps to it.
fn tables<'s>(schema: &'s Value, steps: &mut Vec<Step>, found: &mut Vec<(Vec<Step>, &'s Value)>) {
    if schema["properties"].is_object() {
        found.push((steps.clone(), schema));
    }
    for (key, of) in schema["properties"].as_object().into_iter().flatten() {
        steps.push(Step::Key(key.clone()));
        if of["items"].is_object() {
            steps.push(Step::First);
            tables(&of["items"], steps, found);
            steps.pop();
        } else if of["additionalProperties"].is_object() {
            steps.push(Step::Any);
            tables(&of["additionalProperties"], steps, found);
            steps.pop();
        } else {
            tables(of, steps, found);
        }
        steps.pop();
    }
}

/// Does something with the table at the end of the steps; none where the sample has no such table.
fn at<R>(item: &mut Item, steps: &[Step], act: impl FnOnce(&mut dyn TableLike) -> R) -> Option<R> {
    match steps {
        [] => item.as_table_like_mut().map(act),
        [Step::Key(key), Step::First, rest @ ..] => match item.as_table_like_mut()?.get_mut(key)? {
            Item::ArrayOfTables(tables) => {
                let mut first = Item::Table(tables.get(0)?.clone());
                let done = at(&mut first, rest, act)?;
                *tables.get_mut(0)? = first.into_table().ok()?;
                Some(done)
            }
            Item::Value(toml_edit::Value::Array(array)) => {
                let mut first = Item::Value(array.get(0)?.clone());
                let done = at(&mut first, rest, act)?;
                array.replace(0, first.into_value().ok()?);
                Some(done)
            }
            _ => None,
        },
        [Step::Key(key), rest @ ..] => at(item.as_table_like_mut()?.get_mut(key)?, rest, act),
        [Step::Any, rest @ ..] => {
            let key = item.as_table_like_mut()?.iter().next()?.0.to_owned();
            at(item.as_table_like_mut()?.get_mut(&key)?, rest, act)
        }
        [Step::First, ..] => None,
    }
}

/// The sample with one table changed.
fn changed(name: &str, steps: &[Step], act: impl FnOnce(&mut dyn TableLike)) -> String {
    let mut document: DocumentMut = sample(name).parse().unwrap();
    let done = at(document.as_item_mut(), steps, act);
    assert!(done.is_some(), "the sample of {name} has no table at {steps:?}");
    document.to_string()
}

/// The key path as a finding says it.
fn path(steps: &[Step], key: &str) -> String {
    let mut path: Vec<&str> = Vec::new();
    for step in steps {
        match step {
            Step::Key(key) => path.push(key),
            Step::Any => path.push("*"),
            Step::First => {}
        }
    }
    path.push(key);
    path.join(".")
}
fn same_path(said: &str, path: &str) -> bool {
    let (said, path): (Vec<&str>, Vec<&str>) = (said.split('.').collect(), path.split('.').collect());
    said.len() == path.len() && said.iter().zip(&path).all(|(s, p)| *p == "*" || s == p)
}

fn value_of(text: &str) -> Value {
    serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap()
}
fn validator(schema: &Value) -> Validator {
    jsonschema::validator_for(schema).unwrap()
}

/// Each document with its schema, the schema's tables, and what a third party makes of the schema.
fn each(mut act: impl FnMut(&str, &[(Vec<Step>, &Value)], &Validator)) {
    for name in published::NAMES {
        let schema = published::value(name);
        let mut found = Vec::new();
        tables(&schema, &mut Vec::new(), &mut found);
        act(name, &found, &validator(&schema));
    }
}

// holds: FR-1, FR-2
#[test]
fn a_sample_has_every_key_of_every_table_and_both_readers_take_it() {
    each(|name, tables, validator| {
        assert_eq!(findings(name, sample(name).as_bytes()), [], "{name}");
        let errors: Vec<String> = validator
            .iter_errors(&value_of(&sample(name)))
            .map(|e| e.to_string())
            .collect();
        assert_eq!(errors, Vec::<String>::new(), "{name}");
        for (steps, schema) in tables {
            changed(name, steps, |table| {
                for key in schema["properties"].as_object().unwrap().keys() {
                    assert!(
                        table.contains_key(key),
                        "the sample of {name} lacks {}",
                        path(steps, key)
                    );
                }
            });
        }
    });
}

// holds: FR-1
#[test]
fn one_misspelt_key_is_exactly_one_finding_with_its_path_and_the_nearest_key() {
    let mut walked = 0;
    each(|name, tables, validator| {
        for (steps, schema) in tables {
            assert_eq!(
                schema["additionalProperties"], false,
                "{name}: {steps:?} takes unknown keys"
            );
            for key in schema["properties"].as_object().unwrap().keys() {
                walked += 1;
                let wrong = format!("{key}x");
                let text = changed(name, steps, |table| {
                    table.insert(&wrong, toml_edit::value(1));
                });
                let said = findings(name, text.as_bytes());
                let [only] = said.as_slice() else {
                    panic!("{name}: {} gave {said:?}", path(steps, &wrong));
                };
                let named = only
                    .message
                    .strip_prefix("unknown key `")
                    .and_then(|m| m.strip_suffix('`'));
                assert!(
                    named.is_some_and(|n| same_path(n, &path(steps, &wrong))),
                    "{only:?}"
                );
                assert!(
                    only.help
                        .as_ref()
                        .is_some_and(|h| h.starts_with("did you mean `")),
                    "{only:?}"
                );
                assert!(only.source.contains(&wrong) && only.line > 0, "{only:?}");
                assert!(
                    !validator.is_valid(&value_of(&text)),
                    "{name}: the schema takes {wrong}"
                );
            }
        }
    });
    assert!(walked > 250, "only {walked} keys were walked");
}

// holds: FR-1
#[test]
fn half_a_group_is_an_error() {
    let mut walked = 0;
    let mut wrong: Vec<String> = Vec::new();
    each(|name, tables, validator| {
        for (steps, schema) in tables {
            for key in schema["required"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                walked += 1;
                let text = changed(name, steps, |table| {
                    table.remove(key);
                });
                let said = findings(name, text.as_bytes());
                let what = format!("{name} without {}", path(steps, key));
                let missing = format!("the key `{key}` is missing");
                if !matches!(said.as_slice(), [only] if only.message.starts_with(&missing)) {
                    wrong.push(format!("{what} gave {said:?}"));
                }
                if validator.is_valid(&value_of(&text)) {
                    wrong.push(format!("{what} is taken by the schema"));
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(walked > 40, "only {walked} keys must be there");
}

// holds: FR-13
#[test]
fn a_number_outside_its_range_and_a_word_that_is_none_are_exactly_one_finding() {
    let mut walked = 0;
    let mut wrong: Vec<String> = Vec::new();
    each(|name, tables, validator| {
        for (steps, schema) in tables {
            for (key, of) in schema["properties"].as_object().unwrap() {
                let mut bad: Vec<Item> = vec![toml_edit::value(1.5)];
                if let (Some(min), Some(max)) = (of["minimum"].as_i64(), of["maximum"].as_i64()) {
                    bad.extend([min - 1, max + 1, i64::MAX].map(toml_edit::value));
                }
                if of["enum"].is_array() || of["pattern"].is_string() {
                    bad.push(toml_edit::value("\u{1b} no such word"));
                }
                if of["type"] == "boolean" {
                    bad.push(toml_edit::value("yes"));
                }
                for item in bad {
                    walked += 1;
                    let words = item.to_string();
                    let text = changed(name, steps, |table| {
                        table.insert(key, item);
                    });
                    let said = findings(name, text.as_bytes());
                    let what = format!("{name}: {} = {words}", path(steps, key));
                    if said.len() != 1 || !said[0].message.contains(key.as_str()) {
                        wrong.push(format!("{what} gave {said:?}"));
                    }
                    if validator.is_valid(&value_of(&text)) {
                        wrong.push(format!("{what} is taken by the schema"));
                    }
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(walked > 300, "only {walked} values were tried");
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_bytes_make_a_reader_panic(
        which in 0..published::NAMES.len(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..5_u8), 1..6),
        noise in prop::collection::vec(any::<u8>(), 0..6),
    ) {
        let name = published::NAMES[which];
        let mut bytes = sample(name).into_bytes();
        for (from, to, how) in cuts {
            if bytes.is_empty() {
                break;
            }
            let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
            match how {
                0 => bytes[from] = noise.first().copied().unwrap_or(0xff),
                1 => drop(bytes.drain(from.min(to)..from.max(to).min(from.min(to) + 40))),
                2 => drop(bytes.splice(from..from, noise.iter().copied())),
                3 => bytes.truncate(from),
                _ => {
                    let piece: Vec<u8> = bytes[from.min(to)..from.max(to)].iter().copied().take(60).collect();
                    drop(bytes.splice(to..to, piece));
                }
            }
        }
        for finding in findings(name, &bytes) {
            prop_assert!(!finding.render(false).is_empty());
        }
    }
}
