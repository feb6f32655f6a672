//! The way back: the former content is ordered on all that was reached, and watched until it is there (DL-7).

use std::collections::BTreeSet;

use meshplan_schemas::document::fleet::ConfigMgmt;
use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::story::{self, story};
use super::{RECONCILER, leaving};
use crate::pure::decide::draft::Draft;
use crate::pure::decide::look::{self, Seen};
use crate::pure::decide::{DecideError, after_secs, orders};
use crate::pure::delivery::{Delivery, Step};
use crate::pure::scope::Scope;

/// Orders the former content on all that was reached, and says why (DL-7).
pub(in crate::pure::decide) fn roll_back(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    code: Code,
    actor: &str,
    reason: String,
    mut facts: Vec<(String, String)>,
) -> Result<(), DecideError> {
    facts.extend(story(delivery));
    orders::back(draft, delivery, None)?;
    let confirm = draft
        .tree(&delivery.commit)
        .map_or(60, |t| delivery.config_mgmt(&t.fleet.config_mgmt).confirm_secs);
    let deadline = after_secs(draft.now(), ConfigMgmt::return_secs(confirm));
    if let Some(walk) = delivery.walk.as_mut() {
        walk.step = Step::Returning { deadline };
        let sequence = walk.return_sequence();
        let epoch = walk.reached.values().map(|r| r.return_epoch).max().unwrap_or(0);
        facts.extend((sequence > 0).then(|| ("Return-Sequence".to_owned(), sequence.to_string())));
        facts.extend((epoch > 0).then(|| ("Return-Epoch".to_owned(), epoch.to_string())));
        facts.extend(story::stays(walk));
    }
    draft.transit(delivery, State::RollingBack, code, actor, reason, facts)
}

/// Watches the former content arrive.
pub(super) fn come_back(draft: &mut Draft<'_>, delivery: &mut Delivery) -> Result<(), DecideError> {
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(());
    };
    let Step::Returning { deadline } = walk.step else {
        return Ok(());
    };
    let mut failed = None;
    let mut aside = BTreeSet::new();
    let fleet = leaving::fleet(draft);
    for (id, reached) in &mut walk.reached {
        // Who has left the fleet is ordered it with the others, and nobody waits for that.
        if fleet.as_ref().is_some_and(|fleet| !fleet.nodes.contains_key(id)) {
            reached.returned = true;
            continue;
        }
        let Some(report) = draft.known.snapshot.nodes.get(id).and_then(|n| n.report.as_ref()) else {
            continue;
        };
        let declaration = look::declaration(report, reached.return_sequence);
        let epoch = look::epoch(report, reached.return_epoch);
        match (declaration, epoch) {
            (Seen::Healthy, Seen::Healthy) => reached.returned = true,
            // It went back for a reason of its own, to what was to be taken away: ordered again (DL-13).
            (Seen::Aside(_), _) | (_, Seen::Aside(_)) => {
                aside.insert(*id);
            }
            (Seen::Broken(why), _) | (_, Seen::Broken(why)) => failed = Some((reached.name.clone(), why)),
            _ => {}
        }
    }
    if !aside.is_empty() {
        orders::back_again(draft, delivery, &aside)?;
    }
    let Some(walk) = delivery.walk.as_mut() else {
        return Ok(());
    };
    if let Some((name, why)) = failed {
        let reason = format!("the former content failed on {name} too: {why}; nothing more is switched");
        return draft.transit(
            delivery,
            State::Held,
            Code::RollBackFailed,
            RECONCILER,
            reason,
            Vec::new(),
        );
    }
    let out: Vec<_> = walk
        .reached
        .values()
        .filter(|r| !r.returned)
        .map(|r| r.name.clone())
        .collect();
    if !walk.spent.is_empty() && (out.is_empty() || draft.now() >= deadline) {
        let (reason, facts) = story::spent(walk);
        let (to, code) = (State::Held, Code::RetiredValue);
        return draft.transit(delivery, to, code, RECONCILER, reason, facts);
    }
    if out.is_empty() {
        let reason = format!(
            "every reached machine has the former content again: {}{}",
            walk.reached.len(),
            story::but_for(walk)
        );
        return draft.transit(
            delivery,
            State::RolledBack,
            Code::Taken,
            RECONCILER,
            reason,
            Vec::new(),
        );
    }
    if draft.now() < deadline {
        draft.due(deadline);
        return Ok(());
    }
    let names: Vec<String> = out.iter().map(ToString::to_string).collect();
    walk.outstanding = out;
    let facts = vec![("Outstanding".to_owned(), names.join(", "))];
    let reason = format!(
        "not heard to have the former content yet: {}; they get it when they return{}",
        names.join(", "),
        story::but_for(walk)
    );
    draft.transit(
        delivery,
        State::RolledBack,
        Code::Partly,
        RECONCILER,
        reason,
        facts,
    )
}

