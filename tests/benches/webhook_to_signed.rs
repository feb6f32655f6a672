//! Scoreboard metric 1: from the POST of a signed webhook to the signed declaration in the hands of the node that a
//! merge changes, in turns with a peer that fetches the same commit and does nothing else.
//!
//! `cargo bench --bench webhook_to_signed [-- --large]`. The service is the real program with its database, its keys
//! and a bare repository over loopback HTTP; the end is seen by the node's own session, so what has come was stored
//! and published. The peer is Debian's `webhook` running `git fetch` where it is installed, else `git fetch` alone,
//! which is the harder peer. The floor is R <= 1.2 and a p99 of at most 150 ms.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use scenarios::ground::{Ground, git};
use scenarios::measure::{Disk, Times, cpu, load, proc_number};
use scenarios::program::{Program, Said, clean};

fn main() -> Result<()> {
    let large = std::env::args().any(|arg| arg == "--large");
    let rounds = if large { 200 } else { 50 };
    println!(
        "webhook to signed: {rounds} merges that change one node, in turns with {}; load {}",
        Peer::named(),
        load()
    );
    println!(
        " nodes   accepted   signed p50    p95     p99   peer p50    p95   R, median of rounds   CPU a merge   peak RSS   fdatasync"
    );
    for nodes in [10, 1_000, 10_000] {
        measure(nodes, rounds)?;
    }
    println!(
        "floor: R 1.2, p99 150 ms at 10,000 nodes; CPU a merge is all that the service does for it, the note's push included"
    );
    Ok(())
}

fn measure(nodes: usize, rounds: usize) -> Result<()> {
    let mut ground = Ground::lay(nodes)?;
    let mut disk = Disk::of(ground.folder())?;
    let peer = Peer::start(&ground)?;
    let (mut accepted, mut signed, mut theirs) = (Times::default(), Times::default(), Times::default());
    let mut used = Duration::ZERO;
    // One more in front, which warms both and is dropped.
    for round in 0..=rounds {
        let notes = ground.notes();
        let commit = ground.repo().merge(round)?;
        let peer_first = round % 2 == 1;
        let mut fetched = Duration::ZERO;
        if peer_first {
            fetched = peer.fetch(&commit)?;
        }
        let before = cpu(ground.pid())?;
        let arrived = ground.deliver(&commit)?;
        // The note and its push come after; they must not be measured with the peer.
        ground.settle(notes)?;
        let after = cpu(ground.pid())?;
        if !peer_first {
            fetched = peer.fetch(&commit)?;
        }
        disk.measure()?;
        if round > 0 {
            accepted.add(arrived.accepted);
            signed.add(arrived.published);
            theirs.add(fetched);
            used += after.saturating_sub(before);
        }
    }
    let peak = proc_number(ground.pid(), "status", "VmHWM")? / 1024;
    let cpu = used.as_secs_f64() * 1000.0 / f64::from(u32::try_from(rounds)?);
    println!(
        "{nodes:>6}  {:>6.1} ms   {:>7.1} ms {:>6.1}  {:>6.1}  {:>6.1} ms {:>6.1}   {:<20}  {cpu:>6.0} ms     {peak:>5} MiB   {:.2} ms",
        accepted.ms(50),
        signed.ms(50),
        signed.ms(95),
        signed.ms(99),
        theirs.ms(50),
        theirs.ms(95),
        signed.over(&theirs).to_string(),
        disk.p50(),
    );
    Ok(())
}

/// Somebody else who fetches when a webhook comes.
enum Peer {
    Webhook {
        program: Program,
        address: SocketAddr,
        clone: PathBuf,
    },
    Git {
        clone: PathBuf,
    },
}

impl Peer {
    fn installed() -> bool {
        let version = Command::new("webhook").arg("-version").output();
        version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).starts_with("webhook version"))
    }

    fn named() -> &'static str {
        if Self::installed() {
            "Debian's `webhook` running `git fetch`"
        } else {
            "`git fetch` alone (`webhook` is not installed)"
        }
    }

    fn start(ground: &Ground) -> Result<Self> {
        let clone = ground.folder().join("peer.git");
        let target = clone.to_str().context("a path in UTF-8")?;
        git(
            ground.folder(),
            &["clone", "--quiet", "--bare", &ground.forge_url(), target],
        )?;
        if !Self::installed() {
            return Ok(Self::Git { clone });
        }
        let script = ground.folder().join("fetch.sh");
        fs::write(&script, format!("#!/bin/sh\nexec git {}\n", FETCH.join(" ")))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        let hooks = ground.folder().join("hooks.json");
        // It answers when the command has ended; it checks no signature, which is in its favour.
        let hook = serde_json::json!([{
            "id": "fetch", "execute-command": script, "command-working-directory": clone,
            "include-command-output-in-response": true,
        }]);
        fs::write(&hooks, hook.to_string())?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = clean("webhook", ground.folder());
        command
            .arg("-hooks")
            .arg(&hooks)
            .args(["-ip", "127.0.0.1", "-port"]);
        command.arg(address.port().to_string());
        let program = Program::start("webhook", command, ground.folder().join("webhook.log"))?;
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(address).is_err() {
            ensure!(
                Instant::now() < deadline,
                "webhook does not listen: {}",
                program.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Self::Webhook {
            program,
            address,
            clone,
        })
    }

    /// From the call to the fetched commit.
    fn fetch(&self, commit: &str) -> Result<Duration> {
        let since = Instant::now();
        let (took, clone) = match self {
            Self::Git { clone } => {
                let mut fetch = clean("git", clone);
                fetch.current_dir(clone).args(FETCH);
                Said::of(fetch)?.ok()?;
                (since.elapsed(), clone)
            }
            Self::Webhook {
                program,
                address,
                clone,
            } => {
                let status = post(*address)?;
                let took = since.elapsed();
                ensure!(
                    status.contains(" 200 "),
                    "webhook says {status}: {}",
                    program.log()
                );
                (took, clone)
            }
        };
        has(clone, commit)?;
        Ok(took)
    }
}

const FETCH: [&str; 4] = ["fetch", "--quiet", "origin", "+refs/heads/main:refs/heads/main"];

fn post(address: SocketAddr) -> Result<String> {
    use std::io::{Read as _, Write as _};
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "POST /hooks/fetch HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

fn has(clone: &Path, commit: &str) -> Result<()> {
    let tip = git2::Repository::open_bare(clone)?.refname_to_id("refs/heads/main")?;
    ensure!(tip.to_string() == commit, "the peer has {tip} and not {commit}");
    Ok(())
}
