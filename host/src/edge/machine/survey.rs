//! Looks at everything that a declaration and the ledger name, and has it planned.

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::declaration::{Declaration, Mode};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::{ModuleName, ResourceId, ResourceName};
use meshplan_schemas::report::Outcome;
use meshplan_schemas::resource::{Kind, Resource};

use super::{Change, LedgerState, Machine, MachineError};
use crate::edge::accounts::Accounts;
use crate::edge::sealed;
use crate::kinds::file::Bytes;
use crate::kinds::{self, Around, Invalid, Opened, Wanted, tree};
use crate::pure::apply_plan::{self, Ask, Decision, Follower, Inputs, Nature, Part, Plan, Step};
use crate::pure::capability;
use crate::pure::observed::Observed;
use crate::pure::order::order;
use crate::pure::record::Ledger;
use crate::pure::takeover;
use crate::pure::target::{Sort, Target};
use crate::pure::target_path::TargetPath;

/// What a survey found.
#[derive(Debug)]
pub(super) struct Survey {
    /// What to do.
    pub(super) plan: Plan,
    /// The resources that can be applied.
    pub(super) wanted: BTreeMap<ResourceName, Wanted>,
    /// The whole node is only looked at.
    pub(super) observe: bool,
}

/// What a survey came to.
#[derive(Debug)]
pub(super) enum Surveyed {
    /// A plan.
    Plan(Survey),
    /// The declaration cannot be applied at all, because.
    Refused(String),
}

impl Machine {
    /// What a declaration would change; changes nothing.
    ///
    /// # Errors
    /// The disk could not tell.
    pub fn plan(&self, declaration: &Declaration) -> Result<Vec<Change>, MachineError> {
        let survey = match self.survey(declaration, &self.book())? {
            Surveyed::Plan(survey) => survey,
            Surveyed::Refused(why) => {
                let all = declaration.resources.iter();
                let refused = all.map(|resource| Change {
                    name: resource.name.clone(),
                    kind: resource.kind.clone(),
                    outcome: Outcome::Refused,
                    what: why.clone(),
                    restarts: Vec::new(),
                });
                return Ok(refused.collect());
            }
        };
        let kind = |name: &ResourceName| {
            let resource = declaration.resources.iter().find(|r| r.name == *name);
            resource.map_or_else(String::new, |r| r.kind.clone())
        };
        let mut changes: Vec<Change> = Vec::new();
        let mut add = |name: &ResourceName, kind: String, outcome, what: &str, followers: &[Follower]| {
            let (name, what) = (name.clone(), what.to_owned());
            let restarts = followers.iter().map(|follower| follower.id.to_string()).collect();
            changes.push(Change {
                name,
                kind,
                outcome,
                what,
                restarts,
            });
        };
        for step in &survey.plan.steps {
            match step {
                Step::Write(w) => {
                    add(
                        &w.record.name,
                        w.record.kind.clone(),
                        w.outcome,
                        &w.what,
                        &w.followers,
                    );
                }
                Step::Fail {
                    name, outcome, why, ..
                } => add(name, kind(name), *outcome, why, &[]),
                Step::Follow(following) => {
                    let name = &following.name;
                    add(name, kind(name), Outcome::Restarted, &following.words(), &[]);
                }
                Step::Sweep(sweep) => {
                    let line = sweep.line();
                    add(&line.name, sweep.kind.clone(), line.outcome, &line.reason, &[]);
                }
                Step::Record(record) if record.kind == "probe" => {
                    add(
                        &record.name,
                        record.kind.clone(),
                        Outcome::Updated,
                        "is asked from now on",
                        &[],
                    );
                }
                Step::Record(_) | Step::Tidy(_) => {}
            }
        }
        for line in survey.plan.lines.iter().chain(&survey.plan.held) {
            add(&line.name, kind(&line.name), line.outcome, &line.reason, &[]);
        }
        Ok(changes)
    }

