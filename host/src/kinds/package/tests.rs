//! A package on a machine in memory.

use meshplan_schemas::resource::accounts::HOST_PACKAGE;

use super::*;
use crate::edge::command::{self, Command};
use crate::edge::disk::SimDisk;
use crate::edge::system::sim::Packages;
use crate::edge::system::{SimSystem, System as _};
use crate::pure::inverse::UndoAct;

struct World {
    disk: SimDisk,
    system: SimSystem,
}

impl World {
    /// A Debian machine whose repositories have `web` in two versions, which needs `libweb`.
    fn new() -> Self {
        let system = SimSystem::default();
        let offers: &[(&str, &[&str], &[&str])] =
            &[("web", &["1.0", "2.0"], &["libweb"]), ("libweb", &["1.0"], &[])];
        system.with(|sim| sim.packages = Packages::debian(offers));
        Self {
            disk: SimDisk::new(),
            system,
        }
    }
    fn reach(&self) -> Reach<'_> {
        Reach {
            root: &self.disk,
            system: &self.system,
            state: &self.disk,
        }
    }
    fn plan(&self, wanted: &Wanted) -> Decision {
        plan(wanted, &state(self.reach(), &wanted.name), self.reach())
    }
    fn apply(&self, wanted: &Wanted) -> Result<(), String> {
        fetch(wanted, self.reach())?;
        apply(wanted, self.reach())?;
        assert_eq!(self.plan(wanted), Decision::Unchanged);
        Ok(())
    }
    /// With what the next runs that would change something end.
    fn next(&self, ends: &[(i32, &str)]) {
        let ends = ends.iter().map(|(code, said)| (*code, (*said).to_owned()));
        self.system.with(|sim| sim.packages.next = ends.collect());
    }
    fn installed(&self) -> Vec<String> {
        let words = |(name, version): (&String, &String)| format!("{name} {version}");
        self.system
            .with(|sim| sim.packages.installed.iter().map(words).collect())
    }
    /// Walks the way back from what is wanted, made before it is.
    fn there_and_back(&self, wanted: &Wanted) -> Vec<String> {
        let there = state(self.reach(), &wanted.name);
        let back = way_back(wanted, &there, self.reach()).unwrap();
        self.apply(wanted).unwrap();
        let _forward = self.system.acts();
        for act in back.acts {
            let UndoAct::Run { argv, accepts, .. } = act.act else {
                panic!("a program of the way back: {:?}", act.act);
            };
            let ended = self.system.run(&argv, ANSWER);
            assert_eq!(ended.fault(&argv, &accepts), None);
        }
        self.system.acts()
    }
}

fn asked(change: impl FnOnce(&mut Package)) -> Result<Wanted, Invalid> {
    let mut spec: Package = serde_json::from_value(serde_json::json!({ "name": "web" })).unwrap();
    change(&mut spec);
    validate(&spec)
}

fn web() -> Wanted {
    asked(|_| ()).unwrap()
}

fn away() -> Wanted {
    asked(|s| s.absent = true).unwrap()
}

fn version(version: &str) -> Wanted {
    asked(|s| s.version = Some(version.to_owned())).unwrap()
}

// holds: HK-3
#[test]
fn what_a_manager_would_take_for_something_else_is_refused() {
    for bad in ["", "-rf", "web-", "a b", "@group", "web;x", "*", &"a".repeat(256)] {
        assert!(asked(|s| s.name = bad.to_owned()).is_err(), "{bad} was taken");
    }
    for bad in ["", "-1", "1 2", "1=2"] {
        assert!(
            asked(|s| s.version = Some(bad.to_owned())).is_err(),
            "{bad} was taken"
        );
    }
    assert!(asked(|s| (s.name, s.absent) = (HOST_PACKAGE.to_owned(), true)).is_err());
    for tail in [":amd64", ".x86_64", "-1.2", "/stable", "@edge"] {
        let name = format!("{HOST_PACKAGE}{tail}");
        assert!(asked(|s| (s.name, s.absent) = (name, true)).is_err(), "{tail}");
    }
    assert!(asked(|s| (s.name, s.absent) = ("meshplan-hosts".to_owned(), true)).is_ok());
    assert!(asked(|s| s.name = HOST_PACKAGE.to_owned()).is_ok());
    let both = asked(|s| (s.version, s.absent) = (Some("1".to_owned()), true));
    assert!(both.is_err());
    let pinned = asked(|s| (s.version, s.manager) = (Some("1".to_owned()), Some(Manager::Pacman)));
    assert!(pinned.is_err());
    assert!(asked(|s| s.name = "libstdc++6:amd64".to_owned()).is_ok());
}

