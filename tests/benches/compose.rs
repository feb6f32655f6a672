//! Composing a whole fleet from git objects: 10, 100, 1,000 and 10,000 nodes, in turns with reading all blobs by git2.
//!
//! `cargo bench --bench compose [-- --large]`. Cold are our caches (a mirror opened anew each round), not the disk's:
//! the commit is read through the mirror, parsed, validated and composed, with all digests, unsigned. "again" is the
//! same mirror with a commit that changes one node. Peak memory is that of a process of its own that composes once.
//! The floor at 10,000 nodes is R <= 6 and 250 MB.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use meshplan_reconciler::edge::mirror::{Content, EntryKind as Kind, Mirror, Remote, TreeEntry};
use meshplan_reconciler::pure::compose::{Composed, compose_tree};
use meshplan_reconciler::pure::source_tree::{EntryKind, SourceTree};
use meshplan_schemas::ident::CommitId;
use scenarios::ground::FleetRepo;
use scenarios::measure::{Times, exponent, load, proc_number};

/// Rounds at each size, after one that is dropped.
const ROUNDS: usize = 9;
/// By which a process is told to compose once and say how much memory that took: the mirror and the commit follow.
const ONCE: &str = "--once";
/// Instead of a commit: the mirror is opened and nothing composed.
const NOTHING: &str = "nothing";

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|a| a == ONCE) {
        let mirror = arguments.get(at + 1).context("the mirror's folder")?;
        let commit = arguments.get(at + 2).context("the commit")?;
        return once(Path::new(mirror), commit);
    }
    let mut sizes = vec![10, 100, 1_000, 10_000];
    if arguments.iter().any(|a| a == "--large") {
        sizes.push(30_000);
    }
    println!(
        "compose a fleet from git objects; {ROUNDS} rounds; load {}",
        load()
    );
    println!(
        " nodes   files    read   compose      sum   a node    again     git2 reads   R, median of rounds   peak RSS   of it ours"
    );
    let mut points = Vec::new();
    for size in sizes {
        points.push(measure(size)?);
    }
    let beyond: Vec<(f64, f64)> = points
        .iter()
        .filter(|(size, _)| *size >= 100.0)
        .copied()
        .collect();
    println!(
        "exponent {:.3} over all sizes, {:.3} from 100 nodes on; floor at 10,000: R 6, 250 MB",
        exponent(&points),
        exponent(&beyond)
    );
    Ok(())
}

fn measure(nodes: usize) -> Result<(f64, f64)> {
    let folder = tempfile::tempdir()?;
    let repo = FleetRepo::new(&folder.path().join("fleet.git"), nodes, |_, text| text)?;
    let first: CommitId = repo.tip()?.parse()?;
    let second: CommitId = repo.merge(1)?.parse()?;
    let path = folder.path().join("mirror");
    let mut mirror = open(&path, repo.folder())?;
    mirror.fetch()?;
    drop(mirror);

    let (mut read, mut composing, mut sum, mut again, mut theirs) =
        <(Times, Times, Times, Times, Times)>::default();
    let mut files = 0;
    for round in 0..=ROUNDS {
        let since = Instant::now();
        let mut mirror = open(&path, repo.folder())?;
        let entries = mirror.read_tree(&first)?;
        let was_read = since.elapsed();
        files = entries.len();
        let composed = compose(entries)?;
        let took = since.elapsed();
        ensure!(composed.nodes.len() == nodes, "{} nodes", composed.nodes.len());
        drop(composed);
        let since = Instant::now();
        let composed = compose(mirror.read_tree(&second)?)?;
        let once_more = since.elapsed();
        drop((composed, mirror));
        let since = Instant::now();
        let bytes = read_all(&path, first.as_str())?;
        let peer = since.elapsed();
        ensure!(bytes > 0, "git2 read nothing");
        if round > 0 {
            read.add(was_read);
            composing.add(took - was_read);
            sum.add(took);
            again.add(once_more);
            theirs.add(peer);
        }
    }
    let (peak, reading) = (peak(&path, first.as_str())?, peak(&path, NOTHING)?);
    let size = f64::from(u32::try_from(nodes)?);
    println!(
        "{nodes:>6}  {files:>6} {:>7.1} {:>7.1} ms {:>7.1} ms {:>6.1} us {:>6.1} ms  {:>8.1} ms    {:<20}  {:>5} MiB   {:>5} MiB",
        read.ms(50),
        composing.ms(50),
        sum.ms(50),
        sum.ms(50) * 1000.0 / size,
        again.ms(50),
        theirs.ms(50),
        sum.over(&theirs).to_string(),
        peak / 1024,
        peak.saturating_sub(reading) / 1024,
    );
    Ok((size, sum.ms(50)))
}

fn open(path: &Path, remote: &Path) -> Result<Mirror> {
    let remote = Remote {
        url: remote.to_str().context("a path in UTF-8")?.to_owned(),
        branch: "main".to_owned(),
        credentials: None,
    };
    Ok(Mirror::open(path, remote)?)
}

fn compose(entries: Vec<TreeEntry>) -> Result<Composed> {
    let entries = entries.into_iter().map(|entry| {
        let kind = match entry.kind {
            Kind::Blob { .. } => EntryKind::Blob,
            Kind::Symlink => EntryKind::Symlink,
            Kind::Submodule => EntryKind::Submodule,
        };
        match entry.content {
            Content::Bytes(bytes) => Ok((entry.path, kind, bytes)),
            Content::TooLarge { bytes } => anyhow::bail!("a file of {bytes} bytes"),
        }
    });
    let (tree, findings) = SourceTree::from_entries(entries.collect::<Result<_>>()?);
    ensure!(findings.is_empty(), "{findings:?}");
    Ok(compose_tree(&tree, None, None)?)
}

/// The peer: every blob of the tree, and nothing done with it.
fn read_all(path: &Path, commit: &str) -> Result<usize> {
    let repo = git2::Repository::open_bare(path)?;
    let tree = repo.find_commit(git2::Oid::from_str(commit)?)?.tree()?;
    let mut bytes = 0;
    let mut failed = None;
    tree.walk(git2::TreeWalkMode::PreOrder, |_, entry| {
        if entry.kind() == Some(git2::ObjectType::Blob) {
            match repo.find_blob(entry.id()) {
                Ok(blob) => bytes += blob.size(),
                Err(e) => failed = Some(e),
            }
        }
        git2::TreeWalkResult::Ok
    })?;
    failed.map_or(Ok(bytes), |e| Err(e.into()))
}

/// The peak of a process of its own that composes the commit once, in KiB; for [`NOTHING`] it opens the mirror alone.
fn peak(mirror: &Path, commit: &str) -> Result<u64> {
    let output = Command::new(std::env::current_exe()?)
        .arg(ONCE)
        .arg(mirror)
        .arg(commit)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

fn once(mirror: &Path, commit: &str) -> Result<()> {
    let mut mirror = open(mirror, Path::new("/nonexistent"))?;
    let composed = match commit {
        NOTHING => None,
        commit => Some(compose(mirror.read_tree(&commit.parse()?)?)?),
    };
    println!("{}", proc_number(std::process::id(), "status", "VmHWM")?);
    drop(composed);
    Ok(())
}
