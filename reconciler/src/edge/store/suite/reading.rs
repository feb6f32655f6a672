//! What sessions, people and runners read.

use meshplan_schemas::digest::Digest;
use meshplan_schemas::fleet_list::Leaf;
use meshplan_schemas::lifecycle::delivery::State;

use super::Fresh;
use super::fixtures::*;
use crate::edge::store::act::Signed;
use crate::edge::store::inbox::Arrival;
use crate::edge::store::orders::{OrderKind, SignedOrder};
use crate::edge::store::people::{FindError, InviteUse};
use crate::edge::store::{Store, StoreError};
use crate::pure::act::Act;
use crate::pure::snapshot::{Counters, Request, Verb};
use crate::pure::trigger::{Event, Trigger};

fn nothing() -> Act {
    act(&Counters::default(), &Counters::default())
}

async fn put_head(store: &Store, revision: u64, leaves: Vec<Leaf>) -> SignedOrder {
    let (order, signed_head) = head(revision, leaves);
    let mut act = nothing();
    act.orders = vec![order];
    let signed = Signed {
        orders: vec![signed_head.clone()],
        ..Signed::default()
    };
    store.commit(&act, &signed, &[], &[]).await.unwrap();
    signed_head
}

async fn put_delivery(store: &Store, n: u8, state: State) {
    let mut act = nothing();
    act.deliveries = vec![delivery(n, state)];
    store.commit(&act, &Signed::default(), &[], &[]).await.unwrap();
}

// holds: SG-1, SG-3
pub(super) async fn a_session_finds_heads_leaves_and_declarations_as_they_were_signed(fresh: Fresh) {
    let store = &fresh.store;
    assert!(store.newest_head().await.unwrap().is_none());
    let first = put_head(store, 1, vec![leaf(1)]).await;
    let second = put_head(store, 2, vec![leaf(1), leaf(2)]).await;
    let third = put_head(store, 3, vec![leaf(1), leaf(2), leaf(3)]).await;
    assert_eq!(
        store.newest_head().await.unwrap().unwrap().envelope,
        third.envelope
    );
    let above: Vec<_> = store
        .heads_above(1)
        .await
        .unwrap()
        .into_iter()
        .map(|h| h.envelope)
        .collect();
    assert_eq!(above, [second.envelope, third.envelope]);
    let by_digest = store.order_by_digest(first.digest).await.unwrap().unwrap();
    assert_eq!(by_digest.envelope, first.envelope);

    let found = store.leaf_of(3, node(2)).await.unwrap().unwrap();
    assert_eq!((found.revision, found.index, &found.leaf), (3, 1, &leaf(2)));
    let texts = store.leaf_texts(3).await.unwrap();
    assert_eq!(texts.len(), 3);
    assert_eq!(texts[1].as_bytes(), leaf(2).bytes().unwrap());
    assert_eq!(found.text, texts[1]);
    assert!(store.leaf_of(1, node(2)).await.unwrap().is_none());

    let signed = Signed {
        orders: vec![
            order(OrderKind::Declaration, 4, Some(node(1)), "old"),
            order(OrderKind::Declaration, 9, Some(node(1)), "new"),
            order(OrderKind::Epoch, 1, None, "one"),
            order(OrderKind::Epoch, 2, None, "two"),
        ],
        ..Signed::default()
    };
    store.commit(&nothing(), &signed, &[], &[]).await.unwrap();
    let newest = store.newest_declaration(node(1)).await.unwrap().unwrap();
    assert_eq!((newest.number, newest.envelope.as_str()), (9, "new"));
    assert!(store.newest_declaration(node(2)).await.unwrap().is_none());
    assert_eq!(store.newest_epoch().await.unwrap().unwrap().envelope, "two");
}

// holds: LK-1
pub(super) async fn a_key_of_a_record_that_left_the_list_opens_nothing(fresh: Fresh) {
    let store = &fresh.store;
    put_head(store, 1, vec![leaf(1), leaf(2)]).await;
    let current = store.leaf_by_key(&transport_key(2)).await.unwrap().unwrap();
    assert_eq!((current.leaf.id, current.index), (node(2), 1));
    let next = store.leaf_by_key(&transport_key(102)).await.unwrap().unwrap();
    assert_eq!(next.leaf.id, node(2));
    assert!(store.leaf_by_key(&transport_key(9)).await.unwrap().is_none());

    put_head(store, 2, vec![leaf(1)]).await;
    assert!(store.leaf_by_key(&transport_key(2)).await.unwrap().is_none());
    assert!(store.leaf_by_key(&transport_key(1)).await.unwrap().is_some());
    put_head(store, 3, vec![]).await;
    assert!(store.leaf_by_key(&transport_key(1)).await.unwrap().is_none());
}

