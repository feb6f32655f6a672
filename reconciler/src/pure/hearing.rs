//! Since when hosts are judged by what is heard of them (RO-8).
//!
//! After a start nobody is judged in the first report intervals. After passes that failed or stood still, and after a
//! sleep or a jump of the clock, it is as after a start: what hosts said meanwhile was not heard in its time.

use std::time::Duration;

use jiff::Timestamp;

/// By how much wall and steady clock may part before it counts as a jump.
const JUMP: Duration = Duration::from_secs(5);
/// A pass that takes longer has stood still: on a mirror that a slow look holds, or on a disk.
const LONG_PASS: Duration = Duration::from_secs(10);

/// An instant on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The one that people set, and that goes on while the machine sleeps.
    pub wall: Timestamp,
    /// The one that only goes on while the machine runs, from any zero.
    pub steady: Duration,
}

/// By how much each clock went on, where they parted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jump {
    /// In seconds; below zero where it was set back.
    pub wall_secs: i64,
    /// In seconds.
    pub steady_secs: i64,
}

/// What was heard without a gap, and since when.
#[derive(Debug, Clone)]
pub struct Hearing {
    since: Timestamp,
    last: Moment,
    deaf: bool,
}

impl Hearing {
    /// From the start of the service on.
    #[must_use]
    pub fn from(start: Moment) -> Self {
        Self {
            since: start.wall,
            last: start,
            deaf: false,
        }
    }

    /// Since when this reconciler hears: nobody is judged in the first report intervals after it.
    #[must_use]
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// A pass begins. The jump of the clock since the last one, if there was one.
    pub fn begin(&mut self, now: Moment) -> Option<Jump> {
        let jump = jump(self.last, now);
        if jump.is_some() || self.deaf {
            self.since = now.wall;
            self.deaf = false;
        }
        self.last = now;
        jump
    }

    /// The pass that began last is over. The jump of the clock during it, if there was one: the next pass hears anew.
    pub fn end(&mut self, now: Moment, went: Went) -> Option<Jump> {
        let jump = jump(self.last, now);
        let long = now.steady.saturating_sub(self.last.steady) > LONG_PASS;
        self.deaf |= jump.is_some() || long || went == Went::Failed;
        self.last = now;
        jump
    }
}

/// How a pass went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Went {
    /// To its end.
    Well,
    /// It is tried again.
    Failed,
}

fn jump(from: Moment, to: Moment) -> Option<Jump> {
    let wall_secs = to.wall.duration_since(from.wall).as_secs();
    let steady = to.steady.saturating_sub(from.steady).as_secs();
    let steady_secs = i64::try_from(steady).unwrap_or(i64::MAX);
    (wall_secs.abs_diff(steady_secs) > JUMP.as_secs()).then_some(Jump {
        wall_secs,
        steady_secs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_796_000_000;

    fn at(wall_secs: i64, steady_secs: u64) -> Moment {
        Moment {
            wall: Timestamp::from_second(NOON + wall_secs).unwrap(),
            steady: Duration::from_secs(steady_secs),
        }
    }

    fn heard_since(hearing: &Hearing) -> i64 {
        hearing.since().as_second() - NOON
    }

    /// A pass from one moment to another.
    fn pass(hearing: &mut Hearing, from: Moment, to: Moment, went: Went) -> (bool, bool) {
        let before = hearing.begin(from).is_some();
        (before, hearing.end(to, went).is_some())
    }

    // holds: RO-8
    #[test]
    fn while_passes_go_well_it_hears_since_its_start_however_long_it_rests() {
        let mut hearing = Hearing::from(at(0, 1000));
        for secs in [1, 20, 4000, 90_000] {
            let (wall, steady) = (i64::try_from(secs).unwrap(), 1000 + secs);
            let ended = at(wall + 10, steady + 10);
            assert_eq!(
                pass(&mut hearing, at(wall, steady), ended, Went::Well),
                (false, false)
            );
        }
        hearing.begin(at(100_000, 101_000));
        assert_eq!(heard_since(&hearing), 0);
    }

    // holds: RO-8
    #[test]
    fn after_a_gap_it_hears_since_the_pass_that_follows_and_only_once_anew() {
        // what, the pass in which it happens: begin and end, how it went; whether a jump is said
        type Row = (&'static str, (i64, u64), (i64, u64), Went, (bool, bool));
        let rows: &[Row] = &[
            ("it failed", (50, 50), (51, 51), Went::Failed, (false, false)),
            ("it stood still", (50, 50), (61, 61), Went::Well, (false, false)),
            (
                "the machine slept in it",
                (50, 50),
                (650, 51),
                Went::Well,
                (false, true),
            ),
            (
                "the clock was set back in it",
                (50, 50),
                (30, 51),
                Went::Well,
                (false, true),
            ),
        ];
        for (what, begun, ended, went, jumps) in rows {
            let mut hearing = Hearing::from(at(0, 0));
            let said = pass(&mut hearing, at(begun.0, begun.1), at(ended.0, ended.1), *went);
            assert_eq!(said, *jumps, "{what}");
            assert_eq!(
                heard_since(&hearing),
                0,
                "{what}: the pass itself judged by what it had"
            );
            let next = at(ended.0 + 5, ended.1 + 5);
            pass(&mut hearing, next, next, Went::Well);
            assert_eq!(heard_since(&hearing), ended.0 + 5, "{what}");
            let later = at(ended.0 + 9, ended.1 + 9);
            pass(&mut hearing, later, later, Went::Well);
            assert_eq!(heard_since(&hearing), ended.0 + 5, "{what}: one gap counts once");
        }
    }

    // holds: RO-8
    #[test]
    fn a_sleep_or_a_jump_between_passes_is_seen_before_the_pass_judges() {
        for (what, wall, steady) in [("a sleep", 3600, 60), ("set on", 70, 60), ("set back", 40, 60)] {
            let mut hearing = Hearing::from(at(0, 0));
            let jump = hearing.begin(at(wall, steady)).expect(what);
            assert_eq!((jump.wall_secs, jump.steady_secs), (wall, 60), "{what}");
            assert_eq!(heard_since(&hearing), wall, "{what}");
        }
        let mut hearing = Hearing::from(at(0, 0));
        assert_eq!(
            hearing.begin(at(65, 60)),
            None,
            "clocks that are set right by a little"
        );
        assert_eq!(heard_since(&hearing), 0);
    }

    // holds: RO-8
    #[test]
    fn while_passes_fail_nobody_is_judged_by_what_came_before() {
        let mut hearing = Hearing::from(at(0, 0));
        for secs in [10, 15, 20] {
            let now = at(i64::try_from(secs).unwrap(), secs);
            pass(&mut hearing, now, now, Went::Failed);
        }
        hearing.begin(at(25, 25));
        assert_eq!(heard_since(&hearing), 25);
    }
}
