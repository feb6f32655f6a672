//! The machine's filter and private networks on the wire (HK-11, HK-12).

use super::containers::Protocol;
use super::wire_table::wire;

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
