//! Fedora's: dnf 4 and 5 install, rpm knows and removes.

use meshplan_schemas::resource::accounts::Manager;

use super::{Argv, Fault, Patience, Reach, Tool, Wish, argv, rpm};

/// The headings of a transaction below which packages stand that come.
const COMING: [&str; 7] = [
    "Installing:",
    "Installing dependencies:",
    "Installing weak dependencies:",
    "Installing group/module packages:",
    "Upgrading:",
    "Downgrading:",
    "Reinstalling:",
];

/// The headings below which packages stand that go.
const GOING: [&str; 3] = [
    "Removing:",
    "Removing dependent packages:",
    "Removing unused dependencies:",
];
/// Before what a package that comes takes the place of: its own older build (dnf 5), or another package.
const REPLACING: &str = "replacing ";

/// dnf. It waits for its lock by itself, as long as it runs.
#[derive(Debug)]
pub(super) struct Dnf;

impl Tool for Dnf {
    fn manager(&self) -> Manager {
        Manager::Dnf
    }

    fn query(&self, name: &str) -> Argv {
        rpm::query(name)
    }

    fn installed(&self, _name: &str, code: i32, said: &str) -> Result<Option<String>, String> {
        rpm::installed(code, said)
    }

    fn is(&self, asked: &str, installed: &str) -> bool {
        rpm::is(asked, installed)
    }

    fn install(&self, wish: Wish<'_>, reach: Reach, _patience: Patience) -> Argv {
        let mut words = argv(
            match reach {
                Reach::Trial => ["dnf", "--assumeno", "install"].as_slice(),
                Reach::Fetch => &["dnf", "-y", "--downloadonly", "install"],
                Reach::Whole => &["dnf", "-y", "install"],
            }
            .iter()
            .copied(),
        );
        words.push(match wish.version {
            None => wish.name.to_owned(),
            Some(version) => format!("{}-{version}", wish.name),
        });
        words
    }

    fn coming(&self, said: &str) -> Vec<String> {
        below(&COMING, said)
    }

    fn going(&self, said: &str) -> Vec<String> {
        let coming = self.coming(said);
        let replaced = said.lines().filter_map(|line| {
            let name = line
                .trim_start()
                .strip_prefix(REPLACING)?
                .split_whitespace()
                .next()?;
            // dnf 4 writes the architecture behind it.
            let plain = name.rsplit_once('.').map_or(name, |(plain, _)| plain);
            let is_older = coming.iter().any(|one| one == name || one == plain);
            (!is_older).then(|| name.to_owned())
        });
        below(&GOING, said).into_iter().chain(replaced).collect()
    }

    fn is_trial(&self, code: i32, said: &str) -> bool {
        // A "no" is its error, as others are.
        code == 0 || (code == 1 && said.contains("Operation aborted"))
    }

    fn remove(&self, names: &[&str], _patience: Patience) -> Argv {
        rpm::remove(names)
    }

    fn sources(&self, name: &str, version: &str) -> Argv {
        let mut words = argv(["dnf", "-q", "repoquery", "--available"]);
        words.push(format!("{name}-{version}"));
        words
    }

    fn has_source(&self, code: i32, said: &str, _version: &str) -> bool {
        code == 0 && said.lines().any(|line| !line.is_empty() && !line.contains(' '))
    }

    fn renew(&self) -> Option<Argv> {
        Some(argv(["dnf", "-y", "--refresh", "makecache"]))
    }

    fn phrases(&self) -> &'static [(&'static str, Fault)] {
        &[
            ("No space left on device", Fault::NoRoom),
            ("more space needed on the", Fault::NoRoom),
            ("GPG check FAILED", Fault::Unsigned),
            ("Failing package is", Fault::Unsigned),
            ("GPG signature verification error", Fault::Unsigned),
            ("Bad GPG signature", Fault::Unsigned),
            ("signature is not trusted", Fault::Unsigned),
            ("Status code: 404", Fault::Stale),
            ("checksum doesn't match", Fault::Stale),
            ("Interrupted by header callback", Fault::Stale),
            ("Failed to download", Fault::Outage),
            ("Cannot download", Fault::Outage),
            ("Curl error", Fault::Outage),
            ("All mirrors were tried", Fault::Outage),
            ("No more mirrors to try", Fault::Outage),
            ("Unable to find a match", Fault::NoSuch),
            ("No match for argument", Fault::NoSuch),
            ("Failed dependencies", Fault::Conflict),
            ("protected packages", Fault::Conflict),
            ("conflicting requests", Fault::Conflict),
            ("Failed to resolve the transaction", Fault::Conflict),
            ("Waiting for process with pid", Fault::Locked),
            ("transaction lock", Fault::Locked),
        ]
    }

    fn index(&self) -> &'static [&'static str] {
        &["/var/cache/dnf", "/var/cache/libdnf5"]
    }

    fn remedy(&self) -> &'static str {
        "run `dnf --refresh makecache` on the machine and read what it says, then check its clock, its repositories and \
         their keys"
    }
}

