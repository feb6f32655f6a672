//! Units, the host's own processes, kernel settings and steps on the wire (HK-5, HK-6, HK-13, HK-16).

use super::wire_table::wire;
use crate::digest::Digest;
use crate::document::texts::Env;
use crate::document::words::words;
use crate::ident::{ResourceId, ResourceName};

words! {
    /// What a unit of the machine does.
    pub enum UnitState {
        /// It runs.
        Running = "running",
        /// It does not run.
        Stopped = "stopped",
        /// It cannot be started.
        Masked = "masked",
    }
}

wire! {
    /// A unit that the machine has (HK-5).
    pub struct Service;
    /// Its name with its kind.
    unit: String;
    maybe
    /// What it does now; left as found where it is left out.
    state: Option<UnitState>,
    /// Whether it starts at boot; left as found where it is left out.
    enabled: Option<bool>,
}

words! {
    /// How a program runs.
    pub enum Run {
        /// For ever.
        Daemon = "daemon",
        /// Once for each build of it.
        Once = "once",
        /// By a timer.
        Scheduled = "scheduled",
    }
}

words! {
    /// Who says that a new build works (SU-6).
    pub enum Witness {
        /// The lease of that name is held here.
        Lease = "lease",
        /// It answers a ping.
        Ping = "ping",
        /// A probe of the module passes.
        Probe = "probe",
        /// Nobody is asked.
        None = "none",
    }
}

words! {
    /// When a program is started again.
    pub enum Restart {
        /// Whenever it ended.
        Always = "always",
        /// When it failed.
        OnFailure = "on-failure",
        /// Never.
        Never = "never",
    }
}

words! {
    /// A default of hardening that is taken away from a process (HK-6).
    pub enum Opening {
        /// It may gain privileges: no `NoNewPrivileges`.
        Privileges = "privileges",
        /// It may write to the system: no `ProtectSystem`.
        System = "system",
        /// It sees the machine's /tmp: no `PrivateTmp`.
        Tmp = "tmp",
    }
}

wire! {
    /// When a scheduled program runs: exactly one of the two.
    pub struct Schedule;
    maybe
    /// systemd.time(7), as `Mon *-*-* 02:30 Europe/Brussels`.
    calendar: Option<String>,
    /// So many seconds after the last run began.
    every_secs: Option<u32>,
}

wire! {
    /// What a program may take.
    pub struct Limits;
    maybe
    /// Memory, in MiB.
    memory_mib: Option<u32>,
    /// Processor time, in hundredths of one processor.
    cpu_percent: Option<u32>,
    /// Processes and threads.
    tasks: Option<u32>,
    /// Open files.
    open_files: Option<u32>,
}

wire! {
    /// A program as a unit of the host's own (HK-6).
    pub struct Process;
    /// The unit's name without `.service`.
    name: String,
    /// The program and its arguments; `./x` is a file of the bundle.
    command: Vec<String>,
    /// How it runs.
    run: Run,
    /// When it is started again.
    restart: Restart,
    /// After how long a run is ended, in seconds; for a daemon how long a start may take.
    timeout_secs: u32,
    /// How long it has to stop, in seconds.
    stop_secs: u32,
    /// Who says that a new build works.
    witness: Witness;
    maybe
    /// The bundle or archive that holds the program.
    bundle: Option<ResourceId>,
    /// What that holds: the digest of the bundle's list or of the archive, so that another build is another process.
    build: Option<Digest>,
    /// Who it runs as.
    user: Option<String>,
    /// The group that it runs as.
    group: Option<String>,
    /// Its working directory.
    working_directory: Option<String>,
    /// Its environment.
    env: Env,
    /// Files of the machine that hold its environment.
    env_files: Vec<String>,
    /// What it may take.
    limits: Limits,
    /// Defaults of hardening taken away.
    open: Vec<Opening>,
    /// When it runs, where it is scheduled.
    schedule: Schedule,
    /// Daemons of the module that are stopped around a run (HK-9).
    while_stopped: Vec<ResourceId>,
    /// Resources no longer declared that it takes over from (HK-7).
    replaces: Vec<ResourceName>,
    /// The probe that is its witness.
    probe: Option<ResourceId>,
    /// The process or container that this step prepares.
    prepares_for: Option<ResourceId>,
}

wire! {
    /// A kernel setting (HK-13).
    pub struct Sysctl;
    /// Its name with dots.
    key: String,
    /// Its value.
    value: String,
}

wire! {
    /// A module of the kernel (HK-13).
    pub struct KernelModule;
    /// Its name.
    name: String;
    maybe
    /// Its options, as `a=1 b=2`.
    options: Option<String>,
}

wire! {
    /// A step at the level of the machine (HK-16).
    pub struct Action;
    /// The program and its arguments.
    command: Vec<String>,
    /// After how long it is ended, in seconds.
    timeout_secs: u32;
    maybe
    /// Not done where this path is.
    creates: Option<String>,
    /// Not done where this command succeeds.
    unless: Option<Vec<String>>,
}

words! {
    /// What an upgrade brings.
    pub enum Updates {
        /// What mends holes.
        Security = "security",
        /// Everything.
        All = "all",
    }
}

wire! {
    /// An upgrade of the machine's packages (HK-16).
    pub struct Upgrade;
    /// What it brings.
    updates: Updates,
    /// After how long it is ended, in seconds.
    timeout_secs: u32,
}

wire! {
    /// A reboot when the machine needs one (HK-16).
    pub struct Reboot;
    /// How long the machine may take to come back, in seconds.
    within_secs: u32,
}
