//! A program as units of the host's own (HK-6): for ever, once for each build, or by a timer.
//!
//! A daemon is started, enabled and looked at twice. One that runs once is waited for, and runs again only when it is
//! another; one that is scheduled is kept up by its timer. Undeclared, units and files go.

use std::collections::BTreeMap;
use std::time::Duration;

use meshplan_schemas::ident::ResourceId;
use meshplan_schemas::resource::programs::{Process, Run};

use super::service::{NO_UNIT, NOT_LOADED, again, first_look, kept, thing, unit_name, unlimited};
use super::{Around, Back, Decision, Follow, Invalid, Reach, Seen, put_text, text_of};
use crate::edge::disk::{DiskError, NewFile, Owner, atomic};
use crate::edge::system::{JOB, Turn};
use crate::pure::inverse::When;
use crate::pure::observed::Observed;
use crate::pure::outcome::lines_lost_and_new;
use crate::pure::record::{Part, Thing};
use crate::pure::target::Sort;
use crate::pure::target_path::TargetPath;
use crate::pure::unit::Unit;
use crate::pure::unit_file::{self, FOLDER};

/// What a run may take beyond its own bound before the service manager is thought to hang.
const OVER: Duration = Duration::from_secs(30);

/// A process that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// How it runs.
    pub run: Run,
    /// The text of its `.service`.
    pub service: String,
    /// The text of its `.timer`; none where it has none.
    pub timer: Option<String>,
    /// How long a run, or a start, may take.
    pub bound: Duration,
}

/// Checks the fields. `around`: how what else the module has is stopped and started.
///
/// # Errors
/// [`Invalid`].
pub fn validate(
    spec: &Process,
    around: &BTreeMap<ResourceId, Result<Around, String>>,
) -> Result<Wanted, Invalid> {
    let stopped = stopped(&spec.while_stopped, around)?;
    of(spec, &stopped)
}

/// What is stopped around a run, by its ids.
///
/// # Errors
/// [`Invalid`].
pub(super) fn stopped(
    ids: &[ResourceId],
    around: &BTreeMap<ResourceId, Result<Around, String>>,
) -> Result<Vec<Around>, Invalid> {
    let one = |id: &ResourceId| match around.get(id) {
        Some(Ok(around)) => Ok(around.clone()),
        Some(Err(why)) => Err(Invalid::Machine(format!("`while_stopped` names {id}: {why}"))),
        None => Err(Invalid::Fields(format!(
            "`while_stopped` names {id}, which is no process or container of the module"
        ))),
    };
    ids.iter().map(one).collect()
}

/// The same, with what is stopped around its runs.
///
/// # Errors
/// [`Invalid`].
pub(super) fn of(spec: &Process, stopped: &[Around]) -> Result<Wanted, Invalid> {
    let fields = |why: String| Invalid::Fields(format!("process {}: {why}", spec.name));
    if let Some(why) = unit_file::unwritable(spec) {
        return Err(fields(why));
    }
    unit_name(&service_of(&spec.name)).map_err(fields)?;
    Ok(Wanted {
        name: spec.name.clone(),
        run: spec.run,
        service: unit_file::service(spec, stopped),
        timer: unit_file::timer(spec),
        bound: Duration::from_secs(u64::from(spec.timeout_secs) + u64::from(spec.stop_secs))
            .saturating_add(OVER),
    })
}

impl Wanted {
    /// The unit that shall be up; none for what runs once.
    #[must_use]
    pub fn unit(&self) -> Option<String> {
        match self.run {
            Run::Daemon => Some(service_of(&self.name)),
            Run::Scheduled => Some(timer_of(&self.name)),
            Run::Once => None,
        }
    }
}

/// The unit of a process.
#[must_use]
pub fn service_of(name: &str) -> String {
    format!("{name}.service")
}

/// The timer of a process.
#[must_use]
pub fn timer_of(name: &str) -> String {
    format!("{name}.timer")
}

/// The file of a unit.
///
/// # Errors
/// In words: the name is none.
pub fn file_of(unit: &str) -> Result<TargetPath, String> {
    TargetPath::parse(&format!("{FOLDER}/{unit}")).map_err(|e| e.to_string())
}

