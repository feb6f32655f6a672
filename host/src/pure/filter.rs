//! The machine's filter as a text for `nft` (HK-11): what is declared is accepted, the rest is refused where it comes in by
//! an outward link.
//!
//! It stands alone because a rule that is composed wrongly locks people out or lets everybody in. The text replaces the
//! host's own table and no other, in one transaction of the kernel. Invariant: what comes in by any other link is not
//! touched, no range of addresses is written but those that are declared, and the chains' policy is to accept: without
//! its rules the table refuses nothing.
//!
//! | file | what |
//! | --- | --- |
//! | `filter/found.rs` | how a firewall that was found stands |
//! | `filter/links.rs` | which links are outward |
//! | `filter/listing.rs` | what `nft -j` lists, as chains |
//! | `filter/saved.rs` | what `iptables-save` lists, as chains |
//! | `filter/whose.rs` | which chains refuse traffic, and whose each is |

pub mod found;
pub mod links;
pub mod listing;
pub mod saved;
pub mod whose;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use meshplan_schemas::document::texts::{Interface, Ports};
use meshplan_schemas::resource::containers::Protocol;
use meshplan_schemas::resource::net::{Accept, Filter, Network};

/// The family of the host's own table.
pub const FAMILY: &str = "inet";
/// Its name.
pub const TABLE: &str = "meshplan";
/// Has the table away, whether it was there or not.
pub const AWAY: &str = "add table inet meshplan; delete table inet meshplan";

/// What has to come in for a link to work at all: neighbours and routers of IPv6, who listens to what, answers of DHCP that
/// no connection is known for.
const LINK_ITSELF: [&str; 4] = [
    "icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, nd-redirect } accept",
    "icmpv6 type { mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report } accept",
    "meta nfproto ipv4 udp sport 67 udp dport 68 accept",
    "ip6 saddr fe80::/10 udp dport 546 accept",
];

/// A filter that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    accepts: Vec<Accepts>,
}

/// One thing that it accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Accepts {
    protocol: Option<Protocol>,
    /// In order, none beside or within another.
    ports: Vec<Ports>,
    /// In order, none within another.
    from: Vec<Network>,
    interface: Option<String>,
}

impl Rules {
    /// What is asked for.
    ///
    /// # Errors
    /// In words: what no filter can be made from.
    pub fn of(spec: &Filter) -> Result<Self, String> {
        if spec.accept.is_empty() {
            return Err("the filter lets nothing in: nobody could reach the machine".to_owned());
        }
        let accepts = spec.accept.iter().map(Accepts::of).collect::<Result<_, _>>()?;
        Ok(Self { accepts })
    }

    /// The text that has them in force on these links, in place of what the table was.
    ///
    /// # Errors
    /// In words: a link has a name that cannot be written.
    pub fn text(&self, outward: &BTreeSet<String>) -> Result<String, String> {
        if let Some(bad) = outward.iter().find(|name| !is_writable(name)) {
            return Err(format!(
                "the link {bad:?} has a name that cannot be written into a filter; rename it"
            ));
        }
        let links: Vec<String> = outward.iter().map(|name| format!("\"{name}\"")).collect();
        let links = links.join(", ");
        let mut text = format!(
            "# Written by meshplan-host: what is changed here is put right again. In force: nft list table {FAMILY} \
             {TABLE}\ntable {FAMILY} {TABLE}\ndelete table {FAMILY} {TABLE}\ntable {FAMILY} {TABLE} {{\n"
        );
        for (chain, way) in [("input", Way::In), ("forward", Way::Through)] {
            let mut lines = vec![
                format!("type filter hook {chain} priority filter; policy accept;"),
                format!("iifname != {{ {links} }} accept"),
                "ct state { established, related } accept".to_owned(),
            ];
            if way == Way::In {
                lines.extend(LINK_ITSELF.map(str::to_owned));
            }
            lines.extend(self.accepts.iter().flat_map(|accepts| accepts.lines(way)));
            lines.push("counter drop".to_owned());
            // Nothing can go wrong with a text in memory.
            let _written = write!(text, "\tchain {chain} {{\n\t\t{}\n\t}}\n", lines.join("\n\t\t"));
        }
        text.push_str("}\n");
        Ok(text)
    }

    /// How many things it accepts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.accepts.len()
    }
}

/// Where a rule stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Before the machine's own programs.
    In,
    /// Before what lies behind it: there the port is looked for that was asked for at first, before it was led elsewhere as
    /// a container's published port is.
    Through,
}

/// Whether a link's name can stand between quotes and means no other name with it (a `*` at the end would).
fn is_writable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:@+".contains(c);
    !name.is_empty() && name.len() <= 15 && name.chars().all(plain)
}

