//! Strays: containers and units that the host neither wrote nor holds (HR-9). Listed, and never touched.
//!
//! It stands alone because it is a choice of what a person wants to know: what runs, or is put up to run, beside the fleet.
//! So of units only those that somebody put on this machine by hand: what a package brings is the package's, what the
//! service manager links and makes for itself is its own. Invariant: bounded in number and length, whatever stands there.

use std::collections::BTreeSet;

use super::target::{Sort, Target};
use super::target_path::TargetPath;

/// So many of a sort are listed; of the others how many they are.
const LISTED: usize = 40;
/// So long is a line, in characters.
const LINE_CHARS: usize = 200;

/// The suffixes of units that do something.
const SUFFIXES: [&str; 7] = [
    ".service",
    ".timer",
    ".socket",
    ".path",
    ".mount",
    ".automount",
    ".swap",
];

/// Where people put units.
pub const FOLDERS: [&str; 2] = ["/etc/systemd/system", "/usr/local/lib/systemd/system"];

/// A container that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// The image that it was asked for with.
    pub image: String,
    /// Its state, as the engine says it.
    pub status: String,
}

/// Whether a name in one of [`FOLDERS`] is that of a unit that somebody may have put there. `leads_to`: where a link leads.
#[must_use]
pub fn is_by_hand(file: &TargetPath, leads_to: Option<&str>) -> bool {
    let name = file.file_name();
    let is_unit = SUFFIXES
        .iter()
        .any(|suffix| name.strip_suffix(suffix).is_some_and(|stem| !stem.is_empty()));
    // Snaps are packages that bring their units there; the host's own are no strays where it was put up by hand.
    let is_brought = ["snap.", "snap-", "meshplan-"]
        .iter()
        .any(|begins| name.starts_with(begins));
    // A link is an alias, or starts what stands elsewhere, or masks; only one that leads out of the manager's own folders
    // brings a unit: `systemctl link`.
    let is_elsewhere = |to: &str| {
        let to = resolved(file, to);
        let own = [
            "/lib/systemd/",
            "/usr/lib/systemd/",
            "/usr/local/lib/systemd/",
            "/etc/systemd/",
            "/run/systemd/",
        ];
        to != "/dev/null" && !own.iter().any(|own| to.starts_with(own))
    };
    is_unit && !is_brought && leads_to.is_none_or(is_elsewhere)
}

/// Where a link leads, from the root on: by its words alone, as a link on the way is no other place for the manager.
fn resolved(file: &TargetPath, to: &str) -> String {
    let mut way: Vec<&str> = file.components().collect();
    way.pop();
    if to.starts_with('/') {
        way.clear();
    }
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                way.pop();
            }
            name => way.push(name),
        }
    }
    format!("/{}", way.join("/"))
}

/// The list. `is_ours` says what the host has written, holds, or is asked for; what could not be asked is said.
#[must_use]
pub fn list(
    containers: Result<Vec<Container>, String>,
    units: Result<Vec<TargetPath>, String>,
    is_ours: impl Fn(&Target) -> bool,
) -> Vec<String> {
    let containers = containers.map(|mut all| {
        all.retain(|one| !is_ours(&Target::Thing(Sort::Container, one.name.clone())));
        let words = |one: Container| format!("container {} ({}), image {}", one.name, one.status, one.image);
        all.into_iter().map(words).collect::<BTreeSet<String>>()
    });
    let units = units.map(|mut all| {
        all.retain(|file| {
            let unit = Target::Thing(Sort::Unit, file.file_name().to_owned());
            !is_ours(&unit) && !is_ours(&Target::Path(file.clone()))
        });
        let words = |file: TargetPath| format!("unit {} ({file})", file.file_name());
        all.into_iter().map(words).collect::<BTreeSet<String>>()
    });
    let mut lines = Vec::new();
    for (what, found) in [("containers", containers), ("units", units)] {
        match found {
            Err(why) => lines.push(cut(format!("{what} cannot be listed: {why}"))),
            Ok(found) => {
                let more = found.len().saturating_sub(LISTED);
                lines.extend(found.into_iter().take(LISTED).map(cut));
                if more > 0 {
                    lines.push(format!("and {more} more {what}"));
                }
            }
        }
    }
    lines
}

