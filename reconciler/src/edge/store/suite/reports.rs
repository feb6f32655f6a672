//! Reports: order, repetition, and a burst beside everything else.

use std::collections::BTreeSet;
use std::time::Duration;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::Targeting;
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::{Cause, DeclarationState, DeclarationStatus, EpochStatus};

use super::Fresh;
use super::fixtures::*;
use crate::edge::activation::Waker;
use crate::edge::clock::Clock;
use crate::edge::store::act::Signed;
use crate::edge::store::orders::OrderKind;
use crate::edge::store::reports::{ReportWriter, Taken};
use crate::edge::store::{Store, StoreError};
use crate::pure::snapshot::{Counters, StandingEpoch};

async fn take(writer: &ReportWriter, of: u128, counter: u64, cause: Cause) -> Taken {
    let envelope = format!("envelope {of} {counter}");
    writer
        .take(node(of), counter, envelope, report(node(of), counter, cause))
        .await
        .unwrap()
}

// holds: HR-11, B49
pub(super) async fn an_older_report_never_replaces_a_newer_one(fresh: Fresh) {
    let (writer, _task) = ReportWriter::start(fresh.store.clone(), Waker::default());
    assert_eq!(take(&writer, 1, 31, Cause::Change).await, Taken::Stored);
    assert_eq!(take(&writer, 1, 30, Cause::Change).await, Taken::Stored);
    let seen = fresh.store.snapshot().await.unwrap();
    let report = seen.nodes[&node(1)].report.as_ref().unwrap();
    assert_eq!((report.counter, report.instance.as_str()), (31, "instance-31"));
    assert!(seen.nodes[&node(1)].heard_at.is_some());
    assert_eq!(take(&writer, 1, 32, Cause::Heartbeat).await, Taken::Stored);
    let nodes = fresh.store.nodes().await.unwrap();
    assert_eq!(nodes[&node(1)].report.as_ref().unwrap().counter, 32);
    assert_eq!(
        fresh.store.reports_of(node(1), 2).await.unwrap(),
        ["envelope 1 32", "envelope 1 31"]
    );
}

// holds: DL-5
pub(super) async fn the_newest_look_stays_beside_newer_reports(fresh: Fresh) {
    let (writer, _task) = ReportWriter::start(fresh.store.clone(), Waker::default());
    take(&writer, 1, 1, Cause::Change).await;
    assert!(
        fresh.store.snapshot().await.unwrap().nodes[&node(1)]
            .look
            .is_none()
    );
    take(&writer, 1, 3, Cause::Look(8)).await;
    take(&writer, 1, 2, Cause::Look(7)).await;
    take(&writer, 1, 4, Cause::Heartbeat).await;
    let seen = fresh.store.snapshot().await.unwrap();
    let state = &seen.nodes[&node(1)];
    assert_eq!(state.report.as_ref().unwrap().counter, 4);
    assert_eq!(state.look.as_ref().unwrap().cause, Cause::Look(8));
    assert!(state.look_at.is_some());
}

// holds: B49
pub(super) async fn the_same_report_again_is_a_duplicate_and_other_bytes_a_conflict(fresh: Fresh) {
    let waker = Waker::default();
    let (writer, _task) = ReportWriter::start(fresh.store.clone(), waker.clone());
    assert_eq!(take(&writer, 1, 5, Cause::Change).await, Taken::Stored);
    tokio::time::timeout(
        Duration::from_secs(10),
        waker.wait(None, crate::edge::clock::Clock::default()),
    )
    .await
    .expect("a stored report wakes the pass");
    assert_eq!(take(&writer, 1, 5, Cause::Change).await, Taken::Duplicate);
    let other = report(node(1), 5, Cause::Heartbeat);
    let answer = writer.take(node(1), 5, "forged".into(), other).await.unwrap();
    assert_eq!(answer, Taken::Conflict);
    let beyond = report(node(1), u64::MAX, Cause::Change);
    let answer = writer
        .take(node(1), u64::MAX, "beyond".into(), beyond)
        .await
        .unwrap();
    assert_eq!(answer, Taken::Conflict);
    let seen = fresh.store.snapshot().await.unwrap();
    assert_eq!(seen.nodes[&node(1)].report.as_ref().unwrap().cause, Cause::Change);
}

