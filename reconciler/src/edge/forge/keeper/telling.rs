//! Tells of deliveries: the status on the commit, and the comment on the pull request that brought it (DL-11).

use std::collections::BTreeMap;

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;

use super::{Keeper, Memory, PROGRESS, TurnError, later};
use crate::edge::store::StoreError;
use crate::pure::decide::why::why;
use crate::pure::delivery::Delivery;
use crate::pure::forge::kept::Kept;
use crate::pure::forge::view::{self, Answered};
use crate::pure::page;

/// How many of the newest deliveries are told of.
const LISTED: u32 = 20;

/// What was told of a delivery.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    /// The delivery was another whenever this is.
    changes: Option<i64>,
    /// How many transitions it had.
    transitions: u32,
    /// How many transitions it had when the forge was asked for its pull request.
    asked_at: Option<u32>,
    /// When its comment was last made.
    at: Option<Timestamp>,
    /// Words of people that are not answered yet.
    open_words: bool,
}

impl Keeper {
    /// Queues what is new of deliveries; says when to look again although nobody wakes us.
    pub(super) async fn tell(&self, memory: &mut Memory) -> Result<Option<Timestamp>, TurnError> {
        let now = self.clock.now();
        let changes = self.store.delivery_changes(LISTED).await?;
        memory
            .told
            .retain(|commit, _| changes.iter().any(|(listed, _)| listed == commit));
        let mut kept = self.kept().await?;
        let mut next: Option<Timestamp> = None;
        let mut trouble = None;
        for (commit, changes) in changes {
            let told = memory.told.entry(commit.clone()).or_default();
            if told.changes == Some(changes) && !told.open_words {
                continue;
            }
            let Some(delivery) = self.store.delivery(&commit).await? else {
                continue;
            };
            // Of a walk's progress a comment says something every few seconds at most; a transition waits for nobody.
            let again = told.at.map(|at| later(at, PROGRESS));
            if let Some(again) =
                again.filter(|again| told.transitions == delivery.transitions && *again > now)
            {
                next = Some(next.map_or(again, |next| next.min(again)));
                continue;
            }
            let mut status = view::status(&commit, delivery.state, delivery.code, &delivery.reason);
            status.repo = delivery.component().map(str::to_owned);
            self.queue_status(&status).await?;
            let number = match self.pull_of(&delivery, told, &mut kept).await {
                Ok(number) => number,
                Err(TurnError::Forge(error)) => {
                    // Its status waits in the outbox; the comment is found due again.
                    trouble = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            *told = Told {
                changes: Some(changes),
                transitions: delivery.transitions,
                at: Some(now),
                ..told.clone()
            };
            if let Some(kept) = number.and_then(|number| kept.get(&number)) {
                told.open_words = self.tell_pull(&delivery, kept).await?;
            }
            if told.open_words || !delivery.state.is_final() {
                let soon = later(now, PROGRESS);
                next = Some(next.map_or(soon, |next| next.min(soon)));
            }
        }
        match trouble {
            Some(error) => Err(error.into()),
            None => Ok(next),
        }
    }

    /// The pull request that brought a commit: one that is known to have made it, else the one that the forge names.
    async fn pull_of(
        &self,
        delivery: &Delivery,
        told: &mut Told,
        kept: &mut BTreeMap<u64, Kept>,
    ) -> Result<Option<u64>, TurnError> {
        if let Some(known) = kept.values().find(|kept| kept.made(&delivery.commit)) {
            return Ok(Some(known.number));
        }
        // Pull requests of components are not looked at.
        if delivery.component().is_some() {
            return Ok(None);
        }
        // A forge may hear of its own merge after us: it is asked once more with each transition.
        if told.asked_at == Some(delivery.transitions) {
            return Ok(None);
        }
        let pull = self.forge.find_by_commit(&delivery.commit).await?;
        told.asked_at = Some(delivery.transitions);
        let Some(pull) = pull else { return Ok(None) };
        let number = pull.number;
        let found = Kept::of(pull, kept.get(&number).cloned());
        self.store.put_pull_request(&found).await?;
        kept.insert(number, found);
        Ok(Some(number))
    }

    /// Queues the comment; whether it has words that are not answered yet.
    async fn tell_pull(&self, delivery: &Delivery, kept: &Kept) -> Result<bool, StoreError> {
        let words = self.answered(kept).await?;
        let transitions = self.store.transitions_of(&delivery.commit).await?;
        let heard = if page::asks_nodes(delivery) {
            self.store.nodes().await?
        } else {
            std::sync::Arc::default()
        };
        let mut seen = page::delivery(delivery, &transitions, &heard);
        if !delivery.state.is_final() {
            let open = self.store.snapshot().await?.deliveries;
            seen = seen.answering(Some(why(delivery, &open, self.clock.now())));
        }
        self.queue_comment(&view::comment(kept.number, &seen, &words))
            .await?;
        Ok(words.iter().any(|word| word.answer.is_none()))
    }

    async fn answered(&self, kept: &Kept) -> Result<Vec<Answered>, StoreError> {
        let mut words = Vec::new();
        for word in &kept.words {
            let answer = match (&word.refused, &word.request) {
                (Some(refused), _) => Some(refused.clone()),
                (None, Some(request)) => self.store.answer(request).await?,
                (None, None) => None,
            };
            words.push(Answered {
                by: word.by.clone(),
                word: word.word.clone(),
                answer,
            });
        }
        Ok(words)
    }

    /// The comment of a delivery is due again: somebody has spoken.
    pub(super) fn is_due(memory: &mut Memory, commit: &CommitId) {
        if let Some(told) = memory.told.get_mut(commit) {
            told.changes = None;
            told.at = None;
        }
    }
}
