//! `plans/<plan>.toml`: how a delivery walks the machines (page 03).

use std::collections::BTreeMap;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeValue;

use super::policy::MaintenanceWindow;
use super::read::{At, Read, Reader, table};
use super::scalar::{Identifier, Int, SomeSecs, checked_text};
use crate::ident::{ModuleName, NodeName, PlanName, ResourceName, RoleName};
use crate::maintenance::Window;

use super::words::words as word_type;

/// A deploy plan, read and checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    pub actors: Vec<Actor>,
    /// What required machines that were not heard from do to the start (DL-19).
    pub absent: Absent,
    /// Whether legs share their fate.
    pub legs: Legs,
    /// What becomes of named canaries that are not changed.
    pub canary: Canary,
    /// How much may vanish without a word (FR-12).
    #[serde(default)]
    pub max_removals: MaxRemovals,
    /// Whether a roll-back also opens a pull request that reverts the commit (DL-7).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revert_pr: bool,
    /// What becomes of a new head that drops delivered commits (FG-3).
    #[serde(default = "held")]
    pub history_rewritten: Rewritten,
    /// What proves that the machine of the reconciler can still be reached; none: its session (EP-2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_probe: Option<ResourceName>,
    /// When stages may open (DL-17); none: at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// The stages, at least one.
    pub stages: Vec<StageDoc>,
    /// Where its rules stand in its file.
    #[serde(skip)]
    pub places: Places,
}

/// On which line of a plan's file each key stands that holds deliveries, from 1; a key that is left out has none. Places, no
/// content: they change no digest, and plans that differ in them alone are equal.
#[derive(Debug, Clone, Default, Eq)]
pub struct Places(pub BTreeMap<&'static str, u32>);

impl Places {
    /// The line of a key, where the file has it.
    #[must_use]
    pub fn line(&self, key: &str) -> Option<u32> {
        self.0.get(key).copied()
    }
}

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

fn held() -> Rewritten {
    Rewritten::Hold
}

/// How much a commit may take away from machines before somebody must have meant it (FR-12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaxRemovals {
    /// Resources of one node.
    pub resources: u32,
    /// Nodes of the fleet; of a share at least one.
    pub nodes: Amount,
}

impl Default for MaxRemovals {
    fn default() -> Self {
        Self {
            resources: 10,
            nodes: Amount::Percent(10),
        }
    }
}

/// What a plan covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

checked_text!(
/// Whom a plan names to say something: somebody by login, or `team:<name>`, a team as the forge names it.
Actor,
"an actor is a login of the forge as `alice`, or a team of it as `team:ops`",
"^(team:)?[^:\\s]+$",
|t| {
    let name = t.strip_prefix("team:").unwrap_or(t);
    let odd = |c: char| c == ':' || c.is_whitespace() || c.is_control();
    !name.is_empty() && name.len() <= 255 && !name.contains(odd)
});

impl Actor {
    /// The team that it names; none where it names somebody.
    #[must_use]
    pub fn team(&self) -> Option<&str> {
        self.0.strip_prefix("team:")
    }
}

/// Which verdict a plan wants before it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Check {
    /// Our own on the merged tree.
    Own,
    /// Statuses on the head, by name.
    Named(Vec<String>),
    /// None.
    None,
}

/// `absent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Absent {
    /// The delivery waits for them.
    Hold,
    /// They are listed and served on return.
    Skip,
    /// Started, and aborted at the deadline.
    Wait,
}

/// `canary` (DL-6, RO-1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Canary {
    /// Named machines that the delivery does not change are replaced by one that it does.
    Replaced,
    /// The delivery is held then.
    NamedOnly,
    /// Only the last stage is walked.
    None,
}

/// `legs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Legs {
    /// One fate.
    Together,
    /// Each its own.
    Apart,
}

/// One stage, as written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageDoc {
    /// Its name.
    pub name: String,
    /// The line of the plan's file on which it begins, from 1; 0 for a built-in one. A place, no content: a comment
    /// above it changes no digest.
    #[serde(skip)]
    pub line: u32,
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
    /// How many may be unavailable at once (DL-17).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budget: Vec<Budget>,
    /// The two ends of one link are not disturbed together (DL-17).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread_links: bool,
}

/// A bound on how many machines are unavailable at once, of those with one value of a variable (DL-17).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// The key of `[vars]`.
    pub var: String,
    /// How many; of a share rounded down at least one.
    pub max_unavailable: Amount,
}

