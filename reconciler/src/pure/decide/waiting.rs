//! What waits: which delivery is next, what holds it, when it begins (DL-1, DL-2, DL-15).

use std::collections::BTreeSet;
use std::sync::Arc;

use meshplan_schemas::document::PlanDoc;
use meshplan_schemas::document::plan::Absent;
use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::draft::Draft;
use super::{DecideError, Tree, classes, freeze, orders, people, walk, windows};
use crate::pure::compose::Composed;
use crate::pure::compose::former::Former;
use crate::pure::delivery::{Awaits, Delivery};
use crate::pure::diff::{self, Beside, Diff};
use crate::pure::scope::Scope;
use crate::pure::snapshot::Freeze;

pub(super) use announce::announce;
use beside::{in_the_way, leave_to_others};
pub(super) use bounds::bounds;
use bounds::own_bounds;

use checks::Asked;
pub(super) use checks::have_passed;
use giving_way::make_way;
use holds::{Hold, NEXT, behind, unread};
use identities::Identities;
pub(super) use left_branch::withdraw_left;
pub(super) use on_word::begin_on_word;
use plan::{gate_facts, new_walk, plan_for};
use signed::Signed;
use superseding::supersede;
pub(super) use superseding::{leave_debts, weigh};

mod announce;
mod approvals;
mod away;
pub(super) mod beside;
mod bounds;
mod checks;
mod closed;
mod former_checks;
pub(super) mod former_stages;
mod giving_way;
mod holds;
mod identities;
mod lasting;
mod left_branch;
mod left_out;
mod old_hosts;
mod on_word;
pub(super) mod plan;
mod removals;
mod rewritten;
pub mod signed;
mod superseding;

const RECONCILER: &str = "reconciler";

/// Judges the waiting deliveries: the newest takes the place of the others, and begins when nothing holds it.
pub(super) fn judge(draft: &mut Draft<'_>) -> Result<(), DecideError> {
    let mut waiting: Vec<(u64, CommitId)> = draft
        .deliveries
        .values()
        .filter(|d| d.waits())
        .map(|d| (d.order, d.commit.clone()))
        .collect();
    waiting.sort();
    let Some((_, newest)) = waiting.pop() else {
        return Ok(());
    };
    let Some(mut delivery) = draft.deliveries.get(&newest).cloned() else {
        return Ok(());
    };
    if let Some(fault) = draft.faults.of_delivery(&newest) {
        walk::broken::end(draft, &mut delivery, fault)?;
        draft.put(delivery);
        return Ok(());
    }
    let invalid = match draft.known.trees.get(&newest) {
        // Not read yet: the pass that has it decides.
        None => {
            delivery.awaits = Some(unread("its tree"));
            draft.put(delivery);
            return Ok(());
        }
        // It is no order and takes nobody's place; the one before it is the newest then.
        Some(Tree::Invalid(findings)) => Some(findings.clone()),
        Some(Tree::Composed(tree)) => match identities::judge(draft, &delivery, tree) {
            Identities::Unread => {
                delivery.awaits = Some(unread("the tree that its records are compared with"));
                draft.put(delivery);
                return Ok(());
            }
            Identities::Broken(why) => Some(why),
            Identities::Kept => closed::refusal(draft, &delivery, tree),
        },
        Some(Tree::Gone(_)) => None,
    };
    if let Some(Tree::Composed(tree)) = draft.known.trees.get(&newest)
        && feeds_nothing(&delivery, tree)
    {
        if waiting.is_empty() {
            nothing_to_do(draft, &mut delivery, tree)?;
        } else {
            // It takes nobody's place, and must not let through what waits: its tree has that in it.
            let reason = "the tree names nothing that it feeds; what waits goes on waiting".to_owned();
            let (to, code) = (State::Withdrawn, Code::Withdrawn);
            draft.transit(&mut delivery, to, code, RECONCILER, reason, Vec::new())?;
        }
        draft.put(delivery);
        return Ok(());
    }
    if let Some(findings) = invalid {
        let (to, code) = (State::Failed, Code::Invalid);
        draft.transit(&mut delivery, to, code, RECONCILER, findings, Vec::new())?;
        draft.put(delivery);
        return Ok(());
    }
    if let Some((_, older)) = waiting
        .iter()
        .find(|(_, older)| superseding::is_unread(draft, older))
    {
        delivery.reason = format!(
            "it waits until the tree of {} can be read, whose place it takes",
            older.short()
        );
        delivery.awaits = Some(unread(&format!(
            "the tree of {}, whose place it takes,",
            older.short()
        )));
        draft.put(delivery);
        return Ok(());
    }
    for (_, older) in waiting {
        superseding::take_place(draft, &mut delivery, &older)?;
    }
    judge_newest(draft, &mut delivery).map_err(|error| error.of_delivery(&newest))?;
    draft.put(delivery);
    Ok(())
}

