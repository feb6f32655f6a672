//! `meshplan module new`: a module that checks, to be filled (FR-10).

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args as ClapArgs, Subcommand};
use meshplan_schemas::ident::{ModuleName, NodeName, RoleName};
use toml_edit::{Array, DocumentMut, Item, Value, value};

use super::change::{Change, schema_line};
use super::exit::Exit;

/// Modules of a fleet repository.
#[derive(Debug, Clone, ClapArgs)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do with modules.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// Writes modules/NAME/module.toml with a setting, a rendered file and a folder for it, to be changed.
    New {
        /// The module's name.
        name: ModuleName,
        /// A role that brings it; may be given several times.
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<RoleName>,
        /// A node whose record names it; may be given several times. The record keeps its comments and its order.
        #[arg(long = "node", value_name = "NODE")]
        nodes: Vec<NodeName>,
        /// What it is for.
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// The fleet's repository.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
}

/// Runs the command. [`Exit::Refused`] when there is such a module already, [`Exit::No`] when the fleet would not
/// check with it.
///
/// # Errors
/// A file cannot be read or written.
pub fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let Verb::New {
        name,
        roles,
        nodes,
        description,
        dir,
    } = &args.verb;
    let Some(mut change) = Change::begin(dir, out)? else {
        return Ok(Exit::Usage);
    };
    let folder = format!("modules/{name}");
    let there = change
        .tree()
        .iter()
        .any(|(path, _)| path.starts_with(&format!("{folder}/")));
    if there {
        writeln!(out, "{folder} is there already")?;
        return Ok(Exit::Refused);
    }
    change.write(
        format!("{folder}/files/{name}.conf.j2"),
        "# {{ node.name }}: kept by meshplan, changes here are undone\ngreeting = {{ settings.greeting }}\n",
    );
    let path = format!("{folder}/module.toml");
    let text = format!(
        "{}{}",
        schema_line(&path, "module"),
        module_toml(name, roles, description.as_deref())
    );
    change.write(path.as_str(), text);
    for node in nodes {
        let Some((path, text)) = with_module(&change, node, name)? else {
            writeln!(
                out,
                "there is no record of the node `{node}`: `meshplan node add {node}` makes one"
            )?;
            return Ok(Exit::No);
        };
        change.write(path, text);
    }
    let exit = change.carry_out(out)?;
    if exit == Exit::Done {
        writeln!(
            out,
            "{path}: a setting and a file to begin with; `meshplan schema module` says what else it may hold"
        )?;
        if roles.is_empty() && nodes.is_empty() {
            writeln!(
                out,
                "no node has it yet: give it `roles`, or name it in the `modules` of a record"
            )?;
        }
    }
    Ok(exit)
}

fn module_toml(name: &ModuleName, roles: &[RoleName], description: Option<&str>) -> String {
    let text = |text: &str| Value::from(text).to_string();
    let quoted = |names: &[RoleName]| {
        let names: Vec<String> = names.iter().map(|name| text(name.as_str())).collect();
        format!("[{}]", names.join(", "))
    };
    format!(
        "description = {description}
roles = {roles}                        # nodes with one of these have the module; a record can also name it

[settings.greeting]                     # a value for templates: `[vars]` of a record or of fleet.toml gives another
type = \"string\"
default = \"hello\"

[[directory]]
id = \"folder\"
path = \"/etc/{name}\"
mode = \"0755\"

[[file]]
id = \"conf\"
path = \"/etc/{name}/{name}.conf\"
source = \"files/{name}.conf.j2\"         # rendered: its name ends in .j2
mode = \"0644\"
",
        description = text(description.unwrap_or("To be said: what this is for")),
        roles = quoted(roles),
    )
}

/// The record of a node with one module more; none where the node has no record.
fn with_module(
    change: &Change,
    node: &NodeName,
    module: &ModuleName,
) -> anyhow::Result<Option<(String, String)>> {
    let file = format!("/{node}.toml");
    let record = change.tree().iter().find(|(path, _)| {
        path.starts_with("nodes/") && !path.starts_with("nodes/revoked/") && path.ends_with(&file)
    });
    let Some((path, entry)) = record else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&entry.bytes).with_context(|| format!("{path} is not UTF-8"))?;
    let mut document: DocumentMut = text.parse().with_context(|| format!("{path} is no TOML"))?;
    match document.get_mut("modules") {
        Some(Item::Value(Value::Array(modules))) => modules.push(module.as_str()),
        Some(_) => anyhow::bail!("`modules` of {path} is no array"),
        // Before the first table: after it, it would be a key of that table.
        None => document["modules"] = value(std::iter::once(module.as_str()).collect::<Array>()),
    }
    Ok(Some((path.to_owned(), document.to_string())))
}
