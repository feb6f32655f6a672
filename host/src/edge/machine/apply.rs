//! A declaration, applied behind a window (HR-2 to HR-5).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use meshplan_schemas::declaration::{Declaration, OnFailure};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ModuleName, ResourceName};
use meshplan_schemas::report::{Outcome, ResourceLine};

use super::survey::{Survey, Surveyed};
use super::sweep::settle_sweep;
use super::verdict::Barred;
use super::{
    Applied, End, LedgerState, Machine, MachineError, ORIGINALS, Order, Window, WindowState, path_of, room,
};
use crate::edge::disk::{DiskError, Owner, atomic};
use crate::edge::failpoint::cut;
use crate::edge::ledger::{self, blob, json, put_own};
use crate::edge::window;
use crate::kinds::{self, Seen, Wanted};
use crate::pure::apply_plan::{Following, Plan, Step, Write};
use crate::pure::commit_confirm::WINDOW_VERSION;
use crate::pure::confirm::Reason;
use crate::pure::forward;
use crate::pure::inverse::journal;
use crate::pure::outcome::line;
use crate::pure::record::{Confirmed, Found, Ledger, Thing};
use crate::pure::target::Target;
use crate::pure::target_path::TargetPath;

/// Between the two looks at what was started.
const BETWEEN_LOOKS: Duration = Duration::from_secs(10);

/// What has been done so far.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) lines: Vec<ResourceLine>,
    /// The modules that failed, each with the resource that did.
    failed: BTreeMap<ModuleName, ResourceName>,
    /// The step that failed and that all that comes after it waits for (HR-4).
    gate: Option<ResourceName>,
    /// What was started, as it stood at the first look.
    started: BTreeMap<ResourceName, Seen>,
    /// Why the first failure.
    pub(super) why: Option<String>,
}

impl Machine {
    /// Applies a declaration whose payload has this digest.
    ///
    /// # Errors
    /// A window is open; the disk failed in a way that is no resource's.
    pub fn apply(
        &mut self,
        declaration: &Declaration,
        digest: Digest,
        now: i64,
    ) -> Result<Applied, MachineError> {
        self.ready(Barred::GiveUp)?;
        let applied = self.apply_behind(declaration, digest, now);
        self.broke_off(applied, now)
    }

    fn apply_behind(
        &mut self,
        declaration: &Declaration,
        digest: Digest,
        now: i64,
    ) -> Result<Applied, MachineError> {
        let book = self.book();
        let survey = match self.survey(declaration, &book)? {
            Surveyed::Plan(survey) => survey,
            Surveyed::Refused(why) => return Ok(not_begun(why, Vec::new(), Vec::new())),
        };
        let (lines, held) = (survey.plan.lines.clone(), survey.plan.held.clone());
        if survey.observe {
            return Ok(Applied {
                end: End::Observed,
                lines,
                held,
                failed: false,
            });
        }
        let mut next = book.clone();
        next.held.clone_from(&survey.plan.holds);
        next.forward_only = forward::marked(declaration, &book);
        next.ahead.clear();
        next.confirmed = Some(Confirmed {
            sequence: declaration.sequence,
            digest,
        });
        if !survey.plan.changes_something(&book) {
            return self.note_only(&survey, next);
        }
        if declaration.on_failure == OnFailure::Revert
            && let Some((name, why)) = survey.plan.first_failure()
        {
            let why = format!("{name}: {why}; nothing was touched");
            let lines = lines.into_iter().chain(all_skipped(&survey.plan, name)).collect();
            return Ok(Applied {
                failed: true,
                ..not_begun(why, lines, held)
            });
        }
        if declaration.on_failure == OnFailure::Revert
            && let Err((name, why)) = self.fetch(&survey, &mut next)
        {
            let why = format!("{name}: {why}; nothing was touched");
            let lines = lines
                .into_iter()
                .chain(all_skipped(&survey.plan, &name))
                .collect();
            return Ok(not_begun(why, lines, held));
        }
        let order = Order::Declaration {
            sequence: declaration.sequence,
            digest,
        };
        let window = Window {
            version: WINDOW_VERSION,
            boot_id: self.setup.boot_id.clone(),
            order,
            opened_at: now,
            apply_deadline: now.saturating_add(i64::from(declaration.apply_secs)),
            confirm_deadline: None,
            state: WindowState::Applying,
        };
        if let Some(why) = self.begin(&survey, &window, &next.forward_only)? {
            let lines = lines
                .into_iter()
                .chain(not_attempted(&survey.plan.steps, &why))
                .collect();
            return Ok(not_begun(why, lines, held));
        }
        let mut done = Done {
            lines,
            ..Done::default()
        };
        let mut late = None;
        for (at, step) in survey.plan.steps.iter().enumerate() {
            cut("host::apply::step");
            late = self.too_late();
            if let Some(why) = &late {
                let rest = survey.plan.steps.get(at..).unwrap_or_default();
                done.lines.extend(not_attempted(rest, why));
                break;
            }
            self.step(step, &survey.wanted, &mut next, &mut done);
        }
        if late.is_none() {
            let takers = self.takers(&survey, &done);
            if !(done.started.is_empty() && takers.is_empty()) {
                self.setup.system.rest(BETWEEN_LOOKS);
            }
            self.look_again(&mut done);
            let on_failure = declaration.on_failure;
            late = self.hand_over(&survey, (&takers, on_failure), &mut next, &mut done);
        }
        let failed = done.why.is_some();
        let revert = match &done.why {
            _ if late.is_some() => late.map(Reason::Interrupted),
            Some(why) if declaration.on_failure == OnFailure::Revert => Some(Reason::Resource(why.clone())),
            _ => self
                .with_reserve(|state| window::keep_ledger(state, &json(&next)))
                .err()
                .map(|e| Reason::Interrupted(format!("the ledger cannot be kept: {e}"))),
        };
        if let Some(reason) = revert {
            let lines = self.take_back(&reason, now, done.lines)?;
            return Ok(Applied {
                end: End::Reverted { reason },
                lines,
                held,
                failed: true,
            });
        }
        cut("host::apply::done");
        Ok(Applied {
            end: End::WindowOpen,
            lines: done.lines,
            held,
            failed,
        })
    }

