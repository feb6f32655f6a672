//! `[[filter]]`, `[[private_network]]` (HK-11, HK-12).

use super::resource_table::resource;
use crate::document::read::{At, table};
use crate::document::scalar::{Identifier, Int, SomeSecs, TargetPath};
use crate::document::texts::{Cidr, Interface, Ports};
use crate::ident::RoleName;
use crate::resource::containers::Protocol;

resource! {
    /// The machine's filter: accepts what it says, refuses the rest on outward links only.
    pub struct FilterResource;
    /// What it lets in.
    "accept" accept: Vec<At<AcceptFile>>,
}

table! {
    /// What a filter lets in; a key that is left out narrows nothing.
    pub struct AcceptFile;
    /// What it speaks.
    "protocol" protocol: Option<At<Protocol>>,
    /// Ports, as `22` or `"8000-8010"`.
    "ports" ports: Vec<Ports>,
    /// Addresses and networks that it may come from.
    "from" from: Vec<Cidr>,
    /// The only link.
    "interface" interface: Option<Interface>,
}

resource! {
    /// A private network (WireGuard) of the nodes that have this module.
    pub struct PrivateNetworkResource;
    /// Its interface.
    "interface" interface: At<Interface>,
    /// The port that it listens on.
    "listen_port" listen_port: Int<1, 65_535> = Int(51_820),
    /// The key of `[vars]` in each node's record that holds its address in the network.
    "address_var" address_var: At<Identifier>,
    /// The key of `[vars]` that holds `host:port` where others reach the node; a node without it dials only.
    "endpoint_var" endpoint_var: Option<At<Identifier>>,
    /// Only nodes with one of these roles are peers; all that have this module where it is empty.
    "roles" roles: Vec<At<RoleName>>,
    /// The folder of a configuration that the machine had before.
    "dir" dir: TargetPath = TargetPath("/etc/wireguard".to_owned()),
    /// Seconds between keep-alives; none are sent where it is left out.
    "keepalive_secs" keepalive_secs: Option<SomeSecs>,
    /// The largest packet, in bytes.
    "mtu" mtu: Option<Int<576, 65_535>>,
}
