//! Resources that change: equal changes once, with the nodes that they reach.
//!
//! Two nodes have an equal change where the same lines are lost and new and the same fields move, also where the
//! lines around them differ: a template that names its node is no reason to show one change ten thousand times.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::ModuleContent;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ModuleName, NodeId, NodeName, ResourceName};
use meshplan_schemas::resource::Resource;
use serde::Serialize;

use super::{LeftOutModule, NotReversible, Removal};
use crate::pure::compose::{Composed, ComposedNode};

mod resource;

pub use resource::{FieldChange, ResourceChange, TextChange};

/// What becomes of a module on a node, or of a resource in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// It was not there.
    New,
    /// It goes.
    Gone,
    /// It is another after.
    Changed,
}

/// One change of a module, and the nodes that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The module.
    pub module: ModuleName,
    /// What becomes of it there.
    pub how: How,
    /// What changes of the module as a whole, in words.
    pub facts: Vec<String>,
    /// Its resources that change.
    pub resources: Vec<ResourceChange>,
    /// The nodes, by name.
    pub nodes: Vec<NodeName>,
    /// The node whose content is shown.
    pub shown: NodeName,
    /// The content around the change is not the same on all of them.
    pub unlike: bool,
}

/// All that changes of modules.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) groups: Vec<Group>,
    pub(super) removals: Vec<Removal>,
}

/// A change between two contents.
#[derive(Debug, Clone)]
struct Delta {
    group: Group,
    /// Equal for equal changes.
    key: Digest,
}

type Pair = (Option<Digest>, Option<Digest>);
/// Where on a machine each target is claimed.
type Targets = BTreeMap<String, ResourceName>;

pub(super) fn changes(before: Option<&Composed>, after: &Composed) -> Changes {
    let mut deltas: BTreeMap<(ModuleName, Pair), Delta> = BTreeMap::new();
    let mut groups: BTreeMap<(ModuleName, Digest), (Group, BTreeSet<Pair>)> = BTreeMap::new();
    let mut removals: BTreeMap<(ResourceName, String, Option<String>), Vec<NodeName>> = BTreeMap::new();
    for (was, is) in nodes(before, after) {
        let Some(name) = is.or(was).map(|node| node.name.clone()) else {
            continue;
        };
        // Where each target goes; made only where something goes.
        let mut targets: Option<Targets> = None;
        for module in names(was, is) {
            let old = was.and_then(|node| node.modules.get(&module));
            let new = is.and_then(|node| node.modules.get(&module));
            let pair = (old.map(|(digest, _)| *digest), new.map(|(digest, _)| *digest));
            if pair.0 == pair.1 {
                continue;
            }
            let delta = deltas.entry((module.clone(), pair)).or_insert_with(|| {
                delta(
                    (&module, &name),
                    old.map(|(_, made)| &made.content),
                    new.map(|(_, made)| &made.content),
                )
            });
            let gone: Vec<&ResourceChange> = (delta.group.resources.iter())
                .filter(|r| r.how == How::Gone)
                .collect();
            let mut taken: BTreeMap<ResourceName, ResourceName> = BTreeMap::new();
            for resource in gone {
                let targets = targets.get_or_insert_with(|| targets_of(is));
                let owner = resource.target.as_ref().and_then(|target| targets.get(target));
                if let Some(owner) = owner {
                    taken.insert(resource.name.clone(), owner.clone());
                } else if resource.kind != "probe" {
                    let what = (
                        resource.name.clone(),
                        resource.kind.clone(),
                        resource.target.clone(),
                    );
                    removals.entry(what).or_default().push(name.clone());
                }
            }
            let key = Digest::of(format!("{:?} {taken:?}", delta.key).as_bytes());
            let (group, pairs) = groups.entry((module, key)).or_insert_with(|| {
                let mut group = delta.group.clone();
                for resource in &mut group.resources {
                    resource.taken_by = taken.get(&resource.name).cloned();
                }
                group.shown = name.clone();
                (group, BTreeSet::new())
            });
            group.nodes.push(name.clone());
            pairs.insert(pair);
        }
    }
    Changes {
        groups: sorted(groups.into_values()),
        removals: removals
            .into_iter()
            .map(|((resource, kind, target), mut nodes)| {
                nodes.sort();
                Removal {
                    resource,
                    kind,
                    target,
                    nodes,
                }
            })
            .collect(),
    }
}

/// Those of the fewest nodes first: what is unlike the rest is what a reader must not miss.
fn sorted(groups: impl Iterator<Item = (Group, BTreeSet<Pair>)>) -> Vec<Group> {
    let mut groups: Vec<Group> = groups
        .map(|(mut group, pairs)| {
            group.unlike = pairs.len() > 1;
            group.nodes.sort();
            group
        })
        .collect();
    groups.sort_by(|a, b| (a.nodes.len(), &a.module, &a.nodes).cmp(&(b.nodes.len(), &b.module, &b.nodes)));
    groups
}

