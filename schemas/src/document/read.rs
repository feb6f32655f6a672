//! Reads a TOML document into typed tables, and says everything that is wrong with it at once.
//!
//! serde stops at the first wrong value of a table and loses places behind tags and flattening; here every key is
//! read by itself, with its place. [`table!`] declares a table once: the struct, its reader and its JSON Schema come
//! from the same lines, so that an unknown key is an error at every depth and editors know what the reader knows.

use std::fmt::Display;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{plain, toml_1_0};
use crate::finding::{Finding, Source, did_you_mean, nearest};

/// A value that a document can hold.
pub trait Read: Sized {
    /// Takes the value, or says why not and returns none.
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self>;

    /// What a key that is not there means; none: the key must be there.
    fn missing() -> Option<Self> {
        None
    }

    /// The value as a published schema shows it as a default.
    fn written(&self) -> Option<serde_json::Value> {
        None
    }
}

/// A value with its place in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Its bytes in the text of its [`Source`].
    pub span: Range<usize>,
}

/// Where a reader is, and what it found.
#[derive(Debug)]
pub struct Reader<'s> {
    source: &'s Source,
    findings: &'s mut Vec<Finding>,
    path: Vec<String>,
}

/// A key that is known and still refused, with the reason that a person reads; `{}` in it is the key's path.
pub type RefusedKey = (&'static str, &'static str);

/// A cascade of syntax errors says no more than its first few.
const SYNTAX_ERRORS: usize = 5;

/// Reads a whole document.
pub fn document<T: Read>(source: &Source, findings: &mut Vec<Finding>) -> Option<T> {
    if source.text().starts_with('\u{feff}') {
        // The parser would pass over this one; other parsers do not.
        let finding = source.error(0..0, "a second byte-order mark");
        findings.push(finding.help("save the file anew: one mark may stand at its start"));
        return None;
    }
    let table = match plain::table(source.text()) {
        Some(table) => table,
        None => whole(source, findings)?,
    };
    let mut reader = Reader {
        source,
        findings,
        path: Vec::new(),
    };
    T::read(&Spanned::new(0..0, DeValue::Table(table)), &mut reader)
}

/// What the parser of the whole language reads, or everything that is wrong with the text.
fn whole<'s>(source: &'s Source, findings: &mut Vec<Finding>) -> Option<DeTable<'s>> {
    let (table, errors) = DeTable::parse_recoverable(source.text());
    let mut broken: Vec<Finding> = errors
        .iter()
        .map(|e| {
            let finding = source.error(e.span().unwrap_or(0..0), e.message().trim_end());
            match finding.source.find('\u{feff}') {
                Some(_) => finding.help("a byte-order mark may stand at the start of the file only"),
                None => finding,
            }
        })
        .collect();
    if broken.is_empty() {
        broken = toml_1_0::findings(source);
    }
    broken.sort();
    broken.dedup_by_key(|f| f.line);
    broken.truncate(SYNTAX_ERRORS);
    if !broken.is_empty() {
        findings.append(&mut broken);
        return None;
    }
    Some(table.into_inner())
}

