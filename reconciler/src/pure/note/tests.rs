use std::collections::BTreeMap;

use meshplan_schemas::envelope::{Signer as _, SoftSigner};
use meshplan_schemas::key::SigningKey;
use proptest::prelude::*;

use super::*;

fn commit(n: u8) -> CommitId {
    format!("{n:02x}").repeat(20).parse().unwrap()
}

fn signer(seed: u8) -> SoftSigner {
    SoftSigner::new(Some(KeyId("reconciler-2026".to_owned())), &[seed; 32]).unwrap()
}

fn signed(block: &Block, by: &SoftSigner) -> String {
    let text = block.text();
    seal(&text, &by.key_id(), &by.sign(&signed_bytes(&text)).unwrap())
}

fn block(number: u64, prev: Option<&Block>, on: u8) -> Block {
    Block {
        number,
        prev: prev.map(Block::digest),
        term: 1,
        commit: commit(on),
        at: "2026-10-06T23:05:28Z".parse().unwrap(),
        from: Some(State::Proposed),
        to: State::Held,
        code: Code::MergedUnchecked,
        actor: "forge".to_owned(),
        reason: "merged without a passing check".to_owned(),
        trailers: vec![(
            "Delivery".to_owned(),
            format!("acme/fleet@{}", commit(on).short()),
        )],
        elided: None,
    }
}

fn keys() -> Vec<(KeyId, SigningKey)> {
    let signer = signer(1);
    vec![(signer.key_id(), signer.public())]
}

/// A journal of `n` blocks, two to a commit.
fn journal(n: u64) -> (Vec<Block>, BTreeMap<CommitId, String>) {
    let mut chain: Vec<Block> = Vec::new();
    let mut notes: BTreeMap<CommitId, String> = BTreeMap::new();
    for number in 1..=n {
        let on = u8::try_from(number.div_ceil(2)).unwrap();
        let next = block(number, chain.last(), on);
        let note = notes.entry(next.commit.clone()).or_default();
        *note = append(note, &signed(&next, &signer(1))).unwrap();
        chain.push(next);
    }
    (chain, notes)
}

// holds: DL-9
#[test]
fn a_block_reads_as_the_page_says() {
    let block = block(7, None, 0xab);
    let expected =
        "2026-10-06T23:05:28Z proposed -> held (merged-unchecked) by forge: merged without a passing check
Delivery: acme/fleet@abababababab
Block: 7
Prev: none
Term: 1
Commit: abababababababababababababababababababab
";
    assert_eq!(block.text(), expected);
    let whole = signed(&block, &signer(1));
    assert_eq!(whole.lines().count(), 7);
    assert!(whole.lines().last().unwrap().starts_with("Sig: reconciler-2026 "));
}

// holds: DL-9
#[test]
fn a_transition_becomes_the_block_that_the_act_carries() {
    let transition = Transition {
        commit: commit(1),
        seq: 0,
        at: "2026-10-06T23:05:28.123456Z".parse().unwrap(),
        from: None,
        to: State::Proposed,
        code: Code::Announced,
        actor: "forge".to_owned(),
        reason: "the commit is known".to_owned(),
        facts: vec![
            ("List Revision".to_owned(), "12".to_owned()),
            ("Sig".to_owned(), "x".to_owned()),
        ],
    };
    let unsigned = Block::of_transition(&transition, 1, None, 3).unsigned();
    assert!(
        unsigned.text.starts_with(
            "2026-10-06T23:05:28Z (new) -> proposed (announced) by forge: the commit is known\nList-Revision: 12\nX-Sig: x\n"
        ),
        "{}",
        unsigned.text
    );
    assert_eq!(unsigned.mark.digest, Digest::of(unsigned.text.as_bytes()));
    assert_eq!(unsigned.commit, commit(1));
}

// holds: DL-9
#[test]
fn a_reason_cannot_forge_a_line() {
    let mut hostile = block(1, None, 1);
    hostile.reason =
        "fine\nBlock: 9\nSig: a b\n\n2026-10-06T23:05:28Z (new) -> proposed (announced) by x: y".to_owned();
    hostile.actor = "mallory: by forge: \u{202e}".to_owned();
    let text = signed(&hostile, &signer(1));
    let read = blocks(&text);
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].block, hostile);
    assert_eq!(text.lines().count(), 7, "{text}");
}

// holds: DL-9
#[test]
fn text_that_others_wrote_is_kept_where_it_stands() {
    let one = block(1, None, 1);
    let two = block(2, Some(&one), 1);
    let note = format!(
        "Reviewed by Dana\n\n{}\nand so on\r\nBlock: 3\n\n{}\nlast words without an end",
        signed(&one, &signer(1)),
        signed(&two, &signer(1))
    );
    let pieces = parse(&note);
    assert_eq!(pieces.iter().map(Piece::raw).collect::<String>(), note);
    assert_eq!(
        blocks(&note).iter().map(|b| b.block.number).collect::<Vec<_>>(),
        [1, 2]
    );
}

