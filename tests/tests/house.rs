//! The rules of the house, held against the workspace; each rule is first shown to fail on a made-up violation.

use std::fs;
use std::path::Path;
use std::process::Command;

use meshplan_schemas::document::published;
use scenarios::house::arrows::{self, MANIFESTS, Manifest, refused_dependencies};
use scenarios::house::documents::{self, STAND_IN};
use scenarios::house::paths::used_paths;
use scenarios::house::{SourceFile, files, requirements, shape, workspace};
use scenarios::program;

fn rust_files() -> Vec<SourceFile> {
    let found = files(&workspace(), "rs").expect("the workspace can be read");
    assert!(
        found.iter().any(|f| f.path == "schemas/src/lib.rs"),
        "the workspace was not found at {}",
        workspace().display()
    );
    found
}

/// The documents for users: what stands in the root and below `docs/`, without the design pages.
fn documents_for_users() -> Vec<SourceFile> {
    let mut found = files(&workspace(), "md").expect("the workspace can be read");
    found.retain(|f| {
        !f.path.contains('/') || f.path.starts_with("docs/") && !f.path.starts_with("docs/design/")
    });
    assert!(
        found.iter().any(|f| f.path == "README.md"),
        "there is no README.md"
    );
    found
}

fn used(path: &str, text: &str) -> Vec<String> {
    let file = SourceFile::new(path, text);
    arrows::violations(&file)
        .into_iter()
        .map(|v| format!("{} {}", v.place, v.used))
        .collect()
}

// --- arrows --------------------------------------------------------------------------------------------------------

#[test]
fn no_room_knows_what_it_may_not_know() {
    let found: Vec<String> = rust_files()
        .iter()
        .flat_map(arrows::violations)
        .map(|v| format!("{}: `{}`: {}", v.place, v.used, v.why))
        .collect();
    assert!(
        found.is_empty(),
        "arrows that point the wrong way:\n{}",
        found.join("\n")
    );
}

#[test]
fn manifests_name_no_crate_that_their_room_may_not_know() {
    for (path, rule) in MANIFESTS {
        let text = fs::read_to_string(workspace().join(path)).expect("every member has a manifest");
        let refused = refused_dependencies(&text, *rule).expect("a manifest is TOML");
        assert!(
            refused.is_empty(),
            "{path} may not depend on {}",
            refused.join(", ")
        );
    }
}

#[test]
fn an_arrow_that_points_the_wrong_way_is_seen_however_it_is_written() {
    let pure = "reconciler/src/pure/diff.rs";
    for bad in [
        "use crate::edge::store::Store;",
        "use crate::{pure::act, edge};",
        "use super::super::edge;",
        "fn f() { crate::edge::notes::append() }",
        "use std::{fmt, fs as files};",
        "use std::collections::{BTreeMap, HashMap};\nuse std::process::Command;",
        "let now = std::time::SystemTime::now();",
        "use std::time::{Duration, Instant};",
        "pub async fn decide() {}",
        "#[tokio::main]\nfn main() {}",
        "use git2::Repository;",
        "use crate::*;",
        "let id = uuid::Uuid::new_v4();",
        "use super::decide::decide;",
        "use crate::pure::decide;",
        "use meshplan_host::kinds;",
    ] {
        assert_eq!(
            used(pure, bad).len(),
            1,
            "not seen, or seen more than once: {bad}: {:?}",
            used(pure, bad)
        );
    }
    assert_eq!(
        used("schemas/src/wire.rs", "use meshplan_reconciler::pure;").len(),
        1
    );
    assert_eq!(used("schemas/src/wire.rs", "use reqwest::Client;").len(), 1);
    assert_eq!(
        used("host/src/edge/link.rs", "use meshplan_reconciler::pure;").len(),
        1
    );
    assert_eq!(
        used("reconciler/src/edge/store.rs", "use crate::cli::exit;").len(),
        1
    );
    assert_eq!(
        used(
            "reconciler/src/pure/parse/plan.rs",
            "use super::super::validate::X;"
        )
        .len(),
        1
    );
}

#[test]
fn arrows_that_point_the_right_way_are_left_alone() {
    let pure = "reconciler/src/pure/diff.rs";
    for good in [
        "use super::compose::Composed;\nuse meshplan_schemas::digest::Digest;",
        "use std::{collections::BTreeMap, fmt};",
        "//! Never `use tokio::fs`.\n/* use git2; /* crate::edge */ */",
        "const TEXT: &str = \"use tokio;\";\nconst RAW: &str = r#\"\"crate::edge\"\"#;",
        "fn quote(c: char) -> bool { c == '\"' }\nfn life<'a>(x: &'a str) -> &'a str { x }",
        "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n",
    ] {
        assert_eq!(used(pure, good), Vec::<String>::new(), "refused: {good}");
    }
    assert!(
        used(
            "reconciler/src/edge/store.rs",
            "use sqlx::Pool;\nuse crate::pure::act::Act;"
        )
        .is_empty()
    );
    assert!(used("reconciler/src/pure/decide.rs", "use super::diff::legs;").is_empty());
}

