//! A declaration, applied behind a window (HR-2 to HR-5).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::{Declaration, OnFailure};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ModuleName, ResourceName};
use meshplan_schemas::report::{Outcome, ResourceLine};

use super::survey::{Survey, Surveyed};
use super::verdict::Barred;
use super::{
    Applied, End, LedgerState, Machine, MachineError, ORIGINALS, Order, Window, WindowState, path_of, room,
};
use crate::edge::disk::{Disk, DiskError, NewFile, Owner, Sort, atomic};
use crate::edge::failpoint::cut;
use crate::edge::ledger::{self, blob, json, put_own};
use crate::edge::observe::observe;
use crate::edge::window;
use crate::kinds::{self, Wanted};
use crate::pure::apply_plan::{Plan, Step, Sweep, SweepHow, Write};
use crate::pure::commit_confirm::WINDOW_VERSION;
use crate::pure::confirm::Reason;
use crate::pure::forward;
use crate::pure::inverse::{Before, Place, journal};
use crate::pure::observed::Observed;
use crate::pure::outcome::line;
use crate::pure::record::{Confirmed, Found, Ledger, Thing};
use crate::pure::target_path::TargetPath;

/// What is noted of each path that will be touched, and the bytes that it takes to go back.
type WayBack = (Vec<Before>, BTreeMap<Digest, Vec<u8>>);

