//! What a full disk did not take: it is said, kept in memory, and tried again; the host goes on (B40).
//!
//! It stands alone because of one distinction: numbers must be on disk before anything follows, everything else may
//! be late. An order for which there is no room is refused before it is taken, so that its sender hears why.

use std::collections::BTreeMap;

use super::{RunError, Shell};
use crate::edge::disk::{Disk, DiskError};
use crate::edge::{machine, orders};
use crate::pure::orders::Slot;

/// So often an order is written at most: as the newest, as the one that is tried, as the confirmed one.
const COPIES: u64 = 3;
/// Room for numbers, standing and journal beside it.
const BESIDE_BYTES: u64 = 64 * 1024;
/// Files beside it.
const FILES: u64 = 8;

/// What is to be written again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unwritten {
    /// What a place should hold; none when it should be empty.
    slots: BTreeMap<Slot, Option<String>>,
    standing: bool,
    known_bad: bool,
}

/// In words what is lacking to keep an order of so many bytes; none when there is room, or nobody can tell.
pub(super) fn lacking(state: &dyn Disk, bytes: usize) -> Option<String> {
    let space = state.space(None).ok()?;
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    let need = bytes.saturating_mul(COPIES).saturating_add(BESIDE_BYTES);
    let free = space.free_bytes;
    if free < need {
        return Some(format!(
            "no space is left on the disk to keep it: it takes {need} bytes in the state folder, {free} are free"
        ));
    }
    let files = space.free_inodes.filter(|files| *files < FILES)?;
    Some(format!(
        "no space is left on the disk to keep it: it takes {FILES} files in the state folder, {files} can be made"
    ))
}

impl Shell {
    /// Writes; on a full disk once more with the room that is kept for this.
    pub(super) fn with_room(
        &mut self,
        write: impl Fn(&mut Self) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        match write(self) {
            Err(e) if e.is_no_room() => {
                machine::release_reserve(&*self.disk);
                write(self)
            }
            other => other,
        }
    }

    pub(super) fn put(&mut self, slot: Slot, text: Option<String>) -> Result<(), RunError> {
        let written = self.with_room(|shell| match &text {
            Some(text) => orders::keep(&*shell.disk, slot, text),
            None => orders::drop_slot(&*shell.disk, slot),
        });
        self.unwritten.slots.remove(&slot);
        if late(written)? {
            self.unwritten.slots.insert(slot, text);
        }
        Ok(())
    }

    pub(super) fn save_standing(&mut self) -> Result<(), RunError> {
        let written = self.with_room(|shell| orders::save_standing(&*shell.disk, shell.agent.standing()));
        self.unwritten.standing = late(written)?;
        Ok(())
    }

    pub(super) fn save_known_bad(&mut self) -> Result<(), RunError> {
        let written = self.with_room(|shell| orders::save_known_bad(&*shell.disk, shell.agent.known_bad()));
        self.unwritten.known_bad = late(written)?;
        Ok(())
    }

    /// Tries again what the disk did not take.
    pub(super) fn write_again(&mut self) -> Result<(), RunError> {
        let due = std::mem::take(&mut self.unwritten);
        for (slot, text) in due.slots {
            self.put(slot, text)?;
        }
        if due.standing {
            self.save_standing()?;
        }
        if due.known_bad {
            self.save_known_bad()?;
        }
        Ok(())
    }
}

/// Whether it has to be written later.
fn late(written: Result<(), DiskError>) -> Result<bool, RunError> {
    match written {
        Err(error) if error.is_no_room() => {
            tracing::error!(%error, "the disk is full; it is kept in memory and written as soon as there is room");
            Ok(true)
        }
        Err(error) => Err(error.into()),
        Ok(()) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::disk::SimDisk;

    // holds: B40, HR-14
    #[test]
    fn an_order_needs_room_for_every_copy_and_what_stands_beside_it() {
        let disk = SimDisk::new();
        assert_eq!(lacking(&disk, 1_000_000), None);
        disk.set_space(3_000_000, None);
        let words = lacking(&disk, 1_000_000).unwrap();
        assert!(
            words.contains("3065536 bytes") && words.contains("disk"),
            "{words}"
        );
        assert_eq!(lacking(&disk, 900_000), None);
        disk.set_space(1 << 30, Some(7));
        assert!(lacking(&disk, 1).unwrap().contains("7 can be made"));
    }
}
