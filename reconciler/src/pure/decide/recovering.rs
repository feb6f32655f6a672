//! The way back after the database was lost (DL-12, SG-8): nothing is ordered before the required machines were heard, then
//! everything that stands is signed anew under numbers that nobody has used.
//!
//! The signed bytes went with the disk, so what stands is signed again, once, with the content that is proven: the list, the
//! policy for everyone, each machine's declaration. A machine that has it notes the number and writes nothing. Machines that
//! an open walk changes keep what they have: the walk begins again at its first stage, and a machine that has the content
//! already is passed by its looks.
//!
//! It stands alone because for once orders are given that no stage gives. Invariant: they hold proven content only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use meshplan_schemas::document::fleet::ConfigMgmt;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::lifecycle::delivery::{Code, State};
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::{DeclarationState, Report, is_without_blame};

use super::draft::Draft;
use super::orders::Urgency;
use super::waiting::former_stages;
use super::waiting::plan::{new_walk, plan_for};
use super::{DecideError, after_secs, classes, orders, waiting, walk, windows};
use crate::pure::act::Look;
use crate::pure::compose::Composed;
use crate::pure::delivery::{Delivery, Reached, Step};
use crate::pure::recover::waiting::{Awaited, Begun, MARGIN, Recovering};
use crate::pure::scope::Scope;
use crate::pure::snapshot::Verb;

const RECONCILER: &str = "reconciler";
/// How often a machine that is waited for is asked, in seconds.
const ASK_SECS: u32 = 5;

/// Waits for the machines, or goes on.
pub(super) fn decide(draft: &mut Draft<'_>, recovering: &Recovering) -> Result<(), DecideError> {
    let accepted = |scope| draft.known.snapshot.accepted.get(scope).map(|c| c.commit.clone());
    let (list, policy) = (accepted(&Scope::List), accepted(&Scope::Policy));
    // Nothing where nothing was accepted; none where it was, and its tree cannot be read.
    let tree = |commit: &Option<CommitId>| match commit {
        None => Some(None),
        Some(commit) => draft.tree(commit).map(Some),
    };
    let (Some(list_tree), Some(policy_tree)) = (tree(&list), tree(&policy)) else {
        // The pass that has it decides.
        draft.due(after_secs(draft.now(), ASK_SECS));
        return Ok(());
    };
    let nodes = &draft.known.snapshot.nodes;
    let awaited = list_tree
        .as_ref()
        .map_or_else(Vec::new, |tree| recovering.awaited(tree, nodes));
    let forced = answer(draft, recovering, &awaited);
    if !awaited.is_empty() && forced.is_none() {
        let connected = &draft.known.snapshot.connected;
        let ask = awaited
            .iter()
            .filter(|a| a.doubt.is_none() && connected.contains(&a.node));
        let looks: Vec<Look> = ask
            .map(|a| Look {
                id: recovering.look,
                node: a.node,
            })
            .collect();
        draft.act.looks = looks;
        draft.due(after_secs(draft.now(), ASK_SECS));
        return Ok(());
    }
    let standing = Standing {
        list: list.zip(list_tree),
        policy: policy.zip(policy_tree),
    };
    go_on(draft, recovering, &standing, forced.as_deref(), &awaited)
}

/// What was accepted, with its trees.
struct Standing {
    list: Option<(CommitId, Arc<Composed>)>,
    policy: Option<(CommitId, Arc<Composed>)>,
}

/// Answers people meanwhile; who said that nobody is waited for.
fn answer(draft: &mut Draft<'_>, recovering: &Recovering, awaited: &[Awaited]) -> Option<String> {
    let mut forced = recovering.forced.clone();
    for request in &draft.known.snapshot.requests {
        let answer = if request.verb == Verb::Recover {
            forced.get_or_insert_with(|| request.actor.clone());
            "it goes on, under numbers above all that are known".to_owned()
        } else {
            format!("refused: {}", recovering.words(awaited))
        };
        draft.act.answers.push((request.id.clone(), answer));
    }
    forced
}

