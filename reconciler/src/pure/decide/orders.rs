//! The orders: of the list, of a stage, of a release, of a roll-back, and the sum that a declaration is (DL-3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::declaration::{Declaration, ModuleContent, ModuleEntry};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::{Epoch, InForce, Phase, Targeting};
use meshplan_schemas::fleet_list::{FleetHead, Leaf, ListSettings};
use meshplan_schemas::ident::{ModuleName, NodeId};
use meshplan_schemas::limits::{IN_FORCE, SCHEMA};
use meshplan_schemas::merkle;

use super::draft::Draft;
use super::{DecideError, walk};
use crate::pure::act::Order;
use crate::pure::compose::Composed;
use crate::pure::delivery::{Delivery, Leg, Reached};
use crate::pure::diff::{PolicyOnNode, policy_on_nodes};
use crate::pure::scope::Scope;
use crate::pure::snapshot::{ContentRef, StandingEpoch};

/// Signs the list forward when it is a leg: the list goes first and only forward (DL-3). Its revision.
pub(super) fn list(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Composed,
) -> Result<Option<u64>, DecideError> {
    let Some(leg) = delivery.legs.iter().find(|leg| leg.scope == Scope::List) else {
        return Ok(None);
    };
    draft.counters.revision += 1;
    let before = draft.known.snapshot.head.as_ref();
    let leaves = leaf_hashes(&tree.leaves)?;
    let settings = draft.known.settings;
    let head = FleetHead {
        schema: SCHEMA,
        fleet: settings.fleet.clone(),
        era: settings.era,
        issued_at: draft.now().as_second(),
        must_understand: Vec::new(),
        revision: draft.counters.revision,
        previous: before.map(|h| h.digest),
        commit: delivery.commit.clone(),
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
        revoked: tree.revoked.clone(),
        oldest_accepted: before.map_or(draft.counters.revision, |h| h.oldest_accepted),
        settings: ListSettings {
            left_behind_grace_secs: tree.fleet.config_mgmt.left_behind_grace_secs,
            lifeline_secs: tree.fleet.rotation.lifeline_secs,
            require_trusted_clock_for_scheduled_activation: tree
                .fleet
                .rotation
                .require_trusted_clock_for_scheduled_activation,
        },
    };
    let accepted = ContentRef {
        digest: leg.digest,
        commit: delivery.commit.clone(),
    };
    draft.act.orders.push(Order::Head {
        head,
        leaves: tree.leaves.clone(),
    });
    draft.act.accepted.insert(Scope::List, accepted);
    if let Some(walk) = delivery.walk.as_mut() {
        walk.revision = draft.counters.revision;
    }
    Ok(Some(draft.counters.revision))
}

fn leaf_hashes(leaves: &[Leaf]) -> Result<Vec<merkle::Hash>, serde_json::Error> {
    leaves
        .iter()
        .map(|leaf| Ok(merkle::leaf_hash(&leaf.bytes()?)))
        .collect()
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
    let Some(policy) = changed_policy(delivery) else {
        note_reached(delivery, tree, machines, sequence, 0);
        return Ok(sent);
    };
    let affected: BTreeSet<NodeId> = policy.nodes.keys().copied().collect();
    let canaries: BTreeSet<NodeId> = walk::ordered(delivery).union(machines).copied().collect();
    if !last && canaries.is_disjoint(&affected) {
        note_reached(delivery, tree, machines, sequence, 0);
        return Ok(sent);
    }
    let (targeting, phase) = if last {
        (Targeting::everyone(), Phase::Release)
    } else {
        (Targeting::nodes(canaries.into_iter().collect()), Phase::Canary)
    };
    let number = release(draft, delivery, tree, targeting, phase)?;
    for (id, entry) in &mut sent {
        if affected.contains(id) {
            entry.epoch = number;
        }
    }
    note_reached(delivery, tree, machines, sequence, number);
    if last {
        // An order to everyone has reached everyone whom it changes, heard from or not (DL-7).
        note_reached(delivery, tree, &affected, sequence, number);
    }
    Ok(sent)
}

