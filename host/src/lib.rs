//! The host: verifies orders itself, applies them behind commit-confirm, rolls back what fails, reports.
//!
//! # The safety argument
//! (to be completed with the apply cycle: after a power cut at any line, which two states are possible)

pub mod cli;
pub mod edge;
pub mod kinds;
pub mod pure;