// holds: HK-3, HK-14
#[test]
fn it_is_installed_changed_in_its_version_and_removed_and_then_left_alone() {
    let world = World::new();
    assert_eq!(world.plan(&away()), Decision::Unchanged, "it never was here");
    assert!(matches!(world.plan(&version("1.0")), Decision::Create(_)));
    world.apply(&version("1.0")).unwrap();
    assert_eq!(world.plan(&web()), Decision::Unchanged, "any version is as asked");
    world.apply(&version("2.0")).unwrap();
    world.apply(&version("1.0")).unwrap();
    world.apply(&away()).unwrap();
    assert_eq!(
        world.system.acts(),
        [
            "fetch web=1.0",
            "install web=1.0",
            "fetch web=2.0",
            "install web=2.0",
            "fetch web=1.0",
            "install web=1.0",
            "dpkg --remove web"
        ]
    );
    assert_eq!(world.installed(), ["libweb 1.0"]);
    for _ in 0..10 {
        world.apply(&away()).unwrap();
    }
    assert_eq!(world.system.acts(), Vec::<String>::new());
}

// holds: HK-3, HR-14
#[test]
fn the_way_back_removes_what_came_and_nothing_that_was_there() {
    let world = World::new();
    world.system.with(|sim| {
        sim.packages
            .installed
            .insert("other".to_owned(), "1.0".to_owned());
    });
    assert_eq!(
        world.there_and_back(&web()),
        ["dpkg --configure -a", "dpkg --remove web libweb"]
    );
    assert_eq!(world.installed(), ["other 1.0"]);
    // Another package, or a person, had what it needs here before.
    world.system.with(|sim| {
        sim.packages
            .installed
            .insert("libweb".to_owned(), "1.0".to_owned());
    });
    assert_eq!(
        world.there_and_back(&web()),
        ["dpkg --configure -a", "dpkg --remove web"]
    );
    assert_eq!(world.installed(), ["libweb 1.0", "other 1.0"]);
}

// holds: HK-3, HR-14, HR-5
#[test]
fn the_way_back_brings_a_version_back_that_is_to_be_had_and_of_another_that_is_said() {
    let world = World::new();
    world.apply(&version("1.0")).unwrap();
    assert_eq!(
        world.there_and_back(&version("2.0")),
        ["dpkg --configure -a", "install web=1.0"]
    );
    assert_eq!(
        world.there_and_back(&away()),
        ["dpkg --configure -a", "install web=1.0"]
    );
    assert_eq!(world.installed(), ["libweb 1.0", "web 1.0"]);
    world.system.with(|sim| {
        let offer = sim.packages.offers.get_mut("web").unwrap();
        offer.versions.retain(|version| version != "1.0");
    });
    for wanted in [version("2.0"), away()] {
        let Decision::Update(what) = world.plan(&wanted) else {
            panic!("{:?}", world.plan(&wanted));
        };
        assert!(what.contains("it cannot be undone"), "{what}");
        let back = way_back(&wanted, &state(world.reach(), "web"), world.reach()).unwrap();
        assert!(back.acts.is_empty(), "{:?}", back.acts);
    }
}

// holds: HK-3
#[test]
fn a_lock_is_waited_for_and_one_that_stays_is_said() {
    let busy = (100, "E: Could not get lock /var/lib/dpkg/lock-frontend.");
    let world = World::new();
    world.next(&[busy; 18]);
    world.apply(&web()).unwrap();
    let world = World::new();
    world.next(&[busy; 100]);
    let why = fetch(&web(), world.reach()).unwrap_err();
    assert!(
        why.starts_with("install package web: another program holds the lock of apt"),
        "{why}"
    );
    assert_eq!(world.system.acts(), Vec::<String>::new());
}