/// The policy leg, when it changes the text that epochs carry.
pub(super) fn changed_policy(delivery: &Delivery) -> Option<&Leg> {
    delivery
        .legs
        .iter()
        .find(|leg| leg.scope == Scope::Policy && leg.before != Some(leg.digest))
}

fn release(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Composed,
    targeting: Targeting,
    phase: Phase,
) -> Result<u64, DecideError> {
    let text = tree.policy.clone();
    draft.keep(tree.policy_digest, &text)?;
    // On a release nothing older stands; on a canary what stood before, and the canary epochs of this walk.
    let in_force = if phase == Phase::Release {
        Vec::new()
    } else {
        standing_before(draft, delivery)
    };
    let watch = (phase == Phase::Release).then(|| draft.now().as_second() + i64::from(watch_secs(tree)));
    let epoch = Epoch {
        schema: SCHEMA,
        fleet: draft.known.settings.fleet.clone(),
        era: draft.known.settings.era,
        issued_at: draft.now().as_second(),
        must_understand: Vec::new(),
        epoch: draft.next_epoch(),
        author: draft.known.settings.author.clone(),
        targeting,
        min_daemon_version: None,
        confirm_secs: tree.fleet.config_mgmt.confirm_secs,
        policy: text,
        in_force: in_force.iter().map(in_force_entry).collect(),
        watch_until: watch,
        rollout_id: delivery.name.to_string(),
        phase,
        urgent: false,
        again: if delivery.again {
            vec![tree.policy_digest]
        } else {
            Vec::new()
        },
        manifest: None,
        commit: delivery.commit.clone(),
    };
    sign_epoch(draft, delivery, epoch, tree.policy_digest, in_force)
}

fn watch_secs(tree: &Composed) -> u32 {
    match tree.fleet.config_mgmt.release_watch_secs {
        0 => tree
            .fleet
            .config_mgmt
            .confirm_secs
            .saturating_mul(3)
            .saturating_add(120),
        secs => secs,
    }
}

fn in_force_entry(epoch: &StandingEpoch) -> InForce {
    InForce {
        epoch: epoch.epoch,
        digest: epoch.digest,
        targeting: epoch.targeting.clone(),
    }
}

fn sign_epoch(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    epoch: Epoch,
    policy: Digest,
    below: Vec<StandingEpoch>,
) -> Result<u64, DecideError> {
    let number = epoch.epoch;
    let standing = StandingEpoch {
        epoch: number,
        digest: Digest::of_value(&epoch)?,
        targeting: epoch.targeting.clone(),
        policy,
    };
    draft.epochs = std::iter::once(standing).chain(below).collect();
    if let Some(walk) = delivery.walk.as_mut() {
        walk.released = epoch.phase == Phase::Release;
        walk.epoch = number;
        if walk.first_epoch == 0 {
            walk.first_epoch = number;
        }
    }
    draft.act.orders.push(Order::Epoch { epoch });
    Ok(number)
}

/// What stood before this walk, newest first, without entries that no node would ever take, at most [`IN_FORCE`].
fn standing_before(draft: &Draft<'_>, delivery: &Delivery) -> Vec<StandingEpoch> {
    let first = delivery.walk.as_ref().map_or(0, |w| w.first_epoch);
    let mut out: Vec<StandingEpoch> = Vec::new();
    for epoch in draft.epochs.iter().filter(|e| first == 0 || e.epoch < first) {
        let shadowed = out.iter().any(|newer| newer.targeting == epoch.targeting);
        if !shadowed {
            out.push(epoch.clone());
        }
        // Whom everyone is addressed by, nothing below reaches.
        if epoch.targeting == Targeting::everyone() {
            break;
        }
    }
    bound(&mut out);
    out
}