/// The packages below some headings of a transaction.
fn below(headings: &[&str], said: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_below = false;
    for line in said.lines() {
        match line.strip_prefix(' ') {
            None => is_below = headings.contains(&line.trim_end()),
            // What is deeper is the rest of a long row, or what a package takes the place of.
            Some(row) if is_below && !row.starts_with(' ') => {
                names.extend(row.split_whitespace().next().map(str::to_owned));
            }
            Some(_) => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    //! Written down from dnf's own sources and documents: `dnf/cli/output.py` and `dnf/cli/cli.py` (dnf 4), the
    //! transaction table of libdnf5-cli (dnf 5), `libdnf/repo/Repo.cpp` and librepo's errors.

    use super::*;

    // holds: HK-3
    #[test]
    fn a_trial_says_what_goes_and_an_older_build_of_what_comes_is_not_that() {
        let five = "Upgrading:\n libweb x86_64 2-1 repo 1 KiB\n   replacing libweb x86_64 1-1 repo 1 KiB\nRemoving:\n old \
                    x86_64 1-1 repo 1 KiB\n";
        assert_eq!(Dnf.going(five), ["old"]);
        let four = "Installing:\n web x86_64 1-1 repo 1 k\n     replacing  oldweb.x86_64 0.9-1\n";
        assert_eq!(Dnf.going(four), ["oldweb.x86_64"]);
    }

    // holds: HK-3
    #[test]
    fn a_trial_says_what_comes() {
        let four = "Last metadata expiration check: 0:12:34 ago on Mon 01 Jul 2024 10:00:00 AM UTC.\nDependencies \
                    resolved.\n==================\n Package          Architecture  Version  Repository  \
                    Size\n==================\nInstalling:\n nginx            x86_64        1:1.20.1-14.el9  appstream   \
                    36 k\nInstalling dependencies:\n nginx-core       x86_64        1:1.20.1-14.el9  appstream  566 k\n \
                    a-package-with-a-name-that-is-longer-than-the-column\n                  noarch        1.0-1.el9        \
                    appstream   16 k\nUpgrading:\n openssl-libs     x86_64        1:3.0.7-27.el9   baseos     1.8 \
                    M\nRemoving:\n old              x86_64        1-1              @System    1 k\n\nTransaction \
                    Summary\n==================\nInstall  3 Packages\n\nOperation aborted.\n";
        assert_eq!(
            Dnf.coming(four),
            [
                "nginx",
                "nginx-core",
                "a-package-with-a-name-that-is-longer-than-the-column",
                "openssl-libs"
            ]
        );
        let five = "Updating and loading repositories:\nRepositories loaded.\nPackage      Arch   Version          \
                    Repository      Size\nUpgrading:\n openssl-libs x86_64 1:3.2.2-9.fc41   updates      7.8 MiB\n   \
                    replacing openssl-libs x86_64 1:3.2.2-7.fc41 fedora 7.8 MiB\nInstalling:\n nginx        x86_64 \
                    2:1.26.2-3.fc41  fedora     136.2 KiB\nInstalling dependencies:\n nginx-core   x86_64 \
                    2:1.26.2-3.fc41  fedora       1.8 MiB\n\nTransaction Summary:\n Installing:       2 packages\n";
        assert_eq!(Dnf.coming(five), ["openssl-libs", "nginx", "nginx-core"]);
    }

    // holds: HK-3
    #[test]
    fn a_failure_is_known_by_what_is_said() {
        for (said, fault) in [
            (
                "No match for argument: web\nError: Unable to find a match: web",
                Fault::NoSuch,
            ),
            (
                "Failed to resolve the transaction:\nNo match for argument: web",
                Fault::NoSuch,
            ),
            (
                "Errors during downloading metadata for repository 'base':\n  - Curl error (6): Couldn't resolve host \
                 name for https://rpm.example/repodata/repomd.xml\nError: Failed to download metadata for repo 'base': \
                 Cannot download repomd.xml: All mirrors were tried",
                Fault::Outage,
            ),
            (
                "[MIRROR] web-1.0-1.x86_64.rpm: Status code: 404 for https://rpm.example/web-1.0-1.x86_64.rpm\nError: \
                 Error downloading packages:\n  Cannot download web-1.0-1.x86_64.rpm: All mirrors were tried",
                Fault::Stale,
            ),
            (
                "Public key for web-1.0-1.x86_64.rpm is not installed. Failing package is: web-1.0-1.x86_64\nError: GPG \
                 check FAILED",
                Fault::Unsigned,
            ),
            (
                "Error: Transaction test error:\n  installing package web-1.0-1.x86_64 needs 12MB more space needed on \
                 the / filesystem",
                Fault::NoRoom,
            ),
            (
                "error: Failed dependencies:\n\tlibweb is needed by (installed) web-1.0-1.x86_64",
                Fault::Conflict,
            ),
            ("Waiting for process with pid 4711 to finish.", Fault::Locked),
            ("Error: something that nobody has seen yet", Fault::Other),
        ] {
            assert_eq!(Dnf.fault(1, said), fault, "{said}");
        }
    }

    // holds: HK-3
    #[test]
    fn a_version_is_asked_for_behind_the_name() {
        let wish = Wish {
            name: "nginx",
            version: Some("1:1.20.1-14.el9"),
        };
        let line = Dnf.install(wish, Reach::Whole, Patience::Ours).join(" ");
        assert_eq!(line, "dnf -y install nginx-1:1.20.1-14.el9");
    }

    // holds: HK-3
    #[test]
    fn a_version_that_the_repositories_have_is_listed() {
        assert!(Dnf.has_source(0, "nginx-1:1.20.1-14.el9.x86_64\n", ""));
        assert!(!Dnf.has_source(0, "", ""));
    }
}
