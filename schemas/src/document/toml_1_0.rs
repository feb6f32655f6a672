//! Refuses what TOML 1.1 added to TOML 1.0 (FR-1): editors and tools that people point at a fleet repo read 1.0, and one
//! checker must not take what another refuses.
//!
//! The parser takes 1.1. What its changelog names is looked for in the stream of events of a document that was parsed
//! without an error: line ends and a last comma in inline tables, the escapes `\e` and `\x`, times without seconds.

use std::ops::Range;

use toml_parser::Source as Text;
use toml_parser::decoder::Encoding;
use toml_parser::parser::{Event, EventKind, parse_document};

use crate::finding::{Finding, Source};

/// Where the stream is.
enum Inside {
    Array,
    Table {
        /// A line end in it was said.
        said: bool,
        /// A comma after which no key has come yet.
        comma: Option<Range<usize>>,
    },
}

/// What a text that the parser took has of TOML 1.1.
pub(super) fn findings(source: &Source) -> Vec<Finding> {
    let text = source.text();
    let tokens: Vec<_> = Text::new(text).lex().collect();
    let mut found: Vec<(Range<usize>, &str, &str)> = Vec::new();
    let mut inside: Vec<Inside> = Vec::new();
    let mut receiver = |event: Event| {
        let span = event.span().start()..event.span().end();
        match event.kind() {
            EventKind::InlineTableOpen => inside.push(Inside::Table {
                said: false,
                comma: None,
            }),
            EventKind::ArrayOpen => inside.push(Inside::Array),
            EventKind::ArrayClose => {
                inside.pop();
            }
            EventKind::InlineTableClose => {
                if let Some(Inside::Table {
                    comma: Some(comma), ..
                }) = inside.pop()
                {
                    found.push((
                        comma,
                        "a comma behind the last key of an inline table",
                        "take the comma away",
                    ));
                }
            }
            EventKind::ValueSep => {
                if let Some(Inside::Table { comma, .. }) = inside.last_mut() {
                    *comma = Some(span);
                }
            }
            EventKind::SimpleKey | EventKind::Scalar => {
                if let (EventKind::SimpleKey, Some(Inside::Table { comma, .. })) =
                    (event.kind(), inside.last_mut())
                {
                    *comma = None;
                }
                let raw = text.get(span.clone()).unwrap_or_default();
                match event.encoding() {
                    Some(Encoding::BasicString | Encoding::MlBasicString) => {
                        found.extend(escapes(raw).map(|(at, what)| {
                            let at = span.start + at;
                            (
                                at..at + 2,
                                what,
                                "write the character by its number, as `\\u001B`",
                            )
                        }));
                    }
                    None if event.kind() == EventKind::Scalar && without_seconds(raw) => {
                        found.push((span, "a time without seconds", "write the seconds, as `12:30:00`"));
                    }
                    _ => {}
                }
            }
            EventKind::Newline => {
                if let Some(Inside::Table { said, .. }) = inside.last_mut()
                    && !*said
                {
                    *said = true;
                    let help = "write it on one line, or as a `[table]` of its own";
                    found.push((span, "a line end in an inline table", help));
                }
            }
            _ => {}
        }
    };
    parse_document(&tokens, &mut receiver, &mut ());
    let say = |(span, what, help)| {
        let message = format!("{what} is of TOML 1.1, the documents of a fleet are TOML 1.0");
        source.error(span, message).help(help)
    };
    found.into_iter().map(say).collect()
}

/// The escapes of TOML 1.1 in a basic string, with where they stand in it.
fn escapes(raw: &str) -> impl Iterator<Item = (usize, &'static str)> {
    let mut bytes = raw.bytes().enumerate();
    std::iter::from_fn(move || {
        while let Some((at, byte)) = bytes.next() {
            if byte != b'\\' {
                continue;
            }
            match bytes.next() {
                Some((_, b'e')) => return Some((at, "the escape `\\e`")),
                Some((_, b'x')) => return Some((at, "the escape `\\x`")),
                _ => {}
            }
        }
        None
    })
}

/// Whether a bare value is a time, or a date with one, that ends with its minutes.
fn without_seconds(raw: &str) -> bool {
    let Some((before, after)) = raw.split_once(':') else {
        return false;
    };
    let digits = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    let hour = before
        .len()
        .checked_sub(2)
        .and_then(|at| before.get(at..))
        .is_some_and(digits);
    hour && after.get(..2).is_some_and(digits) && after.as_bytes().get(2) != Some(&b':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Vec<(u32, u32, String)> {
        let source = Source::new("a.toml", text.as_bytes().into()).unwrap();
        let (_, errors) = toml::de::DeTable::parse_recoverable(source.text());
        assert!(errors.is_empty(), "{text:?} is no TOML at all: {errors:?}");
        findings(&source)
            .into_iter()
            .map(|f| (f.line, f.column, f.message))
            .collect()
    }

    // holds: FR-1
    #[test]
    fn each_thing_of_1_1_is_refused_at_its_place() {
        for (text, line, column, words) in [
            ("a = {\n b = 1 }\n", 1, 6, "a line end in an inline table"),
            ("a = { b = 1, # why\n c = 2 }\n", 1, 19, "a line end"),
            ("a = { b = 1, }\n", 1, 12, "a comma behind"),
            ("a = [{ b = 1, }]\n", 1, 13, "a comma behind"),
            ("a = \"x\\e[0m\"\n", 1, 7, "the escape `\\e`"),
            ("a = \"\\\\\\x41\"\n", 1, 8, "the escape `\\x`"),
            ("a = \"\"\"\n\\e\"\"\"\n", 2, 1, "the escape `\\e`"),
            ("\"a\\x41\" = 1\n", 1, 3, "the escape `\\x`"),
            ("a = 12:30\n", 1, 5, "a time without seconds"),
            ("a = 2026-10-14T12:30Z\n", 1, 5, "a time without seconds"),
            ("a = 2026-10-14 12:30+02:00\n", 1, 5, "a time without seconds"),
            ("a = [12:30]\n", 1, 6, "a time without seconds"),
        ] {
            let said = said(text);
            assert_eq!(said.len(), 1, "{text:?}: {said:?}");
            let (at_line, at_column, message) = &said[0];
            assert_eq!((*at_line, *at_column), (line, column), "{text:?}: {message}");
            assert!(
                message.starts_with(words) && message.contains("TOML 1.0"),
                "{text:?}: {message}"
            );
        }
    }

    // holds: FR-1
    #[test]
    fn what_1_0_has_is_taken() {
        for text in [
            "a = { b = 1, c = [\n 1,\n 2,\n], d = { e = 1 } }\n",
            "a = [\n { b = 1 },\n { b = 2 }, # two\n]\n",
            "a = {}\nb = []\n",
            "a = '\\e\\x41'\nb = '''\\e'''\nc = \"\\\\e \\\\x41 \\u001B\"\n",
            "a = \"\"\"\\\n  x\\\\e\"\"\"\n",
            "a = 12:30:00\nb = 2026-10-14T12:30:00Z\nc = 2026-10-14 12:30:00.5+02:00\nd = 2026-10-14\n",
            "a = \"12:30\"\nb = 'ed25519:12:30'\n",
            "\"12:30\" = 1\n[x.\"a:30\"]\n",
            "a = { b = { c = 1 }, d = 2 }\n",
        ] {
            assert_eq!(said(text), [], "{text:?}");
        }
    }
}