/// Keeps the list within what an epoch may name. An entry whose policy is that of the one for everyone says
/// nothing new and goes first; the one for everyone stays.
fn bound(standing: &mut Vec<StandingEpoch>) {
    let Some(base) = standing.last().map(|e| e.policy) else {
        return;
    };
    while standing.len() > IN_FORCE {
        let last = standing.len() - 1;
        let at = standing
            .iter()
            .take(last)
            .rposition(|e| e.policy == base)
            .unwrap_or(last - 1);
        standing.remove(at);
    }
}

/// Assigns the content after, and gives the machines whose declaration that changes.
fn assign_after(
    draft: &mut Draft<'_>,
    delivery: &Delivery,
    tree: &Composed,
    machines: &BTreeSet<NodeId>,
) -> Result<BTreeSet<NodeId>, DecideError> {
    let mut declared = BTreeSet::new();
    let policies = policy_on_nodes(tree)?;
    for leg in &delivery.legs {
        for (id, change) in leg.nodes.iter().filter(|(id, _)| machines.contains(id)) {
            let content = change.after.map(|digest| ContentRef {
                digest,
                commit: delivery.commit.clone(),
            });
            match &leg.scope {
                Scope::Module(module) => {
                    if let Some((digest, content)) = tree.nodes.get(id).and_then(|n| n.modules.get(module)) {
                        draft.keep(*digest, content)?;
                    }
                    declared.insert(*id);
                }
                Scope::Policy => {
                    let Some((digest, after)) = policies.get(id) else {
                        continue;
                    };
                    draft.keep(*digest, after)?;
                    // Roles and takes are in the declaration; a changed text alone is the epoch's business.
                    if policy_on(draft, *id).is_none_or(|before| !same_facts(&before, after)) {
                        declared.insert(*id);
                    }
                }
                Scope::List | Scope::Gate => continue,
            }
            draft.assign(*id, &leg.scope, content);
        }
    }
    Ok(declared)
}

fn same_facts(a: &PolicyOnNode, b: &PolicyOnNode) -> bool {
    a.roles == b.roles && a.adopted == b.adopted && a.take == b.take
}

/// What is assigned of the policy scope on a node.
fn policy_on(draft: &Draft<'_>, node: NodeId) -> Option<PolicyOnNode> {
    let digest = draft
        .assignments
        .get(&(node, Scope::Policy))?
        .assigned
        .as_ref()?
        .digest;
    if let Some(bytes) = draft.act.contents.get(&digest) {
        return serde_json::from_slice(bytes).ok();
    }
    draft.known.contents.policies.get(&digest).map(|p| (**p).clone())
}

fn module_content(draft: &Draft<'_>, digest: Digest) -> Result<Arc<ModuleContent>, DecideError> {
    if let Some(bytes) = draft.act.contents.get(&digest) {
        return Ok(Arc::new(serde_json::from_slice(bytes)?));
    }
    draft
        .known
        .contents
        .modules
        .get(&digest)
        .cloned()
        .ok_or(DecideError::NoContent(digest))
}

/// Whether windows hold an order back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// They do.
    Ordinary,
    /// They do not: a roll-back.
    Urgent,
}

/// Signs one declaration for each of these nodes, under one number: the sum of what is assigned. 0 for nobody.
fn declare(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    nodes: &BTreeSet<NodeId>,
    urgency: Urgency,
) -> Result<u64, DecideError> {
    if nodes.is_empty() {
        return Ok(0);
    }
    let sequence = draft.next_sequence();
    for id in nodes {
        let declaration = declaration(draft, delivery, *id, sequence, urgency)?;
        draft.act.orders.push(Order::Declaration { declaration });
    }
    if let Some(walk) = delivery.walk.as_mut() {
        walk.sequence = sequence;
    }
    Ok(sequence)
}

