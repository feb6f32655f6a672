//! The way of an epoch on its node (EP-1, EP-2): received, staged, awaiting confirm, then applied or reverted.

use meshplan_schemas::digest::Digest;
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::policy;
use meshplan_schemas::report::{EpochStatus, Mark, RollbackVerdict};

use super::{Agent, Applied, ApplyEnd, Busy, Effect, Job};
use crate::pure::confirm::{Change, Reason};
use crate::pure::duties::Duties;
use crate::pure::epoch_choice::{self, Choice, Given, Wait};
use crate::pure::known_bad::Entry;
use crate::pure::standing::{POLICY, Waited};
use meshplan_schemas::wire::FromHost;

/// How long writing one policy file may take, in seconds.
const APPLY_SECS: u32 = 60;

impl Agent {
    pub(super) fn given_for_choice(&self) -> Given<'_> {
        let newest = self.orders.newest_epoch().map(|e| e.digest);
        Given {
            epochs: &self.orders.epochs,
            newest,
            running: self.standing.running.map(|m| m.digest),
            effective: self.standing.policy,
            node: self.node,
            roles: self.orders.roles(),
            class: self.orders.class(),
            pinned: self.orders.pinned(),
            grace_secs: self.orders.grace_secs(),
            waited: self.standing.left_behind,
            settled: self.standing.settled_epoch,
            known_bad: &self.known_bad,
        }
    }

    /// Does what the newest seen epoch asks for.
    pub(super) fn next_policy(&mut self, now: i64) {
        let confirmed_once = self
            .standing
            .declaration
            .as_ref()
            .and_then(|d| d.confirmed_digest);
        if confirmed_once.is_some() && self.orders.confirmed.is_none() {
            // The roles are lost with the confirmed declaration: unknown, never "no roles" (HR-15).
            return;
        }
        // The newest epoch alone says what may run: while it is not known which that is, what runs goes on (EP-3).
        let newest = self.orders.newest_epoch().map(|e| e.digest);
        if self.marks_lost || newest != self.marks.epoch.map(|m| m.digest) {
            return;
        }
        match epoch_choice::choose(&self.given_for_choice()) {
            Choice::Nothing => {}
            Choice::Want(digest) => {
                if self.link_up && self.wanted.insert(digest) {
                    self.effects
                        .push(Effect::Say(Box::new(FromHost::Want { digest })));
                }
            }
            Choice::LeftBehind { epoch, wait } => self.stay_behind(epoch, wait, now),
            Choice::Note(digest) => {
                let number = self.number(digest);
                self.standing.running = Some(Mark { number, digest });
                self.read_duties();
                self.journal(
                    "epoch.applied",
                    Some(number),
                    "nothing changes on this node; noted",
                );
                let reported = self.changed;
                self.epoch_status(number, Some(digest), EpochState::Applied, String::new(), now);
                // Its number goes with the next heartbeat (EP-3).
                self.changed = reported;
                self.effects.push(Effect::SaveStanding);
            }
            Choice::KnownBad { epoch, why } | Choice::Unreadable { epoch, why } => {
                let number = self.number(epoch);
                self.journal("epoch.rejected", Some(number), why.clone());
                self.epoch_status(number, Some(epoch), EpochState::Rejected, why, now);
            }
            Choice::Stage { epoch, text } => {
                let urgent = self.orders.epochs.get(&epoch).is_some_and(|e| e.payload.urgent);
                let Some(why) = self.pause_keeps().or_else(|| self.shut(urgent, now)) else {
                    return self.stage(epoch, text, now);
                };
                let said = self.epoch_stands(epoch, EpochState::Received)
                    && self.standing.epoch.as_ref().is_some_and(|s| s.reason == why);
                if !said {
                    let number = self.number(epoch);
                    self.journal("epoch.queued", Some(number), why.clone());
                    self.epoch_status(number, Some(epoch), EpochState::Received, why, now);
                }
            }
        }
    }

    /// It is kept for neighbours, and told as left behind; what it is counted from is on disk (UC-1).
    fn stay_behind(&mut self, digest: Digest, wait: Wait, now: i64) {
        if self
            .standing
            .left_behind
            .is_none_or(|waited| waited.epoch != digest)
        {
            self.standing.left_behind = Some(Waited {
                epoch: digest,
                secs: 0,
            });
            self.effects.push(Effect::SaveStanding);
        }
        if let Wait::Secs { left, .. } = wait {
            self.follows = Some(now.saturating_add(left.max(1)));
        }
        let why = wait.to_string();
        let said = self.epoch_stands(digest, EpochState::LeftBehind)
            && self.standing.epoch.as_ref().is_some_and(|s| s.reason == why);
        if !said {
            let number = self.number(digest);
            self.journal("epoch.left-behind", Some(number), why.clone());
            self.epoch_status(number, Some(digest), EpochState::LeftBehind, why, now);
        }
    }

    /// Time that went by while this host ran counts for an epoch that it waits for; time in which a clock was set does
    /// not, and none while it was stopped.
    pub(super) fn count_wait(&mut self, now: i64) {
        let went_by = now.saturating_sub(self.counted_at).max(0);
        self.counted_at = now;
        if let Some(waited) = &mut self.standing.left_behind {
            waited.secs = waited.secs.saturating_add(went_by);
        }
    }

    fn stage(&mut self, digest: Digest, text: String, now: i64) {
        let number = self.number(digest);
        let again = self
            .orders
            .epochs
            .get(&digest)
            .map(|e| e.payload.again.clone())
            .unwrap_or_default();
        if self.known_bad.lift(&again) {
            self.effects.push(Effect::SaveKnownBad);
        }
        self.journal("epoch.staged", Some(number), "");
        self.epoch_status(number, Some(digest), EpochState::Staged, String::new(), now);
        self.effects.push(Effect::SaveStanding);
        self.busy = Busy::Applying(Change::Policy {
            epoch: number,
            digest,
        });
        self.effects.push(Effect::Machine(Job::ApplyPolicy {
            epoch: number,
            text,
            apply_secs: APPLY_SECS,
        }));
    }

    pub(super) fn policy_applied(&mut self, change: Change, applied: Applied, now: i64) {
        let Change::Policy { epoch, digest } = change else {
            return;
        };
        match applied.end {
            ApplyEnd::Converged | ApplyEnd::Observed => self.policy_closed(epoch, digest, None, now),
            ApplyEnd::WindowOpen => {
                self.epoch_status(
                    epoch,
                    Some(digest),
                    EpochState::AwaitingConfirm,
                    String::new(),
                    now,
                );
                let confirm_secs = self
                    .orders
                    .epochs
                    .get(&digest)
                    .map_or(APPLY_SECS, |e| e.payload.confirm_secs);
                self.open_window(change, confirm_secs, now);
            }
            ApplyEnd::Reverted(reason) => self.blamed_and_closed(change, reason, now),
            ApplyEnd::NotBegun(why) => self.blamed_and_closed(change, Reason::NotBegun(why), now),
        }
    }

    pub(super) fn policy_closed(&mut self, epoch: u64, digest: Digest, reason: Option<Reason>, now: i64) {
        let Some(reason) = reason else {
            self.standing.running = Some(Mark {
                number: epoch,
                digest,
            });
            self.read_duties();
            self.standing.policy = self.effective(digest).map(|text| Digest::of(text.as_bytes()));
            self.standing.end_policy_verdict();
            self.journal("epoch.applied", Some(epoch), "");
            self.epoch_status(epoch, Some(digest), EpochState::Applied, String::new(), now);
            self.next_reconcile = self.next_look(now);
            return;
        };
        let why = reason.to_string();
        self.journal("epoch.reverted", Some(epoch), why.clone());
        self.epoch_status(epoch, Some(digest), EpochState::Reverted, why, now);
    }

    pub(super) fn blame_policy(&mut self, epoch: u64, digest: Digest, reason: &Reason, now: i64) {
        let why = reason.to_string();
        let content = self
            .orders
            .epochs
            .get(&digest)
            .map(|e| Digest::of(e.payload.policy.as_bytes()));
        let former = self
            .standing
            .running
            .map_or_else(|| "nothing".to_owned(), |m| m.number.to_string());
        self.standing.verdict(RollbackVerdict {
            component: POLICY.to_owned(),
            from: epoch.to_string(),
            to: former,
            outcome: "rolled-back".to_owned(),
            why: why.clone(),
            at: now,
        });
        if let (true, Some(content)) = (reason.blames_content(), content) {
            let entry = Entry {
                component: POLICY.to_owned(),
                why,
                at: now,
            };
            self.known_bad.remember(content, entry);
            self.effects.push(Effect::SaveKnownBad);
        }
    }

    fn number(&self, digest: Digest) -> u64 {
        self.orders.epochs.get(&digest).map_or(0, |e| e.payload.epoch)
    }

    pub(super) fn effective(&self, digest: Digest) -> Option<String> {
        let kept = self.orders.epochs.get(&digest)?;
        let policy = policy::parse(&kept.payload.policy).ok()?;
        Some(policy.effective_text(self.orders.roles()))
    }

    /// Reads anew what the policy that runs asks of the host; what this build cannot read asks nothing of it, and was
    /// refused when it was new.
    pub(super) fn read_duties(&mut self) {
        let text = self.standing.running.and_then(|m| self.effective(m.digest));
        self.duties = text.and_then(|text| Duties::of(&text).ok()).unwrap_or_default();
    }

    /// `scheduler.reconcile_secs` of the command line, else of the policy that runs, else the default (FR-7).
    pub(super) fn reconcile_secs(&self) -> u32 {
        self.reconcile_secs.unwrap_or(self.duties.reconcile_secs).max(1)
    }

    /// When drift is looked for next.
    pub(super) fn next_look(&self, now: i64) -> i64 {
        let pause = self
            .duties
            .pause_secs(self.reconcile_secs(), self.failures, self.node, now);
        now.saturating_add(i64::from(pause))
    }

    /// Why an order is not begun now: no maintenance window is open and it is not urgent (FR-7). A change that is under
    /// way goes on, and so does putting drift right.
    pub(super) fn shut(&mut self, urgent: bool, now: i64) -> Option<String> {
        let opens = self.duties.opens(now).filter(|_| !urgent)?;
        self.opens = Some(self.opens.map_or(opens, |before| before.min(opens)));
        let at = jiff::Timestamp::from_second(opens).map_or_else(|_| opens.to_string(), |at| at.to_string());
        Some(format!("waits for the maintenance window that opens at {at}"))
    }

    fn epoch_stands(&self, digest: Digest, state: EpochState) -> bool {
        self.standing.epoch_digest == Some(digest)
            && self.standing.epoch.as_ref().is_some_and(|s| s.state == state)
    }

    pub(super) fn epoch_status(
        &mut self,
        number: u64,
        digest: Option<Digest>,
        state: EpochState,
        reason: String,
        now: i64,
    ) {
        let received = digest.and_then(|d| self.standing.received.get(&d));
        self.standing.epoch = Some(EpochStatus {
            state_epoch: number,
            state,
            reason,
            received_via: received.map_or_else(|| "reconciler".to_owned(), |r| r.via.clone()),
            received_at: received.map_or(now, |r| r.at),
            update_class: self.orders.class(),
            running: self.standing.running.map_or(0, |m| m.number),
        });
        self.standing.epoch_digest = digest;
        // An order that was refused has no digest here: it un-settles nothing.
        if digest.is_some() && matches!(state, EpochState::Reverted | EpochState::Rejected) {
            self.standing.settled_epoch = digest;
        }
        self.changed = true;
    }
}