// holds: HK-3
#[test]
fn a_stale_index_is_renewed_once_and_then_said_with_its_date() {
    let stale = (
        100,
        "E: Failed to fetch http://deb.example/web_2.0.deb  404  Not Found",
    );
    let world = World::new();
    world.next(&[stale]);
    world.apply(&web()).unwrap();
    assert_eq!(
        world.system.acts(),
        ["apt-get update", "fetch web", "install web"]
    );
    let world = World::new();
    world.next(&[stale, (0, ""), stale]);
    let why = fetch(&web(), world.reach()).unwrap_err();
    assert!(why.contains("of 2023-11-14 (60 minutes old)"), "{why}");
    assert_eq!(world.system.acts(), ["apt-get update"]);
}

// holds: HK-3
#[test]
fn what_the_index_lacks_is_said_with_why_it_could_not_be_renewed() {
    let world = World::new();
    world.system.with(|sim| sim.packages.offers.clear());
    let why = fetch(&web(), world.reach()).unwrap_err();
    assert!(why.contains("do not have it"), "{why}");
    let outage = "E: Failed to fetch http://deb.example/InRelease  Could not connect to deb.example:80";
    world.next(&[(100, "E: Unable to locate package web"), (100, outage)]);
    let why = fetch(&web(), world.reach()).unwrap_err();
    assert!(
        why.contains("no mirror answers; the package database is of"),
        "{why}"
    );
}

// holds: HK-3
#[test]
fn a_manager_that_was_ended_in_its_midst_is_brought_to_rest_before_anything_else() {
    let world = World::new();
    world.system.with(|sim| sim.packages.is_interrupted = true);
    world.apply(&web()).unwrap();
    assert_eq!(
        world.system.acts(),
        ["dpkg --configure -a", "fetch web", "install web"]
    );
}

// holds: HK-3
#[test]
fn what_others_need_is_not_removed_and_nothing_goes_with_it() {
    let world = World::new();
    world.apply(&web()).unwrap();
    let lib = asked(|s| (s.name, s.absent) = ("libweb".to_owned(), true)).unwrap();
    let why = apply(&lib, world.reach()).unwrap_err();
    assert!(
        why.contains("other packages stand against it") && why.contains("web depends on it"),
        "{why}"
    );
    assert_eq!(world.installed(), ["libweb 1.0", "web 2.0"]);
}

// holds: HK-3
#[test]
fn a_manager_that_does_not_answer_is_none_that_has_nothing() {
    let world = World::new();
    world.system.with(|sim| sim.packages.managers.clear());
    assert!(matches!(state(world.reach(), "web"), Observed::Unknown(_)));
    assert!(matches!(world.plan(&away()), Decision::Unknown(_)));
    world
        .system
        .with(|sim| sim.packages.managers = vec![Manager::Dnf]);
    // dnf asks rpm, which this machine does not have.
    assert!(matches!(state(world.reach(), "web"), Observed::Unknown(_)));
}

/// An Arch machine, whose pacman answers so to what it is run with.
fn arch(answers: &[(&str, i32, &str)]) -> World {
    let world = World::new();
    let answer = |(line, code, said): &(&str, i32, &str)| ((*line).to_owned(), (*code, (*said).to_owned()));
    world.system.with(|sim| {
        sim.packages = Packages {
            managers: vec![Manager::Pacman],
            answers: answers.iter().map(answer).collect(),
            ..Packages::default()
        };
    });
    world
}

