//! The epochs of a walk: canaries, release, abort, and what stands below each (SG-2, EP-3, RO-1).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::{Epoch, InForce, Phase, Targeting};
use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::limits::{IN_FORCE, SCHEMA};

use super::changed_policy;
use super::declarations::timing;
use crate::pure::act::Order;
use crate::pure::compose::Composed;
use crate::pure::decide::DecideError;
use crate::pure::decide::draft::Draft;
use crate::pure::decide::waiting::plan::plan_for;
use crate::pure::delivery::{Delivery, Walk};
use crate::pure::scope::Scope;
use crate::pure::snapshot::StandingEpoch;

pub(super) fn release(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Composed,
    targeting: Targeting,
    phase: Phase,
) -> Result<u64, DecideError> {
    let text = tree.policy.clone();
    draft.keep(tree.policy_digest, &text)?;
    let in_force = below(draft, first_epoch(delivery), tree.policy_digest, &targeting);
    let mgmt = delivery.config_mgmt(&tree.fleet.config_mgmt);
    let watch = (phase == Phase::Release).then(|| draft.now().as_second() + i64::from(mgmt.watch_secs()));
    let again = delivery.again.then_some(tree.policy_digest);
    let epoch = Epoch {
        targeting,
        min_daemon_version: tree.fleet.config_mgmt.min_daemon_version.clone(),
        confirm_secs: mgmt.confirm_secs,
        confirm_probe: timing(draft, delivery).confirm_probe,
        in_force: in_force.iter().map(in_force_entry).collect(),
        watch_until: watch,
        rollout_id: delivery.name.to_string(),
        again: again.into_iter().collect(),
        ..plain(draft, &delivery.commit, phase, text)
    };
    sign_epoch(draft, delivery, epoch, tree.policy_digest, in_force)
}

/// Signs the accepted policy for everyone, with nothing below it: what every host shall run when nobody can say any more which
/// epochs stand (EP-3). Its number; none where no policy was accepted.
pub(in crate::pure::decide) fn base(
    draft: &mut Draft<'_>,
    tree: &Composed,
    commit: &CommitId,
) -> Result<Option<u64>, DecideError> {
    let Some(digest) = draft
        .known
        .snapshot
        .accepted
        .get(&Scope::Policy)
        .map(|c| c.digest)
    else {
        return Ok(None);
    };
    accepted_for(draft, tree, commit, digest, Targeting::everyone()).map(Some)
}

/// Signs the accepted policy once more for these machines alone, whose epoch went back: no host tries a number twice (EP-3,
/// DL-13). It belongs to the rollout that released it. Its number; none where no policy was accepted.
pub(in crate::pure::decide) fn once_more(
    draft: &mut Draft<'_>,
    tree: &Composed,
    nodes: &BTreeSet<NodeId>,
) -> Result<Option<u64>, DecideError> {
    let Some(accepted) = draft.known.snapshot.accepted.get(&Scope::Policy) else {
        return Ok(None);
    };
    // Whoever runs it already notes the number: an order to everyone says them nothing new.
    let targeting = if nodes.len() > NAMED {
        Targeting::everyone()
    } else {
        Targeting::nodes(nodes.iter().copied().collect())
    };
    accepted_for(draft, tree, &accepted.commit, accepted.digest, targeting).map(Some)
}

/// Signs the accepted policy for whom it is to address, above what stands.
fn accepted_for(
    draft: &mut Draft<'_>,
    tree: &Composed,
    commit: &CommitId,
    policy: Digest,
    targeting: Targeting,
) -> Result<u64, DecideError> {
    let text = draft.known.contents.texts.get(&policy);
    let text = text.ok_or(DecideError::NoContent(policy))?.to_string();
    let in_force = below(draft, 0, policy, &targeting);
    let mgmt = &tree.fleet.config_mgmt;
    let epoch = Epoch {
        targeting,
        min_daemon_version: mgmt.min_daemon_version.clone(),
        confirm_secs: mgmt.confirm_secs,
        confirm_probe: plan_for(tree, None, &[]).and_then(|plan| plan.confirm_probe.clone()),
        in_force: in_force.iter().map(in_force_entry).collect(),
        ..plain(draft, commit, Phase::Release, text)
    };
    stand(draft, epoch, policy, in_force)
}

/// Whether another policy stands above this epoch, or it stands no more: then what it says is a newer order's business. One
/// that gives its policy to somebody once more takes nothing over.
pub(in crate::pure::decide) fn is_overtaken(standing: &[StandingEpoch], epoch: u64) -> bool {
    let own = standing.iter().position(|e| e.epoch == epoch);
    let above = own.and_then(|own| Some((standing.get(own)?, standing.get(..own)?)));
    above.is_none_or(|(own, newer)| newer.iter().any(|e| e.policy != own.policy))
}

/// The first epoch of a delivery's walk; 0 where it signed none.
fn first_epoch(delivery: &Delivery) -> u64 {
    delivery.walk.as_ref().map_or(0, |walk| walk.first_epoch)
}

