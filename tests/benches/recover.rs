//! Scoreboard metric 12: `meshplan recover` of a record of 10,000 notes, the real program from its start to its end: the
//! fetch over loopback HTTP, every signature and the chain proven, the trees composed, the database written.
//!
//! `./bench recover`. Each commit has two blocks, as one that changes no order has. With the mirror left, and with the mirror
//! lost too, in turns; the median of [`ROUNDS`]. The floor is 2 s with the mirror left.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use meshplan_reconciler::edge::key_file::{KeyBundle, Passphrase};
use meshplan_reconciler::pure::note::{self, Block};
use meshplan_schemas::digest::Digest;
use meshplan_schemas::envelope::Signer;
use meshplan_schemas::lifecycle::delivery::{Code, State};
use scenarios::measure::load;
use scenarios::program::clean;
use scenarios::world::{REPO, World};

const NOTES: usize = 10_000;
const ROUNDS: usize = 5;
/// When the history begins.
const BEGINS: i64 = 1_700_000_000;

fn main() -> Result<()> {
    let world = World::new("recover")?;
    let bare = world.forge.folder(REPO);
    let commits = history(&bare, &world.head()?)?;
    let passphrase = Passphrase::find(Some(&world.state().join("passphrase")), |_| None)?;
    let keys = KeyBundle::open(&world.state().join("keys.json"), &passphrase)?;
    let blocks = write_notes(&bare, &commits, &keys.author())?;
    println!(
        "recover of {NOTES} notes, {blocks} blocks; {ROUNDS} rounds; load {}",
        load()
    );
    let (mut kept, mut lost) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        lose(&world, true)?;
        lost.push(recover(&world, blocks)?);
        lose(&world, false)?;
        kept.push(recover(&world, blocks)?);
    }
    for (words, of) in [("left, floor 2 s", kept), ("lost too", lost)] {
        let (wall, spent) = median(&of);
        println!("mirror {words:<16} {wall:>6.2} s, {spent:>6.2} s of CPU");
    }
    Ok(())
}

fn lose(world: &World, mirror: bool) -> Result<()> {
    for name in ["meshplan.db", "meshplan.db-wal", "meshplan.db-shm"] {
        let path = world.state().join(name);
        if path.exists() {
            fs::remove_file(path)?;
        }
    }
    if mirror && world.state().join("mirror").exists() {
        fs::remove_dir_all(world.state().join("mirror"))?;
    }
    Ok(())
}

/// Seconds of the wall, and of the processor: the program's own and those of the forge's git.
fn recover(world: &World, blocks: usize) -> Result<(f64, f64)> {
    let (since, spent) = (Instant::now(), children()?);
    let said = world.meshplan_json(&["recover"])?;
    let took = (since.elapsed().as_secs_f64(), children()? - spent);
    ensure!(
        said["blocks"] == blocks && said["deliveries"] == NOTES,
        "{said:#}"
    );
    Ok(took)
}

/// Seconds of the processor that children of this process have had, of those that have ended (proc(5): cutime, cstime).
fn children() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (_, rest) = stat.rsplit_once(") ").context("a process has a name")?;
    let ticks: Vec<u32> = rest
        .split(' ')
        .skip(13)
        .take(2)
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    Ok(ticks.into_iter().map(f64::from).sum::<f64>() / 100.0)
}

/// Of the wall and of the processor.
fn median(of: &[(f64, f64)]) -> (f64, f64) {
    let (mut wall, mut spent): (Vec<f64>, Vec<f64>) = of.iter().copied().unzip();
    wall.sort_by(f64::total_cmp);
    spent.sort_by(f64::total_cmp);
    (wall[wall.len() / 2], spent[spent.len() / 2])
}

