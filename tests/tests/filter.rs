//! The machine's filter on a booted machine: loaded, loaded again at its next start, put right, taken away; and a found
//! firewall that is retired for it and comes back.

use anyhow::{Result, ensure};
use scenarios::site::Site;

const MODULE: &str = "modules/app/module.toml";
const TABLES: [&str; 3] = ["nft", "list", "tables"];
const LIST: [&str; 6] = ["nft", "-s", "list", "table", "inet", "meshplan"];

/// A module with a filter that accepts these ports.
fn filter(ports: &str) -> String {
    format!(
        r#"
description = "The machine's filter"
roles = ["edge"]

[[filter]]
id = "filter"
accept = [{{ protocol = "tcp", ports = [{ports}] }}]
"#
    )
}

/// A unit in the place of firewalld's, for the host goes by the unit alone.
const FIREWALLD: &str = "[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/nft add table inet firewalld
ExecStop=/usr/sbin/nft delete table inet firewalld

[Install]
WantedBy=multi-user.target
";

// holds: HK-11, HR-2, HR-5
#[test]
fn a_filter_is_loaded_and_again_at_boot_and_retires_a_found_firewall_until_nothing_declares_it() -> Result<()>
{
    let Some(mut site) = Site::with_host("filter")? else {
        return Ok(());
    };
    // A way out, which makes its link an outward one.
    let way_out = ["ip", "route", "replace", "default", "via", "10.0.0.1"];
    site.machine.say(&way_out)?;
    site.machine.put(
        "/etc/systemd/system/firewalld.service",
        FIREWALLD.as_bytes(),
        0o644,
    )?;
    site.machine.say(&["systemctl", "daemon-reload"])?;
    site.machine
        .say(&["systemctl", "enable", "--now", "firewalld.service"])?;
    ensure!(site.machine.say(&TABLES)? == "table inet firewalld\n");

    let commit = site.world.merge(MODULE, &filter("22, \"8000-8010\""))?;
    site.world.wait_for(&commit, "delivered")?;
    let listed = site.machine.say(&LIST)?;
    ensure!(listed.contains("tcp dport { 22, 8000-8010 } accept"), "{listed}");
    ensure!(
        site.machine.say(&TABLES)? == "table inet meshplan\n",
        "the found one is retired"
    );
    let is = |site: &Site, what: &str, unit: &str| {
        Ok::<_, anyhow::Error>(site.machine.run(&["systemctl", what, unit])?.out)
    };
    ensure!(is(&site, "is-enabled", "firewalld")? == "disabled\n");

    // A start of the machine, with a host that does nothing: the rules after it are the rules of before.
    site.machine
        .say(&["systemctl", "disable", "meshplan-host.service"])?;
    site.machine.reboot()?;
    ensure!(is(&site, "is-active", "meshplan-filter")? == "active\n");
    ensure!(site.machine.say(&LIST)? == listed, "{}", site.machine.say(&LIST)?);
    ensure!(site.machine.say(&TABLES)? == "table inet meshplan\n");
    site.machine.say(&way_out)?;
    site.machine
        .say(&["systemctl", "enable", "--now", "meshplan-host.service"])?;

    // What is changed is another filter; the former one is not there in between, nor beside it.
    let commit = site.world.merge(MODULE, &filter("443"))?;
    site.world.wait_for(&commit, "delivered")?;
    let listed = site.machine.say(&LIST)?;
    ensure!(
        listed.contains("tcp dport 443 accept") && !listed.contains("8000"),
        "{listed}"
    );

    let empty = "description = \"Nothing any more\"\nroles = [\"edge\"]\n\n[[file]]\nid = \"f\"\npath = \"/etc/f\"\ncontent = \"f\\n\"\n";
    let commit = site.world.merge(MODULE, empty)?;
    site.world.wait_for(&commit, "delivered")?;
    ensure!(
        site.machine.say(&TABLES)? == "table inet firewalld\n",
        "as it was found: {}",
        site.machine.say(&TABLES)?
    );
    ensure!(is(&site, "is-enabled", "firewalld")? == "enabled\n");
    ensure!(site.machine.file("/etc/meshplan-filter.nft")?.is_none());
    Ok(())
}
