//! What is fetched before anything is touched, and what goes only once a change is confirmed (HR-14, HK-8).

use std::collections::BTreeSet;

use meshplan_schemas::ident::ResourceName;

use super::survey::Survey;
use super::{LedgerState, Machine};
use crate::edge::ledger::{self, json};
use crate::kinds;
use crate::kinds::container::stands_as;
use crate::pure::apply_plan::Step;
use crate::pure::container_spec::former_of;
use crate::pure::record::Ledger;
use crate::pure::target::{Sort, Target};

impl Machine {
    /// Has everything here that the writes of a plan are made from; the first that cannot be had, and why.
    pub(super) fn fetch(&self, survey: &Survey, next: &mut Ledger) -> Result<(), (ResourceName, String)> {
        for step in &survey.plan.steps {
            if let Step::Write(write) = step
                && let Some(wanted) = survey.wanted.get(&write.record.name)
            {
                let fetched = wanted.fetch(self.reach());
                next.fetched
                    .extend(fetched.map_err(|why| (write.record.name.clone(), why))?);
            }
        }
        Ok(())
    }

    /// Takes away what waited for a confirm that is there; what cannot be taken away is tried again.
    ///
    /// Only with no window open: while one is, its way back needs them.
    pub(super) fn clear_leavings(&mut self) {
        let LedgerState::Known(book) = &self.ledger else {
            return;
        };
        let mut next: Ledger = (**book).clone();
        let waiting = self.waiting(book);
        for target in waiting {
            match kinds::clear(&target, &next.fetched, self.reach()) {
                Ok(image) => {
                    next.leavings.remove(&target);
                    if let Some(image) = image {
                        next.fetched.remove(&image);
                    }
                }
                Err(why) => {
                    tracing::warn!(%target, %why, "what a confirmed change left stays for now");
                    // An engine that does not answer is not asked about each of them.
                    if matches!(target, Target::Thing(Sort::Container, _)) {
                        break;
                    }
                }
            }
        }
        if next == **book {
            return;
        }
        match self.with_reserve(|state| ledger::write(state, &json(&next))) {
            Ok(()) => self.ledger = LedgerState::Known(Box::new(next)),
            Err(error) => tracing::warn!(%error, "that nothing is left of a confirmed change cannot be kept"),
        }
    }

    /// What is to go: what the ledger says, and what a cut may have left of containers that stand as they are on record, for
    /// a repair has no window. Containers before the networks that they are in.
    fn waiting(&self, book: &Ledger) -> Vec<Target> {
        let mut waiting: BTreeSet<Target> = book.leavings.clone();
        // What is declared again does not go.
        waiting
            .retain(|target| !(book.records.values()).any(|record| record.target.as_ref() == Some(target)));
        for record in book.records.values() {
            let Some(Target::Thing(Sort::Container, name)) = &record.target else {
                continue;
            };
            match stands_as(name, record.content, self.reach().system.engine()) {
                Ok(true) => {
                    waiting.insert(Target::Thing(Sort::Container, former_of(name)));
                }
                Ok(false) => {}
                // Nor is one that does not answer asked about each of these.
                Err(_) => break,
            }
        }
        let is_network = |target: &Target| matches!(target, Target::Thing(Sort::Network, _));
        let (networks, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(is_network);
        others.into_iter().chain(networks).collect()
    }
}
