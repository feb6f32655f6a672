//! The orders: of the list, of a stage, of the rest, of a roll-back (DL-3).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::{Phase, Targeting};
use meshplan_schemas::fleet_list::{FleetHead, ListSettings};
use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::limits::{REVOKED, SCHEMA};
use meshplan_schemas::merkle;

use super::DecideError;
use super::draft::Draft;
use crate::pure::act::Order;
use crate::pure::compose::Composed;
use crate::pure::delivery::{Delivery, Leg, NodeChange, Reached};
use crate::pure::diff::{PolicyOnNode, policy_on_nodes};
use crate::pure::guard::{Guard, stands};
use crate::pure::journal::HEAD;
use crate::pure::scope::Scope;
use crate::pure::snapshot::{ContentRef, StandingEpoch};
pub(super) use back::{back, back_again};
pub(super) use declarations::{Urgency, declare};
use declarations::{module_content, policy_on};
use epochs::release;
pub(super) use epochs::{base, is_overtaken, once_more as policy_once_more};

mod back;
mod declarations;
mod epochs;
mod restored;

/// Signs the list forward when it is a leg: the list goes first and only forward (DL-3). The facts for the note: its
/// revision, and the head itself where it changes who signs or where hosts find us (DL-9).
pub(super) fn list(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Composed,
) -> Result<Vec<(String, String)>, DecideError> {
    let Some(leg) = delivery.legs.iter().find(|leg| leg.scope == Scope::List) else {
        return Ok(Vec::new());
    };
    let accepted = ContentRef {
        digest: leg.digest,
        commit: delivery.commit.clone(),
    };
    let facts = sign_head(draft, tree, &delivery.commit);
    draft.act.accepted.insert(Scope::List, accepted);
    if let Some(walk) = delivery.walk.as_mut() {
        walk.revision = draft.counters.revision;
    }
    let moved = sealed_to_another_key(draft, tree)?;
    declare(draft, delivery, &moved, Urgency::Ordinary)?;
    Ok(facts)
}

/// Signs the list of a tree under the next revision. The facts for the note, as [`list`] says them.
pub(super) fn sign_head(draft: &mut Draft<'_>, tree: &Composed, commit: &CommitId) -> Vec<(String, String)> {
    draft.counters.revision += 1;
    let before = draft.known.snapshot.head.as_ref();
    let (revoked, oldest_accepted) = revoked(draft, tree);
    let leaves: Vec<merkle::Hash> = tree.leaves.values().map(|listed| listed.hash).collect();
    let settings = draft.known.settings;
    let head = FleetHead {
        schema: SCHEMA,
        fleet: settings.fleet.clone(),
        era: settings.era,
        issued_at: draft.now().as_second(),
        must_understand: Vec::new(),
        revision: draft.counters.revision,
        previous: before.map(|h| h.digest),
        commit: commit.clone(),
        authors: tree.fleet.authors.clone(),
        roots: Vec::new(),
        threshold: tree.fleet.threshold,
        root_threshold: 0,
        reconcilers: settings.reconcilers.clone(),
        rotations: Vec::new(),
        records_root: Digest(merkle::root(&leaves)),
        records_count: leaves.len() as u64,
        wrapped_root: None,
        timestamp_keys: settings.timestamp_keys.clone(),
        revoked,
        oldest_accepted,
        settings: ListSettings {
            left_behind_grace_secs: tree.fleet.config_mgmt.left_behind_grace_secs,
            lifeline_secs: tree.fleet.rotation.lifeline_secs,
            require_trusted_clock_for_scheduled_activation: tree
                .fleet
                .rotation
                .require_trusted_clock_for_scheduled_activation,
        },
    };
    let new_trust = before.is_none_or(|b| b.authors != head.authors || b.reconcilers != head.reconcilers);
    draft.act.orders.push(Order::Head {
        head,
        leaves: tree.leaves.values().map(|listed| listed.leaf.clone()).collect(),
    });
    let mut facts = vec![("List-Revision".to_owned(), draft.counters.revision.to_string())];
    if new_trust {
        facts.push((HEAD.to_owned(), draft.counters.revision.to_string()));
    }
    facts
}

