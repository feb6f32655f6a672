//! The dead man (HR-13): a timer of the service manager that takes an open window back at its deadline, though the
//! host is dead or cannot start.
//!
//! It stands alone because it is a seam: [`ServiceManager`] is the machine's, tests have one that only remembers.
//! Invariant: while a window is open there is a timer for it, the one for the confirm being there before the one for
//! the apply goes. The timer counts by the kernel's own time, which no clock that is set moves.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::system::System;
use crate::pure::commit_confirm::{Window, WindowState};

/// Who takes an open window back when the host cannot.
pub trait DeadMan: Send {
    /// From now on it acts in so many seconds, for this window in this state.
    ///
    /// # Errors
    /// In words: nobody would take the window back but the host.
    fn arm(&self, window: &Window, secs: u64) -> Result<(), String>;

    /// The window is closed.
    ///
    /// # Errors
    /// In words; it will find the window closed, and do nothing.
    fn disarm(&self) -> Result<(), String>;
}

/// How long the service manager may take.
const PATIENCE: Duration = Duration::from_secs(30);
const WHILE_IT_APPLIES: &str = "meshplan-deadline-apply";
const FOR_THE_CONFIRM: &str = "meshplan-deadline-confirm";

/// The machine's service manager, systemd.
#[derive(Debug)]
pub struct ServiceManager {
    system: Arc<dyn System>,
    launcher: PathBuf,
    state_dir: PathBuf,
}

/// Where nothing would take a window back but the host.
#[derive(Debug)]
pub struct Nobody(String);

/// Whoever this machine has: the service manager, where the root is the machine's own, systemd has booted it, and the
/// launcher is there.
#[must_use]
pub fn of(system: Arc<dyn System>, root: &Path, state_dir: &Path) -> Box<dyn DeadMan> {
    let nobody = |why: String| Box::new(Nobody(why));
    if root != Path::new("/") {
        return nobody("the root is not the machine's own".to_owned());
    }
    if !Path::new("/run/systemd/system").is_dir() {
        return nobody("systemd has not booted this machine".to_owned());
    }
    match launcher() {
        Some(launcher) => Box::new(ServiceManager {
            system,
            launcher,
            state_dir: fs::canonicalize(state_dir).unwrap_or_else(|_| state_dir.to_owned()),
        }),
        None => nobody("there is no meshplan-launcher beside the host".to_owned()),
    }
}

/// Whether the service manager has a timer for an open window: it keeps what is transient in this folder.
#[must_use]
pub fn is_armed(root: &Path) -> bool {
    let kept = |unit: &str| Path::new("/run/systemd/transient").join(format!("{unit}.timer"));
    root == Path::new("/")
        && [WHILE_IT_APPLIES, FOR_THE_CONFIRM]
            .iter()
            .any(|unit| kept(unit).exists())
}

/// The launcher that started this host, or the one beside it.
pub(crate) fn launcher() -> Option<PathBuf> {
    let named = std::env::var_os("MESHPLAN_LAUNCHER").map(PathBuf::from);
    let beside = std::env::current_exe().ok();
    let beside = beside.map(|own| own.with_file_name("meshplan-launcher"));
    named.into_iter().chain(beside).find(|path| path.is_file())
}

impl DeadMan for Nobody {
    fn arm(&self, _window: &Window, _secs: u64) -> Result<(), String> {
        Err(format!(
            "only the host itself can take this window back: {}",
            self.0
        ))
    }
    fn disarm(&self) -> Result<(), String> {
        Ok(())
    }
}

impl DeadMan for ServiceManager {
    fn arm(&self, window: &Window, secs: u64) -> Result<(), String> {
        let (unit, former) = match window.state {
            WindowState::Applying => (WHILE_IT_APPLIES, None),
            WindowState::AwaitingConfirm => (FOR_THE_CONFIRM, Some(WHILE_IT_APPLIES)),
        };
        let armed = self.start(unit, window, secs).or_else(|_| {
            // One of a window of before may be left.
            self.stop(&[unit])?;
            self.start(unit, window, secs)
        });
        armed.map_err(|why| {
            format!("only the host itself can take this window back: no timer can be had: {why}")
        })?;
        former.map_or(Ok(()), |former| self.stop(&[former]))
    }

    fn disarm(&self) -> Result<(), String> {
        self.stop(&[WHILE_IT_APPLIES, FOR_THE_CONFIRM])
    }
}

impl ServiceManager {
    fn start(&self, unit: &str, window: &Window, secs: u64) -> Result<(), String> {
        let mut argv: Vec<String> = [
            "systemd-run",
            "--quiet",
            "--collect",
            "--timer-property=AccuracySec=1s",
            "--description=meshplan: takes back a change that nobody confirms",
        ]
        .map(str::to_owned)
        .to_vec();
        argv.push(format!("--unit={unit}"));
        argv.push(format!("--on-active={secs}s"));
        argv.push("--".to_owned());
        argv.push(self.launcher.display().to_string());
        argv.extend(["revert", "--state"].map(str::to_owned));
        argv.push(self.state_dir.display().to_string());
        argv.push("--opened-at".to_owned());
        argv.push(window.opened_at.to_string());
        self.run(&argv, &[])
    }

    fn stop(&self, units: &[&str]) -> Result<(), String> {
        let mut argv = vec!["systemctl".to_owned(), "stop".to_owned()];
        argv.extend(units.iter().map(|unit| format!("{unit}.timer")));
        self.run(&argv, &[NO_SUCH_UNIT])
    }

    fn run(&self, argv: &[String], accepts: &[i32]) -> Result<(), String> {
        let fault = self.system.run(argv, PATIENCE).fault(argv, accepts);
        fault.map_or(Ok(()), Err)
    }
}

/// The code with which systemctl says that it knows no such unit.
const NO_SUCH_UNIT: i32 = 5;
