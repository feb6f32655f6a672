//! What an apply does, decided before the first act (HR-2, HR-3, HR-6, HR-8, HR-16).
//!
//! Stands alone because the preview, the observing node and the apply must tell the same story: they read one
//! plan. Invariant: what is not in the ledger is never swept; what another resource declares is never swept.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ModuleName, ResourceId, ResourceName};
use meshplan_schemas::report::{Outcome, ResourceLine};

use super::observed::Observed;
use super::outcome::line;
use super::record::{Found, Held, Ledger, Record, Thing};
use super::target::Target;
use super::target_path::TargetPath;

mod follow;
mod sweep;
#[cfg(test)]
mod tests;

pub use follow::{Follow, Follower, Following};
pub use sweep::{Sweep, SweepHow};

/// What applying a resource would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It is as asked.
    Unchanged,
    /// Nothing is there.
    Create(String),
    /// Something other is there.
    Update(String),
    /// Nothing is done, and that is right and worth a line.
    Idle(String),
    /// It cannot be done, because.
    Refuse(String),
    /// Could not tell, because.
    Unknown(String),
}

/// A resource that is asked for, and how it stands with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Which.
    pub name: ResourceName,
    /// The kind's word.
    pub kind: String,
    /// What it has; none for a probe.
    pub target: Option<Target>,
    /// The digest of kind and fields.
    pub asked: Digest,
    /// The digest of a file's bytes, of what a container is made from, or of the text of a filter.
    pub content: Option<Digest>,
    /// What is restarted, reloaded or run when it changes.
    pub followers: Vec<Follower>,
    /// What applying it would do.
    pub decision: Decision,
    /// What stands there.
    pub found: Option<Thing>,
    /// What kind of change it is.
    pub nature: Nature,
}

/// What kind of change making a resource so is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Nature {
    /// It is asked to be away.
    pub is_absence: bool,
    /// It takes away what a roll-back does not bring back (DL-7).
    pub is_for_good: bool,
    /// It starts a program afresh.
    pub starts: bool,
    /// All that comes after it waits for it (HR-4).
    pub is_gate: bool,
    /// Why it cannot be undone (HR-5).
    pub not_reversible: Option<String>,
    /// Other content of the same fields is no drift: it may shut people out, so it goes only behind a window (HK-11).
    pub is_behind_window: bool,
}

/// How a module takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Its resources are applied.
    Apply(Vec<Ask>),
    /// They are looked at only (HR-2).
    Observe(Vec<Ask>),
    /// It is refused whole, because: unknown kinds, fields that cannot be (SG-4).
    Refused {
        /// Its resources.
        names: Vec<ResourceName>,
        /// Why.
        why: String,
    },
}

/// What a plan is made from.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// What the host has written.
    pub ledger: &'a Ledger,
    /// The ledger was lost: what stands there may be the host's or not.
    pub ledger_lost: bool,
    /// The modules in their order.
    pub parts: Vec<(ModuleName, Part)>,
    /// Every target that the declaration names, also of refused and observed modules.
    pub declared: BTreeSet<Target>,
    /// Every resource that the declaration names.
    pub names: BTreeSet<ResourceName>,
    /// What processes of the declaration take over from: each thing, and the process (HK-7).
    pub replaced: BTreeMap<ResourceName, ResourceName>,
    /// Modules that it leaves out, with the reason (HR-7).
    pub left_out: BTreeMap<ModuleName, String>,
    /// The machine was there before (HR-8).
    pub adopted: bool,
    /// Modules whose found things may be taken.
    pub take: BTreeSet<ModuleName>,
    /// What stands at targets of the ledger that are not declared, and at the folders that the host made.
    pub there: BTreeMap<Target, Observed>,
}

/// One thing to do, or not to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make a resource as asked.
    Write(Box<Write>),
    /// Nothing is done on the machine, only the record is new.
    Record(Record),
    /// It cannot be done; the rest of its module is not attempted.
    Fail {
        /// Which.
        name: ResourceName,
        /// Refused or failed.
        outcome: Outcome,
        /// Why.
        why: String,
        /// The digest of what was asked.
        asked: Digest,
    },
    /// A program is restarted, reloaded or run, for something that it stands on changes.
    Follow(Following),
    /// Something that is no longer declared.
    Sweep(Sweep),
    /// Remove a folder that the host once made on the way, as nothing will be in it.
    Tidy(TargetPath),
}