/// Which machines of those that the delivery changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Healthy {
    /// Healthy looks in a row.
    pub times: u32,
    /// Seconds between looks.
    pub every_secs: u32,
    /// Seconds within which.
    pub within_secs: u32,
}

/// A number or a share of the machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Amount {
    /// So many.
    Number(u32),
    /// So many per hundred.
    Percent(u32),
}

/// `failed`, `silent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// `roll-back`.
    RollBack,
    /// `hold`.
    Hold,
    /// `leave`.
    Leave,
}

/// `wait`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// For each machine to pass.
    Passed,
    /// For nothing.
    Sent,
}

table! {
    /// A deploy plan, as it is written: `plans/<plan>.toml`.
    pub struct PlanFile;
    /// What it covers: `module:<name>`, `policy`, `list`, `gate`, `component:<repo>`, or `*` for all that no other plan
    /// covers.
    "covers" covers: Vec<At<Covers>>,
    /// The verdict it wants first: `own`, `none`, or the names of statuses on the head.
    "check" check: At<Check> = At { value: Check::Own, span: 0..0 },
    /// Forge reviews wanted beside it.
    "approvals" approvals: At<Int<0, 100>> = At { value: Int(0), span: 0..0 },
    /// Who may say go, as `alice` or `team:ops`; empty: whoever may write on the forge.
    "actors" actors: Vec<At<Actor>>,
    /// What required machines that were not heard from do to the start.
    "absent" absent: At<Absent> = At { value: Absent::Hold, span: 0..0 },
    /// Whether the legs of one commit share their fate.
    "legs" legs: Legs = Legs::Together,
    /// What becomes of the first stages where none of their machines is changed: another goes first, or the delivery is
    /// held, or there are no first stages at all.
    "canary" canary: Canary = Canary::Replaced,
    /// The stages, in order; at least one.
    "stage" stages: Vec<At<StageFile>>,
    /// When stages may open; at any time where it is left out.
    "window" window: Option<At<MaintenanceWindow>>,
    /// Above how many removals somebody must have allowed them.
    "max_removals" max_removals: Option<At<MaxRemovalsFile>>,
    /// A roll-back also opens a pull request that reverts the commit.
    "revert_pr" revert_pr: bool = false,
    /// What becomes of a new head that drops delivered commits.
    "history_rewritten" history_rewritten: At<Rewritten> = At { value: Rewritten::Hold, span: 0..0 },
    /// What proves that a machine can still be reached.
    "confirm" confirm: At<ConfirmBy> = At { value: ConfirmBy::Session, span: 0..0 },
    /// The probe that proves it, with `confirm = "probe"`: `<module>.<id>`.
    "confirm_probe" confirm_probe: Option<At<ResourceName>>,
}

word_type! {
    /// What becomes of a delivery whose commit dropped delivered ones from the branch (FG-3).
    pub enum Rewritten {
        /// It is held.
        Hold = "hold",
        /// It is walked like any other.
        Walk = "walk",
    }
}

word_type! {
    /// What proves that a machine can still be reached after a change (EP-2, HR-13).
    pub enum ConfirmBy {
        /// A fresh session of its own.
        Session = "session",
        /// A session from a neighbour as well.
        Neighbour = "neighbour",
        /// A probe: for the machine that the reconciler runs on.
        Probe = "probe",
    }
}

table! {
    /// Above how many removals somebody must have allowed them (FR-12).
    pub struct MaxRemovalsFile;
    /// Resources of one node.
    "resources" resources: Int<0, 1_000_000> = Int(10),
    /// Nodes of the fleet: a number, or a share of which at least one is meant.
    "nodes" nodes: At<Amount> = At { value: Amount::Percent(10), span: 0..0 },
}

table! {
    /// A bound on how many machines are disturbed at once (DL-17).
    pub struct BudgetFile;
    /// What is counted together: `var:<key of [vars]>`.
    "per" per: At<BudgetPer>,
    /// How many of them may be down: a number, or a share rounded down.
    "max_unavailable" max_unavailable: At<Amount>,
}

/// `per` of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetPer(pub Identifier);

impl FromStr for BudgetPer {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("var", name)) => name.parse().map(Self).map_err(str::to_owned),
            _ => Err("a budget is counted by `var:<key of [vars]>`".to_owned()),
        }
    }
}
impl Read for BudgetPer {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.parsed(value, Self::from_str)
    }
}
impl JsonSchema for BudgetPer {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "BudgetPer".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^var:[a-z_][a-z0-9_]{0,62}$" })
    }
}

