//! `fleet.toml`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use semver::Version;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeValue;

use super::read::{At, Read, Reader, table};
use super::scalar::{Int, Secs, SomeSecs};
use super::signers::Signer;
use super::texts::{HostVersion, TreePath};
use super::var::Vars;
use super::words::words as word_type;
use crate::fleet_list::Author;
use crate::ident::{FleetName, KeyId, ModuleName};
use crate::key::SigningKey;
use crate::limits::SCHEMA;

pub mod sections;

use sections::{BoundsFile, ComponentFile, NeighboursFile, Notifies, RootFile, SecretsFile};

/// The fleet, read and checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// `[trust] timestamp_valid_secs` (SG-9).
    pub timestamp_valid_secs: u32,
    /// `[secrets] recipient`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
    /// `[trust] signed_commits`, where it asks for any, with who is trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_signers: Option<CommitSigners>,
    /// `[limits] bundle_mib`, where the fleet gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle_mib: Option<u32>,
    /// `[[components]]`: other repositories whose commits are delivered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<ComponentDoc>,
}

impl FleetFile {
    /// The components that it names.
    #[must_use]
    pub fn component_docs(&self) -> Vec<ComponentDoc> {
        let of = |at: &At<ComponentFile>| ComponentDoc {
            repo: at.value.repo.value.0.clone(),
            branch: at.value.branch.value.0.clone(),
            module: at.value.module.value.clone(),
        };
        self.components.iter().map(of).collect()
    }
}

/// A branch of another repository, and the module that it feeds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentDoc {
    /// The repository, as the forge names it.
    pub repo: String,
    /// The branch.
    pub branch: String,
    /// The module whose `source = "component"` bundle it feeds.
    pub module: ModuleName,
}

/// Whose signatures the commits after this tree need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitSigners {
    /// Which commits.
    pub asks: SignedCommits,
    /// Who may sign.
    pub signers: Vec<Signer>,
    /// The line of `signed_commits` in fleet.toml, from 1. A place, no content.
    #[serde(skip)]
    pub line: u32,
}

/// `[config_mgmt]`, with its defaults (FR-16).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The oldest version of a host that takes an epoch (RO-4).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_daemon_version: Option<Version>,
}

impl ConfigMgmt {
    /// For how long a release is watched, in seconds: as written, else three confirm windows and two minutes (RO-4).
    #[must_use]
    pub fn watch_secs(&self) -> u32 {
        match self.release_watch_secs {
            0 => Self::return_secs(self.confirm_secs),
            written => written,
        }
    }

    /// For how long a roll-back is waited for, in seconds: three confirm windows and two minutes (DL-2).
    #[must_use]
    pub fn return_secs(confirm_secs: u32) -> u32 {
        confirm_secs.saturating_mul(3).saturating_add(120)
    }
}

/// `[rotation]`, with its defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

table! {
    /// The fleet, as it is written: `fleet.toml`.
    pub struct FleetFile;
    /// The version of the formats.
    "schema" schema: FormatVersion,
    /// The fleet's name; must equal what the reconciler's own configuration says.
    "fleet" fleet: At<FleetName>,
    /// The branch whose merges are orders; must equal what the reconciler's own configuration says.
    "branch" branch: At<String>,
    /// Seconds between a host's status reports.
    "heartbeat_secs" heartbeat_secs: SomeSecs = Int(30),
    /// A machine that was not heard from for so long counts as absent.
    "present_secs" present_secs: SomeSecs = Int(900),
    /// Who may sign orders; hosts keep them on disk.
    "authors" authors: Vec<At<AuthorFile>>,
    /// Commit-confirm and its defaults.
    "config_mgmt" config_mgmt: ConfigMgmtFile,
    /// Defaults of rotations.
    "rotation" rotation: RotationFile,
    /// Whose commits and signatures count.
    "trust" trust: TrustFile,
    /// Keys that are kept offline.
    "roots" roots: Vec<At<RootFile>>,
    /// Other repositories whose commits are delivered.
    "components" components: Vec<At<ComponentFile>>,
    /// Secrets at rest in the repository.
    "secrets" secrets: SecretsFile,
    /// Where messages go, by a name of one's own.
    "notify" notify: Notifies,
    /// Talk between hosts; off where it is left out.
    "neighbours" neighbours: Option<At<NeighboursFile>>,
    /// Bounds that a fleet may raise.
    "limits" limits: BoundsFile,
    /// Values for settings and templates, for every node.
    "vars" vars: Vars,
}

