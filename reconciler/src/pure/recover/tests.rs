//! The record, read back: what each block brings, and what is refused.

use jiff::Timestamp;
use meshplan_schemas::envelope::{Envelope, Signature, Signer as _, SoftSigner, seal};
use meshplan_schemas::fleet_list::FleetHead;
use meshplan_schemas::report::{Cause, Marks};
use proptest::prelude::*;

use super::waiting::{Numbers, Recovering};
use super::*;
use crate::pure::journal::HEAD;
use crate::pure::note;
use crate::pure::snapshot::{NodeState, Nodes};

fn commit(n: u8) -> CommitId {
    format!("{n:040x}").parse().unwrap()
}

fn digest(of: &str) -> Digest {
    Digest::of(of.as_bytes())
}

/// A record as it is written: transitions one after the other.
struct Writer {
    notes: BTreeMap<CommitId, String>,
    newest: Option<BlockMark>,
    signer: SoftSigner,
}

impl Writer {
    fn new() -> Self {
        Self {
            notes: BTreeMap::new(),
            newest: None,
            signer: SoftSigner::new(None, &[7; 32]).unwrap(),
        }
    }

    /// `proposed -> held (freeze) by dana: why`, and trailers.
    fn say(&mut self, on: u8, line: &str, trailers: &[(&str, &str)]) {
        let number = self.newest.as_ref().map_or(1, |m| m.number + 1);
        let (from, rest) = line.split_once(" -> ").unwrap();
        let (to, rest) = rest.split_once(" (").unwrap();
        let (code, rest) = rest.split_once(") by ").unwrap();
        let (actor, reason) = rest.split_once(": ").unwrap_or((rest, ""));
        let block = Block {
            number,
            prev: self.newest.as_ref().map(|m| m.digest),
            term: 1,
            commit: commit(on),
            at: Timestamp::from_second(1_700_000_000 + i64::try_from(number).unwrap()).unwrap(),
            from: (from != "(new)").then(|| from.parse().unwrap()),
            to: to.parse().unwrap(),
            code: code.parse().unwrap(),
            actor: actor.to_owned(),
            reason: reason.to_owned(),
            trailers: trailers
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            elided: None,
        };
        let text = block.text();
        let signature = self.signer.sign(&note::signed_bytes(&text)).unwrap();
        let signed = note::seal(&text, &self.signer.key_id(), &signature);
        self.newest = Some(block.mark());
        let note = self.notes.entry(commit(on)).or_default();
        *note = note::append(note, &signed).unwrap();
    }

    fn announce(&mut self, on: u8) {
        self.say(
            on,
            "(new) -> proposed (announced) by forge",
            &[("Subject", "change")],
        );
    }

    fn begin(&mut self, on: u8, content: &str) {
        let web = format!("module:web {} on 3", digest(content));
        let list = format!("list {}", digest("list"));
        let facts = [
            ("Gate", "default"),
            ("Leg", list.as_str()),
            ("Leg", web.as_str()),
            ("List-Revision", "3"),
        ];
        self.say(on, "proposed -> delivering (checked) by reconciler", &facts);
    }

    fn chain(&self) -> Vec<SignedBlock> {
        let blocks = self.notes.values().flat_map(|text| note::blocks(text));
        chain(blocks.map(|block| (block.block.digest(), block)).collect())
    }

    fn read(&self) -> Result<Record, RecordError> {
        read(&self.chain(), &BTreeMap::new(), "fleet")
    }
}

fn web() -> Scope {
    "module:web".parse().unwrap()
}

