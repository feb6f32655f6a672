//! The dead man on a booted machine (HR-13): what happens in an open window to a host that is killed, that cannot
//! start again, that hangs, and to a machine that goes down.

use anyhow::{Context, Result, ensure};
use scenarios::site::{Site, UNIT};
use scenarios::tree::{BROKEN, CONF, FIRST, PAGE, SECOND};

const PROGRAM: &str = "/usr/bin/meshplan-host";
const WINDOW: &str = "/var/lib/meshplan/window/window.json";
const VERDICT: &str = "/var/lib/meshplan/window/verdict.json";

/// Merges what its probe does not bear, and waits until that stands on the machine and awaits a confirm that will not
/// come. What stood there before.
fn in_an_open_window(site: &mut Site) -> Result<String> {
    let former = site.at(CONF)?.context("the first declaration brings it")?;
    site.world.merge(CONF.source, BROKEN)?;
    site.poll("the window is open", |site| {
        let window = site.machine.file(WINDOW)?.unwrap_or_default();
        Ok(window.contains("awaiting_confirm") && site.at(CONF)?.as_deref() == Some(BROKEN))
    })?;
    Ok(former)
}

/// Ends the host in one moment; what stands in its place cannot be started.
fn kill_for_good(site: &Site) -> Result<()> {
    site.machine.say(&["cp", PROGRAM, "/root/host"])?;
    site.machine.put(PROGRAM, b"no program\n", 0o755)?;
    let pid = site.host_process()?;
    site.machine.say(&["kill", "-KILL", &pid])?;
    Ok(())
}

/// Puts the host back, and waits until it has said so of the window; what the fleet does then is another story.
fn back_again(site: &mut Site, why: &str) -> Result<()> {
    site.machine.say(&["mv", "/root/host", PROGRAM])?;
    site.machine.say(&["systemctl", "restart", UNIT])?;
    site.poll("the host has told of the window", |site| {
        let journal = site.machine.say(&["meshplan-host", "journal"])?;
        let told = |line: &str| line.contains("declaration.reverted") && line.contains(why);
        Ok(journal.lines().any(told))
    })
}

fn timers(site: &Site) -> Result<String> {
    let argv = [
        "systemctl",
        "list-units",
        "--all",
        "--plain",
        "--no-legend",
        "meshplan-deadline-*",
    ];
    site.machine.say(&argv)
}

// holds: HR-13, EP-2
#[test]
fn a_host_that_is_killed_in_the_window_and_cannot_start_has_it_taken_back_at_the_deadline() -> Result<()> {
    let Some(mut site) = Site::with_host("killed")? else {
        return Ok(());
    };
    site.poll("none is left of the first declaration", |site| {
        Ok(timers(site)?.is_empty())
    })?;
    // A unit of the machine that the same change starts, and has start at boot.
    site.machine.put(
        "/etc/systemd/system/idle.service",
        b"[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n",
        0o644,
    )?;
    site.machine.say(&["systemctl", "daemon-reload"])?;
    let module = std::fs::read_to_string(site.world.work().join("modules/web/module.toml"))?;
    let service =
        "[[service]]\nid = \"idle\"\nunit = \"idle.service\"\nstate = \"running\"\nenabled = true\n";
    site.world
        .write("modules/web/module.toml", &format!("{module}\n{service}"))?;
    let former = in_an_open_window(&mut site)?;
    ensure!(site.machine.run(&["systemctl", "is-active", "idle"])?.out == "active\n");
    ensure!(site.machine.run(&["systemctl", "is-enabled", "idle"])?.out == "enabled\n");
    ensure!(
        timers(&site)?.contains("meshplan-deadline-confirm.timer"),
        "{}",
        timers(&site)?
    );
    let words = site.machine.say(&["meshplan-host", "verify"])?;
    ensure!(words.contains("which awaits its confirm"), "{words}");
    kill_for_good(&site)?;
    let words = site.machine.say(&["/root/host", "status"])?;
    ensure!(words.contains("if it does not, it is taken back at"), "{words}");
    site.poll("the machine is as before", |site| {
        Ok(site.at(CONF)? == Some(former.clone()))
    })?;
    site.poll("it is said", |site| {
        let words = site.machine.say(&["/root/host", "status"])?;
        Ok(words.contains("was taken back: the deadline came"))
    })?;
    let verdict = site.machine.file(VERDICT)?.unwrap_or_default();
    ensure!(
        verdict.contains("reverted") && verdict.contains("no host was there"),
        "{verdict}"
    );
    site.poll("the unit is as before", |site| {
        let active = site.machine.run(&["systemctl", "is-active", "idle"])?.out;
        let enabled = site.machine.run(&["systemctl", "is-enabled", "idle"])?.out;
        Ok((active.as_str(), enabled.as_str()) == ("inactive\n", "disabled\n"))
    })?;
    site.poll("its units are gone", |site| Ok(timers(site)?.is_empty()))?;
    back_again(&mut site, "no host was there")?;
    let journal = site.machine.say(&["meshplan-host", "journal"])?;
    ensure!(!journal.contains("window.unguarded"), "{journal}");
    Ok(())
}

