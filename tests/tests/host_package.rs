//! The host as a Debian package on a booted machine: installed, enrolled, started anew, upgraded, removed.

use anyhow::{Context, Result, ensure};
use scenarios::site::{Site, UNIT};
use scenarios::tree::{BROKEN, CONF, FIRST, PAGE, SECOND};

/// `systemd-analyze security` says no more than this of the unit (`docs/host.md`).
const MOST_EXPOSED: f64 = 6.9;

/// Installs the package as a process of the unit.
const FROM_WITHIN: &str = r#"
group=$(systemctl show --property=ControlGroup --value "$1")
for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
  [ ! -e "$hierarchy$group/cgroup.procs" ] || echo $$ > "$hierarchy$group/cgroup.procs"
done
dpkg --install /root/meshplan-host.deb
"#;

// holds: HR-12
#[test]
fn the_host_lives_as_a_package_from_its_installation_to_its_purge() -> Result<()> {
    let Some(mut site) = Site::start("package")? else {
        return Ok(());
    };
    site.install(None)?;
    let state = |site: &Site| site.machine.run(&["systemctl", "is-active", UNIT]).map(|s| s.out);
    ensure!(state(&site)? == "inactive\n", "it is in no fleet yet");
    ensure!(site.machine.say(&["systemctl", "is-enabled", UNIT])? == "enabled\n");
    ensure!(
        site.machine
            .say(&["systemctl", "--failed", "--no-legend"])?
            .is_empty()
    );
    ensure!(
        site.machine
            .run(&["meshplan-host", "status"])?
            .refused_with(1)?
            .contains("meshplan-host enrol TOKEN")
    );

    site.enrol()?;
    site.machine.say(&["systemctl", "start", UNIT])?;
    let first = site.confirmed("the first declaration")?;
    ensure!(site.at(PAGE)?.as_deref() == Some(FIRST));
    exposure(&site)?;

    site.machine.reboot()?;
    site.poll("the host runs after the reboot", |site| {
        Ok(site.host(&["status"])?["host"]["link_up"] == true)
    })?;
    ensure!(site.confirmed("what was confirmed")? == first);

    let before = site.host(&["status"])?;
    site.install(Some("99.0.0"))?;
    site.poll("the new package's host runs", |site| {
        let now = site.host(&["status"])?;
        Ok(now["host"]["link_up"] == true && now["host"]["pid"] != before["host"]["pid"])
    })?;
    let after = site.host(&["status"])?;
    ensure!(after["node"] == before["node"], "{after:#}");
    ensure!(after["declaration"]["confirmed_sequence"] == first);
    site.world.merge(PAGE.source, SECOND)?;
    site.poll("the upgraded host applies", |site| {
        Ok(site.at(PAGE)?.as_deref() == Some(SECOND))
    })?;
    ensure!(site.confirmed("the second declaration")? > first);

    // A person's word outlives an upgrade; and one that the host itself makes does not end the host.
    site.machine.say(&["systemctl", "disable", UNIT])?;
    let before = site.host(&["status"])?;
    let said = site
        .machine
        .say(&["sh", "-ec", FROM_WITHIN, "from-within", UNIT])?;
    ensure!(said.contains("from the next start of"), "{said}");
    ensure!(site.host(&["status"])?["host"]["pid"] == before["host"]["pid"]);
    ensure!(site.machine.run(&["systemctl", "is-enabled", UNIT])?.out == "disabled\n");

    // What awaits its confirm when the package goes would wait for ever.
    let former = site.at(CONF)?;
    site.world.merge(CONF.source, BROKEN)?;
    site.poll("a window is open", |site| {
        Ok(
            site.host(&["status"])?["declaration"]["state"] == "awaiting_confirm"
                && site.at(CONF)?.as_deref() == Some(BROKEN),
        )
    })?;
    site.machine.say(&["dpkg", "--remove", "meshplan-host"])?;
    ensure!(site.at(CONF)? == former);
    let units = site
        .machine
        .say(&["systemctl", "list-units", "--no-legend", "meshplan*"])?;
    ensure!(units.is_empty(), "left: {units}");
    ensure!(site.machine.run(&["pgrep", "meshplan"])?.code == Some(1));
    ensure!(site.at(PAGE)?.as_deref() == Some(SECOND), "what it wrote stays");
    ensure!(site.machine.file("/var/lib/meshplan/membership.json")?.is_some());
    site.machine.say(&["dpkg", "--purge", "meshplan-host"])?;
    ensure!(site.machine.file("/var/lib/meshplan")?.is_none());
    Ok(())
}

fn exposure(site: &Site) -> Result<()> {
    let said = site
        .machine
        .say(&["systemd-analyze", "security", "--no-pager", UNIT])?;
    let overall = said.lines().find(|line| line.contains("Overall exposure level"));
    let overall = overall.with_context(|| format!("no figure in {said}"))?;
    let figure = overall
        .split(':')
        .nth(1)
        .and_then(|f| f.split_whitespace().next());
    let figure: f64 = figure.context("a figure")?.parse()?;
    ensure!(figure <= MOST_EXPOSED, "{said}");
    Ok(())
}
