//! The epochs of a walk: canaries, release, abort, and what stands below each (SG-2, EP-3, RO-1).

use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::{Epoch, InForce, Phase, Targeting};
use meshplan_schemas::limits::{IN_FORCE, SCHEMA};

use super::changed_policy;
use super::declarations::timing;
use crate::pure::act::Order;
use crate::pure::compose::Composed;
use crate::pure::decide::DecideError;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::Delivery;
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
    // On a release nothing older stands; on a canary what stood before, and the canary epochs of this walk.
    let in_force = if phase == Phase::Release {
        Vec::new()
    } else {
        standing_before(draft, delivery)
    };
    let mgmt = delivery.config_mgmt(&tree.fleet.config_mgmt);
    let watch = (phase == Phase::Release).then(|| draft.now().as_second() + i64::from(mgmt.watch_secs()));
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
        confirm_secs: mgmt.confirm_secs,
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
        walk.released |= epoch.phase == Phase::Release;
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

/// Signs the former policy forward, to all whom this walk's epochs addressed (RO-1). Its number, 0 without epochs.
pub(super) fn abort(draft: &mut Draft<'_>, delivery: &mut Delivery) -> Result<u64, DecideError> {
    let Some(walk) = delivery.walk.as_ref().filter(|w| w.epoch != 0) else {
        return Ok(0);
    };
    let Some(before) = changed_policy(delivery, &draft.epochs).map(|leg| leg.before) else {
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
    // All whom this walk's epochs addressed, and those of a walk whose place it took.
    let targeting = match walk.released {
        true => Targeting::everyone(),
        false => Targeting::nodes(walk.reached.keys().copied().collect()),
    };
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
