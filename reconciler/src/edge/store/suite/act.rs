//! What a pass decided, stored and read back.

use std::collections::BTreeSet;
use std::time::Duration;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::Targeting;
use meshplan_schemas::ident::NodeId;
use meshplan_schemas::lifecycle::delivery::State;

use super::Fresh;
use super::fixtures::*;
use crate::edge::store::StoreError;
use crate::edge::store::act::{Cursor, Signed};
use crate::edge::store::orders::OrderKind;
use crate::pure::identities::Left;
use crate::pure::scope::Scope;
use crate::pure::snapshot::{Assignment, ContentRef, Counters, KnownBad, Request, StandingEpoch, Verb};

fn content(text: &str) -> ContentRef {
    ContentRef {
        digest: Digest::of(text.as_bytes()),
        commit: commit(1),
    }
}

fn request(id: &str, n: u8) -> Request {
    Request {
        id: id.into(),
        at: at(0),
        actor: "dana".into(),
        verb: Verb::Go,
        commit: Some(commit(n)),
        until: None,
        why: "looks good".into(),
        start: None,
        by: None,
    }
}

// holds: SG-8
pub(super) async fn what_a_pass_stored_is_what_the_next_one_sees(fresh: Fresh) {
    let store = &fresh.store;
    let web = Scope::Module("web".parse().unwrap());
    let stands = StandingEpoch {
        epoch: 1,
        digest: Digest::of(b"epoch one"),
        targeting: Targeting::everyone(),
        policy: Digest::of(b"policy"),
    };
    let (head, signed_head) = head(1, vec![leaf(1), leaf(2)]);
    let block = block(1, 1);
    let counters = Counters {
        epoch: 1,
        revision: 1,
        sequence: 3,
        order: 1,
        look: 7,
        block: Some(block.mark.clone()),
    };
    let mut act = act(&Counters::default(), &counters);
    act.deliveries = vec![delivery(1, State::Delivering)];
    act.transitions = vec![transition(1, 0)];
    act.orders = vec![head];
    act.contents.insert(Digest::of(b"body"), b"body".to_vec());
    let assignment = Assignment {
        assigned: Some(content("new")),
        proven: Some(content("old")),
        held_back: None,
    };
    act.assignments
        .insert((node(1), web.clone()), Some(assignment.clone()));
    act.accepted.insert(Scope::Policy, content("policy"));
    let bad = KnownBad {
        commit: commit(1),
        since: at(3),
        reason: "web on ace: failed".into(),
        on: [node(1)].into(),
    };
    let bad_key = (web.clone(), Digest::of(b"bad"));
    act.known_bad.insert(bad_key.clone(), Some(bad.clone()));
    act.blocks = vec![unsigned(&block)];
    let left = |node: &str| Left {
        node: Some(node.parse().unwrap()),
        commit: commit(1),
    };
    act.revoked.insert(Digest::of(b"a key"), left("ace"));
    let signed = Signed {
        orders: vec![
            order(OrderKind::Epoch, 1, None, "epoch one"),
            signed_head.clone(),
            order(OrderKind::Declaration, 3, Some(node(1)), "for one"),
            order(OrderKind::Declaration, 3, Some(node(2)), "for two"),
        ],
        blocks: vec![block.clone()],
        epochs_standing: vec![stands.clone()],
        values: [(Digest::of(b"by which it is named"), b"an age file".to_vec())].into(),
    };
    let cursor = Cursor {
        repo: "fleet".into(),
        branch: "main".into(),
        commit: commit(1),
    };
    store.commit(&act, &signed, &[cursor], &[]).await.unwrap();

    let seen = store.snapshot().await.unwrap();
    assert_eq!(seen.counters, counters);
    assert_eq!(seen.term, 1);
    assert_eq!(seen.deliveries[&commit(1)], delivery(1, State::Delivering));
    assert_eq!(seen.accepted[&Scope::Policy], content("policy"));
    assert_eq!(seen.assignments[&(node(1), web)], assignment);
    assert_eq!(seen.epochs, [stands]);
    let head = seen.head.unwrap();
    assert_eq!((head.revision, head.oldest_accepted), (1, 0));
    assert_eq!(head.digest, signed_head.digest);
    assert_eq!(seen.known_bad[&bad_key], bad);
    assert_eq!(*seen.revoked, [(Digest::of(b"a key"), left("ace"))].into());
    assert_eq!(store.revoked().await.unwrap(), *seen.revoked);
    assert_eq!(
        store.content(Digest::of(b"body")).await.unwrap().unwrap(),
        b"body"
    );
    let value = Digest::of(b"by which it is named");
    assert_eq!(store.secret_value(value).await.unwrap().unwrap(), b"an age file");
    assert_eq!(store.secret_value(Digest::of(b"none")).await.unwrap(), None);
    assert_eq!(
        store.transitions_of(&commit(1)).await.unwrap(),
        [transition(1, 0)]
    );
    assert_eq!(store.cursor("fleet", "main").await.unwrap(), Some(commit(1)));
    assert_eq!(store.cursor("fleet", "other").await.unwrap(), None);
    assert_eq!(store.blocks_of(&commit(1)).await.unwrap(), [block]);
}

