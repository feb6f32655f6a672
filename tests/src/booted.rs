//! A machine that a test boots: systemd as its first process, files and a network of its own, gone when dropped.
//!
//! Three scripts of `tests/booted/` do what takes root: `tree` makes, once, the files that all machines start from;
//! `shelf` holds a machine's own files and network; `boot` starts it. Invariant: everything of a machine lives in
//! name spaces that the shelf opens, and the shelf ends with the test's process, however that ends. Nothing here
//! sleeps to wait: what should come is asked for until a deadline.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;

use crate::house::workspace;
use crate::program::{Said, clean};
use crate::skip::skip;

/// How long a machine may take for anything that is waited for.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The other end of a machine's network, as the machine sees it.
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

/// How `boot` ends when the machine wants to be booted again.
const AGAIN: i32 = 133;

/// A command inside that takes longer is ended.
const COMMAND_SECS: &str = "120";

/// A machine. Dropped, nothing of it is left.
#[derive(Debug)]
pub struct Booted {
    name: String,
    /// `boot`, while the machine is on.
    on: Option<Child>,
    shelf: Child,
    folder: TempDir,
}

impl Booted {
    /// A machine of this name, up; none where this machine cannot boot one, which is said ([`skip`]).
    ///
    /// # Errors
    /// It does not come up; `CI=true`, and it cannot be booted here.
    pub fn start(name: &str) -> Result<Option<Self>> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if let Some(why) = lacking() {
            skip("a booted machine", &why)?;
            return Ok(None);
        }
        let tree = Said::of(Command::new(script("tree")))?.ok()?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("meshplan-{name}-{}-{count}", std::process::id());
        let folder = tempfile::Builder::new().prefix("meshplan-booted-").tempdir()?;
        let shelf = Command::new("unshare")
            .args([
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
            ])
            .arg(script("shelf"))
            .arg(folder.path())
            .args([tree.trim(), &name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.path().join("shelf.log"))?)
            .spawn()
            .context("unshare starts")?;
        let mut machine = Self {
            name,
            on: None,
            shelf,
            folder,
        };
        let mut ready = String::new();
        let said = machine.shelf.stdout.take().context("its output is piped")?;
        BufReader::new(said).read_line(&mut ready)?;
        ensure!(
            ready == "ready\n",
            "the shelf is not ready: {}",
            machine.text_of("shelf.log")
        );
        machine.boot()?;
        Ok(Some(machine))
    }

    /// Starts it, and waits until it is up.
    ///
    /// # Errors
    /// It is on already, or does not come up.
    pub fn boot(&mut self) -> Result<()> {
        ensure!(self.on.is_none(), "{} is on already", self.name);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("console.log"))?;
        let mut boot = Command::new("nsenter");
        boot.args(["--target", &self.shelf_pid()?.to_string()])
            .args(["--mount", "--net", "--pid"])
            .arg(script("boot"))
            .arg(self.folder.path())
            .arg(&self.name)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.on = Some(boot.spawn().context("nsenter starts")?);
        self.poll("it is up", |machine| {
            if let Some(on) = &mut machine.on
                && let Some(status) = on.try_wait()?
            {
                bail!("it ended with {status}");
            }
            let Ok(said) = machine.run(&["systemctl", "is-system-running"]) else {
                return Ok(false);
            };
            Ok(matches!(said.out.trim(), "running" | "degraded"))
        })
    }

    /// Has it start anew, as a person would, and waits until it is up again.
    ///
    /// # Errors
    /// It does not go down, or does not come up.
    pub fn reboot(&mut self) -> Result<()> {
        self.run(&["systemctl", "--no-block", "reboot"])?.ok()?;
        let code = self.off()?;
        ensure!(
            code == Some(AGAIN),
            "it went off with {code:?} instead of rebooting"
        );
        self.boot()
    }

    /// Ends all of it in one moment, as a power cut does; what it has written stays.
    ///
    /// # Errors
    /// It is off, or does not end.
    pub fn cut_power(&mut self) -> Result<()> {
        kill_process(self.first_process()?, Signal::KILL)?;
        self.off()?;
        Ok(())
    }

    /// Waits until it is off; how `boot` ended.
    fn off(&mut self) -> Result<Option<i32>> {
        let mut code = None;
        self.poll("it is off", |machine| {
            let on = machine.on.as_mut().context("it is off already")?;
            let Some(status) = on.try_wait()? else {
                return Ok(false);
            };
            code = status.code();
            Ok(true)
        })?;
        self.on = None;
        Ok(code)
    }

    // --- inside ----------------------------------------------------------------------------------------------------

    /// Runs a command inside, as root, to its end.
    ///
    /// # Errors
    /// The machine is off.
    pub fn run(&self, argv: &[&str]) -> Result<Said> {
        Said::of(self.inside(argv)?)
    }

    /// What a command inside prints, when it ends with 0.
    ///
    /// # Errors
    /// It does not.
    pub fn say(&self, argv: &[&str]) -> Result<String> {
        self.run(argv)?.ok()
    }

    /// A command inside, to be started: with no environment of the test's, and a bound.
    ///
    /// # Errors
    /// The machine is off.
    pub fn inside(&self, argv: &[&str]) -> Result<Command> {
        let first = self.first_process()?.as_raw_nonzero().to_string();
        let mut command = clean("timeout", Path::new("/root"));
        command
            .args(["--kill-after=5", COMMAND_SECS])
            .args(["nsenter", "--target", &first, "--all", "--root", "--wd", "--"])
            .args(argv);
        Ok(command)
    }

    /// Puts a file inside; folders on the way are made.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        // Beside and renamed: a running program's own file cannot be written over.
        let script = r#"mkdir -p "${1%/*}" && cat > "$1.put" && chmod "$2" "$1.put" && mv -f "$1.put" "$1""#;
        let mut command = self.inside(&["sh", "-ec", script, "put", path, &format!("{mode:o}")])?;
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().context("timeout starts")?;
        let mut stdin: ChildStdin = child.stdin.take().context("its input is piped")?;
        stdin.write_all(bytes)?;
        drop(stdin);
        let status = child.wait()?;
        ensure!(status.success(), "{path} cannot be put: {status}");
        Ok(())
    }

    /// The text of a file inside; none when it is not there.
    ///
    /// # Errors
    /// The machine is off; it cannot be read.
    pub fn file(&self, path: &str) -> Result<Option<String>> {
        // One look: a file that goes between two would be an error.
        let said = self.run(&["cat", path])?;
        if said.code == Some(1) && said.err.contains("No such file or directory") {
            return Ok(None);
        }
        said.ok().map(Some)
    }

    // --- its network -----------------------------------------------------------------------------------------------

    /// Whoever inside dials this port of [`OUTSIDE`] reaches that address outside, for as long as the test runs.
    ///
    /// # Errors
    /// The port cannot be had.
    pub fn answers(&self, port: u16, address: SocketAddr) -> Result<()> {
        let net = File::open(format!("/proc/{}/ns/net", self.shelf_pid()?))?;
        // A socket belongs to the network of the thread that made it, wherever it is used.
        let bound = std::thread::spawn(move || {
            move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))?;
            TcpListener::bind((OUTSIDE, port))
        });
        let listener = bound
            .join()
            .map_err(|_| anyhow!("the thread that binds ends"))??;
        std::thread::spawn(move || {
            for inner in listener.incoming().flatten() {
                if let Ok(outer) = TcpStream::connect(address) {
                    let _ended = carry(inner, outer);
                }
            }
        });
        Ok(())
    }

    /// Whoever inside dials the socket at this path reaches that one outside, for as long as the test runs.
    ///
    /// # Errors
    /// The machine is off; the path cannot be had.
    pub fn answers_at(&self, path: &str, socket: &Path) -> Result<()> {
        // A socket with a path belongs to whoever finds the path, in whatever name space.
        let first = self.first_process()?.as_raw_nonzero();
        let listener = UnixListener::bind(format!("/proc/{first}/root{path}"))?;
        let socket = socket.to_owned();
        std::thread::spawn(move || {
            for inner in listener.incoming().flatten() {
                if let Ok(outer) = UnixStream::connect(&socket) {
                    let _ended = carry_local(inner, outer);
                }
            }
        });
        Ok(())
    }

    /// Takes the machine's link down, or up again: nothing is told to anybody, packets are gone.
    ///
    /// # Errors
    /// The kernel says no.
    pub fn set_link(&self, up: bool) -> Result<()> {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.shelf_pid()?.to_string(), "--net"]);
        command.args(["ip", "link", "set", "outside", if up { "up" } else { "down" }]);
        Said::of(command)?.ok()?;
        Ok(())
    }

    // --- waiting ---------------------------------------------------------------------------------------------------

    /// Asks until `come` says yes; when it does not, the error has the console and the machine's journal.
    ///
    /// # Errors
    /// It did not come.
    pub fn poll(&mut self, what: &str, mut come: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match come(self) {
                Ok(true) => return Ok(()),
                Ok(false) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
                Ok(false) => bail!("after {PATIENCE:?} still not: {what}\n{}", self.logs()),
                Err(e) => return Err(e.context(format!("while waiting: {what}\n{}", self.logs()))),
            }
        }
    }

    /// The last of what the machine has said.
    #[must_use]
    pub fn logs(&self) -> String {
        let journal = self.run(&["journalctl", "--no-pager", "--boot", "--lines=60"]);
        let journal = journal.map_or_else(|e| e.to_string(), |said| said.out);
        format!(
            "--- console\n{}\n--- journal\n{journal}",
            self.text_of("console.log")
        )
    }

    // --- processes -------------------------------------------------------------------------------------------------

    /// The machine's first process, as this side numbers it.
    fn first_process(&self) -> Result<Pid> {
        let on = self
            .on
            .as_ref()
            .with_context(|| format!("{} is off", self.name))?;
        let nspawn = only_child(on.id())?;
        let first = children(nspawn)?.into_iter().find(|pid| is_first(*pid));
        let first = first.with_context(|| format!("{} is not up yet", self.name))?;
        i32::try_from(first)
            .ok()
            .and_then(Pid::from_raw)
            .context("a process has a number")
    }

    fn shelf_pid(&self) -> Result<u32> {
        only_child(self.shelf.id())
    }

    fn text_of(&self, log: &str) -> String {
        fs::read_to_string(self.folder.path().join(log)).unwrap_or_else(|e| e.to_string())
    }

    /// The control groups that the machine's processes are in.
    #[must_use]
    pub fn control_groups(&self) -> Vec<PathBuf> {
        ["systemd", "unified", "."]
            .map(|hierarchy| Path::new("/sys/fs/cgroup").join(hierarchy).join(&self.name))
            .to_vec()
    }

    /// The folder that everything of it is below.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Booted {
    fn drop(&mut self) {
        // The shelf ends when its input does, and the kernel ends all that runs in its name spaces before its parent
        // hears of it.
        drop(self.shelf.stdin.take());
        let ended = within(Duration::from_secs(20), || {
            matches!(self.shelf.try_wait(), Ok(Some(_)))
        });
        if !ended {
            let _gone = self.shelf.kill();
            let _reaped = self.shelf.wait();
        }
        if let Some(mut on) = self.on.take() {
            let _gone = on.kill();
            let _reaped = on.wait();
        }
        for group in self.control_groups() {
            // A group whose last process is only just dead is busy for a moment.
            within(Duration::from_secs(5), || remove_group(&group).is_ok());
        }
    }
}

