//! Envelopes that are taken.

use data_encoding::BASE64URL;
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::{Digest, canonical};
use meshplan_schemas::envelope::{Payload as _, pae};
use meshplan_schemas::epoch::{Epoch, InForce, Targeting};
use meshplan_schemas::fleet_list::FleetHead;
use meshplan_schemas::report::{Mark, Report};
use serde_json::{Value, json};

use crate::make::*;

fn vector(
    name: &'static str,
    why: &'static str,
    keys: Keys,
    envelope: Vec<u8>,
    by: &[&'static str],
) -> Vector {
    Vector {
        name,
        why,
        envelope,
        keys,
        verdict: taken(),
        signed_by: Some(by.to_vec()),
    }
}

pub(crate) fn vectors() -> Vec<Vector> {
    let author = &[AUTHOR.id];
    let mut all = vec![
        vector(
            "ok-epoch",
            "a first epoch",
            knows("epoch"),
            sealed(&epoch(7), AUTHOR),
            author,
        ),
        vector(
            "ok-declaration",
            "a first declaration",
            knows("declaration"),
            sealed(&declaration(12), AUTHOR),
            author,
        ),
        vector(
            "ok-fleet-list",
            "a head",
            knows("fleet-list"),
            sealed(&head(3), AUTHOR),
            author,
        ),
        vector(
            "ok-timestamp",
            "signed by a timestamp key, not by an author",
            knows("timestamp"),
            sealed(&timestamp(1_750_000_000), CLOCK),
            &[CLOCK.id],
        ),
        vector(
            "ok-report",
            "signed by the node's own key",
            knows("report"),
            sealed_bytes(Report::TYPE, &canonical(&report()).unwrap(), NODE),
            &[NODE.id],
        ),
    ];
    all.extend(forms());
    all.extend(numbers());
    all
}

/// The same envelope in other clothes.
fn forms() -> Vec<Vector> {
    let author = &[AUTHOR.id];
    let bytes = canonical(&epoch(7)).unwrap();
    let message = pae(Epoch::TYPE, &bytes);
    let signature = AUTHOR.sign(&message);
    let two = [
        (STRANGER.id, STRANGER.sign(&message)),
        (AUTHOR.id, signature.clone()),
    ];
    let mut url: Value = serde_json::from_slice(&sealed(&epoch(7), AUTHOR)).unwrap();
    url["payload"] = BASE64URL.encode(&bytes).into();
    url["signatures"][0]["sig"] = BASE64URL.encode(&signature).into();
    let mut grown = serde_json::to_value(epoch(7)).unwrap();
    grown["colour"] = "of a newer build".into();
    let pretty = serde_json::to_vec_pretty(&epoch(7)).unwrap();
    let mut second = head(3);
    second.authors.push(SECOND.author());
    second.threshold = 2;
    let second = canonical(&second).unwrap();
    let message = pae(FleetHead::TYPE, &second);
    let both = [
        (AUTHOR.id, AUTHOR.sign(&message)),
        (SECOND.id, SECOND.sign(&message)),
    ];
    let mut two_authors = knows("fleet-list");
    two_authors.authors.push(SECOND.named());
    two_authors.threshold = 2;
    vec![
        vector(
            "ok-stranger-signs-too",
            "a signature of nobody beside an author's takes nothing away",
            knows("epoch"),
            envelope(Epoch::TYPE, &bytes, &two),
            author,
        ),
        vector(
            "ok-other-key-id",
            "key ids prove nothing: an author's signature counts whatever name it bears",
            knows("epoch"),
            envelope(Epoch::TYPE, &bytes, &[("somebody", signature)]),
            author,
        ),
        vector(
            "ok-url-safe-base64",
            "DSSE takes both alphabets of base64",
            knows("epoch"),
            serde_json::to_vec(&url).unwrap(),
            author,
        ),
        vector(
            "ok-unknown-field",
            "a field of a newer build that need not be understood is ignored",
            knows("epoch"),
            sealed_bytes(Epoch::TYPE, &canonical(&grown).unwrap(), AUTHOR),
            author,
        ),
        vector(
            "ok-not-canonical",
            "the signature covers the bytes that are there; nothing is encoded again to check it",
            knows("epoch"),
            sealed_bytes(Epoch::TYPE, &pretty, AUTHOR),
            author,
        ),
        vector(
            "ok-two-of-two",
            "a head that two authors must sign, signed by both",
            two_authors,
            envelope(FleetHead::TYPE, &second, &both),
            &[AUTHOR.id, SECOND.id],
        ),
    ]
}

/// Numbers beside the marks.
fn numbers() -> Vec<Vector> {
    let author = &[AUTHOR.id];
    let bytes = canonical(&epoch(7)).unwrap();
    let mut same = knows("epoch");
    same.marks.epoch = Some(mark(7, &bytes));
    let mut duplicate = vector(
        "ok-duplicate",
        "the number that is the mark, with the same bytes: silently fine, nothing to do",
        same,
        sealed(&epoch(7), AUTHOR),
        author,
    );
    duplicate.verdict.duplicate = true;

    let mut newer = knows("epoch");
    newer.marks.epoch = Some(mark(9, b"epoch 9"));
    newer.in_force = vec![InForce {
        epoch: 7,
        digest: Digest::of(&bytes),
        targeting: Targeting::everyone(),
    }];
    let mut standing = vector(
        "ok-in-force",
        "below the mark, but the newest seen epoch names it with its digest as in force",
        newer,
        sealed(&epoch(7), AUTHOR),
        author,
    );
    standing.verdict.in_force = true;

    let mut era = head(1);
    era.era = 2;
    let mut zero = knows("declaration");
    zero.marks.sequence = None;
    let mut first: Value = serde_json::to_value(declaration(0)).unwrap();
    first["left_out"] = json!([]);
    let mut jump = knows("declaration");
    jump.marks.sequence = Some(Mark {
        number: 1,
        digest: Digest::of(b"the first"),
    });
    vec![
        duplicate,
        standing,
        vector(
            "ok-first-era",
            "the first list that is taken says which era it is",
            knows("fleet-list"),
            sealed(&era, AUTHOR),
            author,
        ),
        vector(
            "ok-sequence-zero",
            "claims no order; taken by a host that has kept none",
            zero,
            sealed_bytes(Declaration::TYPE, &canonical(&first).unwrap(), AUTHOR),
            author,
        ),
        vector(
            "ok-longest-jump",
            "a million above the mark is still believed",
            jump,
            sealed(&declaration(1_000_001), AUTHOR),
            author,
        ),
    ]
}
