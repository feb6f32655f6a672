//! Records that were read before: the same bytes at the same path say the same (FR-3's ten thousand nodes are normal
//! work).
//!
//! Invariant: what is kept is what reading it again would give; only the path and the entry decide it.

use std::collections::HashMap;
use std::iter::Peekable;
use std::sync::Arc;

use meshplan_schemas::finding::Finding;

use super::{Entry, NodeDocument, Reading, SourceTree, toml};
use crate::pure::in_parts::in_parts;
use crate::pure::source_tree::EntryKind;

/// One record as it was read, with what was said about it.
#[derive(Debug, Clone)]
pub(super) struct ReadRecord {
    kind: EntryKind,
    bytes: Arc<[u8]>,
    /// None where its file's name gives none.
    pub(super) document: Option<Arc<NodeDocument>>,
    /// What is wrong with it by itself.
    pub(super) findings: Vec<Finding>,
}

/// The records of the tree that was read last, by path.
#[derive(Debug, Default)]
pub struct ReadRecords(HashMap<String, Arc<ReadRecord>>);

/// The records of one tree, in the order of their paths.
pub(super) struct OfTree<'t>(Peekable<std::vec::IntoIter<(&'t str, Arc<ReadRecord>)>>);

impl OfTree<'_> {
    /// The record at this path, when the path is a record's and its turn.
    pub(super) fn next_if(&mut self, path: &str) -> Option<Arc<ReadRecord>> {
        self.0.next_if(|(of, _)| *of == path).map(|(_, record)| record)
    }
}

impl ReadRecords {
    /// Reads what is new of a tree and forgets what is gone.
    pub(super) fn of_tree<'t>(&mut self, tree: &'t SourceTree) -> OfTree<'t> {
        let records: Vec<(&str, &Entry)> = tree.iter().filter(|(path, _)| is_record(path)).collect();
        let unknown: Vec<(&str, &Entry)> = (records.iter())
            .filter(|(path, entry)| self.known(path, entry).is_none())
            .copied()
            .collect();
        let read = read_all(&unknown);
        let mut kept = HashMap::with_capacity(records.len());
        let mut new = read.into_iter();
        let mut of_tree = Vec::with_capacity(records.len());
        for (path, entry) in records {
            let record = match self.known(path, entry) {
                Some(known) => Arc::clone(known),
                None => match new.next() {
                    Some(read) => Arc::new(read),
                    None => Arc::new(ReadRecord::of(path, entry)),
                },
            };
            kept.insert(path.to_owned(), Arc::clone(&record));
            of_tree.push((path, record));
        }
        self.0 = kept;
        OfTree(of_tree.into_iter().peekable())
    }

    /// Reads one record anew, and keeps it.
    pub(in crate::pure) fn renew(&mut self, path: &str, entry: &Entry) -> Option<Arc<NodeDocument>> {
        let record = ReadRecord::of(path, entry);
        let document = record.document.clone().filter(|_| record.findings.is_empty());
        self.0.insert(path.to_owned(), Arc::new(record));
        document
    }

    fn known(&self, path: &str, entry: &Entry) -> Option<&Arc<ReadRecord>> {
        self.0
            .get(path)
            .filter(|known| known.kind == entry.kind && known.bytes == entry.bytes)
    }
}

impl ReadRecord {
    fn of(path: &str, entry: &Entry) -> Self {
        let mut reading = Reading::default();
        reading.entry(path, entry);
        Self {
            kind: entry.kind,
            bytes: Arc::clone(&entry.bytes),
            document: reading.documents.nodes.pop(),
            findings: reading.findings,
        }
    }
}

/// Whether a path is a record's.
pub(in crate::pure) fn is_record(path: &str) -> bool {
    path.starts_with("nodes/") && toml(path)
}

/// Reads records. Each is read by itself.
fn read_all(records: &[(&str, &Entry)]) -> Vec<ReadRecord> {
    let read = |(path, entry): &(&str, &Entry)| ReadRecord::of(path, entry);
    in_parts(records, |part| part.iter().map(read).collect())
}
