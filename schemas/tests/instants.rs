//! Instants and times of day: what is written means one instant, whatever zone and season the machine is in (FR-13).
//!
//! That no clock is asked is held elsewhere: nothing in this crate may reach one (the arrows of the house).
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says why by failing")]

use std::process::Command;

use meshplan_schemas::document::read::{self, Read};
use meshplan_schemas::document::{ModuleFile, PolicyFile, RotationsFile};
use meshplan_schemas::finding::{Finding, Source};

fn read<T: Read>(text: &str) -> (Option<T>, Vec<Finding>) {
    let mut findings = Vec::new();
    let source = Source::new("a.toml", text.as_bytes().into()).unwrap();
    let read = read::document(&source, &mut findings);
    (read, findings)
}

/// What a rotation's `publish_at` says in unix seconds, or why it says nothing.
fn instant(written: &str) -> Result<i64, String> {
    let text = format!(
        "[[rotations]]\nid = \"mesh\"\nkind = \"mesh_secret\"\npublish_at = {written}\nactivate_at = 4102444800\n"
    );
    match read::<RotationsFile>(&text) {
        (Some(file), findings) if findings.is_empty() => Ok(file.rotations[0].value.publish_at.value.0),
        (_, findings) => {
            let [only] = findings.as_slice() else {
                panic!("{written}: {findings:?}")
            };
            assert_eq!(
                (only.line, only.level),
                (4, meshplan_schemas::finding::Level::Error)
            );
            Err(only.message.clone())
        }
    }
}

/// January and July, on both sides of the hours that a change of clocks takes away and gives twice.
const INSTANTS: [(&str, i64); 12] = [
    ("1768471200", 1_768_471_200),
    ("2026-01-15T10:00:00Z", 1_768_471_200),
    ("2026-01-15T12:00:00+02:00", 1_768_471_200),
    ("2026-01-15 05:00:00-05:00", 1_768_471_200),
    ("2026-07-15T10:00:00Z", 1_784_109_600),
    ("2026-07-15T12:00:00+02:00", 1_784_109_600),
    ("2026-07-15T10:00:00.999+00:00", 1_784_109_600),
    ("2026-03-29T02:30:00+01:00", 1_774_747_800),
    ("2026-03-29T02:30:00+02:00", 1_774_744_200),
    ("2026-10-25T02:30:00+02:00", 1_792_888_200),
    ("2026-10-25T02:30:00+01:00", 1_792_891_800),
    ("1970-01-01T00:00:00Z", 0),
];

const AS_A_CHILD: &str = "MESHPLAN_TEST_PRINTS_INSTANTS";

// holds: FR-13, B19
#[test]
fn an_instant_with_an_offset_is_the_same_in_every_zone_in_january_and_in_july() {
    for (written, seconds) in INSTANTS {
        assert_eq!(instant(written), Ok(seconds), "{written}");
    }
    if std::env::var_os(AS_A_CHILD).is_some() {
        println!("all of them, in {}", std::env::var("TZ").unwrap_or_default());
        return;
    }
    let name = "an_instant_with_an_offset_is_the_same_in_every_zone_in_january_and_in_july";
    for zone in [
        "UTC",
        "America/New_York",
        "Australia/Lord_Howe",
        "Europe/Brussels",
    ] {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .envs([("TZ", zone), (AS_A_CHILD, "1")])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{zone}: {said}");
        assert!(
            said.contains(&format!("all of them, in {zone}")),
            "{zone}: {said}"
        );
    }
}

// holds: FR-13, B19
#[test]
fn what_is_no_instant_for_everybody_is_refused() {
    for (written, part) in [
        ("2026-01-15T10:00:00", "has no offset from UTC"),
        ("2026-07-15 10:00:00", "has no offset from UTC"),
        ("2026-01-15", "has no offset from UTC"),
        ("10:00:00", "has no offset from UTC"),
        ("\"2026-01-15T10:00:00Z\"", "must be an instant"),
        ("1768471200.5", "must be an instant"),
        ("true", "must be an instant"),
        // A time of day with an offset is no TOML.
        ("10:00:00Z", ""),
        ("10:00:00+02:00", ""),
        ("2026-01-15T10:00Z", ""),
        ("2026-02-30T10:00:00Z", ""),
        ("2026-01-15T24:00:00Z", ""),
        ("2026-01-15T10:00:00+25:00", ""),
        ("-1", "outside the years"),
        ("1969-12-31T23:59:59Z", "outside the years"),
        ("1970-01-01T00:00:00+02:00", "outside the years"),
        ("9223372036854775807", "outside the years"),
        ("99999999999999999999", "larger than any number"),
    ] {
        let said = instant(written).expect_err(written);
        assert!(said.contains(part), "{written}: {said}");
    }
}

// holds: FR-13, B19
#[test]
fn a_time_of_day_is_hours_and_minutes_in_the_zone_beside_it() {
    let window = |from: &str, zone: &str| {
        let text =
            format!("[[scheduler.windows]]\ndays = [\"mon\"]\nfrom = {from}\nto = \"06:00\"\n{zone}\n");
        read::<PolicyFile>(&text)
    };
    let (good, findings) = window("\"02:30\"", "zone = \"Europe/Brussels\"");
    assert_eq!(findings, []);
    let windows = good.unwrap().scheduler.unwrap().windows.unwrap();
    // Kept as they are written: which instants they are is for whoever knows the day.
    assert_eq!(
        (windows[0].value.from.0.as_str(), windows[0].value.zone.0.as_str()),
        ("02:30", "Europe/Brussels")
    );
    for (from, zone) in [
        ("\"02:30\"", ""),
        ("\"02:30Z\"", "zone = \"UTC\""),
        ("\"02:30+02:00\"", "zone = \"UTC\""),
        ("\"2:30\"", "zone = \"UTC\""),
        ("\"02:30:00\"", "zone = \"UTC\""),
        ("02:30:00", "zone = \"UTC\""),
        ("2026-01-15T02:30:00Z", "zone = \"UTC\""),
        ("230", "zone = \"UTC\""),
        ("\"02:30\"", "zone = \"CEST\""),
        ("\"02:30\"", "zone = \"+02:00\""),
    ] {
        let (_, findings) = window(from, zone);
        assert_eq!(findings.len(), 1, "{from} {zone}: {findings:?}");
    }
}

// holds: FR-13, B19
#[test]
fn a_calendar_of_a_job_keeps_its_zone_and_takes_no_offset() {
    let job = |calendar: &str| {
        let text = format!(
            "[[process]]\nid = \"job\"\ncommand = [\"/bin/true\"]\nrun = \"scheduled\"\ncalendar = {calendar}\n"
        );
        read::<ModuleFile>(&text).1
    };
    assert_eq!(job("\"02:30 Europe/Brussels\""), []);
    assert_eq!(job("\"*-*-* 02:30:00 UTC\""), []);
    for calendar in [
        "\"02:30+02:00\"",
        "\"02:30Z\"",
        "\"02:30 CEST\"",
        "\"02:30 +02:00\"",
        "02:30:00",
    ] {
        assert_eq!(job(calendar).len(), 1, "{calendar}");
    }
}
