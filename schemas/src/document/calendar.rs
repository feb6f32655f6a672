//! When a timer runs, as systemd.time(7) writes it: `[days] [date] [time] [zone]`, or one of its words.
//!
//! What is not written this way would make a timer that never runs, and would be found out on the machine only.

use std::ops::RangeInclusive;
use std::str::FromStr;

use super::scalar::{Zone, checked_text};

/// systemd's words for what happens often.
const WORDS: [&str; 9] = [
    "minutely",
    "hourly",
    "daily",
    "weekly",
    "monthly",
    "quarterly",
    "semiannually",
    "yearly",
    "annually",
];
const DAYS: [(&str, &str); 7] = [
    ("mon", "monday"),
    ("tue", "tuesday"),
    ("wed", "wednesday"),
    ("thu", "thursday"),
    ("fri", "friday"),
    ("sat", "saturday"),
    ("sun", "sunday"),
];

checked_text!(
/// When a timer runs.
Calendar,
"expected a time as systemd writes it: `daily`, `02:30`, `Mon..Fri *-*-* 02:30 Europe/Brussels`",
"^[A-Za-z0-9*].*$",
|t| good(t));

fn good(text: &str) -> bool {
    let mut words: Vec<&str> = text.split(' ').collect();
    if words.iter().any(|word| word.is_empty()) || text.len() > 255 {
        return false;
    }
    // Whatever looks like no time at all may be a zone, at the end only.
    if words.len() > 1 && words.last().is_some_and(|last| last.parse::<Zone>().is_ok()) {
        words.pop();
    }
    if let [word] = words.as_slice()
        && WORDS.contains(word)
    {
        return true;
    }
    let days = usize::from(words.first().is_some_and(|word| word.split(',').all(days)));
    match words.get(days..) {
        Some([]) => days == 1,
        Some([one]) => date(one) || time(one),
        Some([first, second]) => date(first) && time(second),
        _ => false,
    }
}

fn day(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    DAYS.iter()
        .position(|(short, long)| *short == text || *long == text)
}
fn days(text: &str) -> bool {
    match text.split_once("..") {
        Some((from, to)) => matches!((day(from), day(to)), (Some(from), Some(to)) if from < to),
        None => day(text).is_some(),
    }
}

fn date(text: &str) -> bool {
    // `~` counts from the end of the month.
    let Some((before, day)) = text.rsplit_once('~').or_else(|| text.rsplit_once('-')) else {
        return false;
    };
    let (year, month) = before
        .split_once('-')
        .map_or((None, before), |(y, m)| (Some(y), m));
    year.is_none_or(|year| field(year, &(1970..=2199))) && field(month, &(1..=12)) && field(day, &(1..=31))
}

fn time(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        [hour, minute] => field(hour, &(0..=23)) && field(minute, &(0..=59)),
        [hour, minute, second] => {
            field(hour, &(0..=23)) && field(minute, &(0..=59)) && field(second, &(0..=59))
        }
        _ => false,
    }
}

/// `*`, numbers, ranges `a..b` and steps `/n`, several with commas.
fn field(text: &str, range: &RangeInclusive<u32>) -> bool {
    text.split(',').all(|part| {
        let (start, step) = part.split_once('/').map_or((part, None), |(s, n)| (s, Some(n)));
        let step =
            step.is_none_or(|step| number(step).is_some_and(|step| (1..=*range.end()).contains(&step)));
        let within = |text| number(text).filter(|number| range.contains(number));
        let start = match start.split_once("..") {
            Some((from, to)) => matches!((within(from), within(to)), (Some(from), Some(to)) if from <= to),
            None => start == "*" || within(start).is_some(),
        };
        start && step
    })
}
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    u32::from_str(text).ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calendar_is_what_systemd_takes() {
        for good in [
            "daily",
            "02:30",
            "*:0/15",
            "Mon..Fri 02:30",
            "mon,thu *-*-* 02:30:00",
            "*-*-01 04:00",
            "2027-1..3-* 1:2:3",
            "*-*~3 00:00",
            "Sun",
            "02:30 Europe/Brussels",
            "daily UTC",
            "*-02-30",
            "Sat,Sun *-*-1..7 12,18:00",
        ] {
            assert!(good.parse::<Calendar>().is_ok(), "{good} was refused");
        }
        for bad in [
            "",
            "dayly",
            "24:00",
            "02:60",
            "2:30 Europe/Brusels",
            "Mon..Fri..Sat",
            "Fri..Mon",
            "13-01 02:00x",
            "*-13-01",
            "*-*-32",
            "02:30 02:30",
            " 02:30",
            "02:30  UTC",
            "*/0:00",
            "0/0:00",
            "-1:00",
            "every day",
            "UTC",
        ] {
            assert!(bad.parse::<Calendar>().is_err(), "{bad:?} was taken");
        }
    }
}
