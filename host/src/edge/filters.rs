//! Reads what of the machine refuses traffic, for the report (HK-11): the rules of nftables, those of the legacy tables,
//! and the firewalls that were found.
//!
//! It changes nothing. What cannot be read is said as such; it is never "nothing there".

use std::time::Duration;

use meshplan_schemas::report::{FilterLine, FirewallLine};

use super::command::How;
use crate::kinds::Reach;
use crate::kinds::filter::firewalls;
use crate::pure::filter::found;
use crate::pure::filter::listing::{Chain, listing};
use crate::pure::filter::saved::{Backend, backend, chains};
use crate::pure::filter::whose::{lines, unread};

/// How long each listing may take.
const ANSWER: Duration = Duration::from_secs(5);
/// What lists tables in the words of iptables, for IPv4 and IPv6: its family, the kernel's file of legacy tables, and
/// the programs by either backend.
const IPTABLES: [Iptables; 2] = [
    Iptables {
        family: "ip",
        legacy: "/proc/net/ip_tables_names",
        programs: ["iptables-nft-save", "iptables-legacy-save", "iptables-save"],
    },
    Iptables {
        family: "ip6",
        legacy: "/proc/net/ip6_tables_names",
        programs: ["ip6tables-nft-save", "ip6tables-legacy-save", "ip6tables-save"],
    },
];

struct Iptables {
    family: &'static str,
    legacy: &'static str,
    programs: [&'static str; 3],
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filters {
    /// What refuses traffic, and whose it is.
    pub lines: Vec<FilterLine>,
    /// The firewalls that were found.
    pub firewalls: Vec<FirewallLine>,
}

/// Reads it. `has_nftables`: the kernel has it, so that somebody may have loaded something.
#[must_use]
pub fn read(reach: Reach<'_>, has_nftables: bool) -> Filters {
    let (mut all, mut unknown) = (Vec::new(), Vec::new());
    if has_nftables {
        match of_nftables(reach) {
            Ok(chains) => all.extend(chains),
            Err(why) => unknown.push(unread("nftables", &why)),
        }
    }
    for tool in &IPTABLES {
        match of_legacy(tool, reach) {
            Ok(chains) => all.extend(chains),
            Err(why) => unknown.push(unread(&format!("legacy {}", tool.family), &why)),
        }
    }
    let found = match firewalls::stands(reach) {
        Ok(stands) => found::lines(&stands),
        Err(why) => {
            unknown.push(unread("found firewalls", &why));
            Vec::new()
        }
    };
    let mut lines = lines(&all);
    lines.extend(unknown);
    Filters {
        lines,
        firewalls: found,
    }
}

fn list(argv: &[&str], reach: Reach<'_>) -> Result<String, String> {
    let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
    let ended = reach.system.list(&argv, ANSWER);
    match ended.how {
        How::Exited(0) => Ok(ended.said),
        _ => Err(ended.fault(&argv, &[]).unwrap_or_default()),
    }
}

/// Without the elements of sets: a list of bans may have a million.
fn of_nftables(reach: Reach<'_>) -> Result<Vec<Chain>, String> {
    let listing = listing(&list(&["nft", "-j", "-t", "list", "ruleset"], reach)?)?;
    let mut all = listing.chains;
    for tool in IPTABLES
        .iter()
        .filter(|tool| listing.in_other_words.iter().any(|family| family == tool.family))
    {
        // Where no program tells more, what nft tells is what there is.
        let Some(told) = saved(tool, Backend::Nftables, reach) else {
            continue;
        };
        let is_told = |chain: &Chain| {
            let is_it = |one: &Chain| one.table == chain.table && one.name == chain.name;
            chain.family == tool.family && told.iter().any(is_it)
        };
        let rest: Vec<Chain> = all.into_iter().filter(|chain| !is_told(chain)).collect();
        all = told.into_iter().chain(rest).collect();
    }
    Ok(all)
}

fn of_legacy(tool: &Iptables, reach: Reach<'_>) -> Result<Vec<Chain>, String> {
    // To ask iptables itself would load what the kernel does not have yet.
    let tables = reach.system.kernel(tool.legacy)?.unwrap_or_default();
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    saved(tool, Backend::Legacy, reach).ok_or_else(|| {
        format!(
            "the kernel has the tables {}, and neither `{}` nor `{}` lists them",
            tables.split_whitespace().collect::<Vec<_>>().join(", "),
            tool.programs[1],
            tool.programs[2]
        )
    })
}

/// What one of the programs lists of the tables of a backend.
fn saved(tool: &Iptables, of: Backend, reach: Reach<'_>) -> Option<Vec<Chain>> {
    let family = match of {
        Backend::Nftables => tool.family.to_owned(),
        Backend::Legacy => format!("legacy {}", tool.family),
    };
    tool.programs.iter().find_map(|program| {
        let text = list(&[program], reach).ok()?;
        (backend(&text) == Some(of)).then(|| chains(&text, &family))
    })
}

#[cfg(test)]
mod tests {
    use meshplan_schemas::report::{FilterOwner, FirewallState};

    use super::*;
    use crate::edge::disk::SimDisk;
    use crate::edge::system::SimSystem;
    use crate::edge::system::sim::Nft;

    const NFT: &str = "nft -j -t list ruleset";

    fn told(prepare: impl FnOnce(&mut Nft)) -> Vec<(String, FilterOwner)> {
        let (disk, system) = (SimDisk::new(), SimSystem::default());
        system.with(|sim| prepare(&mut sim.nft));
        let reach = Reach {
            root: &disk,
            system: &system,
            state: &disk,
        };
        let read = read(reach, true);
        assert_eq!(read.firewalls, []);
        read.lines
            .into_iter()
            .map(|line| (line.place, line.whose))
            .collect()
    }

    fn answer(nft: &mut Nft, line: &str, said: &str) {
        nft.answers.insert(line.to_owned(), said.to_owned());
    }

    const XT: &str = r#"{"nftables": [
        {"chain": {"family": "ip", "table": "filter", "name": "CROWDSEC", "handle": 1}},
        {"rule": {"family": "ip", "table": "filter", "chain": "CROWDSEC", "handle": 2, "expr": [
            {"xt": {"type": "match", "name": "set"}}, {"drop": null}]}},
        {"chain": {"family": "inet", "table": "own", "name": "input", "handle": 1, "policy": "drop"}}]}"#;

