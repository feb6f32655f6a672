//! The dead man of the open window (HR-13): armed before the first change, set anew when all is done, gone when the
//! window is.
//!
//! A machine that has none, or whose service manager refuses, works as before; that is said.

use super::{Machine, Window};
use crate::edge::deadline::DeadMan;

/// The dead man, and what has to be said about it.
#[derive(Default)]
pub(super) struct Guard {
    dead_man: Option<Box<dyn DeadMan>>,
    words: Option<String>,
    /// What was said last: one machine is not told twice what it lacks.
    said: Option<String>,
}

impl Machine {
    /// Who takes an open window back when this program cannot. What is left of one of before is put away.
    pub fn tell_dead_man(&mut self, dead_man: Box<dyn DeadMan>) {
        self.guard.dead_man = Some(dead_man);
        if self.window.is_none() {
            self.stand_down();
        }
    }

    /// Why the last window that was opened has no dead man; said once, until it is another reason.
    pub fn unguarded(&mut self) -> Option<String> {
        let words = self.guard.words.take();
        if words.is_none() || words == self.guard.said {
            return None;
        }
        self.guard.said.clone_from(&words);
        words
    }

    /// Arms the dead man for a window's deadline, unix seconds.
    pub(super) fn guard(&mut self, window: &Window, deadline: i64) {
        let Some(dead_man) = &self.guard.dead_man else {
            return;
        };
        let now = self.time.as_ref().map_or(window.opened_at, |time| time());
        let secs = u64::try_from(deadline.saturating_sub(now)).unwrap_or(0);
        self.guard.words = dead_man.arm(window, secs).err();
    }

    /// The window is closed. A dead man that cannot be put away finds that out by itself.
    pub(super) fn stand_down(&self) {
        if let Some(dead_man) = &self.guard.dead_man
            && let Err(error) = dead_man.disarm()
        {
            tracing::warn!(%error, "the timer of a closed window stays; it will find nothing to do");
        }
    }
}
