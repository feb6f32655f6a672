//! A file (HK-1): whole or not there, with its mode and owner from its first moment.

use std::fmt;
use std::ops::Deref;

use meshplan_schemas::ident::ResourceId;
use meshplan_schemas::resource::{Content, File};
use zeroize::Zeroizing;

use super::{Decision, Follow, Follower, Invalid, Opened, meta_words, mode, path};
use crate::edge::accounts::Accounts;
use crate::edge::disk::{Disk, DiskError, NewFile, Owner, atomic};
use crate::pure::observed::Observed;
use crate::pure::outcome::lines_lost_and_new;
use crate::pure::target_path::TargetPath;

/// A file that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Where.
    pub path: TargetPath,
    /// Its bytes.
    pub bytes: Bytes,
    /// Permission bits.
    pub mode: u32,
    /// Whose.
    pub owner: Owner,
    /// The names of user and group, as they are asked for.
    pub whose: (Option<String>, Option<String>),
    /// What must pass on the temporary file first.
    pub check: Option<String>,
    /// What is restarted, reloaded or run when it changes.
    pub followers: Vec<Follower>,
}

/// The bytes of a file: plain, or the value of a secret, which is never printed and zeroized when it is dropped (FR-9).
#[derive(Clone, PartialEq, Eq)]
pub enum Bytes {
    /// As they stand in the declaration.
    Plain(Vec<u8>),
    /// They were sealed to this node.
    Secret(Zeroizing<Vec<u8>>),
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Secret(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(bytes) => write!(f, "[{} bytes]", bytes.len()),
            Self::Secret(_) => f.write_str("[secret]"),
        }
    }
}

impl Bytes {
    /// The bytes, to be put with others.
    pub(super) fn zeroizing(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.to_vec())
    }

    /// How they differ from what stands there, in words; empty where they are equal. Of a secret not even how many lines.
    fn differ(&self, found: &[u8]) -> String {
        match self {
            Self::Plain(bytes) => lines_lost_and_new(found, bytes),
            Self::Secret(bytes) if **bytes == *found => String::new(),
            Self::Secret(_) => "its content, a secret, is another".to_owned(),
        }
    }
}

/// Checks the fields. `opened` is the value of a sealed content, or why there is none.
///
/// # Errors
/// [`Invalid`].
pub fn validate(spec: &File, accounts: &Accounts, opened: Option<&Opened>) -> Result<Wanted, Invalid> {
    let path = path(&spec.path)?;
    let bytes = match (&spec.content, opened) {
        (Content::Sealed(_), Some(Ok(value))) => Bytes::Secret(value.clone()),
        (Content::Sealed(_), Some(Err(why))) => return Err(Invalid::Fields(why.clone())),
        (content, _) => {
            let bytes = content.bytes().map_err(|e| Invalid::Fields(e.to_string()))?;
            Bytes::Plain(bytes)
        }
    };
    if spec
        .validate
        .as_ref()
        .is_some_and(|command| !command.contains("%s"))
    {
        return Err(Invalid::Fields(
            "`validate` does not say `%s` where the file's path goes".to_owned(),
        ));
    }
    let mode = mode(&spec.mode)?;
    let owner = accounts
        .owner(spec.owner.as_deref(), spec.group.as_deref())
        .map_err(Invalid::Machine)?;
    let follow = |how: Follow, ids: &[ResourceId]| -> Vec<Follower> {
        ids.iter().map(|id| Follower { how, id: id.clone() }).collect()
    };
    let mut followers = follow(Follow::Restart, &spec.restarts);
    followers.extend(follow(Follow::Reload, &spec.reloads));
    followers.extend(follow(Follow::Run, &spec.runs));
    Ok(Wanted {
        path,
        bytes,
        mode,
        owner,
        whose: (spec.owner.clone(), spec.group.clone()),
        check: spec.validate.clone(),
        followers,
    })
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed) -> Decision {
    match observed {
        Observed::Absent => {
            let lines = match &wanted.bytes {
                Bytes::Secret(_) => "its content is a secret".to_owned(),
                Bytes::Plain(bytes) if bytes.is_empty() => "empty".to_owned(),
                Bytes::Plain(bytes) => lines_lost_and_new(b"", bytes),
            };
            Decision::Create(format!("{} is new: {lines}", wanted.path))
        }
        Observed::File {
            bytes,
            mode,
            uid,
            gid,
        } => {
            let mut words = vec![wanted.bytes.differ(bytes)];
            words.retain(|w| !w.is_empty());
            words.extend(meta_words((wanted.mode, wanted.owner), (*mode, *uid, *gid)));
            if words.is_empty() {
                Decision::Unchanged
            } else {
                Decision::Update(format!("{}: {}", wanted.path, words.join("; ")))
            }
        }
        Observed::Link { target, .. } => Decision::Update(format!(
            "{} is a link to {:?} and becomes a file; what it points at is not touched",
            wanted.path, target
        )),
        Observed::Directory { .. } | Observed::Other(_) | Observed::Is(_) => Decision::Refuse(format!(
            "{} is {}, not a file; it is not removed: move it away or name another path",
            wanted.path,
            observed.word()
        )),
        Observed::Unknown(why) => Decision::Unknown(why.clone()),
    }
}

