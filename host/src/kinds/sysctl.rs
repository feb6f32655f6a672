//! A setting of the kernel (HK-13): now, and at boot by a file of its own.

use meshplan_schemas::resource::programs::Sysctl;

use super::{Back, Decision, Invalid, Reach, put_text, run, text_of};
use crate::edge::disk::atomic;
use crate::pure::inverse::When;
use crate::pure::observed::Observed;
use crate::pure::record::Thing;
use crate::pure::target::Sort;
use crate::pure::target_path::TargetPath;

/// Writes a value into a file of the kernel, by what every machine has; nothing where it has that value: a kernel that
/// lets nobody write needs not be written to on the way back.
pub const SET: &str = "[ \"$(tr -s '[:space:]' ' ' < \"$1\")\" = \"$2 \" ] || printf '%s\\n' \"$2\" > \"$1\"";

/// A setting that is asked for properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name with dots.
    pub key: String,
    /// Its value, its parts with one blank between them.
    pub value: String,
}

/// Checks the fields.
///
/// # Errors
/// [`Invalid`].
pub fn validate(spec: &Sysctl) -> Result<Wanted, Invalid> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-/".contains(c);
    let fits = (spec.key.split('.')).all(|part| !part.is_empty() && part.chars().all(is_plain));
    if !fits || !spec.key.contains('.') || spec.key.contains("//") {
        return Err(Invalid::Fields(format!(
            "{:?} is no name of a kernel setting, as `net.ipv4.ip_forward`",
            spec.key.chars().take(100).collect::<String>()
        )));
    }
    let value = plain(&spec.value);
    if value.is_empty() || value.chars().any(char::is_control) {
        return Err(Invalid::Fields(format!(
            "the value of {} is empty or no plain text",
            spec.key
        )));
    }
    Ok(Wanted {
        key: spec.key.clone(),
        value,
    })
}

