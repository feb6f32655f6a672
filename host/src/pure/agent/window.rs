//! The open window between its decisions ([`crate::pure::confirm`]) and the machine, the link and the probes.

use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::report::{Cause, Health, ProbeLine};
use meshplan_schemas::resource::{Kind, Probe};

use super::{Agent, Busy, Effect, Job, Purpose};
use crate::pure::confirm::{self, Change, Probed, Window};

impl Agent {
    /// Opens the window of a change that is done.
    pub(super) fn open_window(&mut self, change: Change, confirm_secs: u32, now: i64) {
        let (mut window, effects) = Window::open(change, confirm_secs, now);
        window.by_probe = self.proven_by_probe(change);
        self.serial += 1;
        self.standing.window = Some(window);
        self.window_effects(effects, now);
    }

    /// Whether the order names a probe that this machine has: where the reconciler runs on it, that proves the way.
    pub(super) fn proven_by_probe(&self, change: Change) -> bool {
        let named = match change {
            Change::Declaration { digest, .. } => {
                let trying = self.orders.trying.as_ref().filter(|kept| kept.digest == digest);
                trying.and_then(|kept| kept.payload.confirm_probe.as_ref())
            }
            Change::Policy { digest, .. } => {
                let epoch = self.orders.epochs.get(&digest);
                epoch.and_then(|kept| kept.payload.confirm_probe.as_ref())
            }
        };
        named.is_some_and(|named| self.probes().iter().any(|(name, _)| name == named))
    }

    pub(super) fn window_event(&mut self, event: confirm::Event, now: i64) {
        if self.busy != Busy::No {
            return;
        }
        let Some(window) = &mut self.standing.window else {
            return;
        };
        let effects = window.on(event, now);
        self.window_effects(effects, now);
    }

    pub(super) fn window_effects(&mut self, effects: Vec<confirm::Effect>, now: i64) {
        let Some(window) = self.standing.window.clone() else {
            return;
        };
        for effect in effects {
            match effect {
                confirm::Effect::Renew => self.effects.push(Effect::Renew),
                confirm::Effect::AskProbes => self.ask_window_probes(now),
                confirm::Effect::Deadline(at) => {
                    self.effects.push(Effect::SaveStanding);
                    // On the machine it is set once; a clock that was stopped is remembered by the standing alone.
                    if !window.stopped_once {
                        self.effects.push(Effect::Machine(Job::Arm(at)));
                    }
                }
                confirm::Effect::Confirm => {
                    self.busy = Busy::Closing(window.change, None);
                    self.effects.push(Effect::Machine(Job::Confirm));
                }
                confirm::Effect::Revert(reason) => self.take_back(window.change, reason, now),
            }
        }
    }

    /// What failed here is remembered, and that it goes back, before the machine is told: a host that dies meanwhile
    /// knows it at its next start (B28).
    pub(super) fn take_back(&mut self, change: Change, reason: confirm::Reason, now: i64) {
        let known = self
            .standing
            .window
            .as_ref()
            .is_some_and(|w| w.reverting.is_some());
        if !known {
            self.blame(change, &reason, now);
            if let Some(window) = &mut self.standing.window {
                window.reverting = Some(reason.clone());
            }
            self.effects.push(Effect::SaveStanding);
        }
        self.effects.push(Effect::Machine(Job::Revert(reason.clone())));
        self.busy = Busy::Closing(change, Some(reason));
    }

    /// Says what went back and why, and remembers content that is to blame.
    pub(super) fn blame(&mut self, change: Change, reason: &confirm::Reason, now: i64) {
        match change {
            Change::Declaration { .. } => self.blame_declaration(reason, now),
            Change::Policy { epoch, digest } => self.blame_policy(epoch, digest, reason, now),
        }
    }

    fn ask_window_probes(&mut self, now: i64) {
        let probes = self.probes();
        if probes.is_empty() {
            self.window_event(confirm::Event::Probes(Probed::Passed), now);
        } else if self.asking != Some(self.serial) {
            self.asking = Some(self.serial);
            self.effects
                .push(Effect::AskProbes(Purpose::Window(self.serial), probes));
        }
    }

    /// One round of probes at a time, however many looks come: the newest is answered when it is over.
    pub(super) fn look(&mut self, id: u64) {
        if let Some((asked, _)) = self.looking {
            self.looking = Some((asked, Some(id)));
            return;
        }
        self.looking = Some((id, None));
        let probes = self.probes();
        self.effects.push(Effect::AskProbes(Purpose::Look(id), probes));
    }

    pub(super) fn probed(&mut self, purpose: Purpose, lines: Vec<ProbeLine>, now: i64) {
        self.standing.probes.clone_from(&lines);
        match purpose {
            Purpose::Window(serial) => {
                if serial == self.serial {
                    self.asking = None;
                    self.window_event(confirm::Event::Probes(together(&lines)), now);
                }
            }
            Purpose::Look(id) => {
                self.report(Cause::Look(id), now);
                if let Some((_, Some(next))) = self.looking.take() {
                    self.look(next);
                }
            }
            Purpose::Heartbeat => self.report(Cause::Heartbeat, now),
            Purpose::Start => {
                self.effects.push(Effect::SaveStanding);
                self.report(Cause::Start, now);
            }
        }
    }

    /// The probes of what stands on the machine now: of the declaration that is tried, else of the confirmed one.
    pub(super) fn probes(&self) -> Vec<(ResourceName, Probe)> {
        let Some(kept) = self.orders.trying.as_ref().or(self.orders.confirmed.as_ref()) else {
            return Vec::new();
        };
        kept.payload
            .resources
            .iter()
            .filter_map(|resource| match resource.read() {
                Ok(Kind::Probe(probe)) => Some((resource.name.clone(), probe)),
                _ => None,
            })
            .collect()
    }
}

/// What probes say together: a no is graver than "cannot tell", which is graver than yes.
fn together(lines: &[ProbeLine]) -> Probed {
    let words = |health: Health| {
        let said: Vec<String> = lines
            .iter()
            .filter(|l| l.health == health)
            .map(|l| format!("{}: {}", l.name, l.reason))
            .collect();
        (!said.is_empty()).then(|| said.join("; "))
    };
    match (words(Health::Unhealthy), words(Health::Unknown)) {
        (Some(no), _) => Probed::Failed(no),
        (None, Some(unknown)) => Probed::CannotTell(unknown),
        (None, None) => Probed::Passed,
    }
}