#[test]
fn a_block_with_anything_changed_is_no_block_or_not_signed() {
    let text = signed(&block(1, None, 1), &signer(1));
    for i in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[i] = if bytes[i] == b'1' { b'2' } else { b'1' };
        if bytes == text.as_bytes() {
            continue;
        }
        let changed = String::from_utf8(bytes).unwrap();
        let notes = BTreeMap::from([(commit(1), changed.clone())]);
        let believed = blocks(&changed).len() == 1 && verify(&notes, &keys(), None).is_empty();
        assert!(!believed, "byte {i} changed and nobody noticed: {changed}");
    }
}

// holds: DL-10
#[test]
fn appending_twice_changes_nothing() {
    let one = signed(&block(1, None, 1), &signer(1));
    let note = append("", &one).unwrap();
    assert_eq!(append(&note, &one), None);
    let theirs = append("a word of mine", &one).unwrap();
    assert!(theirs.starts_with("a word of mine\n\n2026"), "{theirs}");
}

// holds: DL-10
#[test]
fn a_merge_is_the_union_in_the_order_of_the_numbers() {
    let one = block(1, None, 1);
    let two = block(2, Some(&one), 1);
    let three = block(3, Some(&two), 1);
    let texts: Vec<_> = [&one, &two, &three].map(|b| signed(b, &signer(1))).into();
    let ours = append(&append("mine", &texts[0]).unwrap(), &texts[2]).unwrap();
    let theirs = append(&append("", &texts[0]).unwrap(), &texts[1]).unwrap() + "\nhis\n";
    let merged = merge(&ours, &theirs);
    assert_eq!(
        blocks(&merged).iter().map(|b| b.block.number).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert!(merged.contains("mine\n") && merged.contains("his\n"), "{merged}");
    assert_eq!(merge(&merged, &ours), merged);
    assert_eq!(merge(&merged, &theirs), merged);
    assert_eq!(merge(&ours, ""), ours);
}

// holds: DL-9
#[test]
fn a_whole_journal_has_no_problems() {
    let (chain, notes) = journal(9);
    assert_eq!(verify(&notes, &keys(), Some(&chain[8].mark())), []);
}

// holds: DL-9
#[test]
fn a_cut_a_gap_a_forgery_and_a_carried_block_are_each_named() {
    let (chain, whole) = journal(9);
    let mut cut = whole.clone();
    cut.remove(&commit(5));
    let cut = verify(&cut, &keys(), Some(&chain[8].mark()));
    assert!(matches!(cut[..], [NoteProblem::Cut { number: 9, .. }]), "{cut:?}");

    let mut gap = whole.clone();
    gap.remove(&commit(2));
    let gap = verify(&gap, &keys(), None);
    assert!(matches!(gap[..], [NoteProblem::Gap { number: 4, .. }]), "{gap:?}");

    let mut forged = whole.clone();
    let note = forged.get_mut(&commit(1)).unwrap();
    *note = note.replacen("merged without", "merged with", 1);
    let forged = verify(&forged, &keys(), None);
    assert!(
        matches!(forged[0], NoteProblem::Signature { number: 1, .. }),
        "{forged:?}"
    );

    let mut carried = whole.clone();
    let note = carried.remove(&commit(5)).unwrap();
    carried.insert(commit(99), note);
    let carried = verify(&carried, &keys(), None);
    assert!(
        matches!(carried[0], NoteProblem::Place { number: 9, .. }),
        "{carried:?}"
    );

    let unknown = verify(&whole, &[], None);
    assert!(matches!(unknown[0], NoteProblem::UnknownKey { .. }));
    let other = [(KeyId("reconciler-2026".to_owned()), signer(2).public())];
    assert!(matches!(
        verify(&whole, &other, None)[0],
        NoteProblem::Signature { .. }
    ));
}

// holds: DL-9
#[test]
fn a_newest_block_that_was_cut_is_named_and_a_line_that_somebody_quotes_is_nothing() {
    let (chain, whole) = journal(9);
    let newest = signed(&chain[8], &signer(1));
    let on = chain[8].commit.clone();
    let with = |text: String| {
        let mut notes = whole.clone();
        notes.insert(on.clone(), text);
        verify(&notes, &keys(), None)
    };
    let note = &whole[&on];
    // The last line end is lost, the signature is, and all that numbers it is.
    for (kept, number) in [("", Some(9)), ("Sig: ", Some(9)), ("Block: ", None)] {
        let before = match kept {
            "" => note.strip_suffix('\n'),
            word => note.rsplit_once(word).map(|(before, _)| before),
        };
        let torn = with(before.unwrap().to_owned());
        let NoteProblem::Torn {
            number: said, line, ..
        } = &torn[0]
        else {
            panic!("cut before `{kept}`: {torn:?}")
        };
        assert_eq!((*said, line), (number, &chain[8].transition_line()));
        assert_eq!(torn[0].severity(), Severity::Alarm);
    }
    assert!(
        with(note.rsplit_once("Sig: ").unwrap().0.to_owned())[0]
            .to_string()
            .starts_with("block 9 on ")
    );
    let quoted = format!("{}\nlooks good to me\n\n{newest}", chain[8].transition_line());
    assert_eq!(with(note.replace(&newest, &quoted)), []);
    assert_eq!(with(format!("{note}\nand so on\nBlock: 10\n")), []);
}

// holds: DL-9
#[test]
fn a_fork_of_one_term_is_an_alarm_and_of_two_terms_a_remark() {
    let (chain, whole) = journal(2);
    let mut other = block(2, Some(&chain[0]), 3);
    let with = |other: &Block| {
        let mut notes = whole.clone();
        notes.insert(commit(3), signed(other, &signer(1)));
        verify(&notes, &keys(), None)
    };
    let same = with(&other);
    assert!(
        matches!(
            same[..],
            [NoteProblem::Fork {
                number: 2,
                term: 1,
                count: 2
            }]
        ),
        "{same:?}"
    );
    assert_eq!(same[0].severity(), Severity::Alarm);
    other.term = 2;
    let two = with(&other);
    assert!(
        matches!(
            two[..],
            [NoteProblem::OlderTerm {
                number: 2,
                term: 1,
                newer: 2,
                ..
            }]
        ),
        "{two:?}"
    );
    assert_eq!(two[0].severity(), Severity::Remark);
}

// holds: DL-10
#[test]
fn at_the_cap_old_detail_goes_and_no_transition() {
    let mut chain: Vec<Block> = Vec::new();
    let mut note = String::new();
    for number in 1..=40 {
        let mut next = block(number, chain.last(), 1);
        for machine in 0..30 {
            let value = format!("web on n{machine}: failed, unit nginx is not active since it was started");
            next.trailers.push(("Machine".to_owned(), value));
        }
        note = append(&note, &signed(&next, &signer(1))).unwrap();
        chain.push(next);
    }
    let limit = meshplan_schemas::limits::NOTE_BYTES;
    assert!(note.len() > limit);
    let elisions = elide(&note, limit);
    assert!(elisions.len() < 40, "more was taken than needed");
    for (n, elision) in elisions.iter().enumerate() {
        assert_eq!(elision.new.number, n as u64 + 1, "the oldest first");
        note = elision.apply(&note, &signed(&elision.new, &signer(1))).unwrap();
    }
    assert!(note.len() <= limit, "{} bytes", note.len());
    let read = blocks(&note);
    assert_eq!(read.len(), 40);
    for (was, is) in chain.iter().zip(&read) {
        assert_eq!(was.transition_line(), is.block.transition_line());
        assert_eq!(was.digest(), is.block.digest());
    }
    let notes = BTreeMap::from([(commit(1), note.clone())]);
    assert_eq!(verify(&notes, &keys(), Some(&chain[39].mark())), []);
    assert_eq!(elide(&note, limit), []);
    // One that was elided is not written whole again by a writer that still has the old one.
    assert_eq!(append(&note, &signed(&chain[0], &signer(1))), None);
    assert_eq!(merge(&note, &signed(&chain[0], &signer(1))), note);
}

fn hostile() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ :\\\\nrtu{}\n\r\t-]{0,12}",
        Just("Sig: reconciler-2026 AAAA".to_owned()),
        Just("\n\n2026-10-06T23:05:28Z (new) -> proposed (announced) by x: y\nBlock: 1\n".to_owned()),
    ]
}

