//! A container of the machine's engine (HK-8): for ever, once for each build, or by a timer.
//!
//! What a container was made from is known by the digest that it carries as a label; it is made anew only when that is
//! another. The former one is stopped and renamed, and goes with the confirm: the way back renames it again. Nothing here
//! takes an engine that does not answer for one that has no such container.

mod found;
mod make;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use meshplan_schemas::digest::Digest;
use meshplan_schemas::ident::ResourceId;
use meshplan_schemas::resource::containers::Container;
use meshplan_schemas::resource::programs::{Process, Restart, Run, Witness};
use zeroize::Zeroizing;

use super::file::Bytes;
use super::{Around, Back, Decision, Follow, Invalid, Opened, Reach, Seen, process};
use crate::edge::engine::{self, Engine, Turn};
use crate::edge::observe::observe;
use crate::pure::container_spec::{FORMER, SPEC, Spec, former_of, is_name, unmakeable};
use crate::pure::inverse::When;
use crate::pure::observed::Observed;
use crate::pure::record::{Container as Kept, Thing};
use crate::pure::target::Sort;
use crate::pure::target_path::TargetPath;

/// How long one that is given back has to stop.
const GRACE_SECS: u32 = 10;

/// A container that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The fields.
    pub asked: Container,
    /// Its environment out of secrets.
    secret: Option<Bytes>,
    /// What is stopped around its runs.
    stopped: Vec<Around>,
    /// What it is made from, as far as is known now.
    foreseen: Result<Foreseen, String>,
}

/// What a container is made from, files of its environment included.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Foreseen {
    spec: Spec,
    digest: String,
    /// The units that start it, where it is scheduled.
    units: Option<process::Wanted>,
}

/// Checks the fields. `opened` is its environment out of secrets, or why there is none; `around`: how what else the module
/// has is stopped and started.
///
/// # Errors
/// [`Invalid`].
pub fn validate(
    asked: &Container,
    opened: Option<&Opened>,
    around: &BTreeMap<ResourceId, Result<Around, String>>,
) -> Result<Wanted, Invalid> {
    let fields = |why: String| Invalid::Fields(format!("container {}: {why}", asked.name));
    if let Some(why) = unmakeable(asked) {
        return Err(fields(why));
    }
    for path in &asked.env_files {
        super::path(path)?;
    }
    let stopped = process::stopped(&asked.while_stopped, around)?;
    let secret = match (&asked.env_sealed, opened) {
        (None, _) => None,
        (Some(_), Some(Ok(value))) => Some(Bytes::Secret(value.clone())),
        (Some(_), Some(Err(why))) => return Err(fields(why.clone())),
        (Some(_), None) => return Err(fields("its environment is a sealed value".to_owned())),
    };
    Ok(Wanted {
        asked: asked.clone(),
        secret,
        stopped,
        foreseen: Err("nobody has looked at its environment yet".to_owned()),
    })
}

/// The name of the units of a scheduled container.
#[must_use]
pub fn units_of(name: &str) -> String {
    format!("container-{name}")
}

impl Wanted {
    /// Looks at what it is made from. `coming`: what will stand at paths when it is made, where that is not what stands
    /// there now.
    pub fn foresee(&mut self, coming: &BTreeMap<String, Bytes>, reach: Reach<'_>) {
        self.foreseen = self.look(coming, reach);
    }

    /// Why it cannot be made now; none where it can.
    #[must_use]
    pub fn hindrance(&self) -> Option<String> {
        self.foreseen.as_ref().err().cloned()
    }

    /// The digest of what it is made from.
    #[must_use]
    pub fn digest(&self) -> Option<&str> {
        self.foreseen
            .as_ref()
            .ok()
            .map(|foreseen| foreseen.digest.as_str())
    }