// holds: DL-12
#[test]
fn what_was_delivered_is_accepted_and_what_failed_is_remembered() {
    let mut said = Writer::new();
    said.announce(1);
    said.begin(1, "one");
    said.say(
        1,
        "delivering -> delivered (done) by reconciler",
        &[("Sequence", "4"), ("Epoch", "2")],
    );
    said.announce(2);
    said.begin(2, "bad");
    let bad = format!("{} {}", web(), digest("bad"));
    let facts = [
        ("Known-Bad", bad.as_str()),
        ("Machine", "web on ace: failed, the probe says no"),
        (
            "Abort-Cause",
            "ace (0123abcd) in canary: failed: the probe says no",
        ),
        ("Return-Sequence", "9"),
    ];
    said.say(
        2,
        "delivering -> rolling-back (stage-failed) by reconciler: ace failed",
        &facts,
    );
    let record = said.read().unwrap();
    assert_eq!(record.accepted[&web()].commit, commit(1));
    assert_eq!(
        record.accepted[&Scope::List].commit,
        commit(2),
        "the list goes only forward"
    );
    let failed = &record.known_bad[&(web(), digest("bad"))];
    assert_eq!(
        (failed.reason.as_str(), failed.on.first().unwrap().as_str()),
        ("ace failed", "0123abcd")
    );
    assert_eq!(
        (
            record.numbers.sequence,
            record.numbers.epoch,
            record.numbers.revision
        ),
        (9, 2, 3)
    );
    let begun = &record.walks[&commit(2)];
    assert!(begun.machines.iter().any(|name| name.as_str() == "ace"));
    assert_eq!(record.deliveries[1].previous, Some(commit(1)));
    assert_eq!(record.deliveries[1].state, State::RollingBack);

    // Delivered after all: it is bad no more, and nothing walks.
    said.say(2, "rolling-back -> rolled-back (taken) by reconciler", &[]);
    said.say(2, "rolled-back -> proposed (again) by dana", &[]);
    assert!(said.read().unwrap().deliveries[1].again);
    said.begin(2, "bad");
    said.say(2, "delivering -> delivered (done) by reconciler", &[]);
    let record = said.read().unwrap();
    assert!(record.known_bad.is_empty() && record.walks.is_empty());
    assert_eq!(record.accepted[&web()].commit, commit(2));
}

#[test]
fn legs_that_bring_what_an_earlier_commit_has_accept_nothing() {
    let mut said = Writer::new();
    said.announce(1);
    let leg = format!("module:web {} on 1 as accepted in 0123456789ab", digest("old"));
    said.say(
        1,
        "proposed -> delivering (checked) by reconciler",
        &[("Gate", "default"), ("Leg", &leg)],
    );
    said.say(1, "delivering -> delivered (done) by reconciler", &[]);
    assert!(said.read().unwrap().accepted.is_empty());
}

// holds: DL-3
#[test]
fn a_leg_that_was_taken_back_is_not_accepted_and_the_others_are() {
    let mut said = Writer::new();
    said.announce(1);
    said.begin(1, "one");
    let taken = format!("module:web {}", digest("one"));
    said.say(
        1,
        "delivering -> delivering (stage-failed) by reconciler",
        &[("Taken-Back", &taken)],
    );
    let open = said.read().unwrap();
    assert!(open.walks[&commit(1)].taken_back.contains(&web()));
    let list = format!("list {}", digest("list"));
    said.say(
        1,
        "delivering -> rolling-back (stage-failed) by reconciler",
        &[(ACCEPTED, &list)],
    );
    let record = said.read().unwrap();
    assert!(record.accepted.contains_key(&Scope::List) && !record.accepted.contains_key(&web()));
}

// holds: DL-9
#[test]
fn a_freeze_is_as_it_was_until_it_is_lifted() {
    let mut said = Writer::new();
    said.announce(1);
    said.say(
        1,
        "proposed -> proposed (freeze) by dana: the fleet is frozen until 2027-01-02T00:00:00Z, by dana: holidays",
        &[("Freeze", "until 2027-01-02T00:00:00Z")],
    );
    let freeze = said.read().unwrap().freeze.unwrap();
    assert_eq!((freeze.actor.as_str(), freeze.why.as_str()), ("dana", "holidays"));
    assert_eq!(freeze.until, "2027-01-02T00:00:00Z".parse().ok());
    assert!(freeze.words().ends_with(", by dana: holidays"));
    said.say(
        1,
        "proposed -> proposed (freeze) by dana: the freeze is lifted",
        &[("Freeze", "lifted")],
    );
    assert_eq!(said.read().unwrap().freeze, None);
}

#[test]
fn a_record_that_does_not_follow_is_refused_with_the_block_that_says_so() {
    assert_eq!(Writer::new().read().unwrap_err(), RecordError::Empty);
    let mut said = Writer::new();
    said.announce(1);
    said.say(1, "held -> delivering (go) by dana", &[]);
    let error = said.read().unwrap_err().to_string();
    assert!(
        error.contains("block 2") && error.contains("held") && error.contains("proposed"),
        "{error}"
    );
}

