//! A unit that the machine has (HK-5): running, stopped or masked; started at boot or not.
//!
//! What was found is restored when it is no longer declared, but nothing is started on the way out. A unit whose file
//! the host wrote was not there before, and is stopped and disabled before its file goes.

use meshplan_schemas::resource::programs::{Service, UnitState};

use super::{Back, Decision, Follow, Invalid, Seen};
use crate::edge::system::{JOB, System, Turn};
use crate::pure::inverse::When;
use crate::pure::observed::Observed;
use crate::pure::record::Thing;
use crate::pure::target::Sort;
use crate::pure::unit::Unit;

/// What systemd.unit(5) lets a unit be.
const SUFFIXES: [&str; 11] = [
    "service",
    "socket",
    "device",
    "mount",
    "automount",
    "swap",
    "target",
    "path",
    "timer",
    "slice",
    "scope",
];
/// The longest name of a unit, as systemd has it.
const NAME_BYTES: usize = 255;
/// What `systemctl stop` ends with where there is no such unit. Not 1: that is a unit that did not stop.
pub(super) const NOT_LOADED: [i32; 1] = [5];
/// What other words of `systemctl` end with where there is no such unit, or no such file.
pub(super) const NO_UNIT: [i32; 2] = [5, 1];
/// The host's own units: to touch one from within an apply would end the apply.
const OWN: [&str; 3] = [
    "meshplan-host.service",
    "meshplan-revert.service",
    "meshplan-filter.service",
];

/// A unit that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name with its suffix.
    pub unit: String,
    /// What it does; none leaves it as it is.
    pub state: Option<UnitState>,
    /// Whether it starts at boot; none leaves it as it is.
    pub enabled: Option<bool>,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(spec: &Service) -> Result<Wanted, Invalid> {
    unit_name(&spec.unit).map_err(Invalid::Fields)?;
    if spec.state == Some(UnitState::Masked) && spec.enabled == Some(true) {
        return Err(Invalid::Fields(format!(
            "{} is `masked` and `enabled` at once: what is masked starts at no boot",
            spec.unit
        )));
    }
    Ok(Wanted {
        unit: spec.unit.clone(),
        state: spec.state,
        enabled: spec.enabled,
    })
}

/// Whether a text can be the name of a unit.
///
/// # Errors
/// In words: it cannot.
pub fn unit_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let fits = name.rsplit_once('.').is_some_and(|(stem, suffix)| {
        SUFFIXES.contains(&suffix) && !stem.is_empty() && !stem.starts_with('-') && stem.chars().all(is_plain)
    });
    if OWN.contains(&name) {
        return Err(format!(
            "{name} is the host's own unit: no declaration touches it"
        ));
    }
    // A template is no unit: only what stands after the `@` makes one of it.
    if fits && name.len() <= NAME_BYTES && !name.contains("@.") {
        return Ok(());
    }
    Err(format!(
        "{:?} is no name of a unit, as `nginx.service`",
        name.chars().take(100).collect::<String>()
    ))
}

/// How it stands.
#[must_use]
pub fn state(system: &dyn System, unit: &str) -> Observed {
    match system.unit(unit) {
        Ok(None) => Observed::Absent,
        Ok(Some(found)) => Observed::Is(thing(&found)),
        Err(why) => Observed::Unknown(why),
    }
}

/// What is kept of a unit.
pub(super) fn thing(unit: &Unit) -> Thing {
    Thing::Unit {
        active: unit.state().to_owned(),
        boot: unit.boot.clone(),
    }
}

/// The unit of a kept thing; none where it is not there.
pub(super) fn kept(thing: Option<&Thing>) -> Option<Unit> {
    match thing {
        Some(Thing::Unit { active, boot }) => Some(Unit {
            active: active.clone(),
            boot: boot.clone(),
            ..Unit::default()
        }),
        _ => None,
    }
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed) -> Decision {
    let name = &wanted.unit;
    match observed {
        Observed::Absent => Decision::Create(format!("{name} is not there yet and comes with this change")),
        Observed::Unknown(why) => Decision::Unknown(format!("{name}: {why}")),
        other => match kept(other.thing().as_ref()) {
            None => Decision::Unknown(format!("{name} is {}", other.word())),
            Some(unit) => match turns(wanted, &unit) {
                Err(why) => Decision::Refuse(why),
                Ok(turns) if turns.is_empty() => Decision::Unchanged,
                Ok(turns) => {
                    let words: Vec<&str> = turns.iter().map(|turn| in_words(*turn)).collect();
                    Decision::Update(format!("{name} {}", words.join(" and ")))
                }
            },
        },
    }
}