pub(super) async fn the_records_of_the_newest_heads_are_kept(fresh: Fresh) {
    let store = &fresh.store;
    for revision in 1..=6 {
        put_head(store, revision, vec![leaf(1)]).await;
    }
    let mut kept = Vec::new();
    for revision in 1..=6 {
        kept.push(store.leaf_texts(revision).await.unwrap().len());
    }
    assert_eq!(kept, [0, 0, 1, 1, 1, 1]);
    assert_eq!(
        store.heads_above(0).await.unwrap().len(),
        6,
        "heads are kept whole"
    );
}

pub(super) async fn something_is_open_while_a_delivery_is_not_final_or_a_request_has_no_answer(fresh: Fresh) {
    let store = &fresh.store;
    assert!(!store.anything_open().await.unwrap());
    for state in [
        State::Proposed,
        State::Held,
        State::Delivering,
        State::RollingBack,
    ] {
        put_delivery(store, 1, state).await;
        assert!(store.anything_open().await.unwrap(), "{state:?}");
    }
    for state in [State::Delivered, State::Failed, State::Superseded] {
        put_delivery(store, 1, state).await;
        assert!(!store.anything_open().await.unwrap(), "{state:?}");
    }
    let request = Request {
        id: "r".into(),
        at: at(0),
        actor: "dana".into(),
        verb: Verb::GoAgain,
        commit: Some(commit(1)),
        until: None,
        why: String::new(),
        start: None,
        by: None,
    };
    store.add_request(&request).await.unwrap();
    assert!(store.anything_open().await.unwrap());
    let mut answer = nothing();
    answer.answers = vec![("r".into(), "done".into())];
    store.commit(&answer, &Signed::default(), &[], &[]).await.unwrap();
    assert!(!store.anything_open().await.unwrap());
}

// holds: SG-9
pub(super) async fn a_timestamp_only_goes_forward(fresh: Fresh) {
    let store = &fresh.store;
    let timestamp = |number, text| SignedOrder {
        commit: None,
        ..order(OrderKind::Timestamp, number, None, text)
    };
    store.put_timestamp(&timestamp(10, "ten")).await.unwrap();
    store.put_timestamp(&timestamp(10, "ten")).await.unwrap();
    let other = store.put_timestamp(&timestamp(10, "other")).await.unwrap_err();
    assert!(
        matches!(
            other,
            StoreError::NumberReused {
                kind: "timestamp",
                number: 10
            }
        ),
        "{other}"
    );
    for number in 11..40 {
        store
            .put_timestamp(&timestamp(number, "later \u{23f0}"))
            .await
            .unwrap();
    }
    let old = store.put_timestamp(&timestamp(38, "old")).await.unwrap_err();
    assert_eq!(
        old.to_string(),
        "timestamp 38 is older than the newest one stored (39)"
    );
    let newest = store.newest_timestamp().await.unwrap().unwrap();
    assert_eq!((newest.number, newest.envelope.as_str()), (39, "later \u{23f0}"));
}

// holds: DL-4
pub(super) async fn a_delivery_goes_by_its_id_its_first_digits_and_its_name(fresh: Fresh) {
    let store = &fresh.store;
    for n in [0x11, 0x12, 0x21] {
        put_delivery(store, n, State::Delivered).await;
    }
    let mut twin = delivery(0x13, State::Proposed);
    twin.commit = format!("1111{}", "0".repeat(36)).parse().unwrap();
    let mut act = nothing();
    act.deliveries = vec![twin.clone()];
    store.commit(&act, &Signed::default(), &[], &[]).await.unwrap();

    for text in ["21212121", &"21".repeat(20), "2121", "fleet@212121212121"] {
        let found = store.find_delivery(text).await.unwrap();
        assert_eq!(found.commit, commit(0x21), "{text}");
    }
    assert_eq!(
        store.find_delivery("11111").await.unwrap().commit,
        commit(0x11),
        "one more digit tells them apart"
    );
    let error = store.find_delivery("1111").await.unwrap_err();
    let FindError::Ambiguous { candidates, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(
        candidates,
        &[twin.commit.as_str().to_owned(), commit(0x11).as_str().to_owned()]
    );
    assert_eq!(
        error.to_string(),
        format!(
            "`1111` fits 2 deliveries: {}, {}; write more digits",
            twin.commit,
            commit(0x11)
        )
    );
    let error = store.find_delivery("3333").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no delivery goes by `3333`; `meshplan deliveries list` shows them all"
    );
    for text in ["", "111", "%%%%", "main", "1111'; DROP TABLE deliveries"] {
        assert!(
            matches!(store.find_delivery(text).await, Err(FindError::NotACommit(_))),
            "{text:?}"
        );
    }
    let newest: Vec<_> = store
        .deliveries(2)
        .await
        .unwrap()
        .iter()
        .map(|d| d.order)
        .collect();
    assert_eq!(newest, [0x21, 0x13]);
}

