//! The machine itself: programs by the one place that starts them, the service manager by its bus.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use meshplan_schemas::resource::accounts::Manager;

use super::{System, Turn, manager};
use crate::edge::capabilities::{Remembered, managers};
use crate::edge::command::{self, Command, Ended, How};
use crate::edge::deadline::launcher;
use crate::edge::engine::{Engine, RealEngine};
use crate::edge::links;
use crate::pure::capability::capability_of;
use crate::pure::filter::links::Links;
use crate::pure::unit::Unit;

/// The machine.
#[derive(Debug)]
pub struct RealSystem {
    root: PathBuf,
    engine: RealEngine,
    /// What package managers have answered.
    answered: Mutex<Remembered>,
}

impl RealSystem {
    /// The machine whose root this is.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            engine: RealEngine::of_the_machine(launcher()),
            answered: Mutex::default(),
        }
    }

    fn command<'a>(&'a self, argv: &'a [String], bound: Duration) -> Command<'a> {
        Command {
            argv,
            root: &self.root,
            timeout: bound,
        }
    }

    /// The same with this engine.
    #[must_use]
    pub fn with_engine(self, engine: RealEngine) -> Self {
        Self { engine, ..self }
    }
}

/// Runs to its end what needs a runtime, on a thread of its own: whoever calls may stand in one already.
pub(crate) fn block<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, String> {
    let on_thread = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| format!("no runtime: {e}"))?;
        Ok(runtime.block_on(work))
    };
    std::thread::scope(|scope| scope.spawn(on_thread).join())
        .unwrap_or_else(|_| Err("it ended by a fault of the host's own".to_owned()))
}

fn not_started(why: String) -> Ended {
    Ended {
        how: How::NotStarted(why),
        said: String::new(),
    }
}

impl System for RealSystem {
    fn run(&self, argv: &[String], bound: Duration) -> Ended {
        block(command::run(self.command(argv, bound))).unwrap_or_else(not_started)
    }

    fn list(&self, argv: &[String], bound: Duration) -> Ended {
        block(command::list(self.command(argv, bound))).unwrap_or_else(not_started)
    }

    fn managers(&self) -> Vec<Manager> {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let search = std::env::var("PATH").unwrap_or_default();
        let capabilities = block(managers(&mut answered, &search)).unwrap_or_default();
        let is_there = |manager: &&Manager| capabilities.contains(&capability_of(**manager).as_str());
        let all = Manager::WORDS.iter().map(|(_, manager)| manager);
        all.filter(is_there).copied().collect()
    }

    fn unit(&self, unit: &str) -> Result<Option<Unit>, String> {
        block(manager::unit(unit))?
    }

    fn turn(&self, unit: &str, turn: Turn, bound: Duration) -> Result<(), String> {
        block(manager::turn(unit, turn, bound))?
    }

    fn read_units(&self) -> Result<(), String> {
        block(manager::read_units())?
    }

    fn kernel(&self, path: &str) -> Result<Option<String>, String> {
        match std::fs::read_to_string(path) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("{path} cannot be read: {e}")),
        }
    }

    fn links(&self) -> Result<Links, String> {
        links::links()
    }

    fn rest(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn engine(&self) -> &dyn Engine {
        &self.engine
    }
}
