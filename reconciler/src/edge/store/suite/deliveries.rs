//! A delivery and its parts.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::digest::Digest;
use meshplan_schemas::lifecycle::delivery::State;
use serde_json::json;

use super::Fresh;
use super::fixtures::*;
use crate::edge::clock::Clock;
use crate::edge::repository::waiting;
use crate::edge::store::Store;
use crate::edge::store::act::Signed;
use crate::pure::delivery::{Delivery, Leg, MachineRun, NodeChange, StageRun, Walk};
use crate::pure::parts::{Branch, Part, Parts};
use crate::pure::snapshot::Counters;

/// A delivery that walks so many machines in two stages.
fn walking(machines: u128) -> Delivery {
    let run = |name: String| json!({ "name": name, "sequence": 7, "epoch": 0, "healthy": 1 });
    let reached =
        |name: String| json!({ "name": name, "return_sequence": 0, "return_epoch": 0, "returned": false });
    let stage = |name: &str, every: u128| {
        let machines = (1..=machines).filter(|n| n % 2 == every);
        let machines: BTreeMap<_, _> = machines.map(|n| (node(n), run(format!("n{n}")))).collect();
        json!({
            "name": name, "select": { "nodes": [], "roles": [], "count": null, "rest": true }, "batch": null, "times": 1,
            "every_secs": 1, "within_secs": 60, "failed": "roll-back", "silent": "roll-back",
            "tolerate": { "Number": 0 }, "machines": machines,
        })
    };
    let all: BTreeMap<_, _> = (1..=machines)
        .map(|n| (node(n), reached(format!("n{n}"))))
        .collect();
    let stages: Vec<StageRun> = ["first", "second"]
        .iter()
        .zip([1, 0])
        .map(|(name, every)| from(stage(name, every)))
        .collect();
    let walk = json!({
        "plan": null, "stages": stages, "current": 1, "step": "open", "sequence": 7, "epoch": 0, "reached": all,
    });
    let nodes: BTreeMap<_, _> = (1..=machines)
        .map(|n| {
            let change = NodeChange {
                before: None,
                after: Some(Digest::of(b"web")),
            };
            (node(n), change)
        })
        .collect();
    let mut delivery = delivery(1, State::Delivering);
    delivery.walk = Some(from(walk));
    delivery.legs = vec![Leg {
        scope: "module:web".parse().unwrap(),
        digest: Digest::of(b"web"),
        before: None,
        from: None,
        nodes: nodes.into(),
        behind: BTreeMap::new().into(),
    }];
    delivery
}

fn from<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn walk(delivery: &mut Delivery) -> &mut Walk {
    delivery.walk.as_mut().unwrap()
}

fn first_machine(delivery: &mut Delivery) -> &mut MachineRun {
    walk(delivery).stages[0].machines.get_mut(&node(1)).unwrap()
}

async fn put(store: &Store, delivery: &Delivery) {
    let none = Counters::default();
    let mut act = act(&none, &none);
    act.deliveries = vec![delivery.clone()];
    store.commit(&act, &Signed::default(), &[], &[]).await.unwrap();
}

/// The same database, opened by a store that has nothing in memory.
async fn reopened(fresh: Fresh) -> Fresh {
    let Fresh { store, folder } = fresh;
    store.close().await;
    drop(store);
    let path = folder.path().join("state/meshplan.db");
    let store = Store::open(&path, Clock::default()).await.unwrap();
    Fresh { store, folder }
}

async fn same(store: &Store, delivery: &Delivery) {
    let read = store.delivery(&delivery.commit).await.unwrap().unwrap();
    assert!(read == *delivery, "it is another one");
    let seen = store.snapshot().await.unwrap().deliveries;
    assert!(seen[&delivery.commit] == *delivery, "a pass sees another one");
}