fn declaration(
    draft: &Draft<'_>,
    delivery: &Delivery,
    node: NodeId,
    sequence: u64,
    urgency: Urgency,
) -> Result<Declaration, DecideError> {
    let facts = policy_on(draft, node);
    let mut modules = Vec::new();
    let mut resources = Vec::new();
    let from = (node, Scope::List);
    for ((_, scope), assignment) in draft
        .assignments
        .range(from..)
        .take_while(|((id, _), _)| *id == node)
    {
        let (Scope::Module(name), Some(content)) = (scope, assignment.assigned.as_ref()) else {
            continue;
        };
        let body = module_content(draft, content.digest)?;
        modules.push(entry(draft, name, content, &body));
        resources.extend(body.resources.iter().cloned());
    }
    let timing = timing(draft, delivery);
    let again = if delivery.again {
        delivery
            .legs
            .iter()
            .filter_map(|l| l.nodes.get(&node))
            .filter_map(|c| c.after)
            .collect()
    } else {
        Vec::new()
    };
    Ok(Declaration {
        schema: SCHEMA,
        fleet: draft.known.settings.fleet.clone(),
        era: draft.known.settings.era,
        issued_at: draft.now().as_second(),
        must_understand: Vec::new(),
        node,
        sequence,
        modules,
        roles: facts.as_ref().map(|f| f.roles.clone()).unwrap_or_default(),
        adopted: facts.as_ref().is_some_and(|f| f.adopted),
        take: facts.map(|f| f.take).unwrap_or_default(),
        resources,
        left_out: Vec::new(),
        artifacts: Vec::new(),
        sealed: None,
        apply_secs: timing.apply_secs,
        confirm_secs: timing.confirm_secs,
        on_failure: meshplan_schemas::declaration::OnFailure::Revert,
        mode: meshplan_schemas::declaration::Mode::Apply,
        min_host_version: None,
        urgent: urgency == Urgency::Urgent,
        again,
        membership: None,
        neighbours: Vec::new(),
        manifest: None,
    })
}

fn entry(draft: &Draft<'_>, name: &ModuleName, content: &ContentRef, body: &ModuleContent) -> ModuleEntry {
    ModuleEntry {
        module: name.clone(),
        digest: content.digest,
        commit: content.commit.clone(),
        delivery: meshplan_schemas::ident::DeliveryName::new(&draft.known.settings.repo, &content.commit)
            .to_string(),
        mode: body.mode,
        after: body.after.clone(),
        on_policy_change: body.on_policy_change.clone(),
    }
}

struct Timing {
    apply_secs: u32,
    confirm_secs: u32,
}

fn timing(draft: &Draft<'_>, delivery: &Delivery) -> Timing {
    // A delivery in hand has a tree; the page's defaults stand in for one whose tree is gone (FR-16).
    draft.tree(&delivery.commit).map_or(
        Timing {
            apply_secs: 1800,
            confirm_secs: 60,
        },
        |tree| Timing {
            apply_secs: tree.fleet.config_mgmt.apply_secs,
            confirm_secs: tree.fleet.config_mgmt.confirm_secs,
        },
    )
}

