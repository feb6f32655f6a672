//! Orders come in: judged, kept, noted. What is done about them is decided when nothing is being done.

use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::epoch::Epoch;
use meshplan_schemas::fleet_list::{FleetHead, ProvenLeaf};
use meshplan_schemas::lifecycle::epoch::EpochState;
use meshplan_schemas::report::{Mark, Marks};

use super::{Agent, Busy, Effect};
use crate::pure::admit::{self, Admission, Bench, Refused, Source};
use crate::pure::confirm::Change;
use crate::pure::epoch_choice;
use crate::pure::orders::{Anchor, Kept, Slot};
use crate::pure::standing::Received;

impl Agent {
    pub(super) fn order(&mut self, text: &str, now: i64) {
        let anchor = self.orders.anchor(self.anchor.as_ref());
        let admission = admit::admit(
            text,
            &Bench {
                fleet: &self.fleet,
                node: self.node,
                version: &self.version,
                marks: &self.marks,
                marks_lost: self.marks_lost,
                anchor: anchor.as_ref(),
                orders: &self.orders,
                source: Source::Session,
                now,
                trusted_now: self.clock_trusted(now).and_then(|right| right.then_some(now)),
            },
        );
        let admission = match self.lacking.take() {
            Some(lacking) => admit::without_room(admission, text, lacking),
            None => admission,
        };
        match admission {
            Admission::Duplicate => {}
            Admission::Refused(refused) => self.refuse(&refused, now),
            Admission::Head(head) => self.head(*head),
            Admission::Timestamp(timestamp) => {
                let mark = Mark {
                    number: u64::try_from(timestamp.payload.issued_at).unwrap_or(0),
                    digest: timestamp.digest,
                };
                self.marks.timestamp = Some(mark);
                self.save_marks(timestamp.payload.era);
                self.effects
                    .push(Effect::Keep(Slot::Timestamp, timestamp.text.clone()));
                self.orders.timestamp = Some(*timestamp);
            }
            Admission::Epoch(epoch) => self.epoch(*epoch, now),
            Admission::Declaration(declaration) => {
                let (sequence, digest) = (declaration.payload.sequence, declaration.digest);
                self.marks.sequence = Some(Mark {
                    number: sequence,
                    digest,
                });
                self.save_marks(declaration.payload.era);
                self.effects
                    .push(Effect::Keep(Slot::Declaration, declaration.text.clone()));
                self.set_aside();
                self.journal("declaration.received", Some(sequence), "");
                self.orders.declaration = Some((*declaration).clone());
                self.heal_confirmed(*declaration);
            }
        }
    }

    /// The bytes of the confirmed declaration were lost and have come again.
    fn heal_confirmed(&mut self, kept: Kept<Declaration>) {
        let confirmed = self
            .standing
            .declaration
            .as_ref()
            .and_then(|d| d.confirmed_digest);
        if self.orders.confirmed.is_none() && confirmed == Some(kept.digest) {
            self.effects
                .push(Effect::Keep(Slot::Confirmed, kept.text.clone()));
            self.orders.confirmed = Some(kept);
        }
    }

    /// The reconciler has sent all that was missing: what is held is the newest, whatever the disk had lost.
    pub(super) fn current(&mut self) {
        if self.marks_lost {
            self.journal(
                "marks.rebuilt",
                None,
                "from the orders that are held, confirmed by a reconciler's session",
            );
            self.save_marks(self.marks.era);
        }
    }

    /// A declaration that waited and is overtaken never runs: said, as the highest sequence counts (HR-1).
    fn set_aside(&mut self) {
        let Some(waiting) = &self.orders.declaration else {
            return;
        };
        let tried = self
            .orders
            .trying
            .as_ref()
            .is_some_and(|t| t.digest == waiting.digest);
        if !tried && !self.standing.settled(&waiting.digest) {
            let sequence = waiting.payload.sequence;
            self.journal(
                "declaration.set-aside",
                Some(sequence),
                "a newer one came while it waited",
            );
        }
    }

    fn refuse(&mut self, refused: &Refused, now: i64) {
        self.refusal(refused);
        // Of an epoch that an author of this fleet signed, and that only this host cannot take, the state is told
        // under its number (EP-1); of a forgery nothing is believed.
        if refused.authentic
            && refused.order == "epoch"
            && let Some(number) = refused.number
        {
            self.epoch_status(number, None, EpochState::Rejected, refused.reason(), now);
        }
    }