table! {
    /// One stage: which machines, and when they have passed.
    pub struct StageFile;
    /// Its name.
    "name" name: At<PlanName>,
    /// Machines by name.
    "nodes" nodes: Vec<At<NodeName>>,
    /// Machines by role.
    "roles" roles: Vec<At<RoleName>>,
    /// So many of them.
    "count" count: Option<At<Int<1, 1_000_000>>>,
    /// Such a share of them, as `"5%"`.
    "share" share: Option<At<Amount>>,
    /// All that no stage before has.
    "rest" rest: bool = false,
    /// The looks that a machine must pass.
    "healthy" healthy: Option<At<HealthyFile>>,
    /// What a failed machine does; by update class where it is left out.
    "failed" failed: Option<At<Trouble>>,
    /// What a silent machine does; by update class where it is left out.
    "silent" silent: Option<At<Trouble>>,
    /// How many may fail: a number, or a share rounded down.
    "tolerate" tolerate: Amount = Amount::Number(0),
    /// How many at once; all where it is left out.
    "batch" batch: Option<At<Amount>>,
    /// `sent`: told, and on.
    "wait" wait: At<Wait> = At { value: Wait::Passed, span: 0..0 },
    /// How many machines may be disturbed at once.
    "budget" budget: Vec<At<BudgetFile>>,
    /// The two ends of one link are not restarted together.
    "spread_links" spread_links: At<bool> = At { value: false, span: 0..0 },
}

table! {
    /// The looks of a stage.
    pub struct HealthyFile;
    /// Healthy looks in a row.
    "times" times: Int<1, 1000> = Int(3),
    /// Seconds between looks.
    "every_secs" every_secs: SomeSecs = Int(50),
    /// Seconds within which a machine must pass; where it is left out, what `[config_mgmt]` of fleet.toml says.
    "within_secs" within_secs: Option<SomeSecs>,
}

/// Words of a plan: how each is written.
macro_rules! words {
    ($type:ident: $($word:literal => $meaning:ident),+) => {
        impl Read for $type {
            fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
                reader.word(value, &[$(($word, Self::$meaning)),+])
            }
            fn written(&self) -> Option<serde_json::Value> {
                match self {
                    $(Self::$meaning => Some($word.into())),+
                }
            }
        }
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "enum": [$($word),+] })
            }
        }
    };
}
words!(Absent: "hold" => Hold, "skip" => Skip, "wait" => Wait);
words!(Canary: "replaced" => Replaced, "named-only" => NamedOnly, "none" => None);
words!(Legs: "together" => Together, "apart" => Apart);
words!(Trouble: "roll-back" => RollBack, "hold" => Hold, "leave" => Leave);
words!(Wait: "passed" => Passed, "sent" => Sent);

impl FromStr for Covers {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "policy" => Ok(Self::Policy),
            "list" => Ok(Self::List),
            "gate" => Ok(Self::Gate),
            "*" => Ok(Self::Everything),
            other => match other.split_once(':') {
                Some(("module", name)) => name
                    .parse()
                    .map(Self::Module)
                    .map_err(|e: crate::ident::NameError| e.to_string()),
                Some(("component", repo)) if !repo.is_empty() => Ok(Self::Component(repo.to_owned())),
                _ => Err(
                    "a plan covers `module:<name>`, `policy`, `list`, `gate`, `component:<repo>` or `*`"
                        .to_owned(),
                ),
            },
        }
    }
}
impl Read for Covers {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.parsed(value, Self::from_str)
    }
}
impl JsonSchema for Covers {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Covers".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(policy|list|gate|\\*|module:.+|component:.+)$" })
    }
}

impl Read for Actor {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.parsed(value, Self::from_str)
    }
}

impl Read for Check {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        if value.get_ref().is_array() {
            return reader.array(value).map(Self::Named);
        }
        match value.get_ref().as_str() {
            Some("own") => Some(Self::Own),
            Some("none") => Some(Self::None),
            _ => {
                reader.wrong_type(value, "`\"own\"`, `\"none\"` or an array of names of statuses");
                None
            }
        }
    }
    fn written(&self) -> Option<serde_json::Value> {
        Some(match self {
            Self::Own => "own".into(),
            Self::None => "none".into(),
            Self::Named(names) => names.clone().into(),
        })
    }
}
impl JsonSchema for Check {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Check".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "enum": ["own", "none"] }, { "type": "array", "items": { "type": "string" } }] })
    }
}
