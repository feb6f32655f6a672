//! `meshplan-launcher revert`: takes an open window back without the host (HR-13).
//!
//! The service manager starts it at a window's deadline, and at each start of the machine; a person may. It stands
//! alone, and shares no code with the host, because it acts when the host cannot: it knows five files of the state
//! folder (`lock`, `reserve`, and of `window/` the journal, the window and the verdict) and the journal's frozen
//! vocabulary.
//!
//! Invariant: who makes `window/verdict.json` has decided, and nothing is put back before it says so. What is put back
//! here the host finds at its next start, walks again, which changes nothing, and reports.

mod acts;
mod json;
mod lock;
mod tree;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use json::Value;
use lock::Lock;
use tree::Tree;

use crate::{INTERNAL, USAGE, say};

/// The version of the window's files that this build reads and writes.
const VERSION: i64 = 1;
/// Something could not be put back.
const NOT_ALL: u8 = 1;
/// How long after the deadline a host that is alive and applies has to come to an end.
const APPLYING_GRACE: Duration = Duration::from_secs(20);
/// How long after it one that waits for its confirm has: a restart of the reconciler that was announced stops its clock
/// for two minutes, and one that was only just started waits a minute for its probes.
const WAITING_GRACE: Duration = Duration::from_secs(200);
/// How long a host that was killed may hold its lock.
const KILLED: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the command line says.
struct Order {
    root: PathBuf,
    state: PathBuf,
    /// Only a window of another start of the machine.
    at_start: bool,
    /// Only the window that was opened then, in unix seconds.
    opened_at: Option<i64>,
}

/// How a window stands.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// There is none.
    Closed,
    /// It was confirmed: what is left of it is the host's to clear.
    Confirmed,
    /// It goes back.
    Reverted,
    /// Nobody has decided yet.
    Undecided,
}

/// Does it, and ends the program.
pub(crate) fn command(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let order = match order(arguments) {
        Ok(order) => order,
        Err(why) => {
            say(&why);
            return ExitCode::from(USAGE);
        }
    };
    match revert(&order) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(NOT_ALL),
        Err(why) => {
            say(&why);
            ExitCode::from(INTERNAL)
        }
    }
}

fn order(mut arguments: impl Iterator<Item = OsString>) -> Result<Order, String> {
    let mut order = Order {
        root: PathBuf::from("/"),
        state: PathBuf::from("/var/lib/meshplan"),
        at_start: false,
        opened_at: None,
    };
    while let Some(word) = arguments.next() {
        let mut value = || {
            let value = arguments.next();
            value.ok_or_else(|| format!("{} needs a value", word.display()))
        };
        match word.to_str() {
            Some("--state") => order.state = value()?.into(),
            Some("--root") => order.root = value()?.into(),
            Some("--at-start") => order.at_start = true,
            Some("--opened-at") => {
                let at = value()?;
                let at = at.to_str().and_then(|at| at.parse().ok());
                order.opened_at = Some(at.ok_or("--opened-at needs unix seconds")?);
            }
            _ => {
                return Err(format!(
                    "revert does not know `{}`; it takes --state DIR, --root DIR, --at-start and --opened-at SECS",
                    word.display()
                ));
            }
        }
    }
    Ok(order)
}

