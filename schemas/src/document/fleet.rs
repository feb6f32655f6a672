//! `fleet.toml`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::fleet_list::Author;
use crate::ident::FleetName;

/// The fleet, read and checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FleetDoc {
    /// Its name.
    pub fleet: FleetName,
    /// The branch whose merges are orders.
    pub branch: String,
    /// Who may sign.
    pub authors: Vec<Author>,
    /// `[trust] threshold`.
    pub threshold: u32,
    /// `[config_mgmt]`.
    pub config_mgmt: ConfigMgmt,
    /// `heartbeat_secs`: the status interval.
    pub heartbeat_secs: u32,
    /// `present_secs` (DL-19).
    pub present_secs: u32,
    /// `[rotation]`.
    pub rotation: RotationDefaults,
}

/// `[config_mgmt]`, with its defaults (FR-16).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigMgmt {
    /// The commit-confirm window of an epoch or declaration.
    pub confirm_secs: u32,
    /// How long a declaration may take to apply.
    pub apply_secs: u32,
    /// `within_secs` of a first stage that gives none.
    pub canary_deadline_secs: u32,
    /// `within_secs` of later stages; 0 is 3 x confirm_secs + 120.
    pub release_watch_secs: u32,
    /// UC-1.
    pub left_behind_grace_secs: u32,
    /// RO-5.
    pub archives_kept: u32,
}

/// `[rotation]`, with its defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RotationDefaults {
    /// Publish to activate.
    pub default_publish_to_activate_secs: u32,
    /// Activate to retire.
    pub default_activate_to_retire_secs: u32,
    /// RT-6.
    pub lifeline_secs: u32,
    /// RT-3.
    pub require_trusted_clock_for_scheduled_activation: bool,
}