// holds: B49, LK-6
pub(super) async fn what_is_heard_in_memory_is_what_the_database_has(fresh: Fresh) {
    let (writer, _task) = ReportWriter::start(fresh.store.clone(), Waker::default());
    take(&writer, 1, 1, Cause::Change).await;
    let first = fresh.store.snapshot().await.unwrap();
    // two who read meet one who writes
    let reader = fresh.store.clone();
    let read = tokio::spawn(async move {
        for _ in 0..100 {
            reader.nodes().await.unwrap();
        }
    });
    for counter in 2..60 {
        take(&writer, u128::from(counter % 7), counter, Cause::Look(counter)).await;
        fresh.store.snapshot().await.unwrap();
    }
    read.await.unwrap();
    take(&writer, 3, 100, Cause::Heartbeat).await;
    let kept = fresh.store.snapshot().await.unwrap().nodes;
    // what an earlier pass holds does not change under it
    assert_eq!(first.nodes.len(), 1);
    assert_eq!(first.nodes[&node(1)].report.as_ref().unwrap().counter, 1);
    let copy = fresh.folder.path().join("copy/meshplan.db");
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    fresh.store.copy_to(&copy).await.unwrap();
    let anew = Store::open(&copy, Clock::default()).await.unwrap();
    let anew = anew.snapshot().await.unwrap().nodes;
    assert_eq!(kept.len(), 7);
    assert_eq!(format!("{kept:?}"), format!("{anew:?}"));
}

pub(super) async fn two_hundred_reports_are_kept_of_each_node(fresh: Fresh) {
    let (writer, _task) = ReportWriter::start(fresh.store.clone(), Waker::default());
    let all = (1..=230).map(|counter| take(&writer, 1, counter, Cause::Heartbeat));
    futures_util::future::join_all(all).await;
    take(&writer, 2, 1, Cause::Heartbeat).await;
    assert_eq!(fresh.store.reports_of(node(1), 1000).await.unwrap().len(), 200);
    for counter in 231..=280 {
        take(&writer, 1, counter, Cause::Heartbeat).await;
        let kept = fresh.store.reports_of(node(1), 1000).await.unwrap().len();
        assert!((200..220).contains(&kept), "{kept} at {counter}");
    }
    assert_eq!(fresh.store.reports_of(node(2), 1000).await.unwrap().len(), 1);
}

