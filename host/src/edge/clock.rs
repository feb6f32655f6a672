//! The one place of the host that reads the time.

use jiff::Timestamp;

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
}
