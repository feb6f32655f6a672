//! The commit-confirm window on disk (HR-13): opened before the first change, closed by one verdict.
//!
//! Stands alone because it is what a start after a crash reads first. Invariant: while `window/` exists, what it
//! takes to go back stands in it, whole and synced.

use meshplan_schemas::digest::Digest;
use serde::{Deserialize, Serialize};

/// An open window, as `window/window.json` holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The format's version.
    pub version: u32,
    /// The boot that it was opened under.
    pub boot_id: String,
    /// What it is about.
    pub order: Order,
    /// Unix seconds.
    pub opened_at: i64,
    /// Until when applying may take, unix seconds.
    pub apply_deadline: i64,
    /// Until when the confirm must have been given, unix seconds; set once, when the last act is done.
    pub confirm_deadline: Option<i64>,
    /// Where it stands.
    pub state: WindowState,
}

/// What a window is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A declaration.
    Declaration {
        /// Its sequence.
        sequence: u64,
        /// The digest of its payload.
        digest: Digest,
    },
    /// The effective policy of an epoch.
    Policy {
        /// The epoch.
        epoch: u64,
        /// The digest of the policy file's bytes.
        digest: Digest,
    },
}

/// Where a window stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowState {
    /// Acts are being done.
    Applying,
    /// All are done; the confirm is awaited.
    AwaitingConfirm,
}
