use meshplan_schemas::envelope::Envelope;
use meshplan_schemas::report::Cause;

use super::super::disk::SimDisk;
use super::*;
use crate::pure::sample;

fn made(counter: u64) -> Report {
    let agent = sample::agent();
    let facts = sample::facts(counter);
    crate::pure::report::compose(&agent, Cause::Change, facts, 1000)
}
fn open(disk: &SimDisk) -> Reporter {
    Reporter::open(Arc::new(disk.clone()), 5000).unwrap().0
}
fn spool(reporter: &mut Reporter) -> u64 {
    let counter = reporter.counter().unwrap();
    reporter.spool(&made(counter), &sample::signer(9), 1000).unwrap();
    counter
}
fn counters(said: &[FromHost]) -> Vec<u64> {
    said.iter()
        .map(|word| match word {
            FromHost::Report { counter, envelope } => {
                let envelope = Envelope::read(envelope.as_bytes()).unwrap();
                assert!(envelope.signed_by(&sample::author(9).key));
                *counter
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

// holds: HR-11
#[test]
fn reports_outlive_a_restart_and_a_lost_acknowledgement_with_their_counters() {
    let disk = SimDisk::new();
    let mut reporter = open(&disk);
    let (first, second) = (spool(&mut reporter), spool(&mut reporter));
    assert!(first < second);
    assert_eq!(counters(&reporter.on(Event::Up, 0, "")), [first]);
    // The acknowledgement is lost, the host is started again.
    let mut reporter = open(&disk);
    assert_eq!(counters(&reporter.on(Event::Up, 0, "")), [first]);
    assert_eq!(counters(&reporter.on(Event::Ack(first), 0, "")), [second]);
    assert_eq!(reporter.on(Event::Ack(second), 0, ""), []);
    let mut reporter = open(&disk);
    assert!(reporter.is_empty());
    assert!(spool(&mut reporter) > second);
}

// holds: HR-11
#[test]
fn a_counter_is_never_used_twice_though_the_power_goes_at_any_act() {
    let disk = SimDisk::new();
    let mut reporter = open(&disk);
    let before = reporter.counter().unwrap();
    disk.begin();
    let mut used = before;
    while used < before + BLOCK + 2 {
        used = reporter.counter().unwrap();
        for cut in disk.cuts_after(disk.acts()) {
            let mut again = open(&cut);
            assert!(again.counter().unwrap() > used);
        }
    }
}

// holds: HR-11, HR-15
#[test]
fn a_lost_counter_goes_on_above_every_one_that_was_used() {
    let disk = SimDisk::new();
    let used = spool(&mut open(&disk));
    for file in ["/counter.a", "/counter.b"] {
        disk.plant(&path(file), b"", 0o600);
    }
    let (mut reporter, broken) = Reporter::open(Arc::new(disk.clone()), 5000).unwrap();
    assert_eq!(
        broken,
        ["the counter of reports was lost; it goes on from the time"]
    );
    assert!(reporter.counter().unwrap() > used.max(4999));
}

// holds: HR-11
#[test]
fn a_rejected_report_is_set_aside_where_a_person_sees_it_and_the_next_is_said() {
    let disk = SimDisk::new();
    let mut reporter = open(&disk);
    let (first, second) = (spool(&mut reporter), spool(&mut reporter));
    reporter.on(Event::Up, 0, "");
    assert_eq!(
        counters(&reporter.on(Event::Reject(first), 7, "no such field")),
        [second]
    );
    let seen = waiting(&disk).unwrap();
    assert_eq!(seen.queued, [second]);
    assert_eq!(seen.set_aside, [(first, "no such field".to_owned())]);
    assert_eq!(counters(&open(&disk).on(Event::Up, 0, "")), [second]);
}

// holds: HR-15
#[test]
fn a_damaged_report_is_told_and_blocks_nobody() {
    let disk = SimDisk::new();
    let mut reporter = open(&disk);
    let (first, second) = (spool(&mut reporter), spool(&mut reporter));
    let file = report(SPOOL, first);
    let whole = disk.read(&file).unwrap();
    disk.plant(&file, &whole[..whole.len() / 2], 0o600);
    let (mut reporter, broken) = Reporter::open(Arc::new(disk.clone()), 5000).unwrap();
    assert_eq!(broken.len(), 1);
    assert_eq!(counters(&reporter.on(Event::Up, 0, "")), [second]);
    // One that is damaged while the host runs.
    let third = spool(&mut reporter);
    disk.plant(&report(SPOOL, second), b"x", 0o600);
    reporter.on(Event::Down, 0, "");
    assert_eq!(counters(&reporter.on(Event::Up, 0, "")), [third]);
}

// holds: HR-11
#[test]
fn a_disk_that_takes_nothing_does_not_silence_the_host() {
    let disk = SimDisk::new();
    let mut reporter = open(&disk);
    let counter = reporter.counter().unwrap();
    disk.forbid(&report(SPOOL, counter));
    reporter.on(Event::Up, 0, "");
    let said = reporter.spool(&made(counter), &sample::signer(9), 0).unwrap();
    assert_eq!(counters(&said), [counter]);
}

// holds: HR-11, B40
#[test]
fn a_full_disk_does_not_end_the_counting_and_no_counter_is_used_twice_after_it() {
    let disk = SimDisk::new();
    let mut reporter = open(&disk);
    let mut used = reporter.counter().unwrap();
    disk.full_after(0);
    for _ in 0..3 * BLOCK {
        let next = reporter.counter().unwrap();
        assert!(next > used);
        used = next;
    }
    disk.full_after(1000);
    assert!(open(&disk).counter().unwrap() > used);
}

// holds: HR-11, HR-15
#[test]
fn with_one_file_of_the_counter_damaged_it_does_not_fall() {
    for file in ["/counter.a", "/counter.b"] {
        let disk = SimDisk::new();
        let mut reporter = open(&disk);
        let used = (0..BLOCK + 5).map(|_| reporter.counter().unwrap()).max().unwrap();
        disk.plant(&path(file), b"", 0o600);
        assert!(open(&disk).counter().unwrap() > used, "{file}");
    }
}
