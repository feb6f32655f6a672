//! Runs a file's check command (HK-1 `validate`), bounded in time and output.

use std::path::Path;
use std::time::Duration;

use super::DiskError;
use crate::edge::command::{self, Command, How};

/// After this long a check has not passed.
const CHECK_SECS: u64 = 60;

/// Runs `command` (words, no shell) with `%s` standing for the file.
pub(super) fn run(root: &Path, file: &Path, command: &str) -> Result<(), DiskError> {
    let fault = |said: String| DiskError::Check {
        command: command.to_owned(),
        said,
    };
    let argv: Vec<String> = command
        .split_whitespace()
        .map(|word| word.replace("%s", &file.to_string_lossy()))
        .collect();
    // A runtime of its own on a thread of its own: the caller may itself be a thread of a runtime.
    let outcome = std::thread::scope(|scope| {
        let check = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            std::io::Result::Ok(runtime.block_on(command::run(Command {
                argv: &argv,
                root,
                timeout: Duration::from_secs(CHECK_SECS),
            })))
        });
        check.join()
    });
    let ended = match outcome {
        Ok(Ok(ended)) => ended,
        Ok(Err(e)) => return Err(fault(e.to_string())),
        Err(_) => return Err(fault("it could not be run".to_owned())),
    };
    let how = match ended.how {
        How::Exited(0) => return Ok(()),
        How::Exited(code) => format!("exit code {code}"),
        How::Signalled(signal) => format!("ended by signal {signal}"),
        How::TimedOut => format!("no answer within {CHECK_SECS} s"),
        How::TooLarge => "it said too much".to_owned(),
        How::NotStarted(why) => why,
    };
    Err(fault(format!("{} ({how})", ended.said)))
}

#[cfg(test)]
mod tests {
    use meshplan_schemas::limits::COMMAND_OUTPUT_BYTES;

    use super::*;

    // holds: HK-1, HR-11
    #[test]
    fn a_check_that_floods_its_output_fails_in_bounded_words_and_leaves_nothing_running() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("flood");
        let pid = dir.path().join("pid");
        let text = format!(
            "sleep 600 & echo $! > {}; yes line | head -c 1000000; echo the end; exit 3\n",
            pid.display()
        );
        std::fs::write(&script, text).unwrap();
        let DiskError::Check { said, .. } = run(dir.path(), &script, "sh %s").unwrap_err() else {
            panic!("another error")
        };
        assert!(said.ends_with("the end (exit code 3)"), "{}", said.len());
        assert!(said.len() < COMMAND_OUTPUT_BYTES + 100);
        let pid = std::fs::read_to_string(pid).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        assert!(
            stat.is_err() || stat.unwrap().contains(") Z"),
            "what it started runs on"
        );
    }
}
