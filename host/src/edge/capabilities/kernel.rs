//! Asks the kernel over netlink: one message there, one back, no program started.

use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto,
    socket_with,
};

use crate::pure::capability::{answered, family_question, nftables_question};

/// The kernel may have to load a module before it answers.
const ANSWER: Duration = Duration::from_secs(5);

/// Whether the kernel has nftables, and lets whoever runs the host work with it.
pub(super) fn has_nftables() -> bool {
    ask(netlink::NETFILTER, &nftables_question())
}

/// Whether the kernel has a family of generic netlink, such as `wireguard`.
pub(super) fn has_family(name: &str) -> bool {
    ask(netlink::GENERIC, &family_question(name))
}

fn ask(protocol: Protocol, question: &[u8]) -> bool {
    let asked = || {
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(protocol),
        )?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER))?;
        sendto(
            &socket,
            question,
            SendFlags::empty(),
            &netlink::SocketAddrNetlink::new(0, 0),
        )?;
        let mut reply = [0_u8; 4096];
        let (_, len) = recv(&socket, &mut reply, RecvFlags::empty())?;
        rustix::io::Result::Ok(answered(reply.get(..len).unwrap_or_default()))
    };
    asked().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: HR-10
    #[test]
    fn the_kernel_says_which_families_it_has() {
        assert!(has_family("nlctrl"), "the family that answers for families");
        assert!(!has_family("no-such-family"));
    }
}