// holds: HK-3
#[test]
fn on_a_rolling_distribution_no_part_is_upgraded_alone_and_no_database_renewed() {
    let absent = ("pacman --query web", 1, "error: package 'web' was not found");
    let fetched = ("pacman --sync --noconfirm --needed --downloadonly web", 0, "");
    let trial = "pacman --sync --noconfirm --needed --print --print-format %n web";
    let new = (
        "pacman --query libweb",
        1,
        "error: package 'libweb' was not found",
    );
    let there = ("pacman --query libweb", 0, "libweb 1.0-1");
    let world = arch(&[absent, fetched, (trial, 0, "libweb\nweb\n"), new]);
    assert_eq!(fetch(&web(), world.reach()), Ok(()));
    let world = arch(&[absent, fetched, (trial, 0, "libweb\nweb\n"), there]);
    let why = fetch(&web(), world.reach()).unwrap_err();
    assert!(
        why.contains("newer builds of libweb would have to come") && why.contains("pacman -Syu"),
        "{why}"
    );
    let gone = "error: failed retrieving file 'web-1.0-1-any.pkg.tar.zst' from mirror.example : The requested URL \
                returned error: 404";
    let world = arch(&[absent, (fetched.0, 1, gone)]);
    let why = fetch(&web(), world.reach()).unwrap_err();
    assert!(why.contains("pacman -Syu"), "{why}");
}

// holds: HK-3
#[test]
fn what_is_for_another_manager_is_not_done_here_and_pacman_takes_no_version() {
    let world = World::new();
    let other = asked(|s| s.manager = Some(Manager::Dnf)).unwrap();
    assert_eq!(world.plan(&other), Decision::Unchanged);
    world
        .system
        .with(|sim| sim.packages.managers = vec![Manager::Pacman]);
    let Decision::Refuse(why) = plan(&version("1.0"), &Observed::Absent, world.reach()) else {
        panic!("a version was taken");
    };
    assert!(why.contains("leave `version` out"), "{why}");
}

/// A world of one manager that answers so to what it is run with.
fn answering(manager: Manager, answers: &[(&str, i32, &str)]) -> World {
    let world = arch(answers);
    world.system.with(|sim| sim.packages.managers = vec![manager]);
    world
}

// holds: HK-3, HR-14
#[test]
fn what_is_half_there_is_neither_away_nor_installed_and_nothing_begins() {
    let query = "dpkg-query --show --showformat ${db:Status-Status} ${Version}\\n web";
    for status in ["unpacked", "half-configured", "half-installed"] {
        let said = format!("{status} 1.0");
        let world = answering(Manager::Apt, &[(query, 0, &said)]);
        for wanted in [web(), away()] {
            assert!(matches!(world.plan(&wanted), Decision::Unknown(_)), "{status}");
            let there = state(world.reach(), "web");
            let why = way_back(&wanted, &there, world.reach()).unwrap_err();
            assert!(why.contains("dpkg --configure -a"), "{why}");
        }
    }
    let world = answering(Manager::Apt, &[(query, 0, "config-files 1.0")]);
    assert_eq!(world.plan(&away()), Decision::Unchanged);
}

// holds: HK-3, HR-14
#[test]
fn a_trial_that_failed_is_none_that_nothing_comes_with() {
    let trial = "dnf --assumeno install web";
    let world = answering(Manager::Dnf, &[(trial, 1, "Error: Failed to download metadata")]);
    let why = way_back(&web(), &Observed::Absent, world.reach()).unwrap_err();
    assert!(why.contains("no mirror answers"), "{why}");
    let world = answering(
        Manager::Dnf,
        &[(trial, 1, "Installing:\n web x86_64 1-1\nOperation aborted.")],
    );
    let back = way_back(&web(), &Observed::Absent, world.reach()).unwrap();
    assert_eq!(back.acts.len(), 1);
    // As long as another program holds the lock it is waited for.
    let trial = "apk add --simulate web";
    let world = answering(
        Manager::Apk,
        &[(trial, 99, "ERROR: Unable to lock database: busy")],
    );
    let why = way_back(&web(), &Observed::Absent, world.reach()).unwrap_err();
    assert!(why.contains("also after 300 s"), "{why}");
}