fn import(bare: &Path, marks: Option<&Path>, stream: &str) -> Result<()> {
    let mut git = clean("git", bare);
    git.arg("-C").arg(bare).args(["fast-import", "--quiet"]);
    if let Some(marks) = marks {
        git.arg(format!("--export-marks={}", marks.display()));
    }
    let mut child = git.stdin(Stdio::piped()).spawn()?;
    child
        .stdin
        .take()
        .context("a pipe")?
        .write_all(stream.as_bytes())?;
    ensure!(child.wait()?.success(), "git fast-import failed");
    Ok(())
}

/// Commits behind the first, each of which changes no order.
fn history(bare: &Path, first: &str) -> Result<Vec<String>> {
    let mut stream = String::new();
    for n in 1..NOTES {
        let (at, text) = (BEGINS + i64::try_from(n)?, format!("# {n}\n"));
        let from = if n == 1 {
            format!("from {first}\n")
        } else {
            String::new()
        };
        write!(
            stream,
            "commit refs/heads/main\nmark :{n}\nauthor Dana <dana@example.org> {at} +0000\n\
             committer Dana <dana@example.org> {at} +0000\ndata 6\nchange\n{from}\
             M 100644 inline README.md\ndata {}\n{text}\n",
            text.len()
        )?;
    }
    let marks = bare.join("bench.marks");
    import(bare, Some(&marks), &stream)?;
    let mut by_mark = BTreeMap::new();
    for line in fs::read_to_string(&marks)?.lines() {
        let (mark, id) = line.split_once(' ').context("a mark and its commit")?;
        by_mark.insert(mark.trim_start_matches(':').parse::<usize>()?, id.to_owned());
    }
    Ok(std::iter::once(first.to_owned())
        .chain(by_mark.into_values())
        .collect())
}

/// The notes of all commits; how many blocks they have.
fn write_notes(bare: &Path, commits: &[String], signer: &dyn Signer) -> Result<usize> {
    let mut stream = format!(
        "commit refs/notes/mesh-plan\ncommitter meshplan <nobody@localhost> {BEGINS} +0000\ndata 5\nnotes\n"
    );
    let (mut prev, mut number) = (None, 0);
    for commit in commits {
        let mut note = String::new();
        for step in steps(number == 0) {
            number += 1;
            let block = Block {
                number,
                prev,
                term: 1,
                commit: commit.parse()?,
                at: "2026-01-01T00:00:00Z".parse()?,
                from: step.0,
                to: step.1,
                code: step.2,
                actor: "reconciler".to_owned(),
                reason: "the commit changes no order".to_owned(),
                trailers: step.3,
                elided: None,
            };
            let text = block.text();
            prev = Some(block.digest());
            let signature = signer.sign(&note::signed_bytes(&text))?;
            let signed = note::seal(&text, &signer.key_id(), &signature);
            note = note::append(&note, &signed).context("a new block")?;
        }
        write!(stream, "N inline {commit}\ndata {}\n{note}\n", note.len())?;
    }
    import(bare, None, &stream)?;
    Ok(usize::try_from(number)?)
}

type Said = (Option<State>, State, Code, Vec<(String, String)>);

fn steps(first: bool) -> Vec<Said> {
    let announced = (
        None,
        State::Proposed,
        Code::Announced,
        vec![("Subject".to_owned(), "change".to_owned())],
    );
    if !first {
        return vec![
            announced,
            (
                Some(State::Proposed),
                State::Delivered,
                Code::NothingToDo,
                Vec::new(),
            ),
        ];
    }
    let leg = |scope: &str| {
        (
            "Leg".to_owned(),
            format!("{scope} {}", Digest::of(scope.as_bytes())),
        )
    };
    let gate = vec![
        ("Gate".to_owned(), "default".to_owned()),
        leg("list"),
        leg("policy"),
        leg("gate"),
    ];
    vec![
        announced,
        (Some(State::Proposed), State::Delivering, Code::Checked, gate),
        (Some(State::Delivering), State::Delivered, Code::Done, Vec::new()),
    ]
}
