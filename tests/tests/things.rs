//! Units, users, groups, kernel settings and steps on a booted machine: brought there, kept, taken back, given back.

use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Result, ensure};
use scenarios::site::Site;

const MODULE: &str = "modules/app/module.toml";
const UNIT_FILE: &str = "modules/app/files/app.service";
const CONF: &str = "modules/app/files/app.conf";
const SERVE: &str = "modules/app/bundle/bin/serve";

/// A program of the fleet: its unit, the user that it runs as, and what it needs of the machine.
const APP: &str = r#"
description = "A program with all that it needs of a machine"
roles = ["edge"]

[[group]]
id = "group"
name = "app"

[[user]]
id = "user"
name = "app"
group = "app"
system = true
home = "/var/lib/app"

[[file]]
id = "unit"
path = "/etc/systemd/system/app.service"
source = "files/app.service"
restarts = ["service"]

[[file]]
id = "conf"
path = "/etc/app.conf"
source = "files/app.conf"
owner = "app"
group = "app"
mode = "0600"
restarts = ["service"]

[[service]]
id = "service"
unit = "app.service"
state = "running"
enabled = true

[[service]]
id = "timer"
unit = "systemd-tmpfiles-clean.timer"
state = "stopped"

[[sysctl]]
id = "forward"
key = "net.ipv4.ip_forward"
value = "1"

[[process]]
id = "keeper"
command = ["/bin/sh", "-c", "trap 'exit 0' TERM; echo $$ up > /var/tmp/keeper; while :; do sleep 1; done"]
user = "app"
group = "app"
open = ["tmp"]

[[bundle]]
id = "program"
path = "/opt/app"
source = "bundle"
owner = "app"

[[process]]
id = "served"
command = ["./bin/serve", "from the bundle"]
bundle = "program"
open = ["tmp"]

[[process]]
id = "migrate"
run = "once"
command = ["/bin/sh", "-c", "echo \"100% ran\" >> /var/tmp/migrations"]
open = ["tmp"]

[[process]]
id = "backup"
run = "scheduled"
calendar = "*-*-* 04:00:00"
while_stopped = ["keeper"]
command = ["/bin/sh", "-c", "systemctl is-active keeper.service > /var/tmp/backup; exit 3"]
open = ["tmp"]

[[probe]]
id = "up"
unit = "keeper.service"
timeout_secs = 5

[[action]]
id = "step"
command = ["/bin/sh", "-c", "echo ran >> /var/tmp/steps"]
timeout_secs = 10
"#;

/// It runs as long as its setting says so.
const UNIT: &str = "[Service]
User=app
ExecStart=/bin/sh -c 'grep -q good /etc/app.conf && exec sleep infinity'

[Install]
WantedBy=multi-user.target
";

/// A program of the bundle.
fn serve(build: &str) -> String {
    format!("#!/bin/sh\necho \"{build} $*\" > /var/tmp/served\nexec sleep infinity\n")
}

/// What of a unit tells that it was started anew.
fn invocation(site: &Site, unit: &str) -> Result<String> {
    site.machine
        .say(&["systemctl", "show", "--property=InvocationID", "--value", unit])
}

fn main_process(site: &Site, unit: &str) -> Result<String> {
    let said = site
        .machine
        .say(&["systemctl", "show", "--property=MainPID", "--value", unit])?;
    Ok(said.trim().to_owned())
}

fn is(site: &Site, what: &str, unit: &str) -> Result<String> {
    let said = site.machine.run(&["systemctl", what, unit])?;
    ensure!(!said.out.is_empty(), "{said}\n{}", site.logs());
    Ok(said.out.trim().to_owned())
}

fn forwards(site: &Site) -> Result<String> {
    let said = site.machine.say(&["cat", "/proc/sys/net/ipv4/ip_forward"])?;
    Ok(said.trim().to_owned())
}

