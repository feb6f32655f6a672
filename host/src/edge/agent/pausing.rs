//! Looks for a pause on this machine before each decision, and keeps what whoever logs in reads of it (HR-17).

use super::Shell;
use crate::edge::pause::{self, OnDisk};
use crate::pure::pause::{Moment, Seen};

impl Shell {
    pub(super) fn look_for_pause(&mut self, now: i64) {
        let at = Moment {
            now,
            boot_id: &self.boot_id,
            since_boot_secs: self.clock.since_boot_secs(),
        };
        let seen = match pause::read(&*self.disk) {
            OnDisk::None => Seen::None,
            OnDisk::Pause(pause) => pause.seen(at),
            OnDisk::Broken(why) => {
                tracing::error!(why, "a pause cannot be read; it is taken for one of a day");
                pause::in_place_of_broken(&*self.disk, &why, at).seen(at)
            }
        };
        self.agent.tell_pause(seen);
    }

    /// Nothing depends on it: where it cannot be written the log says so, once.
    pub(super) fn show_pause(&mut self) {
        let paused = self.agent.paused().cloned();
        if self.shown.as_ref() == Some(&paused) {
            return;
        }
        if let Err(error) = pause::show(&self.setup.root, paused.as_ref()) {
            tracing::warn!(%error, "who logs in is not told of the pause as it is");
        }
        self.shown = Some(paused);
    }
}
