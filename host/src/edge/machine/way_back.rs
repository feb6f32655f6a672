//! What is kept of everything that a plan will touch, before it is touched (HR-14).

use std::collections::{BTreeMap, BTreeSet};

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ResourceName;

use super::Machine;
use crate::edge::disk::{DiskError, atomic};
use crate::edge::observe::observe;
use crate::edge::tree;
use crate::kinds::{self, Wanted};
use crate::pure::apply_plan::{Follow, Plan, Step, SweepHow};
use crate::pure::inverse::{Before, Place, UndoAct};
use crate::pure::observed::Observed;
use crate::pure::record::Thing;
use crate::pure::target::{Sort, Target};
use crate::pure::target_path::TargetPath;

/// What is noted of each thing that will be touched, and the bytes that it takes to go back.
pub(super) type WayBack = (Vec<Before>, BTreeMap<Digest, Vec<u8>>);

/// A thing that is no path and will be touched.
struct Touched<'a> {
    name: &'a ResourceName,
    sort: Sort,
    thing: &'a str,
    /// What will be made of it; none where it is swept.
    wanted: Option<&'a Wanted>,
    /// As what it will be given back; none where it goes.
    found: Option<&'a Thing>,
    /// How it follows, where what it stands on changes.
    follows: Option<Follow>,
}

impl Machine {
    /// What was kept of trees for a way back that nobody takes any more goes; where no tree stands either, nothing more is
    /// known of it.
    pub(super) fn forget_former_trees<'a>(
        &self,
        acts: impl Iterator<Item = (&'a Target, &'a UndoAct)>,
    ) -> Result<(), DiskError> {
        for (target, act) in acts {
            let (Target::Path(path), UndoAct::PutTree { .. } | UndoAct::RemoveTree { .. }) = (target, act)
            else {
                continue;
            };
            tree::forget_former(self.root(), path)?;
            if self.root().stat(path)?.is_none() {
                tree::forget(self.state(), path)?;
            }
        }
        Ok(())
    }

    /// Folders that the host made on the way to trees, and in which nothing is left, go: while the trees were kept they were
    /// not empty.
    pub(super) fn tidy_around_trees<'a>(
        &self,
        acts: impl Iterator<Item = (&'a Target, &'a UndoAct)>,
        made: &mut BTreeSet<TargetPath>,
    ) -> Result<(), DiskError> {
        for (target, act) in acts {
            let (Target::Path(path), UndoAct::PutTree { .. }) = (target, act) else {
                continue;
            };
            for folder in path
                .ancestors()
                .take_while(|folder| made.contains(folder))
                .collect::<Vec<_>>()
            {
                if self.root().stat(&folder)?.is_some() {
                    if !self.root().list(Some(&folder))?.is_empty() {
                        break;
                    }
                    atomic::remove_folder(self.root(), &folder)?;
                }
                made.remove(&folder);
            }
        }
        Ok(())
    }

    /// The way back from everything that will be touched, and the bytes that it needs; or why there is none.
    pub(super) fn way_back(
        &self,
        plan: &Plan,
        wanted: &BTreeMap<ResourceName, Wanted>,
    ) -> Result<WayBack, String> {
        let (mut befores, mut blobs) = self.paths_before(plan)?;
        for touched in things(plan, wanted) {
            let Touched { sort, thing, .. } = touched;
            let target = Target::Thing(sort, thing.to_owned());
            let there = kinds::state(&target, self.reach());
            if let Observed::Other(why) | Observed::Unknown(why) = &there {
                return Err(no_way_back(&target, why));
            }
            let back = kinds::way_back(
                (sort, thing),
                &there,
                (touched.wanted, touched.found),
                touched.follows,
                self.reach(),
            )
            .map_err(|why| no_way_back(&target, &why))?;
            blobs.extend(back.blobs);
            befores.push(Before {
                name: Some(touched.name.clone()),
                target,
                thing: there.thing(),
                acts: back.acts,
            });
        }
        Ok((befores, blobs))
    }

    fn paths_before(&self, plan: &Plan) -> Result<WayBack, String> {
        let mut paths: BTreeMap<TargetPath, Option<ResourceName>> = BTreeMap::new();
        let mut swept: BTreeSet<&TargetPath> = BTreeSet::new();
        for step in &plan.steps {
            match step {
                Step::Write(write) => {
                    let Some(Target::Path(path)) = &write.record.target else {
                        continue;
                    };
                    for folder in atomic::missing_folders(self.root(), path) {
                        paths.entry(folder).or_insert(None);
                    }
                    paths.insert(path.clone(), Some(write.record.name.clone()));
                }
                Step::Sweep(sweep) if sweep.acts() => {
                    if let Some(Target::Path(path)) = &sweep.target {
                        swept.insert(path);
                        paths.insert(path.clone(), Some(sweep.name.clone()));
                    }
                }
                Step::Tidy(path) => {
                    paths.entry(path.clone()).or_insert(None);
                }
                Step::Sweep(_) | Step::Follow(_) | Step::Record(_) | Step::Fail { .. } => {}
            }
        }
        let mut befores = Vec::new();
        let mut blobs = BTreeMap::new();
        // Files that make way: nothing can stand below one yet. They come before what is below them.
        let mut making_way: BTreeSet<TargetPath> = BTreeSet::new();
        for (path, name) in paths {
            let there = if path.ancestors().any(|folder| making_way.contains(&folder)) {
                Observed::Absent
            } else {
                observe(self.root(), &path)
            };
            if let Observed::Other(why) | Observed::Unknown(why) = &there {
                return Err(no_way_back(&Target::Path(path), why));
            }
            befores.push(Before::path(name, Place::Root, path.clone(), there.thing()));
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
}

/// The things that are no paths, in the order in which they are touched, each once.
fn things<'a>(plan: &'a Plan, wanted: &'a BTreeMap<ResourceName, Wanted>) -> Vec<Touched<'a>> {
    let mut all: Vec<Touched<'a>> = Vec::new();
    let mut add = |name: &'a ResourceName, target: &'a Target, (wanted, found), follows| {
        let Target::Thing(sort, thing) = target else {
            return;
        };
        match all.iter_mut().find(|t| t.sort == *sort && t.thing == thing) {
            Some(known) => known.follows = known.follows.max(follows),
            None => all.push(Touched {
                name,
                sort: *sort,
                thing,
                wanted,
                found,
                follows,
            }),
        }
    };
    for step in &plan.steps {
        match step {
            Step::Write(write) => {
                let name = &write.record.name;
                if let Some(target) = &write.record.target {
                    add(name, target, (wanted.get(name), None), None);
                }
            }
            Step::Follow(following) => {
                if let Some(target) = &following.target {
                    add(
                        &following.name,
                        target,
                        (wanted.get(&following.name), None),
                        Some(following.how),
                    );
                }
            }
            Step::Sweep(sweep) if sweep.acts() => {
                if let Some(target) = &sweep.target {
                    let found = match &sweep.how {
                        SweepHow::Restore(thing) => Some(thing),
                        _ => None,
                    };
                    add(&sweep.name, target, (None, found), None);
                }
            }
            Step::Sweep(_) | Step::Record(_) | Step::Fail { .. } | Step::Tidy(_) => {}
        }
    }
    all
}

/// Without a before image there is no way back, and what there is no way back from is not begun.
fn no_way_back(target: &Target, why: &str) -> String {
    format!("{target} cannot be kept for the way back: {why}; nothing was touched")
}