// holds: HK-2, HK-5, HK-6, HK-9, HK-13, HK-16, HR-2, HR-14
#[test]
fn a_module_with_all_that_a_machine_has_is_brought_kept_taken_back_and_given_back() -> Result<()> {
    let Some(mut site) = Site::with_host("things")? else {
        return Ok(());
    };
    let timer = "systemd-tmpfiles-clean.timer";
    // As the machine around it has it, where an engine of containers may have turned it on.
    let found = forwards(&site)?;
    ensure!(
        is(&site, "is-active", timer)? == "active",
        "the machine's own timer runs"
    );
    site.world.write(UNIT_FILE, UNIT)?;
    site.world.write(CONF, "good\n")?;
    site.world.write(SERVE, &serve("one"))?;
    std::fs::set_permissions(
        site.world.work().join(SERVE),
        std::fs::Permissions::from_mode(0o755),
    )?;
    site.world.write("modules/app/bundle/doc/README", "Read me.\n")?;
    let commit = site.world.merge(MODULE, APP)?;
    site.world.wait_for(&commit, "delivering")?;
    site.poll("the program runs", |site| {
        Ok(is(site, "is-active", "app.service")? == "active")
    })?;
    let first = site.confirmed("the program")?;
    ensure!(is(&site, "is-enabled", "app.service")? == "enabled");
    ensure!(is(&site, "is-active", timer)? == "inactive");
    ensure!(forwards(&site)? == "1");
    ensure!(site.machine.file("/var/tmp/steps")?.as_deref() == Some("ran\n"));
    let owner = site
        .machine
        .say(&["stat", "--format=%U:%G %a", "/etc/app.conf"])?;
    ensure!(owner == "app:app 600\n", "{owner}");
    let runs_as = site
        .machine
        .say(&["ps", "-o", "user=", "-p", &main_process(&site, "app.service")?])?;
    ensure!(runs_as.trim() == "app", "{runs_as}");

    ensure!(is(&site, "is-active", "keeper.service")? == "active");
    ensure!(
        site.machine
            .say(&["ps", "-o", "user=", "-p", &main_process(&site, "keeper.service")?])?
            .trim()
            == "app"
    );
    ensure!(site.machine.file("/var/tmp/migrations")?.as_deref() == Some("100% ran\n"));
    ensure!(is(&site, "is-enabled", "migrate.service")? == "static");
    ensure!(is(&site, "is-active", "backup.timer")? == "active");
    // A run stops what it names and has it started again, though it fails.
    ensure!(site.machine.run(&["systemctl", "start", "backup.service"])?.code == Some(1));
    ensure!(site.machine.file("/var/tmp/backup")?.as_deref() == Some("inactive\n"));
    ensure!(is(&site, "is-active", "keeper.service")? == "active");

    // A program out of its bundle.
    let said = |site: &Site| site.machine.file("/var/tmp/served");
    ensure!(said(&site)?.as_deref() == Some("one from the bundle\n"));
    let owner = [
        "stat",
        "--format=%U %a",
        "/opt/app/bin/serve",
        "/opt/app/doc/README",
    ];
    ensure!(site.machine.say(&owner)? == "app 755\napp 644\n");

    // Looked at every five seconds from here on, it stays as it is.
    let started = invocation(&site, "app.service")?;
    let wrote = site
        .machine
        .say(&["stat", "--format=%y", "/var/lib/meshplan/ledger.json"])?;
    site.machine.say(&["sleep", "11"])?;
    ensure!(
        invocation(&site, "app.service")? == started,
        "it was restarted for nothing"
    );
    ensure!(
        site.machine
            .say(&["stat", "--format=%y", "/var/lib/meshplan/ledger.json"])?
            == wrote
    );
    ensure!(site.machine.file("/var/tmp/steps")?.as_deref() == Some("ran\n"));
    ensure!(site.machine.file("/var/tmp/migrations")?.as_deref() == Some("100% ran\n"));

    // Drift: somebody stops it.
    site.machine.say(&["systemctl", "stop", "app.service"])?;
    site.poll("it runs again", |site| {
        Ok(is(site, "is-active", "app.service")? == "active")
    })?;

    // A changed file restarts it, once.
    let started = invocation(&site, "app.service")?;
    site.world
        .git(&["rm", "--quiet", "modules/app/bundle/doc/README"])?;
    site.world.write(SERVE, &serve("two"))?;
    site.world.merge(CONF, "good again\n")?;
    site.poll("it was restarted", |site| {
        Ok(invocation(site, "app.service")? != started)
    })?;
    let second = site.confirmed("the other setting")?;
    ensure!(second > first);
    let started = invocation(&site, "app.service")?;
    ensure!(said(&site)?.as_deref() == Some("two from the bundle\n"));
    ensure!(site.machine.run(&["test", "-e", "/opt/app/doc"])?.code == Some(1));

    // A change that it does not bear goes back, whole, and it runs with what it bore.
    let broken = APP.replace("value = \"1\"", "value = \"0\"");
    site.world.write(CONF, "bad\n")?;
    site.world.write(SERVE, &serve("three"))?;
    let commit = site.world.merge(MODULE, &broken)?;
    site.world.wait_for(&commit, "rolled-back")?;
    site.poll("it is back", |site| {
        Ok(
            site.machine.file("/etc/app.conf")?.as_deref() == Some("good again\n")
                && is(site, "is-active", "app.service")? == "active",
        )
    })?;
    ensure!(forwards(&site)? == "1");
    ensure!(invocation(&site, "app.service")? != started);
    site.poll("the former build runs again", |site| {
        Ok(said(site)?.as_deref() == Some("two from the bundle\n"))
    })?;

    // Undeclared: what the host brought goes, what it found comes back as far as nothing is started.
    site.world.git(&["rm", "--quiet", "-r", "modules/app"])?;
    let commit = site.world.merge("README", "The program is gone.\n")?;
    // So much goes only on a word (FR-12).
    site.world.wait_for(&commit, "held")?;
    site.world.meshplan(&["deliveries", "go", &commit])?.ok()?;
    site.poll("the program is gone", |site| {
        let gone = ["test", "!", "-e", "/etc/systemd/system/app.service"];
        Ok(site.machine.run(&gone)?.code == Some(0))
    })?;
    site.confirmed("the removal")?;
    ensure!(is(&site, "is-active", "app.service")? == "inactive");
    for unit in [
        "keeper.service",
        "served.service",
        "migrate.service",
        "backup.service",
        "backup.timer",
    ] {
        ensure!(is(&site, "is-active", unit)? == "inactive", "{unit}");
        let file = format!("/etc/systemd/system/{unit}");
        ensure!(site.machine.file(&file)?.is_none(), "{file} is left");
    }
    ensure!(site.machine.run(&["getent", "passwd", "app"])?.code == Some(2));
    ensure!(site.machine.run(&["getent", "group", "app"])?.code == Some(2));
    ensure!(
        is(&site, "is-active", timer)? == "inactive",
        "nothing is started on the way out"
    );
    ensure!(is(&site, "is-enabled", timer)? == "static");
    ensure!(
        site.machine
            .file("/etc/sysctl.d/90-meshplan-net.ipv4.ip_forward.conf")?
            .is_none()
    );
    ensure!(forwards(&site)? == found, "as it was found");
    Ok(())
}