/// The next epoch, to everyone and with nothing below it; the window of its confirm is still to be set.
fn plain(draft: &mut Draft<'_>, commit: &CommitId, phase: Phase, policy: String) -> Epoch {
    let epoch = draft.next_epoch();
    let settings = draft.known.settings;
    Epoch {
        schema: SCHEMA,
        fleet: settings.fleet.clone(),
        era: settings.era,
        issued_at: draft.now().as_second(),
        must_understand: Vec::new(),
        epoch,
        author: settings.author.clone(),
        targeting: Targeting::everyone(),
        min_daemon_version: None,
        confirm_secs: 0,
        confirm_probe: None,
        policy,
        in_force: Vec::new(),
        watch_until: None,
        rollout_id: draft.name_of(commit).to_string(),
        phase,
        urgent: false,
        again: Vec::new(),
        manifest: None,
        commit: commit.clone(),
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
    let everyone = epoch.targeting == Targeting::everyone();
    let number = stand(draft, epoch, policy, below)?;
    if let Some(walk) = delivery.walk.as_mut() {
        walk.released |= everyone;
        walk.epoch = number;
        if walk.first_epoch == 0 {
            walk.first_epoch = number;
        }
    }
    Ok(number)
}

/// Orders an epoch: it stands, and these below it.
fn stand(
    draft: &mut Draft<'_>,
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
    draft.act.orders.push(Order::Epoch { epoch });
    Ok(number)
}

/// What stands below an epoch with this policy, newest first, at most [`IN_FORCE`]: epochs of the walk that began with the
/// `first` one, 0 for none, with the same policy, for machines that this one does not address, then what stood before the walk;
/// without entries that no node would ever take. Below an epoch for everyone nothing stands.
fn below(draft: &Draft<'_>, first: u64, policy: Digest, targeting: &Targeting) -> Vec<StandingEpoch> {
    let before = |e: &&StandingEpoch| first == 0 || e.epoch < first;
    let (before, own): (Vec<_>, Vec<_>) = draft.epochs.iter().partition(before);
    let own = own.into_iter().filter(|e| e.policy == policy);
    let mut out: Vec<StandingEpoch> = Vec::new();
    for epoch in own.chain(before) {
        let newer = std::iter::once(targeting).chain(out.iter().map(|e| &e.targeting));
        if !newer.into_iter().any(|newer| newer.covers(&epoch.targeting)) {
            out.push(epoch.clone());
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

/// So many nodes an epoch names: an abort's of a walk whose place this one took, and those that get their policy once more.
const NAMED: usize = 1_000;

/// The epochs that take a walk's policy back: one where one addresses all whom the walk's epochs did.
#[derive(Debug, Default)]
pub(super) struct Aborted {
    /// By node: which epoch speaks to it.
    nodes: BTreeMap<NodeId, u64>,
}

impl Aborted {
    /// The epoch that takes the policy back on this node.
    pub(super) fn for_node(&self, node: NodeId) -> Option<u64> {
        self.nodes.get(&node).copied()
    }
}

/// Signs the former policy forward, to all whom this walk's epochs addressed and those of a walk whose place it took,
/// whether they reported or not (RO-1). Nothing without epochs.
///
/// Who was addressed by name is by name again, who was by share is by share: all waves are one share.
pub(super) fn abort(draft: &mut Draft<'_>, delivery: &mut Delivery) -> Result<Aborted, DecideError> {
    let mut aborted = Aborted::default();
    let Some(walk) = delivery.walk.as_ref().filter(|w| w.epoch != 0) else {
        return Ok(aborted);
    };
    let Some(before) = changed_policy(delivery, &draft.epochs).map(|leg| leg.before) else {
        return Ok(aborted);
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
    let digest = before.unwrap_or_else(|| Digest::of(b""));
    let roles = draft.tree(&delivery.commit);
    let roles = |id: &NodeId| {
        roles
            .as_ref()
            .and_then(|t| t.nodes.get(id))
            .map_or(&[][..], |n| &n.roles[..])
    };
    let mut left: BTreeSet<NodeId> = walk.reached.keys().copied().collect();
    let mut each: Vec<(Targeting, BTreeSet<NodeId>)> = Vec::new();
    for targeting in to_take_back(walk, &draft.epochs) {
        let (here, others) = left
            .into_iter()
            .partition(|id| targeting.addresses(*id, roles(id)));
        each.push((targeting, here));
        left = others;
    }
    if left.len() > NAMED {
        // Whoever does not run this walk's policy runs the former one already: an order to everyone says nothing new.
        each = vec![(Targeting::everyone(), walk.reached.keys().copied().collect())];
    } else if !left.is_empty() || each.is_empty() {
        each.push((Targeting::nodes(left.iter().copied().collect()), left));
    }
    for (targeting, nodes) in each.into_iter().rev() {
        let below = below(draft, first_epoch(delivery), digest, &targeting);
        let timing = timing(draft, delivery);
        // What takes something back every host takes that took it: no version is too old for it.
        let epoch = Epoch {
            targeting,
            confirm_secs: timing.confirm_secs,
            confirm_probe: timing.confirm_probe,
            in_force: below.iter().map(in_force_entry).collect(),
            rollout_id: delivery.name.to_string(),
            urgent: true,
            ..plain(draft, &delivery.commit, Phase::Abort, policy.clone())
        };
        let number = sign_epoch(draft, delivery, epoch, digest, below)?;
        aborted.nodes.extend(nodes.into_iter().map(|id| (id, number)));
    }
    Ok(aborted)
}

/// The groups, or everyone, that a walk's epochs address, widest first; who was addressed by name is in what it reached.
fn to_take_back(walk: &Walk, standing: &[StandingEpoch]) -> Vec<Targeting> {
    if walk.released {
        return vec![Targeting::everyone()];
    }
    let mut out: Vec<Targeting> = Vec::new();
    let own = standing
        .iter()
        .filter(|e| e.epoch >= walk.first_epoch && e.targeting.nodes.is_none());
    for epoch in own {
        if !out.iter().any(|wider| wider.covers(&epoch.targeting)) {
            out.push(epoch.targeting.clone());
        }
    }
    out
}
