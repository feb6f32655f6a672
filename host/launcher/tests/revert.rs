//! `meshplan-launcher revert` over windows that the host's own code has opened: what one of them takes back the other
//! does alike, and of all who may decide one does.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use meshplan_host::edge::disk::RealDisk;
use meshplan_host::edge::system::NoSystem;
use meshplan_host::edge::window;
use meshplan_host::kinds::Reach;
use meshplan_host::pure::commit_confirm::{Decided, FoundVerdict, Order, Verdict, Window, WindowState};
use meshplan_host::pure::inverse::Journal;
use meshplan_schemas::digest::Digest;
use tempfile::TempDir;

const OPENED_AT: i64 = 1_764_500_000;

/// A machine in a folder: `root` and `state`.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("root")).unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        Self(folder)
    }
    fn root(&self) -> std::path::PathBuf {
        self.0.path().join("root")
    }
    fn state(&self) -> std::path::PathBuf {
        self.0.path().join("state")
    }
    fn disk(&self) -> RealDisk {
        RealDisk::open(&self.state()).unwrap()
    }
    fn write(&self, path: &str, text: &str, mode: u32) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Opens a window with this way back, as the host does.
    fn open(&self, acts: &[String], blobs: &[&str], boot_id: &str, state: WindowState) -> Journal {
        let text = format!("{{\"version\":1,\"acts\":[{}]}}", acts.join(","));
        let journal: Journal = serde_json::from_str(&text).unwrap();
        let blobs: BTreeMap<Digest, Vec<u8>> = blobs
            .iter()
            .map(|text| (Digest::of(text.as_bytes()), text.as_bytes().to_vec()))
            .collect();
        let window = Window {
            version: 1,
            boot_id: boot_id.to_owned(),
            order: Order::Declaration {
                sequence: 7,
                digest: Digest::of(b""),
            },
            opened_at: OPENED_AT,
            apply_deadline: OPENED_AT + 60,
            confirm_deadline: None,
            state,
        };
        window::open(&self.disk(), &window, &journal, &blobs).unwrap();
        journal
    }

    /// A window over one file, `/f`, which held `old` and holds `new`.
    fn with_a_window(boot_id: &str) -> Self {
        let machine = Self::new();
        machine.write("f", "new", 0o644);
        machine.open(
            &[put_file("/f", "old", 0o600)],
            &["old"],
            boot_id,
            WindowState::AwaitingConfirm,
        );
        machine
    }
    fn content(&self) -> String {
        fs::read_to_string(self.root().join("f")).unwrap()
    }

    fn launcher(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshplan-launcher"));
        command.arg("revert").arg("--root").arg(self.root());
        command.arg("--state").arg(self.state()).args(arguments);
        command
    }
    fn revert(&self, arguments: &[&str]) -> Output {
        self.launcher(arguments).output().unwrap()
    }
    fn verdict(&self) -> FoundVerdict {
        window::standing(&self.disk()).unwrap().unwrap().verdict
    }
}

fn own() -> (u32, u32) {
    let own = tempfile::tempdir().unwrap();
    let own = fs::metadata(own.path()).unwrap();
    (own.uid(), own.gid())
}

fn entry(place: &str, path: &str, act: &str) -> String {
    format!("{{\"place\":\"{place}\",\"path\":\"{path}\",\"act\":{act}}}")
}

fn put_file(path: &str, text: &str, mode: u32) -> String {
    let ((uid, gid), blob) = (own(), Digest::of(text.as_bytes()));
    let act = format!("{{\"put_file\":{{\"blob\":\"{blob}\",\"mode\":{mode},\"uid\":{uid},\"gid\":{gid}}}}}");
    entry("root", path, &act)
}

fn remove(path: &str) -> String {
    entry("root", path, "\"remove\"")
}

fn put_tree(path: &str, name: &str) -> String {
    let act = format!("{{\"put_tree\":{{\"from\":\".{name}.old\",\"made\":\".{name}.new\"}}}}");
    entry("root", path, &act)
}

fn put_link(path: &str, target: &str) -> String {
    let (uid, gid) = own();
    let act = format!("{{\"put_link\":{{\"target\":\"{target}\",\"uid\":{uid},\"gid\":{gid}}}}}");
    entry("root", path, &act)
}

fn put_directory(path: &str, mode: u32) -> String {
    let (uid, gid) = own();
    let act = format!("{{\"put_directory\":{{\"mode\":{mode},\"uid\":{uid},\"gid\":{gid}}}}}");
    entry("root", path, &act)
}

