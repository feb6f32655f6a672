//! Composing a whole fleet from git objects: 10, 100, 1,000 and 10,000 nodes, in turns with reading all blobs by git2.
//!
//! `cargo bench --bench compose [-- --large]`. Cold are our caches (a mirror opened anew each round), not the disk's:
//! the commit is read through the mirror, parsed, validated and composed, with all digests, unsigned. Peak memory is that
//! of a process of its own that composes once. Then a commit that changes one node, in the same reader, there and back, in
//! turns with `git diff-tree -r`. Floors at 10,000 nodes: R <= 6 and 250 MB for the whole, R <= 2 for a change.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use meshplan_reconciler::edge::mirror::{Mirror, Remote};
use meshplan_reconciler::edge::tree_reader::{Entries, TreeReader};
use meshplan_reconciler::pure::compose::{Composed, Expected};
use meshplan_reconciler::pure::decide::Tree;
use meshplan_schemas::ident::CommitId;
use scenarios::ground::FleetRepo;
use scenarios::measure::{Times, exponent, load, proc_number};

/// Rounds at each size, after one that is dropped.
const ROUNDS: usize = 9;
/// Changes of one node in a round.
const CHANGES: usize = 20;
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
        " nodes   files    read   compose      sum   a node     git2 reads   R, median of rounds   peak RSS   of it ours"
    );
    let mut points = Vec::new();
    for size in sizes {
        points.push(measure(size)?);
    }
    let beyond: Vec<&Point> = points.iter().filter(|point| point.nodes >= 100.0).collect();
    let whole: Vec<(f64, f64)> = beyond.iter().map(|p| (p.nodes, p.whole_ms)).collect();
    let change: Vec<(f64, f64)> = beyond.iter().map(|p| (p.nodes, p.change_ms)).collect();
    println!(
        "exponents from 100 nodes on: the whole {:.3}, one change {:.3}; floors at 10,000: R 6 and 250 MB, a change R 2",
        exponent(&whole),
        exponent(&change)
    );
    Ok(())
}

fn measure(nodes: usize) -> Result<Point> {
    let folder = tempfile::tempdir()?;
    let repo = FleetRepo::new(&folder.path().join("fleet.git"), nodes, |_, text| text)?;
    let first: CommitId = repo.tip()?.parse()?;
    let second: CommitId = repo.merge(1)?.parse()?;
    let path = folder.path().join("mirror");
    let mut mirror = open(&path, repo.folder())?;
    mirror.fetch()?;
    drop(mirror);

    let (mut read, mut composing, mut sum, mut theirs) = <(Times, Times, Times, Times)>::default();
    let (mut again, mut diff_tree) = <(Times, Times)>::default();
    let mut files = 0;
    for round in 0..=ROUNDS {
        let since = Instant::now();
        let (mut mirror, mut reader) = (open(&path, repo.folder())?, TreeReader::new(Expected::default()));
        let entries = reader.read(&mut mirror, &first)?;
        let was_read = since.elapsed();
        files = match &entries {
            Entries::Whole(entries) | Entries::Changed(entries) => entries.len(),
        };
        let composed = composed(reader.compose(&first, entries))?;
        let took = since.elapsed();
        ensure!(composed.nodes.len() == nodes, "{} nodes", composed.nodes.len());
        for (from, to) in [(&first, &second), (&second, &first)]
            .into_iter()
            .cycle()
            .take(CHANGES)
        {
            let since = Instant::now();
            let entries = reader.read(&mut mirror, to)?;
            ensure!(
                matches!(&entries, Entries::Changed(one) if one.len() == 1),
                "{entries:?}"
            );
            let next = self::composed(reader.compose(to, entries))?;
            let once_more = since.elapsed();
            ensure!(next.nodes.len() == nodes, "{} nodes", next.nodes.len());
            let since = Instant::now();
            let said = git_diff_tree(&path, from, to)?;
            let peer = since.elapsed();
            ensure!(said.lines().count() == 1, "{said}");
            if round > 0 {
                again.add(once_more);
                diff_tree.add(peer);
            }
        }
        drop((composed, reader, mirror));
        let since = Instant::now();
        let bytes = read_all(&path, first.as_str())?;
        let peer = since.elapsed();
        ensure!(bytes > 0, "git2 read nothing");
        if round > 0 {
            read.add(was_read);
            composing.add(took - was_read);
            sum.add(took);
            theirs.add(peer);
        }
    }
    let (peak, reading) = (peak(&path, first.as_str())?, peak(&path, NOTHING)?);
    let size = f64::from(u32::try_from(nodes)?);
    println!(
        "{nodes:>6}  {files:>6} {:>7.1} {:>7.1} ms {:>7.1} ms {:>6.1} us  {:>8.1} ms    {:<20}  {:>5} MiB   {:>5} MiB",
        read.ms(50),
        composing.ms(50),
        sum.ms(50),
        sum.ms(50) * 1000.0 / size,
        theirs.ms(50),
        sum.over(&theirs).to_string(),
        peak / 1024,
        peak.saturating_sub(reading) / 1024,
    );
    println!(
        "        one node changed: {:.2} ms, p99 {:.2} ms; `git diff-tree -r` {:.2} ms; R {}",
        again.ms(50),
        again.ms(99),
        diff_tree.ms(50),
        again.over(&diff_tree)
    );
    Ok(Point {
        nodes: size,
        whole_ms: sum.ms(50),
        change_ms: again.ms(50),
    })
}

/// One size, measured.
struct Point {
    nodes: f64,
    whole_ms: f64,
    change_ms: f64,
}

fn composed(tree: Tree) -> Result<Arc<Composed>> {
    match tree {
        Tree::Composed(composed) => Ok(composed),
        Tree::Invalid(why) | Tree::Gone(why) => anyhow::bail!("{why}"),
    }
}

/// The peer of a change: what git itself says of two trees.
fn git_diff_tree(mirror: &Path, from: &CommitId, to: &CommitId) -> Result<String> {
    let said = Command::new("git")
        .arg("--git-dir")
        .arg(mirror)
        .args(["diff-tree", "-r", from.as_str(), to.as_str()])
        .output()?;
    ensure!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    Ok(String::from_utf8(said.stdout)?)
}

fn open(path: &Path, remote: &Path) -> Result<Mirror> {
    let remote = Remote {
        url: remote.to_str().context("a path in UTF-8")?.to_owned(),
        branch: "main".to_owned(),
        credentials: None,
    };
    Ok(Mirror::open(path, remote)?)
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
    let kept = match commit {
        NOTHING => None,
        commit => {
            let (commit, mut reader) = (commit.parse()?, TreeReader::new(Expected::default()));
            let entries = reader.read(&mut mirror, &commit)?;
            Some((composed(reader.compose(&commit, entries))?, reader))
        }
    };
    println!("{}", proc_number(std::process::id(), "status", "VmHWM")?);
    drop(kept);
    Ok(())
}
