//! Keeps pull requests: hears of them, previews them, reads people's words, tells of deliveries.
//!
//! It runs beside the passes and never in their way. A webhook is a hint here as everywhere: each turn looks at the forge,
//! at its own store and at the deliveries, and queues what is due; a turn that is lost costs nothing but time. What pull
//! requests bring is kept in a repository of its own, so that nothing of a stranger comes where orders are read from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use meshplan_schemas::ident::CommitId;
use tokio_util::sync::CancellationToken;

use super::{Forge, ForgeError};
use crate::edge::activation::Waker;
use crate::edge::clock::Clock;
use crate::edge::health::Health;
use crate::edge::mirror::{FetchError, Mirror};
use crate::edge::repository::LookNow;
use crate::edge::store::{Store, StoreError};
use crate::pure::compose::Expected;
use crate::pure::forge::Pull;
use crate::pure::forge::kept::Kept;
use crate::pure::parts::Branch;
use crate::pure::trigger::Event;
use previews::Base;
use telling::Told;

mod gates;
mod previews;
mod telling;
mod words;

/// Turns come no faster than this, so that no comment is edited faster (DL-11).
const PACE: Duration = Duration::from_secs(2);
/// How soon progress of a walk, which wakes nobody, is looked at again.
const PROGRESS: SignedDuration = SignedDuration::from_secs(10);
/// The longest wait after turns that failed.
const LONGEST_WAIT: SignedDuration = SignedDuration::from_secs(300);
/// The place of troubles.
const PLACE: &str = "forge";
/// The place of what single pull requests do not tell.
const PASSED_OVER: &str = "forge-pull-requests";

/// What the keeper works with.
#[derive(Debug)]
pub struct Keeper {
    /// The forge.
    pub forge: Arc<Forge>,
    /// The store.
    pub store: Store,
    /// Where pull requests are fetched to.
    pub mirror: Arc<Mutex<Mirror>>,
    /// What a tree is held to; it opens no secret.
    pub expected: Expected,
    /// Components, where the configuration names any.
    pub components: Option<Components>,
    /// The repository, as deliveries are called after it.
    pub repo: String,
    /// The branch whose merges are orders.
    pub branch: String,
    /// Where trouble is said.
    pub health: Arc<Health>,
    /// The time.
    pub clock: Clock,
    /// Wakes the keeper.
    pub waker: Waker,
    /// That every pull request is to be looked at.
    pub look_now: LookNow,
    /// Wakes the outbox.
    pub outbox: Waker,
    /// Wakes the pass.
    pub pass: Waker,
    /// How often every pull request is looked at although no webhook comes.
    pub poll: SignedDuration,
}

/// Components whose commits are delivered with the fleet's: previews are of trees that have their files (DL-1, DL-8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Components {
    /// The folder of objects of the mirror that has them.
    pub objects: PathBuf,
    /// Those that the configuration names.
    pub allowed: BTreeSet<Branch>,
}

/// What is remembered between turns, and found again without it.
#[derive(Default)]
struct Memory {
    listed_at: Option<Timestamp>,
    /// At which listing comments were read.
    words_at: Option<Timestamp>,
    base: Option<Base>,
    /// The newest tree that was let through.
    passed: Option<Base>,
    told: BTreeMap<CommitId, Told>,
    /// Of which pull requests something cannot be read, and why.
    passed_over: BTreeMap<(u64, Part), ForgeError>,
    failures: u32,
}

/// What is read of one pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Itself,
    Comments,
    Reviews,
}