/// How it stands.
#[must_use]
pub fn state(reach: Reach<'_>, name: &str) -> Observed {
    let both =
        part(reach, &service_of(name)).and_then(|service| Ok((service, part(reach, &timer_of(name))?)));
    match both {
        Err(why) => Observed::Unknown(why),
        Ok((None, None)) => Observed::Absent,
        Ok((service, timer)) => Observed::Is(Thing::Process { service, timer }),
    }
}

/// The same, of one whose files only the host writes: without them there is nothing, and nobody is asked.
pub(super) fn state_of_own(reach: Reach<'_>, name: &str) -> Result<Option<Thing>, String> {
    let mut is_there = false;
    for unit in [service_of(name), timer_of(name)] {
        is_there |= text_of(reach, &file_of(&unit)?)?.is_some();
    }
    if !is_there {
        return Ok(None);
    }
    match state(reach, name) {
        Observed::Unknown(why) => Err(why),
        other => Ok(other.thing()),
    }
}

fn part(reach: Reach<'_>, unit: &str) -> Result<Option<Part>, String> {
    let text = text_of(reach, &file_of(unit)?)?;
    // A timer that comes with a package is no process's.
    if text.is_none() && unit.ends_with(".timer") {
        return Ok(None);
    }
    let found = reach.system.unit(unit)?;
    if text.is_none() && found.is_none() {
        return Ok(None);
    }
    let Thing::Unit { active, boot } = thing(&found.unwrap_or_default()) else {
        return Ok(None);
    };
    Ok(Some(Part { text, active, boot }))
}

fn unit_of(part: &Part) -> Unit {
    let thing = Thing::Unit {
        active: part.active.clone(),
        boot: part.boot.clone(),
    };
    kept(Some(&thing)).unwrap_or_default()
}

/// How the parts of an observed process stand.
fn parts(observed: Option<&Thing>) -> (Option<&Part>, Option<&Part>) {
    match observed {
        Some(Thing::Process { service, timer }) => (service.as_ref(), timer.as_ref()),
        _ => (None, None),
    }
}

/// How a text differs from what stands there, in words; empty where it does not.
fn differs(wanted: &str, part: Option<&Part>) -> String {
    let is = part.and_then(|part| part.text.as_deref()).unwrap_or_default();
    lines_lost_and_new(is.trim_end().as_bytes(), wanted.trim_end().as_bytes())
}

/// What would change. `ran`: the ledger says that it was done as it is asked for now.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed, ran: bool) -> Decision {
    let Wanted { name, run, .. } = wanted;
    let there = match observed {
        Observed::Unknown(why) => return Decision::Unknown(format!("process {name}: {why}")),
        other => other.thing(),
    };
    let (service, timer) = parts(there.as_ref());
    let mut words = Vec::new();
    let mut add = |is_due: bool, what: String| {
        if is_due {
            words.push(what);
        }
    };
    let text = differs(&wanted.service, service);
    add(!text.is_empty(), format!("its unit: {text}"));
    match &wanted.timer {
        Some(wanted) => {
            let text = differs(wanted, timer);
            add(!text.is_empty(), format!("its timer: {text}"));
        }
        None => add(timer.is_some(), "its timer goes".to_owned()),
    }
    let main = match run {
        Run::Scheduled => timer,
        Run::Daemon | Run::Once => service,
    };
    let unit = main.map(unit_of).unwrap_or_default();
    match run {
        Run::Daemon | Run::Scheduled => {
            add(!unit.is_up(), "it is started".to_owned());
            add(
                unit.is_enabled() != Some(true),
                "it starts at boot from now on".to_owned(),
            );
        }
        Run::Once => add(!ran, "it runs once".to_owned()),
    }
    add(
        *run != Run::Daemon && was_daemon(service),
        "its daemon stops".to_owned(),
    );
    match (words.as_slice(), service) {
        ([], _) => Decision::Unchanged,
        (words, None) => Decision::Create(format!("process {name} is new: {}", words.join("; "))),
        (words, Some(_)) => Decision::Update(format!("process {name}: {}", words.join("; "))),
    }
}

