//! The way of a declaration on its node: queued, applying, awaiting confirm, then confirmed or back (HR-1, HR-5).

use meshplan_schemas::declaration::{Declaration, Mode};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ModuleName, ResourceName};
use meshplan_schemas::report::{
    DeclarationState, DeclarationStatus, Health, Outcome, ResourceLine, RollbackVerdict,
};

use super::{Agent, Applied, ApplyEnd, Basis, Busy, Effect, Job};
use crate::pure::confirm::{Change, Reason};
use crate::pure::known_bad::{Entry, blamed};
use crate::pure::orders::{Kept, Slot};

impl Agent {
    /// Begins the newest declaration, unless it has come to its end already.
    pub(super) fn next_declaration(&mut self, now: i64) {
        let Some(newest) = &self.orders.declaration else {
            return;
        };
        // A newer one was verified and its bytes were lost: it is asked for again, and nothing older begun meanwhile.
        let is_newest = self.marks.sequence.is_some_and(|m| m.digest == newest.digest);
        if self.standing.settled(&newest.digest) || !is_newest {
            return;
        }
        let newest = newest.clone();
        let sequence = newest.payload.sequence;
        if let Some(why) = self.known_bad.refuses(&newest.payload) {
            self.journal("declaration.known-bad", Some(sequence), why.clone());
            self.declaration_status(&newest, DeclarationState::KnownBad, why, now);
            return;
        }
        if let Some(why) = self.pause_keeps() {
            return self.queue(&newest, why, now);
        }
        if let Some((_, fault)) = self.unfetched.take_if(|(order, _)| *order == newest.digest) {
            return self.end_unfetched(newest, fault, now);
        }
        if !self.is_stocked(&newest, now) {
            return;
        }
        if let Some(why) = self.shut(newest.payload.urgent, now) {
            return self.queue(&newest, why, now);
        }
        if self.known_bad.lift(&newest.payload.again) {
            self.effects.push(Effect::SaveKnownBad);
        }
        self.journal("declaration.applying", Some(sequence), "");
        self.effects.push(Effect::Keep(Slot::Trying, newest.text.clone()));
        self.orders.trying = Some(newest.clone());
        self.declaration_status(&newest, DeclarationState::Applying, String::new(), now);
        // The intent is on disk before the first act.
        self.effects.push(Effect::SaveStanding);
        if std::mem::take(&mut self.ledger_lost) {
            let confirmed = self.orders.confirmed.as_ref();
            let basis = if confirmed.is_some_and(|c| c.digest == newest.digest) {
                Basis::Confirmed
            } else {
                Basis::Untried
            };
            self.effects
                .push(Effect::Machine(Job::Rebuild(Box::new(newest.clone()), basis)));
        }
        self.busy = Busy::Applying(Change::Declaration {
            sequence,
            digest: newest.digest,
        });
        self.effects.push(Effect::Machine(Job::Apply(Box::new(newest))));
    }

    /// It waits; why is said once.
    fn queue(&mut self, newest: &Kept<Declaration>, why: String, now: i64) {
        let status = self.standing.declaration.as_ref();
        let said = status.is_some_and(|s| s.digest == newest.digest && s.reason == why);
        if !said {
            self.journal("declaration.queued", Some(newest.payload.sequence), why.clone());
            self.declaration_status(newest, DeclarationState::Queued, why, now);
        }
    }

    /// Whether what its archives and bundles are made of is here; else that is fetched first (HR-14).
    fn is_stocked(&mut self, newest: &Kept<Declaration>, now: i64) -> bool {
        let digest = newest.digest;
        if newest.payload.artifacts.is_empty() || self.stocked == Some(digest) {
            return true;
        }
        if self.fetching != Some(digest) {
            self.fetching = Some(digest);
            let why = "what its archives and bundles are made of is fetched first";
            self.journal("declaration.fetching", Some(newest.payload.sequence), why);
            self.declaration_status(newest, DeclarationState::Queued, why.to_owned(), now);
            self.effects.push(Effect::Fetch(Box::new(newest.clone())));
        }
        false
    }

    /// What an order needs is here, or cannot be had: then it is not begun.
    pub(super) fn fetched(&mut self, order: Digest, fault: Option<String>) {
        if self.fetching != Some(order) {
            return;
        }
        self.fetching = None;
        match fault {
            None => self.stocked = Some(order),
            Some(fault) => self.unfetched = Some((order, fault)),
        }
    }

