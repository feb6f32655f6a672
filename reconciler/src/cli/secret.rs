//! `meshplan secret`: secrets at rest in the fleet repository, by name (FR-9). A value is read from a file or from
//! standard input, never from the command line, where every user of the machine could see it; and never printed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand};
use meshplan_schemas::document::texts::SecretName;
use meshplan_schemas::ident::ModuleName;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use serde_json::json;
use zeroize::Zeroizing;

use super::change::Change;
use super::exit::Exit;
use super::{check, table};
use crate::config::Config;
use crate::edge::age_file::{AgeIdentity, AgeRecipient, IDENTITY_FILE, VALUE_BYTES, is_age};
use crate::edge::vault::identity_path;
use crate::pure::parse;
use crate::pure::secrets::Uses;
use crate::pure::source_tree::SourceTree;
use crate::pure::template::SUFFIX;

/// Secrets in the fleet repository: sealed files with names.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do with secrets.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Writes secrets/NAME.age, encrypted to `[secrets] recipient` of fleet.toml. The value comes from standard
    /// input; on a terminal it is asked for and not shown.
    Set {
        /// The secret's name.
        name: SecretName,
        /// Read the value from a file, byte for byte.
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// The fleet's repository.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
    /// Lists names, sizes, whether the reconciler can open each, and which modules use it. Never values.
    List {
        /// The fleet's repository.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// Of a commit, by any name that git knows, instead of the files of the folder.
        #[arg(long, value_name = "COMMIT")]
        commit: Option<String>,
        /// The reconciler's age identity; left out, it is taken from beside the keys of --config, where that is given.
        #[arg(long, value_name = "FILE")]
        identity: Option<PathBuf>,
    },
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read or written.
pub fn run(args: &Args, config: Option<&Path>, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match &args.verb {
        Verb::Set { name, file, dir } => set(name, file.as_deref(), dir, out),
        Verb::List {
            dir,
            commit,
            identity,
        } => {
            let (tree, _) = check::read(dir, commit.as_deref())?;
            let identity = identity_of(identity.as_deref(), config)?;
            list(&tree, identity.as_ref(), json, out)
        }
    }
}

fn set(name: &SecretName, file: Option<&Path>, dir: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Some(mut change) = Change::begin(dir, out)? else {
        return Ok(Exit::Usage);
    };
    // Before the value is asked for: nobody types a secret into a command that cannot keep it.
    let recipient = match recipient(change.tree()) {
        Ok(recipient) => recipient,
        Err(why) => {
            writeln!(out, "{why}")?;
            return Ok(Exit::No);
        }
    };
    let value = match file {
        Some(file) => {
            let opened = fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
            bounded(opened).with_context(|| format!("cannot take {}", file.display()))?
        }
        None => from_stdin(name)?,
    };
    if value.is_empty() {
        writeln!(out, "the value is empty: nothing is written")?;
        return Ok(Exit::Usage);
    }
    let path = format!("secrets/{name}.age");
    let verb = if change.tree().get(&path).is_some() {
        "replaced"
    } else {
        "new"
    };
    change.write(path.as_str(), recipient.seal(&value)?);
    match change.carry_out(out)? {
        Exit::Done => {
            writeln!(out, "{path}: {verb}; only the reconciler can open it")?;
            Ok(Exit::Done)
        }
        other => Ok(other),
    }
}

/// `[secrets] recipient` of fleet.toml, or what to do about it.
fn recipient(tree: &SourceTree) -> Result<AgeRecipient, String> {
    let (documents, findings) = parse::parse(tree);
    let fleet = documents
        .fleet
        .and_then(|document| Some((document.source, document.read?)));
    let Some((source, file)) = fleet else {
        let of_fleet = findings.iter().filter(|f| f.is_error() && f.file == "fleet.toml");
        let said: Vec<String> = of_fleet.map(|finding| finding.render(false)).collect();
        return Err(format!(
            "{}\n\nfleet.toml must be read to seal for the reconciler that it names",
            said.join("\n\n")
        ));
    };
    let Some(written) = &file.secrets.recipient else {
        return Err(format!(
            "fleet.toml names no `[secrets] recipient`: it stands in the first line of the reconciler's {IDENTITY_FILE}"
        ));
    };
    written.value.0.parse().map_err(|why: &str| {
        let message = format!("`secrets.recipient` is no age recipient: {why}");
        source.error(written.span.clone(), message).render(false)
    })
}

/// What standard input has: all of it from a pipe, one line from a terminal, which does not show it.
fn from_stdin(name: &SecretName) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return bounded(stdin.lock()).context("cannot take standard input");
    }
    let quiet =
        Quiet::begin().context("this terminal cannot be kept from showing what is typed: use --file")?;
    let mut err = std::io::stderr().lock();
    write!(err, "value of {name} (not shown, ends with the line): ")?;
    err.flush()?;
    let mut line = Zeroizing::new(String::new());
    let read = stdin.read_line(&mut line);
    drop(quiet);
    writeln!(err)?;
    read.context("cannot read the terminal")?;
    Ok(Zeroizing::new(
        line.trim_end_matches(['\n', '\r']).as_bytes().to_vec(),
    ))
}

/// A terminal that shows nothing of what is typed, until this is dropped.
struct Quiet(Termios);

impl Quiet {
    fn begin() -> rustix::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &quiet)?;
        Ok(Self(before))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // Where the terminal is gone there is nothing to restore.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// All that a reader has, as long as it is no giant.
fn bounded(reader: impl std::io::Read) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let mut value = Zeroizing::new(Vec::new());
    let most = u64::try_from(VALUE_BYTES)? + 1;
    reader.take(most).read_to_end(&mut value)?;
    anyhow::ensure!(
        value.len() <= VALUE_BYTES,
        "a secret is at most {VALUE_BYTES} bytes"
    );
    Ok(value)
}

