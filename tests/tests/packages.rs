//! Packages on a booted machine, with its own apt against a repository on its own disk: installed, kept, changed, taken
//! back, through a power cut, removed.

use anyhow::{Result, ensure};
use scenarios::site::Site;

const MODULE: &str = "modules/app/module.toml";

/// Makes a package in a version, of what it depends on and what its script does once it is unpacked, puts it into the
/// repository and writes that one's index. Made inside the machine, by what each Debian machine has.
const MAKE: &str = r#"
name=$1 version=$2 depends=$3 postinst=$4
mkdir -p /srv/repo && cd "$(mktemp -d)"
mkdir -p tree/DEBIAN tree/etc tree/lib/systemd/system
printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: a test\n' \
  "$name" "$version" > tree/DEBIAN/control
[ -z "$depends" ] || printf 'Depends: %s\n' "$depends" >> tree/DEBIAN/control
printf '#!/bin/sh\nset -e\n%s\n' "$postinst" > tree/DEBIAN/postinst
chmod 755 tree/DEBIAN/postinst
echo "as it comes with $version" > "tree/etc/$name.conf"
echo "/etc/$name.conf" > tree/DEBIAN/conffiles
printf '[Service]\nExecStart=/bin/sleep infinity\n\n[Install]\nWantedBy=multi-user.target\n' \
  > "tree/lib/systemd/system/$name.service"
dpkg-deb --root-owner-group --build tree "/srv/repo/${name}_$version.deb" > /dev/null
cd /srv/repo
for deb in *.deb; do
  dpkg-deb --field "$deb"
  printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' \
    "$deb" "$(stat -c %s "$deb")" "$(sha256sum "$deb" | cut -d' ' -f1)"
done > Packages
"#;

/// A program out of a package: its setting, the package, and its unit, in this order.
fn app(version: &str, more: &str) -> String {
    format!(
        r#"
description = "A program out of a package"
roles = ["edge"]

[[file]]
id = "conf"
path = "/etc/web.conf"
content = "as the fleet says\n"
restarts = ["service"]

[[package]]
id = "web"
version = "{version}"
restarts = ["service"]

[[service]]
id = "service"
unit = "web.service"
state = "running"
enabled = true
{more}"#
    )
}

fn make(site: &Site, package: (&str, &str), depends: &str, postinst: &str) -> Result<()> {
    let (name, version) = package;
    let script = ["sh", "-ec", MAKE, "make", name, version, depends, postinst];
    site.machine.say(&script)?;
    Ok(())
}

/// The status and version that dpkg has of a package; nothing where it never had it.
fn status(site: &Site, name: &str) -> Result<String> {
    let format = "--showformat=${db:Status-Status} ${Version}";
    Ok(site.machine.run(&["dpkg-query", "--show", format, name])?.out)
}

fn invocation(site: &Site) -> Result<String> {
    site.machine.say(&[
        "systemctl",
        "show",
        "--property=InvocationID",
        "--value",
        "web.service",
    ])
}

/// What dpkg and apt have done so far.
fn history(site: &Site) -> Result<String> {
    let script = "cat /var/log/dpkg.log; ls -l --time-style=full-iso /var/lib/apt /var/cache/apt";
    site.machine.say(&["sh", "-c", script])
}

