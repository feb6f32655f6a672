//! Scoreboard metric 8: what an append to the journal costs at 10, 1,000 and 10,000 annotated commits (100,000 with
//! `--large`), in turns with `git notes append` in the same run.
//!
//! `cargo bench --bench notes [-- --large]`. Each append makes a block, signs it, writes it and moves the ref, on a
//! commit that had no note. The floor is R <= 1 and an exponent of at most 0.1.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use jiff::Timestamp;
use meshplan_reconciler::edge::mirror::{Mirror, NOTES_REF, Remote};
use meshplan_reconciler::edge::notes::{NotesWriter, SignedText};
use meshplan_reconciler::pure::note::{self, Block};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::{Signer as _, SoftSigner};
use meshplan_schemas::ident::CommitId;
use meshplan_schemas::lifecycle::delivery::{Code, State};

/// Appends measured at each size, in turns.
const TURNS: usize = 120;
/// Appends of a whole cycle of packing.
const CYCLE: usize = 500;

fn main() -> anyhow::Result<()> {
    let mut sizes = vec![10, 1_000, 10_000];
    if std::env::args().any(|arg| arg == "--large") {
        sizes.push(100_000);
    }
    println!(
        "append of one signed block; {TURNS} turns with `git notes append` at each size; load {}",
        load()
    );
    println!(
        "commits     ours p50    CPU  ours p99  git p50   R     objects  packing, ms an append  bytes packed"
    );
    let mut first: Option<(f64, f64)> = None;
    let mut worst: (f64, f64) = (0.0, 0.0);
    // None is deleted before the last is measured: ext4 searches past what anybody has just deleted, which says nothing
    // about an append.
    let mut grounds = Vec::new();
    for size in sizes {
        let ground = tempfile::tempdir()?;
        let row = measure(size, ground.path())?;
        grounds.push(ground);
        let ratio = row.ours_p50 / row.git_p50;
        println!(
            "{size:>7}  {:>8.2} ms {:>6.2} {:>6.2} ms {:>5.2} ms  {ratio:<5.2} {:>5.1}    {:>8.3}              {:>6.0}",
            row.ours_p50, row.ours_cpu, row.ours_p99, row.git_p50, row.objects, row.packing, row.bytes
        );
        let size = f64::from(u32::try_from(size)?);
        let (small, cost) = *first.get_or_insert((size, row.ours_cpu));
        let exponent = if size > small {
            (row.ours_cpu / cost).ln() / (size / small).ln()
        } else {
            0.0
        };
        worst = (worst.0.max(ratio), worst.1.max(exponent));
    }
    println!(
        "worst R {:.2} (floor 1), largest exponent of the CPU time {:.3} (floor 0.1)",
        worst.0, worst.1
    );
    Ok(())
}

struct Row {
    ours_p50: f64,
    ours_cpu: f64,
    ours_p99: f64,
    git_p50: f64,
    objects: f64,
    packing: f64,
    bytes: f64,
}

fn measure(size: usize, ground: &Path) -> anyhow::Result<Row> {
    let path = ground.join("mirror");
    let last = history(size, &path)?;
    let mut writer = Writer::new(open(&path)?.notes()?, last)?;
    let peer = ground.join("peer");
    prepare_peer(&peer, size)?;

    let (mut ours, mut ours_cpu, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let before = objects(&path)?;
    for turn in 0..TURNS {
        let before = cpu();
        ours.push(writer.append()?);
        ours_cpu.push(cpu().saturating_sub(before));
        theirs.push(peer_append(&peer, size + turn)?);
    }
    let grown = objects(&path)? - before;
    // The rest of a cycle, until the append that packs: its own time is that of all appends since the last.
    let packed_before = packed_bytes(&path)?;
    let mut slowest = Duration::ZERO;
    for _ in TURNS..CYCLE {
        slowest = slowest.max(writer.append()?);
    }
    let bytes = packed_bytes(&path)?.saturating_sub(packed_before);
    check(&path, size + CYCLE)?;
    Ok(Row {
        ours_p50: percentile(&mut ours, 50),
        ours_cpu: percentile(&mut ours_cpu, 50),
        ours_p99: percentile(&mut ours, 99),
        git_p50: percentile(&mut theirs, 50),
        objects: ratio(grown, TURNS)?,
        packing: slowest.as_secs_f64() * 1000.0 / ratio(CYCLE, 1)?,
        bytes: ratio(usize::try_from(bytes)?, CYCLE)?,
    })
}

fn open(path: &Path) -> anyhow::Result<Mirror> {
    let remote = Remote {
        url: "http://127.0.0.1:1/".to_owned(),
        branch: "main".to_owned(),
        credentials: None,
    };
    Ok(Mirror::open(path, remote)?)
}

/// A mirror with so many annotated commits, packed; its last block. Written in memory and copied whole, so that nothing was
/// ever deleted where the appends are measured.
fn history(size: usize, path: &Path) -> anyhow::Result<Option<Block>> {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)?
    } else {
        tempfile::tempdir()?
    };
    let first = made.path().join("mirror");
    let mut writer = Writer::new(open(&first)?.notes()?, None)?;
    let blocks = (0..size)
        .map(|_| writer.next())
        .collect::<anyhow::Result<Vec<_>>>()?;
    writer.notes.append(&blocks, Timestamp::UNIX_EPOCH)?;
    git(&first, &["repack", "-adq"])?;
    git(&first, &["prune-packed", "-q"])?;
    let copied = Command::new("cp")
        .arg("-a")
        .args([first.as_path(), path])
        .status()?;
    ensure!(copied.success(), "cp failed");
    Ok(writer.last)
}

