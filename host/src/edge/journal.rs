//! The node's journal: a line of JSON an event, in the state folder, and to tracing as a structured event (RO-7).
//!
//! It stands alone because it is appended to, unlike everything else that the host keeps; a line that a power cut
//! halved is skipped when it is read. Nothing is ever decided on it.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::pure::agent::Entry;

/// The file; the one before it has `.1` behind its name.
const FILE: &str = "journal.jsonl";
/// At this size a new file is begun.
const FILE_BYTES: u64 = 4 * 1024 * 1024;

/// An event with its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Unix seconds.
    pub at: i64,
    /// The event.
    #[serde(flatten)]
    pub entry: Entry,
}

/// The journal, open for writing.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
}

impl Journal {
    /// The journal of a state folder.
    #[must_use]
    pub fn at(state_dir: &Path) -> Self {
        Self {
            path: state_dir.join(FILE),
        }
    }

    /// Writes an event. A journal that cannot be written stops nothing: it is said to tracing.
    pub fn write(&self, at: i64, entry: &Entry) {
        tracing::info!(event = %entry.event, number = entry.number, "{}", entry.words);
        let line = Line {
            at,
            entry: entry.clone(),
        };
        if let Err(error) = self.append(&line) {
            tracing::warn!(%error, path = %self.path.display(), "the journal cannot be written");
        }
    }

    fn append(&self, line: &Line) -> io::Result<()> {
        if std::fs::metadata(&self.path).is_ok_and(|m| m.len() > FILE_BYTES) {
            std::fs::rename(&self.path, former(&self.path))?;
        }
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&self.path)?;
        // One write, so that two lines never mix and a cut leaves at most one half.
        file.write_all(&bytes)
    }

    /// The last events, oldest first.
    ///
    /// # Errors
    /// A file is there and cannot be read.
    pub fn last(&self, count: usize) -> io::Result<Vec<Line>> {
        let mut lines = std::collections::VecDeque::new();
        for path in [former(&self.path), self.path.clone()] {
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            for text in BufReader::new(file).split(b'\n') {
                if let Ok(line) = serde_json::from_slice(&text?) {
                    lines.push_back(line);
                    if lines.len() > count {
                        lines.pop_front();
                    }
                }
            }
        }
        Ok(lines.into())
    }
}

fn former(path: &Path) -> PathBuf {
    path.with_extension("jsonl.1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: &str) -> Entry {
        Entry {
            event: event.into(),
            number: Some(7),
            words: "two\nlines".into(),
        }
    }

    // holds: RO-7
    #[test]
    fn events_come_back_in_order_and_a_half_written_line_is_skipped() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::at(dir.path());
        assert_eq!(journal.last(9).unwrap(), []);
        journal.write(1, &entry("epoch.received"));
        std::fs::OpenOptions::new()
            .append(true)
            .open(dir.path().join(FILE))
            .unwrap()
            .write_all(b"{\"at\":2,\"ev\n")
            .unwrap();
        journal.write(3, &entry("epoch.applied"));
        let events: Vec<_> = journal
            .last(9)
            .unwrap()
            .into_iter()
            .map(|l| (l.at, l.entry.event))
            .collect();
        assert_eq!(
            events,
            [(1, "epoch.received".to_owned()), (3, "epoch.applied".to_owned())]
        );
        assert_eq!(journal.last(1).unwrap()[0].at, 3);
    }
}
