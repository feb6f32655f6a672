//! A pause of this machine (HR-17): what is under way goes on to its end, and nothing else is begun.
//!
//! It stands alone because a pause is no state of an order: orders are taken, judged and kept as ever, lists and rotations
//! are in force at once, reports go out. Only what would change the machine waits: a declaration, an epoch, drift.

use meshplan_schemas::report::{Paused, ResourceLine};

use super::Agent;
use crate::pure::pause::{Known, Seen};

/// By so much two readings of one end may differ: both clocks are read in whole seconds.
const READ_SECS: u64 = 2;

impl Agent {
    /// What is seen of a pause on this machine; it counts from the next event on.
    pub fn tell_pause(&mut self, seen: Seen) {
        self.pause = seen;
    }

    /// The pause that holds.
    #[must_use]
    pub fn paused(&self) -> Option<&Paused> {
        self.paused.as_ref()
    }

    pub(super) fn take_pause(&mut self) {
        match self.pause.clone() {
            Seen::Holds { id, paused } => self.pause_holds(id, paused),
            Seen::Over => self.pause_ends("its time is over"),
            Seen::None => self.pause_ends("resumed on this machine"),
        }
    }

    fn pause_holds(&mut self, id: String, paused: Paused) {
        match &self.standing.pause {
            // A clock that was set back begins no pause anew.
            Some(known) if known.id == id && known.over => return,
            Some(known) if known.id == id => {}
            Some(_) | None => {
                self.journal("pause.begun", None, words(&paused));
                self.standing.pause = Some(Known { id, over: false });
                self.changed = true;
                self.paused = Some(paused);
                return;
            }
        }
        let same = self
            .paused
            .as_ref()
            .is_some_and(|known| known.why == paused.why && known.until.abs_diff(paused.until) <= READ_SECS);
        if !same {
            self.paused = Some(paused);
        }
    }

    fn pause_ends(&mut self, why: &str) {
        self.paused = None;
        if let Some(known) = self.standing.pause.as_mut().filter(|known| !known.over) {
            known.over = true;
            self.journal("pause.over", None, why);
            self.changed = true;
        }
    }

    /// A way back that was barred was tried again: what is still not back is said, and so is that all is.
    pub(super) fn finished(&mut self, lines: Option<Vec<ResourceLine>>) {
        let Some(lines) = lines.filter(|lines| *lines != self.standing.lines) else {
            return;
        };
        let words = match lines.len() {
            0 => "all is back".to_owned(),
            more => format!("{more} of it cannot be put back yet"),
        };
        self.journal("window.walked-back", None, words);
        self.standing.lines = lines;
        self.changed = true;
        self.count_failures();
    }

    /// Why nothing is begun now; none where no pause holds.
    pub(super) fn pause_keeps(&self) -> Option<String> {
        let paused = self.paused.as_ref()?;
        Some(format!(
            "waits for the end of a pause on this machine, {}",
            words(paused)
        ))
    }
}

fn words(paused: &Paused) -> String {
    let until = jiff::Timestamp::from_second(paused.until)
        .map_or_else(|_| paused.until.to_string(), |at| at.to_string());
    format!("until {until} at the latest: {}", paused.why)
}