/// A write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Created, updated or drift-repaired.
    pub outcome: Outcome,
    /// In words.
    pub what: String,
    /// What is restarted, reloaded or run.
    pub followers: Vec<Follower>,
    /// What kind of change it is.
    pub nature: Nature,
    /// The ledger's record once it is done.
    pub record: Record,
    /// What stands there.
    pub before: Option<Thing>,
}

/// What an apply does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// In order.
    pub steps: Vec<Step>,
    /// Lines that are certain already: observed, refused, left out.
    pub lines: Vec<ResourceLine>,
    /// What is held.
    pub held: Vec<ResourceLine>,
    /// The ledger's entries for it.
    pub holds: BTreeMap<ResourceName, Held>,
}

impl Plan {
    /// The first resource that cannot be done, and why.
    #[must_use]
    pub fn first_failure(&self) -> Option<(&ResourceName, &str)> {
        self.steps.iter().find_map(|step| match step {
            Step::Fail { name, why, .. } => Some((name, why.as_str())),
            _ => None,
        })
    }

    /// Whether anything on the machine, or of what is asked, changes.
    #[must_use]
    pub fn changes_something(&self, ledger: &Ledger) -> bool {
        self.steps.iter().any(|step| match step {
            Step::Write(_) | Step::Follow(_) | Step::Fail { .. } | Step::Tidy(_) => true,
            Step::Sweep(sweep) => sweep.acts() || sweep.kind == "probe",
            Step::Record(record) => {
                record.kind == "probe"
                    && ledger
                        .records
                        .get(&record.name)
                        .is_none_or(|old| old.asked != record.asked)
            }
        })
    }
}

/// Makes the plan.
#[must_use]
pub fn plan(inputs: &Inputs<'_>) -> Plan {
    let mut plan = Plan::default();
    let sweeps = sweep::sweeps(inputs, &mut plan.lines);
    plan.steps.extend(sweeps.early.into_iter().map(Step::Sweep));
    for (module, part) in &inputs.parts {
        match part {
            Part::Refused { names, why } => {
                let refused = names
                    .iter()
                    .map(|name| line(name, Outcome::Refused, why.clone(), None));
                plan.lines.extend(refused);
            }
            Part::Observe(asks) => plan.lines.extend(asks.iter().filter_map(observed_line)),
            Part::Apply(asks) => {
                let first = plan.steps.len();
                for ask in asks {
                    one(inputs, module, ask, &mut plan);
                }
                let following = follow::following(
                    asks,
                    plan.steps.get(first..).unwrap_or_default(),
                    |name| plan.holds.contains_key(name),
                    &inputs.ledger.due,
                );
                plan.steps.extend(following.into_iter().map(Step::Follow));
            }
        }
    }
    let late = sweeps
        .late
        .into_iter()
        .map(|sweep| sweep::given_up(sweep, inputs, &plan.holds));
    let late: Vec<Sweep> = late.collect();
    plan.steps.extend(late.into_iter().map(Step::Sweep));
    plan.steps.extend(sweeps.tidy.into_iter().map(Step::Tidy));
    plan
}

/// What follows a change, in words.
fn after_words(followers: &[Follower]) -> String {
    let words: Vec<String> = (followers.iter())
        .map(|follower| format!("{} is {}", follower.id, follower.how.word()))
        .collect();
    match words.as_slice() {
        [] => String::new(),
        words => format!("; {}", words.join(", ")),
    }
}

fn observed_line(ask: &Ask) -> Option<ResourceLine> {
    let (outcome, reason) = match &ask.decision {
        Decision::Unchanged => return None,
        Decision::Idle(why) => (Outcome::Skipped, why.clone()),
        Decision::Create(what) | Decision::Update(what) => {
            (Outcome::Skipped, format!("observed only, would change: {what}"))
        }
        Decision::Refuse(why) => (Outcome::Refused, why.clone()),
        Decision::Unknown(why) => (Outcome::Failed, why.clone()),
    };
    Some(line(&ask.name, outcome, reason, Some(ask.asked)))
}

