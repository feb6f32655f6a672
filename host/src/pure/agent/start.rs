//! The start: what the machine found is brought together with what stood on disk (HR-13, HR-15).

use meshplan_schemas::digest::Digest;
use meshplan_schemas::report::{DeclarationState, Mark, ResourceLine};

use super::{Agent, Basis, Busy, Effect, Job, Purpose};
use crate::pure::commit_confirm::{Order, TakenBack};
use crate::pure::confirm::{Change, Reason, Window};
use crate::pure::orders::Slot;

/// What the machine found when it was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Started {
    /// How it stood with a window.
    pub window: StartedWindow,
    /// The digest of the declaration that the ledger has as confirmed.
    pub confirmed: Option<Digest>,
    /// The digest of the effective policy that the ledger has, and its epoch.
    pub policy: Option<(u64, Digest)>,
    /// The ledger is lost: why.
    pub ledger_lost: Option<String>,
    /// The last window that went back, however long ago.
    pub taken_back: Option<TakenBack>,
    /// State files that could not be read, in words: each is unknown, and asked for again.
    pub broken: Vec<String>,
}

/// How it stood with a window.
#[derive(Debug, Clone, PartialEq)]
pub enum StartedWindow {
    /// None was open.
    Clean,
    /// It awaits its confirm under this boot.
    StillOpen {
        /// About a declaration (with the digest of its payload), else about a policy.
        declaration: Option<Digest>,
        /// When it was opened.
        opened_at: i64,
        /// Its deadline.
        deadline: i64,
    },
    /// Everything is back.
    Reverted {
        /// Why.
        reason: Reason,
        /// A line per resource.
        lines: Vec<ResourceLine>,
    },
    /// It was confirmed; the clean-up was missing.
    Confirmed,
}

impl Agent {
    pub(super) fn started(&mut self, started: Started, now: i64) {
        self.busy = Busy::No;
        self.next_heartbeat = now.saturating_add(i64::from(self.heartbeat_secs));
        for words in &started.broken {
            self.journal("state.broken", None, words.clone());
        }
        if let Some(why) = &started.ledger_lost {
            self.journal("ledger.lost", None, why.clone());
            // With nothing confirmed to make it from, the next declaration is the one (HR-15).
            match self.orders.confirmed.clone() {
                Some(confirmed) => self.effects.push(Effect::Machine(Job::Rebuild(
                    Box::new(confirmed),
                    Basis::Confirmed,
                ))),
                None => self.ledger_lost = true,
            }
        }
        self.standing.policy = started.policy.map(|(_, digest)| digest);
        let ended = |agent: &Self| {
            agent
                .orders
                .trying
                .as_ref()
                .is_some_and(|t| agent.standing.settled(&t.digest))
        };
        if started.window == StartedWindow::Clean && ended(self) {
            self.orders.trying = None;
            self.effects.push(Effect::Drop(Slot::Trying));
        }
        let tried = self.standing.window.take().map(|w| (w.change, Some(w)));
        let tried = tried.or_else(|| self.interrupted().map(|change| (change, None)));
        match (started.window, tried) {
            (
                StartedWindow::StillOpen {
                    declaration,
                    opened_at,
                    deadline,
                },
                tried,
            ) => self.still_open(declaration, opened_at, deadline, tried, now),
            (StartedWindow::Reverted { reason, lines }, Some((change, former))) => {
                match former.and_then(|w| w.reverting) {
                    Some(known) => self.closed(change, Some(known), now),
                    None => self.blamed_and_closed(change, reason, now),
                }
                self.standing.lines = lines;
            }
            (StartedWindow::Reverted { reason, lines }, None) => {
                self.standing.lines = lines;
                self.journal("window.reverted", None, reason.to_string());
            }
            (StartedWindow::Confirmed | StartedWindow::Clean, Some((change, former))) => {
                let stays = match change {
                    Change::Declaration { digest, .. } => started.confirmed == Some(digest),
                    Change::Policy { epoch, digest } => {
                        started.policy.is_some() && started.policy == self.written(epoch, digest)
                    }
                };
                let back = started.taken_back.filter(|back| about(&back.order, &change));
                match (former.and_then(|w| w.reverting), back) {
                    _ if stays => self.closed(change, None, now),
                    (Some(known), _) => self.closed(change, Some(known), now),
                    (None, Some(back)) => self.blamed_and_closed(change, back.reason, now),
                    (None, None) => self.never_begun(change),
                }
            }
            (StartedWindow::Confirmed | StartedWindow::Clean, None) => {}
        }
        self.heal(started.confirmed, now);
        self.read_duties();
        let probes = self.probes();
        self.effects.push(Effect::AskProbes(Purpose::Start, probes));
    }

