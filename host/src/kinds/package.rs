//! A package of the machine's package manager (HK-3): installed, in a version, or away; what nothing declares any more
//! stays.
//!
//! What is fetched is fetched before anything is touched, and what would come with a package is asked before: the way
//! back removes just that. A manager that does not answer is never taken for one that has nothing.

mod attempt;

use std::collections::BTreeSet;
use std::time::Duration;

use meshplan_schemas::resource::accounts::{Manager, Package, is_host_package};

use self::attempt::{attempt, trial};
use super::{Back, Decision, Invalid, Reach};
use crate::edge::command::How;
use crate::edge::disk::Disk;
use crate::pure::apply_plan::{Follow, Follower};
use crate::pure::inverse::When;
use crate::pure::observed::Observed;
use crate::pure::packages::{self, Argv, Patience, Reach as Far, Tool, Wish, is_rolling, of_machine};
use crate::pure::record::Thing;
use crate::pure::target::Sort;
use crate::pure::target_path::TargetPath;

/// How long a manager may take to answer a question.
const ANSWER: Duration = Duration::from_secs(120);
/// How long it may take to fetch.
const FETCH: Duration = Duration::from_secs(900);
/// How long it may take to install or remove: one that is ended in its midst leaves more to do than one that is late.
const WORK: Duration = Duration::from_secs(1200);
/// The longest name or version.
const WORD_BYTES: usize = 255;
/// What a manager of packages ends with where not all of them could be configured; the way back goes on from there.
const NOT_ALL_CONFIGURED: [i32; 1] = [1];

/// A package that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// The only manager that it is for.
    pub manager: Option<Manager>,
    /// Its version; whichever the manager has where it is left out.
    pub version: Option<String>,
    /// Shall not be installed.
    pub is_absent: bool,
    /// What is restarted when it changes.
    pub followers: Vec<Follower>,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(spec: &Package) -> Result<Wanted, Invalid> {
    let is_word = |text: &str, extra: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || extra.contains(c);
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.len() <= WORD_BYTES
            && text.chars().all(fits)
    };
    let shown = |text: &str| text.chars().take(100).collect::<String>();
    // apt-get takes a name that ends with a dash for one to remove.
    if !is_word(&spec.name, "+._:@/-") || spec.name.ends_with('-') {
        let why = format!("{:?} is no name of a package", shown(&spec.name));
        return Err(Invalid::Fields(why));
    }
    if let Some(version) = spec.version.as_deref().filter(|v| !is_word(v, "+._:~^-")) {
        let why = format!("{:?} is no version of a package", shown(version));
        return Err(Invalid::Fields(why));
    }
    let refused = match (&spec.version, spec.manager) {
        _ if spec.absent && is_host_package(&spec.name) => Some("the host does not remove itself".to_owned()),
        (Some(_), _) if spec.absent => Some("a package that shall be away has no version".to_owned()),
        (Some(_), Some(manager)) if !manager.has_versions() => Some(no_versions(manager)),
        _ => None,
    };
    match refused {
        Some(why) => Err(Invalid::Fields(why)),
        None => Ok(Wanted {
            name: spec.name.clone(),
            manager: spec.manager,
            version: spec.version.clone(),
            is_absent: spec.absent,
            followers: (spec.restarts.iter())
                .map(|id| Follower {
                    id: id.clone(),
                    how: Follow::Restart,
                })
                .collect(),
        }),
    }
}

fn no_versions(manager: Manager) -> String {
    format!("{manager} has one version of each package: leave `version` out")
}