/// Whether it is of a component that the tree does not name.
fn feeds_nothing(delivery: &Delivery, tree: &Composed) -> bool {
    let named = |repo: &str| tree.fleet.components.iter().any(|of| of.repo == repo);
    delivery.component().is_some_and(|repo| !named(repo))
}

fn judge_newest(draft: &mut Draft<'_>, delivery: &mut Delivery) -> Result<(), DecideError> {
    let tree = match draft.known.trees.get(&delivery.commit) {
        Some(Tree::Composed(tree)) => Arc::clone(tree),
        Some(Tree::Gone(why)) => return never_an_order(draft, delivery, why.clone()),
        None | Some(Tree::Invalid(_)) => return Ok(()),
    };
    if tree.nodes.is_empty()
        && draft.known.snapshot.accepted.contains_key(&Scope::List)
        && fleet_had_nodes(draft)
    {
        return never_an_order(
            draft,
            delivery,
            "the tree declares no node and the fleet has some".to_owned(),
        );
    }
    let previous = delivery.previous.as_ref().and_then(|c| draft.tree(c));
    let diff = differ(draft, &tree, previous.as_deref(), delivery)?;
    if diff.unread {
        // The commit in which a module was accepted is not read yet: the pass that has it decides.
        delivery.awaits = Some(unread("the commit in which a module of it was accepted"));
        return Ok(());
    }
    let signed = signed::signed(draft, delivery);
    if matches!(signed, Signed::Unread) {
        delivery.awaits = Some(unread("how it is signed"));
        return Ok(());
    }
    take(delivery, &tree, &diff);
    if diff.legs.is_empty() {
        return nothing_to_do(draft, delivery, &tree);
    }
    let carried_by = leave_to_others(draft, delivery);
    if let Some(other) = carried_by.filter(|_| delivery.legs.is_empty()) {
        delivery.awaits = Some(behind(other));
        // All that it changes is on its way already: with that walk's end there is nothing left to do, or all of it.
        return Ok(());
    }
    // Nobody is absent in the first two report intervals: hosts are on their way back (RO-8).
    let calm = draft.calm_until(tree.fleet.heartbeat_secs);
    if draft.now() < calm && changes_somebody_heard(draft, delivery) {
        draft.due(calm);
        if delivery.state == State::Proposed {
            delivery.awaits = Some(Awaits {
                on: "the first two report intervals after the reconciler's start: its machines are on their way back"
                    .to_owned(),
                rule: "fleet.toml, heartbeat_secs: nobody is called absent before (RO-8)".to_owned(),
                next: NEXT.to_owned(),
                until: Some(calm),
                ..Awaits::default()
            });
        }
        return Ok(());
    }
    let plan = plan_for(&tree, delivery.component(), &delivery.legs);
    delivery.plan = plan.map(|plan| plan.name.clone());
    delivery.binds = Some(approvals::binding(&delivery.legs, &tree, plan)?);
    delivery.checks = checks::named(&own_bounds(draft, delivery, plan));
    delivery.teams = people::teams(&bounds(draft, delivery, plan));
    if delivery.state == State::Proposed
        && let Asked::Waits(reason) = checks::ask(draft, delivery)
    {
        let bounds = bounds(draft, delivery, plan);
        delivery.awaits = Some(Awaits {
            on: format!("a check: {reason}"),
            rule: checks::rule(draft, &tree, delivery, &bounds),
            next: "it begins when all have passed, or is held".to_owned(),
            ..Awaits::default()
        });
        delivery.reason = reason;
        return Ok(());
    }
    let held = signed::hold(&signed).or_else(|| hold(draft, delivery, &tree, plan, &diff));
    match (delivery.state, held) {
        // It stays held; what it waits for may be less by now, and is said as it is.
        (State::Held, Some(hold)) => {
            let same = hold.code == delivery.code;
            // The word of a person for one thing that only a person lifts is asked for until it is said.
            if same || opens_by_itself(delivery.code) {
                delivery.awaits = Some(hold.awaits);
            }
            if same {
                delivery.reason = hold.reason;
            }
            return Ok(());
        }
        // Held by a cause that goes by itself, and it has gone; any other waits for a person.
        (State::Held, None) if !opens_by_itself(delivery.code) => return Ok(()),
        (_, Some(hold)) => {
            let (to, code) = (State::Held, hold.code);
            draft.transit(delivery, to, code, RECONCILER, hold.reason, Vec::new())?;
            delivery.awaits = Some(hold.awaits);
            return Ok(());
        }
        (_, None) => {}
    }
    if let Some(other) = in_the_way(draft, delivery) {
        delivery.awaits = Some(behind(other.clone()));
        return make_way(draft, &other, delivery);
    }
    let code = if delivery.state == State::Held {
        Code::Opened
    } else {
        Code::Checked
    };
    keep_former(draft, &diff)?;
    begin(draft, delivery, &tree, plan, code)
}

