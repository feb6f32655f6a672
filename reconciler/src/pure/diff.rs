//! What a commit changes, beside what was accepted before: the legs of its delivery (DL-3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::declaration::LeftOut;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ModuleName, NodeId, RoleName};
use meshplan_schemas::policy;
use serde::{Deserialize, Serialize};

use super::compose::former::Former;
use super::compose::{Composed, ComposedNode, Filled};
use super::delivery::Leg;
use super::scope::Scope;
use super::snapshot::{ContentRef, KnownBad, Snapshot};
use changes::Changes;

mod changes;
pub mod proven;

/// The `policy` scope's content on one node: what the node merges policy by, and what comes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyOnNode {
    /// Its roles, in the record's order.
    pub roles: Vec<RoleName>,
    /// HR-8.
    pub adopted: bool,
    /// HR-8.
    pub take: Vec<ModuleName>,
    /// The digest of the effective policy's text.
    pub effective: Digest,
}

/// What a commit changes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Diff {
    /// The legs, list first, then policy, modules by name, gate (DL-3).
    pub legs: Vec<Leg>,
    /// Scopes that differ and are left alone: they failed before, and this commit did not touch them.
    pub skipped: BTreeMap<Scope, KnownBad>,
    /// Scopes that failed before with just this content, and that this commit touches (DL-14).
    pub known_bad: BTreeMap<Scope, KnownBad>,
    /// The content of legs that is not the tree's own: what was accepted before of modules that are skipped.
    pub former: BTreeMap<Digest, Arc<Filled>>,
    /// Modules that nodes lack, and that these legs do not bring them (FR-8).
    pub left_out: BTreeMap<NodeId, Vec<LeftOut>>,
    /// Machines that are left behind these legs, or what was accepted before them: no stage has them (UC-1).
    pub left_behind: BTreeSet<NodeId>,
    /// Former content that is wanted ([`proven::wanted`]) was not composed yet: this says not all.
    pub unread: bool,
}

/// What a tree is compared with.
#[derive(Debug, Clone, Copy)]
pub struct Beside<'a> {
    /// What was accepted, is assigned, and failed.
    pub snapshot: &'a Snapshot,
    /// The tree of the commit before it, to tell what the commit itself touched.
    pub previous: Option<&'a Composed>,
    /// The policy text that was last accepted.
    pub accepted_text: Option<&'a str>,
    /// The content of [`proven::wanted`].
    pub formers: &'a Former,
    /// A person said that known-bad does not hold it.
    pub again: bool,
}

/// What a node merges policy by: roles, adopted, take.
type MergedBy<'a> = (&'a [RoleName], bool, &'a [ModuleName]);

/// The content of the `policy` scope on each node of a tree under a policy text, with its digest.
///
/// # Errors
/// Text that cannot be digested, which does not happen for what a tree composes to.
pub fn policy_on_nodes(
    tree: &Composed,
    text: &str,
) -> Result<BTreeMap<NodeId, (Digest, Arc<PolicyOnNode>)>, serde_json::Error> {
    let policy = policy::parse(text).unwrap_or_default();
    // Nodes that policy is merged by alike have the same content: merge, and take its digest, once for all of them.
    let mut merged: BTreeMap<MergedBy<'_>, (Digest, Arc<PolicyOnNode>)> = BTreeMap::new();
    let mut out = BTreeMap::new();
    for node in tree.nodes.values() {
        let alike = (node.roles.as_slice(), node.adopted, node.take.as_slice());
        if let Some(content) = merged.get(&alike) {
            out.insert(node.id, content.clone());
            continue;
        }
        let content = PolicyOnNode {
            roles: node.roles.clone(),
            adopted: node.adopted,
            take: node.take.clone(),
            effective: Digest::of(policy.effective_text(&node.roles).as_bytes()),
        };
        let content = (Digest::of_value(&content)?, Arc::new(content));
        merged.insert(alike, content.clone());
        out.insert(node.id, content);
    }
    Ok(out)
}

