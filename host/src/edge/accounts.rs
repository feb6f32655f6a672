//! User and group names as numbers, from the root's own `etc/passwd` and `etc/group`.

use std::collections::{BTreeMap, BTreeSet};

use super::disk::{Disk, DiskError, Owner};
use crate::pure::target_path::TargetPath;

/// The names that the machine knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    users: BTreeMap<String, u32>,
    groups: BTreeMap<String, u32>,
    /// Names that the same change makes.
    coming: BTreeSet<String>,
}

/// The number of a name that the same change makes: known once it is made.
pub const COMING: u32 = u32::MAX - 1;

impl Accounts {
    /// Reads them; a file that is not there knows nobody.
    ///
    /// # Errors
    /// A file is there and cannot be read: that is not "no such user".
    pub fn read(root: &dyn Disk) -> Result<Self, DiskError> {
        let table = |text: &str| -> Result<BTreeMap<String, u32>, DiskError> {
            let path = TargetPath::parse(text).expect("a constant path");
            if root.stat(&path)?.is_none() {
                return Ok(BTreeMap::new());
            }
            let bytes = root.read(&path)?;
            let lines = String::from_utf8_lossy(&bytes).into_owned();
            Ok(lines
                .lines()
                .filter_map(|line| {
                    let mut fields = line.split(':');
                    let name = fields.next()?.to_owned();
                    let number = fields.nth(1)?.parse().ok()?;
                    Some((name, number))
                })
                .collect())
        };
        Ok(Self {
            users: table("/etc/passwd")?,
            groups: table("/etc/group")?,
            coming: BTreeSet::new(),
        })
    }

    /// Names that the same change makes before they are needed.
    pub fn expect(&mut self, names: impl IntoIterator<Item = String>) {
        self.coming.extend(names);
    }

    /// The numbers of an owner and a group as a resource names them.
    ///
    /// # Errors
    /// In words: nobody of that name.
    pub fn owner(&self, user: Option<&str>, group: Option<&str>) -> Result<Owner, String> {
        let number = |name: Option<&str>, known: &BTreeMap<String, u32>, noun: &str| match name {
            None => Ok(None),
            Some("root") => Ok(Some(0)),
            Some(name) => match (name.parse::<u32>(), known.get(name)) {
                // The largest number means "leave it" to the kernel.
                (Ok(u32::MAX), _) => Err(format!("{name} is no {noun} number")),
                (Ok(number), _) => Ok(Some(number)),
                (Err(_), Some(number)) => Ok(Some(*number)),
                (Err(_), None) if self.coming.contains(name) => Ok(Some(COMING)),
                (Err(_), None) => Err(format!("this machine has no {noun} `{}`", name.escape_debug())),
            },
        };
        Ok(Owner {
            uid: number(user, &self.users, "user")?,
            gid: number(group, &self.groups, "group")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk::SimDisk;
    use super::*;

    #[test]
    fn names_come_from_the_roots_own_files_and_numbers_are_never_narrowed() {
        let disk = SimDisk::new();
        disk.plant(
            &TargetPath::parse("/etc/passwd").unwrap(),
            b"web:x:33:34::/:/bin/sh\nbroken\n",
            0o644,
        );
        let accounts = Accounts::read(&disk).unwrap();
        let owner = accounts.owner(Some("web"), Some("12")).unwrap();
        assert_eq!((owner.uid, owner.gid), (Some(33), Some(12)));
        assert_eq!(accounts.owner(Some("root"), None).unwrap().uid, Some(0));
        for bad in ["nobody-here", "4294967296", "4294967295", "-1", ""] {
            assert!(accounts.owner(Some(bad), None).is_err(), "{bad} was taken");
        }
    }
}
