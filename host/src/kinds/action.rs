//! A step at the level of the machine (HK-16): a program that runs once for what it is, and gates what comes after it.
//!
//! That it ran is in the ledger, by the digest of its fields. What it did cannot be undone.

use std::time::Duration;

use meshplan_schemas::ident::ResourceName;
use meshplan_schemas::resource::programs::Action;

use super::{Decision, Invalid, Reach};
use crate::edge::observe::observe;
use crate::pure::observed::Observed;
use crate::pure::target::{Sort, Target};
use crate::pure::target_path::TargetPath;

/// A step that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// By what it is known.
    pub target: Target,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// After which it is ended.
    pub bound: Duration,
    /// Not done where this path is.
    pub creates: Option<TargetPath>,
    /// Not done where this command succeeds.
    pub unless: Option<Vec<String>>,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(name: &ResourceName, spec: &Action) -> Result<Wanted, Invalid> {
    let is_program = |argv: &[String]| argv.first().is_some_and(|program| !program.is_empty());
    let nul = |argv: &[String]| argv.iter().any(|word| word.contains('\0'));
    for argv in [Some(&spec.command), spec.unless.as_ref()].into_iter().flatten() {
        if !is_program(argv) || nul(argv) {
            return Err(Invalid::Fields(
                "a command has no program, or a NUL character in it".to_owned(),
            ));
        }
    }
    if spec.timeout_secs == 0 {
        return Err(Invalid::Fields(
            "`timeout_secs` is 0: it would be ended before it began".to_owned(),
        ));
    }
    Ok(Wanted {
        target: Target::Thing(Sort::Step, name.to_string()),
        argv: spec.command.clone(),
        bound: Duration::from_secs(u64::from(spec.timeout_secs)),
        creates: spec.creates.as_deref().map(super::path).transpose()?,
        unless: spec.unless.clone(),
    })
}

/// What would happen. `ran`: the ledger says that it ran as it is asked for now.
#[must_use]
pub fn plan(wanted: &Wanted, ran: bool, reach: Reach<'_>) -> Decision {
    if let Some(path) = &wanted.creates {
        return match observe(reach.root, path) {
            Observed::Absent => Decision::Create(format!("{} runs, for {path} is not there", wanted.words())),
            Observed::Unknown(why) => Decision::Unknown(why),
            _ => Decision::Unchanged,
        };
    }
    if ran {
        return Decision::Unchanged;
    }
    let Some(unless) = &wanted.unless else {
        return Decision::Create(format!("{} runs once", wanted.words()));
    };
    let ended = reach.system.run(unless, wanted.bound);
    match ended.how {
        crate::edge::command::How::Exited(0) => Decision::Unchanged,
        crate::edge::command::How::Exited(_) => Decision::Create(format!(
            "{} runs once, for `{}` says no",
            wanted.words(),
            unless.join(" ")
        )),
        _ => Decision::Unknown(ended.fault(unless, &[]).unwrap_or_default()),
    }
}

impl Wanted {
    /// The program in words, without its arguments: they may hold what nobody else shall read.
    fn words(&self) -> String {
        format!("`{}`", self.argv.first().map_or("", String::as_str))
    }
}

/// Runs it.
///
/// # Errors
/// In words: it did not end well.
pub fn apply(wanted: &Wanted, reach: Reach<'_>) -> Result<(), String> {
    let ended = reach.system.run(&wanted.argv, wanted.bound);
    if let Some(why) = ended.fault(&wanted.argv, &[]) {
        return Err(why);
    }
    match &wanted.creates {
        Some(path) if observe(reach.root, path) == Observed::Absent => Err(format!(
            "{} ended well, and {path} is still not there",
            wanted.words()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::disk::SimDisk;
    use crate::edge::system::SimSystem;

    fn spec(creates: Option<&str>, unless: Option<&str>) -> Action {
        Action {
            command: vec!["make-it".to_owned()],
            timeout_secs: 5,
            creates: creates.map(str::to_owned),
            unless: unless.map(|word| vec![word.to_owned()]),
        }
    }

    // holds: HK-16
    #[test]
    fn it_runs_once_or_until_its_path_is_there_or_unless_a_command_succeeds() {
        let (disk, system) = (SimDisk::new(), SimSystem::default());
        let reach = Reach {
            root: &disk,
            system: &system,
            state: &disk,
        };
        system.with(|sim| {
            sim.programs.extend([
                ("make-it".to_owned(), 0),
                ("yes".to_owned(), 0),
                ("no".to_owned(), 1),
            ]);
        });
        let name: ResourceName = "web.it".parse().unwrap();
        let wanted = |creates, unless| validate(&name, &spec(creates, unless)).unwrap();
        let runs = |decision| matches!(decision, Decision::Create(_));
        assert!(runs(plan(&wanted(None, None), false, reach)));
        assert!(!runs(plan(&wanted(None, None), true, reach)));
        assert!(!runs(plan(&wanted(None, Some("yes")), false, reach)));
        assert!(runs(plan(&wanted(None, Some("no")), false, reach)));
        assert!(matches!(
            plan(&wanted(None, Some("unknown")), false, reach),
            Decision::Unknown(_)
        ));
        let made = wanted(Some("/made"), None);
        assert!(runs(plan(&made, true, reach)), "what it made is gone");
        assert!(apply(&made, reach).is_err(), "it did not make what it says");
        disk.plant(&TargetPath::parse("/made").unwrap(), b"", 0o644);
        assert!(!runs(plan(&made, false, reach)));
        assert_eq!(apply(&made, reach), Ok(()));
        system.with(|sim| sim.programs.insert("make-it".to_owned(), 3));
        assert!(apply(&made, reach).unwrap_err().contains("ended with 3"));
    }
}
