//! Trouble: what a stage says to machines that failed or fell silent, and what is remembered of it (DL-7, DL-14).

use std::collections::BTreeSet;

use meshplan_schemas::ident::NodeId;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::{RECONCILER, apart, roll_back, story};
use crate::pure::decide::DecideError;
use crate::pure::decide::classes::Trouble;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::{AbortCause, Delivery, Leg, OnTrouble, VerdictWord};
use crate::pure::forge::revert::Revert;
use crate::pure::guard::{Guard, stands};
use crate::pure::scope::Scope;
use crate::pure::snapshot::KnownBad;

/// Answers the trouble of a stage as its plan says.
pub(super) fn answer(
    draft: &mut Draft<'_>,
    delivery: &mut Delivery,
    trouble: &Trouble,
) -> Result<(), DecideError> {
    let Trouble {
        node,
        machine,
        word,
        act,
        stage,
    } = trouble;
    let seen = machine
        .verdict
        .as_ref()
        .map_or_else(String::new, |v| v.reason.clone());
    let (code, said) = match word {
        VerdictWord::Failed => (Code::StageFailed, "failed"),
        _ => (Code::Silent, "silent"),
    };
    let reason = format!("{} {said} in the stage {stage}: {seen}", machine.name);
    let culprits = match (word, act) {
        (VerdictWord::Failed, OnTrouble::RollBack) => apart::culprits(draft, delivery, *node),
        _ => None,
    };
    let mut facts = Vec::new();
    if *word == VerdictWord::Failed {
        facts = remember(draft, delivery, *node, culprits.as_ref(), &reason);
    }
    if let Some(walk) = delivery.walk.as_mut() {
        walk.abort_cause = Some(AbortCause {
            node_id_short: node.short().to_string(),
            name: machine.name.to_string(),
            reason: format!("{said}: {seen}"),
            phase: stage.clone(),
        });
    }
    if *act == OnTrouble::Hold {
        facts.extend(story(delivery));
        return draft.transit(delivery, State::Held, code, RECONCILER, reason, facts);
    }
    match culprits {
        Some(scopes) => apart::take_back(draft, delivery, &scopes, (code, reason, facts)),
        None => {
            // A component is no repository to which anything is pushed.
            let reverts = delivery.component().is_none();
            if reverts && delivery.walk.as_ref().is_some_and(|walk| walk.reverts) {
                let revert = Revert::of(delivery, &reason);
                facts.push(("Revert".to_owned(), revert.branch()));
                draft.act.reverts.push(revert);
            }
            roll_back(draft, delivery, code, RECONCILER, reason, facts)
        }
    }
}

/// Remembers what failed, by the digest of each scope that brought something new to the machine that failed
/// (DL-14), or of these alone; the facts for the note.
fn remember(
    draft: &mut Draft<'_>,
    delivery: &Delivery,
    node: NodeId,
    only: Option<&BTreeSet<Scope>>,
    reason: &str,
) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    let to_blame =
        |leg: &&Leg| leg.nodes.contains_key(&node) && only.is_none_or(|only| only.contains(&leg.scope));
    for leg in delivery
        .legs
        .iter()
        .filter(to_blame)
        .filter(|_| stands(Guard::Remembered))
    {
        let new = match leg.scope {
            Scope::Module(_) => true,
            Scope::Policy => leg.before != Some(leg.digest),
            Scope::List | Scope::Gate => false,
        };
        if new {
            facts.push(("Known-Bad".to_owned(), format!("{} {}", leg.scope, leg.digest)));
            let key = (leg.scope.clone(), leg.digest);
            let before = draft.known.snapshot.known_bad.get(&key);
            let mut on = before.map(|bad| bad.on.clone()).unwrap_or_default();
            on.insert(node);
            let bad = KnownBad {
                commit: delivery.commit.clone(),
                since: draft.now(),
                reason: reason.to_owned(),
                on,
            };
            draft.act.known_bad.insert(key, Some(bad));
        }
    }
    facts
}