/// What the next head says of the uuids and keys that left the fleet, and the oldest revision that it accepts: they are named
/// since that one. More of them than a head may name raise it to this one, of which they are no part any more (SG-3).
fn revoked(draft: &Draft<'_>, tree: &Composed) -> (Vec<Digest>, u64) {
    let (before, known) = (draft.known.snapshot.head.as_ref(), &draft.known.snapshot.revoked);
    let mut all: BTreeSet<Digest> = match before {
        Some(head) => head.revoked.iter().copied().collect(),
        None => known.keys().copied().collect(),
    };
    all.extend(draft.act.revoked.keys());
    all.extend(tree.revoked.iter().filter(|digest| !known.contains_key(digest)));
    let this = draft.counters.revision;
    if all.len() > REVOKED {
        return (Vec::new(), this);
    }
    let oldest = before.map_or(this, |head| head.oldest_accepted);
    (all.into_iter().collect(), oldest)
}

/// The nodes whose transport key the list changes and to which values of secrets are sealed: they get what they have
/// under the next sequence, sealed to the new key (FR-9).
fn sealed_to_another_key(draft: &Draft<'_>, tree: &Composed) -> Result<BTreeSet<NodeId>, DecideError> {
    let accepted = draft.known.snapshot.accepted.get(&Scope::List);
    let Some(before) = accepted.and_then(|accepted| draft.tree(&accepted.commit)) else {
        return Ok(BTreeSet::new());
    };
    let key = |tree: &Composed, id| tree.leaves.get(id).map(|listed| listed.leaf.transport_key);
    let mut moved = BTreeSet::new();
    for id in tree.leaves.keys() {
        let former = key(&before, id);
        if former.is_none() || former == key(tree, id) {
            continue;
        }
        for content in draft.modules_on(*id).values() {
            if !module_content(draft, content.digest)?.secrets.is_empty() {
                moved.insert(*id);
            }
        }
    }
    Ok(moved)
}

/// What a stage's machines were sent.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sent {
    /// The sequence of the declarations, 0 where none was needed.
    pub(super) sequence: u64,
    /// The epoch, 0 where none was needed.
    pub(super) epoch: u64,
}

/// Orders the delivery's content on these machines: assigns it, signs their declarations, and the epoch that
/// addresses them. `last` releases the policy to everyone.
pub(super) fn stage(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Composed,
    machines: &BTreeSet<NodeId>,
    last: bool,
) -> Result<BTreeMap<NodeId, Sent>, DecideError> {
    let mut sent: BTreeMap<NodeId, Sent> = machines.iter().map(|id| (*id, Sent::default())).collect();
    let declared = assign_after(draft, delivery, tree, machines)?;
    let sequence = declare(draft, delivery, &declared, Urgency::Ordinary)?;
    for id in &declared {
        if let Some(entry) = sent.get_mut(id) {
            entry.sequence = sequence;
        }
    }
    let Some(policy) = changed_policy(delivery, &draft.epochs) else {
        note_reached(delivery, tree, machines, sequence, 0);
        return Ok(sent);
    };
    let affected: BTreeSet<NodeId> = policy.nodes.keys().copied().collect();
    if !last && machines.is_disjoint(&affected) {
        note_reached(delivery, tree, machines, sequence, 0);
        return Ok(sent);
    }
    let (targeting, phase) = if last {
        (Targeting::everyone(), Phase::Release)
    } else {
        addressed(delivery, machines)
    };
    let reached = affected.iter().filter(|id| addresses(&targeting, tree, **id));
    let reached: BTreeSet<NodeId> = reached.copied().collect();
    let number = release(draft, delivery, tree, targeting, phase)?;
    for (id, entry) in &mut sent {
        if affected.contains(id) {
            entry.epoch = number;
        }
    }
    note_reached(delivery, tree, machines, sequence, number);
    // An order has reached everyone whom it addresses and changes, heard from or not (DL-7).
    note_reached(delivery, tree, &reached, sequence, number);
    Ok(sent)
}

/// Whom the epoch of the stage in hand addresses, and its phase. A stage that is a group is one in the order too, so that
/// no order lists thousands of names (DL-6, RO-2); what addresses the machines of stages before it stands beside it. One
/// that names its machines names those of such stages before it with them.
fn addressed(delivery: &Delivery, machines: &BTreeSet<NodeId>) -> (Targeting, Phase) {
    let walk = delivery.walk.as_ref();
    let stage = walk.and_then(|walk| walk.stages.get(walk.current));
    if let Some(group) = stage.and_then(|stage| stage.group.clone()) {
        return (group, phase(delivery));
    }
    let before = walk.iter().flat_map(|walk| walk.stages.iter().take(walk.current));
    let named = before.filter(|stage| stage.group.is_none());
    let mut names: BTreeSet<NodeId> = named.flat_map(|stage| stage.machines.keys().copied()).collect();
    names.extend(machines);
    (Targeting::nodes(names.into_iter().collect()), phase(delivery))
}