    /// Nothing on the machine changes: at most the ledger does.
    fn note_only(&mut self, survey: &Survey, mut next: Ledger) -> Result<Applied, MachineError> {
        let mut lines = survey.plan.lines.clone();
        for step in &survey.plan.steps {
            match step {
                Step::Record(record) => next.take_over(record.clone()),
                Step::Sweep(sweep) => {
                    settle_sweep(sweep, &mut next);
                    lines.push(sweep.line());
                }
                Step::Write(_) | Step::Follow(_) | Step::Fail { .. } | Step::Tidy(_) => {}
            }
        }
        if self.ledger != LedgerState::Known(Box::new(next.clone())) {
            self.keep_originals(&survey.plan)?;
            self.with_reserve(|state| ledger::write(state, &json(&next)))?;
            self.ledger = LedgerState::Known(Box::new(next));
        }
        Ok(Applied {
            end: End::Converged,
            lines,
            held: survey.plan.held.clone(),
            failed: false,
        })
    }

    /// Makes sure of the room, keeps originals and before images, opens the window; says why not.
    fn begin(
        &mut self,
        survey: &Survey,
        window: &Window,
        marked: &BTreeSet<ResourceName>,
    ) -> Result<Option<String>, MachineError> {
        let (befores, blobs) = match self.way_back(&survey.plan, &survey.wanted) {
            Ok(kept) => kept,
            Err(why) => return Ok(Some(why)),
        };
        let (befores, forward) = forward::take_out(befores, &survey.plan, &self.book(), marked);
        let mut need = room::Need::default();
        for step in &survey.plan.steps {
            if let Step::Write(write) = step
                && let Some(path) = write.record.target.as_ref().and_then(Target::place)
                && let Some(wanted) = survey.wanted.get(&write.record.name)
            {
                let (bytes, files) = wanted.room(self.reach());
                need.files(self.root(), &path, (bytes, files))?;
            }
        }
        // Once as a before image, and once as an original.
        for bytes in blobs.values().chain(blobs.values()) {
            need.file(self.state(), &path_of("/window"), bytes.len() as u64)?;
        }
        let book = json(&self.book()).len() as u64;
        need.book(self.state(), book)?;
        if let Some(why) = need.lacking() {
            return Ok(Some(why));
        }
        let opened = room::reserve(self.state())
            .and_then(|()| {
                let acts = befores.iter().flat_map(|before| &before.acts);
                self.forget_former_trees(acts.map(|act| (&act.target, &act.act)))
            })
            .and_then(|()| self.keep_originals(&survey.plan))
            .and_then(|()| window::open(self.state(), window, &journal(befores), &blobs))
            .and_then(|()| window::keep_forward(self.state(), &forward));
        self.open_window(window, opened)
    }

