//! Asks the forge for what deliveries wait for: reviews of just their change, and checks (DL-2, DL-15).

use std::collections::BTreeMap;
use std::sync::PoisonError;

use jiff::Timestamp;
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::State;

use super::{Keeper, Memory, PROGRESS, Part, TurnError, later};
use crate::edge::forge::ForgeError;
use crate::edge::mirror::MirrorError;
use crate::edge::store::StoreError;
use crate::pure::delivery::Delivery;
use crate::pure::forge::approving;
use crate::pure::forge::gates::{self, Wait};
use crate::pure::forge::kept::Kept;
use crate::pure::snapshot::Review;

/// How many of the newest deliveries may wait: the newest one takes the place of the others.
const WAITING: u32 = 5;

impl Keeper {
    /// Asks for each delivery that waits; says when to ask again.
    pub(super) async fn ask_gates(&self, memory: &mut Memory) -> Result<Option<Timestamp>, TurnError> {
        let mut waiting = Vec::new();
        for (commit, _) in self.store.delivery_changes(WAITING).await? {
            if let Some(delivery) = self.store.delivery(&commit).await?
                && let Some(wait) = gates::wait(&delivery)
            {
                waiting.push((delivery, wait));
            }
        }
        if waiting.is_empty() {
            return Ok(None);
        }
        let kept = self.kept().await?;
        let mut trouble = None;
        for (delivery, wait) in waiting {
            // What one does not get told hinders no other, unless nobody answers at all.
            match self.ask_gate(memory, (&delivery, wait), &kept).await {
                Err(TurnError::Forge(error)) if !error.is_later() => trouble = Some(error),
                asked => asked?,
            }
        }
        match trouble {
            Some(error) => Err(error.into()),
            None => Ok(Some(later(self.clock.now(), PROGRESS))),
        }
    }

    async fn ask_gate(
        &self,
        memory: &mut Memory,
        (delivery, wait): (&Delivery, Wait),
        kept: &BTreeMap<u64, Kept>,
    ) -> Result<(), TurnError> {
        let own = kept.values().find(|kept| kept.made(&delivery.commit));
        match (wait, own) {
            (Wait::Checks, own) => {
                if !delivery.checks.is_empty() {
                    self.ask_checks(delivery, own).await?;
                }
                // Those whose place it took answer with it (DL-15).
                let commits = delivery.unpassed.iter().map(|older| &older.commit);
                let said = self.store.checks(commits).await?;
                for older in gates::to_ask(delivery, &said) {
                    if let Some(older) = self.store.delivery(&older.commit).await? {
                        let own = kept.values().find(|kept| kept.made(&older.commit));
                        self.ask_checks(&older, own).await?;
                    }
                }
            }
            (Wait::Reviews, Some(own)) => {
                let asked = self.ask_reviews(delivery, own).await;
                memory.pass_over(own.number, Part::Reviews, asked)?;
            }
            (Wait::Reviews, None) => {}
        }
        Ok(())
    }

    /// The statuses of the commit whose checks count.
    async fn ask_checks(&self, delivery: &Delivery, kept: Option<&Kept>) -> Result<(), TurnError> {
        let Some(of) = gates::checked_commit(delivery, kept, self.clock.now()) else {
            return Ok(());
        };
        let repo = delivery.component();
        let named = self.forge.checks(repo, of, &delivery.checks).await?;
        if self.store.put_checks(&delivery.commit, &named).await? {
            self.pass.wake();
        }
        Ok(())
    }

    /// The reviews that approve of just what the delivery changes, by people who may write as the forge says now.
    async fn ask_reviews(&self, delivery: &Delivery, kept: &Kept) -> Result<(), TurnError> {
        let Some(binds) = delivery.binds else {
            return Ok(());
        };
        let reviews = self.forge.reviews(kept.number).await?;
        let approving = approving(&reviews, &kept.head, &kept.author);
        let mut counted = Vec::new();
        if !approving.is_empty() && self.is_just(delivery, kept).await? {
            for (user, at) in approving {
                // Where the forge does not tell, it is not yes.
                match self.forge.may_write(&user).await {
                    Ok(true) => {}
                    Ok(false) | Err(ForgeError::Refused { .. }) => continue,
                    Err(error) => return Err(error.into()),
                }
                counted.push(Review {
                    by: user.login,
                    at,
                    binds,
                });
            }
        }
        self.store.set_reviews(&delivery.commit, &counted).await?;
        if !counted.is_empty() {
            self.pass.wake();
        }
        Ok(())
    }

    /// Whether what is delivered is what was reviewed: since the commit that was accepted last, nothing else came.
    async fn is_just(&self, delivery: &Delivery, kept: &Kept) -> Result<bool, TurnError> {
        let Some(since) = self.accepted_before(delivery).await? else {
            return Ok(false);
        };
        let (mut fork_point, mut base) = (kept.fork_point.clone(), kept.base.clone());
        if fork_point.is_none() && base.is_none() {
            // A list did not tell.
            let whole = self.forge.pull_request(kept.number).await?;
            let same = whole.filter(|pull| pull.head == kept.head);
            (fork_point, base) = same.map_or((None, None), |pull| (pull.fork_point, pull.base));
        }
        let heads = vec![(kept.number, self.forge.head_ref(kept.number))];
        let (commit, head) = (delivery.commit.clone(), kept.head.clone());
        let just = self
            .blocking(move |mirror, _| {
                let mut mirror = mirror.lock().unwrap_or_else(PoisonError::into_inner);
                mirror.fetch_pulls(&heads).map(|_| {
                    let fork_point = match (fork_point, base) {
                        (None, Some(base)) => mirror.fork_point(&base, &head)?,
                        (told, _) => told,
                    };
                    let Some(fork_point) = fork_point else {
                        return Ok(false);
                    };
                    mirror.brings_just((&since, &commit), (&fork_point, &head))
                })
            })
            .await??;
        match just {
            Ok(just) => Ok(just),
            Err(MirrorError::NoCommit { .. }) => Ok(false),
            Err(error) => Err(TurnError::Preview(error.to_string())),
        }
    }

    /// The fleet's commit in the newest delivery before it that ended well; none where components brought something since.
    async fn accepted_before(&self, delivery: &Delivery) -> Result<Option<CommitId>, StoreError> {
        let mut previous = delivery.previous.clone();
        while let Some(commit) = previous {
            let Some(before) = self.store.delivery(&commit).await? else {
                return Ok(None);
            };
            if before.state == State::Delivered {
                // What a component brings since then nobody has seen in a pull request.
                let (was, is) = (before.parts(), delivery.parts());
                return Ok((was.components == is.components).then_some(was.fleet));
            }
            previous = before.previous;
        }
        Ok(None)
    }
}
