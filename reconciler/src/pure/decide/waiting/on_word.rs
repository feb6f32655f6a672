//! A person says go: what no word lifts is asked all the same, and the walk begins (DL-4).

use std::collections::BTreeSet;

use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::beside::{in_the_way, leave_to_others};
use super::identities::Identities;
use super::plan::{gate_facts, new_walk, plan_for};
use super::{
    approvals, away, bounds, closed, differ, former_checks, former_stages, identities, keep_former, lasting,
    left_out, name_old_hosts, removals, rewritten, signed, take,
};
use crate::pure::decide::draft::Draft;
use crate::pure::decide::{DecideError, classes, orders, windows};
use crate::pure::delivery::Delivery;
use crate::pure::recover::OVERRIDDEN;
use crate::pure::rollout::words;

/// Begins on a person's word: what held it is not asked again, absent machines are taken out of the gate. Why not,
/// where it cannot.
pub(in crate::pure::decide) fn begin_on_word(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    actor: &str,
    why: &str,
) -> Result<Option<String>, DecideError> {
    let Some(tree) = draft.tree(&delivery.commit) else {
        return Ok(Some("its tree cannot be read now".to_owned()));
    };
    match identities::judge(draft, delivery, &tree) {
        Identities::Kept => {}
        Identities::Unread => {
            return Ok(Some(
                "the tree that its records are compared with cannot be read now".to_owned(),
            ));
        }
        Identities::Broken(why) => return Ok(Some(why)),
    }
    if let Some(why) = closed::refusal(draft, delivery, &tree) {
        return Ok(Some(why));
    }
    let previous = delivery.previous.as_ref().and_then(|c| draft.tree(c));
    let diff = differ(draft, &tree, previous.as_deref(), delivery)?;
    if diff.unread {
        return Ok(Some(
            "the commit in which a module was accepted cannot be read now".to_owned(),
        ));
    }
    if !diff.known_bad.is_empty() {
        return Ok(Some(
            "its content failed before: `go --again` tries it once more".to_owned(),
        ));
    }
    take(delivery, &tree, &diff);
    leave_to_others(draft, delivery);
    if delivery.legs.is_empty() {
        return Ok(Some("there is nothing left to deliver of it".to_owned()));
    }
    if in_the_way(draft, delivery).is_some() {
        return Ok(Some(
            "another walk is under way: `deliveries list` shows it".to_owned(),
        ));
    }
    // Before the first report intervals are over nobody can be told to be away.
    let may_judge = draft.may_judge(tree.fleet.heartbeat_secs);
    let excused = if may_judge {
        away::excused_by_go(draft, delivery, &tree)
    } else {
        BTreeSet::new()
    };
    let plan = plan_for(&tree, delivery.component(), &delivery.legs).cloned();
    delivery.binds = Some(approvals::binding(&delivery.legs, &tree, plan.as_ref())?);
    keep_former(draft, &diff)?;
    // Who says go while the window is shut means now.
    let windows = match delivery.code {
        Code::Window => Vec::new(),
        _ => windows::of_plans(&bounds(draft, delivery, plan.as_ref())),
    };
    let walked = former_stages::of(draft, delivery, &tree);
    let mut walk = new_walk(
        &tree,
        walked.plan.as_ref(),
        windows,
        excused,
        delivery.inherited.as_ref(),
    );
    if let Some(overrides) = &delivery.overrides {
        if !words::changes_policy(delivery) {
            return Ok(Some(
                "it changes no policy, so there is no rollout of it to start".to_owned(),
            ));
        }
        if let Some(fault) = overrides.fault(&tree, &walk) {
            return Ok(Some(fault));
        }
        overrides.enter(&mut walk, &tree.fleet.config_mgmt);
    }
    walk.lines.extend(walked.lines());
    walk.lines.extend(left_out::lines(&tree));
    delivery.walk = Some(walk);
    classes::begin(delivery, &tree);
    let old = name_old_hosts(draft, delivery, &tree);
    let mut facts = gate_facts(&tree, delivery, plan.as_ref());
    // What it is cannot be told from the record alone: who reads it back knows that it was another walk.
    facts.extend((delivery.overrides.as_ref()).map(|_| (OVERRIDDEN.to_owned(), format!("by {actor}"))));
    facts.extend(approvals::facts(draft, delivery));
    facts.extend(signed::fact(draft, delivery));
    facts.extend(rewritten::let_through(delivery));
    facts.extend(former_checks::facts(draft, &tree));
    facts.extend(removals::fact(draft, delivery, &tree));
    facts.extend(lasting::facts(draft, delivery, &tree));
    facts.extend(old);
    identities::take_down(draft, delivery, &tree);
    facts.extend(identities::facts(draft));
    facts.extend(orders::list(draft, delivery, &tree)?);
    draft.transit(
        delivery,
        State::Delivering,
        Code::Go,
        actor,
        why.to_owned(),
        facts,
    )?;
    Ok(None)
}
