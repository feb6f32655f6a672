//! A pause on this machine (HR-17): a person says that nothing new is begun here, for how long and why.
//!
//! It stands alone because it is a bound that no clock may move. Under the boot in which it began the kernel's own time is
//! counted, and nothing else: a clock that is set, forth or back, neither ends nor stretches it. After a restart of the
//! machine it ends at its instant of the wall clock, or when its length has gone by since that boot, whichever is first. A
//! pause that is over stays over: its id is remembered.

use std::fmt;

use jiff::SignedDuration;
use meshplan_schemas::report::Paused;
use serde::{Deserialize, Serialize};

/// The version of the file.
pub const PAUSE_VERSION: u32 = 1;
/// The longest pause, in seconds.
pub const LONGEST_SECS: i64 = 86_400;
/// The longest reason, in characters.
const WHY_CHARS: usize = 400;

/// A pause as it stands on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// [`PAUSE_VERSION`].
    pub version: u32,
    /// Random; another pause is another id.
    pub id: String,
    /// Since when, unix seconds.
    pub from: i64,
    /// Until when, unix seconds.
    pub until: i64,
    /// Why, in one line.
    pub why: String,
    /// The boot under which it began.
    pub boot_id: String,
    /// How long that boot was up then, in seconds, sleep included.
    pub from_boot_secs: i64,
}

/// An instant, by the wall clock and by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment<'a> {
    /// Unix seconds.
    pub now: i64,
    /// The kernel's boot id.
    pub boot_id: &'a str,
    /// Seconds since the boot, sleep included.
    pub since_boot_secs: i64,
}

/// What is seen of a pause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Seen {
    /// There is none.
    #[default]
    None,
    /// There is one, and its time is over.
    Over,
    /// It holds.
    Holds {
        /// Its id.
        id: String,
        /// What a report says of it.
        paused: Paused,
    },
}

/// The pause that was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Its id.
    pub id: String,
    /// It is over, and does not begin again.
    pub over: bool,
}

/// Why a pause is not begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// No length of time.
    NoLength(String),
    /// Too long.
    TooLong,
    /// No reason given, or one of several lines, or too long.
    Why(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLength(text) => write!(
                f,
                "`{text}` is no length of a pause: say it as `--for 2h`, `--for 45m` or `--for 1h30m`, a minute at least"
            ),
            Self::TooLong => f.write_str(
                "a pause is 24 hours at most: a machine that takes no orders grows apart from its fleet, and nobody sees it; \
                 pause again tomorrow, or take the module or the machine out of the fleet's repository",
            ),
            Self::Why(what) => write!(
                f,
                "the reason {what}: everybody who waits for this machine reads it, so say it in one line with `--why`"
            ),
        }
    }
}

impl std::error::Error for Refusal {}

/// The shortest pause, in seconds.
const SHORTEST_SECS: i64 = 60;

/// A length of time as people write it.
///
/// # Errors
/// It is none, shorter than a minute, or longer than a day.
pub fn length(text: &str) -> Result<i64, Refusal> {
    let none = || Refusal::NoLength(text.to_owned());
    // The one unit that people try and that is not an exact time for everybody.
    let days = text
        .trim()
        .strip_suffix('d')
        .and_then(|days| days.trim().parse::<i64>().ok());
    let secs = match days {
        Some(days) => days.saturating_mul(LONGEST_SECS),
        None => text
            .trim()
            .parse::<SignedDuration>()
            .map_err(|_| none())?
            .as_secs(),
    };
    match secs {
        ..SHORTEST_SECS => Err(none()),
        SHORTEST_SECS..=LONGEST_SECS => Ok(secs),
        _ => Err(Refusal::TooLong),
    }
}

impl Pause {
    /// A pause from now on.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn begin(id: String, secs: i64, why: &str, at: Moment<'_>) -> Result<Self, Refusal> {
        if secs > LONGEST_SECS {
            return Err(Refusal::TooLong);
        }
        let why = why.trim();
        if why.is_empty() {
            return Err(Refusal::Why("is missing"));
        }
        if why.chars().any(char::is_control) {
            return Err(Refusal::Why("has several lines, or characters that are none"));
        }
        if why.chars().count() > WHY_CHARS {
            return Err(Refusal::Why("is longer than 400 characters"));
        }
        Ok(Self {
            version: PAUSE_VERSION,
            id,
            from: at.now,
            until: at.now.saturating_add(secs),
            why: why.to_owned(),
            boot_id: at.boot_id.to_owned(),
            from_boot_secs: at.since_boot_secs,
        })
    }

    /// How many seconds of it are left; none once it is over.
    #[must_use]
    pub fn left_secs(&self, at: Moment<'_>) -> Option<i64> {
        let length = self.until.saturating_sub(self.from).min(LONGEST_SECS);
        let left = if self.boot_id == at.boot_id {
            let went_by = at.since_boot_secs.saturating_sub(self.from_boot_secs);
            length.saturating_sub(went_by.max(0))
        } else {
            // At least so much went by: it began before this boot.
            let by_kernel = length.saturating_sub(at.since_boot_secs);
            self.until.saturating_sub(at.now).min(by_kernel)
        };
        Some(left).filter(|left| *left > 0)
    }

    /// How it stands.
    #[must_use]
    pub fn seen(&self, at: Moment<'_>) -> Seen {
        match self.left_secs(at) {
            None => Seen::Over,
            Some(left) => Seen::Holds {
                id: self.id.clone(),
                paused: Paused {
                    until: at.now.saturating_add(left),
                    why: self.why.clone(),
                },
            },
        }
    }
}