// holds: DL-12, DL-15
#[test]
fn a_commit_that_takes_the_place_of_one_that_a_person_holds_is_held_by_that_too() {
    let mut said = Writer::new();
    said.announce(1);
    said.say(1, "proposed -> held (person-hold) by dana", &[]);
    said.announce(2);
    let name = DeliveryName::new("fleet", &commit(2)).to_string();
    let by = [(SUPERSEDED_BY, name.as_str())];
    said.say(1, "held -> superseded (newer) by reconciler", &by);
    let holds = |said: &Writer| said.read().unwrap().deliveries[1].person_hold;
    assert!(holds(&said));
    said.say(2, "proposed -> held (known-bad) by reconciler", &[]);
    assert!(holds(&said), "whatever else holds it too");
    said.say(2, "held -> delivering (go) by dana", &[]);
    assert!(!holds(&said));
}

// holds: DL-12, DL-15
#[test]
fn a_check_that_is_owed_and_cannot_be_read_is_refused_with_its_block() {
    let mut said = Writer::new();
    said.announce(1);
    said.announce(2);
    let name = DeliveryName::new("fleet", &commit(2)).to_string();
    let facts = [(SUPERSEDED_BY, name.as_str()), (UNPASSED, "something else")];
    said.say(1, "proposed -> superseded (newer) by reconciler", &facts);
    let error = said.read().unwrap_err();
    assert!(
        matches!(error, RecordError::Unpassed { number: 3, .. }),
        "{error:?}"
    );
    let said = error.to_string();
    assert!(
        said.contains("block 3 on") && said.contains("`something else`"),
        "{said}"
    );
}

/// A head of revision 3, signed, as a trailer holds it; `change` is made to it before.
fn head(change: impl FnOnce(&mut FleetHead)) -> String {
    let mut head: FleetHead = serde_json::from_value(serde_json::json!({
        "schema": 1, "fleet": "home", "era": 0, "issued_at": 7, "revision": 3, "commit": commit(1), "authors": [],
        "threshold": 1, "reconcilers": [], "records_root": digest("leaves"), "records_count": 0, "timestamp_keys": [],
        "oldest_accepted": 1, "settings": {
            "left_behind_grace_secs": 60, "lifeline_secs": 60, "require_trusted_clock_for_scheduled_activation": false,
        },
    }))
    .unwrap();
    change(&mut head);
    let envelope = seal(&head, &SoftSigner::new(None, &[7; 32]).unwrap()).unwrap();
    data_encoding::BASE64.encode(&envelope)
}

/// What is read of a record whose one walk signed this head under revision 3.
fn with_head(head: &str) -> Result<Record, RecordError> {
    let mut said = Writer::new();
    said.announce(1);
    let facts = [("Gate", "default"), ("List-Revision", "3"), (HEAD, head)];
    said.say(1, "proposed -> delivering (checked) by reconciler", &facts);
    said.read()
}

// holds: DL-9, SG-12
#[test]
fn a_head_that_is_held_whole_comes_back_as_it_was_signed() {
    let text = head(|_| ());
    let record = with_head(&text).unwrap();
    let read = &record.heads[&3];
    assert_eq!(data_encoding::BASE64.encode(read.envelope.as_bytes()), text);
    assert_eq!((read.issued_at, &read.commit), (7, &commit(1)));
    assert_eq!(
        read.digest,
        Envelope::read(read.envelope.as_bytes()).unwrap().payload_digest()
    );
}

// holds: DL-12, SG-12
#[test]
fn a_head_that_cannot_be_read_is_refused_with_its_block_and_nothing_is_passed_over() {
    let of_another_type = data_encoding::BASE64.encode(
        &Envelope {
            payload_type: "application/vnd.meshplan.epoch+json".to_owned(),
            payload: b"{}".to_vec(),
            signatures: vec![Signature {
                key_id: SoftSigner::new(None, &[7; 32]).unwrap().key_id(),
                bytes: vec![0; 64],
            }],
        }
        .write(),
    );
    for (text, why) in [
        ("not base64", "its base64 is broken"),
        ("bm8gSlNPTg==", "not a DSSE envelope"),
        (of_another_type.as_str(), "not as a head"),
        (
            head(|head| head.revision = 4).as_str(),
            "it is revision 4, and the block speaks of revision 3",
        ),
    ] {
        let error = with_head(text).unwrap_err();
        assert!(
            matches!(&error, RecordError::Head { number: 2, commit: on, .. } if *on == commit(1)),
            "{error:?}"
        );
        let said = error.to_string();
        assert!(
            said.contains("block 2 on") && said.contains(why) && said.contains("backup"),
            "{said}"
        );
    }
}

