//! On a real disk: what memory cannot show.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use meshplan_host::edge::disk::{Disk, DiskError, NewFile, Owner, RealDisk, atomic};
use meshplan_host::edge::machine::{Applied, End, Machine, Setup};
use meshplan_host::edge::system::NoSystem;
use meshplan_schemas::report::Outcome;
use meshplan_schemas::resource::Resource;
use tempfile::TempDir;

use crate::world::{self, Decl, directory, file, file_with, link, path};

struct Node {
    /// Holds the root, the state folder, and what is outside of both.
    folder: TempDir,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["root", "state", "outside"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }
    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }
    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }
    fn outside(&self) -> PathBuf {
        self.folder.path().join("outside")
    }
    fn machine(&self) -> Machine {
        let setup = Setup {
            root: Arc::new(RealDisk::open(&self.root()).unwrap()),
            system: Arc::new(NoSystem),
            state: Arc::new(RealDisk::open(&self.state()).unwrap()),
            state_inside: None,
            boot_id: "boot".to_owned(),
            policy_out: None,
        };
        Machine::open(setup, 0).unwrap().0
    }
    fn apply(&self, resources: Vec<Resource>) -> Applied {
        world::settle(&mut self.machine(), &Decl::new(1).with("web", resources))
    }
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.root().join(name)).unwrap()
    }
}

/// Skips with a line where the test needs root; with `CI=true` that is a failure.
fn is_root(what: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{what} needs root");
    println!("skipped: {what} needs root");
    false
}

fn refused(applied: &Applied, words: &str) {
    let End::NotBegun { why } = &applied.end else {
        panic!("it was begun: {applied:?}");
    };
    assert!(why.contains(words), "{why}");
}

// holds: HR-10
#[test]
fn a_module_that_requires_what_the_machine_lacks_is_refused_by_name_and_the_others_go_on() {
    let node = Node::new();
    let mut declared = Decl::new(1)
        .with("web", vec![file("conf", "/web.conf", "web")])
        .with("base", vec![file("motd", "/motd", "hello")]);
    declared.declaration.modules[0].requires = vec!["container-runtime".to_owned(), "systemd".to_owned()];
    let mut machine = node.machine();
    machine.tell_abilities(vec!["systemd".to_owned()]);
    let applied = world::settle(&mut machine, &declared);
    assert_eq!(node.read("motd"), "hello");
    assert!(!node.root().join("web.conf").exists());
    let refused: Vec<(String, &str)> = applied
        .lines
        .iter()
        .filter(|line| line.outcome == Outcome::Refused)
        .map(|line| (line.name.to_string(), line.reason.as_str()))
        .collect();
    let said = "module web is refused: this machine lacks container-runtime";
    assert_eq!(refused, [("web.conf".to_owned(), said)]);

    // What it lacked comes: the next look puts it in place.
    machine.tell_abilities(vec!["container-runtime".to_owned(), "systemd".to_owned()]);
    declared.declaration.sequence = 2;
    world::settle(&mut machine, &declared);
    assert_eq!(node.read("web.conf"), "web");

    // What was there stays when the runtime is away for a while; nothing of it is swept.
    machine.tell_abilities(vec!["systemd".to_owned()]);
    declared.declaration.sequence = 3;
    world::settle(&mut machine, &declared);
    assert_eq!(node.read("web.conf"), "web");
}

// holds: HK-1
#[test]
fn a_link_on_the_way_that_somebody_else_placed_is_not_followed() {
    if !is_root("a link of somebody else's") {
        return;
    }
    let node = Node::new();
    for to in [node.outside(), PathBuf::from("/real")] {
        fs::create_dir_all(node.root().join("real")).unwrap();
        let planted = node.root().join("planted");
        symlink(&to, &planted).unwrap();
        lchown(&planted, Some(65534), Some(65534)).unwrap();
        let applied = node.apply(vec![file("f", "/planted/f", "x")]);
        refused(
            &applied,
            "/planted is a symbolic link that user 65534 placed; it is not followed",
        );
        assert_eq!(applied.lines.first().unwrap().outcome, Outcome::Failed);
        fs::remove_file(planted).unwrap();
    }
    assert_eq!(fs::read_dir(node.outside()).unwrap().count(), 0);
    assert_eq!(fs::read_dir(node.root().join("real")).unwrap().count(), 0);
}

