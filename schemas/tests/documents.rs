//! Documents as people and their tools write them: byte-order marks, line ends, several mistakes at once, the example.

use std::path::{Path, PathBuf};

use meshplan_schemas::document::read::{self, Read};
use meshplan_schemas::document::{FleetFile, NodeFile, PlanFile, published};
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

// holds: FR-1, B21
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

// holds: FR-1, B21
#[test]
fn a_plan_as_a_windows_editor_saves_it_is_taken_or_the_mark_is_named() {
    let plan = "covers = [\"*\"]\n[[stage]]\nname = \"rest\"\nrest = true\n";
    let windows = plan.replace('\n', "\r\n");
    let utf16 = |text: &str, order: fn(u16) -> [u8; 2], mark: bool| -> Vec<u8> {
        let mark = mark.then_some(0xfeff);
        mark.into_iter()
            .chain(text.encode_utf16())
            .flat_map(order)
            .collect()
    };
    let said = |bytes: &[u8]| findings_of::<PlanFile>(bytes);
    for good in [
        plan,
        &windows,
        &format!("\u{feff}{plan}"),
        &format!("\u{feff}{windows}"),
    ] {
        assert_eq!(said(good.as_bytes()), [], "{good:?}");
    }
    for (bytes, part) in [
        (utf16(plan, u16::to_le_bytes, true), "UTF-16"),
        (utf16(&windows, u16::to_be_bytes, true), "UTF-16"),
        // Without a mark it is text with zeroes in it.
        (utf16(plan, u16::to_le_bytes, false), ""),
        (
            plan.replace("name", "\u{feff}name").into_bytes(),
            "byte-order mark",
        ),
        (format!("\u{feff}\u{feff}{plan}").into_bytes(), "byte-order mark"),
        (plan.replace('\n', "\r").into_bytes(), ""),
    ] {
        let findings = said(&bytes);
        let words: String = findings.iter().map(|f| f.render(false)).collect();
        assert!(
            !findings.is_empty() && words.contains(part),
            "{part:?} is not in {words}"
        );
    }
    // In a text it is a character like any other, and stays.
    assert_eq!(said(plan.replace("rest\"", "rest\" # \u{feff}").as_bytes()), []);
}

// holds: FR-1, B21
#[test]
fn a_table_written_twice_is_refused_in_every_mixture_of_forms() {
    for text in [
        "[config_mgmt]\nconfirm_secs = 1\n[config_mgmt]\napply_secs = 1\n",
        "config_mgmt.confirm_secs = 1\n[config_mgmt]\napply_secs = 1\n",
        "config_mgmt = { confirm_secs = 1 }\n[config_mgmt]\napply_secs = 1\n",
        "config_mgmt = { confirm_secs = 1 }\nconfig_mgmt.apply_secs = 1\n",
        "config_mgmt.confirm_secs = 1\nconfig_mgmt = { apply_secs = 1 }\n",
        "config_mgmt = { confirm_secs = 1, confirm_secs = 2 }\n",
        "[config_mgmt]\nconfirm_secs = 1\n\"confirm_secs\" = 1\n",
        "[[components]]\nrepo = \"a/b\"\n[components]\nbranch = \"main\"\n",
        "components = []\n[[components]]\nrepo = \"a/b\"\n",
    ] {
        let findings = findings_of::<FleetFile>(text.as_bytes());
        assert!(
            findings
                .iter()
                .any(|f| f.message.contains("duplicate key") || f.message.contains("extend")),
            "{text:?}: {findings:?}"
        );
    }
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
