//! The launcher as a program, over hosts that are scripts: each does what a host may do.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with a host of this script. `$HERE` is the folder; each start leaves a line in `starts`.
fn host(name: &str, script: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _former = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let here = folder.display();
    let text = format!(
        "#!/bin/sh\nHERE={here}\necho \"$@ $MESHPLAN_LAUNCHER_VERSION\" >> {here}/starts\n{script}\n"
    );
    let file = folder.join("meshplan-host");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn launcher(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshplan-launcher"));
    command.arg("--host").arg(folder.join("meshplan-host"));
    command.args(["run", "--root", "/x"]).stderr(Stdio::null());
    command
}

fn starts(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(folder.join("starts")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn poll(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < PATIENCE, "{what} did not come");
        std::thread::yield_now();
    }
}

fn end(child: &mut Child) -> Option<i32> {
    let mut code = None;
    poll("the launcher's end", || {
        let status = child.try_wait().unwrap();
        code = status.and_then(|s| s.code());
        status.is_some()
    });
    code
}

fn signal(child: &Child, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

#[test]
fn it_hands_on_the_arguments_and_ends_with_the_hosts_answer() {
    for code in [0, 1, 2, 4] {
        let folder = host(&format!("answers-{code}"), &format!("exit {code}"));
        let mut child = launcher(&folder).spawn().unwrap();
        assert_eq!(end(&mut child), Some(code));
        assert_eq!(
            starts(&folder),
            [format!("run --root /x {}", env!("CARGO_PKG_VERSION"))]
        );
    }
}

#[test]
fn a_host_that_falls_is_started_again_after_a_pause_that_grows() {
    let fall = "case $(wc -l < $HERE/starts) in 1) kill -9 $$;; 2) exit 101;; *) exit 0;; esac";
    let folder = host("falls", fall);
    let began = Instant::now();
    let mut child = launcher(&folder).spawn().unwrap();
    assert_eq!(end(&mut child), Some(0));
    assert_eq!(starts(&folder).len(), 3);
    // One second, then two.
    assert!(began.elapsed() >= Duration::from_secs(3));
}

#[test]
fn term_and_int_are_handed_on_and_the_host_ends_in_its_own_time() {
    for (name, trap) in [("-TERM", "TERM"), ("-INT", "INT")] {
        let script = format!(
            "trap 'echo {trap} >> $HERE/heard; exit 0' {trap}\ntouch $HERE/ready\nwhile :; do sleep 0.05; done"
        );
        let folder = host(&format!("stops{name}"), &script);
        let mut child = launcher(&folder).spawn().unwrap();
        poll("the host", || folder.join("ready").exists());
        signal(&child, name);
        assert_eq!(end(&mut child), Some(0));
        assert_eq!(
            fs::read_to_string(folder.join("heard")).unwrap(),
            format!("{trap}\n")
        );
        assert_eq!(starts(&folder).len(), 1);
    }
}

#[test]
fn a_stop_in_the_pause_ends_it_without_another_start() {
    let folder = host("pause", "exit 5");
    let mut child = launcher(&folder).spawn().unwrap();
    poll("the first fall", || !starts(&folder).is_empty());
    // The second pause is 2 s long; the stop comes inside it.
    poll("the second start", || starts(&folder).len() == 2);
    signal(&child, "-TERM");
    end(&mut child);
    assert!(starts(&folder).len() <= 3);
}

#[test]
fn a_host_that_is_not_there_is_waited_for() {
    let folder = host("late", "exit 0");
    let file = folder.join("meshplan-host");
    let aside = folder.join("aside");
    fs::rename(&file, &aside).unwrap();
    let mut child = launcher(&folder).spawn().unwrap();
    fs::rename(&aside, &file).unwrap();
    assert_eq!(end(&mut child), Some(0));
}

#[test]
fn a_command_line_that_cannot_be_is_said() {
    let said = Command::new(env!("CARGO_BIN_EXE_meshplan-launcher"))
        .arg("--host")
        .output()
        .unwrap();
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("--host needs a path"));
}
