//! Texts of resource kinds that are checked by their form alone: units, images, addresses, names of other tools.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeValue;

use super::calendar::Calendar;
use super::read::{Read, Reader};
use super::scalar::checked_text;
use crate::finding::did_you_mean;

/// A text that is read by its own `FromStr`.
macro_rules! read_texts {
    ($($type:ty),+ $(,)?) => { $(
        impl Read for $type {
            fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
                reader.parsed(value, <$type>::from_str)
            }
            fn written(&self) -> Option<serde_json::Value> {
                serde_json::to_value(self).ok()
            }
        }
    )+ };
}
read_texts!(
    AccountName,
    AgeRecipient,
    Calendar,
    Cidr,
    ComponentRepo,
    EnvName,
    HostVersion,
    ImageRef,
    Interface,
    PackageName,
    PackageVersion,
    ProgramName,
    SecretPath,
    SecretName,
    Sha256,
    SysctlKey,
    TreePath,
    UnitName,
    WebUrl,
);

fn ascii(text: &str, also: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || also.contains(c))
}
fn begins_plain(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
}
fn parts(text: &str) -> bool {
    text.split('/').all(|part| !matches!(part, "" | "." | ".."))
}
fn hex64(text: &str) -> bool {
    text.len() == 64
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

checked_text!(
/// The name of a user or group that a resource makes.
AccountName,
"a user or group is named with a-z, 0-9, `_`, `-` and `.`, starting with a letter or `_`, at most 32 long",
"^[a-z_][a-z0-9_.-]{0,31}$",
|t| {
    t.len() <= 32
        && t.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && t.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c))
});
checked_text!(
/// An age recipient (X25519).
AgeRecipient,
"an age recipient is `age1` and 58 characters more, as `age-keygen` prints it",
"^age1[02-9ac-hj-np-z]{58}$",
|t| age_recipient(t));
checked_text!(
/// A network as address and length, or one address.
Cidr,
"expected an address, or a network as `10.0.0.0/8` or `fd00::/8`",
"^[0-9a-fA-F.:]+(/[0-9]{1,3})?$",
|t| {
    let (address, length) = t.split_once('/').map_or((t, None), |(a, l)| (a, Some(l)));
    let Ok(address) = address.parse::<IpAddr>() else {
        return false;
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    length.is_none_or(|l| {
        l.len() <= 3 && l.bytes().all(|b| b.is_ascii_digit()) && l.parse::<u16>().is_ok_and(|l| l <= most)
    })
});
checked_text!(
/// A repository as the forge names it.
ComponentRepo,
"a repository is named `<owner>/<repo>` as the forge names it",
"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$",
|t| t.len() <= 255 && t.split('/').all(|p| begins_plain(p) && ascii(p, "._-") && p != ".."));
checked_text!(
/// The name of a variable of the environment.
EnvName,
"a variable is named with A-Z, a-z, 0-9 and `_`, not starting with a digit",
"^[A-Za-z_][A-Za-z0-9_]*$",
|t| !t.is_empty() && t.len() <= 255 && !t.starts_with(|c: char| c.is_ascii_digit()) && ascii(t, "_"));
checked_text!(
/// A container image with its digest or a tag.
ImageRef,
"an image is `name@sha256:<64 hex digits>`, or `name:tag`; without either nobody could say which one runs",
"^[a-z0-9][A-Za-z0-9._:/-]*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|@sha256:[0-9a-f]{64})$",
|t| image(t));
checked_text!(
/// The name of a network interface.
Interface,
"an interface is named with letters, digits, `.`, `_` and `-`, at most 15 long",
"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}$",
|t| t.len() <= 15 && begins_plain(t) && ascii(t, "._-"));
checked_text!(
/// The version of a host's program.
HostVersion,
"a version of hosts is written as `1.2.3`",
"^[0-9]+\\.[0-9]+\\.[0-9]+(-[0-9A-Za-z.-]+)?$",
|t| t.parse::<semver::Version>().is_ok_and(|v| v.build.is_empty()));
checked_text!(
/// The name of a package, as its manager writes it.
PackageName,
"a package is named with letters, digits and `+._:@/-`, starting with a letter or digit and not ending with a dash",
"^[A-Za-z0-9]+(-*[A-Za-z0-9+._:@/])*$",
|t| t.len() <= 255 && begins_plain(t) && ascii(t, "+._:@/-") && !t.ends_with('-'));
checked_text!(
/// The version of a package, as its manager writes it.
PackageVersion,
"a version is written with letters, digits and `+._:~^-`, starting with a letter or digit",
"^[A-Za-z0-9][A-Za-z0-9+._:~^-]*$",
|t| t.len() <= 255 && begins_plain(t) && ascii(t, "+._:~^-"));
checked_text!(
/// The name of a process, container, network or volume on the machine: one path component.
ProgramName,
"a name here is one path component: letters, digits, `_`, `.` and `-`, starting with a letter or digit, at most 63 long",
"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$",
|t| t.len() <= 63 && begins_plain(t) && ascii(t, "_.-"));
checked_text!(
/// The name of a secret: its file's name without `.age`.
SecretName,
"a secret is named like its file without `.age`: a-z, 0-9, `.`, `_` and `-`, not starting with a dot or dash, at most 63 long",
"^[a-z0-9_][a-z0-9._-]{0,62}$",
|t| t.parse::<crate::ident::RoleName>().is_ok());
checked_text!(
/// The path of a secret in the fleet repo.
SecretPath,
"a secret is named by its path: `secrets/<name>.age`",
"^secrets/[a-z0-9_][a-z0-9._-]*\\.age$",
|t| {
    t.strip_prefix("secrets/")
        .and_then(|t| t.strip_suffix(".age"))
        .is_some_and(|t| t.parse::<SecretName>().is_ok())
});
checked_text!(
/// A SHA-256 as hexadecimal digits.
Sha256,
"expected `sha256:` and 64 lower-case hexadecimal digits",
"^sha256:[0-9a-f]{64}$",
|t| t.strip_prefix("sha256:").is_some_and(hex64));
checked_text!(
/// The key of a kernel setting.
SysctlKey,
"a kernel setting is named as in `net.ipv4.ip_forward`",
"^[a-z0-9_]+([./][A-Za-z0-9_*:@-]+)+$",
|t| t.len() <= 255 && begins_plain(t) && ascii(t, "._-/:@*") && t.contains(['.', '/']) && !t.contains(".."));
checked_text!(
/// A path in the fleet repo.
TreePath,
"expected a path in this repository: not absolute, without `.`, `..` or `//`",
"^[^/\\x00-\\x1f]+(/[^/\\x00-\\x1f]+)*$",
|t| t.len() <= 4096 && !t.chars().any(char::is_control) && parts(t));
checked_text!(
/// A unit of the service manager.
UnitName,
"a unit is named with its kind, as `nginx.service` or `backup.timer`",
"^[A-Za-z0-9:_.@\\\\-]+\\.(service|socket|timer|target|path|mount|automount|swap|slice)$",
|t| unit(t));
checked_text!(
/// An https address that messages are sent to.
WebUrl,
"expected an address as `https://host/path`",
"^https?://[^/?#@\\s]+",
|t| {
    let rest = t.strip_prefix("https://").or_else(|| t.strip_prefix("http://"));
    let host = rest.map(|r| r.split(['/', '?', '#']).next().unwrap_or_default());
    t.len() <= 2048 && !t.chars().any(|c| c.is_whitespace() || c.is_control()) && host.is_some_and(|h| !h.is_empty() && !h.contains('@'))
});

fn image(text: &str) -> bool {
    if text.len() > 512 || !begins_plain(text) || !ascii(text, "._:/@-") {
        return false;
    }
    let (name, digest) = text.split_once('@').map_or((text, None), |(n, d)| (n, Some(d)));
    if let Some(digest) = digest {
        return !name.is_empty() && parts(name) && digest.strip_prefix("sha256:").is_some_and(hex64);
    }
    // A colon before the last slash belongs to a registry's port.
    let last = name.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').is_some_and(|(image, tag)| {
        !image.is_empty()
            && !tag.is_empty()
            && tag.len() <= 128
            && ascii(tag, "._-")
            && !tag.starts_with(['.', '-'])
    });
    tag && parts(name)
}