    fn look(&self, coming: &BTreeMap<String, Bytes>, reach: Reach<'_>) -> Result<Foreseen, String> {
        let mut files = Vec::new();
        for path in &self.asked.env_files {
            let bytes = match coming.get(path) {
                Some(bytes) => bytes.zeroizing(),
                None => {
                    let at = TargetPath::parse(path).map_err(|e| e.to_string())?;
                    match observe(reach.root, &at) {
                        Observed::File { bytes, .. } => Zeroizing::new(bytes),
                        other => {
                            return Err(format!(
                                "{path}, of its environment, is {}, no file",
                                other.word()
                            ));
                        }
                    }
                }
            };
            files.push((path.clone(), bytes));
        }
        if let Some(secret) = &self.secret {
            files.push(("the secret".to_owned(), secret.zeroizing()));
        }
        let spec = Spec::of(&self.asked, &files)?;
        let digest = spec.digest()?.to_string();
        let units = match self.asked.run {
            Run::Scheduled => Some(self.units(reach)?),
            Run::Daemon | Run::Once => None,
        };
        Ok(Foreseen { spec, digest, units })
    }

    /// The units by which it runs: the launcher starts it and waits for its end, as it needs no client.
    fn units(&self, reach: Reach<'_>) -> Result<process::Wanted, String> {
        let Container { name, .. } = &self.asked;
        let engine = reach.system.engine();
        let process = Process {
            name: units_of(name),
            command: engine.undo(&["run", name])?,
            run: Run::Scheduled,
            restart: Restart::Never,
            timeout_secs: self.asked.timeout_secs,
            stop_secs: self.asked.stop_secs.saturating_add(GRACE_SECS),
            witness: Witness::None,
            bundle: None,
            build: None,
            user: None,
            group: None,
            working_directory: None,
            env: Default::default(),
            env_files: Vec::new(),
            limits: Default::default(),
            open: Default::default(),
            schedule: self.asked.schedule.clone(),
            while_stopped: Vec::new(),
            replaces: Vec::new(),
            probe: None,
            prepares_for: None,
        };
        // A run that takes too long ends with its unit, before anything is started again.
        let itself = Around::Argv {
            stop: None,
            start: engine.undo(&["stop", name])?,
        };
        let around: Vec<Around> = self.stopped.iter().cloned().chain([itself]).collect();
        process::of(&process, &around).map_err(|why| match why {
            Invalid::Fields(why) | Invalid::Machine(why) => why,
        })
    }

    /// Whether what was found is made from what is asked for.
    fn is_made_so(&self, found: &Kept) -> bool {
        found.spec.is_some() && found.spec.as_deref() == self.digest()
    }
}

/// How it stands.
#[must_use]
pub fn state(reach: Reach<'_>, name: &str) -> Observed {
    if !is_name(name) && !name.ends_with(FORMER) {
        return Observed::Unknown(format!("{name:?} is no name of a container"));
    }
    let units = match process::state_of_own(reach, &units_of(name)) {
        Ok(units) => units.map(Box::new),
        Err(why) => return Observed::Unknown(why),
    };
    match (reach.system.engine().container(name), units) {
        (Err(why), _) => Observed::Unknown(why),
        (Ok(None), None) => Observed::Absent,
        (Ok(found), units) => {
            Observed::Is(Thing::Container(Box::new(kept(found.unwrap_or_default(), units))))
        }
    }
}

fn kept(found: engine::Container, units: Option<Box<Thing>>) -> Kept {
    Kept {
        id: found.id,
        image: found
            .labels
            .get(crate::pure::container_spec::IMAGE)
            .cloned()
            .unwrap_or(found.image),
        image_id: found.image_id,
        spec: found.labels.get(SPEC).cloned(),
        status: found.state.status,
        networks: found.networks,
        units,
    }
}

impl Kept {
    fn is_up(&self) -> bool {
        self.status == "running"
    }

    /// Only its units are there.
    fn is_missing(&self) -> bool {
        self.id.is_empty()
    }
}

