//! Rollouts: which epochs are one, timelines as reports come in, archives, late arrivals, and the journal of events.

use meshplan_schemas::epoch::{Epoch, Phase, Targeting};
use meshplan_schemas::fleet_list::UpdateClass;
use meshplan_schemas::ident::KeyId;
use meshplan_schemas::lifecycle::delivery::State;
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::{Cause, EpochStatus};

use super::Fresh;
use super::fixtures::*;
use crate::edge::activation::Waker;
use crate::edge::health::Health;
use crate::edge::rollouts::{Asking, Moved, PutAway};
use crate::edge::store::Store;
use crate::edge::store::act::Signed;
use crate::edge::store::reports::ReportWriter;
use crate::pure::act::{Act, Order};
use crate::pure::events::{Event, EventName, jumped};
use crate::pure::hearing::Jump;
use crate::pure::rollout::archive::Archive;
use crate::pure::rollout::gate::ReleaseGate;
use crate::pure::rollout::{Rollout, TimelineEvent};
use crate::pure::snapshot::Counters;

fn epoch(number: u64, phase: Phase, n: u8) -> Order {
    let epoch = Epoch {
        schema: 1,
        fleet: "demo".parse().unwrap(),
        era: 0,
        issued_at: at(0).as_second(),
        must_understand: Vec::new(),
        epoch: number,
        author: KeyId("author".into()),
        targeting: Targeting::everyone(),
        min_daemon_version: None,
        confirm_secs: 60,
        confirm_probe: None,
        policy: String::new(),
        in_force: Vec::new(),
        watch_until: None,
        rollout_id: format!("fleet@{}", commit(n).short()),
        phase,
        urgent: false,
        again: Vec::new(),
        manifest: None,
        commit: commit(n),
    };
    Order::Epoch { epoch }
}

async fn sign(store: &Store, orders: Vec<Order>, events: Vec<Event>) {
    let act = Act {
        orders,
        events,
        ..act(&Counters::default(), &Counters::default())
    };
    store.commit(&act, &Signed::default(), &[], &[]).await.unwrap();
}

fn status(number: u64, state: EpochState) -> EpochStatus {
    EpochStatus {
        state_epoch: number,
        state,
        reason: String::new(),
        received_via: "0a1b2c3d".into(),
        received_at: at(40).as_second(),
        update_class: UpdateClass::Required,
        running: 0,
    }
}

async fn say(writer: &ReportWriter, n: u128, counter: u64, said: EpochStatus) {
    let mut report = report(node(n), counter, Cause::Change);
    report.epoch = Some(said);
    let envelope = format!("envelope {n} {counter}");
    writer.take(node(n), counter, envelope, report).await.unwrap();
}

async fn timeline(store: &Store, id: &str) -> Vec<(u64, String)> {
    let row = store.find_rollout(id).await.unwrap().unwrap();
    let events = store.timeline_of(&row).await.unwrap();
    events.into_iter().map(|e| (e.epoch, e.state)).collect()
}

fn archive(first: u64, n: u8) -> Archive {
    let rollout = Rollout {
        rollout_id: format!("fleet@{}", commit(n).short()),
        commit: commit(n).to_string(),
        phase: crate::pure::rollout::Phase::Complete,
        started_at: at(0),
        finished_at: Some(at(50)),
        canary_epoch: None,
        final_epoch: Some(first),
        newest_epoch: first,
        plan: None,
        note: "a change".into(),
        reason: "done".into(),
        waits_for: None,
        canaries: Vec::new(),
        release_gate: ReleaseGate::default(),
        release_deadline: None,
        abort_cause: None,
        nodes: Vec::new(),
        timeline: Vec::new(),
        as_of: at(60),
    };
    Archive::of(rollout, at(60))
}

