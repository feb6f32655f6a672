//! An error for a person: what, where, why, what next (FR-1).

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Group, Level as Grade, Origin, Renderer, Snippet};
use serde::{Deserialize, Serialize};

/// One thing that is wrong, or worth saying, at a place in a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    /// Path in the tree; empty where it is about the tree as a whole.
    pub file: String,
    /// From 1; 0 where it is about the file as a whole.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// How many characters are marked.
    pub width: u32,
    /// Error or warning.
    pub level: Level,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What next: the nearest right name, the command, the reason.
    pub help: Option<String>,
    /// The line itself, without its end.
    pub source: String,
}

/// How grave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing is signed.
    Error,
    /// Said, and on.
    Warning,
}

impl Finding {
    /// An error about a file as a whole, or about the tree when `file` is empty.
    #[must_use]
    pub fn of_file(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: 0,
            column: 0,
            width: 0,
            level: Level::Error,
            message: message.into(),
            help: None,
            source: String::new(),
        }
    }

    /// The same with what to do next.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same with what to do next, where there is something.
    #[must_use]
    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    /// The same as a warning.
    #[must_use]
    pub fn warning(mut self) -> Self {
        self.level = Level::Warning;
        self
    }

    /// Whether nothing may be signed because of it.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.level == Level::Error
    }

    /// The finding as compilers show theirs: what, where, the line with a marker, what next.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let grade = match self.level {
            Level::Error => Grade::ERROR,
            Level::Warning => Grade::WARNING,
        };
        let mut group: Group<'_> = grade
            .primary_title(self.message.as_str())
            .elements(std::iter::empty::<Origin<'_>>());
        if self.line > 0 {
            let snippet = Snippet::source(self.source.as_str())
                .line_start(usize::try_from(self.line).unwrap_or(1))
                .path(self.file.as_str())
                .annotation(AnnotationKind::Primary.span(self.marked()));
            group = group.element(snippet);
        } else if !self.file.is_empty() {
            group = group.element(Origin::path(self.file.as_str()));
        }
        if let Some(help) = &self.help {
            group = group.element(Grade::HELP.message(help.as_str()));
        }
        let renderer = if color {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        renderer.render(&[group])
    }

    /// The marked bytes of the line, never past its end: the renderer panics there.
    fn marked(&self) -> Range<usize> {
        let at = |chars: u32| {
            let chars = usize::try_from(chars).unwrap_or(usize::MAX);
            self.source
                .char_indices()
                .nth(chars)
                .map_or(self.source.len(), |(offset, _)| offset)
        };
        let first = self.column.saturating_sub(1);
        at(first)..at(first.saturating_add(self.width))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_str(), self.line) {
            ("", _) => {}
            (file, 0) => write!(f, "{file}: ")?,
            (file, line) => write!(f, "{file}:{line}:{}: ", self.column)?,
        }
        f.write_str(&self.message)
    }
}

/// The text of a file of the tree, so that a place in it can be shown. A byte-order mark is no part of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    file: Arc<str>,
    bytes: Arc<[u8]>,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The longest part of a line that a finding carries, in characters.
const SHOWN_CHARS: usize = 1000;

impl Source {
    /// The text of `file`, when its bytes are UTF-8.
    ///
    /// # Errors
    /// The finding that says what the bytes are instead.
    pub fn new(file: &str, bytes: Arc<[u8]>) -> Result<Self, Finding> {
        match std::str::from_utf8(&bytes) {
            Ok(_) => Ok(Self {
                file: file.into(),
                bytes,
            }),
            Err(_) if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) => {
                Err(Finding::of_file(file, "this file is UTF-16, documents are UTF-8")
                    .help("save it as UTF-8; a byte-order mark is accepted"))
            }
            Err(e) => {
                let line = bytes[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
                Err(Finding::of_file(
                    file,
                    format!("this file is not UTF-8: line {line} has a byte that is none"),
                ))
            }
        }
    }

    /// A file whose text cannot be had.
    #[must_use]
    pub fn empty(file: &str) -> Self {
        Self {
            file: file.into(),
            bytes: Arc::from(&b""[..]),
        }
    }

