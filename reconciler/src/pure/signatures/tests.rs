//! Against signatures that OpenSSH's ssh-keygen made, and against what somebody might do to them.

use ed25519_dalek::Signer as _;
use meshplan_schemas::document::signers::Limits;
use proptest::prelude::*;

use super::*;

macro_rules! vector {
    ($file:literal) => {
        include_bytes!(concat!("../../../tests/ssh_signatures/", $file)) as &[u8]
    };
}

const PAYLOAD: &[u8] = vector!("payload");
const ED25519: &[u8] = vector!("ed25519.sig");

/// The key of a line as ssh-keygen writes it.
fn key(public: &[u8]) -> (String, Vec<u8>) {
    let line = std::str::from_utf8(public).unwrap();
    let mut words = line.split_whitespace();
    let kind = words.next().unwrap().to_owned();
    (kind, BASE64.decode(words.next().unwrap().as_bytes()).unwrap())
}

fn why(proof: Proof) -> String {
    match proof {
        Proof::Nothing(why) => why,
        other => panic!("{other:?}"),
    }
}

fn commit(n: u8, proof: Proof) -> BroughtCommit {
    BroughtCommit {
        id: format!("{n:02x}").repeat(20).parse().unwrap(),
        at: 1_790_000_000,
        proof,
        clean_merge: false,
    }
}

fn brought(commits: Vec<BroughtCommit>) -> Brought {
    Brought { commits, more: false }
}

fn alice() -> Signer {
    let (kind, key) = key(vector!("ed25519.pub"));
    Signer {
        principals: "alice@example.org".to_owned(),
        limits: Limits::default(),
        kind,
        key,
    }
}

fn trusted(asks: SignedCommits) -> CommitSigners {
    CommitSigners {
        asks,
        signers: vec![alice()],
        line: 0,
    }
}

fn by_alice() -> Proof {
    proof(ED25519, PAYLOAD)
}

#[test]
fn what_ssh_keygen_signed_proves_its_key() {
    for (signature, public) in [
        (ED25519, vector!("ed25519.pub")),
        (vector!("ecdsa-256.sig"), vector!("ecdsa-256.pub")),
        (vector!("ecdsa-384.sig"), vector!("ecdsa-384.pub")),
        (vector!("rsa-2048.sig"), vector!("rsa-2048.pub")),
    ] {
        let (kind, key) = key(public);
        assert_eq!(proof(signature, PAYLOAD), Proof::Key { kind, key });
        assert_eq!(
            why(proof(signature, b"other bytes")),
            "it does not fit the commit"
        );
    }
}

#[test]
fn what_is_not_verified_proves_nothing_and_says_so() {
    let of = |signature: &[u8]| why(proof(signature, PAYLOAD));
    assert!(of(vector!("ecdsa-521.sig")).contains("ecdsa-sha2-nistp521 keys are not verified"));
    assert_eq!(
        of(vector!("ed25519-for-a-file.sig")),
        "it was made for something else than a commit"
    );
    assert!(of(b"-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----").contains("OpenPGP"));
    assert_eq!(of(b""), "it is none of SSH");
    assert_eq!(of(format!("{BEGIN}\nU1NI\n{END}").as_bytes()), "it is cut off");
}

/// A blob of SSH's, in its armor.
fn armored(parts: &[&[u8]]) -> Vec<u8> {
    let mut blob = b"SSHSIG\0\0\0\x01".to_vec();
    for part in parts {
        blob.extend(text(part));
    }
    format!("{BEGIN}\n{}\n{END}\n", BASE64.encode(&blob)).into_bytes()
}

fn text(part: &[u8]) -> Vec<u8> {
    [&u32::try_from(part.len()).unwrap().to_be_bytes()[..], part].concat()
}

/// A signature of a token, as PROTOCOL.u2f has it.
fn of_a_token(flags: u8) -> (Vec<u8>, Vec<u8>) {
    let secret = ed25519_dalek::SigningKey::from_bytes(&[7; 32]);
    let kind = b"sk-ssh-ed25519@openssh.com";
    let key = [text(kind), text(secret.verifying_key().as_bytes()), text(b"ssh:")].concat();
    let digest = Sha512::digest(PAYLOAD);
    let signed = [
        &b"SSHSIG"[..],
        &text(b"git"),
        &text(b""),
        &text(b"sha512"),
        &text(&digest),
    ]
    .concat();
    let by_token = [
        &Sha256::digest(b"ssh:")[..],
        &[flags],
        &9_u32.to_be_bytes(),
        &Sha256::digest(&signed)[..],
    ]
    .concat();
    let value = secret.sign(&by_token).to_bytes();
    let signature = [
        text(kind),
        text(&value),
        vec![flags],
        9_u32.to_be_bytes().to_vec(),
    ]
    .concat();
    (armored(&[&key, b"git", b"", b"sha512", &signature]), key)
}

