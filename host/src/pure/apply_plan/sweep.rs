//! What a former declaration wrote and this one lacks (HR-2, HR-6, HR-15, HR-16).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::report::{Outcome, ResourceLine};

use super::{Inputs, Part};
use crate::pure::observed::Observed;
use crate::pure::outcome::line;
use crate::pure::record::{Found, Held, Record, Thing};
use crate::pure::target::{Sort, Target};
use crate::pure::target_path::TargetPath;

/// Why a volume stays (HR-16).
const VOLUME_STAYS: &str = "a volume is never removed with its resource; `meshplan-host volumes` lists it";

/// Something that is no longer declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Whose it was.
    pub name: ResourceName,
    /// The kind's word.
    pub kind: String,
    /// What it has; none for a probe.
    pub target: Option<Target>,
    /// The resource is still declared, at another target: this goes only once that is done.
    pub moved: bool,
    /// The process that takes over from it: it goes only once that is up (HK-7).
    pub after: Option<ResourceName>,
    /// It was to be handed over, and the process that would take over is not applied now: said with each look, as both stand
    /// on the machine.
    pub is_given_up: bool,
    /// What is done with it.
    pub how: SweepHow,
    /// What stands there.
    pub before: Option<Thing>,
}

/// What is done with an orphan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SweepHow {
    /// It goes.
    Remove,
    /// What was there before the host comes back.
    Restore(Thing),
    /// It is gone already, or was never a thing.
    Gone,
    /// It stays and is no longer the host's, because.
    Forget(String),
    /// It stays for now and is tried again, because.
    Keep(String),
    /// It cannot be removed, because; tried again.
    Refuse(String),
}

impl Sweep {
    /// Whether the machine is touched.
    #[must_use]
    pub fn acts(&self) -> bool {
        matches!(self.how, SweepHow::Remove | SweepHow::Restore(_))
    }

    /// Why it goes.
    #[must_use]
    pub fn because(&self) -> String {
        match &self.after {
            Some(by) => format!("{by} has taken over from it"),
            None if self.moved => "its resource moved".to_owned(),
            None => "nothing declares it any more".to_owned(),
        }
    }

    /// The line while it stays for the process that is to take over from it, because.
    #[must_use]
    pub fn waits(&self, why: &str) -> ResourceLine {
        let target = self.target.as_ref();
        let place = target.map_or_else(String::new, |target| format!("{target} "));
        let by = (self.after.as_ref()).map_or_else(String::new, ToString::to_string);
        let reason = format!("{place}stays until {by} is up, and the next order hands it over: {why}");
        line(&self.name, Outcome::Kept, reason, None)
    }

    /// The line once it is done.
    #[must_use]
    pub fn line(&self) -> ResourceLine {
        let place = self
            .target
            .as_ref()
            .map_or_else(String::new, |target| format!("{target} "));
        let why = self.because();
        let (outcome, reason) = match &self.how {
            SweepHow::Remove => (Outcome::Removed, format!("{place}is removed: {why}")),
            SweepHow::Restore(_) => (
                Outcome::Removed,
                format!("{place}is again what was there before the host: {why}"),
            ),
            SweepHow::Gone if self.kind == "probe" => {
                (Outcome::Removed, format!("it is asked no more: {why}"))
            }
            SweepHow::Gone if self.kind == "action" => (
                Outcome::Removed,
                format!("it is run no more, and what it did stays: {why}"),
            ),
            SweepHow::Gone => (Outcome::Removed, format!("{place}was gone already; {why}")),
            SweepHow::Forget(because) => (Outcome::Forgotten, format!("{place}stays: {because}")),
            SweepHow::Keep(because) => (Outcome::Kept, format!("{place}stays for now: {because}")),
            SweepHow::Refuse(because) => (Outcome::Refused, format!("{place}is not removed: {because}")),
        };
        line(&self.name, outcome, reason, None)
    }
}

/// The sweeps of a plan.
#[derive(Debug, Default)]
pub(super) struct Sweeps {
    /// Before the modules.
    pub(super) early: Vec<Sweep>,
    /// After them.
    pub(super) late: Vec<Sweep>,
    /// Folders that the host made on the way.
    pub(super) tidy: Vec<TargetPath>,
}