/// The identity that is given, or the one beside the keys of a configuration; none where there is neither.
///
/// # Errors
/// It cannot be read.
fn identity_of(given: Option<&Path>, config: Option<&Path>) -> anyhow::Result<Option<AgeIdentity>> {
    let path = match (given, config) {
        (Some(path), _) => path.to_owned(),
        (None, Some(config)) => {
            let path = identity_path(&Config::read(config)?.keys.file);
            // Made by an older build: it has none, and the list says that it cannot tell.
            if !path.exists() {
                return Ok(None);
            }
            path
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(AgeIdentity::read(&path)?))
}

/// What is told of one secret.
struct Row {
    name: String,
    bytes: usize,
    opens: Opens,
    used_by: Vec<String>,
    retired: bool,
}

/// Whether the reconciler can open it. "Could not tell" is not "no".
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    Yes,
    No,
    NotAge,
    CannotTell,
}

impl Opens {
    fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::NotAge => "no age file",
            Self::CannotTell => "cannot tell",
        }
    }
}

fn list(
    tree: &SourceTree,
    identity: Option<&AgeIdentity>,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let retired = retired(tree);
    let mut rows = Vec::new();
    for (path, entry) in tree.iter() {
        let Some(name) = path
            .strip_prefix("secrets/")
            .and_then(|file| file.strip_suffix(".age"))
        else {
            continue;
        };
        let opens = match identity {
            _ if !is_age(&entry.bytes) => Opens::NotAge,
            None => Opens::CannotTell,
            Some(identity) if identity.opens(&entry.bytes) => Opens::Yes,
            Some(_) => Opens::No,
        };
        rows.push(Row {
            name: name.to_owned(),
            bytes: entry.bytes.len(),
            opens,
            used_by: used_by(tree, name),
            retired: retired.contains(name),
        });
    }
    let bad = rows
        .iter()
        .any(|row| matches!(row.opens, Opens::No | Opens::NotAge));
    if json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "name": row.name, "size": size_class(row.bytes), "opens": row.opens.word(),
                    "used_by": row.used_by, "retired": row.retired,
                })
            })
            .collect();
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
    } else if rows.is_empty() {
        writeln!(out, "no secrets: `meshplan secret set NAME` makes one")?;
    } else {
        let texts = rows.iter().map(|row| {
            let used = if row.used_by.is_empty() {
                "nobody".to_owned()
            } else {
                row.used_by.join(", ")
            };
            let state = if row.retired { "retired" } else { "" };
            vec![
                row.name.clone(),
                size_class(row.bytes).to_owned(),
                row.opens.word().to_owned(),
                used,
                state.to_owned(),
            ]
        });
        writeln!(
            out,
            "{}",
            table::of(&["name", "file", "reconciler opens it", "used by", ""], texts)
        )?;
        if identity.is_none() {
            writeln!(
                out,
                "\nwhom a file is encrypted to cannot be seen from outside: --config or --identity tells"
            )?;
        }
    }
    Ok(if bad { Exit::No } else { Exit::Done })
}

/// The size of the file, so coarse that it tells little of the value.
fn size_class(bytes: usize) -> &'static str {
    match bytes {
        0..1024 => "under 1 KiB",
        1024..4096 => "under 4 KiB",
        4096..65_536 => "under 64 KiB",
        _ => "64 KiB or more",
    }
}

/// The modules that use it: a file or program of theirs names it, or a template calls `secret("name")`.
fn used_by(tree: &SourceTree, secret: &str) -> Vec<String> {
    let mut modules: BTreeSet<&str> = BTreeSet::new();
    for (path, entry) in tree.iter() {
        let module = path
            .strip_prefix("modules/")
            .and_then(|rest| rest.split_once('/'));
        if let (Some((module, file)), Ok(text)) = (module, std::str::from_utf8(&entry.bytes))
            && module.parse::<ModuleName>().is_ok()
            && uses(file, text, secret)
        {
            modules.insert(module);
        }
    }
    modules.into_iter().map(str::to_owned).collect()
}

fn uses(file: &str, text: &str, secret: &str) -> bool {
    let mut uses = Uses::default();
    if file.ends_with(SUFFIX) {
        uses.add_calls(text);
    } else if file == "module.toml" {
        let document = toml::from_str::<toml::Table>(text).unwrap_or_default();
        uses.names.extend(named(&document));
    }
    uses.names.contains(secret)
}

/// The secrets that resources of a module name.
fn named(document: &toml::Table) -> Vec<String> {
    let resources = document.values().filter_map(toml::Value::as_array).flatten();
    let values = resources.filter_map(toml::Value::as_table).flat_map(|resource| {
        let listed = resource.get("env_secrets").and_then(toml::Value::as_array);
        resource
            .get("secret")
            .into_iter()
            .chain(listed.into_iter().flatten())
    });
    values
        .filter_map(toml::Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// The names in `secrets/retired.toml` (DL-7): its keys, and the texts in its arrays.
fn retired(tree: &SourceTree) -> BTreeSet<String> {
    fn texts(value: &toml::Value, out: &mut BTreeSet<String>) {
        match value {
            toml::Value::String(text) => {
                out.insert(text.clone());
            }
            toml::Value::Array(values) => values.iter().for_each(|value| texts(value, out)),
            toml::Value::Table(table) => {
                for (key, value) in table {
                    out.insert(key.clone());
                    texts(value, out);
                }
            }
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    if let Some(entry) = tree.get("secrets/retired.toml")
        && let Ok(text) = std::str::from_utf8(&entry.bytes)
        && let Ok(table) = toml::from_str::<toml::Table>(text)
    {
        texts(&toml::Value::Table(table), &mut found);
    }
    found
}
