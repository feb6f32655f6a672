//! Reads the machine's links and its default routes (HK-11): the files of the kernel and its netlink, no program.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto, socket_with,
};

use crate::pure::filter::links::{FAMILIES, Link, Links, answer, question};

/// Where the kernel shows its links.
const FOLDER: &str = "/sys/class/net";
/// How long the kernel may take for a part of its answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How often it is asked anew where its routes change while it tells them.
const ATTEMPTS: usize = 5;
/// The most that it says at once.
const PART_BYTES: usize = 64 * 1024;

/// All of them.
///
/// # Errors
/// In words: the kernel does not tell.
pub(crate) fn links() -> Result<Links, String> {
    let socket = netlink_socket().map_err(|e| format!("the kernel cannot be asked for its routes: {e}"))?;
    let mut links = Links::default();
    for family in FAMILIES {
        links.default.extend(default_routes(&socket, family)?);
    }
    let folder = std::fs::read_dir(FOLDER).map_err(|e| format!("{FOLDER} cannot be read: {e}"))?;
    for entry in folder.flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        // What is no link (`bonding_masters`), or is gone by now, has no number.
        let Ok(index) = name_to_index(&socket, &name) else {
            continue;
        };
        links.all.insert(name, link(index, &entry.path()));
    }
    // Where the folder shows less than the routes name, a name is asked for by its number.
    let known: BTreeSet<u32> = links.all.values().map(|link| link.index).collect();
    for index in links.default.difference(&known) {
        if let Ok(name) = index_to_name(&socket, *index) {
            let link = Link {
                index: *index,
                ..Link::default()
            };
            links.all.insert(name, link);
        }
    }
    Ok(links)
}

fn link(index: u32, folder: &Path) -> Link {
    let lower = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_prefix("lower_").map(str::to_owned)
        });
    let told = std::fs::read_to_string(folder.join("uevent")).unwrap_or_default();
    let sort = told.lines().find_map(|line| line.strip_prefix("DEVTYPE="));
    Link {
        index,
        is_physical: folder.join("device").exists(),
        lower: lower.collect(),
        sort: sort.unwrap_or_default().to_owned(),
    }
}

fn netlink_socket() -> rustix::io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER))?;
    Ok(socket)
}

fn default_routes(socket: &OwnedFd, family: u8) -> Result<BTreeSet<u32>, String> {
    for _ in 0..ATTEMPTS {
        if let Some(routes) = told(socket, family)? {
            return Ok(routes);
        }
    }
    Err("the routes of this machine change while they are read".to_owned())
}

/// One telling; none where the routes changed meanwhile.
fn told(socket: &OwnedFd, family: u8) -> Result<Option<BTreeSet<u32>>, String> {
    let words = |e: rustix::io::Errno| format!("the kernel does not tell its routes: {e}");
    let kernel = netlink::SocketAddrNetlink::new(0, 0);
    sendto(socket, &question(family), SendFlags::empty(), &kernel).map_err(words)?;
    let (mut routes, mut is_torn) = (BTreeSet::new(), false);
    let mut part = vec![0_u8; PART_BYTES];
    loop {
        let (_, len) = recv(socket, part.as_mut_slice(), RecvFlags::empty()).map_err(words)?;
        let said = answer(part.get(..len).unwrap_or_default())?;
        routes.extend(said.default);
        is_torn |= said.is_torn;
        if said.is_end {
            return Ok((!is_torn).then_some(routes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // holds: HK-11
    #[test]
    fn the_links_of_this_machine_are_read_and_the_loopback_is_none_that_leads_out() {
        let links = links().unwrap();
        let loopback = links.all.get("lo").expect("every machine has one");
        assert!(!loopback.is_physical && loopback.lower.is_empty());
        assert!(!links.outward().contains("lo"), "{links:?}");
        // What the routes of the main table say, in the kernel's own other words (proc_pid_net(5)).
        let table = std::fs::read_to_string("/proc/net/route").unwrap();
        for line in table.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[1] == "00000000" && words[7] == "00000000" {
                assert!(links.outward().contains(words[0]), "{line}: {links:?}");
            }
        }
    }
}
