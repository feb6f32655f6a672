//! Scoreboard metrics 14 and 2: how costs grow with the fleet, one table with an exponent fitted to each line; and how many
//! instructions composing costs a node.
//!
//! `./bench growth [--large]`. Sizes 100, 1,000, 10,000 and 30,000, with `--large` 100,000 too. Times are medians of
//! [`ROUNDS`]; memory is the peak of a process of its own that composes once, less that of one that only opens the mirror.
//! Instructions are counted by `valgrind --tool=callgrind` of such processes at 1,000 and 2,000 nodes: the difference, so
//! that starting up does not count. No session and no host takes part.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use meshplan_reconciler::edge::activation::Waker;
use meshplan_reconciler::edge::clock::Clock;
use meshplan_reconciler::edge::mirror::{Mirror, Remote};
use meshplan_reconciler::edge::store::Store;
use meshplan_reconciler::edge::store::reports::{ReportWriter, Taken};
use meshplan_reconciler::edge::tree_reader::{Entries, TreeReader};
use meshplan_reconciler::pure::compose::{Composed, Expected};
use meshplan_reconciler::pure::decide::Tree;
use meshplan_reconciler::pure::example::generate;
use meshplan_reconciler::pure::parse::parse;
use meshplan_reconciler::pure::preview::preview;
use meshplan_reconciler::pure::preview::text::lines;
use meshplan_reconciler::pure::roll_call::{RollCall, Which};
use meshplan_reconciler::pure::snapshot::NodeState;
use meshplan_reconciler::pure::source_tree::{EntryKind, SourceTree};
use meshplan_reconciler::pure::validate::validate;
use meshplan_schemas::ident::{CommitId, NodeId};
use meshplan_schemas::report::Report;
use scenarios::ground::FleetRepo;
use scenarios::measure::{Times, exponent, load, proc_number};
use serde_json::json;
use tokio::task::JoinSet;
use uuid::Uuid;

const ROUNDS: usize = 5;
/// One node changed and changed back, so many times in a round.
const CHANGES: usize = 10;
/// Reports of a round, and how many of them wait for the disk together: as many as the smallest fleet has nodes.
const REPORTS: usize = 1_000;
const IN_FLIGHT: usize = 100;
/// As long as a sealed report of a machine with a few resources.
const ENVELOPE_BYTES: usize = 600;
/// The seed of every fleet.
const SEED: u64 = 7;
/// Between which sizes instructions are counted.
const COUNTED: [usize; 2] = [1_000, 2_000];
/// By which a process is told to compose once: the mirror and the commit follow.
const ONCE: &str = "--once";
/// Instead of a commit: the mirror is opened and nothing composed.
const NOTHING: &str = "nothing";
/// Behind the commit: it is read from git and nothing made of it.
const READ: &str = "read";

/// What is measured: its name, its unit, and the exponent that it should have; none where nobody has said one.
const LINES: [(&str, &str, Option<f64>); 10] = [
    ("compose all, from git objects", "ms", Some(1.0)),
    ("peak memory of it, ours", "MiB", Some(1.0)),
    ("parse and validate, from memory", "ms", Some(1.0)),
    ("compose after one change, from git", "ms", Some(0.0)),
    ("preview of that change", "ms", None),
    ("preview of a whole new fleet, text", "chars", Some(0.0)),
    ("status query: a page and its JSON", "ms", Some(0.0)),
    ("report insert over as many stored", "us", Some(0.0)),
    ("what a pass reads after one report", "ms", Some(0.0)),
    ("fetch of a commit over as many before", "ms", Some(0.0)),
];
/// How far above its exponent a line may be.
const FLOOR: f64 = 0.3;
const ELSEWHERE: &str = "gate evaluation per report is measured by `rollout`, fan-out by `sessions`";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|a| a == ONCE) {
        let mirror = arguments.get(at + 1).context("the mirror's folder")?;
        let commit = arguments.get(at + 2).context("the commit")?;
        let read_alone = arguments.get(at + 3).is_some_and(|word| word == READ);
        return once(Path::new(mirror), commit, read_alone);
    }
    let mut sizes = vec![100, 1_000, 10_000, 30_000];
    if arguments.iter().any(|a| a == "--large") {
        sizes.push(100_000);
    }
    println!("growth with the fleet; {ROUNDS} rounds; load {}", load());
    let mut columns = Vec::new();
    for size in &sizes {
        columns.push(measure(*size)?);
    }
    let head: String = sizes.iter().map(|size| format!("{size:>10}")).collect();
    println!("{:<38}{head}  exponent  floor", "nodes");
    for (at, (name, unit, expected)) in LINES.iter().enumerate() {
        let costs: Vec<f64> = columns.iter().map(|column| column[at]).collect();
        let points: Vec<(f64, f64)> = sizes
            .iter()
            .zip(&costs)
            .map(|(size, cost)| Ok((f64::from(u32::try_from(*size)?), *cost)))
            .collect::<Result<_>>()?;
        let grows = exponent(&points);
        let figures: String = costs.iter().map(|cost| format!("{cost:>10.2}")).collect();
        let floor = match expected {
            None => "none".to_owned(),
            Some(of) if grows <= of + FLOOR => format!("{:.1}, held", of + FLOOR),
            Some(of) => format!("{:.1}, MISSED", of + FLOOR),
        };
        println!(
            "{:<38}{figures}  {grows:>8.3}  {floor}",
            format!("{name}, {unit}")
        );
    }
    println!("{ELSEWHERE}");
    instructions()
}

