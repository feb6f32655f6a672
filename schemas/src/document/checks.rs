//! `checks/<name>.toml`: what must hold of the composed result, whatever a commit changes (FR-11).
//!
//! ```toml
//! [[check]]
//! name = "every edge answers ssh"
//! role = "edge"
//! has = "base.sshd"
//!
//! [[check]]
//! name = "downloads are bounded"
//! policy = "qos.artifact_kib_per_sec <= 2000"
//!
//! [[check]]
//! name = "nobody is root of the machine"
//! never = "container with capability SYS_ADMIN"
//! ```

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use toml::Spanned;
use toml::de::DeValue;

use super::read::{At, Read, Reader, table};
use super::texts::Line;
use crate::finding::did_you_mean;
use crate::ident::{NodeName, ResourceName, RoleName};
use crate::resource::Kind;

table! {
    /// Assertions, as they are written: `checks/<name>.toml`.
    pub struct ChecksFile;
    /// The assertions.
    "check" checks: Vec<At<CheckFile>>,
}

table! {
    /// An assertion about some nodes, or all: exactly one of `has`, `policy`, `never`.
    pub struct CheckFile;
    /// What it is for, in the words that a failed one is said with.
    "name" name: At<Line>,
    /// Only this node.
    "node" node: Option<At<NodeName>>,
    /// Only nodes with this role.
    "role" role: Option<At<RoleName>>,
    /// Resources that the node has, each as `<module>.<id>`: one, or several in an array.
    "has" has: Option<At<Has>>,
    /// What its effective policy says, as `qos.artifact_kib_per_sec <= 2000`.
    "policy" policy: Option<At<PolicyClaim>>,
    /// What it has none of: `<kind>`, `<kind> with <key>`, or `<kind> with <key> <value>`.
    "never" never: Option<At<Never>>,
}

/// What `has` names: one resource as a text, or several in an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Has(pub Vec<At<ResourceName>>);
impl Read for Has {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(_) => At::read(value, reader).map(|one| Self(vec![one])),
            DeValue::Array(_) => reader.array(value).map(Self),
            _ => {
                reader.wrong_type(value, "a text in quotes, or an array of them");
                None
            }
        }
    }
}
impl JsonSchema for Has {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Has".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<ResourceName>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

/// How two values compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the comparisons, by their names")]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    AtMost,
    More,
    AtLeast,
}
const COMPARISONS: [(&str, Comparison); 6] = [
    ("==", Comparison::Equal),
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("<", Comparison::Less),
    (">", Comparison::More),
];
impl Comparison {
    /// Every one.
    pub const ALL: [Self; 6] = [
        Self::Equal,
        Self::NotEqual,
        Self::Less,
        Self::AtMost,
        Self::More,
        Self::AtLeast,
    ];

    /// Whether only numbers can be compared so.
    #[must_use]
    pub fn orders(self) -> bool {
        !matches!(self, Self::Equal | Self::NotEqual)
    }
    /// Whether two numbers compare so.
    #[must_use]
    pub fn holds(self, left: i64, right: i64) -> bool {
        match self {
            Self::Equal => left == right,
            Self::NotEqual => left != right,
            Self::Less => left < right,
            Self::AtMost => left <= right,
            Self::More => left > right,
            Self::AtLeast => left >= right,
        }
    }
}
impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = COMPARISONS.iter().find(|(_, meaning)| meaning == self);
        f.write_str(word.map_or("", |(word, _)| word))
    }
}

/// What a claim compares with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    /// A whole number.
    Number(i64),
    /// True or false.
    Flag(bool),
    /// A text, in single or double quotes.
    Text(String),
}
impl FromStr for Operand {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let quoted = ['"', '\''].into_iter().find_map(|quote| {
            let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
            (!inner.contains(quote)).then(|| inner.to_owned())
        });
        match (text, quoted) {
            (_, Some(text)) => Ok(Self::Text(text)),
            ("true", _) => Ok(Self::Flag(true)),
            ("false", _) => Ok(Self::Flag(false)),
            _ => (text.parse().map(Self::Number))
                .map_err(|_| "expected a whole number, true, false, or a text in quotes on the right"),
        }
    }
}

/// `<section>.<key> <comparison> <value>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyClaim {
    /// The key path: section, then key.
    pub path: Vec<String>,
    /// How it compares.
    pub comparison: Comparison,
    /// With what.
    pub operand: Operand,
}
impl FromStr for PolicyClaim {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str =
            "expected `<section>.<key> <comparison> <value>`, as `qos.artifact_kib_per_sec <= 2000`";
        let text = text.trim();
        let (path, rest) = text.split_once(char::is_whitespace).ok_or(FORM)?;
        let rest = rest.trim_start();
        let (word, comparison) = (COMPARISONS.iter().find(|(word, _)| rest.starts_with(word)))
            .ok_or("the comparison is one of ==, !=, <, <=, >, >=")?;
        let operand: Operand = rest.strip_prefix(word).unwrap_or_default().trim().parse()?;
        // `policy.qos.x`, as people think of it, is the same.
        let path = path.strip_prefix("policy.").unwrap_or(path);
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        if path.len() < 2 || path.iter().any(String::is_empty) {
            return Err(FORM.to_owned());
        }
        if comparison.orders() && !matches!(operand, Operand::Number(_)) {
            return Err(format!("`{comparison}` compares whole numbers"));
        }
        Ok(Self {
            path,
            comparison: *comparison,
            operand,
        })
    }
}

/// `<kind> [with <key> [<value>]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Never {
    /// The word of a kind.
    pub kind: String,
    /// A key of the kind, and the value that it may not have; none: any.
    pub with: Option<(String, Option<String>)>,
}
impl FromStr for Never {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (kind, with) = match words.as_slice() {
            [kind] => (kind, None),
            [kind, "with", key] => (kind, Some(((*key).to_owned(), None))),
            [kind, "with", key, value @ ..] => (kind, Some(((*key).to_owned(), Some(value.join(" "))))),
            _ => {
                return Err(
                    "expected `<kind>`, `<kind> with <key>` or `<kind> with <key> <value>`".to_owned(),
                );
            }
        };
        if !Kind::WORDS.contains(kind) {
            let near = did_you_mean(kind, Kind::WORDS.iter().copied());
            return Err(format!(
                "there is no kind `{kind}`; {}",
                near.unwrap_or_else(|| Kind::WORDS.join(", "))
            ));
        }
        Ok(Self {
            kind: (*kind).to_owned(),
            with,
        })
    }
}

macro_rules! read_claim {
    ($type:ident, $pattern:literal) => {
        impl Read for $type {
            fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
                reader.parsed(value, Self::from_str)
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
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}
read_claim!(PolicyClaim, "^\\s*[^\\s.]+(\\.[^\\s.]+)+\\s+(==|!=|<=|>=|<|>).+$");
read_claim!(Never, "^\\s*[a-z_-]+(\\s+with\\s+\\S+.*)?$");