/// Compares a commit's tree with what was accepted.
///
/// # Errors
/// As [`policy_on_nodes`].
pub fn diff(tree: &Composed, beside: &Beside<'_>) -> Result<Diff, serde_json::Error> {
    let snapshot = beside.snapshot;
    let mut all = Vec::new();
    let mut out = Diff::default();
    if snapshot.accepted.get(&Scope::List).map(|c| c.digest) != Some(tree.list_digest) {
        let before = snapshot.accepted.get(&Scope::List).map(|c| c.digest);
        all.push(Leg {
            scope: Scope::List,
            digest: tree.list_digest,
            before,
            from: None,
            nodes: BTreeMap::new().into(),
            behind: BTreeMap::new().into(),
        });
    }
    let (policy, lagging) = policy_leg(tree, snapshot, &tree.policy, tree.policy_digest)?;
    let mut behind = BTreeMap::from([(Scope::Policy, lagging)]);
    all.extend(policy);
    for (leg, lagging) in module_legs(tree, snapshot) {
        behind.insert(leg.scope.clone(), lagging);
        all.extend((!leg.nodes.is_empty() || !leg.behind.is_empty()).then_some(leg));
    }
    if snapshot.accepted.get(&Scope::Gate).map(|c| c.digest) != Some(tree.gate_digest) {
        let before = snapshot.accepted.get(&Scope::Gate).map(|c| c.digest);
        all.push(Leg {
            scope: Scope::Gate,
            digest: tree.gate_digest,
            before,
            from: None,
            nodes: BTreeMap::new().into(),
            behind: BTreeMap::new().into(),
        });
    }

    for leg in all {
        let failed = snapshot
            .known_bad
            .get(&(leg.scope.clone(), leg.digest))
            .filter(|_| !beside.again);
        let Some(bad) = failed else {
            out.legs.push(leg);
            continue;
        };
        // What was accepted and then failed on a machine that got it later is no failure of the commit.
        let is_accepted = snapshot.accepted.get(&leg.scope).map(|c| c.digest) == Some(leg.digest);
        if touched(&leg, tree, beside.previous) && !is_accepted {
            out.known_bad.insert(leg.scope.clone(), bad.clone());
            out.legs.push(leg);
            continue;
        }
        out.skipped.insert(leg.scope.clone(), bad.clone());
        // Nobody gets it: nobody is behind it.
        behind.remove(&leg.scope);
        match leg.scope {
            // The text stays out; who a node is (roles, takes) does not wait for it.
            Scope::Policy => {
                if let Some((text, digest)) = beside.accepted_text.zip(leg.before) {
                    let (leg, lagging) = policy_leg(tree, snapshot, text, digest)?;
                    out.legs.extend(leg);
                    behind.insert(Scope::Policy, lagging);
                }
            }
            Scope::Module(_) => {
                let instead = proven::instead(tree, snapshot, beside.formers, &leg, bad);
                out.legs.extend(instead.leg);
                out.former.extend(instead.contents);
                out.unread |= instead.unread;
                for (node, left_out) in instead.left_out {
                    out.left_out.entry(node).or_default().push(left_out);
                }
            }
            Scope::List | Scope::Gate => {}
        }
    }
    out.left_behind = behind.into_values().flatten().collect();
    Ok(out)
}

/// Whether the commit itself changed the scope.
fn touched(leg: &Leg, tree: &Composed, previous: Option<&Composed>) -> bool {
    let Some(previous) = previous else { return true };
    match &leg.scope {
        Scope::List => previous.list_digest != tree.list_digest,
        Scope::Policy => previous.policy_digest != tree.policy_digest,
        Scope::Gate => previous.gate_digest != tree.gate_digest,
        Scope::Module(name) => previous.sources.get(name) != tree.sources.get(name),
    }
}

/// The leg of the policy, where there is one, and the nodes that are left behind this text.
fn policy_leg(
    tree: &Composed,
    snapshot: &Snapshot,
    text: &str,
    digest: Digest,
) -> Result<(Option<Leg>, BTreeSet<NodeId>), serde_json::Error> {
    let before = snapshot.accepted.get(&Scope::Policy).map(|c| c.digest);
    let mut changes = Changes::default();
    for (id, (digest, _)) in policy_on_nodes(tree, text)? {
        if let Some(node) = tree.nodes.get(&id).filter(|node| node.enrolled) {
            changes.add(snapshot, node, &Scope::Policy, Some(digest));
        }
    }
    let differs = before != Some(digest) || !changes.is_empty();
    let leg = differs.then_some(Leg {
        scope: Scope::Policy,
        digest,
        before,
        from: None,
        nodes: changes.nodes.into(),
        behind: changes.behind.into(),
    });
    Ok((leg, changes.lagging))
}

/// A leg for each module that any node has another content of, with the nodes that are left behind it; one that changes
/// nobody is none.
fn module_legs(tree: &Composed, snapshot: &Snapshot) -> Vec<(Leg, BTreeSet<NodeId>)> {
    let mut changes: BTreeMap<ModuleName, Changes> = BTreeMap::new();
    for node in tree.nodes.values().filter(|n| n.enrolled) {
        for (module, after) in modules_changed(node, snapshot) {
            let scope = Scope::Module(module.clone());
            let of_module = changes.entry(module.clone()).or_default();
            of_module.add(snapshot, node, &scope, after);
        }
    }
    changes
        .into_iter()
        .map(|(module, changes)| {
            // A module that is gone from the tree has the digest of nothing.
            let digest = tree
                .sources
                .get(&module)
                .copied()
                .unwrap_or_else(|| Digest::of(b""));
            let leg = Leg {
                scope: Scope::Module(module),
                digest,
                before: None,
                from: None,
                nodes: changes.nodes.into(),
                behind: changes.behind.into(),
            };
            (leg, changes.lagging)
        })
        .collect()
}

/// The modules of a node whose content is not just what the node runs and has proven, with the content after.
fn modules_changed<'n>(
    node: &'n ComposedNode,
    snapshot: &'n Snapshot,
) -> BTreeMap<&'n ModuleName, Option<Digest>> {
    let mut changed: BTreeMap<&ModuleName, Option<Digest>> = (node.modules.iter())
        .map(|(module, (digest, _))| (module, Some(*digest)))
        .collect();
    let assigned = snapshot.assignments.range((node.id, Scope::List)..);
    for ((_, scope), assignment) in assigned.take_while(|((id, _), _)| *id == node.id) {
        let Scope::Module(module) = scope else { continue };
        let of = |content: &Option<ContentRef>| content.as_ref().map(|c| c.digest);
        let (assigned, proven) = (of(&assignment.assigned), of(&assignment.proven));
        match changed.get(module) {
            Some(after) if *after == assigned && *after == proven && assignment.held_back.is_none() => {
                changed.remove(module);
            }
            Some(_) => {}
            None if node.left_out.iter().any(|l| l.module == *module) => {}
            None => {
                changed.insert(module, None);
            }
        }
    }
    changed
}