const UNIT_KINDS: [&str; 9] = [
    "service",
    "socket",
    "timer",
    "target",
    "path",
    "mount",
    "automount",
    "swap",
    "slice",
];
fn unit(text: &str) -> bool {
    text.len() <= 255
        && text.rsplit_once('.').is_some_and(|(name, kind)| {
            !name.is_empty()
                && !name.starts_with(['.', '-'])
                && ascii(name, ":_.@\\-")
                && UNIT_KINDS.contains(&kind)
        })
}

/// Bech32 (BIP 173) of 32 bytes under `age`: the alphabet, the length and the checksum.
fn age_recipient(text: &str) -> bool {
    const ALPHABET: &str = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
    const GENERATORS: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    let Some(data) = text.strip_prefix("age1").filter(|data| data.len() == 58) else {
        return false;
    };
    let step = |sum: u32, value: u32| {
        let top = sum >> 25;
        let next = ((sum & 0x01ff_ffff) << 5) ^ value;
        (GENERATORS.iter().enumerate()).fold(next, |sum, (bit, generator)| {
            if (top >> bit) & 1 == 1 {
                sum ^ generator
            } else {
                sum
            }
        })
    };
    let prefix = "age"
        .bytes()
        .map(|b| u32::from(b >> 5))
        .chain([0])
        .chain("age".bytes().map(|b| u32::from(b & 31)));
    let start = prefix.fold(1, step);
    let digits: Option<Vec<u32>> = data
        .chars()
        .map(|c| ALPHABET.find(c).and_then(|at| u32::try_from(at).ok()))
        .collect();
    digits.is_some_and(|digits| digits.into_iter().fold(start, step) == 1)
}

