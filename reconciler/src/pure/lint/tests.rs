//! Each rule on a small fleet, once where it speaks and, by the fleet as it is, once where it does not.

use std::sync::Arc;

use super::*;
use crate::pure::example::generate;
use crate::pure::parse::parse;
use crate::pure::source_tree::{EntryKind, SourceTree};
use crate::pure::validate::validate;

type Files = Vec<(String, Vec<u8>)>;

fn linted(files: &Files, ignored: &[&str]) -> Vec<Lint> {
    let entries = files.iter().map(|(path, bytes)| {
        let bytes: Arc<[u8]> = Arc::from(bytes.as_slice());
        (path.clone().into_bytes(), EntryKind::Blob, bytes)
    });
    let (tree, _) = SourceTree::from_entries(entries.collect());
    let (documents, findings) = parse(&tree);
    assert_eq!(findings, []);
    let validated = match validate(documents.clone()) {
        Ok(validated) => validated,
        Err(findings) => panic!("{findings:#?}"),
    };
    lint(&Subject {
        documents: &documents,
        validated: &validated,
        ignored: &ignored.iter().map(|path| (*path).to_owned()).collect(),
    })
}

fn edit(files: &Files, file: &str, from: &str, to: &str) -> Files {
    let mut files = files.clone();
    let (_, bytes) = files.iter_mut().find(|(path, _)| path.ends_with(file)).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    *bytes = text.replacen(from, to, 1).into_bytes();
    files
}

/// What the rules say of an edit: rule, file and line.
fn said(file: &str, from: &str, to: &str) -> Vec<String> {
    let found = linted(&edit(&generate(6, 1), file, from, to), &[]);
    assert!(
        found
            .iter()
            .all(|lint| lint.finding.help.is_some() && !lint.finding.is_error()),
        "{found:#?}"
    );
    found
        .iter()
        .map(|lint| format!("{} {}:{}", lint.rule, lint.finding.file, lint.finding.line))
        .collect()
}

#[test]
fn what_the_generator_makes_is_wise() {
    for (nodes, seed) in [(1, 1), (3, 2), (6, 1), (40, 3)] {
        assert_eq!(linted(&generate(nodes, seed), &[]), []);
    }
}

#[test]
fn plans_that_watch_nobody_are_seen() {
    let plan = "plans/default.toml";
    assert_eq!(
        said(plan, "covers = [\"*\"]", "covers = [\"*\"]\ncanary = \"none\""),
        ["no-canary plans/default.toml:1"]
    );
    let stage = "[[stage]]\nname = \"canary\"\nshare = \"1%\"\nhealthy = { times = 3, every_secs = 50, within_secs = 600 }\n\n";
    let one = edit(&generate(6, 1), plan, stage, "");
    let one = edit(&one, plan, "batch = \"25%\"\n", "");
    assert_eq!(linted(&one, &[])[0].rule, "no-canary");
    assert_eq!(
        said(plan, "share = \"1%\"", "count = 2\ntolerate = 2"),
        ["tolerates-all plans/default.toml:4"]
    );
    assert_eq!(
        said(plan, "within_secs = 600", "within_secs = 120"),
        ["no-spare-look plans/default.toml:6"]
    );
}

#[test]
fn a_plan_that_never_takes_anything_back_is_seen() {
    let plan = "plans/default.toml";
    // A plan for everything may not say it (DL-19): this one is for a module.
    let files = edit(
        &generate(6, 1),
        plan,
        "covers = [\"*\"]",
        "covers = [\"module:web\"]",
    );
    let files = edit(
        &files,
        plan,
        "share = \"1%\"",
        "share = \"1%\"\nfailed = \"leave\"",
    );
    let files = edit(&files, plan, "rest = true", "rest = true\nfailed = \"leave\"");
    let found = linted(&files, &[]);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!((found[0].rule, found[0].finding.line), ("never-rolls-back", 6));
}

