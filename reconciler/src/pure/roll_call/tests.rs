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

// holds: HR-17
#[test]
fn a_paused_machine_stands_apart_and_says_until_when_and_why_and_a_contested_thing_is_trouble() {
    let tree = tree(3, |_| false);
    let ids: Vec<NodeId> = ["n00000", "n00001", "n00002"]
        .iter()
        .map(|name| tree.nodes.values().find(|n| n.name.as_str() == *name).unwrap().id)
        .collect();
    let mut told: Nodes = ids.iter().map(|id| (*id, heard(*id, false))).collect();
    let report = |told: &mut Nodes, at: usize, field: &str, value: serde_json::Value| {
        let report = &mut told.get_mut(&ids[at]).unwrap().report;
        let mut json = serde_json::to_value(report.as_ref().unwrap()).unwrap();
        json[field] = value;
        *report = Some(serde_json::from_value(json).unwrap());
    };
    report(
        &mut told,
        1,
        "paused",
        json!({ "until": 0, "why": "the disk is changed" }),
    );
    let line = json!([{ "name": "web.conf", "outcome": "kept", "reason": "contested: put right 3 times" }]);
    report(&mut told, 2, "resources", line);
    let mut roll = RollCall::default();
    roll.enter(&tree, &told);
    roll.moved(&ids.iter().map(|id| (*id, true)).collect(), &told);
    let page = roll.page(&Which::default(), &told);
    assert_eq!(names(&page), ["n00002", "n00001", "n00000"]);
    assert_eq!(
        page.counts.to_string(),
        "3 nodes: 1 troubled, 1 paused, 1 connected"
    );
    assert_eq!(
        page.nodes[0].troubles,
        ["web.conf is contested: put right 3 times"]
    );
    let paused = &page.nodes[1];
    assert_eq!(paused.presence, "connected");
    assert_eq!(
        paused.paused.as_deref(),
        Some("paused until 1970-01-01T00:00:00Z: the disk is changed")
    );
    let why = crate::pure::decide::why::why_node(
        paused,
        &std::collections::BTreeMap::new(),
        jiff::Timestamp::UNIX_EPOCH,
    );
    assert!(
        why.waits_for
            .starts_with("the end of the pause that a person made on n00001"),
        "{why:?}"
    );
    assert!(why.waits_for.ends_with("the disk is changed"), "{why:?}");
    assert_eq!(why.command.as_deref(), Some("meshplan-host resume, on n00001"));
    // One that is not heard any more is away, whatever it said last.
    roll.moved(&BTreeMap::from([(ids[1], false)]), &told);
    assert_eq!(roll.counts().paused, 0);
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
