//! What each node shall run and has proven, composed again (DL-12): content is no part of the record, the commits that were
//! accepted are, and a commit composes to the same bytes each time.
//!
//! Every change of a module on a node is a leg of the module, so the commit in which a module was last accepted has it as
//! each node has it. Invariant: a node gets all that it has, or the whole recovery is refused: half a node would be an order
//! to remove the other half.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::digest::{Digest, canonical};
use meshplan_schemas::fleet_list::{Leaf, UpdateClass};
use meshplan_schemas::ident::{CommitId, ModuleName, NodeId, NodeName};

use super::Record;
use crate::pure::compose::former::Former;
use crate::pure::compose::{Composed, ComposedNode};
use crate::pure::diff::policy_on_nodes;
use crate::pure::diff::proven::Wanted;
use crate::pure::scope::Scope;
use crate::pure::secrets::Secret;
use crate::pure::snapshot::{Assignment, Assignments, ContentRef, KnownBad};

/// What a record comes to with the trees of its commits.
#[derive(Debug, Default)]
pub struct Filled {
    /// What each node shall run and has proven.
    pub assignments: Assignments,
    /// The content of that, by digest.
    pub contents: BTreeMap<Digest, Vec<u8>>,
    /// The values of secrets that the contents name.
    pub values: BTreeMap<Digest, Secret>,
    /// What is accepted: with the digests that this build composes.
    pub accepted: BTreeMap<Scope, ContentRef>,
    /// What failed, on which machines.
    pub known_bad: BTreeMap<(Scope, Digest), KnownBad>,
    /// The records of the newest list that was signed, in the order of its tree.
    pub leaves: Vec<Leaf>,
    /// Nodes of which something is not known: no declaration of theirs is signed anew, for it would lack that.
    pub partial: BTreeSet<NodeId>,
    /// What could not be rebuilt, a sentence each.
    pub unknown: Vec<String>,
}

/// The commits whose trees are needed, each with a scope that was accepted in it.
#[must_use]
pub fn needed(record: &Record) -> BTreeMap<CommitId, Scope> {
    let contents = record.accepted.iter().filter(|(scope, _)| **scope != Scope::Gate);
    let mut out: BTreeMap<CommitId, Scope> = contents.map(|(s, c)| (c.commit.clone(), s.clone())).collect();
    if let Some(policy) = text_of(record) {
        out.entry(policy).or_insert(Scope::Policy);
    }
    out
}

/// The commit that has the text of the accepted policy.
fn text_of(record: &Record) -> Option<CommitId> {
    let accepted = record.accepted.get(&Scope::Policy)?;
    let origin = record.origins.get(&(Scope::Policy, accepted.digest));
    Some(origin.unwrap_or(&accepted.commit).clone())
}

/// Modules that nodes got as an earlier commit has them, because their newest content had failed: asked of the tree of the
/// signed list. Empty as a rule.
#[must_use]
pub fn wanted(record: &Record, trees: &BTreeMap<CommitId, Arc<Composed>>) -> BTreeMap<ModuleName, Wanted> {
    let mut out = BTreeMap::new();
    let list = record
        .accepted
        .get(&Scope::List)
        .and_then(|c| trees.get(&c.commit));
    let Some(list) = list else { return out };
    for (scope, content) in &record.accepted {
        let (Scope::Module(module), Some(tree)) = (scope, trees.get(&content.commit)) else {
            continue;
        };
        let failed = list.sources.get(module).is_some_and(|newest| {
            *newest != content.digest && record.known_bad.contains_key(&(scope.clone(), *newest))
        });
        if !failed {
            continue;
        }
        let lacking = list
            .nodes
            .values()
            .filter(|node| runs(node) && node.modules.contains_key(module));
        let nodes: BTreeSet<NodeId> = lacking
            .map(|node| node.id)
            .filter(|id| {
                !tree
                    .nodes
                    .get(id)
                    .is_some_and(|n| n.enrolled && n.modules.contains_key(module))
            })
            .collect();
        if !nodes.is_empty() {
            let commit = content.commit.clone();
            out.insert(module.clone(), Wanted { commit, nodes });
        }
    }
    out
}

/// Whether a node runs what was accepted: not one without keys, and of one that is left behind nobody can say what.
fn runs(node: &ComposedNode) -> bool {
    node.enrolled && node.update_class != UpdateClass::LeftBehind
}

