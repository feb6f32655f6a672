//! A started program: its output in a file, ended when dropped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// Where a program of the workspace was built: in a folder above the running test.
///
/// # Errors
/// It was not built.
pub fn path(name: &str) -> Result<PathBuf> {
    let test = std::env::current_exe().context("a test knows its own path")?;
    let found = test
        .ancestors()
        .skip(1)
        .map(|folder| folder.join(name))
        .find(|p| p.is_file());
    found.with_context(|| {
        format!(
            "`{name}` is not built beside {}: cargo build --workspace --bins",
            test.display()
        )
    })
}

/// A command that sees nothing of whoever runs the tests: no home, no git configuration, one language.
#[must_use]
pub fn clean(program: impl AsRef<Path>, home: &Path) -> Command {
    let mut command = Command::new(program.as_ref());
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("LC_ALL", "C.UTF-8")
        .env("NO_COLOR", "1")
        .env("RUST_BACKTRACE", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdin(Stdio::null());
    command
}

/// A running program.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts `command`; what it prints goes to the end of `log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: &str, mut command: Command, log: PathBuf) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .context("the log can be opened")?;
        let twin = file.try_clone().context("the log can be opened twice")?;
        let child = command
            .stdout(file)
            .stderr(twin)
            .spawn()
            .with_context(|| format!("{name} starts"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log,
        })
    }

    /// SIGKILL, and waits until it is gone: what a power cut leaves of it.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(mut self) -> Result<()> {
        self.child
            .kill()
            .with_context(|| format!("{} can be killed", self.name))?;
        self.child.wait().with_context(|| format!("{} ends", self.name))?;
        Ok(())
    }

    /// How it ended, none while it runs.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .with_context(|| format!("{} can be waited for", self.name))
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_else(|e| format!("({}: {e})", self.log.display()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Already ended is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a command that ended said.
#[derive(Debug, Clone)]
pub struct Said {
    /// The command, for messages.
    pub command: String,
    /// Its exit code; none when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// Runs a command to its end.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn of(mut command: Command) -> Result<Self> {
        let shown = shown(&command);
        let output = command.output().with_context(|| format!("{shown} starts"))?;
        Ok(Self {
            command: shown,
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Its standard output, when it ended with 0.
    ///
    /// # Errors
    /// It did not; the error has all that it said.
    pub fn ok(self) -> Result<String> {
        if self.code == Some(0) {
            Ok(self.out)
        } else {
            bail!("{self}")
        }
    }

    /// All that it said, when it ended with `code`.
    ///
    /// # Errors
    /// It did not.
    pub fn refused_with(self, code: i32) -> Result<String> {
        if self.code == Some(code) {
            Ok(format!("{}{}", self.out, self.err))
        } else {
            bail!("expected exit code {code}: {self}")
        }
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let code = self.code.map_or("a signal".to_owned(), |c| format!("code {c}"));
        write!(
            f,
            "`{}` ended with {code}\n{}{}",
            self.command, self.out, self.err
        )
    }
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|w| w.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
