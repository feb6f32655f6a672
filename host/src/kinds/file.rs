//! A file (HK-1): whole or not there, with its mode and owner from its first moment.

use meshplan_schemas::resource::File;

use super::{Decision, Invalid, meta_words, mode, path};
use crate::edge::accounts::Accounts;
use crate::edge::disk::{Disk, DiskError, NewFile, Owner, atomic};
use crate::pure::inverse::{UndoAct, act_to};
use crate::pure::observed::Observed;
use crate::pure::outcome::lines_lost_and_new;
use crate::pure::record::Thing;
use crate::pure::target_path::TargetPath;

/// A file that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Where.
    pub path: TargetPath,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Whose.
    pub owner: Owner,
    /// What must pass on the temporary file first.
    pub check: Option<String>,
    /// What is restarted, reloaded or run when it changes.
    pub followers: Vec<String>,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(spec: &File, accounts: &Accounts) -> Result<Wanted, Invalid> {
    let path = path(&spec.path)?;
    let bytes = spec
        .content
        .bytes()
        .map_err(|e| Invalid::Fields(format!("the content is not base64: {e}")))?;
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
    let followers = [&spec.restarts, &spec.reloads, &spec.runs];
    let followers = followers.into_iter().flatten().map(ToString::to_string).collect();
    Ok(Wanted {
        path,
        bytes,
        mode,
        owner,
        check: spec.validate.clone(),
        followers,
    })
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed) -> Decision {
    match observed {
        Observed::Absent => {
            let lines = lines_lost_and_new(b"", &wanted.bytes);
            let lines = if lines.is_empty() {
                "empty".to_owned()
            } else {
                lines
            };
            Decision::Create(format!("{} is new: {lines}", wanted.path))
        }
        Observed::File {
            bytes,
            mode,
            uid,
            gid,
        } => {
            let mut words = vec![lines_lost_and_new(bytes, &wanted.bytes)];
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
        Observed::Directory { .. } | Observed::Other(_) => Decision::Refuse(format!(
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

/// The act that brings back what was there.
#[must_use]
pub fn revert(before: Option<&Thing>) -> UndoAct {
    act_to(before)
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
    use meshplan_schemas::resource::Content;

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
                matches!(validate(&spec("/a", bad), &accounts), Err(Invalid::Fields(_))),
                "{bad}"
            );
        }
        assert!(matches!(
            validate(&spec("a", "0644"), &accounts),
            Err(Invalid::Fields(_))
        ));
        assert_eq!(validate(&spec("/a", "4755"), &accounts).unwrap().mode, 0o4755);
        let mut whose = spec("/a", "0644");
        whose.owner = Some("nobody-here".to_owned());
        assert!(matches!(validate(&whose, &accounts), Err(Invalid::Machine(_))));
        let mut check = spec("/a", "0644");
        check.validate = Some("true".to_owned());
        assert!(matches!(validate(&check, &accounts), Err(Invalid::Fields(_))));
    }

    // holds: HK-1, HK-14
    #[test]
    fn it_is_written_read_back_changed_in_mode_and_removed() {
        let disk = SimDisk::new();
        let mut wanted = validate(&spec("/a", "0600"), &Accounts::default()).unwrap();
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
        let mut wanted = validate(&spec("/a", "0600"), &Accounts::default()).unwrap();
        apply(&wanted, &disk).unwrap();
        let before = disk.show();
        wanted.bytes = b"two\n".to_vec();
        wanted.check = Some("false".to_owned());
        assert!(apply(&wanted, &disk).is_err());
        assert_eq!(disk.show(), before);
    }

    // holds: HK-1
    #[test]
    fn a_directory_in_its_place_is_refused() {
        let wanted = validate(&spec("/a", "0600"), &Accounts::default()).unwrap();
        let folder = Observed::Directory {
            names: Vec::new(),
            mode: 0o755,
            uid: 0,
            gid: 0,
        };
        assert!(matches!(plan(&wanted, &folder), Decision::Refuse(_)));
    }
}