/// Whether a unit runs for ever, or starts at boot: what runs to its end does neither.
fn was_daemon(service: Option<&Part>) -> bool {
    let Some(part) = service else { return false };
    part.active == "active" && !is_oneshot(part) || unit_of(part).is_enabled() == Some(true)
}

/// A run of it may be under way, which is no daemon.
fn is_oneshot(part: &Part) -> bool {
    let text = part.text.as_deref().unwrap_or_default();
    text.lines().any(|line| line == "Type=oneshot")
}

/// Whether it is started afresh by what [`plan`] would change.
#[must_use]
pub fn starts(wanted: &Wanted, observed: &Observed) -> bool {
    let there = observed.thing();
    let (service, _) = parts(there.as_ref());
    let is_up = service.is_some_and(|part| unit_of(part).is_up());
    wanted.run != Run::Scheduled && (!is_up || !differs(&wanted.service, service).is_empty())
}

/// Makes it so; the unit as it stood at the first look, where it was started and is to be looked at again. `ran`: as of
/// [`plan`].
///
/// # Errors
/// In words.
pub fn apply(wanted: &Wanted, ran: bool, reach: Reach<'_>) -> Result<Option<Seen>, String> {
    let name = wanted.name.as_str();
    let (service, timer) = (service_of(name), timer_of(name));
    let (is, of_timer) = (part(reach, &service)?, part(reach, &timer)?);
    let mut changed = !differs(&wanted.service, is.as_ref()).is_empty();
    match &wanted.timer {
        Some(text) => changed |= !differs(text, of_timer.as_ref()).is_empty(),
        None if of_timer.is_some() => take_away(reach, &timer)?,
        None => {}
    }
    if wanted.run != Run::Daemon && was_daemon(is.as_ref()) {
        take_away(reach, &service)?;
        changed = true;
    }
    if changed {
        put_text(reach, &file_of(&service)?, &wanted.service)?;
        if let Some(text) = &wanted.timer {
            put_text(reach, &file_of(&timer)?, text)?;
            counted_from_now(reach, &timer)?;
        }
        reach.system.read_units()?;
    }
    let Some(main) = wanted.unit() else {
        // What ran stays done, also where somebody changed its file.
        return if ran {
            Ok(None)
        } else {
            run_to_its_end(wanted, reach).map(|()| None)
        };
    };
    let unit = reach.system.unit(&main)?;
    let unit = unit.ok_or_else(|| format!("{main} was written, and the service manager does not have it"))?;
    if unit.is_enabled() != Some(true) {
        reach.system.turn(&main, Turn::Enable, JOB)?;
    }
    unlimited(reach.system, &main);
    match (unit.is_up(), changed) {
        (true, false) => return Ok(None),
        (true, true) => reach.system.turn(&main, Turn::Restart, wanted.bound)?,
        (false, _) => reach.system.turn(&main, Turn::Start, wanted.bound)?,
    }
    first_look(reach.system, &main).map(Some)
}

/// Starts what runs once and waits for its end.
fn run_to_its_end(wanted: &Wanted, reach: Reach<'_>) -> Result<(), String> {
    reach
        .system
        .turn(&service_of(&wanted.name), Turn::Start, wanted.bound)
}

/// Restarts a daemon, or runs what runs once, as something that it stands on changed.
///
/// # Errors
/// In words.
pub fn follow(wanted: &Wanted, turn: Turn, reach: Reach<'_>) -> Result<Option<Seen>, String> {
    match wanted.run {
        Run::Daemon => {
            let unit = service_of(&wanted.name);
            unlimited(reach.system, &unit);
            reach.system.turn(&unit, turn, wanted.bound)?;
            first_look(reach.system, &unit).map(Some)
        }
        Run::Once => run_to_its_end(wanted, reach).map(|()| None),
        // Its next run reads what changed.
        Run::Scheduled => Ok(None),
    }
}