/// The phase of the stage in hand: waves release (RO-2).
fn phase(delivery: &Delivery) -> Phase {
    let stage = delivery
        .walk
        .as_ref()
        .and_then(|walk| walk.stages.get(walk.current));
    if stage.is_some_and(|stage| stage.select.rest) {
        Phase::Release
    } else {
        Phase::Canary
    }
}

/// Whether a node of the tree is addressed.
fn addresses(targeting: &Targeting, tree: &Composed, node: NodeId) -> bool {
    let roles = tree.nodes.get(&node).map_or(&[][..], |of| of.roles.as_slice());
    targeting.addresses(node, roles)
}

/// The policy leg, when it needs epochs: it changes the accepted text, or epochs of another text stand (a walk that
/// was stopped, and this one takes it back), or its own canary epoch waits for the release.
pub(super) fn changed_policy<'d>(delivery: &'d Delivery, standing: &[StandingEpoch]) -> Option<&'d Leg> {
    let unreleased = delivery.walk.as_ref().is_some_and(|w| w.epoch > 0 && !w.released);
    delivery
        .legs
        .iter()
        .find(|leg| leg.scope == Scope::Policy)
        .filter(|leg| {
            unreleased || leg.before != Some(leg.digest) || standing.iter().any(|e| e.policy != leg.digest)
        })
}

/// Assigns the content after, and gives the machines whose declaration that changes.
fn assign_after(
    draft: &mut Draft<'_>,
    delivery: &Delivery,
    tree: &Composed,
    machines: &BTreeSet<NodeId>,
) -> Result<BTreeSet<NodeId>, DecideError> {
    let mut declared = BTreeSet::new();
    back::settle(draft, delivery, machines)?;
    for leg in &delivery.legs {
        let nodes = leg.nodes.iter().filter(|(id, _)| machines.contains(id));
        for (id, content) in after(draft, delivery, leg, tree, nodes)? {
            if assign(draft, id, &leg.scope, content) {
                declared.insert(id);
            }
        }
    }
    Ok(declared)
}

/// What these nodes have of a leg once it is delivered; it is kept.
///
/// It is what the tree composes to now: a build that composes other bytes than the one that began the walk never leaves a
/// digest that nobody has.
pub(super) fn after<'l>(
    draft: &mut Draft<'_>,
    delivery: &Delivery,
    leg: &Leg,
    tree: &Composed,
    nodes: impl Iterator<Item = (&'l NodeId, &'l NodeChange)>,
) -> Result<Vec<(NodeId, Option<ContentRef>)>, DecideError> {
    let policies = match leg.scope {
        Scope::Policy => policy_on_nodes(tree, &policy_text(draft, leg, tree)?)?,
        _ => BTreeMap::new(),
    };
    let mut out = Vec::new();
    for (id, change) in nodes {
        let digest = match &leg.scope {
            // As another commit has it: kept in the store since the walk began.
            Scope::Module(_) if leg.from.is_some() => change.after,
            Scope::Module(module) => match tree.nodes.get(id).and_then(|n| n.modules.get(module)) {
                Some((digest, content)) => {
                    draft.keep_module(*digest, content)?;
                    Some(*digest)
                }
                None => None,
            },
            Scope::Policy => {
                let Some((digest, after)) = policies.get(id) else {
                    continue;
                };
                draft.keep(*digest, &**after)?;
                Some(*digest)
            }
            Scope::List | Scope::Gate => continue,
        };
        let content = digest.map(|digest| ContentRef {
            digest,
            commit: leg.from.as_ref().unwrap_or(&delivery.commit).clone(),
        });
        out.push((*id, content));
    }
    Ok(out)
}

/// Assigns a content; whether the node's declaration is another one by it.
fn assign(draft: &mut Draft<'_>, node: NodeId, scope: &Scope, content: Option<ContentRef>) -> bool {
    let before = policy_on(draft, node);
    draft.assign(node, scope, content);
    match scope {
        Scope::Module(_) => true,
        // Roles and takes are in the declaration; a changed text alone is the epoch's business.
        Scope::Policy => !before
            .zip(policy_on(draft, node))
            .is_some_and(|(before, after)| same_facts(&before, &after)),
        Scope::List | Scope::Gate => false,
    }
}

