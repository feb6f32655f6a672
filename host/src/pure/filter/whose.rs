//! Which chains refuse traffic, and whose each is (HK-11): the host's, a found firewall's, the container runtime's own, a
//! ban, or other.
//!
//! It stands alone because it is a judgement by names and by what a chain does, told to people in every report: whoever
//! wonders why a port does not answer looks there first.

use meshplan_schemas::report::{FilterLine, FilterOwner};

use super::listing::{Chain, Rule};
use super::{FAMILY, TABLE};

/// The most that is reported.
const LINES: usize = 200;

/// The found firewall that a chain is of, by how each names what it writes.
fn firewall(chain: &Chain) -> Option<&'static str> {
    let is_ufw = |name: &str| name.starts_with("ufw-") || name.starts_with("ufw6-");
    let is_firewalld = |name: &str| {
        let begins = [
            "IN_",
            "OUT_",
            "FWD_",
            "FWDI_",
            "FWDO_",
            "INPUT_ZONES",
            "FORWARD_IN_ZONES",
        ];
        begins.iter().any(|begin| name.starts_with(begin)) || name.ends_with("_direct")
    };
    if chain.table.starts_with("firewalld") || is_firewalld(&chain.name) {
        return Some("firewalld");
    }
    if is_ufw(&chain.name) {
        return Some("ufw");
    }
    // The chains that the kernel begins with are shared. Their policy is the firewall's that they lead to; a rule of
    // theirs that refuses may be anybody's.
    let is_only_policy = chain.refuses_the_rest && !chain.rules.iter().any(|rule| rule.refuses);
    let leads = |to: fn(&str) -> bool| {
        let mut all = chain.rules.iter().flat_map(|rule| &rule.leads_to);
        is_only_policy && all.any(|name| to(name))
    };
    if leads(|name| name.starts_with("ufw-") || name.starts_with("ufw6-")) {
        return Some("ufw");
    }
    leads(|name| name == "INPUT_ZONES" || name == "FORWARD_IN_ZONES").then_some("firewalld")
}

/// The container runtime that writes a chain, and no other does: the chains that it leaves to users are not its own.
fn runtime(chain: &Chain) -> Option<&'static str> {
    let name = chain.name.as_str();
    let is_users = ["DOCKER-USER", "CNI-ADMIN"].contains(&name);
    if chain.table == "docker-bridges" || !is_users && (name == "DOCKER" || name.starts_with("DOCKER-")) {
        return Some("docker");
    }
    let is_podmans = name.starts_with("NETAVARK") || name.starts_with("CNI-") && !is_users;
    (chain.table == "netavark" || is_podmans).then_some("podman")
}

/// A chain in which every refusal names its sources, and which accepts nothing, wherever it hangs.
fn is_ban(chain: &Chain) -> bool {
    let is_bans = |rule: &Rule| !rule.accepts && !rule.is_unclear && (!rule.refuses || rule.names_sources);
    !chain.refuses_the_rest && chain.rules.iter().any(|rule| rule.refuses) && chain.rules.iter().all(is_bans)
}

fn owner(chain: &Chain) -> (FilterOwner, Option<&'static str>) {
    if (chain.family.as_str(), chain.table.as_str()) == (FAMILY, TABLE) {
        return (FilterOwner::Host, None);
    }
    if let Some(name) = firewall(chain) {
        return (FilterOwner::FoundFirewall, Some(name));
    }
    if let Some(name) = runtime(chain) {
        return (FilterOwner::ContainerRuntime, Some(name));
    }
    let is_users = ["DOCKER-USER", "CNI-ADMIN"].contains(&chain.name.as_str());
    match is_ban(chain) && !is_users {
        true => (FilterOwner::Ban, None),
        false => (FilterOwner::Other, None),
    }
}