/// Whether all of it is back, or nothing was to be done.
fn revert(order: &Order) -> Result<bool, String> {
    let state = order.state.as_path();
    if order.at_start && !is_of_another_start(state) {
        return Ok(true);
    }
    let first = opened_at(state);
    if order.opened_at.is_some() && order.opened_at != first {
        say("the window of this deadline is closed; nothing is taken back");
        return Ok(true);
    }
    // A host that lives decides by itself; it is waited for, and then its time is over.
    let mut until = Instant::now() + grace(state);
    let mut decided = false;
    let lock = loop {
        let standing = standing(state)?;
        match standing {
            Standing::Confirmed => {
                say("the window was confirmed; nothing is taken back");
                return Ok(true);
            }
            Standing::Undecided if opened_at(state) == first => {}
            // Another one, opened after this one was closed.
            Standing::Closed | Standing::Undecided => {
                say("no such window is open any more; nothing is taken back");
                return Ok(true);
            }
            Standing::Reverted if !decided => {
                decided = true;
                until = Instant::now() + WAITING_GRACE;
            }
            Standing::Reverted => {}
        }
        let lock = Lock::take(state)?;
        if lock.is_some() || Instant::now() >= until {
            break lock;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    if standing(state)? == Standing::Undecided {
        let why = match (order.at_start, &lock) {
            (true, _) => "the machine was started anew in the open window",
            (false, Some(_)) => "the deadline came, and no host was there to confirm",
            (false, None) => "the deadline came, and the host had not decided",
        };
        decide(state, why)?;
    }
    // Whoever was first: the verdict that stands counts.
    if standing(state)? != Standing::Reverted {
        say("somebody else has decided; nothing is taken back");
        return Ok(true);
    }
    let _lock = match lock {
        Some(lock) => lock,
        None => lock::take_from_holder(state, KILLED)?,
    };
    if standing(state)? != Standing::Reverted {
        say("the host has taken it back meanwhile");
        return Ok(true);
    }
    put_back(order)
}

/// Walks the journal; an act that fails does not stop the next.
fn put_back(order: &Order) -> Result<bool, String> {
    let (root, state) = (Tree::open(&order.root)?, Tree::open(&order.state)?);
    if let Err(why) = give_room(&state) {
        say(&why);
    }
    let path = order.state.join("window/journal.json");
    let entries = acts::read(&path)?;
    let mut whole = true;
    let mut done = 0_usize;
    let mut silent = acts::Silent::default();
    for entry in entries {
        match entry.and_then(|entry| acts::act(&entry, (&root, &state), &order.root, &mut silent)) {
            Ok(()) => done += 1,
            Err(why) => {
                whole = false;
                say(&format!("cannot be put back: {why}"));
            }
        }
    }
    say(&format!(
        "{done} acts of the way back are done; the host reports them when it runs again"
    ));
    Ok(whole)
}

fn standing(state: &Path) -> Result<Standing, String> {
    let window = state.join("window");
    if !is_there(&window)? {
        return Ok(Standing::Closed);
    }
    let verdict = window.join("verdict.json");
    if !is_there(&verdict)? {
        return Ok(Standing::Undecided);
    }
    // As the host does: a verdict that cannot be read is one for the way back.
    let decided = json::read_file(&verdict).ok();
    let decided = decided
        .as_ref()
        .and_then(|v| v.field("decided"))
        .and_then(Value::text);
    Ok(match decided {
        Some("confirmed") => Standing::Confirmed,
        _ => Standing::Reverted,
    })
}

fn is_there(path: &Path) -> Result<bool, String> {
    path.try_exists()
        .map_err(|e| format!("cannot look at {}: {e}", path.display()))
}

fn grace(state: &Path) -> Duration {
    let window = json::read_file(&state.join("window/window.json")).ok();
    let word = window
        .as_ref()
        .and_then(|w| w.field("state"))
        .and_then(Value::text);
    match word {
        Some("awaiting_confirm") => WAITING_GRACE,
        _ => APPLYING_GRACE,
    }
}

/// When the window was opened, in unix seconds: what it is known by. It is set once.
fn opened_at(state: &Path) -> Option<i64> {
    let window = json::read_file(&state.join("window/window.json")).ok()?;
    window.field("opened_at")?.number()
}

/// A window whose boot id is that of this start is a host's to wait for; one that tells none is not.
fn is_of_another_start(state: &Path) -> bool {
    let Ok(now) = std::fs::read_to_string("/proc/sys/kernel/random/boot_id") else {
        return false;
    };
    let window = json::read_file(&state.join("window/window.json")).ok();
    let then = window
        .as_ref()
        .and_then(|w| w.field("boot_id"))
        .and_then(Value::text);
    then != Some(now.trim())
}

/// Gives the room back that the host has reserved for the case that a disk is full.
fn give_room(state: &Tree) -> Result<(), String> {
    state.remove("/reserve")
}

/// Makes the verdict, unless one is there: two who try, and one has made it, whole.
fn decide(state: &Path, why: &str) -> Result<(), String> {
    let at = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    let text = format!(
        "{{\n  \"version\": {VERSION},\n  \"decided\": \"reverted\",\n  \"why\": \"{why}\",\n  \"at\": {at}\n}}\n"
    );
    let tree = Tree::open(state)?;
    let put = || tree.put_first("/window/verdict.json", text.as_bytes());
    put().or_else(|_| give_room(&tree).and_then(|()| put()))?;
    say(&format!("decided for the way back: {why}"));
    Ok(())
}