pub(super) fn sweeps(inputs: &Inputs<'_>, lines: &mut Vec<ResourceLine>) -> Sweeps {
    let ledger = inputs.ledger;
    let mut out = Sweeps::default();
    // Modules that are not applied now: their records are kept as they are.
    let resting: BTreeSet<_> = inputs
        .parts
        .iter()
        .filter(|(_, part)| !matches!(part, Part::Apply(_)))
        .map(|(module, _)| module)
        .chain(inputs.left_out.keys())
        .collect();
    let mut folders = Vec::new();
    for record in ledger.records.values().chain(ledger.orphans.values()) {
        if let Some(why) = inputs.left_out.get(&record.name.module) {
            let reason = format!("its module is left out, what it wrote stays: {why}");
            lines.push(line(&record.name, Outcome::LeftOut, reason, Some(record.asked)));
            continue;
        }
        let declared = match &record.target {
            Some(target) => inputs.declared.contains(target),
            None => inputs.names.contains(&record.name),
        };
        if declared || resting.contains(&record.name.module) {
            continue;
        }
        // An orphan of a declared resource moved in an earlier apply: its successor stands.
        let moved = inputs.names.contains(&record.name)
            && record
                .target
                .as_ref()
                .is_none_or(|target| !ledger.orphans.contains_key(target));
        let sweep = Sweep {
            name: record.name.clone(),
            kind: record.kind.clone(),
            target: record.target.clone(),
            moved,
            after: None,
            is_given_up: false,
            how: how(record, inputs),
            before: record
                .target
                .as_ref()
                .and_then(|t| inputs.there.get(t))
                .and_then(Observed::thing),
        };
        // What a new target lies below must make way first.
        let in_the_way = |target: &Target| {
            let Some(path) = target.place() else { return false };
            // A tree is also in the way of what else stands where it stood.
            inputs
                .declared
                .iter()
                .filter_map(Target::place)
                .any(|d| d.is_below(&path) || d == path)
        };
        let after = inputs.replaced.get(&record.name).filter(|_| sweep.acts());
        if record.kind == "directory" {
            folders.push(sweep);
        } else if let Some(by) = after.filter(|_| !record.target.as_ref().is_some_and(in_the_way)) {
            // Still read and run until the process is up, so it is not gone for the folders that it is in.
            out.late.push(Sweep {
                moved: false,
                after: Some(by.clone()),
                ..sweep
            });
        } else if moved && !record.target.as_ref().is_some_and(in_the_way) {
            out.late.push(sweep);
        } else {
            out.early.push(Sweep {
                moved: false,
                ..sweep
            });
        }
    }
    // Units stop before their files go; users and groups go after what was theirs.
    let turn = |sweep: &Sweep| match &sweep.target {
        Some(Target::Thing(Sort::Unit | Sort::Process | Sort::Container, _)) => 0,
        None | Some(Target::Path(_)) => 1,
        // A group that is somebody's primary one cannot go before them.
        Some(Target::Thing(Sort::Group, _)) => 3,
        Some(Target::Thing(..)) => 2,
    };
    out.early.sort_by_key(turn);
    out.late.sort_by_key(turn);
    let mut gone: BTreeSet<TargetPath> = out
        .early
        .iter()
        .chain(&out.late)
        .filter(|sweep| matches!(sweep.how, SweepHow::Remove) && sweep.after.is_none())
        .filter_map(|sweep| sweep.target.as_ref().and_then(Target::path).cloned())
        .collect();
    empty_folders(inputs, folders, &mut gone, &mut out);
    out
}

/// What a process was to take over from stays as it is where the process is not applied now (HK-7).
pub(super) fn given_up(sweep: Sweep, inputs: &Inputs<'_>, holds: &BTreeMap<ResourceName, Held>) -> Sweep {
    let Some(by) = &sweep.after else { return sweep };
    let is_applied = inputs
        .parts
        .iter()
        .any(|(module, part)| *module == by.module && matches!(part, Part::Apply(_)));
    let why = match (is_applied, holds.contains_key(by)) {
        (true, false) => return sweep,
        (true, true) => format!("{by} takes over from it, and what was found in its place is held"),
        (false, _) => format!("{by} takes over from it, and its module is not applied now"),
    };
    Sweep {
        after: None,
        is_given_up: true,
        how: SweepHow::Keep(why),
        ..sweep
    }
}

/// Folders, deepest first: those in which nothing will be left go.
fn empty_folders(
    inputs: &Inputs<'_>,
    folders: Vec<Sweep>,
    gone: &mut BTreeSet<TargetPath>,
    out: &mut Sweeps,
) {
    let depth = |path: &TargetPath| path.components().count();
    let empties = |path: &TargetPath, gone: &BTreeSet<TargetPath>| match inputs
        .there
        .get(&Target::Path(path.clone()))
    {
        Some(Observed::Directory { names, .. }) => {
            !inputs.declared.iter().any(|d| d.is_below(path))
                && names
                    .iter()
                    .all(|name| path.join(name).is_ok_and(|path| gone.contains(&path)))
        }
        _ => false,
    };
    let mut all: Vec<(TargetPath, Option<Sweep>)> = folders
        .into_iter()
        .filter_map(|sweep| {
            let path = sweep.target.as_ref().and_then(Target::path).cloned()?;
            Some((path, Some(sweep)))
        })
        .collect();
    let known: BTreeSet<TargetPath> = all.iter().map(|(path, _)| path.clone()).collect();
    let made = inputs.ledger.made.iter();
    let declared: BTreeSet<&TargetPath> = inputs.declared.iter().filter_map(Target::path).collect();
    let made = made.filter(|path| !known.contains(*path) && !declared.contains(path));
    all.extend(made.map(|path| (path.clone(), None)));
    all.sort_by(|(a, _), (b, _)| depth(b).cmp(&depth(a)).then_with(|| a.cmp(b)));
    for (path, sweep) in all {
        let empty = empties(&path, gone);
        match sweep {
            None if empty => {
                gone.insert(path.clone());
                out.tidy.push(path);
            }
            None => {}
            Some(mut sweep) => {
                if matches!(sweep.how, SweepHow::Remove) {
                    if empty {
                        gone.insert(path);
                    } else {
                        sweep.how = SweepHow::Keep("it is not empty".to_owned());
                    }
                }
                out.late.push(sweep);
            }
        }
    }
}

