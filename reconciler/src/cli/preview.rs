//! `meshplan preview`: what a merge would do, before it is merged (DL-8). Local: it asks nobody and writes nothing.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use meshplan_schemas::finding::Finding;
use serde_json::json;

use super::check;
use super::exit::Exit;
use crate::edge::worktree::{self, Merged};
use crate::pure::compose::Expected;
use crate::pure::identities::{Passed, Revoked};
use crate::pure::preview::outcome::Outcome;
use crate::pure::preview::text::{Line, PREVIEW_CHARS, Style, lines};

/// Shows what a merge would change on which machines, and how it would be walked.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// What is merged into, by any name that git knows.
    pub base: String,
    /// What would be merged; the files of the folder when left out.
    pub head: Option<String>,
    /// The fleet's repository.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// The reconciler's age identity, which opens the secrets; left out, no secret is opened.
    #[arg(long, value_name = "FILE")]
    pub identity: Option<PathBuf>,
    /// Print JSON.
    #[arg(skip)]
    pub json: bool,
    /// Print colours.
    #[arg(skip)]
    pub color: bool,
}

/// Runs the command. [`Exit::No`] when the merge does not check or has conflicts, or BASE does not compose.
///
/// # Errors
/// A tree cannot be read, or nothing can be written to `out`.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let read = || format!("nothing to compare at {}", args.dir.display());
    let (base, base_paths) = worktree::read_commit(&args.dir, &args.base).with_context(read)?;
    let (head, head_paths) = match &args.head {
        None => worktree::read_folder(&args.dir).with_context(read)?,
        Some(head) => match worktree::read_merge(&args.dir, &args.base, head).with_context(read)? {
            Merged::Tree(tree, findings) => (tree, findings),
            Merged::Conflicts(paths) => return conflicts(args, &paths, out),
        },
    };
    let opener = check::opener(args.identity.as_deref())?;
    let expected = Expected {
        opener,
        ..Expected::default()
    };
    let before = check::compose_expecting(&base, base_paths, &expected);
    let after = check::compose_expecting(&head, head_paths, &expected);
    let passed = Passed {
        tree: before.as_ref().ok(),
        revoked: &Revoked::new(),
    };
    let preview = match Outcome::of(&args.base, before.as_ref(), after.as_ref(), passed)? {
        Outcome::Preview(preview) => preview,
        Outcome::Refused { what, findings } => return refused(args, &what, &findings, out),
        Outcome::Conflicts(paths) => return conflicts(args, &paths, out),
    };
    if args.json {
        let said = json!({
            "ok": true,
            "base": args.base,
            "head": args.head,
            "nothing": preview.is_nothing(),
            "preview": preview,
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&said)?)?;
    } else {
        for line in lines(&preview) {
            writeln!(out, "{}", shown(&line, args.color))?;
        }
        if let Some(note) = check::not_opened(preview.secrets_not_opened) {
            writeln!(out, "\n{note}; one that is encrypted anew counts as changed")?;
        }
    }
    Ok(Exit::Done)
}

/// Says the errors at their lines, as many as fit.
fn refused(args: &Args, what: &str, findings: &[Finding], out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.json {
        let said =
            json!({ "ok": false, "base": args.base, "head": args.head, "why": what, "findings": findings });
        writeln!(out, "{}", serde_json::to_string_pretty(&said)?)?;
        return Ok(Exit::No);
    }
    writeln!(out, "{what}\n")?;
    let mut left = PREVIEW_CHARS;
    for (at, finding) in findings.iter().enumerate() {
        let text = finding.render(args.color);
        left = left.saturating_sub(finding.render(false).chars().count() + 2);
        if left == 0 {
            writeln!(out, "not shown: {} more", findings.len() - at)?;
            break;
        }
        writeln!(out, "{text}\n")?;
    }
    Ok(Exit::No)
}

fn conflicts(args: &Args, paths: &[String], out: &mut dyn Write) -> anyhow::Result<Exit> {
    let head = args.head.as_deref().unwrap_or_default();
    if args.json {
        let said = json!({
            "ok": false, "base": args.base, "head": head, "why": "the merge has conflicts", "conflicts": paths,
        });
        writeln!(out, "{}", serde_json::to_string_pretty(&said)?)?;
        return Ok(Exit::No);
    }
    writeln!(
        out,
        "{head} cannot be merged into {} as it is; both change:",
        args.base
    )?;
    for path in paths {
        writeln!(out, "  {path}")?;
    }
    writeln!(
        out,
        "merge {} into {head} and settle these, then ask again",
        args.base
    )?;
    Ok(Exit::No)
}

/// The line, in colour where it is for a terminal.
fn shown(line: &Line, color: bool) -> String {
    let code = match line.style {
        Style::Head => "1",
        Style::New => "32",
        Style::Gone => "31",
        Style::Changed => "33",
        Style::Warn => "35",
        Style::Plain => "",
    };
    if color && !code.is_empty() && !line.text.is_empty() {
        format!("\u{1b}[{code}m{}\u{1b}[0m", line.text)
    } else {
        line.text.clone()
    }
}