    // holds: HK-11
    #[test]
    fn what_iptables_wrote_into_nftables_is_asked_of_iptables_and_the_rest_of_nft() {
        let alone = told(|nft| answer(nft, NFT, XT));
        let place = |place: &str, whose| (place.to_owned(), whose);
        let rest = place("inet own input", FilterOwner::Other);
        assert_eq!(
            alone,
            [place("ip filter CROWDSEC", FilterOwner::Other), rest.clone()]
        );
        let asked = told(|nft| {
            answer(nft, NFT, XT);
            let saved = "# Generated by iptables-save v1.8.9 (nf_tables) on Tue\n*filter\n:CROWDSEC - [0:0]\n\
                         -A CROWDSEC -m set --match-set blocked src -j DROP\nCOMMIT\n";
            answer(nft, "iptables-save", saved);
        });
        assert_eq!(asked, [place("ip filter CROWDSEC", FilterOwner::Ban), rest]);
    }

    // holds: HK-11
    #[test]
    fn legacy_tables_are_read_where_the_kernel_has_them_and_said_where_nobody_lists_them() {
        let empty = r#"{"nftables": []}"#;
        let none = told(|nft| answer(nft, NFT, empty));
        assert_eq!(none, []);
        let silent = told(|nft| {
            answer(nft, NFT, empty);
            nft.legacy
                .insert("/proc/net/ip_tables_names".to_owned(), "filter\nnat".to_owned());
        });
        assert_eq!(silent, [("legacy ip".to_owned(), FilterOwner::Unknown)]);
        let saved = "# Generated by ip6tables-save v1.8.9 on Tue\n*filter\n:INPUT DROP [0:0]\nCOMMIT\n";
        let read = told(|nft| {
            answer(nft, NFT, empty);
            nft.legacy
                .insert("/proc/net/ip6_tables_names".to_owned(), "filter".to_owned());
            // The other backend's listing is not taken for it.
            answer(
                nft,
                "ip6tables-nft-save",
                "# Generated by ip6tables-save v1.8.9 (nf_tables) on Tue\n",
            );
            answer(nft, "ip6tables-legacy-save", saved);
        });
        assert_eq!(read, [("legacy ip6 filter INPUT".to_owned(), FilterOwner::Other)]);
    }

    // holds: HK-11
    #[test]
    fn what_cannot_be_read_is_said_and_is_not_nothing() {
        let unread = told(|nft| nft.is_missing = true);
        assert_eq!(unread, [("nftables".to_owned(), FilterOwner::Unknown)]);
        let (disk, system) = (SimDisk::new(), SimSystem::default());
        crate::edge::disk::atomic::put_folder(
            &disk,
            &crate::edge::checked::path("/etc"),
            0o755,
            Default::default(),
        )
        .unwrap();
        crate::edge::disk::atomic::put_folder(
            &disk,
            &crate::edge::checked::path("/etc/ufw"),
            0o755,
            Default::default(),
        )
        .unwrap();
        let conf = crate::edge::disk::NewFile {
            bytes: b"ENABLED=no\n",
            mode: 0o644,
            owner: Default::default(),
        };
        crate::edge::disk::atomic::put_file(
            &disk,
            &crate::edge::checked::path("/etc/ufw/ufw.conf"),
            &conf,
            None,
        )
        .unwrap();
        let reach = Reach {
            root: &disk,
            system: &system,
            state: &disk,
        };
        let read = read(reach, false);
        assert_eq!(read.lines, []);
        let states: Vec<(&str, FirewallState)> = read
            .firewalls
            .iter()
            .map(|line| (line.name.as_str(), line.state))
            .collect();
        assert_eq!(states, [("ufw", FirewallState::Inactive)]);
    }
}
