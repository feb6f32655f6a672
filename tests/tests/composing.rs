//! Properties of composing, over generated fleets.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_reconciler::pure::compose::{Composed, compose_tree};
use meshplan_reconciler::pure::example::generate;
use meshplan_reconciler::pure::source_tree::{EntryKind, SourceTree};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ModuleName, NodeName};
use proptest::prelude::*;

type Files = Vec<(String, Vec<u8>)>;

fn compose(files: &Files) -> Composed {
    let entries = files.iter().map(|(path, bytes)| {
        (
            path.clone().into_bytes(),
            EntryKind::Blob,
            Arc::from(bytes.as_slice()),
        )
    });
    let (tree, findings) = SourceTree::from_entries(entries.collect());
    assert_eq!(findings, []);
    match compose_tree(&tree, None, None) {
        Ok(composed) => composed,
        Err(error) => panic!("{error:#?}"),
    }
}

fn digests(composed: &Composed) -> BTreeMap<(NodeName, ModuleName), Digest> {
    let of_node = |n: &meshplan_reconciler::pure::compose::ComposedNode| -> Vec<_> {
        n.modules
            .iter()
            .map(|(m, (digest, _))| ((n.name.clone(), m.clone()), *digest))
            .collect()
    };
    composed.nodes.values().flat_map(|n| of_node(n)).collect()
}

/// What differs, as (node, module).
fn changed(before: &Composed, after: &Composed) -> BTreeSet<(String, String)> {
    let (before, after) = (digests(before), digests(after));
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let differing = keys.into_iter().filter(|key| before.get(key) != after.get(key));
    differing
        .map(|(node, module)| (node.to_string(), module.to_string()))
        .collect()
}

/// Replaces text in the one file that ends so.
fn edit(files: &Files, file: &str, from: &str, to: &str) -> Files {
    let mut files = files.clone();
    let (_, bytes) = files.iter_mut().find(|(path, _)| path.ends_with(file)).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.contains(from), "{file} has no {from}");
    *bytes = text.replace(from, to).into_bytes();
    files
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    // holds: DL-3
    #[test]
    fn composing_twice_gives_the_same_digests_in_any_order_of_the_files(nodes in 1..12usize, seed in any::<u64>()) {
        let files = generate(nodes, seed);
        let turned: Files = files.iter().rev().cloned().collect();
        let (one, other) = (compose(&files), compose(&turned));
        prop_assert_eq!(changed(&one, &other), BTreeSet::new());
        prop_assert_eq!(one.list_digest, other.list_digest);
        prop_assert_eq!(one.gate_digest, other.gate_digest);
        prop_assert_eq!(one.policy_digest, other.policy_digest);
        prop_assert_eq!(one.sources, other.sources);
        prop_assert_eq!(one.leaves.len(), nodes);
    }

    // holds: DL-3
    #[test]
    fn a_value_of_one_node_changes_that_node_only(nodes in 2..12usize, seed in any::<u64>(), which in any::<prop::sample::Index>()) {
        let files = generate(nodes, seed);
        let name = format!("n{:05}", which.index(nodes));
        let file = format!("{name}.toml");
        let before = compose(&files);
        let after = compose(&edit(&files, &file, "site = ", "site = \"elsewhere\" # "));
        let expected = BTreeSet::from([(name.clone(), "host".to_owned())]);
        prop_assert_eq!(changed(&before, &after), expected);
        prop_assert_eq!(before.list_digest, after.list_digest);
        prop_assert_eq!(before.gate_digest, after.gate_digest);
        prop_assert_eq!(before.sources.get("base"), after.sources.get("base"));
        prop_assert_ne!(before.sources.get("host"), after.sources.get("host"));
    }
}

// holds: DL-3
#[test]
fn each_kind_of_change_moves_its_own_scope() {
    let files = generate(6, 7);
    let before = compose(&files);
    let scopes = |files: &Files| {
        let after = compose(files);
        (
            before.policy_digest != after.policy_digest,
            before.list_digest != after.list_digest,
            before.gate_digest != after.gate_digest,
            !changed(&before, &after).is_empty(),
        )
    };
    let policy = edit(&files, "policy/base.toml", "300", "301");
    assert_eq!(scopes(&policy), (true, false, false, false));
    let list = edit(&files, "n00001.toml", "address = \"ws://", "address = \"wss://");
    assert_eq!(scopes(&list), (false, true, false, false));
    let gate = edit(&files, "plans/default.toml", "25%", "50%");
    assert_eq!(scopes(&gate), (false, false, true, false));
    let module = edit(&files, "modules/base/files/motd", "kept", "looked after");
    assert_eq!(scopes(&module), (false, false, false, true));
    let comment = edit(&files, "plans/default.toml", "covers", "# a word\ncovers");
    assert_eq!(scopes(&comment), (false, false, false, false));
}

// holds: SG-3
#[test]
fn a_revoked_record_leaves_the_list_and_its_uuid_and_keys_are_named() {
    let files = generate(3, 1);
    let gone = edit(&files, "n00001.toml", "modules =", "revoked = true\nmodules =");
    let composed = compose(&gone);
    assert_eq!(
        (
            composed.nodes.len(),
            composed.leaves.len(),
            composed.revoked.len()
        ),
        (2, 2, 3)
    );
}