// holds: HK-1
#[test]
fn a_link_on_the_way_that_the_machine_has_is_followed_and_never_leads_out_of_the_root() {
    let node = Node::new();
    fs::create_dir_all(node.root().join("usr/bin")).unwrap();
    symlink("usr/bin", node.root().join("bin")).unwrap();
    symlink("/usr", node.root().join("absolute")).unwrap();
    symlink("../../../../../..", node.root().join("usr/up")).unwrap();
    node.apply(vec![
        file("a", "/bin/a", "a"),
        file("b", "/absolute/b", "b"),
        file("c", "/usr/up/c", "c"),
    ]);
    assert_eq!(
        (node.read("usr/bin/a"), node.read("usr/b"), node.read("c")),
        ("a".into(), "b".into(), "c".into())
    );
    symlink("loop", node.root().join("loop")).unwrap();
    let applied = node.apply(vec![file("d", "/loop/d", "d")]);
    refused(&applied, "loop");
}

// holds: HK-1
#[test]
fn a_link_in_a_files_place_is_replaced_and_what_it_points_at_is_not_touched() {
    let node = Node::new();
    let secret = node.outside().join("secret");
    fs::write(&secret, "theirs").unwrap();
    symlink(&secret, node.root().join("f")).unwrap();
    // And at the name under which the next content is made.
    let beside = atomic::beside(&path("/f"));
    symlink(&secret, node.root().join(beside.file_name())).unwrap();
    let applied = node.apply(vec![file("f", "/f", "ours")]);
    assert_eq!(applied.lines.first().unwrap().outcome, Outcome::Updated);
    assert_eq!(node.read("f"), "ours");
    assert!(fs::symlink_metadata(node.root().join("f")).unwrap().is_file());
    assert_eq!(fs::read_to_string(secret).unwrap(), "theirs");
    assert_eq!(fs::read_dir(node.root()).unwrap().count(), 1);
}

