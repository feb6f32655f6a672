//! Machines that a delivery leaves behind, and when they follow (UC-1).

use jiff::Timestamp;
use meshplan_schemas::ident::NodeName;
use serde::{Deserialize, Serialize};

/// A machine that is left behind a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftBehind {
    /// Its name.
    pub name: NodeName,
    /// It never follows.
    pub pinned: bool,
    /// When it gets what was accepted; none before that, when it has it, and where a newer delivery answers for it.
    #[serde(default)]
    pub follows: Option<Follows>,
    /// The declaration by which it followed, 0 before, and where nothing of its declaration changed.
    #[serde(default)]
    pub sequence: u64,
}

/// When a machine that was left behind follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follows {
    /// Not before.
    pub at: Timestamp,
    /// How long after the content was accepted that is, in seconds: a clock that jumps begins it anew (RO-8).
    pub after_secs: u32,
}