    /// Keeps the first original of what was found and will be overwritten, or is held.
    fn keep_originals(&self, plan: &Plan) -> Result<(), DiskError> {
        let records = plan.steps.iter().filter_map(|step| match step {
            Step::Write(write) => Some(&write.record),
            Step::Record(record) => Some(record),
            _ => None,
        });
        let found = records.filter_map(|record| match (&record.found, &record.target) {
            (Found::Thing(thing), Some(target)) => Some((target, thing)),
            _ => None,
        });
        let held = plan.holds.values().map(|held| (&held.target, &held.original));
        for (target, thing) in found.chain(held) {
            let (Target::Path(target), Thing::File { content, .. }) = (target, thing) else {
                continue;
            };
            let kept = blob(ORIGINALS, *content);
            if self.state().stat(&kept)?.is_some() {
                continue;
            }
            let bytes = self.root().read(target)?;
            if Digest::of(&bytes) != *content {
                tracing::warn!(%target, "what was found here changed before it could be kept");
                continue;
            }
            atomic::put_folder(self.state(), &path_of(ORIGINALS), 0o700, Owner::default())?;
            put_own(self.state(), &kept, &bytes)?;
        }
        Ok(())
    }

    fn step(&self, step: &Step, wanted: &BTreeMap<ResourceName, Wanted>, next: &mut Ledger, done: &mut Done) {
        let stopped = |done: &Done, name: &ResourceName| {
            let first = done.gate.as_ref().or_else(|| done.failed.get(&name.module));
            first.cloned()
        };
        match step {
            Step::Record(record) => {
                let before = next.records.get(&record.name).map(|old| old.asked);
                next.take_over(record.clone());
                if record.kind == "probe" && before != Some(record.asked) {
                    let outcome = if before.is_some() {
                        Outcome::Updated
                    } else {
                        Outcome::Created
                    };
                    done.lines.push(line(
                        &record.name,
                        outcome,
                        "is asked from now on",
                        Some(record.asked),
                    ));
                }
            }
            Step::Fail {
                name,
                outcome,
                why,
                asked,
            } => match stopped(done, name) {
                Some(first) => done.lines.push(skipped(name, &first, Some(*asked))),
                None => done.fail(line(name, *outcome, why.clone(), Some(*asked))),
            },
            Step::Write(write) => {
                let name = &write.record.name;
                if let Some(first) = stopped(done, name) {
                    return done.lines.push(skipped(name, &first, Some(write.record.asked)));
                }
                match self.write(write, wanted.get(name), next) {
                    Ok(started) => {
                        next.take_over(write.record.clone());
                        next.owe_after(write, |name| wanted.contains_key(name));
                        done.started(name, started);
                        done.lines.push(line(
                            name,
                            write.outcome,
                            write.what.clone(),
                            Some(write.record.asked),
                        ));
                    }
                    Err(why) => {
                        if write.nature.is_gate {
                            done.gate.get_or_insert_with(|| name.clone());
                        }
                        done.fail(line(name, Outcome::Failed, why, Some(write.record.asked)));
                    }
                }
            }
            Step::Follow(following) => {
                let name = &following.name;
                if let Some(first) = stopped(done, name) {
                    return done.lines.push(skipped(name, &first, None));
                }
                match self.follow(following, wanted) {
                    Ok(started) => {
                        next.due.remove(name);
                        next.leavings
                            .extend(following.target.as_ref().and_then(kinds::leaving));
                        done.started(name, started);
                        done.followed(following);
                    }
                    Err(why) => done.fail(line(name, Outcome::Failed, why, None)),
                }
            }
            // Once it is up, after the second look.
            Step::Sweep(sweep) if sweep.after.is_some() => {}
            Step::Sweep(sweep) => done.lines.extend(self.sweep(sweep, next)),
            Step::Tidy(path) => {
                if let Err(e) = atomic::remove_folder(self.root(), path) {
                    tracing::info!(%path, error = %e, "a folder that the host made stays");
                } else {
                    next.made.remove(path);
                }
            }
        }
    }

    /// Makes a resource as asked and reads it back; what was started, as it stood then.
    pub(super) fn write(
        &self,
        write: &Write,
        wanted: Option<&Wanted>,
        next: &mut Ledger,
    ) -> Result<Option<Seen>, String> {
        let (Some(target), Some(wanted)) = (&write.record.target, wanted) else {
            return Err("its fields are not at hand".to_owned());
        };
        if let Some(path) = target.place() {
            self.make_folders(&path, &mut next.made)
                .map_err(|e| e.to_string())?;
        }
        let wanted = wanted.settled(self.reach())?;
        let ran = next.has_done(target, write.record.asked);
        next.fetched.extend(wanted.fetch(self.reach())?);
        let started = wanted.apply(ran, self.reach())?;
        if write.before.is_some() {
            next.leavings.extend(kinds::leaving(target));
        }
        match wanted.verify(self.reach()) {
            None => Ok(started),
            Some(why) => Err(why),
        }
    }

