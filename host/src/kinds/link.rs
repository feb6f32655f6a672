//! A symbolic link (HK-1): replaced in one step, never followed.

use meshplan_schemas::resource::Link;

use super::{Decision, Invalid, path};
use crate::edge::disk::{Disk, DiskError, Owner, atomic};
use crate::pure::observed::Observed;
use crate::pure::target_path::TargetPath;

/// A link that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Where.
    pub path: TargetPath,
    /// What it points at, as it stands.
    pub target: String,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(spec: &Link) -> Result<Wanted, Invalid> {
    if spec.target.is_empty() || spec.target.contains('\0') || spec.target.len() > 4095 {
        return Err(Invalid::Fields(
            "a link's target is 1 to 4095 bytes without NUL".to_owned(),
        ));
    }
    Ok(Wanted {
        path: path(&spec.path)?,
        target: spec.target.clone(),
    })
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed) -> Decision {
    let to = wanted.target.escape_debug();
    match observed {
        Observed::Absent => Decision::Create(format!("{} is a new link to {to}", wanted.path)),
        Observed::Link { target, .. } if *target == wanted.target => Decision::Unchanged,
        Observed::Link { target, .. } => Decision::Update(format!(
            "{} points at {to} instead of {}",
            wanted.path,
            target.escape_debug()
        )),
        Observed::File { .. } => {
            Decision::Update(format!("{} is a file and becomes a link to {to}", wanted.path))
        }
        Observed::Directory { .. } | Observed::Other(_) | Observed::Is(_) => Decision::Refuse(format!(
            "{} is {}, not a link; it is not removed: move it away or name another path",
            wanted.path,
            observed.word()
        )),
        Observed::Unknown(why) => Decision::Unknown(why.clone()),
    }
}

/// Puts it in place.
///
/// # Errors
/// The disk; then what was there stands.
pub fn apply(wanted: &Wanted, disk: &dyn Disk) -> Result<(), DiskError> {
    atomic::put_link(disk, &wanted.path, &wanted.target, Owner::default())
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

    // holds: HK-1, HK-14
    #[test]
    fn it_is_made_turned_and_removed_and_its_target_never_looked_at() {
        let disk = SimDisk::new();
        let wanted = |target: &str| {
            validate(&Link {
                path: "/a".to_owned(),
                target: target.to_owned(),
            })
            .unwrap()
        };
        let path = wanted("x").path;
        apply(&wanted("../not/there"), &disk).unwrap();
        assert_eq!(
            plan(&wanted("../not/there"), &observe(&disk, &path)),
            Decision::Unchanged
        );
        assert!(matches!(
            plan(&wanted("/b"), &observe(&disk, &path)),
            Decision::Update(_)
        ));
        remove(&disk, &path).unwrap();
        assert_eq!(observe(&disk, &path), Observed::Absent);
        assert!(
            validate(&Link {
                path: "/a".to_owned(),
                target: String::new()
            })
            .is_err()
        );
    }
}