// holds: HK-1
#[test]
fn modes_and_executable_bits_are_there_from_the_first_moment_and_come_back_after_drift() {
    let node = Node::new();
    let resources = || {
        vec![
            file_with("run", "/bin/run", "#!/bin/sh\n", "0755"),
            file_with("set", "/bin/set", "x", "6711"),
            file_with("none", "/bin/none", "x", "000"),
            world::directory_with("d", "/srv", "1777"),
        ]
    };
    node.apply(resources());
    let mode = |name: &str| fs::metadata(node.root().join(name)).unwrap().permissions().mode() & 0o7777;
    let all = || [mode("bin/run"), mode("bin/set"), mode("bin/none"), mode("srv")];
    assert_eq!(all(), [0o755, 0o6711, 0, 0o1777]);
    fs::set_permissions(node.root().join("bin/run"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(node.root().join("srv"), fs::Permissions::from_mode(0o700)).unwrap();
    let decl = Decl::new(1).with("web", resources());
    let repaired = node.machine().repair(&decl.get(), 0).unwrap();
    assert_eq!(repaired.lines.len(), 2, "{:?}", repaired.lines);
    assert_eq!(all(), [0o755, 0o6711, 0, 0o1777]);
}

// holds: HK-1, HR-14
#[test]
fn an_owner_is_set_and_comes_back_with_a_revert() {
    if !is_root("another owner") {
        return;
    }
    let node = Node::new();
    fs::create_dir(node.root().join("etc")).unwrap();
    fs::write(node.root().join("etc/passwd"), "web:x:4321:4322::/:/bin/sh\n").unwrap();
    fs::write(node.root().join("f"), "theirs").unwrap();
    lchown(node.root().join("f"), Some(77), Some(78)).unwrap();
    let mut resource = file("f", "/f", "ours");
    resource.spec["owner"] = "web".into();
    resource.spec["group"] = "4322".into();
    let owner = || {
        let stat = fs::metadata(node.root().join("f")).unwrap();
        (stat.uid(), stat.gid(), node.read("f"))
    };
    let mut machine = node.machine();
    let decl = Decl::new(1).with("web", vec![resource]);
    assert!(
        machine
            .apply(&decl.get(), decl.digest(), 0)
            .unwrap()
            .window_open()
    );
    assert_eq!(owner(), (4321, 4322, "ours".to_owned()));
    machine.arm(10).unwrap();
    machine.revert(&world::because("no link"), 11).unwrap();
    assert_eq!(owner(), (77, 78, "theirs".to_owned()));
}

// holds: HK-1
#[test]
fn names_that_a_shell_or_a_log_would_stumble_over_are_names() {
    let node = Node::new();
    let names = [
        "-rf",
        "a b",
        "line\nend",
        "ä\u{202e}",
        "$(reboot)",
        "*",
        "...",
        &"n".repeat(255),
    ];
    let resources = names.iter().enumerate();
    let resources: Vec<_> = resources
        .map(|(i, n)| file(&format!("f{i}"), &format!("/d/{n}"), n))
        .collect();
    let applied = node.apply(resources.clone());
    assert!(
        applied
            .lines
            .iter()
            .all(|l| l.outcome == Outcome::Created && !l.reason.contains('\n'))
    );
    for name in names {
        assert_eq!(node.read(&format!("d/{name}")), name);
    }
    assert_eq!(fs::read_dir(node.root().join("d")).unwrap().count(), names.len());
}

// holds: HK-1
#[test]
fn a_pipe_in_a_files_place_is_refused_and_never_waited_for() {
    let node = Node::new();
    let made = Command::new("mkfifo")
        .arg(node.root().join("f"))
        .status()
        .unwrap();
    assert!(made.success());
    refused(
        &node.apply(vec![file("f", "/f", "x")]),
        "/f is a device, socket or pipe, not a file",
    );
}

// holds: HK-1
#[test]
fn a_check_runs_on_the_temporary_file_and_what_it_refuses_never_stands() {
    let node = Node::new();
    let checked = |text: &str| {
        let mut resource = file("f", "/etc/f", text);
        resource.spec["validate"] = "grep -q good %s".into();
        vec![resource]
    };
    node.apply(checked("good\n"));
    let decl = Decl::new(2).with("web", checked("bad\n"));
    let applied = node.machine().apply(&decl.get(), decl.digest(), 0).unwrap();
    assert!(
        matches!(&applied.end, End::Reverted { reason } if reason.to_string().contains("the check `grep -q good %s` did not pass"))
    );
    assert_eq!(node.read("etc/f"), "good\n");
    assert_eq!(fs::read_dir(node.root().join("etc")).unwrap().count(), 1);
}

/// A small file system at a folder, unmounted in the end.
struct Small(PathBuf);
impl Small {
    fn mount(at: &Path, options: &str) -> Option<Self> {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "meshplan-test"])
            .arg(at)
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            other => {
                assert!(
                    std::env::var("CI").as_deref() != Ok("true"),
                    "no small file system: {other:?}"
                );
                println!("skipped: no small file system can be mounted here");
                None
            }
        }
    }
    fn fill(&self) {
        let mut out = fs::File::create(self.0.join("filler")).unwrap();
        while std::io::Write::write_all(&mut out, &[0; 4096]).is_ok() {}
    }
}
impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: the machine of the test may have it open still.
        let _unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

