//! The command line: one file a noun.

pub mod envelope;
pub mod exit;
pub mod invite;