/// Puts it in place.
///
/// # Errors
/// The disk, or the check did not pass; then the old file stands.
pub fn apply(wanted: &Wanted, disk: &dyn Disk) -> Result<(), DiskError> {
    let file = NewFile {
        bytes: &wanted.bytes,
        mode: wanted.mode,
        owner: wanted.owner,
    };
    atomic::put_file(disk, &wanted.path, &file, wanted.check.as_deref())
}

/// Removes it.
///
/// # Errors
/// The disk.
pub fn remove(disk: &dyn Disk, path: &TargetPath) -> Result<(), DiskError> {
    atomic::remove_file(disk, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::disk::SimDisk;
    use crate::edge::observe::observe;

    fn spec(path: &str, mode: &str) -> File {
        File {
            path: path.to_owned(),
            content: Content::Text("one\n".to_owned()),
            mode: mode.to_owned(),
            owner: None,
            group: None,
            restarts: Vec::new(),
            reloads: Vec::new(),
            runs: Vec::new(),
            validate: None,
        }
    }

    // holds: HK-1, FR-13
    #[test]
    fn fields_that_cannot_be_are_refused_before_anything_is_looked_at() {
        let accounts = Accounts::default();
        for bad in [
            "644x", "", "99", "0o644", "-644", "12345", "u=rw", "0648", "00000644",
        ] {
            assert!(
                matches!(
                    validate(&spec("/a", bad), &accounts, None),
                    Err(Invalid::Fields(_))
                ),
                "{bad}"
            );
        }
        assert!(matches!(
            validate(&spec("a", "0644"), &accounts, None),
            Err(Invalid::Fields(_))
        ));
        assert_eq!(
            validate(&spec("/a", "4755"), &accounts, None).unwrap().mode,
            0o4755
        );
        let mut whose = spec("/a", "0644");
        whose.owner = Some("nobody-here".to_owned());
        assert!(matches!(
            validate(&whose, &accounts, None),
            Err(Invalid::Machine(_))
        ));
        let mut check = spec("/a", "0644");
        check.validate = Some("true".to_owned());
        assert!(matches!(
            validate(&check, &accounts, None),
            Err(Invalid::Fields(_))
        ));
    }

    // holds: HK-1, HK-14
    #[test]
    fn it_is_written_read_back_changed_in_mode_and_removed() {
        let disk = SimDisk::new();
        let mut wanted = validate(&spec("/a", "0600"), &Accounts::default(), None).unwrap();
        assert!(matches!(
            plan(&wanted, &observe(&disk, &wanted.path)),
            Decision::Create(_)
        ));
        apply(&wanted, &disk).unwrap();
        assert_eq!(plan(&wanted, &observe(&disk, &wanted.path)), Decision::Unchanged);
        wanted.mode = 0o644;
        let Decision::Update(what) = plan(&wanted, &observe(&disk, &wanted.path)) else {
            panic!("a mode that differs is no change");
        };
        assert_eq!(what, "/a: mode 0644 instead of 0600");
        remove(&disk, &wanted.path).unwrap();
        assert_eq!(observe(&disk, &wanted.path), Observed::Absent);
    }

    // holds: HK-1
    #[test]
    fn a_check_that_does_not_pass_leaves_the_old_file() {
        let disk = SimDisk::new();
        let mut wanted = validate(&spec("/a", "0600"), &Accounts::default(), None).unwrap();
        apply(&wanted, &disk).unwrap();
        let before = disk.show();
        wanted.bytes = Bytes::Plain(b"two\n".to_vec());
        wanted.check = Some("false".to_owned());
        assert!(apply(&wanted, &disk).is_err());
        assert_eq!(disk.show(), before);
    }

    // holds: FR-9, HK-1
    #[test]
    fn of_a_secret_nothing_is_said_but_that_it_is_another_and_without_its_value_the_module_is_refused() {
        let mut sealed = spec("/a", "0600");
        sealed.content = Content::Sealed(meshplan_schemas::digest::Digest::of(b"x"));
        let accounts = Accounts::default();
        let opened = Ok(Zeroizing::new(b"hunter2\nhunter3\n".to_vec()));
        let wanted = validate(&sealed, &accounts, Some(&opened)).unwrap();
        assert!(!format!("{wanted:?}").contains("hunter"), "{wanted:?}");
        let disk = SimDisk::new();
        let before = plan(&wanted, &observe(&disk, &wanted.path));
        assert_eq!(
            before,
            Decision::Create("/a is new: its content is a secret".to_owned())
        );
        disk.plant(&wanted.path, b"hunter1", 0o600);
        let changed = plan(&wanted, &observe(&disk, &wanted.path));
        assert_eq!(
            changed,
            Decision::Update("/a: its content, a secret, is another".to_owned())
        );
        apply(&wanted, &disk).unwrap();
        assert_eq!(plan(&wanted, &observe(&disk, &wanted.path)), Decision::Unchanged);
        for opened in [None, Some(&Err("it does not open".to_owned()))] {
            let refused = validate(&sealed, &accounts, opened).unwrap_err();
            assert!(matches!(refused, Invalid::Fields(_)), "{refused:?}");
        }
    }

    // holds: HK-1
    #[test]
    fn a_directory_in_its_place_is_refused() {
        let wanted = validate(&spec("/a", "0600"), &Accounts::default(), None).unwrap();
        let folder = Observed::Directory {
            names: Vec::new(),
            mode: 0o755,
            uid: 0,
            gid: 0,
        };
        assert!(matches!(plan(&wanted, &folder), Decision::Refuse(_)));
    }
}