/// One size: a figure for each of [`LINES`].
fn measure(nodes: usize) -> Result<[f64; LINES.len()]> {
    let folder = tempfile::tempdir()?;
    let ground = Ground::new(folder.path(), nodes)?;
    let (mut whole, mut change) = <(Times, Times)>::default();
    let (mut checking, mut previewing, mut asking) = <(Times, Times, Times)>::default();
    let tree = in_memory(nodes);
    let mut chars = 0;
    for round in 0..=ROUNDS {
        let since = Instant::now();
        let (mut mirror, mut reader) = (open(&ground.mirror)?, TreeReader::new(Expected::default()));
        let before = read(&mut mirror, &mut reader, &ground.first)?;
        let took = since.elapsed();
        ensure!(before.nodes.len() == nodes, "{} nodes", before.nodes.len());
        let mut after = Arc::clone(&before);
        let mut changes = Times::default();
        for to in [&ground.second, &ground.first]
            .into_iter()
            .cycle()
            .take(CHANGES + 1)
        {
            let since = Instant::now();
            let entries = reader.read(&mut mirror, to)?;
            ensure!(
                matches!(&entries, Entries::Changed(one) if one.len() == 1),
                "{entries:?}"
            );
            after = composed(reader.compose(to, entries))?;
            changes.add(since.elapsed());
        }

        let since = Instant::now();
        let (documents, findings) = parse(&tree);
        let validated = validate(documents);
        let checked = since.elapsed();
        ensure!(findings.is_empty() && validated.is_ok_and(|tree| tree.nodes().len() == nodes));

        let since = Instant::now();
        let of_change = preview(Some(&before), &after)?;
        let previewed = since.elapsed();
        ensure!(
            of_change.nodes_changed.len() == 1,
            "{:?}",
            of_change.nodes_changed
        );

        let heard = heard(&before)?;
        let ids: Vec<NodeId> = before.nodes.keys().copied().collect();
        let mut roll = RollCall::default();
        roll.enter(&before, &heard);
        roll.moved(&ids.iter().step_by(2).map(|id| (*id, true)).collect(), &heard);
        let since = Instant::now();
        // What changes from one look of a person to the next: a tree of which one node is new, reports, sessions.
        roll.enter(&after, &heard);
        roll.told(&ids[..IN_FLIGHT], &heard);
        roll.moved(&ids[..IN_FLIGHT].iter().map(|id| (*id, true)).collect(), &heard);
        let page = roll.page(&Which::default(), &heard);
        let said = serde_json::to_vec(&page)?;
        let asked = since.elapsed();
        ensure!(said.len() > page.nodes.len() && page.counts.nodes == nodes);

        if round > 0 {
            whole.add(took);
            checking.add(checked);
            previewing.add(previewed);
            asking.add(asked);
            // The first of a round is the first that the reader ever took.
            change.add(std::time::Duration::from_secs_f64(changes.ms(50) / 1000.0));
        } else {
            let shown = lines(&preview(None, &before)?);
            chars = shown.iter().map(|line| line.text.chars().count() + 1).sum();
        }
    }
    let (insert_us, snapshot_ms) = reports(folder.path(), nodes)?;
    Ok([
        whole.ms(50),
        ground.peak_mib()?,
        checking.ms(50),
        change.ms(50),
        previewing.ms(50),
        f64::from(u32::try_from(chars)?),
        asking.ms(50),
        insert_us,
        snapshot_ms,
        fetched_ms(folder.path(), nodes)?,
    ])
}

/// A repository, a mirror of it, and two commits of which the second changes one node.
struct Ground {
    mirror: std::path::PathBuf,
    first: CommitId,
    second: CommitId,
}

impl Ground {
    fn new(folder: &Path, nodes: usize) -> Result<Self> {
        let repo = FleetRepo::new(&folder.join("fleet.git"), nodes, |_, text| text)?;
        let first: CommitId = repo.tip()?.parse()?;
        let second: CommitId = repo.merge(1)?.parse()?;
        let mirror = folder.join("mirror");
        Mirror::open(&mirror, remote(repo.folder())?)?.fetch()?;
        Ok(Self {
            mirror,
            first,
            second,
        })
    }

