//! Killed at every act of an apply: a real process on a real disk, stopped by failpoints (EP-2, HR-5).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use meshplan_host::edge::disk::RealDisk;
use meshplan_host::edge::machine::{Machine, Recovered, Recovery, Setup};
use meshplan_host::edge::system::NoSystem;

use crate::world::{self, Decl, directory, file, file_with, link};

const CHILD: &str = "MESHPLAN_TEST_KILLED_CHILD";

fn open(folder: &Path, boot_id: &str) -> (Machine, Recovery) {
    let setup = Setup {
        root: Arc::new(RealDisk::open(&folder.join("root")).unwrap()),
        system: Arc::new(NoSystem),
        state: Arc::new(RealDisk::open(&folder.join("state")).unwrap()),
        state_inside: None,
        boot_id: boot_id.to_owned(),
        policy_out: None,
    };
    Machine::open(setup, 0).unwrap()
}

fn former() -> Decl {
    Decl::new(1).with(
        "web",
        vec![
            file("f", "/etc/f", "old\n"),
            link("l", "/l", "old"),
            file("gone", "/srv/gone", "x"),
        ],
    )
}

fn latter() -> Decl {
    let resources = vec![
        file_with("f", "/etc/f", "new\n", "0755"),
        link("l", "/l", "new"),
        directory("d", "/d"),
        file("g", "/d/a/g", "g\n"),
    ];
    Decl::new(2).with("web", resources)
}

fn shown(folder: &Path) -> BTreeMap<String, String> {
    fn walk(at: &Path, base: &Path, out: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let what = if stat.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else if stat.is_dir() {
                walk(&path, base, out);
                String::new()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            let name = path.strip_prefix(base).unwrap().display().to_string();
            out.insert(name, format!("{:o} {what}", stat.mode()));
        }
    }
    let mut out = BTreeMap::new();
    walk(&folder.join("root"), &folder.join("root"), &mut out);
    out
}

/// Not a story of its own: the process that the test below starts and kills. By itself it has nothing to do.
#[test]
fn the_child() {
    let Ok(folder) = std::env::var(CHILD) else { return };
    let _failpoints = fail::FailScenario::setup();
    let (mut machine, _) = open(Path::new(&folder), "boot");
    world::settle(&mut machine, &latter());
}

// holds: EP-2, HR-5
#[test]
fn a_process_killed_at_any_act_leaves_what_the_next_start_brings_to_the_old_or_the_new() {
    let (mut olds, mut news, mut waits) = (0, 0, 0);
    for acts in 0.. {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        world::settle(&mut open(folder.path(), "boot").0, &former());
        let old = shown(folder.path());
        let stop = if acts == 0 {
            "return".to_owned()
        } else {
            format!("{acts}*off->return")
        };
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::the_child"])
            .env(CHILD, folder.path())
            .env("FAILPOINTS", format!("host::disk::act={stop}"))
            .output()
            .unwrap();
        let (_, recovery) = open(folder.path(), "boot");
        if let Recovered::StillOpen(_) = recovery.window {
            waits += 1;
            let (_, recovery) = open(folder.path(), "another boot");
            assert!(matches!(recovery.window, Recovered::Reverted { .. }));
        }
        let now = shown(folder.path());
        if child.status.success() {
            assert!(
                acts > 40 && olds > 0 && news > 0 && waits > 0,
                "{acts} acts: {olds} {news} {waits}"
            );
            assert_eq!(now.get("etc/f").unwrap(), "100755 new\n");
            return;
        }
        if now == old {
            olds += 1;
        } else {
            news += 1;
            let is_new =
                now.get("etc/f").unwrap() == "100755 new\n" && now.get("d/a/g").unwrap() == "100644 g\n";
            let none_old = !now.contains_key("srv") && now.get("l").unwrap().ends_with("new");
            assert!(
                is_new && none_old && now.len() == 6,
                "killed before act {acts}: {now:?}"
            );
        }
    }
}