impl Reader<'_> {
    /// Says an error at a value.
    pub fn error(&mut self, span: Range<usize>, message: impl Into<String>) {
        let finding = self.source.error(span, message);
        self.findings.push(finding);
    }

    /// Says an error with what to do next.
    pub fn error_help(&mut self, span: Range<usize>, message: impl Into<String>, help: Option<String>) {
        let finding = self.source.error(span, message).maybe_help(help);
        self.findings.push(finding);
    }

    /// The key path of where the reader is, as `stage.healthy.times`.
    #[must_use]
    pub fn path(&self) -> String {
        self.path.join(".")
    }

    /// Says that a value has the wrong type.
    pub fn wrong_type(&mut self, value: &Spanned<DeValue<'_>>, wanted: &str) {
        let message = format!(
            "`{}` must be {wanted}, this is {}",
            self.path(),
            type_words(value.get_ref())
        );
        self.error(value.span(), message);
    }

    /// The value as a table without any key outside `known`.
    pub fn table<'v, 'i>(
        &mut self,
        value: &'v Spanned<DeValue<'i>>,
        known: &[&str],
        refused: &[RefusedKey],
    ) -> Option<&'v DeTable<'i>> {
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(value, "a table");
            return None;
        };
        for key in table.keys() {
            let name: &str = key.get_ref();
            if known.contains(&name) {
                continue;
            }
            self.path.push(name.to_owned());
            let path = self.path();
            self.path.pop();
            if let Some((_, reason)) = refused.iter().find(|(word, _)| *word == name) {
                self.error(key.span(), reason.replace("{}", &path));
            } else {
                let help = did_you_mean(name, known.iter().copied())
                    .unwrap_or_else(|| format!("known here: {}", known.join(", ")));
                self.error_help(key.span(), format!("unknown key `{path}`"), Some(help));
            }
        }
        Some(table)
    }

    /// The value of a key, when it is there.
    pub fn key<T: Read>(&mut self, table: &DeTable<'_>, key: &str) -> Option<Option<T>> {
        let Some(value) = table.get(key) else {
            return Some(None);
        };
        self.path.push(key.to_owned());
        let read = T::read(value, self);
        self.path.pop();
        read.map(Some)
    }

    /// The value of a key, or what its absence means; says so when it must be there. `known` are the table's keys.
    pub fn field<T: Read>(
        &mut self,
        table: &DeTable<'_>,
        (key, known): (&str, &[&str]),
        within: &Spanned<DeValue<'_>>,
    ) -> Option<T> {
        match self.key(table, key)? {
            Some(value) => Some(value),
            None => T::missing().or_else(|| {
                let place = match self.path.last() {
                    Some(_) => format!(" in `{}`", self.path()),
                    None => String::new(),
                };
                let message = format!("the key `{key}` is missing{place}");
                // A misspelt key is said once, by the unknown key; one that is known is no misspelling of another.
                let unknown = table.keys().filter(|k| !known.contains(&k.get_ref().as_ref()));
                let misspelt = unknown.into_iter().any(|k| nearest(k.get_ref(), [key]).is_some());
                if !misspelt {
                    let finding = if self.path.is_empty() {
                        // The keys of the document itself stand above its first table: there it is missing.
                        let help = format!("write `{key} = ...` above the first `[table]`");
                        self.source.error(0..0, message).help(help)
                    } else {
                        self.source.error(within.span(), message)
                    };
                    self.findings.push(finding);
                }
                None
            }),
        }
    }

    /// The value as a text.
    pub fn text<'v>(&mut self, value: &'v Spanned<DeValue<'_>>) -> Option<&'v str> {
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wrong_type(value, "a text in quotes");
        }
        text
    }

    /// The value as one of these words.
    pub fn word<T: Copy>(&mut self, value: &Spanned<DeValue<'_>>, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(value)?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*meaning);
        }
        let known = words.iter().map(|(word, _)| *word);
        let list: Vec<&str> = known.clone().collect();
        let message = format!(
            "`{}` cannot be `{text}`, it is one of {}",
            self.path(),
            list.join(", ")
        );
        self.error_help(value.span(), message, did_you_mean(text, known));
        None
    }

    /// The value as a text that `parse` takes.
    pub fn parsed<T, E: Display>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(value)?;
        match parse(text) {
            Ok(parsed) => Some(parsed),
            Err(e) => {
                let message = format!("`{}` cannot be `{}`: {e}", self.path(), text.escape_debug());
                self.error(value.span(), message);
                None
            }
        }
    }

    /// The value as a whole number.
    pub fn integer(&mut self, value: &Spanned<DeValue<'_>>) -> Option<i64> {
        let Some(integer) = value.get_ref().as_integer() else {
            self.wrong_type(value, "a whole number");
            return None;
        };
        let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok();
        if number.is_none() {
            let message = format!("`{}` is larger than any number here may be", self.path());
            self.error(value.span(), message);
        }
        number
    }

    /// The elements of an array.
    pub fn array<T: Read>(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Vec<T>> {
        let Some(array) = value.get_ref().as_array() else {
            self.wrong_type(value, "an array");
            return None;
        };
        // Every element is read, so that every wrong one is said.
        let read: Vec<Option<T>> = array.iter().map(|element| T::read(element, self)).collect();
        read.into_iter().collect()
    }

    /// The keys of a free table with their values.
    pub fn map<K, T: Read, E: Display>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        parse: impl Fn(&str) -> Result<K, E>,
    ) -> Option<Vec<(At<K>, T)>> {
        let DeValue::Table(table) = value.get_ref() else {
            self.wrong_type(value, "a table");
            return None;
        };
        let mut read = Vec::new();
        for (key, value) in table {
            let name: &str = key.get_ref();
            self.path.push(name.to_owned());
            let parsed = match parse(name) {
                Ok(value) => Some(At {
                    value,
                    span: key.span(),
                }),
                Err(e) => {
                    let message = format!("`{}` cannot be a key: {e}", self.path());
                    self.error(key.span(), message);
                    None
                }
            };
            let value = T::read(value, self);
            self.path.pop();
            read.push(parsed.zip(value));
        }
        read.into_iter().collect()
    }
}

