//! The strictness of documents, walked over the published schemas so that a new table is covered when it is added.
#![expect(clippy::panic, reason = "a test says why by failing")]

use std::path::{Path, PathBuf};

use meshplan_schemas::document::read::{self, Read};
use meshplan_schemas::document::{FleetFile, ModuleFile, NodeFile, PlanFile, PolicyFile, published};
use meshplan_schemas::finding::{Finding, Source};
use serde_json::Value;

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

fn findings(name: &str, bytes: &[u8]) -> Vec<Finding> {
    match name {
        "fleet" => findings_of::<FleetFile>(bytes),
        "module" => findings_of::<ModuleFile>(bytes),
        "node" => findings_of::<NodeFile>(bytes),
        "plan" => findings_of::<PlanFile>(bytes),
        "policy" => findings_of::<PolicyFile>(bytes),
        other => panic!("no reader for {other}"),
    }
}

/// One step to a table: its key, and whether it is an array of tables.
type Step = (String, bool);

/// Every table of a schema: the steps to it, its keys, and whether other keys are free.
fn tables(schema: &Value, steps: &mut Vec<Step>, found: &mut Vec<(Vec<Step>, Vec<String>, bool)>) {
    let mut into = |key: &str, schema: &Value, steps: &mut Vec<Step>| {
        let (of, array) = match schema.get("items") {
            Some(items) => (items, true),
            None => (schema, false),
        };
        steps.push((key.to_owned(), array));
        tables(of, steps, found);
        steps.pop();
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, schema) in properties.into_iter().flatten() {
        into(key, schema, steps);
    }
    if let Some(any) = schema.get("additionalProperties").filter(|any| any.is_object()) {
        into("any", any, steps);
    }
    if let Some(properties) = properties {
        let strict = schema.get("additionalProperties") == Some(&Value::Bool(false));
        found.push((steps.clone(), properties.keys().cloned().collect(), strict));
    }
}

fn toml_with(steps: &[Step], line: &str) -> String {
    let mut text = String::new();
    let mut path = Vec::new();
    for (at, (key, array)) in steps.iter().enumerate() {
        path.push(key.as_str());
        let path = path.join(".");
        if *array {
            text += &format!("[[{path}]]\n");
        } else if at + 1 == steps.len() {
            text += &format!("[{path}]\n");
        }
    }
    text + line
}

// holds: FR-1
#[test]
fn an_unknown_key_is_an_error_in_every_table_at_every_depth_with_the_nearest_key() {
    let mut walked = 0;
    for name in published::NAMES {
        let schema: Value = serde_json::from_str(&published::schema(name).unwrap()).unwrap();
        let mut found = Vec::new();
        tables(&schema, &mut Vec::new(), &mut found);
        assert!(!found.is_empty());
        for (steps, keys, strict) in found {
            walked += 1;
            assert!(strict, "{name}: {steps:?} takes unknown keys");
            for key in &keys {
                // One letter too many: misspelt, and nothing else.
                let text = toml_with(&steps, &format!("{key}x = 1\n"));
                let path: Vec<&str> = steps.iter().map(|(k, _)| k.as_str()).collect();
                let path = [path, vec![&format!("{key}x")]].concat().join(".");
                let said = findings(name, text.as_bytes());
                let line = u32::try_from(text.lines().count()).unwrap();
                let hit = said.iter().find(|f| f.message == format!("unknown key `{path}`"));
                let Some(hit) = hit else {
                    panic!("{name}: {text}gave {said:?}");
                };
                assert_eq!((hit.line, hit.column), (line, 1), "{name}: {text}");
                assert!(
                    hit.help.as_ref().is_some_and(|h| h.starts_with("did you mean `")),
                    "{hit:?}"
                );
            }
        }
    }
    assert!(walked >= 21, "only {walked} tables were found");
}

// holds: FR-13
#[test]
fn every_number_has_a_range_and_a_number_outside_is_an_error() {
    let mut walked = 0;
    for name in published::NAMES {
        let schema: Value = serde_json::from_str(&published::schema(name).unwrap()).unwrap();
        let mut found = Vec::new();
        tables(&schema, &mut Vec::new(), &mut found);
        for (steps, keys, _) in found {
            let mut of = &schema;
            for (key, array) in &steps {
                of = of
                    .pointer(&format!("/properties/{key}"))
                    .unwrap_or(&of["additionalProperties"]);
                of = if *array { &of["items"] } else { of };
            }
            for key in keys {
                let value = &of["properties"][&key];
                let (Some(min), Some(max)) = (value["minimum"].as_i64(), value["maximum"].as_i64()) else {
                    continue;
                };
                walked += 1;
                let said = |number: i128| {
                    let text = toml_with(&steps, &format!("{key} = {number}\n"));
                    let said = findings(name, text.as_bytes());
                    said.into_iter()
                        .any(|f| f.source.starts_with(&format!("{key} = ")))
                };
                for bad in [
                    i128::from(min) - 1,
                    i128::from(max) + 1,
                    i128::from(i64::MAX),
                    i128::from(u64::MAX),
                ] {
                    assert!(said(bad), "{name}: {steps:?} {key} = {bad} was taken");
                }
                assert!(
                    !said(min.into()) && !said(max.into()),
                    "{name}: {steps:?} {key} refuses its own range"
                );
            }
        }
    }
    assert!(walked >= 20, "only {walked} numbers were found");
}

const RECORD: &str =
    "id = \"0192f0c1-0000-7000-8000-000000000001\"\nroles = [\"web\"]\n[vars]\nsite = \"a\"\n";

// holds: FR-1
#[test]
fn a_byte_order_mark_and_windows_line_ends_are_accepted() {
    let windows = RECORD.replace('\n', "\r\n");
    for text in [
        RECORD.to_owned(),
        format!("\u{feff}{RECORD}"),
        windows.clone(),
        format!("\u{feff}{windows}"),
    ] {
        assert_eq!(findings("node", text.as_bytes()), [], "{text:?}");
    }
    let bad = format!("\u{feff}{}", windows.replace("roles", "rolse"));
    let said = findings("node", bad.as_bytes());
    assert_eq!(
        (said[0].line, said[0].column, said[0].source.as_str()),
        (2, 1, "rolse = [\"web\"]")
    );
}

#[test]
fn all_mistakes_of_a_document_are_said_together() {
    let text = "id = 1\nrolse = []\nmodules = [1, \"Web\", \"ok\"]\npinned = 3\nlifeline = \"no\"\n";
    let lines: Vec<u32> = findings("node", text.as_bytes()).iter().map(|f| f.line).collect();
    let mut sorted = lines.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [1, 2, 3, 3, 4, 5]);
}

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart")
}

// holds: FR-2
#[test]
fn the_published_schemas_take_the_example_and_refuse_what_the_reader_refuses() {
    let cases = [
        ("fleet", "fleet.toml"),
        ("node", "nodes/ace.toml"),
        ("module", "modules/web/module.toml"),
        ("plan", "plans/default.toml"),
        ("policy", "policy/base.toml"),
    ];
    for (name, file) in cases {
        let schema: Value = serde_json::from_str(&published::schema(name).unwrap()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let text = std::fs::read_to_string(examples().join(file)).unwrap();
        let value: Value = serde_json::to_value(toml::from_str::<toml::Table>(&text).unwrap()).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new(), "{file}");
        let mut bad = value.clone();
        bad["unheard_of"] = 1.into();
        assert!(!validator.is_valid(&bad), "{file} with an unknown key");
    }
}
