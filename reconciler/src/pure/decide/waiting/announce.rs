//! Commits that are new become deliveries (DL-1).

use std::collections::BTreeMap;

use meshplan_schemas::ident::DeliveryName;
use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::{rewritten, signed};
use crate::pure::decide::DecideError;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::{Delivery, Transition};

/// Makes a delivery of each new commit, in first-parent order.
pub(in crate::pure::decide) fn announce(draft: &mut Draft<'_>) -> Result<(), DecideError> {
    let mut before = draft.deliveries.values().max_by_key(|d| d.order).cloned();
    for new in draft.known.news {
        if draft.deliveries.contains_key(&new.commit) {
            continue;
        }
        draft.counters.order += 1;
        let reason = format!(
            "the commit is on {}, made from the forge's word",
            draft.known.settings.branch
        );
        let delivery = Delivery {
            commit: new.commit.clone(),
            repo: draft.known.settings.repo.clone(),
            name: DeliveryName::new(&draft.known.settings.repo, &new.commit),
            order: draft.counters.order,
            previous: before.as_ref().map(|d| d.commit.clone()),
            subject: new.subject.clone(),
            author: new.author.clone(),
            state: State::Proposed,
            code: Code::Announced,
            since: draft.now(),
            reason: reason.clone(),
            transitions: 1,
            legs: Vec::new(),
            skipped: BTreeMap::new(),
            left_out: BTreeMap::new(),
            plan: None,
            walk: None,
            binds: None,
            again: false,
            allows_removals: new.allows_removals.clone(),
            base: before.as_ref().and_then(signed::base_after),
            rewritten: new.rewritten || rewritten::unanswered(before.as_ref()),
            person_hold: false,
            inherited: None,
            left_behind: BTreeMap::new().into(),
            overrides: None,
        };
        let mut facts = vec![
            ("Delivery".to_owned(), delivery.name.to_string()),
            ("Subject".to_owned(), new.subject.clone()),
        ];
        facts.extend(rewritten::announced(&delivery));
        draft.record(Transition {
            commit: new.commit.clone(),
            seq: 0,
            at: draft.now(),
            from: None,
            to: State::Proposed,
            code: Code::Announced,
            actor: "forge".to_owned(),
            reason,
            facts,
        });
        before = Some(delivery.clone());
        draft.put(delivery);
    }
    Ok(())
}
