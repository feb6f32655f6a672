//! What changes beside the content of modules: nodes, fleet.toml, plans, policy; in words, or key by key.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::fleet_list::Leaf;
use meshplan_schemas::ident::{NodeId, NodeName, PlanName, RoleName};
use meshplan_schemas::policy;
use serde::Serialize;
use serde_json::Value;
use toml::Table;

use crate::pure::by_node::ByNode;
use crate::pure::compose::{Composed, ComposedNode};
use crate::pure::diff::policy_on_nodes;

/// A change of membership, and the nodes that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemberChange {
    /// In words: `added, invited`, `update_class required -> best_effort`.
    pub change: String,
    /// The nodes, by name.
    pub nodes: Vec<NodeName>,
}

/// A key with its old and its new value; none: it is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyChange {
    /// The keys that lead to it, joined by dots.
    pub key: String,
    /// Before.
    pub before: Option<String>,
    /// After.
    pub after: Option<String>,
}

/// A key of policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyChange {
    /// The role whose overlay it is in; none: base.
    pub role: Option<RoleName>,
    /// The key.
    #[serde(flatten)]
    pub key: KeyChange,
}

/// A deploy plan that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlanChange {
    /// The plan.
    pub plan: PlanName,
    /// Whether it is `new`, `gone` or `changed`.
    pub how: super::modules::How,
    /// Its keys, where it is in both.
    pub keys: Vec<KeyChange>,
}

/// Nodes that come or go, by name.
pub(super) fn come_and_gone(before: Option<&Composed>, after: &Composed) -> Vec<NodeName> {
    let none = ByNode::default();
    let was = before.map_or(&none, |tree| &tree.nodes);
    let gone = was.values().filter(|node| !after.nodes.contains_key(&node.id));
    let come = after.nodes.values().filter(|node| !was.contains_key(&node.id));
    gone.chain(come).map(|node| node.name.clone()).collect()
}

/// What becomes of nodes, equal changes once, those of the fewest nodes first.
pub(super) fn members(before: Option<&Composed>, after: &Composed) -> Vec<MemberChange> {
    let none = ByNode::default();
    let was = before.map_or(&none, |tree| &tree.nodes);
    let mut found: BTreeMap<String, Vec<NodeName>> = BTreeMap::new();
    let ids: BTreeSet<&NodeId> = was.keys().chain(after.nodes.keys()).collect();
    let (old_leaves, new_leaves) = (leaves(before), leaves(Some(after)));
    for id in ids {
        let (name, words) = match (was.get(id), after.nodes.get(id)) {
            (None, Some(node)) => (&node.name, vec![added(node)]),
            (Some(node), None) => (
                &node.name,
                vec!["removed: no order reaches it any more".to_owned()],
            ),
            (Some(old), Some(new)) => (
                &new.name,
                moved(old, new, old_leaves.get(id).copied(), new_leaves.get(id).copied()),
            ),
            (None, None) => continue,
        };
        for word in words {
            found.entry(word).or_default().push(name.clone());
        }
    }
    let mut members: Vec<MemberChange> = (found.into_iter())
        .map(|(change, mut nodes)| {
            nodes.sort();
            MemberChange { change, nodes }
        })
        .collect();
    let revoked: &[_] = before.map_or(&[], |tree| &tree.revoked);
    let more = after
        .revoked
        .iter()
        .filter(|digest| !revoked.contains(digest))
        .count();
    let fewer = revoked
        .iter()
        .filter(|digest| !after.revoked.contains(digest))
        .count();
    for (count, word) in [
        (more, "revoked from here on"),
        (fewer, "no longer among the revoked"),
    ] {
        if count > 0 {
            members.push(MemberChange {
                change: format!("{count} uuids and keys are {word}"),
                nodes: Vec::new(),
            });
        }
    }
    members.sort_by(|a, b| (a.nodes.len(), &a.change).cmp(&(b.nodes.len(), &b.change)));
    members
}

fn leaves(tree: Option<&Composed>) -> BTreeMap<NodeId, &Leaf> {
    tree.iter()
        .flat_map(|tree| tree.leaves.values())
        .map(|listed| (listed.leaf.id, &listed.leaf))
        .collect()
}

fn added(node: &ComposedNode) -> String {
    let state = if node.enrolled {
        "with its keys"
    } else {
        "invited, not yet enrolled"
    };
    format!("added, {state}")
}

/// What is another of one node.
fn moved(old: &ComposedNode, new: &ComposedNode, was: Option<&Leaf>, is: Option<&Leaf>) -> Vec<String> {
    fn list<T: ToString>(values: &[T]) -> String {
        let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
        format!("[{}]", texts.join(", "))
    }
    let mut words = Vec::new();
    let mut say = |differs: bool, word: String| {
        if differs {
            words.push(word);
        }
    };
    say(old.name != new.name, format!("renamed, it was {}", old.name));
    say(
        old.enrolled && !new.enrolled,
        "its keys are taken away: invited again".to_owned(),
    );
    say(
        !old.enrolled && new.enrolled,
        "enrolled: the record has its keys".to_owned(),
    );
    say(
        old.roles != new.roles,
        format!("roles {} -> {}", list(&old.roles), list(&new.roles)),
    );
    say(
        old.update_class != new.update_class,
        format!(
            "update_class {} -> {}",
            json(&old.update_class),
            json(&new.update_class)
        ),
    );
    say(
        old.pinned != new.pinned,
        format!("pinned {} -> {}", old.pinned, new.pinned),
    );
    say(
        old.adopted != new.adopted,
        format!("adopted {} -> {}", old.adopted, new.adopted),
    );
    say(
        old.take != new.take,
        format!("take {} -> {}", list(&old.take), list(&new.take)),
    );
    let (Some(was), Some(is)) = (was, is) else {
        return words;
    };
    // A key is told by name: what it is says nothing to a reader.
    say(
        was.transport_key != is.transport_key,
        "another transport key".to_owned(),
    );
    say(
        was.signing_key != is.signing_key,
        "another signing key".to_owned(),
    );
    say(
        was.next_transport_key != is.next_transport_key || was.next_signing_key != is.next_signing_key,
        "other keys for its rotation".to_owned(),
    );
    say(was.rotations != is.rotations, "its rotations move".to_owned());
    let address = |leaf: &Leaf| leaf.address.clone().unwrap_or_else(|| "none".to_owned());
    say(
        was.address != is.address,
        format!("address {} -> {}", address(was), address(is)),
    );
    say(
        was.lifeline != is.lifeline,
        format!("lifeline {} -> {}", was.lifeline, is.lifeline),
    );
    say(
        was.valid_to != is.valid_to,
        format!("valid_to {} -> {}", was.valid_to, is.valid_to),
    );
    words
}

