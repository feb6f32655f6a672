//! Which links of a machine are outward (HK-11), from what the kernel says of routes and links.
//!
//! It stands alone because no program is asked: what the kernel answers is bytes, and each is read here. Outward is a link
//! with a default route, in whichever table, and one that is backed by a physical device, up or not: the device itself, and
//! a bridge, bond or VLAN on top of one, for there its traffic comes in. Tunnels that are carried over a physical link are
//! not backed by it.

use std::collections::{BTreeMap, BTreeSet};

/// A link, as the machine's files say of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// It is a device of the machine.
    pub is_physical: bool,
    /// The links that it lies on.
    pub lower: BTreeSet<String>,
    /// What the kernel calls its sort: `vlan`, `bridge`, `vxlan`; nothing for most.
    pub sort: String,
}

/// What the kernel says of its links.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Links {
    /// By name.
    pub all: BTreeMap<String, Link>,
    /// The numbers of those with a default route.
    pub default: BTreeSet<u32>,
}

impl Links {
    /// The names of the outward ones.
    #[must_use]
    pub fn outward(&self) -> BTreeSet<String> {
        let is_outward =
            |(name, link): &(&String, &Link)| self.default.contains(&link.index) || self.is_backed(name, 0);
        let outward = self.all.iter().filter(is_outward);
        outward.map(|(name, _)| name.clone()).collect()
    }

    fn is_backed(&self, name: &str, depth: u8) -> bool {
        // No kernel stacks as many.
        const DEEPEST: u8 = 16;
        let Some(link) = self.all.get(name).filter(|_| depth < DEEPEST) else {
            return false;
        };
        let is_tunnel = ["vxlan", "geneve"].contains(&link.sort.as_str());
        link.is_physical || !is_tunnel && link.lower.iter().any(|lower| self.is_backed(lower, depth + 1))
    }
}

/// IPv4 and IPv6, as the kernel numbers them.
pub const FAMILIES: [u8; 2] = [2, 10];

/// Asks for all routes of a family: `RTM_GETROUTE` (rtnetlink(7)).
#[must_use]
pub fn question(family: u8) -> Vec<u8> {
    const GETROUTE: u16 = 26;
    const REQUEST_DUMP: u16 = 0x301;
    // struct nlmsghdr and struct rtmsg.
    let mut bytes = 28_u32.to_ne_bytes().to_vec();
    bytes.extend_from_slice(&GETROUTE.to_ne_bytes());
    bytes.extend_from_slice(&REQUEST_DUMP.to_ne_bytes());
    bytes.extend_from_slice(&1_u32.to_ne_bytes());
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.push(family);
    bytes.extend_from_slice(&[0; 11]);
    bytes
}

/// What a part of the answer says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The numbers of links with a default route.
    pub default: BTreeSet<u32>,
    /// It is the last part.
    pub is_end: bool,
    /// The routes changed while they were told: it is to be asked anew.
    pub is_torn: bool,
}

/// Reads a part of the answer.
///
/// # Errors
/// In words: it is no answer, or a default route names no link.
pub fn answer(bytes: &[u8]) -> Result<Answer, String> {
    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    const NEWROUTE: u16 = 24;
    const TORN: u16 = 0x10;
    let mut out = Answer::default();
    for (kind, flags, body) in pieces(bytes, |head| {
        let len = u32::from_ne_bytes(head.get(..4)?.try_into().ok()?);
        let (kind, flags) = (word(head, 4)?, word(head, 6)?);
        Some((usize::try_from(len).ok()?, 16, (kind, flags)))
    })
    .map(|((kind, flags), body)| (kind, flags, body))
    {
        out.is_torn |= flags & TORN != 0;
        match kind {
            ERROR => return Err("the kernel does not tell its routes".to_owned()),
            DONE => out.is_end = true,
            NEWROUTE => out.default.extend(default_of(body)?),
            _ => {}
        }
    }
    Ok(out)
}

/// The links of a route (struct rtmsg and its attributes) when it is a default one that leads somewhere.
fn default_of(body: &[u8]) -> Result<BTreeSet<u32>, String> {
    const UNICAST: u8 = 1;
    const OIF: u16 = 4;
    const MULTIPATH: u16 = 9;
    let [_, length, _, _, _, _, _, kind, _, _, _, _, attributes @ ..] = body else {
        return Ok(BTreeSet::new());
    };
    if *length != 0 || *kind != UNICAST {
        return Ok(BTreeSet::new());
    }
    let mut links = BTreeSet::new();
    for (attribute, value) in attributes_of(attributes) {
        match attribute {
            OIF => links.extend(number(value, 0)),
            MULTIPATH => {
                // struct rtnexthop: its length, flags, hops, and the link.
                let hops = pieces(value, |head| {
                    Some((usize::from(word(head, 0)?), 8, number(head, 4)?))
                });
                links.extend(hops.map(|(link, _)| link));
            }
            _ => {}
        }
    }
    match links.is_empty() {
        true => Err("a default route of this machine names no link".to_owned()),
        false => Ok(links),
    }
}

