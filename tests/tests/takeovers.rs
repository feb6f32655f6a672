//! A container becomes a process (HK-7), with a real service manager and a real engine: the machine is booted, and its
//! engine's socket is that of a Docker beside it.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use meshplan_reconciler::edge::clock::Clock;
use scenarios::site::Site;
use scenarios::skip::skip;
use serde_json::Value;

const MODULE: &str = "modules/app/module.toml";

const CONTAINER: &str = r#"
description = "A program in a container"
roles = ["edge"]

[[container]]
id = "old"
image = "box:1"
command = ["sleep", "100000"]
host_network = true
"#;

/// The container is gone from the module, and a process takes over from it.
fn process(command: &str) -> String {
    format!(
        r#"
description = "A program as a process"
roles = ["edge"]

[[process]]
id = "taker"
command = ["/bin/sh", "-c", "{command}"]
replaces = ["old"]
"#
    )
}

/// Docker in name spaces of its own; dropped, all that it made is gone.
struct Engine {
    child: Child,
    folder: tempfile::TempDir,
}

impl Engine {
    /// None where it cannot be had, which is said.
    fn start() -> Result<Option<Self>> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let is_had = |tool: &str| {
            let sbin = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
            std::env::split_paths(&path)
                .chain(sbin)
                .any(|folder| folder.join(tool).is_file())
        };
        if let Some(tool) = ["dockerd", "runc", "busybox", "ip"]
            .into_iter()
            .find(|tool| !is_had(tool))
        {
            skip("a container engine", &format!("not installed: {tool}"))?;
            return Ok(None);
        }
        let folder = tempfile::Builder::new().prefix("mp").tempdir_in("/tmp")?;
        let at = folder.path().display();
        fs::create_dir(folder.path().join("journal"))?;
        // What containers say goes to the journal, which nobody reads here.
        let journal = UnixDatagram::bind(folder.path().join("journal/socket"))?;
        std::thread::spawn(move || {
            let mut bytes = vec![0; 65536];
            while journal.recv(&mut bytes).is_ok() {}
        });
        let script = format!(
            "set -e; ip link set lo up; mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/journal; \
             mount --bind {at}/journal /run/systemd/journal; exec /usr/sbin/dockerd --data-root {at}/data \
             --exec-root {at}/exec -H unix://{at}/engine.sock -p {at}/pid --iptables=false --ip6tables=false \
             --bridge=none --storage-driver vfs"
        );
        let log = fs::File::create(folder.path().join("log"))?;
        let child = Command::new("unshare")
            .args([
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["--propagation", "private", "sh", "-c", &script])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("unshare starts")?;
        let engine = Self { child, folder };
        let until = Instant::now() + Duration::from_secs(90);
        while !engine
            .ask("GET", "/_ping", b"")
            .is_ok_and(|answer| answer.contains(" 200 "))
        {
            let log = fs::read_to_string(engine.folder.path().join("log")).unwrap_or_default();
            ensure!(Instant::now() < until, "dockerd does not start:\n{log}");
            std::thread::sleep(Duration::from_millis(100));
        }
        engine.load()?;
        Ok(Some(engine))
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("engine.sock")
    }

