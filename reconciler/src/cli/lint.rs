//! `meshplan lint`: what is legal in a fleet's tree and still unwise.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use meshplan_schemas::finding::Finding;
use serde_json::json;

use super::check;
use super::exit::Exit;
use crate::edge::worktree;
use crate::pure::compose::TreeError;
use crate::pure::lint::{Lint, Subject, lint, rules};
use crate::pure::parse::parse;
use crate::pure::validate::validate;

/// Says what is legal in a fleet's repository and still unwise.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// The folder to look at; with --commit the repository.
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Look at a commit, by any name that git knows, instead of the files of the folder.
    #[arg(long, value_name = "COMMIT")]
    pub commit: Option<String>,
    /// Leave out a rule, by its name; may be given several times.
    #[arg(long = "allow", value_name = "RULE", value_parser = clap::builder::PossibleValuesParser::new(rules()))]
    pub allow: Vec<String>,
    /// Say no where there is anything to say.
    #[arg(long)]
    pub strict: bool,
}

/// Runs the command. [`Exit::No`] when the tree does not check, and with `strict` when anything is found.
///
/// # Errors
/// The folder or commit cannot be read, or nothing can be written to `out`.
pub fn run(args: &Args, json: bool, color: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (tree, of_paths) = check::read(&args.dir, args.commit.as_deref())?;
    // What does not compose is not wise or unwise: it is wrong, and said as `check` says it.
    let errors: Vec<Finding> = match check::compose_with(&tree, of_paths) {
        Ok(_) => Vec::new(),
        Err(TreeError::Findings(findings)) => findings.into_iter().filter(Finding::is_error).collect(),
        Err(TreeError::NoFleet(reason)) => vec![Finding::of_file("", reason)],
    };
    let (documents, _) = parse(&tree);
    let validated = validate(documents.clone());
    let found = match (&validated, errors.is_empty()) {
        (Ok(validated), true) => {
            let paths: Vec<&str> = tree.iter().map(|(path, _)| path).collect();
            let ignored = match args.commit {
                None => worktree::ignored(&args.dir, &paths),
                Some(_) => BTreeSet::new(),
            };
            lint(&Subject {
                documents: &documents,
                validated,
                ignored: &ignored,
            })
        }
        _ => Vec::new(),
    };
    let found: Vec<Lint> = found
        .into_iter()
        .filter(|lint| !args.allow.iter().any(|rule| rule == lint.rule))
        .collect();
    let ok = errors.is_empty() && (found.is_empty() || !args.strict);
    if json {
        let said = json!({ "ok": ok, "errors": errors, "findings": found });
        writeln!(out, "{}", serde_json::to_string_pretty(&said)?)?;
    } else {
        for finding in &errors {
            writeln!(out, "{}\n", finding.render(color))?;
        }
        for lint in &found {
            let mut finding = lint.finding.clone();
            finding.message = format!("{} [{}]", finding.message, lint.rule);
            writeln!(out, "{}\n", finding.render(color))?;
        }
        match (errors.len(), found.len()) {
            (0, 0) => writeln!(out, "nothing to say")?,
            (0, count) => writeln!(out, "{count} to think about; `--allow RULE` leaves one out")?,
            (count, _) => {
                let errors = check::counted(count, "error");
                writeln!(out, "refused: {errors}; `meshplan check` says the same")?;
            }
        }
    }
    Ok(if ok { Exit::Done } else { Exit::No })
}