fn type_words(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// Declares a table of a document: `"key" field: Type`, with `= default` where it has one. An `Option` may be left
/// out, and so may a table of which every key may be; `as default` says what its absence comes to, where the reader must
/// still be able to tell. `refuses` names a list of [`RefusedKey`]s.
macro_rules! table {
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident $(refuses $refused:expr)? ;
        $( $(#[doc = $key_doc:literal])+ $key:literal $field:ident : $type:ty $(as $shown:literal)? $(= $default:expr)? ),* $(,)?
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone)]
        pub struct $name {
            $( $(#[doc = $key_doc])+ pub $field: $type, )*
        }

        impl $crate::document::read::Read for $name {
            fn read(
                value: &toml::Spanned<toml::de::DeValue<'_>>,
                reader: &mut $crate::document::read::Reader<'_>,
            ) -> Option<Self> {
                let known: &[&str] = &[$($key),*];
                let table = reader.table(value, known, $crate::document::read::table!(@refused $($refused)?))?;
                $( let $field = $crate::document::read::table!(@read reader, table, $key, known, value, $type $(, $default)?); )*
                Some(Self { $( $field: $field? ),* })
            }
            fn missing() -> Option<Self> {
                Some(Self { $( $field: $crate::document::read::table!(@missing $type $(, $default)?)? ),* })
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut table = $crate::document::published::TableSchema::new(concat!($($doc, "\n"),+));
                $( $crate::document::read::table!(@publish table, generator, $key, concat!($($key_doc, "\n"),+), $type $(as $shown)? $(, $default)?); )*
                table.finish()
            }
        }
    };
    (@refused) => { &[] };
    (@refused $refused:expr) => { $refused };
    (@read $reader:ident, $table:ident, $key:literal, $known:ident, $within:ident, $type:ty) => {
        $reader.field::<$type>($table, ($key, $known), $within)
    };
    (@read $reader:ident, $table:ident, $key:literal, $known:ident, $within:ident, $type:ty, $default:expr) => {
        $reader.key::<$type>($table, $key).map(|value| value.unwrap_or_else(|| $default))
    };
    (@missing $type:ty) => { <$type as $crate::document::read::Read>::missing() };
    (@missing $type:ty, $default:expr) => { Some::<$type>($default) };
    (@publish $table:ident, $generator:ident, $key:literal, $doc:expr, $type:ty) => {
        let needed = <$type as $crate::document::read::Read>::missing().is_none();
        $table.key::<$type>($generator, $key, $doc, needed, None);
    };
    (@publish $table:ident, $generator:ident, $key:literal, $doc:expr, $type:ty as $shown:literal) => {
        $table.key::<$type>($generator, $key, $doc, false, Some(serde_json::Value::from($shown)));
    };
    (@publish $table:ident, $generator:ident, $key:literal, $doc:expr, $type:ty, $default:expr) => {
        let default: $type = $default;
        // One that cannot be written is published as null: a test finds it.
        let written = $crate::document::read::Read::written(&default).unwrap_or_default();
        $table.key::<$type>($generator, $key, $doc, false, Some(written));
    };
}
pub(crate) use table;
