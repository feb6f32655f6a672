//! Drift between orders, and a ledger made anew (HR-2, HR-15, HR-17).

use std::collections::BTreeSet;

use meshplan_schemas::declaration::{Declaration, Mode};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::report::{CONTESTED, Outcome, ResourceLine};

use super::survey::Surveyed;
use super::verdict::Barred;
use super::{Applied, Due, End, LedgerState, Machine, MachineError};
use crate::edge::ledger::{self, json};
use crate::edge::tree;
use crate::kinds;
use crate::kinds::filter::{self, Kept};
use crate::pure::agent::Basis;
use crate::pure::apply_plan::{Step, Write};
use crate::pure::outcome::line;
use crate::pure::record::{Confirmed, Found, Ledger, Record};
use crate::pure::target::Target;

/// Within so many seconds, whichever way the clock was set meanwhile.
const CONTEST_SECS: u64 = 3600;
/// So many repairs of one thing are a contest.
const CONTEST_REPAIRS: usize = 3;

impl Machine {
    /// Puts right what somebody changed since the confirmed declaration was applied; no window, nothing swept.
    /// The same thing put right three times in an hour is left and said (HR-17).
    ///
    /// # Errors
    /// A window is open; the disk.
    pub fn repair(&mut self, declaration: &Declaration, now: i64) -> Result<Applied, MachineError> {
        let barred = self.ready(Barred::Stay)?;
        if self.due == Due::WalkBack {
            // What is not back yet is no drift: it is tried again, and nothing else is done meanwhile.
            return Ok(Applied {
                end: End::NotBegun {
                    why: "the way back of the last change is barred".to_owned(),
                },
                lines: barred,
                held: self.held(),
                failed: true,
            });
        }
        let book = self.book();
        let survey = match self.survey(declaration, &book)? {
            Surveyed::Plan(survey) => survey,
            Surveyed::Refused(why) => {
                let (lines, held) = (Vec::new(), Vec::new());
                return Ok(Applied {
                    end: End::NotBegun { why },
                    lines,
                    held,
                    failed: true,
                });
            }
        };
        let mut applied = Applied {
            end: End::Converged,
            // What is refused, left out or only looked at is so with every look.
            lines: survey.plan.lines.clone(),
            held: survey.plan.held.clone(),
            failed: false,
        };
        if declaration.mode == Mode::Observe {
            applied.end = End::Observed;
            return Ok(applied);
        }
        let mut next = book.clone();
        let mut repaired: BTreeSet<ResourceName> = BTreeSet::new();
        for step in &survey.plan.steps {
            let write = match step {
                Step::Write(write) if book.ahead.contains(&write.record.name) => {
                    let why = format!(
                        "it goes only forward, and a declaration that was taken back left it so: {}",
                        write.what
                    );
                    let (name, asked) = (&write.record.name, write.record.asked);
                    applied.lines.push(line(name, Outcome::Kept, why, Some(asked)));
                    continue;
                }
                Step::Write(write) => write,
                // Only after what was put right just now.
                Step::Follow(following)
                    if book.due.contains_key(&following.name)
                        || following.because.iter().any(|name| repaired.contains(name)) =>
                {
                    let name = &following.name;
                    match self.follow(following, &survey.wanted) {
                        Ok(_) => {
                            next.due.remove(name);
                            next.leavings
                                .extend(following.target.as_ref().and_then(kinds::leaving));
                            let words = following.words();
                            applied.lines.push(line(name, Outcome::Restarted, words, None));
                        }
                        Err(why) => {
                            applied.failed = true;
                            applied.lines.push(line(name, Outcome::Failed, why, None));
                        }
                    }
                    continue;
                }
                Step::Fail {
                    name,
                    outcome,
                    why,
                    asked,
                } => {
                    applied.failed = true;
                    applied
                        .lines
                        .push(line(name, *outcome, why.clone(), Some(*asked)));
                    continue;
                }
                Step::Sweep(sweep) if sweep.after.is_some() => {
                    applied
                        .lines
                        .push(sweep.waits("it is not handed over between orders"));
                    continue;
                }
                Step::Sweep(sweep) if sweep.is_given_up => {
                    applied.lines.push(sweep.line());
                    continue;
                }
                Step::Follow(_) | Step::Sweep(_) | Step::Record(_) | Step::Tidy(_) => continue,
            };
            if self.waits_for_window(write, &book) {
                let line = self.keep_confirmed(write, &book, now);
                match line.outcome {
                    Outcome::DriftRepaired => applied.end = End::Repaired,
                    Outcome::Failed => applied.failed = true,
                    _ => {}
                }
                applied.lines.push(line);
                continue;
            }
            if write.outcome != Outcome::DriftRepaired {
                // Only an apply does what was never done; until then it is not as declared, and said.
                applied.failed = true;
                let why = format!("not done yet, and a repair puts only drift right: {}", write.what);
                let (name, asked) = (&write.record.name, write.record.asked);
                applied.lines.push(line(name, Outcome::Failed, why, Some(asked)));
                continue;
            }
            let name = &write.record.name;
            let asked = Some(write.record.asked);
            let repairs = self.repairs.entry(name.clone()).or_default();
            repairs.retain(|at| now.abs_diff(*at) < CONTEST_SECS);
            if repairs.len() >= CONTEST_REPAIRS {
                let why = format!(
                    "{CONTESTED}: put right {CONTEST_REPAIRS} times within an hour and changed again; {}",
                    write.what
                );
                applied.lines.push(line(name, Outcome::Kept, why, asked));
                continue;
            }
            applied.end = End::Repaired;
            match self.write(write, survey.wanted.get(name), &mut next) {
                Ok(_) => {
                    // What could not be put right is tried again: nobody changed it back.
                    self.repairs.entry(name.clone()).or_default().push(now);
                    // Nobody goes back to what was not as declared.
                    if let Some(path) = write.record.target.as_ref().and_then(Target::place)
                        && let Err(error) = tree::forget_former(self.root(), &path)
                    {
                        tracing::warn!(%error, "a former tree stays beside the new one");
                    }
                    repaired.insert(name.clone());
                    next.owe_after(write, |name| survey.wanted.contains_key(name));
                    let words = write.what.clone();
                    applied
                        .lines
                        .push(line(name, Outcome::DriftRepaired, words, asked));
                }
                Err(why) => {
                    applied.failed = true;
                    applied.lines.push(line(name, Outcome::Failed, why, asked));
                }
            }
        }
        let kept = |ledger: &Ledger| {
            let Ledger {
                made,
                due,
                leavings,
                fetched,
                ..
            } = ledger.clone();
            (made, due, leavings, fetched)
        };
        if kept(&next) != kept(&book) && matches!(self.ledger, LedgerState::Known(_)) {
            self.with_reserve(|state| ledger::write(state, &json(&next)))?;
            self.ledger = LedgerState::Known(Box::new(next));
        }
        self.clear_leavings();
        Ok(applied)
    }

