//! Modules whose newest content failed: what their nodes get instead (DL-3, DL-14).
//!
//! | node | gets |
//! | --- | --- |
//! | has the module | keeps what is assigned to it, whatever its record says now |
//! | has it, and its record no longer | the module is taken away |
//! | lacks it | what was last accepted, composed for its record of today |
//! | lacks it, and that failed on this very machine, or there is no such thing, or it does not fit | nothing, with the reason (FR-8) |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::declaration::{LeftOut, ModuleContent};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{CommitId, ModuleName, NodeId};

use crate::pure::compose::former::Former;
use crate::pure::compose::{Composed, ComposedNode, Filled};
use crate::pure::delivery::{Leg, NodeChange};
use crate::pure::scope::Scope;
use crate::pure::snapshot::{ContentRef, KnownBad, Snapshot};

/// A module that is to be composed as an earlier commit has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The commit in which it was last accepted.
    pub commit: CommitId,
    /// For these nodes.
    pub nodes: BTreeSet<NodeId>,
}

/// What must be composed from earlier commits before a tree can be compared with what was accepted; empty as a rule.
#[must_use]
pub fn wanted(tree: &Composed, snapshot: &Snapshot) -> BTreeMap<ModuleName, Wanted> {
    let mut out = BTreeMap::new();
    if snapshot.known_bad.is_empty() {
        return out;
    }
    for (module, digest) in &tree.sources {
        let scope = Scope::Module(module.clone());
        if !snapshot.known_bad.contains_key(&(scope.clone(), *digest)) {
            continue;
        }
        let Some(accepted) = accepted(snapshot, &scope).filter(|a| a.digest != *digest) else {
            continue;
        };
        let nodes: BTreeSet<NodeId> = tree
            .nodes
            .values()
            .filter(|node| node.enrolled && node.modules.contains_key(module))
            .map(|node| node.id)
            .filter(|id| !has(snapshot, *id, &scope) && !failed_on(snapshot, &scope, accepted.digest, *id))
            .collect();
        if !nodes.is_empty() {
            let commit = accepted.commit.clone();
            out.insert(module.clone(), Wanted { commit, nodes });
        }
    }
    out
}

/// What is done instead of a leg that failed before.
#[derive(Debug, Default)]
pub(super) struct Instead {
    /// The nodes that get what was accepted, or lose the module.
    pub(super) leg: Option<Leg>,
    /// What they get.
    pub(super) contents: BTreeMap<Digest, Arc<Filled>>,
    /// Who gets nothing, and why.
    pub(super) left_out: Vec<(NodeId, LeftOut)>,
    /// A former content that is wanted and was not composed yet.
    pub(super) unread: bool,
}