/// What a chain refuses, in words; none where it refuses nothing.
fn refusals(chain: &Chain) -> Option<String> {
    let count = |is: fn(&Rule) -> bool| chain.rules.iter().filter(|rule| is(rule)).count();
    let (refuse, unclear) = (
        count(|rule| rule.refuses),
        count(|rule| rule.is_unclear && !rule.refuses),
    );
    let rules = |count: usize, verb: &str| match count {
        0 => None,
        1 => Some(format!("1 rule {verb}")),
        count => Some(format!("{count} rules {verb}")),
    };
    let all = [
        chain.refuses_the_rest.then(|| "what no rule accepts".to_owned()),
        rules(refuse, "that refuse traffic")
            .map(|words| words.replace("1 rule that refuse ", "1 rule that refuses ")),
        rules(unclear, "of which cannot be told whether it does"),
    ];
    let words: Vec<String> = all.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// A line for each chain that refuses traffic.
#[must_use]
pub fn lines(chains: &[Chain]) -> Vec<FilterLine> {
    let mut lines: Vec<FilterLine> = (chains.iter())
        .filter_map(|chain| {
            let (whose, name) = owner(chain);
            Some(FilterLine {
                place: format!("{} {} {}", chain.family, chain.table, chain.name),
                whose,
                name: name.map(str::to_owned),
                refuses: refusals(chain)?,
            })
        })
        .collect();
    let more = lines.len().saturating_sub(LINES);
    if more > 0 {
        lines.truncate(LINES);
        lines.push(unread(
            "further chains",
            &format!("{more} more that refuse traffic"),
        ));
    }
    lines
}

/// The line of a place of which could not be told what it refuses.
#[must_use]
pub fn unread(place: &str, why: &str) -> FilterLine {
    FilterLine {
        place: place.to_owned(),
        whose: FilterOwner::Unknown,
        name: None,
        refuses: why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pure::filter::listing::listing;
    use crate::pure::filter::saved;

    fn whose(chains: &[Chain]) -> Vec<(String, FilterOwner, Option<String>)> {
        let all = lines(chains).into_iter();
        all.map(|line| (line.place, line.whose, line.name)).collect()
    }

    fn saved(text: &str) -> Vec<(String, FilterOwner, Option<String>)> {
        whose(&saved::chains(text, "ip"))
    }

    // holds: HK-11
    #[test]
    fn ufw_docker_and_bans_in_shared_chains_are_each_told_by_whose_they_are() {
        // As ufw 0.36, Docker 27 and fail2ban 1.0 write them (iptables-save), cut to what tells them apart.
        let text = "*raw\n:PREROUTING ACCEPT [0:0]\n\
            -A PREROUTING -d 172.17.0.2/32 ! -i docker0 -j DROP\nCOMMIT\n*filter\n\
            :INPUT DROP [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n\
            :DOCKER - [0:0]\n:DOCKER-ISOLATION-STAGE-2 - [0:0]\n:DOCKER-USER - [0:0]\n:f2b-sshd - [0:0]\n\
            :ufw-before-input - [0:0]\n:ufw-user-input - [0:0]\n:ufw-logging-deny - [0:0]\n\
            -A INPUT -p tcp -m multiport --dports 22 -j f2b-sshd\n-A INPUT -j ufw-before-input\n\
            -A FORWARD -j DOCKER-USER\n-A FORWARD -o docker0 -j DOCKER\n\
            -A DOCKER ! -i docker0 -o docker0 -j DROP\n\
            -A DOCKER-ISOLATION-STAGE-2 -o docker0 -j DROP\n\
            -A DOCKER-USER -s 192.0.2.9/32 -j DROP\n-A DOCKER-USER -j RETURN\n\
            -A f2b-sshd -s 192.0.2.1/32 -j REJECT --reject-with icmp-port-unreachable\n-A f2b-sshd -j RETURN\n\
            -A ufw-before-input -m conntrack --ctstate INVALID -j DROP\n\
            -A ufw-user-input -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n";
        let line =
            |place: &str, whose, name: Option<&str>| (place.to_owned(), whose, name.map(str::to_owned));
        use FilterOwner::{Ban, ContainerRuntime, FoundFirewall, Other};
        assert_eq!(
            saved(text),
            [
                // Where the runtime shares a chain with everybody it is not the runtime's.
                line("ip raw PREROUTING", Other, None),
                line("ip filter INPUT", FoundFirewall, Some("ufw")),
                line("ip filter FORWARD", Other, None),
                line("ip filter DOCKER", ContainerRuntime, Some("docker")),
                line(
                    "ip filter DOCKER-ISOLATION-STAGE-2",
                    ContainerRuntime,
                    Some("docker")
                ),
                line("ip filter DOCKER-USER", Other, None),
                line("ip filter f2b-sshd", Ban, None),
                line("ip filter ufw-before-input", FoundFirewall, Some("ufw")),
            ]
        );
    }

    // holds: HK-11
    #[test]
    fn a_ban_is_judged_by_itself_and_one_refusal_of_everybody_or_one_acceptance_is_none() {
        let ban = |rules: &str, policy: &str| {
            let text = format!("*filter\n:x {policy} [0:0]\n{rules}");
            saved(&text).first().map(|(_, whose, _)| *whose)
        };
        let named =
            "-A x -s 192.0.2.1/32 -j DROP\n-A x -m set --match-set bad src -j REJECT\n-A x -j RETURN\n";
        assert_eq!(ban(named, "-"), Some(FilterOwner::Ban));
        // A chain that the kernel begins with may be one as well.
        assert_eq!(ban(named, "ACCEPT"), Some(FilterOwner::Ban));
        assert_eq!(ban(named, "DROP"), Some(FilterOwner::Other));
        assert_eq!(
            ban(&format!("{named}-A x -j DROP\n"), "-"),
            Some(FilterOwner::Other)
        );
        assert_eq!(
            ban(&format!("{named}-A x -s 10.0.0.1/32 -j ACCEPT\n"), "-"),
            Some(FilterOwner::Other)
        );
        assert_eq!(
            ban("-A x ! -s 10.0.0.0/8 -j DROP\n", "-"),
            Some(FilterOwner::Other)
        );
        assert_eq!(ban("-A x -j RETURN\n", "-"), None);
        assert_eq!(ban("", "DROP"), Some(FilterOwner::Other));
    }

    // holds: HK-11
    #[test]
    fn tables_of_nftables_are_told_by_their_names_and_what_refuses_nothing_is_not_told() {
        // As firewalld 1.3, netavark 1.12 and fail2ban's nftables action make them, listed by `nft -j -t list ruleset`.
        let chain = |family: &str, table: &str, name: &str, policy: &str| {
            format!(
                r#"{{"chain": {{"family": "{family}", "table": "{table}", "name": "{name}", "handle": 1,
                "type": "filter", "hook": "input", "prio": 10, "policy": "{policy}"}}}}"#
            )
        };
        let rule = |family: &str, table: &str, name: &str, expr: &str| {
            format!(
                r#"{{"rule": {{"family": "{family}", "table": "{table}", "chain": "{name}", "handle": 2,
                "expr": [{expr}]}}}}"#
            )
        };
        let banned = r#"{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}},
            "right": "@addr-set-sshd"}}, {"reject": {"type": "icmp", "expr": "port-unreachable"}}"#;
        let reject = r#"{"reject": {"type": "icmpx", "expr": "admin-prohibited"}}"#;
        let objects = [
            chain("inet", "meshplan", "input", "accept"),
            rule(
                "inet",
                "meshplan",
                "input",
                r#"{"counter": {"packets": 0, "bytes": 0}}, {"drop": null}"#,
            ),
            chain("inet", "firewalld", "filter_INPUT", "accept"),
            rule("inet", "firewalld", "filter_INPUT", reject),
            chain("inet", "netavark", "NETAVARK-ISOLATION-3", "accept"),
            rule("inet", "netavark", "NETAVARK-ISOLATION-3", r#"{"drop": null}"#),
            chain("inet", "f2b-table", "f2b-chain", "accept"),
            rule("inet", "f2b-table", "f2b-chain", banned),
            chain("ip", "nat", "POSTROUTING", "accept"),
            rule("ip", "nat", "POSTROUTING", r#"{"masquerade": null}"#),
            chain("ip", "meshplan", "input", "drop"),
        ];
        let text = format!(r#"{{"nftables": [{}]}}"#, objects.join(","));
        let chains = listing(&text).unwrap().chains;
        let line =
            |place: &str, whose, name: Option<&str>| (place.to_owned(), whose, name.map(str::to_owned));
        assert_eq!(
            whose(&chains),
            [
                line("inet meshplan input", FilterOwner::Host, None),
                line(
                    "inet firewalld filter_INPUT",
                    FilterOwner::FoundFirewall,
                    Some("firewalld")
                ),
                line(
                    "inet netavark NETAVARK-ISOLATION-3",
                    FilterOwner::ContainerRuntime,
                    Some("podman")
                ),
                line("inet f2b-table f2b-chain", FilterOwner::Ban, None),
                // Another family's is somebody else's.
                line("ip meshplan input", FilterOwner::Other, None),
            ]
        );
        let refuses: Vec<String> = lines(&chains).into_iter().map(|line| line.refuses).collect();
        assert_eq!(refuses[0], "1 rule that refuses traffic");
        assert_eq!(refuses[4], "what no rule accepts");
    }

    // holds: HK-11
    #[test]
    fn a_flood_of_chains_is_told_to_a_bound_and_how_many_more_there_are() {
        let mut text = "*filter\n".to_owned();
        for number in 0..LINES + 7 {
            text.push_str(&format!(":c{number} - [0:0]\n-A c{number} -j DROP\n"));
        }
        let all = lines(&saved::chains(&text, "ip"));
        assert_eq!(all.len(), LINES + 1);
        assert_eq!(all[LINES].refuses, "7 more that refuse traffic");
    }
}
