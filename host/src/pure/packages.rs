//! Package managers (HK-3): what each is run with, and how what it says is read.
//!
//! Stands alone because managers differ in words only: [`Tool`] has them, as pure functions, and what is done with them
//! is one for all. Invariants: nothing that is run asks anybody; nothing that installs removes another package; nothing
//! that removes takes another one with it; on a rolling distribution ([`is_rolling`]) nobody renews an index, or brings a
//! newer build of what is installed, without the whole machine.

mod apk;
mod apt;
mod dnf;
mod fault;
mod pacman;
mod rpm;
mod zypper;

use meshplan_schemas::resource::accounts::Manager;

pub use fault::{Fault, Index, LOCK_SECS};

/// A program and its arguments.
pub type Argv = Vec<String>;

/// A package that shall be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its version; whichever the manager has where it is left out.
    pub version: Option<&'a str>,
}

/// How far an installation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It says what would come, and does nothing.
    Trial,
    /// Packages are fetched and kept, and nothing is installed.
    Fetch,
    /// All of it.
    Whole,
}

/// Who waits for a lock that another program holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// The host, which tries again.
    Ours,
    /// The program itself, as on the way back, where nobody tries again.
    Its,
}

/// What one package manager is run with, and how what it says is read.
pub trait Tool: Sync + std::fmt::Debug {
    /// Which.
    fn manager(&self) -> Manager;

    /// Asks how a package is installed.
    fn query(&self, name: &str) -> Argv;

    /// The installed version of this package in the answer to [`Tool::query`]; none where it is not installed.
    ///
    /// # Errors
    /// In words: it is no answer, or the package is there and not whole. That is never "not installed".
    fn installed(&self, name: &str, code: i32, said: &str) -> Result<Option<String>, String>;

    /// Whether an installed version is the one that is asked for.
    fn is(&self, asked: &str, installed: &str) -> bool {
        asked == installed
    }

    /// Installs a package, as far as `reach` says.
    fn install(&self, wish: Wish<'_>, reach: Reach, patience: Patience) -> Argv;

    /// The packages that come, new or in another version, in the answer to a [`Reach::Trial`].
    fn coming(&self, said: &str) -> Vec<String>;

    /// The packages that would go, in the answer to a [`Reach::Trial`]; none where an installation never removes one.
    fn going(&self, _said: &str) -> Vec<String> {
        Vec::new()
    }

    /// Whether a [`Reach::Trial`] that ended so was one: anything else says nothing of what comes.
    fn is_trial(&self, code: i32, _said: &str) -> bool {
        code == 0 || self.accepts().contains(&code)
    }

    /// Removes packages, and no other; one that is not installed is passed over. Where another package needs one of them
    /// the first goes alone.
    fn remove(&self, names: &[&str], patience: Patience) -> Argv;

    /// Asks whether the repositories have a package in a version.
    fn sources(&self, name: &str, version: &str) -> Argv;

    /// Whether they do, in the answer to [`Tool::sources`].
    fn has_source(&self, code: i32, said: &str, version: &str) -> bool;

    /// Renews the index; none where that is never done without the whole machine.
    fn renew(&self) -> Option<Argv> {
        None
    }

    /// Brings the manager to rest after it was ended in its midst; none where it does that by itself.
    fn settle(&self) -> Option<Argv> {
        None
    }

    /// Frees a lock that is left of before the machine started; none where locks end with who holds them.
    fn free(&self) -> Option<Argv> {
        None
    }

    /// Codes beside 0 with which an installation has been done.
    fn accepts(&self) -> &'static [i32] {
        &[]
    }

    /// Codes that say by themselves what is wrong.
    fn by_code(&self, _code: i32) -> Option<Fault> {
        None
    }

    /// What it says where something is wrong: of the phrases that are found, the first in this list counts.
    fn phrases(&self) -> &'static [(&'static str, Fault)];

    /// The files and folders whose newest change is the date of the index.
    fn index(&self) -> &'static [&'static str];

    /// What a person does about an index that is out of step with its mirrors.
    fn remedy(&self) -> &'static str;

    /// What is wrong, from all that it said and its code.
    fn fault(&self, code: i32, said: &str) -> Fault {
        let by_words = || self.phrases().iter().find(|(phrase, _)| said.contains(phrase));
        self.by_code(code)
            .or_else(|| by_words().map(|(_, fault)| *fault))
            .unwrap_or(Fault::Other)
    }
}

/// The tool of a manager.
#[must_use]
pub fn tool(manager: Manager) -> &'static dyn Tool {
    match manager {
        Manager::Apt => &apt::Apt,
        Manager::Dnf => &dnf::Dnf,
        Manager::Pacman => &pacman::Pacman,
        Manager::Apk => &apk::Apk,
        Manager::Zypper => &zypper::Zypper,
    }
}