fn note_reached(
    delivery: &mut Delivery,
    tree: &Composed,
    machines: &BTreeSet<NodeId>,
    sequence: u64,
    epoch: u64,
) {
    if sequence == 0 && epoch == 0 {
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
    if changed_policy(delivery).is_some() && !released {
        stage(draft, delivery, tree, machines, true)?;
        return Ok(());
    }
    let declared = assign_after(draft, delivery, tree, machines)?;
    let sequence = declare(draft, delivery, &declared, Urgency::Ordinary)?;
    note_reached(delivery, tree, machines, sequence, 0);
    Ok(())
}

/// One machine's order once more, under a new number (DL-13, retry). The new sequence, 0 where it has none.
pub(super) fn again(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    node: NodeId,
) -> Result<u64, DecideError> {
    let has = delivery
        .legs
        .iter()
        .any(|l| matches!(l.scope, Scope::Module(_)) && l.nodes.contains_key(&node));
    if has {
        declare(draft, delivery, &BTreeSet::from([node]), Urgency::Ordinary)
    } else {
        Ok(0)
    }
}

/// Orders the proven content again on every machine that was reached, under newer numbers (DL-7).
pub(super) fn back(draft: &mut Draft<'_>, delivery: &mut Delivery) -> Result<(), DecideError> {
    let Some(reached) = delivery
        .walk
        .as_ref()
        .map(|w| w.reached.keys().copied().collect::<BTreeSet<_>>())
    else {
        return Ok(());
    };
    let mut declared = BTreeSet::new();
    for leg in delivery
        .legs
        .iter()
        .filter(|l| !matches!(l.scope, Scope::List | Scope::Gate))
    {
        for id in leg.nodes.keys().filter(|id| reached.contains(id)) {
            let proven = draft
                .assignments
                .get(&(*id, leg.scope.clone()))
                .and_then(|a| a.proven.clone());
            let facts = policy_on(draft, *id);
            draft.assign(*id, &leg.scope, proven);
            let text_only = leg.scope == Scope::Policy
                && facts
                    .zip(policy_on(draft, *id))
                    .is_some_and(|(a, b)| same_facts(&a, &b));
            if !text_only {
                declared.insert(*id);
            }
        }
    }
    let sequence = declare(draft, delivery, &declared, Urgency::Urgent)?;
    let epoch = abort(draft, delivery)?;
    let affected: BTreeSet<NodeId> = changed_policy(delivery)
        .map(|leg| leg.nodes.keys().copied().collect())
        .unwrap_or_default();
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(());
    };
    for (id, entry) in &mut walk.reached {
        entry.return_sequence = if declared.contains(id) { sequence } else { 0 };
        entry.return_epoch = if affected.contains(id) { epoch } else { 0 };
        entry.returned = entry.return_sequence == 0 && entry.return_epoch == 0;
    }
    Ok(())
}

/// Signs the former policy forward, to all whom this walk's epochs addressed (RO-1). Its number, 0 without epochs.
fn abort(draft: &mut Draft<'_>, delivery: &mut Delivery) -> Result<u64, DecideError> {
    let Some(walk) = delivery.walk.as_ref().filter(|w| w.epoch != 0) else {
        return Ok(0);
    };
    let Some(before) = changed_policy(delivery).map(|leg| leg.before) else {
        return Ok(0);
    };
    let policy = match before {
        None => String::new(),
        Some(digest) => draft
            .known
            .contents
            .texts
            .get(&digest)
            .map(|text| text.to_string())
            .ok_or(DecideError::NoContent(digest))?,
    };
    let targeting = draft
        .epochs
        .iter()
        .find(|e| e.epoch == walk.epoch)
        .map_or_else(Targeting::everyone, |e| e.targeting.clone());
    let below = if targeting == Targeting::everyone() {
        Vec::new()
    } else {
        standing_before(draft, delivery)
    };
    let epoch = Epoch {
        schema: SCHEMA,
        fleet: draft.known.settings.fleet.clone(),
        era: draft.known.settings.era,
        issued_at: draft.now().as_second(),
        must_understand: Vec::new(),
        epoch: draft.next_epoch(),
        author: draft.known.settings.author.clone(),
        targeting,
        min_daemon_version: None,
        confirm_secs: timing(draft, delivery).confirm_secs,
        in_force: below.iter().map(in_force_entry).collect(),
        watch_until: None,
        rollout_id: delivery.name.to_string(),
        phase: Phase::Abort,
        urgent: true,
        again: Vec::new(),
        manifest: None,
        commit: delivery.commit.clone(),
        policy,
    };
    sign_epoch(
        draft,
        delivery,
        epoch,
        before.unwrap_or_else(|| Digest::of(b"")),
        below,
    )
}