    /// The change that the former run of the host was in the middle of, by what it wrote before it began.
    fn interrupted(&self) -> Option<Change> {
        if let Some(trying) = &self.orders.trying {
            return Some(Change::Declaration {
                sequence: trying.payload.sequence,
                digest: trying.digest,
            });
        }
        use meshplan_schemas::lifecycle::epoch::EpochState::{AwaitingConfirm, Staged};
        let epoch = self.standing.epoch.as_ref()?;
        let digest = self.standing.epoch_digest?;
        matches!(epoch.state, Staged | AwaitingConfirm).then_some(Change::Policy {
            epoch: epoch.state_epoch,
            digest,
        })
    }

    /// A window under the same boot goes on, with the deadline that it had.
    fn still_open(
        &mut self,
        declaration: Option<Digest>,
        opened_at: i64,
        deadline: i64,
        tried: Option<(Change, Option<Window>)>,
        now: i64,
    ) {
        let same = |change: &Change| match change {
            Change::Declaration { digest, .. } => declaration == Some(*digest),
            Change::Policy { .. } => declaration.is_none(),
        };
        let known = tried.filter(|(change, _)| same(change));
        let held = match known.as_ref().map(|(change, _)| change) {
            Some(Change::Declaration { digest, .. }) => {
                self.orders.trying.as_ref().is_some_and(|t| t.digest == *digest)
            }
            Some(Change::Policy { digest, .. }) => self.orders.epochs.contains_key(digest),
            None => false,
        };
        let Some((change, former)) = known.filter(|_| held) else {
            // What is being judged is lost: it cannot be judged, so it does not stay.
            let reason = Reason::Interrupted("the order of the open window was lost on disk".to_owned());
            self.effects.push(Effect::Machine(Job::Revert(reason.clone())));
            let change = declaration.map_or(
                Change::Policy {
                    epoch: 0,
                    digest: Digest([0; 32]),
                },
                |digest| Change::Declaration { sequence: 0, digest },
            );
            self.busy = Busy::Closing(change, Some(reason));
            return;
        };
        let reverting = former.as_ref().and_then(|w| w.reverting.clone());
        let stopped = former.filter(|w| w.stopped_once);
        let deadline = stopped.as_ref().map_or(deadline, |w| w.deadline);
        let (mut window, effects) = Window::resume(change, opened_at, deadline, stopped.is_some(), now);
        self.serial += 1;
        window.reverting.clone_from(&reverting);
        window.by_probe = self.proven_by_probe(change);
        self.standing.window = Some(window);
        if let Some(reason) = reverting {
            return self.take_back(change, reason, now);
        }
        let effects = effects
            .into_iter()
            // The machine has its deadline already.
            .filter(|e| !matches!(e, crate::pure::confirm::Effect::Deadline(_)))
            .collect();
        self.window_effects(effects, now);
    }

    /// What the ledger has once the policy of this epoch is confirmed.
    fn written(&self, epoch: u64, digest: Digest) -> Option<(u64, Digest)> {
        let text = self.effective(digest)?;
        Some((epoch, Digest::of(text.as_bytes())))
    }

    /// It never came to the first act: it is begun again from the start.
    fn never_begun(&mut self, change: Change) {
        match change {
            Change::Declaration { .. } => {
                self.orders.trying = None;
                self.effects.push(Effect::Drop(Slot::Trying));
                self.standing.declaration = None;
            }
            Change::Policy { .. } => {
                self.standing.epoch = None;
                self.standing.epoch_digest = None;
            }
        }
    }

    /// Makes a lost standing anew from the orders and the ledger.
    fn heal(&mut self, confirmed: Option<Digest>, now: i64) {
        if self.standing.declaration.is_none()
            && let Some(kept) = self.orders.confirmed.clone()
        {
            self.declaration_status(&kept, DeclarationState::Confirmed, String::new(), now);
            self.changed = false;
        }
        // The newest one was confirmed and its copy as the confirmed one is lost.
        if self.orders.confirmed.is_none()
            && let Some(newest) = self.orders.declaration.clone()
            && confirmed == Some(newest.digest)
        {
            self.effects
                .push(Effect::Keep(Slot::Confirmed, newest.text.clone()));
            self.orders.confirmed = Some(newest.clone());
            self.declaration_status(&newest, DeclarationState::Confirmed, String::new(), now);
            self.changed = false;
        }
        let running = self.standing.running.is_none();
        if running && let Some(status) = &self.standing.epoch {
            let applied = status.state == meshplan_schemas::lifecycle::epoch::EpochState::Applied;
            if let (true, Some(digest)) = (applied, self.standing.epoch_digest) {
                self.standing.running = Some(Mark {
                    number: status.state_epoch,
                    digest,
                });
            }
        }
    }
}

/// Whether a window was about this change.
fn about(order: &Order, change: &Change) -> bool {
    match (order, change) {
        (Order::Declaration { digest, .. }, Change::Declaration { digest: tried, .. }) => digest == tried,
        (Order::Policy { epoch, .. }, Change::Policy { epoch: tried, .. }) => epoch == tried,
        (Order::Declaration { .. }, Change::Policy { .. })
        | (Order::Policy { .. }, Change::Declaration { .. }) => false,
    }
}