    pub(super) fn survey(
        &self,
        declaration: &Declaration,
        ledger: &Ledger,
    ) -> Result<Surveyed, MachineError> {
        let modules = match order(&declaration.modules) {
            Ok(modules) => modules,
            Err(ring) => return Ok(Surveyed::Refused(ring.to_string())),
        };
        let targets = match self.targets(declaration, ledger) {
            Ok(targets) => targets,
            Err(why) => return Ok(Surveyed::Refused(why)),
        };
        let mut accounts = Accounts::read(self.root())?;
        accounts.expect(coming(declaration));
        // Files of the host that nothing declares any more: what is to stand below one of them waits for its sweep.
        let records = ledger.records.values().chain(ledger.orphans.values());
        let falling: BTreeSet<TargetPath> = records
            .filter(|record| record.kind != "directory")
            .filter_map(|record| record.target.as_ref())
            .filter(|target| !targets.contains(target))
            .filter_map(Target::place)
            .collect();
        let not_to_be_had = takeover::refused(declaration);
        let opened = sealed::open(declaration, &self.keys);
        let observe_all = declaration.mode == Mode::Observe;
        let mut wanted = BTreeMap::new();
        let mut coming = Coming::of(declaration);
        let mut parts = Vec::new();
        for module in modules {
            let entry = declaration.modules.iter().find(|entry| entry.module == module);
            let resources: Vec<&Resource> = declaration
                .resources
                .iter()
                .filter(|r| r.name.module == module)
                .collect();
            let looked_at = observe_all || entry.is_some_and(|entry| entry.mode == Mode::Observe);
            let mut required: Vec<String> = entry.map_or_else(Vec::new, |entry| entry.requires.clone());
            let kinds = resources.iter().filter_map(|r| capability::of_kind(&r.kind));
            required.extend(kinds.map(str::to_owned));
            required.dedup();
            let lacking = capability::lacking(&required, &self.abilities);
            // What was there and is not taken stays as it is (HR-8).
            let is_untaken = declaration.adopted && !declaration.take.contains(&module);
            let is_written = |ask: &Ask| {
                let is_own = ask.target.as_ref().is_some_and(|target| ledger.has(target));
                !looked_at && (ask.found.is_none() || is_own || !is_untaken)
            };
            let asks = match lacking.or_else(|| not_to_be_had.get(&module).cloned()) {
                Some(why) => Err(why),
                None => self.asks(
                    (&resources, &opened),
                    (&accounts, ledger, &falling),
                    (&mut coming, is_written, is_untaken),
                    &mut wanted,
                ),
            };
            let part = match asks {
                Err(why) => Part::Refused {
                    names: resources.iter().map(|r| r.name.clone()).collect(),
                    why: format!("module {module} is refused: {why}"),
                },
                Ok(asks) if looked_at => Part::Observe(asks),
                Ok(asks) => Part::Apply(asks),
            };
            parts.push((module, part));
        }
        let inputs = Inputs {
            replaced: takeover::replaced(declaration),
            ledger,
            ledger_lost: matches!(self.ledger, LedgerState::Unknown { .. }),
            parts,
            there: self.there(ledger, &targets),
            declared: targets,
            names: declaration.resources.iter().map(|r| r.name.clone()).collect(),
            left_out: declaration
                .left_out
                .iter()
                .map(|l| (l.module.clone(), l.reason.clone()))
                .collect(),
            adopted: declaration.adopted,
            take: declaration.take.iter().cloned().collect::<BTreeSet<ModuleName>>(),
        };
        Ok(Surveyed::Plan(Survey {
            plan: apply_plan::plan(&inputs),
            wanted,
            observe: observe_all,
        }))
    }

    /// Every target that is named, each by one resource (HR-6).
    pub(super) fn targets(
        &self,
        declaration: &Declaration,
        ledger: &Ledger,
    ) -> Result<BTreeSet<Target>, String> {
        let mut by_target: BTreeMap<Target, &ResourceName> = BTreeMap::new();
        let mut names: BTreeSet<&ResourceName> = BTreeSet::new();
        for resource in &declaration.resources {
            let name = &resource.name;
            if !names.insert(name) {
                return Err(format!("{name} is declared twice"));
            }
            if !declaration
                .modules
                .iter()
                .any(|entry| entry.module == name.module)
            {
                return Err(format!(
                    "{name} belongs to a module that the declaration does not list"
                ));
            }
            // A kind that is not known, or a path that is none, is its module's affair.
            let Ok(kind) = resource.read() else { continue };
            let Some(target) = kinds::target(name, &kind) else {
                continue;
            };
            if kinds::is_elsewhere(&kind, self.reach()) {
                continue;
            }
            let ours = self.setup.state_inside.as_ref();
            // What stands in a tree goes with it.
            let is_tree = matches!(target, Target::Thing(Sort::Tree, _));
            if let Some(path) = target.place()
                && (ours.is_some_and(|ours| {
                    path == *ours || path.is_below(ours) || (is_tree && ours.is_below(&path))
                }) || self.among_our_own(&path))
            {
                return Err(format!(
                    "{name} names {target}, which is in the host's own state folder"
                ));
            }
            for target in kinds::claims(&kind).into_iter().chain([target]) {
                if let Some(other) = by_target.insert(target.clone(), name) {
                    return Err(format!("{other} and {name} both name {target}"));
                }
            }
        }
        still_a_process(&by_target, ledger)?;
        for (target, name) in &by_target {
            // Through a link that changes in the same order nobody could say what stood there before.
            let over = target.path().and_then(|path| {
                let mut folders = path.ancestors();
                folders.find_map(|folder| by_target.get(&Target::Path(folder)).copied())
            });
            let is_folder = |name: &ResourceName| {
                let resource = declaration.resources.iter().find(|r| r.name == *name);
                resource.is_some_and(|r| r.kind == "directory")
            };
            if let Some(over) = over.filter(|over| !is_folder(over)) {
                return Err(format!(
                    "{name} names {target}, which is below the target of {over}, no directory"
                ));
            }
        }
        Ok(by_target.into_keys().collect())
    }