// holds: HK-3
#[test]
fn nothing_goes_for_a_package_that_comes() {
    let query = "rpm --query --queryformat %{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n web";
    let table =
        "Installing:\n web  x86_64 1-1 repo 1 k\n     replacing  oldweb.x86_64 0.9-1\nOperation aborted.";
    let world = answering(
        Manager::Dnf,
        &[
            (query, 1, "package web is not installed"),
            ("dnf -y --downloadonly install web", 0, ""),
            ("dnf --assumeno install web", 1, table),
        ],
    );
    let why = fetch(&web(), world.reach()).unwrap_err();
    assert!(why.contains("oldweb.x86_64 would have to go for it"), "{why}");
}

// holds: HK-3, HR-14
#[test]
fn two_packages_that_share_what_came_with_them_are_both_taken_back() {
    let world = World::new();
    let offer = |sim: &mut crate::edge::system::sim::Sim| {
        let web = sim.packages.offers["web"].clone();
        sim.packages.offers.insert("app".to_owned(), web);
    };
    world.system.with(offer);
    let app = asked(|s| s.name = "app".to_owned()).unwrap();
    let backs = [&app, &web()].map(|wanted| way_back(wanted, &Observed::Absent, world.reach()).unwrap());
    world.apply(&web()).unwrap();
    world.apply(&app).unwrap();
    for back in backs {
        for act in back.acts {
            let UndoAct::Run { argv, accepts, .. } = act.act else {
                panic!("a program of the way back: {:?}", act.act);
            };
            let ended = world.system.run(&argv, ANSWER);
            assert_eq!(ended.fault(&argv, &accepts), None);
        }
    }
    assert_eq!(world.installed(), Vec::<String>::new());
}

/// What a manager is run with when a removal of `web` and `libweb` is walked, as the shell runs it: with `programs` in the
/// place of the machine's.
async fn removal(manager: Manager, programs: &str) -> command::Ended {
    let mut argv = packages::tool(manager).remove(&["web", "libweb"], Patience::Its);
    let at = argv.iter().position(|word| word == "-c").unwrap() + 1;
    argv[at] = format!("{programs}\n{}", argv[at]);
    let command = Command {
        argv: &argv,
        root: std::path::Path::new("/"),
        timeout: ANSWER,
    };
    command::run(command).await
}

// holds: HK-3, HR-14
#[tokio::test]
async fn where_another_package_needs_the_rest_the_first_is_removed_alone() {
    // Each refuses all where `libweb` is among what goes, and says what it removes.
    let refuses = "case \"$*\" in *libweb*) echo 'is needed by app'; return 1;; esac; echo \"gone: $*\"";
    for (manager, programs) in [
        (
            Manager::Dnf,
            format!("rpm() {{ case $1 in --query) shift 3; printf '%s\\n' \"$@\";; *) {refuses};; esac; }}"),
        ),
        (
            Manager::Pacman,
            format!("pacman() {{ case $1 in --query) echo \"$3\";; *) {refuses};; esac; }}"),
        ),
        (Manager::Apt, format!("dpkg() {{ {refuses}; }}")),
    ] {
        let ended = removal(manager, &programs).await;
        assert_eq!(ended.how, How::Exited(0), "{manager}: {}", ended.said);
        let gone = ended.said.lines().find(|line| line.starts_with("gone:")).unwrap();
        assert!(gone.ends_with(" web"), "{manager}: {gone}");
    }
}

// holds: HK-3
#[tokio::test]
async fn what_only_provides_a_name_is_not_removed_and_not_taken_for_it() {
    let programs = "pacman() { case $1 in --query) echo \"$3-git\";; *) echo \"gone: $*\";; esac; }";
    let ended = removal(Manager::Pacman, programs).await;
    assert_eq!((ended.how, ended.said.as_str()), (How::Exited(0), ""));
    let world = arch(&[("pacman --query web", 0, "web-git 1.0-1")]);
    assert_eq!(state(world.reach(), "web"), Observed::Absent);
}

// holds: HK-3
#[test]
fn the_cause_is_found_also_where_much_was_said_after_it() {
    let world = World::new();
    let said = format!(
        "E: You don't have enough free space in /var/cache/apt\n{}",
        "more\n".repeat(5000)
    );
    world.next(&[(100, &said)]);
    let why = fetch(&web(), world.reach()).unwrap_err();
    assert!(why.contains("disk") && why.len() < 9000, "{why}");
}