impl Memory {
    /// What one pull request does not tell hinders no other: it is remembered, to be said, and passed over. A forge that
    /// does not answer at all, and whatever is no word of the forge, ends the turn.
    fn pass_over<T>(
        &mut self,
        number: u64,
        part: Part,
        got: Result<T, TurnError>,
    ) -> Result<Option<T>, TurnError> {
        match got {
            Ok(got) => {
                self.passed_over.remove(&(number, part));
                Ok(Some(got))
            }
            Err(TurnError::Forge(error)) if !error.is_later() => {
                tracing::warn!(number, ?part, %error, "a pull request is passed over");
                self.passed_over.insert((number, part), error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The pull requests that were passed over for this.
    fn passed_over_as(&self, part: Part) -> BTreeSet<u64> {
        let of = self.passed_over.keys().filter(|(_, of)| *of == part);
        of.map(|(number, _)| *number).collect()
    }

    /// Before all are looked at anew: what is gone has nothing more to say, and reviews are asked for as long as they are
    /// wanted.
    fn forget_passed_over(&mut self) {
        self.passed_over.retain(|(_, part), error| {
            *part != Part::Reviews && !matches!(error, ForgeError::Missing { .. })
        });
    }
}

/// Why a turn did not come to its end; the next one tries again.
#[derive(Debug, thiserror::Error)]
enum TurnError {
    #[error(transparent)]
    Forge(#[from] ForgeError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("a pull request cannot be previewed: {0}")]
    Preview(String),
}

/// The pull requests that somebody spoke of since the last turn.
#[derive(Default)]
struct Hints {
    rows: Vec<String>,
    changed: BTreeSet<u64>,
    spoken: BTreeSet<u64>,
}

impl Keeper {
    /// Runs until `stop`.
    pub async fn run(self, stop: &CancellationToken) {
        let mut memory = Memory::default();
        while !stop.is_cancelled() {
            let next = self.turn(&mut memory).await;
            let paced = async {
                tokio::time::sleep(PACE).await;
                self.waker.wait(Some(next), self.clock).await;
            };
            tokio::select! { () = paced => {}, () = stop.cancelled() => {} }
        }
    }

    /// One turn; says when the next is due although nobody wakes it.
    async fn turn(&self, memory: &mut Memory) -> Timestamp {
        let (next, result) = self.try_turn(memory).await;
        let now = self.clock.now();
        match result {
            Ok(()) => {
                memory.failures = 0;
                self.health.clear(PLACE);
                next
            }
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "pull requests are not kept for now"
                );
                self.health.set(
                    PLACE,
                    format!("pull requests are not kept for now, deliveries go on: {error}"),
                );
                let doubled = SignedDuration::from_secs(5 << memory.failures.min(6));
                memory.failures = memory.failures.saturating_add(1);
                let asked = match &error {
                    TurnError::Forge(error) => error.retry_after(),
                    _ => None,
                };
                let asked = asked.and_then(|wait| SignedDuration::try_from(wait).ok());
                let wait = doubled.min(LONGEST_WAIT).max(asked.unwrap_or_default());
                now.checked_add(wait).unwrap_or(now)
            }
        }
    }

    /// Every step is made whatever became of the one before: a forge that does not answer keeps nothing from being queued.
    async fn try_turn(&self, memory: &mut Memory) -> (Timestamp, Result<(), TurnError>) {
        let now = self.clock.now();
        let heard = self.hear(memory).await;
        let hints = heard
            .as_ref()
            .map(|hints| hints.spoken.clone())
            .unwrap_or_default();
        let previewed = self.preview(memory).await;
        let obeyed = self.take_words(memory, &hints).await;
        let told = self.tell(memory).await;
        let asked = self.ask_gates(memory).await;
        self.say_passed_over(memory);
        let poll_at = memory.listed_at.map_or(now, |at| later(at, self.poll));
        let next = [told.as_ref(), asked.as_ref()]
            .into_iter()
            .flatten()
            .flatten()
            .min();
        let next = next.map_or(poll_at, |at| poll_at.min(*at));
        let result = async {
            let hints = heard?;
            previewed?;
            obeyed?;
            told?;
            asked?;
            // Only now: a turn that failed hears of them again.
            Ok(self.store.inbox_handled(&hints.rows).await?)
        };
        (next, result.await)
    }

    /// Looks at all pull requests when that is due, else at those of which somebody spoke.
    async fn hear(&self, memory: &mut Memory) -> Result<Hints, TurnError> {
        let now = self.clock.now();
        let mut hints = Hints::default();
        let me = &self.forge.me().await?.login;
        for row in self.store.inbox_open().await? {
            let Event::PullRequest {
                number,
                spoken,
                sender,
                ..
            } = row.event
            else {
                continue;
            };
            hints.rows.push(row.id);
            match spoken {
                // Our own comments come back, and say nothing.
                true if sender == *me => {}
                true => drop(hints.spoken.insert(number)),
                false => drop(hints.changed.insert(number)),
            }
        }
        let kept = self.kept().await?;
        let due = memory.listed_at.is_none_or(|at| later(at, self.poll) <= now);
        if self.look_now.take() || due {
            // Found again with the next turn, should this one fail.
            memory.listed_at = None;
            memory.forget_passed_over();
            hints.changed.extend(memory.passed_over_as(Part::Itself));
            let open = self.forge.open_pulls().await?;
            let open: BTreeMap<u64, _> = open.into_iter().map(|pull| (pull.number, pull)).collect();
            let gone = kept
                .values()
                .filter(|kept| kept.open && !open.contains_key(&kept.number));
            hints.changed.extend(gone.map(|kept| kept.number));
            hints.changed.retain(|number| !open.contains_key(number));
            for (number, pull) in open {
                memory.passed_over.remove(&(number, Part::Itself));
                self.keep(pull, kept.get(&number)).await?;
            }
            memory.listed_at = Some(now);
        }
        for number in &hints.changed {
            let former = kept.get(number);
            let got = self.forge.pull_request(*number).await.map_err(TurnError::from);
            let Some(got) = memory.pass_over(*number, Part::Itself, got)? else {
                continue;
            };
            match got {
                Some(pull) => self.keep(pull, former).await?,
                None => {
                    if let Some(former) = former {
                        let mut gone = former.clone();
                        gone.open = false;
                        self.store.put_pull_request(&gone).await?;
                    }
                }
            }
        }
        Ok(hints)
    }

    /// Says which pull requests were passed over, and why.
    fn say_passed_over(&self, memory: &Memory) {
        let Some(((number, _), why)) = memory.passed_over.first_key_value() else {
            return self.health.clear(PASSED_OVER);
        };
        let others = match memory.passed_over.len() - 1 {
            0 => String::new(),
            others => format!(", and so are {others} more"),
        };
        self.health.set(
            PASSED_OVER,
            format!(
                "pull request {number} is passed over until it can be read{others}, the others go on: {why}"
            ),
        );
    }

    /// Remembers a pull request into our branch; any other is none of ours.
    async fn keep(&self, pull: Pull, former: Option<&Kept>) -> Result<(), StoreError> {
        if pull.into != self.branch && former.is_none() {
            return Ok(());
        }
        let kept = Kept::of(pull, former.cloned());
        if former != Some(&kept) {
            self.store.put_pull_request(&kept).await?;
        }
        Ok(())
    }

    async fn kept(&self) -> Result<BTreeMap<u64, Kept>, StoreError> {
        let kept = self.store.pull_requests().await?;
        Ok(kept.into_iter().map(|kept| (kept.number, kept)).collect())
    }
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(at)
}
