//! A directory (HK-1): there, with its mode and owner; what is in it is nobody's business here.

use meshplan_schemas::resource::Directory;

use super::{Decision, Invalid, meta_words, mode, path};
use crate::edge::accounts::Accounts;
use crate::edge::disk::{Disk, DiskError, Owner, atomic};
use crate::pure::observed::Observed;
use crate::pure::target_path::TargetPath;

/// A directory that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Where.
    pub path: TargetPath,
    /// Permission bits.
    pub mode: u32,
    /// Whose.
    pub owner: Owner,
    /// The names of user and group, as they are asked for.
    pub whose: (Option<String>, Option<String>),
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(spec: &Directory, accounts: &Accounts) -> Result<Wanted, Invalid> {
    Ok(Wanted {
        path: path(&spec.path)?,
        mode: mode(&spec.mode)?,
        owner: accounts
            .owner(spec.owner.as_deref(), spec.group.as_deref())
            .map_err(Invalid::Machine)?,
        whose: (spec.owner.clone(), spec.group.clone()),
    })
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed) -> Decision {
    match observed {
        Observed::Absent => Decision::Create(format!("{} is a new directory", wanted.path)),
        Observed::Directory { mode, uid, gid, .. } => {
            let words = meta_words((wanted.mode, wanted.owner), (*mode, *uid, *gid));
            if words.is_empty() {
                Decision::Unchanged
            } else {
                Decision::Update(format!("{}: {}", wanted.path, words.join("; ")))
            }
        }
        Observed::File { .. } | Observed::Link { .. } | Observed::Other(_) | Observed::Is(_) => {
            Decision::Refuse(format!(
                "{} is {}, not a directory; it is not removed: move it away or name another path",
                wanted.path,
                observed.word()
            ))
        }
        Observed::Unknown(why) => Decision::Unknown(why.clone()),
    }
}

/// Makes it, or gives the one that is there its mode and owner.
///
/// # Errors
/// The disk.
pub fn apply(wanted: &Wanted, disk: &dyn Disk) -> Result<(), DiskError> {
    atomic::put_folder(disk, &wanted.path, wanted.mode, wanted.owner)
}

/// Removes it when it is empty.
///
/// # Errors
/// The disk; it is not empty.
pub fn remove(disk: &dyn Disk, path: &TargetPath) -> Result<(), DiskError> {
    atomic::remove_folder(disk, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::disk::SimDisk;
    use crate::edge::observe::observe;

    fn wanted(mode: &str) -> Wanted {
        let spec = Directory {
            path: "/a".to_owned(),
            mode: mode.to_owned(),
            owner: None,
            group: None,
        };
        validate(&spec, &Accounts::default()).unwrap()
    }

    // holds: HK-1, HK-14
    #[test]
    fn it_is_made_changed_in_mode_and_removed_only_when_empty() {
        let disk = SimDisk::new();
        let path = wanted("0750").path;
        apply(&wanted("0750"), &disk).unwrap();
        assert_eq!(plan(&wanted("0750"), &observe(&disk, &path)), Decision::Unchanged);
        assert!(matches!(
            plan(&wanted("0700"), &observe(&disk, &path)),
            Decision::Update(_)
        ));
        disk.plant(&TargetPath::parse("/a/theirs").unwrap(), b"", 0o644);
        assert!(remove(&disk, &path).is_err());
        atomic::remove_file(&disk, &TargetPath::parse("/a/theirs").unwrap()).unwrap();
        remove(&disk, &path).unwrap();
        assert_eq!(observe(&disk, &path), Observed::Absent);
    }

    // holds: HK-1
    #[test]
    fn a_file_or_a_link_in_its_place_is_refused() {
        let file = Observed::File {
            bytes: Vec::new(),
            mode: 0o644,
            uid: 0,
            gid: 0,
        };
        let link = Observed::Link {
            target: "/b".to_owned(),
            uid: 0,
            gid: 0,
        };
        for found in [file, link] {
            assert!(
                matches!(plan(&wanted("0755"), &found), Decision::Refuse(_)),
                "{found:?}"
            );
        }
    }
}