/// The host's record of what stands at a target, under whatever name.
fn own<'a>(ledger: &'a Ledger, ask: &Ask) -> Option<&'a Record> {
    let target = ask.target.as_ref()?;
    ledger
        .records
        .get(&ask.name)
        .filter(|record| record.target.as_ref() == Some(target))
        .or_else(|| {
            ledger
                .records
                .values()
                .find(|record| record.target.as_ref() == Some(target))
        })
        .or_else(|| ledger.orphans.get(target))
}

fn one(inputs: &Inputs<'_>, module: &ModuleName, ask: &Ask, plan: &mut Plan) {
    let ledger = inputs.ledger;
    let own = own(ledger, ask);
    let foreign = own.is_none() && ask.found.as_ref().is_some_and(Thing::is_in_force);
    if foreign && inputs.adopted && !inputs.take.contains(module) {
        hold(ledger, module, ask, plan);
        return;
    }
    let found = match (own, &ask.found) {
        (Some(record), _) => record.found.clone(),
        (None, None) => Found::Nothing,
        (None, Some(_)) if inputs.ledger_lost => Found::Unknown,
        (None, Some(there)) => {
            let first = ledger
                .held
                .get(&ask.name)
                .filter(|held| Some(&held.target) == ask.target.as_ref());
            Found::Thing(first.map_or_else(|| there.clone(), |held| held.original.clone()))
        }
    };
    let record = Record {
        name: ask.name.clone(),
        kind: ask.kind.clone(),
        target: ask.target.clone(),
        asked: ask.asked,
        content: ask.content,
        is_absence: ask.nature.is_absence,
        found,
    };
    let fail = |outcome, why: &String| Step::Fail {
        name: ask.name.clone(),
        outcome,
        why: why.clone(),
        asked: ask.asked,
    };
    let drifted = own.is_some_and(|record| {
        record.asked == ask.asked && (!ask.nature.is_behind_window || record.content == ask.content)
    });
    let (outcome, what) = match &ask.decision {
        Decision::Unchanged | Decision::Idle(_) => {
            if let Decision::Idle(why) = &ask.decision {
                let idle = line(&ask.name, Outcome::Skipped, why.clone(), Some(ask.asked));
                plan.lines.push(idle);
            }
            if ledger.records.get(&ask.name) != Some(&record) {
                plan.steps.push(Step::Record(record));
            }
            return;
        }
        Decision::Refuse(why) => return plan.steps.push(fail(Outcome::Refused, why)),
        Decision::Unknown(why) => return plan.steps.push(fail(Outcome::Failed, why)),
        Decision::Create(what) | Decision::Update(what) if drifted => (
            Outcome::DriftRepaired,
            format!("somebody changed it; put right: {what}"),
        ),
        Decision::Create(what) => (Outcome::Created, what.clone()),
        Decision::Update(what) => (Outcome::Updated, what.clone()),
    };
    let lasts = ask.nature.not_reversible.as_ref();
    let lasts = lasts.map_or_else(String::new, |why| format!("; it cannot be undone: {why}"));
    plan.steps.push(Step::Write(Box::new(Write {
        outcome,
        what: format!("{what}{}{lasts}", after_words(&ask.followers)),
        followers: ask.followers.clone(),
        nature: ask.nature.clone(),
        record,
        before: ask.found.clone(),
    })));
}

/// What stands there is not the host's and stays (HR-8).
fn hold(ledger: &Ledger, module: &ModuleName, ask: &Ask, plan: &mut Plan) {
    let (Some(target), Some(there)) = (&ask.target, &ask.found) else {
        return;
    };
    let differs = match &ask.decision {
        Decision::Unchanged => format!("{target} is as asked already"),
        Decision::Create(what)
        | Decision::Update(what)
        | Decision::Idle(what)
        | Decision::Refuse(what)
        | Decision::Unknown(what) => what.clone(),
    };
    let reason = format!("{module} is assigned and not taken: {differs}");
    plan.held
        .push(line(&ask.name, Outcome::Held, reason, Some(ask.asked)));
    let first = ledger.held.get(&ask.name).filter(|held| held.target == *target);
    let held = first.cloned().unwrap_or_else(|| Held {
        target: target.clone(),
        original: there.clone(),
    });
    plan.holds.insert(ask.name.clone(), held);
}