/// What was held back for these nodes is theirs now, and proven, as it was accepted; their declarations, by node.
pub(super) fn follow(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    nodes: &BTreeSet<NodeId>,
) -> Result<BTreeMap<NodeId, u64>, DecideError> {
    let mut declared = BTreeSet::new();
    for id in nodes {
        for (scope, content) in draft.held_back(*id) {
            if assign(draft, *id, &scope, content) {
                declared.insert(*id);
            }
            draft.prove(*id, &scope);
        }
    }
    let sequence = declare(draft, delivery, &declared, Urgency::Ordinary)?;
    Ok(declared.into_iter().map(|id| (id, sequence)).collect())
}

/// The text of a policy leg: the tree's, or the accepted one where the tree's failed before and stays out.
fn policy_text(draft: &Draft<'_>, leg: &Leg, tree: &Composed) -> Result<String, DecideError> {
    if leg.digest == tree.policy_digest {
        return Ok(tree.policy.clone());
    }
    let text = draft.known.contents.texts.get(&leg.digest);
    text.map(|t| t.to_string())
        .ok_or(DecideError::NoContent(leg.digest))
}

fn same_facts(a: &PolicyOnNode, b: &PolicyOnNode) -> bool {
    a.roles == b.roles && a.adopted == b.adopted && a.take == b.take
}

fn note_reached(
    delivery: &mut Delivery,
    tree: &Composed,
    machines: &BTreeSet<NodeId>,
    sequence: u64,
    epoch: u64,
) {
    if (sequence == 0 && epoch == 0) || !stands(Guard::Addressed) {
        return;
    }
    let Some(walk) = delivery.walk.as_mut() else {
        return;
    };
    for id in machines {
        let Some(node) = tree.nodes.get(id) else { continue };
        walk.reached.entry(*id).or_insert_with(|| Reached {
            name: node.name.clone(),
            return_sequence: 0,
            return_epoch: 0,
            returned: false,
        });
    }
}

/// Gives the content after to machines that no stage selects: new ones, and absent ones that nobody waits for
/// (DL-6, DL-19). It is proven by then.
pub(super) fn rest(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Composed,
    machines: &BTreeSet<NodeId>,
) -> Result<(), DecideError> {
    let released = delivery.walk.as_ref().is_some_and(|w| w.released);
    if changed_policy(delivery, &draft.epochs).is_some() && !released {
        stage(draft, delivery, tree, machines, true)?;
        return Ok(());
    }
    let declared = assign_after(draft, delivery, tree, machines)?;
    let sequence = declare(draft, delivery, &declared, Urgency::Ordinary)?;
    note_reached(delivery, tree, machines, sequence, 0);
    Ok(())
}

/// One machine's order once more, under new numbers (DL-13, retry).
pub(super) fn again(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Composed,
    node: NodeId,
) -> Result<Sent, DecideError> {
    let in_leg = |leg: &Leg| leg.nodes.contains_key(&node);
    let declared = delivery
        .legs
        .iter()
        .any(|l| matches!(l.scope, Scope::Module(_)) && in_leg(l));
    let nodes = if declared {
        BTreeSet::from([node])
    } else {
        BTreeSet::new()
    };
    let sequence = declare(draft, delivery, &nodes, Urgency::Ordinary)?;
    draft.act.repeated.extend(nodes.iter().map(|id| (*id, sequence)));
    let addressed = changed_policy(delivery, &draft.epochs).is_some_and(in_leg);
    let newest = delivery.walk.as_ref().map_or(0, |w| w.epoch);
    let epoch = match addressed {
        true if newest > 0 => {
            let mut standing = draft.epochs.iter();
            let standing = standing.find(|e| addresses(&e.targeting, tree, node));
            let targeting = standing.map_or_else(Targeting::everyone, |e| e.targeting.clone());
            release(draft, delivery, tree, targeting, phase(delivery))?
        }
        _ => 0,
    };
    Ok(Sent { sequence, epoch })
}

/// What is assigned to these machines once more, under a new number, outside of any walk: as the newest commit's plan has it
/// confirmed, and as its tree leaves modules out.
pub(super) fn once_more(
    draft: &mut Draft<'_>,
    newest: &Delivery,
    nodes: &BTreeSet<NodeId>,
) -> Result<(), DecideError> {
    let mut beside = newest.clone();
    beside.walk = None;
    beside.legs.clear();
    beside.again = false;
    let sequence = declare(draft, &mut beside, nodes, Urgency::Ordinary)?;
    draft.act.repeated.extend(nodes.iter().map(|id| (*id, sequence)));
    Ok(())
}