/// Composes what the record says. `trees` has all of [`needed`], `formers` all of [`wanted`].
///
/// # Errors
/// A value that cannot be digested, which does not happen for what a tree composes to.
pub fn fill(
    record: &Record,
    trees: &BTreeMap<CommitId, Arc<Composed>>,
    formers: &Former,
) -> Result<Filled, serde_json::Error> {
    let mut out = Filled {
        accepted: record.accepted.clone(),
        ..Filled::default()
    };
    let Some(list) = record
        .accepted
        .get(&Scope::List)
        .and_then(|c| trees.get(&c.commit))
    else {
        return Ok(out);
    };
    out.leaves = list.leaves.values().map(|listed| listed.leaf.clone()).collect();
    let by_short: BTreeMap<String, NodeId> = list
        .nodes
        .values()
        .map(|n| (n.id.short().to_string(), n.id))
        .collect();
    for (key, bad) in &record.known_bad {
        let bad = KnownBad {
            commit: bad.commit.clone(),
            since: bad.since,
            reason: bad.reason.clone(),
            on: bad
                .on
                .iter()
                .filter_map(|short| by_short.get(short))
                .copied()
                .collect(),
        };
        out.known_bad.insert(key.clone(), bad);
    }
    let behind: Vec<&NodeName> = list
        .nodes
        .values()
        .filter(|node| node.enrolled && node.update_class == UpdateClass::LeftBehind)
        .map(|node| &node.name)
        .collect();
    for name in behind {
        out.unknown.push(format!(
            "{name} is left behind: what it runs is not in the record; it keeps it until it follows"
        ));
    }
    for (scope, content) in &record.accepted {
        match scope {
            Scope::Module(module) => modules(
                &mut out,
                list,
                trees.get(&content.commit),
                (module, content),
                formers,
            )?,
            Scope::Policy => policy(&mut out, record, list, trees)?,
            Scope::List | Scope::Gate => {}
        }
    }
    Ok(out)
}

fn modules(
    out: &mut Filled,
    list: &Composed,
    tree: Option<&Arc<Composed>>,
    (module, accepted): (&ModuleName, &ContentRef),
    formers: &Former,
) -> Result<(), serde_json::Error> {
    let Some(tree) = tree else { return Ok(()) };
    for node in list.nodes.values().filter(|node| runs(node)) {
        let then = tree.nodes.get(&node.id).filter(|node| node.enrolled);
        let left_out = then.is_some_and(|then| then.left_out.iter().any(|l| l.module == *module));
        let made = match then.and_then(|then| then.modules.get(module)) {
            Some(made) => made.clone(),
            None => match formers.get(&(module.clone(), node.id)) {
                Some(Ok(made)) => made.clone(),
                None if !left_out => continue,
                // It may run what an earlier commit had of it (FR-8).
                None | Some(Err(_)) => {
                    out.partial.insert(node.id);
                    let name = &node.name;
                    out.unknown.push(format!(
                        "what {name} runs of the module {module}: {name} keeps what it has until a delivery changes it"
                    ));
                    continue;
                }
            },
        };
        let (digest, content) = made;
        if let std::collections::btree_map::Entry::Vacant(free) = out.contents.entry(digest) {
            free.insert(canonical(&content.content)?);
            out.values
                .extend(content.values.iter().map(|value| (value.digest(), value.clone())));
        }
        assign(
            out,
            node.id,
            Scope::Module(module.clone()),
            digest,
            &accepted.commit,
        );
    }
    Ok(())
}

fn policy(
    out: &mut Filled,
    record: &Record,
    list: &Composed,
    trees: &BTreeMap<CommitId, Arc<Composed>>,
) -> Result<(), serde_json::Error> {
    let accepted = record.accepted.get(&Scope::Policy);
    let tree = accepted.and_then(|content| trees.get(&content.commit));
    let origin = text_of(record).and_then(|commit| trees.get(&commit));
    let (Some(accepted), Some(tree), Some(origin)) = (accepted, tree, origin) else {
        return Ok(());
    };
    out.contents
        .insert(origin.policy_digest, canonical(&origin.policy)?);
    let content = ContentRef {
        digest: origin.policy_digest,
        commit: accepted.commit.clone(),
    };
    out.accepted.insert(Scope::Policy, content);
    for (id, (digest, content)) in policy_on_nodes(tree, &origin.policy)? {
        let known = tree.nodes.get(&id).is_some_and(|node| node.enrolled);
        if !known || !list.nodes.get(&id).is_some_and(|node| runs(node)) {
            continue;
        }
        if let std::collections::btree_map::Entry::Vacant(free) = out.contents.entry(digest) {
            free.insert(canonical(&*content)?);
        }
        assign(out, id, Scope::Policy, digest, &accepted.commit);
    }
    Ok(())
}

fn assign(out: &mut Filled, node: NodeId, scope: Scope, digest: Digest, commit: &CommitId) {
    let content = Some(ContentRef {
        digest,
        commit: commit.clone(),
    });
    let assignment = Assignment {
        assigned: content.clone(),
        proven: content,
        held_back: None,
    };
    out.assignments.insert((node, scope), assignment);
}
