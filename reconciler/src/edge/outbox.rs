//! The outbox (FG-4): carries out what was decided outside, again and again until it is done.
//!
//! The runner has no opinion about what an act is: each kind has its carrier, which takes all due rows of the kind
//! at once and must change nothing when it is repeated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::activation::Waker;
use super::clock::Clock;
use super::store::queue::OutboxRow;
use super::store::{Store, StoreError};

/// The first wait after a failure; it doubles with each.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// The most rows in hand at once.
const BATCH: u32 = 1_000;
/// How soon a store that did not answer is asked again.
const STORE_WAIT: Duration = Duration::from_secs(5);

/// What a carrier did with the rows that it was given.
#[derive(Debug, Clone, Default)]
pub struct Carried {
    /// Ids of the rows that are done.
    pub done: Vec<String>,
    /// Rows that were not tried, because it is too soon for them; and until when that is so.
    pub early: BTreeMap<String, Timestamp>,
    /// Why the others are not; they are tried again.
    pub trouble: Option<Trouble>,
}

/// Why an act did not work.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// In a sentence.
    pub why: String,
    /// Not before so long, as the other side asked; none: as the backoff says.
    pub retry_after: Option<Duration>,
}

/// Carries out all given rows, which are of one kind, in order.
pub type Carrier = Arc<dyn Fn(Vec<OutboxRow>) -> BoxFuture<'static, Carried> + Send + Sync>;

/// The runner.
pub struct Outbox {
    store: Store,
    waker: Waker,
    clock: Clock,
    gather: Duration,
    carriers: BTreeMap<String, Carrier>,
    /// Kinds that rest between two carries, and when each was carried last.
    rests: BTreeMap<String, (Duration, Mutex<Option<Timestamp>>)>,
}

impl Outbox {
    /// A runner that is woken by `waker` and then waits `gather` for more, so that what comes within it is one batch.
    #[must_use]
    pub fn new(store: Store, waker: Waker, clock: Clock, gather: Duration) -> Self {
        Self {
            store,
            waker,
            clock,
            gather,
            carriers: BTreeMap::new(),
            rests: BTreeMap::new(),
        }
    }

    /// A kind is carried out no sooner than so long after the last time; what comes meanwhile is one batch.
    #[must_use]
    pub fn resting(mut self, kind: &str, rest: Duration) -> Self {
        if !rest.is_zero() {
            self.rests.insert(kind.to_owned(), (rest, Mutex::default()));
        }
        self
    }

    /// Names who carries a kind out.
    #[must_use]
    pub fn carrier(mut self, kind: &str, carrier: Carrier) -> Self {
        self.carriers.insert(kind.to_owned(), carrier);
        self
    }

    /// Runs until `stop`. A store that does not answer is asked again.
    pub async fn run(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let next = match self.run_due().await {
                Ok(next) => next,
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the outbox stands still"
                    );
                    self.clock.now().checked_add(STORE_WAIT).ok()
                }
            };
            tokio::select! {
                () = self.pause(next) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    async fn pause(&self, next: Option<Timestamp>) {
        self.waker.wait(next, self.clock).await;
        tokio::time::sleep(self.gather).await;
    }

    /// Carries out what is due once; says when the next is.
    ///
    /// # Errors
    /// [`StoreError`]; what was carried out meanwhile is carried out again.
    pub async fn run_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let mut kinds: BTreeMap<String, Vec<OutboxRow>> = BTreeMap::new();
        for row in self.store.outbox_due(self.clock.now(), BATCH).await? {
            kinds.entry(row.kind.clone()).or_default().push(row);
        }
        for (kind, rows) in kinds {
            match self.rests_until(&kind) {
                Some(until) => self.store.outbox_rests(&rows, until).await?,
                None => self.carry(&kind, rows).await?,
            }
        }
        self.store.outbox_next_due().await
    }

    /// Until when a kind rests; none where it may be carried out, which it counts as then.
    fn rests_until(&self, kind: &str) -> Option<Timestamp> {
        let (rest, last) = self.rests.get(kind)?;
        let (now, mut last) = (
            self.clock.now(),
            last.lock().unwrap_or_else(PoisonError::into_inner),
        );
        let until = last.and_then(|last| last.checked_add(*rest).ok());
        let until = until.filter(|until| *until > now);
        if until.is_none() {
            *last = Some(now);
        }
        until
    }

    async fn carry(&self, kind: &str, rows: Vec<OutboxRow>) -> Result<(), StoreError> {
        let carried = match self.carriers.get(kind) {
            Some(carrier) => carrier(rows.clone()).await,
            None => Carried {
                trouble: Some(Trouble {
                    why: format!("this build does not know how to carry out `{kind}`"),
                    retry_after: Some(LONGEST_WAIT),
                }),
                ..Carried::default()
            },
        };
        fail::fail_point!("outbox-carried");
        let (done, open): (Vec<_>, Vec<_>) = rows.into_iter().partition(|r| carried.done.contains(&r.id));
        if !done.is_empty() {
            self.store.outbox_done(&done).await?;
        }
        let (early, open): (Vec<_>, Vec<_>) =
            open.into_iter().partition(|r| carried.early.contains_key(&r.id));
        for row in early {
            if let Some(until) = carried.early.get(&row.id) {
                self.store.outbox_rests(&[row], *until).await?;
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        let trouble = carried.trouble.unwrap_or_else(|| Trouble {
            why: "it was left undone without a reason".to_owned(),
            retry_after: None,
        });
        tracing::warn!(kind, rows = open.len(), why = trouble.why, "not carried out yet");
        let now = self.clock.now();
        // one wait for all, so that they stay one batch
        let attempts = open.iter().map(|r| r.attempts).min().unwrap_or(0);
        let wait = backoff(attempts, random()).max(trouble.retry_after.unwrap_or_default());
        let due = now.checked_add(wait).unwrap_or(now);
        let open: Vec<_> = open.into_iter().map(|row| (row, due)).collect();
        self.store.outbox_failed(&open, &trouble.why).await
    }
}

/// How long to wait after so many failures: between half of and the whole of `FIRST_WAIT` doubled with each, at most
/// `LONGEST_WAIT`. `random` says where between.
fn backoff(attempts: u64, random: u32) -> Duration {
    let doublings = u32::try_from(attempts).unwrap_or(u32::MAX).min(16);
    let whole = FIRST_WAIT.saturating_mul(1 << doublings).min(LONGEST_WAIT);
    let share = f64::from(random) / f64::from(u32::MAX);
    whole.mul_f64(0.5 + share / 2.0)
}

fn random() -> u32 {
    // without randomness the wait is the longest of its range: still a bound
    getrandom::u32().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
