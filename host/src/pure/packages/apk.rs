//! Alpine's.

use meshplan_schemas::resource::accounts::Manager;

use super::{Argv, Fault, LOCK_SECS, Patience, Reach, Tool, Wish, argv};

/// The words of a transaction behind which a package stands that comes.
const COMING: [&str; 5] = [
    "Installing",
    "Upgrading",
    "Downgrading",
    "Replacing",
    "Reinstalling",
];

/// apk.
#[derive(Debug)]
pub(super) struct Apk;

/// How it begins.
fn apk(patience: Patience) -> Argv {
    let mut words = argv(["apk"]);
    if patience == Patience::Its {
        words.extend(["--wait".to_owned(), LOCK_SECS.to_string()]);
    }
    words
}

impl Tool for Apk {
    fn manager(&self) -> Manager {
        Manager::Apk
    }

    fn query(&self, name: &str) -> Argv {
        argv(["apk", "-v", "info", "--installed", name])
    }

    fn installed(&self, _name: &str, code: i32, said: &str) -> Result<Option<String>, String> {
        // `name-version-r1`: what is before the last two dashes is the name.
        let version = |line: &str| {
            let mut dashes = line.trim().rmatch_indices('-');
            let at = dashes.nth(1)?.0;
            line.trim().get(at + 1..).map(str::to_owned)
        };
        match code {
            0 => {
                let lines = said.lines().filter(|line| !line.contains(' '));
                let found = lines.filter_map(version).next();
                found.map(Some).ok_or_else(|| format!("apk says {said:?}"))
            }
            1 if !said.contains("ERROR") => Ok(None),
            code => Err(format!("apk ended with {code}: {said}")),
        }
    }

    fn install(&self, wish: Wish<'_>, reach: Reach, patience: Patience) -> Argv {
        let mut words = apk(patience);
        words.extend(argv(["add"]));
        // It cannot fetch without installing: that it could is what is asked before.
        if reach != Reach::Whole {
            words.extend(argv(["--simulate"]));
        }
        words.push(match wish.version {
            None => wish.name.to_owned(),
            Some(version) => format!("{}={version}", wish.name),
        });
        words
    }

    fn coming(&self, said: &str) -> Vec<String> {
        behind(&COMING, said)
    }

    fn going(&self, said: &str) -> Vec<String> {
        behind(&["Purging"], said)
    }

    fn remove(&self, names: &[&str], patience: Patience) -> Argv {
        let mut words = apk(patience);
        words.extend(argv(["del"]));
        words.extend(argv(names.iter().copied()));
        words
    }

    fn sources(&self, name: &str, _version: &str) -> Argv {
        argv(["apk", "policy", name])
    }

    fn has_source(&self, code: i32, said: &str, version: &str) -> bool {
        // A version, and below it, deeper, where it is to be had.
        let mut lines = said
            .lines()
            .skip_while(|line| line.trim() != format!("{version}:"))
            .skip(1)
            .take_while(|line| line.starts_with("    "));
        code == 0 && lines.any(|line| line.trim() != "lib/apk/db/installed")
    }

    fn renew(&self) -> Option<Argv> {
        Some(argv(["apk", "update"]))
    }

    fn phrases(&self) -> &'static [(&'static str, Fault)] {
        &[
            ("Unable to lock database", Fault::Locked),
            ("No space left on device", Fault::NoRoom),
            ("UNTRUSTED signature", Fault::Unsigned),
            ("BAD signature", Fault::Unsigned),
            ("package mentioned in index not found", Fault::Stale),
            ("temporary error (try again later)", Fault::Outage),
            ("DNS", Fault::Outage),
            ("network error", Fault::Outage),
            ("network connection", Fault::Outage),
            ("could not connect", Fault::Outage),
            ("operation timed out", Fault::Outage),
            ("remote server returned error", Fault::Outage),
            ("(no such package)", Fault::NoSuch),
            ("breaks: world[", Fault::NoSuch),
            ("conflicts:", Fault::Conflict),
            ("are not removed due to", Fault::Conflict),
        ]
    }

    fn index(&self) -> &'static [&'static str] {
        &["/var/cache/apk", "/etc/apk/cache"]
    }

    fn remedy(&self) -> &'static str {
        "run `apk update` on the machine and read what it says, then check its clock, /etc/apk/repositories and \
         /etc/apk/keys"
    }
}

