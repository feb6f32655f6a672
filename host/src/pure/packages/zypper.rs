//! openSUSE's: zypper installs, rpm knows and removes.

use meshplan_schemas::resource::accounts::Manager;

use super::{Argv, Fault, LOCK_SECS, Patience, Reach, Tool, Wish, argv, rpm};

/// The parts of an answer in XML in which packages stand that come.
const COMING: [&str; 4] = ["to-install>", "to-upgrade>", "to-downgrade>", "to-reinstall>"];

/// zypper.
#[derive(Debug)]
pub(super) struct Zypper;

impl Tool for Zypper {
    fn manager(&self) -> Manager {
        Manager::Zypper
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

    fn install(&self, wish: Wish<'_>, reach: Reach, patience: Patience) -> Argv {
        let mut words = match patience {
            Patience::Ours => Vec::new(),
            Patience::Its => vec!["env".to_owned(), format!("ZYPP_LOCK_TIMEOUT={LOCK_SECS}")],
        };
        words.extend(argv(["zypper", "--non-interactive"]));
        words.extend(argv(
            match reach {
                Reach::Trial => ["--xmlout", "install", "--dry-run"].as_slice(),
                Reach::Fetch => &["install", "--download-only"],
                Reach::Whole => &["install"],
            }
            .iter()
            .copied(),
        ));
        words.extend(argv(["--auto-agree-with-licenses"]));
        words.extend(match wish.version {
            None => argv([wish.name]),
            Some(version) => vec!["--oldpackage".to_owned(), format!("{}={version}", wish.name)],
        });
        words
    }

    fn coming(&self, said: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut is_coming = false;
        for piece in said.split('<') {
            if let Some(tag) = piece.strip_prefix("solvable ") {
                let of = |key: &str| tag.split_once(key)?.1.split('"').next();
                if is_coming && of("type=\"") == Some("package") {
                    names.extend(of(" name=\"").map(str::to_owned));
                }
            } else if piece.starts_with("to-") || piece.starts_with("/to-") {
                is_coming = COMING.iter().any(|part| piece.starts_with(part));
            }
        }
        names
    }

    fn remove(&self, names: &[&str], _patience: Patience) -> Argv {
        rpm::remove(names)
    }

    fn sources(&self, name: &str, _version: &str) -> Argv {
        argv([
            "zypper",
            "--non-interactive",
            "search",
            "--details",
            "--match-exact",
            name,
        ])
    }

    fn has_source(&self, code: i32, said: &str, version: &str) -> bool {
        let is_it = |line: &str| {
            let mut columns = line.split('|').map(str::trim);
            columns.any(|column| column == version) && !line.contains("(System Packages)")
        };
        code == 0 && said.lines().any(is_it)
    }

    fn renew(&self) -> Option<Argv> {
        Some(argv(["zypper", "--non-interactive", "refresh"]))
    }

    fn accepts(&self) -> &'static [i32] {
        // There are updates; there are security updates; a reboot is needed; zypper is to be run anew; a repository was
        // left out; a script of a package failed. What was asked for is read back.
        &[100, 101, 102, 103, 106, 107]
    }

    fn by_code(&self, code: i32) -> Option<Fault> {
        match code {
            7 => Some(Fault::Locked),
            104 => Some(Fault::NoSuch),
            _ => None,
        }
    }