    /// Ends an order whose artifacts cannot be had, untouched.
    fn end_unfetched(&mut self, newest: Kept<Declaration>, fault: String, now: i64) {
        let change = Change::Declaration {
            sequence: newest.payload.sequence,
            digest: newest.digest,
        };
        self.effects.push(Effect::Keep(Slot::Trying, newest.text.clone()));
        self.orders.trying = Some(newest);
        self.blamed_and_closed(change, Reason::NotBegun(fault), now);
    }

    pub(super) fn declaration_applied(&mut self, change: Change, applied: Applied, now: i64) {
        let Some(trying) = self.orders.trying.clone() else {
            return;
        };
        self.standing.lines = applied.lines;
        self.standing.held = applied.held;
        match applied.end {
            ApplyEnd::Converged => {
                self.declaration_closed(None, now);
                if let Some(status) = &mut self.standing.declaration {
                    status.converged = true;
                }
            }
            ApplyEnd::Observed => {
                self.declaration_closed(None, now);
                if let Some(status) = &mut self.standing.declaration {
                    "observe: nothing was changed, what would change is listed"
                        .clone_into(&mut status.reason);
                }
            }
            ApplyEnd::WindowOpen => {
                self.declaration_status(&trying, DeclarationState::AwaitingConfirm, String::new(), now);
                self.open_window(change, trying.payload.confirm_secs, now);
            }
            ApplyEnd::Reverted(reason) => self.blamed_and_closed(change, reason, now),
            ApplyEnd::NotBegun(why) => self.blamed_and_closed(change, Reason::NotBegun(why), now),
        }
    }

    /// The end: it stays, or the last confirmed one stands again.
    pub(super) fn declaration_closed(&mut self, reason: Option<Reason>, now: i64) {
        let Some(trying) = self.orders.trying.take() else {
            return;
        };
        match reason {
            None => self.declaration_stays(trying, now),
            Some(reason) => self.declaration_went_back(&trying, &reason, now),
        }
        // The end is on disk before what was tried is forgotten: a start between finds it settled.
        self.effects.push(Effect::SaveStanding);
        self.effects.push(Effect::Drop(Slot::Trying));
        self.count_failures();
        self.next_reconcile = self.next_look(now);
    }

    fn declaration_stays(&mut self, trying: Kept<Declaration>, now: i64) {
        let sequence = trying.payload.sequence;
        self.effects
            .push(Effect::Keep(Slot::Confirmed, trying.text.clone()));
        self.standing.left_out = trying.payload.left_out.iter().map(|l| l.module.clone()).collect();
        self.standing.end_module_verdicts();
        self.orders.confirmed = Some(trying.clone());
        // Its roles choose the overlays of policy (SG-2).
        self.read_duties();
        let failed = failed_lines(&self.standing.lines);
        if failed.is_empty() {
            self.journal("declaration.confirmed", Some(sequence), "");
            self.declaration_status(&trying, DeclarationState::Confirmed, String::new(), now);
        } else {
            // Only with `on_failure = "keep"`: what was done stays, and what failed is tried again with drift.
            self.journal("declaration.failed", Some(sequence), failed.clone());
            self.declaration_status(&trying, DeclarationState::Failed, failed, now);
        }
    }

    fn declaration_went_back(&mut self, trying: &Kept<Declaration>, reason: &Reason, now: i64) {
        self.journal(
            "declaration.reverted",
            Some(trying.payload.sequence),
            reason.to_string(),
        );
        self.declaration_status(trying, DeclarationState::Reverted, reason.to_string(), now);
    }

    pub(super) fn blame_declaration(&mut self, reason: &Reason, now: i64) {
        let Some(trying) = self.orders.trying.clone() else {
            return;
        };
        let confirmed = self.orders.confirmed.as_ref().map(|c| &c.payload);
        let at_fault = self.at_fault(reason);
        let modules = blamed(&trying.payload, confirmed, at_fault.as_ref());
        let former = |module: &ModuleName| {
            confirmed
                .and_then(|c| c.modules.iter().find(|m| m.module == *module))
                .map_or_else(|| "nothing".to_owned(), |m| m.digest.to_string())
        };
        let verdicts: Vec<RollbackVerdict> = modules
            .iter()
            .map(|(module, digest)| RollbackVerdict {
                component: module.to_string(),
                from: digest.to_string(),
                to: former(module),
                outcome: "rolled-back".to_owned(),
                why: reason.to_string(),
                at: now,
            })
            .collect();
        for verdict in verdicts {
            self.standing.verdict(verdict);
        }
        if reason.blames_content() {
            for (module, digest) in modules {
                let entry = Entry {
                    component: module.to_string(),
                    why: reason.to_string(),
                    at: now,
                };
                self.known_bad.remember(digest, entry);
            }
            self.effects.push(Effect::SaveKnownBad);
        }
    }

