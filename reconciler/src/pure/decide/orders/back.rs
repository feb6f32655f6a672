//! The way back: what is proven is assigned again, and ordered under newer numbers (DL-7).
//!
//! What goes only forward does not come back with it: what is assigned then is content of its own, the proven one with the
//! newer version of these resources ([`super::restored`]). It is proven from there on, for nothing leads behind it any more:
//! the next commit is compared with it, the next roll-back leads to it, and it is no commit's content that could be
//! remembered as bad.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::ModuleContent;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::ident::{ModuleName, NodeId, ResourceName};
use meshplan_schemas::report::Outcome;

use super::declarations::{Urgency, declare, module_content, policy_on};
use super::epochs::{Aborted, abort, is_overtaken};
use super::restored::{Restored, Way, may_stay, restored};
use super::{changed_policy, same_facts};
use crate::pure::compose::{Retired, spent};
use crate::pure::decide::DecideError;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::{Delivery, Leg, Reached};
use crate::pure::scope::Scope;
use crate::pure::snapshot::ContentRef;

/// Orders the proven content again on every machine that was reached, under newer numbers (DL-7): of all legs, or of
/// these alone. The machines that got another declaration by it.
pub(in crate::pure::decide) fn back(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    only: Option<&BTreeSet<Scope>>,
) -> Result<BTreeSet<NodeId>, DecideError> {
    let Some(reached) = delivery
        .walk
        .as_ref()
        .map(|w| w.reached.keys().copied().collect::<BTreeSet<_>>())
    else {
        return Ok(BTreeSet::new());
    };
    let legs: Vec<Leg> = delivery
        .legs
        .iter()
        .filter(|l| !matches!(l.scope, Scope::List | Scope::Gate))
        .filter(|l| only.is_none_or(|only| only.contains(&l.scope)))
        .cloned()
        .collect();
    let mut declared = BTreeSet::new();
    let mut staying = stay(draft, delivery, &legs, &reached)?;
    let retired = draft.retired(&delivery.commit);
    for leg in &legs {
        for id in leg.nodes.keys().filter(|id| reached.contains(id)) {
            let proven = draft.assignment(*id, &leg.scope).and_then(|a| a.proven.clone());
            let facts = policy_on(draft, *id);
            let restored = staying.remove(&(*id, leg.scope.clone()));
            if let Some((name, retired)) = needs_spent(draft, leg, (&proven, restored.as_ref()), &retired)?
                && let Some(walk) = delivery.walk.as_mut()
            {
                let spent = walk.spent.entry(name).or_default();
                spent.why = retired.why;
                if let Some(module) = leg.scope.module() {
                    spent.kept.entry(module.clone()).or_default().insert(*id);
                }
                continue;
            }
            match restored {
                None => draft.assign(*id, &leg.scope, proven),
                Some(restored) => {
                    assign(draft, delivery, *id, (&leg.scope, proven), &restored)?;
                    if let Some(walk) = delivery.walk.as_mut() {
                        restored
                            .stays
                            .into_iter()
                            .for_each(|name| *walk.stays.entry(name).or_default() += 1);
                    }
                }
            }
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
    let aborted = if only.is_none_or(|only| only.contains(&Scope::Policy)) {
        abort(draft, delivery)?
    } else {
        Aborted::default()
    };
    let affected: BTreeSet<NodeId> = changed_policy(delivery, &draft.epochs)
        .map(|leg| leg.nodes.keys().copied().collect())
        .unwrap_or_default();
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(declared);
    };
    for (id, entry) in &mut walk.reached {
        // What a leg that was taken back before was ordered still counts.
        if declared.contains(id) {
            entry.return_sequence = sequence;
        }
        if let Some(epoch) = aborted.for_node(*id).filter(|_| affected.contains(id)) {
            entry.return_epoch = epoch;
        }
        entry.returned = entry.return_sequence == 0 && entry.return_epoch == 0;
    }
    Ok(declared)
}

/// The retired value that what a machine would go back to needs; none as a rule (DL-7).
fn needs_spent(
    draft: &Draft<'_>,
    leg: &Leg,
    (proven, restored): (&Option<ContentRef>, Option<&Restored>),
    retired: &[BTreeMap<SecretName, Retired>],
) -> Result<Option<(SecretName, Retired)>, DecideError> {
    if retired.iter().all(BTreeMap::is_empty) || leg.scope.module().is_none() {
        return Ok(None);
    }
    let spent = |content: &ModuleContent| {
        let found = retired.iter().find_map(|retired| spent(content, retired))?;
        Some((found.0.clone(), found.1.clone()))
    };
    match (restored, proven) {
        (Some(restored), _) => Ok(spent(&restored.content)),
        (None, Some(proven)) => Ok(spent(&*module_content(draft, proven.digest)?)),
        (None, None) => Ok(None),
    }
}

/// A walk's content takes the place of another's that was never proven: what of that goes only forward is what a roll-back
/// of this one leads to (DL-7).
pub(super) fn settle(
    draft: &mut Draft<'_>,
    delivery: &Delivery,
    machines: &BTreeSet<NodeId>,
) -> Result<(), DecideError> {
    let unproven = |(id, scope): (NodeId, &Scope)| {
        let assignment = draft.assignment(id, scope);
        assignment.is_some_and(|a| a.proven != a.assigned)
    };
    let mut legs = delivery.legs.clone();
    for leg in &mut legs {
        leg.nodes
            .retain(|id, _| machines.contains(id) && unproven((*id, &leg.scope)));
    }
    for ((id, scope), restored) in stay(draft, delivery, &legs, machines)? {
        let assignment = draft.assignment(id, &scope).cloned().unwrap_or_default();
        assign(draft, delivery, id, (&scope, assignment.proven), &restored)?;
        draft.assign(id, &scope, assignment.assigned);
    }
    Ok(())
}

/// What of these legs does not go back as a whole, on the machines that were reached.
fn stay(
    draft: &Draft<'_>,
    delivery: &Delivery,
    legs: &[Leg],
    reached: &BTreeSet<NodeId>,
) -> Result<BTreeMap<(NodeId, Scope), Restored>, DecideError> {
    let mut ways: BTreeMap<NodeId, BTreeMap<ModuleName, Way>> = BTreeMap::new();
    for leg in legs {
        let Scope::Module(module) = &leg.scope else {
            continue;
        };
        for id in leg.nodes.keys().filter(|id| reached.contains(id)) {
            let assignment = draft.assignment(*id, &leg.scope);
            let content = |content: Option<&ContentRef>| {
                content
                    .map(|content| module_content(draft, content.digest))
                    .transpose()
            };
            let way = Way {
                former: content(assignment.and_then(|a| a.proven.as_ref()))?,
                newer: content(assignment.and_then(|a| a.assigned.as_ref()))?,
            };
            ways.entry(*id).or_default().insert(module.clone(), way);
        }
    }
    let some = |ways: &BTreeMap<ModuleName, Way>| {
        let contents = ways.values().flat_map(|way| [&way.former, &way.newer]);
        contents.flatten().any(|content| may_stay(content))
    };
    let mut out = BTreeMap::new();
    for (id, ways) in ways.into_iter().filter(|(_, ways)| some(ways)) {
        let restored = restored(&ways, |name| went_forward(draft, delivery, id, name));
        out.extend(
            restored
                .into_iter()
                .map(|(module, restored)| ((id, Scope::Module(module)), restored)),
        );
    }
    Ok(out)
}

/// Whether a machine did what it was asked of a resource. Not, where it says itself that it did not, or put it back; who
/// cannot be told of may have done it.
fn went_forward(draft: &Draft<'_>, delivery: &Delivery, node: NodeId, name: &ResourceName) -> bool {
    let stages = delivery.walk.iter().flat_map(|walk| &walk.stages);
    let sent = stages
        .filter_map(|stage| stage.machines.get(&node))
        .map(|run| run.sequence);
    let sent = sent.max().unwrap_or(0);
    let state = draft.known.snapshot.nodes.get(&node);
    let report = state.and_then(|state| state.report.as_ref()).filter(|report| {
        let taken = report.declaration.as_ref().map_or(0, |status| status.sequence);
        sent > 0 && taken >= sent
    });
    let lines = report.map_or(&[][..], |report| &report.resources);
    let line = lines.iter().find(|line| line.name == *name);
    !line.is_some_and(|line| {
        matches!(
            line.outcome,
            Outcome::Failed | Outcome::Refused | Outcome::Skipped | Outcome::LeftOut | Outcome::Reverted
        )
    })
}

/// Assigns what is restored, which is proven by that.
fn assign(
    draft: &mut Draft<'_>,
    delivery: &Delivery,
    node: NodeId,
    (scope, proven): (&Scope, Option<ContentRef>),
    restored: &Restored,
) -> Result<(), DecideError> {
    let digest = Digest::of_value(&restored.content)?;
    let assigned = draft.assignment(node, scope).and_then(|a| a.assigned.clone());
    // Where all of it stays, it is the delivery's own content still.
    let commit = match assigned.filter(|assigned| assigned.digest == digest).or(proven) {
        Some(content) => content.commit,
        None => delivery.commit.clone(),
    };
    draft.keep(digest, &restored.content)?;
    draft.assign(node, scope, Some(ContentRef { digest, commit }));
    draft.prove(node, scope);
    Ok(())
}

/// The former content once more, to machines that went back to what it was to take away.
pub(in crate::pure::decide) fn back_again(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    nodes: &BTreeSet<NodeId>,
) -> Result<(), DecideError> {
    let of = |pick: fn(&Reached) -> u64| -> BTreeSet<NodeId> {
        let reached = delivery.walk.iter().flat_map(|w| &w.reached);
        reached
            .filter(|(id, r)| nodes.contains(id) && pick(r) > 0)
            .map(|(id, _)| *id)
            .collect()
    };
    let (declared, addressed) = (of(|r| r.return_sequence), of(|r| r.return_epoch));
    let sequence = declare(draft, delivery, &declared, Urgency::Urgent)?;
    // Where a newer epoch stands, the former policy is that one's business.
    let ours = delivery
        .walk
        .as_ref()
        .is_some_and(|w| w.epoch > 0 && !is_overtaken(&draft.epochs, w.epoch));
    let aborted = if addressed.is_empty() || !ours {
        Aborted::default()
    } else {
        abort(draft, delivery)?
    };
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(());
    };
    for (id, entry) in &mut walk.reached {
        if declared.contains(id) {
            entry.return_sequence = sequence;
        }
        if let Some(epoch) = aborted.for_node(*id)
            && entry.return_epoch > 0
        {
            entry.return_epoch = epoch;
        }
    }
    Ok(())
}