    fn peak_mib(&self) -> Result<f64> {
        let with = self.once(
            &mut Command::new(std::env::current_exe()?),
            self.first.as_str(),
            None,
        )?;
        let without = self.once(&mut Command::new(std::env::current_exe()?), NOTHING, None)?;
        let kib: u64 = with.0.trim().parse()?;
        let base: u64 = without.0.trim().parse()?;
        Ok(f64::from(u32::try_from(kib.saturating_sub(base))?) / 1024.0)
    }

    /// Runs this program, or another that runs it, to compose once; what it says and what it complains of.
    fn once(&self, program: &mut Command, commit: &str, only: Option<&str>) -> Result<(String, String)> {
        let program = program.arg(ONCE).arg(&self.mirror).arg(commit).args(only);
        let output = program.output()?;
        let errors = String::from_utf8(output.stderr)?;
        ensure!(output.status.success(), "{errors}");
        Ok((String::from_utf8(output.stdout)?, errors))
    }
}

/// What fetching one commit costs that comes after so many others, in milliseconds.
fn fetched_ms(folder: &Path, commits: usize) -> Result<f64> {
    let repo = folder.join("long.git");
    let path = repo.to_str().context("a path in UTF-8")?;
    git(&["init", "--quiet", "--bare", "--initial-branch=main", path], "")?;
    let add = |from: usize, to: usize| {
        let mut stream = String::new();
        for n in from..to {
            let after = if n == 0 { "" } else { "from refs/heads/main^0\n" };
            let after = if n == from { after } else { "" };
            stream.push_str(&format!(
                "commit refs/heads/main\ncommitter Dana <dana@example.org> {} +0000\ndata 6\nchange\n{after}\
                 M 100644 inline file-{}\ndata <<END\n{n}\nEND\n\n",
                1_700_000_000 + n,
                n % 100
            ));
        }
        git(&["-C", path, "fast-import", "--quiet"], &stream)
    };
    add(0, commits)?;
    let mut mirror = Mirror::open(&folder.join("of-long"), remote(&repo)?)?;
    mirror.fetch()?;
    let mut times = Times::default();
    for round in 0..=ROUNDS * 4 {
        add(commits + round, commits + round + 1)?;
        let since = Instant::now();
        let fetched = mirror.fetch()?;
        let took = since.elapsed();
        ensure!(fetched.head.is_some(), "the branch is gone");
        if round > 0 {
            times.add(took);
        }
    }
    Ok(times.ms(50))
}

/// Runs git with something on its standard input.
fn git(arguments: &[&str], input: &str) -> Result<()> {
    let mut child = Command::new("git")
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("its input")?
        .write_all(input.as_bytes())?;
    ensure!(child.wait()?.success(), "git {arguments:?}");
    Ok(())
}

fn remote(folder: &Path) -> Result<Remote> {
    Ok(Remote {
        url: folder.to_str().context("a path in UTF-8")?.to_owned(),
        branch: "main".to_owned(),
        credentials: None,
    })
}

fn open(mirror: &Path) -> Result<Mirror> {
    Ok(Mirror::open(mirror, remote(Path::new("/nonexistent"))?)?)
}

fn read(mirror: &mut Mirror, reader: &mut TreeReader, commit: &CommitId) -> Result<Arc<Composed>> {
    let entries = reader.read(mirror, commit)?;
    composed(reader.compose(commit, entries))
}

fn composed(tree: Tree) -> Result<Arc<Composed>> {
    match tree {
        Tree::Composed(composed) => Ok(composed),
        Tree::Invalid(why) | Tree::Gone(why) => bail!("{why}"),
    }
}

fn once(mirror: &Path, commit: &str, read_alone: bool) -> Result<()> {
    let mut mirror = open(mirror)?;
    let mut reader = TreeReader::new(Expected::default());
    let kept = match commit {
        NOTHING => None,
        commit if read_alone => {
            drop(reader.read(&mut mirror, &commit.parse()?)?);
            None
        }
        commit => Some(read(&mut mirror, &mut reader, &commit.parse()?)?),
    };
    println!("{}", proc_number(std::process::id(), "status", "VmHWM")?);
    drop((kept, reader));
    Ok(())
}

fn in_memory(nodes: usize) -> SourceTree {
    let entries = generate(nodes, SEED).into_iter();
    let entries = entries.map(|(path, bytes)| (path.into_bytes(), EntryKind::Blob, Arc::from(bytes)));
    SourceTree::from_entries(entries.collect()).0
}