#[test]
fn a_violation_names_its_line() {
    let text = "//! x\n\nuse std::fmt;\nuse std::{\n    collections::BTreeMap,\n    fs,\n};\n";
    assert_eq!(
        used("schemas/src/wire.rs", text),
        ["schemas/src/wire.rs:6 std::fs"]
    );
    let paths = used_paths("use a::{b::{c, d}, e};", &[]);
    let written: Vec<String> = paths.iter().map(|p| p.segments.join("::")).collect();
    assert_eq!(written, ["use", "a::b::c", "a::b::d", "a::e"]);
}

#[test]
fn a_manifest_with_a_crate_of_another_room_is_refused() {
    let text = "[dependencies]\nserde.workspace = true\ntokio = { version = \"1\" }\n[dev-dependencies]\nsqlx = \"1\"\n";
    assert_eq!(
        refused_dependencies(text, Manifest::Not(&["tokio", "sqlx"])).unwrap(),
        ["tokio"]
    );
    assert_eq!(
        refused_dependencies(text, Manifest::Only(&["tokio"])).unwrap(),
        ["serde"]
    );
    assert!(refused_dependencies("[dependencies", Manifest::Not(&[])).is_err());
}

// --- shape ---------------------------------------------------------------------------------------------------------

#[test]
fn files_are_named_for_what_they_hold_open_with_their_story_and_stay_short() {
    let faults: Vec<String> = rust_files().iter().flat_map(shape::faults).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_file_without_shape_is_seen() {
    let story = "//! A story.\n";
    let faults = |path: &str, text: &str| shape::faults(&SourceFile::new(path, text)).len();
    assert_eq!(faults("host/src/link.rs", story), 0);
    assert_eq!(faults("host/src/link/mod.rs", story), 1);
    assert_eq!(faults("host/src/utils.rs", story), 1);
    assert_eq!(faults("host/src/common/link.rs", story), 1);
    assert_eq!(faults("host/src/link.rs", "use std::fmt;\n"), 1);
    assert_eq!(faults("host/src/link.rs", "//!\n"), 1);
    assert_eq!(faults("host/src/link/tests.rs", "use super::*;\n"), 0);
    assert_eq!(
        faults("host/src/link.rs", &format!("{story}{}", "\n".repeat(600))),
        1
    );
}

// --- requirement ids -----------------------------------------------------------------------------------------------

const UNCOVERED: &str = "docs/design/uncovered.txt";

fn listed() -> Vec<String> {
    let text = fs::read_to_string(workspace().join(UNCOVERED)).expect("the list of uncovered ids is there");
    text.lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// `BLESS=1` takes what is held now out of the list; ids enter it by hand only.
#[test]
fn the_list_of_requirements_without_a_test_is_true() {
    let mut pages = files(&workspace().join("docs/design"), "md").expect("the design pages are there");
    pages.retain(|page| page.path.chars().next().is_some_and(|c| c.is_ascii_digit()));
    let defined = requirements::defined(&pages);
    assert!(
        defined.len() > 100,
        "the pages define {} ids; were they read?",
        defined.len()
    );
    let held = requirements::held(&rust_files());
    let mut uncovered = listed();
    if std::env::var_os("BLESS").is_some() {
        uncovered = requirements::shrunk(&uncovered, &held);
        let mut text = "# Requirement ids of the design pages that no test holds yet, sorted; it may only shrink.\n\
                        # BLESS=1 cargo nextest run --workspace -E 'binary(house)' takes out what is held now.\n"
            .to_owned();
        text.extend(uncovered.iter().flat_map(|id| [id.as_str(), "\n"]));
        fs::write(workspace().join(UNCOVERED), text).expect("the list can be written");
    }
    let faults = requirements::faults(&defined, &held, &uncovered);
    assert!(
        faults.is_empty(),
        "{UNCOVERED} is not true (BLESS=1 takes out what is held now):\n{}",
        faults.join("\n")
    );
}

#[test]
fn a_list_that_is_not_true_is_seen() {
    let page = SourceFile::new(
        "03.md",
        "**DL-1** One. See **not DL-9**.\n- **HK-1 file, link.** Two (DL-7).\n**DL-2** x\n",
    );
    let test = SourceFile::new(
        "a.rs",
        "    // holds: DL-1, ZZ-9\n    #[test]\n// it holds: DL-2\n",
    );
    let (defined, held) = (requirements::defined(&[page]), requirements::held(&[test]));
    assert_eq!(defined.keys().collect::<Vec<_>>(), ["DL-1", "DL-2", "HK-1"]);
    assert_eq!(held.keys().collect::<Vec<_>>(), ["DL-1", "ZZ-9"]);
    let faults = |list: &[&str]| {
        let list: Vec<String> = list.iter().map(|s| (*s).to_owned()).collect();
        requirements::faults(&defined, &held, &list).join("\n")
    };
    let only_the_unknown = faults(&["DL-2", "HK-1"]);
    assert_eq!(
        only_the_unknown,
        "a.rs:1 holds ZZ-9, which no design page defines"
    );
    assert!(faults(&["DL-2"]).contains("no test holds HK-1 (03.md:2)"));
    assert!(faults(&["DL-1", "DL-2", "HK-1"]).contains("DL-1, which is held now: a.rs:1"));
    assert!(faults(&["AA-1", "DL-2", "HK-1"]).contains("AA-1, which no design page"));
    assert!(faults(&["HK-1", "DL-2"]).contains("not sorted"));
    let list = ["DL-1".to_owned(), "HK-1".to_owned()];
    assert_eq!(requirements::shrunk(&list, &held), ["HK-1"]);
}

// --- documents -----------------------------------------------------------------------------------------------------

// holds: OP-9
#[test]
fn every_command_in_the_documents_is_one_that_the_programs_take() {
    let commands: Vec<_> = documents_for_users()
        .iter()
        .flat_map(documents::commands)
        .collect();
    assert!(
        commands.len() > 10,
        "the documents have {} commands; were they read?",
        commands.len()
    );
    let mut faults = Vec::new();
    for command in commands {
        // With `--help` at its end clap reads what comes before, prints the help of that place and does nothing.
        let run = Command::new(program::path(&command.program).expect("the programs are built"))
            .args(&command.arguments)
            .arg("--help")
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        if !run.status.success() || !said.contains("Usage:") {
            faults.push(format!(
                "{}: `{} {}` is not understood: {}",
                command.place,
                command.program,
                command.arguments.join(" "),
                String::from_utf8_lossy(&run.stderr)
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

// holds: OP-9
#[test]
fn every_link_in_the_documents_leads_to_a_file() {
    let mut broken = Vec::new();
    for page in files(&workspace(), "md").expect("the workspace can be read") {
        let folder = workspace().join(&page.path);
        let folder = folder.parent().unwrap_or(Path::new("/"));
        for link in documents::links(&page) {
            if !folder.join(&link).exists() {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "links that lead nowhere:\n{}",
        broken.join("\n")
    );
}

#[test]
fn commands_and_links_are_found_in_a_document() {
    let text = "Run `meshplan none`.\n```sh\n# a comment\nmeshplan init fleet \\\n  --fleet 'my home'  # why\n\
                target/debug/meshplan-host --root DIR run > log 2>&1 &\nA=b meshplan deliveries show $(git rev-parse HEAD) | less\n\
                TOKEN=$(meshplan fleet invite ace)\nuntil meshplan fleet admit $n; do sleep 1; done\ngit push\n```\n```toml\nmeshplan = 1\n```\n[a](docs/x.md#y) [b](https://x) [c](#z)\n";
    let page = SourceFile::new("README.md", text);
    let found: Vec<(String, Vec<String>)> = documents::commands(&page)
        .into_iter()
        .map(|c| (format!("{} {}", c.place, c.program), c.arguments))
        .collect();
    let expected = [
        (
            "README.md:4 meshplan",
            vec!["init", "fleet", "--fleet", "my home"],
        ),
        ("README.md:6 meshplan-host", vec!["--root", "DIR", "run"]),
        ("README.md:7 meshplan", vec!["deliveries", "show", STAND_IN]),
        ("README.md:8 meshplan", vec!["fleet", "invite", "ace"]),
        ("README.md:9 meshplan", vec!["fleet", "admit", STAND_IN]),
    ];
    let expected: Vec<(String, Vec<String>)> = expected
        .into_iter()
        .map(|(place, words)| (place.to_owned(), words.into_iter().map(str::to_owned).collect()))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(documents::links(&page), ["docs/x.md"]);
}

// --- fuzz targets --------------------------------------------------------------------------------------------------

/// The targets that stand for no document.
const OTHER_TARGETS: [(&str, &str); 2] = [
    ("template", "templates::body(bytes)"),
    ("tree", "trees::body(bytes)"),
];

// holds: FR-2
#[test]
fn every_published_document_has_a_fuzz_target_that_calls_the_tested_body() {
    let fuzz = workspace().join("fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("the fuzz crate is there");
    let manifest: toml::Table = manifest.parse().expect("a manifest is TOML");
    let bins = manifest["bin"].as_array().expect("the targets are programs");
    let documents = published::NAMES.map(|name| (name, format!("documents::body(\"{name}\", bytes)")));
    let others = OTHER_TARGETS.map(|(name, call)| (name, call.to_owned()));
    let expected: Vec<(&str, String)> = documents.into_iter().chain(others).collect();
    for (name, call) in &expected {
        let path = format!("fuzz_targets/{name}.rs");
        let text = fs::read_to_string(fuzz.join(&path)).unwrap_or_default();
        assert!(text.contains(call), "fuzz/{path} does not call {call}");
        let bin = bins.iter().find(|bin| bin["name"].as_str() == Some(name));
        let at = bin.and_then(|bin| bin["path"].as_str());
        assert_eq!(at, Some(path.as_str()), "fuzz/Cargo.toml does not build {path}");
    }
    assert_eq!(bins.len(), expected.len(), "a target without a document");
}
