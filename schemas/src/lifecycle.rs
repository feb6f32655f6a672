//! Life cycles that both sides must agree on.

pub mod delivery;
pub mod epoch;
