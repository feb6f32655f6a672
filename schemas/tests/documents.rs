//! Documents as people and their tools write them: byte-order marks, line ends, several mistakes at once, the example.

use std::path::{Path, PathBuf};

use meshplan_schemas::document::read::{self, Read};
use meshplan_schemas::document::{NodeFile, published};
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

fn findings(bytes: &[u8]) -> Vec<Finding> {
    findings_of::<NodeFile>(bytes)
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
        assert_eq!(findings(text.as_bytes()), [], "{text:?}");
    }
    let bad = format!("\u{feff}{}", windows.replace("roles", "rolse"));
    let said = findings(bad.as_bytes());
    assert_eq!(
        (said[0].line, said[0].column, said[0].source.as_str()),
        (2, 1, "rolse = [\"web\"]")
    );
}

#[test]
fn all_mistakes_of_a_document_are_said_together() {
    let text = "id = 1\nrolse = []\nmodules = [1, \"Web\", \"ok\"]\npinned = 3\nlifeline = \"no\"\n";
    let lines: Vec<u32> = findings(text.as_bytes()).iter().map(|f| f.line).collect();
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
