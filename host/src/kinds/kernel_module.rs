//! A module of the kernel (HK-13): loaded now, and at boot by a file of its own.
//!
//! A module that was loaded and is in use cannot be taken out again: then it stays until the next boot.

use meshplan_schemas::resource::programs::KernelModule;

use super::{Back, Decision, Invalid, Reach, put_text, run, text_of};
use crate::edge::disk::atomic;
use crate::edge::observe::observe;
use crate::pure::inverse::When;
use crate::pure::observed::Observed;
use crate::pure::record::Thing;
use crate::pure::target::Sort;
use crate::pure::target_path::TargetPath;

/// What modprobe ends with where a module cannot be taken out, as it is in use.
const IN_USE: i32 = 1;

/// A module that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name, with underscores.
    pub name: String,
    /// Its options, as `a=1 b=2`.
    pub options: Option<String>,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(spec: &KernelModule) -> Result<Wanted, Invalid> {
    let name = plain(&spec.name);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(Invalid::Fields(format!(
            "{:?} is no name of a kernel module, as `br_netfilter`",
            spec.name.chars().take(100).collect::<String>()
        )));
    }
    let options = spec.options.as_ref().map(|options| options.trim().to_owned());
    if options
        .as_ref()
        .is_some_and(|options| options.chars().any(char::is_control))
    {
        return Err(Invalid::Fields(format!(
            "the options of {name} are more than a line"
        )));
    }
    Ok(Wanted {
        name,
        options: options.filter(|options| !options.is_empty()),
    })
}

/// By what it is known: the kernel takes `-` and `_` for one.
#[must_use]
pub fn plain(name: &str) -> String {
    name.replace('-', "_")
}

impl Wanted {
    /// What its files say: to load it, and its options.
    fn at_boot(&self) -> Vec<String> {
        let options = self
            .options
            .iter()
            .map(|options| format!("options {} {options}", self.name));
        std::iter::once(self.name.clone()).chain(options).collect()
    }
}

/// The files: of modules-load.d(5), and of modprobe.d(5).
fn files(name: &str) -> Result<[TargetPath; 2], String> {
    let path = |folder: &str| {
        TargetPath::parse(&format!("/etc/{folder}/meshplan-{name}.conf")).map_err(|e| e.to_string())
    };
    Ok([path("modules-load.d")?, path("modprobe.d")?])
}

/// How it stands.
#[must_use]
pub fn state(reach: Reach<'_>, name: &str) -> Observed {
    match look(reach, name) {
        Err(why) => Observed::Unknown(why),
        Ok(thing) => Observed::Is(thing),
    }
}

fn look(reach: Reach<'_>, name: &str) -> Result<Thing, String> {
    let loaded = match reach.system.kernel(&format!("/sys/module/{name}/initstate"))? {
        Some(state) => state == "live",
        None => is_built_in(reach, name)?,
    };
    let mut at_boot = Vec::new();
    for file in files(name)? {
        at_boot.extend(text_of(reach, &file)?);
    }
    Ok(Thing::KernelModule { loaded, at_boot })
}

/// Whether it is a part of the running kernel, by the list that comes with it.
fn is_built_in(reach: Reach<'_>, name: &str) -> Result<bool, String> {
    let release = reach
        .system
        .kernel("/proc/sys/kernel/osrelease")?
        .unwrap_or_default();
    let Ok(list) = TargetPath::parse(&format!("/lib/modules/{release}/modules.builtin")) else {
        return Ok(false);
    };
    match observe(reach.root, &list) {
        Observed::File { bytes, .. } => {
            let list = String::from_utf8_lossy(&bytes).into_owned();
            let names = list.lines().filter_map(|path| path.rsplit('/').next());
            Ok(names
                .filter_map(|file| file.split('.').next())
                .any(|one| plain(one) == name))
        }
        Observed::Unknown(why) => Err(why),
        _ => Ok(false),
    }
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed) -> Decision {
    let name = &wanted.name;
    match observed {
        Observed::Is(Thing::KernelModule { loaded, at_boot }) => {
            let mut words = Vec::new();
            if !loaded {
                words.push("is loaded");
            }
            if *at_boot != wanted.at_boot() {
                words.push("is loaded at boot from now on, with these options");
            }
            match words.as_slice() {
                [] => Decision::Unchanged,
                words => Decision::Update(format!("kernel module {name} {}", words.join(" and "))),
            }
        }
        Observed::Unknown(why) => Decision::Unknown(format!("kernel module {name}: {why}")),
        other => Decision::Unknown(format!("kernel module {name} is {}", other.word())),
    }
}