/// What is shown to whoever logs in.
#[must_use]
pub fn motd(paused: &Paused) -> String {
    let until = jiff::Timestamp::from_second(paused.until)
        .map_or_else(|_| paused.until.to_string(), |at| at.to_string());
    format!(
        "meshplan is paused on this machine until {until} at the latest: {}\n\
         Nothing that the fleet orders is begun before that; `meshplan-host resume` ends it.\n",
        paused.why
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(now: i64, boot_id: &str, since_boot_secs: i64) -> Moment<'_> {
        Moment {
            now,
            boot_id,
            since_boot_secs,
        }
    }

    fn pause() -> Pause {
        Pause::begin("p".into(), 7200, "the disk is changed", at(10_000, "a", 500)).unwrap()
    }

    // holds: HR-17
    #[test]
    fn a_length_is_what_people_write_and_a_day_at_most() {
        for (text, secs) in [
            ("2h", 7200),
            ("45m", 2700),
            ("1h30m", 5400),
            ("24h", 86_400),
            ("1d", 86_400),
            ("90 min", 5400),
        ] {
            assert_eq!(length(text), Ok(secs), "{text}");
        }
        for text in ["25h", "2d", "24h 1s", "1441m"] {
            assert_eq!(length(text), Err(Refusal::TooLong), "{text}");
        }
        for text in ["", "2", "h", "-2h", "0s", "59s", "for ever", "0d"] {
            assert_eq!(length(text), Err(Refusal::NoLength(text.into())), "{text}");
        }
    }

    // holds: HR-17
    #[test]
    fn a_pause_without_a_reason_that_others_can_read_is_refused() {
        for why in ["", "  ", "two\nlines", "\u{1b}[31m", &"x".repeat(401)] {
            let refused = Pause::begin("p".into(), 60, why, at(0, "a", 0)).unwrap_err();
            assert!(refused.to_string().contains("--why"), "{refused}");
        }
        let refused = Pause::begin("p".into(), LONGEST_SECS + 1, "why", at(0, "a", 0)).unwrap_err();
        assert!(
            refused.to_string().starts_with("a pause is 24 hours at most"),
            "{refused}"
        );
    }

    // holds: HR-17
    #[test]
    fn it_ends_by_the_kernels_count_and_under_another_boot_by_the_wall_clock_as_well() {
        let pause = pause();
        assert_eq!(pause.left_secs(at(10_000, "a", 500)), Some(7200));
        assert_eq!(pause.left_secs(at(17_199, "a", 7699)), Some(1));
        assert_eq!(pause.left_secs(at(17_200, "a", 7700)), None);
        // The clock was set back by a day: what went by counts all the same.
        assert_eq!(pause.left_secs(at(10_000 - 86_400, "a", 4100)), Some(3600));
        assert_eq!(pause.left_secs(at(10_000 - 86_400, "a", 7700)), None);
        // Set forth, as by a machine that learns the time after its start, it holds on.
        assert_eq!(pause.left_secs(at(10_000 + 86_400, "a", 501)), Some(7199));
        assert_eq!(pause.left_secs(at(10_000 + 86_400, "a", 7700)), None);
        // The machine was started again: by the clock, and never longer than its length from the boot on.
        assert_eq!(pause.left_secs(at(12_000, "b", 20)), Some(5200));
        assert_eq!(pause.left_secs(at(0, "b", 20)), Some(7180));
        assert_eq!(pause.left_secs(at(0, "b", 7200)), None);
        let Seen::Holds { paused, .. } = pause.seen(at(0, "b", 20)) else {
            panic!("over")
        };
        assert_eq!(
            paused.until, 7180,
            "told is when it ends, not what stands in the file"
        );
    }

    // holds: HR-17
    #[test]
    fn a_file_that_claims_more_than_a_day_has_a_day() {
        let mut long = pause();
        long.until = i64::MAX;
        assert_eq!(long.left_secs(at(10_000, "a", 500)), Some(LONGEST_SECS));
        assert_eq!(long.left_secs(at(10_000, "a", 500 + LONGEST_SECS)), None);
    }

    proptest! {
        // holds: HR-17
        #[test]
        fn under_one_boot_no_clock_makes_it_longer_or_shorter_than_it_was_asked_for(
            secs in 60..=LONGEST_SECS, went_by in 0..200_000_i64, wall in any::<i64>(),
        ) {
            let pause = Pause::begin("p".into(), secs, "why", at(10_000, "a", 500)).unwrap();
            let left = pause.left_secs(at(wall, "a", 500 + went_by));
            prop_assert_eq!(left, Some(secs - went_by).filter(|left| *left > 0));
        }

        // holds: HR-17
        #[test]
        fn under_another_boot_nothing_makes_it_longer_than_it_was_asked_for(
            secs in 60..=LONGEST_SECS, since_boot in 0..200_000_i64, wall in any::<i64>(),
        ) {
            let pause = Pause::begin("p".into(), secs, "why", at(10_000, "a", 500)).unwrap();
            let left = pause.left_secs(at(wall, "b", since_boot));
            prop_assert!(left.is_none_or(|left| since_boot + left <= secs));
            prop_assert!(left.is_none_or(|left| wall.saturating_add(left) <= 10_000 + secs));
        }
    }
}
