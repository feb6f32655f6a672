//! Composed trees for the small world: every node has the same modules, under one plan with a canary and the rest.

use std::collections::BTreeMap;
use std::sync::Arc;

use meshplan_schemas::declaration::{Mode, ModuleContent};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::plan::{
    Absent, Amount, Canary, Check, Covers, Healthy, Legs, MaxRemovals, Places, Rewritten, Select, StageDoc,
    Wait,
};
use meshplan_schemas::document::{FleetDoc, PlanDoc};
use meshplan_schemas::fleet_list::{Author, UpdateClass};
use meshplan_schemas::ident::{KeyId, NodeId};
use meshplan_schemas::key::SigningKey;
use meshplan_schemas::maintenance::FleetWindows;
use meshplan_schemas::resource::{Content, File, Kind};

use crate::pure::by_node::ByNode;
use crate::pure::compose::{Composed, ComposedNode, OfSecrets};

pub(super) fn node(n: u128) -> NodeId {
    NodeId(uuid::Uuid::from_u128(n))
}

/// A tree with so many nodes; `policy` and the text of each module stand for all that they hold.
pub(super) fn tree(nodes: u128, policy: &str, modules: &[(&str, &str)]) -> Composed {
    let contents: BTreeMap<_, _> = modules
        .iter()
        .map(|(name, text)| {
            let file = Kind::File(File {
                path: format!("/etc/{name}"),
                content: Content::Text((*text).to_owned()),
                mode: "0644".to_owned(),
                owner: None,
                group: None,
                restarts: Vec::new(),
                reloads: Vec::new(),
                runs: Vec::new(),
                validate: None,
            });
            let module: meshplan_schemas::ident::ModuleName = name.parse().unwrap();
            let content = ModuleContent {
                module: module.clone(),
                mode: Mode::Apply,
                after: Vec::new(),
                on_policy_change: Vec::new(),
                requires: Vec::new(),
                secrets: BTreeMap::new(),
                resources: vec![
                    file.into_resource(format!("{name}.conf").parse().unwrap())
                        .unwrap(),
                ],
            };
            (
                module,
                (Digest::of_value(&content).unwrap(), Arc::new(content.into())),
            )
        })
        .collect();
    let sources = contents
        .iter()
        .map(|(name, (digest, _))| (name.clone(), *digest))
        .collect();
    let policy = if policy.is_empty() {
        String::new()
    } else {
        format!("[base.qos.extra]\nword = \"{policy}\"\n")
    };
    let nodes = (1..=nodes)
        .map(|n| {
            let node = ComposedNode {
                id: node(n),
                name: format!("n{n}").parse().unwrap(),
                roles: Vec::new(),
                modules: contents.clone(),
                left_out: Vec::new(),
                adopted: false,
                take: Vec::new(),
                update_class: UpdateClass::Required,
                pinned: false,
                vars: BTreeMap::new(),
                enrolled: true,
                source: meshplan_schemas::finding::Source::empty(&format!("nodes/n{n}.toml")),
            };
            (node.id, Arc::new(node))
        })
        .collect::<ByNode<_>>();
    Composed {
        windows: FleetWindows::default(),
        fleet: fleet(),
        policy_digest: Digest::of(policy.as_bytes()),
        policy,
        list_digest: Digest::of(format!("{} nodes", nodes.len()).as_bytes()),
        nodes,
        leaves: ByNode::default(),
        revoked: Vec::new(),
        gate_digest: Digest::of(b"gate"),
        sources,
        plans: BTreeMap::from([("default".parse().unwrap(), plan())]),
        checks: Vec::new(),
        warnings: Vec::new(),
        secrets: OfSecrets::default(),
        unsigned: None,
    }
}

fn fleet() -> FleetDoc {
    let text = r#"{"fleet":"sim","branch":"main","authors":[],"threshold":1,"heartbeat_secs":5,"present_secs":900,"timestamp_valid_secs":2592000,
        "config_mgmt":{"confirm_secs":10,"apply_secs":100,"canary_deadline_secs":60,"release_watch_secs":0,
        "left_behind_grace_secs":600,"archives_kept":50},
        "rotation":{"default_publish_to_activate_secs":1,"default_activate_to_retire_secs":1,"lifeline_secs":1,
        "require_trusted_clock_for_scheduled_activation":true}}"#;
    let mut fleet: FleetDoc = serde_json::from_str(text).unwrap();
    let key = ed25519_dalek::SigningKey::from_bytes(&[1; 32])
        .verifying_key()
        .to_bytes();
    fleet.authors = vec![Author {
        id: KeyId("author".into()),
        key: SigningKey::from_bytes(key).unwrap(),
    }];
    fleet
}

pub(super) fn plan() -> PlanDoc {
    let stage = |name: &str, nodes: &[&str], rest| StageDoc {
        name: name.to_owned(),
        line: 0,
        select: Select {
            nodes: nodes.iter().map(|n| n.parse().unwrap()).collect(),
            roles: vec![],
            count: None,
            rest,
        },
        healthy: Some(Healthy {
            times: 3,
            every_secs: 5,
            within_secs: 60,
        }),
        failed: None,
        silent: None,
        tolerate: Amount::Number(0),
        batch: None,
        wait: Wait::Passed,
        budget: vec![],
        spread_links: false,
    };
    PlanDoc {
        window: None,
        name: "default".parse().unwrap(),
        covers: vec![Covers::Everything],
        check: Check::Own,
        approvals: 0,
        actors: vec![],
        absent: Absent::Hold,
        legs: Legs::Together,
        canary: Canary::Replaced,
        max_removals: MaxRemovals::default(),
        revert_pr: false,
        history_rewritten: Rewritten::Hold,
        confirm_probe: None,
        stages: vec![stage("canary", &["n1"], false), stage("rest", &[], true)],
        places: Places(BTreeMap::from([("check", 2), ("approvals", 3), ("window", 20)])),
    }
}
