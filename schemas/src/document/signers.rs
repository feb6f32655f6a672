//! The file that `[trust] allowed_signers` names: who may sign commits, a line each as ssh-keygen(1) reads it
//! ("ALLOWED SIGNERS").

use data_encoding::BASE64;

use crate::finding::{Finding, Source, did_you_mean};

/// A signer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signer {
    /// Who: patterns of principals, as written.
    pub principals: String,
    /// The options, as written; empty where there are none.
    pub options: String,
    /// The type of the key.
    pub kind: String,
    /// The key's bytes.
    pub key: Vec<u8>,
}

/// Types of keys that git verifies with.
const KINDS: [&str; 8] = [
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-dss",
];
const OPTIONS: [&str; 4] = ["cert-authority", "namespaces=", "valid-after=", "valid-before="];

/// Reads the lines; each that is wrong is said.
pub fn read(source: &Source, findings: &mut Vec<Finding>) -> Vec<Signer> {
    let mut signers = Vec::new();
    for (at, line) in source.text().lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match signer(line) {
            Ok(signer) => signers.push(signer),
            Err(why) => findings.push(source.error_at_line(at + 1, why)),
        }
    }
    signers
}

fn signer(line: &str) -> Result<Signer, String> {
    const FORM: &str =
        "expected `<principals> [options] <key type> <key>`, as `alice@example.org ssh-ed25519 AAAA...`";
    let mut words = line.split_whitespace();
    let principals = words.next().ok_or(FORM)?;
    let mut kind = words.next().ok_or(FORM)?;
    let mut options = "";
    if OPTIONS
        .iter()
        .any(|option| kind.to_ascii_lowercase().starts_with(option))
    {
        options = kind;
        kind = words.next().ok_or(FORM)?;
    }
    if !KINDS.contains(&kind) {
        let help = did_you_mean(kind, KINDS).unwrap_or_else(|| FORM.to_owned());
        return Err(format!(
            "there is no type of key `{}`: {help}",
            kind.escape_debug()
        ));
    }
    if kind == "ssh-dss" {
        return Err("a key of type ssh-dss is too weak to be trusted".to_owned());
    }
    let key = words.next().ok_or(FORM)?;
    let key = BASE64
        .decode(key.as_bytes())
        .map_err(|_| "the key is not base64".to_owned())?;
    // RFC 4253, section 6.6: the key begins with its own type.
    let named = key
        .get(4..4 + kind.len())
        .is_some_and(|name| name == kind.as_bytes());
    let length = key.get(..4) == Some(&u32::try_from(kind.len()).unwrap_or_default().to_be_bytes());
    if !(named && length && key.len() > 4 + kind.len()) {
        return Err(format!("the key is no {kind} key: its own bytes say otherwise"));
    }
    Ok(Signer {
        principals: principals.to_owned(),
        options: options.to_owned(),
        kind: kind.to_owned(),
        key,
    })
}