/// Takes down what a diff says.
pub(super) fn take(delivery: &mut Delivery, tree: &Composed, diff: &Diff) {
    delivery.legs.clone_from(&diff.legs);
    delivery.left_out.clone_from(&diff.left_out);
    delivery.left_behind = classes::left_behind(tree, &diff.left_behind).into();
    delivery.skipped = diff
        .skipped
        .iter()
        .map(|(s, bad)| (s.clone(), format!("known-bad since {}", bad.commit.short())))
        .collect();
}

/// Keeps the content of legs that have another commit's: the walk is not asked to compose it again.
pub(super) fn keep_former(draft: &mut Draft<'_>, diff: &Diff) -> Result<(), DecideError> {
    for (digest, content) in &diff.former {
        draft.keep_module(*digest, content)?;
    }
    Ok(())
}

fn changes_somebody_heard(draft: &Draft<'_>, delivery: &Delivery) -> bool {
    let heard = |id: &NodeId| {
        draft
            .known
            .snapshot
            .nodes
            .get(id)
            .is_some_and(|n| n.heard_at.is_some())
    };
    walk::changed(delivery).iter().any(heard)
}

fn fleet_had_nodes(draft: &Draft<'_>) -> bool {
    !draft.known.snapshot.assignments.is_empty()
}

