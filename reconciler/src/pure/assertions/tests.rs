//! A small fleet, and what may be asserted of it.

use std::sync::Arc;

use meshplan_schemas::finding::Finding;

use crate::pure::compose::{TreeError, compose_tree};
use crate::pure::source_tree::{EntryKind, SourceTree};

const FLEET: &str = "schema = 1\nfleet = \"lab\"\nbranch = \"main\"\n\n[[authors]]\nid = \"example\"\n\
                     key = \"ed25519:11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\"\n\n\
                     [[components]]\nrepo = \"novox/site\"\nbranch = \"main\"\nmodule = \"site\"\n";
const WEB: &str = "[[file]]\nid = \"conf\"\npath = \"/etc/web\"\ncontent = \"x\"\nmode = \"0600\"\n\n\
                   [[container]]\nid = \"app\"\nimage = \"localhost/app:1\"\ncapabilities = [\"NET_ADMIN\"]\n";
/// Nothing puts in what it is made of: it is left out wherever it is.
const SITE: &str =
    "roles = [\"edge\"]\n\n[[bundle]]\nid = \"pages\"\npath = \"/srv/site\"\nsource = \"component\"\n";

/// What checking the fleet with this check says; nothing where it holds.
fn ask(check: &str) -> Vec<Finding> {
    let record = |n: u32, more: &str| format!("id = \"0192f0c1-0000-7000-8000-{n:012}\"\n{more}");
    let files = [
        ("fleet.toml", FLEET.to_owned()),
        ("modules/web/module.toml", WEB.to_owned()),
        (
            "nodes/ace.toml",
            record(1, "roles = [\"edge\"]\nmodules = [\"web\"]\n"),
        ),
        ("nodes/bea.toml", record(2, "modules = [\"web\"]\n")),
        ("nodes/cid.toml", record(3, "")),
        (
            "policy/base.toml",
            "[qos]\nartifact_kib_per_sec = 2000\n".to_owned(),
        ),
        (
            "policy/roles/edge.toml",
            "[qos]\nartifact_kib_per_sec = 500\n".to_owned(),
        ),
        ("modules/site/module.toml", SITE.to_owned()),
        ("checks/a.toml", format!("[[check]]\nname = \"asked\"\n{check}\n")),
    ];
    let entries = files.into_iter().map(|(path, text)| {
        let bytes: Arc<[u8]> = Arc::from(text.as_bytes());
        (path.as_bytes().to_vec(), EntryKind::Blob, bytes)
    });
    match compose_tree(&SourceTree::from_entries(entries.collect()).0, None, None) {
        Ok(composed) => {
            assert_eq!(composed.checks.len(), 1);
            Vec::new()
        }
        Err(TreeError::Findings(findings)) => findings.into_iter().filter(Finding::is_error).collect(),
        Err(other) => panic!("{other}"),
    }
}

// holds: FR-11
#[test]
fn what_holds_is_silent_and_what_does_not_is_an_error_at_its_line_with_the_nodes() {
    // The check, and the sentence that it fails with.
    for (check, expected) in [
        ("role = \"edge\"\nhas = [\"web.conf\"]", None),
        ("node = \"bea\"\nhas = [\"web.conf\", \"web.app\"]", None),
        ("node = \"bea\"\nhas = \"web.conf\"", None),
        (
            "node = \"cid\"\nhas = \"web.conf\"",
            Some("the check `asked` fails: cid has no `web.conf`"),
        ),
        (
            "has = [\"web.conf\"]",
            Some("the check `asked` fails: cid has no `web.conf`"),
        ),
        ("policy = \"qos.artifact_kib_per_sec <= 2000\"", None),
        ("policy = \"policy.qos.artifact_kib_per_sec != 501\"", None),
        (
            "policy = \"qos.artifact_kib_per_sec > 500\"",
            Some("the check `asked` fails: ace has qos.artifact_kib_per_sec = 500, which is not > 500"),
        ),
        (
            "policy = \"qos.artifact_kib_per_sec == 500\"",
            Some(
                "the check `asked` fails: bea has qos.artifact_kib_per_sec = 2000, which is not == 500, and so on 1 more",
            ),
        ),
        (
            "node = \"ace\"\npolicy = \"scheduler.reconcile_secs < 9\"",
            Some("the check `asked` fails: ace has no scheduler.reconcile_secs"),
        ),
        ("never = \"process\"", None),
        ("never = \"container with capability SYS_ADMIN\"", None),
        ("never = \"container with devices\"", None),
        (
            "never = \"container with capability NET_ADMIN\"",
            Some(
                "the check `asked` fails: ace has `web.app`, a container with capability NET_ADMIN, and so on 1 more",
            ),
        ),
        (
            "role = \"edge\"\nnever = \"container with capabilities\"",
            Some("the check `asked` fails: ace has `web.app`, a container with capabilities"),
        ),
        (
            "node = \"bea\"\nnever = \"file with mode 0600\"",
            Some("the check `asked` fails: bea has `web.conf`, a file with mode 0600"),
        ),
    ] {
        let said = ask(check);
        let messages: Vec<&str> = said.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(messages, expected.into_iter().collect::<Vec<_>>(), "{check}");
        if let Some(finding) = said.first() {
            assert_eq!(
                (finding.file.as_str(), finding.line),
                ("checks/a.toml", 2),
                "{check}"
            );
        }
    }
}

// holds: FR-11, FR-8
#[test]
fn what_a_module_that_is_left_out_should_bring_is_missing_and_the_reason_is_said() {
    let said = ask("role = \"edge\"\nhas = \"site.pages\"");
    assert_eq!(said.len(), 1, "{said:#?}");
    assert_eq!(
        said[0].message,
        "the check `asked` fails: ace has no `site.pages`: the module `site` is left out there, no commit of its \
         component is known here: the reconciler puts it in"
    );
}