fn marks(sequence: u64) -> Marks {
    let mark = |number| meshplan_schemas::report::Mark {
        number,
        digest: digest(""),
    };
    Marks {
        sequence: Some(mark(sequence)),
        ..Marks::default()
    }
}

fn recovering(sequence: u64) -> Recovering {
    Recovering {
        since: Timestamp::UNIX_EPOCH,
        look: 77,
        blocks: 1,
        numbers: Numbers {
            epoch: 3,
            revision: 3,
            sequence,
        },
        forced: None,
        partial: BTreeSet::new(),
        walks: BTreeMap::new(),
    }
}

/// What a node is heard to say.
fn heard(cause: Cause, sequence: u64) -> NodeState {
    let report = serde_json::json!({
        "schema": 1, "fleet": "home", "era": 0, "issued_at": 0, "node": "01912d68-783e-7a3c-b6f2-6a1c7d5e0001",
        "counter": 1, "boot_id": "b", "instance": "i", "started_at": 0, "host_version": "1.0.0", "cause": cause,
        "marks": marks(sequence), "witness": 1,
    });
    let report: meshplan_schemas::report::Report = serde_json::from_value(report).unwrap();
    NodeState {
        heard_at: Some(Timestamp::UNIX_EPOCH),
        look: matches!(cause, Cause::Look(_)).then(|| report.clone()),
        report: Some(report),
        look_at: None,
    }
}

// holds: SG-8
#[test]
fn only_an_answer_to_this_recovery_counts_as_heard() {
    let node = "01912d68-783e-7a3c-b6f2-6a1c7d5e0001".parse().unwrap();
    for (cause, counts) in [
        (Cause::Heartbeat, false),
        (Cause::Look(5), false),
        (Cause::Look(77), true),
    ] {
        let nodes = Nodes::from([(node, heard(cause, 9))]);
        assert_eq!(recovering(4).has_heard(node, &nodes), counts);
        assert_eq!(
            recovering(4).highest(&nodes).sequence,
            9,
            "what it says counts either way"
        );
    }
}

proptest! {
    // holds: SG-8, SG-11
    #[test]
    fn numbers_are_above_all_that_is_said_within_reach(record in 0u64..1 << 40, said in 0u64..1 << 41) {
        let node = "01912d68-783e-7a3c-b6f2-6a1c7d5e0001".parse().unwrap();
        let nodes = Nodes::from([(node, heard(Cause::Look(77), said))]);
        let highest = recovering(record).highest(&nodes).sequence;
        prop_assert!(highest >= record);
        let within = said <= record + meshplan_schemas::limits::NUMBER_JUMP;
        prop_assert_eq!(highest, if within { record.max(said) } else { record });
    }

    #[test]
    fn no_order_of_notes_changes_the_chain(order in proptest::collection::vec(any::<u8>(), 12)) {
        let mut said = Writer::new();
        for n in 1..=6 {
            said.announce(n);
        }
        for n in order.iter().map(|n| n % 6 + 1) {
            said.say(n, "proposed -> proposed (freeze) by dana: the freeze is lifted", &[("Freeze", "lifted")]);
        }
        let numbers: Vec<u64> = said.chain().iter().map(|b| b.block.number).collect();
        prop_assert_eq!(numbers, (1..=18).collect::<Vec<_>>());
    }
}

// holds: DL-12, FR-5
#[test]
fn who_left_the_fleet_is_read_back() {
    let mut writer = Writer::new();
    writer.announce(1);
    let (uuid, key, old) = (digest("uuid"), digest("key"), digest("old"));
    let (ace, nobody) = (format!("ace {uuid} {key}"), format!("- {old}"));
    let facts = [("Revoked", ace.as_str()), ("Revoked", nobody.as_str())];
    writer.say(1, "proposed -> delivered (nothing-to-do) by reconciler", &facts);
    let left = |node: Option<&str>| Left {
        node: node.map(|name| name.parse().unwrap()),
        commit: commit(1),
    };
    let expected = [
        (uuid, left(Some("ace"))),
        (key, left(Some("ace"))),
        (old, left(None)),
    ];
    assert_eq!(writer.read().unwrap().revoked, expected.into());
}