/// Never an order: held, and the fleet with it, until a person lifts it (FR-12).
fn never_an_order(draft: &mut Draft<'_>, delivery: &mut Delivery, why: String) -> Result<(), DecideError> {
    if delivery.state == State::Held {
        return Ok(());
    }
    if draft.known.snapshot.accepted.is_empty() {
        return draft.transit(
            delivery,
            State::Failed,
            Code::Invalid,
            RECONCILER,
            why,
            Vec::new(),
        );
    }
    let reason = format!("{why}; nothing is removed on its word, a person must say what is meant");
    draft.set_freeze(Some(Freeze {
        since: draft.now(),
        until: None,
        actor: RECONCILER.to_owned(),
        why: format!("{}: {why}", delivery.name),
    }));
    let facts = vec![(freeze::TRAILER.to_owned(), "until lifted".to_owned())];
    let hold = Hold::new(Code::Freeze, format!("a person: {reason}"))
        .by("a tree without its nodes or its fleet.toml is never an order, FR-12")
        .next("a commit that mends it, once the freeze is lifted");
    draft.transit(delivery, State::Held, Code::Freeze, RECONCILER, reason, facts)?;
    delivery.awaits = Some(hold.awaits);
    Ok(())
}

fn nothing_to_do(draft: &mut Draft<'_>, delivery: &mut Delivery, tree: &Composed) -> Result<(), DecideError> {
    if delivery.state == State::Held {
        // A person, or a cause that a person must see: it stays theirs.
        delivery.awaits = Some(Awaits {
            on: format!(
                "a person: nothing is left to deliver of it; it was held for: {}",
                delivery.reason
            ),
            rule: format!(
                "what a person must see stays until a person's word ({})",
                delivery.code
            ),
            next: "a withdraw ends it, or a newer commit takes its place".to_owned(),
            ..Awaits::default()
        });
        return Ok(());
    }
    identities::take_down(draft, delivery, tree);
    // What lags is what an earlier delivery left behind.
    delivery.left_behind.clear();
    let reason = match delivery.skipped.iter().next() {
        None => "the commit changes no order".to_owned(),
        Some(_) => {
            let list: Vec<String> = delivery
                .skipped
                .iter()
                .map(|(s, why)| format!("{s} skipped ({why})"))
                .collect();
            format!("nothing else to do: {}", list.join(", "))
        }
    };
    let reason = left_out::lines(tree)
        .into_iter()
        .fold(reason, |reason, line| format!("{reason}; {line}"));
    draft.transit(
        delivery,
        State::Delivered,
        Code::NothingToDo,
        RECONCILER,
        reason,
        identities::facts(draft),
    )
}

pub(super) fn differ(
    draft: &Draft<'_>,
    tree: &Composed,
    previous: Option<&Composed>,
    delivery: &Delivery,
) -> Result<Diff, DecideError> {
    let snapshot = draft.known.snapshot;
    let text = snapshot
        .accepted
        .get(&Scope::Policy)
        .and_then(|c| draft.known.contents.texts.get(&c.digest));
    let none = Former::new();
    let beside = Beside {
        snapshot,
        previous,
        accepted_text: text.map(|t| &**t),
        formers: draft.known.formers.get(&delivery.commit).unwrap_or(&none),
        again: delivery.again,
    };
    Ok(diff::diff(tree, &beside)?)
}