/// Has systemd count a changed schedule from now, and not from the last run by the former one: a time of today that is
/// past already is not made up for (systemd.timer(5), `Persistent=`).
fn counted_from_now(reach: Reach<'_>, timer: &str) -> Result<(), String> {
    let stamp =
        TargetPath::parse(&format!("/var/lib/systemd/timers/stamp-{timer}")).map_err(|e| e.to_string())?;
    let words = |e: DiskError| e.to_string();
    if reach.root.stat(&stamp).map_err(words)?.is_none() {
        return Ok(());
    }
    let file = NewFile {
        bytes: b"",
        mode: 0o644,
        owner: Owner::default(),
    };
    atomic::put_file(reach.root, &stamp, &file, None).map_err(words)
}

/// Stops and disables a unit of the host's own and takes its file away.
fn take_away(reach: Reach<'_>, unit: &str) -> Result<(), String> {
    if let Some(is) = reach.system.unit(unit)? {
        if !is.is_at_rest() {
            reach.system.turn(unit, Turn::Stop, JOB)?;
        }
        if is.is_enabled() == Some(true) {
            reach.system.turn(unit, Turn::Disable, JOB)?;
        }
        if is.active == "failed" {
            reach.system.turn(unit, Turn::Reset, JOB)?;
        }
    }
    atomic::remove_file(reach.root, &file_of(unit)?).map_err(|e| e.to_string())?;
    reach.system.read_units()
}

/// The way back to how it stands. `wanted` is what will be made of it, none where it is swept; `follows`: how it follows
/// when what it stands on has changed back.
///
/// # Errors
/// In words: its files could not be kept.
pub fn way_back(
    name: &str,
    there: &Observed,
    (wanted, follows): (Option<&Wanted>, Option<Follow>),
    reach: Reach<'_>,
) -> Result<Back, String> {
    let there = there.thing();
    let (service, timer) = parts(there.as_ref());
    let mut back = Back::default();
    let it = (Sort::Process, name);
    // The timer last on the way there, so first on the way back.
    for (unit, was, text) in [
        (timer_of(name), timer, wanted.and_then(|w| w.timer.as_ref())),
        (service_of(name), service, wanted.map(|w| &w.service)),
    ] {
        back.path(file_of(&unit)?, reach)?;
        let Some(part) = was else {
            // A timer that comes with a package is none of its.
            if text.is_none() {
                continue;
            }
            back.run(When::First, it, &["systemctl", "stop", &unit], &NOT_LOADED);
            back.run(When::First, it, &["systemctl", "disable", &unit], &NO_UNIT);
            back.run(When::First, it, &["systemctl", "reset-failed", &unit], &NO_UNIT);
            continue;
        };
        let was = unit_of(part);
        match was.is_enabled() {
            Some(true) => back.run(When::Last, it, &["systemctl", "enable", &unit], &[]),
            Some(false) => back.run(When::Last, it, &["systemctl", "disable", &unit], &[]),
            None => {}
        }
        let is_another = text.is_some_and(|text| !differs(text, Some(part)).is_empty());
        if !was.is_up() {
            back.run(When::First, it, &["systemctl", "stop", &unit], &NOT_LOADED);
            continue;
        }
        let word = match follows {
            _ if is_another => "restart",
            Some(follow) if unit.ends_with(".service") => again(follow),
            _ => "start",
        };
        back.run(When::Last, it, &["systemctl", "reset-failed", &unit], &NO_UNIT);
        back.run(When::Last, it, &["systemctl", word, &unit], &[]);
    }
    back.run(When::Read, it, &["systemctl", "daemon-reload"], &[]);
    Ok(back)
}

/// Gives it back as it was found, or takes it away; says what was done. Nothing is started on the way out.
///
/// # Errors
/// In words.
pub fn give_back(name: &str, found: Option<&Thing>, reach: Reach<'_>) -> Result<String, String> {
    let (service, timer) = parts(found);
    for (unit, was) in [(timer_of(name), timer), (service_of(name), service)] {
        take_away(reach, &unit)?;
        let Some(part) = was else { continue };
        if let Some(text) = &part.text {
            put_text(reach, &file_of(&unit)?, text)?;
            reach.system.read_units()?;
        }
        if unit_of(part).is_enabled() == Some(true) {
            reach.system.turn(&unit, Turn::Enable, JOB)?;
        }
    }
    Ok(match found {
        None => format!("process {name} is stopped and its units are gone"),
        Some(_) => format!("process {name} is stopped and its units are as they were found"),
    })
}