fn container_of(observed: Option<&Thing>) -> Option<&Kept> {
    match observed {
        Some(Thing::Container(kept)) => Some(kept),
        _ => None,
    }
}

/// What would change. `ran`: the ledger says that it was done as it is asked for now.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed, ran: bool, reach: Reach<'_>) -> Decision {
    let Container { name, run, image, .. } = &wanted.asked;
    if let Observed::Unknown(why) = observed {
        return Decision::Unknown(format!("container {name}: {why}"));
    }
    let foreseen = match &wanted.foreseen {
        Ok(foreseen) => foreseen,
        Err(why) => return Decision::Refuse(format!("container {name}: {why}")),
    };
    let there = observed.thing();
    let there = container_of(there.as_ref());
    if *run == Run::Once && ran {
        // What ran stays done, also where somebody took it away.
        return Decision::Unchanged;
    }
    let mut words = Vec::new();
    let found = there.filter(|found| !found.is_missing());
    match found {
        None => words.push(format!("it is made from the image {image}")),
        Some(found) if !wanted.is_made_so(found) => words.push(found::differs(wanted, found, reach)),
        Some(found) => {
            let lacking: Vec<&str> = foreseen
                .spec
                .networks
                .difference(&found.networks)
                .map(String::as_str)
                .collect();
            if !lacking.is_empty() {
                words.push(format!("it joins {}", lacking.join(", ")));
            }
        }
    }
    let is_up = found.is_some_and(Kept::is_up);
    match run {
        Run::Daemon if found.is_some() && !is_up => words.push("it is started".to_owned()),
        Run::Once => words.push("it runs once".to_owned()),
        Run::Daemon | Run::Scheduled => {}
    }
    let units = there.and_then(|found| found.units.as_deref());
    match &foreseen.units {
        None if units.is_some() => words.push("its timer goes".to_owned()),
        None => {}
        Some(wanted) => {
            let units = units.map_or(Observed::Absent, |units| Observed::Is(units.clone()));
            match process::plan(wanted, &units, ran) {
                Decision::Unchanged | Decision::Idle(_) => {}
                Decision::Create(why) | Decision::Update(why) => words.push(why),
                Decision::Refuse(why) => return Decision::Refuse(why),
                Decision::Unknown(why) => return Decision::Unknown(why),
            }
        }
    }
    match (words.as_slice(), found) {
        ([], _) => Decision::Unchanged,
        (words, None) => Decision::Create(format!("container {name} is new: {}", words.join("; "))),
        (words, Some(_)) => Decision::Update(format!("container {name}: {}", words.join("; "))),
    }
}

/// Whether it is started afresh by what [`plan`] would change.
#[must_use]
pub fn starts(wanted: &Wanted, observed: &Observed) -> bool {
    let there = observed.thing();
    let stands = container_of(there.as_ref()).is_some_and(|found| found.is_up() && wanted.is_made_so(found));
    wanted.asked.run != Run::Scheduled && !stands
}

/// Has its image here before anything is touched; the image's id where it was fetched. Nothing where the container stands
/// as it is asked for.
///
/// # Errors
/// In words: it cannot be had.
pub fn fetch(wanted: &Wanted, reach: Reach<'_>) -> Result<Option<String>, String> {
    let engine = reach.system.engine();
    let stands = engine.container(&wanted.asked.name)?;
    let is_so = stands.is_some_and(|found| wanted.is_made_so(&kept(found, None)));
    if is_so {
        return Ok(None);
    }
    make::fetch(engine, &wanted.asked.image)
}