table! {
    /// Who may sign.
    pub struct AuthorFile;
    /// The name that signatures carry.
    "id" id: KeyId,
    /// The public key.
    "key" key: SigningKey,
}

table! {
    /// Commit-confirm and its defaults.
    pub struct ConfigMgmtFile;
    /// Commit-confirm window of an epoch or declaration.
    "confirm_secs" confirm_secs: Int<1, 86_400> = Int(60),
    /// How long applying a declaration may take.
    "apply_secs" apply_secs: Int<1, 86_400> = Int(1800),
    /// `within_secs` of a first stage that gives none.
    "canary_deadline_secs" canary_deadline_secs: SomeSecs = Int(300),
    /// `within_secs` of later stages that give none; 0 is 3 x confirm_secs + 120.
    "release_watch_secs" release_watch_secs: Secs = Int(0),
    /// When an unpinned left-behind node follows after all.
    "left_behind_grace_secs" left_behind_grace_secs: Secs = Int(600),
    /// The oldest version of a host that takes an epoch.
    "min_daemon_version" min_daemon_version: Option<At<HostVersion>>,
    /// How many archived rollouts are kept.
    "archives_kept" archives_kept: Int<0, 100_000> = Int(50),
}

table! {
    /// Defaults of rotations.
    pub struct RotationFile;
    /// From publish to activate.
    "default_publish_to_activate_secs" default_publish_to_activate_secs: SomeSecs = Int(3600),
    /// From activate to retire.
    "default_activate_to_retire_secs" default_activate_to_retire_secs: SomeSecs = Int(604_800),
    /// How much longer lifeline nodes accept old material.
    "lifeline_secs" lifeline_secs: Secs = Int(86_400),
    /// Whether a scheduled activation waits for a trusted clock.
    "require_trusted_clock_for_scheduled_activation" require_trusted_clock_for_scheduled_activation: bool = true,
}

table! {
    /// Whose commits and signatures count.
    pub struct TrustFile;
    /// Whether commits must be signed: `off`, `tip` or `every`.
    "signed_commits" signed_commits: Option<At<SignedCommits>> as "off",
    /// The file that names who may sign commits, where `signed_commits` asks for it.
    "allowed_signers" allowed_signers: Option<At<TreePath>> as "allowed_signers",
    /// How long a timestamp holds.
    "timestamp_valid_secs" timestamp_valid_secs: SomeSecs = Int(2_592_000),
    /// How many authors must sign an order.
    "threshold" threshold: Option<At<Int<1, 100>>> as 1,
    /// How many roots must sign what changes authors, roots or thresholds.
    "root_threshold" root_threshold: Option<At<Int<1, 100>>>,
}

impl TrustFile {
    /// The path of the file that names who may sign commits: where it is written, or where commits must be signed.
    #[must_use]
    pub fn signers_path(&self) -> Option<&str> {
        let asks = (self.signed_commits.as_ref()).is_some_and(|at| at.value != SignedCommits::Off);
        let written = self.allowed_signers.as_ref().map(|at| at.value.0.as_str());
        written.or(asks.then_some(ALLOWED_SIGNERS))
    }
}

/// Where `[trust] allowed_signers` is, where it is not written (FR-16).
const ALLOWED_SIGNERS: &str = "allowed_signers";

word_type! {
    /// `signed_commits`: which commits must be signed.
    pub enum SignedCommits {
        /// None.
        Off = "off",
        /// The branch's tip.
        Tip = "tip",
        /// Each one that a merge brings.
        Every = "every",
    }
}

/// `schema`: the version of the formats, one that this build reads (FR-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormatVersion(pub u32);

impl Read for FormatVersion {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let Int(version) = Int::<1, { u32::MAX }>::read(value, reader)?;
        if version <= SCHEMA {
            return Some(Self(version));
        }
        let message = format!("this fleet is written in schema {version}, this build reads up to {SCHEMA}");
        let help = format!("it needs a meshplan that reads schema {version}");
        reader.error_help(value.span(), message, Some(help));
        None
    }
}
impl JsonSchema for FormatVersion {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FormatVersion".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1, "maximum": SCHEMA })
    }
}
