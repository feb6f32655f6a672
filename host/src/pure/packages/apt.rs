//! Debian's: apt-get installs, dpkg knows and removes.
//!
//! dpkg removes what it is told and nothing else, and refuses where another package needs it; apt-get would take that one
//! along.

use meshplan_schemas::resource::accounts::Manager;

use super::{Argv, Fault, LOCK_SECS, Patience, Reach, Tool, Wish, argv};

/// What lets packages' own scripts ask nothing and restart nothing of the host's behind its back.
const QUIETLY: [&str; 4] = [
    "env",
    "DEBIAN_FRONTEND=noninteractive",
    "APT_LISTCHANGES_FRONTEND=none",
    "NEEDRESTART_SUSPEND=1",
];
/// A configuration file that somebody changed is kept.
const KEEP: [&str; 4] = [
    "-o",
    "Dpkg::Options::=--force-confdef",
    "-o",
    "Dpkg::Options::=--force-confold",
];
/// What dpkg ends with where another program holds its lock, or its own files cannot be had.
const BUSY: &str = "2";
/// Removes packages, again while dpkg ends with a code, for five minutes; the first alone where another package needs one
/// of the rest.
const AGAIN: &str = "n=0; busy=$1; named=$2; shift 2; while dpkg --force-remove-reinstreq --remove \"$named\" \"$@\"; \
                     code=$?; [ $code -eq $busy ] && [ $n -lt 60 ]; do n=$((n+1)); sleep 5; done; [ $code -eq 1 ] && [ $# \
                     -gt 0 ] || exit $code; dpkg --force-remove-reinstreq --remove \"$named\"";

/// apt and dpkg.
#[derive(Debug)]
pub(super) struct Apt;

impl Tool for Apt {
    fn manager(&self) -> Manager {
        Manager::Apt
    }

    fn query(&self, name: &str) -> Argv {
        argv([
            "dpkg-query",
            "--show",
            "--showformat",
            "${db:Status-Status} ${Version}\\n",
            name,
        ])
    }

    fn installed(&self, _name: &str, code: i32, said: &str) -> Result<Option<String>, String> {
        match code {
            0 => {
                // What waits for a trigger is installed.
                let whole = ["installed", "triggers-awaited", "triggers-pending"];
                let gone = ["not-installed", "config-files"];
                let lines: Vec<_> = said.lines().filter_map(|line| line.split_once(' ')).collect();
                if let Some((_, version)) = lines.iter().find(|(status, _)| whole.contains(status)) {
                    return Ok(Some(version.trim().to_owned()));
                }
                match lines.iter().find(|(status, _)| !gone.contains(status)) {
                    None => Ok(None),
                    Some((status, _)) => Err(format!(
                        "dpkg has it {status}, neither installed nor away: run `dpkg --configure -a` on the machine and \
                         read what it says"
                    )),
                }
            }
            1 if said.contains("no packages found matching") => Ok(None),
            code => Err(format!("dpkg-query ended with {code}: {said}")),
        }
    }

    fn install(&self, wish: Wish<'_>, reach: Reach, patience: Patience) -> Argv {
        let mut words = argv(QUIETLY);
        // A name is a name: without this `a.c` is a pattern where there is no such package.
        words.extend(argv(["apt-get", "-q", "-y", "-o", "APT::Cmd::Pattern-Only=true"]));
        words.extend(argv(KEEP));
        if patience == Patience::Its {
            words.extend(["-o".to_owned(), format!("DPkg::Lock::Timeout={LOCK_SECS}")]);
        }
        words.extend(argv(["--no-remove"]));
        match reach {
            Reach::Trial => words.extend(argv(["--simulate"])),
            Reach::Fetch => words.extend(argv(["--download-only"])),
            Reach::Whole => {}
        }
        let package = match wish.version {
            None => wish.name.to_owned(),
            Some(version) => {
                // Somebody asks for just this one.
                words.extend(argv(["--allow-downgrades"]));
                format!("{}={version}", wish.name)
            }
        };
        words.extend(["install".to_owned(), package]);
        words
    }