/// Makes it so; how it stood at the first look, where it was started. `ran`: as of [`plan`].
///
/// # Errors
/// In words.
pub fn apply(wanted: &Wanted, ran: bool, reach: Reach<'_>) -> Result<Option<Seen>, String> {
    let foreseen = wanted.foreseen.as_ref().map_err(Clone::clone)?;
    let Container { name, run, .. } = &wanted.asked;
    let engine = reach.system.engine();
    if foreseen.units.is_none() && process::state_of_own(reach, &units_of(name))?.is_some() {
        process::give_back(&units_of(name), None, reach)?;
    }
    let was_up = match engine.container(name)? {
        Some(found) if found.labels.get(SPEC) == Some(&foreseen.digest) => {
            let was_up = found.state.is_up();
            make::run(wanted, &found.id, ran, engine)?;
            was_up
        }
        found => {
            make::anew(wanted, foreseen, found, engine)?;
            false
        }
    };
    match run {
        Run::Daemon if !was_up => first_look(engine, name).map(Some),
        Run::Daemon | Run::Once => Ok(None),
        Run::Scheduled => match &foreseen.units {
            Some(units) => process::apply(units, ran, reach),
            None => Ok(None),
        },
    }
}

/// The container, when it is up.
fn first_look(engine: &dyn Engine, name: &str) -> Result<Seen, String> {
    let found = engine
        .container(name)?
        .ok_or_else(|| format!("container {name} was started and is gone"))?;
    if !found.state.is_up() || found.state.is_unhealthy() {
        return Err(format!(
            "container {name} was started and does not run well: it is {}",
            found.state.words()
        ));
    }
    Ok(Seen::Container {
        name: name.to_owned(),
        id: found.id,
        state: found.state,
    })
}

/// What is wrong with a container at the second look, a moment after it was started.
pub(super) fn died_between(
    (name, id, first): (&str, &str, &engine::State),
    engine: &dyn Engine,
) -> Option<String> {
    let second = match engine.container(name) {
        Err(why) => return Some(format!("it was started, and could not be looked at again: {why}")),
        Ok(None) => return Some("it was started, and a moment later it is gone".to_owned()),
        Ok(Some(second)) => second,
    };
    let state = &second.state;
    if second.id != id {
        return Some("it was started, and a moment later another has its name".to_owned());
    }
    if !state.is_up() {
        return Some(format!(
            "it was started and died a moment later: it is {}",
            state.words()
        ));
    }
    if state.restarts > first.restarts || state.started_at != first.started_at {
        return Some("it was started, died and was started again by the engine".to_owned());
    }
    state
        .is_unhealthy()
        .then(|| "it was started, and its healthcheck says that it does not work".to_owned())
}

/// Restarts it, or runs it again, as something that it stands on changed; where its environment did, it is made anew.
///
/// # Errors
/// In words.
pub fn follow(wanted: &Wanted, reach: Reach<'_>) -> Result<Option<Seen>, String> {
    let mut now = wanted.clone();
    now.foresee(&BTreeMap::new(), reach);
    let foreseen = now.foreseen.as_ref().map_err(Clone::clone)?;
    let Container {
        name, run, stop_secs, ..
    } = &now.asked;
    let engine = reach.system.engine();
    let found = engine.container(name)?;
    match (run, found) {
        (_, found) if found.as_ref().and_then(|found| found.labels.get(SPEC)) != Some(&foreseen.digest) => {
            make::anew(&now, foreseen, found, engine)?;
        }
        (Run::Daemon, Some(found)) => engine.turn(&found.id, Turn::Restart(*stop_secs))?,
        (Run::Once, Some(found)) => make::run(&now, &found.id, false, engine)?,
        // Its next run sees what changed.
        (Run::Scheduled, _) | (_, None) => {}
    }
    match run {
        Run::Daemon => first_look(engine, name).map(Some),
        Run::Once | Run::Scheduled => Ok(None),
    }
}

