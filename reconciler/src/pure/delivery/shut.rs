//! What a stage that is to open remembers of windows that are shut.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// For which windows a stage waits before it opens (DL-17, RO-2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shut {
    /// Whose, in words.
    pub whose: String,
    /// The plan's; else the machines' own.
    pub of_plan: bool,
    /// When the first of them opens.
    pub opens: Timestamp,
    /// For the machines' own it waits until then at the latest; none where none of them was shut.
    #[serde(default)]
    pub own_until: Option<Timestamp>,
    /// It waits now.
    pub waits: bool,
    /// Since when it looks afresh at what passed before it, as the window was open then: that takes nothing of the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub afresh: Option<Timestamp>,
}
