//! Asks the independent implementation (`crosscheck.py`) about the vectors, and judges an envelope that it signed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use data_encoding::BASE64;
use meshplan_schemas::digest::{Digest, canonical};
use meshplan_schemas::envelope::Payload as _;
use meshplan_schemas::epoch::Epoch;
use serde::Deserialize;
use serde_json::json;

use crate::make::{AUTHOR, Expected, epoch, knows, taken};
use crate::{folder, judged};

fn script() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/crosscheck.py")
}

/// Whether Python with `cryptography` is here; says a line when not, and fails in CI.
#[expect(clippy::print_stdout, reason = "what is skipped says so")]
fn python() -> bool {
    let found = Command::new("python3")
        .args(["-c", "import cryptography.hazmat.primitives.asymmetric.ed25519"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "python3 with `cryptography` is needed in CI (Debian: python3-cryptography)"
        );
        println!("skipped: no python3 with `cryptography` on this machine (Debian: python3-cryptography)");
    }
    found
}

#[derive(Deserialize)]
struct Answer {
    signed_by: Option<Vec<String>>,
    payload_digest: Option<Digest>,
}

// holds: SG-10, SG-1
#[test]
fn another_implementation_finds_the_same_signatures_in_every_vector() {
    if !python() {
        return;
    }
    let output = Command::new("python3")
        .arg(script())
        .arg("verify")
        .arg(folder())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let answers: BTreeMap<String, Answer> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answers.len(), crate::all().len());
    for (name, answer) in answers {
        let text = std::fs::read(folder().join(&name).join("expected.json")).unwrap();
        let expected: Expected = serde_json::from_slice(&text).unwrap();
        assert_eq!(answer.signed_by, expected.signed_by, "signatures of {name}");
        assert_eq!(answer.payload_digest, expected.payload_digest, "digest of {name}");
    }
}

// holds: SG-10, SG-1
#[test]
fn an_envelope_that_another_implementation_signed_is_taken() {
    if !python() {
        return;
    }
    let seed: String = AUTHOR
        .secret()
        .to_bytes()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let order = json!({
        "seed": seed, "keyid": AUTHOR.id, "payloadType": Epoch::TYPE,
        "payload": BASE64.encode(&canonical(&epoch(7)).unwrap()),
    });
    let mut child = Command::new("python3")
        .arg(script())
        .arg("sign")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(order.to_string().as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(judged::judge(&knows("epoch"), &output.stdout), taken());
    let mut changed = output.stdout.clone();
    let at = changed.len() / 2;
    changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
    assert_ne!(judged::judge(&knows("epoch"), &changed), taken());
}