/// A Linux capability by its name, without `CAP_`, exactly one that exists (HK-8).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Capability(pub String);

/// capabilities(7), Linux 6.12.
pub const CAPABILITIES: &[&str] = &[
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "AUDIT_WRITE",
    "BLOCK_SUSPEND",
    "BPF",
    "CHECKPOINT_RESTORE",
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "IPC_LOCK",
    "IPC_OWNER",
    "KILL",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_RAW",
    "PERFMON",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_CHROOT",
    "SYS_MODULE",
    "SYS_NICE",
    "SYS_PACCT",
    "SYS_PTRACE",
    "SYS_RAWIO",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

impl Read for Capability {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.text(value)?;
        if text == "ALL" {
            let help = "name the ones that it needs; all of them is `privileged` by another name, which does not exist";
            reader.error_help(
                value.span(),
                format!("`{}` cannot be `ALL`", reader.path()),
                Some(help.to_owned()),
            );
            return None;
        }
        if let Some(bare) = text
            .strip_prefix("CAP_")
            .filter(|bare| CAPABILITIES.contains(bare))
        {
            let message = format!("`{}` cannot be `{text}`", reader.path());
            reader.error_help(
                value.span(),
                message,
                Some(format!("a capability is named without `CAP_`: `{bare}`")),
            );
            return None;
        }
        if CAPABILITIES.contains(&text) {
            return Some(Self(text.to_owned()));
        }
        let message = format!(
            "`{}` cannot be `{}`: there is no such capability",
            reader.path(),
            text.escape_debug()
        );
        let near = did_you_mean(&text.to_ascii_uppercase(), CAPABILITIES.iter().copied());
        reader.error_help(value.span(), message, near);
        None
    }
}
impl JsonSchema for Capability {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Capability".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "enum": CAPABILITIES })
    }
}

