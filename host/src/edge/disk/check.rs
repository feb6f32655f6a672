//! Runs a file's check command (HK-1 `validate`), bounded in time and output.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use meshplan_schemas::limits::COMMAND_OUTPUT_BYTES;

use super::DiskError;

/// After this long a check has not passed.
const CHECK_SECS: u64 = 60;

/// Runs `command` (words, no shell) with `%s` standing for the file.
pub(super) fn run(root: &Path, file: &Path, command: &str) -> Result<(), DiskError> {
    let fault = |said: String| DiskError::Check {
        command: command.to_owned(),
        said,
    };
    let mut words = command
        .split_whitespace()
        .map(|word| word.replace("%s", &file.to_string_lossy()));
    let program = words
        .next()
        .ok_or_else(|| fault("the command is empty".to_owned()))?;
    let mut child = tokio::process::Command::new(program);
    child
        .args(words)
        .current_dir(root)
        .env("MESHPLAN_ROOT", root)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    // A runtime of its own on a thread of its own: the caller may itself be a thread of a runtime.
    let outcome = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                runtime.block_on(async {
                    match tokio::time::timeout(Duration::from_secs(CHECK_SECS), child.output()).await {
                        Ok(output) => output,
                        Err(_) => Err(std::io::Error::other(format!("no answer within {CHECK_SECS} s"))),
                    }
                })
            })
            .join()
    });
    let output = match outcome {
        Ok(Ok(output)) => output,
        Ok(Err(e)) => return Err(fault(e.to_string())),
        Err(_) => return Err(fault("it could not be run".to_owned())),
    };
    if output.status.success() {
        return Ok(());
    }
    let mut said = output.stderr;
    said.extend_from_slice(&output.stdout);
    said.truncate(COMMAND_OUTPUT_BYTES);
    let said = String::from_utf8_lossy(&said);
    Err(fault(format!("{} ({})", said.trim(), output.status)))
}