// holds: DL-2
pub(super) async fn what_may_leave_its_branch_is_what_nobody_has_walked(fresh: Fresh) {
    let store = &fresh.store;
    let web = Branch {
        repo: "web".to_owned(),
        branch: "main".to_owned(),
    };
    let made = |n: u8, fleet: u8, part: u8, state| Delivery {
        previous: (n > 1).then(|| commit(n - 1)),
        made_of: Some(Parts {
            fleet: commit(fleet),
            components: vec![Part {
                of: web.clone(),
                commit: commit(part),
            }],
        }),
        ..delivery(n, state)
    };
    let of = |fleet: &[u8], part: &[u8]| {
        let each = [(None, fleet), (Some(web.clone()), part)].into_iter();
        let all = each.map(|(of, commits)| (of, commits.iter().map(|n| commit(*n)).collect()));
        let all = all.filter(|(_, commits): &(_, BTreeSet<_>)| !commits.is_empty());
        all.collect::<BTreeMap<_, _>>()
    };
    // The component's second commit gave way to the fleet's third, which delivered it.
    put(store, &made(1, 1, 1, State::Delivered)).await;
    put(store, &made(2, 1, 2, State::Superseded)).await;
    put(store, &made(3, 3, 2, State::Proposed)).await;
    assert_eq!(waiting(store).await.unwrap(), of(&[3], &[2]));
    put(store, &made(3, 3, 2, State::Delivered)).await;
    put(store, &made(4, 4, 2, State::Held)).await;
    assert_eq!(waiting(store).await.unwrap(), of(&[4], &[]));
    put(store, &made(4, 4, 2, State::Superseded)).await;
    let mut after = made(5, 5, 2, State::Proposed);
    after.base = Some(commit(3));
    put(store, &after).await;
    assert_eq!(waiting(store).await.unwrap(), of(&[5], &[]));

    // The newest was dropped by a person, or had failed: what comes next would have it.
    for state in [State::Withdrawn, State::Failed] {
        after.state = state;
        put(store, &after).await;
        assert_eq!(waiting(store).await.unwrap(), of(&[5], &[]), "{state}");
    }
    put(store, &made(6, 5, 6, State::Proposed)).await;
    assert_eq!(waiting(store).await.unwrap(), of(&[5], &[6]));
    put(store, &made(6, 5, 6, State::Delivered)).await;
    assert!(waiting(store).await.unwrap().is_empty());
}

pub(super) async fn it_comes_back_as_it_was_written_by_whoever_reads_it(fresh: Fresh) {
    let mut delivery = walking(300);
    put(&fresh.store, &delivery).await;
    same(&fresh.store, &delivery).await;
    let fresh = reopened(fresh).await;
    same(&fresh.store, &delivery).await;
    first_machine(&mut delivery).healthy = 2;
    walk(&mut delivery).reached.remove(&node(2));
    walk(&mut delivery).stages[1].machines = BTreeMap::new().into();
    put(&fresh.store, &delivery).await;
    same(&fresh.store, &delivery).await;
    let fresh = reopened(fresh).await;
    same(&fresh.store, &delivery).await;
    delivery.walk = None;
    delivery.legs.clear();
    put(&fresh.store, &delivery).await;
    same(&reopened(fresh).await.store, &delivery).await;
}

/// Each written row counts one change.
async fn changes(store: &Store) -> i64 {
    let row: Option<(i64,)> = store
        .db()
        .row("SELECT changes FROM deliveries", vec![])
        .await
        .unwrap();
    row.unwrap().0
}

pub(super) async fn what_changes_on_one_machine_is_one_part(fresh: Fresh) {
    let mut delivery = walking(1000);
    put(&fresh.store, &delivery).await;
    let before = changes(&fresh.store).await;
    first_machine(&mut delivery).healthy = 2;
    put(&fresh.store, &delivery).await;
    assert_eq!(
        changes(&fresh.store).await - before,
        2,
        "its document, and one part"
    );
}

pub(super) async fn an_act_that_was_not_stored_leaves_no_part_of_it_in_memory(fresh: Fresh) {
    let mut delivery = walking(10);
    put(&fresh.store, &delivery).await;
    let stored = delivery.clone();
    first_machine(&mut delivery).healthy = 2;
    let moved = Counters {
        epoch: 9,
        ..Counters::default()
    };
    let mut act = act(&moved, &moved);
    act.deliveries = vec![delivery.clone()];
    let refused = fresh.store.commit(&act, &Signed::default(), &[], &[]).await;
    assert!(refused.is_err());
    same(&fresh.store, &stored).await;
    put(&fresh.store, &delivery).await;
    same(&reopened(fresh).await.store, &delivery).await;
}

pub(super) async fn a_document_of_before_the_parts_loses_nothing_when_it_is_written_again(fresh: Fresh) {
    let mut delivery = walking(10);
    put(&fresh.store, &delivery).await;
    let mut tx = fresh.store.db().begin_write().await.unwrap();
    let whole = serde_json::to_string(&delivery).unwrap();
    tx.run("DELETE FROM delivery_parts", vec![]).await.unwrap();
    tx.run("UPDATE deliveries SET doc = $1", vec![whole.into()])
        .await
        .unwrap();
    tx.run("UPDATE deliveries SET changes = -1", vec![])
        .await
        .unwrap();
    tx.commit().await.unwrap();
    same(&fresh.store, &delivery).await;
    first_machine(&mut delivery).healthy = 2;
    put(&fresh.store, &delivery).await;
    same(&reopened(fresh).await.store, &delivery).await;
}