/// The way back to how it stands. `wanted` is what will be made of it, none where it is swept; `follows`: how it follows
/// when what it stands on has changed back.
///
/// # Errors
/// In words: there is none.
pub fn way_back(
    name: &str,
    there: &Observed,
    (wanted, follows): (Option<&Wanted>, Option<Follow>),
    reach: Reach<'_>,
) -> Result<Back, String> {
    let engine = reach.system.engine();
    let former = former_of(name);
    if engine.container(&former)?.is_some() {
        return Err(format!(
            "the container {former} is left of a former change, and would be lost; remove it by hand, or rename it"
        ));
    }
    let there = there.thing();
    let was = container_of(there.as_ref());
    let mut back = Back::default();
    let mut run = |when, words: &[&str]| -> Result<(), String> {
        let argv = engine.undo(words)?;
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        back.run(when, (Sort::Container, name), &argv, &[]);
        Ok(())
    };
    match was.filter(|was| !was.is_missing()) {
        None => run(When::First, &["remove", name])?,
        Some(was) => {
            run(When::First, &["restore", name, &was.id])?;
            if was.is_up() {
                let word = if follows.is_some() { "restart" } else { "start" };
                run(When::Last, &[word, name])?;
            } else {
                run(When::First, &["stop", name])?;
            }
        }
    }
    let units = was.and_then(|was| was.units.as_deref());
    let coming = wanted.and_then(|wanted| wanted.foreseen.as_ref().ok()?.units.as_ref());
    if units.is_some() || coming.is_some() {
        let units = units.map_or(Observed::Absent, |units| Observed::Is(units.clone()));
        let of_units = process::way_back(&units_of(name), &units, (coming, None), reach)?;
        // The timer stops first, or it would start what goes.
        back.acts.splice(0..0, of_units.acts);
        back.blobs.extend(of_units.blobs);
    }
    Ok(back)
}

/// Stops it and has it wait for the confirm, with which it goes; says what was done. One that was found goes too: what was
/// found was replaced when it was taken.
///
/// # Errors
/// In words.
pub fn give_back(name: &str, reach: Reach<'_>) -> Result<String, String> {
    let engine = reach.system.engine();
    if process::state_of_own(reach, &units_of(name))?.is_some() {
        process::give_back(&units_of(name), None, reach)?;
    }
    if let Some(found) = engine.container(name)? {
        if !found.state.is_at_rest() {
            engine.turn(&found.id, Turn::Stop(GRACE_SECS))?;
        }
        engine.turn(&found.id, Turn::Rename(&former_of(name)))?;
    }
    Ok(format!("container {name} is stopped, and goes with the confirm"))
}

/// Takes away what waited for the confirm, with its image where the host fetched that and nothing else has it; the id of an
/// image that is gone.
///
/// # Errors
/// In words.
pub fn clear(
    former: &str,
    fetched: &BTreeSet<String>,
    engine: &dyn Engine,
) -> Result<Option<String>, String> {
    let found = match former.ends_with(FORMER) {
        true => engine.container(former)?,
        false => None,
    };
    let Some(found) = found else { return Ok(None) };
    engine.turn(&found.id, Turn::Remove)?;
    let image = found.image_id;
    if !fetched.contains(&image) {
        return Ok(None);
    }
    engine.remove_image(&image)?;
    Ok(engine.image(&image)?.is_none().then_some(image))
}

/// Whether it stands as it is on record.
///
/// # Errors
/// In words: the engine did not answer.
pub fn stands_as(name: &str, digest: Option<Digest>, engine: &dyn Engine) -> Result<bool, String> {
    let found = engine.container(name)?;
    let label = found.as_ref().and_then(|found| found.labels.get(SPEC));
    Ok(label.is_some() && label == digest.map(|digest| digest.to_string()).as_ref())
}

/// How a daemon is stopped and started around a run of another.
///
/// # Errors
/// In words: there is no launcher, or no engine.
pub fn around_of(asked: &Container, engine: &dyn Engine) -> Result<Around, String> {
    Ok(Around::Argv {
        stop: Some(engine.undo(&["stop", &asked.name])?),
        start: engine.undo(&["start", &asked.name])?,
    })
}

/// After how long a run that is no daemon is ended.
fn bound(asked: &Container) -> Duration {
    Duration::from_secs(asked.timeout_secs.into())
}