impl Accepts {
    fn of(spec: &Accept) -> Result<Self, String> {
        let shown = |text: &str| text.chars().take(100).collect::<String>();
        let mut ports = Vec::new();
        for text in &spec.ports {
            let port: Ports = text.parse().map_err(|why| format!("{:?}: {why}", shown(text)))?;
            ports.push(port);
        }
        if !ports.is_empty() && spec.protocol.is_none() {
            return Err("ports belong to a `protocol`: tcp or udp".to_owned());
        }
        let mut from = Vec::new();
        for text in &spec.from {
            let network: Network = (text.parse())
                .map_err(|_| format!("{:?} is neither an address nor a network", shown(text)))?;
            from.push(network);
        }
        if let Some(name) = &spec.interface
            && (name.parse::<Interface>().is_err() || !is_writable(name))
        {
            return Err(format!("{:?} is no name of a link", shown(name)));
        }
        Ok(Self {
            protocol: spec.protocol,
            ports: merged(ports),
            from: outermost(from),
            interface: spec.interface.clone(),
        })
    }

    /// A line for each of its families of addresses, and on the way through for each of its ports.
    fn lines(&self, way: Way) -> Vec<String> {
        let link = self.interface.as_ref().map(|name| format!("iifname \"{name}\""));
        let mut lines = Vec::new();
        for from in self.sources() {
            for port in self.heads(way) {
                let words = [link.clone(), from.clone(), port, Some("accept".to_owned())];
                lines.push(words.into_iter().flatten().collect::<Vec<_>>().join(" "));
            }
        }
        lines
    }

    /// What a line says of where it comes from.
    fn sources(&self) -> Vec<Option<String>> {
        if self.from.is_empty() {
            return vec![None];
        }
        let mut all = Vec::new();
        for (is_ipv6, word) in [(false, "ip"), (true, "ip6")] {
            let of: Vec<Network> = self
                .from
                .iter()
                .copied()
                .filter(|network| network.is_ipv6() == is_ipv6)
                .collect();
            match of.as_slice() {
                [] => {}
                // All of them: a set of nothing but everything is none for nft.
                [all_of_it] if all_of_it.length() == 0 => {
                    let family = if is_ipv6 { "ipv6" } else { "ipv4" };
                    all.push(Some(format!("meta nfproto {family}")));
                }
                of => {
                    let words: Vec<String> = of.iter().map(ToString::to_string).collect();
                    all.push(Some(format!("{word} saddr {{ {} }}", words.join(", "))));
                }
            }
        }
        all
    }

    /// What a line says of protocol and port.
    fn heads(&self, way: Way) -> Vec<Option<String>> {
        let Some(protocol) = self.protocol else {
            return vec![None];
        };
        let words: Vec<String> = self.ports.iter().map(ToString::to_string).collect();
        match way {
            _ if words.is_empty() => vec![Some(format!("meta l4proto {}", number(protocol)))],
            Way::In => vec![Some(format!("{protocol} dport {{ {} }}", words.join(", ")))],
            // A set of these is listed wrongly by nft 1.0, so each port has its line.
            Way::Through => (words.iter())
                .map(|port| {
                    Some(format!(
                        "meta l4proto {} ct original proto-dst {port}",
                        number(protocol)
                    ))
                })
                .collect(),
        }
    }
}

/// The protocol's number: its name nft looks for in a file (`/etc/protocols`) that not every machine has.
fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
    }
}

/// Ports in order, and what touches put together: nft takes no set in which one lies within another.
fn merged(mut ports: Vec<Ports>) -> Vec<Ports> {
    ports.sort_unstable_by_key(|port| (port.first, port.last));
    let mut out: Vec<Ports> = Vec::new();
    for port in ports {
        match out.last_mut() {
            Some(last) if port.first <= last.last.saturating_add(1) => last.last = last.last.max(port.last),
            _ => out.push(port),
        }
    }
    out
}

