//! The machine that tests boot, tested itself: it is a whole one, apart from others, and leaves nothing behind.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use scenarios::booted::Booted;

#[test]
fn a_machine_runs_commands_keeps_files_over_reboot_and_power_cut_and_has_another_boot_id_each_time()
-> Result<()> {
    let Some(mut machine) = Booted::start("whole")? else {
        return Ok(());
    };
    let said = machine.run(&["sh", "-c", "echo out; echo err >&2; exit 7"])?;
    ensure!(
        (said.code, said.out.as_str(), said.err.as_str()) == (Some(7), "out\n", "err\n"),
        "{said}"
    );
    machine.say(&["systemctl", "start", "dbus"])?;
    machine.put("/opt/a/script", b"#!/bin/sh\necho here\n", 0o755)?;
    ensure!(machine.say(&["/opt/a/script"])? == "here\n");
    ensure!(machine.file("/opt/a/none")?.is_none());
    let boot = |machine: &Booted| machine.say(&["cat", "/proc/sys/kernel/random/boot_id"]);
    let first = boot(&machine)?;
    machine.reboot()?;
    let second = boot(&machine)?;
    ensure!(machine.say(&["/opt/a/script"])? == "here\n");
    machine.say(&["sync"])?;
    machine.cut_power()?;
    machine.boot()?;
    let third = boot(&machine)?;
    ensure!(machine.say(&["/opt/a/script"])? == "here\n");
    ensure!(
        first != second && second != third && first != third,
        "{first}{second}{third}"
    );
    Ok(())
}

/// What is left of a machine on this side.
fn left(folder: &Path, groups: &[PathBuf]) -> Vec<String> {
    let folder = folder.display().to_string();
    let mut left: Vec<String> = groups
        .iter()
        .filter(|g| g.exists())
        .map(|g| g.display().to_string())
        .collect();
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    left.extend(mounts.lines().filter(|m| m.contains(&folder)).map(str::to_owned));
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
        if line.contains(&folder) {
            left.push(line.replace('\0', " "));
        }
    }
    if Path::new(&folder).exists() {
        left.push(folder);
    }
    left
}

#[test]
fn two_machines_at_once_know_nothing_of_each_other_and_leave_nothing_though_the_test_panics() -> Result<()> {
    let (Some(one), Some(other)) = (Booted::start("one")?, Booted::start("other")?) else {
        return Ok(());
    };
    one.say(&["sh", "-c", "touch /root/mine; systemd-run --unit=mine sleep 1000"])?;
    ensure!(other.file("/root/mine")?.is_none());
    ensure!(other.run(&["systemctl", "is-active", "mine"])?.code != Some(0));
    ensure!(one.say(&["systemctl", "is-active", "mine"])? == "active\n");
    let traces = [&one, &other].map(|m| (m.folder().to_owned(), m.control_groups()));
    ensure!(
        traces
            .iter()
            .all(|(folder, groups)| !left(folder, groups).is_empty())
    );
    let broken = catch_unwind(AssertUnwindSafe(move || {
        let _held = (one, other);
        panic!("on purpose")
    }));
    ensure!(broken.is_err());
    for (folder, groups) in traces {
        let left = left(&folder, &groups);
        ensure!(left.is_empty(), "{left:#?}");
    }
    Ok(())
}
