//! The command line: one file a noun.

pub mod exit;
pub mod notes;