/// The machine's manager.
fn tool(reach: Reach<'_>) -> Result<&'static dyn Tool, String> {
    let manager = of_machine(&reach.system.managers(), &os_release(reach.root))?;
    manager.map(packages::tool).ok_or_else(|| {
        let all: Vec<&str> = Manager::WORDS.iter().map(|(word, _)| *word).collect();
        format!("none of the package managers answers here: {}", all.join(", "))
    })
}

/// What the distribution says of itself; nothing where it says nothing.
fn os_release(root: &dyn Disk) -> String {
    let bytes = TargetPath::parse("/usr/lib/os-release")
        .ok()
        .and_then(|path| root.read(&path).ok());
    String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
}

/// How it stands.
#[must_use]
pub fn state(reach: Reach<'_>, name: &str) -> Observed {
    match tool(reach).and_then(|tool| installed(tool, name, reach)) {
        Err(why) => Observed::Unknown(why),
        Ok(None) => Observed::Absent,
        Ok(Some(version)) => Observed::Is(Thing::Package { version }),
    }
}

/// The installed version; none where it is not installed.
fn installed(tool: &dyn Tool, name: &str, reach: Reach<'_>) -> Result<Option<String>, String> {
    let argv = tool.query(name);
    let ended = reach.system.run(&argv, ANSWER);
    match ended.how {
        How::Exited(code) => tool.installed(name, code, &ended.said),
        _ => Err(ended.fault(&argv, &[]).unwrap_or_default()),
    }
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed, reach: Reach<'_>) -> Decision {
    let name = &wanted.name;
    let tool = match tool(reach) {
        Ok(tool) => tool,
        Err(why) => return Decision::Unknown(format!("package {name}: {why}")),
    };
    if wanted.manager.is_some_and(|manager| manager != tool.manager()) {
        return Decision::Unchanged;
    }
    if wanted.version.is_some() && !tool.manager().has_versions() {
        return Decision::Refuse(format!("package {name}: {}", no_versions(tool.manager())));
    }
    match observed {
        Observed::Absent if wanted.is_absent => Decision::Unchanged,
        Observed::Absent => Decision::Create(match &wanted.version {
            None => format!("package {name} is installed"),
            Some(version) => format!("package {name} is installed in version {version}"),
        }),
        Observed::Is(Thing::Package { version }) if wanted.is_absent => {
            let lasts = lasting(tool, (name, version), reach);
            Decision::Update(format!("package {name} {version} is removed{lasts}"))
        }
        Observed::Is(Thing::Package { version }) => {
            match wanted.version.as_ref().filter(|asked| !tool.is(asked, version)) {
                None => Decision::Unchanged,
                Some(asked) => {
                    let lasts = lasting(tool, (name, version), reach);
                    Decision::Update(format!(
                        "package {name}: version {asked} instead of {version}{lasts}"
                    ))
                }
            }
        }
        Observed::Unknown(why) => Decision::Unknown(format!("package {name}: {why}")),
        other => Decision::Unknown(format!("package {name} is {}", other.word())),
    }
}

/// Said of a version that goes and that no repository has any more (HR-5).
fn lasting(tool: &dyn Tool, (name, version): (&str, &str), reach: Reach<'_>) -> String {
    if is_to_be_had(tool, (name, version), reach) {
        return String::new();
    }
    format!("; it cannot be undone: the repositories of this machine do not have version {version}")
}

/// Whether a package is for another manager than the machine's: it is nothing here.
#[must_use]
pub fn is_elsewhere(spec: &Package, reach: Reach<'_>) -> bool {
    let is_other = |manager| tool(reach).is_ok_and(|tool| tool.manager() != manager);
    spec.manager.is_some_and(is_other)
}

/// Whether the repositories have a version, so that it can come back.
fn is_to_be_had(tool: &dyn Tool, (name, version): (&str, &str), reach: Reach<'_>) -> bool {
    let ended = reach.system.list(&tool.sources(name, version), ANSWER);
    matches!(ended.how, How::Exited(code) if tool.has_source(code, &ended.said, version))
}

impl Wanted {
    fn wish(&self) -> Wish<'_> {
        Wish {
            name: &self.name,
            version: self.version.as_deref(),
        }
    }

    /// What is to be done, in words.
    fn words(&self) -> String {
        match &self.version {
            _ if self.is_absent => format!("remove package {}", self.name),
            None => format!("install package {}", self.name),
            Some(version) => format!("install package {} {version}", self.name),
        }
    }
}

