//! The one place that starts processes: a command with a bound, in a process group of its own.
//!
//! It stands alone so that no caller forgets the time-out, the group that is killed with it, or the cut of what it
//! says. The exit code is kept beneath the words (HK-2): "no" and "could not be asked" are told apart by it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use meshplan_schemas::limits::COMMAND_OUTPUT_BYTES;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use zeroize::Zeroizing;

use super::scrub;

/// How long what a command left behind may hold its output open after its own end.
const TAIL: Duration = Duration::from_millis(500);
/// Of a list that is read and not shown.
const LIST_BYTES: usize = 4 * 1024 * 1024;

/// A command.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// Program and arguments.
    pub argv: &'a [String],
    /// Its working folder and `MESHPLAN_ROOT`: the host's root.
    pub root: &'a Path,
    /// After which it is killed with all that it started.
    pub timeout: Duration,
}

/// How a command ended, and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub how: How,
    /// Standard output, then standard error, each cut to its last bytes, without the values of secrets (HR-11).
    pub said: String,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// With this exit code.
    Exited(i32),
    /// By this signal, which was not ours.
    Signalled(i32),
    /// It was killed at its bound.
    TimedOut,
    /// It is a list of which only the end was kept, so that it is none.
    TooLarge,
    /// It could not be started.
    NotStarted(String),
}

/// Kills the group once: when told to, or when it is dropped, however the wait for it ended.
///
/// To be killed before its leader is reaped: until then the number is the group's own, after that anybody's.
struct Group(Option<Pid>);

impl Group {
    fn kill(&mut self) {
        if let Some(group) = self.0.take() {
            // Nothing can go wrong with a group of our own whose leader is not reaped.
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }

    /// Waits until the leader has ended, and does not reap it.
    async fn leader_ended(&self) {
        let Some(leader) = self.0 else { return };
        // A thread of its own: the kernel has no other way to wait without reaping that every version knows. It ends
        // with the leader, which is killed whenever nobody waits any more.
        let waited = tokio::task::spawn_blocking(move || {
            waitid(WaitId::Pid(leader), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
        });
        let _ended = waited.await;
    }
}
impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command to its end.
pub async fn run(command: Command<'_>) -> Ended {
    keep(command, COMMAND_OUTPUT_BYTES).await.0
}

/// Runs a command to its end that prints a list, which is read and not shown: [`LIST_BYTES`] of it are kept. One that is
/// longer is [`How::TooLarge`].
pub async fn list(command: Command<'_>) -> Ended {
    let (ended, is_cut) = keep(command, LIST_BYTES).await;
    match ended.how {
        How::Exited(0) if is_cut => Ended {
            how: How::TooLarge,
            said: String::new(),
        },
        _ => ended,
    }
}

/// Runs a command; whether what it said was cut.
async fn keep(command: Command<'_>, bytes: usize) -> (Ended, bool) {
    let mut child = match start(command) {
        Ok(child) => child,
        Err(why) => {
            let ended = Ended {
                how: How::NotStarted(why),
                said: String::new(),
            };
            return (ended, false);
        }
    };
    let mut group = Group(
        child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw),
    );
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let said = tokio::spawn(async move { tokio::join!(tail(out, bytes), tail(err, bytes)) });
    let ended = async {
        group.leader_ended().await;
        // What it started and left behind goes with it, and with that the pipes end.
        group.kill();
        child.wait().await
    };
    let how = match tokio::time::timeout(command.timeout, ended).await {
        Err(_) => How::TimedOut,
        Ok(Err(e)) => How::NotStarted(format!("it was started and cannot be waited for: {e}")),
        Ok(Ok(status)) => {
            use std::os::unix::process::ExitStatusExt as _;
            match (status.code(), status.signal()) {
                (Some(code), _) => How::Exited(code),
                (None, signal) => How::Signalled(signal.unwrap_or(0)),
            }
        }
    };
    if how == How::TimedOut {
        group.kill();
    }
    let ((out, is_out_cut), (err, is_err_cut)) = match tokio::time::timeout(TAIL, said).await {
        Ok(Ok(said)) => said,
        Ok(Err(_)) | Err(_) => Default::default(),
    };
    if how == How::TimedOut {
        // Reaped here, so that no dead child is left.
        let _reaped = child.wait().await;
    }
    let text = [out, err]
        .iter()
        .map(|bytes| scrub::scrubbed(String::from_utf8_lossy(bytes).trim().to_owned()))
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join("\n");
    let is_cut = is_out_cut || is_err_cut || text.len() > bytes;
    let said = last(&text, bytes);
    (Ended { how, said }, is_cut)
}

fn start(command: Command<'_>) -> Result<Child, String> {
    let Some((program, arguments)) = command.argv.split_first() else {
        return Err("no program is named".to_owned());
    };
    tokio::process::Command::new(program)
        .args(arguments)
        .current_dir(command.root)
        .env("MESHPLAN_ROOT", command.root)
        // The same words on every machine: people read them, and of package managers the host does (HK-3).
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| format!("{program}: {e}"))
}

/// The last bytes of a stream; all of it is read, so that the command is never stopped by a full pipe. Where it was cut
/// and there are secrets, the first line goes as well: it may begin in the midst of one. Whether it was cut.
async fn tail(stream: Option<impl AsyncRead + Unpin>, bytes: usize) -> (Zeroizing<Vec<u8>>, bool) {
    let mut kept = Zeroizing::new(Vec::new());
    let Some(mut stream) = stream else {
        return (kept, false);
    };
    let mut is_cut = false;
    let mut piece = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut piece).await {
        kept.extend_from_slice(&piece[..len]);
        let over = kept.len().saturating_sub(bytes);
        kept.drain(..over);
        is_cut |= over > 0;
    }
    if is_cut && scrub::hides_any() {
        let line = kept.iter().position(|byte| *byte == b'\n');
        let cut = line.map_or(kept.len(), |end| end + 1);
        kept.drain(..cut);
    }
    (kept, is_cut)
}

