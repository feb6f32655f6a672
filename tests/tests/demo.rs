//! `meshplan demo` as a stranger starts it: it tells both stories, twice in a row, and leaves nothing behind.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use scenarios::program::{Program, Said, clean, path};
use serde_json::Value;

fn demo(home: &Path, folder: &Path) -> Result<Command> {
    let mut command = clean(path("meshplan")?, home);
    command.current_dir(home).arg("demo").arg("--dir").arg(folder);
    Ok(command)
}

// holds: OP-1
#[test]
fn the_demo_tells_both_stories_twice_in_a_row_within_a_minute_each() -> Result<()> {
    let home = tempfile::tempdir()?;
    let folder = home.path().join("demo");
    for _ in 0..2 {
        let begun = Instant::now();
        let mut command = demo(home.path(), &folder)?;
        command.args(["--once", "--json"]);
        let said = Said::of(command)?.ok()?;
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "it took {:?}",
            begun.elapsed()
        );
        let events: Vec<Value> = match serde_json::from_str(&said) {
            Ok(Value::Array(events)) => events,
            Ok(other) => vec![other],
            Err(_) => said.lines().map(serde_json::from_str).collect::<Result<_, _>>()?,
        };
        ensure!(!events.is_empty(), "--json printed nothing");
        for word in ["delivered", "rolled-back"] {
            ensure!(said.contains(word), "no delivery ended {word}: {said}");
        }
        ensure!(
            left_running(&folder)?.is_empty(),
            "left behind: {:?}",
            left_running(&folder)?
        );
    }
    Ok(())
}

// holds: OP-1
#[test]
fn the_demo_cleans_up_after_itself_when_it_is_interrupted() -> Result<()> {
    let home = tempfile::tempdir()?;
    let folder = home.path().join("demo");
    let mut running = Program::start("demo", demo(home.path(), &folder)?, home.path().join("log"))?;
    until("its hosts run", &mut running, |demo| {
        ensure!(demo.ended()?.is_none(), "the demo has ended");
        Ok(left_running(&folder)?.len() >= 3)
    })?;
    let mut interrupt = Command::new("kill");
    interrupt.args(["-INT", &running.id().to_string()]);
    Said::of(interrupt)?.ok()?;
    until("Ctrl-C ends it", &mut running, |demo| Ok(demo.ended()?.is_some()))?;
    until("nothing of it runs", &mut running, |_| {
        Ok(left_running(&folder)?.is_empty())
    })?;
    ensure!(!folder.exists(), "{} is still there", folder.display());
    Ok(())
}

fn until(what: &str, demo: &mut Program, mut come: impl FnMut(&mut Program) -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    loop {
        match come(demo) {
            Ok(true) => return Ok(()),
            Ok(false) if begun.elapsed() < Duration::from_secs(60) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(false) => bail!("still not: {what}\n{}", demo.log()),
            Err(e) => return Err(e.context(format!("while waiting: {what}\n{}", demo.log()))),
        }
    }
}

/// The command lines of processes that name the demo's folder, its own apart.
fn left_running(folder: &Path) -> Result<Vec<String>> {
    let name = folder.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        // A process may end between the listing and the look.
        let Ok(line) = fs::read(entry?.path().join("cmdline")) else {
            continue;
        };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&name) && !line.contains(" demo --dir ") {
            found.push(line);
        }
    }
    Ok(found)
}