fn go_on(
    draft: &mut Draft<'_>,
    recovering: &Recovering,
    standing: &Standing,
    forced: Option<&str>,
    awaited: &[Awaited],
) -> Result<(), DecideError> {
    let highest = recovering.highest(&draft.known.snapshot.nodes);
    draft.counters.epoch = highest.epoch.saturating_add(MARGIN);
    draft.counters.revision = highest.revision.saturating_add(MARGIN);
    draft.counters.sequence = highest.sequence.saturating_add(MARGIN);
    draft.counters.look = draft.counters.look.max(recovering.look);
    draft.act.recovered = true;
    let mut facts = Vec::new();
    let mut fact = |key: &str, value: u64| facts.push((key.to_owned(), value.to_string()));

    if let Some((commit, tree)) = &standing.policy
        && let Some(epoch) = orders::base(draft, tree, commit)?
    {
        fact("Epoch", epoch);
    }
    let mut walked = BTreeSet::new();
    let mut begun: Vec<(u64, CommitId)> = Vec::new();
    for commit in recovering.walks.keys() {
        begun.extend(draft.deliveries.get(commit).map(|d| (d.order, commit.clone())));
    }
    begun.sort();
    for (_, commit) in begun {
        let (Some(mut delivery), Some(said)) = (
            draft.deliveries.get(&commit).cloned(),
            recovering.walks.get(&commit),
        ) else {
            continue;
        };
        take_up(draft, &mut delivery, said, recovering)?;
        walked.extend(walk::changed(&delivery));
        draft.put(delivery);
    }
    let Some(mut newest) = draft.deliveries.values().max_by_key(|d| d.order).cloned() else {
        return Ok(());
    };
    if let Some((commit, tree)) = &standing.list {
        let mut all = Delivery {
            commit: commit.clone(),
            legs: Vec::new(),
            left_out: BTreeMap::new(),
            walk: None,
            again: false,
            ..newest.clone()
        };
        let assignments = &draft.known.snapshot.assignments;
        let runs = |id: &NodeId| assignments.range((*id, Scope::List)..).next();
        let others = tree
            .nodes
            .values()
            .filter(|n| n.enrolled && n.update_class != UpdateClass::LeftBehind);
        let others: BTreeSet<NodeId> = others
            .map(|node| node.id)
            .filter(|id| {
                !walked.contains(id)
                    && !recovering.partial.contains(id)
                    && runs(id).is_some_and(|((node, _), _)| node == id)
            })
            .collect();
        orders::declare(draft, &mut all, &others, Urgency::Ordinary)?;
        // Written down even if nobody needed one: the next recovery goes on above it.
        fact("Sequence", draft.counters.sequence);
        facts.extend(orders::sign_head(draft, tree, commit));
    }
    let who = match awaited {
        [] => "every required machine was heard".to_owned(),
        some => {
            let names: Vec<&str> = some.iter().map(|a| a.name.as_str()).collect();
            format!("not heard, and not waited for: {}", names.join(", "))
        }
    };
    let reason = format!(
        "the database was rebuilt from the record; {who}; what stands is signed anew, under numbers {MARGIN} above all \
         that are known"
    );
    draft.remark(
        &mut newest,
        Code::Lost,
        forced.unwrap_or(RECONCILER),
        reason,
        facts,
    );
    draft.put(newest);
    Ok(())
}

/// Takes up a walk that was not over. How far it was is not in the record: it is walked again from its first stage, and all
/// that it changes counts as reached.
fn take_up(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    said: &Begun,
    recovering: &Recovering,
) -> Result<(), DecideError> {
    let Some(tree) = draft.tree(&delivery.commit) else {
        return hold(draft, delivery, "its tree cannot be composed".to_owned());
    };
    let previous = delivery.previous.as_ref().and_then(|commit| draft.tree(commit));
    // What it has brought is compared whatever was remembered of it since.
    let again = std::mem::replace(&mut delivery.again, true);
    let diff = waiting::differ(draft, &tree, previous.as_deref(), delivery);
    delivery.again = again;
    let diff = diff?;
    waiting::take(delivery, &tree, &diff);
    delivery.legs.retain(|leg| !said.taken_back.contains(&leg.scope));
    waiting::keep_former(draft, &diff)?;
    let plan = plan_for(&tree, delivery.component(), &delivery.legs).cloned();
    delivery.plan = plan.as_ref().map(|plan| plan.name.clone());
    let windows = windows::of_plans(&waiting::bounds(draft, delivery, plan.as_ref()));
    let walked = former_stages::of(draft, delivery, &tree);
    let mut walk = new_walk(&tree, walked.plan.as_ref(), windows, BTreeSet::new(), None);
    walk.lines.extend(walked.lines());
    for id in walk::changed(delivery) {
        let Some(node) = tree.nodes.get(&id) else { continue };
        let reached = Reached {
            name: node.name.clone(),
            return_sequence: 0,
            return_epoch: 0,
            returned: false,
        };
        walk.reached.insert(id, reached);
    }
    walk.lines
        .push("the database was rebuilt from the record: it is walked from its first stage again".to_owned());
    delivery.walk = Some(walk);
    classes::begin(delivery, &tree);
    match delivery.state {
        State::Delivering => match cannot_tell(draft, delivery, said, recovering) {
            Some(why) => hold(draft, delivery, why),
            None => {
                let reason = "the database was rebuilt from the record: the walk begins again at its first stage, and \
                     a machine that has this already is passed by its looks";
                draft.remark(delivery, Code::Lost, RECONCILER, reason.to_owned(), Vec::new());
                Ok(())
            }
        },
        State::RollingBack => return_again(draft, delivery, said, &tree),
        // It is held, and goes on or back on the word that it waits for.
        _ => Ok(()),
    }
}

