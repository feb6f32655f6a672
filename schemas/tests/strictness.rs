//! Strictness, proven by walking the published schemas over one good sample of each document (B16, B20): whatever table,
//! key, number or word a type has is held here from the day it is added, because a sample that lacks it fails too. Tables
//! are written in each form that TOML has for them.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::fmt::Write as _;
use std::path::Path;

use jsonschema::Validator;
use meshplan_schemas::document::published;
use meshplan_schemas::finding::Finding;
use proptest::prelude::*;
use serde_json::Value;
use toml::{Table, Value as Toml};

#[path = "../../fuzz/bodies/documents.rs"]
mod documents;

/// Whatever the bytes are, the reader of this document says findings, and nothing else happens.
fn findings(name: &str, text: &str) -> Vec<Finding> {
    documents::body(name, text.as_bytes())
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

/// How tables are written: TOML has a header, a dotted key and an inline table for the same thing.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Form {
    /// `[a.b]` and `[[c]]`.
    Headers,
    /// `a.b.key = 1`, in inline tables and below `[[c]]` too.
    Dotted,
    /// `a = { b = { key = 1 } }` and `c = [{ .. }]`, each on a line.
    Inline,
}
const FORMS: [Form; 3] = [Form::Headers, Form::Dotted, Form::Inline];

fn written(table: &Table, form: Form) -> String {
    let mut text = String::new();
    match form {
        Form::Headers => return toml::to_string(table).unwrap(),
        Form::Inline => {
            for (key, value) in table {
                writeln!(text, "{} = {}", bare(key), inline(value, form)).unwrap();
            }
        }
        Form::Dotted => {
            let sections = |value: &Toml| {
                let array = value.as_array();
                array.is_some_and(|a| !a.is_empty() && a.iter().all(Toml::is_table))
            };
            let plain: Table = (table.iter())
                .filter(|(_, value)| !sections(value))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            for pair in pairs(&plain, form) {
                writeln!(text, "{pair}").unwrap();
            }
            for (key, value) in table.iter().filter(|(_, value)| sections(value)) {
                for element in value.as_array().unwrap() {
                    writeln!(text, "[[{}]]", bare(key)).unwrap();
                    for pair in pairs(element.as_table().unwrap(), form) {
                        writeln!(text, "{pair}").unwrap();
                    }
                }
            }
        }
    }
    text
}

/// `key = value` for each key of a table; for each key of the tables in it where those are dotted.
fn pairs(table: &Table, form: Form) -> Vec<String> {
    let of = |(key, value): (&String, &Toml)| match value {
        Toml::Table(inner) if form == Form::Dotted && !inner.is_empty() => pairs(inner, form)
            .into_iter()
            .map(|pair| format!("{}.{pair}", bare(key)))
            .collect(),
        _ => vec![format!("{} = {}", bare(key), inline(value, form))],
    };
    table.iter().flat_map(of).collect()
}

fn inline(value: &Toml, form: Form) -> String {
    match value {
        Toml::Table(table) => format!("{{ {} }}", pairs(table, form).join(", ")),
        Toml::Array(array) => {
            let elements: Vec<String> = array.iter().map(|e| inline(e, form)).collect();
            format!("[{}]", elements.join(", "))
        }
        _ => value.to_string(),
    }
}

/// A key, in quotes where it must be.
fn bare(key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if bare {
        key.to_owned()
    } else {
        format!("\"{key}\"")
    }
}

/// The table at the end of the steps; none where the sample has no such table.
fn at<'t>(table: &'t mut Table, steps: &[Step]) -> Option<&'t mut Table> {
    let (value, rest) = match steps {
        [] => return Some(table),
        [Step::Key(key), Step::First, rest @ ..] => (table.get_mut(key)?.as_array_mut()?.get_mut(0)?, rest),
        [Step::Key(key), rest @ ..] => (table.get_mut(key)?, rest),
        [Step::Any, rest @ ..] => (table.iter_mut().next()?.1, rest),
        [Step::First, ..] => return None,
    };
    at(value.as_table_mut()?, rest)
}