/// What has been done so far.
#[derive(Debug, Default)]
struct Done {
    lines: Vec<ResourceLine>,
    /// The modules that failed, each with the resource that did.
    failed: BTreeMap<ModuleName, ResourceName>,
    /// Why the first failure.
    why: Option<String>,
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
                Step::Write(_) | Step::Fail { .. } | Step::Tidy(_) => {}
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
        let (befores, blobs) = match self.before(&survey.plan) {
            Ok(kept) => kept,
            Err(why) => return Ok(Some(why)),
        };
        let (befores, forward) = forward::take_out(befores, &survey.plan, &self.book(), marked);
        let mut need = room::Need::default();
        for step in &survey.plan.steps {
            if let Step::Write(write) = step
                && let (Some(target), Some(wanted)) =
                    (&write.record.target, survey.wanted.get(&write.record.name))
            {
                need.file(self.root(), target, wanted.size_bytes())?;
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
            .and_then(|()| self.keep_originals(&survey.plan))
            .and_then(|()| window::open(self.state(), window, &journal(befores), &blobs))
            .and_then(|()| window::keep_forward(self.state(), &forward));
        self.open_window(window, opened)
    }

    /// The way back from every path that will be touched, and the bytes that it needs; or why there is none.
    fn before(&self, plan: &Plan) -> Result<WayBack, String> {
        let mut paths: BTreeMap<TargetPath, (Option<ResourceName>, &str)> = BTreeMap::new();
        for step in &plan.steps {
            match step {
                Step::Write(write) => {
                    let Some(target) = &write.record.target else {
                        continue;
                    };
                    for folder in missing_folders(self.root(), target) {
                        paths.entry(folder).or_insert((None, "directory"));
                    }
                    let record = &write.record;
                    paths.insert(target.clone(), (Some(record.name.clone()), &record.kind));
                }
                Step::Sweep(sweep) if sweep.acts() => {
                    if let Some(target) = &sweep.target {
                        paths.insert(target.clone(), (Some(sweep.name.clone()), &sweep.kind));
                    }
                }
                Step::Tidy(path) => {
                    paths.entry(path.clone()).or_insert((None, "directory"));
                }
                Step::Sweep(_) | Step::Record(_) | Step::Fail { .. } => {}
            }
        }
        let sweeps = plan.steps.iter().filter_map(|step| match step {
            Step::Sweep(sweep) if sweep.acts() => sweep.target.clone(),
            _ => None,
        });
        let swept: BTreeSet<TargetPath> = sweeps.collect();
        let mut befores = Vec::new();
        let mut blobs = BTreeMap::new();
        // Files that make way: nothing can stand below one yet. They come before what is below them.
        let mut making_way: BTreeSet<TargetPath> = BTreeSet::new();
        for (path, (name, kind)) in paths {
            let there = if path.ancestors().any(|folder| making_way.contains(&folder)) {
                Observed::Absent
            } else {
                observe(self.root(), &path)
            };
            if let Observed::Other(why) | Observed::Unknown(why) = &there {
                // Without a before image there is no way back, and what there is no way back from is not begun.
                return Err(format!(
                    "{path} cannot be kept for the way back: {why}; nothing was touched"
                ));
            }
            befores.push(Before {
                name,
                place: Place::Root,
                act: kinds::revert(kind, there.thing().as_ref()),
                path: path.clone(),
            });
            match there {
                Observed::File { bytes, .. } => {
                    blobs.insert(Digest::of(&bytes), bytes);
                    making_way.insert(path);
                }
                Observed::Link { .. } if swept.contains(&path) => {
                    making_way.insert(path);
                }
                _ => {}
            }
        }
        Ok((befores, blobs))
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
            let Thing::File { content, .. } = thing else {
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
        let stopped = |done: &Done, name: &ResourceName| done.failed.get(&name.module).cloned();
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
                    Ok(()) => {
                        next.take_over(write.record.clone());
                        done.lines.push(line(
                            name,
                            write.outcome,
                            write.what.clone(),
                            Some(write.record.asked),
                        ));
                    }
                    Err(why) => done.fail(line(name, Outcome::Failed, why, Some(write.record.asked))),
                }
            }
            Step::Sweep(sweep) => self.sweep(sweep, next, done),
            Step::Tidy(path) => {
                if let Err(e) = atomic::remove_folder(self.root(), path) {
                    tracing::info!(%path, error = %e, "a folder that the host made stays");
                } else {
                    next.made.remove(path);
                }
            }
        }
    }

    /// Makes a resource as asked and reads it back.
    pub(super) fn write(
        &self,
        write: &Write,
        wanted: Option<&Wanted>,
        next: &mut Ledger,
    ) -> Result<(), String> {
        let (Some(target), Some(wanted)) = (&write.record.target, wanted) else {
            return Err("its fields are not at hand".to_owned());
        };
        self.make_folders(target, &mut next.made)
            .map_err(|e| e.to_string())?;
        wanted.apply(self.root()).map_err(|e| e.to_string())?;
        wanted.verify(&observe(self.root(), target)).map_or(Ok(()), Err)
    }

    /// Makes the folders on the way to a target.
    pub(super) fn make_folders(
        &self,
        target: &TargetPath,
        made: &mut BTreeSet<TargetPath>,
    ) -> Result<(), DiskError> {
        let mut missing = missing_folders(self.root(), target);
        missing.reverse();
        for folder in missing {
            atomic::put_folder(self.root(), &folder, 0o755, Owner::default())?;
            made.insert(folder);
        }
        Ok(())
    }

    fn sweep(&self, sweep: &Sweep, next: &mut Ledger, done: &mut Done) {
        // A moved resource's former target goes only when the new one stands.
        if let (true, Some(target)) = (sweep.moved, &sweep.target)
            && !next.orphans.contains_key(target)
        {
            return;
        }
        let fault = match (&sweep.how, &sweep.target) {
            (SweepHow::Remove, Some(target)) => kinds::remove(&sweep.kind, self.root(), target).err(),
            (SweepHow::Restore(thing), Some(target)) => self.restore(target, thing).err(),
            _ => None,
        };
        match (fault, &sweep.target) {
            (Some(e), Some(target)) => {
                // The removal of what nobody declares hinders nothing else (HR-6); it is tried again.
                next.orphan(&sweep.name, target);
                done.lines.push(line(
                    &sweep.name,
                    Outcome::Kept,
                    format!("it stays for now: {e}"),
                    None,
                ));
            }
            _ => {
                settle_sweep(sweep, next);
                done.lines.push(sweep.line());
            }
        }
    }

    /// Puts back what was there before the host.
    fn restore(&self, target: &TargetPath, thing: &Thing) -> Result<(), DiskError> {
        let owner = |uid, gid| Owner {
            uid: Some(uid),
            gid: Some(gid),
        };
        match thing {
            Thing::File {
                content,
                mode,
                uid,
                gid,
            } => {
                let bytes = self.state().read(&blob(ORIGINALS, *content))?;
                let file = NewFile {
                    bytes: &bytes,
                    mode: *mode,
                    owner: owner(*uid, *gid),
                };
                atomic::put_file(self.root(), target, &file, None)
            }
            Thing::Directory { mode, uid, gid } => {
                atomic::put_folder(self.root(), target, *mode, owner(*uid, *gid))
            }
            Thing::Link { target: to, uid, gid } => {
                atomic::put_link(self.root(), target, to, owner(*uid, *gid))
            }
        }
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
                (Outcome::Failed | Outcome::Refused | Outcome::Skipped, _) | (_, None) => old,
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
    fn fail(&mut self, failure: ResourceLine) {
        let why = format!("{}: {}", failure.name, failure.reason);
        self.why.get_or_insert(why);
        self.failed
            .insert(failure.name.module.clone(), failure.name.clone());
        self.lines.push(failure);
    }
}

fn settle_sweep(sweep: &Sweep, next: &mut Ledger) {
    match (&sweep.how, &sweep.target) {
        (SweepHow::Keep(_) | SweepHow::Refuse(_), Some(target)) => next.orphan(&sweep.name, target),
        (_, target) => next.forget(&sweep.name, target.as_ref()),
    }
}

/// The folders on the way to a target that are not there, nearest first.
pub(super) fn missing_folders(root: &dyn Disk, target: &TargetPath) -> Vec<TargetPath> {
    let there = |folder: &TargetPath| {
        // A link on the way counts: it is followed, or refused, by the walk.
        matches!(root.stat(folder), Ok(Some(stat)) if stat.sort != Sort::File)
    };
    target.ancestors().take_while(|folder| !there(folder)).collect()
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