    /// It was blamed, and stays all the same: somebody else decided first.
    pub(super) fn absolve(&mut self) {
        let modules = self.orders.trying.iter().flat_map(|t| &t.payload.modules);
        let contents: Vec<_> = modules.map(|m| m.digest).collect();
        if self.known_bad.lift(&contents) {
            self.effects.push(Effect::SaveKnownBad);
        }
    }

    /// Drift was looked for, and put right where there was any.
    pub(super) fn repaired(&mut self, applied: Applied, now: i64) {
        let failed_before = !failed_lines(&self.standing.lines).is_empty();
        let news = applied.lines != self.standing.lines && (failed_before || !applied.lines.is_empty());
        if news {
            let known = &self.standing.lines;
            let new: Vec<_> = applied
                .lines
                .iter()
                .filter(|l| !known.contains(l))
                .cloned()
                .collect();
            for line in new {
                let words = format!("{}: {:?} {}", line.name, line.outcome, line.reason);
                self.journal("drift", None, words);
            }
        }
        self.changed |= news || applied.held != self.standing.held;
        self.standing.lines = applied.lines;
        self.standing.held = applied.held;
        self.count_failures();
        self.next_reconcile = self.next_look(now);
        let mended = failed_before && !applied.failed && failed_lines(&self.standing.lines).is_empty();
        if let Some(status) = self
            .standing
            .declaration
            .as_mut()
            .filter(|d| mended && d.state == DeclarationState::Failed)
        {
            status.state = DeclarationState::Confirmed;
            status.since = now;
            status.reason.clear();
        }
    }

    /// Has what is nobody's here listed.
    pub(super) fn list_strays(&mut self) {
        let standing = self
            .orders
            .confirmed
            .as_ref()
            .or(self.orders.declaration.as_ref());
        if let Some(kept) = standing.cloned() {
            self.effects.push(Effect::Machine(Job::Strays(Box::new(kept))));
        }
    }

    /// Told with the next report, whatever that is about: they come and go on machines where people work.
    pub(super) fn strays_listed(&mut self, strays: Vec<String>) {
        if self.standing.strays != strays {
            self.standing.strays = strays;
            self.effects.push(Effect::SaveStanding);
        }
    }

    /// The module whose probe or resource said no.
    fn at_fault(&self, reason: &Reason) -> Option<ModuleName> {
        match reason {
            Reason::Probe(_) => self
                .standing
                .probes
                .iter()
                // What is only looked at was not changed.
                .find(|p| p.health == Health::Unhealthy && !self.only_observed(&p.name.module))
                .map(|p| p.name.module.clone()),
            // Its words begin with the resource's name; after a crash nothing else is left.
            Reason::Resource(words) => {
                let name: ResourceName = words.split_once(": ")?.0.parse().ok()?;
                Some(name.module)
            }
            Reason::NoLink | Reason::CannotTell(_) | Reason::Interrupted(_) | Reason::NotBegun(_) => None,
        }
    }

    /// How often in a row something was left failed (FR-7: what failed is tried again at the policy's pace).
    pub(super) fn count_failures(&mut self) {
        let failed = !failed_lines(&self.standing.lines).is_empty();
        self.failures = if failed {
            self.failures.saturating_add(1)
        } else {
            0
        };
    }

    fn only_observed(&self, module: &ModuleName) -> bool {
        let trying = self.orders.trying.iter().flat_map(|t| &t.payload.modules);
        trying
            .filter(|entry| entry.module == *module)
            .any(|entry| entry.mode == Mode::Observe)
    }

    pub(super) fn declaration_status(
        &mut self,
        kept: &Kept<Declaration>,
        state: DeclarationState,
        reason: String,
        now: i64,
    ) {
        let confirmed = self.orders.confirmed.as_ref();
        self.standing.declaration = Some(DeclarationStatus {
            sequence: kept.payload.sequence,
            digest: kept.digest,
            state,
            since: now,
            reason,
            confirmed_sequence: confirmed.map_or(0, |c| c.payload.sequence),
            confirmed_digest: confirmed.map(|c| c.digest),
            converged: false,
        });
        self.changed = true;
    }
}

fn failed_lines(lines: &[ResourceLine]) -> String {
    let failed: Vec<String> = lines
        .iter()
        .filter(|l| l.outcome == Outcome::Failed)
        .map(|l| format!("{}: {}", l.name, l.reason))
        .collect();
    failed.join("; ")
}
