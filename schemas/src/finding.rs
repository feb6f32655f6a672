//! An error for a person: what, where, why, what next (FR-1).

use std::fmt;

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

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)
    }
}
