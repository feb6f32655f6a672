//! Arch's. Its repositories have one version of each package, and fit together only as a whole: it installs what the
//! machine's own database names, and never renews that database.

use meshplan_schemas::resource::accounts::Manager;

use super::{Argv, Fault, Patience, Reach, Tool, Wish, argv};

/// Removes those of the packages that are installed, and none that only provides a name; the first alone where another
/// package needs one of the rest, for pacman takes all or nothing.
const REMOVE: &str = "named=$1; set -- $(for name; do pacman --query --quiet \"$name\" 2>/dev/null | grep -Fx -e \"$name\"; \
                      done); [ $# -eq 0 ] || pacman --remove --noconfirm \"$@\" || { code=$?; [ $# -gt 1 ] && [ \"$1\" \
                      = \"$named\" ] || exit $code; pacman --remove --noconfirm \"$named\"; }";
/// Its lock is a file, which a power cut leaves: one of before the machine started is nobody's.
const FREE: &str = "lock=/var/lib/pacman/db.lck; [ ! -e $lock ] || [ \"$(stat -c %Y $lock)\" -ge \"$(sed -n 's/^btime \
                    //p' /proc/stat)\" ] || rm -f $lock";

/// pacman.
#[derive(Debug)]
pub(super) struct Pacman;

impl Tool for Pacman {
    fn manager(&self) -> Manager {
        Manager::Pacman
    }

    fn query(&self, name: &str) -> Argv {
        argv(["pacman", "--query", name])
    }

    fn installed(&self, name: &str, code: i32, said: &str) -> Result<Option<String>, String> {
        match code {
            0 => {
                let lines: Vec<_> = said.lines().filter_map(|line| line.split_once(' ')).collect();
                if lines.is_empty() {
                    return Err(format!("pacman says {said:?}"));
                }
                // Of what is not installed it names what provides it.
                let version = lines.iter().find(|(first, _)| *first == name);
                Ok(version.map(|(_, version)| version.trim().to_owned()))
            }
            1 if said.contains("was not found") => Ok(None),
            code => Err(format!("pacman ended with {code}: {said}")),
        }
    }

    fn install(&self, wish: Wish<'_>, reach: Reach, _patience: Patience) -> Argv {
        let mut words = argv(["pacman", "--sync", "--noconfirm", "--needed"]);
        match reach {
            Reach::Trial => words.extend(argv(["--print", "--print-format", "%n"])),
            Reach::Fetch => words.extend(argv(["--downloadonly"])),
            Reach::Whole => {}
        }
        words.push(wish.name.to_owned());
        words
    }

    fn coming(&self, said: &str) -> Vec<String> {
        let names = said.lines().map(str::trim);
        names
            .filter(|line| !line.is_empty() && !line.contains(' '))
            .map(str::to_owned)
            .collect()
    }

    fn remove(&self, names: &[&str], _patience: Patience) -> Argv {
        let mut words = argv(["sh", "-c", REMOVE, "sh"]);
        words.extend(argv(names.iter().copied()));
        words
    }

    fn sources(&self, name: &str, _version: &str) -> Argv {
        argv([
            "pacman",
            "--sync",
            "--noconfirm",
            "--print",
            "--print-format",
            "%n %v",
            name,
        ])
    }

    fn has_source(&self, code: i32, said: &str, version: &str) -> bool {
        code == 0 && said.lines().any(|line| line.ends_with(&format!(" {version}")))
    }

    fn free(&self) -> Option<Argv> {
        Some(argv(["sh", "-c", FREE]))
    }

    fn phrases(&self) -> &'static [(&'static str, Fault)] {
        &[
            ("unable to lock database", Fault::Locked),
            ("No space left on device", Fault::NoRoom),
            ("not enough free disk space", Fault::NoRoom),
            ("(PGP signature)", Fault::Unsigned),
            ("is unknown trust", Fault::Unsigned),
            ("is marginal trust", Fault::Unsigned),
            ("required key missing from keyring", Fault::Unsigned),
            ("error: 404", Fault::Stale),
            ("invalid or corrupted package", Fault::Stale),
            ("database file for", Fault::Stale),
            ("failed to synchronize", Fault::Outage),
            ("failed retrieving file", Fault::Outage),
            ("failed to retrieve some files", Fault::Outage),
            ("download library error", Fault::Outage),
            ("target not found", Fault::NoSuch),
            ("could not satisfy dependencies", Fault::Conflict),
            ("conflicting", Fault::Conflict),
            ("breaks dependency", Fault::Conflict),
        ]
    }

    fn index(&self) -> &'static [&'static str] {
        &["/var/lib/pacman/sync"]
    }

    fn remedy(&self) -> &'static str {
        "upgrade the whole machine (`pacman -Syu`, or the kind `upgrade`): a newer database alone would lead to a partial \
         upgrade"
    }
}