#[test]
fn a_token_that_somebody_touched_signs_and_one_that_nobody_touched_does_not() {
    let (signature, key) = of_a_token(1);
    let kind = "sk-ssh-ed25519@openssh.com".to_owned();
    assert_eq!(proof(&signature, PAYLOAD), Proof::Key { kind, key });
    assert_eq!(
        why(proof(&of_a_token(0).0, PAYLOAD)),
        "nobody touched the token that made it"
    );
}

// holds: FR-16
#[test]
fn a_tip_is_signed_by_a_signer_of_the_tree_before_or_the_sentence_says_why_not() {
    let ask = |proof| {
        judge(
            &trusted(SignedCommits::Tip),
            &brought(vec![commit(1, Proof::Unsigned), commit(2, proof)]),
        )
    };
    assert_eq!(
        ask(by_alice()),
        Ok(BTreeSet::from(["alice@example.org".to_owned()]))
    );
    assert_eq!(ask(Proof::Unsigned), Err("020202020202 is not signed".to_owned()));
    let stranger = proof(vector!("ecdsa-256.sig"), PAYLOAD);
    let refused = ask(stranger).unwrap_err();
    assert!(
        refused.starts_with("020202020202 is signed by the key SHA256:"),
        "{refused}"
    );
    assert!(refused.ends_with("which the tree before does not trust"));
    let garbled = ask(proof(ED25519, b"other bytes")).unwrap_err();
    assert_eq!(
        garbled,
        "the signature of 020202020202 proves nothing: it does not fit the commit"
    );
}

#[test]
fn where_every_commit_is_asked_an_unsigned_merge_is_taken_when_it_adds_nothing() {
    let every = trusted(SignedCommits::Every);
    let merge = |clean_merge| BroughtCommit {
        clean_merge,
        ..commit(2, Proof::Unsigned)
    };
    let with = |merge| judge(&every, &brought(vec![commit(1, by_alice()), merge]));
    assert!(with(merge(true)).is_ok());
    assert_eq!(with(merge(false)), Err("020202020202 is not signed".to_owned()));
    let inside = brought(vec![commit(1, Proof::Unsigned), commit(2, by_alice())]);
    assert!(judge(&every, &inside).is_err());
    assert!(judge(&trusted(SignedCommits::Tip), &inside).is_ok());
    let bad = BroughtCommit {
        proof: Proof::Nothing("forged".to_owned()),
        ..merge(true)
    };
    assert!(
        judge(&every, &brought(vec![bad])).is_err(),
        "a signature that proves nothing is none"
    );
    let many = Brought {
        more: true,
        ..brought(vec![commit(1, by_alice())])
    };
    assert!(judge(&every, &many).unwrap_err().contains("more than 1 commits"));
    assert!(judge(&trusted(SignedCommits::Tip), &Brought::default()).is_err());
}

#[test]
fn a_signer_signs_within_its_limits() {
    let with = |limits| {
        let mut trusted = trusted(SignedCommits::Tip);
        trusted.signers[0].limits = limits;
        judge(&trusted, &brought(vec![commit(1, by_alice())])).is_ok()
    };
    let namespaces = |names: &[&str]| Limits {
        namespaces: Some(names.iter().map(|&n| n.to_owned()).collect()),
        ..Limits::default()
    };
    assert!(with(namespaces(&["file", "git"])));
    assert!(!with(namespaces(&["file"])));
    let until = |at| Limits {
        valid_before: Some(at),
        ..Limits::default()
    };
    assert!(with(until(1_790_000_001)) && !with(until(1_790_000_000)));
    let from = |at| Limits {
        valid_after: Some(at),
        ..Limits::default()
    };
    assert!(with(from(1_790_000_000)) && !with(from(1_790_000_001)));
}

proptest! {
    #[test]
    fn no_bytes_panic_and_no_changed_byte_proves_anything(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        at in 0usize..200,
        bit in 0u8..8,
    ) {
        prop_assert!(matches!(proof(&noise, PAYLOAD), Proof::Nothing(_)));
        let inside = armored(&[&noise, b"git", b"", b"sha512", &noise]);
        prop_assert!(matches!(proof(&inside, PAYLOAD), Proof::Nothing(_)));
        let text = std::str::from_utf8(ED25519).unwrap().trim();
        let body: String = text.strip_prefix(BEGIN).unwrap().strip_suffix(END).unwrap().split_whitespace().collect();
        let mut blob = BASE64.decode(body.as_bytes()).unwrap();
        let at = at % blob.len();
        blob[at] ^= 1 << bit;
        let changed = format!("{BEGIN}\n{}\n{END}", BASE64.encode(&blob));
        let proven = proof(changed.as_bytes(), PAYLOAD);
        prop_assert!(proven != by_alice());
        prop_assert!(matches!(proven, Proof::Nothing(_)));
    }
}