    /// Restarts, reloads or runs what stands on something that changed.
    pub(super) fn follow(
        &self,
        following: &Following,
        wanted: &BTreeMap<ResourceName, Wanted>,
    ) -> Result<Option<Seen>, String> {
        let fields = wanted.get(&following.name);
        let fields = fields.ok_or_else(|| "its fields are not at hand".to_owned())?;
        fields
            .follow(following.how, self.reach())
            .map_err(|why| format!("it was to be {}: {why}", following.words()))
    }

    /// The second look at everything that was started, a moment after the first, all together (HR-13, HK-5).
    fn look_again(&self, done: &mut Done) {
        for (name, first) in std::mem::take(&mut done.started) {
            if let Some(why) = first.look_again(&*self.setup.system) {
                done.lines.retain(|line| line.name != name);
                done.fail(line(&name, Outcome::Failed, why, None));
            }
        }
    }

    /// Makes the folders on the way to a target.
    pub(super) fn make_folders(
        &self,
        target: &TargetPath,
        made: &mut BTreeSet<TargetPath>,
    ) -> Result<(), DiskError> {
        let mut missing = atomic::missing_folders(self.root(), target);
        missing.reverse();
        for folder in missing {
            atomic::put_folder(self.root(), &folder, 0o755, Owner::default())?;
            made.insert(folder);
        }
        Ok(())
    }

    /// A resource failed: everything goes back, and the lines say so.
    pub(super) fn take_back(
        &mut self,
        reason: &Reason,
        now: i64,
        lines: Vec<ResourceLine>,
    ) -> Result<Vec<ResourceLine>, MachineError> {
        let back = self.revert(reason, now)?;
        let lines = lines.into_iter().map(|old| {
            let undone = back.iter().find(|new| new.name == old.name);
            match (old.outcome, undone) {
                // What could not be put back, and what stays for it goes only forward.
                (_, Some(new)) if matches!(new.outcome, Outcome::Failed | Outcome::Kept) => new.clone(),
                (Outcome::Failed | Outcome::Refused | Outcome::Skipped | Outcome::Kept, _) | (_, None) => old,
                (_, Some(_)) => line(
                    &old.name,
                    Outcome::Reverted,
                    format!("taken back: {}", old.reason),
                    old.digest,
                ),
            }
        });
        Ok(lines.collect())
    }
}

impl Done {
    /// Notes what was started, for the second look.
    fn started(&mut self, name: &ResourceName, seen: Option<Seen>) {
        if let Some(seen) = seen {
            self.started.insert(name.clone(), seen);
        }
    }

    /// Notes what followed: with its own line where it has one.
    fn followed(&mut self, following: &Following) {
        let words = following.words();
        match self.lines.iter_mut().find(|line| line.name == following.name) {
            Some(own) => own.reason = format!("{}; {words}", own.reason),
            None => self
                .lines
                .push(line(&following.name, Outcome::Restarted, words, None)),
        }
    }

    /// Whether this one failed.
    pub(super) fn has_failed(&self, name: &ResourceName) -> bool {
        let failed = |line: &ResourceLine| line.name == *name && line.outcome == Outcome::Failed;
        self.lines.iter().any(failed)
    }

    fn fail(&mut self, failure: ResourceLine) {
        let why = format!("{}: {}", failure.name, failure.reason);
        self.why.get_or_insert(why);
        self.failed
            .insert(failure.name.module.clone(), failure.name.clone());
        self.lines.push(failure);
    }
}

fn not_begun(why: String, lines: Vec<ResourceLine>, held: Vec<ResourceLine>) -> Applied {
    Applied {
        end: End::NotBegun { why },
        lines,
        held,
        failed: true,
    }
}

fn skipped(name: &ResourceName, first: &ResourceName, asked: Option<Digest>) -> ResourceLine {
    line(
        name,
        Outcome::Skipped,
        format!("not attempted because {first} failed"),
        asked,
    )
}

fn all_skipped(plan: &Plan, first: &ResourceName) -> Vec<ResourceLine> {
    let steps = plan.steps.iter().filter_map(|step| match step {
        Step::Fail {
            name,
            outcome,
            why,
            asked,
        } => Some(line(name, *outcome, why.clone(), Some(*asked))),
        Step::Write(write) => Some(skipped(&write.record.name, first, Some(write.record.asked))),
        _ => None,
    });
    steps.collect()
}

fn not_attempted(steps: &[Step], why: &str) -> Vec<ResourceLine> {
    let steps = steps.iter().filter_map(|step| match step {
        Step::Write(write) => Some((&write.record.name, write.record.asked)),
        _ => None,
    });
    let because = |(name, asked): (&ResourceName, Digest)| {
        line(
            name,
            Outcome::Skipped,
            format!("not attempted because {why}"),
            Some(asked),
        )
    };
    steps.map(because).collect()
}
