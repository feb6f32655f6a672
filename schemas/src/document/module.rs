//! `modules/<module>/module.toml`: resources and the settings that feed them (page 06 has the kinds).

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use toml::Spanned;
use toml::de::DeValue;

use super::read::{At, Read, Reader, RefusedKey, table};
use super::scalar::{FileMode, HostPort, Identifier, Int, Owner, PlainUrl, SourcePath, TargetPath};
use super::texts::{Argv, SecretName, UnitName};
use super::var::Var;
use super::words::words;
use crate::declaration::Mode;
use crate::ident::{ModuleName, ResourceId, RoleName};

pub mod accounts;
pub mod bundles;
pub mod containers;
pub mod entry;
pub mod net;
pub mod programs;
pub mod resource_table;

pub use accounts::{GroupResource, PackageResource, UserResource};
pub use bundles::{ArchiveResource, BundleResource, BundleSource};
pub use containers::{ContainerResource, NetworkResource, VolumeResource};
pub use entry::Entry;
pub use net::{FilterResource, PrivateNetworkResource};
pub use programs::{
    ActionResource, KernelModuleResource, ProcessResource, RebootResource, ServiceResource, SysctlResource,
    UpgradeResource,
};
use resource_table::resource;

/// Words that are no kinds, with the kind that is meant.
const NO_KINDS: &[RefusedKey] = &[programs::NO_CRON];

table! {
    /// A module, as it is written: `modules/<module>/module.toml`.
    pub struct ModuleFile refuses NO_KINDS;
    /// What it is for.
    "description" description: Option<String>,
    /// Modules of the same node that come before it.
    "after" after: Vec<At<ModuleName>>,
    /// Capabilities that the machine must have.
    "requires" requires: Vec<At<MachineAbility>>,
    /// Roles that bring this module.
    "roles" roles: Vec<At<RoleName>>,
    /// `observe`: says what would change and changes nothing.
    "mode" mode: Mode = Mode::Apply,
    /// Resources that are restarted, reloaded or run when the node's policy changes.
    "on_policy_change" on_policy_change: Vec<At<ResourceId>>,
    /// Values that a node's or the fleet's `[vars]` give, by name.
    "settings" settings: Settings,
    /// Files.
    "file" files: Vec<FileResource>,
    /// Directories.
    "directory" directories: Vec<DirectoryResource>,
    /// Symbolic links.
    "link" links: Vec<LinkResource>,
    /// Probes: they change nothing, they feed confirm and looks.
    "probe" probes: Vec<ProbeResource>,
    /// Users.
    "user" users: Vec<UserResource>,
    /// Groups.
    "group" groups: Vec<GroupResource>,
    /// Packages.
    "package" packages: Vec<PackageResource>,
    /// Archives, unpacked.
    "archive" archives: Vec<ArchiveResource>,
    /// Folders put in place whole.
    "bundle" bundles: Vec<BundleResource>,
    /// Units that the machine has.
    "service" services: Vec<ServiceResource>,
    /// Programs as units of the host's own.
    "process" processes: Vec<ProcessResource>,
    /// Containers.
    "container" containers: Vec<ContainerResource>,
    /// Networks of containers.
    "network" networks: Vec<NetworkResource>,
    /// Volumes of containers.
    "volume" volumes: Vec<VolumeResource>,
    /// The machine's filter.
    "filter" filters: Vec<FilterResource>,
    /// Private networks.
    "private_network" private_networks: Vec<PrivateNetworkResource>,
    /// Kernel settings.
    "sysctl" sysctls: Vec<SysctlResource>,
    /// Modules of the kernel.
    "kernel-module" kernel_modules: Vec<KernelModuleResource>,
    /// Steps at the level of the machine.
    "action" actions: Vec<ActionResource>,
    /// Upgrades of the machine's packages.
    "upgrade" upgrades: Vec<UpgradeResource>,
    /// Reboots.
    "reboot" reboots: Vec<RebootResource>,
}

words! {
    /// What a machine must be able to do (HR-10).
    pub enum MachineAbility {
        /// Docker or Podman answers.
        ContainerRuntime = "container-runtime",
        /// systemd runs it.
        Systemd = "systemd",
        /// It can run virtual machines.
        Virtualisation = "virtualisation",
        /// It has nftables.
        Nftables = "nftables",
        /// NetworkManager has the uplink.
        NetworkManager = "uplink-networkmanager",
        /// systemd-networkd has the uplink.
        Networkd = "uplink-systemd-networkd",
        /// dhcpcd has the uplink.
        Dhcpcd = "uplink-dhcpcd",
        /// Debian's packages.
        Apt = "package-apt",
        /// Fedora's packages.
        Dnf = "package-dnf",
        /// Arch's packages.
        Pacman = "package-pacman",
        /// Alpine's packages.
        Apk = "package-apk",
        /// openSUSE's packages.
        Zypper = "package-zypper",
        /// The kernel has WireGuard.
        Wireguard = "kernel-wireguard",
    }
}

