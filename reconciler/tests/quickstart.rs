//! The example that everything else is shown with: it parses, composes, and composes to the same bytes again.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::path::{Path, PathBuf};

use meshplan_reconciler::cli::check;
use meshplan_reconciler::pure::compose::Composed;
use meshplan_schemas::resource::{Content, Kind};

fn quickstart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart")
}

fn compose() -> Composed {
    let (tree, findings) = check::read(&quickstart(), None).unwrap();
    match check::compose_with(&tree, findings) {
        Ok(composed) => composed,
        Err(error) => panic!("{error:#?}"),
    }
}

fn rendered(composed: &Composed, node: &str, resource: &str) -> String {
    let node = composed.nodes.values().find(|n| n.name.as_str() == node).unwrap();
    let (_, content) = &node.modules["web"];
    let found = content
        .resources
        .iter()
        .find(|r| r.name.id.as_str() == resource)
        .unwrap();
    match found.read().unwrap() {
        Kind::File(file) => match file.content {
            Content::Text(text) => text,
            Content::Base64(_) | Content::Sealed(_) => panic!("no text"),
        },
        other => panic!("{other:?} is no file"),
    }
}

// holds: FR-8
#[test]
fn the_quickstart_composes_without_a_word() {
    let composed = compose();
    assert_eq!(composed.warnings, []);
    assert_eq!(
        (composed.nodes.len(), composed.sources.len(), composed.plans.len()),
        (3, 1, 1)
    );
    assert!(composed.leaves.is_empty());
    assert!(composed.nodes.values().all(|n| !n.enrolled));
    let conf = rendered(&composed, "ace", "conf");
    assert_eq!(
        conf,
        "# ace in lab\nport = 8081\ngreeting = hello\nrole = web\nrole = edge\n"
    );
    assert!(rendered(&composed, "bea", "conf").contains("port = 8080\ngreeting = hello from bea\n"));
}

// holds: FR-6
#[test]
fn an_overlay_lies_over_the_base_on_nodes_with_its_role() {
    let composed = compose();
    let policy = meshplan_schemas::policy::parse(&composed.policy).unwrap();
    let effective = |node: &str| {
        let node = composed.nodes.values().find(|n| n.name.as_str() == node).unwrap();
        policy.effective(&node.roles)["qos"]["artifact_kib_per_sec"].as_integer()
    };
    assert_eq!((effective("ace"), effective("cid")), (Some(500), Some(2000)));
}

#[test]
fn resources_keep_the_order_of_the_document_across_kinds() {
    let composed = compose();
    let (_, content) = &composed.nodes.values().next().unwrap().modules["web"];
    let ids: Vec<_> = content.resources.iter().map(|r| r.name.id.as_str()).collect();
    assert_eq!(ids, ["root", "motd", "conf", "current", "configured"]);
}

#[test]
fn the_same_tree_composes_to_the_same_bytes() {
    assert_eq!(compose(), compose());
}

#[test]
fn check_says_what_composed() {
    let args = check::Args {
        identity: None,
        forge: None,
        dir: quickstart(),
        commit: None,
        format: check::Format::Human,
        json: false,
        color: false,
    };
    let mut out = Vec::new();
    let exit = check::run(&args, &mut out).unwrap();
    assert_eq!(exit, meshplan_reconciler::cli::exit::Exit::Done);
    let said = String::from_utf8(out).unwrap();
    assert_eq!(
        said,
        "ok: the fleet quickstart composes: 3 nodes, 1 module, 1 plan; 0 warnings\n"
    );
}
