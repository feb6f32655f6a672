//! `meshplan check`: everything that is wrong with a tree, before anything is signed (FR-1).

use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args as ClapArgs, ValueEnum};
use meshplan_schemas::finding::{Finding, Level};
use serde_json::json;

use super::exit::Exit;
use crate::config::ForgeKind;
use crate::edge::age_file::AgeIdentity;
use crate::edge::vault::Vault;
use crate::edge::worktree;
use crate::pure::annotations;
use crate::pure::compose::{Composed, Expected, TreeError, compose_as};
use crate::pure::secrets::OpensSecrets;
use crate::pure::source_tree::SourceTree;

/// Checks a fleet's repository and says everything that is wrong with it.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// The folder to check; with --commit the repository.
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Check a commit, by any name that git knows, instead of the files of the folder.
    #[arg(long, value_name = "COMMIT")]
    pub commit: Option<String>,
    /// The reconciler's age identity, which opens the secrets; left out, no secret is opened.
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// The kind of forge that the repository is at: what a plan asks and that forge cannot tell is refused.
    #[arg(long, value_name = "KIND")]
    pub forge: Option<ForgeKind>,
    /// How findings are printed: for people, as JSON, or as the annotations of a forge's CI.
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    pub format: Format,
    /// Print JSON; the same as --format json.
    #[arg(long)]
    pub json: bool,
    /// Print colours.
    #[arg(long)]
    pub color: bool,
}

/// How findings are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// With the line and a marker, and what came of it.
    #[default]
    Human,
    /// All findings, and what composed.
    Json,
    /// Workflow commands, which GitHub shows at the lines of a change.
    Github,
    /// A code quality report, as a job's artifact.
    Gitlab,
    /// Workflow commands; Forgejo takes those of GitHub.
    Forgejo,
}

/// Runs the command. [`Exit::No`] when the tree may not be signed.
///
/// # Errors
/// The folder or commit cannot be read, or nothing can be written to `out`.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (tree, of_paths) = read(&args.dir, args.commit.as_deref())?;
    let opener = opener(args.identity.as_deref())?;
    let expected = Expected {
        forge: args.forge,
        opener,
        ..Expected::default()
    };
    let composed = compose_expecting(&tree, of_paths, &expected);
    let (findings, composed) = match composed {
        Ok(composed) if !composed.secrets.closed.is_empty() => (closed(&composed), None),
        Ok(composed) => (composed.warnings.clone(), Some(composed)),
        Err(TreeError::Findings(findings)) => (findings, None),
        Err(TreeError::NoFleet(reason)) => {
            let help = "`meshplan init DIR` makes a fleet's repository";
            (vec![Finding::of_file("", reason).help(help)], None)
        }
    };
    let errors = findings.iter().filter(|f| f.is_error()).count();
    let format = if args.json { Format::Json } else { args.format };
    match format {
        Format::Json => {
            let summary = json!({
                "ok": errors == 0,
                "findings": findings,
                "composed": composed.as_ref().map(|c| json!({
                    "fleet": c.fleet.fleet, "nodes": c.nodes.len(), "modules": c.sources.len(), "plans": c.plans.len(),
                    "secrets_not_opened": c.secrets.not_opened,
                })),
            });
            writeln!(out, "{}", serde_json::to_string_pretty(&summary)?)?;
        }
        Format::Gitlab => {
            let report = annotations::gitlab(&findings, &prefix(args));
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        }
        Format::Github | Format::Forgejo => {
            let folder = prefix(args);
            for finding in &findings {
                writeln!(out, "{}", annotations::github(finding, &folder))?;
            }
            writeln!(out, "{}", verdict(composed.as_ref(), errors, findings.len()))?;
        }
        Format::Human => {
            for finding in &findings {
                writeln!(out, "{}\n", finding.render(args.color))?;
            }
            if let Some(note) = composed.as_ref().and_then(|c| not_opened(c.secrets.not_opened)) {
                writeln!(out, "{note}")?;
            }
            writeln!(out, "{}", verdict(composed.as_ref(), errors, findings.len()))?;
        }
    }
    Ok(if errors == 0 { Exit::Done } else { Exit::No })
}

