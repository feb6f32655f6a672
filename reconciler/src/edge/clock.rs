//! The one place of the reconciler that reads the time: the machine's, or that of a simulation.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::pure::hearing::Moment;

/// The zero of the steady clock: its first reading.
static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Reads the time: the machine's clock, plus an offset that only tests set; or a simulated one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    offset_secs: i64,
    simulated: Option<&'static Simulated>,
}

/// A clock that stands still until it is told to go on.
#[derive(Debug, Default)]
struct Simulated {
    wall_micros: AtomicI64,
    steady_micros: AtomicI64,
}

impl Clock {
    /// The machine's clock; `MESHPLAN_TEST_CLOCK_OFFSET_SECS` shifts it in builds with failpoints.
    #[must_use]
    pub fn system() -> Self {
        let offset = if cfg!(feature = "failpoints") {
            std::env::var("MESHPLAN_TEST_CLOCK_OFFSET_SECS").ok()
        } else {
            None
        };
        Self {
            offset_secs: offset.and_then(|text| text.parse().ok()).unwrap_or(0),
            simulated: None,
        }
    }

    /// A clock that stands at an instant. It is never freed: a process simulates a few worlds and ends.
    #[must_use]
    pub fn simulated(at: Timestamp) -> Self {
        let simulated: &'static Simulated = Box::leak(Box::default());
        simulated.wall_micros.store(at.as_microsecond(), Ordering::SeqCst);
        Self {
            offset_secs: 0,
            simulated: Some(simulated),
        }
    }

    /// Lets a simulated clock go on; nothing for the machine's.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        if let Some(simulated) = self.simulated {
            simulated.wall_micros.fetch_add(micros, Ordering::SeqCst);
            simulated.steady_micros.fetch_add(micros, Ordering::SeqCst);
        }
    }

    /// Sets a simulated clock forward or back, as a person or a bad battery does; nothing for the machine's.
    pub fn jump(&self, secs: i64) {
        if let Some(simulated) = self.simulated {
            simulated
                .wall_micros
                .fetch_add(secs.saturating_mul(1_000_000), Ordering::SeqCst);
        }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        if let Some(simulated) = self.simulated {
            let micros = simulated.wall_micros.load(Ordering::SeqCst);
            return Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH);
        }
        #[expect(clippy::disallowed_methods, reason = "this is the Clock")]
        let now = Timestamp::now();
        now.checked_add(jiff::SignedDuration::from_secs(self.offset_secs))
            .unwrap_or(now)
    }
    /// Now, on this clock and on the one that only goes on while the machine runs.
    #[must_use]
    pub fn moment(&self) -> Moment {
        Moment {
            wall: self.now(),
            steady: match self.simulated {
                Some(simulated) => {
                    let micros = simulated.steady_micros.load(Ordering::SeqCst);
                    Duration::from_micros(micros.unsigned_abs())
                }
                None => ZERO.elapsed(),
            },
        }
    }
}
