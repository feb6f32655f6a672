//! The program `meshplan-launcher`: starts the host, starts it again when it falls, and ends when it has ended (SU-1).
//!
//! Small enough to be read in one sitting: no network, no configuration, and of the host's state nothing but an open
//! window. It is the one program on the machine that nobody can take back, so it does as little as it can.
//!
//!     meshplan-launcher [--host PATH] [ARGUMENTS OF THE HOST]...
//!     meshplan-launcher revert [--state DIR] [--root DIR] [--at-start] [--opened-at SECS]
//!     meshplan-launcher container SOCKET WORD NAME
//!
//! Without `--host` the host is the `meshplan-host` beside it. SIGTERM and SIGINT are handed on; the host ends in its
//! own time, and the launcher with its code. An end by a signal, a panic or an internal fault is a fall: the host is
//! started again after a pause that doubles from 1 s to 60 s, and is 1 s again after a minute without a fall.
//!
//! `revert` takes an open window back without the host: see [`revert`]. `container` is what such a way back has for
//! containers: see [`container`].

mod container;
mod revert;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Exit codes from here on are falls: 5 is the host's "internal fault", 101 a panic. Those below are answers.
const FALL: i32 = 5;
const USAGE: u8 = 2;
const INTERNAL: u8 = 5;

/// The host's process; 0 while none runs.
static CHILD: AtomicI32 = AtomicI32::new(0);
/// The signal by which somebody asked for the end; 0 while nobody has.
static STOP: AtomicI32 = AtomicI32::new(0);

mod signals {
    //! std cannot hear a signal; this is the C library's own way, in one declaration.
    #![expect(
        unsafe_code,
        reason = "one function of the C library, which std is linked with anyway"
    )]

    unsafe extern "C" {
        /// `signal(2)`; the handler may only do what is safe inside one: atomics and kill(2).
        pub(super) safe fn signal(signal: i32, handler: extern "C" fn(i32)) -> usize;
    }
}

extern "C" fn hand_on(signal: i32) {
    STOP.store(signal, Ordering::SeqCst);
    tell_child(signal);
}

fn is_stopped() -> bool {
    STOP.load(Ordering::SeqCst) != 0
}

fn tell_child(signal: i32) {
    let signal = if signal == Signal::INT.as_raw() {
        Signal::INT
    } else {
        Signal::TERM
    };
    if let Some(pid) =
        Pid::from_raw(CHILD.load(Ordering::SeqCst)).filter(|_| CHILD.load(Ordering::SeqCst) > 0)
    {
        // It may have ended by itself; it is not reaped before its number is taken away here, so it is no other's.
        let _ended = kill_process(pid, signal);
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|first| first == "revert").is_some() {
        return revert::command(arguments);
    }
    if arguments.next_if(|first| first == "container").is_some() {
        return container::command(arguments);
    }
    let (host, arguments) = match command_line(arguments) {
        Ok(command) => command,
        Err(why) => {
            say(&why);
            return ExitCode::from(USAGE);
        }
    };
    for signal in [Signal::TERM, Signal::INT] {
        signals::signal(signal.as_raw(), hand_on);
    }
    let mut pause = FIRST_PAUSE;
    loop {
        let started = Instant::now();
        let fall = match start(&host, &arguments) {
            Err(error) => format!("{} cannot be started: {error}", host.display()),
            Ok(child) => match wait(child) {
                Err(error) => format!("the host cannot be waited for: {error}"),
                Ok(status) => match (ending(status), is_stopped()) {
                    (Ok(code), _) => return ExitCode::from(code),
                    (Err(_), true) => return ExitCode::from(INTERNAL),
                    (Err(fall), false) => fall,
                },
            },
        };
        if started.elapsed() >= LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        say(&format!("{fall}; it is started again in {} s", pause.as_secs()));
        if !rest(pause) {
            return ExitCode::SUCCESS;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn command_line(mut arguments: impl Iterator<Item = OsString>) -> Result<(PathBuf, Vec<OsString>), String> {
    let first = arguments.next();
    if first.as_ref().is_some_and(|a| a == "--host") {
        let host = arguments.next().ok_or("--host needs a path")?;
        return Ok((host.into(), arguments.collect()));
    }
    let own = std::env::current_exe().map_err(|e| format!("cannot tell where this program is: {e}"))?;
    Ok((
        own.with_file_name("meshplan-host"),
        first.into_iter().chain(arguments).collect(),
    ))
}

fn start(host: &PathBuf, arguments: &[OsString]) -> std::io::Result<Child> {
    // What the host arms its deadline with (HR-13).
    let own = std::env::current_exe().ok();
    let child = Command::new(host)
        .args(arguments)
        .env("MESHPLAN_LAUNCHER_VERSION", env!("CARGO_PKG_VERSION"))
        .envs(own.map(|own| ("MESHPLAN_LAUNCHER", own)))
        .spawn()?;
    CHILD.store(i32::try_from(child.id()).unwrap_or(0), Ordering::SeqCst);
    // A signal that came before the number was known was told to nobody.
    if is_stopped() {
        tell_child(STOP.load(Ordering::SeqCst));
    }
    Ok(child)
}

/// Waits without reaping, takes the number away, and reaps then: a signal never reaches another process.
fn wait(mut child: Child) -> std::io::Result<ExitStatus> {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let seen = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(pid), seen), Err(rustix::io::Errno::INTR)) {}
    }
    CHILD.store(0, Ordering::SeqCst);
    child.wait()
}

/// The code to end with, or in words how it fell.
fn ending(status: ExitStatus) -> Result<u8, String> {
    match (status.code(), status.signal()) {
        (Some(code), _) if (0..FALL).contains(&code) => u8::try_from(code).map_err(|e| e.to_string()),
        (Some(code), _) => Err(format!("the host ended with {code}")),
        (None, signal) => Err(format!("the host was ended by signal {}", signal.unwrap_or(0))),
    }
}

/// Whether to go on: a stop cuts the pause short.
fn rest(pause: Duration) -> bool {
    let until = Instant::now() + pause;
    while Instant::now() < until && !is_stopped() {
        std::thread::sleep(Duration::from_millis(50));
    }
    !is_stopped()
}

fn say(words: &str) {
    // Where nobody listens the host is started all the same.
    let _unheard = writeln!(std::io::stderr(), "meshplan-launcher: {words}");
}
