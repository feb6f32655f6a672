//! Users, groups and packages on the wire (HK-2, HK-3).

use super::wire_table::wire;
use crate::document::words::words;
use crate::ident::ResourceId;

wire! {
    /// A user (HK-2).
    pub struct User;
    /// The name.
    name: String;
    maybe
    /// The number; the system's choice where it is left out.
    uid: Option<u32>,
    /// The primary group.
    group: Option<String>,
    /// Further groups.
    groups: Vec<String>,
    /// The home folder.
    home: Option<String>,
    /// The login shell.
    shell: Option<String>,
    /// The name of the person.
    comment: Option<String>,
    /// A user of a program, no person.
    system: bool,
    /// Lines of `authorized_keys`; the whole file.
    authorized_keys: Option<Vec<String>>,
    /// Shall not be.
    absent: bool,
}

wire! {
    /// A group (HK-2).
    pub struct Group;
    /// The name.
    name: String;
    maybe
    /// The number.
    gid: Option<u32>,
    /// A group of a program.
    system: bool,
    /// Shall not be.
    absent: bool,
}

words! {
    /// A package manager.
    pub enum Manager {
        /// Debian's.
        Apt = "apt",
        /// Fedora's.
        Dnf = "dnf",
        /// Arch's.
        Pacman = "pacman",
        /// Alpine's.
        Apk = "apk",
        /// openSUSE's.
        Zypper = "zypper",
    }
}

/// The package that the host itself comes in.
pub const HOST_PACKAGE: &str = "meshplan-host";

/// Whether a name asks a manager for [`HOST_PACKAGE`], also by its architecture, version, release or repository:
/// `meshplan-host:amd64`, `meshplan-host.x86_64`, `meshplan-host-1.2`, `meshplan-host/stable`, `meshplan-host@edge`.
#[must_use]
pub fn is_host_package(name: &str) -> bool {
    name.strip_prefix(HOST_PACKAGE)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-', '/', ':', '@']))
}

/// The name of a package without its architecture: `nginx` and `nginx:amd64` are one.
#[must_use]
pub fn plain_package(name: &str) -> &str {
    name.split_once(':').map_or(name, |(plain, _)| plain)
}

impl Manager {
    /// Whether a version of a package can be asked of it (HK-3): pacman's repositories have one of each.
    #[must_use]
    pub fn has_versions(self) -> bool {
        self != Self::Pacman
    }
}

wire! {
    /// A package (HK-3).
    pub struct Package;
    /// The name as its manager writes it.
    name: String;
    maybe
    /// The only manager that it is for; any that the machine has where it is left out.
    manager: Option<Manager>,
    /// The version, where the manager can.
    version: Option<String>,
    /// Removed when installed.
    absent: bool,
    /// Resources of the module that are restarted when it changes.
    restarts: Vec<ResourceId>,
}