/// Files alone: no act of these tests is a program's.
fn reach(root: &RealDisk) -> Reach<'_> {
    Reach {
        root,
        system: &NoSystem,
        // Nothing is unpacked on the way back.
        state: root,
    }
}

/// Everything below a folder: sort, mode, owner and content by path.
fn shown(folder: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut ahead = vec![folder.to_owned()];
    while let Some(here) = ahead.pop() {
        for each in fs::read_dir(&here).unwrap() {
            let path = each.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_dir() {
                ahead.push(path.clone());
                "folder".to_owned()
            } else if meta.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            all.insert(
                name,
                format!("{:o} {}:{} {content}", meta.mode(), meta.uid(), meta.gid()),
            );
        }
    }
    all
}

/// How the machine stood before the change.
fn before() -> Machine {
    let machine = Machine::new();
    machine.write("etc/changed", "old", 0o640);
    machine.write("etc/gone", "was here", 0o4755);
    machine.write("etc/now-a-folder", "a file", 0o644);
    machine.write("etc/now-a-link", "a file", 0o600);
    machine.write("srv/tree/a", "old", 0o644);
    machine.write("srv/tree/sub/b", "old", 0o755);
    symlink("/nowhere", machine.root().join("srv/tree/sub/l")).unwrap();
    machine.write("srv/unmoved/a", "never left", 0o644);
    machine.write("real/behind-a-link", "old", 0o644);
    symlink("/real", machine.root().join("by-link")).unwrap();
    symlink("changed", machine.root().join("etc/turned")).unwrap();
    fs::create_dir_all(machine.root().join("etc/folder/below")).unwrap();
    let mode = fs::Permissions::from_mode(0o1750);
    fs::set_permissions(machine.root().join("etc/folder/below"), mode).unwrap();
    fs::write(machine.state().join("policy.toml"), "old policy").unwrap();
    machine
}

/// The same after it, in an open window.
fn after() -> (Machine, Journal) {
    let machine = before();
    let at = |path: &str| machine.root().join(path);
    machine.write("etc/changed", "new and longer", 0o644);
    fs::remove_file(at("etc/gone")).unwrap();
    fs::remove_file(at("etc/now-a-folder")).unwrap();
    fs::create_dir(at("etc/now-a-folder")).unwrap();
    fs::remove_file(at("etc/now-a-link")).unwrap();
    symlink("elsewhere", at("etc/now-a-link")).unwrap();
    machine.write("real/behind-a-link", "new", 0o644);
    fs::remove_file(at("etc/turned")).unwrap();
    symlink("gone", at("etc/turned")).unwrap();
    fs::remove_dir(at("etc/folder/below")).unwrap();
    machine.write("etc/folder/below", "a file where a folder was", 0o644);
    machine.write("made/deep/er/file", "new", 0o644);
    fs::rename(at("srv/tree"), at("srv/.tree.old")).unwrap();
    machine.write("srv/tree/a", "new", 0o644);
    machine.write("srv/tree/c/d", "new", 0o644);
    // A link in what goes is not followed.
    symlink(at("srv/unmoved"), at("srv/tree/c/away")).unwrap();
    machine.write("srv/.unmoved.new/half", "ma", 0o644);
    machine.write("srv/fresh/a", "new", 0o644);
    machine.write("srv/.fresh.new/a", "newer", 0o644);
    fs::write(machine.state().join("policy.toml"), "new policy").unwrap();
    let (uid, gid) = own();
    let policy = Digest::of(b"old policy");
    let policy =
        format!("{{\"put_file\":{{\"blob\":\"{policy}\",\"mode\":420,\"uid\":{uid},\"gid\":{gid}}}}}");
    let acts = [
        remove("/made/deep/er/file"),
        remove("/made/deep/er"),
        remove("/made/deep"),
        remove("/made"),
        remove("/never/was/made"),
        entry(
            "root",
            "/srv/fresh",
            "{\"remove_tree\":{\"made\":\".fresh.new\",\"mark\":\"/policy.toml\"}}",
        ),
        put_tree("/srv/tree", "tree"),
        put_tree("/srv/unmoved", "unmoved"),
        put_link("/etc/turned", "changed"),
        put_file("/etc/changed", "old", 0o640),
        put_file("/etc/gone", "was here", 0o4755),
        put_file("/etc/now-a-folder", "a file", 0o644),
        put_file("/etc/now-a-link", "a file", 0o600),
        put_directory("/etc/folder/below", 0o1750),
        put_file("/by-link/behind-a-link", "old", 0o644),
        entry("state", "/policy.toml", &policy),
    ];
    let blobs = ["old", "was here", "a file", "old policy"];
    let journal = machine.open(&acts, &blobs, "boot", WindowState::Applying);
    (machine, journal)
}