/// Whether it is started by what [`plan`] would change.
#[must_use]
pub fn starts(wanted: &Wanted, observed: &Observed) -> bool {
    let unit = kept(observed.thing().as_ref());
    wanted.state == Some(UnitState::Running) && !unit.is_some_and(|unit| unit.is_up())
}

fn in_words(turn: Turn) -> &'static str {
    match turn {
        Turn::Start => "is started",
        Turn::Stop => "is stopped",
        Turn::Restart => "is restarted",
        Turn::Reload => "is reloaded",
        Turn::Enable => "starts at boot from now on",
        Turn::Disable => "starts at boot no more",
        Turn::Mask => "can be started by nothing from now on",
        Turn::Unmask => "can be started again",
        Turn::Reset => "is no failed one any more",
    }
}

/// What leads from how a unit stands to what is asked for, in this order.
fn turns(wanted: &Wanted, unit: &Unit) -> Result<Vec<Turn>, String> {
    let mut turns = Vec::new();
    let masks = wanted.state == Some(UnitState::Masked);
    let needs_it = wanted.state == Some(UnitState::Running) || wanted.enabled == Some(true);
    let unmasks = unit.is_masked() && needs_it;
    if unmasks {
        turns.push(Turn::Unmask);
    }
    match (wanted.enabled, unit.is_enabled()) {
        (Some(wanted), Some(is)) if wanted == is => {}
        // What a mask hides is seen when it is gone.
        (Some(true), None) if !unmasks => {
            return Err(format!(
                "{} is `{}`: it cannot be enabled by itself, another unit starts it; leave `enabled` out or name that one",
                wanted.unit, unit.boot
            ));
        }
        (Some(true), _) => turns.push(Turn::Enable),
        (Some(false), Some(true)) => turns.push(Turn::Disable),
        (Some(false), _) | (None, _) => {}
    }
    match wanted.state {
        Some(UnitState::Running) if !unit.is_up() => turns.push(Turn::Start),
        Some(UnitState::Stopped | UnitState::Masked) if !unit.is_at_rest() => turns.push(Turn::Stop),
        _ => {}
    }
    if masks && !unit.is_masked() {
        turns.push(Turn::Mask);
    }
    Ok(turns)
}

/// Makes it so; the unit as it stood at the first look, where it was started.
///
/// # Errors
/// In words.
pub fn apply(wanted: &Wanted, system: &dyn System) -> Result<Option<Seen>, String> {
    let unit = read(system, &wanted.unit)?;
    let turns = turns(wanted, &unit)?;
    for turn in &turns {
        if *turn == Turn::Start {
            unlimited(system, &wanted.unit);
        }
        system.turn(&wanted.unit, *turn, JOB)?;
    }
    if turns.contains(&Turn::Start) {
        return first_look(system, &wanted.unit).map(Some);
    }
    Ok(None)
}

/// Restarts or reloads it, as something that it stands on changed; none where it does not run and shall not.
///
/// # Errors
/// In words.
pub fn follow(wanted: &Wanted, turn: Turn, system: &dyn System) -> Result<Option<Seen>, String> {
    let unit = read(system, &wanted.unit)?;
    if !unit.is_up() && wanted.state != Some(UnitState::Running) {
        return Ok(None);
    }
    unlimited(system, &wanted.unit);
    system.turn(&wanted.unit, turn, JOB)?;
    first_look(system, &wanted.unit).map(Some)
}