/// Reads a folder, or a commit of the repository there.
///
/// # Errors
/// It cannot be read.
pub fn read(dir: &Path, commit: Option<&str>) -> anyhow::Result<(SourceTree, Vec<Finding>)> {
    let read = match commit {
        Some(commit) => worktree::read_commit(dir, commit),
        None => worktree::read_folder(dir),
    };
    read.with_context(|| format!("nothing to check at {}", dir.display()))
}

/// What opens the secrets of a tree, where an identity is given.
///
/// # Errors
/// The identity cannot be read.
pub(super) fn opener(identity: Option<&Path>) -> anyhow::Result<Option<Arc<dyn OpensSecrets>>> {
    let identity = identity.map(AgeIdentity::read).transpose()?;
    Ok(identity.map(|identity| Arc::new(Vault::of(identity)) as Arc<dyn OpensSecrets>))
}

/// What is said where values were not opened; none where all were.
pub(super) fn not_opened(secrets: usize) -> Option<String> {
    let of = match secrets {
        0 => return None,
        1 => "the value of 1 secret was".to_owned(),
        n => format!("the values of {n} secrets were"),
    };
    Some(format!("{of} not opened here: --identity FILE opens them"))
}

/// The findings of a tree with secrets that do not open, which are errors where it is checked (FR-8).
fn closed(composed: &Composed) -> Vec<Finding> {
    let mut findings = composed.warnings.clone();
    for finding in findings
        .iter_mut()
        .filter(|finding| composed.secrets.closed.contains_key(&finding.file))
    {
        finding.level = Level::Error;
    }
    findings.sort();
    findings
}

/// Composes a tree whose paths gave these findings already; no secret is opened.
///
/// # Errors
/// As [`compose_as`], with those findings among them.
pub fn compose_with(tree: &SourceTree, of_paths: Vec<Finding>) -> Result<Composed, TreeError> {
    compose_expecting(tree, of_paths, &Expected::default())
}

/// As [`compose_with`], held against what is expected; what opens secrets is among it.
///
/// # Errors
/// As [`compose_with`].
pub(super) fn compose_expecting(
    tree: &SourceTree,
    of_paths: Vec<Finding>,
    expected: &Expected,
) -> Result<Composed, TreeError> {
    match compose_as(tree, expected) {
        Ok(composed) if of_paths.iter().any(Finding::is_error) => {
            let mut findings = of_paths;
            findings.extend(composed.warnings);
            findings.sort();
            Err(TreeError::Findings(findings))
        }
        Err(TreeError::Findings(mut findings)) => {
            findings.extend(of_paths);
            findings.sort();
            Err(TreeError::Findings(findings))
        }
        other => other,
    }
}

/// The fleet's folder in the repository that CI has checked out, as annotations want it: CI runs at the root.
fn prefix(args: &Args) -> String {
    let parts = args
        .dir
        .components()
        .filter(|part| !matches!(part, Component::CurDir));
    let dir: PathBuf = parts.collect();
    match dir.to_str() {
        Some(text) if dir.is_relative() && !text.is_empty() && args.commit.is_none() => format!("{text}/"),
        _ => String::new(),
    }
}

fn verdict(composed: Option<&Composed>, errors: usize, findings: usize) -> String {
    let warnings = counted(findings - errors, "warning");
    match composed {
        Some(composed) => format!("ok: {}; {warnings}", summary(composed)),
        None => format!("refused: {}, {warnings}", counted(errors, "error")),
    }
}

fn summary(composed: &Composed) -> String {
    format!(
        "the fleet {} composes: {}, {}, {}",
        composed.fleet.fleet,
        counted(composed.nodes.len(), "node"),
        counted(composed.sources.len(), "module"),
        counted(composed.plans.len(), "plan"),
    )
}

pub(super) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