    fn refusal(&mut self, refused: &Refused) {
        self.journal(
            &format!("{}.refused", refused.order),
            refused.number,
            refused.reason(),
        );
        self.standing.refuse(refused.line());
        self.changed = true;
    }

    fn head(&mut self, head: Kept<FleetHead>) {
        let revision = head.payload.revision;
        self.marks.revision = Some(Mark {
            number: revision,
            digest: head.digest,
        });
        self.anchor = Some(Anchor::of(&head.payload));
        self.save_marks(head.payload.era);
        let former = self.orders.head.replace(head.clone());
        // The oldest one that a session has worked under is the one to go back to, not the last in a row.
        if let (Some(former), None) = (former, &self.orders.former_head) {
            self.effects
                .push(Effect::Keep(Slot::FormerHead, former.text.clone()));
            self.orders.former_head = Some(former);
        }
        self.effects.push(Effect::Keep(Slot::Head, head.text));
        self.journal("list.received", Some(revision), "");
    }

    pub(super) fn record(&mut self, proof: ProvenLeaf, _now: i64) {
        let head = self.orders.head.as_ref().map(|h| &h.payload);
        match admit::record(&proof, head, self.node) {
            Err(refused) => self.refusal(&refused),
            Ok(leaf) => {
                if let Ok(text) = serde_json::to_string(&proof) {
                    self.effects.push(Effect::Keep(Slot::Record, text));
                }
                self.orders.record = Some((proof, leaf));
            }
        }
    }

    fn epoch(&mut self, epoch: Kept<Epoch>, now: i64) {
        let (number, digest, era) = (epoch.payload.epoch, epoch.digest, epoch.payload.era);
        let newer = self.marks.epoch.is_none_or(|m| number > m.number) || era > self.marks.era;
        if newer {
            self.marks.epoch = Some(Mark { number, digest });
            self.save_marks(era);
        }
        self.effects
            .push(Effect::Keep(Slot::Epoch(digest), epoch.text.clone()));
        self.standing.received.insert(
            digest,
            Received {
                via: "reconciler".to_owned(),
                at: now,
            },
        );
        self.orders.epochs.insert(digest, epoch);
        self.journal("epoch.received", Some(number), "via reconciler");
        self.effects.push(Effect::SaveStanding);
        self.forget_epochs();
    }

    /// Drops the epochs that nothing names any more.
    fn forget_epochs(&mut self) {
        let mut needed = epoch_choice::needed(&self.given_for_choice());
        // What is being judged is needed to its end, whatever newer one comes meanwhile.
        let busy = match &self.busy {
            Busy::Applying(change) | Busy::Closing(change, _) => Some(change),
            Busy::No | Busy::Starting | Busy::Repairing | Busy::Finishing => None,
        };
        let window = self.standing.window.as_ref().map(|w| &w.change);
        needed.extend(busy.into_iter().chain(window).filter_map(|change| match change {
            Change::Policy { digest, .. } => Some(*digest),
            Change::Declaration { .. } => None,
        }));
        let gone: Vec<Digest> = self
            .orders
            .epochs
            .keys()
            .filter(|digest| !needed.contains(digest))
            .copied()
            .collect();
        for digest in gone {
            self.orders.epochs.remove(&digest);
            self.standing.received.remove(&digest);
            self.effects.push(Effect::Drop(Slot::Epoch(digest)));
        }
    }

    /// The marks go to disk before anything else that the order causes (SG-5); an order was verified with them, so
    /// they are no longer lost.
    fn save_marks(&mut self, era: u64) {
        if era > self.marks.era {
            // A new era restarts the numbers (SG-11); only a head begins one.
            self.marks = Marks {
                era,
                revision: self.marks.revision,
                ..Marks::default()
            };
        }
        self.marks_lost = false;
        // A new head has set it before it is held itself.
        let anchor = self.anchor.clone().or_else(|| self.orders.anchor(None));
        self.effects
            .push(Effect::SaveMarks(Box::new((self.marks.clone(), anchor))));
    }
}