/// So many that they fill statements of a hundred, of ten and of one.
const MANY: u128 = 231;

// holds: SG-8
pub(super) async fn orders_and_assignments_of_many_nodes_are_all_stored(fresh: Fresh) {
    let store = &fresh.store;
    let web = Scope::Module("web".parse().unwrap());
    let (none, after) = (Counters::default(), Counters::default());
    let mut act = act(&none, &after);
    let mut signed = Signed::default();
    for n in 0..MANY {
        let text = format!("order of {n}");
        let assignment = Assignment {
            assigned: Some(content(&text)),
            ..Assignment::default()
        };
        act.assignments.insert((node(n), web.clone()), Some(assignment));
        act.contents
            .insert(Digest::of(text.as_bytes()), text.clone().into_bytes());
        signed
            .orders
            .push(order(OrderKind::Declaration, 3, Some(node(n)), &text));
    }
    // Stored twice it is stored once.
    for _ in 0..2 {
        store.commit(&act, &signed, &[], &[]).await.unwrap();
    }
    let seen = store.snapshot().await.unwrap();
    for n in 0..MANY {
        let text = format!("order of {n}");
        let digest = Digest::of(text.as_bytes());
        let assigned = seen.assignments[&(node(n), web.clone())].assigned.clone();
        assert_eq!(assigned.unwrap().digest, digest);
        assert_eq!(
            store.content(digest).await.unwrap().as_deref(),
            Some(text.as_bytes())
        );
        let stored = store.newest_declaration(node(n)).await.unwrap();
        assert_eq!(stored.unwrap().envelope, text);
    }
    // One of them with other bytes, and nothing of the act is stored.
    signed.orders[107].envelope.push('!');
    signed
        .orders
        .push(order(OrderKind::Declaration, 4, Some(node(1)), "newer"));
    let refused = store.commit(&act, &signed, &[], &[]).await.unwrap_err();
    assert!(matches!(refused, StoreError::NumberReused { number: 3, .. }));
    let newest = store.newest_declaration(node(1)).await.unwrap().unwrap();
    assert_eq!(newest.number, 3);
}

// holds: SG-8
pub(super) async fn an_act_that_was_decided_on_old_numbers_stores_nothing(fresh: Fresh) {
    let store = &fresh.store;
    let none = Counters::default();
    let one = Counters {
        order: 1,
        ..Counters::default()
    };
    let mut first = act(&none, &one);
    first.deliveries = vec![delivery(1, State::Proposed)];
    store.commit(&first, &Signed::default(), &[], &[]).await.unwrap();

    let mut second = act(&none, &one);
    second.deliveries = vec![delivery(2, State::Proposed)];
    let error = store
        .commit(&second, &Signed::default(), &[], &[])
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the numbers have moved since the decision was made (order is 1, expected 0); decide again"
    );
    assert!(error.is_passing());
    assert!(store.delivery(&commit(2)).await.unwrap().is_none());

    let with_block = Counters {
        block: Some(block(1, 1).mark),
        ..one.clone()
    };
    let error = store
        .commit(&act(&with_block, &with_block), &Signed::default(), &[], &[])
        .await;
    assert!(
        matches!(error, Err(StoreError::Moved { counter: "block", .. })),
        "{error:?}"
    );
    store
        .commit(&act(&one, &with_block), &Signed::default(), &[], &[])
        .await
        .unwrap();
    assert_eq!(store.snapshot().await.unwrap().counters, with_block);
}