/// Asks until it holds; whether it did.
fn within(patience: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Why no machine can be booted here.
fn lacking() -> Option<String> {
    if !geteuid().is_root() {
        return Some("only root can boot one".to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |program: &&str| !std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    let programs = [
        "systemd-nspawn",
        "debootstrap",
        "unshare",
        "nsenter",
        "flock",
        "ip",
    ];
    let missing: Vec<&str> = programs.into_iter().filter(there).collect();
    (!missing.is_empty()).then(|| format!("not installed: {}", missing.join(", ")))
}

fn script(name: &str) -> PathBuf {
    workspace().join("tests/booted").join(name)
}

fn children(pid: u32) -> Result<Vec<u32>> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    listed
        .split_whitespace()
        .map(|child| child.parse().context("a process has a number"))
        .collect()
}

fn only_child(pid: u32) -> Result<u32> {
    let first = children(pid)?.first().copied();
    first.with_context(|| format!("process {pid} has started nothing yet"))
}

/// Whether a process is number 1 of its own name space.
fn is_first(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    // The shelf's number, nspawn's and its own.
    numbers.is_some_and(|numbers| {
        numbers.split_whitespace().count() == 3 && numbers.split_whitespace().last() == Some("1")
    })
}

fn remove_group(group: &Path) -> std::io::Result<()> {
    let entries = match fs::read_dir(group) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_group(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

/// Carries bytes both ways until both sides have ended.
fn carry(inner: TcpStream, outer: TcpStream) -> std::io::Result<()> {
    for (mut from, mut to) in [(inner.try_clone()?, outer.try_clone()?), (outer, inner)] {
        std::thread::spawn(move || {
            let _carried = std::io::copy(&mut from, &mut to);
            let _ended = to.shutdown(Shutdown::Write);
        });
    }
    Ok(())
}

/// As [`carry`], of sockets with a path.
fn carry_local(inner: UnixStream, outer: UnixStream) -> std::io::Result<()> {
    for (mut from, mut to) in [(inner.try_clone()?, outer.try_clone()?), (outer, inner)] {
        std::thread::spawn(move || {
            let _carried = std::io::copy(&mut from, &mut to);
            let _ended = to.shutdown(Shutdown::Write);
        });
    }
    Ok(())
}