/// One line, and no longer than a person reads.
fn cut(line: String) -> String {
    let is_long = line.chars().nth(LINE_CHARS).is_some();
    let plain = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    let plain: String = plain.take(LINE_CHARS).collect();
    if is_long { format!("{plain} ...") } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str) -> Container {
        Container {
            name: name.to_owned(),
            image: "box:1".to_owned(),
            status: "running".to_owned(),
        }
    }
    fn unit(name: &str) -> TargetPath {
        TargetPath::parse(&format!("/etc/systemd/system/{name}")).unwrap()
    }

    // holds: HR-9
    #[test]
    fn a_unit_that_somebody_put_there_is_told_from_what_packages_and_the_manager_itself_put_there() {
        for (name, leads_to, by_hand) in [
            ("backup.service", None, true),
            ("backup.timer", None, true),
            ("app.service", Some("/opt/app/app.service"), true),
            ("sshd.service", Some("/lib/systemd/system/ssh.service"), false),
            ("sshd.service", Some("/usr/lib/systemd/system/ssh.service"), false),
            ("alias.service", Some("backup.service"), false),
            ("alias.service", Some("/etc/systemd/system/backup.service"), false),
            ("alias.service", Some("./backup.service"), false),
            ("alias.service", Some("../user/backup.service"), false),
            (
                "ssh.service",
                Some("../../../lib/systemd/system/ssh.service"),
                false,
            ),
            (
                "own.service",
                Some("/usr/local/lib/systemd/system/own.service"),
                false,
            ),
            ("x.service", Some("../../../opt/x.service"), true),
            ("x.service", Some("/etc/systemd/../../opt/x.service"), true),
            ("x.service", Some("../../../../../../opt/x.service"), true),
            ("apt-daily.timer", Some("/dev/null"), false),
            ("apt-daily.timer", Some("../../../dev/null"), false),
            ("snap-core-17.mount", None, false),
            ("snap.lxd.daemon.service", None, false),
            ("meshplan-host.service", None, false),
            ("multi-user.target", None, false),
            ("multi-user.target.wants", None, false),
            ("backup.service.d", None, false),
            (".service", None, false),
            ("README", None, false),
        ] {
            assert_eq!(is_by_hand(&unit(name), leads_to), by_hand, "{name} {leads_to:?}");
        }
    }

    // holds: HR-9
    #[test]
    fn what_is_the_hosts_is_no_stray_and_the_others_are_listed_in_order() {
        let ours = |target: &Target| {
            [
                "container:web",
                "/etc/systemd/system/web.service",
                "unit:found.service",
            ]
            .contains(&target.to_string().as_str())
        };
        let lines = list(
            Ok(vec![container("web"), container("b"), container("a")]),
            Ok(vec![unit("web.service"), unit("found.service"), unit("x.timer")]),
            ours,
        );
        assert_eq!(
            lines,
            [
                "container a (running), image box:1",
                "container b (running), image box:1",
                "unit x.timer (/etc/systemd/system/x.timer)"
            ]
        );
        assert!(list(Ok(vec![]), Ok(vec![]), ours).is_empty());
    }

    // holds: HR-9, HR-11
    #[test]
    fn the_list_is_bounded_in_lines_and_length_and_says_what_could_not_be_asked() {
        let many = (0..500)
            .map(|n| container(&format!("{n:04}{}", "x\n".repeat(1000))))
            .collect();
        let lines = list(Ok(many), Err("no answer\n".repeat(1000)), |_| false);
        assert_eq!(lines.len(), LISTED + 2);
        assert_eq!(lines[LISTED], "and 460 more containers");
        assert!(
            lines
                .last()
                .unwrap()
                .starts_with("units cannot be listed: no answer")
        );
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= LINE_CHARS + 4 && !line.contains('\n'))
        );
    }
}
