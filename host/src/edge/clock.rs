//! The one place of the host that reads the time.
//!
//! It stands alone because deadlines are promises: the wall clock is read once, and from then on time goes by as the
//! kernel counts it since the boot, sleep included. A clock that is set, forth or back, ends no window and keeps none
//! open; it is looked at anew only while none is open ([`Clock::set_anew`]).

use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// How far the two may part before the wall clock is taken over, in seconds.
const PARTED_SECS: i64 = 2;

/// Reads the time: the machine's clock as it was, the time that went by since, and an offset that only tests set.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    offset_secs: i64,
    wall: Timestamp,
    since_boot: SignedDuration,
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
        let offset_secs = offset.and_then(|text| text.parse().ok()).unwrap_or(0);
        Self::anchored(offset_secs, wall(), since_boot())
    }

    fn anchored(offset_secs: i64, wall: Timestamp, since_boot: SignedDuration) -> Self {
        Self {
            offset_secs,
            wall,
            since_boot,
        }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.at(since_boot())
    }

    fn at(&self, since_boot: SignedDuration) -> Timestamp {
        let went_by = since_boot
            .checked_sub(self.since_boot)
            .unwrap_or(SignedDuration::ZERO);
        self.wall
            .checked_add(went_by)
            .and_then(|now| now.checked_add(SignedDuration::from_secs(self.offset_secs)))
            .unwrap_or(self.wall)
    }

    /// Whole seconds since the boot, as the kernel counts them, the time that the machine slept included.
    #[must_use]
    pub fn since_boot_secs(&self) -> i64 {
        since_boot().as_secs()
    }

    /// Takes the wall clock over when it was set meanwhile, and says whether it was; not to be called while a window
    /// is open.
    pub fn set_anew(&mut self) -> bool {
        self.set_to(wall(), since_boot())
    }

    /// Whether the wall clock was set and is not taken over yet.
    #[must_use]
    pub fn parted(&self) -> bool {
        self.parted_from(wall(), since_boot())
    }

    fn parted_from(&self, wall: Timestamp, since_boot: SignedDuration) -> bool {
        let thought = Self::anchored(0, self.wall, self.since_boot).at(since_boot);
        thought.duration_until(wall).as_secs().abs() >= PARTED_SECS
    }

    fn set_to(&mut self, wall: Timestamp, since_boot: SignedDuration) -> bool {
        let parted = self.parted_from(wall, since_boot);
        if parted {
            let thought = self.at(since_boot);
            tracing::warn!(%thought, %wall, "the clock was set; its time is taken over");
            *self = Self::anchored(self.offset_secs, wall, since_boot);
        }
        parted
    }
}

fn wall() -> Timestamp {
    #[expect(clippy::disallowed_methods, reason = "this is the Clock")]
    let now = Timestamp::now();
    now
}

/// The time since the boot, the time that the machine slept included.
fn since_boot() -> SignedDuration {
    let time = clock_gettime(ClockId::Boottime);
    SignedDuration::new(time.tv_sec, i32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }
    fn secs(secs: i64) -> SignedDuration {
        SignedDuration::from_secs(secs)
    }

    // holds: EP-2
    #[test]
    fn a_wall_clock_that_is_set_moves_no_deadline_until_it_is_taken_over() {
        let mut clock = Clock::anchored(0, at(1000), secs(50));
        assert_eq!(clock.at(secs(60)), at(1010), "only what went by counts");
        assert!(!clock.set_to(at(1011), secs(60)));
        assert_eq!(
            clock.at(secs(60)),
            at(1010),
            "a clock that drifts is not taken over"
        );
        assert!(clock.parted_from(at(400), secs(60)));
        assert!(clock.set_to(at(400), secs(60)));
        assert!(!clock.parted_from(at(400), secs(60)));
        assert_eq!(clock.at(secs(61)), at(401));
        assert!(clock.set_to(at(99_000), secs(70)));
        assert_eq!(clock.at(secs(70)), at(99_000));
    }
}