#[test]
fn a_canary_that_takes_no_orders_is_seen() {
    let files = edit(
        &generate(6, 1),
        "plans/default.toml",
        "share = \"1%\"",
        "nodes = [\"n00002\"]",
    );
    assert_eq!(linted(&files, &[]), []);
    let record = files
        .iter()
        .find(|(path, _)| path.ends_with("n00002.toml"))
        .unwrap();
    let text = String::from_utf8(record.1.clone()).unwrap();
    let keys: String = text
        .lines()
        .filter(|line| line.contains("_key = "))
        .map(|line| format!("{line}\n"))
        .collect();
    let found = linted(&edit(&files, "n00002.toml", &keys, ""), &[]);
    assert_eq!(found[0].rule, "canary-not-enrolled");
}

#[test]
fn a_stage_that_names_a_machine_which_is_left_behind_is_seen() {
    let files = edit(
        &generate(6, 1),
        "plans/default.toml",
        "share = \"1%\"",
        "nodes = [\"n00002\"]",
    );
    let behind = "update_class = \"left_behind\"\nid = ";
    let found = linted(&edit(&files, "n00002.toml", "id = ", behind), &[]);
    let found: Vec<_> = found.iter().map(|lint| lint.rule).collect();
    assert_eq!(found, ["stage-left-behind"]);
}

#[test]
fn a_window_that_is_shorter_than_a_heartbeat_is_seen() {
    let with = "[config_mgmt]\nconfirm_secs = 20\n[vars]";
    assert_eq!(
        said("fleet.toml", "[vars]", with),
        ["confirm-before-heartbeat fleet.toml:10"]
    );
}

#[test]
fn modes_that_give_too_much_are_seen() {
    let module = "modules/base/module.toml";
    assert_eq!(
        said(module, "0750", "0777"),
        ["world-writable modules/base/module.toml:8"]
    );
    assert_eq!(said(module, "0750", "1777"), Vec::<String>::new());
    let source = "source = \"files/motd\"";
    assert_eq!(
        said(module, source, &format!("{source}\nmode = \"0666\"")),
        ["world-writable modules/base/module.toml:3"]
    );
    assert_eq!(
        said(module, "/etc/motd", "/etc/tls/site.key"),
        ["private-readable modules/base/module.toml:3"]
    );
    assert_eq!(said(module, "/etc/motd", "/etc/site.pub"), Vec::<String>::new());
    let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nThis machine";
    assert_eq!(
        said("files/motd", "This machine", key),
        ["private-readable modules/base/module.toml:3"]
    );
}

#[test]
fn what_stands_there_for_nothing_is_seen() {
    assert_eq!(
        said(
            "modules/web/module.toml",
            "roles = [\"web\"]",
            "roles = [\"webb\"]"
        ),
        [
            "module-unused modules/web/module.toml:0",
            "check modules/web/module.toml:3"
        ]
    );
    let setting = "[settings.port]";
    let more = "[settings.prot]\ntype = \"integer\"\ndefault = 1\n\n[settings.port]";
    assert_eq!(
        said("modules/web/module.toml", setting, more),
        ["setting-unread modules/web/module.toml:5"]
    );
    let found = linted(
        &edit(&generate(6, 1), "n00003.toml", "port = ", "prot = 1\nport = "),
        &[],
    );
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].rule, "var-unread");
    assert_eq!(found[0].finding.help.as_deref(), Some("did you mean `port`?"));
    let mut files = generate(6, 1);
    files.push(("modules/web/files/old.conf".to_owned(), b"x".to_vec()));
    files.push(("modules/web/README.md".to_owned(), b"x".to_vec()));
    let found = linted(&files, &["nodes/000/n00001.toml"]);
    let rules: Vec<_> = found
        .iter()
        .map(|lint| (lint.rule, lint.finding.file.as_str()))
        .collect();
    assert_eq!(
        rules,
        [
            ("file-unused", "modules/web/files/old.conf"),
            ("ignored", "nodes/000/n00001.toml")
        ]
    );
}

#[test]
fn what_check_warns_of_is_among_it() {
    let files = edit(&generate(6, 1), "n00003.toml", "roles = [", "roles = [\"lone\", ");
    assert!(linted(&files, &[]).iter().any(|lint| lint.rule == "check"));
}

#[test]
fn every_rule_has_a_line_in_the_table() {
    let table = include_str!("../lint.rs");
    for rule in rules() {
        assert!(table.contains(&format!("//! | `{rule}` |")), "{rule}");
    }
}
