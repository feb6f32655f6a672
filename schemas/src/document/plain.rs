//! Reads the plain part of TOML 1.0 in one pass over the bytes: what nearly all of a fleet's ten thousand records are.
//!
//! That is lines of `key = value`, the values texts, whole numbers, truth values and arrays of them on one line, and
//! `[table]`s of such lines. What is anything else, or wrong in any way, is left to the parser of the whole language,
//! which says what is wrong: no word for a person comes from here. Invariant: what this gives is what that parser gives,
//! to the span, and nothing of it is of TOML 1.1.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

/// The table of a plain document; none where the whole parser must look.
pub(super) fn table(text: &str) -> Option<DeTable<'_>> {
    let mut cursor = Cursor { text, at: 0 };
    let mut root = cursor.pairs()?;
    while cursor.peek().is_some() {
        let (name, span) = cursor.header()?;
        let section = DeValue::Table(cursor.pairs()?);
        insert(&mut root, name, Spanned::new(span, section))?;
    }
    Some(root)
}

/// Puts a value where there is none yet.
fn insert<'i>(
    table: &mut DeTable<'i>,
    key: Spanned<DeString<'i>>,
    value: Spanned<DeValue<'i>>,
) -> Option<()> {
    table.insert(key, value).is_none().then_some(())
}

/// A place in a text. Each reading gives none, and the cursor is of no use any more, where the text is not plain.
struct Cursor<'i> {
    text: &'i str,
    at: usize,
}