    fn coming(&self, said: &str) -> Vec<String> {
        let come = said.lines().filter_map(|line| line.strip_prefix("Inst "));
        come.filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned)
            .collect()
    }

    fn remove(&self, names: &[&str], patience: Patience) -> Argv {
        let mut words = argv(QUIETLY);
        words.extend(match patience {
            Patience::Ours => argv(["dpkg", "--remove"]),
            // Also what a power cut left half unpacked.
            Patience::Its => argv(["sh", "-c", AGAIN, "sh", BUSY]),
        });
        words.extend(argv(names.iter().copied()));
        words
    }

    fn sources(&self, name: &str, version: &str) -> Argv {
        let pattern = "APT::Cmd::Pattern-Only=true";
        let mut words = argv(["apt-get", "-q", "-o", pattern, "download", "--print-uris"]);
        words.push(format!("{name}={version}"));
        words
    }

    fn has_source(&self, code: i32, _said: &str, _version: &str) -> bool {
        code == 0
    }

    fn renew(&self) -> Option<Argv> {
        let mut words = argv(QUIETLY);
        // Without this a repository that does not answer is a warning.
        words.extend(argv([
            "apt-get",
            "-q",
            "-o",
            "APT::Update::Error-Mode=any",
            "update",
        ]));
        Some(words)
    }

    fn settle(&self) -> Option<Argv> {
        let mut words = argv(QUIETLY);
        words.extend(argv([
            "dpkg",
            "--force-confdef",
            "--force-confold",
            "--configure",
            "-a",
        ]));
        Some(words)
    }

    fn phrases(&self) -> &'static [(&'static str, Fault)] {
        &[
            ("Could not get lock", Fault::Locked),
            ("is another process using it", Fault::Locked),
            ("locked by another process", Fault::Locked),
            ("dpkg was interrupted", Fault::Interrupted),
            ("No space left on device", Fault::NoRoom),
            ("enough free space in", Fault::NoRoom),
            ("NO_PUBKEY", Fault::Unsigned),
            ("EXPKEYSIG", Fault::Unsigned),
            ("BADSIG", Fault::Unsigned),
            ("is not signed", Fault::Unsigned),
            ("is no longer signed", Fault::Unsigned),
            ("unauthenticated packages", Fault::Unsigned),
            ("cannot be authenticated", Fault::Unsigned),
            ("is expired (invalid since", Fault::Stale),
            ("404  Not Found", Fault::Stale),
            ("Hash Sum mismatch", Fault::Stale),
            ("File has unexpected size", Fault::Stale),
            ("File not found", Fault::Stale),
            ("Failed to fetch", Fault::Outage),
            ("Unable to locate package", Fault::NoSuch),
            ("has no installation candidate", Fault::NoSuch),
            ("was not found", Fault::NoSuch),
            ("remove is disabled", Fault::Conflict),
            ("dependency problems", Fault::Conflict),
            ("unmet dependencies", Fault::Conflict),
            ("Held packages were changed", Fault::Conflict),
            ("essential package", Fault::Conflict),
        ]
    }

    fn index(&self) -> &'static [&'static str] {
        &["/var/lib/apt/lists"]
    }

    fn remedy(&self) -> &'static str {
        "run `apt-get update` on the machine and read what it says, then check its clock, its sources and their keys"
    }
}

#[cfg(test)]
mod tests {
    //! What apt 2.6.1 and dpkg 1.21.22 of Debian 12 print.

    use super::*;

    // holds: HK-3
    #[test]
    fn what_is_installed_is_read_and_no_answer_is_not_taken_for_not_installed() {
        assert_eq!(
            Apt.installed("nginx", 0, "installed 2.6.1"),
            Ok(Some("2.6.1".to_owned()))
        );
        assert_eq!(Apt.installed("nginx", 0, "config-files 1.0\n"), Ok(None));
        assert_eq!(
            Apt.installed("nginx", 0, "not-installed \ninstalled 1:2-3"),
            Ok(Some("1:2-3".to_owned()))
        );
        assert!(Apt.installed("nginx", 0, "half-configured 1.0").is_err());
        let none = "dpkg-query: no packages found matching nosuch";
        assert_eq!(Apt.installed("nginx", 1, none), Ok(None));
        let broken = "dpkg-query: error: failed to open package info file '/var/lib/dpkg/status' for reading";
        assert!(Apt.installed("nginx", 2, broken).is_err());
    }

