//! `[[user]]`, `[[group]]`, `[[package]]` (HK-2, HK-3).

use super::resource_table::resource;
use crate::document::read::At;
use crate::document::scalar::{Int, TargetPath};
use crate::document::texts::{AccountName, Line, PackageName, PackageVersion};
use crate::ident::ResourceId;
use crate::resource::accounts::Manager;

/// A user's or group's number: not root's, and below the two numbers that mean "nobody asked" to the kernel.
pub type AccountNumber = Int<1, 4_294_967_293>;

resource! {
    /// A user, made through the system's own tools.
    pub struct UserResource;
    /// The user's name; the id where it is left out.
    "name" name: Option<At<AccountName>>,
    /// The user's number; the system's choice where it is left out.
    "uid" uid: Option<At<AccountNumber>>,
    /// The primary group.
    "group" group: Option<At<AccountName>>,
    /// Further groups.
    "groups" groups: Vec<At<AccountName>>,
    /// The home folder.
    "home" home: Option<At<TargetPath>>,
    /// The login shell.
    "shell" shell: Option<At<TargetPath>>,
    /// The name of the person, or what it is for.
    "comment" comment: Option<At<Line>>,
    /// A user of a program, no person.
    "system" system: bool = false,
    /// The lines of its `authorized_keys`: the whole file.
    "authorized_keys" authorized_keys: Option<At<Vec<Line>>>,
    /// The user shall not be.
    "absent" absent: bool = false,
}

resource! {
    /// A group, made through the system's own tools.
    pub struct GroupResource;
    /// The group's name; the id where it is left out.
    "name" name: Option<At<AccountName>>,
    /// The group's number; the system's choice where it is left out.
    "gid" gid: Option<At<AccountNumber>>,
    /// A group of a program.
    "system" system: bool = false,
    /// The group shall not be.
    "absent" absent: bool = false,
}

resource! {
    /// A package of the machine's package manager.
    pub struct PackageResource;
    /// The package's name; the id where it is left out.
    "name" name: Option<At<PackageName>>,
    /// The only manager that it is for; whichever the machine has where it is left out.
    "manager" manager: Option<At<Manager>>,
    /// The version, where the manager can.
    "version" version: Option<At<PackageVersion>>,
    /// Removed when installed; a machine that never had it is left alone.
    "absent" absent: bool = false,
    /// Resources of the module that are restarted when it changes.
    "restarts" restarts: Vec<At<ResourceId>>,
}