struct Writer {
    notes: NotesWriter,
    signer: SoftSigner,
    last: Option<Block>,
}

impl Writer {
    fn new(notes: NotesWriter, last: Option<Block>) -> anyhow::Result<Self> {
        Ok(Self {
            notes,
            signer: SoftSigner::new(None, &[7; 32])?,
            last,
        })
    }

    fn next(&mut self) -> anyhow::Result<SignedText> {
        let number = self.last.as_ref().map_or(1, |b| b.number + 1);
        let commit = commit(usize::try_from(number - 1)?)?;
        let block = Block {
            number,
            prev: self.last.as_ref().map(Block::digest),
            term: 1,
            commit: commit.clone(),
            at: Timestamp::UNIX_EPOCH,
            from: None,
            to: State::Proposed,
            code: Code::Announced,
            actor: "forge".to_owned(),
            reason: "the commit is known".to_owned(),
            trailers: vec![("Delivery".to_owned(), format!("fleet@{}", commit.short()))],
            elided: None,
        };
        let text = block.text();
        let text = note::seal(
            &text,
            &self.signer.key_id(),
            &self.signer.sign(&note::signed_bytes(&text))?,
        );
        self.last = Some(block);
        Ok(SignedText { commit, text })
    }

    fn append(&mut self) -> anyhow::Result<Duration> {
        let since = Instant::now();
        let block = self.next()?;
        let done = self.notes.append(&[block], Timestamp::UNIX_EPOCH)?;
        let took = since.elapsed();
        ensure!(done.written == 1, "the block was not written");
        Ok(took)
    }
}

/// Ids spread as real ones are.
fn commit(n: usize) -> anyhow::Result<CommitId> {
    let hex = Digest::of(n.to_string().as_bytes()).hex();
    Ok(hex.get(..40).context("a digest has 64 digits")?.parse()?)
}

/// A repository whose notes git itself has written, at the depth that git chooses.
fn prepare_peer(path: &Path, size: usize) -> anyhow::Result<()> {
    std::fs::create_dir(path)?;
    git(path, &["init", "-q", "--bare"])?;
    // Not by `N` lines: fast-import wants the commits that they stand on.
    let mut tree = String::from(
        "blob\nmark :1\ndata 6\nwords\n\ncommit refs/notes/mesh-plan\ncommitter a <a> 0 +0000\ndata 0\n",
    );
    let depth = if size > 60_000 { 2 } else { usize::from(size > 200) };
    for n in 0..size {
        let id = commit(n)?.to_string();
        let mut name = String::new();
        let mut rest = id.as_str();
        for _ in 0..depth {
            let (first, after) = rest.split_at_checked(2).context("an id has 40 digits")?;
            name.push_str(&format!("{first}/"));
            rest = after;
        }
        tree.push_str(&format!("M 100644 :1 {name}{rest}\n"));
    }
    let mut child = command(path, &["fast-import", "--quiet"])
        .stdin(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .context("no pipe")?
        .write_all(tree.as_bytes())?;
    ensure!(child.wait()?.success(), "git fast-import failed");
    Ok(())
}

fn peer_append(path: &Path, n: usize) -> anyhow::Result<Duration> {
    let text = "2026-10-06T23:05:28Z (new) -> proposed (announced) by forge: the commit is known";
    let id = commit(n)?;
    let since = Instant::now();
    git(
        path,
        &["notes", "--ref=mesh-plan", "append", "-m", text, id.as_str()],
    )?;
    Ok(since.elapsed())
}

fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new("git");
    command
        .args(args)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([
            ("GIT_AUTHOR_NAME", "b"),
            ("GIT_AUTHOR_EMAIL", "b"),
            ("GIT_COMMITTER_NAME", "b"),
            ("GIT_COMMITTER_EMAIL", "b"),
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn git(folder: &Path, args: &[&str]) -> anyhow::Result<String> {
    let output = command(folder, args)
        .stdin(Stdio::null())
        .spawn()?
        .wait_with_output()?;
    if !output.status.success() {
        bail!("git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// git reads all of it and finds no fault.
fn check(path: &Path, notes: usize) -> anyhow::Result<()> {
    git(path, &["fsck", "--strict", "--no-dangling"])?;
    let listed = git(path, &["notes", "--ref=mesh-plan", "list"])?.lines().count();
    ensure!(listed == notes, "git lists {listed} notes and not {notes}");
    git(
        path,
        &["notes", "--ref=mesh-plan", "show", commit(notes - 1)?.as_str()],
    )?;
    git(path, &["rev-parse", NOTES_REF])?;
    Ok(())
}

fn counted(path: &Path, keys: &[&str]) -> anyhow::Result<u64> {
    let text = git(path, &["count-objects", "-v"])?;
    let value = |key: &&str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{key}: ")));
        line.context("git count-objects")
            .and_then(|v| Ok(v.parse::<u64>()?))
    };
    keys.iter().map(value).sum()
}

fn objects(path: &Path) -> anyhow::Result<usize> {
    Ok(usize::try_from(counted(path, &["count", "in-pack"])?)?)
}

fn packed_bytes(path: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path.join("objects/pack"))? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    times.sort();
    let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(at).map_or(f64::NAN, |t| t.as_secs_f64() * 1000.0)
}

fn ratio(a: usize, b: usize) -> anyhow::Result<f64> {
    Ok(f64::from(u32::try_from(a)?) / f64::from(u32::try_from(b)?))
}

/// What this thread has computed so far: says more than the clock on a machine that others use too.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}