/// Serves machines that returned after the deadline of a roll-back: they get the former content as often as something
/// of their own undoes it, until they have it (DL-2, DL-13).
///
/// What is ordered is what is assigned now. A machine that a newer order has reached is that order's business.
pub(super) fn serve_outstanding(draft: &mut Draft<'_>) -> Result<(), DecideError> {
    let outstanding: Vec<CommitId> = draft
        .deliveries
        .values()
        .filter(|d| d.is_outstanding() && draft.faults.of_delivery(&d.commit).is_none())
        .map(|d| d.commit.clone())
        .collect();
    for commit in outstanding {
        let Some(mut delivery) = draft.deliveries.get(&commit).cloned() else {
            continue;
        };
        let walked = reached_by_others(draft, &delivery);
        let fleet = leaving::fleet(draft);
        let Some(walk) = delivery.walk.as_mut() else {
            continue;
        };
        let own_epoch = walk.reached.values().map(|r| r.return_epoch).max().unwrap_or(0);
        let overtaken = orders::is_overtaken(&draft.epochs, own_epoch);
        let mut aside = BTreeSet::new();
        for (id, reached) in walk.reached.iter_mut().filter(|(_, r)| !r.returned) {
            let gone = fleet.as_ref().is_some_and(|fleet| !fleet.nodes.contains_key(id));
            // A newer order speaks to it in this one's place: a declaration is the sum of what is assigned, an epoch has a
            // number. Each only for its own payload.
            let declared = reached.return_sequence == 0 || walked.contains(id);
            let addressed = reached.return_epoch == 0 || overtaken;
            if gone || (declared && addressed) {
                reached.returned = true;
                continue;
            }
            let Some(report) = draft.known.snapshot.nodes.get(id).and_then(|n| n.report.as_ref()) else {
                continue;
            };
            let newer = report.declaration.as_ref().map_or(0, |d| d.sequence) > reached.return_sequence;
            let declaration = if declared || newer {
                Seen::Healthy
            } else {
                look::declaration(report, reached.return_sequence)
            };
            let epoch = if addressed {
                Seen::Healthy
            } else {
                look::epoch(report, reached.return_epoch)
            };
            match (declaration, epoch) {
                (Seen::Healthy, Seen::Healthy) => reached.returned = true,
                (Seen::Aside(_), _) | (_, Seen::Aside(_)) => {
                    aside.insert(*id);
                }
                _ => {}
            }
        }
        let left = walk.reached.values().filter(|r| !r.returned);
        walk.outstanding = left.map(|r| r.name.clone()).collect();
        if !aside.is_empty() {
            let again = orders::back_again(draft, &mut delivery, &aside);
            again.map_err(|error| error.of_delivery(&commit))?;
        }
        draft.put(delivery);
    }
    Ok(())
}

/// The machines that newer walks have declared something on.
fn reached_by_others(draft: &Draft<'_>, delivery: &Delivery) -> BTreeSet<NodeId> {
    let others = draft.deliveries.values().filter(|d| d.order > delivery.order);
    let walked = others.filter_map(|d| Some((d, d.walk.as_ref()?)));
    let declared = walked.flat_map(|(other, walk)| {
        let modules = other
            .legs
            .iter()
            .filter(|leg| matches!(leg.scope, Scope::Module(_)));
        let nodes = modules.flat_map(|leg| leg.nodes.keys());
        nodes.filter(|id| walk.reached.contains_key(*id)).copied()
    });
    declared.collect()
}