/// Networks in order, without those that lie within others.
fn outermost(mut networks: Vec<Network>) -> Vec<Network> {
    networks.sort_unstable();
    networks.dedup();
    let all = networks.clone();
    networks.retain(|one| !all.iter().any(|other| other != one && other.has(*one)));
    networks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(protocol: Option<Protocol>, ports: &[&str], from: &[&str], interface: Option<&str>) -> Accept {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Accept {
            protocol,
            ports: texts(ports),
            from: texts(from),
            interface: interface.map(str::to_owned),
        }
    }

    fn text(accept: Vec<Accept>, outward: &[&str]) -> Result<String, String> {
        let outward = outward.iter().map(|name| (*name).to_owned()).collect();
        Rules::of(&Filter { accept })?.text(&outward)
    }

    fn chain<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
        let of = text.split(&format!("chain {name} {{")).nth(1).unwrap();
        let of = of.split("\n\t}").next().unwrap();
        of.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect()
    }

    // holds: HK-11
    #[test]
    fn what_is_declared_is_accepted_and_the_rest_refused_on_outward_links_only_and_on_the_way_through_too() {
        let text = text(
            vec![
                accept(
                    Some(Protocol::Tcp),
                    &["443", "80", "8000-8010", "8005-8020"],
                    &[],
                    None,
                ),
                accept(
                    Some(Protocol::Udp),
                    &["53"],
                    &["10.1.2.3/8", "10.0.0.0/16", "fd00::1"],
                    Some("eth1"),
                ),
                accept(Some(Protocol::Tcp), &[], &["0.0.0.0/0"], None),
                accept(None, &[], &["192.0.2.7"], None),
            ],
            &["eth0", "eth1"],
        )
        .unwrap();
        let own: Vec<&str> = text.lines().skip(1).take(3).collect();
        assert_eq!(
            own,
            [
                "table inet meshplan",
                "delete table inet meshplan",
                "table inet meshplan {"
            ]
        );
        let both = |way: Way, lines: &[&'static str]| {
            let mut all = vec![
                match way {
                    Way::In => "type filter hook input priority filter; policy accept;",
                    Way::Through => "type filter hook forward priority filter; policy accept;",
                },
                "iifname != { \"eth0\", \"eth1\" } accept",
                "ct state { established, related } accept",
            ];
            if way == Way::In {
                all.extend(LINK_ITSELF);
            }
            all.extend(lines);
            all.push("counter drop");
            all
        };
        let input = [
            "tcp dport { 80, 443, 8000-8020 } accept",
            "iifname \"eth1\" ip saddr { 10.0.0.0/8 } udp dport { 53 } accept",
            "iifname \"eth1\" ip6 saddr { fd00::1 } udp dport { 53 } accept",
            "meta nfproto ipv4 meta l4proto 6 accept",
            "ip saddr { 192.0.2.7 } accept",
        ];
        assert_eq!(chain(&text, "input"), both(Way::In, &input));
        let through = [
            "meta l4proto 6 ct original proto-dst 80 accept",
            "meta l4proto 6 ct original proto-dst 443 accept",
            "meta l4proto 6 ct original proto-dst 8000-8020 accept",
            "iifname \"eth1\" ip saddr { 10.0.0.0/8 } meta l4proto 17 ct original proto-dst 53 accept",
            "iifname \"eth1\" ip6 saddr { fd00::1 } meta l4proto 17 ct original proto-dst 53 accept",
            "meta nfproto ipv4 meta l4proto 6 accept",
            "ip saddr { 192.0.2.7 } accept",
        ];
        assert_eq!(chain(&text, "forward"), both(Way::Through, &through));
    }

    // holds: HK-11
    #[test]
    fn the_same_asked_for_in_another_order_within_one_accept_is_the_same_text() {
        let one = |ports: &[&str], from: &[&str]| {
            text(vec![accept(Some(Protocol::Tcp), ports, from, None)], &["eth0"]).unwrap()
        };
        assert_eq!(
            one(&["22", "80-90", "85"], &["10.0.0.1", "fd00::/8", "10.0.0.1/32"]),
            one(&["80-85", "22", "86-90"], &["fd00::5/8", "10.0.0.1"])
        );
    }

    // holds: HK-11
    #[test]
    fn what_no_filter_can_be_made_from_is_refused() {
        let tcp = Some(Protocol::Tcp);
        for (bad, why) in [
            (accept(None, &["22"], &[], None), "protocol"),
            (accept(tcp, &["0"], &[], None), "port"),
            (accept(tcp, &["22; flush ruleset"], &[], None), "port"),
            (accept(tcp, &["9-8"], &[], None), "port"),
            (accept(tcp, &[], &["10.0.0.0/33"], None), "network"),
            (accept(tcp, &[], &["::/129"], None), "network"),
            (accept(tcp, &[], &["web.example"], None), "network"),
            (accept(tcp, &[], &[], Some("eth0\" accept")), "link"),
            (accept(tcp, &[], &[], Some("eth*")), "link"),
        ] {
            let said = text(vec![bad.clone()], &["eth0"]).unwrap_err();
            assert!(said.contains(why), "{bad:?}: {said}");
        }
        assert!(text(vec![], &["eth0"]).unwrap_err().contains("lets nothing in"));
        for name in ["eth*", "a b", "x\"", "", "a-name-of-16-byte"] {
            let ssh = accept(tcp, &["22"], &[], None);
            let said = text(vec![ssh], &[name]).unwrap_err();
            assert!(said.contains("cannot be written"), "{said}");
        }
    }
}