// holds: HR-14, B40
#[test]
fn a_file_system_that_is_full_is_found_out_before_anything_is_touched() {
    if !is_root("a small file system") {
        return;
    }
    for (full, options) in [
        ("root", "size=1m"),
        ("state", "size=1m"),
        ("root", "size=1m,nr_inodes=8"),
        ("state", "size=2m,nr_inodes=9"),
    ] {
        let node = Node::new();
        let Some(small) = Small::mount(&node.folder.path().join(full), options) else {
            return;
        };
        let mut machine = node.machine();
        if options == "size=1m" {
            small.fill();
        }
        let resources = (0..8)
            .map(|i| file(&format!("f{i}"), &format!("/f{i}"), &"x".repeat(2000)))
            .collect();
        let decl = Decl::new(1).with("web", resources);
        let applied = machine.apply(&decl.get(), decl.digest(), 0).unwrap();
        let End::NotBegun { why } = &applied.end else {
            panic!("{full} {options}: {applied:?}")
        };
        assert!(why.starts_with("no room: the whole change takes"), "{why}");
        let touched = fs::read_dir(node.root())
            .unwrap()
            .filter(|e| e.as_ref().unwrap().file_name() != "filler");
        assert_eq!(touched.count(), 0, "{full} {options}");
        drop(machine);
        drop(small);
    }
}

// holds: B40
#[test]
fn the_reserve_gives_room_to_say_that_the_disk_is_full() {
    if !is_root("a small file system") {
        return;
    }
    let node = Node::new();
    let Some(small) = Small::mount(&node.state(), "size=2m") else {
        return;
    };
    let mut machine = node.machine();
    let decl = Decl::new(1).with(
        "web",
        vec![file("f", "/f", "x"), directory("d", "/d"), link("l", "/l", "f")],
    );
    machine.apply(&decl.get(), decl.digest(), 0).unwrap();
    small.fill();
    let disk = RealDisk::open(&node.state()).unwrap();
    let report = NewFile {
        bytes: &[7; 5000],
        mode: 0o600,
        owner: Owner::default(),
    };
    let full = atomic::put_file(&disk, &path("/report"), &report, None).unwrap_err();
    assert!(
        matches!(&full, DiskError::Io { .. }) && full.is_no_room(),
        "{full}"
    );
    // The window can be armed and reverted all the same.
    machine.arm(10).unwrap();
    machine.revert(&world::because("no link"), 20).unwrap();
    atomic::put_file(&disk, &path("/report"), &report, None).unwrap();
    assert!(disk.stat(&path("/report")).unwrap().is_some());
    assert_eq!(fs::read_dir(node.root()).unwrap().count(), 0);
    drop(small);
}

// holds: HR-6
#[test]
fn the_state_folder_is_no_target_by_any_spelling() {
    let node = Node::new();
    let state = node.root().join("var/state");
    fs::create_dir_all(&state).unwrap();
    symlink("/var", node.root().join("v")).unwrap();
    symlink("var/state", node.root().join("l")).unwrap();
    let setup = Setup {
        root: Arc::new(RealDisk::open(&node.root()).unwrap()),
        system: Arc::new(NoSystem),
        state: Arc::new(RealDisk::open(&state).unwrap()),
        state_inside: Some(path("/var/state")),
        boot_id: "boot".to_owned(),
        policy_out: None,
    };
    let (mut machine, _) = Machine::open(setup, 0).unwrap();
    for bad in [
        file("f", "/var/state/ledger.json", "x"),
        file("f", "/l/ledger.json", "x"),
        file("f", "/v/state/new/deep/f", "x"),
        directory("f", "/v/state"),
    ] {
        let decl = Decl::new(1).with("web", vec![bad]);
        let applied = machine.apply(&decl.get(), decl.digest(), 10).unwrap();
        refused(&applied, "in the host's own state folder");
    }
    let near = Decl::new(1).with("web", vec![file("f", "/v/near", "x")]);
    assert!(
        machine
            .apply(&near.get(), near.digest(), 10)
            .unwrap()
            .window_open()
    );
}