/// What the nodes of a leg of this module get instead of content that failed before.
pub(super) fn instead(
    tree: &Composed,
    snapshot: &Snapshot,
    formers: &Former,
    leg: &Leg,
    bad: &KnownBad,
) -> Instead {
    let mut out = Instead::default();
    let Scope::Module(module) = &leg.scope else {
        return out;
    };
    let accepted = accepted(snapshot, &leg.scope);
    let mut nodes = BTreeMap::new();
    for (id, change) in &leg.nodes {
        let Some(node) = tree.nodes.get(id) else { continue };
        let failed = accepted.is_some_and(|a| failed_on(snapshot, &leg.scope, a.digest, *id));
        if has(snapshot, *id, &leg.scope) {
            // A module that is gone from the tree is gone everywhere, and that is what failed.
            let taken = change.after.is_none() && tree.sources.contains_key(module);
            if taken && accepted.is_some() && !failed {
                nodes.insert(*id, change.clone());
            }
            continue;
        }
        let Some(newest) = node.modules.get(module) else {
            continue;
        };
        let made = match accepted {
            None => Err("nothing of it was accepted before".to_owned()),
            Some(a) if failed => Err(format!(
                "what was accepted in {} failed on this machine",
                a.commit.short()
            )),
            Some(a) if a.digest == leg.digest => Ok(newest.clone()),
            Some(a) => match formers.get(&(module.clone(), *id)) {
                None => {
                    out.unread = true;
                    continue;
                }
                Some(Err(why)) => Err(format!("of what was accepted in {}: {why}", a.commit.short())),
                Some(Ok((digest, content))) => match clash(node, module, content) {
                    Some(why) => Err(format!("of what was accepted in {}: {why}", a.commit.short())),
                    None => Ok((*digest, Arc::clone(content))),
                },
            },
        };
        match made {
            Ok((digest, content)) => {
                let (before, after) = (change.before, Some(digest));
                nodes.insert(*id, NodeChange { before, after });
                out.contents.insert(digest, content);
            }
            Err(why) => {
                let reason = format!(
                    "its newest content failed in {} ({}); {why}",
                    bad.commit.short(),
                    bad.reason
                );
                let module = module.clone();
                out.left_out.push((*id, LeftOut { module, reason }));
            }
        }
    }
    if let Some(accepted) = accepted.filter(|_| !nodes.is_empty()) {
        out.leg = Some(Leg {
            scope: leg.scope.clone(),
            digest: accepted.digest,
            before: None,
            from: Some(accepted.commit.clone()),
            nodes: nodes.into(),
            behind: BTreeMap::new().into(),
        });
    }
    out
}

/// What was accepted of a module, unless that is its absence.
fn accepted<'s>(snapshot: &'s Snapshot, scope: &Scope) -> Option<&'s ContentRef> {
    snapshot
        .accepted
        .get(scope)
        .filter(|content| content.digest != Digest::of(b""))
}

fn has(snapshot: &Snapshot, node: NodeId, scope: &Scope) -> bool {
    snapshot
        .assignments
        .get(&(node, scope.clone()))
        .is_some_and(|a| a.assigned.is_some() || a.proven.is_some())
}

fn failed_on(snapshot: &Snapshot, scope: &Scope, digest: Digest, node: NodeId) -> bool {
    snapshot
        .known_bad
        .get(&(scope.clone(), digest))
        .is_some_and(|bad| bad.on.contains(&node))
}

/// Why former content cannot stand beside the node's other modules of today, which no tree was validated with: a
/// host refuses two owners of one target, and modules that wait for each other (HR-2, HR-6).
fn clash(node: &ComposedNode, module: &ModuleName, content: &ModuleContent) -> Option<String> {
    let others = || {
        let others = node.modules.iter().filter(|(name, _)| *name != module);
        others.map(|(_, (_, made))| &made.content)
    };
    let mine = targets(content);
    for other in others() {
        if let Some(target) = targets(other).intersection(&mine).next() {
            return Some(format!("`{target}` belongs to the module {} now", other.module));
        }
    }
    let mut waits: BTreeMap<&ModuleName, BTreeSet<&ModuleName>> = others()
        .chain([content])
        .map(|c| (&c.module, c.after.iter().collect()))
        .collect();
    let here: BTreeSet<&ModuleName> = waits.keys().copied().collect();
    waits
        .values_mut()
        .for_each(|after| after.retain(|m| here.contains(m)));
    while let Some(next) = waits.iter().find(|(_, after)| after.is_empty()).map(|(m, _)| *m) {
        waits.remove(next);
        waits.values_mut().for_each(|after| {
            after.remove(next);
        });
    }
    let ring: Vec<&str> = waits.keys().map(|m| m.as_str()).collect();
    (!ring.is_empty()).then(|| format!("these modules would wait for each other: {}", ring.join(", ")))
}

fn targets(content: &ModuleContent) -> BTreeSet<String> {
    let kinds = content.resources.iter().filter_map(|r| r.read().ok());
    kinds
        .filter_map(|kind| kind.target().map(str::to_owned))
        .collect()
}
