//! Commits that are new become deliveries (DL-1).

use std::collections::BTreeSet;

use meshplan_schemas::lifecycle::delivery::{Code, State};

use super::{checks, rewritten, signed};
use crate::pure::decide::DecideError;
use crate::pure::decide::draft::Draft;
use crate::pure::delivery::{Delivery, Transition};
use crate::pure::parts::{self, Branch, Parts};
use crate::pure::recover::HELD;
use crate::pure::unpassed::Unpassed;

/// Makes a delivery of each new commit, in first-parent order. `held`: the branches of which a person held a commit that is gone;
/// the word goes on to what was pushed in its place.
pub(in crate::pure::decide) fn announce(
    draft: &mut Draft<'_>,
    held: &BTreeSet<Option<Branch>>,
) -> Result<(), DecideError> {
    let mut before = draft.deliveries.values().max_by_key(|d| d.order).cloned();
    let trees = parts::of_news(before.as_ref(), draft.known.left, draft.known.news);
    for new in draft.known.news {
        let Some(parts) = trees.get(&new.commit) else {
            continue;
        };
        if draft.deliveries.contains_key(&new.commit) {
            continue;
        }
        draft.counters.order += 1;
        let settings = draft.known.settings;
        let (repo, branch) = match &new.component {
            None => (&settings.repo, &settings.branch),
            Some(component) => (&component.repo, &component.branch),
        };
        let (mut unpassed, mut person_hold) = (Vec::new(), held.contains(&new.component));
        let never_walked =
            |d: &&Delivery| matches!(d.state, State::Withdrawn | State::Failed) && !d.has_begun();
        if let Some(ended) = before.as_ref().filter(never_walked) {
            // Its content is in this commit all the same: what it was asked is asked of this one (DL-15).
            Unpassed::gather(&mut unpassed, checks::unpassed(draft, ended, false), repo);
            person_hold |= ended.state == State::Failed && ended.person_hold;
        }
        let reason = match new.heard {
            Some(true) => format!("the commit is on {branch}, its head was heard of before the merge"),
            Some(false) => format!("the commit is on {branch}, made from the forge's word"),
            None => format!(
                "the commit is on {branch}, made from the forge's word: which pull request it merges is not known yet"
            ),
        };
        let (order, now) = (draft.counters.order, draft.now());
        let delivery = Delivery {
            previous: before.as_ref().map(|d| d.commit.clone()),
            made_of: (*parts != Parts::alone(new.commit.clone())).then(|| parts.clone()),
            subject: new.subject.clone(),
            author: new.author.clone(),
            reason: reason.clone(),
            transitions: 1,
            // What goes from machines is the fleet repo's to say (FR-12).
            allows_removals: new.allows_removals.clone().filter(|_| new.component.is_none()),
            unpassed,
            person_hold,
            base: before.as_ref().and_then(signed::base_after),
            rewritten: new.rewritten || rewritten::unanswered(before.as_ref()),
            ..Delivery::announced(repo, new.commit.clone(), order, now)
        };
        let mut facts = vec![
            ("Delivery".to_owned(), delivery.name.to_string()),
            ("Subject".to_owned(), new.subject.clone()),
        ];
        facts.extend(parts.facts());
        facts.extend(delivery.unpassed.iter().flat_map(Unpassed::facts));
        facts.extend(rewritten::announced(&delivery));
        facts.extend(person_hold.then(|| (HELD.to_owned(), "a person said hold before it".to_owned())));
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