resource! {
    /// A file.
    pub struct FileResource;
    /// Absolute path on the node.
    "path" path: At<TargetPath>,
    /// A file of the module's folder; one that ends in `.j2` is rendered.
    "source" source: Option<At<SourcePath>>,
    /// The content itself, instead of `source`.
    "content" content: Option<At<String>>,
    /// A secret that is the content, instead of `source`: its file's name without `.age`, of the module or the fleet.
    "secret" secret: Option<At<SecretName>>,
    /// Octal digits; `"0644"` where it is left out, `"0600"` where the content is a secret or a template with one in it.
    "mode" mode: Option<At<FileMode>>,
    /// User name or number.
    "owner" owner: Option<Owner>,
    /// Group name or number.
    "group" group: Option<Owner>,
    /// Resources of the module that are restarted when it changes.
    "restarts" restarts: Vec<At<ResourceId>>,
    /// Resources of the module that are reloaded when it changes.
    "reloads" reloads: Vec<At<ResourceId>>,
    /// Resources of the module that are run when it changes.
    "runs" runs: Vec<At<ResourceId>>,
    /// A command that must pass on the temporary file first; `%s` is its path.
    "validate" validate: Option<At<String>>,
}

resource! {
    /// A directory.
    pub struct DirectoryResource;
    /// Absolute path on the node.
    "path" path: At<TargetPath>,
    /// Octal digits, as `"0755"`.
    "mode" mode: FileMode = FileMode("0755".to_owned()),
    /// User name or number.
    "owner" owner: Option<Owner>,
    /// Group name or number.
    "group" group: Option<Owner>,
}

resource! {
    /// A symbolic link.
    pub struct LinkResource;
    /// Absolute path of the link.
    "path" path: At<TargetPath>,
    /// What it points at.
    "target" target: At<String>,
}

resource! {
    /// A probe: exactly one of `http`, `tcp`, `command`, `unit`, `container`.
    pub struct ProbeResource;
    /// A GET of this address on the node.
    "http" http: Option<At<PlainUrl>>,
    /// The status that counts as healthy; with `http` only, 200 where it is left out.
    "status" status: Option<At<Int<100, 599>>>,
    /// A connection to `host:port`.
    "tcp" tcp: Option<At<HostPort>>,
    /// A command as an array; exit code 0 is healthy.
    "command" command: Option<At<Argv>>,
    /// A unit of the machine; active is healthy.
    "unit" unit: Option<At<UnitName>>,
    /// A container of the module; what its healthcheck says.
    "container" container: Option<At<ResourceId>>,
    /// After how long no answer is "no".
    "timeout_secs" timeout_secs: Int<1, 3600> = Int(5),
}

table! {
    /// A setting: a value with type, default and check.
    pub struct Setting;
    /// Its type.
    "type" kind: SettingKind,
    /// Its value where no `[vars]` gives one.
    "default" default: Option<At<Var>>,
    /// The lowest number.
    "min" min: Option<At<Whole>>,
    /// The highest number.
    "max" max: Option<At<Whole>>,
    /// The only values.
    "one_of" one_of: Option<At<Vec<Var>>>,
}

/// A whole number of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole(pub i64);

impl Read for Whole {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.integer(value).map(Self)
    }
}
impl JsonSchema for Whole {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Whole".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer" })
    }
}

/// The type of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum SettingKind {
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// True or false.
    Boolean,
}
impl Read for SettingKind {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let kinds = [
            ("string", Self::String),
            ("integer", Self::Integer),
            ("boolean", Self::Boolean),
        ];
        reader.word(value, &kinds)
    }
}

impl Setting {
    /// Why this value cannot be the setting's; none when it can.
    #[must_use]
    pub fn refuses(&self, value: &Var) -> Option<String> {
        let number = match (self.kind, value) {
            (SettingKind::String, Var::Text(_)) | (SettingKind::Boolean, Var::Flag(_)) => None,
            (SettingKind::Integer, Var::Number(number)) => Some(*number),
            (SettingKind::String, _) => return Some("must be a text in quotes".to_owned()),
            (SettingKind::Boolean, _) => return Some("must be true or false".to_owned()),
            (SettingKind::Integer, _) => return Some("must be a whole number".to_owned()),
        };
        if let Some(number) = number {
            if let Some(At {
                value: Whole(min), ..
            }) = &self.min
                && number < *min
            {
                return Some(format!("must be {min} or more, this is {number}"));
            }
            if let Some(At {
                value: Whole(max), ..
            }) = &self.max
                && number > *max
            {
                return Some(format!("must be {max} or less, this is {number}"));
            }
        }
        match &self.one_of {
            Some(allowed) if !allowed.value.contains(value) => {
                let list: Vec<String> = allowed
                    .value
                    .iter()
                    .filter_map(|v| serde_json::to_string(v).ok())
                    .collect();
                Some(format!("must be one of {}", list.join(", ")))
            }
            _ => None,
        }
    }
}

/// The settings of a module by name.
#[derive(Debug, Clone, Default)]
pub struct Settings(pub BTreeMap<String, At<Setting>>);

impl Read for Settings {
    fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Self> {
        let pairs = reader.map(value, |key| key.parse::<Identifier>())?;
        let named = pairs.into_iter().map(|(key, value)| {
            (
                key.value.0,
                At {
                    value,
                    span: key.span,
                },
            )
        });
        Some(Self(named.collect()))
    }
    fn missing() -> Option<Self> {
        Some(Self::default())
    }
}
impl JsonSchema for Settings {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Settings".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let setting = generator.subschema_for::<Setting>();
        json_schema!({ "type": "object", "additionalProperties": setting })
    }
}
