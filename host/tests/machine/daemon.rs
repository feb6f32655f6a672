//! Engines of a test's own, Docker's and Podman's, each in namespaces of its own, with which all that it made ends.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use meshplan_host::edge::command::Ended;
use meshplan_host::edge::disk::RealDisk;
use meshplan_host::edge::engine::{Engine, RealEngine};
use meshplan_host::edge::machine::{Machine, Setup};
use meshplan_host::edge::system::{RealSystem, System, Turn};
use meshplan_host::pure::filter::links::Links;
use meshplan_host::pure::unit::Unit;
use meshplan_schemas::resource::Resource;
use meshplan_schemas::resource::accounts::Manager;
use serde_json::{Value, json};

use crate::things::resource;

/// How long an engine may take to start.
const START: Duration = Duration::from_secs(90);

/// An engine of a test's own.
pub(crate) struct Daemon {
    child: Child,
    folder: tempfile::TempDir,
    /// What containers said to the journal.
    pub(crate) journal: Arc<Mutex<String>>,
}

impl Daemon {
    /// Starts it where it is had; else skips with a line, and with `CI=true` fails.
    fn start(program: &str, command: &str, settings: &str) -> Option<Self> {
        let lacks = [program, "unshare", "ip", "busybox", "runc"]
            .into_iter()
            .find(|tool| !is_had(tool));
        let lacks = lacks
            .map(str::to_owned)
            .or_else(|| (!rustix::process::geteuid().is_root()).then(|| "root".to_owned()));
        if let Some(lacks) = lacks {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "{program} needs {lacks}"
            );
            println!("skipped: {program} needs {lacks}");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("mp").tempdir_in("/tmp").unwrap();
        let at = folder.path();
        for name in ["journal", "root", "state", "out"] {
            fs::create_dir(at.join(name)).unwrap();
        }
        fs::write(at.join("settings"), settings).unwrap();
        let journal = Arc::new(Mutex::new(String::new()));
        listen(&at.join("journal/socket"), &journal);
        // Nothing that it mounts, makes or starts outlives the first process in these.
        let script = format!(
            "set -e; ip link set lo up; mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/journal; \
             mount --bind {at}/journal /run/systemd/journal; exec {command}",
            at = at.display()
        )
        .replace("@", at.to_str().unwrap());
        let log = fs::File::create(at.join("log")).unwrap();
        let child = Command::new("unshare")
            .args([
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "--propagation",
                "private",
            ])
            .args(["sh", "-c", &script])
            .env("CONTAINERS_CONF", at.join("settings"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let daemon = Self {
            child,
            folder,
            journal,
        };
        let until = Instant::now() + START;
        while !daemon
            .ask("GET", "/_ping", b"")
            .is_some_and(|answer| answer.contains(" 200 "))
        {
            assert!(
                Instant::now() < until,
                "{program} does not start:\n{}",
                daemon.log()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        daemon.load();
        Some(daemon)
    }

    pub(crate) fn docker() -> Option<Self> {
        Self::start(
            "dockerd",
            "/usr/sbin/dockerd --data-root @/data --exec-root @/exec -H unix://@/engine.sock -p @/pid --iptables=false \
             --ip6tables=false --bridge=none --storage-driver vfs",
            "",
        )
    }

    pub(crate) fn podman() -> Option<Self> {
        Self::start(
            "podman",
            "podman --root @/data --runroot @/exec --storage-driver vfs --events-backend file --runtime runc system \
             service --time 0 unix://@/engine.sock",
            "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=1024:1024\"]\n[engine]\nruntime = \"runc\"\n",
        )
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap_or_default()
    }

    /// Asks it by hand; the whole answer.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &[u8]) -> Option<String> {
        let mut stream = UnixStream::connect(self.at("engine.sock")).ok()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/x-tar\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(body).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Two images of one program: `box:1` and `box:2`.
    fn load(&self) {
        let tree = self.at("image");
        fs::create_dir_all(tree.join("bin")).unwrap();
        let busybox = ["/bin/busybox", "/usr/bin/busybox"]
            .into_iter()
            .find(|path| Path::new(path).exists());
        fs::copy(busybox.unwrap(), tree.join("bin/busybox")).unwrap();
        for name in ["sh", "sleep", "cat", "env", "true", "false", "echo", "touch"] {
            std::os::unix::fs::symlink("busybox", tree.join("bin").join(name)).unwrap();
        }
        for tag in ["1", "2"] {
            fs::write(tree.join("tag"), tag).unwrap();
            let tar = Command::new("tar")
                .arg("-C")
                .arg(&tree)
                .args(["-cf", "-", "."])
                .output()
                .unwrap();
            let path = format!("/images/create?fromSrc=-&repo=box&tag={tag}");
            let made = self.ask("POST", &path, &tar.stdout).unwrap();
            let id: String = made
                .split("sha256:")
                .nth(1)
                .unwrap_or_default()
                .chars()
                .take(64)
                .collect();
            let id = if id.len() == 64 { id } else { last_id(&made) };
            // Podman stores it without a name.
            let tagged = self
                .ask("POST", &format!("/images/{id}/tag?repo=box&tag={tag}"), b"")
                .unwrap();
            assert!(tagged.contains(" 201 "), "{made}\n{tagged}");
        }
    }

    pub(crate) fn engine(&self) -> RealEngine {
        RealEngine::at(&self.at("engine.sock"), Some(launcher()))
    }

    pub(crate) fn machine(&self) -> Machine {
        let setup = Setup {
            root: Arc::new(RealDisk::open(&self.at("root")).unwrap()),
            system: Arc::new(Quick {
                system: RealSystem::new(&self.at("root")).with_engine(self.engine()),
                engine: self.engine(),
            }),
            state: Arc::new(RealDisk::open(&self.at("state")).unwrap()),
            state_inside: None,
            boot_id: "boot".to_owned(),
            policy_out: None,
        };
        Machine::open(setup, 0).unwrap().0
    }

    /// A container that says who it is in the folder `out`, and stays.
    pub(crate) fn web(&self, fields: Value) -> Resource {
        let script = "cat /proc/self/status > /out/status; env > /out/env; cat /etc/hosts > /out/hosts; cat /tag > \
                      /out/tag; echo said-by-web; exec sleep 10000";
        let mut spec = json!({
            "name": "web", "image": "box:1", "run": "daemon", "restart": "always", "timeout_secs": 60, "stop_secs": 1,
            "witness": "none", "command": ["sh", "-c", script], "host_network": true,
            "mounts": [{ "source": self.at("out"), "target": "/out" }],
        });
        spec.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        resource("web", "container", spec)
    }

    pub(crate) fn id(&self, name: &str) -> Option<String> {
        self.engine().container(name).unwrap().map(|found| found.id)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .engine()
            .containers()
            .unwrap()
            .into_iter()
            .map(|one| one.name)
            .collect();
        names.sort();
        names
    }

    /// What the container wrote, once it is whole.
    pub(crate) fn said(&self, name: &str, has: &str) -> String {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let text = fs::read_to_string(self.at("out").join(name)).unwrap_or_default();
            if text.contains(has) {
                return text;
            }
            assert!(
                Instant::now() < until,
                "{name} has no {has:?}: {text}\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The first process of the namespace goes with this one, and with it all that is in it.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Hears what containers say.
fn listen(at: &Path, journal: &Arc<Mutex<String>>) {
    let socket = UnixDatagram::bind(at).unwrap();
    let journal = Arc::clone(journal);
    // It ends with the process of the test.
    std::thread::spawn(move || {
        let mut bytes = vec![0; 65536];
        while let Ok(len) = socket.recv(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
            journal.lock().unwrap().push_str(&text);
        }
    });
}

fn last_id(answer: &str) -> String {
    let hex: String = answer
        .chars()
        .map(|c| if c.is_ascii_hexdigit() { c } else { ' ' })
        .collect();
    let id = hex.split(' ').rfind(|word| word.len() == 64);
    id.unwrap_or_else(|| panic!("no id of an image: {answer}"))
        .to_owned()
}

fn is_had(tool: &str) -> bool {
    let folders = [
        "/usr/local/sbin",
        "/usr/local/bin",
        "/usr/sbin",
        "/usr/bin",
        "/sbin",
        "/bin",
    ];
    folders.iter().any(|folder| Path::new(folder).join(tool).exists())
}

pub(crate) fn launcher() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let built = exe.ancestors().nth(2).unwrap().join("meshplan-launcher");
    assert!(built.exists(), "{} is built with the workspace", built.display());
    built
}

/// The machine's, whose second look is a moment later.
#[derive(Debug)]
struct Quick {
    system: RealSystem,
    engine: RealEngine,
}

impl System for Quick {
    fn run(&self, argv: &[String], bound: Duration) -> Ended {
        self.system.run(argv, bound)
    }
    fn list(&self, argv: &[String], bound: Duration) -> Ended {
        self.system.list(argv, bound)
    }
    fn managers(&self) -> Vec<Manager> {
        self.system.managers()
    }
    fn unit(&self, _unit: &str) -> Result<Option<Unit>, String> {
        Err("no service manager is asked here".to_owned())
    }
    fn turn(&self, _unit: &str, _turn: Turn, _bound: Duration) -> Result<(), String> {
        Err("no service manager is asked here".to_owned())
    }
    fn read_units(&self) -> Result<(), String> {
        Err("no service manager is asked here".to_owned())
    }
    fn kernel(&self, path: &str) -> Result<Option<String>, String> {
        self.system.kernel(path)
    }
    fn links(&self) -> Result<Links, String> {
        self.system.links()
    }
    fn rest(&self, _time: Duration) {
        std::thread::sleep(Duration::from_secs(2));
    }
    fn engine(&self) -> &dyn Engine {
        &self.engine
    }
}

/// Makes a container by hand; the whole answer.
pub(crate) fn create(daemon: &Daemon, name: &str, body: &Value) -> String {
    let mut stream = UnixStream::connect(daemon.at("engine.sock")).unwrap();
    let body = body.to_string();
    let head = format!(
        "POST /containers/create?name={name} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