fn report(node: NodeId, counter: u64) -> Result<Report> {
    Ok(serde_json::from_value(json!({
        "schema": 1, "fleet": "generated", "era": 0, "issued_at": 1_790_000_000, "node": node, "counter": counter,
        "boot_id": "boot", "instance": format!("instance-{counter}"), "started_at": 1_790_000_000, "host_version": "0.1.0",
        "cause": "start", "witness": 1, "marks": { "era": 0 },
    }))?)
}

/// Every node as heard from a moment ago.
fn heard(tree: &Composed) -> Result<BTreeMap<NodeId, NodeState>> {
    (tree.nodes.keys())
        .map(|id| {
            let state = NodeState {
                heard_at: Some(Clock::system().now()),
                report: Some(report(*id, 1)?),
                ..NodeState::default()
            };
            Ok((*id, state))
        })
        .collect()
}

/// What a report costs that is stored durably, [`IN_FLIGHT`] at once, where each of so many nodes has one already, in
/// microseconds; and what reading all that a pass reads costs then, in milliseconds.
fn reports(folder: &Path, nodes: usize) -> Result<(f64, f64)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let store = Store::open(&folder.join("meshplan.db"), Clock::system()).await?;
        let (writer, task) = ReportWriter::start(store.clone(), Waker::default());
        let ids: Vec<NodeId> = (0..nodes)
            .map(|n| Ok(NodeId(Uuid::from_u128(u128::try_from(n)? + 1))))
            .collect::<Result<_>>()?;
        for some in ids.chunks(IN_FLIGHT) {
            take(&writer, some, 1).await?;
        }
        let (mut inserts, mut snapshots) = <(Times, Times)>::default();
        for round in 0..=ROUNDS {
            // Of nodes from all over the table.
            let some: Vec<NodeId> = (0..REPORTS)
                .filter_map(|n| ids.get((n * 7_919) % ids.len()))
                .copied()
                .collect();
            let since = Instant::now();
            for (at, some) in some.chunks(IN_FLIGHT).enumerate() {
                take(&writer, some, u64::try_from(2 + round * REPORTS + at)?).await?;
            }
            let inserted = since.elapsed();
            store.snapshot().await?;
            // A pass after one report more: it reads what is new.
            take(&writer, &ids[..1], u64::try_from(1_000_000 + round)?).await?;
            let since = Instant::now();
            let snapshot = store.snapshot().await?;
            let gathered = since.elapsed();
            ensure!(snapshot.nodes.len() == nodes, "{} nodes", snapshot.nodes.len());
            if round > 0 {
                inserts.add(inserted);
                snapshots.add(gathered);
            }
        }
        drop(writer);
        task.await?;
        store.close().await;
        let each = f64::from(u32::try_from(REPORTS)?);
        Ok((inserts.ms(50) * 1000.0 / each, snapshots.ms(50)))
    })
}

async fn take(writer: &ReportWriter, nodes: &[NodeId], counter: u64) -> Result<()> {
    let mut waiting = JoinSet::new();
    for node in nodes {
        let (writer, node, report) = (writer.clone(), *node, report(*node, counter)?);
        let envelope = format!("{counter:>width$}", width = ENVELOPE_BYTES);
        waiting.spawn(async move { writer.take(node, counter, envelope, report).await });
    }
    while let Some(taken) = waiting.join_next().await {
        let taken = taken??;
        ensure!(taken == Taken::Stored, "{taken:?}");
    }
    Ok(())
}

/// Metric 2: instructions a node of composing a whole fleet from git objects.
fn instructions() -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("instructions a node: not measured, valgrind is not installed (Debian: valgrind)");
        return Ok(());
    }
    let mut counts = Vec::new();
    for nodes in COUNTED {
        let folder = tempfile::tempdir()?;
        let ground = Ground::new(folder.path(), nodes)?;
        counts.push([counted(&ground, None)?, counted(&ground, Some(READ))?]);
    }
    let [few, many]: [[u64; 2]; 2] = counts.try_into().ok().context("two counts")?;
    let more = u64::try_from(COUNTED[1] - COUNTED[0])?;
    let [all, reading] = [0, 1].map(|at: usize| many[at].saturating_sub(few[at]) / more);
    println!(
        "instructions a node, composed from git objects: {all}, of them {reading} reading; floor 150000, goal 60000 \
         ({} at {}, {} at {})",
        few[0], COUNTED[0], many[0], COUNTED[1]
    );
    Ok(())
}

/// The instructions of a process that composes once, or only reads.
fn counted(ground: &Ground, only: Option<&str>) -> Result<u64> {
    let mut callgrind = Command::new("valgrind");
    callgrind
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe()?);
    let (_, said) = ground.once(&mut callgrind, ground.first.as_str(), only)?;
    let collected = said
        .lines()
        .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected.with_context(|| format!("callgrind counts no instructions: {said}"))
}