// holds: LK-6, B48
pub(super) async fn no_report_of_a_burst_is_lost_while_passes_read_and_write(fresh: Fresh) {
    const REPORTS: u64 = 500;
    const PASSES: u64 = 40;
    let store = fresh.store.clone();
    let (writer, _task) = ReportWriter::start(store.clone(), Waker::default());
    let burst: Vec<_> = (0..REPORTS)
        .map(|n| {
            let writer = writer.clone();
            tokio::spawn(async move { take(&writer, u128::from(n % 50), n, Cause::Change).await })
        })
        .collect();
    // two planners that read first and write later, and meet
    let planners: Vec<_> = (0..2)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut done = 0;
                while done < PASSES {
                    let seen = store.snapshot().await.unwrap();
                    let mut after = seen.counters.clone();
                    after.look += 1;
                    let number = after.block.as_ref().map_or(1, |b| b.number + 1);
                    let block = block(number, 1);
                    after.block = Some(block.mark.clone());
                    let signed = Signed {
                        blocks: vec![block],
                        ..Signed::default()
                    };
                    match store
                        .commit(&act(&seen.counters, &after), &signed, &[], &[])
                        .await
                    {
                        Ok(_) => done += 1,
                        Err(StoreError::Moved { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    let copy = fresh.folder.path().join("copy.db");
    store.copy_to(&copy).await.unwrap();

    let mut stored = 0;
    for report in burst {
        assert_eq!(report.await.unwrap(), Taken::Stored);
        stored += 1;
    }
    for planner in planners {
        planner.await.unwrap();
    }
    assert_eq!(stored, REPORTS);
    let seen = store.snapshot().await.unwrap();
    assert_eq!(seen.counters.look, 2 * PASSES);
    assert_eq!(seen.nodes.len(), 50);
    let numbers: BTreeSet<_> = store
        .unwritten_blocks()
        .await
        .unwrap()
        .iter()
        .map(|b| b.mark.number)
        .collect();
    assert_eq!(numbers, (1..=2 * PASSES).collect());
    assert_eq!(
        store.outbox_open().await.unwrap().len() as u64,
        2 * PASSES,
        "each block has its queued note"
    );
    let mut kept = 0;
    for of in 0..50 {
        kept += store.reports_of(node(of), 1000).await.unwrap().len() as u64;
    }
    assert_eq!(kept, REPORTS);
}

// holds: LK-7, B49
pub(super) async fn what_one_node_says_in_one_batch_is_taken_in_its_order(fresh: Fresh) {
    let (writer, _task) = ReportWriter::start(fresh.store.clone(), Waker::default());
    let writer = &writer;
    let says = |of: u128, counter, cause, envelope: &'static str| async move {
        let report = report(node(of), counter, cause);
        let taken = writer.take(node(of), counter, envelope.to_owned(), report);
        taken.await.unwrap()
    };
    let answers = tokio::join!(
        says(1, 1, Cause::Change, "one"),
        says(2, u64::MAX, Cause::Change, "beyond all numbers"),
        says(1, 3, Cause::Change, "three"),
        says(1, 2, Cause::Look(7), "two, late"),
        says(1, 3, Cause::Change, "three"),
        says(1, 1, Cause::Change, "another one"),
        says(2, 5, Cause::Look(9), "of another node"),
    );
    assert_eq!(
        answers,
        (
            Taken::Stored,
            Taken::Conflict,
            Taken::Stored,
            Taken::Stored,
            Taken::Duplicate,
            Taken::Conflict,
            Taken::Stored
        )
    );
    let heard = fresh.store.snapshot().await.unwrap().nodes;
    let of = |n: u128| {
        let state = &heard[&node(n)];
        let counter = |report: &Option<meshplan_schemas::report::Report>| report.as_ref().map(|r| r.counter);
        (counter(&state.report), counter(&state.look))
    };
    assert_eq!((of(1), of(2)), ((Some(3), Some(2)), (Some(5), Some(5))));
    assert_eq!(fresh.store.reports_of(node(1), 9).await.unwrap().len(), 3);
}

// holds: DL-13
pub(super) async fn a_node_whose_newest_order_went_back_is_told_until_it_was_given_once_more(fresh: Fresh) {
    let store = &fresh.store;
    let (writer, _task) = ReportWriter::start(store.clone(), Waker::default());
    let none = Counters::default();
    let ordered = |sequence| {
        let of = order(
            OrderKind::Declaration,
            sequence,
            Some(node(1)),
            &format!("order {sequence}"),
        );
        Signed {
            orders: vec![of],
            ..Signed::default()
        }
    };
    let mut reports = 0;
    let mut says = |state, sequence, reason: &str| {
        reports += 1;
        let mut report = report(node(1), reports, Cause::Change);
        report.declaration = Some(DeclarationStatus {
            sequence,
            digest: Digest::of(b"order"),
            state,
            since: 0,
            reason: reason.to_owned(),
            confirmed_sequence: 0,
            confirmed_digest: None,
            converged: false,
        });
        writer.take(node(1), reports, format!("envelope {reports}"), report)
    };
    let told = async || {
        let aside = store.snapshot().await.unwrap().aside;
        assert_eq!(store.anything_open().await.unwrap(), !aside.is_empty());
        aside.get(&node(1)).copied()
    };
    let repeated = |sequence| {
        let mut act = act(&none, &none);
        act.repeated.insert(node(1), sequence);
        act
    };
    store
        .commit(&act(&none, &none), &ordered(7), &[], &[])
        .await
        .unwrap();
    says(DeclarationState::Reverted, 7, "a probe said no")
        .await
        .unwrap();
    assert_eq!(told().await, None, "its content is to blame");
    says(DeclarationState::Reverted, 7, "no-link").await.unwrap();
    assert_eq!(told().await, Some(7));
    store.commit(&repeated(8), &ordered(8), &[], &[]).await.unwrap();
    assert_eq!(told().await, None, "it was given once more");
    says(DeclarationState::Reverted, 8, "no-link").await.unwrap();
    assert_eq!(told().await, None, "and not again");
    store
        .commit(&act(&none, &none), &ordered(9), &[], &[])
        .await
        .unwrap();
    says(DeclarationState::Reverted, 9, "no-link").await.unwrap();
    assert_eq!(told().await, Some(9), "another order");
    says(DeclarationState::Confirmed, 9, "").await.unwrap();
    assert_eq!(told().await, None);
}

// holds: DL-13
pub(super) async fn a_node_whose_epoch_went_back_is_told_while_it_stands_until_it_was_given_once_more(
    fresh: Fresh,
) {
    let store = &fresh.store;
    let (writer, _task) = ReportWriter::start(store.clone(), Waker::default());
    let none = Counters::default();
    let standing = |epochs: &[u64]| Signed {
        epochs_standing: epochs
            .iter()
            .map(|epoch| StandingEpoch {
                epoch: *epoch,
                digest: Digest::of(b"epoch"),
                targeting: Targeting::everyone(),
                policy: Digest::of(b"policy"),
            })
            .collect(),
        ..Signed::default()
    };
    let mut reports = 0;
    let mut says = |state, state_epoch, reason: &str| {
        reports += 1;
        let mut report = report(node(1), reports, Cause::Change);
        report.epoch = Some(EpochStatus {
            state_epoch,
            state,
            reason: reason.to_owned(),
            received_via: "reconciler".to_owned(),
            received_at: 0,
            update_class: UpdateClass::BestEffort,
            running: 0,
        });
        writer.take(node(1), reports, format!("envelope {reports}"), report)
    };
    let told = async || {
        let aside = store.snapshot().await.unwrap().aside_epochs;
        assert_eq!(store.anything_open().await.unwrap(), !aside.is_empty());
        aside.get(&node(1)).copied()
    };
    let repeated = |epoch| {
        let mut act = act(&none, &none);
        act.repeated_epochs.insert(node(1), epoch);
        act
    };
    let nothing = act(&none, &none);
    store.commit(&nothing, &standing(&[7]), &[], &[]).await.unwrap();
    says(EpochState::Reverted, 7, "a probe said no").await.unwrap();
    assert_eq!(told().await, None, "its policy is to blame");
    says(EpochState::Reverted, 7, "no-link").await.unwrap();
    assert_eq!(told().await, Some(7));
    store
        .commit(&nothing, &standing(&[8, 7]), &[], &[])
        .await
        .unwrap();
    assert_eq!(told().await, Some(7), "it stands below another");
    store
        .commit(&repeated(9), &standing(&[9, 8, 7]), &[], &[])
        .await
        .unwrap();
    assert_eq!(told().await, None, "it was given once more");
    says(EpochState::Reverted, 9, "no-link").await.unwrap();
    assert_eq!(told().await, None, "and not again");
    store.commit(&nothing, &standing(&[11]), &[], &[]).await.unwrap();
    says(EpochState::Reverted, 10, "no-link").await.unwrap();
    assert_eq!(told().await, None, "it stands no more");
    says(EpochState::Reverted, 11, "no-link").await.unwrap();
    assert_eq!(told().await, Some(11), "another epoch");
    says(EpochState::Applied, 11, "").await.unwrap();
    assert_eq!(told().await, None);
}