    fn phrases(&self) -> &'static [(&'static str, Fault)] {
        &[
            ("System management is locked", Fault::Locked),
            ("No space left", Fault::NoRoom),
            ("not enough space", Fault::NoRoom),
            ("Signature verification failed", Fault::Unsigned),
            ("signature verification failed", Fault::Unsigned),
            ("is not signed", Fault::Unsigned),
            ("Unknown GPG key", Fault::Unsigned),
            ("HTTP response: 404", Fault::Stale),
            ("not found on medium", Fault::Stale),
            ("Digest verification failed", Fault::Stale),
            ("Download (curl) error", Fault::Outage),
            ("Connection failed", Fault::Outage),
            ("Could not resolve host", Fault::Outage),
            ("Timeout exceeded", Fault::Outage),
            ("No provider of", Fault::NoSuch),
            ("not found in package names", Fault::NoSuch),
            ("Failed dependencies", Fault::Conflict),
            ("Problem: ", Fault::Conflict),
        ]
    }

    fn index(&self) -> &'static [&'static str] {
        &["/var/cache/zypp/raw", "/var/cache/zypp/solv"]
    }

    fn remedy(&self) -> &'static str {
        "run `zypper refresh` on the machine and read what it says (on Tumbleweed `zypper dup`, the whole machine), then \
         check its clock, its repositories and their keys"
    }
}

#[cfg(test)]
mod tests {
    //! Written down from zypper's own sources and documents: zypper(8) (exit codes), `src/Summary.cc` (the answer in XML,
    //! `xml/xmlout.rnc`), `src/solve-commit.cc`, and libzypp's errors.

    use super::*;

    // holds: HK-3
    #[test]
    fn a_trial_says_what_comes() {
        let said = "<?xml version='1.0'?>\n<stream>\n<message type=\"info\">Resolving package \
                    dependencies...</message>\n<install-summary download-size=\"10\" space-usage-diff=\"20\" \
                    packages-to-change=\"4\">\n<to-upgrade>\n<solvable type=\"package\" name=\"libopenssl3\" \
                    edition=\"3.1-2\" arch=\"x86_64\" edition-old=\"3.1-1\"/>\n</to-upgrade>\n<to-install>\n<solvable \
                    type=\"package\" name=\"nginx\" edition=\"1.25-1\" arch=\"x86_64\" \
                    summary=\"A server\"/>\n<solvable type=\"pattern\" name=\"base\" edition=\"1-1\" \
                    arch=\"x86_64\"/>\n</to-install>\n<to-remove>\n<solvable type=\"package\" name=\"old\" \
                    edition=\"1-1\" arch=\"x86_64\"/>\n</to-remove>\n</install-summary>\n</stream>\n";
        assert_eq!(Zypper.coming(said), ["libopenssl3", "nginx"]);
    }

    // holds: HK-3
    #[test]
    fn a_failure_is_known_by_its_code_and_by_what_is_said() {
        for (code, said, fault) in [
            (
                7,
                "System management is locked by the application with pid 812 (zypper).",
                Fault::Locked,
            ),
            (104, "No provider of 'web' found.", Fault::NoSuch),
            (
                4,
                "File './x86_64/web-1.0-1.x86_64.rpm' not found on medium 'https://rpm.example/oss/'",
                Fault::Stale,
            ),
            (
                4,
                "Download (curl) error for 'https://rpm.example/repodata/repomd.xml':\nError code: Connection \
                 failed\nError message: Could not resolve host: rpm.example",
                Fault::Outage,
            ),
            (
                4,
                "web-1.0-1.x86_64 (oss): Signature verification failed [4-Signatures public key is not available]",
                Fault::Unsigned,
            ),
            (
                4,
                "Problem: 1: nothing provides 'libweb >= 2' needed by the to be installed web-1.0-1.x86_64",
                Fault::Conflict,
            ),
            (8, "something that nobody has seen yet", Fault::Other),
        ] {
            assert_eq!(Zypper.fault(code, said), fault, "{said}");
        }
    }

    // holds: HK-3
    #[test]
    fn a_version_that_the_repositories_have_is_listed() {
        let said = "S  | Name  | Type    | Version  | Arch   | Repository\n---+-------+---------+----------+--------+---\n\
                    i+ | nginx | package | 1.24-1.1 | x86_64 | (System Packages)\nv  | nginx | package | 1.25-1.1 | \
                    x86_64 | Main Repository (OSS)\n";
        assert!(Zypper.has_source(0, said, "1.25-1.1"));
        assert!(!Zypper.has_source(0, said, "1.24-1.1"));
    }
}
