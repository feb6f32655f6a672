//! Scoreboard metric 6, a part of it: what an open session costs the reconciler in memory (LK-1: at most 7 KiB); and
//! metric 5: how long it takes until the last of them has an order that was published, and what that costs.
//!
//! `cargo bench --bench sessions [-- --large]`. The reconciler's `Mesh` in a process of its own, behind a desk that holds
//! nothing but records; the host's own link at the other end. Each node shakes hands, says hello, is sent a timestamp,
//! sends a start report, has it acknowledged, and stays. The figure is the slope of the resident memory over the number
//! of sessions, so that what the process holds without any does not count. What the kernel holds for a socket is not in
//! it.
//!
//! Then a declaration of a kilobyte is published, [`ORDERS`] times, each time to every session: the time until the last host
//! has it, as the hosts' process sees it, and the CPU of the reconciler's process. Both processes share the machine.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use meshplan_host::edge::link::{DIRECT, LinkEvent, Membership, ToLink, spawn};
use meshplan_reconciler::edge::artifacts::Piece;
use meshplan_reconciler::edge::mesh::{Desk, Mesh, Taken, Unavailable};
use meshplan_schemas::declaration::Declaration;
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Signer as _, SoftSigner, seal};
use meshplan_schemas::fleet_list::{Leaf, UpdateClass};
use meshplan_schemas::ident::{FleetName, NodeId};
use meshplan_schemas::key::{SigningKey, TransportKey};
use meshplan_schemas::report::Marks;
use meshplan_schemas::session::LinkSecret;
use meshplan_schemas::timestamp::Timestamp;
use meshplan_schemas::wire::{FromEnrolling, FromHost, ToEnrolling, ToHost};
use scenarios::measure::{Times, cpu, exponent, load, proc_number};
use serde_json::json;
use tokio::sync::mpsc::{Receiver, Sender};

/// A start report of a machine with some thirty resources, sealed.
const REPORT_BYTES: usize = 6_000;
/// So often an order is published at each step; the first time is not counted.
const ORDERS: usize = 8;
/// A declaration is some 1,000 bytes with so many names of roles in it.
const ROLES: usize = 40;
/// For every host to be where it should be.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> Result<()> {
    let flags: Vec<String> = std::env::args().collect();
    if flags.iter().any(|flag| flag == "--serve") {
        return serve();
    }
    let large = flags.iter().any(|flag| flag == "--large");
    let steps: &[u32] = if large {
        &[200, 2_000, 5_000, 8_000]
    } else {
        &[200, 1_000, 2_000]
    };
    println!(
        "memory of open sessions, and an order to all of them; load {}",
        load()
    );
    println!(
        " round  sessions   VmRSS          slope since {}   last has it, p50 / worst   CPU a host",
        steps.first().unwrap_or(&0)
    );
    let (mut slopes, mut last) = (Vec::new(), Vec::new());
    for round in 1..=3 {
        slopes.push(measure(round, steps, &mut last)?);
    }
    slopes.sort_by(f64::total_cmp);
    println!(
        "a session: {:.0} bytes, {:.2} KiB (least {:.0}, greatest {:.0}); floor: 7 KiB",
        slopes[1],
        slopes[1] / 1024.0,
        slopes[0],
        slopes[2]
    );
    println!("exponent of the fan-out: {:.2}; it should be 1", exponent(&last));
    Ok(())
}

/// Opens so many sessions at a fresh reconciler; the slope from the first step to the last, in bytes. Puts down for each step
/// how long a published order took to the last, in milliseconds.
fn measure(round: u32, steps: &[u32], last: &mut Vec<(f64, f64)>) -> Result<f64> {
    let mut reconciler = Reconciler::start()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let mut hosts = Vec::new();
    let (mut first, mut slope) = (None, f64::NAN);
    for step in steps {
        runtime.block_on(async {
            while hosts.len() < usize::try_from(*step)? {
                let n = u32::try_from(hosts.len())?;
                hosts.push(open(n, reconciler.address).await?);
            }
            anyhow::Ok(())
        })?;
        let bytes = proc_number(reconciler.child.id(), "status", "VmRSS")? * 1024;
        let (sessions, rss) = (f64::from(*step), f64::from(u32::try_from(bytes)?));
        let (base, from) = *first.get_or_insert((sessions, rss));
        slope = (rss - from) / (sessions - base);
        let (times, each) = runtime.block_on(fan_out(&mut reconciler, &mut hosts))?;
        last.push((sessions, times.ms(50)));
        println!(
            "{round:>6} {step:>9} {:>8} KiB {slope:>14.0} bytes {:>14.1} / {:.1} ms {each:>12.1} us",
            bytes / 1024,
            times.ms(50),
            times.ms(100)
        );
    }
    drop(hosts);
    reconciler.stop()?;
    Ok(slope)
}