    // holds: HK-3
    #[test]
    fn a_trial_says_what_comes() {
        let said = "NOTE: This is only a simulation!\nReading package lists...\nThe following NEW packages will be \
                    installed:\n  a libb\nInst libb:amd64 (1.0-1 Debian:12.5/stable [amd64])\nInst old [1.0] (1.1 \
                    Debian:12.5/stable [all]) []\nInst a (2.0 Debian:12.5/stable [amd64])\nConf libb (1.0-1 \
                    Debian:12.5/stable [amd64])\n";
        assert_eq!(Apt.coming(said), ["libb:amd64", "old", "a"]);
    }

    // holds: HK-3
    #[test]
    fn a_failure_is_known_by_what_is_said() {
        for (said, fault) in [
            (
                "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 812 (apt-get)",
                Fault::Locked,
            ),
            (
                "dpkg: error: dpkg frontend lock was locked by another process with pid 77",
                Fault::Locked,
            ),
            (
                "E: Could not open lock file /var/lib/dpkg/lock-frontend - open (30: Read-only file system)\nE: Unable to \
                 acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?",
                Fault::Other,
            ),
            (
                "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to correct the problem.",
                Fault::Interrupted,
            ),
            (
                "Err:1 http://deb.example/debian bookworm/main amd64 web amd64 1.0\n  404  Not Found [IP: 10.0.0.1 \
                 80]\nE: Failed to fetch http://deb.example/web_1.0.deb  404  Not Found [IP: 10.0.0.1 80]\nE: Unable to \
                 fetch some archives, maybe run apt-get update or try with --fix-missing?",
                Fault::Stale,
            ),
            (
                "W: GPG error: http://deb.example ./ InRelease: The following signatures couldn't be verified because \
                 the public key is not available: NO_PUBKEY 0E98404D386FA1D9\nE: The repository 'http://deb.example ./ \
                 InRelease' is not signed.",
                Fault::Unsigned,
            ),
            (
                "E: Release file for http://deb.example/InRelease is expired (invalid since 10d 2h 3min 4s). Updates \
                 for this repository will not be applied.",
                Fault::Stale,
            ),
            (
                "E: Failed to fetch http://deb.example/web_1.0.deb  Could not connect to deb.example:80 (10.0.0.1). - \
                 connect (111: Connection refused)",
                Fault::Outage,
            ),
            (
                "E: Failed to fetch http://deb.example/InRelease  Temporary failure resolving 'deb.example'",
                Fault::Outage,
            ),
            ("E: Unable to locate package web", Fault::NoSuch),
            ("E: Version '9' for 'web' was not found", Fault::NoSuch),
            ("E: Package 'web' has no installation candidate", Fault::NoSuch),
            (
                "E: You don't have enough free space in /var/cache/apt/archives/.",
                Fault::NoRoom,
            ),
            (
                "E: Write error - write (28: No space left on device)",
                Fault::NoRoom,
            ),
            (
                "E: Packages need to be removed but remove is disabled.",
                Fault::Conflict,
            ),
            (
                "dpkg: dependency problems prevent removal of libweb:\n web depends on libweb (>= 1).",
                Fault::Conflict,
            ),
            (
                "E: Sub-process /usr/bin/dpkg returned an error code (1)",
                Fault::Other,
            ),
        ] {
            assert_eq!(Apt.fault(100, said), fault, "{said}");
        }
    }

    // holds: HK-3
    #[test]
    fn another_version_may_be_an_older_one_and_nothing_is_removed_for_it() {
        let wish = Wish {
            name: "web",
            version: Some("1.0"),
        };
        let line = Apt.install(wish, Reach::Whole, Patience::Ours).join(" ");
        assert!(
            line.ends_with("--no-remove --allow-downgrades install web=1.0"),
            "{line}"
        );
        let plain = Wish {
            version: None,
            ..wish
        };
        let line = Apt.install(plain, Reach::Trial, Patience::Its).join(" ");
        assert!(
            line.ends_with("DPkg::Lock::Timeout=300 --no-remove --simulate install web"),
            "{line}"
        );
    }
}