fn any_block() -> impl Strategy<Value = Block> {
    let trailers = prop::collection::vec(("X[A-Za-z0-9-]{0,9}", hostile()), 0..4);
    let words = (
        prop::option::of(prop::sample::select(State::ALL)),
        prop::sample::select(State::ALL),
        prop::sample::select(Code::ALL),
    );
    let numbers = (
        any::<u64>(),
        prop::option::of(any::<[u8; 32]>()),
        any::<u64>(),
        0i64..4_000_000_000,
    );
    (numbers, words, hostile(), hostile(), trailers).prop_map(|(numbers, words, actor, reason, trailers)| {
        Block {
            number: numbers.0,
            prev: numbers.1.map(Digest),
            term: numbers.2,
            commit: commit(1),
            at: Timestamp::from_second(numbers.3).unwrap(),
            from: words.0,
            to: words.1,
            code: words.2,
            actor,
            reason,
            trailers,
            elided: None,
        }
    })
}

proptest! {
    // holds: DL-9
    #[test]
    fn what_is_written_is_read_back_whatever_stands_in_it(block in any_block()) {
        let text = signed(&block, &signer(1));
        let read = parse(&text);
        prop_assert_eq!(read.len(), 1);
        let Piece::Block(read) = &read[0] else { panic!("no block: {text}") };
        prop_assert_eq!(&read.block, &block);
        prop_assert!(read.signed_by(&signer(1).public()));
    }

    // holds: DL-10
    #[test]
    fn the_pieces_of_any_text_are_that_text(parts in prop::collection::vec(hostile(), 0..5), block in any_block()) {
        let text = parts.join(&signed(&block, &signer(1)));
        prop_assert_eq!(parse(&text).iter().map(Piece::raw).collect::<String>(), text);
    }
}
