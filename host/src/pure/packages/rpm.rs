//! What dnf and zypper have in common: rpm knows what is installed, and removes it.
//!
//! rpm removes what it is told and nothing else, and refuses where another package needs it; dnf and zypper would take
//! that one along.

use super::{Argv, argv};

/// Removes those of the packages that are installed; the first alone where another package needs one of the rest, for rpm
/// takes all or nothing.
const REMOVE: &str = "named=$1; set -- $(rpm --query --queryformat '%{NAME}\\n' \"$@\" | grep -v ' '); [ $# -eq 0 ] || rpm \
                      --erase \"$@\" || { code=$?; [ $# -gt 1 ] || exit $code; case $named in \"$1\"*) ;; *) exit $code;; \
                      esac; rpm --erase \"$1\"; }";

/// Asks how a package is installed: epoch, version, release.
pub(super) fn query(name: &str) -> Argv {
    argv([
        "rpm",
        "--query",
        "--queryformat",
        "%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n",
        name,
    ])
}

/// The newest of what is installed, without an epoch of 0: several builds of a kernel are listed oldest first.
pub(super) fn installed(code: i32, said: &str) -> Result<Option<String>, String> {
    match code {
        0 => {
            let version = said.lines().rfind(|line| line.contains('-'));
            let version = version.ok_or_else(|| format!("rpm says {said:?}"))?.trim();
            Ok(Some(version.strip_prefix("0:").unwrap_or(version).to_owned()))
        }
        1 if said.contains("is not installed") => Ok(None),
        code => Err(format!("rpm ended with {code}: {said}")),
    }
}

/// A version may be asked for with or without epoch and release.
pub(super) fn is(asked: &str, installed: &str) -> bool {
    let bare = installed.split_once(':').map_or(installed, |(_, rest)| rest);
    let shorter = |text: &str| text.rsplit_once('-').map_or(String::new(), |(v, _)| v.to_owned());
    let asked = asked.strip_prefix("0:").unwrap_or(asked);
    asked == installed || asked == bare || asked == shorter(installed) || asked == shorter(bare)
}

/// Removes packages; rpm waits for its lock by itself.
pub(super) fn remove(names: &[&str]) -> Argv {
    let mut words = argv(["sh", "-c", REMOVE, "sh"]);
    words.extend(argv(names.iter().copied()));
    words
}

#[cfg(test)]
mod tests {
    //! What rpm 4 prints (rpm(8); `lib/poptQV.c`, `lib/query.c`).

    use super::*;

    // holds: HK-3
    #[test]
    fn what_is_installed_is_read_and_no_answer_is_not_taken_for_not_installed() {
        let is = |said| installed(0, said).unwrap().unwrap();
        assert_eq!(is("0:1.20.1-14.el9\n"), "1.20.1-14.el9");
        assert_eq!(is("1:1.20.1-14.el9\n"), "1:1.20.1-14.el9");
        assert_eq!(is("0:5.14.0-362.el9\n0:5.14.0-427.el9\n"), "5.14.0-427.el9");
        assert_eq!(installed(1, "package nginx is not installed"), Ok(None));
        assert!(installed(1, "error: cannot open Packages database in /var/lib/rpm").is_err());
        assert!(installed(0, "").is_err());
    }

    // holds: HK-3
    #[test]
    fn a_version_may_be_asked_for_with_or_without_epoch_and_release() {
        for asked in ["1:1.20.1-14.el9", "1.20.1-14.el9", "1.20.1", "1:1.20.1"] {
            assert!(super::is(asked, "1:1.20.1-14.el9"), "{asked}");
        }
        for asked in ["1.20", "1.20.1-14", "2:1.20.1", ""] {
            assert!(!super::is(asked, "1:1.20.1-14.el9"), "{asked}");
        }
        assert!(super::is("0:1.0-1", "1.0-1"));
    }
}
