//! Debian's packages of a machine in memory: what apt-get and dpkg do and say, as far as the host goes by it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use meshplan_schemas::resource::accounts::Manager;

/// The exit code, what is said, and what was changed, in words.
type Ran = (i32, String, Option<String>);

/// What the machine's manager has and can get.
#[derive(Debug, Default)]
pub struct Packages {
    /// The managers that answer.
    pub managers: Vec<Manager>,
    /// What is installed, each in its version.
    pub installed: BTreeMap<String, String>,
    /// What the repositories have.
    pub offers: BTreeMap<String, Offer>,
    /// With what the next runs end that would change something, and what they say.
    pub next: VecDeque<(i32, String)>,
    /// dpkg was ended in its midst.
    pub is_interrupted: bool,
    /// What another manager is run with, each with the exit code and what is said; nothing changes.
    pub answers: BTreeMap<String, (i32, String)>,
}

/// A package of the repositories.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// The oldest first.
    pub versions: Vec<String>,
    /// What it needs.
    pub needs: Vec<String>,
}

impl Packages {
    /// Packages of a Debian machine, by name, version and what each needs.
    #[must_use]
    pub fn debian(offers: &[(&str, &[&str], &[&str])]) -> Self {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let offer = |(name, versions, needs): &(&str, &[&str], &[&str])| {
            let offer = Offer {
                versions: owned(versions),
                needs: owned(needs),
            };
            ((*name).to_owned(), offer)
        };
        Self {
            managers: vec![Manager::Apt],
            offers: offers.iter().map(offer).collect(),
            ..Self::default()
        }
    }

    /// Runs a command line that is about packages.
    pub(super) fn run(&mut self, argv: &[&str]) -> Option<Ran> {
        if let Some((code, said)) = self.answers.get(&argv.join(" ")) {
            return Some((*code, said.clone(), None));
        }
        let argv = match argv {
            ["env", rest @ ..] => {
                let program = rest.iter().position(|word| !word.contains('='))?;
                rest.get(program..)?
            }
            argv => argv,
        };
        // The way back runs dpkg again while another program holds its lock, and with the first alone where it cannot have
        // the rest.
        if let ["sh", "-c", _, "sh", "2", names @ ..] = argv {
            let ran = self.remove(names);
            return Some(match names {
                [named, _, ..] if ran.0 == 1 => self.remove(&[*named]),
                _ => ran,
            });
        }
        match argv {
            ["dpkg-query", "--show", "--showformat", _, name] => Some(match self.installed.get(*name) {
                Some(version) => (0, format!("installed {version}"), None),
                None => (1, format!("dpkg-query: no packages found matching {name}"), None),
            }),
            ["stat", "-c", "%Y", ..] => Some((0, "1700000000".to_owned(), None)),
            ["date", "+%s"] => Some((0, "1700003600".to_owned(), None)),
            ["dpkg", .., "--configure", "-a"] => {
                self.is_interrupted = false;
                Some((0, String::new(), Some("dpkg --configure -a".to_owned())))
            }
            ["dpkg", "--remove", names @ ..] => Some(self.remove(names)),
            ["apt-get", options @ .., "update"] if !options.is_empty() => {
                let (code, said) = self.next.pop_front().unwrap_or_default();
                Some((code, said, Some("apt-get update".to_owned())))
            }
            ["apt-get", .., "download", "--print-uris", package] => Some(match self.found(package) {
                Ok(_) => (0, String::new(), None),
                Err(why) => (100, why, None),
            }),
            ["apt-get", options @ .., "install", package] => Some(self.install(options, package)),
            _ => None,
        }
    }

    fn remove(&mut self, names: &[&str]) -> Ran {
        if let Some((code, said)) = self.next.pop_front() {
            return (code, said, None);
        }
        let going: BTreeSet<&str> = names
            .iter()
            .copied()
            .filter(|name| self.installed.contains_key(*name))
            .collect();
        for name in self
            .installed
            .keys()
            .filter(|name| !going.contains(name.as_str()))
        {
            let needs = self.offers.get(name).map_or(&[][..], |offer| &offer.needs);
            if let Some(needed) = needs.iter().find(|needed| going.contains(needed.as_str())) {
                let why =
                    format!("dpkg: dependency problems prevent removal of {needed}:\n {name} depends on it.");
                return (1, why, None);
            }
        }
        let acted = (!going.is_empty()).then(|| format!("dpkg --remove {}", names.join(" ")));
        self.installed.retain(|name, _| !going.contains(name.as_str()));
        (0, String::new(), acted)
    }

    /// The name and version of a package that the repositories have.
    fn found(&self, package: &str) -> Result<(String, String), String> {
        let (name, version) = match package.split_once('=') {
            Some((name, version)) => (name, Some(version)),
            None => (package, None),
        };
        let offer = self
            .offers
            .get(name)
            .ok_or_else(|| format!("E: Unable to locate package {name}"))?;
        let version = match version {
            None => offer.versions.last().cloned(),
            Some(version) => offer.versions.iter().find(|one| *one == version).cloned(),
        };
        let version = version.ok_or_else(|| format!("E: Version of '{package}' was not found"))?;
        Ok((name.to_owned(), version))
    }

    /// What comes with a package, itself the last.
    fn coming(&self, package: &str) -> Result<Vec<(String, String)>, String> {
        let (name, version) = self.found(package)?;
        if self.installed.get(&name) == Some(&version) {
            return Ok(Vec::new());
        }
        let mut coming = Vec::new();
        let needs = self.offers.get(&name).map_or(&[][..], |offer| &offer.needs);
        for needed in needs
            .iter()
            .filter(|needed| !self.installed.contains_key(*needed))
        {
            coming.extend(self.coming(needed)?);
        }
        coming.push((name, version));
        Ok(coming)
    }

    fn install(&mut self, options: &[&str], package: &str) -> Ran {
        let is_trial = options.contains(&"--simulate");
        if self.is_interrupted {
            let why = "E: dpkg was interrupted, you must manually run 'dpkg --configure -a'";
            return (100, why.to_owned(), None);
        }
        if !is_trial && let Some((code, said)) = self.next.pop_front() {
            return (code, said, None);
        }
        let coming = match self.coming(package) {
            Ok(coming) => coming,
            Err(why) => return (100, why, None),
        };
        let lines = coming
            .iter()
            .map(|(name, version)| format!("Inst {name} ({version})"));
        let said = lines.collect::<Vec<_>>().join("\n");
        if is_trial {
            return (0, said, None);
        }
        if options.contains(&"--download-only") {
            return (0, said, Some(format!("fetch {package}")));
        }
        self.installed.extend(coming);
        (0, said, Some(format!("install {package}")))
    }
}