impl<'i> Cursor<'i> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes over this byte.
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Passes over all bytes like that; where they are.
    fn take_all(&mut self, like: impl Fn(u8) -> bool) -> Range<usize> {
        let start = self.at;
        let rest = self.text.as_bytes().get(start..).unwrap_or_default();
        self.at += rest.iter().position(|byte| !like(*byte)).unwrap_or(rest.len());
        start..self.at
    }

    fn blanks(&mut self) {
        self.take_all(|byte| matches!(byte, b' ' | b'\t'));
    }

    /// What is left of a line that has nothing more to say.
    fn line_end(&mut self) -> Option<()> {
        self.blanks();
        if self.take(b'#').is_some() {
            self.take_all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f));
        }
        if self.peek().is_none() {
            return Some(());
        }
        let _ = self.take(b'\r');
        self.take(b'\n')
    }

    /// The lines up to the next header or the end of the text.
    fn pairs(&mut self) -> Option<DeTable<'i>> {
        let mut pairs = DeTable::new();
        loop {
            self.blanks();
            match self.peek() {
                None | Some(b'[') => return Some(pairs),
                Some(b'#' | b'\r' | b'\n') => {}
                Some(_) => {
                    let key = self.key()?;
                    self.blanks();
                    self.take(b'=')?;
                    self.blanks();
                    let value = self.value()?;
                    insert(&mut pairs, key, value)?;
                }
            }
            self.line_end()?;
        }
    }

    /// The line `[name]`, with where its brackets are.
    fn header(&mut self) -> Option<(Spanned<DeString<'i>>, Range<usize>)> {
        let start = self.at;
        self.take(b'[')?;
        self.blanks();
        let name = self.key()?;
        self.blanks();
        self.take(b']')?;
        let span = start..self.at;
        self.line_end()?;
        Some((name, span))
    }

    fn key(&mut self) -> Option<Spanned<DeString<'i>>> {
        let span = self.take_all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        let key = self.text.get(span.clone()).filter(|key| !key.is_empty())?;
        Some(Spanned::new(span, Cow::Borrowed(key)))
    }

    fn value(&mut self) -> Option<Spanned<DeValue<'i>>> {
        let start = self.at;
        let value = match self.peek()? {
            b'"' => self.basic_string()?,
            b'[' => self.array()?,
            b'0'..=b'9' => self.number()?,
            _ => self.flag()?,
        };
        Some(Spanned::new(start..self.at, value))
    }

    /// `"text"`, without an escape. Three quotes in a row begin another kind of string.
    fn basic_string(&mut self) -> Option<DeValue<'i>> {
        self.take(b'"')?;
        let inside =
            self.take_all(|byte| !matches!(byte, b'"' | b'\\' | 0x7f) && (byte >= b' ' || byte == b'\t'));
        self.take(b'"')?;
        if inside.is_empty() && self.peek() == Some(b'"') {
            return None;
        }
        Some(DeValue::String(Cow::Borrowed(self.text.get(inside)?)))
    }

    /// An array on one line of values that are no arrays.
    fn array(&mut self) -> Option<DeValue<'i>> {
        let mut array = DeArray::new();
        self.take(b'[')?;
        self.blanks();
        while self.take(b']').is_none() {
            if self.peek() == Some(b'[') {
                return None;
            }
            array.push(self.value()?);
            self.blanks();
            if self.take(b',').is_some() {
                self.blanks();
            } else if self.peek() != Some(b']') {
                return None;
            }
        }
        Some(DeValue::Array(array))
    }

    /// Digits alone, as the parser of the whole language takes them: its numbers have no other maker.
    fn number(&mut self) -> Option<DeValue<'i>> {
        let digits = self.take_all(|byte| byte.is_ascii_digit());
        let digits = self.text.get(digits)?;
        Some(DeValue::parse(digits).ok()?.into_inner())
    }

    fn flag(&mut self) -> Option<DeValue<'i>> {
        let word = self.take_all(|byte| byte.is_ascii_lowercase());
        match self.text.get(word)? {
            "true" => Some(DeValue::Boolean(true)),
            "false" => Some(DeValue::Boolean(false)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::toml_1_0;
    use super::*;
    use crate::finding::Source;

    /// What the whole parser makes of a text; none where it, or the check for TOML 1.1, has something to say.
    fn whole(text: &str) -> Option<String> {
        let (table, errors) = DeTable::parse_recoverable(text);
        let source = Source::new("a.toml", text.as_bytes().into()).unwrap();
        (errors.is_empty() && toml_1_0::findings(&source).is_empty())
            .then(|| format!("{:?}", table.into_inner()))
    }

    fn plain(text: &str) -> Option<String> {
        table(text).map(|table| format!("{table:?}"))
    }

    #[test]
    fn a_record_is_plain_and_reads_as_the_whole_parser_reads_it() {
        let record = "#:schema node.json\r\nid = \"0192f0c1-0000-7000-8000-000000000001\" # its uuid\n\
                      roles = [\"edge\", \"dns\" , ]\nmodules=[]\n\tadopted = true\nvalid_to =  1800000000\n\n\
                      [ vars ]\nsite = \"Besan\u{e7}on\"\nports = [80, 443]\n[more]";
        assert!(plain(record).is_some());
        assert_eq!(plain(record), whole(record));
    }

    #[test]
    fn what_is_wrong_or_of_1_1_or_not_plain_is_left_to_the_whole_parser() {
        for text in [
            "a = 1\na = 2\n",
            "a = 1\n[a]\n",
            "[a]\n[a]\n",
            "[a]\nb = 1\n[a.b]\n",
            "a = 1 b = 2\n",
            "a = 01\n",
            "a = 1.5\n",
            "a = 12:30\n",
            "a = 2026-10-14\n",
            "a = \"\\e\"\n",
            "a = \"\"\"\"\"\"\n",
            "a = \"\t\u{7}\"\n",
            "a = 'b'\n",
            "a = { b = 1 }\n",
            "a = [[1]]\n",
            "a = [1\n]\n",
            "a = [,]\n",
            "a = [1 2]\n",
            "a = \n",
            "a\n",
            "= 1\n",
            "a.b = 1\n",
            "\"a\" = 1\n",
            "[[a]]\n",
            "[a] b = 1\n",
            "a = truely\n",
            "a = \"b\n",
            "a = 1 \r b = 2",
            "# \u{7}\n",
            "\u{feff}a = 1\n",
        ] {
            assert_eq!(plain(text), None, "{text:?}");
        }
    }

    /// Pieces of lines, plain and not, that make both kinds of documents when they are put together.
    const PIECES: [&str; 36] = [
        "a",
        "b",
        "[",
        "]",
        "[a]",
        "[b]",
        "[[",
        "=",
        " = ",
        "\"",
        "\"x\"",
        "\"\"",
        "\u{e9}",
        "\\",
        "#",
        "# c",
        "\n",
        "\r\n",
        "\r",
        "\t",
        " ",
        ",",
        ", ",
        "1",
        "0",
        "23",
        "-",
        ".",
        ":",
        "true",
        "false",
        "'",
        "{",
        "}",
        "a = 1\n",
        "b = [\"x\", 2]\n",
    ];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]
        #[test]
        fn what_is_plain_reads_as_the_whole_parser_reads_it(
            pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..12),
        ) {
            let text = pieces.concat();
            if let Some(read) = plain(&text) {
                prop_assert_eq!(Some(read), whole(&text), "{:?}", text);
            }
        }
    }
}
