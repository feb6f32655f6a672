use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::pure::compose::compose_tree;
use crate::pure::example::generate;
use crate::pure::snapshot::NodeState;
use crate::pure::source_tree::{EntryKind, SourceTree};

/// A generated fleet without the nodes for which `gone` says so.
fn tree(nodes: usize, gone: impl Fn(usize) -> bool) -> Arc<Composed> {
    let files = generate(nodes, 7).into_iter();
    let files = files.filter(|(path, _)| {
        let number = path
            .rsplit_once("/n")
            .and_then(|(_, file)| file.strip_suffix(".toml"));
        !number.and_then(|number| number.parse().ok()).is_some_and(&gone)
    });
    let entries = files.map(|(path, bytes)| (path.into_bytes(), EntryKind::Blob, Arc::from(bytes)));
    let (tree, _) = SourceTree::from_entries(entries.collect());
    Arc::new(compose_tree(&tree, None, None).unwrap())
}

fn heard(node: NodeId, stale: bool) -> NodeState {
    let report = json!({
        "schema": 1, "fleet": "generated", "era": 0, "issued_at": 1_790_000_000, "node": node, "counter": 1,
        "boot_id": "boot", "instance": "instance", "started_at": 1_790_000_000, "host_version": "0.1.0",
        "cause": "start", "witness": 1, "marks": { "era": 0 }, "stale": stale,
    });
    NodeState {
        report: Some(serde_json::from_value(report).unwrap()),
        ..NodeState::default()
    }
}

fn names(page: &Page) -> Vec<&str> {
    page.nodes.iter().map(|node| node.name.as_str()).collect()
}

/// All pages, one after the other.
fn walk(roll: &RollCall, heard: &Nodes, mut which: Which) -> Vec<NodeView> {
    let mut all = Vec::new();
    loop {
        let page = roll.page(&which, heard);
        assert!(page.nodes.len() <= which.limit);
        all.extend(page.nodes);
        match page.next {
            Some(next) => which.after = Some(next.parse().unwrap()),
            None => return all,
        }
    }
}

#[test]
fn a_page_has_the_worst_first_and_says_how_many_there_are_and_what_follows() {
    let tree = tree(7, |_| false);
    let ids: BTreeMap<&str, NodeId> = tree.nodes.values().map(|n| (n.name.as_str(), n.id)).collect();
    let of = |name: &str| ids[name];
    let mut told = Nodes::new();
    for name in ["n00001", "n00002", "n00004", "n00005"] {
        told.insert(of(name), heard(of(name), name == "n00005"));
    }
    let mut roll = RollCall::default();
    roll.enter(&tree, &told);
    roll.moved(
        &BTreeMap::from([(of("n00001"), true), (of("n00005"), true)]),
        &told,
    );
    let mut which = Which {
        limit: 3,
        ..Which::default()
    };
    let first = roll.page(&which, &told);
    assert_eq!(names(&first), ["n00005", "n00002", "n00004"]);
    assert_eq!(
        first.counts.to_string(),
        "7 nodes: 1 troubled, 2 away, 1 connected, 3 awaited"
    );
    assert_eq!(first.next.as_deref(), Some("away:n00004"));
    which.after = Some(first.next.unwrap().parse().unwrap());
    let second = roll.page(&which, &told);
    assert_eq!(names(&second), ["n00001", "n00000", "n00003"]);
    which.after = Some(second.next.unwrap().parse().unwrap());
    let last = roll.page(&which, &told);
    assert_eq!((names(&last), last.next.clone()), (vec!["n00006"], None));
    let only = Which {
        standing: Some(Standing::Away),
        ..Which::default()
    };
    assert_eq!(names(&roll.page(&only, &told)), ["n00002", "n00004"]);
    assert_eq!(roll.find("n00003", &told).unwrap().presence, "expected");
    let short = of("n00003").short();
    assert_eq!(roll.find(short.as_str(), &told).unwrap().name, "n00003");
    assert!(roll.find("n00009", &told).is_none() && "away".parse::<Place>().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_kept_is_what_a_fresh_one_says_and_pages_meet_every_node_once(
        steps in prop::collection::vec((0_usize..40, 0_u8..5), 0..60),
        limit in 1_usize..12,
    ) {
        let trees = [tree(40, |_| false), tree(40, |n| n % 3 == 0), tree(30, |_| false)];
        let ids: Vec<NodeId> = trees[0].nodes.keys().copied().collect();
        let (mut roll, mut told, mut connected) = <(RollCall, Nodes, BTreeMap<NodeId, bool>)>::default();
        let mut newest = &trees[0];
        roll.enter(newest, &told);
        for (at, step) in steps {
            let id = ids[at];
            match step {
                0 => newest = &trees[at % 3],
                1 | 2 => {
                    told.insert(id, heard(id, step == 1));
                    roll.told(&[id], &told);
                }
                _ => {
                    connected.insert(id, step == 3);
                    roll.moved(&BTreeMap::from([(id, step == 3)]), &told);
                }
            }
            roll.enter(newest, &told);
        }
        let mut fresh = RollCall::default();
        fresh.enter(newest, &told);
        fresh.moved(&connected, &told);
        prop_assert_eq!(roll.counts(), fresh.counts());
        for by in [By::Standing, By::Name] {
            let which = Which { by, limit, ..Which::default() };
            let (kept, made) = (walk(&roll, &told, which.clone()), walk(&fresh, &told, which));
            let shown = |all: &[NodeView]| serde_json::to_string(all).unwrap();
            prop_assert_eq!(shown(&kept), shown(&made));
            let mut met: Vec<&str> = kept.iter().map(|node| node.id.as_str()).collect();
            met.sort_unstable();
            let of_tree: Vec<String> = newest.nodes.keys().map(ToString::to_string).collect();
            prop_assert_eq!(met, of_tree);
            if by == By::Standing {
                prop_assert!(kept.is_sorted_by_key(|node| (node.standing, node.name.clone())));
            }
        }
    }
}
