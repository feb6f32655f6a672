//! The machine's filter and private networks on the wire (HK-11, HK-12).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

use super::containers::Protocol;
use super::wire_table::wire;
use crate::document::texts::Cidr;

wire! {
    /// What a filter lets in.
    pub struct Accept;
    maybe
    /// What it speaks; both where it is left out.
    protocol: Option<Protocol>,
    /// Ports, as `22` or `8000-8010`; all where it is empty.
    ports: Vec<String>,
    /// Addresses that it may come from; all where it is empty.
    from: Vec<String>,
    /// The only link.
    interface: Option<String>,
}

wire! {
    /// The machine's filter (HK-11).
    pub struct Filter;
    /// What it lets in.
    accept: Vec<Accept>,
}

wire! {
    /// A private network (HK-12).
    pub struct PrivateNetwork;
    /// Its interface.
    interface: String,
    /// The port that it listens on.
    listen_port: u16,
    /// The folder of a found configuration.
    dir: String,
    /// This machine's address in it.
    address: String;
    maybe
    /// The others.
    peers: Vec<Peer>,
    /// Seconds between keep-alives; none are sent where it is left out.
    keepalive_secs: Option<u32>,
    /// The largest packet, in bytes.
    mtu: Option<u32>,
}

wire! {
    /// Another machine of a private network.
    pub struct Peer;
    /// Its node's name.
    node: String,
    /// Its address in the network.
    address: String;
    maybe
    /// Where it is reached, as `host:port`.
    endpoint: Option<String>,
}

/// A network of addresses, or one address: as of [`Accept::from`], without the bits that say nothing. In order IPv4 comes
/// first, and a network before what lies within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    is_ipv6: bool,
    /// The address as a number, its free bits zero.
    first: u128,
    length: u8,
}

impl Network {
    /// Whether it is of IPv6.
    #[must_use]
    pub fn is_ipv6(self) -> bool {
        self.is_ipv6
    }

    /// How many bits its addresses share.
    #[must_use]
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether another lies within it, or is the same.
    #[must_use]
    pub fn has(self, other: Self) -> bool {
        self.is_ipv6 == other.is_ipv6
            && self.length <= other.length
            && self.first == masked(other.first, bits(self.is_ipv6) - self.length)
    }
}

fn bits(is_ipv6: bool) -> u8 {
    if is_ipv6 { 128 } else { 32 }
}

/// A number whose last bits are zero.
fn masked(number: u128, free: u8) -> u128 {
    match u32::from(free) {
        128 => 0,
        free => number >> free << free,
    }
}

impl FromStr for Network {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, &'static str> {
        text.parse::<Cidr>()?;
        let refused = "expected an address, or a network as `10.0.0.0/8` or `fd00::/8`";
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let (is_ipv6, number) = match address.parse().map_err(|_| refused)? {
            IpAddr::V4(address) => (false, u128::from(address.to_bits())),
            IpAddr::V6(address) => (true, address.to_bits()),
        };
        let length: u8 = match length {
            None => bits(is_ipv6),
            Some(length) => length.parse().map_err(|_| refused)?,
        };
        let free = bits(is_ipv6).checked_sub(length).ok_or(refused)?;
        Ok(Self {
            is_ipv6,
            first: masked(number, free),
            length,
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match u32::try_from(self.first) {
            Ok(first) if !self.is_ipv6 => Ipv4Addr::from_bits(first).fmt(f)?,
            _ => Ipv6Addr::from_bits(self.first).fmt(f)?,
        }
        match self.length {
            length if length == bits(self.is_ipv6) => Ok(()),
            length => write!(f, "/{length}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: HK-11
    #[test]
    fn a_network_has_what_lies_within_it_at_the_ends_of_the_scale_too() {
        let network = |text: &str| text.parse::<Network>().unwrap();
        assert!(network("::/0").has(network("ffff::1")));
        assert!(!network("::/0").has(network("1.2.3.4")));
        assert!(network("0.0.0.0/0").has(network("255.255.255.255")));
        assert!(!network("10.0.0.0/9").has(network("10.128.0.0/9")));
        assert!(!network("10.0.0.0/16").has(network("10.0.0.0/8")));
        assert_eq!(network("10.200.1.1/9").to_string(), "10.128.0.0/9");
        assert_eq!(network("fd00::1/128").to_string(), "fd00::1");
        assert_eq!(network("::1/0").to_string(), "::/0");
        for bad in ["", "web", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(bad.parse::<Network>().is_err(), "{bad} was taken");
        }
    }
}