/// Why the delivery may not begin yet; none where it may.
fn hold(
    draft: &mut Draft<'_>,
    delivery: &Delivery,
    tree: &Composed,
    plan: Option<&PlanDoc>,
    diff: &Diff,
) -> Option<Hold> {
    if let Some((scope, bad)) = diff.known_bad.iter().next() {
        let reason = format!(
            "{scope} failed with just this content in {}: {}; `go --again` tries it",
            bad.commit.short(),
            bad.reason
        );
        return Some(Hold::new(Code::KnownBad, reason));
    }
    if delivery.person_hold {
        return Some(Hold::new(Code::PersonHold, of_person(delivery)));
    }
    if let Some((words, until)) = freeze::in_force(draft).map(|freeze| (freeze.words(), freeze.until)) {
        if let Some(until) = until {
            draft.due(until);
        }
        let hold = Hold::new(Code::Freeze, words).until(until);
        return Some(match until {
            Some(_) => hold.next(
                "it begins by itself then, or once that is lifted; with a go it begins in spite of that",
            ),
            None => hold,
        });
    }
    let bounds = bounds(draft, delivery, plan);
    let asked = match checks::ask(draft, delivery) {
        Asked::Passed => None,
        Asked::Holds(code, reason) => Some((code, reason)),
        // Only of what is held already: it does not open by that.
        Asked::Waits(reason) => Some((Code::MergedUnchecked, reason)),
    };
    if let Some((code, reason)) = asked {
        let rule = checks::rule(draft, tree, delivery, &bounds);
        return Some(Hold::new(code, reason).by(&rule));
    }
    let walked = former_stages::of(draft, delivery, tree);
    rewritten::hold(draft, delivery, tree, &bounds)
        .or_else(|| approvals::hold(draft, delivery, tree, &bounds))
        .or_else(|| former_checks::hold(draft, tree))
        .or_else(|| former_stages::hold(draft, &walked))
        .or_else(|| removals::hold(draft, delivery, tree, &bounds))
        .or_else(|| away::shut_window(draft, tree, walked.plan.as_ref(), &bounds))
        .or_else(|| away::hold(draft, delivery, tree, plan))
}

/// Why a person holds it, in the person's words where they are of this delivery.
fn of_person(delivery: &Delivery) -> String {
    if delivery.code == Code::PersonHold {
        delivery.reason.clone()
    } else {
        "a person said hold".to_owned()
    }
}

fn opens_by_itself(code: Code) -> bool {
    matches!(
        code,
        // Whatever froze the fleet: it does not any more.
        Code::Absent | Code::Window | Code::Freeze | Code::Approvals | Code::RetireGate | Code::Signatures
    )
}

/// Hosts that take no epoch of it are named on its walk, and in its note; the facts for that.
fn name_old_hosts(draft: &Draft<'_>, delivery: &mut Delivery, tree: &Composed) -> Vec<(String, String)> {
    let lines = old_hosts::named(draft, delivery, tree);
    if let Some(walk) = delivery.walk.as_mut() {
        walk.lines.extend(lines.iter().cloned());
    }
    lines
        .into_iter()
        .map(|line| ("Old-Host".to_owned(), line))
        .collect()
}

fn begin(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    tree: &Arc<Composed>,
    plan: Option<&PlanDoc>,
    code: Code,
) -> Result<(), DecideError> {
    let mut excused = BTreeSet::new();
    if plan.is_some_and(|p| p.absent == Absent::Skip) {
        excused.extend(away::away(draft, delivery, tree).into_keys());
    }
    let going = removals::fact(draft, delivery, tree);
    let windows = windows::of_plans(&bounds(draft, delivery, plan));
    let walked = former_stages::of(draft, delivery, tree);
    let inherited = delivery.inherited.as_ref();
    let mut walk = new_walk(tree, walked.plan.as_ref(), windows, excused, inherited);
    walk.lines.extend(walked.lines());
    walk.lines.extend(left_out::lines(tree));
    delivery.walk = Some(walk);
    classes::begin(delivery, tree);
    let old = name_old_hosts(draft, delivery, tree);
    identities::take_down(draft, delivery, tree);
    let list = orders::list(draft, delivery, tree)?;
    let by = plan.map_or_else(
        || "the built-in plan".to_owned(),
        |p| format!("the plan {}", p.name),
    );
    let mut facts = gate_facts(tree, delivery, plan);
    facts.extend(approvals::facts(draft, delivery));
    facts.extend(signed::fact(draft, delivery));
    facts.extend(rewritten::let_through(delivery));
    facts.extend(former_checks::facts(draft, tree));
    facts.extend(going);
    facts.extend(lasting::facts(draft, delivery, tree));
    facts.extend(old);
    facts.extend(identities::facts(draft));
    facts.extend(list);
    draft.transit(
        delivery,
        State::Delivering,
        code,
        RECONCILER,
        format!("the tree is checked; {by} walks it"),
        facts,
    )
}
