//! A group (HK-2), through the system's own tools.
//!
//! "Not there" is getent's exit code 2 and nothing else.

use meshplan_schemas::resource::accounts::Group;

use super::{Back, Decision, Invalid, run};
use crate::edge::system::System;
use crate::pure::inverse::When;
use crate::pure::observed::Observed;
use crate::pure::record::Thing;
use crate::pure::target::Sort;

/// What groupdel and userdel end with where there is none.
pub(super) const GONE: i32 = 6;
/// What groupadd ends with where the name is there already.
const NAME_TAKEN: i32 = 9;
/// What getent ends with where the database has no such entry; other codes are no answer.
const NO_ENTRY: i32 = 2;
/// The longest name, as shadow has it.
const NAME_BYTES: usize = 32;

/// A group that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// Its number; none leaves it to the system.
    pub gid: Option<u32>,
    /// Of a program: a number below those of people.
    pub is_system: bool,
    /// Shall not be.
    pub is_absent: bool,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(spec: &Group) -> Result<Wanted, Invalid> {
    account_name(&spec.name)?;
    account_number(spec.gid)?;
    Ok(Wanted {
        name: spec.name.clone(),
        gid: spec.gid,
        is_system: spec.system,
        is_absent: spec.absent,
    })
}

/// Whether a text can be the name of a user or group.
pub(super) fn account_name(name: &str) -> Result<(), Invalid> {
    let first = |c: char| c.is_ascii_lowercase() || c == '_';
    let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
    if name.starts_with(first) && name.chars().all(rest) && name.len() <= NAME_BYTES {
        return Ok(());
    }
    Err(Invalid::Fields(format!(
        "{:?} is no name of a user or group: small letters, digits, `_`, `-` and `.`, a letter or `_` first",
        name.chars().take(100).collect::<String>()
    )))
}

/// The largest number means "leave it" to the kernel.
pub(super) fn account_number(number: Option<u32>) -> Result<(), Invalid> {
    match number {
        Some(u32::MAX) => Err(Invalid::Fields(format!(
            "{} is no number of a user or group",
            u32::MAX
        ))),
        _ => Ok(()),
    }
}

/// The line of a database for a key; none where the database says that it has no such entry.
pub(super) fn entry(system: &dyn System, database: &str, key: &str) -> Result<Option<String>, String> {
    let argv = ["getent", database, key].map(str::to_owned);
    let ended = system.run(&argv, super::BOUND);
    match ended.fault(&argv, &[NO_ENTRY]) {
        Some(why) => Err(format!("the user database did not answer: {why}")),
        None if ended.said.is_empty() => Ok(None),
        None => Ok(Some(ended.said)),
    }
}

/// How it stands.
#[must_use]
pub fn state(system: &dyn System, name: &str) -> Observed {
    match entry(system, "group", name) {
        Err(why) => Observed::Unknown(why),
        Ok(None) => Observed::Absent,
        Ok(Some(line)) => {
            let mut fields = line.split(':').skip(2);
            let gid = fields.next().and_then(|gid| gid.parse().ok());
            let members = fields.next().unwrap_or_default().split(',');
            let members = members
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect();
            match gid {
                Some(gid) => Observed::Is(Thing::Group { gid, members }),
                None => Observed::Unknown(format!("the group database says {line:?}")),
            }
        }
    }
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed) -> Decision {
    let name = &wanted.name;
    match observed {
        Observed::Absent if wanted.is_absent => Decision::Unchanged,
        Observed::Absent => Decision::Create(format!("group {name} is new")),
        Observed::Is(Thing::Group { .. }) if wanted.is_absent => {
            Decision::Update(format!("group {name} is removed"))
        }
        Observed::Is(Thing::Group { gid, .. }) => match wanted.gid.filter(|wanted| wanted != gid) {
            None => Decision::Unchanged,
            Some(wanted) => Decision::Update(format!("group {name}: number {wanted} instead of {gid}")),
        },
        Observed::Unknown(why) => Decision::Unknown(format!("group {name}: {why}")),
        other => Decision::Unknown(format!("group {name} is {}", other.word())),
    }
}