/// Why nobody can tell how far a walk is, or how it fares; none where it may go on.
fn cannot_tell(
    draft: &Draft<'_>,
    delivery: &Delivery,
    said: &Begun,
    recovering: &Recovering,
) -> Option<String> {
    if !said.taken_back.is_empty() {
        return Some("a part of it was taken back on the way, the rest goes on with a go".to_owned());
    }
    if said.overridden {
        return Some(
            "a person had said what is other for this walk alone, and the record does not say what"
                .to_owned(),
        );
    }
    let nodes = &draft.known.snapshot.nodes;
    for (id, reached) in delivery.walk.iter().flat_map(|w| &w.reached) {
        let required = delivery
            .walk
            .as_ref()
            .is_some_and(|w| !w.classes.contains_key(id));
        let state = nodes.get(id);
        if required && state.is_none_or(|s| s.report.is_none()) && recovering.forced.is_some() {
            return Some(format!(
                "{} was not heard, so how far the walk is cannot be told",
                reached.name
            ));
        }
        if let Some(why) = state.and_then(|s| s.report.as_ref()).and_then(trouble) {
            return Some(format!("{} says that {why}", reached.name));
        }
    }
    None
}

/// What a machine says of content that did not stay there.
fn trouble(report: &Report) -> Option<String> {
    let declaration = report.declaration.as_ref().and_then(|status| match status.state {
        DeclarationState::Reverted if is_without_blame(&status.reason) => None,
        DeclarationState::Reverted | DeclarationState::Failed | DeclarationState::KnownBad => Some(format!(
            "sequence {} did not stay: {}",
            status.sequence, status.reason
        )),
        _ => None,
    });
    let epoch = report.epoch.as_ref().and_then(|status| match status.state {
        EpochState::Reverted if is_without_blame(&status.reason) => None,
        EpochState::Reverted | EpochState::Rejected => Some(format!(
            "epoch {} did not stay: {}",
            status.state_epoch, status.reason
        )),
        _ => None,
    });
    declaration.or(epoch).map(|why| super::look::cut(&why))
}

fn hold(draft: &mut Draft<'_>, delivery: &mut Delivery, why: String) -> Result<(), DecideError> {
    if delivery.state != State::Delivering {
        return Ok(());
    }
    draft.transit(delivery, State::Held, Code::Lost, RECONCILER, why, Vec::new())
}

/// The former content once more on all that may have been reached. What goes only forward stays where the record says that
/// the machine had its order.
fn return_again(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    said: &Begun,
    tree: &Composed,
) -> Result<(), DecideError> {
    let reached = delivery.walk.iter().flat_map(|w| &w.reached);
    let named: BTreeSet<NodeId> = reached
        .filter(|(_, r)| said.machines.contains(&r.name))
        .map(|(id, _)| *id)
        .collect();
    for leg in delivery.legs.clone() {
        let nodes = leg.nodes.iter().filter(|(id, _)| named.contains(id));
        for (id, content) in orders::after(draft, delivery, &leg, tree, nodes)? {
            draft.assign(id, &leg.scope, content);
        }
    }
    orders::back(draft, delivery, None)?;
    let confirm = delivery.config_mgmt(&tree.fleet.config_mgmt).confirm_secs;
    let deadline = after_secs(draft.now(), ConfigMgmt::return_secs(confirm));
    let mut facts = Vec::new();
    if let Some(walk) = delivery.walk.as_mut() {
        walk.step = Step::Returning { deadline };
        let sequence = walk.return_sequence();
        facts.extend((sequence > 0).then(|| ("Return-Sequence".to_owned(), sequence.to_string())));
    }
    let reason =
        "the database was rebuilt from the record: the former content is ordered once more".to_owned();
    draft.remark(delivery, Code::Lost, RECONCILER, reason, facts);
    Ok(())
}
