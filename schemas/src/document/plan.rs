//! `plans/<plan>.toml`: how a delivery walks the machines (page 03).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ident::{ModuleName, NodeName, PlanName, RoleName};

/// A deploy plan, read and checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanDoc {
    /// The file's name without `.toml`.
    pub name: PlanName,
    /// What it covers.
    pub covers: Vec<Covers>,
    /// Which verdict it wants.
    pub check: Check,
    /// Forge reviews wanted beside it.
    pub approvals: u32,
    /// Who may say go; empty: whoever may write on the forge.
    pub actors: Vec<String>,
    /// What required machines that were not heard from do to the start (DL-19).
    pub absent: Absent,
    /// Whether legs share their fate.
    pub legs: Legs,
    /// The stages, at least one.
    pub stages: Vec<StageDoc>,
}

/// What a plan covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Covers {
    /// `module:<name>`.
    Module(ModuleName),
    /// `policy`.
    Policy,
    /// `list`.
    List,
    /// `gate`.
    Gate,
    /// `component:<repo>`.
    Component(String),
    /// `*`: the default plan.
    Everything,
}

/// Which verdict a plan wants before it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Check {
    /// Our own on the merged tree.
    Own,
    /// Statuses on the head, by name.
    Named(Vec<String>),
    /// None.
    None,
}

/// `absent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Absent {
    /// The delivery waits for them.
    Hold,
    /// They are listed and served on return.
    Skip,
    /// Started, and aborted at the deadline.
    Wait,
}

/// `legs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Legs {
    /// One fate.
    Together,
    /// Each its own.
    Apart,
}

/// One stage, as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StageDoc {
    /// Its name.
    pub name: String,
    /// Which machines.
    pub select: Select,
    /// The looks; none: told only, or what `[config_mgmt]` says.
    pub healthy: Option<Healthy>,
    /// What a failed machine does; none: by update class (DL-19).
    pub failed: Option<Trouble>,
    /// What a silent machine does; none: by update class.
    pub silent: Option<Trouble>,
    /// How many may fail.
    pub tolerate: Amount,
    /// Waves: how many at once; none: all.
    pub batch: Option<Amount>,
    /// `sent`: told, and on.
    pub wait: Wait,
}

/// Which machines of those that the delivery changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Select {
    /// By name.
    pub nodes: Vec<NodeName>,
    /// By role.
    pub roles: Vec<RoleName>,
    /// So many of them, by hash (DL-6).
    pub count: Option<Amount>,
    /// All that no stage before has.
    pub rest: bool,
}

/// The looks of a stage (DL-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Healthy {
    /// Healthy looks in a row.
    pub times: u32,
    /// Seconds between looks.
    pub every_secs: u32,
    /// Seconds within which.
    pub within_secs: u32,
}

/// A number or a share of the machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Amount {
    /// So many.
    Number(u32),
    /// So many per hundred.
    Percent(u32),
}

/// `failed`, `silent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Trouble {
    /// `roll-back`.
    RollBack,
    /// `hold`.
    Hold,
    /// `leave`.
    Leave,
}

/// `wait`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Wait {
    /// For each machine to pass.
    Passed,
    /// For nothing.
    Sent,
}
