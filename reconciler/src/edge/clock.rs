//! The one place of the reconciler that reads the time.

use std::sync::LazyLock;
use std::time::Instant;

use jiff::Timestamp;

use crate::pure::hearing::Moment;

/// The zero of the steady clock: its first reading.
static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Reads the time: the machine's clock, plus an offset that only tests set.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    offset_secs: i64,
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
        }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
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
            steady: ZERO.elapsed(),
        }
    }
}