// holds: HR-13
#[test]
fn what_was_confirmed_stays_though_the_host_is_killed_and_its_deadline_comes() -> Result<()> {
    let Some(mut site) = Site::with_host("confirmed")? else {
        return Ok(());
    };
    let first = site.confirmed("the first")?;
    site.world.merge(PAGE.source, SECOND)?;
    site.poll("the second has come", |site| {
        Ok(site.at(PAGE)?.as_deref() == Some(SECOND))
    })?;
    ensure!(site.confirmed("the second")? > first);
    site.poll("the timer is gone", |site| Ok(timers(site)?.is_empty()))?;
    kill_for_good(&site)?;
    // What the timer would have done.
    let said = site.machine.run(&["meshplan-launcher", "revert"])?;
    ensure!(
        said.code == Some(0) && said.err.contains("nothing is taken back"),
        "{said}"
    );
    site.machine.reboot()?;
    ensure!(site.at(PAGE)?.as_deref() == Some(SECOND));
    Ok(())
}

// holds: HR-13, EP-2
#[test]
fn a_machine_that_goes_down_in_the_window_is_as_before_when_it_is_up_though_its_host_cannot_start()
-> Result<()> {
    let Some(mut site) = Site::with_host("down")? else {
        return Ok(());
    };
    let former = in_an_open_window(&mut site)?;
    kill_for_good(&site)?;
    site.machine.say(&["sync"])?;
    site.machine.cut_power()?;
    site.machine.boot()?;
    site.poll("the machine is as before", |site| {
        Ok(site.at(CONF)? == Some(former.clone()))
    })?;
    let verdict = site.machine.file(VERDICT)?.unwrap_or_default();
    ensure!(verdict.contains("started anew"), "{verdict}");
    back_again(&mut site, "started anew")
}

// holds: HR-13
#[test]
fn an_apply_that_hangs_past_its_deadline_is_ended_with_all_it_started_and_taken_back() -> Result<()> {
    let Some(mut site) = Site::with_host("hangs")? else {
        return Ok(());
    };
    site.machine
        .put("/usr/local/bin/hang", b"#!/bin/sh\nexec sleep 4444\n", 0o755)?;
    let module = site.world.work().join("modules/web/module.toml");
    let text = std::fs::read_to_string(&module)?;
    let hung = text.replace(
        "path = \"/etc/web/web.conf\"",
        "path = \"/etc/web/web.conf\"\nvalidate = \"hang %s\"",
    );
    ensure!(hung != text, "the example has changed");
    site.world.write("modules/web/module.toml", &hung)?;
    let fleet = std::fs::read_to_string(site.world.work().join("fleet.toml"))?;
    site.world
        .write("fleet.toml", &fleet.replace("apply_secs = 60", "apply_secs = 3"))?;
    site.world.write(PAGE.source, SECOND)?;
    site.world.merge(CONF.source, "port = 9\n")?;
    site.poll("the apply hangs", |site| {
        Ok(site.machine.run(&["pgrep", "-f", "sleep 4444"])?.code == Some(0))
    })?;
    let hung = site.host_process()?;
    site.poll("the host is ended", |site| {
        Ok(site.host_process().is_ok_and(|now| now != hung))
    })?;
    site.poll("the machine is as before", |site| {
        let declaration = &site.host(&["status"])?["declaration"];
        Ok(site.at(PAGE)?.as_deref() == Some(FIRST) && declaration["state"] == "reverted")
    })?;
    ensure!(site.machine.run(&["pgrep", "-f", "sleep 4444"])?.code == Some(1));
    Ok(())
}