/// The last [`COMMAND_OUTPUT_BYTES`] of a text (HR-11): what failed is said at the end.
#[must_use]
pub fn cut(text: &str) -> String {
    last(text, COMMAND_OUTPUT_BYTES)
}

/// The last bytes of a text, from the beginning of a character.
fn last(text: &str, bytes: usize) -> String {
    let start = text.len().saturating_sub(bytes);
    let start = (start..=text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    text.get(start..).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(script: &str, timeout: Duration) -> Ended {
        let argv = ["sh", "-c", script].map(str::to_owned);
        let root = std::env::temp_dir();
        run(Command {
            argv: &argv,
            root: &root,
            timeout,
        })
        .await
    }
    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn the_exit_code_and_both_outputs_are_kept() {
        let ended = shell("echo out; echo err >&2; exit 3", LONG).await;
        assert_eq!(ended.how, How::Exited(3));
        assert_eq!(ended.said, "out\nerr");
    }

    #[tokio::test]
    async fn it_runs_in_the_root_and_is_told_of_it() {
        let argv = ["sh", "-c", "pwd -P; echo $MESHPLAN_ROOT"].map(str::to_owned);
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let ended = run(Command {
            argv: &argv,
            root: &root,
            timeout: LONG,
        })
        .await;
        let path = root.to_str().unwrap();
        assert_eq!(ended.said, format!("{path}\n{path}"));
    }

    #[tokio::test]
    async fn at_its_bound_it_is_killed_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let ended = shell(&script, Duration::from_millis(500)).await;
        assert_eq!(ended.how, How::TimedOut);
        let pid: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
        let gone = tokio::time::timeout(LONG, async {
            // A dead process whose parent has not looked yet still has an entry: state Z.
            while std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z")) {
                tokio::task::yield_now().await;
            }
        });
        assert!(gone.await.is_ok(), "the child's child outlived it");
    }

    // holds: HR-11
    #[tokio::test]
    async fn a_flood_of_output_is_cut_to_its_end_and_stops_nothing() {
        let ended = shell("yes line | head -c 1000000; echo the end", LONG).await;
        assert_eq!(ended.how, How::Exited(0));
        assert!(ended.said.len() <= COMMAND_OUTPUT_BYTES && ended.said.ends_with("the end"));
    }

    // holds: HK-11
    #[tokio::test]
    async fn a_list_that_was_cut_is_none_and_what_it_said_is_in_no_fault() {
        let list_of = async |script: &str| {
            let argv = ["sh", "-c", script].map(str::to_owned);
            let root = std::env::temp_dir();
            let ended = list(Command {
                argv: &argv,
                root: &root,
                timeout: LONG,
            })
            .await;
            (ended.how.clone(), ended.fault(&argv, &[]).unwrap_or_default())
        };
        let long = "yes a rule of a set of rules | head -c";
        let (how, fault) = list_of(&format!("{long} 5000000")).await;
        assert_eq!(how, How::TooLarge);
        assert!(fault.contains("too large") && fault.len() < 200, "{fault}");
        // One that is whole, and of a program that failed: its last words only.
        let (how, fault) = list_of(&format!("{long} 1000000; echo the end >&2; exit 1")).await;
        assert_eq!(how, How::Exited(1));
        assert!(fault.ends_with("the end") && fault.len() <= COMMAND_OUTPUT_BYTES + 200);
    }

    #[tokio::test]
    async fn a_background_child_that_holds_the_output_open_does_not_hold_the_answer() {
        let started = std::time::Instant::now();
        let ended = shell("sleep 600 & echo done", LONG).await;
        assert_eq!((ended.how, ended.said.as_str()), (How::Exited(0), "done"));
        assert!(started.elapsed() < LONG);
    }

    #[tokio::test]
    async fn what_cannot_be_started_is_told_apart_from_a_no() {
        let argv = ["/nonexistent/program".to_owned()];
        let root = std::env::temp_dir();
        let ended = run(Command {
            argv: &argv,
            root: &root,
            timeout: LONG,
        })
        .await;
        assert!(matches!(ended.how, How::NotStarted(why) if why.contains("/nonexistent/program")));
        let signalled = shell("kill -9 $$", LONG).await;
        assert_eq!(signalled.how, How::Signalled(9));
    }

    // holds: HR-11
    #[tokio::test]
    async fn what_a_command_says_of_a_secret_is_taken_out_also_where_its_output_is_cut() {
        scrub::hide(b"cmd-hunter-4711");
        let ended = shell("echo key is cmd-hunter-4711", LONG).await;
        assert_eq!(ended.said, "key is [secret]");
        // The cut falls into the midst of one of many.
        let flood = "yes cmd-hunter-4711 | head -c 1000005; echo; echo the end";
        let ended = shell(flood, LONG).await;
        assert!(ended.said.ends_with("the end"));
        assert!(
            !ended.said.contains("unter-4711"),
            "{}",
            ended.said.get(..80).unwrap_or_default()
        );
    }

    #[test]
    fn a_cut_falls_between_characters() {
        let text = "ä".repeat(COMMAND_OUTPUT_BYTES);
        let short = cut(&text);
        assert!(short.len() <= COMMAND_OUTPUT_BYTES && short.chars().all(|c| c == 'ä'));
    }
}