// holds: HR-13, HR-14
#[test]
fn launcher_and_host_take_the_same_change_back_to_the_same_end_and_again_to_no_other() {
    let (wanted, former_policy) = (shown(&before().root()), "old policy");
    let (by_host, journal) = after();
    let root = RealDisk::open(&by_host.root()).unwrap();
    let undone = window::undo::walk(reach(&root), &by_host.disk(), &journal);
    assert!(undone.iter().all(|u| u.fault.is_none()), "{undone:?}");
    assert_eq!(shown(&by_host.root()), wanted, "the host");

    let (by_launcher, _) = after();
    // What a cut in the midst of the host's writing leaves.
    let left = by_launcher
        .root()
        .join("made/deep/er/.meshplan-0123456789abcdef.tmp");
    fs::write(left, "half").unwrap();
    for _ in 0..2 {
        let said = by_launcher.revert(&[]);
        assert_eq!(said.status.code(), Some(0), "{said:?}");
        assert_eq!(shown(&by_launcher.root()), wanted, "the launcher");
        let policy = fs::read_to_string(by_launcher.state().join("policy.toml")).unwrap();
        assert_eq!(policy, former_policy);
    }
    // The host that starts after it does it once more, and nothing comes of that.
    let root = RealDisk::open(&by_launcher.root()).unwrap();
    let undone = window::undo::walk(reach(&root), &by_launcher.disk(), &journal);
    assert!(undone.iter().all(|u| u.fault.is_none()), "{undone:?}");
    assert_eq!(shown(&by_launcher.root()), wanted, "the host after the launcher");
}

// holds: HR-13
#[test]
fn a_window_that_is_decided_or_not_meant_is_left_as_it_is() {
    let stays = |machine: &Machine, arguments: &[&str]| {
        let verdict = machine.verdict();
        let said = machine.revert(arguments);
        assert_eq!(said.status.code(), Some(0), "{said:?}");
        assert_eq!(machine.content(), "new", "{said:?}");
        assert_eq!(machine.verdict(), verdict);
    };
    let confirmed = Machine::with_a_window("boot");
    window::decide(&confirmed.disk(), &Verdict::confirmed(1)).unwrap();
    stays(&confirmed, &[]);
    stays(&confirmed, &["--at-start"]);
    stays(&Machine::with_a_window("boot"), &["--opened-at", "1"]);
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    stays(&Machine::with_a_window(boot_id.trim()), &["--at-start"]);

    let none = Machine::new();
    assert_eq!(none.revert(&[]).status.code(), Some(0));
    assert_eq!(none.revert(&["--fly"]).status.code(), Some(2));
    assert_eq!(none.revert(&["--opened-at", "soon"]).status.code(), Some(2));
}

// holds: HR-13
#[test]
fn an_undecided_window_goes_back_and_a_late_confirm_is_refused() {
    for arguments in [&[][..], &["--at-start"], &["--opened-at", "1764500000"]] {
        let machine = Machine::with_a_window("another boot");
        let said = machine.revert(arguments);
        assert_eq!(said.status.code(), Some(0), "{said:?}");
        assert_eq!(machine.content(), "old", "{arguments:?}");
        let FoundVerdict::Given(verdict) = machine.verdict() else {
            unreachable!("the host reads what the launcher has written: {said:?}")
        };
        assert_eq!(verdict.decided, Decided::Reverted);
        let late = window::decide(&machine.disk(), &Verdict::confirmed(2)).unwrap_err();
        assert!(late.is_exists(), "{late}");
        assert_eq!(machine.verdict(), FoundVerdict::Given(verdict));
    }
    // A verdict that a cut has halved is one for the way back, as the host has it.
    let machine = Machine::with_a_window("boot");
    fs::write(
        machine.state().join("window/verdict.json"),
        "{\"version\":1,\"deci",
    )
    .unwrap();
    assert_eq!(machine.revert(&[]).status.code(), Some(0));
    assert_eq!(machine.content(), "old");
}