/// The manager that has something to do for it; none where it is as asked.
fn at_work(wanted: &Wanted, reach: Reach<'_>) -> Result<Option<&'static dyn Tool>, String> {
    match plan(wanted, &state(reach, &wanted.name), reach) {
        Decision::Unchanged | Decision::Idle(_) => Ok(None),
        Decision::Refuse(why) | Decision::Unknown(why) => Err(why),
        Decision::Create(_) | Decision::Update(_) => tool(reach).map(Some),
    }
}

/// Has here what is to be installed.
///
/// # Errors
/// In words: it cannot be had; or others would have to follow it where the distribution is rolling.
pub fn fetch(wanted: &Wanted, reach: Reach<'_>) -> Result<(), String> {
    let Some(tool) = at_work(wanted, reach)?.filter(|_| !wanted.is_absent) else {
        return Ok(());
    };
    let is_rolling = is_rolling(tool.manager(), &os_release(reach.root));
    let argv = tool.install(wanted.wish(), Far::Fetch, Patience::Ours);
    attempt((tool, is_rolling), &argv, (&wanted.words(), FETCH), reach)?;
    let said = tried(tool, wanted, reach)?;
    let going = tool.going(&said);
    if !going.is_empty() {
        return Err(format!(
            "{}: {} would have to go for it, and nothing is removed for a package that comes: remove it in the fleet \
             first (`absent = true`), or leave this one out",
            wanted.words(),
            going.join(", ")
        ));
    }
    if is_rolling {
        let follow: Vec<String> = (tool.coming(&said).into_iter())
            .filter(|name| *name != wanted.name && matches!(installed(tool, name, reach), Ok(Some(_))))
            .collect();
        if !follow.is_empty() {
            return Err(format!(
                "{}: newer builds of {} would have to come with it, and on a rolling distribution no part is upgraded \
                 alone: {}",
                wanted.words(),
                follow.join(", "),
                tool.remedy()
            ));
        }
    }
    Ok(())
}

/// What the manager says in a trial of it.
fn tried(tool: &dyn Tool, wanted: &Wanted, reach: Reach<'_>) -> Result<String, String> {
    let argv = tool.install(wanted.wish(), Far::Trial, Patience::Ours);
    trial(tool, &argv, &wanted.words(), reach)
}

/// Makes it so.
///
/// # Errors
/// In words: what is wrong, and what to do.
pub fn apply(wanted: &Wanted, reach: Reach<'_>) -> Result<(), String> {
    let Some(tool) = at_work(wanted, reach)? else {
        return Ok(());
    };
    let argv = match wanted.is_absent {
        true => tool.remove(&[&wanted.name], Patience::Ours),
        false => tool.install(wanted.wish(), Far::Whole, Patience::Ours),
    };
    let is_rolling = is_rolling(tool.manager(), &os_release(reach.root));
    attempt((tool, is_rolling), &argv, (&wanted.words(), WORK), reach)
}

/// The way back to how it stands: what comes goes again, and what goes comes again where it is to be had. The manager is
/// brought to rest before.
///
/// # Errors
/// In words: nobody can say how it stands, or what would come with it.
pub fn way_back(wanted: &Wanted, there: &Observed, reach: Reach<'_>) -> Result<Back, String> {
    let tool = tool(reach)?;
    let name = wanted.name.as_str();
    if let Observed::Unknown(why) = there {
        return Err(format!("package {name}: {why}"));
    }
    let mut back = Back::default();
    let mut run = |argv: &Argv, accepts: &[i32]| {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        back.run(When::First, (Sort::Package, name), &words, accepts);
    };
    let undo = match there.thing() {
        Some(Thing::Package { version }) if is_to_be_had(tool, (name, &version), reach) => {
            let wish = Wish {
                name,
                version: tool.manager().has_versions().then_some(version.as_str()),
            };
            tool.install(wish, Far::Whole, Patience::Its)
        }
        // Nothing brings it back, and the plan has said so.
        Some(_) => return Ok(back),
        None => {
            // Itself first: it goes alone where another package needs the rest.
            let mut new: BTreeSet<String> = BTreeSet::new();
            for other in tool.coming(&tried(tool, wanted, reach)?) {
                if other != name && installed(tool, &other, reach)?.is_none() {
                    new.insert(other);
                }
            }
            let new: Vec<&str> = [name].into_iter().chain(new.iter().map(String::as_str)).collect();
            tool.remove(&new, Patience::Its)
        }
    };
    for rest in [tool.free(), tool.settle()].into_iter().flatten() {
        run(&rest, &NOT_ALL_CONFIGURED);
    }
    run(&undo, tool.accepts());
    Ok(back)
}

#[cfg(test)]
#[path = "package/tests.rs"]
mod tests;