/// Makes it so.
///
/// # Errors
/// In words.
pub fn apply(wanted: &Wanted, system: &dyn System) -> Result<(), String> {
    let Wanted { name, gid, .. } = wanted;
    let there = state(system, name);
    let number = gid.map(|gid| gid.to_string());
    match (plan(wanted, &there), there) {
        (Decision::Unchanged, _) => Ok(()),
        (Decision::Refuse(why) | Decision::Unknown(why), _) => Err(why),
        (_, Observed::Absent) => {
            let mut argv = vec!["groupadd"];
            argv.extend(wanted.is_system.then_some("--system"));
            argv.extend(number.iter().flat_map(|number| ["--gid", number]));
            argv.push(name);
            run(system, &argv, &[])
        }
        _ if wanted.is_absent => run(system, &["groupdel", name], &[GONE]),
        _ => match number {
            Some(number) => run(system, &["groupmod", "--gid", &number, name], &[]),
            None => Ok(()),
        },
    }
}

/// The way back to how it stands; `removes`: it will be removed.
#[must_use]
pub fn way_back(name: &str, there: Option<&Thing>, removes: bool) -> Back {
    let mut back = Back::default();
    let it = (Sort::Group, name);
    match there {
        Some(Thing::Group { gid, members }) if removes => {
            back.run(
                When::Last,
                it,
                &["groupadd", "--gid", &gid.to_string(), name],
                &[NAME_TAKEN],
            );
            if !members.is_empty() {
                back.run(When::Last, it, &["gpasswd", "-M", &members.join(","), name], &[]);
            }
        }
        Some(Thing::Group { gid, .. }) => {
            back.run(
                When::Last,
                it,
                &["groupmod", "--gid", &gid.to_string(), name],
                &[],
            );
        }
        _ => back.run(When::Last, it, &["groupdel", name], &[GONE]),
    }
    back
}

/// Gives it back as it was found, and says what was done.
///
/// # Errors
/// In words.
pub fn give_back(name: &str, found: Option<&Thing>, system: &dyn System) -> Result<String, String> {
    match found {
        Some(Thing::Group { gid, .. }) => {
            run(system, &["groupmod", "--gid", &gid.to_string(), name], &[])?;
            Ok(format!(
                "group {name} has the number {gid} again, as it was found"
            ))
        }
        _ => {
            run(system, &["groupdel", name], &[GONE])?;
            Ok(format!("group {name} is removed"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::system::SimSystem;

    fn wanted(gid: Option<u32>, absent: bool) -> Wanted {
        validate(&Group {
            name: "media".to_owned(),
            gid,
            system: false,
            absent,
        })
        .unwrap()
    }

    // holds: HK-2
    #[test]
    fn a_database_that_does_not_answer_is_no_missing_group() {
        let system = SimSystem::default();
        assert_eq!(state(&system, "media"), Observed::Absent);
        system.with(|sim| sim.programs.insert("getent group media".to_owned(), 1));
        assert!(matches!(state(&system, "media"), Observed::Unknown(_)));
        assert!(matches!(
            plan(&wanted(None, false), &state(&system, "media")),
            Decision::Unknown(_)
        ));
    }

    // holds: HK-2, HK-14
    #[test]
    fn it_is_made_numbered_removed_and_given_back() {
        let system = SimSystem::default();
        apply(&wanted(None, false), &system).unwrap();
        apply(&wanted(Some(123), false), &system).unwrap();
        assert_eq!(
            plan(&wanted(Some(123), false), &state(&system, "media")),
            Decision::Unchanged
        );
        apply(&wanted(Some(123), false), &system).unwrap();
        apply(&wanted(None, true), &system).unwrap();
        assert_eq!(
            system.acts(),
            ["groupadd media", "groupmod --gid 123 media", "groupdel media"]
        );
        for bad in ["", "Media", "-x", "a b", "a:b", "0x", &"a".repeat(33)] {
            assert!(account_name(bad).is_err(), "{bad} was taken");
        }
    }
}
