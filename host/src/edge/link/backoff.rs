//! How long to wait before the next attempt: full jitter, so that a fleet that lost its reconciler at one instant does
//! not come back at one instant (LK-7).

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// Grows with each attempt that failed.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// A random time between nothing and the bound of this attempt.
    pub(crate) fn next(&mut self) -> Duration {
        let bound = FIRST
            .saturating_mul(1_u32.checked_shl(self.attempts.min(16)).unwrap_or(u32::MAX))
            .min(LONGEST);
        self.attempts += 1;
        bound.mul_f64(fraction())
    }
}

/// Between 0 and 1; 1 where the system gives no randomness, which waits longest.
fn fraction() -> f64 {
    let mut bytes = [0; 4];
    match getrandom::fill(&mut bytes) {
        Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
        Err(_) => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: LK-7
    #[test]
    fn attempts_spread_over_the_whole_bound_and_the_bound_ends_at_thirty_seconds() {
        for attempt in 0..20 {
            let bound = Duration::from_secs(2_u64.pow(attempt).min(30));
            let delays: Vec<_> = (0..200).map(|_| Backoff { attempts: attempt }.next()).collect();
            assert!(delays.iter().all(|d| *d <= bound));
            assert!(delays.iter().any(|d| *d < bound / 2), "not from nothing on");
            assert!(delays.iter().any(|d| *d > bound / 2), "not up to the bound");
        }
    }
}
