//! `meshplan node add`: a new record with an identity of its own (FR-5, FR-10).

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand};
use meshplan_schemas::ident::{ModuleName, NodeId, NodeName, RoleName};
use toml_edit::{Array, DocumentMut, value};
use uuid::Uuid;

use super::exit::Exit;

/// Makes node records.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do with records.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Writes nodes/NAME.toml with a fresh uuid and no keys: invited, not yet enrolled.
    Add {
        /// The node's name.
        name: NodeName,
        /// Roles, in the order in which their policy is laid over the base.
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<RoleName>,
        /// Modules, beside those that the roles bring.
        #[arg(long = "module", value_name = "MODULE")]
        modules: Vec<ModuleName>,
        /// The fleet's repository.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
}

/// Runs the command. [`Exit::Refused`] when there is such a record already.
///
/// # Errors
/// The record cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Verb::Add {
        name,
        roles,
        modules,
        dir,
    } = &args.verb;
    let path = dir.join("nodes").join(format!("{name}.toml"));
    if !dir.join("fleet.toml").is_file() {
        writeln!(
            out,
            "{} is no fleet's repository: it has no fleet.toml",
            dir.display()
        )?;
        return Ok(Exit::Usage);
    }
    fs::create_dir_all(dir.join("nodes"))
        .with_context(|| format!("cannot make {}", dir.join("nodes").display()))?;
    let id = NodeId(Uuid::new_v4());
    let text = record(id, roles, modules);
    let made = OpenOptions::new().write(true).create_new(true).open(&path);
    match made {
        Ok(mut file) => file
            .write_all(text.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?,
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            writeln!(
                out,
                "{} is there already: a node's name is unique",
                path.display()
            )?;
            return Ok(Exit::Refused);
        }
        Err(e) => return Err(e).with_context(|| format!("cannot make {}", path.display())),
    }
    writeln!(out, "{}: {id} (short id {})", path.display(), id.short())?;
    writeln!(
        out,
        "commit it, merge it, then `meshplan fleet invite {name}` makes its invitation"
    )?;
    Ok(Exit::Done)
}

/// The text of a fresh record.
fn record(id: NodeId, roles: &[RoleName], modules: &[ModuleName]) -> String {
    let mut document = DocumentMut::new();
    document["id"] = value(id.to_string());
    let list = |names: Vec<&str>| value(names.into_iter().collect::<Array>());
    document["roles"] = list(roles.iter().map(RoleName::as_str).collect());
    document["modules"] = list(modules.iter().map(ModuleName::as_str).collect());
    format!("#:schema ../.meshplan/schemas/node.json\n{document}")
}