// holds: SG-8
pub(super) async fn a_number_is_never_used_twice_with_other_bytes(fresh: Fresh) {
    let store = &fresh.store;
    let none = Counters::default();
    let signed = |kind, of, text: &str| Signed {
        orders: vec![order(kind, 5, of, text)],
        ..Signed::default()
    };
    for (kind, of) in [
        (OrderKind::Epoch, None),
        (OrderKind::Head, None),
        (OrderKind::Declaration, Some(node(1))),
    ] {
        let act = act(&none, &none);
        store
            .commit(&act, &signed(kind, of, "bytes"), &[], &[])
            .await
            .unwrap();
        store
            .commit(&act, &signed(kind, of, "bytes"), &[], &[])
            .await
            .expect("the same bytes again are fine");
        let error = store
            .commit(&act, &signed(kind, of, "others"), &[], &[])
            .await
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{kind} 5 is stored already with other bytes; a number is never used twice, so nothing was stored"
            )
        );
    }
    // one sequence for several nodes is one order (SG-4)
    let other = signed(OrderKind::Declaration, Some(node(2)), "others");
    store.commit(&act(&none, &none), &other, &[], &[]).await.unwrap();

    let with = |block| Signed {
        blocks: vec![block],
        ..Signed::default()
    };
    store
        .commit(&act(&none, &none), &with(block(1, 1)), &[], &[])
        .await
        .unwrap();
    let mut forged = block(1, 1);
    forged.text.push('x');
    let error = store.commit(&act(&none, &none), &with(forged), &[], &[]).await;
    assert!(
        matches!(
            error,
            Err(StoreError::NumberReused {
                kind: "journal block",
                number: 1
            })
        ),
        "{error:?}"
    );
}

// holds: DL-10, FG-4, B48
pub(super) async fn a_block_and_its_queued_note_are_one_transaction(fresh: Fresh) {
    let store = &fresh.store;
    let none = Counters::default();
    let signed = Signed {
        blocks: vec![block(1, 1), block(2, 1)],
        ..Signed::default()
    };
    store.commit(&act(&none, &none), &signed, &[], &[]).await.unwrap();
    let rows = store.outbox_open().await.unwrap();
    let keys: Vec<_> = rows
        .iter()
        .map(|r| (r.kind.as_str(), r.key.as_str(), r.body.as_str()))
        .collect();
    assert_eq!(
        keys,
        [
            ("notes", "1", commit(1).as_str()),
            ("notes", "2", commit(1).as_str())
        ]
    );
    assert_eq!(store.unwritten_blocks().await.unwrap().len(), 2);

    // a transaction that fails leaves neither
    let mut failing = signed.clone();
    failing.blocks = vec![block(3, 1)];
    let moved = Counters {
        epoch: 9,
        ..Counters::default()
    };
    store
        .commit(&act(&moved, &moved), &failing, &[], &[])
        .await
        .unwrap_err();
    assert_eq!(store.outbox_open().await.unwrap().len(), 2);
    assert_eq!(store.unwritten_blocks().await.unwrap().len(), 2);

    store.blocks_written(&[1]).await.unwrap();
    store.blocks_written(&[1]).await.unwrap();
    assert_eq!(store.unwritten_blocks().await.unwrap(), [block(2, 1)]);
}