/// Publishes an order to all, again and again: how long each took to the last, and the reconciler's CPU a host, in microseconds.
async fn fan_out(reconciler: &mut Reconciler, hosts: &mut [Host]) -> Result<(Times, f64)> {
    let mut times = Times::default();
    let mut before = Duration::ZERO;
    for order in 0..=ORDERS {
        if order == 1 {
            before = cpu(reconciler.child.id())?;
        }
        let since = Instant::now();
        reconciler.publish()?;
        let heard = async {
            for (_, events) in &mut *hosts {
                loop {
                    match events.recv().await {
                        Some(LinkEvent::Message(word)) if matches!(*word, ToHost::Order { .. }) => break,
                        Some(LinkEvent::Message(_) | LinkEvent::Up(_)) => {}
                        Some(LinkEvent::Down { why }) => bail!("a session is down: {why}"),
                        None => bail!("a link ended"),
                    }
                }
            }
            Ok(())
        };
        tokio::time::timeout(PATIENCE, heard)
            .await
            .context("everybody has the order in time")??;
        if order > 0 {
            times.add(since.elapsed());
        }
    }
    let spent = cpu(reconciler.child.id())?.saturating_sub(before).as_secs_f64() * 1_000_000.0;
    let told = f64::from(u32::try_from(ORDERS * hosts.len())?);
    Ok((times, spent / told))
}

/// Both ends of a host's link.
type Host = (Sender<ToLink>, Receiver<LinkEvent>);

/// A host that has a session and is up to date.
async fn open(n: u32, address: SocketAddr) -> Result<Host> {
    let membership = Membership {
        link: DIRECT.to_owned(),
        fleet: fleet()?,
        node: node(n),
        name: format!("n{n:05}").parse()?,
        addresses: vec![format!("ws://{address}/mesh")],
        reconciler_key: LinkSecret::from_bytes(&[9; 32])?.public(),
    };
    let (say, mut events) = spawn(membership, secret(n)?)?;
    let hello = FromHost::Hello {
        host_version: "0.1.0".into(),
        marks: Box::default(),
        instance: "bench".into(),
        boot_id: "bench".into(),
    };
    let report = FromHost::Report {
        counter: 1,
        envelope: "r".repeat(REPORT_BYTES),
    };
    let greeted = async {
        while let Some(event) = events.recv().await {
            match event {
                LinkEvent::Up(_) => say.send(ToLink::Say(Box::new(hello.clone()))).await?,
                LinkEvent::Message(word) => match *word {
                    ToHost::Current => say.send(ToLink::Say(Box::new(report.clone()))).await?,
                    ToHost::Ack { counter: 1 } => return Ok(()),
                    _ => {}
                },
                LinkEvent::Down { why } => bail!("the session was refused: {why}"),
            }
        }
        bail!("the link ended")
    };
    tokio::time::timeout(PATIENCE, greeted)
        .await
        .context("a session comes up in time")??;
    Ok((say, events))
}

fn fleet() -> Result<FleetName> {
    Ok("bench".parse()?)
}
fn node(n: u32) -> NodeId {
    NodeId(uuid::Uuid::from_u128(u128::from(n) + 1))
}
fn secret(n: u32) -> Result<LinkSecret> {
    let mut bytes = [1; 32];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    Ok(LinkSecret::from_bytes(&bytes)?)
}

/// The other process.
struct Reconciler {
    child: Child,
    address: SocketAddr,
}

impl Reconciler {
    fn start() -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("its output")?).read_line(&mut line)?;
        let address = line.trim().parse().context("it says where it listens")?;
        Ok(Self { child, address })
    }

    /// An order is there for everybody.
    fn publish(&mut self) -> Result<()> {
        let input = self.child.stdin.as_mut().context("its input")?;
        writeln!(input, "publish")?;
        Ok(input.flush()?)
    }

    fn stop(&mut self) -> Result<()> {
        // Its input ends.
        drop(self.child.stdin.take());
        ensure!(self.child.wait()?.success(), "the reconciler did not end well");
        Ok(())
    }
}