    /// Whether a target is below the host's own state folder by another spelling: over a link, or another mount.
    fn among_our_own(&self, target: &TargetPath) -> bool {
        let Some(own) = self.state().way(None).ok().and_then(|way| way.first().copied()) else {
            return false;
        };
        // What would stand in it, so that the folder itself is met as well.
        let Ok(mut path) = TargetPath::parse(&format!("{target}/x")) else {
            return false;
        };
        loop {
            match self.root().way(Some(&path)) {
                Ok(way) => return way.contains(&own),
                // What is not there yet is made below what is.
                Err(_) => match path.parent() {
                    Some(parent) => path = parent,
                    None => return false,
                },
            }
        }
    }

    /// The resources of a module as asks, or why the module is refused.
    fn asks(
        &self,
        (resources, opened): (&[&Resource], &BTreeMap<ResourceName, Opened>),
        (accounts, ledger, falling): (&Accounts, &Ledger, &BTreeSet<TargetPath>),
        (coming, is_written, is_untaken): (&mut Coming, impl Fn(&Ask) -> bool, bool),
        wanted: &mut BTreeMap<ResourceName, Wanted>,
    ) -> Result<Vec<Ask>, String> {
        let mut asks = Vec::new();
        let around = |resource: &&Resource| {
            let around = kinds::around_of(&resource.read().ok()?, self.reach())?;
            Some((resource.name.id.clone(), around))
        };
        let around: BTreeMap<ResourceId, Result<Around, String>> =
            resources.iter().filter_map(around).collect();
        let resting = self.resting(resources);
        let trees: BTreeMap<ResourceId, String> = (resources.iter())
            .filter_map(|resource| {
                let tree = tree::path_of(&resource.read().ok()?)?;
                Some((resource.name.id.clone(), tree))
            })
            .collect();
        for resource in resources {
            let name = &resource.name;
            let kind = resource.read().map_err(|e| format!("{name}: {e}"))?;
            let kind = tree::in_its_bundle(kind, &trees).map_err(|why| format!("{name}: {why}"))?;
            let asked =
                Digest::of_value(&(&resource.kind, &resource.spec)).map_err(|e| format!("{name}: {e}"))?;
            let mut ask = Ask {
                name: name.clone(),
                kind: resource.kind.clone(),
                target: None,
                asked,
                content: None,
                followers: Vec::new(),
                decision: Decision::Unchanged,
                found: None,
                nature: Nature::default(),
            };
            match Wanted::validate(name, &kind, accounts, (opened.get(name), &around)) {
                Err(Invalid::Fields(why)) => return Err(format!("{name}: {why}")),
                Err(Invalid::Machine(why)) => {
                    ask.target = kinds::target(name, &kind);
                    ask.decision = Decision::Unknown(why);
                }
                Ok(mut thing) => {
                    thing.foresee(&coming.bytes, self.reach());
                    if let (Wanted::Tree(tree), Some(target)) = (&mut thing, kinds::target(name, &kind)) {
                        tree.is_on_record = ledger.has(&target);
                    }
                    if let Wanted::Filter(filter) = &mut thing {
                        filter.may_retire = !is_untaken;
                        filter.recall(ledger);
                    }
                    if let Some(target) = thing.target() {
                        let falls = |path: TargetPath| {
                            falling.contains(&path)
                                || path.ancestors().any(|folder| falling.contains(&folder))
                        };
                        let there = if target.place().is_some_and(falls) {
                            Observed::Absent
                        } else {
                            kinds::state(&target, self.reach())
                        };
                        let ran = ledger.has_done(&target, asked);
                        // What is down for a run comes back with its end, and not before.
                        if !(ran && resting.contains(&name.id)) {
                            ask.decision = thing.plan(&there, ran, self.reach());
                            ask.nature = nature(resource, &thing, &there);
                        }
                        if !kinds::is_elsewhere(&kind, self.reach()) {
                            ask.found = there.thing();
                            ask.target = Some(target);
                        }
                    }
                    ask.content = thing.content();
                    ask.followers = thing.followers().to_vec();
                    ask.followers.extend(tree::run_out_of(&name.id, resources));
                    if is_written(&ask) {
                        coming.add(&ask, &thing);
                    }
                    wanted.insert(name.clone(), thing);
                }
            }
            asks.push(ask);
        }
        Ok(asks)
    }