    /// Path in the tree.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The text, without a byte-order mark.
    #[must_use]
    pub fn text(&self) -> &str {
        let bytes = self.bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.bytes);
        // Checked when the value was made.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// An error at these bytes of the text; a span past the end, or across lines, is cut.
    #[must_use]
    pub fn error(&self, span: Range<usize>, message: impl Into<String>) -> Finding {
        let text = self.text();
        let start = floor(text, span.start);
        let end = floor(text, span.end.max(start));
        let before = text.get(..start).unwrap_or_default();
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let rest = text.get(line_start..).unwrap_or_default();
        let line_text = rest.split('\n').next().unwrap_or_default();
        let line_text = line_text.strip_suffix('\r').unwrap_or(line_text);
        let line_end = line_start + line_text.len();
        let count = |from: usize, to: usize| {
            number(
                text.get(from..to.min(line_end).max(from))
                    .map_or(0, |t| t.chars().count()),
            )
        };
        Finding {
            line: number(before.matches('\n').count()).saturating_add(1),
            column: count(line_start, start).saturating_add(1),
            width: count(start, end).max(1),
            source: line_text.chars().take(SHOWN_CHARS).collect(),
            ..Finding::of_file(&self.file, message)
        }
    }

    /// An error at a line, from 1, as other parsers name places.
    #[must_use]
    pub fn error_at_line(&self, line: usize, message: impl Into<String>) -> Finding {
        let start = line.checked_sub(2).map_or(0, |newlines| {
            self.text()
                .match_indices('\n')
                .nth(newlines)
                .map_or(self.text().len(), |(at, _)| at + 1)
        });
        let line = self.text().get(start..).unwrap_or_default();
        let line = line.split('\n').next().unwrap_or_default();
        let indent = line.len() - line.trim_start().len();
        self.error(start + indent..start + line.trim_end().len(), message)
    }
}

fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The start of the character that `at` is in.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The nearest of `known` to a misspelt `word`, when one is near.
#[must_use]
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let allowed = 1 + word.chars().count() / 4;
    known
        .into_iter()
        .map(|k| (strsim::damerau_levenshtein(word, k), k))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, k)| k)
}

/// "did you mean" for the nearest of `known`, when one is near.
#[must_use]
pub fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    nearest(word, known).map(|near| format!("did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source::new("a.toml", text.as_bytes().into()).unwrap()
    }

    // holds: FR-1
    #[test]
    fn a_finding_shows_file_line_column_the_line_and_a_marker() {
        let source = source("\u{feff}one = 1\r\nzwö = 2\r\n");
        let text = source.text();
        let at = text.find('2').unwrap();
        let finding = source.error(at..at + 1, "no twos").help("take a three");
        assert_eq!((finding.line, finding.column, finding.width), (2, 7, 1));
        assert_eq!(finding.to_string(), "a.toml:2:7: no twos");
        let shown = finding.render(false);
        for part in [
            "error: no twos",
            "a.toml:2:7",
            "zwö = 2",
            "^",
            "help: take a three",
        ] {
            assert!(shown.contains(part), "{part:?} is not in\n{shown}");
        }
    }

    #[test]
    fn a_span_past_the_end_or_across_lines_is_cut_and_never_panics() {
        let source = source("ä = [\n1]");
        for span in [0..1, 1..2, 0..99, 98..99, 9..9, Range { start: 5, end: 3 }] {
            let finding = source.error(span, "x");
            assert!(!finding.render(true).is_empty());
        }
        let mut wild = source.error(0..1, "x");
        (wild.column, wild.width) = (u32::MAX, u32::MAX);
        assert!(!wild.render(false).is_empty());
        assert_eq!(source.error_at_line(2, "x").source, "1]");
        assert_eq!(source.error_at_line(77, "x").line, 2);
    }

    #[test]
    fn the_nearest_name_is_near() {
        assert_eq!(
            nearest("confrim_secs", ["confirm_secs", "apply_secs"]),
            Some("confirm_secs")
        );
        assert_eq!(nearest("zebra", ["confirm_secs", "apply_secs"]), None);
    }

    #[test]
    fn what_is_not_utf_8_is_said() {
        let utf16: Arc<[u8]> = [0xff, 0xfe, b'a', 0].as_slice().into();
        assert!(Source::new("a", utf16).unwrap_err().message.contains("UTF-16"));
        let latin: Arc<[u8]> = b"a\n\xe4".as_slice().into();
        assert!(Source::new("a", latin).unwrap_err().message.contains("line 2"));
    }
}
