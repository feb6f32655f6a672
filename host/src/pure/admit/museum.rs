//! Orders that must be refused, each with the words that a person reads.

use super::*;
use crate::pure::sample;
use meshplan_schemas::epoch::Targeting;

/// A host that has verified list 1, epoch 5 and sequence 5, and judges.
struct Court {
    orders: Orders,
    marks: Marks,
    anchor: Option<Anchor>,
    marks_lost: bool,
    source: Source,
    now: i64,
    trusted_now: Option<i64>,
}

impl Court {
    fn new() -> Self {
        let (head, _) = sample::head(1, &[1]);
        let mut orders = Orders {
            head: Some(sample::kept(&head)),
            declaration: Some(sample::kept(&sample::declaration(5, &[]))),
            timestamp: Some(sample::kept(&sample::timestamp(500, 2000))),
            ..Orders::default()
        };
        let epoch = sample::kept(&epoch(5));
        orders.epochs.insert(epoch.digest, epoch);
        Self {
            marks: orders.rebuilt_marks(),
            anchor: Some(Anchor::of(&head)),
            orders,
            marks_lost: false,
            source: Source::Session,
            now: 1000,
            trusted_now: Some(1000),
        }
    }
    fn admit(&self, text: &str) -> Admission {
        admit(
            text,
            &Bench {
                fleet: &"shop".parse().unwrap(),
                node: sample::NODE,
                version: &Version::new(0, 1, 0),
                marks: &self.marks,
                marks_lost: self.marks_lost,
                anchor: self.anchor.as_ref(),
                orders: &self.orders,
                source: self.source,
                now: self.now,
                trusted_now: self.trusted_now,
            },
        )
    }
    /// The code and the words of a refusal.
    fn refusal(&self, text: &str) -> (String, String) {
        match self.admit(text) {
            Admission::Refused(refused) => (refused.code().to_owned(), refused.reason()),
            other => panic!("taken: {other:?}"),
        }
    }
}

fn epoch(number: u64) -> Epoch {
    sample::epoch(number, "", Targeting::everyone(), vec![])
}

// holds: SG-5
#[test]
fn each_defect_is_refused_with_its_words() {
    let court = Court::new();
    let good = sample::declaration(6, &[]);
    assert!(matches!(
        court.admit(&sample::text(&good)),
        Admission::Declaration(_)
    ));

    let other_fleet = {
        let mut d = good.clone();
        d.fleet = "bakery".parse().unwrap();
        sample::text(&d)
    };
    let other_node = {
        let mut d = good.clone();
        d.node = sample::OTHER_NODE;
        sample::text(&d)
    };
    let too_new = {
        let mut d = good.clone();
        d.min_host_version = Some(Version::new(9, 9, 9));
        sample::text(&d)
    };
    let ahead = {
        let mut d = good.clone();
        d.issued_at = 1000 + 2 * 86_400;
        sample::text(&d)
    };
    let conflict = {
        let mut d = sample::declaration(5, &[]);
        d.confirm_secs = 61;
        sample::text(&d)
    };
    let not_policy = sample::text(&sample::epoch(
        6,
        "[base.identity]\n",
        Targeting::everyone(),
        vec![],
    ));
    let cases = [
        ("{", "malformed", "not a DSSE envelope"),
        (
            &sample::text_by(&good, 2),
            "unknown_author",
            "signed by `author-2`, who is no author of this fleet",
        ),
        (
            &other_fleet,
            "other_fleet",
            "an order of the fleet `bakery`, this is `shop`",
        ),
        (
            &other_node,
            "other_node",
            "a declaration for the node 00000000-0000-0000-0000-000000000002",
        ),
        (&too_new, "old_version", "needs version 9.9.9, this is 0.1.0"),
        (&ahead, "fast_forward", "ahead of this clock"),
        (
            &conflict,
            "conflict",
            "sequence 5 was verified before with other bytes",
        ),
        (
            &sample::text(&sample::declaration(4, &[])),
            "replayed",
            "sequence 4 is older than 5, the highest verified",
        ),
        (
            &sample::text(&sample::declaration(0, &[])),
            "no_order",
            "this one keeps 5",
        ),
        (
            &sample::text(&sample::declaration(2_000_000, &[])),
            "fast_forward",
            "a fast-forward is not believed",
        ),
        (
            &sample::text(&epoch(4)),
            "replayed",
            "epoch 4 is older than 5, the highest verified",
        ),
        (&not_policy, "policy", "`identity` is not policy"),
        (
            &sample::text(&sample::timestamp(499, 2000)),
            "replayed",
            "timestamp 499 is older than 500",
        ),
        (
            &sample::text(&sample::head(2, &[]).0),
            "drops_all_authors",
            "the list names no author",
        ),
        (
            &sample::text_by(&sample::head(2, &[2]).0, 2),
            "unknown_author",
            "signed by `author-2`",
        ),
    ];
    for (text, code, words) in cases {
        let (found, said) = court.refusal(text);
        assert_eq!(found, code, "{said}");
        assert!(said.contains(words), "{said:?} does not say {words:?}");
    }
}