    /// Whether a write is of what was asked before and comes to something else now, which only a window may bring (HK-11).
    fn waits_for_window(&self, write: &Write, book: &Ledger) -> bool {
        let has_done = |target| book.has_done(target, write.record.asked);
        write.outcome != Outcome::DriftRepaired
            && write.nature.is_behind_window
            && write.record.target.as_ref().is_some_and(has_done)
    }

    /// Has what was confirmed in force until the next order brings the other behind a window; its line.
    fn keep_confirmed(&mut self, write: &Write, book: &Ledger, now: i64) -> ResourceLine {
        let name = &write.record.name;
        let waits = format!(
            "what it comes to now waits for a window, and goes with the next order: {}",
            write.what
        );
        let repairs = self.repairs.entry(name.clone()).or_default();
        repairs.retain(|at| now.abs_diff(*at) < CONTEST_SECS);
        let is_contested = repairs.len() >= CONTEST_REPAIRS;
        let records = book.records.values().chain(book.orphans.values());
        let recorded = records
            .filter(|record| record.target == write.record.target)
            .find_map(|record| record.content);
        let kept = match is_contested {
            true => Ok(Kept::Stands),
            false => filter::keep(recorded, self.reach()),
        };
        let (outcome, why) = match kept {
            Ok(Kept::Stands) => (Outcome::Kept, waits),
            Ok(Kept::LoadedAgain) => {
                self.repairs.entry(name.clone()).or_default().push(now);
                let why = format!("somebody changed it; what was confirmed is loaded again; {waits}");
                (Outcome::DriftRepaired, why)
            }
            Ok(Kept::Lost) => {
                let why =
                    format!("somebody changed it, and the file that was confirmed is not there; {waits}");
                (Outcome::Failed, why)
            }
            Err(why) => (Outcome::Failed, format!("{why}; {waits}")),
        };
        line(name, outcome, why, Some(write.record.asked))
    }

    /// Makes the ledger anew from the last verified declaration and the machine (HR-15): what stands as asked is the
    /// host's again, but is never removed on this ledger's word. On an adopted node what differs is held. The ledger
    /// says that a declaration is confirmed only when it is the confirmed one.
    ///
    /// # Errors
    /// The disk; a window is open.
    pub fn rebuild(
        &mut self,
        declaration: &Declaration,
        digest: Digest,
        basis: Basis,
    ) -> Result<(), MachineError> {
        self.ready(Barred::Stay)?;
        let mut book = Ledger {
            confirmed: (basis == Basis::Confirmed).then_some(Confirmed {
                sequence: declaration.sequence,
                digest,
            }),
            ..Ledger::default()
        };
        self.ledger = LedgerState::Unknown {
            why: "it is being made anew".to_owned(),
        };
        if let Surveyed::Plan(survey) = self.survey(
            &Declaration {
                adopted: false,
                ..declaration.clone()
            },
            &book,
        )? {
            let take =
                |record: &Record| !declaration.adopted || declaration.take.contains(&record.name.module);
            for step in survey.plan.steps {
                match step {
                    Step::Record(record) => book.take_over(record),
                    // What was never applied here did not drift: it is new, and goes again when it is taken back.
                    Step::Write(_) if basis == Basis::Untried => {}
                    // Whoever changed it: the next look calls it drift, as the declaration is the last word.
                    Step::Write(write) if write.record.found == Found::Nothing || take(&write.record) => {
                        let mut record = write.record;
                        if write.nature.is_behind_window {
                            // What stands there is not of this content, and the next look is no window.
                            record.content = None;
                        }
                        book.take_over(record);
                    }
                    _ => {}
                }
            }
        }
        self.with_reserve(|state| ledger::write(state, &json(&book)))?;
        self.ledger = LedgerState::Known(Box::new(book));
        Ok(())
    }
}
