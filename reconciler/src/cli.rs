//! The command line: one file a noun.

pub mod check;
pub mod exit;
