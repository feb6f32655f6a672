//! The machine beside its files: its programs and its service manager.
//!
//! Stands alone so that an apply can be run in memory: what the kinds need of a machine is this trait, as the disk is
//! [`super::disk::Disk`]. [`RealSystem`] is the machine; [`NoSystem`] a root that is not the machine's own, which has
//! no programs and no service manager; [`SimSystem`] one in memory, for tests.

mod manager;
mod real;
pub mod sim;

use std::fmt;
use std::time::Duration;

use meshplan_schemas::resource::accounts::Manager;

pub use self::manager::unit;
pub use self::real::RealSystem;
pub(crate) use self::real::block;
pub use self::sim::SimSystem;
use super::command::{self, Ended, How};
use super::engine::{Engine, NoEngine};
use crate::pure::filter::links::Links;
use crate::pure::unit::Unit;

/// How long a job of the service manager may take where nothing else is said: longer than a unit may take to start or
/// stop then (90 s each).
pub const JOB: Duration = Duration::from_secs(200);

/// The machine beside its files.
pub trait System: Send + Sync + fmt::Debug {
    /// Runs a program to its end, without a shell, within a bound.
    fn run(&self, argv: &[String], bound: Duration) -> Ended;

    /// As [`System::run`], of a program that prints a list, which is read and not shown: all of it is kept.
    fn list(&self, argv: &[String], bound: Duration) -> Ended;

    /// The package managers that answer.
    fn managers(&self) -> Vec<Manager>;

    /// A unit as the service manager has it; none where it has no such unit.
    ///
    /// # Errors
    /// In words: the manager did not answer. That is never "no such unit".
    fn unit(&self, unit: &str) -> Result<Option<Unit>, String>;

    /// Has the service manager do something with a unit, and waits for the end of it, within a bound.
    ///
    /// # Errors
    /// In words: it was refused, it failed, or the manager did not answer.
    fn turn(&self, unit: &str, turn: Turn, bound: Duration) -> Result<(), String>;

    /// Has the service manager read its files anew.
    ///
    /// # Errors
    /// In words.
    fn read_units(&self) -> Result<(), String>;

    /// What the kernel says in one of its files (below `/proc` or `/sys`), trimmed; none where it has no such file.
    ///
    /// # Errors
    /// In words.
    fn kernel(&self, path: &str) -> Result<Option<String>, String>;

    /// Its links and which of them have a default route.
    ///
    /// # Errors
    /// In words: the kernel does not tell.
    fn links(&self) -> Result<Links, String>;

    /// Lets time pass between two looks.
    fn rest(&self, time: Duration);

    /// Its container engine.
    fn engine(&self) -> &dyn Engine;
}

/// What can be done with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// It runs.
    Start,
    /// It does not run.
    Stop,
    /// It stops and runs again.
    Restart,
    /// It reads its settings anew, or is restarted where it cannot; nothing where it does not run.
    Reload,
    /// It starts at boot.
    Enable,
    /// It does not start at boot.
    Disable,
    /// Nothing can start it.
    Mask,
    /// It can be started again.
    Unmask,
    /// That it failed is forgotten.
    Reset,
}

impl Turn {
    /// The word of `systemctl`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Reload => "reload-or-try-restart",
            Self::Enable => "enable",
            Self::Disable => "disable",
            Self::Mask => "mask",
            Self::Unmask => "unmask",
            Self::Reset => "reset-failed",
        }
    }
}

/// A root that is not the machine's own.
#[derive(Debug, Clone, Copy)]
pub struct NoSystem;

/// The engine of such a root.
static NONE: NoEngine = NoEngine(NO_SYSTEM);

/// Why such a root has neither.
pub const NO_SYSTEM: &str = "the root is not the machine's own, so it has no programs and no service manager";

impl System for NoSystem {
    fn run(&self, _argv: &[String], _bound: Duration) -> Ended {
        Ended {
            how: How::NotStarted(NO_SYSTEM.to_owned()),
            said: String::new(),
        }
    }
    fn list(&self, argv: &[String], bound: Duration) -> Ended {
        self.run(argv, bound)
    }
    fn managers(&self) -> Vec<Manager> {
        Vec::new()
    }
    fn unit(&self, _unit: &str) -> Result<Option<Unit>, String> {
        Err(NO_SYSTEM.to_owned())
    }
    fn turn(&self, _unit: &str, _turn: Turn, _bound: Duration) -> Result<(), String> {
        Err(NO_SYSTEM.to_owned())
    }
    fn read_units(&self) -> Result<(), String> {
        Err(NO_SYSTEM.to_owned())
    }
    fn kernel(&self, _path: &str) -> Result<Option<String>, String> {
        Err(NO_SYSTEM.to_owned())
    }
    fn links(&self) -> Result<Links, String> {
        Err(NO_SYSTEM.to_owned())
    }
    fn rest(&self, _time: Duration) {}
    fn engine(&self) -> &dyn Engine {
        &NONE
    }
}

impl Ended {
    /// In words why it did not end with one of these codes; none when it did. What it said is in the words, and the
    /// code beneath them. A list may be long: of it the last words.
    #[must_use]
    pub fn fault(&self, argv: &[String], accepts: &[i32]) -> Option<String> {
        let program = argv.first().map_or("", String::as_str);
        let how = match &self.how {
            How::Exited(0) => return None,
            How::Exited(code) if accepts.contains(code) => return None,
            How::Exited(code) => format!("`{program}` ended with {code}"),
            How::Signalled(signal) => format!("`{program}` was ended by signal {signal}"),
            How::TimedOut => format!("`{program}` did not end in time and was ended"),
            How::TooLarge => format!("what `{program}` lists is too large to be read"),
            How::NotStarted(why) => format!("`{program}` could not be started: {why}"),
        };
        Some(match self.said.as_str() {
            "" => how,
            said => format!("{how}: {}", command::cut(said)),
        })
    }
}