/// Networks and volumes of containers that stay (HK-10, HR-16); none where the rule of all holds.
fn of_containers(record: &Record, there: &Observed, inputs: &Inputs<'_>) -> Option<SweepHow> {
    let ledger = inputs.ledger;
    let records = ledger.records.values().chain(ledger.orphans.values());
    let own: BTreeSet<&Target> = records.filter_map(|record| record.target.as_ref()).collect();
    match (record.target.as_ref()?, there) {
        (Target::Thing(Sort::Volume, _), Observed::Is(_)) => Some(SweepHow::Forget(VOLUME_STAYS.to_owned())),
        (Target::Thing(Sort::Network, _), Observed::Is(_)) if matches!(record.found, Found::Thing(_)) => {
            Some(SweepHow::Forget("it was there before the host".to_owned()))
        }
        (Target::Thing(Sort::Network, _), Observed::Is(Thing::Network { users, .. })) => {
            // The host's own leave it with this change, or it waits for them after the confirm.
            let is_others = |user: &&String| !own.contains(&Target::Thing(Sort::Container, (*user).clone()));
            let users: Vec<&str> = users.iter().filter(is_others).map(String::as_str).collect();
            (!users.is_empty()).then(|| SweepHow::Keep(format!("{} is in it", users.join(", "))))
        }
        _ => None,
    }
}

fn how(record: &Record, inputs: &Inputs<'_>) -> SweepHow {
    let Some(target) = &record.target else {
        return SweepHow::Gone;
    };
    let there = inputs.there.get(target).unwrap_or(&Observed::Absent);
    if matches!(target, Target::Thing(Sort::Step, _)) {
        return SweepHow::Gone;
    }
    if matches!(target, Target::Thing(Sort::Package, _)) {
        return SweepHow::Forget("undeclaring removes no package".to_owned());
    }
    if let Some(how) = of_containers(record, there, inputs) {
        return how;
    }
    if record.is_absence {
        return SweepHow::Forget("it was asked to be away, and may be there again".to_owned());
    }
    if record.kind == "archive" && there != &Observed::Absent {
        let stays = "an archive is unpacked and never removed, as things may have been put into its folder";
        return match inputs.names.contains(&record.name) {
            true => SweepHow::Forget(stays.to_owned()),
            // Not `refused`: that would speak against the change in which it was dropped.
            false => SweepHow::Keep(format!("{stays}; remove it by hand")),
        };
    }
    let is_folder = record.kind == "directory";
    let is_path = target.path().is_some();
    match (&record.found, there) {
        (_, Observed::Unknown(why)) => SweepHow::Refuse(why.clone()),
        (Found::Unknown, Observed::Absent) => SweepHow::Gone,
        (Found::Unknown, _) => {
            SweepHow::Forget("the ledger was lost, and nothing is removed on its word".to_owned())
        }
        (Found::Thing(thing), there) if there.thing().as_ref() == Some(thing) => {
            SweepHow::Forget("it was there before the host".to_owned())
        }
        (Found::Thing(_), Observed::Absent) if !is_path => {
            SweepHow::Forget("somebody took it away, and it was not the host's".to_owned())
        }
        (Found::Thing(_), Observed::Directory { .. }) if !is_folder => {
            SweepHow::Refuse("a directory is in its place".to_owned())
        }
        (Found::Thing(thing), _) => SweepHow::Restore(thing.clone()),
        (Found::Nothing, Observed::Absent) => SweepHow::Gone,
        (Found::Nothing, Observed::Is(_)) => SweepHow::Remove,
        (Found::Nothing, Observed::Directory { .. }) if is_folder => SweepHow::Remove,
        (Found::Nothing, Observed::File { .. } | Observed::Link { .. }) if !is_folder => SweepHow::Remove,
        (Found::Nothing, other) => SweepHow::Refuse(format!("{} is in its place", other.word())),
    }
}