#[cfg(test)]
mod tests {
    //! Written down from pacman's own sources and documents: pacman(8), `src/pacman/sync.c`, `src/pacman/query.c`,
    //! `lib/libalpm/error.c`, `lib/libalpm/dload.c`.

    use super::*;

    // holds: HK-3
    #[test]
    fn what_is_installed_is_read_and_no_answer_is_not_taken_for_not_installed() {
        assert_eq!(
            Pacman.installed("nginx", 0, "nginx 1.26.2-1\n"),
            Ok(Some("1.26.2-1".to_owned()))
        );
        assert_eq!(
            Pacman.installed("nginx", 0, "nginx-mainline 1.27.0-1\n"),
            Ok(None)
        );
        let none = "error: package 'nginx' was not found";
        assert_eq!(Pacman.installed("nginx", 1, none), Ok(None));
        let broken = "error: failed to initialize alpm library:\n(root: /, dbpath: /var/lib/pacman/)";
        assert!(Pacman.installed("nginx", 1, broken).is_err());
    }

    // holds: HK-3
    #[test]
    fn a_trial_says_what_comes() {
        let said =
            "mailcap\nnginx\nwarning: geoip-1.6-1 is up to date -- skipping\n there is nothing to do\n";
        assert_eq!(Pacman.coming(said), ["mailcap", "nginx"]);
    }

    // holds: HK-3
    #[test]
    fn a_failure_is_known_by_what_is_said() {
        for (said, fault) in [
            (
                "error: failed to init transaction (unable to lock database)\nerror: could not lock database: File \
                 exists\n  if you're sure a package manager is not already\n  running, you can remove \
                 /var/lib/pacman/db.lck",
                Fault::Locked,
            ),
            ("error: target not found: web", Fault::NoSuch),
            (
                "error: failed retrieving file 'web-1.0-1-x86_64.pkg.tar.zst' from mirror.example : The requested URL \
                 returned error: 404\nwarning: failed to retrieve some files\nerror: failed to commit transaction \
                 (failed to retrieve some files)\nErrors occurred, no packages were upgraded.",
                Fault::Stale,
            ),
            (
                "error: failed retrieving file 'web-1.0-1-x86_64.pkg.tar.zst' from mirror.example : Could not resolve \
                 host: mirror.example\nerror: failed to commit transaction (failed to retrieve some files)",
                Fault::Outage,
            ),
            (
                "error: web: signature from \"A Person <a@example.org>\" is unknown trust\n:: File \
                 /var/cache/pacman/pkg/web-1.0-1-x86_64.pkg.tar.zst is corrupted (invalid or corrupted package (PGP \
                 signature)).",
                Fault::Unsigned,
            ),
            (
                "warning: database file for 'core' does not exist (use '-Sy' to download)\nerror: failed to prepare \
                 transaction (could not find database)",
                Fault::Stale,
            ),
            (
                "error: Partition / too full: 1200 blocks needed, 800 blocks free\nerror: not enough free disk space",
                Fault::NoRoom,
            ),
            (
                "error: failed to prepare transaction (could not satisfy dependencies)\n:: removing libweb breaks \
                 dependency 'libweb' required by web",
                Fault::Conflict,
            ),
            ("error: something that nobody has seen yet", Fault::Other),
        ] {
            assert_eq!(Pacman.fault(1, said), fault, "{said}");
        }
    }

    // holds: HK-3
    #[test]
    fn a_database_is_never_renewed() {
        assert_eq!(Pacman.renew(), None);
        let wish = Wish {
            name: "web",
            version: None,
        };
        for reach in [Reach::Trial, Reach::Fetch, Reach::Whole] {
            let line = Pacman.install(wish, reach, Patience::Ours).join(" ");
            assert!(!line.contains("refresh"), "{line}");
        }
    }

    // holds: HK-3
    #[test]
    fn a_version_that_the_repositories_have_is_listed() {
        assert!(Pacman.has_source(0, "nginx 1.26.2-1\n", "1.26.2-1"));
        assert!(!Pacman.has_source(0, "nginx 1.26.2-2\n", "1.26.2-1"));
    }
}