/// The manager of a machine: the one that answers; of several the one of its distribution, as os-release(5) names it.
///
/// # Errors
/// In words: several answer, and nobody could say which has the machine's packages.
pub fn of_machine(answering: &[Manager], os_release: &str) -> Result<Option<Manager>, String> {
    if let [] | [_] = answering {
        return Ok(answering.first().copied());
    }
    let words = families(os_release);
    let fits = |manager: &&Manager| match manager {
        Manager::Apt => words.contains(&"debian") || words.contains(&"ubuntu"),
        Manager::Dnf => words.contains(&"fedora") || words.contains(&"rhel"),
        Manager::Pacman => words.contains(&"arch"),
        Manager::Apk => words.contains(&"alpine"),
        Manager::Zypper => words.iter().any(|word| word.contains("suse")),
    };
    match answering.iter().filter(fits).collect::<Vec<_>>().as_slice() {
        [one] => Ok(Some(**one)),
        _ => {
            let all: Vec<&str> = answering.iter().map(|manager| manager.word()).collect();
            Err(format!(
                "this machine has {}, and its /usr/lib/os-release does not say whose its packages are",
                all.join(" and ")
            ))
        }
    }
}

/// Whether a distribution is rolling: an index that is renewed there, without the whole machine following, leads to
/// packages that do not fit together.
#[must_use]
pub fn is_rolling(manager: Manager, os_release: &str) -> bool {
    let words = families(os_release);
    let says = |text: &str| os_release.to_ascii_lowercase().contains(text);
    match manager {
        Manager::Pacman => true,
        Manager::Zypper => words.contains(&"opensuse-tumbleweed") || words.contains(&"opensuse-slowroll"),
        Manager::Dnf => says("rawhide"),
        Manager::Apk => says("edge") || says("_alpha"),
        Manager::Apt => false,
    }
}

/// The words of `ID` and `ID_LIKE`.
fn families(os_release: &str) -> Vec<&str> {
    let values = os_release.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        ["ID", "ID_LIKE"].contains(&key).then_some(value)
    });
    values
        .flat_map(|value| value.trim_matches(['"', '\'']).split_whitespace())
        .collect()
}

/// Words as a command.
fn argv<'a>(words: impl IntoIterator<Item = &'a str>) -> Argv {
    words.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEDORA: &str = "NAME=\"Fedora Linux\"\nVERSION=\"40 (Server Edition)\"\nID=fedora\n";

    // holds: HK-3
    #[test]
    fn a_machine_with_several_managers_has_that_of_its_distribution_or_it_is_said() {
        let both = [Manager::Apt, Manager::Dnf];
        assert_eq!(of_machine(&[], FEDORA), Ok(None));
        assert_eq!(of_machine(&[Manager::Apk], ""), Ok(Some(Manager::Apk)));
        assert_eq!(of_machine(&both, FEDORA), Ok(Some(Manager::Dnf)));
        let rocky = "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n";
        assert_eq!(of_machine(&both, rocky), Ok(Some(Manager::Dnf)));
        let mint = "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n";
        assert_eq!(of_machine(&both, mint), Ok(Some(Manager::Apt)));
        let why = of_machine(&both, "ID=own\n").unwrap_err();
        assert!(why.contains("apt and dnf"), "{why}");
    }

    // holds: HK-3
    #[test]
    fn rolling_distributions_are_known() {
        assert!(is_rolling(Manager::Pacman, ""));
        assert!(is_rolling(
            Manager::Zypper,
            "ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n"
        ));
        assert!(!is_rolling(Manager::Zypper, "ID=\"opensuse-leap\"\n"));
        assert!(!is_rolling(Manager::Dnf, FEDORA));
        assert!(is_rolling(
            Manager::Dnf,
            "ID=fedora\nVERSION=\"41 (Rawhide Prerelease)\"\n"
        ));
        assert!(is_rolling(
            Manager::Apk,
            "ID=alpine\nPRETTY_NAME=\"Alpine Linux edge\"\n"
        ));
        assert!(!is_rolling(Manager::Apk, "ID=alpine\nVERSION_ID=3.20.1\n"));
        assert!(!is_rolling(Manager::Apt, "ID=debian\n"));
    }

    // holds: HK-3
    #[test]
    fn nothing_that_is_run_asks_anybody_or_renews_an_index_by_the_way() {
        let wish = Wish {
            name: "web",
            version: None,
        };
        for (_, manager) in Manager::WORDS {
            let tool = tool(*manager);
            assert_eq!(tool.manager(), *manager);
            for reach in [Reach::Trial, Reach::Fetch, Reach::Whole] {
                for patience in [Patience::Ours, Patience::Its] {
                    let line = tool.install(wish, reach, patience).join(" ");
                    let quiet = ["-y", "--assumeno", "--noconfirm", "--non-interactive", "apk"];
                    assert!(quiet.iter().any(|word| line.contains(word)), "{line}");
                    assert!(line.ends_with(" web"), "{line}");
                    assert!(!line.contains("-Sy"), "{line}");
                }
            }
        }
    }
}