/// A port, or a range of ports as `"8000-8010"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last, the same for a single one.
    pub last: u16,
}
impl FromStr for Ports {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let port = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            text.parse::<u16>().ok().filter(|port| digits && *port > 0)
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            _ => Err("expected a port from 1 to 65535, or a range as \"8000-8010\""),
        }
    }
}
impl TryFrom<String> for Ports {
    type Error = &'static str;
    fn try_from(text: String) -> Result<Self, &'static str> {
        text.parse()
    }
}
impl From<Ports> for String {
    fn from(ports: Ports) -> String {
        ports.to_string()
    }
}
impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}
impl Read for Ports {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        if value.get_ref().is_integer() {
            let port = super::scalar::Int::<1, 65_535>::read(value, reader)?;
            let port = u16::try_from(port.0).ok()?;
            return Some(Self {
                first: port,
                last: port,
            });
        }
        reader.parsed(value, Self::from_str)
    }
}
impl JsonSchema for Ports {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Ports".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"], "minimum": 1, "maximum": 65_535, "pattern": "^[0-9]{1,5}(-[0-9]{1,5})?$"
        })
    }
}

/// A text that is handed to another program: not empty, without control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Line(pub String);

impl Read for Line {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.parsed(value, |text| {
            let good = !text.trim().is_empty() && !text.chars().any(char::is_control);
            let why = "expected one line that is not empty";
            if good { Ok(Self(text.to_owned())) } else { Err(why) }
        })
    }
}
impl JsonSchema for Line {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Line".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// A command: the program, then its arguments; no shell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Argv(pub Vec<String>);

impl Read for Argv {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let words: Vec<String> = reader.array(value)?;
        let bad = match words.first() {
            None => Some("a command is an array: the program, then its arguments; this one is empty"),
            Some(program) if program.is_empty() => Some("the program of a command is not empty"),
            Some(program) if program.starts_with('-') => Some("a program does not begin with a dash"),
            _ if words.iter().any(|word| word.contains('\0')) => Some("a command holds no NUL"),
            _ => None,
        };
        match bad {
            None => Some(Self(words)),
            Some(why) => {
                reader.error(value.span(), format!("`{}`: {why}", reader.path()));
                None
            }
        }
    }
}
impl JsonSchema for Argv {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Argv".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": { "type": "string" }, "minItems": 1 })
    }
}

/// Free names with a text each: variables of the environment, labels, kernel settings.
macro_rules! pairs {
    ($(#[doc = $doc:literal])+ $type:ident of $key:ty, $pattern:literal) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $type(pub BTreeMap<String, String>);

        impl Read for $type {
            fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
                let pairs: Vec<(_, Value)> = reader.map(value, <$key>::from_str)?;
                Some(Self(pairs.into_iter().map(|(key, value)| (key.value.0, value.0)).collect()))
            }
            fn missing() -> Option<Self> {
                Some(Self::default())
            }
        }
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "object",
                    "propertyNames": { "pattern": $pattern },
                    "additionalProperties": { "type": ["string", "integer"] }
                })
            }
        }
    };
}
pairs!(
    /// Variables of an environment.
    Env of EnvName, "^[A-Za-z_][A-Za-z0-9_]*$");
pairs!(
    /// Labels.
    Labels of LabelName, "^[A-Za-z0-9][A-Za-z0-9._/-]*$");
pairs!(
    /// Kernel settings.
    Sysctls of SysctlKey, "^[a-z0-9_]+([./][A-Za-z0-9_*:@-]+)+$");

checked_text!(
/// The name of a label.
LabelName,
"a label is named with letters, digits and `._/-`, starting with a letter or digit",
"^[A-Za-z0-9][A-Za-z0-9._/-]*$",
|t| t.len() <= 255 && begins_plain(t) && ascii(t, "._/-"));

/// A value of [`Env`]: a text without NUL, or a whole number.
struct Value(String);

impl Read for Value {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        if value.get_ref().is_integer() {
            return reader.integer(value).map(|number| Self(number.to_string()));
        }
        reader.parsed(value, |text| {
            if text.contains(['\0', '\n']) {
                Err("expected one line")
            } else {
                Ok(Self(text.to_owned()))
            }
        })
    }
}