/// Serves until the input ends; each line of it is an order to everybody.
fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let mut out = std::io::stdout();
    writeln!(out, "{}", listener.local_addr()?)?;
    out.flush()?;
    let desk = Arc::new(Records::new()?);
    let mesh = Mesh::new(
        Arc::<Records>::clone(&desk),
        vec![LinkSecret::from_bytes(&[9; 32])?],
        fleet()?,
    );
    let app = mesh.router().into_make_service_with_connect_info::<SocketAddr>();
    runtime.spawn(async move { axum::serve(listener, app).await });
    for line in std::io::stdin().lines() {
        line?;
        desk.order()?;
        mesh.publish();
    }
    Ok(())
}

/// A desk that knows every key, keeps no report, and has the same orders for all.
struct Records {
    signer: SoftSigner,
    signing_key: SigningKey,
    timestamp: String,
    /// The newest declaration, and its number; 0 before the first.
    declaration: Mutex<(u64, String)>,
}

impl Records {
    fn new() -> Result<Self> {
        let signer = SoftSigner::new(None, &[5; 32])?;
        let timestamp = Timestamp {
            schema: 1,
            fleet: fleet()?,
            era: 1,
            issued_at: 1_800_000_000,
            must_understand: vec![],
            revision: 1,
            head: Digest::of(b""),
            block: None,
            valid_to: 1_900_000_000,
        };
        Ok(Self {
            signing_key: signer.public(),
            timestamp: String::from_utf8(seal(&timestamp, &signer)?)?,
            declaration: Mutex::default(),
            signer,
        })
    }

    /// Another declaration is there.
    fn order(&self) -> Result<()> {
        let mut newest = self.declaration.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = newest.0 + 1;
        let roles: Vec<String> = (0..ROLES).map(|n| format!("a-role-of-many-{n:02}")).collect();
        let declaration: Declaration = serde_json::from_value(json!({
            "schema": 1, "fleet": "bench", "era": 1, "issued_at": 1_800_000_000, "node": node(0), "sequence": sequence,
            "modules": [], "roles": roles, "resources": [], "apply_secs": 100, "confirm_secs": 100,
        }))?;
        *newest = (sequence, String::from_utf8(seal(&declaration, &self.signer)?)?);
        Ok(())
    }
}

impl Desk for Records {
    fn record_of(&self, key: TransportKey) -> BoxFuture<'_, Result<Option<Leaf>, Unavailable>> {
        let mut id = [0; 16];
        id.copy_from_slice(&Digest::of(key.as_bytes()).0[..16]);
        let leaf = Leaf {
            id: NodeId(uuid::Uuid::from_bytes(id)),
            name: "somebody".parse().expect("a name"),
            transport_key: key,
            signing_key: self.signing_key,
            next_transport_key: None,
            next_signing_key: None,
            rotations: vec![],
            address: None,
            lifeline: false,
            valid_to: 0,
            update_class: UpdateClass::Required,
            pinned: false,
        };
        async { Ok(Some(leaf)) }.boxed()
    }
    fn orders_for(&self, _: NodeId, marks: Marks) -> BoxFuture<'_, Result<Vec<ToHost>, Unavailable>> {
        let mut orders = vec![ToHost::Current];
        if marks.timestamp.is_none() {
            let envelope = self.timestamp.clone();
            orders.insert(0, ToHost::Order { envelope });
        }
        let newest = self.declaration.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.0 > marks.sequence.map_or(0, |mark| mark.number) {
            let envelope = newest.1.clone();
            orders.insert(0, ToHost::Order { envelope });
        }
        async { Ok(orders) }.boxed()
    }
    fn epoch_bytes(&self, _: Digest) -> BoxFuture<'_, Result<Option<String>, Unavailable>> {
        async { Ok(None) }.boxed()
    }
    fn artifact(&self, _: Digest, _: u64, _: u32) -> BoxFuture<'_, Result<Option<Piece>, Unavailable>> {
        async { Ok(None) }.boxed()
    }
    fn take_report(&self, _: NodeId, _: u64, _: String) -> BoxFuture<'_, Taken> {
        async { Taken::Stored }.boxed()
    }
    fn enrol(&self, _: FromEnrolling) -> BoxFuture<'_, ToEnrolling> {
        async { ToEnrolling::Refused }.boxed()
    }
    fn heartbeat_secs(&self) -> u32 {
        86_400
    }
    fn went_up(&self, _: NodeId) {}
    fn went_down(&self, _: NodeId) {}
}