/// A value as it is compared: the kernel puts tabs between its parts.
fn plain(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where the kernel has it. In a name a `/` stands for a dot within a part, as sysctl.d(5) has it.
fn kernel_path(key: &str) -> String {
    let swapped: String = key
        .chars()
        .map(|c| match c {
            '.' => '/',
            '/' => '.',
            c => c,
        })
        .collect();
    format!("/proc/sys/{swapped}")
}

fn file_of(key: &str) -> Result<TargetPath, String> {
    let name = key.replace('/', "_");
    TargetPath::parse(&format!("/etc/sysctl.d/90-meshplan-{name}.conf")).map_err(|e| e.to_string())
}

fn line(key: &str, value: &str) -> String {
    format!("{key} = {value}")
}

/// How it stands.
#[must_use]
pub fn state(reach: Reach<'_>, key: &str) -> Observed {
    let value = match reach.system.kernel(&kernel_path(key)) {
        Ok(Some(value)) => plain(&value),
        Ok(None) => return Observed::Absent,
        Err(why) => return Observed::Unknown(why),
    };
    let file = match file_of(key) {
        Ok(file) => file,
        Err(why) => return Observed::Unknown(why),
    };
    match text_of(reach, &file) {
        Ok(at_boot) => Observed::Is(Thing::Setting { value, at_boot }),
        Err(why) => Observed::Unknown(why),
    }
}

/// What would change.
#[must_use]
pub fn plan(wanted: &Wanted, observed: &Observed) -> Decision {
    let Wanted { key, value } = wanted;
    match observed {
        Observed::Absent => Decision::Create(format!(
            "{key} is not known to the kernel yet; it becomes {value}"
        )),
        Observed::Is(Thing::Setting { value: is, at_boot }) => {
            let mut words = Vec::new();
            if is != value {
                words.push(format!("{value} instead of {is}"));
            }
            if at_boot.as_deref() != Some(line(key, value).as_str()) {
                words.push("set at boot from now on".to_owned());
            }
            match words.as_slice() {
                [] => Decision::Unchanged,
                words => Decision::Update(format!("{key}: {}", words.join("; "))),
            }
        }
        Observed::Unknown(why) => Decision::Unknown(format!("{key}: {why}")),
        other => Decision::Unknown(format!("{key} is {}", other.word())),
    }
}

/// Makes it so.
///
/// # Errors
/// In words: there is no such setting, or the kernel does not take the value.
pub fn apply(wanted: &Wanted, reach: Reach<'_>) -> Result<(), String> {
    let Wanted { key, value } = wanted;
    // First now: a value that the kernel refuses shall not wait for the next boot.
    set(reach, key, value)?;
    put_file(reach, key, Some(&line(key, value)))
}

fn set(reach: Reach<'_>, key: &str, value: &str) -> Result<(), String> {
    let path = kernel_path(key);
    if reach.system.kernel(&path)?.is_none() {
        return Err(format!("this kernel has no setting `{key}` ({path})"));
    }
    run(reach.system, &["sh", "-c", SET, "sh", &path, value], &[])
}

fn put_file(reach: Reach<'_>, key: &str, line: Option<&str>) -> Result<(), String> {
    let path = file_of(key)?;
    match line {
        None => atomic::remove_file(reach.root, &path).map_err(|e| e.to_string()),
        Some(line) => put_text(reach, &path, line),
    }
}

/// The way back to how it stands.
///
/// # Errors
/// In words: its file could not be kept.
pub fn way_back(key: &str, there: &Observed, reach: Reach<'_>) -> Result<Back, String> {
    let mut back = Back::default();
    back.path(file_of(key)?, reach)?;
    if let Some(Thing::Setting { value, .. }) = there.thing() {
        let argv = ["sh", "-c", SET, "sh", &kernel_path(key), &value];
        back.run(When::Last, (Sort::Setting, key), &argv, &[]);
    }
    Ok(back)
}

/// Gives it back as it was found, and says what was done.
///
/// # Errors
/// In words.
pub fn give_back(key: &str, found: Option<&Thing>, reach: Reach<'_>) -> Result<String, String> {
    match found {
        Some(Thing::Setting { value, at_boot }) => {
            set(reach, key, value)?;
            put_file(reach, key, at_boot.as_deref())?;
            Ok(format!("{key} is {value} again, as it was found"))
        }
        _ => {
            put_file(reach, key, None)?;
            Ok(format!(
                "{key} is not set at boot any more; it keeps its value until then"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::disk::{Disk as _, SimDisk};
    use crate::edge::system::SimSystem;

    const KEY: &str = "net.ipv4.ip_forward";

    fn asked(key: &str, value: &str) -> Result<Wanted, Invalid> {
        validate(&Sysctl {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }

    // holds: HK-13
    #[test]
    fn only_names_of_settings_are_taken_and_none_leads_out_of_the_kernel() {
        for bad in [
            "",
            "net",
            "net..x",
            "net.ipv4./../../etc/passwd",
            "a b.c",
            "net.$(x)",
            "net.//x",
        ] {
            assert!(asked(bad, "1").is_err(), "{bad} was taken");
        }
        assert!(asked(KEY, " ").is_err());
        assert_eq!(asked(KEY, " 1\t2  3 ").unwrap().value, "1 2 3");
        assert_eq!(
            kernel_path("net.ipv4.conf.eth0/7.mtu"),
            "/proc/sys/net/ipv4/conf/eth0.7/mtu"
        );
    }

    // holds: HK-13, HK-14
    #[test]
    fn it_is_set_now_and_at_boot_and_given_back() {
        let (disk, system) = (SimDisk::new(), SimSystem::default());
        let reach = Reach {
            root: &disk,
            system: &system,
            state: &disk,
        };
        let wanted = asked(KEY, "1").unwrap();
        assert!(matches!(plan(&wanted, &state(reach, KEY)), Decision::Create(_)));
        let why = apply(&wanted, reach).unwrap_err();
        assert!(why.contains("no setting"), "{why}");
        system.with(|sim| sim.kernel.insert(kernel_path(KEY), "0".to_owned()));
        let found = state(reach, KEY);
        assert!(matches!(plan(&wanted, &found), Decision::Update(_)));
        apply(&wanted, reach).unwrap();
        assert_eq!(plan(&wanted, &state(reach, KEY)), Decision::Unchanged);
        assert_eq!(
            disk.read(&file_of(KEY).unwrap()).unwrap(),
            b"net.ipv4.ip_forward = 1\n"
        );
        give_back(KEY, found.thing().as_ref(), reach).unwrap();
        assert_eq!(state(reach, KEY), found);
    }
}