pub(super) async fn a_request_about_a_final_delivery_brings_it_into_the_snapshot(fresh: Fresh) {
    let store = &fresh.store;
    for (n, state) in [
        (1, State::Failed),
        (2, State::Delivered),
        (3, State::Held),
        (4, State::RolledBack),
    ] {
        put_delivery(store, n, state).await;
    }
    let seen: Vec<_> = store.snapshot().await.unwrap().deliveries.into_keys().collect();
    assert_eq!(
        seen,
        [commit(3), commit(4)],
        "those that are open and the newest final one"
    );
    let request = Request {
        id: "r".into(),
        at: at(0),
        actor: "dana".into(),
        verb: Verb::GoAgain,
        commit: Some(commit(1)),
        until: None,
        why: "mended".into(),
        start: None,
        by: None,
    };
    store.add_request(&request).await.unwrap();
    let seen = store.snapshot().await.unwrap();
    assert_eq!(seen.deliveries[&commit(1)].state, State::Failed);
    assert_eq!(seen.deliveries.len(), 3);
}

// holds: DL-2
pub(super) async fn a_delivery_that_is_not_back_everywhere_is_in_the_snapshot_until_it_is(fresh: Fresh) {
    let store = &fresh.store;
    let walk = serde_json::json!({
        "plan": null, "stages": [], "current": 0, "step": "open", "sequence": 1, "epoch": 0,
        "reached": {}, "outstanding": ["ace"],
    });
    let mut away = delivery(1, State::RolledBack);
    away.walk = Some(serde_json::from_value(walk).unwrap());
    let mut put = nothing();
    put.deliveries = vec![
        away.clone(),
        delivery(2, State::RolledBack),
        delivery(3, State::Delivered),
    ];
    store.commit(&put, &Signed::default(), &[], &[]).await.unwrap();
    assert!(store.anything_open().await.unwrap());
    let seen = store.snapshot().await.unwrap().deliveries;
    assert_eq!(seen.keys().collect::<Vec<_>>(), [&commit(1), &commit(3)]);

    away.walk.as_mut().unwrap().outstanding.clear();
    put.deliveries = vec![away];
    store.commit(&put, &Signed::default(), &[], &[]).await.unwrap();
    assert!(!store.anything_open().await.unwrap());
    assert_eq!(store.snapshot().await.unwrap().deliveries.len(), 1);

    // The same for one that machines which were left behind follow later (UC-1).
    let left = serde_json::json!({
        "name": "ace", "pinned": false, "follows": { "at": "2026-11-30T08:00:00Z", "after_secs": 600 },
    });
    let mut followed = delivery(1, State::Delivered);
    let left = serde_json::from_value(left).unwrap();
    followed.left_behind.insert(node(1), left);
    put.deliveries = vec![followed.clone()];
    store.commit(&put, &Signed::default(), &[], &[]).await.unwrap();
    assert!(store.anything_open().await.unwrap());
    let seen = store.snapshot().await.unwrap().deliveries;
    assert_eq!(seen[&commit(1)].left_behind, followed.left_behind);
    followed.left_behind.clear();
    put.deliveries = vec![followed];
    store.commit(&put, &Signed::default(), &[], &[]).await.unwrap();
    assert!(!store.anything_open().await.unwrap());
}

// holds: LK-3
pub(super) async fn an_invitation_is_used_once_and_by_the_same_one_again(fresh: Fresh) {
    let store = &fresh.store;
    store.put_invite("i1", &"first").await.unwrap();
    store.put_invite("i2", &"second").await.unwrap();
    assert_eq!(
        store.use_invite("i1", "machine-a").await.unwrap(),
        InviteUse::Yours
    );
    assert_eq!(
        store.use_invite("i1", "machine-a").await.unwrap(),
        InviteUse::Yours
    );
    assert_eq!(
        store.use_invite("i1", "machine-b").await.unwrap(),
        InviteUse::Taken
    );
    assert_eq!(
        store.use_invite("i9", "machine-b").await.unwrap(),
        InviteUse::Unknown
    );
    store.put_invite("i1", &"changed").await.unwrap();
    let found: Option<(String, Option<String>)> = store.invite("i1").await.unwrap();
    assert_eq!(found, Some(("changed".into(), Some("machine-a".into()))));
    let all: Vec<(String, String, Option<String>)> = store.invites().await.unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(all[1], ("i2".into(), "second".into(), None));
    assert!(store.remove_invite("i2").await.unwrap());
    assert!(!store.remove_invite("i2").await.unwrap());
}