    /// The whole answer.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> Result<String> {
        let mut stream = UnixStream::connect(self.socket())?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/x-tar\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// An image of one program: `box:1`.
    fn load(&self) -> Result<()> {
        let bin = self.folder.path().join("image/bin");
        fs::create_dir_all(&bin)?;
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new);
        let busybox = busybox
            .into_iter()
            .find(|path| path.exists())
            .context("just looked")?;
        fs::copy(busybox, bin.join("busybox"))?;
        std::os::unix::fs::symlink("busybox", bin.join("sleep"))?;
        let mut tar = Command::new("tar");
        tar.arg("-C")
            .arg(self.folder.path().join("image"))
            .args(["-cf", "-", "."]);
        let tar = tar.output()?.stdout;
        let made = self.ask("POST", "/images/create?fromSrc=-&repo=box&tag=1", &tar)?;
        ensure!(made.contains(" 200 ") && made.contains("sha256:"), "{made}");
        Ok(())
    }

    /// Id and start of the container of this name; none where none runs.
    fn container(&self, name: &str) -> Result<Option<(String, String)>> {
        let answer = self.ask("GET", &format!("/containers/{name}/json"), b"")?;
        if answer.contains(" 404 ") {
            return Ok(None);
        }
        let json: Value = serde_json::from_str(body(&answer)?).with_context(|| answer.clone())?;
        if json["State"]["Running"] != true {
            return Ok(None);
        }
        let text = |value: &Value| value.as_str().map(str::to_owned).context("a text");
        Ok(Some((text(&json["Id"])?, text(&json["State"]["StartedAt"])?)))
    }

    /// When a container of this name died last, unix seconds.
    fn died(&self, name: &str) -> Result<Option<u64>> {
        let until = Clock::system().now().as_second() + 1;
        let answer = self.ask("GET", &format!("/events?since=1&until={until}"), b"")?;
        let events = answer
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let died =
            events.filter(|event| event["Action"] == "die" && event["Actor"]["Attributes"]["name"] == name);
        Ok(died.filter_map(|event| event["time"].as_u64()).max())
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The object in an answer, whole or in pieces.
fn body(answer: &str) -> Result<&str> {
    let (from, to) = answer.find('{').zip(answer.rfind('}')).context("no object")?;
    answer.get(from..=to).context("no object")
}

fn show(site: &Site, property: &str) -> Result<String> {
    let property = format!("--property={property}");
    let command = [
        "systemctl",
        "show",
        "--timestamp=unix",
        &property,
        "--value",
        "taker.service",
    ];
    Ok(site.machine.say(&command)?.trim().to_owned())
}

// holds: HK-7, HK-6, HK-8
#[test]
fn a_container_becomes_a_process_and_there_is_no_moment_in_which_neither_runs() -> Result<()> {
    let Some(engine) = Engine::start()? else {
        return Ok(());
    };
    let Some(mut site) = Site::with_host("takeover")? else {
        return Ok(());
    };
    site.machine.answers_at("/run/docker.sock", &engine.socket())?;
    site.world.merge(MODULE, CONTAINER)?;
    site.poll("the container runs", |_| Ok(engine.container("old")?.is_some()))?;
    let first = site.confirmed("the container")?;
    let ran = engine.container("old")?.context("just seen")?;

    // One that dies is taken back, and the container was never touched for it.
    let commit = site.world.merge(MODULE, &process("sleep 3; exit 1"))?;
    site.world.wait_for(&commit, "rolled-back")?;
    site.poll("it is back", |site| {
        let status = &site.host(&["status"])?["declaration"];
        Ok(status["state"] == "confirmed" && status["sequence"].as_u64() > Some(first))
    })?;
    ensure!(
        engine.container("old")?.as_ref() == Some(&ran),
        "it is another one, or was started anew"
    );
    ensure!(engine.died("old")?.is_none());
    ensure!(
        site.machine
            .run(&["systemctl", "is-active", "taker.service"])?
            .out
            != "active\n"
    );

    let commit = site.world.merge(MODULE, &process("exec sleep infinity"))?;
    site.poll("the container is gone", |_| {
        Ok(engine.container("old")?.is_none())
    })?;
    site.world.wait_for(&commit, "delivering")?;
    site.poll("it is confirmed", |site| {
        let status = &site.host(&["status"])?["declaration"];
        let former = engine.ask("GET", "/containers/old.meshplan-old/json", b"")?;
        Ok(status["state"] == "confirmed" && former.contains(" 404 "))
    })?;
    ensure!(show(&site, "ActiveState")? == "active" && show(&site, "NRestarts")? == "0");
    let since = show(&site, "ActiveEnterTimestamp")?;
    let since: u64 = since
        .trim_start_matches('@')
        .parse()
        .with_context(|| since.clone())?;
    let died = engine.died("old")?.context("it was stopped")?;
    // Two looks ten seconds apart lie between; both clocks are read in whole seconds.
    ensure!(
        died >= since + 9,
        "the process came up at {since}, and the container went at {died}"
    );
    Ok(())
}
