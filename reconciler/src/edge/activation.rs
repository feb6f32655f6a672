//! What wakes the pass: one flag for all. A webhook, a report, a person, a timer raise it and say nothing; what there
//! is to do stands in the store and in the repository.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::clock::Clock;

/// The flag. Raised any number of times before somebody waits, it wakes once. All clones are one.
#[derive(Debug, Clone, Default)]
pub struct Waker {
    raised: Arc<Notify>,
}

impl Waker {
    /// Raises the flag.
    pub fn wake(&self) {
        self.raised.notify_one();
    }

    /// Waits until the flag is raised or `next_at` has come, and lowers it.
    pub async fn wait(&self, next_at: Option<Timestamp>, clock: Clock) {
        let Some(next_at) = next_at else {
            return self.raised.notified().await;
        };
        let left = next_at.duration_since(clock.now());
        let left = Duration::try_from(left).unwrap_or(Duration::ZERO);
        tokio::select! {
            () = self.raised.notified() => {}
            () = tokio::time::sleep(left) => {}
        }
    }
}

/// Runs passes one after the other, never two at once: the first right away (the start-up scan), then whenever the
/// flag is raised, the time that the last pass named has come, or `poll` has gone by. Ends after `stop`, between two
/// passes.
pub async fn drive<F, P>(waker: &Waker, poll: Duration, clock: Clock, stop: &CancellationToken, mut pass: F)
where
    F: FnMut() -> P,
    P: Future<Output = Option<Timestamp>>,
{
    while !stop.is_cancelled() {
        let next_at = pass().await;
        let poll_at = clock.now().checked_add(poll).ok();
        let next_at = match (next_at, poll_at) {
            (Some(next), Some(poll)) => Some(next.min(poll)),
            (next, poll) => next.or(poll),
        };
        tokio::select! {
            () = waker.wait(next_at, clock) => {}
            () = stop.cancelled() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    // holds: LK-7
    #[tokio::test]
    async fn a_hundred_wakes_before_a_pass_are_one() {
        let waker = Waker::default();
        for _ in 0..100 {
            waker.wake();
        }
        waker.wait(None, Clock::default()).await;
        let again = tokio::time::timeout(Duration::from_millis(50), waker.wait(None, Clock::default())).await;
        assert!(again.is_err(), "the flag was still up");
    }

    #[tokio::test]
    async fn a_time_that_has_passed_does_not_wait() {
        let waker = Waker::default();
        let clock = Clock::default();
        let past = clock.now().checked_sub(Duration::from_secs(5)).unwrap();
        tokio::time::timeout(Duration::from_secs(5), waker.wait(Some(past), clock))
            .await
            .expect("waited for the past");
    }

    // holds: FG-2
    #[tokio::test]
    async fn a_pass_runs_at_start_at_each_poll_and_never_beside_another() {
        let (runs, running) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let stop = CancellationToken::new();
        let waker = Waker::default();
        let pass = async || {
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two passes at once");
            waker.wake(); // raised while a pass runs: one more pass
            tokio::task::yield_now().await;
            running.fetch_sub(1, Ordering::SeqCst);
            if runs.fetch_add(1, Ordering::SeqCst) == 4 {
                stop.cancel();
            }
            None
        };
        let poll = Duration::from_secs(3600);
        let all = drive(&waker, poll, Clock::default(), &stop, pass);
        tokio::time::timeout(Duration::from_secs(5), all)
            .await
            .expect("the flag raised during a pass was lost");
        assert_eq!(runs.load(Ordering::SeqCst), 5);
    }

    // holds: FG-2
    #[tokio::test]
    async fn without_any_wake_the_poll_runs_a_pass() {
        let runs = AtomicUsize::new(0);
        let stop = CancellationToken::new();
        let pass = async || {
            if runs.fetch_add(1, Ordering::SeqCst) == 2 {
                stop.cancel();
            }
            None
        };
        let waker = Waker::default();
        let all = drive(&waker, Duration::from_millis(5), Clock::default(), &stop, pass);
        tokio::time::timeout(Duration::from_secs(5), all)
            .await
            .expect("the poll never came");
    }
}