// holds: FG-2, B03
pub(super) async fn a_webhook_is_stored_once_and_open_until_a_pass_has_looked(fresh: Fresh) {
    let store = &fresh.store;
    let trigger = Trigger {
        delivery_id: "d".into(),
        body_digest: Digest::of(b"body"),
        event: Event::Push {
            repo: "fleet".into(),
            reference: "refs/heads/main".into(),
            before: "a".into(),
            after: "b".into(),
        },
    };
    assert_eq!(store.put_inbox(&trigger).await.unwrap(), Arrival::Fresh);
    assert_eq!(store.put_inbox(&trigger).await.unwrap(), Arrival::Waiting);
    let other_body = Trigger {
        body_digest: Digest::of(b"other"),
        ..trigger.clone()
    };
    assert_eq!(store.put_inbox(&other_body).await.unwrap(), Arrival::Fresh);
    let open = store.inbox_open().await.unwrap();
    assert_eq!(open.len(), 2);
    assert_eq!(open[0].event, trigger.event);

    // a pass that fails marks nothing
    let moved = Counters {
        epoch: 9,
        ..Counters::default()
    };
    let ids = [open[0].id.clone()];
    store
        .commit(&act(&moved, &moved), &Signed::default(), &[], &ids)
        .await
        .unwrap_err();
    assert_eq!(store.inbox_open().await.unwrap().len(), 2);
    store
        .commit(&nothing(), &Signed::default(), &[], &ids)
        .await
        .unwrap();
    store
        .inbox_handled(std::slice::from_ref(&open[1].id))
        .await
        .unwrap();
    assert!(store.inbox_open().await.unwrap().is_empty());
    assert_eq!(store.put_inbox(&trigger).await.unwrap(), Arrival::Handled);
    assert!(store.in_inbox("d", Digest::of(b"other")).await.unwrap());
    assert!(!store.in_inbox("e", Digest::of(b"other")).await.unwrap());
}

// holds: FG-4
pub(super) async fn an_outbox_row_is_done_once_and_failed_once_for_each_attempt(fresh: Fresh) {
    let store = &fresh.store;
    let now = store.now();
    store.queue_outward("status", "c1", "pending").await.unwrap();
    store.queue_outward("status", "c2", "pending").await.unwrap();
    let due = |rows: &[crate::edge::store::queue::OutboxRow]| {
        rows.iter().map(|r| r.key.clone()).collect::<Vec<_>>()
    };
    // columns hold microseconds
    let later = jiff::Timestamp::from_microsecond(now.as_microsecond() + 60_000_000).unwrap();
    let rows = store.outbox_due(later, 10).await.unwrap();
    assert_eq!(due(&rows), ["c1", "c2"]);
    assert!(store.outbox_due(now, 10).await.unwrap().len() <= 2);

    let failed = [(rows[0].clone(), later)];
    store.outbox_failed(&failed, "the forge is down").await.unwrap();
    store.outbox_failed(&failed, "the forge is down").await.unwrap();
    let open = store.outbox_open().await.unwrap();
    assert_eq!(
        (open[0].attempts, open[0].due_at, open[0].error.as_deref()),
        (1, later, Some("the forge is down"))
    );

    // changed while it was carried out: what was carried out is not what is wanted now
    store.queue_outward("status", "c2", "success").await.unwrap();
    store.outbox_done(&rows[1..]).await.unwrap();
    let open = store.outbox_open().await.unwrap();
    assert_eq!(due(&open), ["c1", "c2"]);
    assert_eq!(open[1].body, "success");
    store.outbox_done(&open[1..]).await.unwrap();
    store.outbox_done(&open[1..]).await.unwrap();
    assert_eq!(due(&store.outbox_open().await.unwrap()), ["c1"]);
    assert_eq!(store.outbox_next_due().await.unwrap(), Some(later));
    store.queue_outward("status", "c2", "again").await.unwrap();
    assert_eq!(store.outbox_open().await.unwrap().len(), 2);
}

pub(super) async fn what_is_remembered_under_a_name_comes_back(fresh: Fresh) {
    let store = &fresh.store;
    assert_eq!(store.meta("fleet").await.unwrap(), None);
    store.set_meta("fleet", "a").await.unwrap();
    store.set_meta("fleet", "b").await.unwrap();
    assert_eq!(store.meta("fleet").await.unwrap().as_deref(), Some("b"));
}