/// The sample with one table changed, in a form.
fn changed(name: &str, steps: &[Step], form: Form, act: impl FnOnce(&mut Table)) -> String {
    let mut document: Table = sample(name).parse().unwrap();
    match at(&mut document, steps) {
        Some(table) => act(table),
        None => panic!("the sample of {name} has no table at {steps:?}"),
    }
    written(&document, form)
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
    serde_json::to_value(toml::from_str::<Table>(text).unwrap()).unwrap()
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

/// What a finding points at in the text.
fn pointed_at<'t>(text: &'t str, finding: &Finding) -> &'t str {
    let line = usize::try_from(finding.line).unwrap().checked_sub(1);
    let line = line.and_then(|line| text.lines().nth(line)).unwrap_or_default();
    let column = usize::try_from(finding.column).unwrap().saturating_sub(1);
    line.char_indices()
        .nth(column)
        .map_or("", |(at, _)| line.get(at..).unwrap_or_default())
}

// holds: FR-1, FR-2
#[test]
fn a_sample_has_every_key_of_every_table_and_both_readers_take_it_in_every_form() {
    each(|name, tables, validator| {
        let document: Table = sample(name).parse().unwrap();
        let forms = FORMS.map(|form| written(&document, form));
        for text in forms.iter().chain([&sample(name)]) {
            assert_eq!(findings(name, text), [], "{name}: {text}");
            assert_eq!(text.parse::<Table>().unwrap(), document, "{name}: {text}");
        }
        let errors: Vec<String> = validator
            .iter_errors(&value_of(&sample(name)))
            .map(|e| e.to_string())
            .collect();
        assert_eq!(errors, Vec::<String>::new(), "{name}");
        for (steps, schema) in tables {
            changed(name, steps, Form::Headers, |table| {
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
    // The forms are what they are called.
    let table: Table = "a.b.c = 1\n[[d]]\ne.f = [{ g.h = 2 }]\n".parse().unwrap();
    assert_eq!(
        written(&table, Form::Headers),
        "[a.b]\nc = 1\n\n[[d]]\n\n[[d.e.f]]\n\n[d.e.f.g]\nh = 2\n"
    );
    assert_eq!(
        written(&table, Form::Dotted),
        "a.b.c = 1\n[[d]]\ne.f = [{ g.h = 2 }]\n"
    );
    assert_eq!(
        written(&table, Form::Inline),
        "a = { b = { c = 1 } }\nd = [{ e = { f = [{ g = { h = 2 } }] } }]\n"
    );
}

// holds: FR-1, B16
#[test]
fn one_misspelt_key_is_exactly_one_finding_with_its_path_and_the_nearest_key_in_every_form() {
    let mut walked = 0;
    each(|name, tables, validator| {
        for (steps, schema) in tables {
            assert_eq!(
                schema["additionalProperties"], false,
                "{name}: {steps:?} takes unknown keys"
            );
            let keys = schema["properties"].as_object().unwrap().keys();
            for (key, form) in keys.flat_map(|key| FORMS.map(|form| (key, form))) {
                walked += 1;
                let wrong = format!("{key}x");
                let text = changed(name, steps, form, |table| {
                    table.insert(wrong.clone(), Toml::Integer(1));
                });
                let said = findings(name, &text);
                let [only] = said.as_slice() else {
                    panic!("{name}: {}, {form:?}, gave {said:?}", path(steps, &wrong));
                };
                let named = only
                    .message
                    .strip_prefix("unknown key `")
                    .and_then(|m| m.strip_suffix('`'));
                assert!(
                    named.is_some_and(|n| same_path(n, &path(steps, &wrong))),
                    "{form:?}: {only:?}"
                );
                assert!(
                    only.help
                        .as_ref()
                        .is_some_and(|h| h.starts_with("did you mean `")),
                    "{only:?}"
                );
                assert!(
                    pointed_at(&text, only).starts_with(&format!("{wrong} = 1")),
                    "{form:?}: {only:?} in {text}"
                );
                assert!(
                    !validator.is_valid(&value_of(&text)),
                    "{name}: the schema takes {wrong}"
                );
            }
        }
    });
    assert!(walked > 750, "only {walked} keys were walked");
}

// holds: FR-1, B16
#[test]
fn half_a_group_is_an_error_in_every_form() {
    let mut walked = 0;
    let mut wrong: Vec<String> = Vec::new();
    each(|name, tables, validator| {
        for (steps, schema) in tables {
            let required: Vec<&str> = (schema["required"].as_array().into_iter().flatten())
                .filter_map(Value::as_str)
                .collect();
            // Each key that must be there, alone, and all of them: a group of which only the choices are left.
            let mut groups: Vec<Vec<&str>> = required.iter().map(|key| vec![*key]).collect();
            groups.extend((required.len() > 1).then_some(required));
            for (keys, form) in groups.iter().flat_map(|keys| FORMS.map(|form| (keys, form))) {
                walked += 1;
                let text = changed(name, steps, form, |table| {
                    table.retain(|key, _| !keys.contains(&key));
                });
                let said: Vec<String> = findings(name, &text).into_iter().map(|f| f.message).collect();
                let what = format!("{name} without {}, {form:?},", path(steps, &keys.join("+")));
                let missing = |key: &&str| {
                    let words = format!("the key `{key}` is missing");
                    said.iter().filter(|message| message.starts_with(&words)).count() == 1
                };
                if said.len() != keys.len() || !keys.iter().all(missing) {
                    wrong.push(format!("{what} gave {said:?}"));
                }
                if validator.is_valid(&value_of(&text)) {
                    wrong.push(format!("{what} is taken by the schema"));
                }
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(walked > 150, "only {walked} keys must be there");
}

// holds: FR-1, B16
#[test]
fn a_table_that_is_there_and_empty_is_not_a_table_that_is_left_out() {
    let mut walked = 0;
    each(|name, tables, validator| {
        for (steps, schema) in tables {
            let required = schema["required"].as_array().map_or(0, Vec::len);
            if required == 0 || steps.is_empty() {
                continue;
            }
            for form in FORMS {
                walked += 1;
                let text = changed(name, steps, form, Table::clear);
                assert_eq!(findings(name, &text).len(), required, "{name}: {text}");
                assert!(!validator.is_valid(&value_of(&text)), "{name}: {text}");
            }
        }
    });
    assert!(walked > 50, "only {walked} tables were emptied");
}

// holds: FR-13, B20
#[test]
fn a_number_outside_its_range_and_a_word_that_is_none_are_exactly_one_finding() {
    let mut walked = 0;
    let mut wrong: Vec<String> = Vec::new();
    each(|name, tables, validator| {
        for (steps, schema) in tables {
            for (key, of) in schema["properties"].as_object().unwrap() {
                let mut bad: Vec<Toml> = vec![Toml::Float(1.5)];
                if let (Some(min), Some(max)) = (of["minimum"].as_i64(), of["maximum"].as_i64()) {
                    bad.extend([min - 1, max + 1, i64::MAX, i64::MIN].map(Toml::Integer));
                    // What a narrowing would make a good number of.
                    bad.extend(
                        [16, 32]
                            .map(|bits| Toml::Integer((1_i64 << bits) + min))
                            .into_iter()
                            .filter(|wide| wide.as_integer().is_some_and(|wide| wide > max)),
                    );
                }
                if of["enum"].is_array() || of["pattern"].is_string() {
                    bad.push("\u{1b} no such word".into());
                }
                if of["type"] == "boolean" {
                    bad.push("yes".into());
                }
                for value in bad {
                    walked += 1;
                    let words = value.to_string();
                    let text = changed(name, steps, Form::Headers, |table| {
                        table.insert(key.clone(), value);
                    });
                    let said = findings(name, &text);
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
    assert!(walked > 500, "only {walked} values were tried");
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
    fn no_bytes_make_a_reader_panic_or_say_nothing(
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
        documents::body(name, &bytes);
    }
}