/// Keys of fleet.toml.
pub(super) fn fleet_file(
    before: Option<&Composed>,
    after: &Composed,
) -> Result<Vec<KeyChange>, serde_json::Error> {
    let Some(before) = before else {
        return Ok(Vec::new());
    };
    Ok(keys(
        &serde_json::to_value(&before.fleet)?,
        &serde_json::to_value(&after.fleet)?,
    ))
}

/// Deploy plans.
pub(super) fn plans(
    before: Option<&Composed>,
    after: &Composed,
) -> Result<Vec<PlanChange>, serde_json::Error> {
    use super::modules::How;
    let none = BTreeMap::new();
    let was = before.map_or(&none, |tree| &tree.plans);
    let names: BTreeSet<&PlanName> = was.keys().chain(after.plans.keys()).collect();
    let mut found = Vec::new();
    for name in names {
        let (how, keys) = match (was.get(name), after.plans.get(name)) {
            (Some(old), Some(new)) if old == new => continue,
            (Some(old), Some(new)) => {
                let keys = keys(&serde_json::to_value(old)?, &serde_json::to_value(new)?);
                // Only the place of a stage in its file is another: nothing that plans mean.
                if keys.is_empty() {
                    continue;
                }
                (How::Changed, keys)
            }
            (None, _) => (How::New, Vec::new()),
            (_, None) => (How::Gone, Vec::new()),
        };
        found.push(PlanChange {
            plan: name.clone(),
            how,
            keys,
        });
    }
    Ok(found)
}

/// Keys of policy, and the nodes that stay and on which it is another after, by name.
pub(super) fn policy(
    before: Option<&Composed>,
    after: &Composed,
) -> Result<(Vec<PolicyChange>, Vec<NodeName>), serde_json::Error> {
    let was = before
        .map(|tree| policy::parse(&tree.policy).unwrap_or_default())
        .unwrap_or_default();
    let is = policy::parse(&after.policy).unwrap_or_default();
    let mut found = Vec::new();
    let mut compare = |role: Option<&RoleName>, old: &Table, new: &Table| -> Result<(), serde_json::Error> {
        let changed = keys(&serde_json::to_value(old)?, &serde_json::to_value(new)?);
        found.extend(changed.into_iter().map(|key| PolicyChange {
            role: role.cloned(),
            key,
        }));
        Ok(())
    };
    compare(None, &was.base, &is.base)?;
    let nothing = Table::new();
    for role in was.roles.keys().chain(is.roles.keys()).collect::<BTreeSet<_>>() {
        let of = |policy: &'_ policy::FleetPolicy| {
            policy.roles.get(role).cloned().unwrap_or_else(|| nothing.clone())
        };
        compare(Some(role), &of(&was), &of(&is))?;
    }
    let old = before
        .map(|tree| policy_on_nodes(tree, &tree.policy))
        .transpose()?
        .unwrap_or_default();
    let new = policy_on_nodes(after, &after.policy)?;
    let mut nodes: Vec<NodeName> = (new.iter())
        .filter(|(id, (digest, _))| old.get(id).is_some_and(|(old, _)| old != digest))
        .filter_map(|(id, _)| Some(after.nodes.get(id)?.name.clone()))
        .collect();
    nodes.sort();
    Ok((found, nodes))
}

/// The keys of two values that are not equal. Elements of an array go by their name where they have one, else by
/// their place.
fn keys(old: &Value, new: &Value) -> Vec<KeyChange> {
    let (mut was, mut is) = (BTreeMap::new(), BTreeMap::new());
    leaves_of("", old, &mut was);
    leaves_of("", new, &mut is);
    let names: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
    (names.into_iter())
        .filter(|name| was.get(*name) != is.get(*name))
        .map(|name| KeyChange {
            key: name.clone(),
            before: was.get(name).cloned(),
            after: is.get(name).cloned(),
        })
        .collect()
}

fn leaves_of(above: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    let under = |key: &str| {
        if above.is_empty() {
            key.to_owned()
        } else {
            format!("{above}.{key}")
        }
    };
    match value {
        Value::Object(inner) => {
            for (key, value) in inner {
                leaves_of(&under(key), value, out);
            }
        }
        Value::Array(elements) if elements.iter().any(Value::is_object) => {
            for (at, element) in elements.iter().enumerate() {
                let named = ["name", "id"].iter().find_map(|key| element.get(key)?.as_str());
                let key = named.map_or_else(|| at.to_string(), str::to_owned);
                // The order of the elements means something, and the names alone would not show it.
                out.insert(format!("{}.place", under(&key)), at.to_string());
                leaves_of(&under(&key), element, out);
            }
        }
        Value::Null => {}
        other => {
            out.insert(above.to_owned(), other.to_string());
        }
    }
}

fn json<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