/// Has the manager forget how often a unit was started: a good build must not be refused for what a bad one did.
pub(super) fn unlimited(system: &dyn System, unit: &str) {
    if let Err(why) = system.turn(unit, Turn::Reset, JOB) {
        // It is started all the same; where that is refused, it is said.
        tracing::debug!(%unit, %why, "its failures are not forgotten");
    }
}

/// The unit as it is after the manager has read what changed on the disk.
fn read(system: &dyn System, name: &str) -> Result<Unit, String> {
    let seen = system.unit(name)?;
    let seen = match seen {
        Some(unit) if !unit.is_stale => Some(unit),
        _ => {
            system.read_units()?;
            system.unit(name)?
        }
    };
    seen.ok_or_else(|| {
        format!(
            "this machine has no unit `{name}`: name one that it has, or declare the file or package that brings it \
             before it"
        )
    })
}

/// How the unit stands, when it is up.
pub(super) fn first_look(system: &dyn System, name: &str) -> Result<Seen, String> {
    match system.unit(name)? {
        Some(unit) if unit.is_up() => Ok(Seen::Unit {
            name: name.to_owned(),
            unit,
        }),
        Some(unit) => Err(format!(
            "{name} was started and does not run: it is {}",
            unit.words()
        )),
        None => Err(format!("{name} was started and is gone")),
    }
}

/// The way back to how it stands. `follows`: how it follows when what it stands on has changed back.
#[must_use]
pub fn way_back(wanted: &Wanted, there: Option<&Thing>, follows: Option<Follow>) -> Back {
    let unit = wanted.unit.as_str();
    let Some(was) = kept(there) else {
        return gone_again(unit);
    };
    // One that cannot be brought there is not touched.
    let turns = turns(wanted, &was).unwrap_or_default();
    inverse(unit, &turns, follows.filter(|_| was.is_up()))
}

/// The way back of one that is given back as it was found.
#[must_use]
pub fn way_back_of_swept(unit: &str, there: Option<&Thing>, found: Option<&Thing>) -> Back {
    match kept(there) {
        Some(was) => inverse(unit, &turns_out(&was, found), None),
        None => Back::default(),
    }
}

/// The way back of a unit that is not there, and comes with what else changes.
fn gone_again(unit: &str) -> Back {
    let mut back = Back::default();
    let it = (Sort::Unit, unit);
    back.run(When::First, it, &["systemctl", "stop", unit], &NOT_LOADED);
    back.run(When::First, it, &["systemctl", "disable", unit], &NO_UNIT);
    back.run(When::First, it, &["systemctl", "reset-failed", unit], &NO_UNIT);
    back.run(When::Read, it, &["systemctl", "daemon-reload"], &[]);
    back
}

/// What undoes turns, the last first. What stops, stops before its file changes back; the rest comes after that.
fn inverse(unit: &str, turns: &[Turn], follows: Option<Follow>) -> Back {
    let mut back = Back::default();
    let it = (Sort::Unit, unit);
    back.run(When::Read, it, &["systemctl", "daemon-reload"], &[]);
    for turn in turns.iter().rev() {
        let (when, undo) = match turn {
            Turn::Start | Turn::Restart | Turn::Reload | Turn::Reset => (When::First, Turn::Stop),
            Turn::Stop => (When::Last, Turn::Start),
            Turn::Enable => (When::Last, Turn::Disable),
            Turn::Disable => (When::Last, Turn::Enable),
            Turn::Mask => (When::Last, Turn::Unmask),
            Turn::Unmask => (When::Last, Turn::Mask),
        };
        if undo == Turn::Start {
            back.run(when, it, &["systemctl", "reset-failed", unit], &NO_UNIT);
        }
        back.run(when, it, &["systemctl", undo.word(), unit], &[]);
    }
    if let Some(follow) = follows.filter(|_| !turns.contains(&Turn::Stop)) {
        back.run(When::Last, it, &["systemctl", "reset-failed", unit], &NO_UNIT);
        back.run(When::Last, it, &["systemctl", again(follow), unit], &[]);
    }
    back
}