// holds: SG-8
pub(super) async fn a_pass_that_is_dropped_half_way_leaves_all_or_nothing(fresh: Fresh) {
    let store = &fresh.store;
    let (mut whole, mut dropped) = (0, 0);
    for patience in 0..200 {
        let before = store.snapshot().await.unwrap().counters;
        let number = before.block.as_ref().map_or(1, |b| b.number + 1);
        let block = block(number, 1);
        let mut after = before.clone();
        after.order += 1;
        after.block = Some(block.mark.clone());
        let mut act = act(&before, &after);
        let mut delivery = delivery(1, State::Proposed);
        delivery.commit = format!("{number:040x}").parse().unwrap();
        delivery.order = after.order;
        act.deliveries = vec![delivery];
        let signed = Signed {
            blocks: vec![block],
            ..Signed::default()
        };
        let impatient = async {
            for _ in 0..patience {
                tokio::time::sleep(Duration::from_micros(10)).await;
            }
        };
        tokio::select! {
            biased;
            stored = store.commit(&act, &signed, &[], &[]) => { stored.unwrap(); whole += 1; }
            () = impatient => dropped += 1,
        }
        // the next writer comes after what was dropped, whichever way that ended
        store.set_meta("settled", "yes").await.unwrap();
        let seen = store.snapshot().await.unwrap();
        let blocks = store.unwritten_blocks().await.unwrap().len() as u64;
        assert_eq!(seen.counters.block.as_ref().map_or(0, |b| b.number), blocks);
        assert_eq!(seen.counters.order, blocks);
        assert_eq!(store.deliveries(1000).await.unwrap().len() as u64, blocks);
        assert_eq!(store.outbox_open().await.unwrap().len() as u64, blocks);
        if whole > 3 {
            break;
        }
    }
    assert!(whole > 0 && dropped > 0, "{whole} whole, {dropped} dropped");
}

// holds: DL-4
pub(super) async fn an_answer_wakes_who_waits_for_it(fresh: Fresh) {
    let store = &fresh.store;
    store.add_request(&request("r1", 1)).await.unwrap();
    store.add_request(&request("r1", 1)).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().requests, [request("r1", 1)]);
    let early = store.wait_answer("r1", Duration::from_millis(10)).await.unwrap();
    assert_eq!(early, None);

    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { store.wait_answer("r1", Duration::from_secs(20)).await })
    };
    let none = Counters::default();
    let mut answering = act(&none, &none);
    answering.answers = vec![("r1".into(), "goes on".into())];
    store
        .commit(&answering, &Signed::default(), &[], &[])
        .await
        .unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().as_deref(), Some("goes on"));
    assert!(store.snapshot().await.unwrap().requests.is_empty());
    answering.answers = vec![("r1".into(), "another".into())];
    store
        .commit(&answering, &Signed::default(), &[], &[])
        .await
        .unwrap();
    assert_eq!(store.answer("r1").await.unwrap().as_deref(), Some("goes on"));
}

pub(super) async fn what_is_lifted_or_taken_away_is_gone(fresh: Fresh) {
    let store = &fresh.store;
    let none = Counters::default();
    let key = (Scope::Policy, Digest::of(b"bad"));
    let place = (node(1), Scope::Module("web".parse().unwrap()));
    let mut put = act(&none, &none);
    put.known_bad.insert(
        key.clone(),
        Some(KnownBad {
            commit: commit(1),
            since: at(0),
            reason: "bad".into(),
            on: BTreeSet::new(),
        }),
    );
    put.assignments.insert(place.clone(), Some(Assignment::default()));
    let standing = |epoch| StandingEpoch {
        epoch,
        digest: Digest::of(b""),
        targeting: Targeting::everyone(),
        policy: Digest::of(b""),
    };
    let signed = Signed {
        epochs_standing: vec![standing(2), standing(1)],
        ..Signed::default()
    };
    store.commit(&put, &signed, &[], &[]).await.unwrap();
    let seen = store.snapshot().await.unwrap();
    assert_eq!(
        (seen.known_bad.len(), seen.assignments.len(), seen.epochs.len()),
        (1, 1, 2)
    );

    let mut lift = act(&none, &none);
    lift.known_bad.insert(key, None);
    lift.assignments.insert(place, None);
    store.commit(&lift, &Signed::default(), &[], &[]).await.unwrap();
    let seen = store.snapshot().await.unwrap();
    assert!(seen.known_bad.is_empty() && seen.assignments.is_empty());
    assert_eq!(
        seen.epochs,
        [standing(2), standing(1)],
        "an act without epochs leaves those that stand"
    );
    let signed = Signed {
        epochs_standing: vec![standing(3)],
        ..Signed::default()
    };
    store.commit(&act(&none, &none), &signed, &[], &[]).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().epochs, [standing(3)]);
}

