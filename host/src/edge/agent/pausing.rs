//! Looks for a pause on this machine before each decision, and keeps what whoever logs in reads of it (HR-17).

use super::Shell;
use crate::edge::pause;
use crate::pure::pause::Moment;

impl Shell {
    pub(super) fn look_for_pause(&mut self, now: i64) {
        let at = Moment {
            now,
            boot_id: &self.boot_id,
            since_boot_secs: self.clock.since_boot_secs(),
        };
        let seen = self.pause.look(&*self.disk, at);
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
