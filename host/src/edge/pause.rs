//! The pause of this machine on disk, and what whoever logs in reads of it (HR-17).
//!
//! It stands alone because two programs write it, with no word between them: a person's command and the host that runs.
//! A file that cannot be read is unknown, never "no pause" (HR-15): it holds for a day at most from when that was seen.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use meshplan_schemas::report::Paused;

use super::boot;
use super::checked::{self, Found, path};
use super::disk::{Disk, DiskError, atomic};
use crate::pure::pause::{LONGEST_SECS, Moment, PAUSE_VERSION, Pause, motd};

const FILE: &str = "/pause.json";
/// Shown by `pam_motd` to whoever logs in; gone with a restart of the machine, as is the host that keeps it.
const MOTD: &str = "run/motd.d/meshplan-pause";

/// What stands on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnDisk {
    /// None.
    None,
    /// A pause, over or not.
    Pause(Pause),
    /// Something that cannot be read, and why.
    Broken(String),
}

/// Reads it.
#[must_use]
pub fn read(disk: &dyn Disk) -> OnDisk {
    match checked::read(disk, &path(FILE)) {
        Found::Missing => OnDisk::None,
        Found::Broken(why) => OnDisk::Broken(why),
        Found::Whole(text) => match serde_json::from_str::<Pause>(&text) {
            Ok(pause) if pause.version == PAUSE_VERSION => OnDisk::Pause(pause),
            Ok(other) => OnDisk::Broken(format!("{FILE} is of version {}", other.version)),
            Err(error) => OnDisk::Broken(format!("{FILE} cannot be read by this build: {error}")),
        },
    }
}

/// Writes it, whole and synced, over one that stands.
///
/// # Errors
/// [`DiskError`].
pub fn write(disk: &dyn Disk, pause: &Pause) -> Result<(), DiskError> {
    let text = serde_json::to_string(pause).unwrap_or_default();
    checked::write(disk, &path(FILE), &text)
}

/// Takes it away.
///
/// # Errors
/// [`DiskError`].
pub fn remove(disk: &dyn Disk) -> Result<(), DiskError> {
    atomic::remove_file(disk, &path(FILE))
}

/// The pause that stands for one that cannot be read; written in its place, so that it ends.
#[must_use]
pub fn in_place_of_broken(disk: &dyn Disk, why: &str, at: Moment<'_>) -> Pause {
    let pause = Pause {
        version: PAUSE_VERSION,
        id: boot::instance(),
        from: at.now,
        until: at.now.saturating_add(LONGEST_SECS),
        why: format!("its file cannot be read ({why}), so it is not known when it ends"),
        boot_id: at.boot_id.to_owned(),
        from_boot_secs: at.since_boot_secs,
    };
    if let Err(error) = write(disk, &pause) {
        tracing::warn!(%error, "a pause that cannot be read cannot be replaced either");
    }
    pause
}

/// Has whoever logs in read that the machine is paused, or no longer.
///
/// # Errors
/// The file cannot be written or removed; nothing depends on it.
pub fn show(root: &Path, paused: Option<&Paused>) -> io::Result<()> {
    let file: PathBuf = root.join(MOTD);
    let Some(paused) = paused else {
        return match std::fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    };
    let words = motd(paused);
    if std::fs::read_to_string(&file).is_ok_and(|shown| shown == words) {
        return Ok(());
    }
    if let Some(folder) = file.parent().filter(|folder| !folder.exists()) {
        std::fs::create_dir_all(folder)?;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
    }
    std::fs::write(&file, words)?;
    // Whoever logs in reads it as themselves.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::disk::SimDisk;

    fn at(now: i64, since_boot_secs: i64) -> Moment<'static> {
        Moment {
            now,
            boot_id: "a",
            since_boot_secs,
        }
    }

    // holds: HR-17, HR-15
    #[test]
    fn a_pause_that_cannot_be_read_holds_and_ends_within_a_day() {
        let disk = SimDisk::new();
        assert_eq!(read(&disk), OnDisk::None);
        let pause = Pause::begin("p".into(), 60, "why", at(1000, 5)).unwrap();
        write(&disk, &pause).unwrap();
        assert_eq!(read(&disk), OnDisk::Pause(pause));
        disk.plant(&path(FILE), b"{", 0o600);
        let OnDisk::Broken(why) = read(&disk) else {
            panic!("it was read")
        };
        let stands = in_place_of_broken(&disk, &why, at(2000, 1005));
        assert_eq!(read(&disk), OnDisk::Pause(stands.clone()));
        assert_eq!(stands.left_secs(at(2000, 1005)), Some(LONGEST_SECS));
        assert_eq!(stands.left_secs(at(0, 1005 + LONGEST_SECS)), None);
        remove(&disk).unwrap();
        assert_eq!(read(&disk), OnDisk::None);
    }

    // holds: HR-17
    #[test]
    fn who_logs_in_reads_of_a_pause_until_it_is_over() {
        let root = tempfile::tempdir().unwrap();
        let paused = Paused {
            until: 0,
            why: "the disk is changed".into(),
        };
        show(root.path(), Some(&paused)).unwrap();
        show(root.path(), Some(&paused)).unwrap();
        let shown = std::fs::read_to_string(root.path().join(MOTD)).unwrap();
        assert!(
            shown.starts_with("meshplan is paused on this machine until 1970-01-01T00:00:00Z"),
            "{shown}"
        );
        assert!(shown.contains("the disk is changed"), "{shown}");
        show(root.path(), None).unwrap();
        show(root.path(), None).unwrap();
        assert!(!root.path().join(MOTD).exists());
    }
}