// holds: HK-3, HR-2, HR-5, HR-14
#[test]
fn a_package_is_brought_kept_changed_taken_back_and_removed_with_the_machines_own_apt() -> Result<()> {
    let Some(mut site) = Site::with_host("packages")? else {
        return Ok(());
    };
    site.machine.put("/etc/apt/sources.list", b"", 0o644)?;
    let source = b"deb [trusted=yes] file:/srv/repo ./\n";
    site.machine
        .put("/etc/apt/sources.list.d/test.list", source, 0o644)?;
    make(&site, ("libweb", "1.0"), "", "")?;
    make(&site, ("web", "1.0"), "libweb", "")?;
    make(&site, ("extra", "1.0"), "", "")?;
    make(&site, ("broken", "1.0"), "extra", "exit 1")?;

    // The machine has no index yet: it is fetched. The file stands before the package, and is kept.
    let commit = site.world.merge(MODULE, &app("1.0", ""))?;
    site.world.wait_for(&commit, "delivering")?;
    site.poll("it runs", |site| {
        Ok(site.machine.run(&["systemctl", "is-active", "web.service"])?.out == "active\n")
    })?;
    site.confirmed("the package")?;
    ensure!(status(&site, "web")? == "installed 1.0");
    ensure!(status(&site, "libweb")? == "installed 1.0");
    ensure!(site.machine.file("/etc/web.conf")?.as_deref() == Some("as the fleet says\n"));

    // Looked at every five seconds from here on, nothing is done.
    let (started, done) = (invocation(&site)?, history(&site)?);
    site.machine.say(&["sleep", "11"])?;
    ensure!(invocation(&site)? == started, "it was restarted for nothing");
    ensure!(history(&site)? == done, "{}\n{done}", history(&site)?);

    // Drift: somebody removes it.
    site.machine.say(&["dpkg", "--remove", "web"])?;
    site.poll("it is installed again", |site| {
        Ok(status(site, "web")? == "installed 1.0")
    })?;

    // Another version restarts what stands on it. The index that the machine has does not know it yet.
    make(&site, ("web", "2.0"), "libweb", "")?;
    let started = invocation(&site)?;
    site.world.merge(MODULE, &app("2.0", ""))?;
    site.poll("the other version is here", |site| {
        Ok(status(site, "web")? == "installed 2.0" && invocation(site)? != started)
    })?;
    site.confirmed("the other version")?;

    // A package whose own script fails: all that came goes, and the former version is back.
    let broken = "\n[[package]]\nid = \"broken\"\n";
    let commit = site.world.merge(MODULE, &app("1.0", broken))?;
    site.world.wait_for(&commit, "rolled-back")?;
    site.poll("all is back", |site| Ok(status(site, "web")? == "installed 2.0"))?;
    for name in ["broken", "extra"] {
        ensure!(
            !status(&site, name)?.starts_with("installed"),
            "{name} is left: {}",
            status(&site, name)?
        );
    }
    ensure!(site.machine.say(&["dpkg", "--audit"])?.is_empty());
    ensure!(site.machine.file("/etc/web.conf")?.as_deref() == Some("as the fleet says\n"));

    // The index names what the repository does not have: nothing is touched, and it is said.
    make(&site, ("web", "3.0"), "libweb", "")?;
    site.machine.say(&["rm", "/srv/repo/web_3.0.deb"])?;
    let done = site.machine.file("/var/log/dpkg.log")?;
    let commit = site.world.merge(MODULE, &app("3.0", ""))?;
    site.world.wait_for(&commit, "rolled-back")?;
    ensure!(site.machine.file("/var/log/dpkg.log")? == done);
    site.poll("why is in the note", |site| {
        Ok(site
            .world
            .note(&commit)?
            .contains("lacks what its own index names"))
    })?;

    // The power goes in the midst of a package's script: the machine comes to rest, and to one of the two.
    let slow = "[ -e /var/tmp/slow ] || { touch /var/tmp/slow; sync; sleep 600; }";
    make(&site, ("slow", "1.0"), "extra", slow)?;
    let commit = site
        .world
        .merge(MODULE, &app("2.0", "\n[[package]]\nid = \"slow\"\n"))?;
    site.poll("the script runs", |site| {
        Ok(site.machine.file("/var/tmp/slow")?.is_some())
    })?;
    site.machine.cut_power()?;
    site.machine.boot()?;
    // It goes back first, and is done once more: what interrupted it was no fault of its own.
    site.world.wait_for(&commit, "delivered")?;
    ensure!(site.machine.say(&["dpkg", "--audit"])?.is_empty());
    for name in ["slow", "extra"] {
        ensure!(
            status(&site, name)? == "installed 1.0",
            "{name} is {}",
            status(&site, name)?
        );
        let log = site.machine.file("/var/log/dpkg.log")?.unwrap_or_default();
        ensure!(log.contains(&format!(" remove {name}:all 1.0")), "{log}");
    }

    // Away: what others need stays where they need it, and what nothing declares any more stays too.
    let away = "\n[[package]]\nid = \"web\"\nabsent = true\n\n[[package]]\nid = \"never\"\nabsent = true\n";
    let text = format!("description = \"Away\"\nroles = [\"edge\"]\n{away}");
    let commit = site.world.merge(MODULE, &text)?;
    site.poll("it is removed", |site| {
        let held = site.world.meshplan(&["deliveries", "go", &commit])?;
        drop(held);
        Ok(!status(site, "web")?.starts_with("installed"))
    })?;
    site.confirmed("the removal")?;
    ensure!(status(&site, "libweb")? == "installed 1.0");
    Ok(())
}