// holds: HR-13
#[test]
fn of_host_and_launchers_who_decide_at_once_one_does_and_the_machine_is_as_it_says() {
    let mut ends = BTreeMap::new();
    for round in 0..60 {
        let machine = Machine::with_a_window("boot");
        let launchers: Vec<_> = (0..2).map(|_| machine.launcher(&[]).spawn().unwrap()).collect();
        // Each round a little later.
        std::thread::sleep(std::time::Duration::from_micros(round * 100));
        let confirmed = window::decide(&machine.disk(), &Verdict::confirmed(1));
        for mut launcher in launchers {
            assert_eq!(launcher.wait().unwrap().code(), Some(0));
        }
        let end = match (confirmed, machine.content().as_str()) {
            (Ok(()), "new") => "confirmed",
            (Err(e), "old") if e.is_exists() => "reverted",
            other => unreachable!("{other:?}"),
        };
        *ends.entry(end).or_insert(0) += 1;
    }
    assert_eq!(ends.len(), 2, "both must have been first at times: {ends:?}");
}

/// A small file system, unmounted in the end.
struct Small(std::path::PathBuf);
impl Drop for Small {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg(&self.0).status();
    }
}

// holds: HR-13
#[test]
fn on_a_full_disk_the_room_that_the_host_reserved_is_given_back_for_the_verdict() {
    let machine = Machine::new();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=1m", "meshplan-test"]);
    let mounted = mount.arg(machine.state()).output().unwrap();
    if !mounted.status.success() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{mounted:?}");
        println!("skipped: no small file system can be mounted here");
        return;
    }
    let small = Small(machine.state());
    machine.write("f", "new", 0o644);
    let acts = [put_file("/f", "old", 0o600)];
    machine.open(&acts, &["old"], "boot", WindowState::AwaitingConfirm);
    fs::write(small.0.join("lock"), "").unwrap();
    fs::write(small.0.join("reserve"), [0; 64 * 1024]).unwrap();
    let mut filler = fs::File::create(small.0.join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[0; 4096]).is_ok() {}
    let full = window::decide(&machine.disk(), &Verdict::confirmed(1)).unwrap_err();
    assert!(full.is_no_room(), "{full}");
    let said = machine.revert(&[]);
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    assert_eq!(machine.content(), "old");
    assert!(matches!(machine.verdict(), FoundVerdict::Given(v) if v.decided == Decided::Reverted));
}

// holds: HR-13, HK-1
#[test]
fn what_cannot_be_put_back_is_said_and_hinders_nothing_else() {
    let machine = Machine::new();
    machine.write("f", "new", 0o644);
    machine.write("outside/x", "untouched", 0o644);
    symlink("outside", machine.root().join("planted")).unwrap();
    let is_root = own().0 == 0;
    if is_root {
        lchown(machine.root().join("planted"), Some(1000), Some(1000)).unwrap();
        chown(machine.root().join("outside"), Some(1000), Some(1000)).unwrap();
    }
    fs::create_dir_all(machine.root().join("full/of-things")).unwrap();
    let mut acts = vec![
        remove("/full"),
        entry("root", "/y", "{\"fly\":{}}").replace("fly", "put_link"),
        put_file("/f", "old", 0o600),
    ];
    if is_root {
        acts.push(put_file("/planted/x", "old", 0o600));
    }
    // As a build that knows more would write it: the host's own reader is not asked.
    let machine_with = |acts: &[String]| {
        machine.open(
            &[put_file("/f", "old", 0o600)],
            &["old"],
            "boot",
            WindowState::Applying,
        );
        let text = format!("{{\"version\":1,\"acts\":[{}]}}", acts.join(","));
        fs::write(machine.state().join("window/journal.json"), text).unwrap();
    };
    machine_with(&acts);
    let said = machine.revert(&[]);
    let words = String::from_utf8(said.stderr).unwrap();
    assert_eq!(said.status.code(), Some(1), "{words}");
    assert!(
        words.contains("/full cannot be removed") && words.contains("does not know"),
        "{words}"
    );
    assert_eq!(machine.content(), "old");
    assert!(machine.root().join("full/of-things").is_dir());
    assert_eq!(
        fs::read_to_string(machine.root().join("outside/x")).unwrap(),
        "untouched"
    );
    assert_eq!(words.contains("/planted/x cannot be put back"), is_root);

    fs::write(
        machine.state().join("window/journal.json"),
        "{\"version\":2,\"acts\":[]}",
    )
    .unwrap();
    assert_eq!(
        machine.revert(&[]).status.code(),
        Some(5),
        "a version that it does not know"
    );
    fs::write(machine.state().join("window/journal.json"), "").unwrap();
    assert_eq!(machine.revert(&[]).status.code(), Some(5), "nothing to read");
}
