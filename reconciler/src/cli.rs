//! The command line: one file a noun.

pub mod check;
pub mod exit;
pub mod init;
pub mod node;
pub mod policy;
pub mod schema;