/// The packages behind some words of a transaction.
fn behind(verbs: &[&str], said: &str) -> Vec<String> {
    let acts = said.lines().filter_map(|line| line.split_once(") "));
    let names = acts.filter_map(|(_, act)| {
        let mut words = act.split_whitespace();
        let verb = words.next()?;
        verbs.contains(&verb).then(|| words.next())?
    });
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    //! Written down from apk-tools' own sources and documents (2.14): apk(8), apk-add(8), `src/commit.c`,
    //! `src/app_info.c`, `src/print.c`, `src/solver.c`.

    use super::*;

    // holds: HK-3
    #[test]
    fn what_is_installed_is_read_and_no_answer_is_not_taken_for_not_installed() {
        assert_eq!(
            Apk.installed("nginx", 0, "nginx-mod-http-1.26.2-r4\n"),
            Ok(Some("1.26.2-r4".to_owned()))
        );
        let warned = "busybox-1.36.1-r29\nWARNING: opening /var/cache/apk: No such file or directory";
        assert_eq!(
            Apk.installed("nginx", 0, warned),
            Ok(Some("1.36.1-r29".to_owned()))
        );
        assert_eq!(Apk.installed("nginx", 1, ""), Ok(None));
        let broken = "ERROR: Unable to read database: No such file or directory";
        assert!(Apk.installed("nginx", 1, broken).is_err());
        assert!(
            Apk.installed("nginx", 99, "ERROR: Unable to open root: Permission denied")
                .is_err()
        );
    }

    // holds: HK-3
    #[test]
    fn a_trial_says_what_comes() {
        let said = "( 1/11) Installing pcre2 (10.43-r0)\n( 2/11) Upgrading musl (1.2.4-r1 -> 1.2.5-r0)\n(10/11) Purging \
                    old (1-r0)\n(11/11) Installing nginx (1.26.2-r4)\nOK: 12 MiB in 20 packages\n";
        assert_eq!(Apk.coming(said), ["pcre2", "musl", "nginx"]);
        assert_eq!(Apk.going(said), ["old"]);
    }

    // holds: HK-3
    #[test]
    fn a_failure_is_known_by_what_is_said() {
        for (said, fault) in [
            (
                "ERROR: Unable to lock database: Resource temporarily unavailable\nERROR: Failed to open apk database: \
                 Resource temporarily unavailable",
                Fault::Locked,
            ),
            (
                "ERROR: unable to select packages:\n  web (no such package):\n    required by: world[web]",
                Fault::NoSuch,
            ),
            (
                "ERROR: unable to select packages:\n  web-1.0-r0:\n    breaks: world[web=0.9-r0]",
                Fault::NoSuch,
            ),
            (
                "WARNING: fetching https://apk.example/main: temporary error (try again later)\nERROR: unable to select \
                 packages:\n  web (no such package):\n    required by: world[web]",
                Fault::Outage,
            ),
            (
                "ERROR: web-1.0-r0: package mentioned in index not found (try 'apk update')",
                Fault::Stale,
            ),
            (
                "WARNING: fetching https://apk.example/main: UNTRUSTED signature\nERROR: unable to select packages:\n  \
                 web (no such package):",
                Fault::Unsigned,
            ),
            ("ERROR: web-1.0-r0: No space left on device", Fault::NoRoom),
            (
                "World updated, but the following packages are not removed due to:\n  libweb: web",
                Fault::Conflict,
            ),
            ("ERROR: something that nobody has seen yet", Fault::Other),
        ] {
            assert_eq!(Apk.fault(1, said), fault, "{said}");
        }
    }

    // holds: HK-3
    #[test]
    fn a_version_that_the_repositories_have_is_listed() {
        let said = "nginx policy:\n  1.26.1-r0:\n    lib/apk/db/installed\n  1.26.2-r4:\n    \
                    https://apk.example/alpine/v3.20/main\n";
        assert!(Apk.has_source(0, said, "1.26.2-r4"));
        assert!(!Apk.has_source(0, said, "1.26.1-r0"));
        assert!(!Apk.has_source(0, said, "1.0-r0"));
    }
}
