//! `[[service]]`, `[[process]]`, `[[sysctl]]`, `[[kernel-module]]`, `[[action]]`, `[[upgrade]]`, `[[reboot]]`
//! (HK-5, HK-6, HK-13, HK-16).

use super::resource_table::resource;
use crate::document::calendar::Calendar;
use crate::document::read::{At, RefusedKey, table};
use crate::document::reference::Reference;
use crate::document::scalar::{Int, Owner, Secs, SomeSecs, TargetPath};
use crate::document::texts::{Argv, Env, Line, ProgramName, SecretName, SysctlKey, UnitName};
use crate::ident::ResourceId;
use crate::resource::programs::{Opening, Restart, Run, UnitState, Updates, Witness};

/// There is no kind for it (HK-13).
pub(super) const NO_CRON: RefusedKey = (
    "cron",
    "there is no kind `{}`: a `[[process]]` with `run = \"scheduled\"` runs by a timer",
);

resource! {
    /// A unit that the machine has.
    pub struct ServiceResource;
    /// The unit with its kind, as `nginx.service`.
    "unit" unit: At<UnitName>,
    /// What it does now; left as found where it is left out.
    "state" state: Option<At<UnitState>>,
    /// Whether it starts at boot; left as found where it is left out.
    "enabled" enabled: Option<At<bool>>,
}

resource! {
    /// A program as a systemd unit of the host's own.
    pub struct ProcessResource;
    /// The unit's name without `.service`; the id where it is left out.
    "name" name: Option<At<ProgramName>>,
    /// The program and its arguments: an absolute path, or `./x` in its bundle.
    "command" command: At<Argv>,
    /// The bundle or archive of the module that holds the program.
    "bundle" bundle: Option<At<ResourceId>>,
    /// How it runs: for ever, once for each build of it, or by a timer.
    "run" run: At<Run> = At { value: Run::Daemon, span: 0..0 },
    /// When a scheduled one runs, as systemd writes it: `Mon *-*-* 02:30 Europe/Brussels`.
    "calendar" calendar: Option<At<Calendar>>,
    /// Instead of `calendar`: so many seconds after the last run began.
    "every_secs" every_secs: Option<At<SomeSecs>>,
    /// When a daemon is started again.
    "restart" restart: Option<At<Restart>>,
    /// After how long a run is ended; for a daemon how long a start may take.
    "timeout_secs" timeout_secs: SomeSecs = Int(300),
    /// How long it has to stop.
    "stop_secs" stop_secs: Secs = Int(30),
    /// Who it runs as.
    "user" user: Option<At<Owner>>,
    /// The group that it runs as.
    "group" group: Option<At<Owner>>,
    /// Its working directory.
    "working_directory" working_directory: Option<At<TargetPath>>,
    /// Its environment.
    "env" env: Env,
    /// Files of the machine that hold its environment.
    "env_files" env_files: Vec<At<TargetPath>>,
    /// Secrets that hold its environment.
    "env_secrets" env_secrets: Vec<At<SecretName>>,
    /// What it may take.
    "limits" limits: Option<LimitsFile>,
    /// Defaults of hardening that are taken away.
    "open" open: Vec<Opening>,
    /// Ids of daemons of the module that are stopped around a scheduled run.
    "while_stopped" while_stopped: Vec<At<ResourceId>>,
    /// Resources that are no longer declared and that it takes over from: `<module>.<id>`, or an id of this module.
    "replaces" replaces: Vec<At<Reference>>,
    /// A command of the same build that must complete before a daemon of a new build starts.
    "prepares" prepares: Option<At<Argv>>,
    /// Who says that a new build works; by the name of the process where it is left out.
    "witness" witness: Option<At<Witness>>,
    /// The probe of the module that is its witness.
    "probe" probe: Option<At<ResourceId>>,
}

table! {
    /// What a program may take.
    pub struct LimitsFile;
    /// Memory, in MiB.
    "memory_mib" memory_mib: Option<Int<1, 16_777_216>>,
    /// Processor time, in hundredths of one processor.
    "cpu_percent" cpu_percent: Option<Int<1, 102_400>>,
    /// Processes and threads.
    "tasks" tasks: Option<Int<1, 4_194_304>>,
    /// Open files.
    "open_files" open_files: Option<Int<1, 1_073_741_816>>,
}

resource! {
    /// A kernel setting.
    pub struct SysctlResource;
    /// Its name, as `net.ipv4.ip_forward`.
    "key" key: At<SysctlKey>,
    /// Its value, as text.
    "value" value: At<Line>,
}

resource! {
    /// A module of the kernel that is loaded.
    pub struct KernelModuleResource;
    /// Its name; the id where it is left out.
    "name" name: Option<At<ProgramName>>,
    /// Its options, as `a=1 b=2`.
    "options" options: Option<At<Line>>,
}

resource! {
    /// A step at the level of the machine: what comes after it waits for it.
    pub struct ActionResource;
    /// The program and its arguments.
    "command" command: At<Argv>,
    /// Not done where this path is.
    "creates" creates: Option<At<TargetPath>>,
    /// Not done where this command succeeds.
    "unless" unless: Option<At<Argv>>,
    /// After how long it is ended.
    "timeout_secs" timeout_secs: SomeSecs = Int(600),
}

resource! {
    /// An upgrade of the machine's packages; it cannot be undone.
    pub struct UpgradeResource;
    /// What it brings.
    "updates" updates: Updates = Updates::Security,
    /// After how long it is ended.
    "timeout_secs" timeout_secs: SomeSecs = Int(3600),
}

resource! {
    /// A reboot when the machine needs one, within window and budget; it cannot be undone.
    pub struct RebootResource;
    /// How long the machine may take to come back.
    "within_secs" within_secs: SomeSecs = Int(900),
}