    /// What is stopped around a run that is under way (HK-9).
    fn resting(&self, resources: &[&Resource]) -> BTreeSet<ResourceId> {
        let runs = resources
            .iter()
            .filter_map(|resource| kinds::stopped_while(&resource.read().ok()?));
        let under_way = runs.filter(|(unit, ids)| {
            !ids.is_empty() && matches!(self.setup.system.unit(unit), Ok(Some(unit)) if !unit.is_at_rest())
        });
        under_way.flat_map(|(_, ids)| ids).collect()
    }

    /// What stands at targets that are no longer declared, and at the folders that the host made.
    fn there(&self, ledger: &Ledger, declared: &BTreeSet<Target>) -> BTreeMap<Target, Observed> {
        let records = ledger.records.values().chain(ledger.orphans.values());
        let made = ledger.made.iter().cloned().map(Target::Path);
        let targets = records.filter_map(|record| record.target.clone()).chain(made);
        targets
            .filter(|target| !declared.contains(target))
            .map(|target| {
                let there = kinds::state(&target, self.reach());
                (target, there)
            })
            .collect()
    }
}

/// Files that the apply itself writes, and from which containers take their environment.
struct Coming {
    /// What is taken for an environment.
    named: BTreeSet<String>,
    /// What will stand there.
    bytes: BTreeMap<String, Bytes>,
}

impl Coming {
    fn of(declaration: &Declaration) -> Self {
        let environments = declaration.resources.iter().filter_map(|r| match r.read() {
            Ok(Kind::Container(container)) => Some(container.env_files),
            _ => None,
        });
        Self {
            named: environments.flatten().collect(),
            bytes: BTreeMap::new(),
        }
    }

    fn add(&mut self, ask: &Ask, thing: &Wanted) {
        if let (Wanted::File(file), Decision::Create(_) | Decision::Update(_)) = (thing, &ask.decision)
            && self.named.contains(file.path.as_str())
        {
            self.bytes.insert(file.path.to_string(), file.bytes.clone());
        }
    }
}

/// The users and groups that the declaration itself makes.
fn coming(declaration: &Declaration) -> impl Iterator<Item = String> + '_ {
    let resources = declaration.resources.iter();
    resources.filter_map(|resource| match resource.read() {
        Ok(Kind::User(user)) if !user.absent => Some(user.name),
        Ok(Kind::Group(group)) if !group.absent => Some(group.name),
        _ => None,
    })
}

fn nature(resource: &Resource, wanted: &Wanted, there: &Observed) -> Nature {
    let lasts = wanted.not_reversible().map(str::to_owned);
    Nature {
        is_absence: wanted.is_absence(),
        is_for_good: wanted.is_absence() && wanted.stays_away() && resource.forward_only != Some(false),
        starts: wanted.starts(there),
        is_gate: wanted.is_gate(),
        not_reversible: resource.not_reversible.clone().or(lasts),
        is_behind_window: wanted.is_behind_window(),
    }
}

/// A unit, or its file, that is still a process of the host's changes hands in two steps: what nothing declares any
/// more would be taken away under the new one.
fn still_a_process(by_target: &BTreeMap<Target, &ResourceName>, ledger: &Ledger) -> Result<(), String> {
    for record in ledger.records.values().chain(ledger.orphans.values()) {
        let Some(own @ Target::Thing(Sort::Process, process)) = &record.target else {
            continue;
        };
        if by_target.contains_key(own) {
            continue;
        }
        let claims = kinds::claims_of(process);
        if let Some((target, name)) = claims.iter().find_map(|claim| by_target.get_key_value(claim)) {
            return Err(format!(
                "{name} names {target}, which is still the process {process} of {}: let one change take the \
                 process away, and the next declare {name}",
                record.name
            ));
        }
    }
    Ok(())
}