/// Every node before and after, by uuid.
fn nodes<'a>(
    before: Option<&'a Composed>,
    after: &'a Composed,
) -> impl Iterator<Item = (Option<&'a ComposedNode>, Option<&'a ComposedNode>)> {
    let ids: BTreeSet<NodeId> = before
        .iter()
        .flat_map(|tree| tree.nodes.keys())
        .chain(after.nodes.keys())
        .copied()
        .collect();
    ids.into_iter().map(move |id| {
        let was = before.and_then(|tree| tree.nodes.get(&id));
        (was.map(AsRef::as_ref), after.nodes.get(&id).map(AsRef::as_ref))
    })
}

/// The modules of a node before and after; one that is left out after stays as it is there (FR-8).
fn names(was: Option<&ComposedNode>, is: Option<&ComposedNode>) -> BTreeSet<ModuleName> {
    let left_out: BTreeSet<&ModuleName> = is
        .iter()
        .flat_map(|node| node.left_out.iter().map(|left| &left.module))
        .collect();
    was.iter()
        .chain(is.iter())
        .flat_map(|node| node.modules.keys())
        .filter(|module| !left_out.contains(module))
        .cloned()
        .collect()
}

fn targets_of(node: Option<&ComposedNode>) -> Targets {
    node.iter()
        .flat_map(|node| node.modules.values())
        .flat_map(|(_, content)| &content.resources)
        .filter_map(|resource| Some((resource::target(resource)?, resource.name.clone())))
        .collect()
}

fn delta(
    (module, shown): (&ModuleName, &NodeName),
    old: Option<&ModuleContent>,
    new: Option<&ModuleContent>,
) -> Delta {
    let how = match (old, new) {
        (None, _) => How::New,
        (_, None) => How::Gone,
        _ => How::Changed,
    };
    let mut facts = match (old, new) {
        (Some(old), Some(new)) => facts(old, new),
        _ => Vec::new(),
    };
    let by_name = |content: Option<&ModuleContent>| -> BTreeMap<ResourceName, Resource> {
        content
            .iter()
            .flat_map(|content| &content.resources)
            .map(|resource| (resource.name.clone(), resource.clone()))
            .collect()
    };
    let (was, is) = (by_name(old), by_name(new));
    let all: BTreeSet<&ResourceName> = was.keys().chain(is.keys()).collect();
    let mut key = format!("{how:?} {facts:?}");
    let mut resources = Vec::new();
    for name in all {
        if let Some((change, lines)) = resource::change(was.get(name), is.get(name)) {
            key.push_str(&lines);
            resources.push(change);
        }
    }
    if facts.is_empty() && resources.is_empty() && how == How::Changed {
        facts.push("the order of its resources changes".to_owned());
    }
    Delta {
        group: Group {
            module: module.clone(),
            how,
            facts,
            resources,
            nodes: Vec::new(),
            shown: shown.clone(),
            unlike: false,
        },
        key: Digest::of(key.as_bytes()),
    }
}

/// What is the module's own, in words.
fn facts(old: &ModuleContent, new: &ModuleContent) -> Vec<String> {
    fn list<T: ToString>(values: &[T]) -> String {
        let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
        format!("[{}]", texts.join(", "))
    }
    let mut facts = Vec::new();
    if old.mode != new.mode {
        facts.push(match new.mode {
            meshplan_schemas::declaration::Mode::Observe => {
                "it is only looked at from here on: mode apply -> observe".to_owned()
            }
            meshplan_schemas::declaration::Mode::Apply => {
                "it is applied from here on: mode observe -> apply".to_owned()
            }
        });
    }
    if old.after != new.after {
        facts.push(format!("after {} -> {}", list(&old.after), list(&new.after)));
    }
    if old.on_policy_change != new.on_policy_change {
        let (old, new) = (list(&old.on_policy_change), list(&new.on_policy_change));
        facts.push(format!("on_policy_change {old} -> {new}"));
    }
    if old.requires != new.requires {
        let (old, new) = (list(&old.requires), list(&new.requires));
        facts.push(format!("requires {old} -> {new}"));
    }
    facts
}

/// Resources of these groups that no roll-back brings back, with the number of nodes.
pub(super) fn not_reversible(groups: &[Group]) -> Vec<NotReversible> {
    let mut found: BTreeMap<(ResourceName, String), usize> = BTreeMap::new();
    for group in groups {
        for resource in &group.resources {
            if let Some(why) = &resource.lasting {
                *found.entry((resource.name.clone(), why.clone())).or_default() += group.nodes.len();
            }
        }
    }
    (found.into_iter())
        .map(|((resource, why), nodes)| NotReversible { resource, why, nodes })
        .collect()
}

/// What is left out after, with the nodes.
pub(super) fn left_out(after: &Composed) -> Vec<LeftOutModule> {
    let mut found: BTreeMap<(ModuleName, String), Vec<NodeName>> = BTreeMap::new();
    for node in after.nodes.values() {
        for left in &node.left_out {
            let what = (left.module.clone(), left.reason.clone());
            found.entry(what).or_default().push(node.name.clone());
        }
    }
    (found.into_iter())
        .map(|((module, reason), mut nodes)| {
            nodes.sort();
            LeftOutModule {
                module,
                reason,
                nodes,
            }
        })
        .collect()
}