pub(super) async fn assignments_in_memory_are_those_of_the_database_whoever_wrote_them(fresh: Fresh) {
    let store = &fresh.store;
    let none = Counters::default();
    let web = Scope::Module("web".parse().unwrap());
    let place = |n| (node(n), web.clone());
    let of = |text: &str| Assignment {
        assigned: Some(content(text)),
        proven: None,
        held_back: None,
    };
    let mut put = act(&none, &none);
    put.assignments.insert(place(1), Some(of("one")));
    put.assignments.insert(place(2), Some(of("two")));
    let first = store.commit(&put, &Signed::default(), &[], &[]).await.unwrap();
    let before = store.snapshot().await.unwrap();
    assert_eq!(before.changes, first.after);

    // An act of ours: the snapshot that was read before it stays as it was.
    let mut change = act(&none, &none);
    change.assignments.insert(place(1), Some(of("newer")));
    change.assignments.insert(place(2), None);
    let changed = store.commit(&change, &Signed::default(), &[], &[]).await.unwrap();
    assert_eq!(changed.before, first.after);
    assert_eq!(
        *before.assignments,
        [(place(1), of("one")), (place(2), of("two"))].into()
    );
    let seen = store.snapshot().await.unwrap();
    assert_eq!(*seen.assignments, [(place(1), of("newer"))].into());
    let again = store.snapshot().await.unwrap();
    assert!(
        std::sync::Arc::ptr_eq(&seen.assignments, &again.assignments),
        "it was read twice"
    );
    drop((before, seen, again));

    // Somebody else, by another connection: a row, a change, a removal.
    let other = sqlx::SqlitePool::connect(&format!(
        "sqlite://{}",
        fresh.folder.path().join("state/meshplan.db").display()
    ))
    .await
    .unwrap();
    let doc = serde_json::to_string(&of("theirs")).unwrap();
    for (sql, expected) in [
        ("UPDATE assignments SET doc = $1", vec![(place(1), of("theirs"))]),
        (
            "INSERT INTO assignments (node, scope, doc) SELECT \
             '00000000-0000-0000-0000-0000000000ff', scope, $1 FROM assignments",
            vec![
                (place(1), of("theirs")),
                ((NodeId(uuid::Uuid::from_u128(0xff)), web.clone()), of("theirs")),
            ],
        ),
        ("DELETE FROM assignments WHERE doc = $1", vec![]),
    ] {
        sqlx::query(sql).bind(&doc).execute(&other).await.unwrap();
        let seen = store.snapshot().await.unwrap();
        assert_eq!(*seen.assignments, expected.into_iter().collect(), "{sql}");
    }
}

pub(super) async fn after_an_act_that_was_not_stored_the_assignments_are_read_again(fresh: Fresh) {
    let store = &fresh.store;
    let none = Counters::default();
    let place = (node(1), Scope::Policy);
    let mut put = act(&none, &none);
    put.assignments.insert(place.clone(), Some(Assignment::default()));
    store.commit(&put, &Signed::default(), &[], &[]).await.unwrap();
    let known = store.snapshot().await.unwrap();
    // A transition of a delivery that is not there: refused after the assignments were written.
    let mut refused = act(&none, &none);
    refused.assignments.insert(place.clone(), None);
    refused.transitions = vec![transition(9, 0)];
    store
        .commit(&refused, &Signed::default(), &[], &[])
        .await
        .unwrap_err();
    let seen = store.snapshot().await.unwrap();
    assert_eq!(
        (&seen.assignments, seen.changes),
        (&known.assignments, known.changes)
    );
}