// holds: SG-5
#[test]
fn one_byte_flipped_anywhere_in_an_envelope_is_never_taken_for_another_order() {
    let court = Court::new();
    let good = sample::text(&sample::declaration(6, &[("web", "web-1")]));
    let Admission::Declaration(original) = court.admit(&good) else {
        panic!("the good one is refused")
    };
    for place in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[place] ^= 1;
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        match court.admit(&text) {
            Admission::Refused(refused) => assert!(!refused.authentic),
            // A key id proves nothing and is not covered by the signature.
            Admission::Declaration(kept) => assert_eq!(kept.digest, original.digest, "byte {place}"),
            other => panic!("byte {place}: {other:?}"),
        }
    }
}

// holds: SG-5, HR-15
#[test]
fn with_both_marks_lost_orders_count_only_inside_a_session() {
    let mut court = Court::new();
    court.marks_lost = true;
    let text = sample::text(&sample::declaration(6, &[]));
    assert!(matches!(court.admit(&text), Admission::Declaration(_)));
    court.source = Source::Hand;
    assert_eq!(court.refusal(&text).0, "marks_lost");
}

// holds: SG-9
#[test]
fn with_a_stale_timestamp_a_declaration_counts_only_inside_a_session_and_an_epoch_anywhere() {
    let mut court = Court::new();
    court.now = 2001;
    let declaration = sample::text(&sample::declaration(6, &[]));
    assert!(matches!(court.admit(&declaration), Admission::Declaration(_)));
    court.source = Source::Hand;
    assert_eq!(court.refusal(&declaration).0, "stale");
    assert!(matches!(
        court.admit(&sample::text(&epoch(6))),
        Admission::Epoch(_)
    ));
}

// holds: SG-5, HR-15
#[test]
fn a_host_that_lost_everything_takes_a_list_from_a_session_and_nothing_from_a_hand() {
    let mut court = Court::new();
    (court.orders, court.anchor, court.marks) = (Orders::default(), None, Marks::default());
    court.marks_lost = true;
    assert_eq!(court.refusal(&sample::text(&epoch(6))).0, "no_trust");
    let head = sample::text(&sample::head(2, &[1]).0);
    assert!(matches!(court.admit(&head), Admission::Head(_)));
    let forged = sample::text_by(&sample::head(2, &[1]).0, 2);
    assert_eq!(court.refusal(&forged).0, "unknown_author");
    court.source = Source::Hand;
    assert_eq!(court.refusal(&head).0, "marks_lost");
}

// holds: SG-12
#[test]
fn what_was_verified_before_is_taken_again_when_the_disk_lost_it_though_its_author_has_left() {
    let mut court = Court::new();
    let text = court.orders.declaration.take().unwrap().text;
    let (head, _) = sample::head(2, &[3]);
    court.orders.head = Some(Kept::read(sample::text(&head)).unwrap());
    court.anchor = Some(Anchor::of(&head));
    assert!(matches!(court.admit(&text), Admission::Declaration(_)));
    let another = sample::text(&sample::declaration(6, &[]));
    assert_eq!(court.refusal(&another).0, "unknown_author");
}

// holds: SG-3, SG-5
#[test]
fn a_head_that_follows_another_one_than_is_held_is_a_conflict() {
    let court = Court::new();
    let (mut head, _) = sample::head(2, &[1]);
    head.previous = Some(sample::digest("another first list"));
    let (code, words) = court.refusal(&sample::text(&head));
    assert_eq!(code, "conflict");
    assert!(words.contains("revision 2 names another head"), "{words}");
    head.previous = Some(court.orders.head.as_ref().unwrap().digest);
    assert!(matches!(court.admit(&sample::text(&head)), Admission::Head(_)));
}

// holds: SG-5
#[test]
fn known_bytes_are_a_duplicate() {
    let court = Court::new();
    assert_eq!(
        court.admit(&sample::text(&sample::declaration(5, &[]))),
        Admission::Duplicate
    );
    assert_eq!(court.admit(&sample::text(&epoch(5))), Admission::Duplicate);
    assert_eq!(
        court.admit(&sample::text(&sample::head(1, &[1]).0)),
        Admission::Duplicate
    );
}

// holds: SG-3
#[test]
fn a_record_counts_only_with_a_proof_against_the_head_that_is_held() {
    let (head, proof) = sample::head(1, &[1]);
    assert_eq!(
        record(&proof, Some(&head), sample::NODE).unwrap().id,
        sample::NODE
    );
    let code =
        |proof: &ProvenLeaf, head: Option<&FleetHead>, own| record(proof, head, own).unwrap_err().code();
    assert_eq!(code(&proof, None, sample::NODE), "no_trust");
    assert_eq!(
        code(&proof, Some(&sample::head(2, &[1]).0), sample::NODE),
        "proof"
    );
    assert_eq!(code(&proof, Some(&head), sample::OTHER_NODE), "other_node");
    let mut raised = proof.clone();
    raised.leaf = raised.leaf.replace("\"pinned\":false", "\"pinned\":true");
    assert_ne!(raised.leaf, proof.leaf);
    assert_eq!(code(&raised, Some(&head), sample::NODE), "proof");
}
