//! When a link counts as down (FR-7): the probes of a window, and how many of them may be lost.
//!
//! It stands alone because a link that is called down undoes a change that waits for its confirm; what counts is decided
//! here, without a socket. A probe is answered by anything that is heard within its time, for whoever speaks is there.

use std::collections::VecDeque;
use std::time::Duration;

/// What a link may lose before it is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tolerance {
    /// Between probes (`probe_secs`, and `keepalive_secs` where that is shorter).
    pub every: Duration,
    /// A probe that is not answered within this is lost (`timeout_ms`).
    pub timeout: Duration,
    /// The share of a window that may be lost, in a hundred (`loss_threshold`).
    pub lost_percent: u32,
    /// How many probes are looked at (`window`).
    pub window: u32,
}

impl Default for Tolerance {
    /// Three in a row: a link that says nothing for about a minute is down.
    fn default() -> Self {
        Self {
            every: Duration::from_secs(20),
            timeout: Duration::from_secs(15),
            lost_percent: 67,
            window: 3,
        }
    }
}

/// Watches one session. Times are since it began.
#[derive(Debug)]
pub struct Monitor {
    tolerance: Tolerance,
    /// The probes of the window, oldest first: when they were sent, and whether they were answered.
    probes: VecDeque<(Duration, bool)>,
}

impl Monitor {
    /// Nothing was sent yet.
    #[must_use]
    pub fn new(tolerance: Tolerance) -> Self {
        Self {
            tolerance,
            probes: VecDeque::new(),
        }
    }

    /// What is tolerated from now on.
    pub fn tolerate(&mut self, tolerance: Tolerance) {
        self.tolerance = tolerance;
    }

    /// A probe goes out.
    pub fn sent(&mut self, now: Duration) {
        while self.probes.len() >= usize::try_from(self.tolerance.window.max(1)).unwrap_or(usize::MAX) {
            self.probes.pop_front();
        }
        self.probes.push_back((now, false));
    }

    /// Something was heard.
    pub fn heard(&mut self, now: Duration) {
        for (sent, answered) in &mut self.probes {
            *answered |= now.saturating_sub(*sent) <= self.tolerance.timeout;
        }
    }

    /// Why the link is down; none while it is not.
    #[must_use]
    pub fn down(&self, now: Duration) -> Option<String> {
        let lost = self
            .probes
            .iter()
            .filter(|(sent, answered)| !answered && now.saturating_sub(*sent) > self.tolerance.timeout);
        let (lost, window) = (lost.count() as u64, u64::from(self.tolerance.window.max(1)));
        (lost * 100 > u64::from(self.tolerance.lost_percent) * window)
            .then(|| format!("{lost} of the last {window} probes of the link were lost"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// Sends a probe each `every`, with an answer after `answers`; when the link was called down.
    fn down_at(tolerance: Tolerance, answers: impl Fn(u64) -> Option<Duration>) -> Option<u64> {
        let mut monitor = Monitor::new(tolerance);
        for n in 0..100 {
            let now = tolerance.every * u32::try_from(n).unwrap();
            if monitor.down(now).is_some() {
                return Some(n);
            }
            monitor.sent(now);
            if let Some(after) = answers(n) {
                monitor.heard(now + after);
            }
        }
        None
    }

    // holds: FR-7
    #[test]
    fn three_probes_in_a_row_without_a_word_are_a_link_that_is_down() {
        assert_eq!(down_at(Tolerance::default(), |_| None), Some(3));
        assert_eq!(
            down_at(Tolerance::default(), |n| (n % 3 == 0).then_some(secs(1))),
            None
        );
        assert_eq!(
            down_at(Tolerance::default(), |n| (n < 10).then_some(secs(5))),
            Some(13)
        );
    }

    // holds: FR-7
    #[test]
    fn an_answer_after_its_time_is_none() {
        let short = Tolerance {
            timeout: Duration::from_millis(200),
            ..Tolerance::default()
        };
        assert_eq!(down_at(short, |_| Some(Duration::from_millis(200))), None);
        assert_eq!(down_at(short, |_| Some(Duration::from_millis(201))), Some(3));
    }

    // holds: FR-7
    #[test]
    fn the_share_that_may_be_lost_is_of_the_window_and_a_hundred_is_all() {
        let half = Tolerance {
            lost_percent: 50,
            window: 10,
            ..Tolerance::default()
        };
        assert_eq!(
            down_at(half, |n| n.is_multiple_of(2).then_some(secs(1))),
            None,
            "five of ten"
        );
        assert_eq!(
            down_at(half, |n| (n % 5 < 2).then_some(secs(1))),
            Some(10),
            "six of ten"
        );
        let all = Tolerance {
            lost_percent: 100,
            ..Tolerance::default()
        };
        assert_eq!(down_at(all, |_| None), None);
    }

    #[test]
    fn what_is_tolerated_changes_in_mid_session() {
        let mut monitor = Monitor::new(Tolerance::default());
        monitor.sent(secs(0));
        assert_eq!(monitor.down(secs(20)), None);
        let strict = Tolerance {
            lost_percent: 1,
            window: 1,
            ..Tolerance::default()
        };
        monitor.tolerate(strict);
        assert!(monitor.down(secs(20)).is_some());
    }
}
