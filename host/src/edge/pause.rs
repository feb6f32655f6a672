//! The pause of this machine on disk, and what whoever logs in reads of it (HR-17).
//!
//! It stands alone because two programs write it, with no word between them: a person's command and the host that runs.
//! A file that is damaged is unknown, never "no pause" (HR-15): it holds for a day at most from when that was seen. One that
//! cannot be read now says nothing: what was seen last holds on, and nothing is written for it.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use meshplan_schemas::report::Paused;

use super::boot;
use super::checked::{self, Found, path};
use super::disk::{Disk, DiskError, atomic};
use crate::pure::pause::{LONGEST_SECS, Moment, PAUSE_VERSION, Pause, Seen, motd};

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
    /// Something that was read and is no pause, and why.
    Broken(String),
    /// Something may stand there, and it could not be read now; why.
    Unread(String),
}

/// Reads it.
#[must_use]
pub fn read(disk: &dyn Disk) -> OnDisk {
    match checked::look(disk, &path(FILE)) {
        Err(error) => OnDisk::Unread(error.to_string()),
        Ok(Found::Missing) => OnDisk::None,
        Ok(Found::Broken(why)) => OnDisk::Broken(why),
        Ok(Found::Whole(text)) => match serde_json::from_str::<Pause>(&text) {
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

/// What a running host has seen of the pause, from look to look.
#[derive(Debug, Default)]
pub struct Watch {
    /// What was read last; none before anything was.
    last: Option<Option<Pause>>,
    /// What stands for one of which nothing is known: the same until something is read.
    stand_in: Option<Pause>,
    /// Why nothing could be read, as it was said.
    said: Option<String>,
}

impl Watch {
    /// Looks at it. One that is damaged is replaced by one of a day, so that it ends.
    pub fn look(&mut self, disk: &dyn Disk, at: Moment<'_>) -> Seen {
        let mut found = read(disk);
        if matches!(found, OnDisk::Broken(_)) {
            // A person may have begun another, or ended it, meanwhile: that is not written over.
            found = read(disk);
        }
        match found {
            OnDisk::None => self.was_read(None, at),
            OnDisk::Pause(pause) => self.was_read(Some(pause), at),
            OnDisk::Unread(why) => {
                self.say(
                    &why,
                    "whether there is a pause cannot be read; what was seen last counts",
                );
                match &self.last {
                    Some(last) => seen(last.as_ref(), at),
                    None => self.stand_in(&why, at).seen(at),
                }
            }
            OnDisk::Broken(why) => {
                let is_new = self.say(&why, "a pause is damaged; it is taken for one of a day");
                let pause = self.stand_in(&why, at);
                match write(disk, &pause) {
                    Err(error) if is_new => {
                        tracing::warn!(%error, "a pause that is damaged cannot be replaced either");
                    }
                    _ => {}
                }
                self.last = Some(Some(pause.clone()));
                pause.seen(at)
            }
        }
    }

    fn was_read(&mut self, pause: Option<Pause>, at: Moment<'_>) -> Seen {
        (self.stand_in, self.said) = (None, None);
        let now = seen(pause.as_ref(), at);
        self.last = Some(pause);
        now
    }

    /// Said once, however often it is seen; whether it is new.
    fn say(&mut self, why: &str, words: &'static str) -> bool {
        if self.said.as_deref() == Some(why) {
            return false;
        }
        tracing::error!(why, "{words}");
        self.said = Some(why.to_owned());
        true
    }

    fn stand_in(&mut self, why: &str, at: Moment<'_>) -> Pause {
        let begun = || Pause {
            version: PAUSE_VERSION,
            id: boot::instance(),
            from: at.now,
            until: at.now.saturating_add(LONGEST_SECS),
            why: format!("its file cannot be read ({why}), so it is not known when it ends"),
            boot_id: at.boot_id.to_owned(),
            from_boot_secs: at.since_boot_secs,
        };
        self.stand_in.get_or_insert_with(begun).clone()
    }
}

fn seen(pause: Option<&Pause>, at: Moment<'_>) -> Seen {
    pause.map_or(Seen::None, |pause| pause.seen(at))
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

    fn id(seen: &Seen) -> &str {
        match seen {
            Seen::Holds { id, .. } => id,
            other => panic!("it does not hold: {other:?}"),
        }
    }

    // holds: HR-17, HR-15
    #[test]
    fn a_pause_that_is_damaged_holds_and_ends_within_a_day() {
        let disk = SimDisk::new();
        let mut watch = Watch::default();
        assert_eq!(watch.look(&disk, at(1000, 5)), Seen::None);
        let pause = Pause::begin("p".into(), 60, "why", at(1000, 5)).unwrap();
        write(&disk, &pause).unwrap();
        assert_eq!(read(&disk), OnDisk::Pause(pause.clone()));
        assert_eq!(id(&watch.look(&disk, at(1000, 5))), "p");
        disk.plant(&path(FILE), b"{", 0o600);
        let stands = watch.look(&disk, at(2000, 1005));
        let OnDisk::Pause(written) = read(&disk) else {
            panic!("it was not replaced")
        };
        assert_eq!(id(&stands), written.id);
        assert_eq!(written.left_secs(at(2000, 1005)), Some(LONGEST_SECS));
        assert_eq!(written.left_secs(at(2000, 1005 + LONGEST_SECS)), None);
        remove(&disk).unwrap();
        assert_eq!(watch.look(&disk, at(2000, 1006)), Seen::None);
    }

    // holds: HR-17, HR-15
    #[test]
    fn one_that_can_be_neither_read_nor_replaced_is_one_pause_from_its_first_look_on() {
        let disk = SimDisk::new();
        disk.plant(&path(FILE), b"{", 0o600);
        disk.forbid(&path(FILE));
        let mut watch = Watch::default();
        let first = watch.look(&disk, at(1000, 5));
        for later in 1..10 {
            assert_eq!(id(&watch.look(&disk, at(1000, 5 + later))), id(&first));
        }
        assert_eq!(watch.look(&disk, at(1000, 5 + LONGEST_SECS)), Seen::Over);
        // Read again, and damaged again: that is another.
        disk.permit();
        remove(&disk).unwrap();
        assert_eq!(watch.look(&disk, at(1000, 50)), Seen::None);
        disk.plant(&path(FILE), b"{", 0o600);
        assert_ne!(id(&watch.look(&disk, at(1000, 60))), id(&first));
    }

    // holds: HR-17, HR-15
    #[test]
    fn one_that_cannot_be_read_now_counts_as_it_was_seen_last_and_nothing_is_written() {
        let disk = SimDisk::new();
        let (mut never, mut fresh) = (Watch::default(), Watch::default());
        assert_eq!(never.look(&disk, at(1000, 5)), Seen::None);
        // What cannot be read: a folder is in its place.
        let _folder = disk.at(&path(FILE));
        disk.begin();
        assert_eq!(never.look(&disk, at(1001, 6)), Seen::None);
        let first = fresh.look(&disk, at(1001, 6));
        assert_eq!(
            id(&fresh.look(&disk, at(1002, 7))),
            id(&first),
            "unknown is never none"
        );
        assert_eq!(disk.acts(), 0);

        let disk = SimDisk::new();
        let pause = Pause::begin("p".into(), 60, "why", at(1000, 5)).unwrap();
        write(&disk, &pause).unwrap();
        let mut watch = Watch::default();
        assert_eq!(id(&watch.look(&disk, at(1000, 5))), "p");
        remove(&disk).unwrap();
        let _folder = disk.at(&path(FILE));
        assert_eq!(id(&watch.look(&disk, at(1010, 15))), "p");
        assert_eq!(watch.look(&disk, at(1070, 75)), Seen::Over);
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