/// The word of `systemctl` by which a unit that is up follows what it stands on.
pub(super) fn again(follow: Follow) -> &'static str {
    match follow {
        Follow::Reload => Turn::Reload.word(),
        Follow::Restart | Follow::Run => Turn::Restart.word(),
    }
}

/// Gives it back as it was found, and says what was done: nothing is started on the way out.
///
/// # Errors
/// In words.
pub fn give_back(unit: &str, found: Option<&Thing>, system: &dyn System) -> Result<String, String> {
    let Some(is) = system.unit(unit)? else {
        return Ok(format!("{unit} was gone already"));
    };
    let turns = turns_out(&is, found);
    for turn in &turns {
        system.turn(unit, *turn, JOB)?;
    }
    let words: Vec<&str> = turns.iter().map(|turn| in_words(*turn)).collect();
    Ok(match words.as_slice() {
        [] => format!("{unit} stays as it is"),
        words => format!("{unit} {}", words.join(" and ")),
    })
}

/// What leads from how a unit stands to how it was found.
fn turns_out(is: &Unit, found: Option<&Thing>) -> Vec<Turn> {
    let mut turns = Vec::new();
    let Some(was) = kept(found) else {
        // The host brought it: it is the host's to take away.
        turns.extend((!is.is_at_rest()).then_some(Turn::Stop));
        turns.extend((is.is_enabled() == Some(true)).then_some(Turn::Disable));
        return turns;
    };
    if is.is_masked() && !was.is_masked() {
        turns.push(Turn::Unmask);
    }
    match (is.is_enabled(), was.is_enabled()) {
        (Some(true), Some(false)) => turns.push(Turn::Disable),
        (Some(false) | None, Some(true)) => turns.push(Turn::Enable),
        _ => {}
    }
    turns.extend((!is.is_at_rest() && was.is_at_rest()).then_some(Turn::Stop));
    if was.is_masked() && !is.is_masked() {
        turns.push(Turn::Mask);
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::system::SimSystem;
    use crate::pure::inverse::UndoAct;

    fn wanted(state: Option<UnitState>, enabled: Option<bool>) -> Wanted {
        validate(&Service {
            unit: "web.service".to_owned(),
            state,
            enabled,
        })
        .unwrap()
    }

    fn machine(active: &str, boot: &str) -> SimSystem {
        let system = SimSystem::default();
        system.with(|sim| sim.unit("web.service", active, boot));
        system
    }

    // holds: HK-5
    #[test]
    fn only_names_of_units_are_taken() {
        for good in [
            "nginx.service",
            "getty@tty1.service",
            "dev-sda1.swap",
            "a-b_c:d.timer",
        ] {
            assert_eq!(unit_name(good), Ok(()), "{good}");
        }
        for bad in [
            "nginx",
            "nginx.conf",
            ".service",
            "getty@.service",
            "a b.service",
            "../x.service",
            "-f.service",
        ] {
            assert!(unit_name(bad).is_err(), "{bad} was taken");
        }
    }

    // holds: HK-5, HK-14
    #[test]
    fn it_is_brought_to_what_is_asked_and_is_unchanged_then() {
        let running = Some(UnitState::Running);
        for (active, boot, asked, acts) in [
            (
                "inactive",
                "disabled",
                wanted(running, Some(true)),
                vec!["enable", "start"],
            ),
            ("active", "enabled", wanted(running, Some(true)), vec![]),
            (
                "failed",
                "enabled",
                wanted(running, None),
                vec!["reset-failed", "start"],
            ),
            (
                "active",
                "enabled",
                wanted(Some(UnitState::Stopped), Some(false)),
                vec!["disable", "stop"],
            ),
            (
                "active",
                "enabled",
                wanted(Some(UnitState::Masked), None),
                vec!["stop", "mask"],
            ),
            (
                "inactive",
                "masked",
                wanted(running, Some(true)),
                vec!["unmask", "enable", "start"],
            ),
            ("inactive", "static", wanted(running, None), vec!["start"]),
            ("inactive", "disabled", wanted(None, None), vec![]),
        ] {
            let system = machine(active, boot);
            let before = plan(&asked, &state(&system, "web.service"));
            assert_eq!(
                before == Decision::Unchanged,
                acts.is_empty(),
                "{active} {boot} {asked:?}"
            );
            apply(&asked, &system).unwrap();
            let expected: Vec<String> = acts.iter().map(|act| format!("{act} web.service")).collect();
            assert_eq!(system.acts(), expected, "{active} {boot} {asked:?}");
            assert_eq!(plan(&asked, &state(&system, "web.service")), Decision::Unchanged);
        }
    }

    // holds: HK-5
    #[test]
    fn what_cannot_be_enabled_is_refused_before_anything_is_touched() {
        let system = machine("inactive", "static");
        let asked = wanted(Some(UnitState::Running), Some(true));
        let Decision::Refuse(why) = plan(&asked, &state(&system, "web.service")) else {
            panic!("it was not refused");
        };
        assert!(why.contains("static"), "{why}");
        assert!(apply(&asked, &system).is_err());
        assert_eq!(system.acts(), Vec::<String>::new());
    }

    // holds: HK-5
    #[test]
    fn a_manager_that_does_not_answer_is_no_missing_unit() {
        let system = machine("active", "enabled");
        system.with(|sim| sim.is_deaf = true);
        assert!(matches!(state(&system, "web.service"), Observed::Unknown(_)));
        assert!(apply(&wanted(Some(UnitState::Stopped), None), &system).is_err());
        system.with(|sim| {
            sim.is_deaf = false;
            sim.units.clear();
        });
        let why = apply(&wanted(None, None), &system).unwrap_err();
        assert!(why.contains("has no unit `web.service`"), "{why}");
        assert_eq!(system.acts(), ["read units"]);
    }

    // holds: HK-5
    #[test]
    fn one_that_dies_at_once_has_failed() {
        let system = machine("inactive", "disabled");
        system.with(|sim| sim.dying.insert("web.service".to_owned()));
        let why = apply(&wanted(Some(UnitState::Running), None), &system).unwrap_err();
        assert!(why.contains("does not run"), "{why}");
    }

    // holds: HK-5
    #[test]
    fn what_was_found_is_given_back_and_nothing_is_started_on_the_way_out() {
        let found = |active: &str, boot: &str| Thing::Unit {
            active: active.to_owned(),
            boot: boot.to_owned(),
        };
        for (is, found, acts) in [
            (
                ("active", "enabled"),
                Some(found("inactive", "disabled")),
                vec!["disable", "stop"],
            ),
            (("active", "enabled"), Some(found("active", "enabled")), vec![]),
            (
                ("inactive", "disabled"),
                Some(found("active", "enabled")),
                vec!["enable"],
            ),
            (
                ("inactive", "masked"),
                Some(found("active", "enabled")),
                vec!["unmask", "enable"],
            ),
            (("active", "enabled"), None, vec!["stop", "disable"]),
        ] {
            let system = machine(is.0, is.1);
            give_back("web.service", found.as_ref(), &system).unwrap();
            let expected: Vec<String> = acts.iter().map(|act| format!("{act} web.service")).collect();
            assert_eq!(system.acts(), expected, "{is:?} {found:?}");
        }
    }

    // holds: HR-14, HK-5
    #[test]
    fn the_way_back_leads_to_how_it_stood() {
        let asked = wanted(Some(UnitState::Masked), Some(false));
        for (active, boot) in [
            ("active", "enabled"),
            ("inactive", "disabled"),
            ("inactive", "masked"),
            ("active", "disabled"),
        ] {
            let system = machine(active, boot);
            let there = state(&system, "web.service");
            let back = way_back(&asked, there.thing().as_ref(), None);
            apply(&asked, &system).unwrap();
            let mut acts = back.acts;
            acts.sort_by_key(|act| act.when);
            for act in acts {
                let UndoAct::Run { argv, accepts, .. } = act.act else {
                    panic!("another act");
                };
                let ended = system.run(&argv, std::time::Duration::from_secs(1));
                assert_eq!(ended.fault(&argv, &accepts), None);
            }
            assert_eq!(state(&system, "web.service"), there, "{active} {boot}");
        }
    }
}