/// Makes it so.
///
/// # Errors
/// In words: the kernel has no such module.
pub fn apply(wanted: &Wanted, reach: Reach<'_>) -> Result<(), String> {
    put_files(reach, &wanted.name, &wanted.at_boot())?;
    if let Thing::KernelModule { loaded: false, .. } = look(reach, &wanted.name)? {
        run(reach.system, &["modprobe", &wanted.name], &[])?;
    }
    Ok(())
}

/// Writes what shall be at boot, a line a file, and takes the other files away.
fn put_files(reach: Reach<'_>, name: &str, lines: &[String]) -> Result<(), String> {
    for (at, path) in files(name)?.into_iter().enumerate() {
        match lines.get(at) {
            Some(line) => put_text(reach, &path, line)?,
            None => atomic::remove_file(reach.root, &path).map_err(|e| e.to_string())?,
        }
    }
    Ok(())
}

/// The way back to how it stands.
///
/// # Errors
/// In words: its files could not be kept.
pub fn way_back(name: &str, there: &Observed, reach: Reach<'_>) -> Result<Back, String> {
    let mut back = Back::default();
    if let Some(Thing::KernelModule { loaded: false, .. }) = there.thing() {
        let it = (Sort::KernelModule, name);
        back.run(When::First, it, &["modprobe", "-r", name], &[IN_USE]);
    }
    for path in files(name)? {
        back.path(path, reach)?;
    }
    Ok(back)
}

/// Gives it back as it was found, and says what was done: what is loaded stays until the next boot.
///
/// # Errors
/// In words.
pub fn give_back(name: &str, found: Option<&Thing>, reach: Reach<'_>) -> Result<String, String> {
    let lines = match found {
        Some(Thing::KernelModule { at_boot, .. }) => at_boot.as_slice(),
        _ => &[],
    };
    put_files(reach, name, lines)?;
    Ok(format!(
        "kernel module {name} is loaded at boot as it was found; until then it stays as it is"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::disk::SimDisk;
    use crate::edge::system::SimSystem;

    // holds: HK-13, HK-14
    #[test]
    fn it_is_loaded_now_and_at_boot_and_given_back() {
        let (disk, system) = (SimDisk::new(), SimSystem::default());
        let reach = Reach {
            root: &disk,
            system: &system,
            state: &disk,
        };
        let spec = KernelModule {
            name: "br-netfilter".to_owned(),
            options: Some("a=1".to_owned()),
        };
        let wanted = validate(&spec).unwrap();
        let found = state(reach, &wanted.name);
        assert!(matches!(plan(&wanted, &found), Decision::Update(_)));
        assert!(apply(&wanted, reach).is_err(), "nobody knows the module");
        system.with(|sim| {
            sim.programs.insert("modprobe br_netfilter".to_owned(), 0);
            sim.kernel
                .insert("/sys/module/br_netfilter/initstate".to_owned(), "live".to_owned());
        });
        apply(&wanted, reach).unwrap();
        assert_eq!(plan(&wanted, &state(reach, &wanted.name)), Decision::Unchanged);
        give_back(&wanted.name, found.thing().as_ref(), reach).unwrap();
        let Some(Thing::KernelModule { at_boot, .. }) = state(reach, &wanted.name).thing() else {
            panic!("it is not there");
        };
        assert_eq!(at_boot, Vec::<String>::new());
        for bad in ["", "../x", "a b", "x;y"] {
            let spec = KernelModule {
                name: bad.to_owned(),
                options: None,
            };
            assert!(validate(&spec).is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn what_is_a_part_of_the_kernel_is_loaded() {
        let (disk, system) = (SimDisk::new(), SimSystem::default());
        let reach = Reach {
            root: &disk,
            system: &system,
            state: &disk,
        };
        system.with(|sim| {
            sim.kernel
                .insert("/proc/sys/kernel/osrelease".to_owned(), "6.1.0".to_owned())
        });
        let list = TargetPath::parse("/lib/modules/6.1.0/modules.builtin").unwrap();
        disk.plant(&list, b"kernel/net/tcp-bbr.ko\n", 0o644);
        let loaded = |name| matches!(look(reach, name), Ok(Thing::KernelModule { loaded: true, .. }));
        assert!(loaded("tcp_bbr") && !loaded("bbr"));
    }
}