fn attributes_of(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    pieces(bytes, |head| {
        Some((usize::from(word(head, 0)?), 4, word(head, 2)?))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Messages, attributes or hops one after the other, each with its length first and begun at a multiple of four. `head`:
/// the whole length, the length of the head, and what the head says.
fn pieces<T>(
    bytes: &[u8],
    head: impl Fn(&[u8]) -> Option<(usize, usize, T)>,
) -> impl Iterator<Item = (T, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (len, head_len, said) = head(rest)?;
        let body = rest.get(head_len..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((said, body))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of a kind.
    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(16 + body.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = u16::try_from(4 + value.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// A route to a network of this length, of this type.
    fn route(length: u8, kind: u8, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![2, length, 0, 0, 254, 3, 0, kind, 0, 0, 0, 0];
        body.extend(attributes.concat());
        message(24, 2, &body)
    }

    fn oif(index: u32) -> Vec<u8> {
        attribute(4, &index.to_ne_bytes())
    }

    // holds: HK-11
    #[test]
    fn links_of_default_routes_are_read_of_every_table_and_of_every_hop() {
        let hop = |index: u32| {
            let mut hop = 16_u16.to_ne_bytes().to_vec();
            hop.extend_from_slice(&[0, 0]);
            hop.extend_from_slice(&index.to_ne_bytes());
            hop.extend(attribute(5, &[10, 0, 0, 1]));
            hop
        };
        let bytes = [
            route(0, 1, &[attribute(15, &[254, 0, 0, 0]), oif(2)]),
            route(24, 1, &[oif(3)]),
            // Unreachable, on the loopback: it leads nowhere.
            route(0, 7, &[oif(1)]),
            route(0, 1, &[attribute(9, &[hop(4), hop(5)].concat())]),
            // A mark of somebody's before the link, of an odd length.
            route(0, 1, &[attribute(16, &[1]), oif(6)]),
        ];
        let read = answer(&bytes.concat()).unwrap();
        assert_eq!(read.default, BTreeSet::from([2, 4, 5, 6]));
        assert!(!read.is_end && !read.is_torn);
        let end = answer(&message(3, 0x12, &[0; 4])).unwrap();
        assert!(end.is_end && end.is_torn && end.default.is_empty());
    }

    // holds: HK-11
    #[test]
    fn what_is_no_answer_is_none_and_what_names_no_link_is_not_passed_over() {
        assert!(answer(&message(2, 0, &(-1_i32).to_ne_bytes())).is_err());
        assert!(
            answer(&route(0, 1, &[attribute(30, &[7, 0, 0, 0])]))
                .unwrap_err()
                .contains("names no link")
        );
        for cut in 0..40 {
            let whole = route(0, 1, &[oif(2)]);
            let _read = answer(&whole[..cut.min(whole.len())]);
        }
        // A length of nothing is no endless loop.
        assert_eq!(answer(&[0; 64]), Ok(Answer::default()));
        for family in FAMILIES {
            assert_eq!(question(family).len(), 28);
        }
    }

    // holds: HK-11
    #[test]
    fn outward_are_links_with_a_default_route_and_all_that_a_physical_device_backs() {
        let link = |index, is_physical, lower: &[&str], sort: &str| Link {
            index,
            is_physical,
            lower: lower.iter().map(|name| (*name).to_owned()).collect(),
            sort: sort.to_owned(),
        };
        let all = [
            ("lo", link(1, false, &[], "")),
            ("eth0", link(2, true, &[], "")),
            // Down, and without a route.
            ("eth1", link(3, true, &[], "")),
            ("br0", link(4, false, &["eth1", "tap0"], "bridge")),
            ("br0.7", link(5, false, &["br0"], "vlan")),
            ("docker0", link(6, false, &["veth1"], "bridge")),
            ("veth1", link(7, false, &[], "")),
            ("wg0", link(8, false, &[], "wireguard")),
            ("wg1", link(9, false, &[], "wireguard")),
            ("vxlan0", link(10, false, &["eth0"], "vxlan")),
            ("tap0", link(11, false, &[], "")),
            // Each on the other, which no kernel has.
            ("x", link(12, false, &["y"], "")),
            ("y", link(13, false, &["x"], "")),
        ];
        let links = Links {
            all: all
                .into_iter()
                .map(|(name, link)| (name.to_owned(), link))
                .collect(),
            default: BTreeSet::from([2, 8, 99]),
        };
        let outward: Vec<String> = links.outward().into_iter().collect();
        assert_eq!(outward, ["br0", "br0.7", "eth0", "eth1", "wg0"]);
        assert!(Links::default().outward().is_empty());
    }
}