// holds: RO-5
pub(super) async fn a_delivery_that_goes_out_again_is_another_rollout(fresh: Fresh) {
    let store = &fresh.store;
    sign(
        store,
        vec![epoch(1, Phase::Canary, 1), epoch(2, Phase::Release, 1)],
        vec![],
    )
    .await;
    sign(
        store,
        vec![epoch(3, Phase::Abort, 1), epoch(4, Phase::Abort, 1)],
        vec![],
    )
    .await;
    sign(store, vec![epoch(5, Phase::Release, 2)], vec![]).await;
    sign(store, vec![epoch(6, Phase::Canary, 1)], vec![]).await;
    let live = store.live_rollouts().await.unwrap();
    let firsts: Vec<u64> = live.iter().map(|row| row.first_epoch).collect();
    assert_eq!(firsts, [1, 5, 6]);
    let run = store.run_of(&live[0]).await.unwrap().unwrap();
    assert!(run.former && run.is_taken_back());
    assert_eq!(run.epochs().map(|e| e.epoch).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(run.final_epoch(), Some(4));
    let id = format!("fleet@{}", commit(1).short());
    assert_eq!(store.find_rollout(&id).await.unwrap().unwrap().first_epoch, 6);
    assert_eq!(store.find_rollout("1").await.unwrap().unwrap().first_epoch, 1);
    assert_eq!(
        store.find_rollout("2").await.unwrap(),
        None,
        "it is no first epoch"
    );
    assert_eq!(store.newest_rollout().await.unwrap().unwrap().first_epoch, 6);
}

// holds: RO-5
pub(super) async fn only_a_change_of_status_is_taken_down_and_an_arrival_by_the_nodes_own_clock(
    fresh: Fresh,
) {
    let store = &fresh.store;
    sign(store, vec![epoch(1, Phase::Release, 1)], vec![]).await;
    let (writer, task) = ReportWriter::start(store.clone(), Waker::default());
    say(&writer, 1, 2, status(1, EpochState::Staged)).await;
    say(&writer, 1, 3, status(1, EpochState::Staged)).await;
    // One that was made before comes late: it says nothing new.
    say(&writer, 1, 1, status(1, EpochState::Received)).await;
    let id = format!("fleet@{}", commit(1).short());
    let staged = [(1, "received".to_owned()), (1, "staged".to_owned())];
    assert_eq!(timeline(store, &id).await, staged);
    let row = store.find_rollout(&id).await.unwrap().unwrap();
    let arrival = store.timeline_of(&row).await.unwrap().remove(0);
    assert_eq!((arrival.at, arrival.via.as_str()), (at(40), "0a1b2c3d"));
    assert_eq!(arrival.node_id_short, node(1).short().to_string());
    // Another writer, as after a restart, knows what was said.
    drop(writer);
    task.await.unwrap();
    let (writer, _task) = ReportWriter::start(store.clone(), Waker::default());
    say(&writer, 1, 4, status(1, EpochState::Staged)).await;
    assert_eq!(timeline(store, &id).await, staged);
    say(&writer, 1, 5, status(1, EpochState::Applied)).await;
    assert_eq!(timeline(store, &id).await.len(), 3);
}

// holds: RO-5
pub(super) async fn archives_are_packed_kept_up_to_a_number_and_take_in_what_arrives_late(fresh: Fresh) {
    let store = &fresh.store;
    let (writer, _task) = ReportWriter::start(store.clone(), Waker::default());
    assert!(!store.anything_to_put_away().await.unwrap());
    for n in 1..=4 {
        sign(store, vec![epoch(u64::from(n), Phase::Release, n)], vec![]).await;
        say(
            &writer,
            1,
            u64::from(n),
            status(u64::from(n), EpochState::Received),
        )
        .await;
        store
            .put_away(u64::from(n), &archive(u64::from(n), n), 3)
            .await
            .unwrap();
    }
    assert!(!store.anything_to_put_away().await.unwrap());
    assert_eq!(store.count_archives().await.unwrap(), 3);
    let listed = store.archives(0, 2).await.unwrap();
    assert_eq!(
        listed.iter().map(|s| s.final_epoch).collect::<Vec<_>>(),
        [Some(4), Some(3)]
    );
    assert_eq!(store.archives(2, 2).await.unwrap().len(), 1);
    assert_eq!(listed[0].events, 1, "what its timeline had by then is in it");

    say(&writer, 1, 9, status(3, EpochState::Applied)).await;
    say(&writer, 2, 9, status(1, EpochState::Applied)).await;
    assert!(store.anything_to_put_away().await.unwrap());
    for (first, late) in store.late_arrivals().await.unwrap() {
        assert_eq!(first, 3, "the archive of epoch 1 is forgotten");
        store.append_late(first, late).await.unwrap();
    }
    store.forget_strays().await.unwrap();
    assert!(!store.anything_to_put_away().await.unwrap());
    let archive = store.archive_of(3).await.unwrap().unwrap();
    let states: Vec<&str> = archive
        .rollout
        .timeline
        .iter()
        .map(|e| e.state.as_str())
        .collect();
    assert!(
        states.contains(&"received") && states.contains(&"applied"),
        "{states:?}"
    );
    let listed = store.archives(1, 1).await.unwrap();
    assert_eq!(listed[0].events, archive.rollout.timeline.len() as u64);
    let other = TimelineEvent {
        epoch: 3,
        ..archive.rollout.timeline[0].clone()
    };
    assert!(archive.rollout.timeline.contains(&other));
}

// holds: RO-7
pub(super) async fn events_are_numbered_in_order_stored_with_their_act_and_wake_who_follows(fresh: Fresh) {
    let store = &fresh.store;
    let mut happenings = store.happenings();
    let jump = Jump {
        wall_secs: 3600,
        steady_secs: 1,
    };
    let first = jumped(jump, at(1));
    let second = Event {
        event: EventName::Start,
        rollout_id: Some("fleet@1".into()),
        ..jumped(jump, at(2))
    };
    store.add_event(&first).await.unwrap();
    assert!(happenings.has_changed().unwrap());
    happenings.mark_unchanged();
    sign(store, Vec::new(), vec![second.clone()]).await;
    assert!(happenings.has_changed().unwrap());
    let events = store.events(0, 10).await.unwrap();
    assert_eq!(events.iter().map(|e| e.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((&events[0].event, &events[1].event), (&first, &second));
    assert_eq!(store.events(1, 10).await.unwrap().len(), 1);
    assert_eq!(store.events(u64::MAX, 10).await.unwrap(), []);
    // An act that is not stored says nothing.
    let moved = Act {
        events: vec![second],
        counters_before: Counters {
            epoch: 99,
            ..Counters::default()
        },
        ..Act::default()
    };
    assert!(store.commit(&moved, &Signed::default(), &[], &[]).await.is_err());
    assert_eq!(store.events(0, 10).await.unwrap().len(), 2);
}

/// What the write-ahead log of a store holds, in bytes.
fn logged(fresh: &Fresh) -> u64 {
    let log = fresh.folder.path().join("state/meshplan.db-wal");
    std::fs::metadata(log).unwrap().len()
}

// holds: RO-5
pub(super) async fn looks_at_rollouts_that_are_not_over_or_all_put_away_write_nothing(fresh: Fresh) {
    let store = &fresh.store;
    let health = Health::default();
    let look = async |at_secs: i64| {
        let asking = Asking {
            store,
            health: &health,
            now: at(at_secs),
        };
        PutAway::default().pass(asking, Moved::Yes).await.unwrap()
    };
    let mut walking = act(&Counters::default(), &Counters::default());
    walking.deliveries = vec![delivery(1, State::Delivering)];
    walking.orders = vec![epoch(1, Phase::Canary, 1)];
    store
        .commit(&walking, &Signed::default(), &[], &[])
        .await
        .unwrap();
    let before = logged(&fresh);
    for secs in 0..20 {
        assert_eq!(look(secs).await, None, "a walk wakes the pass by itself");
    }
    assert_eq!(logged(&fresh), before);
    store.put_away(1, &archive(1, 1), 50).await.unwrap();
    let before = logged(&fresh);
    for secs in 0..20 {
        assert_eq!(look(secs).await, None);
    }
    assert_eq!(logged(&fresh), before);
}
