//! The file that `[trust] allowed_signers` names: who may sign commits, a line each as ssh-keygen(1) reads it
//! ("ALLOWED SIGNERS").

use data_encoding::BASE64;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::finding::{Finding, Source, did_you_mean};

/// A signer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signer {
    /// Who: patterns of principals, as written.
    pub principals: String,
    /// What its options let it do.
    #[serde(default)]
    pub limits: Limits,
    /// The type of the key.
    pub kind: String,
    /// The key's bytes.
    pub key: Vec<u8>,
}

/// What a key may be used for, of its options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The namespaces that it may sign under; none: every one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<String>>,
    /// From when on, unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_after: Option<i64>,
    /// Until when, unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_before: Option<i64>,
}

impl Limits {
    /// Whether it may sign under this namespace at this time, unix seconds.
    #[must_use]
    pub fn allow(&self, namespace: &str, at: i64) -> bool {
        let named = |names: &Vec<String>| names.iter().any(|name| name == namespace);
        self.namespaces.as_ref().is_none_or(named)
            && self.valid_after.is_none_or(|from| at >= from)
            && self.valid_before.is_none_or(|to| at < to)
    }

    /// Reads options, as `namespaces="git",valid-before="20300101Z"`.
    fn read(options: &str) -> Result<Self, String> {
        let mut limits = Self::default();
        let mut rest = options;
        while !rest.is_empty() {
            let (name, after) = rest
                .split_once('=')
                .ok_or_else(|| format!("the option `{}` is not supported", rest.escape_debug()))?;
            let value = after.strip_prefix('"').and_then(|value| value.split_once('"'));
            let (value, after) = value.ok_or_else(|| format!("the value of `{name}` stands in quotes"))?;
            rest = match after.strip_prefix(',') {
                Some(more) => more,
                None if after.is_empty() => after,
                None => return Err(format!("after `{name}` a comma or a space is expected")),
            };
            match name.to_ascii_lowercase().as_str() {
                "namespaces" => limits.namespaces = Some(value.split(',').map(str::to_owned).collect()),
                "valid-after" => limits.valid_after = Some(moment(value)?),
                "valid-before" => limits.valid_before = Some(moment(value)?),
                other => return Err(format!("the option `{}` is not supported", other.escape_debug())),
            }
        }
        Ok(limits)
    }
}

/// `YYYYMMDD` or `YYYYMMDDHHMM[SS]`, with a `Z` or without: UTC.
fn moment(text: &str) -> Result<i64, String> {
    let digits = text.strip_suffix('Z').unwrap_or(text);
    let form = match digits.len() {
        8 => "%Y%m%d",
        12 => "%Y%m%d%H%M",
        _ => "%Y%m%d%H%M%S",
    };
    let wrong = |_| {
        format!(
            "`{}` is no time as `20300101Z` or `203001011200Z`",
            text.escape_debug()
        )
    };
    let at = match digits.len() {
        8 => Date::strptime(form, digits).map(|date| date.at(0, 0, 0, 0)),
        _ => DateTime::strptime(form, digits),
    };
    let at = at.and_then(|at| TimeZone::UTC.to_timestamp(at)).map_err(wrong)?;
    Ok(at.as_second())
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
        limits: Limits::read(options)?,
        kind: kind.to_owned(),
        key,
    })
}
